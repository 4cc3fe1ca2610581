// A vector of floats, and the functions on it that kernels use, with one meaning at every level.
//
// A file that includes this header first sets VEC_AVX2 to 1 (vec_avx2.c) or 0 (vec_scalar.c), and
// VEC_AVX512 if it has that too (vec_avx512.c); all of them then include the same kernels (*.inc).
// Vectors have eight lanes, with AVX-512 sixteen. The plain C version works on structs of eight
// floats, step by step like the vector code: same polynomial, same fma, same order of sums. So the
// bits are equal at every level and for every element, in the body or the tail of a row. (NaN is
// NaN at all of them, but its payload may differ.)
//
// Errors, measured against double libm in vecmath_test.c, in units of the last place:
//   v_exp 0.8 (subnormal results too)   v_exp2_neg 2.1, 0 below -126   v_tanh 1.2   v_erf 0.9
//   v_sigmoid 2.0 where it is a normal number
#ifndef KERNELS_CPU_VECMATH_H
#define KERNELS_CPU_VECMATH_H

#include "base/rng.h"
#include "kernels/cpu/vec_kernels.h"

#include <math.h>
#include <string.h>

#ifndef VEC_AVX512
#    define VEC_AVX512 0
#endif
#if VEC_AVX512
#    include <immintrin.h>
#    define VEC_TARGET \
        __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx2,fma,f16c,bmi2")))
#    define VEC_INLINE static inline VEC_TARGET __attribute__((always_inline))
#elif VEC_AVX2
#    include <immintrin.h>
#    define VEC_TARGET __attribute__((target("avx2,fma,f16c")))
#    define VEC_INLINE static inline VEC_TARGET __attribute__((always_inline))
#else
#    define VEC_TARGET
#    define VEC_INLINE static __attribute__((noinline, unused)) // inlined, it compiles for minutes
#endif
#define VEC_FN   static VEC_TARGET
#define VEC_REST static VEC_TARGET __attribute__((noinline, unused))

#if VEC_AVX512
enum { VEC_LANES = 16 };
#    include "kernels/cpu/vec_lanes_avx512.inc"
#elif VEC_AVX2
enum { VEC_LANES = 8 };
#    include "kernels/cpu/vec_lanes_avx2.inc"
#else
enum { VEC_LANES = 8 };
#    include "kernels/cpu/vec_lanes_scalar.inc"
#endif

// Returns a vector whose element i is i.
VEC_INLINE vi vi_lanes(void)
{
    static const int32_t lanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return vi_load(lanes);
}

// ---- loads and stores of any float type ---------------------------------------------------------
// Load and store elements i .. i+n-1 of a span, n >= 1; lanes from n on are 0 (loads) or not
// written (stores). Partial vectors are not inlined, because each loop ends with one, for three
// types.
VEC_REST vf load_rest(cpu_span s, int64_t i, int64_t n)
{
    if (s.type == DTYPE_F32) return vf_load_first((const float *)s.at + i, DTYPE_F32, n);
    return vf_load_first((const uint16_t *)s.at + i, s.type, n);
}

VEC_REST void store_rest(cpu_span s, int64_t i, int64_t n, vf x)
{
    if (s.type == DTYPE_F32) {
        vf_store_first((float *)s.at + i, DTYPE_F32, n, x);
    } else {
        vf_store_first((uint16_t *)s.at + i, s.type, n, x);
    }
}

VEC_INLINE vf v_load(cpu_span s, int64_t i, int64_t n)
{
    if (n < VEC_LANES) return load_rest(s, i, n);
    if (s.type == DTYPE_F32) return vf_load((const float *)s.at + i);
    const uint16_t *p = (const uint16_t *)s.at + i;
    return s.type == DTYPE_BF16 ? vf_load_bf16(p) : vf_load_f16(p);
}

VEC_INLINE void v_store(cpu_span s, int64_t i, int64_t n, vf x)
{
    if (n < VEC_LANES) {
        store_rest(s, i, n, x);
    } else if (s.type == DTYPE_F32) {
        vf_store((float *)s.at + i, x);
    } else if (s.type == DTYPE_BF16) {
        vf_store_bf16((uint16_t *)s.at + i, x);
    } else {
        vf_store_f16((uint16_t *)s.at + i, x);
    }
}

