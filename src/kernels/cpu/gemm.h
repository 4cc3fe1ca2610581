// C (m x n) = or += A (m x k) B (k x n), for every operand order, type and size that training
// needs.
//
// The bits: each element of C is one sequential sum over k, in order,
//     c = fma(a[k-1], b[k-1], ... fma(a[1], b[1], fma(a[0], b[0], c0)))      c0 = C or +0
// in fp32, rounded once more if C is narrower. So they depend neither on m and n, nor on the
// position in a tile, the number of threads, the blocking or the vector level, and a GEMM that
// continues from C gives the bits of one longer GEMM. (NaN is NaN, its payload may differ.) Only a
// GEMM with any_order or in_pairs may have other bits, on CPUs with units for bf16.
#ifndef KERNELS_CPU_GEMM_H
#define KERNELS_CPU_GEMM_H

#include "kernels/kernels_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

// Element (i, j) is at data + i * row_stride + j * column_stride elements; fp32, bf16 or fp16.
typedef struct gemm_matrix {
    const void *data;
    dtype type;
    int64_t row_stride, column_stride;
} gemm_matrix;

// A function that is called on finished values: C(i, j .. j+count-1) in fp32, before they are
// rounded to the type of C.
typedef void (*gemm_epilogue)(const void *context, float *values, int64_t i, int64_t j,
                              int64_t count);

// A product whose sums are checked (gemm_check.c): where its record and its space are, and what
// gemm_run() keeps here while it runs.
typedef struct gemm_check {
    kern_checks *all;
    const kern_call *call; // for reports
    char *space;           // gemm_check_bytes of the product, aligned to 64
    int64_t bytes;
    kern_level level;
    bool keeps_b;   // B does not change between the products that have this check
    bool sums;      // the rows are summed
    void *row_sums; // of them, [m]
    gemm_matrix b;  // whose sums are in the space
    int64_t n, k;   // of it
    double norm_b;
    int64_t flip_row, flip_column; // of the bit that tests flip; -1: none
    uint32_t flip_bit;
} gemm_check;

typedef struct gemm_args {
    int64_t m, n, k; // 0 is legal
    gemm_matrix a, b;
    void *c; // row-major, row stride ldc elements
    dtype c_type;
    int64_t ldc;
    bool accumulate; // c0 = C; with an epilogue, C must hold values that have not passed through it
    bool any_order;  // fast mode: a faster unit may sum bf16 in another order, fixed by the shape
    // m or k is a count in device memory, which changes from call to call: the product must not
    // depend on which shapes were computed before.
    bool counted_m, counted_k;
    bool in_pairs; // the sum may take pairs of k, if it continues from C after whole pairs only
    bool rounds;   // with one of these: fp32 operands may be rounded to bf16 on their way there
    void *panels;  // all of B as such a product packed it before; NULL: it is packed as it is used
    bool fills;    // this one packs it there first, whatever m is
    gemm_epilogue epilogue; // NULL: none
    const void *epilogue_context;
    gemm_check *check; // NULL: it is not checked
} gemm_args;

// Returns the space that checking a product takes. adds: it continues from C.
int64_t gemm_check_bytes(int64_t m, int64_t n, int64_t k, dtype c_type, bool adds);
// The check of a call's products, which have their space behind the rest of its workspace; `all` is
// NULL if there is none.
gemm_check gemm_check_of(const kern_context *context, const kern_call *call);
// Takes the first part of the space of `rest` for a check of its own.
gemm_check gemm_check_part(gemm_check *rest, int64_t bytes);

// Returns whether the sums with an epilogue are those without one and, with along_rows, whether
// each row is finished and stored from its first column to its last, at most GEMM_PIECE columns at
// a time.
enum { GEMM_PIECE = 512 };
bool gemm_may_finish(const kern_context *context, const gemm_args *args, bool along_rows);

// Runs a GEMM on the pool and its scratch; without scratch (a NULL pool) a slow loop gives the same
// bits.
void gemm_run(const kern_context *context, const gemm_args *args);

// Returns the bytes of the packed panels of a (k x n) weight that many GEMMs of a step read, so
// that it is packed once for all of them. 0: such GEMMs do not use panels (oneDNN packs for itself;
// without a unit for bf16, panels are fp32 and twice as large as the weight).
int64_t gemm_panels_bytes(kern_level level, dtype type, bool any_order, int64_t n, int64_t k);

static inline gemm_matrix gemm_rows(const void *data, dtype type, int64_t row_stride)
{
    gemm_matrix m;
    m.data = data;
    m.type = type;
    m.row_stride = row_stride;
    m.column_stride = 1;
    return m;
}
static inline gemm_matrix gemm_transposed(gemm_matrix m)
{
    gemm_matrix t = m;
    t.row_stride = m.column_stride;
    t.column_stride = m.row_stride;
    return t;
}

#ifdef __cplusplus
}
#endif
#endif
