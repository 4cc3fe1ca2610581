// Inside the CUDA backend: what its rows share. A row reads shapes, types and addresses, never the
// memory of operands, and posts launches to the queue of its context.
#ifndef KERNELS_CUDA_ROWS_H
#define KERNELS_CUDA_ROWS_H

#include "kernels/cuda/args.h"
#include "kernels/cuda/launch.h"
#include "kernels/kernels_internal.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CUDA_MAX_GRID_ROWS = 65535 };

static inline bool cuda_has(const kern_tensor *t)
{
    return t->data != NULL;
}

cuda_view cuda_view_of(const kern_tensor *t);
bool cuda_view_is_dense(const cuda_view *v);
// Returns ST_UNSUPPORTED, with the operation's name, for what no kernel of this backend can do: a
// context without a queue, a floating-point type other than fp32, bf16 and fp16, bounded rows.
NODISCARD status cuda_call_check(const kern_context *context, const kern_call *call);
// For operations whose sums over rows are not one sequential sum.
NODISCARD status cuda_refuse_strict(const kern_call *call);

// A launch of a kernel with one struct of arguments.
typedef struct cuda_shape {
    int64_t grid[3];
    int threads;
    int64_t shared_bytes;
} cuda_shape;
NODISCARD status cuda_launch_run(const kern_context *context, const char *kernel,
                                 const cuda_shape *shape, void *args, size_t bytes);
// The grid of a kernel that takes eight columns per thread and rows by axis 1.
cuda_shape cuda_shape_of_columns(int64_t rows, int64_t columns);

#define CUDA_ROW(lower) \
    NODISCARD status cuda_row_##lower(const kern_context *context, const kern_call *call);
CUDA_ROW(add)
CUDA_ROW(add_bias)
CUDA_ROW(sum)
CUDA_ROW(cast)
CUDA_ROW(tree_add)
CUDA_ROW(activation)
CUDA_ROW(activation_bwd)
CUDA_ROW(swiglu)
CUDA_ROW(swiglu_bwd)
CUDA_ROW(geglu)
CUDA_ROW(geglu_bwd)
#undef CUDA_ROW

#ifdef __cplusplus
}
#endif
#endif
