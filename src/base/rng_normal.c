// Normal deviates: Box and Muller 1958, doi:10.1214/aoms/1177706645, from Philox words.
//
// The code uses only + - x / and sqrt on doubles, which IEEE 754 defines to the last bit, and the
// build forbids contraction. So every machine makes the same numbers. It calls no libm, because
// libms differ in the last bits. The vector version does the same operations in the same order in
// every element: same bits.
#include "base/rng.h"

#include <float.h>
#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#    include <immintrin.h>
#endif

_Static_assert(FLT_EVAL_METHOD == 0, "doubles must be computed as doubles");

#define LN_2          0.6931471805599453
#define SQRT_2        1.4142135623730951
#define ANGLE_OF_WORD (6.283185307179586 / 4294967296.0)
#define LAST_ODD_PART (1.0 / 21.0)
#define LAST_COSINE   (1.0 / 20922789888000.0) // 1/16!
#define LAST_SINE     (-1.0 / 1307674368000.0) // -1/15!

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
    double sum = LAST_ODD_PART;
    for (int k = 0; k < 10; k++) sum = odd_parts[k] + z * sum;
    return (double)exponent * 0.6931471805599453 + 2.0 * s * sum;
}

// cos and sin of 2 pi word / 2^32. The word's top bits choose the octant exactly; what is left is
// an angle of at most pi / 4, where eight or nine terms of the Taylor series leave an error below
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
static void turn(uint32_t word, double *cosine_out, double *sine_out)
{
    const uint32_t quarter = (word + 0x20000000U) >> 30; // nearest multiple of a quarter turn
    const int32_t rest = (int32_t)(word - (quarter << 30));
    const double t = (double)rest * ANGLE_OF_WORD, z = t * t;
    double cosine = LAST_COSINE, sine = LAST_SINE;
    for (int k = 0; k < 8; k++) cosine = even_factorials[k] + z * cosine;
    for (int k = 0; k < 7; k++) sine = odd_factorials[k] + z * sine;
    sine *= t;
    const double c = (quarter & 1) != 0 ? sine : cosine, s = (quarter & 1) != 0 ? cosine : sine;
    *cosine_out = ((quarter + 1) & 2) != 0 ? -c : c;
    *sine_out = (quarter & 2) != 0 ? -s : s;
}

// u is the middle of one of 2^32 equal parts of (0, 1), so the largest magnitude is 6.76.
rng_pair rng_normals(uint32_t word_a, uint32_t word_b)
{
    const double u = ((double)word_a + 0.5) * 0x1p-32;
    const double radius = sqrt(-2.0 * ln(u));
    double cosine = 0.0, sine = 0.0;
    turn(word_b, &cosine, &sine);
    return (rng_pair){.cosine = (float)(radius * cosine), .sine = (float)(radius * sine)};
}

// The four deviates of one counter.
static void four(uint64_t seed, uint64_t name_key, uint64_t block, float out[4])
{
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)name_key,
                                 (uint32_t)(name_key >> 32)};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const philox_words p = philox4x32_10(counter, key);
    const rng_pair a = rng_normals(p.w[0], p.w[1]), b = rng_normals(p.w[2], p.w[3]);
    out[0] = a.cosine;
    out[1] = a.sine;
    out[2] = b.cosine;
    out[3] = b.sine;
}

float rng_tensor_normal(uint64_t seed, uint64_t name_key, int64_t index)
{
    float all[4];
    four(seed, name_key, (uint64_t)index >> 2, all);
    return all[index & 3];
}

// ---- eight counters at once ---------------------------------------------------------------------
enum { WIDE_BLOCKS = 8 };

#if defined(__x86_64__)
#    define AVX2 __attribute__((target("avx2")))

// The low and high halves of word x constant, for eight elements.
AVX2 static inline __m256i multiply(__m256i words, __m256i by, __m256i *high)
{
    const __m256i even = _mm256_mul_epu32(words, by);
    const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(words, 32), by);
    *high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
    return _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
}

