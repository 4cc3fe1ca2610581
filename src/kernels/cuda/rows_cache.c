// CACHE_APPEND and LATENT_CACHED: the cache of generation (cache.cu).
#include "kernels/cuda/args_generation.h"
#include "kernels/cuda/rows.h"

enum { LATENT_KEYS = 64 }; // that of the kernel

static cuda_cache cache_of(const kern_call *c, const kern_tensor *lengths, const kern_tensor *pages)
{
    cuda_cache cache = {.lengths = cuda_view_of(lengths),
                        .pages = cuda_view_of(pages),
                        .seq = c->seq,
                        .cache_seq = c->cache_seq,
                        .page = c->attrs.page};
    cache.page_count = cache.pages.columns / max_i64(1, lengths->dims[0]);
    return cache;
}

status cuda_row_cache_append(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    cuda_append_args args = {.x = cuda_view_of(&c->in[0]),
                             .out = cuda_view_of(&c->out[0]),
                             .cache = cache_of(c, &c->in[1], &c->in[2])};
    const cuda_shape shape = cuda_shape_of_columns(args.x.rows, args.x.columns);
    return cuda_launch_run(context, "cuda_cache_append", &shape, &args, sizeof(args));
}

status cuda_row_latent_cached(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    cuda_latent_cached_args args = {.q = cuda_view_of(&c->in[0]),
                                    .w = cuda_view_of(&c->in[1]),
                                    .c = cuda_view_of(&c->in[2]),
                                    .r = cuda_view_of(&c->in[3]),
                                    .positions = cuda_view_of(&c->in[5]),
                                    .table = cuda_view_of(&c->in[6]),
                                    .y = cuda_view_of(&c->out[0]),
                                    .cache = cache_of(c, &c->in[4], &c->in[7]),
                                    .heads = c->attrs.heads,
                                    .dim = c->attrs.head_dim,
                                    .rope = c->in[6].dims[1],
                                    .value = c->attrs.value_dim,
                                    .scale = c->attrs.scale,
                                    .interleaved = c->attrs.interleaved};
    const int64_t numbers = 2 * args.c.columns + args.rope + 2 * LATENT_KEYS;
    const cuda_shape shape = {.grid = {args.q.rows, args.heads, 1},
                              .threads = CUDA_THREADS,
                              .shared_bytes = numbers * (int64_t)sizeof(float)};
    return cuda_launch_run(context, "cuda_latent_cached", &shape, &args, sizeof(args));
}
