// Operations on the step block: exact sums over tokens and over parameters, and the decision.
//
// The terms are those that op/block_sum.h fixes, and they are added as integers, so neither the
// order of blocks nor that of atomics can change a bit. A block adds up in shared memory first.
#include "kernels/cuda/view.h"
#include "op/block_sum.h"
#include "op/step_rules.h"

// Adds a finite double to digits in shared or global memory; see exact_add (op/step.c).
DEV_INLINE void step_digits_add(int64_t *digit, double value)
{
    const exact_pieces p = exact_pieces_of((uint64_t)dev_bits_of_wide(value));
    for (int k = 0; k < 3; k++) {
        if (p.piece[k] != 0) dev_atomic_add(&digit[p.digit + k], p.piece[k]);
    }
}

DEV_INLINE bool step_is_finite(double x)
{
    return x - x == 0.0;
}

enum { STEP_SHARED = EXACT_DIGITS + 2 }; // digits, numbers that are not finite, tokens

DEV_INLINE void step_shared_begin(int64_t *shared)
{
    for (int i = dev_thread(); i < STEP_SHARED; i += dev_threads()) shared[i] = 0;
    dev_barrier();
}

DEV_INLINE void step_shared_end(const int64_t *shared, exact_sum *sum)
{
    dev_barrier();
    for (int i = dev_thread(); i < EXACT_DIGITS; i += dev_threads()) {
        if (shared[i] != 0) dev_atomic_add(&sum->digit[i], shared[i]);
    }
    if (dev_thread() == 0 && shared[EXACT_DIGITS] != 0) {
        dev_atomic_add(&sum->not_finite, shared[EXACT_DIGITS]);
    }
}

DEV_KERNEL(cuda_step_begin, cuda_step_args, CUDA_THREADS)
{
    step_device *d = &a.step->device;
    for (int i = dev_thread(); i < EXACT_DIGITS; i += dev_threads()) {
        d->loss_sum.digit[i] = 0;
        d->norm_sum.digit[i] = 0;
    }
    // The loads of experts of this step become those of the step before (step_loads_turn).
    int64_t *loads = (int64_t *)(void *)(a.step + 1);
    for (int64_t i = dev_thread(); i < a.load_words; i += dev_threads()) {
        loads[a.load_words + i] = loads[i];
        loads[i] = 0;
    }
    if (dev_thread() != 0) return;
    d->loss_sum.not_finite = 0;
    d->norm_sum.not_finite = 0;
    d->tokens = 0;
    d->skip = 0;
    d->bad_tensor = -1;
}

DEV_KERNEL(cuda_step_loss, cuda_step_args, CUDA_THREADS)
{
    int64_t *shared = (int64_t *)dev_shared();
    step_device *d = &a.step->device;
    step_shared_begin(shared);
    for (int64_t n = dev_block(0) * dev_threads() + dev_thread(); n < a.terms.columns;
         n += dev_blocks(0) * dev_threads()) {
        if (dev_index(&a.labels, n) < 0) continue;
        const double loss = (double)dev_load(&a.terms, 0, n);
        dev_atomic_add(&shared[EXACT_DIGITS + 1], 1);
        if (step_is_finite(loss)) {
            step_digits_add(shared, loss);
        } else {
            dev_atomic_add(&shared[EXACT_DIGITS], 1);
        }
    }
    step_shared_end(shared, &d->loss_sum);
    if (dev_thread() == 0 && shared[EXACT_DIGITS + 1] != 0) {
        dev_atomic_add(&d->tokens, shared[EXACT_DIGITS + 1]);
    }
}

enum { STEP_LOADS = 16 }; // on their way at once

// Returns the sum of squares of a block of a row, the same in all 16 lanes of a half warp. A lane
// adds its elements in order, but reads many before it adds them: most gradients have fewer blocks
// than a GPU has lanes, so the time is that of a lane's loads, one behind the other. Elements past
// the end are 0, which changes no bit of the sum.
DEV_INLINE double step_block_squares(const cuda_view *grad, int64_t row, int64_t begin)
{
    const int64_t end = dev_min(begin + BLOCK_SUM_ELEMENTS, grad->columns);
    double sum = 0.0;
    for (int64_t first = begin + dev_thread() % BLOCK_SUM_LANES; first < end;
         first += STEP_LOADS * BLOCK_SUM_LANES) {
        float x[STEP_LOADS];
        DEV_UNROLL
        for (int i = 0; i < STEP_LOADS; i++) {
            const int64_t j = first + i * BLOCK_SUM_LANES;
            x[i] = j < end ? dev_load(grad, row, j) : 0.0f;
        }
        DEV_UNROLL
        for (int i = 0; i < STEP_LOADS; i++) sum += (double)x[i] * (double)x[i];
    }
    for (int width = BLOCK_SUM_LANES / 2; width >= 1; width /= 2) {
        sum += dev_shuffle_xor_wide(sum, width);
    }
    return sum;
}

// A half warp takes a block of 1,024 elements at a time.
DEV_KERNEL(cuda_grad_norm, cuda_step_args, CUDA_THREADS)
{
    int64_t *shared = (int64_t *)dev_shared();
    step_device *d = &a.step->device;
    const int64_t blocks = (a.terms.columns + BLOCK_SUM_ELEMENTS - 1) / BLOCK_SUM_ELEMENTS;
    const int64_t work = a.terms.rows * blocks, halves = dev_threads() / BLOCK_SUM_LANES;
    step_shared_begin(shared);
    // Both halves of a warp go round equally often.
    for (int64_t first = dev_block(0) * halves; first < work; first += dev_blocks(0) * halves) {
        const int64_t k = first + dev_thread() / BLOCK_SUM_LANES;
        const int64_t row = k < work ? k / blocks : 0;
        const int64_t begin = k < work ? k % blocks * BLOCK_SUM_ELEMENTS : a.terms.columns;
        const double sum = step_block_squares(&a.terms, row, begin);
        if (dev_thread() % BLOCK_SUM_LANES != 0 || k >= work) continue;
        if (step_is_finite(sum)) {
            step_digits_add(shared, sum);
        } else {
            dev_atomic_add(&shared[EXACT_DIGITS], 1);
        }
    }
    step_shared_end(shared, &d->norm_sum);
    if (dev_thread() == 0 && shared[EXACT_DIGITS] != 0) {
        dev_atomic_min(&d->bad_tensor, a.tensor_index); // -1, none, counts as the highest
    }
}

DEV_KERNEL(cuda_step_decide, cuda_step_args, DEV_WARP)
{
    if (dev_thread() == 0) step_decide_now(a.step);
}
