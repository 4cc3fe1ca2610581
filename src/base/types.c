// Element types and their scalar casts.
//
// All narrow formats follow one formula: a sign, an exponent field and man_bits of fraction, where
// the codes of the magnitudes, read as integers, are in the order of the values. So rounding is an
// integer division of the fp32 significand, a carry increments the exponent by itself, and overflow
// is a comparison with the largest finite code. Values go straight from fp32 to the target: an
// intermediate type would round twice.
#include "base/types.h"

#include <math.h>
#include <string.h>

typedef struct dtype_row {
    const char *name, *safetensors_name;
    int64_t bytes;
} dtype_row;

static const dtype_row rows[DTYPE_COUNT] = {
    [DTYPE_F32] = {"fp32", "F32", 4},
    [DTYPE_BF16] = {"bf16", "BF16", 2},
    [DTYPE_F16] = {"fp16", "F16", 2},
    [DTYPE_F8E4M3] = {"fp8_e4m3", "F8_E4M3", 1},
    [DTYPE_F8E5M2] = {"fp8_e5m2", "F8_E5M2", 1},
    [DTYPE_F64] = {"fp64", "F64", 8},
    [DTYPE_I32] = {"int32", "I32", 4},
    [DTYPE_I64] = {"int64", "I64", 8},
    [DTYPE_U8] = {"uint8", "U8", 1},
    [DTYPE_U16] = {"uint16", "U16", 2},
    [DTYPE_U32] = {"uint32", "U32", 4},
    [DTYPE_BOOL] = {"bool", "BOOL", 1},
    [DTYPE_I8] = {"int8", "I8", 1},
    [DTYPE_I16] = {"int16", "I16", 2},
    [DTYPE_U64] = {"uint64", "U64", 8},
};

int64_t dtype_bytes(dtype type)
{
    return (unsigned)type < DTYPE_COUNT ? rows[type].bytes : 0;
}

const char *dtype_name(dtype type)
{
    return (unsigned)type < DTYPE_COUNT ? rows[type].name : "?";
}

const char *dtype_safetensors_name(dtype type)
{
    return (unsigned)type < DTYPE_COUNT ? rows[type].safetensors_name : NULL;
}