// Runs statements for the elements i .. i + left - 1 of n, a vector at a time. They are compiled
// twice: for whole vectors, where `left` is a constant and needs no test, and for the remaining
// elements.
#define V_FOR(i, left, n, ...)                         \
    do {                                               \
        int64_t i = 0;                                 \
        for (; i + VEC_LANES <= (n); i += VEC_LANES) { \
            const int64_t left = VEC_LANES;            \
            __VA_ARGS__                                \
        }                                              \
        if (i < (n)) {                                 \
            const int64_t left = (n)-i;                \
            __VA_ARGS__                                \
        }                                              \
    } while (0)

// Returns the type that both have; DTYPE_COUNT if they differ.
VEC_INLINE dtype v_common(dtype a, dtype b)
{
    return a == b ? a : DTYPE_COUNT;
}

VEC_INLINE cpu_span v_as(cpu_span s, dtype type)
{
    if (type != DTYPE_COUNT) s.type = type;
    return s;
}

// Calls loop(type, ...) with the common type of all operands, if they have one, as a constant:
// testing it at every vector would cost more than the arithmetic of a sum. Loops take their spans
// through v_as.
#define V_BY_TYPE(type, loop, ...)          \
    do {                                    \
        if ((type) == DTYPE_BF16) {         \
            loop(DTYPE_BF16, __VA_ARGS__);  \
        } else if ((type) == DTYPE_F32) {   \
            loop(DTYPE_F32, __VA_ARGS__);   \
        } else {                            \
            loop(DTYPE_COUNT, __VA_ARGS__); \
        }                                   \
    } while (0)

// Returns x as stored in a type and read again.
VEC_INLINE vf v_rounded(dtype type, vf x)
{
    if (type == DTYPE_F32) return x;
    if (type == DTYPE_BF16) return vi_as_float(vi_shl(vf_to_bf16(x), 16));
    uint16_t part[VEC_LANES];
    vf_store_f16(part, x);
    return vf_load_f16(part);
}

// ---- functions ----------------------------------------------------------------------------------
// Returns 2^n for integer n in [-126, 127]; n = -127 gives 0.
VEC_INLINE vf v_power_of_two(vi n)
{
    return vi_as_float(vi_shl(vi_add(n, vi_set(127)), 23));
}

// Returns e^r of e^x = 2^n e^r, |r| <= ln2/2.
VEC_INLINE vf exp_fraction(vf x, vf n)
{
    vf r = vf_fma(n, vf_set(-0x1.62e430p-1F), x);
    r = vf_fma(n, vf_set(0x1.05c610p-29F), r);
    vf p = vf_set(0x1.694000p-10F);
    p = vf_fma(p, r, vf_set(0x1.125edcp-7F));
    p = vf_fma(p, r, vf_set(0x1.555b5ap-5F));
    p = vf_fma(p, r, vf_set(0x1.555450p-3F));
    p = vf_fma(p, r, vf_set(0x1.fffff6p-2F));
    p = vf_fma(p, r, vf_set(1.0F));
    return vf_fma(p, r, vf_set(1.0F));
}

// Computes e^x. 2^n is applied in two steps, so that subnormal results and those just below the
// overflow are rounded once.
VEC_INLINE vf v_exp(vf x)
{
    x = vf_min(vf_set(89.5F), vf_max(vf_set(-105.0F), x)); // keeps NaN
    const vf n = vf_round(vf_mul(x, vf_set(0x1.715476p+0F))), p = exp_fraction(x, n);
    const vi whole = vf_to_int(n), half = vi_sra(whole, 1);
    return vf_mul(vf_mul(p, v_power_of_two(half)), v_power_of_two(vi_sub(whole, half)));
}

