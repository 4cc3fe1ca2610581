// Rotary positions: pairs of columns of a head that turn by the angles of their row's position.
//
//   a row of the table   cosines (half) | sines (half)
//   a head               first numbers of the pairs | second ones; interleaved: pair after pair
#ifndef KERNELS_CUDA_TURN_H
#define KERNELS_CUDA_TURN_H

#include "kernels/cuda/view.h"

typedef struct dev_turn {
    const cuda_view *table;
    int64_t position, half; // half: pairs of a head
    int32_t interleaved, inverse;
} dev_turn;

// Reads the pairs i to i + 7 of a head that begins at `column`; pairs that are not there are 0.
DEV_INLINE void turn_load(const dev_turn *t, const cuda_view *x, int64_t n, int64_t column,
                          int64_t i, float first[DEV_VECTOR], float second[DEV_VECTOR])
{
    const int64_t left = t->half - i;
    if (!t->interleaved) {
        dev_load_some(x, n, column + i, left, first);
        dev_load_some(x, n, column + t->half + i, left, second);
        return;
    }
    DEV_UNROLL
    for (int k = 0; k < DEV_VECTOR; k++) {
        first[k] = k < left ? dev_load(x, n, column + 2 * (i + k)) : 0.0f;
        second[k] = k < left ? dev_load(x, n, column + 2 * (i + k) + 1) : 0.0f;
    }
}

DEV_INLINE void turn_store(const dev_turn *t, const cuda_view *y, int64_t n, int64_t column,
                           int64_t i, const float first[DEV_VECTOR], const float second[DEV_VECTOR])
{
    const int64_t left = t->half - i;
    if (!t->interleaved) {
        dev_store_some(y, n, column + i, left, first);
        dev_store_some(y, n, column + t->half + i, left, second);
        return;
    }
    DEV_UNROLL
    for (int k = 0; k < DEV_VECTOR; k++) {
        if (k >= left) continue;
        dev_store(y, n, column + 2 * (i + k), first[k]);
        dev_store(y, n, column + 2 * (i + k) + 1, second[k]);
    }
}

// Turns the pairs i to i + 7.
DEV_INLINE void turn_pairs(const dev_turn *t, int64_t i, float first[DEV_VECTOR],
                           float second[DEV_VECTOR])
{
    float cosine[DEV_VECTOR], sine[DEV_VECTOR];
    dev_load_some(t->table, t->position, i, t->half - i, cosine);
    dev_load_some(t->table, t->position, t->half + i, t->half - i, sine);
    DEV_UNROLL
    for (int k = 0; k < DEV_VECTOR; k++) {
        const float turn = t->inverse ? -sine[k] : sine[k], x = first[k], y = second[k];
        first[k] = x * cosine[k] - y * turn;
        second[k] = y * cosine[k] + x * turn;
    }
}

// Turns them on the way from a head of x to one of y.
DEV_INLINE void turn_copy(const dev_turn *t, const cuda_view *x, int64_t x_column,
                          const cuda_view *y, int64_t y_column, int64_t n, int64_t i)
{
    float first[DEV_VECTOR], second[DEV_VECTOR];
    turn_load(t, x, n, x_column, i, first, second);
    turn_pairs(t, i, first, second);
    turn_store(t, y, n, y_column, i, first, second);
}

#endif