AVX2 static inline void philox_wide(uint64_t seed, __m256i c[4])
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    const __m256i m0 = _mm256_set1_epi32((int)0xD2511F53U),
                  m1 = _mm256_set1_epi32((int)0xCD9E8D57U);
    for (int round = 0; round < 10; round++) {
        __m256i high0, high1;
        const __m256i low0 = multiply(c[0], m0, &high0), low1 = multiply(c[2], m1, &high1);
        c[0] = _mm256_xor_si256(_mm256_xor_si256(high1, c[1]), _mm256_set1_epi32((int)k0));
        c[1] = low1;
        c[2] = _mm256_xor_si256(_mm256_xor_si256(high0, c[3]), _mm256_set1_epi32((int)k1));
        c[3] = low0;
        k0 += 0x9E3779B9U;
        k1 += 0xBB67AE85U;
    }
}

// Four words as doubles: each goes into the mantissa of 2^52, and 2^52 is subtracted; exact.
AVX2 static inline __m256d double_of_words(__m128i words)
{
    const __m256d big = _mm256_set1_pd(0x1p52);
    const __m256i wide = _mm256_or_si256(_mm256_cvtepu32_epi64(words), _mm256_castpd_si256(big));
    return _mm256_sub_pd(_mm256_castsi256_pd(wide), big);
}

AVX2 static inline __m256d ln_wide(__m256d x)
{
    const __m256d one = _mm256_set1_pd(1.0), big = _mm256_set1_pd(0x1p52);
    const __m256i bits = _mm256_castpd_si256(x);
    const __m256i biased = _mm256_or_si256(_mm256_srli_epi64(bits, 52), _mm256_castpd_si256(big));
    __m256d exponent = _mm256_sub_pd(_mm256_castsi256_pd(biased), big);
    exponent = _mm256_sub_pd(exponent, _mm256_set1_pd(1023.0));
    const __m256i fraction = _mm256_and_si256(bits, _mm256_set1_epi64x(0xfffffffffffff));
    __m256d m = _mm256_castsi256_pd(_mm256_or_si256(fraction, _mm256_castpd_si256(one)));
    const __m256d above = _mm256_cmp_pd(m, _mm256_set1_pd(SQRT_2), _CMP_GT_OQ);
    m = _mm256_blendv_pd(m, _mm256_mul_pd(m, _mm256_set1_pd(0.5)), above);
    exponent = _mm256_add_pd(exponent, _mm256_and_pd(above, one));
    const __m256d s = _mm256_div_pd(_mm256_sub_pd(m, one), _mm256_add_pd(m, one));
    const __m256d z = _mm256_mul_pd(s, s);
    __m256d sum = _mm256_set1_pd(LAST_ODD_PART);
    for (int k = 0; k < 10; k++) {
        sum = _mm256_add_pd(_mm256_set1_pd(odd_parts[k]), _mm256_mul_pd(z, sum));
    }
    const __m256d two_s = _mm256_mul_pd(_mm256_set1_pd(2.0), s);
    return _mm256_add_pd(_mm256_mul_pd(exponent, _mm256_set1_pd(LN_2)), _mm256_mul_pd(two_s, sum));
}

// turn() for four words.
AVX2 static inline void turn_wide(__m128i words, __m256d *cosine_out, __m256d *sine_out)
{
    const __m128i quarter = _mm_srli_epi32(_mm_add_epi32(words, _mm_set1_epi32(0x20000000)), 30);
    const __m128i rest = _mm_sub_epi32(words, _mm_slli_epi32(quarter, 30));
    const __m256d t = _mm256_mul_pd(_mm256_cvtepi32_pd(rest), _mm256_set1_pd(ANGLE_OF_WORD));
    const __m256d z = _mm256_mul_pd(t, t);
    __m256d cosine = _mm256_set1_pd(LAST_COSINE), sine = _mm256_set1_pd(LAST_SINE);
    for (int k = 0; k < 8; k++) {
        cosine = _mm256_add_pd(_mm256_set1_pd(even_factorials[k]), _mm256_mul_pd(z, cosine));
    }
    for (int k = 0; k < 7; k++) {
        sine = _mm256_add_pd(_mm256_set1_pd(odd_factorials[k]), _mm256_mul_pd(z, sine));
    }
    sine = _mm256_mul_pd(sine, t);
    const __m256i q = _mm256_cvtepu32_epi64(quarter);
    const __m256i next = _mm256_add_epi64(q, _mm256_set1_epi64x(1));
    const __m256d swap = _mm256_castsi256_pd(_mm256_slli_epi64(q, 63)); // blendv looks at the sign
    const __m256d sign = _mm256_set1_pd(-0.0);
    const __m256d cosine_sign =
        _mm256_and_pd(_mm256_castsi256_pd(_mm256_slli_epi64(next, 62)), sign);
    const __m256d sine_sign = _mm256_and_pd(_mm256_castsi256_pd(_mm256_slli_epi64(q, 62)), sign);
    *cosine_out = _mm256_xor_pd(_mm256_blendv_pd(cosine, sine, swap), cosine_sign);
    *sine_out = _mm256_xor_pd(_mm256_blendv_pd(sine, cosine, swap), sine_sign);
}

