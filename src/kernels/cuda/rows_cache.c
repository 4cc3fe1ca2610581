// CACHE_APPEND: the cache of generation (cache.cu).
#include "kernels/cuda/args_generation.h"
#include "kernels/cuda/rows.h"

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
