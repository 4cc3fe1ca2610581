// Numbers held within a bound (op/clamp.c). A NaN stays one.
#include "kernels/cpu/vec_call.h"

#include <math.h>

enum { BLOCK = 256 };

static void clamp_block(float *x, int64_t count, float cap)
{
    for (int64_t k = 0; k < count; k++) {
        const float low = x[k] < -cap ? -cap : x[k];
        x[k] = low > cap ? cap : low;
    }
}

static void clamp_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const kern_call *c = job->call;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    const bool is_forward = c->code == OP_CLAMP;
    for (int64_t i = piece.row; i < piece.row + piece.rows; i++) {
        for (int64_t j = piece.column; j < piece.column + piece.columns; j += BLOCK) {
            const int64_t count = min_i64(BLOCK, piece.column + piece.columns - j);
            float x[BLOCK], dy[BLOCK];
            const cpu_span out = cpu_span_offset(tensor_row(&c->out[0], i), j);
            job->vec->cast(cpu_span_fp32(x), cpu_span_offset(tensor_row(&c->in[0], i), j), count);
            if (is_forward) {
                clamp_block(x, count, c->attrs.cap);
                job->vec->cast(out, cpu_span_fp32(x), count);
                continue;
            }
            job->vec->cast(cpu_span_fp32(dy), cpu_span_offset(tensor_row(&c->in[1], i), j), count);
            for (int64_t k = 0; k < count; k++) {
                dy[k] = fabsf(x[k]) <= c->attrs.cap ? dy[k] : 0.0f;
            }
            job->vec->cast(out, cpu_span_fp32(dy), count);
        }
    }
}

status cpu_clamp(const kern_context *context, const kern_call *call)
{
    TRY(cpu_call_check(call));
    const kern_tensor *out = &call->out[0];
    cpu_rows_run(context, call, tensor_rows(out), tensor_columns(out), clamp_task);
    return ST_OK;
}

status cpu_clamp_bwd(const kern_context *context, const kern_call *call)
{
    return cpu_clamp(context, call);
}
