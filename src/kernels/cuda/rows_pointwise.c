// Rows of the operations that work element by element. Operands without gaps are one long row.
#include "kernels/cuda/rows.h"

static status map_run(const kern_context *context, const kern_call *call, cuda_map_args *args,
                      int operands)
{
    TRY(cuda_call_check(context, call));
    args->out = cuda_view_of(&call->out[0]);
    bool dense = cuda_view_is_dense(&args->out);
    for (int i = 0; i < operands; i++) {
        args->in[i] = cuda_view_of(&call->in[i]);
        dense = dense && cuda_view_is_dense(&args->in[i]);
    }
    if (dense && args->kind != CUDA_MAP_ADD_BIAS && args->out.count == NULL) {
        const int64_t elements = args->out.rows * args->out.columns;
        for (int i = 0; i <= operands; i++) {
            cuda_view *v = i == operands ? &args->out : &args->in[i];
            v->rows = 1;
            v->columns = v->stride = elements;
        }
    }
    const cuda_shape shape = cuda_shape_of_columns(args->out.rows, args->out.columns);
    return cuda_launch_run(context, "cuda_map", &shape, args, sizeof(*args));
}

status cuda_zero(const kern_context *context, const cuda_view *out)
{
    cuda_map_args args = {.out = *out, .kind = CUDA_MAP_ZERO};
    const size_t width = out->type == DTYPE_F32 ? 4 : 2;
    if (cuda_view_is_dense(out)) {
        return context->queue->clear(context->queue, out->data,
                                     (size_t)(out->rows * out->columns) * width);
    }
    const cuda_shape shape = cuda_shape_of_columns(out->rows, out->columns);
    return cuda_launch_run(context, "cuda_map", &shape, &args, sizeof(args));
}

status cuda_copy(const kern_context *context, const cuda_view *from, const cuda_view *to)
{
    cuda_map_args args = {.kind = CUDA_MAP_SUM, .terms = 1, .out = *to};
    args.in[0] = *from;
    const cuda_shape shape = cuda_shape_of_columns(to->rows, to->columns);
    return cuda_launch_run(context, "cuda_map", &shape, &args, sizeof(args));
}

static status sum_run(const kern_context *context, const kern_call *call)
{
    cuda_map_args args = {.kind = CUDA_MAP_SUM};
    while (args.terms < CUDA_MAX_TERMS && cuda_has(&call->in[args.terms])) args.terms++;
    return map_run(context, call, &args, args.terms);
}

status cuda_row_add(const kern_context *context, const kern_call *call)
{
    return sum_run(context, call);
}

status cuda_row_sum(const kern_context *context, const kern_call *call)
{
    return sum_run(context, call);
}

status cuda_row_cast(const kern_context *context, const kern_call *call)
{
    return sum_run(context, call);
}

status cuda_row_add_bias(const kern_context *context, const kern_call *call)
{
    cuda_map_args args = {.kind = CUDA_MAP_ADD_BIAS};
    return map_run(context, call, &args, 2);
}

status cuda_row_tree_add(const kern_context *context, const kern_call *call)
{
    cuda_map_args args = {.kind = call->accumulate ? CUDA_MAP_ACCUMULATE : CUDA_MAP_SUM,
                          .terms = 1};
    return map_run(context, call, &args, 1);
}

status cuda_row_activation(const kern_context *context, const kern_call *call)
{
    cuda_map_args args = {.kind = CUDA_MAP_ACTIVATION,
                          .activation = (int32_t)call->attrs.activation};
    return map_run(context, call, &args, 1);
}

status cuda_row_activation_bwd(const kern_context *context, const kern_call *call)
{
    cuda_map_args args = {.kind = CUDA_MAP_ACTIVATION_BWD,
                          .activation = (int32_t)call->attrs.activation};
    return map_run(context, call, &args, 2);
}

status cuda_row_scale(const kern_context *context, const kern_call *call)
{
    cuda_map_args args = {.kind = CUDA_MAP_SCALE, .factor = call->attrs.scale};
    return map_run(context, call, &args, 1);
}

