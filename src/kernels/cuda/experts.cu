// Rows ordered by expert and back, factors of rows, counts of rows, rows in 8 bits.
//
// PERMUTE is a counting sort in three kernels: each part of 256 choices counts its choices of every
// expert; one block adds the counts up; each part then knows the place of its rows. Only integers
// are counted with atomics, so the order is that of the tokens.
#include "kernels/cuda/args_experts.h"
#include "kernels/cuda/view.h"

DEV_INLINE int64_t experts_choice(const cuda_view *ids, int64_t k)
{
    return dev_index(ids, k / ids->columns * ids->stride + k % ids->columns);
}

// ---- there --------------------------------------------------------------------------------------
DEV_KERNEL(cuda_permute_count, cuda_permute_args, CUDA_THREADS)
{
    int64_t *counts = (int64_t *)dev_shared();
    const int64_t k = dev_block(0) * CUDA_THREADS + dev_thread();
    for (int64_t e = dev_thread(); e < a.experts; e += CUDA_THREADS) counts[e] = 0;
    dev_barrier();
    if (k < a.ids.rows * a.ids.columns) {
        const int64_t id = experts_choice(&a.ids, k);
        if (id >= 0) {
            dev_index_check("permute", k / a.ids.columns, id, a.experts);
            dev_atomic_add(&counts[id], 1);
        }
    }
    dev_barrier();
    for (int64_t e = dev_thread(); e < a.experts; e += CUDA_THREADS) {
        a.counts[dev_block(0) * a.experts + e] = counts[e];
    }
}

// One block: counts become the rows where each part's choices of an expert begin.
DEV_KERNEL(cuda_permute_offsets, cuda_permute_args, CUDA_THREADS)
{
    int64_t *begin = (int64_t *)dev_shared(); // (experts)
    for (int64_t e = dev_thread(); e < a.experts; e += CUDA_THREADS) {
        int64_t sum = 0;
        for (int64_t part = 0; part < a.parts; part++) sum += a.counts[part * a.experts + e];
        begin[e] = sum;
    }
    dev_barrier();
    if (dev_thread() == 0) {
        int64_t row = 0;
        for (int64_t e = 0; e < a.experts; e++) {
            const int64_t count = begin[e];
            begin[e] = row;
            dev_index_put(&a.offsets, e, row);
            row += count;
        }
        dev_index_put(&a.offsets, a.experts, row);
    }
    dev_barrier();
    for (int64_t e = dev_thread(); e < a.experts; e += CUDA_THREADS) {
        int64_t row = begin[e];
        for (int64_t part = 0; part < a.parts; part++) {
            const int64_t count = a.counts[part * a.experts + e];
            a.counts[part * a.experts + e] = row;
            row += count;
        }
    }
}

// Copies columns of a row by the lanes of a warp.
DEV_INLINE void experts_row_copy(const cuda_view *from, int64_t n, const cuda_view *to, int64_t row)
{
    for (int64_t j = dev_thread() % DEV_WARP * DEV_VECTOR; j < from->columns;
         j += DEV_WARP * DEV_VECTOR) {
        float x[DEV_VECTOR];
        dev_load8(from, n, j, x);
        dev_store8(to, row, j, x);
    }
}

DEV_KERNEL(cuda_permute_rows, cuda_permute_args, CUDA_THREADS)
{
    int64_t *ids = (int64_t *)dev_shared(), *rows = ids + CUDA_THREADS;
    const int64_t all = a.ids.rows * a.ids.columns, first = dev_block(0) * CUDA_THREADS;
    const int64_t k = first + dev_thread(), count = dev_min(CUDA_THREADS, all - first);
    ids[dev_thread()] = k < all ? experts_choice(&a.ids, k) : -1;
    dev_barrier();
    const int64_t id = ids[dev_thread()];
    int64_t row = id < 0 ? -1 : a.counts[dev_block(0) * a.experts + id];
    for (int i = 0; i < dev_thread() && id >= 0; i++) row += ids[i] == id;
    rows[dev_thread()] = row;
    if (k < all) {
        const int64_t n = k / a.ids.columns, t = k % a.ids.columns;
        dev_index_put(&a.row_of, n * a.row_of.stride + t, row);
        if (row >= 0 && a.scale.data != NULL) {
            dev_store(&a.scale, row, 0, dev_load(&a.weights, n, t));
        }
    }
    dev_barrier();
    for (int64_t i = dev_thread() / DEV_WARP; i < count; i += CUDA_THREADS / DEV_WARP) {
        if (rows[i] < 0) continue;
        experts_row_copy(&a.x, (first + i) / a.ids.columns, &a.rows, rows[i]);
    }
}

