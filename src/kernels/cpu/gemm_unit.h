// The micro-kernels and packing functions of a GEMM, one row per vector level.
//
// A *panel* is a strip of A (mr rows) or of B (nr columns), stored k by k: panel[k * width + i], in
// fp32. At the edge of the matrix the rest of a panel holds finite elements of the matrix or zeros;
// sums made of these are never stored. The micro-kernel multiplies one panel of each. In the unit
// for bf16 a place of a panel holds two steps of k, and counts of steps below are counts of places.
#ifndef KERNELS_CPU_GEMM_UNIT_H
#define KERNELS_CPU_GEMM_UNIT_H

#include "kernels/cpu/gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

// The lines to pack: `count` lines (rows of A, columns of B), each of kc elements along k.
typedef struct gemm_lines {
    const void *data; // line 0, element 0
    dtype type;
    int64_t line_stride, k_stride;
    int64_t count, kc;
} gemm_lines;

// Computes y (rows x n) = x w^T for few rows of x and n rows of w, both contiguous along k. Reads w
// once.
enum { GEMM_FLAT_ROWS = 8 };
typedef struct gemm_flat {
    float *y;
    const float *x;
    const void *w;
    dtype w_type;
    int64_t y_stride, x_stride, w_stride;
    int64_t rows, n, k; // rows <= GEMM_FLAT_ROWS
} gemm_flat;

// Memory for partial sums, row by row.
typedef struct gemm_sums {
    float *at;
    int64_t stride;
} gemm_sums;

// Cache lines that are prefetched while a tile is multiplied: operands that are packed or added to
// next.
typedef struct gemm_fetch {
    const char *at;
    int64_t stride;
} gemm_fetch;

typedef struct gemm_unit {
    kern_level level;
    int steps; // of k in a place of a panel
    int mr, nr;
    // floats of the next operand that a step prefetches: a panel of B while some panels of A are
    // multiplied with the one before
    int ahead;
    // Sets `to` (mr x nr) to the sequential sum over kc that starts from `from`, or from +0 if that
    // is NULL. Full tiles only; `to` may be `from`. Meanwhile it prefetches kc * u->ahead floats
    // from `ahead` on and kc / 4 lines of `later`.
    void (*kernel)(const float *a, const float *b, gemm_sums from, gemm_sums to, int64_t kc,
                   const float *ahead, gemm_fetch later);
    // Packs ceil(count / width) panels, each kc / steps (rounded up) * width places, one after the
    // other.
    void (*pack)(float *panels, int64_t width, const gemm_lines *lines);
    // Convert n contiguous elements to fp32 and back (nearest even).
    void (*load)(float *out, const void *data, dtype type, int64_t n);
    void (*store)(void *data, dtype type, const float *values, int64_t n);
    // As store, past the caches, for data that is not read soon. A release does not order these
    // stores; a fence does.
    void (*stream)(void *data, dtype type, const float *values, int64_t n);
    void (*flat)(const gemm_flat *args); // NULL: there is none
} gemm_unit;

extern const gemm_unit gemm_unit_scalar;
extern const gemm_unit gemm_unit_avx2;
extern const gemm_unit gemm_unit_avx512;
extern const gemm_unit gemm_unit_avx512_bf16;
const gemm_unit *
gemm_unit_of(kern_level level); // the fastest at or below it whose bits are gemm.h's

// Functions of the AVX2 unit that wider units use too.
void gemm_avx2_pack(float *panels, int64_t width, const gemm_lines *lines);
void gemm_avx2_load(float *out, const void *data, dtype type, int64_t n);
void gemm_avx2_store(void *data, dtype type, const float *values, int64_t n);
void gemm_avx2_stream(void *data, dtype type, const float *values, int64_t n);
void gemm_avx2_flat(const gemm_flat *f);

// Packs any type and stride; the pack functions of the units fall back to it.
void gemm_pack_any(float *panels, int64_t width, const gemm_lines *lines);
float gemm_load_one(dtype type, const void *data, int64_t index);

#ifdef __cplusplus
}
#endif
#endif
