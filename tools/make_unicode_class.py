#!/usr/bin/env python3
"""Writes src/data/tokenizer/unicode_class.c: which code points are letters and numbers.

Needs the Python package unicodedata2, of the version of Unicode that the reference tokenizers use:
  pip install unicodedata2==16.0.0 && tools/make_unicode_class.py > src/data/tokenizer/unicode_class.c
"""
import sys
import textwrap

import unicodedata2


def ranges(major):
    found, end = [], -1
    for point in range(0x110000):
        if unicodedata2.category(chr(point))[0] == major:
            if point == end:
                found[-1][1] += 1
            else:
                found.append([point, 1])
            end = point + 1
    return found


def table(name, major):
    numbers, at = [], 0
    for begin, count in ranges(major):
        numbers += [begin - at, count]
        at = begin + count
    assert max(numbers) < 65536
    text = textwrap.fill(", ".join(map(str, numbers)), 96)
    return f"static const uint16_t {name}[] = {{\n{textwrap.indent(text, '    ')}}};\n"


HEAD = """// Which code points are letters (general category L) and numbers (N): Unicode %s, the version that
// the reference tokenizers see. Made by tools/make_unicode_class.py; not edited by hand.
// Facts of the Unicode Character Database, (c) Unicode, Inc., used under the Unicode License v3.
//
// Each table is pairs: how many code points to skip, then how many belong to the class. System
// libraries are no substitute: their tables are of the version that the machine happens to have,
// and a tokenizer must not change with the machine.
#include "data/tokenizer/split.h"

// clang-format off
"""

TAIL = """// clang-format on

static void fill(uint8_t *classes, const uint16_t *pairs, int64_t count, uint8_t class)
{
    int64_t at = 0;
    for (int64_t i = 0; i < count; i += 2) {
        at += pairs[i];
        for (int64_t k = 0; k < pairs[i + 1]; k++) classes[at++] = class;
    }
    ASSERT(at <= SPLIT_CLASS_POINTS);
}

// White_Space of Unicode, which is what \\s matches.
static const uint32_t spaces[] = {
    0x9,    0xa,    0xb,    0xc,    0xd,    0x20,   0x85,   0xa0,   0x1680,
    0x2000, 0x2001, 0x2002, 0x2003, 0x2004, 0x2005, 0x2006, 0x2007, 0x2008,
    0x2009, 0x200a, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000,
};

void split_classes_fill(uint8_t classes[SPLIT_CLASS_POINTS])
{
    for (int64_t i = 0; i < SPLIT_CLASS_POINTS; i++) classes[i] = SPLIT_OTHER;
    fill(classes, letters, COUNT_OF(letters), SPLIT_LETTER);
    fill(classes, numbers, COUNT_OF(numbers), SPLIT_NUMBER);
    for (int64_t i = 0; i < COUNT_OF(spaces); i++) classes[spaces[i]] = SPLIT_SPACE;
}
"""

sys.stdout.write(HEAD % unicodedata2.unidata_version)
sys.stdout.write(table("letters", "L") + table("numbers", "N") + TAIL)
