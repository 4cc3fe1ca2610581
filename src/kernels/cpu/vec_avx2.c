// The leaves of the vector backend with AVX2, FMA and F16C (vec_kernels.h).
#define VEC_AVX2  1
#define VEC_TABLE cpu_vec_avx2

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
