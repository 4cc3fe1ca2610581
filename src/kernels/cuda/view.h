// Access of kernels to views (args.h): elements, and vectors of eight, as floats of any type.
#ifndef KERNELS_CUDA_VIEW_H
#define KERNELS_CUDA_VIEW_H

#include "kernels/cuda/args.h"
#include "kernels/cuda/dev.h"

enum { DEV_VECTOR = 8 };

DEV_INLINE int64_t dev_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

DEV_INLINE int64_t dev_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

DEV_INLINE int64_t dev_width(int32_t type)
{
    if (type == DTYPE_F32 || type == DTYPE_I32) return 4;
    return type == DTYPE_I64 ? 8 : type == DTYPE_U8 ? 1 : 2;
}

// Returns the rows that are there.
DEV_INLINE int64_t dev_rows(const cuda_view *t)
{
    if (t->count == NULL) return t->rows;
    const int64_t rows =
        t->count_type == DTYPE_I32 ? *(const int32_t *)t->count : *(const int64_t *)t->count;
    dev_index_check("bounded rows", 0, rows, t->rows + 1);
    return rows;
}

DEV_INLINE float dev_load(const cuda_view *t, int64_t row, int64_t column)
{
    const int64_t at = row * t->stride + column;
    if (t->type == DTYPE_F32) return ((const float *)t->data)[at];
    const uint32_t bits = ((const uint16_t *)t->data)[at];
    return t->type == DTYPE_BF16 ? dev_bf16_value(bits) : dev_f16_value(bits);
}

DEV_INLINE void dev_store(const cuda_view *t, int64_t row, int64_t column, float value)
{
    const int64_t at = row * t->stride + column;
    if (t->type == DTYPE_F32) {
        ((float *)t->data)[at] = value;
        return;
    }
    const uint32_t pair =
        t->type == DTYPE_BF16 ? dev_bf16_pair(value, 0.0f) : dev_f16_pair(value, 0.0f);
    ((uint16_t *)t->data)[at] = (uint16_t)pair;
}

// Returns the value that a store to `t` leaves there.
DEV_INLINE float dev_rounded(const cuda_view *t, float value)
{
    if (t->type == DTYPE_F32) return value;
    if (t->type == DTYPE_BF16) return dev_bf16_value(dev_bf16_pair(value, 0.0f) & 0xffffu);
    return dev_f16_value(dev_f16_pair(value, 0.0f) & 0xffffu);
}

DEV_INLINE void dev_unpack8(int32_t type, dev_words words, float out[DEV_VECTOR])
{
    DEV_UNROLL
    for (int i = 0; i < 4; i++) {
        const uint32_t low = words.w[i] & 0xffffu, high = words.w[i] >> 16;
        out[2 * i] = type == DTYPE_BF16 ? dev_bf16_value(low) : dev_f16_value(low);
        out[2 * i + 1] = type == DTYPE_BF16 ? dev_bf16_value(high) : dev_f16_value(high);
    }
}

DEV_INLINE dev_words dev_pack8(int32_t type, const float x[DEV_VECTOR])
{
    dev_words out;
    DEV_UNROLL
    for (int i = 0; i < 4; i++) {
        out.w[i] = type == DTYPE_BF16 ? dev_bf16_pair(x[2 * i], x[2 * i + 1])
                                      : dev_f16_pair(x[2 * i], x[2 * i + 1]);
    }
    return out;
}

// Reads elements column to column + 7 of a row, `left` of them at most; the others are 0.
DEV_INLINE void dev_load_some(const cuda_view *t, int64_t row, int64_t column, int64_t left,
                              float out[DEV_VECTOR])
{
    const int64_t width = t->type == DTYPE_F32 ? 4 : 2;
    const char *at = (const char *)t->data + (row * t->stride + column) * width;
    if (left < DEV_VECTOR || ((uintptr_t)at & 15) != 0) {
        // One element at a time, in little code; selections keep `out` in registers.
        DEV_UNROLL
        for (int k = 0; k < DEV_VECTOR; k++) out[k] = 0.0f;
        DEV_ROLLED
        for (int i = 0; i < DEV_VECTOR && i < left; i++) {
            const float x = dev_load(t, row, column + i);
            DEV_UNROLL
            for (int k = 0; k < DEV_VECTOR; k++) out[k] = k == i ? x : out[k];
        }
        return;
    }
    const dev_words first = dev_load16(at);
    if (t->type != DTYPE_F32) {
        dev_unpack8(t->type, first, out);
        return;
    }
    const dev_words second = dev_load16(at + 16);
    DEV_UNROLL
    for (int i = 0; i < 4; i++) {
        out[i] = dev_float_of(first.w[i]);
        out[i + 4] = dev_float_of(second.w[i]);
    }
}

