// Offsets: which units are in use at the same time, as a table of bits.
#include "plan/memory_internal.h"

#include <stdlib.h>
#include <string.h>

// Turns 64 x 64 bits over their diagonal (Hacker's Delight, 7-3).
static void bits_transpose(uint64_t x[64])
{
    uint64_t mask = UINT64_C(0x00000000ffffffff);
    for (int j = 32; j != 0; j >>= 1, mask ^= mask << j) {
        for (int k = 0; k < 64; k = ((k | j) + 1) & ~j) {
            const uint64_t t = (x[k] >> j ^ x[k | j]) & mask;
            x[k] ^= t << j;
            x[k | j] ^= t;
        }
    }
}

// What meets is known to both: each block is added to its mirror.
static void meets_mirror(placing *pl)
{
    const int64_t n = pl->order_count, words = pl->words;
    uint64_t block[64];
    for (int64_t i = 0; i < words; i++) {
        for (int64_t j = 0; j < words; j++) {
            for (int64_t k = 0; k < 64; k++) {
                block[k] = 64 * i + k < n ? pl->meets[(64 * i + k) * words + j] : 0;
            }
            bits_transpose(block);
            for (int64_t k = 0; k < 64 && 64 * j + k < n; k++) {
                pl->meets[(64 * j + k) * words + i] |= block[k];
            }
        }
    }
}

typedef struct border {
    int64_t time;
    int32_t number;
    bool begins;
} border;

static int compare_borders(const void *a, const void *b)
{
    const border *x = a, *y = b;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    return (int)y->begins - (int)x->begins; // who begins as another ends meets it
}

// Which units meet, once for all orders: a bit for each pair. Through time from border to border: who begins
// meets all that have begun and not ended.
status meets_find(arena *a, placing *pl)
{
    enum { MOST = 1 << 14 }; // units: 32 MiB of bits
    const int64_t n = pl->order_count;
    border *borders = NULL;
    uint64_t *open = NULL;
    int64_t count = 0, i = 0;
    for (int64_t k = 0; k < n; k++) {
        pl->units[pl->order[k]].number = (int32_t)k;
        count += 2 * pl->units[pl->order[k]].span_count;
    }
    if (n > MOST) return ST_OK;
    pl->words = (n + 63) / 64;
    TRY(arena_new(a, n * pl->words, &pl->meets));
    TRY(arena_new(a, pl->words + 1, &open));
    TRY(arena_new(a, count + 1, &borders));
    for (int64_t k = 0; k < n; k++) {
        const unit *u = &pl->units[pl->order[k]];
        for (int64_t s = 0; s < u->span_count; s++) {
            borders[i++] = (border){u->spans[s].begin, (int32_t)k, true};
            borders[i++] = (border){u->spans[s].end, (int32_t)k, false};
        }
    }
    qsort(borders, (size_t)count, sizeof(*borders), compare_borders);
    for (i = 0; i < count; i++) {
        const int64_t number = borders[i].number;
        const uint64_t bit = UINT64_C(1) << (number % 64);
        uint64_t *row = &pl->meets[number * pl->words];
        for (int64_t w = 0; w < pl->words && borders[i].begins; w++) row[w] |= open[w];
        if (borders[i].begins) {
            open[number / 64] |= bit;
        } else {
            open[number / 64] &= ~bit;
        }
    }
    meets_mirror(pl);
    return ST_OK;
}
