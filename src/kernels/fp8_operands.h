// The operands of a product in 8 bits (op/fp8.h): their blocks, and where the rounded ones lie in
// the workspace.
#ifndef KERNELS_FP8_OPERANDS_H
#define KERNELS_FP8_OPERANDS_H

#include "kernels/expert_rows.h"

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
    if (c->code == OP_MATMUL || c->code == OP_GROUPED_MATMUL) return operand;
    if (operand == 0) return 2;
    return c->code == OP_MATMUL_DW || c->code == OP_GROUPED_MATMUL_DW ? 0 : 1;
}

static inline const kern_tensor *fp8_history_of(const kern_call *c)
{
    if (c->code == OP_MATMUL_DW) return &c->in[2];
    return &c->in[c->code == OP_GROUPED_MATMUL_DX || c->code == OP_GROUPED_MATMUL_DW ? 4 : 3];
}

// Returns into how many stretches of rows an operand falls that each have their own factor, with a
// history: the rows of an expert from a rank, an expert's matrix, or all.
static inline int64_t fp8_stretches(const kern_call *c, int operand)
{
    if (c->attrs.experts == 0) return 1;
    return c->attrs.experts * (fp8_operand_of(c, operand) == 1 ? 1 : expert_ranks(c));
}

// Finds the rows of a stretch and the expert whose factor they have.
static inline status fp8_stretch(const kern_call *c, int operand, int64_t at, expert_rows *out,
                                 int64_t *expert)
{
    const int64_t rows = c->in[operand].dims[0], experts = c->attrs.experts;
    *expert = experts > 0 ? at % experts : 0;
    *out = (expert_rows){.begin = 0, .count = rows};
    if (experts == 0) return ST_OK;
    if (fp8_operand_of(c, operand) != 1) return expert_rows_of(c, at / experts, *expert, out);
    *out = (expert_rows){.begin = rows / experts * at, .count = rows / experts};
    return ST_OK;
}

static inline fp8_format fp8_operand_format(const kern_call *c, int operand)
{
    return c->attrs.fp8 == FP8_TENSOR ? fp8_format_of(fp8_operand_of(c, operand)) : FP8_E4M3;
}

// Returns the exponent of the factor that a history has for an operand of an expert, or of all.
static inline int fp8_operand_exponent(const kern_call *c, int operand, int64_t expert)
{
    const kern_tensor *t = fp8_history_of(c);
    const int row = fp8_operand_of(c, operand);
    ASSERT(t->type == DTYPE_F32);
    return fp8_history_exponent((const float *)t->data +
                                    (FP8_OPERANDS * expert + row) * t->strides[0],
                                row, c->attrs.fp8_margin);
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
