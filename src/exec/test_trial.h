// For tests of whole steps of several ranks, as threads over shared memory: each trains a small model for a few
// steps, and its weights and moments are compared with what one rank has.
#ifndef EXEC_TEST_TRIAL_H
#define EXEC_TEST_TRIAL_H

#include "comm/test_ranks.h"
#include "exec/test_state.h"
#include "op/context.h"
#include "op/zigzag.h"
#include "plan/plan_sample.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

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

typedef struct trial {
    const char *schedule; // NULL: one stage
    int32_t pp, dp, chunks, micro_batch, shards;
    int32_t zero, zero_group;
    int32_t cp, cp_shards;   // 0: 1
    int32_t cp_heads;        // of cp; 0: 1
    int32_t turns;           // of its zigzag; 0: 1
    int32_t heads, kv_heads; // 0: 2, and as many
    bool ring, once;
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

// This rank's positions of its sequences.
static inline void positions_take(const plan *p, const plan_mesh *mesh, int64_t turns,
                                  const int32_t *from, int32_t *to)
{
    const int64_t ways = plan_mesh_size(mesh, AXIS_CP);
    for (int64_t i = 0; i < p->own_sequences * p->seq; i++) {
        const int64_t sequence = p->first_sequence + i / p->seq;
        const int64_t at = mesh->at[AXIS_CP];
        to[i] = from[sequence * SEQ + zigzag_position(ways, turns, at, p->seq, i % p->seq)];
    }
}

// All steps of training, then one of evaluation, which is `plans[1]`.
static inline status steps_run(exec *e, const plan *const plans[2], const plan_mesh *mesh, trial *t,
                               int rank)
{
    int32_t ids[SEQUENCES * SEQ], labels[SEQUENCES * SEQ];
    int32_t own_ids[SEQUENCES * SEQ], own_labels[SEQUENCES * SEQ];
    step_device *d = malloc(sizeof(*d));
    if (d == NULL) return fail_at(__FILE__, __LINE__, ST_NO_MEMORY, "test");
    status st = ST_OK;
    for (int s = 0; s <= STEPS && st == ST_OK; s++) {
        const plan *p = plans[s / STEPS];
        for (int i = 0; i < SEQUENCES * SEQ; i++) {
            ids[i] = (i * 7 + s * 3) % VOCAB;
            labels[i] = i % 11 == 5 ? -1 : (i * 5 + s) % VOCAB;
        }
        const int64_t bytes = p->own_sequences * p->seq * 4;
        positions_take(p, mesh, t->turns, ids, own_ids);
        positions_take(p, mesh, t->turns, labels, own_labels);
        const exec_input input = {
            .host = {.step = s + 1, .seed = 5, .lr = 1e-2, .sequences = SEQUENCES},
            .settings = {.clip = 1.0},
            .batch = {{"ids", own_ids, bytes}, {"labels", own_labels, bytes}},
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

static inline status trial_model(arena *a, const trial *t, const plan_mesh *mesh,
                                 const plan_sample_config *config, op_model **out)
{
    const op_context how = {.ways = plan_mesh_size(mesh, AXIS_CP),
                            .at = mesh->at[AXIS_CP],
                            .heads = plan_mesh_heads(mesh),
                            .ring = t->ring,
                            .turns = t->turns,
                            .shards = t->cp_shards > 0 ? t->cp_shards : 1,
                            .ordered = t->strict};
    TRY(plan_sample_model(a, config, out));
    return op_model_context(a, *out, &how, out);
}

static inline status trial_plan(arena *a, trial *t, const plan_mesh *mesh, plan_table *run,
                                exec_workspace_context *workspace, const plan *out[2])
{
    plan_sample_config config = {.layers = LAYERS,
                                 .dim = 16,
                                 .ffn = 24,
                                 .heads = t->heads > 0 ? t->heads : 2,
                                 .kv_heads = t->kv_heads,
                                 .vocab = VOCAB,
                                 .tied = t->tied,
                                 .dropout = 0.1f,
                                 .recompute = t->recompute};
    op_model *m = NULL;
    op_program *const *optimizer = NULL;
    plan *p = NULL;
    TRY(trial_model(a, t, mesh, &config, &m));
    TRY(plan_sample_rows_optimizer(a, m, mesh, t->zero, &optimizer));
    *workspace =
        (exec_workspace_context){.backend = &kern_backend_cpu, .threads = 1, .strict = t->strict};
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
                     .rows = stages > 0 ? t->stages : NULL,
                     .rows_count = stages},
        .zero = t->zero,
        .sums_once = t->once,
        .strict = t->strict,
        .shards = t->shards,
        .cp_shards = t->cp_shards,
        .poison = true,
        .optimizer = optimizer,
        .scratch_bytes = KERN_SCRATCH_BYTES,
        .workspace = exec_workspace,
        .workspace_context = workspace};
    plan_mesh at = *mesh;
    for (at.at[AXIS_DP] = 0; at.at[AXIS_DP] < t->dp; at.at[AXIS_DP]++) {
        int64_t first = 0, own = 0;
        plan_own_sequences(&at, t->strict, t->shards, SEQUENCES, &first, &own);
        const int64_t count = own / t->micro_batch, fewest = request.fewest_microbatches;
        request.fewest_microbatches = at.at[AXIS_DP] == 0 ? count : min_i64(count, fewest);
        request.most_microbatches = max_i64(count, request.most_microbatches);
    }
    TRY(plan_create(a, &request, run, &p));
    out[0] = p;
    config.purpose = PURPOSE_EVALUATE;
    TRY(trial_model(a, t, mesh, &config, &m));
    request.model = m;
    request.optimizer = NULL;
    TRY(plan_create(a, &request, run, &p));
    out[1] = p;
    plan_table_place(run);
    return ST_OK;
}

static inline status rank_run(comm *c, trial *t, arena *a)
{
    const int rank = c != NULL ? comm_rank(c) : 0;
    plan_mesh mesh = {.size = {[AXIS_PP] = t->pp, [AXIS_DP] = t->dp, [AXIS_CP] = t->cp},
                      .zero_group = t->zero_group,
                      .cp_heads = t->cp_heads};
    mesh = plan_mesh_from(&mesh, rank);
    plan_table run = {.a = a};
    exec_workspace_context workspace;
    const plan *plans[2];
    comm_group **groups = NULL;
    exec *e = NULL;
    TRY(trial_plan(a, t, &mesh, &run, &workspace, plans));
    if (c != NULL) TRY(exec_groups_make(a, c, &mesh, &run, &groups));
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
    status st = state_init(e, &run, &mesh);
    if (st == ST_OK) st = steps_run(e, plans, &mesh, t, rank);
    if (st == ST_OK && t->want == NULL) st = state_keep(e, &run, t->keep, t->keep_count);
    if (st == ST_OK && t->want != NULL) {
        st = state_compare(e, &run, &mesh, t->want, t->want_count, t->strict, &t->worst[rank]);
    }
    if (st == ST_OK && exec_touched_bytes(e) != exec_arena_bytes(e)) {
        st = fail_at(__FILE__, __LINE__, ST_INTERNAL, "%lld bytes touched, %lld planned",
                     (long long)exec_touched_bytes(e), (long long)exec_arena_bytes(e));
    }
    if (st != ST_OK && c != NULL) comm_abort(c, st, error_last()->text);
    exec_destroy(e);
    exec_groups_destroy(groups, &run);
    return st;
}

static inline status rank_body(comm *c, void *context)
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

// One rank of what `like` says of order and model.
static inline void reference_like(reference *r, const trial *like)
{
    trial t = {.pp = 1,
               .dp = 1,
               .micro_batch = 4,
               .shards = like->shards,
               .cp_shards = like->cp_shards,
               .heads = like->heads,
               .kv_heads = like->kv_heads,
               .strict = like->strict,
               .tied = like->tied,
               .keep = r->tensors,
               .keep_count = &r->count};
    r->count = 0;
    const status st = rank_body(NULL, &t);
    if (st != ST_OK) print_error("%s\n", error_last()->text);
    assert_int_equal(st, ST_OK);
    memcpy(r->loss, t.loss[0], sizeof(r->loss));
}

static inline void reference_make(reference *r, bool strict, bool tied, int32_t shards,
                                  int32_t cp_shards)
{
    const trial like = {.shards = shards, .cp_shards = cp_shards, .strict = strict, .tied = tied};
    reference_like(r, &like);
}

static inline void reference_free(reference *r)
{
    for (int64_t i = 0; i < r->count; i++) free(r->tensors[i].values);
}

static inline void trial_run(trial *t, const reference *want)
{
    fixture_job job = {.ranks = t->pp * t->dp * (t->cp > 0 ? t->cp : 1),
                       .deadline_ns = INT64_C(20) * 1000000000,
                       .body = rank_body,
                       .context = t};
    t->want = want->tensors;
    t->want_count = want->count;
    fixture_run(&job);
    for (int r = 0; r < job.ranks; r++) {
        if (job.results[r].st != ST_OK) {
            print_error(
                "%s pp %d x %d dp %d cp %d (%d heads%s) zero %d%s in %d micro-batch %d strict %d tied "
                "%d, rank %d: %s\n",
                t->schedule != NULL ? t->schedule : "", t->pp, t->chunks, t->dp, t->cp, t->cp_heads,
                t->ring ? ", ring" : "", t->zero, t->once ? " once" : "", t->zero_group,
                t->micro_batch, t->strict, t->tied, r, job.results[r].text);
        }
    }
    for (int r = 0; r < job.ranks; r++) {
        assert_int_equal(job.results[r].st, ST_OK);
        for (int s = 0; s <= STEPS; s++) {
            if (t->strict) assert_true(t->loss[r][s] == want->loss[s]);
            assert_true(fabs(t->loss[r][s] - want->loss[s]) < 1e-3);
            assert_true(t->loss[r][s] == t->loss[0][s]);
        }
        assert_true(t->worst[r] < 2e-4);
    }
}

#endif
