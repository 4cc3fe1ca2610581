// Rows of the router: choice, gradient, loads and the bias that balances.
#include "kernels/cuda/args_experts.h"
#include "kernels/cuda/rows.h"
#include "kernels/route_rows.h"

enum { MOST_SHARED = 96 << 10, SHARE_CHOICES = 4096 };

// `at`: the operand with the choices of the call's rows.
static cuda_route_args args_of(const kern_call *c, const cuda_view *logits, const kern_tensor *at)
{
    const op_attrs *a = &c->attrs;
    const cuda_view ids = cuda_view_of(at);
    const route_rows rows = route_rows_of(c, at, route_whole(c));
    return (cuda_route_args){.logits = *logits,
                             .ids = ids,
                             .choices = cuda_view_of(rows.choices),
                             .step = c->step,
                             .loss_divisor = c->loss_divisor,
                             .rows = ids.rows,
                             .experts = logits->columns,
                             .taken = ids.columns,
                             .share_rows = max_i64(rows.all, 1),
                             .own_rows = rows.own,
                             .layer = max_i64(c->layer, 0),
                             .sigmoid = a->sigmoid,
                             .normalize = a->normalize,
                             .groups = a->groups,
                             .top_groups = a->top_groups,
                             .group_pairs = a->group_pairs,
                             .load_layers = a->load_layers,
                             .aux_batch = a->aux_batch,
                             .scale = a->scale,
                             .aux_loss = a->aux_loss,
                             .z_loss = a->z_loss};
}

// Launches a warp for each token; a block has as many warps as fit into shared memory.
static status tokens_run(const kern_context *context, const char *kernel, cuda_route_args *args)
{
    const int64_t each = (2 * args->experts + args->groups + args->taken) * (int64_t)sizeof(float);
    const int64_t warps = min_i64(CUDA_THREADS / 32, MOST_SHARED / max_i64(each, 1));
    if (warps < 1) {
        return fail(ST_UNSUPPORTED, "backend cuda: a router of %lld experts",
                    (long long)args->experts);
    }
    const cuda_shape shape = {.grid = {(args->rows + warps - 1) / warps, 1, 1},
                              .threads = (int)warps * 32,
                              .shared_bytes = warps * each};
    return cuda_launch_run(context, kernel, &shape, args, sizeof(*args));
}

status cuda_row_route(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    const cuda_view logits = cuda_view_of(&c->in[0]);
    cuda_route_args args = args_of(c, &logits, &c->out[0]);
    args.bias = cuda_view_of(&c->in[1]);
    args.weights = cuda_view_of(&c->out[1]);
    return tokens_run(context, "cuda_route", &args);
}

// ---- losses that balance ------------------------------------------------------------------------
// Sequences whose shares of experts are counted.
static int64_t share_sequences(const kern_call *c, const kern_tensor *ids)
{
    return op_balances_sequences(&c->attrs) ? route_rows_of(c, ids, route_whole(c)).sets : 0;
}

int64_t cuda_route_bwd_workspace(const kern_call *call, int threads)
{
    (void)threads;
    const int64_t experts = call->in[1].dims[1];
    return share_sequences(call, &call->in[2]) * experts * (int64_t)sizeof(int64_t);
}

int64_t cuda_step_routes_workspace(const kern_call *call, int threads)
{
    (void)threads;
    if (!cuda_has(&call->in[2])) return 0;
    const int64_t experts = call->in[2].dims[1];
    return share_sequences(call, &call->in[0]) * experts * (int64_t)sizeof(int64_t);
}

static status shares_run(const kern_context *context, const kern_call *c, const kern_tensor *ids,
                         cuda_route_args *args)
{
    const int64_t sequences = share_sequences(c, ids);
    if (sequences == 0) return ST_OK;
    args->shares = c->workspace;
    TRY(context->queue->clear(context->queue, args->shares,
                              (size_t)(sequences * args->experts) * sizeof(int64_t)));
    const int64_t choices = min_i64(args->share_rows, args->choices.rows) * args->taken;
    const cuda_shape shape = {.grid = {(choices + SHARE_CHOICES - 1) / SHARE_CHOICES, sequences, 1},
                              .threads = CUDA_THREADS};
    return cuda_launch_run(context, "cuda_route_shares", &shape, args, sizeof(*args));
}

status cuda_row_route_bwd(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    const cuda_view logits = cuda_view_of(&c->in[1]);
    cuda_route_args args = args_of(c, &logits, &c->in[2]);
    args.d_weights = cuda_view_of(&c->in[0]);
    args.d_logits = cuda_view_of(&c->out[0]);
    TRY(shares_run(context, c, &c->in[2], &args));
    return tokens_run(context, "cuda_route_bwd", &args);
}

status cuda_row_step_routes(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    const cuda_view logits = cuda_view_of(&c->in[2]);
    cuda_route_args args = args_of(c, &logits, &c->in[0]);
    args.kept = cuda_view_of(&c->in[1]);
    args.experts = c->attrs.experts;
    if (cuda_has(&c->in[2])) TRY(shares_run(context, c, &c->in[0], &args));
    return tokens_run(context, "cuda_step_routes", &args);
}

status cuda_row_balance(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    cuda_route_args args = {.bias = cuda_view_of(&c->in[1]),
                            .weights = cuda_view_of(&c->in[0]),
                            .d_logits = cuda_view_of(&c->out[0]),
                            .step = c->step,
                            .experts = c->attrs.experts,
                            .layer = c->attrs.load_row,
                            .load_layers = c->attrs.load_layers,
                            .rate = c->attrs.bias_rate};
    const cuda_shape shape = {.grid = {1, 1, 1}, .threads = CUDA_THREADS};
    return cuda_launch_run(context, "cuda_balance", &shape, &args, sizeof(args));
}
