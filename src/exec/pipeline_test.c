// Pipelines for real: ranks as threads over shared memory, every schedule, alone and with dp. In strict
// order the weights and moments of every stage are those of one rank, to the bit; in fast order near them.
#include "comm/test_ranks.h"
#include "exec/exec.h"
#include "plan/plan_sample.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum {
    SEQ = 8,
    SEQUENCES = 16,
    VOCAB = 37,
    STEPS = 3,
    LAYERS = 8,
    MAX_TENSORS = 400,
    MAX_RANKS = 8
};

// The state at the end of one rank's run, by name.
typedef struct kept {
    char name[PLAN_NAME_BYTES];
    int64_t bytes;
    float *values;
} kept;

typedef struct trial {
    const char *schedule; // NULL: one stage
    int32_t pp, dp, chunks, micro_batch, shards;
    int32_t stages[LAYERS]; // layers of each; first 0: even
    bool strict, tied;
    op_recompute recompute;
    const kept *want; // of one rank; NULL: this is it
    int64_t want_count;
    kept *keep;
    int64_t *keep_count;
    double loss[MAX_RANKS][STEPS + 1]; // the last is of an evaluation
    double worst[MAX_RANKS];           // relative difference to one rank
} trial;

static float weight_value(const char *name, int64_t k, int ndim)
{
    uint32_t seed = 17;
    for (const char *c = name; *c != '\0'; c++) seed = seed * 31 + (uint32_t)(unsigned char)*c;
    const uint32_t word = (uint32_t)(k * 2654435761u) ^ seed * 40503u;
    return ndim == 1 ? 1.0f : ((float)(word % 2001) - 1000.0f) * 3e-4f;
}

static status state_init(exec *e, const plan_table *run)
{
    for (int64_t i = 0; i < run->count; i++) {
        const plan_tensor *t = &run->tensors[i];
        if (t->role != ROLE_WEIGHT && t->role != ROLE_STATE) continue;
        const int64_t count = t->bytes / 4;
        float *values = calloc((size_t)count, sizeof(float));
        if (values == NULL) return fail_at(__FILE__, __LINE__, ST_NO_MEMORY, "test");
        for (int64_t k = 0; k < count && t->role == ROLE_WEIGHT; k++) {
            values[k] = weight_value(t->name, k, t->ndim);
        }
        const status st = exec_write(e, i, 0, values, t->bytes);
        free(values);
        TRY(st);
    }
    return exec_step_reset(e, 1.0);
}

static double difference(const float *a, const float *b, int64_t count)
{
    double most = 0.0, scale = 1e-3;
    for (int64_t i = 0; i < count; i++) {
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
        scale = fmax(scale, fabs((double)b[i]));
    }
    return most / scale;
}

// Keeps the state, or compares it with what is kept.
static status state_take(exec *e, const plan_table *run, trial *t, int rank)
{
    for (int64_t i = 0; i < run->count; i++) {
        const plan_tensor *tensor = &run->tensors[i];
        if (tensor->role != ROLE_WEIGHT && tensor->role != ROLE_STATE) continue;
        const int64_t count = tensor->dims[0] * (tensor->ndim == 2 ? tensor->dims[1] : 1);
        float *values = calloc((size_t)count, sizeof(float));
        if (values == NULL) return fail_at(__FILE__, __LINE__, ST_NO_MEMORY, "test");
        TRY(exec_read(e, i, 0, values, count * 4));
        if (t->want == NULL) {
            kept *k = &t->keep[(*t->keep_count)++];
            (void)snprintf(k->name, sizeof(k->name), "%s", tensor->name);
            k->bytes = count * 4;
            k->values = values;
            continue;
        }
        const kept *k = NULL;
        for (int64_t w = 0; w < t->want_count; w++) {
            if (strcmp(t->want[w].name, tensor->name) == 0) k = &t->want[w];
        }
        if (k == NULL || k->bytes != count * 4)
            return fail_at(__FILE__, __LINE__, ST_INTERNAL, "%s?", tensor->name);
        if (t->strict && memcmp(k->values, values, (size_t)k->bytes) != 0) {
            return fail_at(__FILE__, __LINE__, ST_INTERNAL, "%s has other bits on rank %d",
                           tensor->name, rank);
        }
        t->worst[rank] = fmax(t->worst[rank], difference(values, k->values, count));
        free(values);
    }
    return ST_OK;
}

