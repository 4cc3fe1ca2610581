// The loops of a reducer with AVX2 and F16C: groups of four registers. Equal bits to
// reduce_scalar.c.
#include "comm/reduce_steps.h"

#include <immintrin.h>
#include <string.h>

#define REDUCE_FN     __attribute__((target("avx2,fma,f16c")))
#define REDUCE_TABLE  comm_reduce_avx2
#define REDUCE_INLINE __attribute__((target("avx2,fma,f16c"), always_inline)) static inline

// The elements after the last whole group.
#define REDUCE_SEQUENTIAL_REST(T, OP)                                          \
    if (i < f->end) {                                                          \
        reduce_sequential_args rest = *f;                                      \
        rest.begin = i;                                                        \
        comm_reduce_scalar.sequential[DTYPE_OF_##T][REDUCTION_OF_##OP](&rest); \
    }
#define REDUCE_STEP_REST(T)                           \
    if (i < s->end) {                                 \
        reduce_step_args rest = *s;                   \
        rest.begin = i;                               \
        comm_reduce_scalar.step[DTYPE_OF_##T](&rest); \
    }
enum {
    REDUCTION_OF_add = REDUCTION_SUM,
    REDUCTION_OF_max = REDUCTION_MAX,
    REDUCTION_OF_min = REDUCTION_MIN,
    DTYPE_OF_f32 = DTYPE_F32,
    DTYPE_OF_bf16 = DTYPE_BF16,
    DTYPE_OF_f16 = DTYPE_F16,
    DTYPE_OF_f64 = DTYPE_F64,
    DTYPE_OF_i8 = DTYPE_I8,
    DTYPE_OF_u8 = DTYPE_U8,
    DTYPE_OF_i16 = DTYPE_I16,
    DTYPE_OF_u16 = DTYPE_U16,
    DTYPE_OF_i32 = DTYPE_I32,
    DTYPE_OF_u32 = DTYPE_U32,
    DTYPE_OF_i64 = DTYPE_I64,
    DTYPE_OF_u64 = DTYPE_U64
};

typedef struct floats {
    __m256 a, b, c, d;
} floats;
typedef struct doubles {
    __m256d a, b, c, d;
} doubles;
typedef struct ints {
    __m256i a, b, c, d;
} ints;

// f on each register of a group.
#define EACH2(NAME, GROUP, f)                                               \
    REDUCE_INLINE GROUP NAME(GROUP x, GROUP y)                              \
    {                                                                       \
        return (GROUP){f(x.a, y.a), f(x.b, y.b), f(x.c, y.c), f(x.d, y.d)}; \
    }

// At any address.
REDUCE_INLINE __m256i get(const void *p)
{
    return _mm256_loadu_si256(p);
}
REDUCE_INLINE void put(void *p, __m256i x)
{
    _mm256_storeu_si256(p, x);
}
REDUCE_INLINE __m128i get_half(const void *p)
{
    return _mm_loadu_si128(p);
}
REDUCE_INLINE void put_half(void *p, __m128i x)
{
    _mm_storeu_si128(p, x);
}

// ---- floats ------------------------------------------------------------------------------------
// _mm256_max_ps(x, y) is y where they are equal or one is NaN: of two zeros both orders give both
// zeros, which `and` makes +0.
REDUCE_INLINE __m256 max_ps(__m256 x, __m256 y)
{
    const __m256 nan = _mm256_cmp_ps(x, y, _CMP_UNORD_Q);
    return _mm256_or_ps(_mm256_and_ps(_mm256_max_ps(x, y), _mm256_max_ps(y, x)), nan);
}
REDUCE_INLINE __m256 min_ps(__m256 x, __m256 y)
{
    const __m256 nan = _mm256_cmp_ps(x, y, _CMP_UNORD_Q);
    return _mm256_or_ps(_mm256_or_ps(_mm256_min_ps(x, y), _mm256_min_ps(y, x)), nan);
}
REDUCE_INLINE __m256 finish_ps(__m256 x, __m256 scale)
{
    const __m256 y = _mm256_mul_ps(x, scale);
    return _mm256_blendv_ps(y, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000)),
                            _mm256_cmp_ps(y, y, _CMP_UNORD_Q));
}
REDUCE_INLINE __m256d max_pd(__m256d x, __m256d y)
{
    const __m256d nan = _mm256_cmp_pd(x, y, _CMP_UNORD_Q);
    return _mm256_or_pd(_mm256_and_pd(_mm256_max_pd(x, y), _mm256_max_pd(y, x)), nan);
}
REDUCE_INLINE __m256d min_pd(__m256d x, __m256d y)
{
    const __m256d nan = _mm256_cmp_pd(x, y, _CMP_UNORD_Q);
    return _mm256_or_pd(_mm256_or_pd(_mm256_min_pd(x, y), _mm256_min_pd(y, x)), nan);
}
REDUCE_INLINE __m256d finish_pd(__m256d x, __m256d scale)
{
    const __m256d y = _mm256_mul_pd(x, scale);
    return _mm256_blendv_pd(y, _mm256_castsi256_pd(_mm256_set1_epi64x(0x7ff8000000000000)),
                            _mm256_cmp_pd(y, y, _CMP_UNORD_Q));
}

