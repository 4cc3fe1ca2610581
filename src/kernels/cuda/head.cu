// The loss of rows of logits and its gradient: a block per row.
//
// Where tensor parallelism cuts the vocabulary, cuda_head_stats computes three numbers of each of
// its shards, and the losses follow from those of all shards.
#include "kernels/cuda/view.h"

enum { HEAD_WARPS = CUDA_THREADS / DEV_WARP, HEAD_MAX_SHARDS = 64 };

// The highest logit so far and the sum of exp(logit - highest).
typedef struct head_state {
    float highest, sum;
} head_state;

DEV_INLINE head_state head_merge(head_state a, head_state b)
{
    head_state out;
    out.highest = fmaxf(a.highest, b.highest);
    out.sum = 0.0f;
    if (a.sum != 0.0f) out.sum += a.sum * expf(a.highest - out.highest);
    if (b.sum != 0.0f) out.sum += b.sum * expf(b.highest - out.highest);
    return out;
}

// Statistics may be fp64.
DEV_INLINE float head_stat(const cuda_view *t, int64_t row, int64_t column)
{
    if (t->type != DTYPE_F64) return dev_load(t, row, column);
    return (float)((const double *)t->data)[row * t->stride + column];
}

DEV_INLINE void head_stat_put(const cuda_view *t, int64_t row, int64_t column, float value)
{
    if (t->type == DTYPE_F64) {
        ((double *)t->data)[row * t->stride + column] = (double)value;
    } else {
        dev_store(t, row, column, value);
    }
}

// Reads eight logits, capped.
DEV_INLINE void head_load(const cuda_head_args *a, int64_t row, int64_t j, int64_t left,
                          float x[DEV_VECTOR])
{
    dev_load_some(&a->logits, row, j, left, x);
    if (!(a->cap > 0.0f)) return;
    DEV_UNROLL
    for (int i = 0; i < DEV_VECTOR; i++) x[i] = dev_capped(a->cap, x[i]);
}

// Adds eight logits to a state; those past the last column are left out.
DEV_INLINE void head_vector(head_state *state, const float x[DEV_VECTOR], int64_t left)
{
    float highest = x[0];
    DEV_UNROLL
    for (int i = 1; i < DEV_VECTOR; i++) highest = i < left ? fmaxf(highest, x[i]) : highest;
    if (highest > state->highest) {
        state->sum *= expf(state->highest - highest);
        state->highest = highest;
    }
    DEV_UNROLL
    for (int i = 0; i < DEV_VECTOR; i++) {
        if (i < left) state->sum += expf(x[i] - state->highest);
    }
}

// The state of this thread's part of columns begin to end - 1.
DEV_INLINE head_state head_columns(const cuda_head_args *a, int64_t row, int64_t begin, int64_t end)
{
    head_state state = {-INFINITY, 0.0f};
    for (int64_t j = begin + dev_thread() * DEV_VECTOR; j < end; j += CUDA_THREADS * DEV_VECTOR) {
        float x[DEV_VECTOR];
        head_load(a, row, j, end - j, x);
        head_vector(&state, x, end - j);
    }
    return state;
}

// Merges the states of all threads, in a fixed order. Every thread gets the result.
DEV_INLINE head_state head_reduce(head_state state, head_state *shared)
{
    for (int mask = DEV_WARP / 2; mask > 0; mask /= 2) {
        head_state other;
        other.highest = dev_shuffle_xor(state.highest, mask);
        other.sum = dev_shuffle_xor(state.sum, mask);
        // The lower lane's state comes first in both lanes.
        state = (dev_thread() & mask) == 0 ? head_merge(state, other) : head_merge(other, state);
    }
    if (dev_thread() % DEV_WARP == 0) shared[dev_thread() / DEV_WARP] = state;
    dev_barrier();
    state = shared[0];
    for (int i = 1; i < HEAD_WARPS; i++) state = head_merge(state, shared[i]);
    return state;
}

// The label's logit, 0 where it is not here.
DEV_INLINE float head_label(const cuda_head_args *a, int64_t row, int64_t label)
{
    const int64_t at = label - a->first_column;
    if (label < 0 || at < 0 || at >= a->logits.columns) return 0.0f;
    const float x = dev_load(&a->logits, row, at);
    return a->cap > 0.0f ? dev_capped(a->cap, x) : x;
}

