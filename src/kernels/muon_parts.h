// The matrices that one call of MUON_UPDATE steps: experts, parts of a weight, or the weight whole.
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

// The working space of a part: two matrices of its size, and three of its smaller side squared.
static inline int64_t muon_part_floats(int64_t rows, int64_t columns)
{
    const int64_t low = min_i64(rows, columns);
    return 2 * align_up(rows * columns, 16) + 3 * align_up(low * low, 16);
}

#ifdef __cplusplus
}
#endif
#endif
