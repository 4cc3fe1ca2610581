// Muon: momentum and direction, the matrix divided by its norm, and the update. The products
// between them are those of gemm.cu. Source: Jordan et al. 2024,
// kellerjordan.github.io/posts/muon.
//
// A skipped step writes neither momentum nor weights; x is then made of what is in the workspace,
// and nothing reads it.
#include "kernels/cuda/update.h"

// x = the direction of the gradient and the momentum before it.
DEV_KERNEL(cuda_muon_begin, cuda_muon_args, CUDA_THREADS)
{
    if (update_is_masked(a.step)) return;
    const float mu = (float)a.momentum, rest = (float)(1.0 - a.momentum);
    const float factor = (float)a.step->device.grad_factor;
    for (int64_t row = dev_block(1); row < a.grad.rows; row += dev_blocks(1)) {
        for (int64_t j = dev_column_first(); j < a.grad.columns; j += dev_column_step()) {
            float g[DEV_VECTOR], m[DEV_VECTOR], d[DEV_VECTOR];
            dev_load8(&a.grad, row, j, g);
            dev_load8(&a.m, row, j, m);
            DEV_UNROLL
            for (int i = 0; i < DEV_VECTOR; i++) {
                g[i] *= factor;
                m[i] = mu * m[i] + rest * g[i];
                d[i] = a.nesterov ? rest * g[i] + mu * m[i] : m[i];
            }
            dev_store8(&a.x, row, j, d);
            update_store(&a.rounding, &a.out[1], 1, row, j, m);
        }
    }
}

// Sums of squares of parts of x, which is one row; in double, each in one order.
DEV_KERNEL(cuda_muon_squares, cuda_muon_args, CUDA_THREADS)
{
    double *shared = (double *)dev_shared();
    double sum = 0.0;
    const int64_t each = (a.x.columns + a.parts - 1) / a.parts;
    const int64_t end = dev_min((dev_block(0) + 1) * each, a.x.columns);
    for (int64_t j = dev_block(0) * each + dev_thread(); j < end; j += CUDA_THREADS) {
        const double x = (double)dev_load(&a.x, 0, j);
        sum += x * x;
    }
    for (int mask = DEV_WARP / 2; mask > 0; mask /= 2) sum += dev_shuffle_xor_wide(sum, mask);
    if (dev_thread() % DEV_WARP == 0) shared[dev_thread() / DEV_WARP] = sum;
    dev_barrier();
    if (dev_thread() != 0) return;
    for (int i = 1; i < CUDA_THREADS / DEV_WARP; i++) sum += shared[i];
    a.partial[dev_block(0)] = sum;
}

// x /= max(norm, eps); x is one row.
DEV_KERNEL(cuda_muon_normalize, cuda_muon_args, CUDA_THREADS)
{
    double sum = 0.0;
    for (int64_t i = 0; i < a.parts; i++) sum += a.partial[i];
    const float factor = (float)(1.0 / fmax(sqrt(sum), (double)a.eps));
    for (int64_t j = dev_column_first(); j < a.x.columns; j += dev_column_step()) {
        float x[DEV_VECTOR];
        dev_load8(&a.x, 0, j, x);
        DEV_UNROLL
        for (int i = 0; i < DEV_VECTOR; i++) x[i] *= factor;
        dev_store8(&a.x, 0, j, x);
    }
}

// The master weight and its copy: rows of the views are rows `row` on of x.
DEV_KERNEL(cuda_muon_end, cuda_muon_args, CUDA_THREADS)
{
    if (update_is_masked(a.step)) return;
    const double lr = a.step->host.lr * a.lr_scale;
    const float rate = (float)(lr * a.size), keep = (float)(1.0 - lr * a.decay);
    for (int64_t row = dev_block(1); row < a.master.rows; row += dev_blocks(1)) {
        for (int64_t j = dev_column_first(); j < a.master.columns; j += dev_column_step()) {
            float x[DEV_VECTOR], p[DEV_VECTOR];
            dev_load_some(&a.x, a.row + row, a.column + j, a.master.columns - j, x);
            dev_load8(&a.master, row, j, p);
            DEV_UNROLL
            for (int i = 0; i < DEV_VECTOR; i++) p[i] = p[i] * keep - rate * x[i];
            update_store(&a.rounding, &a.out[0], 0, row, j, p);
            update_store(&a.rounding, &a.out[2], 3, row, j, p);
        }
    }
}