// The state of a row of the whole vocabulary from the numbers of its shards, and the label's logit:
// sums are added by the tree, neighbours first.
DEV_INLINE head_state head_whole(const cuda_head_args *a, int64_t row, float *label)
{
    head_state out = {-INFINITY, 0.0f};
    float sums[HEAD_MAX_SHARDS];
    *label = 0.0f;
    for (int64_t s = 0; s < a->shards; s++) {
        const int64_t tile = s / a->per_tile * a->tile_rows + a->first_row + row;
        out.highest = fmaxf(out.highest, head_stat(&a->stats, tile, s % a->per_tile * 3));
    }
    for (int64_t s = 0; s < a->shards; s++) {
        const int64_t tile = s / a->per_tile * a->tile_rows + a->first_row + row;
        const int64_t at = s % a->per_tile * 3;
        sums[s] =
            head_stat(&a->stats, tile, at + 1) * expf(head_stat(&a->stats, tile, at) - out.highest);
        *label += head_stat(&a->stats, tile, at + 2);
    }
    for (int64_t width = 1; width < a->shards; width *= 2) {
        for (int64_t s = 0; s + width < a->shards; s += 2 * width) sums[s] += sums[s + width];
    }
    out.sum = sums[0];
    return out;
}

DEV_INLINE void head_gradient(const cuda_head_args *a, int64_t row, int64_t label, head_state s)
{
    const float lse = s.highest + logf(s.sum), pull = 1.0f + 2.0f * a->z_loss * lse;
    float unit = (float)(a->step->device.loss_scale / a->loss_divisor);
    if (a->slopes.data != NULL) unit *= dev_load(&a->slopes, 0, row);
    for (int64_t j = dev_thread() * DEV_VECTOR; j < a->logits.columns;
         j += CUDA_THREADS * DEV_VECTOR) {
        const int64_t left = a->logits.columns - j;
        float x[DEV_VECTOR];
        head_load(a, row, j, left, x);
        DEV_UNROLL
        for (int i = 0; i < DEV_VECTOR; i++) {
            const float part = a->cap > 0.0f ? x[i] / a->cap : 0.0f;
            x[i] = expf(x[i] - s.highest) / s.sum * pull;
            if (a->first_column + j + i == label) x[i] -= 1.0f;
            x[i] = label < 0 ? 0.0f : x[i] * unit * (1.0f - part * part);
        }
        dev_store_some(&a->gradient, row, j, left, x);
    }
}

// loss = lse - logit[label] + z lse^2; its gradient is p (1 + 2 z lse) - [v = label]. A label below
// 0 is ignored: its loss and gradient are 0.
DEV_KERNEL(cuda_head_rows, cuda_head_args, CUDA_THREADS)
{
    head_state *shared = (head_state *)dev_shared(), state;
    const int64_t row = dev_block(0), label = dev_index(&a.labels, row);
    float logit = 0.0f;
    if (label >= 0) dev_index_check("head", row, label, a.vocabulary);
    if (a.stats.data == NULL) {
        // The gradient may lie on the logits: this one is read before other threads write theirs.
        if (dev_thread() == 0) logit = head_label(&a, row, label);
        state = head_reduce(head_columns(&a, row, 0, a.logits.columns), shared);
    } else {
        if (dev_thread() == 0) shared[0] = head_whole(&a, row, &logit);
        dev_barrier();
        state = shared[0];
    }
    if (dev_thread() == 0) {
        const float lse = state.highest + logf(state.sum);
        // The two differences are taken first, so that a loss near 0 keeps its bits.
        const float loss = (state.highest - logit) + logf(state.sum) + a.z_loss * lse * lse;
        dev_store(&a.loss, 0, row, label >= 0 ? loss : 0.0f);
    }
    if (a.gradient.data != NULL) head_gradient(&a, row, label, state);
}

// Three numbers of a shard: the highest logit, the sum of exp(logit - highest), and the label's
// logit. Grid: rows, shards.
DEV_KERNEL(cuda_head_stats, cuda_head_args, CUDA_THREADS)
{
    head_state *shared = (head_state *)dev_shared();
    const int64_t row = dev_block(0), i = dev_block(1), label = dev_index(&a.labels, row);
    const int64_t begin = a.vocabulary * (a.shard + i) / a.shards - a.first_column;
    const int64_t end = a.vocabulary * (a.shard + i + 1) / a.shards - a.first_column;
    if (label >= 0) dev_index_check("head", row, label, a.vocabulary);
    const head_state state = head_reduce(head_columns(&a, row, begin, end), shared);
    if (dev_thread() != 0) return;
    const int64_t at = label - a.first_column;
    const bool is_here = at >= begin && at < end;
    head_stat_put(&a.stats, row, 3 * i, label < 0 ? 0.0f : state.highest);
    head_stat_put(&a.stats, row, 3 * i + 1, label < 0 ? 0.0f : state.sum);
    head_stat_put(&a.stats, row, 3 * i + 2, is_here ? head_label(&a, row, label) : 0.0f);
}
