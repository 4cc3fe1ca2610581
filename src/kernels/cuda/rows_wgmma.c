// Attention on GPUs of compute capability 9.0: which calls the kernels with groups of warps take,
// and how they find their tiles (attention_wgmma.cu). All other calls go to mma instructions.
#include "kernels/cuda/args_wgmma.h"
#include "kernels/cuda/rows.h"

#include <stdio.h>

int cuda_wgmma_dim(const kern_context *context, const cuda_attention_args *a)
{
    const int wide = a->head_dim > a->value_dim ? a->head_dim : a->value_dim;
    const int dim = wide <= 64 ? 64 : 128;
    const int64_t bytes = (WGMMA_ROWS + 4 * WGMMA_KEYS) * dim * 2 + WGMMA_BARRIER_BYTES;
    if (context->queue->arch != 90 || context->queue->tiles == NULL) return 0;
    if (wide > 128 || bytes + 1024 > context->queue->max_shared_bytes) return 0;
    if (a->q.type == DTYPE_F32 || a->aligned == 0 || a->lengths.data != NULL) return 0;
    if (a->cp_ways > 1 || a->shards > 0) return 0;
    if (!(a->scale > 0.0f)) return 0; // the highest product would not be the highest score
    // Places of keys and queries are 32-bit numbers.
    if (a->seq > INT32_MAX / 4 || a->window > INT32_MAX / 4) return 0;
    return a->keys == a->seq ? dim : 0;
}

// Tiles of `rows` rows and 64 columns of one head. A head has `columns`; beyond it, and beyond the
// rows of a sequence, numbers are zeros.
static status tiles_of(const kern_context *context, const cuda_view *v, int64_t heads,
                       int64_t columns, int64_t seq, int rows, cuda_tensor_map *out)
{
    const int64_t width = dtype_bytes((dtype)v->type);
    const cuda_tiling tiles = {
        .data = v->data,
        .type = (dtype)v->type,
        .dims = {columns, heads, seq, v->rows / seq},
        .strides = {columns * width, v->stride * width, seq * v->stride * width},
        .tile = {64, 1, rows, 1}};
    return context->queue->tiles(context->queue, &tiles, out);
}

static status wgmma_run(const kern_context *context, cuda_wgmma_args *args, const char *what,
                        int dim, const cuda_shape *shape)
{
    char name[64];
    const bool has_more = args->call.dropout > 0.0f || args->call.cap > 0.0f;
    (void)snprintf(name, sizeof(name), "cuda_attention_%s_%s%s_%d", what, has_more ? "more_" : "",
                   args->call.q.type == DTYPE_BF16 ? "bf16" : "f16", dim);
    return cuda_launch_run(context, name, shape, args, sizeof(*args));
}

static cuda_wgmma_args args_of(const cuda_attention_args *a)
{
    cuda_wgmma_args args = {.call = *a};
    args.more = (cuda_wgmma_more){.dropout = a->dropout, .keep = 1.0f / (1.0f - a->dropout)};
    if (a->cap > 0.0f) args.more.cap = a->cap / a->scale;
    if (a->cap > 0.0f) args.more.to_cap = a->scale / a->cap;
    return args;
}

status cuda_wgmma_forward(const kern_context *context, const cuda_attention_args *a,
                          int64_t sequences, int dim)
{
    cuda_wgmma_args args = args_of(a);
    if (sequences == 0 || a->seq == 0) return ST_OK;
    TRY(tiles_of(context, &a->q, a->heads, a->head_dim, a->seq, WGMMA_GROUP_ROWS, &args.maps[0]));
    TRY(tiles_of(context, &a->k, a->kv_heads, a->head_dim, a->seq, WGMMA_KEYS, &args.maps[1]));
    TRY(tiles_of(context, &a->v, a->kv_heads, a->value_dim, a->seq, WGMMA_KEYS, &args.maps[2]));
    const cuda_shape shape = {.grid = {(a->seq + WGMMA_ROWS - 1) / WGMMA_ROWS, a->heads, sequences},
                              .threads = WGMMA_THREADS,
                              .shared_bytes =
                                  (WGMMA_ROWS + 4 * WGMMA_KEYS) * dim * 2 + WGMMA_BARRIER_BYTES};
    return wgmma_run(context, &args, "wgmma", dim, &shape);
}

status cuda_wgmma_backward(const kern_context *context, const cuda_attention_args *a,
                           int64_t sequences, int dim)
{
    cuda_wgmma_args args = args_of(a);
    if (sequences == 0 || a->seq == 0) return ST_OK;
    const struct {
        const cuda_view *view;
        int64_t heads, columns;
    } all[] = {{&a->q, a->heads, a->head_dim},
               {&a->k, a->kv_heads, a->head_dim},
               {&a->v, a->kv_heads, a->value_dim},
               {&a->dy, a->heads, a->value_dim}};
    for (int i = 0; i < COUNT_OF(all); i++) {
        TRY(tiles_of(context, all[i].view, all[i].heads, all[i].columns, a->seq, WBWD_SIDE,
                     &args.maps[i]));
    }
    const int64_t blocks = (a->seq + WGMMA_ROWS - 1) / WGMMA_ROWS;
    const cuda_shape queries = {.grid = {blocks, a->heads, sequences},
                                .threads = WGMMA_THREADS,
                                .shared_bytes = (WGMMA_ROWS + 2 * WBWD_SIDE) * dim * 4 +
                                                2 * WBWD_SIDE * 8 + WBWD_BARRIER_BYTES};
    cuda_shape keys = queries;
    keys.grid[1] = a->kv_heads;
    TRY(wgmma_run(context, &args, "wgmma_dq", dim, &queries));
    return wgmma_run(context, &args, "wgmma_dkv", dim, &keys);
}
