// Philox4x32-10 and what is made of its words.
//
// Everything here is integer arithmetic, or + - x / and sqrt on doubles, which IEEE 754 defines to
// the last bit; the build forbids contraction. So every machine makes the same numbers, and no
// libm, whose last bits differ, is asked.
#include "base/rng.h"

#include <float.h>
#include <math.h>
#include <string.h>
#include <xxhash.h>

_Static_assert(FLT_EVAL_METHOD == 0, "doubles must be computed as doubles");

philox_words philox4x32_10(const uint32_t counter[4], const uint32_t key[2])
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
    return (philox_words){{c0, c1, c2, c3}};
}

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

// ln(x) for normal x > 0, to about 1e-16 relative. x = 2^e m with m in [sqrt(1/2), sqrt(2)), and
// ln m = 2 artanh(s), s = (m - 1) / (m + 1), |s| < 0.172: ten terms of the odd series.
static const double odd_parts[10] = {1.0 / 19.0, 1.0 / 17.0, 1.0 / 15.0, 1.0 / 13.0, 1.0 / 11.0,
                                     1.0 / 9.0,  1.0 / 7.0,  1.0 / 5.0,  1.0 / 3.0,  1.0};
static double ln(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    int exponent = (int)(bits >> 52) - 1023;
    bits = (bits & UINT64_C(0xfffffffffffff)) | UINT64_C(0x3ff0000000000000);
    double m;
    memcpy(&m, &bits, sizeof(m));
    if (m > 1.4142135623730951) {
        m *= 0.5;
        exponent += 1;
    }
    const double s = (m - 1.0) / (m + 1.0), z = s * s;
    double sum = 1.0 / 21.0;
    for (int k = 0; k < 10; k++) sum = odd_parts[k] + z * sum;
    return (double)exponent * 0.6931471805599453 + 2.0 * s * sum;
}

// cos(2 pi word / 2^32). The word's top bits choose the octant exactly; what is left is an angle of
// at most pi / 4, where eight or nine terms of the Taylor series leave an error below
// 1e-16.
static const double even_factorials[8] = {
    -1.0 / 87178291200.0, 1.0 / 479001600.0, -1.0 / 3628800.0, 1.0 / 40320.0,
    -1.0 / 720.0,         1.0 / 24.0,        -1.0 / 2.0,       1.0};
static const double odd_factorials[7] = {1.0 / 6227020800.0,
                                         -1.0 / 39916800.0,
                                         1.0 / 362880.0,
                                         -1.0 / 5040.0,
                                         1.0 / 120.0,
                                         -1.0 / 6.0,
                                         1.0};
static double cos_turns(uint32_t word)
{
    const uint32_t quarter = (word + 0x20000000U) >> 30; // nearest multiple of a quarter turn
    const int32_t rest = (int32_t)(word - (quarter << 30));
    const double t = (double)rest * (6.283185307179586 / 4294967296.0), z = t * t;
    double cosine = 1.0 / 20922789888000.0, sine = -1.0 / 1307674368000.0; // 1/16!, -1/15!
    for (int k = 0; k < 8; k++) cosine = even_factorials[k] + z * cosine;
    for (int k = 0; k < 7; k++) sine = odd_factorials[k] + z * sine;
    sine *= t;
    switch (quarter & 3) {
    case 0:
        return cosine;
    case 1:
        return -sine;
    case 2:
        return -cosine;
    default:
        return sine;
    }
}

// Box and Muller 1958, doi:10.1214/aoms/1177706645: sqrt(-2 ln u) cos(2 pi v). u is the middle of one
// of 2^32 equal parts of (0, 1), so the largest magnitude is 6.76; only the cosine is used, so that
// an element needs nothing of its neighbour.
float rng_normal(uint32_t word_a, uint32_t word_b)
{
    const double u = ((double)word_a + 0.5) * 0x1p-32;
    return (float)(sqrt(-2.0 * ln(u)) * cos_turns(word_b));
}

float rng_tensor_normal(uint64_t seed, uint64_t name_key, int64_t index)
{
    const philox_words p = philox_at(seed, name_key, (uint64_t)index);
    return rng_normal(p.w[0], p.w[1]);
}

uint32_t rng_word(uint64_t seed, uint64_t stream, uint64_t index)
{
    return philox_at(seed, stream, index >> 2).w[index & 3];
}

// One pass of the Feistel network on 2 * half bits. The counter's upper words hold round and
// stream; the lower one the half. Eight rounds: four suffice for a pseudo-random permutation in
// theory (Luby & Rackoff 1988), small domains want more.
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

// A permutation of 0..4^half - 1, walked along its cycle until it lands below count. As count is
// more than 4^(half - 1), four steps are expected at most.
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
