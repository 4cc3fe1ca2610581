// The table of the CUDA backend, and the functions that its rows share.
//
// To add a kernel: a struct and a line in args.h, the kernel in a .cu file, and a row in a file
// rows_*.c. kernels/backend_test.c then compares it with `ref`, in the emulator.
#include "kernels/cuda/rows.h"

const kern_backend kern_backend_cuda = {
    .name = "cuda",
    .on_gpu = true,
#define CUDA_ROW(upper, lower) [OP_##upper] = cuda_row_##lower,
    .run = {CUDA_ROWS(CUDA_ROW)},
#undef CUDA_ROW
    .poison_rest = cuda_poison_rest,
    .fuses = {[OP_MATMUL] = cuda_fuses_matmul},
    .workspace_bytes =
        {
            [OP_BIAS_DW] = cuda_columns_workspace,
            [OP_RMSNORM_DW] = cuda_columns_workspace,
            [OP_LAYERNORM_DW] = cuda_columns_workspace,
            [OP_MAGNITUDE_DW] = cuda_columns_workspace,
            [OP_EMBEDDING_DW] = cuda_embedding_dw_workspace,
            [OP_HEAD_LOSS] = cuda_head_loss_workspace,
            [OP_HEAD_STATS] = cuda_head_stats_workspace,
            [OP_SINKS_DW] = cuda_sinks_dw_workspace,
            [OP_OBJECTIVE] = cuda_objective_workspace,
            [OP_SAMPLE] = cuda_sample_workspace,
            [OP_PERMUTE] = cuda_permute_workspace,
            [OP_ROUTE_BWD] = cuda_route_bwd_workspace,
            [OP_STEP_ROUTES] = cuda_step_routes_workspace,
            [OP_MUON] = cuda_muon_workspace,
            [OP_MUON_UPDATE] = cuda_muon_update_workspace,
            [OP_ATTENTION] = cuda_attention_workspace,
            [OP_ATTENTION_BWD] = cuda_attention_bwd_workspace,
            [OP_MATMUL] = cuda_fp8_workspace,
            [OP_MATMUL_DX] = cuda_fp8_workspace,
            [OP_MATMUL_DW] = cuda_fp8_workspace,
            [OP_FP8_COUNTS] = cuda_fp8_counts_workspace,
            [OP_GROUPED_MATMUL] = cuda_fp8_workspace,
            [OP_GROUPED_MATMUL_DX] = cuda_fp8_workspace,
            [OP_GROUPED_MATMUL_DW] = cuda_fp8_workspace,
        },
};

cuda_view cuda_view_of(const kern_tensor *t)
{
    cuda_view v = {.data = t->data,
                   .count = t->count,
                   .type = (int32_t)t->type,
                   .count_type = (int32_t)t->count_type};
    if (t->data == NULL) return v;
    v.rows = t->ndim == 2 ? t->dims[0] : 1;
    v.columns = t->dims[t->ndim - 1];
    v.stride = t->ndim == 2 ? t->strides[0] : v.columns;
    return v;
}

bool cuda_view_is_dense(const cuda_view *v)
{
    return v->rows <= 1 || v->stride == v->columns;
}

cuda_view cuda_view_rows(const cuda_view *v, int64_t first, int64_t count)
{
    cuda_view out = *v;
    if (v->data == NULL) return out;
    out.data = (char *)v->data + first * v->stride * dtype_bytes((dtype)v->type);
    out.rows = count;
    return out;
}

static bool is_readable(const kern_tensor *t)
{
    return t->type == DTYPE_F32 || t->type == DTYPE_BF16 || t->type == DTYPE_F16 ||
           t->type == DTYPE_I32 || t->type == DTYPE_I64 || t->type == DTYPE_U8; // bytes: step block
}

// The statistics of a vocabulary in shards are fp64.
static bool is_statistic(op_code code, int operand)
{
    return (code == OP_HEAD_STATS && operand == OP_MAX_IN) ||
           (code == OP_HEAD_LOSS && operand == 3);
}

