// The arguments of the kernels of generation (args.h).
#ifndef KERNELS_CUDA_ARGS_GENERATION_H
#define KERNELS_CUDA_ARGS_GENERATION_H

#include "kernels/cuda/args.h"

#ifdef __cplusplus
extern "C" {
#endif

// Where rows of sequences lie in a cache: cache_seq rows of each sequence, or pages of `page` rows,
// page_count of them for a sequence. Query t of seq stands at position lengths[b] - seq + t.
typedef struct cuda_cache {
    cuda_view lengths, pages;
    int64_t seq, cache_seq, page, page_count;
} cuda_cache;

typedef struct cuda_append_args {
    cuda_view x, out;
    cuda_cache cache;
} cuda_append_args;

// Heads of dim columns of q, of which the last `rope` turn, and of `value` columns of y. w: for
// each head the rows that make its keys of c, and those that make its values.
typedef struct cuda_latent_cached_args {
    cuda_view q, w, c, r, positions, table, y;
    cuda_cache cache;
    int64_t heads, dim, rope, value;
    float scale;
    int32_t interleaved;
} cuda_latent_cached_args;

typedef struct cuda_candidate {
    uint32_t order; // falls as the logit rises
    int32_t id;
} cuda_candidate;

// weights (sequences, vocabulary); candidates: two arrays of each sequence.
typedef struct cuda_sample_args {
    cuda_view logits, params, draws, ids;
    double *weights;
    cuda_candidate *candidates;
} cuda_sample_args;

// One query of each sequence over its cache, in parts of CUDA_PART_KEYS keys, for CUDA_PART_HEADS
// heads at once. Each sequence, head and part has a highest score, a sum of exp(score - highest)
// and values with these factors.
enum { CUDA_PART_KEYS = 128, CUDA_PART_HEADS = 8 };
typedef struct cuda_decode_args {
    cuda_attention_args all;
    float *highest, *sums, *values;
    int64_t parts;
} cuda_decode_args;

#define CUDA_GENERATION_KERNELS(X)                 \
    X(cuda_attention_parts, cuda_decode_args)      \
    X(cuda_attention_join, cuda_decode_args)       \
    X(cuda_cache_append, cuda_append_args)         \
    X(cuda_latent_cached, cuda_latent_cached_args) \
    X(cuda_sample, cuda_sample_args)

#ifdef __cplusplus
}
#endif
#endif
