#!/usr/bin/env python3
"""Writes src/data/tokenizer/pipeline/unicode_scripts.c: the scripts between which `UnicodeScripts` splits a text.

The reference library answers for each character, so the table has its version of Unicode and its exceptions:
  pip install tokenizers==0.23.3 && tools/make_unicode_scripts.py > src/data/tokenizer/pipeline/unicode_scripts.c
"""
import textwrap

from tokenizers import pre_tokenizers

POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
STEP = pre_tokenizers.UnicodeScripts()


def begins(text):
    """Where the pieces of the text begin."""
    return {span[0] for _, span in STEP.pre_tokenize_str(text)}


def joined(letter):
    """The characters that stay in one piece with the letter before them."""
    found = begins("".join(letter + chr(c) for c in POINTS))
    return {c for i, c in enumerate(POINTS) if 2 * i + 1 not in found}


def runs():
    anywhere = joined("a") & joined("α")
    heads = []  # a character of each script
    last = 0
    yield 0, 0
    for c in POINTS:
        if c in anywhere:
            number = 0
        elif last > 0 and len(STEP.pre_tokenize_str(heads[last - 1] + chr(c))) == 1:
            continue
        else:
            known = [i for i, h in enumerate(heads) if len(STEP.pre_tokenize_str(h + chr(c))) == 1]
            if not known:
                known = [len(heads)]
                heads.append(chr(c))
            number = known[0] + 1
        if number != last:
            yield c, number
        last = number


print("""// The script of every character, as the reference library's step `UnicodeScripts` sees it. Made by
// tools/make_unicode_scripts.py; not edited by hand. Facts of the Unicode Character Database, (c)
// Unicode, Inc., used under the Unicode License v3.
#include "data/tokenizer/pipeline/unicode_steps.h"

// clang-format off
// The first code point of each run << 8 | the number of its script; a run ends where the next one
// begins.
static const uint32_t runs[] = {""")
print(textwrap.indent(textwrap.fill(", ".join("0x%x" % (c << 8 | n) for c, n in runs()), 96), "    "))
print("""};
// clang-format on

int unicode_script(uint32_t point)
{
    int64_t low = 0, high = COUNT_OF(runs);
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        if (runs[middle] >> 8 <= point) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return (int)(runs[low] & 0xff);
}""")
