// Products with one matrix per expert, and biases of experts. The number of rows of each expert is
// in device memory: a grid has a block for every tile that there may be, and a block finds its
// expert and tile by going over the offsets.
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/groups.h"

// The product of the rows of one expert.
DEV_INLINE cuda_gemm_args grouped_rows(const cuda_grouped_args *a, const group_rows *r)
{
    cuda_gemm_args p = a->product;
    p.a = groups_view(&a->product.a, r->begin, r->count);
    p.b = groups_view(&a->product.b, r->expert * a->whole + a->first_row, a->own);
    p.c = groups_view(&a->product.c, r->begin, r->count);
    if (p.before.data != NULL) p.before = groups_view(&a->product.before, r->begin, r->count);
    p.m = r->count;
    return p;
}

DEV_INLINE void grouped_half_rows(dev_half type, bool b_transposed, const cuda_grouped_args *a)
{
    int64_t tile = dev_block(1);
    const group_rows r = groups_find(&a->groups, GEMM_SIDE, &tile);
    if (r.count == 0) return;
    const cuda_gemm_args p = grouped_rows(a, &r);
    gemm_half(type, false, b_transposed, &p, tile * GEMM_SIDE, dev_block(0) * GEMM_SIDE);
}

// The matrix of one expert in the sums.
DEV_INLINE cuda_gemm_args grouped_sums(const cuda_grouped_args *a, int64_t expert)
{
    cuda_gemm_args p = a->product;
    p.c = groups_view(&a->product.c, expert * a->own, a->own);
    if (p.before.data != NULL) p.before = groups_view(&a->product.before, expert * a->own, a->own);
    p.m = a->own;
    return p;
}

DEV_INLINE void grouped_half_sums(dev_half type, const cuda_grouped_args *a)
{
    const int64_t expert = dev_block(2), m0 = dev_block(1) * GEMM_SIDE;
    const int64_t n0 = dev_block(0) * GEMM_SIDE, segments = groups_segments(&a->groups);
    const cuda_gemm_args p = grouped_sums(a, expert);
    const bool works = gemm_warp_works(&p, m0, n0);
    float c[4][4][4];
    DEV_UNROLL
    for (int i = 0; i < 64; i++) c[i / 16][i / 4 % 4][i % 4] = 0.0f;
    for (int64_t i = 0; i < segments; i++) {
        const group_rows r = groups_segment(&a->groups, expert, i);
        const cuda_view left = groups_view(&p.a, r.begin, r.count);
        const cuda_view right = groups_view(&p.b, r.begin, r.count);
        if (r.count == 0) continue;
        gemm_half_sum(type, true, true, p.aligned != 0, &left, &right, r.count, m0, n0, works, c);
    }
    gemm_half_end(&p, m0, n0, c);
}

