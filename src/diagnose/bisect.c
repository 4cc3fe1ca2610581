// Runs `bisect`; bisect.h describes the method. Ranks of the layout are threads; rank 0 also runs
// the references, compares, and decides whether to go on while the others wait.
//
//   all ranks   plans | jobs, weights |       step n        |            | step n + 1 ...
//   rank 0      references, points    | batch               | references | batch
//                                     | start compared      | compared   |
//
// After a step that agrees, the references take the layout's state, so no difference grows from
// step to step, and each step shows only its own effect.
#include "assemble/prove.h"
#include "diagnose/bisect_internal.h"
#include "diagnose/check_ranks.h"

#include <pthread.h>
#include <string.h>

// Barrier of the ranks outside of steps. It has no deadline, because the references take long.
typedef struct barrier {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    int64_t ranks, here;
    uint64_t round;
    bool failed; // a rank failed, and the others stop waiting
} barrier;

typedef struct bisect_run {
    bisect *b;
    barrier barrier;
    const assemble_options *options;
} bisect_run;

static status barrier_wait(barrier *b)
{
    (void)pthread_mutex_lock(&b->lock);
    const uint64_t round = b->round;
    if (++b->here == b->ranks) {
        b->here = 0;
        b->round++;
        (void)pthread_cond_broadcast(&b->moved);
    }
    while (b->round == round && !b->failed) (void)pthread_cond_wait(&b->moved, &b->lock);
    const bool failed = b->failed && b->round == round;
    (void)pthread_mutex_unlock(&b->lock);
    return failed ? fail(ST_PEER_LOST, "another rank of the layout failed") : ST_OK;
}

static void barrier_fail(barrier *b)
{
    (void)pthread_mutex_lock(&b->lock);
    b->failed = true;
    (void)pthread_cond_broadcast(&b->moved);
    (void)pthread_mutex_unlock(&b->lock);
}

// ---- references ---------------------------------------------------------------------------------

// The same run on one rank.
static run_config alone(const run_config *r)
{
    run_config one = *r;
    one.layout.dp = one.layout.tp = one.layout.pp = one.layout.cp = 1;
    one.layout.vpp = one.layout.zero = one.layout.zero_group = 0;
    one.layout.sp = false;
    one.layout.cp_heads = one.layout.ep = 1;
    one.layout.etp = 0;
    one.moe.dispatch = RUN_DISPATCH_AUTO;
    one.moe.rebalance = 0;
    one.layout.pipeline = NULL; // layout.stages stays: rows cut the layers equally
    one.train.recompute = RUN_RECOMPUTE_NONE;
    one.train.memory_settled = true;
    return one;
}

// The reference keeps the histories of factors in 8 bits, so that it has the same weights.
static void store_as(run_config *r, run_precision precision)
{
    r->precision.fp8_exact = r->train.precision == RUN_FP8 && r->precision.fp8 == RUN_FP8_TENSOR;
    r->train.precision = (int32_t)precision;
    r->precision.weights = r->precision.grads = r->precision.moments = RUN_STORED_AUTO;
    r->optimizer.stochastic_rounding = false;
}

static status reference_make(const bisect_run *run, bisect_reference which, run_precision precision)
{
    bisect *b = run->b;
    bisect_rank *k = NULL;
    TRY(arena_new(b->a, 1, &k));
    *k = (bisect_rank){.h = b->h, .a = b->a, .r = alone(b->r), .options = *run->options};
    if (which != REF_TYPES || !b->is_narrow) store_as(&k->r, precision);
    k->options.mesh = run_config_mesh(&k->r, 0);
    k->options.threads = assemble_threads(b->r);
    if (which == REF_FP64) {
        k->options.backend = "ref";
        k->options.device = "cpu";
    }
    TRY(bisect_rank_plan(b, k));
    b->refs[which] = k;
    return ST_OK;
}

// fp64 does about 5e8 operations per second.
static bool fp64_is_affordable(const bisect *b)
{
    const double most = b->order->fp64_flops > 0.0 ? b->order->fp64_flops : 3e10;
    const op_model *m = b->refs[REF_FP32]->plans.whole;
    return op_model_flops_per_token(m, b->r->train.seq) *
               (double)(run_config_batch_max(b->r) * b->r->train.seq) <
           most;
}

// Bytes of the copies of a step, on all sides.
static int64_t seen_bytes(const bisect *b, const bisect_points *points)
{
    const int64_t rows = run_config_batch_max(b->r) * b->r->train.seq;
    int64_t columns = 0;
    for (int64_t i = 0; i < points->count; i++) columns += points->rows[i].columns;
    const int64_t sides =
        plan_mesh_size(&b->ranks[0]->options.mesh, AXIS_TP) + 4; // fp64 counts twice
    return rows * columns * sides * (int64_t)sizeof(float) +
           6 * b->refs[REF_FP32]->plans.whole->parameters * (int64_t)sizeof(double);
}

