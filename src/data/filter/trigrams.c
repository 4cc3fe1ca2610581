// Reads the language model into a table that a trigram's hash indexes. The weights stay where they
// are in the text.
#include "data/filter/trigrams.h"

#include "data/tokenizer/family.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS = 1 << 14, ROWS_MAX = 1 << 13, CHARACTER_BITS = 13 };

struct trigrams {
    uint64_t keys[SLOTS]; // 0: free
    const char *weights[SLOTS];
    const char *others; // the weights of all other trigrams
    uint8_t steps[256]; // by the character that stands for them
};

static uint64_t key_of(uint32_t first, uint32_t second, uint32_t third)
{
    return (uint64_t)first << 2 * CHARACTER_BITS | (uint64_t)second << CHARACTER_BITS | third;
}

// The slot of the key, or the free one where it belongs.
static int64_t slot_of(const trigrams *t, uint64_t key)
{
    uint64_t slot = key * UINT64_C(0x9e3779b97f4a7c15) >> 50; // 14 bits
    while (t->keys[slot] != 0 && t->keys[slot] != key) slot = (slot + 1) % SLOTS;
    return (int64_t)slot;
}

static status damaged(int64_t line)
{
    return fail(ST_INTERNAL, "share/language/trigrams.txt:%lld: no row of a trigram",
                (long long)line);
}

// "abc WEIGHTS", where _ stands for a blank, or "? WEIGHTS".
static status read_row(trigrams *t, const char *row, int64_t count, int64_t line)
{
    uint32_t points[3];
    int64_t at = 0;
    if (count == 2 + TRIGRAMS_LANGUAGES && row[0] == '?') {
        t->others = row + 2;
        return ST_OK;
    }
    for (int i = 0; i < 3; i++) {
        bool torn = false;
        if (at >= count) return damaged(line);
        const int bytes = utf8_next((const uint8_t *)row + at, count - at, &points[i], &torn);
        if (bytes <= 0 || points[i] >= 1U << CHARACTER_BITS) return damaged(line);
        if (points[i] == '_') points[i] = ' ';
        at += bytes;
    }
    if (count - at != 1 + TRIGRAMS_LANGUAGES || line > ROWS_MAX) return damaged(line);
    const uint64_t key = key_of(points[0], points[1], points[2]);
    const int64_t slot = slot_of(t, key);
    t->keys[slot] = key;
    t->weights[slot] = row + at + 1;
    return ST_OK;
}

static status check_names(const char *row, int64_t count, const char *const *names, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t bytes = (int64_t)strlen(names[i]);
        if (bytes > count || memcmp(row, names[i], (size_t)bytes) != 0) return damaged(2);
        row += bytes + (i + 1 < n);
        count -= bytes + (i + 1 < n);
    }
    return count == 0 ? ST_OK : damaged(2);
}

static status read_all(trigrams *t, const char *const *names, int64_t count)
{
    int64_t line = 0;
    for (const char *row = trigrams_text; *row != 0;) {
        const int64_t bytes = (int64_t)strcspn(row, "\n");
        if (++line == 2) TRY(check_names(row, bytes, names, count)); // after the comment
        if (line > 2) TRY(read_row(t, row, bytes, line));
        row += bytes + (row[bytes] != 0);
    }
    return t->others != NULL ? ST_OK : damaged(line);
}

status trigrams_open(const char *const *names, int64_t count, trigrams **out)
{
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    trigrams *t = calloc(1, sizeof(*t));
    if (t == NULL) return fail(ST_NO_MEMORY, "no memory for the language model");
    for (int i = 0; digits[i] != 0; i++) t->steps[(uint8_t)digits[i]] = (uint8_t)i;
    const status st = read_all(t, names, count);
    if (st == ST_OK) {
        *out = t;
    } else {
        trigrams_close(t);
    }
    return st;
}

void trigrams_close(trigrams *t)
{
    free(t);
}

uint32_t trigrams_lower(uint32_t letter)
{
    const bool odd_is_large = (letter >= 0x139 && letter <= 0x148) ||
                              (letter >= 0x179 && letter <= 0x17e) || letter == 0x1af ||
                              (letter >= 0x4c1 && letter <= 0x4ce);
    const bool even_is_large =
        (letter >= 0x100 && letter <= 0x137) || (letter >= 0x14a && letter <= 0x177) ||
        (letter >= 0x182 && letter <= 0x185) || letter == 0x1a0 ||
        (letter >= 0x1de && letter <= 0x1ef) || (letter >= 0x1f8 && letter <= 0x21f) ||
        (letter >= 0x222 && letter <= 0x233) || (letter >= 0x460 && letter <= 0x4bf) ||
        (letter >= 0x4d0 && letter <= 0x52f) || (letter >= 0x1e00 && letter <= 0x1e95) ||
        (letter >= 0x1ea0 && letter <= 0x1eff);
    if (letter >= 'A' && letter <= 'Z') return letter + 32;
    if (letter >= 0xc0 && letter <= 0xde) return letter + 32;
    if (letter == 0x130) return 'i';
    if (letter == 0x178) return 0xff;
    if (odd_is_large) return letter + (letter & 1);
    if (even_is_large) return letter | 1;
    if (letter >= 0x410 && letter <= 0x42f) return letter + 32;
    return letter >= 0x400 && letter <= 0x40f ? letter + 80 : letter;
}

int trigrams_add(const trigrams *t, uint32_t first, uint32_t second, uint32_t third, int64_t sums[])
{
    const uint64_t key = key_of(first, second, third);
    const int64_t slot = slot_of(t, key);
    const bool is_known = t->keys[slot] == key;
    const char *weights = is_known ? t->weights[slot] : t->others;
    for (int i = 0; i < TRIGRAMS_LANGUAGES; i++) sums[i] += t->steps[(uint8_t)weights[i]];
    return is_known;
}
