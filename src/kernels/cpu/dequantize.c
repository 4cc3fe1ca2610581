// Weights in few bits become numbers (op/quantized.h): row by row, a block at a time in fp32.
#include "kernels/cpu/vec_call.h"

static void dequantize_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const kern_tensor *q = &job->call->in[0], *w = &job->call->out[0];
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    const op_quant kind = job->call->attrs.quant;
    for (int64_t m = piece.row; m < piece.row + piece.rows; m++) {
        const uint8_t *row = (const uint8_t *)q->data + m * tensor_stride(q);
        for (int64_t j = 0; j < w->dims[1]; j += QUANT_BLOCK) {
            const int64_t count = min_i64(QUANT_BLOCK, w->dims[1] - j);
            float x[QUANT_BLOCK];
            op_quant_block_decode(kind, row, count, x);
            job->vec->cast(cpu_span_offset(tensor_row(w, m), j), cpu_span_fp32(x), count);
            row += op_quant_block_bytes(kind, count);
        }
    }
}

status cpu_dequantize(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    cpu_rows_run(context, call, call->out[0].dims[0], call->out[0].dims[1], dequantize_task);
    return ST_OK;
}
