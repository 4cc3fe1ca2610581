// Rows of latent attention: what goes before attention, forward and backward.
#include "kernels/cuda/rows.h"

static status latent_check(const kern_context *context, const kern_call *c,
                           const kern_tensor *positions, const kern_tensor *table)
{
    TRY(cuda_call_check(context, c));
    if (table->type == DTYPE_F32 && positions->type != DTYPE_F32) return ST_OK;
    return fail(ST_UNSUPPORTED, "backend cuda: %s turns by %s, not by fp32",
                op_kind_of(c->code)->name, dtype_name(table->type));
}

static cuda_latent_args args_of(const kern_call *c, const kern_tensor *positions,
                                const kern_tensor *table)
{
    return (cuda_latent_args){.positions = cuda_view_of(positions),
                              .table = cuda_view_of(table),
                              .heads = c->attrs.heads,
                              .dim = c->attrs.head_dim,
                              .rope = table->dims[1],
                              .value = c->attrs.value_dim,
                              .interleaved = c->attrs.interleaved};
}

static int64_t vectors(int64_t columns)
{
    return (columns + 7) / 8;
}

static status latent_run(const kern_context *context, cuda_latent_args *args)
{
    const int64_t per_head =
        vectors(args->dim - args->rope) + vectors(args->rope / 2) + vectors(args->value);
    const cuda_shape shape = cuda_shape_of_columns(args->q.rows, args->heads * per_head * 8);
    return cuda_launch_run(context, "cuda_latent", &shape, args, sizeof(*args));
}

status cuda_row_latent(const kern_context *context, const kern_call *c)
{
    TRY(latent_check(context, c, &c->in[3], &c->in[4]));
    cuda_latent_args args = args_of(c, &c->in[3], &c->in[4]);
    args.q = cuda_view_of(&c->in[0]);
    args.kv = cuda_view_of(&c->in[1]);
    args.r = cuda_view_of(&c->in[2]);
    args.y = cuda_view_of(&c->out[0]);
    args.k = cuda_view_of(&c->out[1]);
    args.v = cuda_view_of(&c->out[2]);
    return latent_run(context, &args);
}

status cuda_row_latent_bwd(const kern_context *context, const kern_call *c)
{
    TRY(latent_check(context, c, &c->in[3], &c->in[4]));
    cuda_latent_args args = args_of(c, &c->in[3], &c->in[4]);
    args.q = cuda_view_of(&c->in[0]);
    args.k = cuda_view_of(&c->in[1]);
    args.v = cuda_view_of(&c->in[2]);
    args.y = cuda_view_of(&c->out[0]);
    args.kv = cuda_view_of(&c->out[1]);
    args.backward = 1;
    return latent_run(context, &args);
}

status cuda_row_latent_dr(const kern_context *context, const kern_call *c)
{
    TRY(latent_check(context, c, &c->in[1], &c->in[2]));
    cuda_latent_args args = args_of(c, &c->in[1], &c->in[2]);
    args.k = cuda_view_of(&c->in[0]);
    args.r = cuda_view_of(&c->out[0]);
    const int64_t work = args.k.rows * vectors(args.rope / 2);
    const cuda_shape shape = {.grid = {(work + CUDA_THREADS - 1) / CUDA_THREADS, 1, 1},
                              .threads = CUDA_THREADS};
    return cuda_launch_run(context, "cuda_latent_dr", &shape, &args, sizeof(args));
}