bool dtype_parse(const char *name, dtype *out)
{
    for (int i = 0; i < DTYPE_COUNT; i++) {
        if (strcmp(name, rows[i].name) == 0 || strcmp(name, rows[i].safetensors_name) == 0) {
            *out = (dtype)i;
            return true;
        }
    }
    return false;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

enum { F32_INF = 0x7f800000, F32_ABS = 0x7fffffff };

typedef struct narrow_format {
    int man_bits;        // stored bits of the fraction
    int min_exponent;    // of the smallest normal number
    uint32_t max_finite; // its code without sign; a larger code is overflow
} narrow_format;

static const narrow_format format_f16 = {10, -14, 0x7bff};
static const narrow_format format_e4m3 = {3, -6, 0x7e};
static const narrow_format format_e5m2 = {2, -14, 0x7b};

// significand / 2^shift, rounded. shift >= 1.
static uint32_t round_shift(uint32_t significand, int shift, rounding round, uint32_t random_bits)
{
    const uint32_t whole = shift < 32 ? significand >> shift : 0;
    if (round == ROUND_TOWARD_ZERO) return whole;
    if (round == ROUND_STOCHASTIC) {
        // Rounds up with probability rest / 2^shift: add `shift` random bits, keep the carry.
        if (shift <= 32) {
            const uint64_t mask = (UINT64_C(1) << shift) - 1;
            return (uint32_t)((significand + (random_bits & mask)) >> shift);
        }
        // 32 random bits cannot resolve more: the probability is cut to a multiple of 2^-32.
        return shift < 56 && random_bits < significand >> (shift - 32) ? 1 : 0;
    }
    if (shift > 25) return 0; // below half of the smallest step: significand < 2^24
    const uint32_t rest = significand - (whole << shift), half = UINT32_C(1) << (shift - 1);
    return whole + (rest > half || (rest == half && (whole & 1) != 0) ? 1 : 0);
}

// The code of a finite magnitude (fp32 bits without sign), as if exponents had no upper limit.
static uint32_t narrow_magnitude(const narrow_format *f, uint32_t magnitude, rounding round,
                                 uint32_t random_bits)
{
    const int field = (int)(magnitude >> 23);
    int exponent = field == 0 ? -126 : field - 127;
    const uint32_t significand = (magnitude & 0x7fffff) | (field == 0 ? 0 : 0x800000);
    int shift = 23 - f->man_bits;
    if (exponent < f->min_exponent) { // subnormal in the target: fewer bits are left
        shift += f->min_exponent - exponent;
        exponent = f->min_exponent;
    }
    // For a normal number the significand's leading bit counts the exponent field up by one.
    return ((uint32_t)(exponent - f->min_exponent) << f->man_bits) +
           round_shift(significand, shift, round, random_bits);
}

uint16_t bf16_from_f32(float x)
{
    const uint32_t bits = bits_of(x);
    if ((bits & F32_ABS) > F32_INF) return (uint16_t)(bits >> 16 | 0x40); // a quiet NaN
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

uint16_t bf16_from_f32_toward_zero(float x)
{
    const uint32_t bits = bits_of(x);
    if ((bits & F32_ABS) > F32_INF) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)(bits >> 16);
}

uint16_t bf16_from_f32_stochastic(float x, uint32_t random_bits)
{
    const uint32_t bits = bits_of(x);
    if ((bits & F32_ABS) > F32_INF) return (uint16_t)(bits >> 16 | 0x40);
    if ((bits & F32_ABS) == F32_INF) return (uint16_t)(bits >> 16);
    return (uint16_t)((bits + (random_bits & 0xffff)) >> 16);
}

float f32_from_bf16(uint16_t bits)
{
    return float_of((uint32_t)bits << 16);
}

static uint16_t f16_round(float x, rounding round, uint32_t random_bits)
{
    const uint32_t bits = bits_of(x), magnitude = bits & F32_ABS;
    const uint32_t sign = bits >> 16 & 0x8000;
    if (magnitude > F32_INF) return (uint16_t)(sign | 0x7e00);
    if (magnitude == F32_INF) return (uint16_t)(sign | 0x7c00);
    uint32_t code = narrow_magnitude(&format_f16, magnitude, round, random_bits);
    if (code > format_f16.max_finite) {
        code = round == ROUND_TOWARD_ZERO ? format_f16.max_finite : 0x7c00;
    }
    return (uint16_t)(sign | code);
}

uint16_t f16_from_f32(float x)
{
    return f16_round(x, ROUND_NEAREST_EVEN, 0);
}

uint16_t f16_from_f32_toward_zero(float x)
{
    return f16_round(x, ROUND_TOWARD_ZERO, 0);
}

uint16_t f16_from_f32_stochastic(float x, uint32_t random_bits)
{
    return f16_round(x, ROUND_STOCHASTIC, random_bits);
}

// The value of a code without sign; the caller handles infinities and NaN.
static float widen(const narrow_format *f, uint32_t code)
{
    const uint32_t field = code >> f->man_bits, fraction = code & ((1U << f->man_bits) - 1);
    if (field == 0) { // fraction * 2^(min_exponent - man_bits): exact, and normal in fp32
        const int exponent = f->min_exponent - f->man_bits;
        return (float)fraction * float_of((uint32_t)(exponent + 127) << 23);
    }
    const int exponent = (int)field - 1 + f->min_exponent;
    return float_of((uint32_t)(exponent + 127) << 23 | fraction << (23 - f->man_bits));
}

static float with_sign(float magnitude, bool negative)
{
    return negative ? -magnitude : magnitude;
}

float f32_from_f16(uint16_t bits)
{
    const uint32_t code = bits & 0x7fff;
    if (code >= 0x7c00) {
        return float_of((uint32_t)(bits & 0x8000) << 16 | F32_INF | (code & 0x3ff) << 13);
    }
    return with_sign(widen(&format_f16, code), (bits & 0x8000) != 0);
}

uint8_t f8e4m3_from_f32(float x, rounding round, overflow_rule overflow, uint32_t random_bits)
{
    const uint32_t bits = bits_of(x), magnitude = bits & F32_ABS;
    const uint32_t sign = bits >> 24 & 0x80;
    const uint32_t beyond = overflow == OVERFLOW_SATURATE ? format_e4m3.max_finite : 0x7f;
    if (magnitude > F32_INF) return (uint8_t)(sign | 0x7f);
    if (magnitude == F32_INF) return (uint8_t)(sign | beyond);
    uint32_t code = narrow_magnitude(&format_e4m3, magnitude, round, random_bits);
    if (code > format_e4m3.max_finite) {
        code = round == ROUND_TOWARD_ZERO ? format_e4m3.max_finite : beyond;
    }
    return (uint8_t)(sign | code);
}

uint8_t f8e5m2_from_f32(float x, rounding round, overflow_rule overflow, uint32_t random_bits)
{
    const uint32_t bits = bits_of(x), magnitude = bits & F32_ABS;
    const uint32_t sign = bits >> 24 & 0x80;
    const uint32_t beyond = overflow == OVERFLOW_SATURATE ? format_e5m2.max_finite : 0x7c;
    if (magnitude > F32_INF) return (uint8_t)(sign | 0x7e);
    if (magnitude == F32_INF) return (uint8_t)(sign | beyond);
    uint32_t code = narrow_magnitude(&format_e5m2, magnitude, round, random_bits);
    if (code > format_e5m2.max_finite) {
        code = round == ROUND_TOWARD_ZERO ? format_e5m2.max_finite : beyond;
    }
    return (uint8_t)(sign | code);
}

float f32_from_f8e4m3(uint8_t bits)
{
    const uint32_t code = bits & 0x7f;
    if (code == 0x7f) return float_of((uint32_t)(bits & 0x80) << 24 | 0x7fc00000);
    return with_sign(widen(&format_e4m3, code), (bits & 0x80) != 0);
}

float f32_from_f8e5m2(uint8_t bits)
{
    // e5m2 is the upper half of fp16.
    return f32_from_f16((uint16_t)(bits << 8));
}

// To fp32 with "round to odd": cut, and set the last bit if anything was cut. A further rounding
// to a type with at least two bits less then gives what one rounding of `value` would.
static float f32_to_odd(double value)
{
    const float nearest = (float)value;
    if (isnan(value) || (double)nearest == value) return nearest;
    uint32_t bits = bits_of(nearest);
    if (fabs((double)nearest) > fabs(value))
        bits -= 1; // also turns infinity into the largest finite value
    return float_of(bits | 1);
}

// Rounds to nearest even and clamps to the type's limits; NaN is 0.
static int64_t int_of(double value, int64_t least, int64_t most)
{
    if (isnan(value)) return 0;
    const double r = nearbyint(value);
    if (r <= (double)least) return least;
    if (r >= (double)most) return most;
    return (int64_t)r;
}

static uint64_t uint_of(double value)
{
    if (!(value > 0)) return 0;
    const double r = nearbyint(value);
    return r >= 0x1p64 ? UINT64_MAX : (uint64_t)r;
}

#define LOAD(type, data, index, out) \
    memcpy(&(out), (const char *)(data) + (index) * (int64_t)sizeof(type), sizeof(type))
#define STORE(type, data, index, in)                                                  \
    do {                                                                              \
        const type in_ = (type)(in);                                                  \
        memcpy((char *)(data) + (index) * (int64_t)sizeof(type), &in_, sizeof(type)); \
    } while (0)

// memcpy throughout: tensors in files may be unaligned.
#define LOAD_AS(type, expression)    \
    do {                             \
        type v;                      \
        LOAD(type, data, index, v);  \
        return (double)(expression); \
    } while (0)

double dtype_load(dtype type, const void *data, int64_t index)
{
    switch (type) {
    case DTYPE_F32:
        LOAD_AS(float, v);
    case DTYPE_BF16:
        LOAD_AS(uint16_t, f32_from_bf16(v));
    case DTYPE_F16:
        LOAD_AS(uint16_t, f32_from_f16(v));
    case DTYPE_F8E4M3:
        LOAD_AS(uint8_t, f32_from_f8e4m3(v));
    case DTYPE_F8E5M2:
        LOAD_AS(uint8_t, f32_from_f8e5m2(v));
    case DTYPE_F64:
        LOAD_AS(double, v);
    case DTYPE_I32:
        LOAD_AS(int32_t, v);
    case DTYPE_I64:
        LOAD_AS(int64_t, v);
    case DTYPE_U8:
        LOAD_AS(uint8_t, v);
    case DTYPE_U16:
        LOAD_AS(uint16_t, v);
    case DTYPE_U32:
        LOAD_AS(uint32_t, v);
    case DTYPE_BOOL:
        LOAD_AS(uint8_t, v != 0);
    case DTYPE_I8:
        LOAD_AS(int8_t, v);
    case DTYPE_I16:
        LOAD_AS(int16_t, v);
    case DTYPE_U64:
        LOAD_AS(uint64_t, v);
    case DTYPE_COUNT:
        break;
    }
    return 0;
}

// fp8 as torch casts: e4m3 saturates, e5m2 becomes infinity.
void dtype_store(dtype type, void *data, int64_t index, double value)
{
    const float odd = f32_to_odd(value);
    switch (type) {
    case DTYPE_F32:
        STORE(float, data, index, value);
        return;
    case DTYPE_BF16:
        STORE(uint16_t, data, index, bf16_from_f32(odd));
        return;
    case DTYPE_F16:
        STORE(uint16_t, data, index, f16_from_f32(odd));
        return;
    case DTYPE_F8E4M3:
        STORE(uint8_t, data, index, f8e4m3_from_f32(odd, ROUND_NEAREST_EVEN, OVERFLOW_SATURATE, 0));
        return;
    case DTYPE_F8E5M2:
        STORE(uint8_t, data, index,
              f8e5m2_from_f32(odd, ROUND_NEAREST_EVEN, OVERFLOW_TO_NAN_OR_INF, 0));
        return;
    case DTYPE_F64:
        STORE(double, data, index, value);
        return;
    case DTYPE_I32:
        STORE(int32_t, data, index, int_of(value, INT32_MIN, INT32_MAX));
        return;
    case DTYPE_I64:
        STORE(int64_t, data, index, int_of(value, INT64_MIN, INT64_MAX));
        return;
    case DTYPE_U8:
        STORE(uint8_t, data, index, int_of(value, 0, UINT8_MAX));
        return;
    case DTYPE_U16:
        STORE(uint16_t, data, index, int_of(value, 0, UINT16_MAX));
        return;
    case DTYPE_U32:
        STORE(uint32_t, data, index, int_of(value, 0, UINT32_MAX));
        return;
    case DTYPE_BOOL:
        STORE(uint8_t, data, index, value != 0);
        return;
    case DTYPE_I8:
        STORE(int8_t, data, index, int_of(value, INT8_MIN, INT8_MAX));
        return;
    case DTYPE_I16:
        STORE(int16_t, data, index, int_of(value, INT16_MIN, INT16_MAX));
        return;
    case DTYPE_U64:
        STORE(uint64_t, data, index, uint_of(value));
        return;
    case DTYPE_COUNT:
        return;
    }
}

bool size_mul(int64_t a, int64_t b, int64_t *out)
{
    return a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, out);
}

bool size_add(int64_t a, int64_t b, int64_t *out)
{
    return a >= 0 && b >= 0 && !__builtin_add_overflow(a, b, out);
}
