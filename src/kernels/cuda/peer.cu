// Sums over the memory of several GPUs (device/peers.h): a thread takes an element at a time, reads
// it from every term and writes it to every output. Order and rounding are those of comm/reduce.c.
#include "kernels/cuda/view.h"

// NaN where either is; max(-0, +0) = +0 and min = -0, so that neither depends on order.
DEV_INLINE float peer_extreme(float a, float b, int is_max)
{
    if (a != a || b != b) return a + b;
    if (a == b) {
        const uint32_t x = dev_bits_of(a), y = dev_bits_of(b);
        return dev_float_of(is_max ? x & y : x | y);
    }
    return (a > b) == (is_max != 0) ? a : b;
}

DEV_INLINE float peer_join(int32_t reduction, float a, float b)
{
    if (reduction == REDUCTION_MAX || reduction == REDUCTION_MIN) {
        return peer_extreme(a, b, reduction == REDUCTION_MAX);
    }
    return a + b;
}

DEV_INLINE float peer_load(const device_sum *a, int32_t term, int64_t i)
{
    if (a->type == DTYPE_F32) return ((const float *)a->in[term])[i];
    const uint32_t bits = ((const uint16_t *)a->in[term])[i];
    return a->type == DTYPE_BF16 ? dev_bf16_value(bits) : dev_f16_value(bits);
}

DEV_INLINE float peer_operand(const device_sum *a, const float *slots, int16_t which, int64_t i)
{
    return which >= 0 ? peer_load(a, which, i) : slots[~which];
}

// fp32, bf16 and fp16. Without steps: left to right.
DEV_INLINE void peer_float(const device_sum *a, int64_t i)
{
    float slots[DEVICE_SUM_SLOTS], x;
    if (a->step_count == 0) {
        x = peer_load(a, 0, i);
        for (int32_t k = 1; k < a->terms; k++) x = peer_join(a->reduction, x, peer_load(a, k, i));
    } else {
        x = 0.0f;
        for (int32_t k = 0; k < a->step_count; k++) {
            const device_sum_step s = a->steps[k];
            x = peer_operand(a, slots, s.left, i) + peer_operand(a, slots, s.right, i);
            slots[s.slot] = x;
        }
    }
    x *= (float)a->scale;
    if (x != x) x = dev_float_of(0x7fc00000u);
    const uint32_t half = a->type == DTYPE_BF16 ? dev_bf16_pair(x, 0.0f) : dev_f16_pair(x, 0.0f);
    for (int32_t k = 0; k < a->outs; k++) {
        if (a->type == DTYPE_F32) {
            ((float *)a->out[k])[i] = x;
        } else {
            ((uint16_t *)a->out[k])[i] = (uint16_t)half;
        }
    }
}

// Integers of 32 and 64 bits; sums wrap.
DEV_INLINE uint64_t peer_word(const device_sum *a, int32_t term, int64_t i)
{
    const void *at = a->in[term];
    if (a->type == DTYPE_I32) return (uint64_t)(int64_t)((const int32_t *)at)[i];
    if (a->type == DTYPE_U32) return ((const uint32_t *)at)[i];
    return ((const uint64_t *)at)[i];
}

DEV_INLINE uint64_t peer_join_words(const device_sum *a, uint64_t x, uint64_t y)
{
    const int is_signed = a->type == DTYPE_I32 || a->type == DTYPE_I64;
    const int is_less = is_signed ? (int64_t)x < (int64_t)y : x < y;
    if (a->reduction == REDUCTION_MAX) return is_less ? y : x;
    if (a->reduction == REDUCTION_MIN) return is_less ? x : y;
    return x + y;
}

DEV_INLINE void peer_integer(const device_sum *a, int64_t i)
{
    const int is_wide = a->type == DTYPE_I64 || a->type == DTYPE_U64;
    uint64_t x = peer_word(a, 0, i);
    for (int32_t k = 1; k < a->terms; k++) x = peer_join_words(a, x, peer_word(a, k, i));
    for (int32_t k = 0; k < a->outs; k++) {
        if (is_wide) {
            ((uint64_t *)a->out[k])[i] = x;
        } else {
            ((uint32_t *)a->out[k])[i] = (uint32_t)x;
        }
    }
}

DEV_KERNEL(cuda_peer_sum, device_sum, CUDA_THREADS)
{
    const int is_float = a.type == DTYPE_F32 || a.type == DTYPE_BF16 || a.type == DTYPE_F16;
    const int64_t step = dev_blocks(0) * dev_threads();
    for (int64_t i = dev_block(0) * dev_threads() + dev_thread(); i < a.count; i += step) {
        if (is_float) {
            peer_float(&a, a.begin + i);
        } else {
            peer_integer(&a, a.begin + i);
        }
    }
}
