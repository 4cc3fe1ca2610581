// Counter-based random numbers: Philox4x32-10 (Salmon et al. 2011, doi:10.1145/2063384.2063405).
//
// A number is a function of (seed, step, what, where) only: no state, no rank, no thread. The code
// that computes an element computes its random bits too, so every layout gives the same numbers.
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include "base/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct philox_words {
    uint32_t w[4];
} philox_words;

static inline DEVICE_CODE philox_words philox4x32_10(const uint32_t counter[4],
                                                     const uint32_t key[2])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53U * c0, p1 = (uint64_t)0xCD9E8D57U * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9U; // the golden ratio and sqrt(3) - 1, as in the paper
        k1 += 0xBB67AE85U;
    }
    philox_words out;
    out.w[0] = c0;
    out.w[1] = c1;
    out.w[2] = c2;
    out.w[3] = c3;
    return out;
}

// A 64-bit key for a named tensor: XXH64 of the name. Equal on every machine.
uint64_t rng_name_key(const char *name);

// Uniform in [0, 1) with 24 bits.
static inline DEVICE_CODE float rng_uniform(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24f;
}

// Two independent normal deviates from the operations + - x / and sqrt only, so their bits are
// equal on every machine: sqrt(-2 ln u) times cos and sin of 2 pi v, where the two words give u and
// v.
typedef struct rng_pair {
    float cosine, sine;
} rng_pair;
rng_pair rng_normals(uint32_t word_a, uint32_t word_b);

// Element `index` of the initial values of tensor `name_key`: standard normal. Four elements share
// counter (index / 4 low, high, name low, high) under key (seed low, high): its words give two
// pairs.
float rng_tensor_normal(uint64_t seed, uint64_t name_key, int64_t index);
// Elements begin to begin + count - 1, in vector code where the processor has it: the same bits.
void rng_tensor_normals(uint64_t seed, uint64_t name_key, int64_t begin, int64_t count, float *out);

// A stream of words for shuffles and sampling: word `index` of stream (seed, stream).
uint32_t rng_word(uint64_t seed, uint64_t stream, uint64_t index);
// Position of item `index` in a pseudo-random permutation of 0..count-1 (Feistel network with cycle
// walking: no memory). seed and stream select the permutation.
int64_t rng_permute(uint64_t seed, uint64_t stream, int64_t count, int64_t index);

#ifdef __cplusplus
}
#endif
#endif