// Computes 2^x for x <= 0, exactly 1 at 0; results below 2^-126 are 0. The softmax uses it. x + 1.5
// 2^23 + 127 is rounded to a whole number, whose lowest bits are the exponent of the result.
#define EXP2_SHIFT 0x1.8000FEp+23F
VEC_INLINE vf v_exp2_neg(vf x)
{
    x = vf_max(vf_set(-127.0F), x); // keeps NaN
    const vf shifted = vf_add(x, vf_set(EXP2_SHIFT));
    const vf f = vf_sub(x, vf_sub(shifted, vf_set(EXP2_SHIFT)));
    vf p = vf_set(0x1.5bba14p-10F);
    p = vf_fma(p, f, vf_set(0x1.3cea88p-7F));
    p = vf_fma(p, f, vf_set(0x1.c6b752p-5F));
    p = vf_fma(p, f, vf_set(0x1.ebf9bcp-3F));
    p = vf_fma(p, f, vf_set(0x1.62e42ap-1F));
    p = vf_fma(p, f, vf_set(1.0F));
    return vf_mul(p, vi_as_float(vi_shl(vf_as_int(shifted), 23)));
}

// Like v_exp2_neg for four vectors together: each step has four results that do not depend on each
// other.
VEC_INLINE void v_exp2_neg_4(vf x[4])
{
    static const float c[5] = {0x1.3cea88p-7F, 0x1.c6b752p-5F, 0x1.ebf9bcp-3F, 0x1.62e42ap-1F,
                               1.0F};
    vf n[4], p[4];
    for (int i = 0; i < 4; i++) x[i] = vf_max(vf_set(-127.0F), x[i]);
    for (int i = 0; i < 4; i++) n[i] = vf_add(x[i], vf_set(EXP2_SHIFT));
    for (int i = 0; i < 4; i++) x[i] = vf_sub(x[i], vf_sub(n[i], vf_set(EXP2_SHIFT)));
    for (int i = 0; i < 4; i++) p[i] = vf_fma(vf_set(0x1.5bba14p-10F), x[i], vf_set(c[0]));
    for (int k = 1; k < 5; k++) {
        for (int i = 0; i < 4; i++) p[i] = vf_fma(p[i], x[i], vf_set(c[k]));
    }
    for (int i = 0; i < 4; i++) x[i] = vf_mul(p[i], vi_as_float(vi_shl(vf_as_int(n[i]), 23)));
}

// Computes 1 / (1 + e^-x). The result does not change for e^-x below 2^-125, and above 2^127.5 e^-x
// may be infinite (n = 128), so 2^n takes one step.
VEC_INLINE vf v_sigmoid(vf x)
{
    const vf one = vf_set(1.0F), y = vf_min(vf_set(88.75F), vf_max(vf_set(-87.0F), vf_negate(x)));
    const vf n = vf_round(vf_mul(y, vf_set(0x1.715476p+0F)));
    const vf e = vf_mul(exp_fraction(y, n), v_power_of_two(vf_to_int(n)));
    return vf_div(one, vf_add(one, e));
}

// Computes tanh: near 0 by the odd polynomial of Cephes (Moshier, tanhf.c), elsewhere 1 - 2 / (e^2x
// + 1).
VEC_INLINE vf v_tanh(vf x)
{
    const vf one = vf_set(1.0F), a = vf_abs(x), z = vf_mul(x, x);
    vf p = vf_set(-5.70498872745e-3F);
    p = vf_fma(p, z, vf_set(2.06390887954e-2F));
    p = vf_fma(p, z, vf_set(-5.37397155531e-2F));
    p = vf_fma(p, z, vf_set(1.33314422036e-1F));
    p = vf_fma(p, z, vf_set(-3.33332819422e-1F));
    const vf near = vf_fma(vf_mul(p, z), a, a);
    const vf e = v_exp(vf_add(a, a));
    const vf far = vf_sub(one, vf_div(vf_set(2.0F), vf_add(e, one)));
    return vf_copysign(vf_select(vf_less(a, vf_set(0.625F)), near, far), x);
}

