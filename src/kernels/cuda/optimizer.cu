// AdamW and Lion, element by element, in fp32. The gradient is a raw accumulator that the step
// block's factor scales; a skipped step and a halted run write nothing.
#include "kernels/cuda/update.h"

// The numbers that all elements share; one thread of a block computes them.
typedef struct update_shared {
    float factor, lr, keep, correction1, correction2;
} update_shared;

DEV_INLINE void update_prepare(const cuda_update_args *a, update_shared *s)
{
    if (dev_thread() == 0) {
        const double lr = a->step->host.lr * a->lr_scale, t = (double)a->step->device.applied;
        s->factor = (float)a->step->device.grad_factor;
        s->lr = (float)lr;
        s->keep = (float)(1.0 - lr * a->decay);
        s->correction1 = (float)(1.0 - pow(a->beta1, t));
        s->correction2 = (float)(1.0 - pow(a->beta2, t));
    }
    dev_barrier();
}

// Source: Loshchilov & Hutter 2019, arXiv:1711.05101.
DEV_KERNEL(cuda_adamw, cuda_update_args, CUDA_THREADS)
{
    update_shared *s = (update_shared *)dev_shared();
    if (update_is_masked(a.step)) return;
    update_prepare(&a, s);
    const float beta1 = (float)a.beta1, beta2 = (float)a.beta2;
    const float rest1 = (float)(1.0 - a.beta1), rest2 = (float)(1.0 - a.beta2);
    for (int64_t row = dev_block(1); row < a.grad.rows; row += dev_blocks(1)) {
        for (int64_t j = dev_column_first(); j < a.grad.columns; j += dev_column_step()) {
            float g[DEV_VECTOR], p[DEV_VECTOR], m[DEV_VECTOR], v[DEV_VECTOR];
            dev_load8(&a.grad, row, j, g);
            dev_load8(&a.master, row, j, p);
            dev_load8(&a.m, row, j, m);
            dev_load8(&a.v, row, j, v);
            DEV_UNROLL
            for (int i = 0; i < DEV_VECTOR; i++) {
                g[i] *= s->factor;
                m[i] = beta1 * m[i] + rest1 * g[i];
                v[i] = beta2 * v[i] + rest2 * g[i] * g[i];
                const float update = m[i] / s->correction1 / (sqrtf(v[i] / s->correction2) + a.eps);
                p[i] = p[i] * s->keep - s->lr * update;
            }
            update_store(&a.rounding, &a.out[0], 0, row, j, p);
            update_store(&a.rounding, &a.out[1], 1, row, j, m);
            update_store(&a.rounding, &a.out[2], 2, row, j, v);
            update_store(&a.rounding, &a.out[3], 3, row, j, p);
        }
    }
}

// Source: Chen et al. 2023, arXiv:2302.06675. The direction takes m as it was before.
DEV_KERNEL(cuda_lion, cuda_update_args, CUDA_THREADS)
{
    update_shared *s = (update_shared *)dev_shared();
    if (update_is_masked(a.step)) return;
    update_prepare(&a, s);
    const float beta1 = (float)a.beta1, beta2 = (float)a.beta2;
    const float rest1 = (float)(1.0 - a.beta1), rest2 = (float)(1.0 - a.beta2);
    for (int64_t row = dev_block(1); row < a.grad.rows; row += dev_blocks(1)) {
        for (int64_t j = dev_column_first(); j < a.grad.columns; j += dev_column_step()) {
            float g[DEV_VECTOR], p[DEV_VECTOR], m[DEV_VECTOR];
            dev_load8(&a.grad, row, j, g);
            dev_load8(&a.master, row, j, p);
            dev_load8(&a.m, row, j, m);
            DEV_UNROLL
            for (int i = 0; i < DEV_VECTOR; i++) {
                g[i] *= s->factor;
                const float d = beta1 * m[i] + rest1 * g[i];
                const float sign = d > 0.0f ? 1.0f : d < 0.0f ? -1.0f : d; // 0 and NaN stay
                p[i] = p[i] * s->keep - s->lr * sign;
                m[i] = beta2 * m[i] + rest2 * g[i];
            }
            update_store(&a.rounding, &a.out[0], 0, row, j, p);
            update_store(&a.rounding, &a.out[1], 1, row, j, m);
            update_store(&a.rounding, &a.out[2], 3, row, j, p);
        }
    }
}
