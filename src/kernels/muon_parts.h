// The matrices that one call of MUON or MUON_UPDATE steps: experts, parts of a weight, or the whole
// weight; and the Newton-Schulz steps of one of them, in fp32:
//
//   x <- a x + (b s + c s s) x, s = x x^T      workspace   | x | next x | s | c s | b s + c s s |
#ifndef KERNELS_MUON_PARTS_H
#define KERNELS_MUON_PARTS_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

static inline int32_t muon_part_count(const kern_call *call)
{
    if (call->attrs.experts > 0) return call->attrs.experts;
    return call->piece.part_count > 1 ? call->piece.part_count : 1;
}

static inline int64_t muon_part_rows(const kern_call *call, int32_t part)
{
    if (call->attrs.experts > 0) return call->in[0].dims[0] / call->attrs.experts;
    return call->piece.part_count > 1 ? call->piece.part_rows[part] : call->in[0].dims[0];
}

static const double muon_a = 3.4445, muon_b = -4.775, muon_c = 2.0315;

typedef struct muon_buffers {
    float *x, *next;                     // (rows, columns)
    float *square, *scaled, *polynomial; // (low, low), low = min(rows, columns)
} muon_buffers;

static inline muon_buffers muon_buffers_of(void *workspace, int64_t rows, int64_t columns)
{
    const int64_t low = min_i64(rows, columns);
    const int64_t whole = align_up(rows * columns, 16), small = align_up(low * low, 16);
    muon_buffers b;
    b.x = (float *)workspace;
    b.next = b.x + whole;
    b.square = b.next + whole;
    b.scaled = b.square + small;
    b.polynomial = b.scaled + small;
    return b;
}

static inline int64_t muon_buffer_floats(int64_t rows, int64_t columns)
{
    const int64_t low = min_i64(rows, columns);
    return 2 * align_up(rows * columns, 16) + 3 * align_up(low * low, 16);
}

// Floats that the largest matrix of a call of MUON needs, and of MUON_UPDATE.
static inline int64_t muon_floats(const kern_call *call)
{
    int64_t most = 0;
    for (int32_t part = 0; part < muon_part_count(call); part++) {
        const int64_t rows = muon_part_rows(call, part);
        most = max_i64(most, muon_buffer_floats(rows, call->in[0].dims[1]));
    }
    return most;
}

static inline int64_t muon_update_floats(const kern_call *call)
{
    int64_t most = 0;
    for (int32_t part = 0; part < call->piece.part_count; part++) {
        const int64_t rows = call->piece.part_whole[part];
        most = max_i64(most, muon_buffer_floats(rows, call->in[0].dims[1]));
    }
    return most;
}

#ifdef __cplusplus
}
#endif
#endif