#define GROUPED_KERNELS(suffix, type)                                       \
    DEV_KERNEL(cuda_grouped_##suffix##_nt, cuda_grouped_args, CUDA_THREADS) \
    {                                                                       \
        grouped_half_rows(type, false, &a);                                 \
    }                                                                       \
    DEV_KERNEL(cuda_grouped_##suffix##_nn, cuda_grouped_args, CUDA_THREADS) \
    {                                                                       \
        grouped_half_rows(type, true, &a);                                  \
    }                                                                       \
    DEV_KERNEL(cuda_grouped_##suffix##_tn, cuda_grouped_args, CUDA_THREADS) \
    {                                                                       \
        grouped_half_sums(type, &a);                                        \
    }
GROUPED_KERNELS(bf16, DEV_BF16)
GROUPED_KERNELS(f16, DEV_F16)

// ---- operands in 8 bits -------------------------------------------------------------------------
// The product of the rows of one expert; k and columns count pairs of codes.
DEV_INLINE cuda_gemm_args grouped_narrow_rows(const cuda_grouped_narrow_args *a,
                                              const group_rows *r)
{
    cuda_gemm_args p = a->of.product;
    p.a = groups_view(&a->of.product.a, r->begin, r->count);
    p.c = groups_view(&a->of.product.c, r->begin, r->count);
    if (p.before.data != NULL) p.before = groups_view(&a->of.product.before, r->begin, r->count);
    p.m = r->count;
    if (a->across != 0) {
        p.b.data = (char *)p.b.data + r->expert * a->of.own;
    } else {
        p.b = groups_view(&a->of.product.b, r->expert * a->of.own, a->of.own);
    }
    return p;
}

// One factor for the rows of an expert, and one for its matrix.
DEV_INLINE void grouped_narrow(dev_half type, const cuda_grouped_narrow_args *a)
{
    int64_t tile = dev_block(1);
    const group_rows r = groups_find(&a->of.groups, GEMM_SIDE, &tile);
    if (r.count == 0) return;
    const cuda_gemm_args p = grouped_narrow_rows(a, &r);
    const int64_t m0 = tile * GEMM_SIDE, n0 = dev_block(0) * GEMM_SIDE;
    const float factor = a->factors[0][r.expert] * a->factors[1][r.expert];
    float c[4][4][4];
    DEV_UNROLL
    for (int i = 0; i < 64; i++) c[i / 16][i / 4 % 4][i % 4] = 0.0f;
    gemm_half_sum(type, false, false, true, &p.a, &p.b, p.k, m0, n0, gemm_warp_works(&p, m0, n0),
                  c);
    DEV_UNROLL
    for (int i = 0; i < 64; i++) c[i / 16][i / 4 % 4][i % 4] *= factor;
    gemm_half_end(&p, m0, n0, c);
}

DEV_KERNEL(cuda_grouped_e4m3, cuda_grouped_narrow_args, CUDA_THREADS)
{
    grouped_narrow(DEV_E4M3, &a);
}

DEV_KERNEL(cuda_grouped_e5m2, cuda_grouped_narrow_args, CUDA_THREADS)
{
    grouped_narrow(DEV_E5M2, &a);
}

// Factors of 128 numbers of a row, and of 128 x 128 numbers of a matrix.
DEV_KERNEL(cuda_grouped_blocks, cuda_grouped_narrow_args, CUDA_THREADS)
{
    int64_t tile = dev_block(1);
    const group_rows r = groups_find(&a.of.groups, GEMM_SIDE, &tile);
    if (r.count == 0) return;
    const cuda_gemm_args p = grouped_narrow_rows(&a, &r);
    const int64_t m0 = tile * GEMM_SIDE, n0 = dev_block(0) * GEMM_SIDE;
    const int64_t first = r.expert * a.stripes, stride = a.factor_strides[1];
    float c[4][4][4], total[4][4][4];
    gemm_factors f;
    f.a = a.factors[0] + r.begin;
    f.a_stride = a.factor_strides[0];
    f.rows = r.count;
    f.b = a.across != 0 ? a.factors[1] + dev_block(0) * stride + first
                        : a.factors[1] + (first + dev_block(0)) * stride;
    f.total = total;
    DEV_UNROLL
    for (int i = 0; i < 64; i++) {
        c[i / 16][i / 4 % 4][i % 4] = total[i / 16][i / 4 % 4][i % 4] = 0.0f;
    }
    gemm_sum(DEV_E4M3, false, false, true, &p.a, &p.b, p.k, m0, n0, gemm_warp_works(&p, m0, n0), &f,
             c);
    gemm_half_end(&p, m0, n0, total);
}

// ---- any types ----------------------------------------------------------------------------------
DEV_KERNEL(cuda_grouped_plain_rows, cuda_grouped_args, CUDA_THREADS)
{
    int64_t tile = dev_block(1);
    const group_rows r = groups_find(&a.groups, PLAIN_SIDE, &tile);
    if (r.count == 0) return;
    const cuda_gemm_args p = grouped_rows(&a, &r);
    const int64_t m0 = tile * PLAIN_SIDE, n0 = dev_block(0) * PLAIN_SIDE;
    float c[4][4];
    plain_begin(&p, m0, n0, c);
    plain_sum(false, p.b_along_n != 0, &p.a, &p.b, p.k, m0, n0, c);
    plain_end(&p, m0, n0, c);
}

DEV_KERNEL(cuda_grouped_plain_sums, cuda_grouped_args, CUDA_THREADS)
{
    const int64_t expert = dev_block(2), m0 = dev_block(1) * PLAIN_SIDE;
    const int64_t n0 = dev_block(0) * PLAIN_SIDE, segments = groups_segments(&a.groups);
    const cuda_gemm_args p = grouped_sums(&a, expert);
    float c[4][4];
    plain_begin(&p, m0, n0, c);
    for (int64_t i = 0; i < segments; i++) {
        const group_rows r = groups_segment(&a.groups, expert, i);
        const cuda_view left = groups_view(&p.a, r.begin, r.count);
        const cuda_view right = groups_view(&p.b, r.begin, r.count);
        plain_sum(true, true, &left, &right, r.count, m0, n0, c);
    }
    plain_end(&p, m0, n0, c);
}

// ---- biases -------------------------------------------------------------------------------------
enum { BIAS_ROWS = 64 };

// A block has 64 rows of one expert.
DEV_KERNEL(cuda_bias_rows, cuda_bias_args, CUDA_THREADS)
{
    int64_t tile = dev_block(1);
    const group_rows r = groups_find(&a.groups, BIAS_ROWS, &tile);
    const int64_t begin = r.begin + tile * BIAS_ROWS;
    const int64_t end = dev_min(begin + BIAS_ROWS, r.begin + r.count);
    const int64_t m = dev_block(0) * CUDA_THREADS + dev_thread();
    if (r.count == 0 || m >= a.x.columns) return;
    const float bias = dev_load(&a.bias, r.expert * a.x.columns + m, 0);
    for (int64_t n = begin; n < end; n++) dev_store(&a.y, n, m, dev_load(&a.x, n, m) + bias);
}

// A thread has one column of an expert: one sum over its rows.
DEV_KERNEL(cuda_bias_rows_dw, cuda_bias_args, CUDA_THREADS)
{
    const int64_t m = dev_block(0) * CUDA_THREADS + dev_thread(), expert = dev_block(1);
    if (m >= a.x.columns) return;
    const int64_t at = expert * a.x.columns + m, segments = groups_segments(&a.groups);
    float sum = a.accumulate != 0 ? dev_load(&a.bias, at, 0) : 0.0f;
    for (int64_t i = 0; i < segments; i++) {
        const group_rows r = groups_segment(&a.groups, expert, i);
        for (int64_t n = r.begin; n < r.begin + r.count; n++) {
            const float scale = a.scale.data != NULL ? dev_load(&a.scale, n, 0) : 1.0f;
            sum = dev_fma(scale, dev_load(&a.x, n, m), sum);
        }
    }
    dev_store(&a.bias, at, 0, sum);
}

// y = x + the biases of a token's experts, times their weights.
DEV_KERNEL(cuda_bias_tokens, cuda_bias_args, CUDA_THREADS)
{
    for (int64_t n = dev_block(1); n < a.x.rows; n += dev_blocks(1)) {
        for (int64_t j = dev_column_first(); j < a.x.columns; j += dev_column_step()) {
            float sum[DEV_VECTOR], bias[DEV_VECTOR];
            dev_load8(&a.x, n, j, sum);
            for (int64_t t = 0; t < a.ids.columns; t++) {
                const int64_t e = dev_index(&a.ids, n * a.ids.stride + t);
                if (e < 0) continue;
                dev_index_check("bias_tokens", n, e, a.bias.rows);
                dev_load8(&a.bias, e, j, bias);
                const float w = dev_load(&a.weights, n, t);
                DEV_UNROLL
                for (int i = 0; i < DEV_VECTOR; i++) sum[i] += w * bias[i];
            }
            dev_store8(&a.y, n, j, sum);
        }
    }
}

// A thread has one column of an expert and looks for its tokens.
DEV_KERNEL(cuda_bias_tokens_dw, cuda_bias_args, CUDA_THREADS)
{
    const int64_t j = dev_block(0) * CUDA_THREADS + dev_thread(), expert = dev_block(1);
    if (j >= a.bias.columns) return;
    float sum = a.accumulate != 0 ? dev_load(&a.bias, expert, j) : 0.0f;
    for (int64_t n = 0; n < a.x.rows; n++) {
        for (int64_t t = 0; t < a.ids.columns; t++) {
            const int64_t e = dev_index(&a.ids, n * a.ids.stride + t);
            if (e >= 0) dev_index_check("bias_tokens_dw", n, e, a.bias.rows);
            if (e != expert) continue;
            sum = dev_fma(dev_load(&a.weights, n, t), dev_load(&a.x, n, j), sum);
        }
    }
    dev_store(&a.bias, expert, j, sum);
}

// A warp for each choice: the product of the token's gradient and the bias.
DEV_KERNEL(cuda_bias_tokens_ds, cuda_bias_args, CUDA_THREADS)
{
    const int64_t k = (dev_block(0) * dev_threads() + dev_thread()) / DEV_WARP;
    const int64_t n = k / a.ids.columns, t = k % a.ids.columns;
    if (n >= a.ids.rows) return;
    const int64_t e = dev_index(&a.ids, n * a.ids.stride + t);
    float sum = 0.0f;
    if (e >= 0) dev_index_check("bias_tokens_ds", n, e, a.bias.rows);
    for (int64_t j = dev_thread() % DEV_WARP; j < a.x.columns && e >= 0; j += DEV_WARP) {
        sum += dev_load(&a.x, n, j) * dev_load(&a.bias, e, j);
    }
    sum = dev_warp_sum(sum);
    if (dev_thread() % DEV_WARP == 0) dev_store(&a.weights, n, t, sum);
}
