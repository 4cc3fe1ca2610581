// Passes over a row of logits in plain C, bit for bit as with AVX2.
#define VEC_AVX2  0
#define HEAD_ROWS head_rows_scalar
#include "kernels/cpu/head_rows.inc"
