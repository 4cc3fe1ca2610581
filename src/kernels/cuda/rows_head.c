// The row of the head: logits, losses and gradients, chunk by chunk of rows, so that no tensor of
// tokens x vocabulary exists.
//
//   workspace   | logits of a chunk, fp32; their gradient takes their place | sum of dw, fp32 |
//
// The last part is there only if dw is narrower than fp32.
#include "kernels/cuda/rows.h"

static int64_t chunk_rows(const kern_call *c)
{
    return min_i64(max_i64(c->in[0].dims[0], 1), op_head_chunk_rows(c->in[1].dims[0]));
}

static int64_t logits_stride(const kern_call *c)
{
    return align_up(c->in[1].dims[0], 16); // rows begin at multiples of 64 bytes
}

static bool needs_fp32_sum(const kern_call *c)
{
    return cuda_has(&c->out[2]) && c->out[2].type != DTYPE_F32;
}

static int64_t logits_bytes(const kern_call *c)
{
    return chunk_rows(c) * logits_stride(c) * (int64_t)sizeof(float);
}

int64_t cuda_head_loss_workspace(const kern_call *call, int threads)
{
    (void)threads;
    const int64_t weights = call->in[1].dims[0] * call->in[1].dims[1];
    return logits_bytes(call) + (needs_fp32_sum(call) ? weights * (int64_t)sizeof(float) : 0);
}

static cuda_view rows_from(const cuda_view *v, int64_t first, int64_t count)
{
    cuda_view out = *v;
    const int64_t width = v->type == DTYPE_F32 ? 4 : 2;
    if (v->data == NULL) return out;
    out.data = (char *)v->data + first * v->stride * width;
    out.rows = count;
    return out;
}

// Elements of a vector.
static cuda_view elements_from(const cuda_view *v, int64_t first, int64_t count)
{
    cuda_view out = *v;
    const int64_t width = v->type == DTYPE_F32 || v->type == DTYPE_I32 ? 4
                          : v->type == DTYPE_I64                       ? 8
                                                                       : 2;
    out.data = (char *)v->data + first * width;
    out.columns = out.stride = count;
    return out;
}

typedef struct head_job {
    cuda_view x, w, labels, loss, dx, dw, logits; // dw: the fp32 sum
    bool continues;                               // dw has a value already
} head_job;

static status chunk_run(const kern_context *context, const kern_call *c, const head_job *job,
                        int64_t first, int64_t count)
{
    const bool wants_grad = job->dx.data != NULL || job->dw.data != NULL;
    const cuda_view x = rows_from(&job->x, first, count);
    cuda_view logits = job->logits;
    logits.rows = count;
    cuda_gemm_args product = {.a = x, .b = job->w, .c = logits};
    TRY(cuda_gemm_run(context, &product));

    cuda_view gradient = logits;
    gradient.type = job->x.type;
    if (gradient.type != DTYPE_F32) gradient.stride *= 2; // in the same bytes
    cuda_head_args rows = {.logits = logits,
                           .labels = elements_from(&job->labels, first, count),
                           .loss = elements_from(&job->loss, first, count),
                           .step = c->step,
                           .loss_divisor = c->loss_divisor,
                           .z_loss = c->attrs.z_loss};
    if (wants_grad) rows.gradient = gradient;
    const cuda_shape shape = {
        .grid = {count, 1, 1}, .threads = CUDA_THREADS, .shared_bytes = CUDA_THREADS / 32 * 8};
    TRY(cuda_launch_run(context, "cuda_head_rows", &shape, &rows, sizeof(rows)));
    if (job->dx.data != NULL) {
        cuda_gemm_args dx = {
            .a = gradient, .b = job->w, .c = rows_from(&job->dx, first, count), .b_along_n = 1};
        TRY(cuda_gemm_run(context, &dx));
    }
    if (job->dw.data == NULL) return ST_OK;
    cuda_gemm_args dw = {.a = gradient, .b = x, .c = job->dw, .a_along_m = 1, .b_along_n = 1};
    if (job->continues || first > 0) dw.before = job->dw;
    return cuda_gemm_run(context, &dw);
}

static status copy_run(const kern_context *context, const cuda_view *from, const cuda_view *to)
{
    cuda_map_args args = {.kind = CUDA_MAP_SUM, .terms = 1, .out = *to};
    args.in[0] = *from;
    const cuda_shape shape = cuda_shape_of_columns(to->rows, to->columns);
    return cuda_launch_run(context, "cuda_map", &shape, &args, sizeof(args));
}

status cuda_row_head_loss(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    if (cuda_has(&c->out[2])) TRY(cuda_refuse_strict(c));
    if (cuda_has(&c->in[3])) {
        return fail(ST_UNSUPPORTED, "backend cuda: a vocabulary that tensor parallelism cuts");
    }
    if (cuda_has(&c->in[4])) return fail(ST_UNSUPPORTED, "backend cuda: a head with slopes");
    if (c->attrs.cap > 0.0F) return fail(ST_UNSUPPORTED, "backend cuda: a head with capped logits");
    head_job job = {.x = cuda_view_of(&c->in[0]),
                    .w = cuda_view_of(&c->in[1]),
                    .labels = cuda_view_of(&c->in[2]),
                    .loss = cuda_view_of(&c->out[0]),
                    .dx = cuda_view_of(&c->out[1]),
                    .dw = cuda_view_of(&c->out[2]),
                    .continues = c->accumulate};
    job.logits = (cuda_view){.data = c->workspace,
                             .columns = c->in[1].dims[0],
                             .stride = logits_stride(c),
                             .type = DTYPE_F32};
    const cuda_view given = job.dw;
    if (needs_fp32_sum(c)) {
        job.dw.data = (char *)c->workspace + logits_bytes(c);
        job.dw.type = DTYPE_F32;
        job.dw.stride = job.dw.columns;
        if (c->accumulate) TRY(copy_run(context, &given, &job.dw));
    }
    const int64_t rows = job.x.rows, chunk = chunk_rows(c);
    if (rows == 0 && cuda_has(&c->out[2]) && !c->accumulate) TRY(cuda_zero(context, &job.dw));
    for (int64_t first = 0; first < rows; first += chunk) {
        TRY(chunk_run(context, c, &job, first, min_i64(chunk, rows - first)));
    }
    return needs_fp32_sum(c) ? copy_run(context, &job.dw, &given) : ST_OK;
}