// Computes erf by two polynomials, after N. Juffa's erff: odd up to 475/512, above it 1 -
// e^-q(|x|).
VEC_INLINE vf v_erf(vf x)
{
    const vf t = vf_abs(x), s = vf_mul(x, x);
    vf r = vf_fma(vf_set(-0x1.220000p-16F), t, vf_set(0x1.91cfb2p-12F));
    const vf u = vf_fma(vf_set(-0x1.fd1438p-9F), t, vf_set(0x1.8d6342p-6F));
    r = vf_fma(r, s, u);
    r = vf_fma(r, t, vf_set(-0x1.b55cb8p-4F));
    r = vf_fma(r, t, vf_set(-0x1.450aa0p-1F));
    r = vf_fma(r, t, vf_set(-0x1.079d0cp-3F));
    r = vf_fma(r, t, vf_negate(t));
    // Above 4 erf is 1 in fp32, and the polynomial leaves its range.
    r = vf_select(vf_less(vf_set(4.0F), t), vf_set(-105.0F), r);
    const vf far = vf_copysign(vf_sub(vf_set(1.0F), v_exp(r)), x);
    vf p = vf_set(-0x1.38e000p-11F);
    p = vf_fma(p, s, vf_set(0x1.471a58p-8F));
    p = vf_fma(p, s, vf_set(-0x1.b691b2p-6F));
    p = vf_fma(p, s, vf_set(0x1.ce1c44p-4F));
    p = vf_fma(p, s, vf_set(-0x1.812700p-2F));
    p = vf_fma(p, s, vf_set(0x1.06eba8p-3F));
    const vf near = vf_fma(p, x, x);
    return vf_select(vf_less(vf_set(0.927734375F), t), far, near);
}

// ---- random words -------------------------------------------------------------------------------
// Philox4x32-10 of a counter per lane (base/rng.h).
typedef struct vphilox {
    vi w[4];
} vphilox;

#if VEC_AVX512
// Even and odd lanes are separate, each in the low half of 64 bits. A product reads only the low
// halves, so the high halves of its result are not cleared.
VEC_INLINE void philox_half(vi w[4], uint32_t k0, uint32_t k1)
{
    for (int round = 0; round < 10; round++) {
        const vi a = vi_mul_low(w[0], 0xD2511F53U), b = vi_mul_low(w[2], 0xCD9E8D57U);
        w[0] = vi_xor(vi_xor(vi_high(b), w[1]), vi_set((int32_t)k0));
        w[1] = b;
        w[2] = vi_xor(vi_xor(vi_high(a), w[3]), vi_set((int32_t)k1));
        w[3] = a;
        k0 += 0x9E3779B9U;
        k1 += 0xBB67AE85U;
    }
}

VEC_INLINE vphilox v_philox(vphilox c, uint32_t k0, uint32_t k1)
{
    vi odd[4];
    for (int k = 0; k < 4; k++) odd[k] = vi_high(c.w[k]);
    philox_half(c.w, k0, k1);
    philox_half(odd, k0, k1);
    for (int k = 0; k < 4; k++) c.w[k] = vi_interleave(c.w[k], odd[k]);
    return c;
}
#else
VEC_INLINE vphilox v_philox(vphilox c, uint32_t k0, uint32_t k1)
{
    for (int round = 0; round < 10; round++) {
        vi lo0, hi0, lo1, hi1;
        vi_mul_wide(c.w[0], 0xD2511F53U, &lo0, &hi0);
        vi_mul_wide(c.w[2], 0xCD9E8D57U, &lo1, &hi1);
        c.w[0] = vi_xor(vi_xor(hi1, c.w[1]), vi_set((int32_t)k0));
        c.w[1] = lo1;
        c.w[2] = vi_xor(vi_xor(hi0, c.w[3]), vi_set((int32_t)k1));
        c.w[3] = lo0;
        k0 += 0x9E3779B9U;
        k1 += 0xBB67AE85U;
    }
    return c;
}
#endif

// Returns rng_uniform of a word per lane.
VEC_INLINE vf v_uniform(vi words)
{
    return vf_mul(vi_to_float(vi_shr(words, 8)), vf_set(0x1p-24F));
}

#endif
