// The arithmetic of 8-bit products: factors, and rounding to the numbers that 8 bits can hold.
//
// A recipe says for each operand of a product how its numbers share a factor, which is a power of
// two:
//
//   block   DeepSeek-AI 2024, arXiv:2412.19437, section 3.3: all operands are e4m3. Activations and
//           gradients have a factor for each 128 numbers along the dim that the product sums over,
//           weights one for each 128 x 128 numbers. Each factor brings the largest magnitude of its
//           block to 224 .. 448, the largest number of e4m3. No block depends on another one.
//   tensor  delayed scaling, as in NVIDIA's Transformer Engine: an operand has one factor, which is
//           that of the largest magnitude of the last N steps on all ranks, divided by 2^margin.
//           Activations and weights are e4m3, gradients are e5m2. Larger numbers than the history
//           has become the format's largest one.
//
// A history is a tensor with a row for each operand of a layer: x, w, dy. Column j stands for
// magnitudes above 0.875 * 2^(j - 41), and holds the number of steps for which such a magnitude
// still counts: N after a step that had one, one less after each other step. That is what a power
// of two takes from a list of N magnitudes, and it has the same size for any N. A step's gradient
// counts calls with such numbers in the same columns, so sums over micro-batches and ranks need no
// other collective than a weight's gradient, and are positive in the same columns in any layout.
//
// A power of two rounds nothing, and an e4m3 number times a power of two is a bf16 number exactly.
// So rounding the operands in place and multiplying them as bf16 is the product of the 8-bit
// numbers, except for the order of its sums.
#ifndef OP_FP8_H
#define OP_FP8_H

#include "base/base.h"

#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum fp8_recipe { FP8_NONE, FP8_BLOCK, FP8_TENSOR } fp8_recipe;
typedef enum fp8_format { FP8_E4M3, FP8_E5M2 } fp8_format;
// The numbers of an operand that share a factor: 128 of a row, 128 of a column, 128 x 128, all.
typedef enum fp8_block { FP8_OF_ROW, FP8_OF_COLUMN, FP8_OF_SQUARE, FP8_OF_ALL } fp8_block;

enum {
    FP8_BLOCK_SIZE = 128,
    FP8_EXPONENT_MOST = 100, // of a factor: what it leaves is no subnormal number of bf16
    // NARROW_ROWS: of the factor of a row, whose byte is this exponent and the bias.
    FP8_ROW_EXPONENT_MOST = 127,
    FP8_ROW_EXPONENT_BIAS = 128,
    FP8_OPERANDS = 3,     // rows of a history: x, w, dy
    FP8_COLUMNS = 64,     // of a history
    FP8_FIRST_CLASS = -40 // of column 0
};

