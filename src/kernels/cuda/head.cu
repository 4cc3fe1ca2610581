// The loss of rows of logits and its gradient, in place: a block per row.
//
// The gradient has the type of the activations. If that is narrower than fp32, it takes the first
// half of the row's bytes: a vector is written when all threads have read theirs, and no later one
// lies below it.
#include "kernels/cuda/view.h"

enum { HEAD_WARPS = CUDA_THREADS / DEV_WARP };

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

// Returns the state of eight logits; those past the last column are left out.
DEV_INLINE head_state head_vector(const float x[DEV_VECTOR], int64_t left)
{
    head_state out = {-INFINITY, 0.0f};
    DEV_UNROLL
    for (int i = 0; i < DEV_VECTOR; i++) {
        if (i < left) out.highest = fmaxf(out.highest, x[i]);
    }
    DEV_UNROLL
    for (int i = 0; i < DEV_VECTOR; i++) {
        if (i < left) out.sum += expf(x[i] - out.highest);
    }
    return out;
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

DEV_INLINE void head_gradient(const cuda_head_args *a, int64_t row, int64_t label, head_state s)
{
    const float lse = s.highest + logf(s.sum), pull = 1.0f + 2.0f * a->z_loss * lse;
    const float unit = (float)(a->step->device.loss_scale / a->loss_divisor);
    for (int64_t first = 0; first < a->logits.columns; first += CUDA_THREADS * DEV_VECTOR) {
        const int64_t j = first + dev_thread() * DEV_VECTOR, left = a->logits.columns - j;
        float x[DEV_VECTOR];
        if (left > 0) dev_load_some(&a->logits, row, j, left, x);
        dev_barrier();
        if (left <= 0) continue;
        DEV_UNROLL
        for (int i = 0; i < DEV_VECTOR; i++) {
            x[i] = expf(x[i] - s.highest) / s.sum * pull;
            if (j + i == label) x[i] -= 1.0f;
            x[i] = label < 0 ? 0.0f : x[i] * unit;
        }
        dev_store_some(&a->gradient, row, j, left, x);
    }
}

// loss = lse - logit[label] + z lse^2; its gradient is p (1 + 2 z lse) - [v = label]. A label below
// 0 is ignored: its loss and gradient are 0.
DEV_KERNEL(cuda_head_rows, cuda_head_args, CUDA_THREADS)
{
    head_state *shared = (head_state *)dev_shared(), state = {-INFINITY, 0.0f};
    const int64_t row = dev_block(0), label = dev_index(&a.labels, row);
    if (label >= 0) dev_index_check("head", row, label, a.logits.columns);
    for (int64_t j = dev_thread() * DEV_VECTOR; j < a.logits.columns;
         j += CUDA_THREADS * DEV_VECTOR) {
        float x[DEV_VECTOR];
        dev_load8(&a.logits, row, j, x);
        state = head_merge(state, head_vector(x, a.logits.columns - j));
    }
    state = head_reduce(state, shared);
    if (dev_thread() == 0) {
        const float lse = state.highest + logf(state.sum);
        // The two differences are taken first, so that a loss near 0 keeps its bits.
        float loss = 0.0f;
        if (label >= 0) {
            loss = (state.highest - dev_load(&a.logits, row, label)) + logf(state.sum) +
                   a.z_loss * lse * lse;
        }
        dev_store(&a.loss, 0, row, loss);
    }
    if (a.gradient.data != NULL) head_gradient(&a, row, label, state);
}
