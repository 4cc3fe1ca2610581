// The leaves of the vector backend in plain C, for a CPU without AVX2 (vec_kernels.h).
#define VEC_AVX2  0
#define VEC_TABLE cpu_vec_scalar

#include "kernels/cpu/attention.h"
#include "kernels/cpu/vecmath.h"

#include "kernels/cpu/vec_pointwise.inc"

#include "kernels/cpu/vec_norm.inc"

#include "kernels/cpu/vec_optimizer.inc"

#include "kernels/cpu/vec_check.inc"

#include "kernels/cpu/vec_seal.inc"

#include "kernels/cpu/vec_tile.inc"

#include "kernels/cpu/attention_walk.inc"

#include "kernels/cpu/vec_attention.inc"

#include "kernels/cpu/vec_attention_bwd.inc"

#include "kernels/cpu/vec_decode.inc"

#include "kernels/cpu/vec_table.inc"
