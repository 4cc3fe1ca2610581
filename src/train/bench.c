// Steps on random tokens, timed: no data, no folder, nothing kept.
//
// Every step is waited for, so a step's time is from its first action to its last; the median of
// them is what the machine does when nothing else disturbs it.
#include "train/train.h"

#include "base/rng.h"

#include <stdlib.h>

typedef struct bench {
    const host *h;
    const run_config *r;
    train_plans plans;
    train_job job;
    exec_input input;
} bench;

// ids, labels, positions, documents: one after the other, each (sequences, seq).
static status batch_make(bench *b, arena *a, int64_t vocab, int64_t sequences)
{
    const int64_t seq = b->r->train.seq, cells = sequences * seq;
    const int64_t bytes = cells * (int64_t)sizeof(int32_t);
    int32_t *all = NULL;
    TRY(arena_new(a, 4 * cells, &all));
    for (int64_t i = 0; i < cells; i++) {
        all[i] = (int32_t)(rng_word((uint64_t)b->r->train.seed, 0, (uint64_t)i) % (uint64_t)vocab);
        all[2 * cells + i] = (int32_t)(i % seq);
    }
    for (int64_t i = 0; i < cells; i++) all[cells + i] = all[(i + 1) % cells];
    static const char *const names[] = {"ids", "labels", "positions", "documents"};
    for (int i = 0; i < COUNT_OF(names); i++) {
        b->input.batch[i] = (exec_batch){names[i], all + i * cells, bytes};
    }
    b->input.batch_count = COUNT_OF(names);
    b->input.settings = train_step_settings(b->r);
    b->input.host.seed = (uint64_t)b->r->train.seed;
    b->input.host.lr = b->r->optimizer.lr;
    b->input.host.sequences = sequences;
    return ST_OK;
}

static status step_time(bench *b, const plan *p, int64_t step, double *seconds)
{
    const int64_t begin = b->h->api->monotonic_ns(b->h);
    b->input.host.step = step;
    TRY(exec_begin(b->job.e, p, &b->input));
    TRY(exec_finish(b->job.e));
    *seconds = (double)(b->h->api->monotonic_ns(b->h) - begin) / 1e9;
    return ST_OK;
}

