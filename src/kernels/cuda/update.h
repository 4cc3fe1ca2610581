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

// Stores eight elements from element (row, j) of t on, whose first element is number `at` of this
// rank's tensor of `columns` columns; `which`: the random word (op/optimizer.h).
typedef struct update_place {
    const cuda_view *t;
    const step_host *step;
    const op_piece *piece;
    int64_t row, j, at, columns;
    int32_t tensor_index, which;
} update_place;

DEV_INLINE void update_random_store(const update_place *p, const float x[DEV_VECTOR])
{
    for (int i = 0; i < DEV_VECTOR && p->j + i < p->t->columns; i++) {
        const int64_t element = optimizer_run_of(p->piece, p->at + i, p->columns).element;
        const philox_words random = optimizer_random(p->step, p->tensor_index, element);
        ((uint16_t *)p->t->data)[p->row * p->t->stride + p->j + i] =
            (uint16_t)update_bf16(x[i], random.w[p->which]);
    }
}

#endif
