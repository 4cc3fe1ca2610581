// Rows of the operations that go by index or by the place in a sequence.
#include "kernels/cuda/rows.h"

static cuda_embedding_args embedding_args(const kern_call *c)
{
    return (cuda_embedding_args){.ids = cuda_view_of(&c->in[0]),
                                 .table = cuda_view_of(&c->in[1]),
                                 .positions = cuda_view_of(&c->in[2]),
                                 .position_table = cuda_view_of(&c->in[3]),
                                 .x = cuda_view_of(&c->out[0]),
                                 .first_row = c->piece.first_row,
                                 .whole_rows = c->piece.whole_rows > 0 ? c->piece.whole_rows
                                                                       : c->in[1].dims[0]};
}

status cuda_row_embedding(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    cuda_embedding_args args = embedding_args(c);
    const cuda_shape shape = cuda_shape_of_columns(args.x.rows, args.x.columns);
    return cuda_launch_run(context, "cuda_embedding", &shape, &args, sizeof(args));
}

status cuda_row_gather(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    cuda_embedding_args args = {.ids = cuda_view_of(&c->in[1]),
                                .table = cuda_view_of(&c->in[0]),
                                .x = cuda_view_of(&c->out[0])};
    const cuda_shape shape = cuda_shape_of_columns(args.x.rows, args.x.columns);
    return cuda_launch_run(context, "cuda_gather", &shape, &args, sizeof(args));
}

int64_t cuda_embedding_dw_workspace(const kern_call *call, int threads)
{
    (void)threads;
    return 2 * call->in[1].dims[0] * (int64_t)sizeof(int32_t);
}

status cuda_row_embedding_dw(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    cuda_embedding_dw_args args = {.ids = cuda_view_of(&c->in[0]),
                                   .dx = cuda_view_of(&c->in[1]),
                                   .table = cuda_view_of(&c->out[0]),
                                   .first_row = c->piece.first_row,
                                   .whole_rows = c->piece.whole_rows > 0 ? c->piece.whole_rows
                                                                         : c->out[0].dims[0],
                                   .skipped = c->attrs.skipped};
    const int64_t tokens = args.dx.rows;
    ASSERT(tokens <= INT32_MAX);
    args.next = c->workspace;
    args.follows = args.next + tokens;
    if (!c->accumulate) TRY(cuda_zero(context, &args.table));
    if (tokens == 0) return ST_OK;
    TRY(context->queue->clear(context->queue, args.follows, (size_t)tokens * sizeof(int32_t)));
    const cuda_shape link = cuda_shape_of_warps(tokens);
    TRY(cuda_launch_run(context, "cuda_embedding_link", &link, &args, sizeof(args)));
    const int64_t vectors = (args.table.columns + 7) / 8;
    const cuda_shape sums = {.grid = {tokens, 1, 1},
                             .threads = (int)min_i64(align_up(vectors, 32), CUDA_THREADS)};
    return cuda_launch_run(context, "cuda_embedding_dw", &sums, &args, sizeof(args));
}

status cuda_row_rope(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    cuda_rope_args args = {.x = cuda_view_of(&c->in[0]),
                           .positions = cuda_view_of(&c->in[1]),
                           .table = cuda_view_of(&c->in[2]),
                           .y = cuda_view_of(&c->out[0]),
                           .heads = c->attrs.heads,
                           .head_dim = c->attrs.head_dim,
                           .interleaved = c->attrs.interleaved,
                           .inverse = c->attrs.inverse};
    const cuda_shape shape = cuda_shape_of_columns(args.x.rows, args.x.columns);
    return cuda_launch_run(context, "cuda_rope", &shape, &args, sizeof(args));
}

status cuda_row_dropout(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    cuda_dropout_args args = {.x = cuda_view_of(&c->in[0]),
                              .y = cuda_view_of(&c->out[0]),
                              .step = &c->step->host,
                              .seq = c->seq,
                              .first_sequence = c->first_sequence,
                              .cut_ways = c->cut_ways,
                              .cut_pieces = c->cut_pieces,
                              .cut_at = c->cut_at,
                              .cp_ways = c->piece.cp_ways,
                              .cp_turns = c->piece.cp_turns,
                              .cp_at = c->piece.cp_at,
                              .first_column = c->piece.first_column,
                              .site = c->attrs.site,
                              .p = c->attrs.dropout};
    const cuda_shape shape = cuda_shape_of_columns(args.y.rows, args.y.columns);
    return cuda_launch_run(context, "cuda_dropout", &shape, &args, sizeof(args));
}
