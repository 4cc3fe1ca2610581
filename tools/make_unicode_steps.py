#!/usr/bin/env python3
"""Writes src/data/tokenizer/pipeline/unicode_steps.c: the characters that steps of a tokenizer.json drop or change.

The steps of the reference library use tables of several versions of Unicode, so this program asks the library
about each character:
  pip install tokenizers==0.23.3 && tools/make_unicode_steps.py > src/data/tokenizer/pipeline/unicode_steps.c
"""
import sys
import textwrap

from tokenizers import normalizers, pre_tokenizers

POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


def table(about, name, belongs):
    ranges, last = [], -1
    for c in POINTS:
        if not belongs(chr(c)):
            continue
        if c == last + 1 and ranges:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
        last = c
    numbers = ", ".join(f"{{{a:#x}, {b:#x}}}" for a, b in ranges)
    text = textwrap.indent(textwrap.fill(numbers, 96), "    ")
    return f"// {about}\nstatic const unicode_range {name}[] = {{\n{text}}};\n"


def lower_table():
    """Runs of characters of one distance to their lower case: first, last, step, distance."""
    lower = normalizers.Lowercase()
    runs = []
    for c in POINTS:
        small = lower.normalize_str(chr(c))
        if small == chr(c) or len(small) != 1:
            continue
        distance = ord(small) - c
        if runs and runs[-1][3] == distance:
            first, last, step, _ = runs[-1]
            if c - last <= 2 and (first == last or step == c - last):
                runs[-1] = [first, c, c - last, distance]
                continue
        runs.append([c, c, 1, distance])
    numbers = ", ".join(f"{{{a:#x}, {b:#x}, {s}, {d}}}" for a, b, s, d in runs)
    text = textwrap.indent(textwrap.fill(numbers, 96), "    ")
    return f"static const lower_run lowers[] = {{\n{text}}};\n"


HEAD = """// Which characters the steps of a tokenizer.json drop or change, as the reference library answers.
// Made by tools/make_unicode_steps.py; not edited by hand. Facts of the Unicode Character Database,
// (c) Unicode, Inc., used under the Unicode License v3.
//
// System libraries are no substitute: their tables are of the version that the machine happens to
// have, and a tokenizer must not change with the machine.
#include "data/tokenizer/pipeline/unicode_steps.h"

// Every `step`-th character from first to last has its lower case at this distance.
typedef struct lower_run {
    uint32_t first, last;
    int32_t step, distance;
} lower_run;

// clang-format off
"""

TAIL = """// clang-format on

#define SET(name) {name, COUNT_OF(name)}
static const struct {
    const unicode_range *ranges;
    int64_t count;
} sets[] = { // in the order of unicode_set
    SET(controls), SET(accents), SET(marks), SET(chinese), SET(punctuation), SET(numbers), SET(words),
};

const unicode_range *unicode_ranges(unicode_set set, int64_t *count)
{
    *count = sets[set].count;
    return sets[set].ranges;
}

bool unicode_in(const unicode_range *ranges, int64_t count, uint32_t point)
{
    int64_t low = 0, high = count;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (point > ranges[middle].last) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < count && point >= ranges[low].first;
}

bool unicode_is(unicode_set set, uint32_t point)
{
    return unicode_in(sets[set].ranges, sets[set].count, point);
}

uint32_t unicode_lower(uint32_t point)
{
    int64_t low = 0, high = COUNT_OF(lowers);
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (point > lowers[middle].last) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == COUNT_OF(lowers) || point < lowers[low].first) return point;
    const lower_run *r = &lowers[low];
    if ((point - r->first) % (uint32_t)r->step != 0) return point;
    return (uint32_t)((int32_t)point + r->distance);
}
"""


def main():
    bert = lambda clean, zh, accents: normalizers.BertNormalizer(clean, zh, accents, False).normalize_str
    clean, zh, accents = bert(True, False, False), bert(False, True, False), bert(False, False, True)
    marks = normalizers.StripAccents().normalize_str
    pieces = lambda step: lambda c: len(step.pre_tokenize_str("a" + c + "b")) == 3
    words = pre_tokenizers.Whitespace()
    sys.stdout.write(HEAD)
    for row in [
        ("BertNormalizer drops these with clean_text.", "controls", lambda c: clean(c) == ""),
        ("BertNormalizer drops these with strip_accents.", "accents", lambda c: accents(c) == ""),
        ("StripAccents drops these.", "marks", lambda c: marks(c) == ""),
        ("BertNormalizer puts blanks around these.", "chinese", lambda c: zh(c) != c),
        ("Punctuation and BertPreTokenizer cut at these.", "punctuation", pieces(pre_tokenizers.Punctuation())),
        ("Digits cuts at these.", "numbers", pieces(pre_tokenizers.Digits())),
        ("Whitespace keeps these together as words.", "words",
         lambda c: [w for w, _ in words.pre_tokenize_str("a" + c)] == ["a" + c]),
    ]:
        sys.stdout.write(table(*row))
    sys.stdout.write(lower_table() + TAIL)


main()
