// Stores of the kernels of the optimizers, with stochastic rounding.
#ifndef KERNELS_CUDA_UPDATE_H
#define KERNELS_CUDA_UPDATE_H

#include "kernels/cuda/view.h"
#include "op/optimizer.h"

// Rounds up with a probability that is the part cut off: adds 16 random bits, then cuts.
DEV_INLINE uint32_t update_bf16(float x, uint32_t random)
{
    const uint32_t bits = dev_bits_of(x), magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return bits >> 16 | 0x40u;
    if (magnitude == 0x7f800000u) return bits >> 16;
    return (bits + (random & 0xffffu)) >> 16;
}

// Returns whether the step writes neither weights nor state: it is skipped, or the run is halted.
DEV_INLINE bool update_is_masked(const step_block *step)
{
    return step->device.skip != 0 || step->device.halt != 0;
}

// Stores elements j to j + 7 of a row of t, which may be missing. word: the random one
// (op/optimizer.h).
DEV_INLINE void update_store(const cuda_rounding *r, const cuda_view *t, int word, int64_t row,
                             int64_t j, const float x[DEV_VECTOR])
{
    if (t->data == NULL) return;
    if (!r->stochastic || t->type == DTYPE_F32) {
        dev_store8(t, row, j, x);
        return;
    }
    const int64_t columns = r->is_matrix ? t->columns : 1; // a vector is one row of the view
    const int64_t at = (r->first_row + row) * columns + j;
    for (int i = 0; i < DEV_VECTOR && j + i < t->columns; i++) {
        const int64_t element = optimizer_run_of(&r->piece, at + i, columns).element;
        const philox_words random = optimizer_random(r->step, r->tensor_index, element);
        ((uint16_t *)t->data)[row * t->stride + j + i] =
            (uint16_t)update_bf16(x[i], random.w[word]);
    }
}

#endif