status cuda_row_soft_cap(const kern_context *context, const kern_call *call)
{
    cuda_map_args args = {.kind = CUDA_MAP_SOFT_CAP, .factor = call->attrs.cap};
    return map_run(context, call, &args, 1);
}

status cuda_row_clamp(const kern_context *context, const kern_call *call)
{
    cuda_map_args args = {.kind = CUDA_MAP_CLAMP, .factor = call->attrs.cap};
    return map_run(context, call, &args, 1);
}

status cuda_row_clamp_bwd(const kern_context *context, const kern_call *call)
{
    cuda_map_args args = {.kind = CUDA_MAP_CLAMP_BWD, .factor = call->attrs.cap};
    return map_run(context, call, &args, 2);
}

// ---- rows that change their places --------------------------------------------------------------
static status tiles_run(const kern_context *context, const kern_call *call, cuda_tiles_kind kind)
{
    TRY(cuda_call_check(context, call));
    cuda_tiles_args args = {.x = cuda_view_of(&call->in[0]),
                            .y = cuda_view_of(&call->out[0]),
                            .repeat = max_i64(call->attrs.repeat, 1),
                            .tiles = call->piece.shard_count,
                            .turns = call->piece.cp_turns,
                            .seq = call->seq,
                            .kind = (int32_t)kind,
                            .inverse = call->attrs.inverse};
    const cuda_shape shape = cuda_shape_of_columns(args.y.rows, args.y.columns);
    return cuda_launch_run(context, "cuda_tiles", &shape, &args, sizeof(args));
}

status cuda_row_unpack(const kern_context *context, const kern_call *call)
{
    return tiles_run(context, call, CUDA_UNPACK);
}

status cuda_row_pack(const kern_context *context, const kern_call *call)
{
    return tiles_run(context, call, CUDA_PACK);
}

status cuda_row_zigzag(const kern_context *context, const kern_call *call)
{
    return tiles_run(context, call, CUDA_ZIGZAG);
}

// ---- gates --------------------------------------------------------------------------------------
static void clamp_set(const kern_call *call, cuda_gate_args *args)
{
    if (call->code != OP_CLAMPED_GATE && call->code != OP_CLAMPED_GATE_BWD) return;
    args->cap = call->attrs.cap;
    args->scale = call->attrs.scale;
}

static status gate_run(const kern_context *context, const kern_call *call, op_activation kind)
{
    TRY(cuda_call_check(context, call));
    cuda_gate_args args = {.h = cuda_view_of(&call->in[0]),
                           .a = cuda_view_of(&call->out[0]),
                           .activation = (int32_t)kind};
    clamp_set(call, &args);
    const cuda_shape shape = cuda_shape_of_columns(args.a.rows, args.a.columns);
    return cuda_launch_run(context, "cuda_gate", &shape, &args, sizeof(args));
}

static status gate_bwd_run(const kern_context *context, const kern_call *call, op_activation kind)
{
    TRY(cuda_call_check(context, call));
    cuda_gate_args args = {.h = cuda_view_of(&call->in[0]),
                           .a = cuda_view_of(&call->in[1]),
                           .dh = cuda_view_of(&call->out[0]),
                           .activation = (int32_t)kind};
    clamp_set(call, &args);
    const cuda_shape shape = cuda_shape_of_columns(args.a.rows, args.a.columns);
    return cuda_launch_run(context, "cuda_gate_bwd", &shape, &args, sizeof(args));
}

status cuda_row_swiglu(const kern_context *context, const kern_call *call)
{
    return gate_run(context, call, ACT_SILU);
}

status cuda_row_swiglu_bwd(const kern_context *context, const kern_call *call)
{
    return gate_bwd_run(context, call, ACT_SILU);
}

status cuda_row_geglu(const kern_context *context, const kern_call *call)
{
    return gate_run(context, call, call->attrs.activation);
}

status cuda_row_geglu_bwd(const kern_context *context, const kern_call *call)
{
    return gate_bwd_run(context, call, call->attrs.activation);
}

status cuda_row_clamped_gate(const kern_context *context, const kern_call *call)
{
    return gate_run(context, call, ACT_NONE);
}

status cuda_row_clamped_gate_bwd(const kern_context *context, const kern_call *call)
{
    return gate_bwd_run(context, call, ACT_NONE);
}
