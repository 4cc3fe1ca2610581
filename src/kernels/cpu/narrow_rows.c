// Rows of 8-bit numbers with a factor each (op/narrow_rows.c): row by row, in blocks of columns
// that are fp32 in the cache. A power of two changes no bit of an fp32 number but its exponent.
#include "kernels/cpu/vec_call.h"

#include <math.h>

enum { BLOCK = 256 };

static int row_exponent(const cpu_row_job *job, int64_t row, int64_t columns)
{
    float most = 0.0F, x[BLOCK];
    for (int64_t at = 0; at < columns; at += BLOCK) {
        const int64_t count = min_i64(BLOCK, columns - at);
        job->vec->cast(cpu_span_fp32(x), cpu_span_offset(tensor_row(&job->call->in[0], row), at),
                       count);
        for (int64_t i = 0; i < count; i++) most = fmaxf(most, fabsf(x[i]));
    }
    return fp8_exponent(most, FP8_E4M3, FP8_ROW_EXPONENT_MOST);
}

static uint8_t *row_bytes(const kern_tensor *q, int64_t row)
{
    return (uint8_t *)q->data + row * tensor_stride(q);
}

static void narrow_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    float x[BLOCK];
    for (int64_t n = piece.row; n < piece.row + piece.rows; n++) {
        const int k = row_exponent(job, n, piece.columns);
        const float half = ldexpf(1.0F, k / 2), rest = ldexpf(1.0F, k - k / 2);
        uint8_t *q = row_bytes(&job->call->out[0], n);
        for (int64_t at = 0; at < piece.columns; at += BLOCK) {
            const int64_t count = min_i64(BLOCK, piece.columns - at);
            job->vec->cast(cpu_span_fp32(x), cpu_span_offset(tensor_row(&job->call->in[0], n), at),
                           count);
            for (int64_t i = 0; i < count; i++) {
                const float scaled = x[i] * half * rest;
                q[at + i] = f8e4m3_from_f32(scaled, ROUND_NEAREST_EVEN, OVERFLOW_SATURATE, 0);
            }
        }
        q[piece.columns] = (uint8_t)(k + FP8_ROW_EXPONENT_BIAS);
    }
}

status cpu_narrow_rows(const kern_context *context, const kern_call *call)
{
    cpu_rows_run(context, call, call->in[0].dims[0], call->in[0].dims[1], narrow_task);
    return ST_OK;
}

static void widen_task(void *context, int64_t index, int thread)
{
    (void)thread;
    const cpu_row_job *job = context;
    const cpu_piece piece = cpu_cut_piece(&job->cut, index);
    float x[BLOCK], table[256];
    for (int i = 0; i < 256; i++) table[i] = f32_from_f8e4m3((uint8_t)i);
    for (int64_t n = piece.row; n < piece.row + piece.rows; n++) {
        const uint8_t *q = row_bytes(&job->call->in[0], n);
        const int k = FP8_ROW_EXPONENT_BIAS - (int)q[piece.columns];
        const float half = ldexpf(1.0F, k / 2), rest = ldexpf(1.0F, k - k / 2);
        for (int64_t at = 0; at < piece.columns; at += BLOCK) {
            const int64_t count = min_i64(BLOCK, piece.columns - at);
            for (int64_t i = 0; i < count; i++) x[i] = table[q[at + i]] * half * rest;
            job->vec->cast(cpu_span_offset(tensor_row(&job->call->out[0], n), at), cpu_span_fp32(x),
                           count);
        }
    }
}

status cpu_widen_rows(const kern_context *context, const kern_call *call)
{
    cpu_rows_run(context, call, call->out[0].dims[0], call->out[0].dims[1], widen_task);
    return ST_OK;
}