// ---- and back -----------------------------------------------------------------------------------
// Rows of a token, times their weights, added in the order of its experts.
DEV_KERNEL(cuda_rows_add, cuda_rows_args, CUDA_THREADS)
{
    for (int64_t n = dev_block(1); n < a.y.rows; n += dev_blocks(1)) {
        for (int64_t j = dev_column_first(); j < a.y.columns; j += dev_column_step()) {
            float sum[DEV_VECTOR], x[DEV_VECTOR];
            DEV_UNROLL
            for (int i = 0; i < DEV_VECTOR; i++) sum[i] = 0.0f;
            for (int64_t t = 0; t < a.row_of.columns; t++) {
                const int64_t row = dev_index(&a.row_of, n * a.row_of.stride + t);
                if (row < 0) continue;
                dev_index_check("rows of tokens", n, row, a.rows.rows);
                const float w = a.weights.data != NULL ? dev_load(&a.weights, n, t) : 1.0f;
                dev_load8(&a.rows, row, j, x);
                DEV_UNROLL
                for (int i = 0; i < DEV_VECTOR; i++) sum[i] += x[i] * w;
            }
            dev_store8(&a.y, n, j, sum);
        }
        if (a.d_scale.data == NULL || dev_column_first() != 0) continue;
        for (int64_t t = 0; t < a.row_of.columns; t++) {
            const int64_t row = dev_index(&a.row_of, n * a.row_of.stride + t);
            dev_store(&a.d_weights, n, t, row < 0 ? 0.0f : dev_load(&a.d_scale, row, 0));
        }
    }
}

// Adds the product of x and eight columns of a row of `other` to a lane's sum; missing: nothing.
DEV_INLINE void experts_dot_add(const cuda_view *other, int64_t row, int64_t j,
                                const float x[DEV_VECTOR], float *sum)
{
    float y[DEV_VECTOR];
    if (other->data == NULL) return;
    dev_load8(other, row, j, y);
    DEV_UNROLL
    for (int i = 0; i < DEV_VECTOR; i++) *sum += x[i] * y[i];
}

// A warp for each choice: its row is the token's, times its weight; the weight's gradient.
DEV_KERNEL(cuda_rows_spread, cuda_rows_args, CUDA_THREADS)
{
    const int64_t k = (dev_block(0) * dev_threads() + dev_thread()) / DEV_WARP;
    const int64_t n = k / a.row_of.columns, t = k % a.row_of.columns;
    if (n >= a.row_of.rows) return;
    const int64_t row = dev_index(&a.row_of, n * a.row_of.stride + t);
    const float w = a.weights.data != NULL ? dev_load(&a.weights, n, t) : 1.0f;
    float dot = 0.0f;
    if (row >= 0) dev_index_check("rows of tokens", n, row, a.rows.rows);
    for (int64_t j = dev_thread() % DEV_WARP * DEV_VECTOR; j < a.y.columns && row >= 0;
         j += DEV_WARP * DEV_VECTOR) {
        float x[DEV_VECTOR];
        dev_load8(&a.y, n, j, x);
        experts_dot_add(&a.other, row, j, x, &dot);
        DEV_UNROLL
        for (int i = 0; i < DEV_VECTOR; i++) x[i] *= w;
        dev_store8(&a.rows, row, j, x);
    }
    dot = dev_warp_sum(dot);
    if (a.d_weights.data != NULL && dev_thread() % DEV_WARP == 0) {
        dev_store(&a.d_weights, n, t, dot);
    }
}

// ---- factors of rows ----------------------------------------------------------------------------
DEV_KERNEL(cuda_rows_factor, cuda_factor_args, CUDA_THREADS)
{
    const int64_t n = (dev_block(0) * dev_threads() + dev_thread()) / DEV_WARP;
    if (n >= dev_rows(&a.x)) return;
    float f = a.factor.data != NULL ? dev_load(&a.factor, n, 0) : 1.0f, dot = 0.0f;
    if (a.sigmoid) f = dev_sigmoid(f);
    for (int64_t j = dev_thread() % DEV_WARP * DEV_VECTOR; j < a.x.columns;
         j += DEV_WARP * DEV_VECTOR) {
        float x[DEV_VECTOR];
        dev_load8(&a.x, n, j, x);
        experts_dot_add(&a.other, n, j, x, &dot);
        if (a.y.data == NULL) continue;
        DEV_UNROLL
        for (int i = 0; i < DEV_VECTOR; i++) x[i] *= f;
        dev_store8(&a.y, n, j, x);
    }
    if (a.dot.data == NULL) return;
    dot = dev_warp_sum(dot);
    if (a.sigmoid) dot *= f * (1.0f - f);
    if (dev_thread() % DEV_WARP == 0) dev_store(&a.dot, n, 0, dot);
}

// ---- counts -------------------------------------------------------------------------------------
// Block: sequence q of rank r; row r * sequences + q of the counts.
DEV_KERNEL(cuda_count_rows, cuda_counts_args, CUDA_THREADS)
{
    int64_t *counts = (int64_t *)dev_shared();
    const int64_t each = a.in.rows / a.sequences * a.in.columns;
    const int64_t rank = dev_block(0) / a.sequences, q = dev_block(0) % a.sequences;
    for (int64_t e = dev_thread(); e < a.experts; e += CUDA_THREADS) counts[e] = 0;
    dev_barrier();
    for (int64_t k = q * each + dev_thread(); k < (q + 1) * each; k += CUDA_THREADS) {
        const int64_t e = experts_choice(&a.in, k) - rank * a.experts;
        if (e >= 0 && e < a.experts) dev_atomic_add(&counts[e], 1);
    }
    dev_barrier();
    for (int64_t e = dev_thread(); e < a.experts; e += CUDA_THREADS) {
        dev_index_put(&a.out, dev_block(0) * a.out.stride + e, counts[e]);
    }
}

