// Norms, forward and backward, and sums over rows. A warp works on one row (RMSNorm: on one group
// of a row); its lanes take eight columns at a time, so the order of each sum depends on the number
// of columns only.
#include "kernels/cuda/view.h"

enum { NORM_WARPS = CUDA_THREADS / DEV_WARP };

// The row or group of this warp: row `row`, columns `begin` to `begin` + dim - 1.
typedef struct norm_place {
    int64_t row, group, begin;
    bool is_there;
} norm_place;

DEV_INLINE norm_place norm_place_of(int64_t rows, int64_t groups, int64_t dim)
{
    norm_place p;
    const int64_t at = dev_block(0) * NORM_WARPS + dev_thread() / DEV_WARP;
    p.row = at / groups;
    p.group = at % groups;
    p.begin = p.group * dim;
    p.is_there = p.row < rows;
    return p;
}

DEV_INLINE int64_t norm_first(void)
{
    return dev_thread() % DEV_WARP * DEV_VECTOR;
}

enum { NORM_STEP = DEV_WARP * DEV_VECTOR };

// Reads h = x + delta, rounded to the type of h.
DEV_INLINE void norm_h(const cuda_norm_args *a, const norm_place *p, int64_t j, float v[DEV_VECTOR])
{
    float delta[DEV_VECTOR];
    const int64_t left = a->dim - j;
    dev_load_some(&a->x, p->row, p->begin + j, left, v);
    if (a->delta.data == NULL) return;
    dev_load_some(&a->delta, p->row, p->begin + j, left, delta);
    DEV_UNROLL
    for (int i = 0; i < DEV_VECTOR; i++) {
        v[i] = dev_rounded(a->h.data != NULL ? &a->h : &a->x, v[i] + delta[i]);
    }
}

// Returns the sum of v - shift over the row, or of its square.
DEV_INLINE float norm_sum(const cuda_norm_args *a, const norm_place *p, float shift, bool squares)
{
    float sum = 0.0f, v[DEV_VECTOR];
    for (int64_t j = norm_first(); j < a->dim; j += NORM_STEP) {
        norm_h(a, p, j, v);
        DEV_UNROLL
        for (int i = 0; i < DEV_VECTOR; i++) {
            const float d = j + i < a->dim ? v[i] - shift : 0.0f;
            sum += squares ? d * d : d;
        }
    }
    return dev_warp_sum(sum);
}

DEV_KERNEL(cuda_norm, cuda_norm_args, CUDA_THREADS)
{
    const norm_place p = norm_place_of(a.y.rows, a.groups, a.dim);
    if (!p.is_there) return;
    const float count = (float)a.dim;
    float mean = 0.0f, v[DEV_VECTOR], w[DEV_VECTOR], b[DEV_VECTOR];
    if (a.subtracts_mean) {
        mean = norm_sum(&a, &p, 0.0f, false) / count;
        mean += norm_sum(&a, &p, mean, false) / count; // the rounding of the first sum
    }
    const float squares = a.dots.data != NULL ? dev_load(&a.dots, p.row, 0) / (float)a.whole
                                              : norm_sum(&a, &p, mean, true) / count;
    const float r = 1.0f / sqrtf(squares + a.eps);
    for (int64_t j = norm_first(); j < a.dim; j += NORM_STEP) {
        const int64_t left = a.dim - j;
        norm_h(&a, &p, j, v);
        dev_load_some(&a.w, 0, j, left, w);
        DEV_UNROLL
        for (int i = 0; i < DEV_VECTOR; i++) b[i] = 0.0f;
        if (a.b.data != NULL) dev_load_some(&a.b, 0, j, left, b);
        if (a.h.data != NULL) dev_store_some(&a.h, p.row, p.begin + j, left, v);
        DEV_UNROLL
        for (int i = 0; i < DEV_VECTOR; i++) v[i] = (v[i] - mean) * r * (w[i] + a.plus) + b[i];
        dev_store_some(&a.y, p.row, p.begin + j, left, v);
    }
    if (norm_first() != 0) return;
    if (a.mean.data != NULL) dev_store(&a.mean, 0, p.row, mean);
    if (a.r.data == NULL) return;
    if (a.subtracts_mean) {
        dev_store(&a.r, 0, p.row, r);
    } else {
        dev_store(&a.r, p.row, p.group, r);
    }
}

