// Element types, their scalar casts, and the few constants that all floors share.
//
// bf16, fp16 and fp8 are stored as bit patterns; arithmetic is in fp32 or double. The casts here
// are the scalar reference; tests compare the vector versions in kernels/cpu with them over every
// pattern.
#ifndef BASE_TYPES_H
#define BASE_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#    define RESTRICT __restrict__
#else
#    define RESTRICT restrict
#endif

// Small functions that kernels for GPUs call too.
#ifdef __CUDACC__
#    define DEVICE_CODE __host__ __device__
#else
#    define DEVICE_CODE
#endif

#define COUNT_OF(array) ((int64_t)(sizeof(array) / sizeof((array)[0])))

enum { ALIGN_TENSOR = 64 }; // every tensor starts on a cache line

typedef enum dtype {
    DTYPE_F32,
    DTYPE_BF16,
    DTYPE_F16,
    DTYPE_F8E4M3, // e4m3fn: no infinity
    DTYPE_F8E5M2,
    DTYPE_F64,
    DTYPE_I32,
    DTYPE_I64,
    DTYPE_U8,
    DTYPE_U16,
    DTYPE_U32,
    DTYPE_BOOL,
    DTYPE_I8, // the last three: the program only reads and shows them
    DTYPE_I16,
    DTYPE_U64,
    DTYPE_COUNT
} dtype;

int64_t dtype_bytes(dtype type);
const char *dtype_name(dtype type);             // "fp32", "bf16", ...: as written in a config
const char *dtype_safetensors_name(dtype type); // "F32", "BF16", ...; NULL where it has none
bool dtype_parse(const char *name, dtype *out); // either spelling; false if unknown

// Rounding of a value that the narrow type cannot hold.
typedef enum rounding {
    ROUND_NEAREST_EVEN,
    ROUND_TOWARD_ZERO, // the magnitude is cut; finite stays finite
    ROUND_STOCHASTIC   // needs 32 random bits
} rounding;
// fp8 only: the result for magnitudes beyond the largest finite value.
typedef enum overflow_rule { OVERFLOW_SATURATE, OVERFLOW_TO_NAN_OR_INF } overflow_rule;

uint16_t bf16_from_f32(float x); // nearest even
uint16_t bf16_from_f32_toward_zero(float x);
uint16_t bf16_from_f32_stochastic(float x, uint32_t random_bits); // adds 16 random bits, then cuts
float f32_from_bf16(uint16_t bits);
uint16_t f16_from_f32(float x); // nearest even; subnormals kept; 65520 and more are infinite
uint16_t f16_from_f32_toward_zero(float x);
uint16_t f16_from_f32_stochastic(float x, uint32_t random_bits);
float f32_from_f16(uint16_t bits);
uint8_t f8e4m3_from_f32(float x, rounding round, overflow_rule overflow, uint32_t random_bits);
uint8_t f8e5m2_from_f32(float x, rounding round, overflow_rule overflow, uint32_t random_bits);
float f32_from_f8e4m3(uint8_t bits);
float f32_from_f8e5m2(uint8_t bits);

// One element of any type as a double, and back (nearest even). For ref kernels and tools.
double dtype_load(dtype type, const void *data, int64_t index);
void dtype_store(dtype type, void *data, int64_t index, double value);

// Checked 64-bit arithmetic for sizes that come from outside; false on overflow or a negative.
bool size_mul(int64_t a, int64_t b, int64_t *out);
bool size_add(int64_t a, int64_t b, int64_t *out);
static inline DEVICE_CODE int64_t align_up(int64_t value, int64_t alignment)
{
    return (value + alignment - 1) / alignment * alignment;
}
static inline DEVICE_CODE int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline DEVICE_CODE int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

#ifdef __cplusplus
}
#endif
#endif
