// Weights in few bits become numbers (op/quantized.h). A thread takes eight columns, whose codes
// are in one block; the table of nf4 lies in shared memory, where lanes may read different places
// at once.
#include "kernels/cuda/args_adapters.h"
#include "kernels/cuda/view.h"

DEV_INLINE uint32_t quant_byte(const uint8_t *at, int64_t count)
{
    return count > 0 ? *at : 0;
}

// Reads four bytes, of which `left` are there.
DEV_INLINE uint32_t quant_word(const uint8_t *at, int64_t left)
{
    if (left >= 4 && ((uintptr_t)at & 3) == 0) return *(const uint32_t *)(const void *)at;
    return quant_byte(at, left) | quant_byte(at + 1, left - 1) << 8 |
           quant_byte(at + 2, left - 2) << 16 | quant_byte(at + 3, left - 3) << 24;
}

// Decodes the columns j to j + 7 of a row, `left` of which are there.
DEV_INLINE void quant_decode(const cuda_dequantize_args *a, const float *table, int64_t row,
                             int64_t j, int64_t left, float x[DEV_VECTOR])
{
    const int64_t begin = j / QUANT_BLOCK * QUANT_BLOCK, in_block = j - begin;
    const int64_t count = dev_min(QUANT_BLOCK, a->w.columns - begin);
    const uint8_t *block = (const uint8_t *)a->codes.data + row * a->codes.stride +
                           j / QUANT_BLOCK * op_quant_block_bytes(a->kind, QUANT_BLOCK);
    const float scale = dev_float_of(quant_word(block + op_quant_code_bytes(a->kind, count), 4));
    if (a->kind == QUANT_NF4) {
        const uint32_t codes = quant_word(block + in_block / 2, (left + 1) / 2);
        DEV_UNROLL
        for (int k = 0; k < DEV_VECTOR; k++) {
            const int shift = k / 2 * 8 + (k % 2 == 0 ? 4 : 0);
            x[k] = scale * table[codes >> shift & 15];
        }
        return;
    }
    const float step = scale / 127.0f;
    const uint32_t low = quant_word(block + in_block, left);
    const uint32_t high = quant_word(block + in_block + 4, left - 4);
    DEV_UNROLL
    for (int k = 0; k < DEV_VECTOR; k++) {
        const uint32_t code = (k < 4 ? low : high) >> k % 4 * 8 & 0xffu;
        x[k] = step * (float)((int)code - (code > 127 ? 256 : 0));
    }
}

DEV_KERNEL(cuda_dequantize, cuda_dequantize_args, CUDA_THREADS)
{
    float *table = (float *)dev_shared(), x[DEV_VECTOR];
    if (dev_thread() < 16) table[dev_thread()] = a.table[dev_thread()];
    dev_barrier();
    for (int64_t j = dev_column_first(); j < a.w.columns; j += dev_column_step()) {
        const int64_t left = dev_min(DEV_VECTOR, a.w.columns - j);
        for (int64_t i = dev_block(1); i < a.w.rows; i += dev_blocks(1)) {
            quant_decode(&a, table, i, j, left, x);
            dev_store8(&a.w, i, j, x);
        }
    }
}
