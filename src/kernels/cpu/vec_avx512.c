// The leaves of the vector backend with AVX-512 (vec_kernels.h). Its gains over AVX2 are fewer
// instructions, masks and three-way logic; on a core that splits its wide operations the arithmetic
// itself is not faster. Tiles of attention hold sixteen queries in two AVX2 vectors, so they do not
// change.
#define VEC_AVX2   1
#define VEC_AVX512 1
#define VEC_TABLE  cpu_vec_avx512

#include "kernels/cpu/attention.h"
#include "kernels/cpu/vecmath.h"

#include "kernels/cpu/vec_pointwise.inc"

#include "kernels/cpu/vec_norm.inc"

#include "kernels/cpu/vec_optimizer.inc"

#include "kernels/cpu/vec_check.inc"

#include "kernels/cpu/vec_seal.inc"

static void vec_attention(const cpu_attention_tile *tile)
{
    cpu_vec_avx2.attention(tile);
}

static void vec_attention_bwd(const cpu_attention_tile *tile)
{
    cpu_vec_avx2.attention_bwd(tile);
}

static void vec_attention_chunk(const cpu_attention_chunk *chunk)
{
    cpu_vec_avx2.attention_chunk(chunk);
}

#include "kernels/cpu/vec_table.inc"