DEV_INLINE void dev_load8(const cuda_view *t, int64_t row, int64_t column, float out[DEV_VECTOR])
{
    dev_load_some(t, row, column, t->columns - column, out);
}

// Writes them.
DEV_INLINE void dev_store_some(const cuda_view *t, int64_t row, int64_t column, int64_t left,
                               const float x[DEV_VECTOR])
{
    const int64_t width = t->type == DTYPE_F32 ? 4 : 2;
    char *at = (char *)t->data + (row * t->stride + column) * width;
    if (left < DEV_VECTOR || ((uintptr_t)at & 15) != 0) {
        DEV_ROLLED
        for (int i = 0; i < DEV_VECTOR && i < left; i++) {
            float value = x[0];
            DEV_UNROLL
            for (int k = 1; k < DEV_VECTOR; k++) value = k == i ? x[k] : value;
            dev_store(t, row, column + i, value);
        }
        return;
    }
    if (t->type != DTYPE_F32) {
        dev_store16(at, dev_pack8(t->type, x));
        return;
    }
    dev_words first, second;
    DEV_UNROLL
    for (int i = 0; i < 4; i++) {
        first.w[i] = dev_bits_of(x[i]);
        second.w[i] = dev_bits_of(x[i + 4]);
    }
    dev_store16(at, first);
    dev_store16(at + 16, second);
}

DEV_INLINE void dev_store8(const cuda_view *t, int64_t row, int64_t column,
                           const float x[DEV_VECTOR])
{
    dev_store_some(t, row, column, t->columns - column, x);
}

// The first of the columns that this thread handles, and the step to the next ones; rows go by
// axis 1 of the grid.
DEV_INLINE int64_t dev_column_first(void)
{
    return (dev_block(0) * dev_threads() + dev_thread()) * DEV_VECTOR;
}

DEV_INLINE int64_t dev_column_step(void)
{
    return dev_blocks(0) * dev_threads() * DEV_VECTOR;
}

DEV_INLINE void dev_index_put(const cuda_view *t, int64_t i, int64_t value)
{
    if (t->type == DTYPE_I32) {
        ((int32_t *)t->data)[i] = (int32_t)value;
    } else {
        ((int64_t *)t->data)[i] = value;
    }
}

DEV_INLINE int64_t dev_index(const cuda_view *t, int64_t i)
{
    if (t->type == DTYPE_I32) return ((const int32_t *)t->data)[i];
    return ((const int64_t *)t->data)[i];
}

// The inverse of a length, from its square: a row of zeros has no direction.
DEV_INLINE float dev_inverse_length(float square)
{
    return square > 0.0f ? 1.0f / sqrtf(square) : 0.0f;
}

// The row of a pool of pages that is row `at` of sequence b, which has `each` pages of `page` rows.
DEV_INLINE int64_t dev_page_row(const cuda_view *pages, int64_t page, int64_t each, int64_t b,
                                int64_t at, int64_t pool)
{
    const int64_t of = dev_index(pages, b * each + at / page);
    dev_index_check("pages of a cache", b, of, pool / page);
    return of * page + at % page;
}

// ---- activations --------------------------------------------------------------------------------
DEV_INLINE float dev_sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x)); // expf may be infinite: then this is 0, as it should be
}

DEV_CALLED float dev_capped(float cap, float x)
{
    return cap * tanhf(x / cap);
}

DEV_CALLED float dev_activation(int32_t kind, float x)
{
    switch (kind) {
    case ACT_GELU_TANH:
        return x * dev_sigmoid(1.5957691216f * (x + 0.044715f * x * x * x));
    case ACT_GELU_ERF:
        return 0.5f * x * erfcf(-x * 0.70710678119f);
    case ACT_SILU:
        return x * dev_sigmoid(x);
    case ACT_RELU:
        return x > 0.0f || isnan(x) ? x : 0.0f;
    default:
        return x;
    }
}

DEV_CALLED float dev_activation_slope(int32_t kind, float x)
{
    if (kind == ACT_GELU_TANH) {
        const float twice_u = 1.5957691216f * (x + 0.044715f * x * x * x);
        const float slope = 1.5957691216f * (1.0f + 0.134145f * x * x);
        return dev_sigmoid(twice_u) + x * (dev_sigmoid(twice_u) * dev_sigmoid(-twice_u)) * slope;
    }
    if (kind == ACT_GELU_ERF) {
        return 0.5f * erfcf(-x * 0.70710678119f) + x * (0.39894228040f * expf(-0.5f * x * x));
    }
    if (kind == ACT_SILU) return dev_sigmoid(x) + x * (dev_sigmoid(x) * dev_sigmoid(-x));
    if (kind == ACT_RELU) return x > 0.0f ? 1.0f : 0.0f;
    return 1.0f;
}

#endif
