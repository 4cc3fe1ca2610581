// Philox4x32-10 and the functions on its 32-bit words.
//
// Integer arithmetic only. rng_normal.c makes the normal deviates.
#include "base/rng.h"

#include <string.h>
#include <xxhash.h>

static philox_words philox_at(uint64_t seed, uint64_t high, uint64_t low)
{
    const uint32_t counter[4] = {(uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high,
                                 (uint32_t)(high >> 32)};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    return philox4x32_10(counter, key);
}

uint64_t rng_name_key(const char *name)
{
    return XXH64(name, strlen(name), 0);
}

uint32_t rng_word(uint64_t seed, uint64_t stream, uint64_t index)
{
    return philox_at(seed, stream, index >> 2).w[index & 3];
}

// One pass of the Feistel network on 2 * half bits. The counter's upper words hold round and
// stream, the lower one holds the half. Eight rounds: four suffice for a pseudo-random permutation
// in theory (Luby & Rackoff 1988), but small domains need more.
static uint64_t feistel(uint64_t seed, uint64_t stream, int half, uint64_t x)
{
    const uint64_t mask = (UINT64_C(1) << half) - 1;
    uint64_t left = x >> half, right = x & mask;
    for (uint64_t round = 0; round < 8; round++) {
        // Bit 63 keeps these counters apart from those of rng_word.
        const uint64_t low = UINT64_C(1) << 63 | round << 32 | right;
        const uint64_t next = left ^ (philox_at(seed, stream, low).w[0] & mask);
        left = right;
        right = next;
    }
    return left << half | right;
}

// A permutation of 0..4^half - 1, followed along its cycle until it lands below count. As count is
// more than 4^(half - 1), at most four steps are expected.
int64_t rng_permute(uint64_t seed, uint64_t stream, int64_t count, int64_t index)
{
    int half = 1;
    while (half < 32 && (UINT64_C(1) << (2 * half)) < (uint64_t)count) half++;
    uint64_t x = (uint64_t)index;
    do {
        x = feistel(seed, stream, half, x);
    } while (x >= (uint64_t)count);
    return (int64_t)x;
}
