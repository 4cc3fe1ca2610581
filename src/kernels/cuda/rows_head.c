// The rows of the head: logits, losses and gradients, chunk by chunk of rows, so that no tensor of
// tokens x vocabulary exists.
//
//   workspace   | logits of a chunk, fp32 | their gradient, if narrower | sum of dw, fp32 |
//
// The gradient of fp32 logits takes their place. The last part is there only if dw is narrower than
// fp32. A chunk has more rows than on a CPU: its product for dx has few columns and must fill the
// GPU, and dw is read and written once per chunk. HEAD_STATS begins its workspace with the logits
// too; if HEAD_LOSS has the same workspace (attrs.kept) and not more rows than a chunk of a
// CPU, which the plan sees to where it can, they are still there.
#include "kernels/cuda/rows.h"

enum { CHUNKS_OF_CPU = 4 };

static int64_t chunk_rows(const kern_call *c)
{
    const int64_t rows = CHUNKS_OF_CPU * op_head_chunk_rows(c->in[1].dims[0]);
    return min_i64(max_i64(c->in[0].dims[0], 1), rows);
}

static int64_t logits_stride(const kern_call *c)
{
    return align_up(c->in[1].dims[0], 16); // rows begin at multiples of 32 bytes
}

static bool needs_fp32_sum(const kern_call *c)
{
    return cuda_has(&c->out[2]) && c->out[2].type != DTYPE_F32;
}

static int64_t logits_bytes(const kern_call *c)
{
    return align_up(chunk_rows(c) * logits_stride(c) * (int64_t)sizeof(float), ALIGN_TENSOR);
}

static int64_t gradient_bytes(const kern_call *c)
{
    const bool wants = cuda_has(&c->out[1]) || cuda_has(&c->out[2]);
    return wants && c->in[0].type != DTYPE_F32 ? logits_bytes(c) / 2 : 0;
}

int64_t cuda_head_loss_workspace(const kern_call *call, int threads)
{
    (void)threads;
    const int64_t weights = call->in[1].dims[0] * call->in[1].dims[1];
    return logits_bytes(call) + align_up(gradient_bytes(call), ALIGN_TENSOR) +
           (needs_fp32_sum(call) ? weights * (int64_t)sizeof(float) : 0);
}

int64_t cuda_head_stats_workspace(const kern_call *call, int threads)
{
    (void)threads;
    return logits_bytes(call);
}

// Elements of a vector.
static cuda_view elements_from(const cuda_view *v, int64_t first, int64_t count)
{
    cuda_view out = *v;
    const int64_t width = dtype_bytes((dtype)v->type);
    out.data = (char *)v->data + first * width;
    out.columns = out.stride = count;
    return out;
}

typedef struct head_job {
    cuda_view x, w, labels, loss, dx, dw, stats, slopes, logits, gradient; // dw: the fp32 sum
    bool continues;                                                        // dw has a value already
    bool kept;                                                             // so have the logits
} head_job;

// Returns the rows of the whole vocabulary, of which w may be a piece.
static int64_t vocabulary_of(const kern_call *c)
{
    return c->piece.whole_rows > 0 ? c->piece.whole_rows : c->in[1].dims[0];
}

static int64_t shard_begin(const kern_call *c, int64_t shard)
{
    return vocabulary_of(c) * shard / c->piece.shards - c->piece.first_row;
}

static cuda_view columns_from(const cuda_view *v, int64_t first, int64_t count)
{
    cuda_view out = *v;
    out.data = (char *)v->data + first * (v->type == DTYPE_F32 ? 4 : 2);
    out.columns = count;
    return out;
}

static cuda_head_args args_of(const kern_call *c, const head_job *job, int64_t first, int64_t count)
{
    cuda_head_args args = {.logits = job->logits,
                           .labels = elements_from(&job->labels, first, count),
                           .step = c->step,
                           .loss_divisor = c->loss_divisor,
                           .first_column = c->piece.first_row,
                           .vocabulary = vocabulary_of(c),
                           .shards = c->piece.shards,
                           .shard = c->piece.first_shard,
                           .z_loss = c->attrs.z_loss,
                           .cap = c->attrs.cap};
    args.logits.rows = count;
    return args;
}

static status rows_run(const kern_context *context, const char *kernel, const cuda_head_args *args,
                       int64_t shards)
{
    cuda_head_args copy = *args;
    const cuda_shape shape = {.grid = {args->logits.rows, shards, 1},
                              .threads = CUDA_THREADS,
                              .shared_bytes = CUDA_THREADS / 32 * 8};
    return cuda_launch_run(context, kernel, &shape, &copy, sizeof(copy));
}

// Where shards of the vocabulary are summed in order, each makes a term of dx, in columns of its
// own.
static status dx_run(const kern_context *context, const kern_call *c, const head_job *job,
                     int64_t first, int64_t count)
{
    const bool cut = job->stats.data != NULL;
    const int64_t dim = job->x.columns, terms = cut ? c->piece.shard_count : 1;
    const cuda_view dx = cuda_view_rows(&job->dx, first, count);
    for (int64_t i = 0; i < terms; i++) {
        const int64_t begin = cut ? shard_begin(c, c->piece.first_shard + i) : 0;
        const int64_t end = cut ? shard_begin(c, c->piece.first_shard + i + 1) : job->w.rows;
        cuda_gemm_args args = {.a = columns_from(&job->gradient, begin, end - begin),
                               .b = cuda_view_rows(&job->w, begin, end - begin),
                               .c = columns_from(&dx, i * dim, dim),
                               .b_along_n = 1,
                               .order = cuda_gemm_order_of(c)};
        args.a.rows = count;
        TRY(cuda_gemm_run(context, &args));
    }
    return ST_OK;
}