static status memory_check(bisect *b)
{
    int64_t bytes = 0;
    const int64_t limit = host_memory_bytes(b->h);
    char need[32], have[32];
    for (int64_t r = 0; r < b->rank_count; r++) bytes += b->ranks[r]->plans.arena_bytes;
    for (int i = 0; i < REF_COUNT; i++) {
        if (b->refs[i] != NULL) bytes += b->refs[i]->plans.arena_bytes;
    }
    const op_model *m = b->refs[REF_FP32]->plans.whole; // all ranks have its tensors
    TRY(bisect_points_make(b->a, m, true, &b->points));
    b->out->is_inside = bytes + seen_bytes(b, &b->points) <= limit / 4 * 3;
    if (!b->out->is_inside) TRY(bisect_points_make(b->a, m, false, &b->points));
    bytes += seen_bytes(b, &b->points);
    if (bytes <= limit) return ST_OK;
    return fail(
        ST_DOES_NOT_FIT,
        "all ranks, the references and the compared values need %s and there are %s; a smaller "
        "train.global_batch or train.seq shows the same mistakes",
        text_bytes_human(bytes, need), text_bytes_human(limit, have));
}

static status references_plan(const bisect_run *run)
{
    bisect *b = run->b;
    TRY(reference_make(run, REF_FP32, RUN_FP32));
    b->out->by_fp64 = fp64_is_affordable(b);
    if (b->out->by_fp64) TRY(reference_make(run, REF_FP64, RUN_FP64));
    if (b->is_narrow || !b->out->by_fp64) TRY(reference_make(run, REF_TYPES, RUN_BF16));
    b->out->arch = b->spec.arch;
    b->out->parameters = b->refs[REF_FP32]->plans.whole->parameters;
    return memory_check(b);
}

// All sides begin with the references' weights.
static status references_open(const bisect_run *run)
{
    bisect *b = run->b;
    bisect_rank *one = b->refs[REF_FP32];
    const op_model *m = one->plans.whole;
    for (int i = 0; i < REF_COUNT; i++) {
        if (b->refs[i] != NULL) TRY(bisect_rank_open(b->refs[i]));
    }
    TRY(arena_new(b->a, m->weight_count + 1, &b->state));
    for (int32_t w = 0; w < m->weight_count; w++) {
        const int64_t count = bisect_state_elements(&m->weights[w]);
        const plan_piece whole = {.rows = m->weights[w].rows, .columns = m->weights[w].columns};
        TRY(arena_new(b->a, BISECT_STATES * count, &b->state[w]));
        TRY(bisect_state_read(one, w, 0, &whole, b->state[w]));
    }
    return bisect_compare_start(b);
}

// ---- steps --------------------------------------------------------------------------------------

static status step_prepare(bisect *b)
{
    exec_input input = {.batch_count = 0};
    int64_t wait_ns = 0;
    if (b->order->stop_asked != NULL && b->order->stop_asked(b->order->context)) {
        return fail(ST_STOPPED, "stopped after %lld steps that agree", (long long)b->step);
    }
    b->step++;
    b->consumed += b->sequences;
    b->sequences = run_config_batch(b->r, b->step - 1);
    TRY(train_loader_take(b->loader, b->step, &input, &wait_ns));
    ASSERT(input.batch_count <= BISECT_BATCHES);
    memcpy(b->batch, input.batch, sizeof(b->batch));
    b->batch_count = input.batch_count;
    return ST_OK;
}

static status references_step(bisect *b)
{
    for (int i = 0; i < REF_COUNT; i++) {
        if (b->refs[i] != NULL) TRY(bisect_rank_step(b, b->refs[i]));
    }
    if (b->ranks[0]->results.skip == 0) b->applied++;
    TRY(bisect_compare_step(b));
    b->out->steps = b->step;
    b->out->sequences = b->sequences;
    if (b->step == b->order->steps) b->over = true;
    return ST_OK;
}

static status steps_run(bisect_run *run, bisect_rank *k)
{
    bisect *b = run->b;
    const bool first = k->rank == 0;
    for (;;) {
        if (first && !b->over) TRY(step_prepare(b));
        TRY(barrier_wait(&run->barrier));
        if (b->over) return ST_OK;
        TRY(bisect_rank_step(b, k));
        TRY(barrier_wait(&run->barrier));
        if (first) TRY(references_step(b));
    }
}

static status rank_run(bisect_run *run, bisect_rank *k)
{
    const bool first = k->rank == 0;
    TRY(bisect_rank_plan(run->b, k));
    TRY(barrier_wait(&run->barrier));
    if (first) TRY(references_plan(run));
    TRY(barrier_wait(&run->barrier));
    TRY(bisect_rank_open(k));
    TRY(barrier_wait(&run->barrier));
    if (first) TRY(references_open(run));
    TRY(steps_run(run, k));
    return barrier_wait(&run->barrier); // peers access its memory
}

