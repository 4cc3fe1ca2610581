// Weights held in few bits: blocks of columns of a row, each with its largest magnitude. All
// backends follow these rules to the bit.
//
//   int8   64 columns = 64 bytes and a scale: x = scale * code / 127, code -127 .. 127
//   nf4    64 columns = 32 bytes and a scale: x = scale * table[code]; the first of two columns is
//          in the high bits
//
// A scale is fp32 and lies behind the codes of its block, so that columns can be cut between
// blocks. The last block of a row may be shorter. The table is that of NF4 (Dettmers et al. 2023,
// arXiv:2305.14314, appendix E).
#ifndef OP_QUANTIZED_H
#define OP_QUANTIZED_H

#include "base/base.h"

#include <math.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum op_quant { QUANT_NONE, QUANT_INT8, QUANT_NF4 } op_quant;
enum { QUANT_BLOCK = 64, QUANT_SCALE_BYTES = 4 };

static const float op_nf4_table[16] = {-1.0f,
                                       -0.6961928009986877f,
                                       -0.5250730514526367f,
                                       -0.39491748809814453f,
                                       -0.28444138169288635f,
                                       -0.18477343022823334f,
                                       -0.09105003625154495f,
                                       0.0f,
                                       0.07958029955625534f,
                                       0.16093020141124725f,
                                       0.24611230194568634f,
                                       0.33791524171829224f,
                                       0.44070982933044434f,
                                       0.5626170039176941f,
                                       0.7229568362236023f,
                                       1.0f};

// Bytes of the codes of `count` columns of a block, and of a block with its scale.
static inline DEVICE_CODE int64_t op_quant_code_bytes(op_quant kind, int64_t count)
{
    return kind == QUANT_INT8 ? count : (count + 1) / 2;
}
static inline DEVICE_CODE int64_t op_quant_block_bytes(op_quant kind, int64_t count)
{
    return op_quant_code_bytes(kind, count) + QUANT_SCALE_BYTES;
}
// Bytes of a row.
static inline int64_t op_quant_row_bytes(op_quant kind, int64_t columns)
{
    const int64_t rest = columns % QUANT_BLOCK;
    const int64_t whole = columns / QUANT_BLOCK * op_quant_block_bytes(kind, QUANT_BLOCK);
    return whole + (rest > 0 ? op_quant_block_bytes(kind, rest) : 0);
}

static inline uint8_t op_nf4_code(float x)
{
    uint8_t best = 0;
    for (uint8_t k = 1; k < 16; k++) {
        if (fabsf(x - op_nf4_table[k]) < fabsf(x - op_nf4_table[best])) best = k;
    }
    return best;
}

static inline void op_quant_block_encode(op_quant kind, const float *x, int64_t count, uint8_t *out)
{
    float scale = 0.0f;
    for (int64_t i = 0; i < count; i++) scale = fmaxf(scale, fabsf(x[i]));
    const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    for (int64_t i = 0; i < count; i++) {
        if (kind == QUANT_INT8) {
            out[i] = (uint8_t)(int8_t)rintf(x[i] * inverse * 127.0f);
        } else {
            const int code = op_nf4_code(x[i] * inverse);
            out[i / 2] = (uint8_t)(i % 2 == 0 ? code << 4 : out[i / 2] | code);
        }
    }
    memcpy(out + op_quant_code_bytes(kind, count), &scale, sizeof(scale));
}

static inline void op_quant_block_decode(op_quant kind, const uint8_t *in, int64_t count, float *x)
{
    float scale = 0.0f;
    memcpy(&scale, in + op_quant_code_bytes(kind, count), sizeof(scale));
    const float step = scale / 127.0f;
    for (int64_t i = 0; i < count; i++) {
        x[i] = kind == QUANT_INT8 ? step * (float)(int8_t)in[i]
                                  : scale * op_nf4_table[in[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15];
    }
}

static inline void op_quant_row_encode(op_quant kind, const float *x, int64_t columns, uint8_t *out)
{
    for (int64_t j = 0; j < columns; j += QUANT_BLOCK) {
        const int64_t count = min_i64(QUANT_BLOCK, columns - j);
        op_quant_block_encode(kind, x + j, count, out);
        out += op_quant_block_bytes(kind, count);
    }
}

#ifdef __cplusplus
}
#endif
#endif
