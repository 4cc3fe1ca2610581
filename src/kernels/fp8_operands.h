// The operands of a product in 8 bits (op/fp8.h): their blocks, and where the rounded ones lie in
// the workspace.
#ifndef KERNELS_FP8_OPERANDS_H
#define KERNELS_FP8_OPERANDS_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

// Blocks lie along the dim that a product sums over, so units for 8 bits multiply sums of 128 terms
// by their factors.
static inline fp8_block fp8_block_of(const kern_call *c, int operand)
{
    if (c->attrs.fp8 == FP8_TENSOR) return FP8_OF_ALL;
    if (c->code == OP_MATMUL_DW) return FP8_OF_COLUMN;
    return operand == 0 ? FP8_OF_ROW : FP8_OF_SQUARE;
}

// Returns the rows of an operand after which blocks begin anew: those of an expert's matrix.
static inline int64_t fp8_group_rows(const kern_call *c, int operand)
{
    const bool has_experts = operand == 1 && c->attrs.experts > 0;
    const int64_t rows = c->in[operand].dims[0];
    return max_i64(has_experts ? rows / c->attrs.experts : rows, 1);
}

static inline int64_t fp8_operand_bytes(const kern_tensor *t, dtype type)
{
    return align_up(t->dims[0] * t->dims[1] * dtype_bytes(type), ALIGN_TENSOR);
}

// Returns the workspace of a product whose rounded operands are of `type`.
static inline int64_t fp8_operands_bytes(const kern_call *c, dtype type)
{
    if (c->attrs.fp8 == FP8_NONE) return 0;
    return fp8_operand_bytes(&c->in[0], type) + fp8_operand_bytes(&c->in[1], type);
}

// Returns the row of the history of an operand of the call: x, w or dy.
static inline int fp8_operand_of(const kern_call *c, int operand)
{
    if (c->code == OP_MATMUL) return operand;
    return operand == 0 ? 2 : c->code == OP_MATMUL_DW ? 0 : 1;
}

static inline const kern_tensor *fp8_history_of(const kern_call *c)
{
    return &c->in[c->code == OP_MATMUL_DW ? 2 : 3];
}

static inline fp8_format fp8_operand_format(const kern_call *c, int operand)
{
    return c->attrs.fp8 == FP8_TENSOR ? fp8_format_of(fp8_operand_of(c, operand)) : FP8_E4M3;
}

// Returns the exponent of the factor that a history has for an operand.
static inline int fp8_operand_exponent(const kern_call *c, int operand)
{
    const kern_tensor *t = fp8_history_of(c);
    const int row = fp8_operand_of(c, operand);
    ASSERT(t->type == DTYPE_F32);
    return fp8_history_exponent((const float *)t->data + row * t->strides[0], row,
                                c->attrs.fp8_margin);
}

// Makes `out` the same call with operands of `type` in the workspace, which are still to be filled.
static inline void fp8_operands_move(const kern_call *c, dtype type, kern_call *out)
{
    char *at = (char *)c->workspace;
    *out = *c;
    for (int i = 0; i < 2; i++) {
        out->in[i].data = at;
        out->in[i].type = type;
        out->in[i].strides[0] = out->in[i].dims[1];
        out->in[i].strides[1] = 1;
        at += fp8_operand_bytes(&c->in[i], type);
    }
}

#ifdef __cplusplus
}
#endif
#endif
