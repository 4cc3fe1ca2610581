// The loops of a reducer in plain C, an element at a time: where there are no vector units, for the
// ends of ranges, and the reference that the vector loops are tested against.
#include "comm/reduce_steps.h"

#include <string.h>

#define REDUCE_FN
#define REDUCE_TABLE comm_reduce_scalar
#define REDUCE_SEQUENTIAL_REST(T, OP)
#define REDUCE_STEP_REST(T)

// max(-0, +0) = +0 and min = -0, so that neither depends on order. NaN where either is.
static float float_of_zeros(float a, float b, bool max)
{
    uint32_t x, y;
    memcpy(&x, &a, 4);
    memcpy(&y, &b, 4);
    x = max ? x & y : x | y;
    memcpy(&a, &x, 4);
    return a;
}
static double double_of_zeros(double a, double b, bool max)
{
    uint64_t x, y;
    memcpy(&x, &a, 8);
    memcpy(&y, &b, 8);
    x = max ? x & y : x | y;
    memcpy(&a, &x, 8);
    return a;
}
static inline float float_finish(float x, double scale)
{
    const float y = x * (float)scale;
    return y == y ? y : (float)__builtin_nan("");
}
static inline double double_finish(double x, double scale)
{
    const double y = x * scale;
    return y == y ? y : __builtin_nan("");
}

#define AS_IS(x) (x)
#define FLOATS(T, ELEM, WIDE, LOAD, STORE, KIND)                     \
    typedef ELEM elem_##T;                                           \
    typedef WIDE wide_##T, group_##T;                                \
    enum { GROUP_##T = 1 };                                          \
    static inline WIDE load_##T(const ELEM *p)                       \
    {                                                                \
        ELEM x; /* any alignment */                                  \
        memcpy(&x, p, sizeof(x));                                    \
        return LOAD(x);                                              \
    }                                                                \
    static inline void store_##T(ELEM *p, WIDE x)                    \
    {                                                                \
        const ELEM y = STORE(x);                                     \
        memcpy(p, &y, sizeof(y));                                    \
    }                                                                \
    static inline WIDE loadw_##T(const WIDE *p)                      \
    {                                                                \
        return *p;                                                   \
    }                                                                \
    static inline void storew_##T(WIDE *p, WIDE x)                   \
    {                                                                \
        *p = x;                                                      \
    }                                                                \
    static inline WIDE op_add_##T(WIDE a, WIDE b)                    \
    {                                                                \
        return a + b;                                                \
    }                                                                \
    static inline WIDE op_max_##T(WIDE a, WIDE b)                    \
    {                                                                \
        if (a != a || b != b) return a + b;                          \
        return a > b ? a : a < b ? b : KIND##_of_zeros(a, b, true);  \
    }                                                                \
    static inline WIDE op_min_##T(WIDE a, WIDE b)                    \
    {                                                                \
        if (a != a || b != b) return a + b;                          \
        return a < b ? a : a > b ? b : KIND##_of_zeros(a, b, false); \
    }                                                                \
    static inline WIDE finish_##T(WIDE x, double scale)              \
    {                                                                \
        return KIND##_finish(x, scale);                              \
    }

FLOATS(f32, float, float, AS_IS, AS_IS, float)
FLOATS(bf16, uint16_t, float, f32_from_bf16, bf16_from_f32, float)
FLOATS(f16, uint16_t, float, f32_from_f16, f16_from_f32, float)
FLOATS(f64, double, double, AS_IS, AS_IS, double)

// Sums wrap: made in the unsigned type.
#define INTEGERS(T, ELEM, UNSIGNED)                         \
    typedef ELEM elem_##T, group_##T;                       \
    enum { GROUP_##T = 1 };                                 \
    static inline ELEM load_##T(const ELEM *p)              \
    {                                                       \
        ELEM x;                                             \
        memcpy(&x, p, sizeof(x));                           \
        return x;                                           \
    }                                                       \
    static inline void store_##T(ELEM *p, ELEM x)           \
    {                                                       \
        memcpy(p, &x, sizeof(x));                           \
    }                                                       \
    static inline ELEM op_add_##T(ELEM a, ELEM b)           \
    {                                                       \
        return (ELEM)(UNSIGNED)((UNSIGNED)a + (UNSIGNED)b); \
    }                                                       \
    static inline ELEM op_max_##T(ELEM a, ELEM b)           \
    {                                                       \
        return a > b ? a : b;                               \
    }                                                       \
    static inline ELEM op_min_##T(ELEM a, ELEM b)           \
    {                                                       \
        return a < b ? a : b;                               \
    }                                                       \
    static inline ELEM finish_##T(ELEM x, double scale)     \
    {                                                       \
        (void)scale;                                        \
        return x;                                           \
    }

INTEGERS(i8, int8_t, uint8_t)
INTEGERS(u8, uint8_t, uint8_t)
INTEGERS(i16, int16_t, uint16_t)
INTEGERS(u16, uint16_t, uint16_t)
INTEGERS(i32, int32_t, uint32_t)
INTEGERS(u32, uint32_t, uint32_t)
INTEGERS(i64, int64_t, uint64_t)
INTEGERS(u64, uint64_t, uint64_t)

#define WIDEN(T)                                                                                  \
    static void widen_##T(const uint16_t *in, float *out, int64_t count)                          \
    {                                                                                             \
        for (int64_t i = 0; i < count; i++) out[i] = load_##T(in + i);                            \
    }                                                                                             \
    static void narrow_##T(const float *in, uint16_t *out, int64_t count, float scale)            \
    {                                                                                             \
        for (int64_t i = 0; i < count; i++) store_##T(out + i, finish_##T(in[i], (double)scale)); \
    }
WIDEN(bf16)
WIDEN(f16)

static void stream_bytes(void *to, const void *from, int64_t bytes)
{
    memcpy(to, from, (size_t)bytes);
}

static void stream_end(void)
{
}

#include "comm/reduce_steps.inc"
