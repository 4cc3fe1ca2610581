#!/usr/bin/env python3
"""Writes src/data/tokenizer/pipeline/unicode_category.c: the sets of characters that regular expressions name.

The reference library answers for each character, so the tables have the version of Unicode of its engine:
  pip install tokenizers==0.23.3 && tools/make_unicode_category.py > src/data/tokenizer/pipeline/unicode_category.c
"""
import sys
import textwrap

from tokenizers import Regex, pre_tokenizers

POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
ALL = "".join(map(chr, POINTS))
CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co Cn").split()
# The name in C, and an expression.
SETS = [
    ("WORD", r"\w"), ("ALPHABETIC", r"\p{Alphabetic}"), ("LOWERCASE", r"\p{Lowercase}"),
    ("UPPERCASE", r"\p{Uppercase}"), ("SPACE", r"\s"), ("PUNCT", r"[[:punct:]]"), ("HAN", r"\p{Han}"),
    ("HIRAGANA", r"\p{Hiragana}"), ("KATAKANA", r"\p{Katakana}"), ("HANGUL", r"\p{Hangul}"),
    ("LATIN", r"\p{Latin}"), ("GREEK", r"\p{Greek}"), ("CYRILLIC", r"\p{Cyrillic}"), ("HEBREW", r"\p{Hebrew}"),
    ("ARABIC", r"\p{Arabic}"), ("DEVANAGARI", r"\p{Devanagari}"), ("THAI", r"\p{Thai}"),
]


def matched(expression):
    rest = pre_tokenizers.Split(Regex(expression), "removed").pre_tokenize_str(ALL)
    return set(POINTS) - {ord(c) for piece, _ in rest for c in piece}


def lines(numbers):
    return textwrap.indent(textwrap.fill(", ".join(numbers), 96, break_long_words=False), "    ")


def ranges(points):
    found = []
    for c in sorted(points):
        if found and found[-1][1] == c - 1:
            found[-1][1] = c
        else:
            found.append([c, c])
    return found


HEAD = """// The general category of every character, and other sets that regular expressions name, as the
// reference library answers. Made by tools/make_unicode_category.py; not edited by hand. Facts of
// the Unicode Character Database, (c) Unicode, Inc., used under the Unicode License v3.
#include "data/tokenizer/pipeline/unicode_category.h"

// clang-format off
// The first code point of each run << 5 | its category; a run ends where the next one begins.
"""

TAIL = """// clang-format on

const uint32_t *unicode_category_runs(int64_t *count)
{
    *count = COUNT_OF(runs);
    return runs;
}

const unicode_named *unicode_named_set(unicode_name name)
{
    return &sets[name];
}
"""


def main():
    of = {}
    for k, name in enumerate(CATEGORIES):
        for c in matched(r"\p{%s}" % name):
            assert c not in of, hex(c)
            of[c] = k
    for c in range(0xD800, 0xE000):
        of[c] = CATEGORIES.index("Cs")
    runs = [c for c in range(0x110000) if c == 0 or of[c] != of[c - 1]]
    sys.stdout.write(HEAD)
    sys.stdout.write(f"static const uint32_t runs[] = {{\n{lines([hex(c << 5 | of[c]) for c in runs])}}};\n")
    rows = []
    for name, expression in SETS:
        points = matched(expression)
        whole = [k for k in range(len(CATEGORIES)) if CATEGORIES[k] != "Cs"
                 and all(c in points for c in POINTS if of[c] == k)]
        mask = sum(1 << k for k in whole)
        rest = ranges(c for c in points if of[c] not in whole)
        text = "NULL, 0"
        if rest:
            numbers = lines([f"{{{a:#x}, {b:#x}}}" for a, b in rest])
            sys.stdout.write(f"static const unicode_range {name.lower()}[] = {{\n{numbers}}};\n")
            text = f"{name.lower()}, COUNT_OF({name.lower()})"
        rows.append(f"    [UNICODE_NAME_{name}] = {{{mask:#x}, {text}}},\n")
    sys.stdout.write("static const unicode_named sets[] = {\n" + "".join(rows) + "};\n" + TAIL)


main()