static status rank_work(void *context, comm *all, int rank, arena *a)
{
    bisect_run *run = context;
    bisect_rank *k = NULL;
    status st = arena_new(a, 1, &k);
    if (st == ST_OK) {
        *k = (bisect_rank){.h = run->b->h,
                           .a = a,
                           .all = all,
                           .rank = rank,
                           .r = *run->b->r,
                           .options = *run->options};
        k->options.mesh = run_config_mesh(run->b->r, rank);
        run->b->ranks[rank] = k;
        st = rank_run(run, k);
    }
    if (st != ST_OK) barrier_fail(&run->barrier);
    if (k != NULL) bisect_rank_close(k);
    return st;
}

// ---- the run ------------------------------------------------------------------------------------

static status ranks_run(bisect *b, const assemble_options *options)
{
    enum { RANKS_MAX = 64 };
    bisect_run run = {.b = b, .options = options, .barrier = {.ranks = b->rank_count}};
    if (b->rank_count > RANKS_MAX) {
        return fail(ST_UNSUPPORTED, "the layout has %lld ranks, bisect runs at most %d",
                    (long long)b->rank_count, RANKS_MAX);
    }
    if (pthread_mutex_init(&run.barrier.lock, NULL) != 0) return fail(ST_INTERNAL, "no lock");
    if (pthread_cond_init(&run.barrier.moved, NULL) != 0) {
        (void)pthread_mutex_destroy(&run.barrier.lock);
        return fail(ST_INTERNAL, "no condition");
    }
    const status st = b->rank_count == 1
                          ? rank_work(&run, NULL, 0, b->a)
                          : check_ranks_run(b->h, b->a, (int)b->rank_count, rank_work, &run);
    for (int i = 0; i < REF_COUNT; i++) {
        if (b->refs[i] != NULL) bisect_rank_close(b->refs[i]);
    }
    (void)pthread_cond_destroy(&run.barrier.moved);
    (void)pthread_mutex_destroy(&run.barrier.lock);
    return st;
}

static status config_take(bisect *b, run_config *r)
{
    if (r->comm.compression.mode != RUN_COMPRESS_NONE) {
        return fail(
            ST_CONFIG_CONFLICT,
            "comm.compression: the error of a codec is not rounding, so bisect would report it; "
            "give comm.compression=none");
    }
    // The usual initial factor makes the run skip its first steps.
    if (r->train.precision == RUN_FP16 && r->precision.loss_scale.initial > 128.0) {
        r->precision.loss_scale.initial = 128.0;
    }
    const run_types t = run_config_types(r);
    b->types = t;
    b->is_narrow = t.compute != DTYPE_F32 || t.weights != DTYPE_F32 || t.grads != DTYPE_F32 ||
                   t.moments != DTYPE_F32;
    b->rank_count = run_config_ranks(r);
    return ST_OK;
}

static status in_order(bisect *b, run_config *r)
{
    char *cache = NULL;
    plan_mesh one = {0};
    const int64_t ranks = b->rank_count, share = max_i64(1, assemble_threads(r) / ranks);
    TRY(train_loader_model(b->loader, r, &b->spec));
    TRY(assemble_layout_check(r, &b->spec));
    const assemble_options options = {
        .threads = (int)share,
        .device = run_config_device(r),
        .backend = run_config_backend(r),
        .documents = r->data.packing == RUN_PACKING_MASKED,
    };
    assemble_proved proved;
    TRY(assemble_memory_settle(r, &b->spec, &options));
    if (b->order->tamper == NULL) TRY(assemble_prove(b->h, b->a, r, &b->spec, &options, &proved));
    TRY(path_join(b->a, r->run.dir, "cache", &cache));
    TRY(b->h->api->path_mkdir(b->h, cache));
    TRY(train_loader_prepare(b->loader, cache, NULL, NULL));
    TRY(train_loader_start(b->loader, &one, 1, 0));
    TRY(arena_new(b->a, ranks, &b->ranks));
    return ranks_run(b, &options);
}

status diagnose_bisect(const host *h, arena *a, const bisect_order *order, bisect_report *out)
{
    bisect *b = NULL;
    memset(out, 0, sizeof(*out));
    TRY(arena_new(a, 1, &b));
    *b = (bisect){.h = h, .a = a, .order = order, .out = out, .r = order->r};
    TRY(arena_new(a, BISECT_LAST_BYTES, &b->last));
    TRY(config_take(b, order->r));
    out->config = order->r;
    out->ranks = b->rank_count;
    TRY(train_loader_open(h, a, order->r, &b->loader));
    const status st = in_order(b, order->r);
    train_loader_close(b->loader);
    return st;
}