// Operations whose kernels look at the count of bounded rows, or find their rows by other operands.
static bool takes_count(op_code code)
{
    static const bool takes[OP_CODE_COUNT] = {
        [OP_ADD] = true,         [OP_SUM] = true,           [OP_CAST] = true,
        [OP_SCALE] = true,       [OP_SOFT_CAP] = true,      [OP_ACTIVATION] = true,
        [OP_SWIGLU] = true,      [OP_SWIGLU_BWD] = true,    [OP_ACTIVATION_BWD] = true,
        [OP_GEGLU] = true,       [OP_GEGLU_BWD] = true,     [OP_CLAMPED_GATE] = true,
        [OP_PERMUTE] = true,     [OP_PERMUTE_BWD] = true,   [OP_CLAMPED_GATE_BWD] = true,
        [OP_UNPERMUTE] = true,   [OP_SCALE_ROWS] = true,    [OP_UNPERMUTE_BWD] = true,
        [OP_GATE_ROWS] = true,   [OP_GATE_ROWS_BWD] = true, [OP_SCALE_ROWS_DS] = true,
        [OP_NARROW_ROWS] = true, [OP_WIDEN_ROWS] = true,    [OP_GROUPED_MATMUL] = true,
        [OP_BIAS_ROWS] = true,   [OP_BIAS_ROWS_DW] = true,  [OP_GROUPED_MATMUL_DX] = true,
        [OP_ROUTE] = true,       [OP_ROUTE_BWD] = true,     [OP_GROUPED_MATMUL_DW] = true};
    return takes[code] || code == OP_FP8_COUNTS_ROWS;
}

status cuda_poison_rest(const kern_context *context, const kern_call *call)
{
    for (int o = 0; o < OP_MAX_OUT; o++) {
        if (call->out[o].data == NULL || call->out[o].count == NULL) continue;
        cuda_view rest = cuda_view_of(&call->out[o]);
        if (call->out[o].ndim == 1) { // elements as rows
            rest.rows = rest.columns;
            rest.columns = rest.stride = 1;
        }
        const cuda_shape shape = cuda_shape_of_columns(rest.rows, rest.columns);
        TRY(cuda_launch_run(context, "cuda_poison", &shape, &rest, sizeof(rest)));
    }
    return ST_OK;
}

status cuda_call_check(const kern_context *context, const kern_call *call)
{
    const char *name = op_kind_of(call->code)->name;
    if (context->queue == NULL) {
        return fail(ST_UNSUPPORTED, "backend cuda: %s outside a GPU's stream; use the device cuda",
                    name);
    }
    for (int i = 0; i < OP_MAX_IN + OP_MAX_OUT; i++) {
        const kern_tensor *t = i < OP_MAX_IN ? &call->in[i] : &call->out[i - OP_MAX_IN];
        if (t->data == NULL) continue;
        if (!is_readable(t) && !(t->type == DTYPE_F64 && is_statistic(call->code, i))) {
            return fail(ST_UNSUPPORTED, "backend cuda: %s with an operand of type %s", name,
                        dtype_name(t->type));
        }
        if (t->count != NULL && !takes_count(call->code)) {
            return fail(ST_UNSUPPORTED,
                        "backend cuda: %s with rows whose count is computed on the device", name);
        }
    }
    return ST_OK;
}

status cuda_launch_run(const kern_context *context, const char *kernel, const cuda_shape *shape,
                       void *args, size_t bytes)
{
    const uint32_t size = (uint32_t)bytes;
    cuda_launch launch = {.kernel = kernel,
                          .block = {(unsigned)shape->threads, 1, 1},
                          .shared_bytes = (unsigned)shape->shared_bytes,
                          .params = &args,
                          .sizes = &size,
                          .count = 1};
    for (int axis = 0; axis < 3; axis++) {
        const int64_t most = axis == 0 ? INT32_MAX : CUDA_MAX_GRID_ROWS;
        if (shape->grid[axis] == 0) return ST_OK; // nothing to compute
        ASSERT(shape->grid[axis] > 0 && shape->grid[axis] <= most);
        launch.grid[axis] = (unsigned)shape->grid[axis];
    }
    return context->queue->launch(context->queue, &launch);
}

cuda_shape cuda_shape_of_columns(int64_t rows, int64_t columns)
{
    const int64_t per_block = CUDA_THREADS * 8;
    return (cuda_shape){
        .grid = {(columns + per_block - 1) / per_block, min_i64(rows, CUDA_MAX_GRID_ROWS), 1},
        .threads = CUDA_THREADS};
}

cuda_shape cuda_shape_of_warps(int64_t count)
{
    const int64_t per_block = CUDA_THREADS / 32;
    return (cuda_shape){.grid = {(count + per_block - 1) / per_block, 1, 1},
                        .threads = CUDA_THREADS};
}