// rng_normals() for four pairs of words.
AVX2 static inline void normals_wide(__m128i a, __m128i b, __m128 *cosine_out, __m128 *sine_out)
{
    __m256d u = _mm256_add_pd(double_of_words(a), _mm256_set1_pd(0.5));
    u = _mm256_mul_pd(u, _mm256_set1_pd(0x1p-32));
    const __m256d radius = _mm256_sqrt_pd(_mm256_mul_pd(_mm256_set1_pd(-2.0), ln_wide(u)));
    __m256d cosine, sine;
    turn_wide(b, &cosine, &sine);
    *cosine_out = _mm256_cvtpd_ps(_mm256_mul_pd(radius, cosine));
    *sine_out = _mm256_cvtpd_ps(_mm256_mul_pd(radius, sine));
}

// The deviates of four counters: rows of cosine, sine, cosine, sine become columns.
AVX2 static inline void half_wide(const __m128i words[4], float *out)
{
    __m128 r0, r1, r2, r3;
    normals_wide(words[0], words[1], &r0, &r1);
    normals_wide(words[2], words[3], &r2, &r3);
    _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
    _mm_storeu_ps(out, r0);
    _mm_storeu_ps(out + 4, r1);
    _mm_storeu_ps(out + 8, r2);
    _mm_storeu_ps(out + 12, r3);
}

AVX2 static void wide_avx2(uint64_t seed, uint64_t name_key, uint64_t block, int64_t groups,
                           float *out)
{
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    for (int64_t g = 0; g < groups; g++, block += WIDE_BLOCKS, out += 4 * WIDE_BLOCKS) {
        __m256i c[4] = {_mm256_add_epi32(_mm256_set1_epi32((int)(uint32_t)block), lanes),
                        _mm256_set1_epi32((int)(uint32_t)(block >> 32)),
                        _mm256_set1_epi32((int)(uint32_t)name_key),
                        _mm256_set1_epi32((int)(uint32_t)(name_key >> 32))};
        philox_wide(seed, c);
        __m128i low[4], high[4];
        for (int i = 0; i < 4; i++) {
            low[i] = _mm256_castsi256_si128(c[i]);
            high[i] = _mm256_extracti128_si256(c[i], 1);
        }
        half_wide(low, out);
        half_wide(high, out + 16);
    }
}
#endif

static void wide(uint64_t seed, uint64_t name_key, uint64_t block, int64_t groups, float *out)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        wide_avx2(seed, name_key, block, groups, out);
        return;
    }
#endif
    for (int64_t b = 0; b < groups * WIDE_BLOCKS; b++) {
        four(seed, name_key, block + (uint64_t)b, out + 4 * b);
    }
}

void rng_tensor_normals(uint64_t seed, uint64_t name_key, int64_t begin, int64_t count, float *out)
{
    int64_t i = 0;
    // Up to a multiple of a group's elements: from there on a group never crosses 2^32 counters.
    while (i < count && (begin + i) % (4 * WIDE_BLOCKS) != 0) {
        out[i] = rng_tensor_normal(seed, name_key, begin + i);
        i++;
    }
    const int64_t groups = (count - i) / (4 * WIDE_BLOCKS);
    wide(seed, name_key, (uint64_t)(begin + i) >> 2, groups, out + i);
    for (i += groups * 4 * WIDE_BLOCKS; i < count; i++) {
        out[i] = rng_tensor_normal(seed, name_key, begin + i);
    }
}
