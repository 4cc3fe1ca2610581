// Latent attention: queries, keys and values of the results of projections, and their gradients
// (op/latent.c). A thread takes eight columns of a head that are copied, or eight pairs that turn.
//
//   q, k   head 0: plain columns, columns that turn | head 1 ...     v   head 0 | head 1 ...
//   kv     head 0: plain columns, values | head 1 ...                r   one head that turns
#include "kernels/cuda/turn.h"

// The work of a thread at a head: vectors of plain columns, then of pairs, then of values.
typedef struct latent_work {
    int64_t plain, pairs, values;
} latent_work;

DEV_INLINE latent_work latent_work_of(const cuda_latent_args *a)
{
    latent_work w;
    w.plain = (a->dim - a->rope + DEV_VECTOR - 1) / DEV_VECTOR;
    w.pairs = (a->rope / 2 + DEV_VECTOR - 1) / DEV_VECTOR;
    w.values = (a->value + DEV_VECTOR - 1) / DEV_VECTOR;
    return w;
}

DEV_INLINE dev_turn latent_turn(const cuda_latent_args *a, int64_t n, int inverse)
{
    dev_turn t;
    t.table = &a->table;
    t.position = dev_index(&a->positions, n);
    t.half = a->rope / 2;
    t.interleaved = a->interleaved;
    t.inverse = inverse;
    dev_index_check("latent attention", n, t.position, a->table.rows);
    return t;
}

// Copies eight of `count` columns from i on.
DEV_INLINE void latent_copy(const cuda_view *x, int64_t x_column, const cuda_view *y,
                            int64_t y_column, int64_t n, int64_t i, int64_t count)
{
    float values[DEV_VECTOR];
    dev_load_some(x, n, x_column + i, count - i, values);
    dev_store_some(y, n, y_column + i, count - i, values);
}

// Vector k of a head: forward from q, kv and r to y, k and v, backward from q, k and v to y and kv.
DEV_INLINE void latent_vector(const cuda_latent_args *a, const latent_work *w, int64_t n,
                              int64_t head, int64_t k)
{
    const int64_t plain = a->dim - a->rope, wide = head * a->dim,
                  narrow = head * (plain + a->value);
    if (k < w->plain) {
        const int64_t i = k * DEV_VECTOR;
        latent_copy(&a->q, wide, &a->y, wide, n, i, plain);
        if (a->backward) {
            latent_copy(&a->k, wide, &a->kv, narrow, n, i, plain);
        } else {
            latent_copy(&a->kv, narrow, &a->k, wide, n, i, plain);
        }
    } else if (k < w->plain + w->pairs) {
        const dev_turn t = latent_turn(a, n, a->backward);
        const int64_t i = (k - w->plain) * DEV_VECTOR;
        turn_copy(&t, &a->q, wide + plain, &a->y, wide + plain, n, i);
        if (!a->backward) turn_copy(&t, &a->r, 0, &a->k, wide + plain, n, i);
    } else {
        const int64_t i = (k - w->plain - w->pairs) * DEV_VECTOR;
        if (a->backward) {
            latent_copy(&a->v, head * a->value, &a->kv, narrow + plain, n, i, a->value);
        } else {
            latent_copy(&a->kv, narrow + plain, &a->v, head * a->value, n, i, a->value);
        }
    }
}

DEV_KERNEL(cuda_latent, cuda_latent_args, CUDA_THREADS)
{
    const latent_work w = latent_work_of(&a);
    const int64_t per_head = w.plain + w.pairs + w.values;
    for (int64_t n = dev_block(1); n < a.q.rows; n += dev_blocks(1)) {
        for (int64_t k = dev_block(0) * dev_threads() + dev_thread(); k < a.heads * per_head;
             k += dev_blocks(0) * dev_threads()) {
            latent_vector(&a, &w, n, k / per_head, k % per_head);
        }
    }
}

// The gradient of r: the gradients of the heads in order, rotated back. A thread has eight pairs.
DEV_KERNEL(cuda_latent_dr, cuda_latent_args, CUDA_THREADS)
{
    const latent_work w = latent_work_of(&a);
    const int64_t at = dev_block(0) * dev_threads() + dev_thread();
    const int64_t n = at / w.pairs, i = at % w.pairs * DEV_VECTOR;
    if (n >= a.k.rows) return;
    const dev_turn t = latent_turn(&a, n, 1);
    float first[DEV_VECTOR], second[DEV_VECTOR];
    DEV_UNROLL
    for (int j = 0; j < DEV_VECTOR; j++) first[j] = second[j] = 0.0f;
    for (int64_t head = 0; head < a.heads; head++) {
        float x[DEV_VECTOR], y[DEV_VECTOR];
        turn_load(&t, &a.k, n, head * a.dim + a.dim - a.rope, i, x, y);
        DEV_UNROLL
        for (int j = 0; j < DEV_VECTOR; j++) {
            first[j] += x[j];
            second[j] += y[j];
        }
    }
    turn_pairs(&t, i, first, second);
    turn_store(&t, &a.r, n, 0, i, first, second);
}