// ---- backward -----------------------------------------------------------------------------------
// The sums of a row that its gradient needs, with u = dy (w + plus) and n = h - mean.
typedef struct norm_sums {
    float u, dot, squares; // of u, of u n, of n^2
} norm_sums;

DEV_INLINE float norm_mean_again(const cuda_norm_dx_args *a, const norm_place *p)
{
    float mean = 0.0f, h[DEV_VECTOR];
    for (int again = 0; again < 2; again++) {
        float sum = 0.0f;
        for (int64_t j = norm_first(); j < a->dim; j += NORM_STEP) {
            dev_load_some(&a->h, p->row, p->begin + j, a->dim - j, h);
            DEV_UNROLL
            for (int i = 0; i < DEV_VECTOR; i++) sum += j + i < a->dim ? h[i] - mean : 0.0f;
        }
        mean += dev_warp_sum(sum) / (float)a->dim;
    }
    return mean;
}

DEV_INLINE norm_sums norm_sums_of(const cuda_norm_dx_args *a, const norm_place *p, float mean)
{
    norm_sums s = {0.0f, 0.0f, 0.0f};
    float dy[DEV_VECTOR], h[DEV_VECTOR], w[DEV_VECTOR];
    for (int64_t j = norm_first(); j < a->dim; j += NORM_STEP) {
        const int64_t left = a->dim - j;
        dev_load_some(&a->dy, p->row, p->begin + j, left, dy);
        dev_load_some(&a->h, p->row, p->begin + j, left, h);
        dev_load_some(&a->w, 0, j, left, w);
        DEV_UNROLL
        for (int i = 0; i < DEV_VECTOR; i++) {
            const float u = i < left ? dy[i] * (w[i] + a->plus) : 0.0f;
            const float n = i < left ? h[i] - mean : 0.0f;
            s.u += u;
            s.dot += u * n;
            s.squares += n * n;
        }
    }
    s.u = dev_warp_sum(s.u);
    s.dot = dev_warp_sum(s.dot);
    s.squares = dev_warp_sum(s.squares);
    return s;
}

// RMSNorm: dx = r (u - h r^2 mean(u h)) + dh.
// LayerNorm: dx = r (u - mean(u) - n r^2 mean(u n)) + dh.
DEV_KERNEL(cuda_norm_dx, cuda_norm_dx_args, CUDA_THREADS)
{
    const norm_place p = norm_place_of(a.dx.rows, a.groups, a.dim);
    if (!p.is_there) return;
    const bool is_piece = a.dots.data != NULL;
    const float count = (float)(is_piece ? a.whole : a.dim);
    const float mean = a.subtracts_mean ? norm_mean_again(&a, &p) : 0.0f;
    norm_sums s = {0.0f, 0.0f, 0.0f};
    if (is_piece) {
        s.dot = dev_load(&a.dots, p.row, 0);
    } else {
        s = norm_sums_of(&a, &p, mean);
    }
    // RMSNorm computes r again: the stored one has too few bits if only eps keeps dx from 0.
    const float r = is_piece           ? dev_load(&a.r, p.row, 0)
                    : a.subtracts_mean ? dev_load(&a.r, 0, p.row)
                                       : 1.0f / sqrtf(s.squares / count + a.eps);
    const float shift = a.subtracts_mean ? s.u / count : 0.0f, pull = r * r * (s.dot / count);
    for (int64_t j = norm_first(); j < a.dim; j += NORM_STEP) {
        const int64_t left = a.dim - j;
        float dy[DEV_VECTOR], h[DEV_VECTOR], w[DEV_VECTOR], past[DEV_VECTOR];
        dev_load_some(&a.dy, p.row, p.begin + j, left, dy);
        dev_load_some(&a.h, p.row, p.begin + j, left, h);
        dev_load_some(&a.w, 0, j, left, w);
        DEV_UNROLL
        for (int i = 0; i < DEV_VECTOR; i++) past[i] = 0.0f;
        if (a.dh.data != NULL) dev_load_some(&a.dh, p.row, p.begin + j, left, past);
        DEV_UNROLL
        for (int i = 0; i < DEV_VECTOR; i++) {
            const float u = dy[i] * (w[i] + a.plus), n = h[i] - mean;
            dy[i] = r * (u - shift - n * pull) + past[i];
        }
        dev_store_some(&a.dx, p.row, p.begin + j, left, dy);
    }
}

