// The head of a reward model: minus a row times a vector, and the gradients of it. Few rows have a
// label.
#include "kernels/cuda/args_adapters.h"
#include "kernels/cuda/view.h"

DEV_INLINE float score_slope(const cuda_score_args *a, int64_t n)
{
    const double unit = a->step->device.loss_scale / a->loss_divisor;
    return (float)(a->slopes.data != NULL ? unit * (double)dev_load(&a->slopes, 0, n) : unit);
}

// A warp has a row.
DEV_KERNEL(cuda_score, cuda_score_args, CUDA_THREADS)
{
    const int64_t n = dev_block(0) * (CUDA_THREADS / DEV_WARP) + dev_thread() / DEV_WARP;
    const int64_t first = dev_thread() % DEV_WARP * DEV_VECTOR, step = DEV_WARP * DEV_VECTOR;
    if (n >= a.x.rows) return;
    const bool has_label = dev_index(&a.labels, n) >= 0;
    float sum = 0.0f, x[DEV_VECTOR], w[DEV_VECTOR];
    for (int64_t j = first; has_label && j < a.x.columns; j += step) {
        dev_load8(&a.x, n, j, x);
        dev_load8(&a.w, 0, j, w);
        DEV_UNROLL
        for (int k = 0; k < DEV_VECTOR; k++) sum += x[k] * w[k]; // 0 where there is no column
    }
    sum = dev_warp_sum(sum);
    if (first == 0) dev_store(&a.loss, 0, n, sum != 0.0f ? -sum : 0.0f);
    if (a.dx.data == NULL) return;
    const bool has_value = has_label && a.is_here;
    const float slope = has_value ? score_slope(&a, n) : 0.0f, none = a.is_here ? 0.0f : -0.0f;
    for (int64_t j = first; j < a.dx.columns; j += step) {
        if (has_value) dev_load8(&a.w, 0, j, w);
        DEV_UNROLL
        for (int k = 0; k < DEV_VECTOR; k++) w[k] = has_value ? -slope * w[k] : none;
        dev_store8(&a.dx, n, j, w);
    }
}

// A thread has a column of dw, whose sum goes over the rows in order.
DEV_KERNEL(cuda_score_dw, cuda_score_args, CUDA_THREADS)
{
    const int64_t j = dev_block(0) * dev_threads() + dev_thread();
    if (j >= a.x.columns) return;
    float sum = a.accumulate ? dev_load(&a.dw, 0, j) : 0.0f;
    for (int64_t n = 0; n < a.x.rows; n++) {
        if (dev_index(&a.labels, n) < 0) continue;
        sum = dev_fma(-score_slope(&a, n), dev_load(&a.x, n, j), sum);
    }
    dev_store(&a.dw, 0, j, sum);
}
