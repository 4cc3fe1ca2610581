// Pass 5 of lowering, overlaps: a bit table of the units that are live at the same time.
#include "plan/lower/place_internal.h"

#include <string.h>

// Transposes a matrix of 64 x 64 bits (Hacker's Delight, 7-3).
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

// Makes the table symmetric: adds each block to its mirror.
static void overlaps_mirror(placing *pl)
{
    const int64_t n = pl->order_count, words = pl->words;
    uint64_t block[64];
    for (int64_t i = 0; i < words; i++) {
        for (int64_t j = 0; j < words; j++) {
            for (int64_t k = 0; k < 64; k++) {
                block[k] = 64 * i + k < n ? pl->overlaps[(64 * i + k) * words + j] : 0;
            }
            bits_transpose(block);
            for (int64_t k = 0; k < 64 && 64 * j + k < n; k++) {
                pl->overlaps[(64 * j + k) * words + i] |= block[k];
            }
        }
    }
}

status rows_sort(arena *a, const int64_t *keys, int64_t count, int64_t most, int32_t **out)
{
    int32_t *next = NULL; // [key + 1] rows before those of the key
    TRY(arena_new(a, most + 2, &next));
    TRY(arena_new(a, count + 1, out));
    for (int64_t i = 0; i < count; i++) next[keys[i] + 1]++;
    for (int64_t k = 0; k < most; k++) next[k + 1] += next[k];
    for (int64_t i = 0; i < count; i++) (*out)[next[keys[i]]++] = (int32_t)i;
    return ST_OK;
}

// The ends of live intervals in the order of time. An interval that begins when another ends
// overlaps it.
typedef struct endpoint_list {
    int64_t *keys;    // 2 x time, plus 1 for an end
    int32_t *numbers; // number of the unit
    int32_t *order;
    int64_t count;
} endpoint_list;

static status endpoints_sort(arena *a, const placing *pl, int64_t count, endpoint_list *out)
{
    int64_t i = 0, last = 0;
    TRY(arena_new(a, count + 1, &out->keys));
    TRY(arena_new(a, count + 1, &out->numbers));
    for (int64_t k = 0; k < pl->order_count; k++) {
        const unit *u = &pl->units[pl->order[k]];
        for (int64_t s = 0; s < u->span_count; s++) {
            out->keys[i] = 2 * u->spans[s].begin;
            out->numbers[i++] = (int32_t)k;
            out->keys[i] = 2 * u->spans[s].end + 1;
            out->numbers[i++] = (int32_t)k;
            last = max_i64(last, 2 * u->spans[s].end + 1);
        }
    }
    out->count = count;
    return rows_sort(a, out->keys, count, last, &out->order);
}

// Fills the bit table once for all orders. It walks through the ends of intervals in time: a unit
// that begins overlaps all that have begun and not ended.
status overlaps_find(arena *a, placing *pl)
{
    enum { MOST = 1 << 14 }; // units: 32 MiB of bits
    const int64_t n = pl->order_count;
    endpoint_list endpoints = {0};
    uint64_t *open = NULL;
    int64_t count = 0;
    for (int64_t k = 0; k < n; k++) {
        pl->units[pl->order[k]].number = (int32_t)k;
        count += 2 * pl->units[pl->order[k]].span_count;
    }
    if (n > MOST) return ST_OK;
    pl->words = (n + 63) / 64;
    TRY(arena_new(a, n * pl->words, &pl->overlaps));
    TRY(arena_new(a, pl->words + 1, &open));
    TRY(endpoints_sort(a, pl, count, &endpoints));
    for (int64_t i = 0; i < count; i++) {
        const int64_t number = endpoints.numbers[endpoints.order[i]];
        const bool begins = endpoints.keys[endpoints.order[i]] % 2 == 0;
        const uint64_t bit = UINT64_C(1) << (number % 64);
        uint64_t *row = &pl->overlaps[number * pl->words];
        for (int64_t w = 0; w < pl->words && begins; w++) row[w] |= open[w];
        if (begins) {
            open[number / 64] |= bit;
        } else {
            open[number / 64] &= ~bit;
        }
    }
    overlaps_mirror(pl);
    return ST_OK;
}

// True if the intervals overlap anywhere but at the single times when `from` passes its bytes to
// `to`.
bool intervals_overlap(const unit *a, const unit *b, const inplace_link *link, int64_t *touches)
{
    int64_t i = 0, j = 0;
    *touches = 0;
    while (i < a->span_count && j < b->span_count) {
        const live_interval x = a->spans[i], y = b->spans[j];
        if (x.end < y.begin) {
            i++;
        } else if (y.end < x.begin) {
            j++;
        } else {
            if (link == NULL || x.end != y.begin) return true;
            *touches += 1;
            i++;
        }
    }
    return false;
}