#define FLOATS(T, ELEM)                                                                      \
    typedef ELEM elem_##T;                                                                   \
    typedef float wide_##T;                                                                  \
    typedef floats group_##T;                                                                \
    enum { GROUP_##T = 32 };                                                                 \
    EACH2(op_add_##T, floats, _mm256_add_ps)                                                 \
    EACH2(op_max_##T, floats, max_ps)                                                        \
    EACH2(op_min_##T, floats, min_ps)                                                        \
    REDUCE_INLINE floats finish_##T(floats x, double scale)                                  \
    {                                                                                        \
        const __m256 s = _mm256_set1_ps((float)scale);                                       \
        return (floats){finish_ps(x.a, s), finish_ps(x.b, s), finish_ps(x.c, s),             \
                        finish_ps(x.d, s)};                                                  \
    }                                                                                        \
    REDUCE_INLINE floats loadw_##T(const float *p)                                           \
    {                                                                                        \
        return (floats){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8), _mm256_loadu_ps(p + 16), \
                        _mm256_loadu_ps(p + 24)};                                            \
    }                                                                                        \
    REDUCE_INLINE void storew_##T(float *p, floats x)                                        \
    {                                                                                        \
        _mm256_storeu_ps(p, x.a);                                                            \
        _mm256_storeu_ps(p + 8, x.b);                                                        \
        _mm256_storeu_ps(p + 16, x.c);                                                       \
        _mm256_storeu_ps(p + 24, x.d);                                                       \
    }

FLOATS(f32, float)
FLOATS(bf16, uint16_t)
FLOATS(f16, uint16_t)

REDUCE_INLINE floats load_f32(const float *p)
{
    return loadw_f32(p);
}
REDUCE_INLINE void store_f32(float *p, floats x)
{
    storew_f32(p, x);
}

// bf16: of each pair in 32 bits the first is shifted up, the second masked; and back. In between
// (in slots too) the order within a group does not matter.
REDUCE_INLINE floats load_bf16(const uint16_t *p)
{
    const __m256i upper = _mm256_set1_epi32((int32_t)0xffff0000);
    const __m256i x = get(p);
    const __m256i y = get(p + 16);
    return (floats){_mm256_castsi256_ps(_mm256_slli_epi32(x, 16)),
                    _mm256_castsi256_ps(_mm256_and_si256(x, upper)),
                    _mm256_castsi256_ps(_mm256_slli_epi32(y, 16)),
                    _mm256_castsi256_ps(_mm256_and_si256(y, upper))};
}
// Rounds to bf16 in the upper half of each 32 bits, to nearest even; the one NaN keeps its bits.
REDUCE_INLINE __m256i bf16_bits(__m256 x)
{
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
}
REDUCE_INLINE __m256i bf16_pairs(__m256 first, __m256 second)
{
    return _mm256_blend_epi16(_mm256_srli_epi32(bf16_bits(first), 16), bf16_bits(second), 0xaa);
}
REDUCE_INLINE void store_bf16(uint16_t *p, floats x)
{
    put(p, bf16_pairs(x.a, x.b));
    put(p + 16, bf16_pairs(x.c, x.d));
}

REDUCE_INLINE floats load_f16(const uint16_t *p)
{
    return (floats){_mm256_cvtph_ps(get_half(p)), _mm256_cvtph_ps(get_half(p + 8)),
                    _mm256_cvtph_ps(get_half(p + 16)), _mm256_cvtph_ps(get_half(p + 24))};
}
REDUCE_INLINE void store_f16(uint16_t *p, floats x)
{
    put_half(p, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT));
    put_half(p + 8, _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT));
    put_half(p + 16, _mm256_cvtps_ph(x.c, _MM_FROUND_TO_NEAREST_INT));
    put_half(p + 24, _mm256_cvtps_ph(x.d, _MM_FROUND_TO_NEAREST_INT));
}

// Between memory and fp32 in order, eight at a time.
REDUCE_INLINE __m256 eight_bf16(__m128i x)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}
REDUCE_INLINE __m128i eight_to_bf16(__m256 x)
{
    const __m256i bits = _mm256_srli_epi32(bf16_bits(x), 16);
    const __m256i pairs = _mm256_permute4x64_epi64(_mm256_packus_epi32(bits, bits), 0x08);
    return _mm256_castsi256_si128(pairs);
}
REDUCE_INLINE __m256 eight_f16(__m128i x)
{
    return _mm256_cvtph_ps(x);
}
REDUCE_INLINE __m128i eight_to_f16(__m256 x)
{
    return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
}
enum { IS_bf16, IS_f16 };
#define WIDEN(T)                                                                                 \
    REDUCE_FN static void widen_##T(const uint16_t *in, float *out, int64_t count)               \
    {                                                                                            \
        int64_t i = 0;                                                                           \
        for (; i + 8 <= count; i += 8) {                                                         \
            _mm256_storeu_ps(out + i, eight_##T(get_half(in + i)));                              \
        }                                                                                        \
        comm_reduce_scalar.widen[IS_##T == IS_f16](in + i, out + i, count - i);                  \
    }                                                                                            \
    REDUCE_FN static void narrow_##T(const float *in, uint16_t *out, int64_t count, float scale) \
    {                                                                                            \
        const __m256 s = _mm256_set1_ps(scale);                                                  \
        int64_t i = 0;                                                                           \
        for (; i + 8 <= count; i += 8) {                                                         \
            const __m256 x = finish_ps(_mm256_loadu_ps(in + i), s);                              \
            put_half(out + i, eight_to_##T(x));                                                  \
        }                                                                                        \
        comm_reduce_scalar.narrow[IS_##T == IS_f16](in + i, out + i, count - i, scale);          \
    }
WIDEN(bf16)
WIDEN(f16)

typedef double elem_f64, wide_f64;
typedef doubles group_f64;
enum { GROUP_f64 = 16 };
EACH2(op_add_f64, doubles, _mm256_add_pd)
EACH2(op_max_f64, doubles, max_pd)
EACH2(op_min_f64, doubles, min_pd)
REDUCE_INLINE doubles finish_f64(doubles x, double scale)
{
    const __m256d s = _mm256_set1_pd(scale);
    return (doubles){finish_pd(x.a, s), finish_pd(x.b, s), finish_pd(x.c, s), finish_pd(x.d, s)};
}
REDUCE_INLINE doubles load_f64(const double *p)
{
    return (doubles){_mm256_loadu_pd(p), _mm256_loadu_pd(p + 4), _mm256_loadu_pd(p + 8),
                     _mm256_loadu_pd(p + 12)};
}
REDUCE_INLINE void store_f64(double *p, doubles x)
{
    _mm256_storeu_pd(p, x.a);
    _mm256_storeu_pd(p + 4, x.b);
    _mm256_storeu_pd(p + 8, x.c);
    _mm256_storeu_pd(p + 12, x.d);
}
REDUCE_INLINE doubles loadw_f64(const double *p)
{
    return load_f64(p);
}
REDUCE_INLINE void storew_f64(double *p, doubles x)
{
    store_f64(p, x);
}

// ---- integers -----------------------------------------------------------------------------------
// AVX2 compares 64-bit integers as signed ones only, and has no max of them.
REDUCE_INLINE __m256i max_epi64(__m256i x, __m256i y)
{
    return _mm256_blendv_epi8(y, x, _mm256_cmpgt_epi64(x, y));
}
REDUCE_INLINE __m256i min_epi64(__m256i x, __m256i y)
{
    return _mm256_blendv_epi8(x, y, _mm256_cmpgt_epi64(x, y));
}
REDUCE_INLINE __m256i above_epu64(__m256i x, __m256i y)
{
    const __m256i top = _mm256_set1_epi64x(INT64_MIN);
    return _mm256_cmpgt_epi64(_mm256_xor_si256(x, top), _mm256_xor_si256(y, top));
}
REDUCE_INLINE __m256i max_epu64(__m256i x, __m256i y)
{
    return _mm256_blendv_epi8(y, x, above_epu64(x, y));
}
REDUCE_INLINE __m256i min_epu64(__m256i x, __m256i y)
{
    return _mm256_blendv_epi8(x, y, above_epu64(x, y));
}

#define INTEGERS(T, ELEM, ADD, MAX, MIN)                                                           \
    typedef ELEM elem_##T;                                                                         \
    typedef ints group_##T;                                                                        \
    enum { GROUP_##T = 128 / sizeof(ELEM) };                                                       \
    EACH2(op_add_##T, ints, ADD)                                                                   \
    EACH2(op_max_##T, ints, MAX)                                                                   \
    EACH2(op_min_##T, ints, MIN)                                                                   \
    REDUCE_INLINE ints load_##T(const ELEM *p)                                                     \
    {                                                                                              \
        const __m256i *q = (const __m256i *)(const void *)p;                                       \
        return (ints){_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1), _mm256_loadu_si256(q + 2), \
                      _mm256_loadu_si256(q + 3)};                                                  \
    }                                                                                              \
    REDUCE_INLINE void store_##T(ELEM *p, ints x)                                                  \
    {                                                                                              \
        __m256i *q = (__m256i *)(void *)p;                                                         \
        _mm256_storeu_si256(q, x.a);                                                               \
        _mm256_storeu_si256(q + 1, x.b);                                                           \
        _mm256_storeu_si256(q + 2, x.c);                                                           \
        _mm256_storeu_si256(q + 3, x.d);                                                           \
    }                                                                                              \
    REDUCE_INLINE ints finish_##T(ints x, double scale)                                            \
    {                                                                                              \
        (void)scale;                                                                               \
        return x;                                                                                  \
    }

INTEGERS(i8, int8_t, _mm256_add_epi8, _mm256_max_epi8, _mm256_min_epi8)
INTEGERS(u8, uint8_t, _mm256_add_epi8, _mm256_max_epu8, _mm256_min_epu8)
INTEGERS(i16, int16_t, _mm256_add_epi16, _mm256_max_epi16, _mm256_min_epi16)
INTEGERS(u16, uint16_t, _mm256_add_epi16, _mm256_max_epu16, _mm256_min_epu16)
INTEGERS(i32, int32_t, _mm256_add_epi32, _mm256_max_epi32, _mm256_min_epi32)
INTEGERS(u32, uint32_t, _mm256_add_epi32, _mm256_max_epu32, _mm256_min_epu32)
INTEGERS(i64, int64_t, _mm256_add_epi64, max_epi64, min_epi64)
INTEGERS(u64, uint64_t, _mm256_add_epi64, max_epu64, min_epu64)

// ---- past the caches ---------------------------------------------------------------------------
REDUCE_FN static void stream_bytes(void *to, const void *from, int64_t bytes)
{
    unsigned char *t = to;
    const unsigned char *f = from;
    const int64_t head = min_i64(bytes, (int64_t)(-(uintptr_t)t & 31));
    memcpy(t, f, (size_t)head);
    int64_t i = head;
    for (; i + 32 <= bytes; i += 32) {
        _mm256_stream_si256((__m256i *)(void *)(t + i),
                            _mm256_loadu_si256((const __m256i *)(const void *)(f + i)));
    }
    memcpy(t + i, f + i, (size_t)(bytes - i));
}

static void stream_end(void)
{
    _mm_sfence();
}

#include "comm/reduce_steps.inc"
