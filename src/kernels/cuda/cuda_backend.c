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
    .workspace_bytes =
        {
            [OP_BIAS_DW] = cuda_columns_workspace,
            [OP_RMSNORM_DW] = cuda_columns_workspace,
            [OP_LAYERNORM_DW] = cuda_columns_workspace,
            [OP_EMBEDDING_DW] = cuda_embedding_dw_workspace,
            [OP_HEAD_LOSS] = cuda_head_loss_workspace,
            [OP_ATTENTION_BWD] = cuda_attention_bwd_workspace,
        },
};

cuda_view cuda_view_of(const kern_tensor *t)
{
    cuda_view v = {.data = t->data, .type = (int32_t)t->type};
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

static bool is_readable(const kern_tensor *t)
{
    return t->type == DTYPE_F32 || t->type == DTYPE_BF16 || t->type == DTYPE_F16 ||
           t->type == DTYPE_I32 || t->type == DTYPE_I64 || t->type == DTYPE_U8; // bytes: step block
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
        if (!is_readable(t)) {
            return fail(ST_UNSUPPORTED, "backend cuda: %s with an operand of type %s", name,
                        dtype_name(t->type));
        }
        if (t->count != NULL) {
            return fail(ST_UNSUPPORTED,
                        "backend cuda: %s with rows whose count is computed on the device", name);
        }
    }
    return ST_OK;
}

status cuda_refuse_strict(const kern_call *call)
{
    if (!call->strict) return ST_OK;
    return fail(ST_UNSUPPORTED, "backend cuda: %s has no strict order; use determinism: fast",
                op_kind_of(call->code)->name);
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
