// The passes over one row of logits, once per vector level (head_rows.inc).
#ifndef KERNELS_CPU_HEAD_ROWS_H
#define KERNELS_CPU_HEAD_ROWS_H

#include "kernels/kernels_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct head_rows {
    float (*highest)(const float *row, int64_t n); // n >= 1
    double (*exponents)(float *row, int64_t n,
                        float highest); // row = exp(row - highest); their sum
    double (*sum)(const float *row, int64_t n, float highest); // the same sum; row stays
    void (*scale)(float *row, int64_t n, float factor);
    void (*cap)(float *row, int64_t n, float cap); // row = cap tanh(row / cap)
    // Capped logits become row = factor exp(row - highest) (1 - (row / cap)^2).
    void (*capped)(float *row, int64_t n, float highest, float factor, float cap);
} head_rows;

extern const head_rows head_rows_scalar, head_rows_avx2;

#ifdef __cplusplus
}
#endif
#endif
