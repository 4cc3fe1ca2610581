// Passes over a row of logits with AVX2 and FMA.
#define VEC_AVX2  1
#define HEAD_ROWS head_rows_avx2
#include "kernels/cpu/head_rows.inc"