static inline DEVICE_CODE uint32_t fp8_bits_of(float x)
{
    uint32_t bits = 0;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline DEVICE_CODE float fp8_float_of(uint32_t bits)
{
    float x = 0.0f;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

// Returns 2^k, for -126 <= k <= 127.
static inline DEVICE_CODE float fp8_power(int k)
{
    return fp8_float_of((uint32_t)(k + 127) << 23);
}

// Returns the larger magnitude. Infinity stands for NaN too, since comparisons would forget a NaN.
static inline DEVICE_CODE float fp8_larger(float most, float x)
{
    const uint32_t bits = fp8_bits_of(x) & 0x7fffffffu;
    const uint32_t magnitude = bits < 0x7f800000u ? bits : 0x7f800000u;
    return magnitude > fp8_bits_of(most) ? fp8_float_of(magnitude) : most;
}

// Returns the k, at most `limit`, for which `most` times 2^k is in the upper half of the
// format: at most 448 = 0.875 * 2^9 of e4m3, 57344 = 0.875 * 2^16 of e5m2. 0 where most is 0,
// infinite or NaN.
static inline DEVICE_CODE int fp8_exponent(float most, fp8_format format, int limit)
{
    const uint32_t bits = fp8_bits_of(most) & 0x7fffffffu;
    if (bits == 0 || bits >= 0x7f800000u) return 0;
    const int top = format == FP8_E4M3 ? 9 : 16, exponent = (int)(bits >> 23) - 126;
    const int k = top - ((bits & 0x7fffffu) > 0x600000u ? 1 : 0) - exponent;
    return k > limit ? limit : k;
}

// Returns the largest column of a history that counts a tensor with this largest magnitude; -1:
// none, because it is 0, infinite or NaN.
static inline DEVICE_CODE int fp8_column(float most)
{
    const uint32_t bits = fp8_bits_of(most) & 0x7fffffffu;
    if (bits == 0 || bits >= 0x7f800000u) return -1;
    const int column = 9 - fp8_exponent(most, FP8_E4M3, FP8_EXPONENT_MOST) - FP8_FIRST_CLASS;
    return column < 0 ? 0 : column < FP8_COLUMNS ? column : FP8_COLUMNS - 1;
}

static inline DEVICE_CODE fp8_format fp8_format_of(int operand)
{
    return operand == 2 ? FP8_E5M2 : FP8_E4M3;
}

// Returns the exponent of the factor of an operand whose largest column that counts is `column`.
// -1: none, as before the first step; its magnitudes are taken to be at most 28 (x), 1.75 (w), and
// 0.875 * 2^-8 (dy).
static inline DEVICE_CODE int fp8_column_exponent(int column, int operand, int margin)
{
    const int first = operand == 0 ? 5 : operand == 1 ? 1 : -8;
    const int top = fp8_format_of(operand) == FP8_E4M3 ? 9 : 16;
    return top - margin - (column >= 0 ? column + FP8_FIRST_CLASS : first);
}

static inline int fp8_history_exponent(const float row[FP8_COLUMNS], int operand, int margin)
{
    int column = FP8_COLUMNS - 1;
    while (column >= 0 && !(row[column] > 0.0f)) column--;
    return fp8_column_exponent(column, operand, margin);
}

// Returns what a column holds after a step that counted `calls` in it; `most`: steps of a history.
static inline DEVICE_CODE float fp8_history_next(float steps, float calls, int most)
{
    return calls > 0.0f ? (float)most : steps > 1.0f ? steps - 1.0f : 0.0f;
}

// Returns the nearest number of the format, ties to even. Beyond its largest number: that number.
// Infinities become NaN, which the checks of gradients find.
static inline DEVICE_CODE float fp8_nearest(float x, fp8_format format)
{
    const bool is_e4m3 = format == FP8_E4M3;
    const uint32_t bits = fp8_bits_of(x), sign = bits & 0x80000000u;
    const uint32_t cut = is_e4m3 ? 20 : 21, magnitude = bits & 0x7fffffffu;
    const uint32_t rounded =
        (magnitude + ((1u << (cut - 1)) - 1u) + (magnitude >> cut & 1u)) & ~((1u << cut) - 1u);
    // Subnormal numbers are multiples of 2^-9 or 2^-16: as many as the last bit of the sum.
    const float step = is_e4m3 ? 16384.0f : 128.0f, low = fp8_float_of(magnitude);
    const uint32_t small = fp8_bits_of((low + step) - step);
    const uint32_t least = is_e4m3 ? 0x3c800000u : 0x38800000u; // 2^-6, 2^-14
    const uint32_t most = is_e4m3 ? 0x43e00000u : 0x47600000u;  // 448, 57344
    uint32_t out = magnitude < least ? small : rounded;
    out = out > most ? most : out;
    out = magnitude >= 0x7f800000u ? 0x7fc00000u : out;
    return fp8_float_of(out | sign);
}

// Returns the 8 bits of a number that fp8_nearest() returned.
static inline DEVICE_CODE uint8_t fp8_code(float x, fp8_format format)
{
    const bool is_e4m3 = format == FP8_E4M3;
    const uint32_t bits = fp8_bits_of(x), magnitude = bits & 0x7fffffffu;
    const uint32_t sign = bits >> 24 & 0x80u, cut = is_e4m3 ? 20 : 21;
    const uint32_t below = is_e4m3 ? 120u << 3 : 112u << 2; // the exponents that the format lacks
    if (magnitude > 0x7f800000u) return (uint8_t)(sign | 0x7fu);
    if (magnitude < (is_e4m3 ? 0x3c800000u : 0x38800000u)) {
        return (uint8_t)(sign |
                         (uint32_t)(fp8_float_of(magnitude) * (is_e4m3 ? 512.0f : 65536.0f)));
    }
    return (uint8_t)(sign | ((magnitude >> cut) - below));
}

// Returns x as it is after its factor 2^k, 8 bits and 2^-k.
static inline DEVICE_CODE float fp8_rounded(float x, int k, fp8_format format)
{
    return fp8_nearest(x * fp8_power(k), format) * fp8_power(-k);
}

#ifdef __cplusplus
}
#endif
#endif