// One block; there are few numbers.
DEV_KERNEL(cuda_row_offsets, cuda_counts_args, CUDA_THREADS)
{
    int64_t row = 0;
    if (dev_thread() != 0) return;
    dev_index_put(&a.out, 0, 0);
    for (int64_t g = 0; g + 1 < a.out.columns; g++) {
        for (int64_t q = 0; q < a.sequences; q++) {
            const int64_t r = g / a.experts * a.sequences + q;
            row += dev_index(&a.in, r * a.in.stride + g % a.experts);
        }
        dev_index_put(&a.out, g + 1, row);
    }
}

// A warp for each choice counts the choices of its expert before it in its sequence.
DEV_KERNEL(cuda_limit_rows, cuda_counts_args, CUDA_THREADS)
{
    const int64_t k = (dev_block(0) * dev_threads() + dev_thread()) / DEV_WARP;
    if (k >= a.in.rows * a.in.columns) return;
    const int64_t n = k / a.in.columns, first = (n - n % a.limit_seq) * a.in.columns;
    const int64_t id = experts_choice(&a.in, k);
    float before = 0.0f; // whole numbers below 2^24
    for (int64_t i = first + dev_thread() % DEV_WARP; i < k; i += DEV_WARP) {
        before += experts_choice(&a.in, i) == id ? 1.0f : 0.0f;
    }
    before = dev_warp_sum(before);
    if (dev_thread() % DEV_WARP != 0) return;
    dev_index_put(&a.out, n * a.out.stride + k % a.in.columns, before < (float)a.limit ? id : -1);
}

// A thread for each choice looks up the slot of its expert.
DEV_KERNEL(cuda_place_experts, cuda_place_args, CUDA_THREADS)
{
    const int64_t k = dev_block(0) * dev_threads() + dev_thread();
    if (k >= a.ids.rows * a.ids.columns) return;
    const int64_t n = k / a.ids.columns, id = experts_choice(&a.ids, k);
    if (id >= 0) dev_index_check("place_experts", n, id, a.experts);
    const int64_t slot = id >= 0 ? (int64_t)dev_load(&a.table, a.layer, id) : -1;
    dev_index_put(&a.slots, n * a.slots.stride + k % a.ids.columns, slot);
}

// ---- rows in 8 bits -----------------------------------------------------------------------------
// Infinities become 448, as in the casts of base/types.h.
DEV_INLINE uint32_t narrow_e4m3(float x)
{
    const float held = x > 448.0f ? 448.0f : x < -448.0f ? -448.0f : x; // NaN stays
    return fp8_code(fp8_nearest(held, FP8_E4M3), FP8_E4M3);
}

DEV_INLINE float widen_e4m3(uint32_t code)
{
    const uint32_t sign = (code & 0x80u) << 24, magnitude = code & 0x7fu;
    if (magnitude == 0x7fu) return dev_float_of(sign | 0x7fc00000u);
    if (magnitude < 8u) return dev_float_of(sign | dev_bits_of((float)magnitude / 512.0f));
    return dev_float_of(sign | ((magnitude << 20) + (120u << 23)));
}

// A warp for each row.
DEV_KERNEL(cuda_narrow_rows, cuda_counts_args, CUDA_THREADS)
{
    const int64_t n = (dev_block(0) * dev_threads() + dev_thread()) / DEV_WARP;
    if (n >= dev_rows(&a.in)) return;
    unsigned char *q = (unsigned char *)a.out.data + n * a.out.stride;
    float most = 0.0f;
    for (int64_t j = dev_thread() % DEV_WARP; j < a.in.columns; j += DEV_WARP) {
        most = fmaxf(most, fabsf(dev_load(&a.in, n, j)));
    }
    most = dev_warp_max(most);
    const int k = fp8_exponent(most, FP8_E4M3, FP8_ROW_EXPONENT_MOST);
    for (int64_t j = dev_thread() % DEV_WARP; j < a.in.columns; j += DEV_WARP) {
        q[j] = (unsigned char)narrow_e4m3(ldexpf(dev_load(&a.in, n, j), k));
    }
    if (dev_thread() % DEV_WARP == 0) q[a.in.columns] = (unsigned char)(k + FP8_ROW_EXPONENT_BIAS);
}

DEV_KERNEL(cuda_widen_rows, cuda_counts_args, CUDA_THREADS)
{
    const int64_t n = (dev_block(0) * dev_threads() + dev_thread()) / DEV_WARP;
    if (n >= dev_rows(&a.out)) return;
    const unsigned char *q = (const unsigned char *)a.in.data + n * a.in.stride;
    const int k = (int)q[a.out.columns] - FP8_ROW_EXPONENT_BIAS;
    for (int64_t j = dev_thread() % DEV_WARP; j < a.out.columns; j += DEV_WARP) {
        dev_store(&a.out, n, j, ldexpf(widen_e4m3(q[j]), -k));
    }
}
