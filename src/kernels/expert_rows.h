// The rows of each expert in grouped GEMMs, as the offsets and the counts in device memory say.
#ifndef KERNELS_EXPERT_ROWS_H
#define KERNELS_EXPERT_ROWS_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct expert_rows {
    int64_t begin, count;
} expert_rows;

static inline int64_t expert_number(const kern_tensor *t, int64_t at)
{
    if (t->type == DTYPE_I32) return ((const int32_t *)t->data)[at];
    return ((const int64_t *)t->data)[at];
}

// Returns the number of ranks whose rows have come, each ordered by expert.
static inline int64_t expert_ranks(const kern_call *c)
{
    const kern_tensor *offsets = &c->in[2];
    return offsets->data != NULL ? (offsets->dims[0] - 1) / c->attrs.experts : 1;
}

// Finds the rows of expert e that have come from a rank. If the call is on some sequences only
// (kern_call.sequence_count), in[3] has the counts of each.
static inline status expert_rows_of(const kern_call *c, int64_t rank, int64_t e, expert_rows *out)
{
    const kern_tensor *offsets = &c->in[2], *counts = &c->in[3];
    const int64_t rows = c->in[0].dims[0], experts = c->attrs.experts;
    int64_t begin = rows * e / experts, end = rows * (e + 1) / experts;
    if (offsets->data != NULL) {
        begin = expert_number(offsets, rank * experts + e);
        end = expert_number(offsets, rank * experts + e + 1);
    }
    if (c->code == OP_GROUPED_MATMUL_DW && counts->data != NULL && c->sequence_count > 0) {
        const int64_t first = rank * (counts->dims[0] / expert_ranks(c));
        for (int64_t q = 0; q < c->sequence_begin; q++) {
            begin += expert_number(counts, (first + q) * counts->strides[0] + e);
        }
        end = begin;
        for (int64_t q = c->sequence_begin; q < c->sequence_begin + c->sequence_count; q++) {
            end += expert_number(counts, (first + q) * counts->strides[0] + e);
        }
    }
    out->begin = begin;
    out->count = end - begin;
    if (begin >= 0 && begin <= end && end <= rows) return ST_OK;
    return fail(ST_DATA, "%s: expert %lld has rows %lld to %lld of %lld", op_kind_of(c->code)->name,
                (long long)e, (long long)begin, (long long)end, (long long)rows);
}

#ifdef __cplusplus
}
#endif
#endif