// All steps of training, then one of evaluation, which is `plans[1]`.
static status steps_run(exec *e, const plan *const plans[2], trial *t, int rank)
{
    int32_t ids[SEQUENCES * SEQ], labels[SEQUENCES * SEQ];
    step_device *d = malloc(sizeof(*d));
    if (d == NULL) return fail_at(__FILE__, __LINE__, ST_NO_MEMORY, "test");
    status st = ST_OK;
    for (int s = 0; s <= STEPS && st == ST_OK; s++) {
        const plan *p = plans[s / STEPS];
        for (int i = 0; i < SEQUENCES * SEQ; i++) {
            ids[i] = (i * 7 + s * 3) % VOCAB;
            labels[i] = i % 11 == 5 ? -1 : (i * 5 + s) % VOCAB;
        }
        const int64_t at = p->first_sequence * SEQ, bytes = p->own_sequences * SEQ * 4;
        const exec_input input = {
            .host = {.step = s + 1, .seed = 5, .lr = 1e-2, .sequences = SEQUENCES},
            .settings = {.clip = 1.0},
            .batch = {{"ids", ids + at, bytes}, {"labels", labels + at, bytes}},
            .batch_count = 2};
        int64_t step = 0;
        bool any = true;
        st = exec_begin(e, p, &input);
        if (st == ST_OK) st = s + 1 < STEPS ? exec_post(e) : exec_finish(e);
        while (st == ST_OK && any) {
            st = exec_results(e, d, &step, &any);
            if (any) t->loss[rank][step - 1] = d->loss;
        }
    }
    free(d);
    return st;
}

static status trial_plan(arena *a, trial *t, const plan_mesh *mesh, plan_table *run,
                         exec_workspace_context *workspace, const plan *out[2])
{
    plan_sample_config config = {.layers = LAYERS,
                                 .dim = 16,
                                 .ffn = 24,
                                 .heads = 2,
                                 .vocab = VOCAB,
                                 .tied = t->tied,
                                 .dropout = 0.1f,
                                 .recompute = t->recompute};
    op_model *m = NULL;
    op_program *const *optimizer = NULL;
    plan *p = NULL;
    TRY(plan_sample_model(a, &config, &m));
    TRY(plan_sample_optimizer(a, m, &optimizer));
    *workspace = (exec_workspace_context){&kern_backend_cpu, 1, t->strict};
    int32_t stages = 0;
    while (stages < LAYERS && t->stages[stages] > 0) stages++;
    plan_request request = {
        .model = m,
        .sequences = SEQUENCES,
        .micro_batch = t->micro_batch,
        .seq = SEQ,
        .mesh = *mesh,
        .pipeline = {.schedule = t->schedule != NULL ? plan_schedule_find(t->schedule) : NULL,
                     .chunks = t->chunks,
                     .layers = stages > 0 ? t->stages : NULL,
                     .layers_count = stages},
        .strict = t->strict,
        .shards = t->shards,
        .poison = true,
        .optimizer = optimizer,
        .scratch_bytes = KERN_SCRATCH_BYTES,
        .workspace = exec_workspace,
        .workspace_context = workspace};
    TRY(plan_create(a, &request, run, &p));
    out[0] = p;
    config.purpose = PURPOSE_EVALUATE;
    TRY(plan_sample_model(a, &config, &m));
    request.model = m;
    request.optimizer = NULL;
    TRY(plan_create(a, &request, run, &p));
    out[1] = p;
    plan_table_place(run);
    return ST_OK;
}

static status groups_make(arena *a, comm *c, const plan_mesh *mesh, const plan_table *run,
                          comm_group ***out)
{
    int32_t members[MAX_RANKS];
    TRY(arena_new(a, run->group_count + 1, out));
    for (int64_t made = 0; made < run->group_count; made++) {
        int64_t next = -1;
        for (int64_t i = 0; i < run->group_count; i++) {
            if ((*out)[i] != NULL) continue;
            if (next < 0 || plan_group_compare(&run->groups[i], &run->groups[next]) < 0) next = i;
        }
        const plan_group *g = &run->groups[next];
        char name[PLAN_GROUP_NAME_BYTES];
        plan_group_name(g, name);
        plan_group_members(mesh, g, members);
        TRY(comm_group_create(c, members, (int)plan_group_size(mesh, g), (int)g->use, name,
                              &(*out)[next]));
    }
    return ST_OK;
}

static status rank_run(comm *c, trial *t, arena *a)
{
    const int rank = c != NULL ? comm_rank(c) : 0;
    plan_mesh mesh = {.size = {[AXIS_PP] = t->pp, [AXIS_DP] = t->dp}};
    mesh = plan_mesh_from(&mesh, rank);
    plan_table run = {.a = a};
    exec_workspace_context workspace;
    const plan *plans[2];
    comm_group **groups = NULL;
    exec *e = NULL;
    TRY(trial_plan(a, t, &mesh, &run, &workspace, plans));
    if (c != NULL) TRY(groups_make(a, c, &mesh, &run, &groups));
    const exec_config wanted = {.api = &kern_device_cpu,
                                .device = {.h = host_real(),
                                           .backend = &kern_backend_cpu,
                                           .threads = 1,
                                           .level = kern_level_of_machine()},
                                .run = &run,
                                .plans = plans,
                                .plan_count = 2,
                                .groups = groups};
    TRY(exec_create(&wanted, &e));
    status st = state_init(e, &run);
    if (st == ST_OK) st = steps_run(e, plans, t, rank);
    if (st == ST_OK) st = state_take(e, &run, t, rank);
    if (st == ST_OK && exec_touched_bytes(e) != exec_arena_bytes(e)) {
        st = fail_at(__FILE__, __LINE__, ST_INTERNAL, "%lld bytes touched, %lld planned",
                     (long long)exec_touched_bytes(e), (long long)exec_arena_bytes(e));
    }
    if (st != ST_OK && c != NULL) comm_abort(c, st, error_last()->text);
    exec_destroy(e);
    for (int64_t i = 0; groups != NULL && i < run.group_count; i++) comm_group_destroy(groups[i]);
    return st;
}