static status logits_run(const kern_context *context, const kern_call *c, const head_job *job,
                         int64_t first, int64_t count)
{
    cuda_gemm_args args = {.a = cuda_view_rows(&job->x, first, count),
                           .b = job->w,
                           .c = job->logits,
                           .order = cuda_gemm_order_of(c)};
    args.c.rows = count;
    return cuda_gemm_run(context, &args);
}

static status chunk_run(const kern_context *context, const kern_call *c, const head_job *job,
                        int64_t first, int64_t count)
{
    if (!job->kept) TRY(logits_run(context, c, job, first, count));
    cuda_head_args rows = args_of(c, job, first, count);
    rows.loss = elements_from(&job->loss, first, count);
    if (job->slopes.data != NULL) rows.slopes = elements_from(&job->slopes, first, count);
    if (job->stats.data != NULL) {
        rows.stats = job->stats;
        rows.per_tile = job->stats.columns / 3;
        rows.tile_rows = job->x.rows;
        rows.first_row = first;
    }
    if (job->dx.data != NULL || job->dw.data != NULL) {
        rows.gradient = job->gradient;
        rows.gradient.rows = count;
    }
    TRY(rows_run(context, "cuda_head_rows", &rows, 1));
    if (job->dx.data != NULL) TRY(dx_run(context, c, job, first, count));
    if (job->dw.data == NULL) return ST_OK;
    cuda_gemm_args dw = {.a = rows.gradient,
                         .b = cuda_view_rows(&job->x, first, count),
                         .c = job->dw,
                         .a_along_m = 1,
                         .b_along_n = 1,
                         .order = cuda_gemm_order_of_rows(c)};
    if (job->continues || first > 0) dw.before = job->dw;
    return cuda_gemm_run(context, &dw);
}

static head_job job_of(const kern_call *c)
{
    head_job job = {.x = cuda_view_of(&c->in[0]),
                    .w = cuda_view_of(&c->in[1]),
                    .labels = cuda_view_of(&c->in[2])};
    job.logits = (cuda_view){.data = c->workspace,
                             .columns = c->in[1].dims[0],
                             .stride = logits_stride(c),
                             .type = DTYPE_F32};
    job.gradient = job.logits;
    job.gradient.type = (int32_t)c->in[0].type;
    if (c->in[0].type != DTYPE_F32) {
        job.gradient.data = (char *)c->workspace + logits_bytes(c);
    }
    return job;
}

static status shards_check(const kern_call *c)
{
    enum { MAX_SHARDS = 64 };
    if (c->piece.shards <= MAX_SHARDS) return ST_OK;
    return fail(ST_UNSUPPORTED, "backend cuda: a vocabulary in %d shards, at most %d",
                c->piece.shards, (int)MAX_SHARDS);
}

status cuda_row_head_stats(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    const head_job job = job_of(c);
    const cuda_view stats = cuda_view_of(&c->out[0]);
    const int64_t rows = job.x.rows, chunk = chunk_rows(c);
    for (int64_t first = 0; first < rows; first += chunk) {
        const int64_t count = min_i64(chunk, rows - first);
        TRY(logits_run(context, c, &job, first, count));
        cuda_head_args args = args_of(c, &job, first, count);
        args.stats = cuda_view_rows(&stats, first, count);
        TRY(rows_run(context, "cuda_head_stats", &args, c->piece.shard_count));
    }
    return ST_OK;
}

status cuda_row_head_loss(const kern_context *context, const kern_call *c)
{
    TRY(cuda_call_check(context, c));
    TRY(shards_check(c));
    head_job job = job_of(c);
    const int64_t rows = job.x.rows, chunk = chunk_rows(c);
    job.loss = cuda_view_of(&c->out[0]);
    job.dx = cuda_view_of(&c->out[1]);
    job.dw = cuda_view_of(&c->out[2]);
    job.stats = cuda_view_of(&c->in[3]);
    job.slopes = cuda_view_of(&c->in[4]);
    job.continues = c->accumulate;
    job.kept = c->attrs.kept && cuda_has(&c->in[3]) && rows <= op_head_chunk_rows(c->in[1].dims[0]);
    const cuda_view given = job.dw;
    if (needs_fp32_sum(c)) {
        job.dw.data =
            (char *)c->workspace + logits_bytes(c) + align_up(gradient_bytes(c), ALIGN_TENSOR);
        job.dw.type = DTYPE_F32;
        job.dw.stride = job.dw.columns;
        if (c->accumulate) TRY(cuda_copy(context, &given, &job.dw));
    }
    if (rows == 0 && cuda_has(&c->out[2]) && !c->accumulate) TRY(cuda_zero(context, &job.dw));
    for (int64_t first = 0; first < rows; first += chunk) {
        TRY(chunk_run(context, c, &job, first, min_i64(chunk, rows - first)));
    }
    return needs_fp32_sum(c) ? cuda_copy(context, &job.dw, &given) : ST_OK;
}