static int ascending(const void *x, const void *y)
{
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static status steps_time(bench *b, arena *a, int64_t warmup, int64_t steps, train_bench *out)
{
    const plan *p = b->plans.all[0];
    double *times = NULL, warm = 0.0;
    TRY(arena_new(a, steps, &times));
    for (int64_t i = 0; i < warmup; i++) TRY(step_time(b, p, i + 1, &warm));
    for (int64_t i = 0; i < steps; i++) TRY(step_time(b, p, warmup + i + 1, &times[i]));
    qsort(times, (size_t)steps, sizeof(*times), ascending);
    *out = (train_bench){
        .step_s = (times[(steps - 1) / 2] + times[steps / 2]) / 2.0,
        .step_s_min = times[0],
        .step_s_max = times[steps - 1],
        .arena_bytes = exec_arena_bytes(b->job.e),
        .touched_bytes = exec_touched_bytes(b->job.e),
        .flops = op_model_flops_per_token(b->plans.model, b->r->train.seq) *
                 (double)(p->sequences * p->seq),
        .level = exec_level(b->job.e),
        .threads = exec_threads(b->job.e),
        .parameters = b->plans.model->parameters,
    };
    return ST_OK;
}

status train_bench_steps(const host *h, arena *a, const run_config *r, const decoder_spec *spec,
                         int64_t warmup, int64_t steps, train_bench *out)
{
    ASSERT(warmup >= 0 && steps >= 1);
    const train_options options = {
        .threads = train_threads(r),
        .device = r->kernels.device == RUN_DEVICE_SHADOW ? "shadow" : "cpu",
        .backend = r->kernels.backend == RUN_BACKEND_REF ? "ref" : "cpu",
    };
    bench *b = NULL;
    TRY(arena_new(a, 1, &b));
    b->h = h;
    b->r = r;
    TRY(train_assemble(a, r, spec, &options, &b->plans));
    TRY(train_fit_check(r, spec, &options, &b->plans,
                        r->memory.limit > 0 ? r->memory.limit : host_memory_bytes(h)));
    TRY(train_job_create(h, a, &b->plans, &options, NULL, &b->job));
    status st = train_job_weights(&b->job, a);
    if (st == ST_OK) st = batch_make(b, a, spec->vocab, b->plans.all[0]->sequences);
    if (st == ST_OK) st = steps_time(b, a, warmup, steps, out);
    train_job_destroy(&b->job);
    return st;
}

// ---- the best product ---------------------------------------------------------------------------

typedef struct product {
    kern_context context;
    kern_call call;
    void *scratch, *x, *w, *y, *workspace;
} product;

static kern_tensor matrix(void *data, dtype type, int64_t rows, int64_t columns)
{
    return (kern_tensor){
        .data = data, .type = type, .ndim = 2, .dims = {rows, columns}, .strides = {columns, 1}};
}

static status product_memory(void **out, int64_t bytes)
{
    *out = aligned_alloc(4096, (size_t)align_up(max_i64(bytes, 1), 4096));
    if (*out == NULL) return fail(ST_NO_MEMORY, "no memory for a matrix product");
    return ST_OK;
}

// y (n, m) = x (n, k) w (m, k), of small values: big ones would be no slower, infinities might.
static status product_make(product *p, dtype type, int64_t n, int64_t m, int64_t k)
{
    const int64_t width = dtype_bytes(type);
    TRY(product_memory(&p->x, n * k * width));
    TRY(product_memory(&p->w, m * k * width));
    TRY(product_memory(&p->y, n * m * width));
    for (int64_t i = 0; i < n * k; i++) dtype_store(type, p->x, i, (double)(i % 7 - 3) / 8.0);
    for (int64_t i = 0; i < m * k; i++) dtype_store(type, p->w, i, (double)(i % 5 - 2) / 8.0);
    p->call = (kern_call){.code = OP_MATMUL, .seq = n};
    p->call.in[0] = matrix(p->x, type, n, k);
    p->call.in[1] = matrix(p->w, type, m, k);
    p->call.out[0] = matrix(p->y, type, n, m);
    const int threads = kern_pool_threads(p->context.pool);
    p->call.workspace_bytes = kern_workspace_bytes(&kern_backend_cpu, &p->call, threads);
    TRY(product_memory(&p->workspace, p->call.workspace_bytes));
    p->call.workspace = p->workspace;
    return ST_OK;
}

static status product_best(const host *h, product *p, double flops, double *best)
{
    enum { TRIES = 12 };
    for (int i = 0; i < TRIES; i++) {
        const int64_t begin = h->api->monotonic_ns(h);
        TRY(kern_run(&kern_backend_cpu, &p->context, &p->call));
        const double seconds = (double)(h->api->monotonic_ns(h) - begin) / 1e9;
        if (seconds > 0.0 && flops / seconds > *best) *best = flops / seconds;
    }
    return ST_OK;
}

status train_bench_product(const host *h, kern_level level, int threads, dtype type,
                           double *flops_per_s)
{
    static const int64_t sizes[][3] = {{512, 512, 512}, {1024, 1024, 1024}, {2048, 1024, 1024}};
    kern_pool *pool = NULL;
    double best = 0.0;
    TRY(kern_pool_create(threads, &pool));
    void *scratch = NULL;
    status st = product_memory(&scratch, (int64_t)threads * KERN_SCRATCH_BYTES);
    if (st == ST_OK) kern_pool_scratch_set(pool, scratch);
    for (int i = 0; i < COUNT_OF(sizes) && st == ST_OK; i++) {
        product p = {.context = {.pool = pool, .level = level}};
        const int64_t n = sizes[i][0], m = sizes[i][1], k = sizes[i][2];
        st = product_make(&p, type, n, m, k);
        if (st == ST_OK) {
            st = product_best(h, &p, 2.0 * (double)n * (double)m * (double)k, &best);
        }
        free(p.x);
        free(p.w);
        free(p.y);
        free(p.workspace);
    }
    kern_pool_destroy(pool);
    free(scratch);
    if (st == ST_OK) *flops_per_s = best;
    return st;
}