// A warp sums columns of a row.
DEV_KERNEL(cuda_row_sums, cuda_dots_args, CUDA_THREADS)
{
    const norm_place p = norm_place_of(a.x.rows, 1, a.dim);
    if (!p.is_there) return;
    float sum = 0.0f, x[DEV_VECTOR], dy[DEV_VECTOR], w[DEV_VECTOR];
    for (int64_t j = norm_first(); j < a.dim; j += NORM_STEP) {
        const int64_t left = a.dim - j;
        dev_load_some(&a.x, p.row, a.begin + j, left, x);
        if (a.dy.data != NULL) {
            dev_load_some(&a.dy, p.row, a.begin + j, left, dy);
            dev_load_some(&a.w, 0, a.begin + j, left, w);
        }
        DEV_UNROLL
        for (int i = 0; i < DEV_VECTOR; i++) {
            const float u = a.dy.data != NULL ? dy[i] * (w[i] + a.plus) : x[i];
            sum += i < left ? u * x[i] : 0.0f;
        }
    }
    sum = dev_warp_sum(sum);
    if (norm_first() == 0) dev_store(&a.dots, p.row, 0, sum);
}

// ---- sums over rows -----------------------------------------------------------------------------
// Adds the terms of one row to the sums of eight columns; second: those of dy alone.
DEV_INLINE void column_terms(const cuda_column_args *a, int64_t row, int64_t j,
                             float first[DEV_VECTOR], float second[DEV_VECTOR])
{
    const int64_t i = row / a->groups, group = row % a->groups, at = group * a->dim + j;
    const int64_t left = a->dim - j;
    float dy[DEV_VECTOR], h[DEV_VECTOR];
    dev_load_some(&a->dy, i, at, left, dy);
    if (a->kind == CUDA_COLUMNS_BIAS) {
        DEV_UNROLL
        for (int k = 0; k < DEV_VECTOR; k++) first[k] += dy[k];
        return;
    }
    if (a->kind == CUDA_COLUMNS_MAGNITUDE) {
        float squares[DEV_VECTOR];
        dev_load_some(&a->h, i, at, left, h);
        dev_load_some(&a->r, 0, at, left, squares);
        DEV_UNROLL
        for (int k = 0; k < DEV_VECTOR; k++)
            first[k] += dy[k] * h[k] * dev_inverse_length(squares[k]);
        return;
    }
    const bool is_layer = a->kind == CUDA_COLUMNS_LAYERNORM;
    const float r = is_layer ? dev_load(&a->r, 0, i) : dev_load(&a->r, i, group);
    const float mean = is_layer ? dev_load(&a->mean, 0, i) : 0.0f;
    dev_load_some(&a->h, i, at, left, h);
    DEV_UNROLL
    for (int k = 0; k < DEV_VECTOR; k++) {
        first[k] += dy[k] * ((h[k] - mean) * r);
        second[k] += dy[k];
    }
}

