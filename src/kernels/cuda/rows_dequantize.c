// DEQUANTIZE: weights in few bits become numbers (dequantize.cu).
#include "kernels/cuda/args_adapters.h"
#include "kernels/cuda/rows.h"

#include <string.h>

status cuda_row_dequantize(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    cuda_dequantize_args args = {
        .codes = cuda_view_of(&c->in[0]), .w = cuda_view_of(&c->out[0]), .kind = c->attrs.quant};
    memcpy(args.table, op_nf4_table, sizeof(args.table));
    cuda_shape shape = cuda_shape_of_columns(args.w.rows, args.w.columns);
    shape.shared_bytes = (int64_t)sizeof(args.table);
    return cuda_launch_run(context, "cuda_dequantize", &shape, &args, sizeof(args));
}
