// Constants and random bits on which the optimizer kernels of all backends agree to the bit.
#ifndef OP_OPTIMIZER_H
#define OP_OPTIMIZER_H

#include "base/rng.h"
#include "op/op.h"
#include "op/step.h"

#include <math.h>

#ifdef __cplusplus
extern "C" {
#endif

// Attributes are floats, and 1 - 0.999f is off by 1e-5, so a beta is read as the decimal of at most
// seven places that the user wrote.
static inline double optimizer_beta(float beta)
{
    return nearbyint((double)beta * 1e7) / 1e7;
}

// Stochastic rounding: 32 random bits for each of the four tensors that an update may write, in the
// order master, first moment, second moment, working weight. `element` counts row-major in the
// whole tensor, `tensor_index` is its row in the model's weight table.
static inline DEVICE_CODE philox_words optimizer_random(const step_host *h, int32_t tensor_index,
                                                        int64_t element)
{
    uint32_t key[2], counter[4];
    key[0] = (uint32_t)h->seed;
    key[1] = (uint32_t)(h->seed >> 32);
    counter[0] = (uint32_t)element;
    counter[1] = (uint32_t)((uint64_t)element >> 32);
    counter[2] = (uint32_t)tensor_index;
    // The top bit separates these words from those of initial values, which have a hash of the name
    // there.
    counter[3] = (uint32_t)h->step | 0x80000000u;
    return philox4x32_10(counter, key);
}

// Elements that are contiguous in the whole tensor too, from element `at` of this rank's tensor on,
// which has `columns` columns (a vector: 1).
typedef struct optimizer_run {
    int64_t element, count;
} optimizer_run;
static inline DEVICE_CODE optimizer_run optimizer_run_of(const op_piece *piece, int64_t at,
                                                         int64_t columns)
{
    optimizer_run run = {at, INT64_MAX};
    if (piece->whole_columns == 0) return run;
    int64_t row = at / columns;
    const int64_t column = at % columns;
    int k = 0;
    for (; k + 1 < piece->part_count && row >= piece->part_rows[k]; k++) row -= piece->part_rows[k];
    int64_t rows = piece->part_rows[k] - row, to = row;
    if (piece->stripe > 0) {
        const int64_t inside = row % piece->stripe_own;
        to = row / piece->stripe_own * piece->stripe + piece->stripe_first + inside;
        rows = piece->stripe_own - inside;
    }
    run.element = (piece->part_first[k] + to) * piece->whole_columns + piece->first_column + column;
    run.count = (piece->whole_columns == columns ? rows * columns : columns) - column;
    return run;
}

// As optimizer_run_of, for a weight whose experts may be in other slots than their own: element and
// count are those of the expert, so that its random bits do not depend on its slot. slots: (layers,
// attrs->experts), the slot of each expert; NULL: each is in its own.
static inline optimizer_run optimizer_run_placed(const op_piece *piece, const op_attrs *attrs,
                                                 const float *slots, int64_t at, int64_t columns)
{
    optimizer_run run = optimizer_run_of(piece, at, columns);
    int64_t part = 0, expert = 0; // elements of the whole weight before the part
    int k = 0;
    if (slots == NULL) return run;
    for (; k + 1 < piece->part_count; k++) {
        const int64_t next = part + piece->part_whole[k] * piece->whole_columns;
        if (run.element < next) break;
        part = next;
    }
    const int64_t each = piece->part_whole[k] / attrs->experts * piece->whole_columns;
    const int64_t slot = (run.element - part) / each, left = (slot + 1) * each + part - run.element;
    const float *row = slots + (int64_t)attrs->load_row * attrs->experts;
    while (expert + 1 < attrs->experts && row[expert] != (float)slot) expert++;
    run.element += (expert - slot) * each;
    run.count = run.count < left ? run.count : left;
    return run;
}

#ifdef __cplusplus
}
#endif
#endif