// Block (x, y) sums the rows of part y over 256 columns. Its warps take rows in turn; their sums
// are added in the order of the warps. partial: (2, parts, dim), fp32.
DEV_KERNEL(cuda_column_sums, cuda_column_args, CUDA_THREADS)
{
    float *shared = (float *)dev_shared(); // (2, warps, 256)
    const int warp = dev_thread() / DEV_WARP, lane = dev_thread() % DEV_WARP;
    const int64_t rows = a.dy.rows * a.groups, j = dev_block(0) * NORM_STEP + lane * DEV_VECTOR;
    const int64_t end = dev_min((dev_block(1) + 1) * a.part_rows, rows);
    float first[DEV_VECTOR], second[DEV_VECTOR];
    for (int k = 0; k < DEV_VECTOR; k++) first[k] = second[k] = 0.0f;
    for (int64_t row = dev_block(1) * a.part_rows + warp; row < end && j < a.dim;
         row += NORM_WARPS) {
        column_terms(&a, row, j, first, second);
    }
    for (int k = 0; k < DEV_VECTOR; k++) {
        shared[warp * NORM_STEP + lane * DEV_VECTOR + k] = first[k];
        shared[(NORM_WARPS + warp) * NORM_STEP + lane * DEV_VECTOR + k] = second[k];
    }
    dev_barrier();
    const int64_t column = dev_block(0) * NORM_STEP + dev_thread();
    if (column >= a.dim) return;
    for (int which = 0; which < 2; which++) {
        float sum = 0.0f;
        for (int k = 0; k < NORM_WARPS; k++) {
            sum += shared[(which * NORM_WARPS + k) * NORM_STEP + dev_thread()];
        }
        a.partial[(which * dev_blocks(1) + dev_block(1)) * a.dim + column] = sum;
    }
}

// One sum over all rows for each of 256 columns, which begins with the accumulator. The warps of a
// block compute the terms of as many rows at once; then a thread adds those of its column in order.
DEV_KERNEL(cuda_column_sequence, cuda_column_args, CUDA_THREADS)
{
    float *shared = (float *)dev_shared(); // (2, warps, 256)
    const int warp = dev_thread() / DEV_WARP, lane = dev_thread() % DEV_WARP;
    const int64_t rows = a.dy.rows * a.groups, j = dev_block(0) * NORM_STEP + lane * DEV_VECTOR;
    const int64_t column = dev_block(0) * NORM_STEP + dev_thread();
    const bool continues = a.accumulate != 0 && column < a.dim,
               has_second = a.out_second.data != NULL;
    float sum = continues ? dev_load(&a.out, 0, column) : 0.0f;
    float second_sum = continues && has_second ? dev_load(&a.out_second, 0, column) : 0.0f;
    for (int64_t first_row = 0; first_row < rows; first_row += NORM_WARPS) {
        const int64_t row = first_row + warp, left = dev_min(rows - first_row, NORM_WARPS);
        float first[DEV_VECTOR], second[DEV_VECTOR];
        for (int k = 0; k < DEV_VECTOR; k++) first[k] = second[k] = 0.0f;
        if (row < rows && j < a.dim) column_terms(&a, row, j, first, second);
        for (int k = 0; k < DEV_VECTOR; k++) {
            shared[warp * NORM_STEP + lane * DEV_VECTOR + k] = first[k];
            shared[(NORM_WARPS + warp) * NORM_STEP + lane * DEV_VECTOR + k] = second[k];
        }
        dev_barrier();
        for (int k = 0; k < left; k++) {
            sum += shared[k * NORM_STEP + dev_thread()];
            second_sum += shared[(NORM_WARPS + k) * NORM_STEP + dev_thread()];
        }
        dev_barrier();
    }
    if (column >= a.dim) return;
    dev_store(&a.out, 0, column, sum);
    if (has_second) dev_store(&a.out_second, 0, column, second_sum);
}

// Adds the parts in order to the accumulators. Axis 1 of the grid: which of the two sums.
DEV_KERNEL(cuda_column_finish, cuda_column_args, CUDA_THREADS)
{
    const int64_t column = dev_block(0) * dev_threads() + dev_thread();
    const cuda_view *out = dev_block(1) == 0 ? &a.out : &a.out_second;
    if (column >= a.dim || out->data == NULL) return;
    float sum = a.accumulate != 0 ? dev_load(out, 0, column) : 0.0f;
    for (int64_t part = 0; part < a.parts; part++) {
        sum += a.partial[(dev_block(1) * a.parts + part) * a.dim + column];
    }
    dev_store(out, 0, column, sum);
}
