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

// Finds the rows of expert e that have come from a rank.
static inline status expert_rows_of(const kern_call *c, int64_t rank, int64_t e, expert_rows *out)
{
    const kern_tensor *offsets = &c->in[2];
    const int64_t rows = c->in[0].dims[0], experts = c->attrs.experts;
    int64_t begin = rows * e / experts, end = rows * (e + 1) / experts;
    if (offsets->data != NULL) {
        begin = expert_number(offsets, rank * experts + e);
        end = expert_number(offsets, rank * experts + e + 1);
    }
    out->begin = begin;
    out->count = end - begin;
    if (begin >= 0 && begin <= end && end <= rows) return ST_OK;
    return fail(ST_DATA, "%s: expert %lld has rows %lld to %lld of %lld", op_kind_of(c->code)->name,
                (long long)e, (long long)begin, (long long)end, (long long)rows);
}

// The rows that a GROUPED_MATMUL_DW adds up for an expert, in their order: rank by rank, or, where
// in[3] counts the rows of each sequence and ranks have pieces of sequences, sequence by sequence.
typedef struct expert_walk {
    int64_t source, source_end; // groups of `pieces` ranks
    int64_t sequence, sequence_begin, sequence_end, sequences;
    int64_t piece, pieces;
    bool by_sequence;
} expert_walk;

static inline expert_walk expert_walk_begin(const kern_call *c)
{
    const kern_tensor *counts = &c->in[3];
    const bool is_some = c->sequence_count > 0;
    expert_walk w;
    w.pieces = max_i64(c->attrs.pieces, 1);
    w.source = c->rows_of > 0 ? c->rows_of - 1 : 0;
    w.source_end = c->rows_of > 0 ? c->rows_of : expert_ranks(c) / w.pieces;
    w.by_sequence = counts->data != NULL && (is_some || w.pieces > 1);
    w.sequences = w.by_sequence ? counts->dims[0] / expert_ranks(c) : 1;
    w.sequence_begin = w.by_sequence && is_some ? c->sequence_begin : 0;
    w.sequence_end = w.by_sequence && is_some ? w.sequence_begin + c->sequence_count : w.sequences;
    w.sequence = w.sequence_begin;
    w.piece = 0;
    return w;
}

static inline bool expert_walk_has(const expert_walk *w)
{
    return w->source < w->source_end && w->sequence < w->sequence_end;
}

// Returns the next rows of expert e.
static inline status expert_walk_next(const kern_call *c, int64_t e, expert_walk *w,
                                      expert_rows *out)
{
    const kern_tensor *counts = &c->in[3];
    const int64_t rank = w->source * w->pieces + w->piece, first = rank * w->sequences;
    if (rank >= expert_ranks(c) || w->sequence_end > w->sequences) {
        return fail(ST_INTERNAL, "%s: rank %lld of %lld", op_kind_of(c->code)->name,
                    (long long)rank, (long long)expert_ranks(c));
    }
    TRY(expert_rows_of(c, rank, e, out));
    if (w->by_sequence) {
        int64_t begin = out->begin;
        for (int64_t q = 0; q < w->sequence; q++) {
            begin += expert_number(counts, (first + q) * counts->strides[0] + e);
        }
        const int64_t end = out->begin + out->count;
        out->begin = begin;
        out->count = expert_number(counts, (first + w->sequence) * counts->strides[0] + e);
        if (out->count < 0 || begin + out->count > end) {
            return fail(ST_DATA, "%s: sequence %lld has %lld rows of expert %lld",
                        op_kind_of(c->code)->name, (long long)w->sequence, (long long)out->count,
                        (long long)e);
        }
    }
    if (++w->piece < w->pieces) return ST_OK;
    w->piece = 0;
    if (++w->sequence < w->sequence_end) return ST_OK;
    w->sequence = w->sequence_begin;
    w->source++;
    return ST_OK;
}

#ifdef __cplusplus
}
#endif
#endif