static status rank_body(comm *c, void *context)
{
    arena *a = NULL;
    TRY(arena_create("rank", 0, &a));
    const status st = rank_run(c, context, a);
    arena_destroy(a);
    return st;
}

// ---- one rank, kept -----------------------------------------------------------------------------

typedef struct reference {
    kept tensors[MAX_TENSORS];
    int64_t count;
    double loss[STEPS + 1];
} reference;

static void reference_make(reference *r, bool strict, bool tied, int32_t shards)
{
    trial t = {.pp = 1,
               .dp = 1,
               .micro_batch = 4,
               .shards = shards,
               .strict = strict,
               .tied = tied,
               .keep = r->tensors,
               .keep_count = &r->count};
    r->count = 0;
    const status st = rank_body(NULL, &t);
    if (st != ST_OK) print_error("%s\n", error_last()->text);
    assert_int_equal(st, ST_OK);
    memcpy(r->loss, t.loss[0], sizeof(r->loss));
}

static void reference_free(reference *r)
{
    for (int64_t i = 0; i < r->count; i++) free(r->tensors[i].values);
}

static void trial_run(trial *t, const reference *want)
{
    fixture_job job = {.ranks = t->pp * t->dp,
                       .deadline_ns = INT64_C(20) * 1000000000,
                       .body = rank_body,
                       .context = t};
    t->want = want->tensors;
    t->want_count = want->count;
    fixture_run(&job);
    for (int r = 0; r < job.ranks; r++) {
        if (job.results[r].st != ST_OK) {
            print_error("%s pp %d x %d dp %d micro-batch %d, rank %d: %s\n", t->schedule, t->pp,
                        t->chunks, t->dp, t->micro_batch, r, job.results[r].text);
        }
    }
    for (int r = 0; r < job.ranks; r++) {
        assert_int_equal(job.results[r].st, ST_OK);
        for (int s = 0; s <= STEPS; s++) {
            if (t->strict) assert_true(t->loss[r][s] == want->loss[s]);
            assert_true(fabs(t->loss[r][s] - want->loss[s]) < 1e-3);
            assert_true(t->loss[r][s] == t->loss[0][s]);
        }
        assert_true(t->worst[r] < 2e-3);
    }
}

static const trial layouts[] = {
    {.schedule = "gpipe", .pp = 2, .dp = 1, .micro_batch = 4},
    {.schedule = "1f1b", .pp = 2, .dp = 1, .micro_batch = 2},
    {.schedule = "1f1b", .pp = 4, .dp = 1, .micro_batch = 1, .recompute = RECOMPUTE_FULL},
    {.schedule = "1f1b", .pp = 3, .dp = 2, .micro_batch = 2, .stages = {2, 5, 1}},
    {.schedule = "interleaved", .pp = 2, .dp = 1, .chunks = 2, .micro_batch = 2},
    {.schedule = "interleaved", .pp = 2, .dp = 2, .chunks = 4, .micro_batch = 1},
    {.schedule = "zb-h1", .pp = 4, .dp = 1, .micro_batch = 2},
    {.schedule = "zb-h1", .pp = 2, .dp = 3, .micro_batch = 1, .recompute = RECOMPUTE_SELECTIVE},
    {.schedule = "zb-h2", .pp = 4, .dp = 1, .micro_batch = 1},
    {.schedule = "zb-v", .pp = 2, .dp = 2, .micro_batch = 1},
    {.schedule = "zb-v", .pp = 4, .dp = 1, .micro_batch = 2},
    {.schedule = "dualpipe", .pp = 2, .dp = 1, .micro_batch = 2},
    {.schedule = "dualpipe", .pp = 4, .dp = 2, .micro_batch = 1},
    {.schedule = "dualpipe-v", .pp = 2, .dp = 1, .micro_batch = 2},
    {.schedule = "dualpipe-v", .pp = 4, .dp = 1, .micro_batch = 1},
};

static void run_all(bool strict, bool tied)
{
    static reference one;
    reference_make(&one, strict, tied, 8);
    for (int i = 0; i < COUNT_OF(layouts); i++) {
        static trial t;
        t = layouts[i];
        t.strict = strict;
        t.tied = tied;
        t.shards = 8;
        trial_run(&t, &one);
    }
    reference_free(&one);
}

static void strict_has_the_bits_of_one_rank(void **state)
{
    (void)state;
    run_all(true, false);
    run_all(true, true);
}

static void fast_is_near(void **state)
{
    (void)state;
    run_all(false, false);
    run_all(false, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strict_has_the_bits_of_one_rank),
        cmocka_unit_test(fast_is_near),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
