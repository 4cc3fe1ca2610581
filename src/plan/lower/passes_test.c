// The passes of lowering one by one, over small models, every schedule and order: the result of
// each is complete, and no pass changes the results of those before it.
#include "fixtures/plan/plan_sample.h"
#include "plan/access.h"
#include "plan/lower/passes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LAYERS = 4, SEQ = 8 };

typedef struct setting {
    const char *schedule; // NULL: one stage
    int32_t pp, dp, zero;
    bool strict, evaluates;
    op_recompute recompute;
} setting;

static const setting settings[] = {
    {NULL, 1, 1, 0, false, false, RECOMPUTE_NONE},
    {NULL, 1, 2, 1, true, false, RECOMPUTE_FULL},
    {NULL, 1, 2, 3, false, false, RECOMPUTE_SELECTIVE},
    {NULL, 1, 1, 0, false, true, RECOMPUTE_NONE},
    {"1f1b", 2, 2, 2, false, false, RECOMPUTE_FULL},
    {"interleaved", 2, 1, 0, false, false, RECOMPUTE_NONE},
    {"zb-h1", 2, 2, 3, false, false, RECOMPUTE_NONE},
    {"zb-v", 2, 1, 0, true, false, RECOMPUTE_SELECTIVE},
    {"dualpipe", 2, 1, 0, false, false, RECOMPUTE_NONE},
    {"gpipe", 2, 1, 0, false, true, RECOMPUTE_NONE},
};

typedef struct bench {
    arena *a;
    plan_table run;
    plan_request request;
    lower_passes s;
} bench;

static int64_t workspace_bytes(void *context, const op_program *program, const op_node *node,
                               const extent_binding *extents, int64_t seq, int64_t cache_seq)
{
    (void)context, (void)program, (void)extents, (void)seq, (void)cache_seq;
    return node->code == OP_MATMUL ? 256 : 0;
}

static void bench_open(bench *x, const setting *s, int32_t stage)
{
    const plan_sample_config config = {.layers = LAYERS,
                                       .dim = 32,
                                       .ffn = 48,
                                       .heads = 4,
                                       .vocab = 67,
                                       .recompute = s->recompute,
                                       .purpose = s->evaluates ? PURPOSE_EVALUATE : PURPOSE_TRAIN};
    op_model *m = NULL;
    memset(x, 0, sizeof(*x));
    assert_int_equal(arena_create("passes", 0, &x->a), ST_OK);
    x->run.a = x->a;
    assert_int_equal(plan_sample_model(x->a, &config, &m), ST_OK);
    x->request = (plan_request){
        .model = m,
        .mesh = {.size = {[AXIS_DP] = s->dp, [AXIS_PP] = s->pp}, .at = {[AXIS_PP] = stage}},
        .sequences = 8 * s->dp,
        .micro_batch = 1,
        .seq = SEQ,
        .pipeline = {.schedule = s->schedule != NULL ? plan_schedule_find(s->schedule) : NULL},
        .zero = s->zero,
        .strict = s->strict,
        .shards = 8,
        .workspace = workspace_bytes};
    if (s->evaluates) return;
    assert_int_equal(
        plan_sample_rows_optimizer(x->a, m, &x->request.mesh, s->zero, &x->request.optimizer),
        ST_OK);
}

static void collect_run(bench *x, const setting *s, int32_t stage)
{
    bench_open(x, s, stage);
    assert_int_equal(plan_lower_begin(x->a, x->a, &x->request, &x->run, &x->s), ST_OK);
    assert_int_equal(plan_lower_collect(&x->s), ST_OK);
}

typedef void (*bench_check)(bench *x, const setting *s);

static void all_settings(bench_check check)
{
    for (int64_t i = 0; i < COUNT_OF(settings); i++) {
        for (int32_t stage = 0; stage < settings[i].pp; stage++) {
            bench x;
            collect_run(&x, &settings[i], stage);
            check(&x, &settings[i]);
            arena_destroy(x.a);
        }
    }
}

// ---- expand -------------------------------------------------------------------------------------

// Each micro-batch goes forward once through each layer of its direction, and back as often, both
// halves; weight lists take every row once, and a layer is complete once.
static void visits_are_whole(bench *x, const setting *s)
{
    const expanded *e = &x->s.x;
    for (int32_t layer = 0; layer < x->request.model->layer_count; layer++) {
        int64_t forward = 0, input = 0, weight = 0, complete = 0, rows = 0, share = 8;
        for (int64_t i = 0; i < e->visit_count; i++) {
            const layer_visit *v = &e->visits[i];
            if (v->layer != layer || v->microbatch < 0) continue;
            forward += v->forward ? 1 : 0;
            input += v->input ? 1 : 0;
            weight += v->weight ? 1 : 0;
            complete += v->completes ? 1 : 0;
            for (int32_t k = v->runs_begin; k < v->runs_begin + v->runs_count; k++) {
                const layer_run *run = &e->runs[k];
                if (run->source < 0 && run->list == OP_BACKWARD_WEIGHT) rows += run->sequence_count;
            }
        }
        if (e->chunk_of[layer] < 0) share = 0;
        if (e->two_ways) share /= 2;
        assert_int_equal(forward, share);
        assert_int_equal(input, s->evaluates ? 0 : share);
        assert_int_equal(weight, s->evaluates ? 0 : share);
        assert_int_equal(rows, s->evaluates ? 0 : share);
        assert_int_equal(complete, share > 0 && !e->two_ways && !s->evaluates ? 1 : 0);
    }
}

static void expand_makes_all_visits(void **state)
{
    (void)state;
    all_settings(visits_are_whole);
}

// ---- bind ---------------------------------------------------------------------------------------

// Every operand of every action has a tensor.
static void operands_are_bound(bench *x, const setting *s)
{
    const plan *p = x->s.in.p;
    (void)s;
    for (int64_t i = 0; i < x->s.b.action_count; i++) {
        const plan_action *a = &x->s.b.actions[i];
        const plan_binding *b = &p->bindings[a->binding];
        for (int32_t n = a->ops_begin; n < a->ops_begin + a->ops_count; n++) {
            const op_node *node = &b->program->lists[a->list].nodes[n];
            for (int k = 0; k < ACCESS_WORKSPACE; k++) {
                const operand_access is = plan_access_operand(b->program, node, k, a->accumulate);
                assert_true(is.owner == TENSOR_NONE || b->tensor[is.owner] != -1);
            }
        }
    }
}

static void bind_gives_every_operand_a_tensor(void **state)
{
    (void)state;
    all_settings(operands_are_bound);
}

// ---- collect ------------------------------------------------------------------------------------

// The compute actions are the bound ones, in order, cut or not; waits refer to earlier actions or
// to the step before.
static void list_is_whole(bench *x, const setting *s)
{
    const plan *p = x->s.in.p;
    int64_t bound_nodes = 0, nodes = 0, ticks = 0;
    (void)s;
    for (int64_t i = 0; i < x->s.b.action_count; i++) bound_nodes += x->s.b.actions[i].ops_count;
    for (int64_t i = 0; i < p->action_count; i++) {
        const plan_action *a = &p->actions[i];
        nodes += a->kind == ACTION_COMMUNICATE ? 0 : a->ops_count;
        ticks += x->s.c.ticks[i];
        for (int32_t k = 0; k < a->waits_count; k++) {
            const int32_t on = p->waits[a->waits_begin + k];
            assert_true(on < i && -1 - on < p->action_count);
        }
    }
    assert_int_equal(nodes, bound_nodes);
    assert_true(ticks >= nodes);
    assert_int_equal(p->actions[0].kind, ACTION_COPY);
    assert_int_equal(p->actions[p->action_count - 1].kind, ACTION_READBACK);
    for (int64_t i = 0; i < x->s.x.visit_count; i++) {
        assert_true(x->s.c.visit_action[i] <= x->s.c.visit_action[i + 1]);
    }
}

static void collect_keeps_all_nodes(void **state)
{
    (void)state;
    all_settings(list_is_whole);
}

// ---- the last pass ------------------------------------------------------------------------------

static plan *made(bench *x, const setting *s, int32_t stage, plan_last last)
{
    plan *p = NULL;
    bench_open(x, s, stage);
    x->request.last = last;
    assert_int_equal(plan_create(x->a, &x->request, &x->run, &p), ST_OK);
    return p;
}

static void a_shorter_lowering_says_the_same(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(settings); i++) {
        bench of_all, of_placed, of_collected;
        const setting *s = &settings[i];
        const plan *all = made(&of_all, s, s->pp - 1, PLAN_WHOLE);
        const plan *placed = made(&of_placed, s, s->pp - 1, PLAN_PLACED);
        const plan *collected_only = made(&of_collected, s, s->pp - 1, PLAN_COLLECTED);
        assert_int_equal(placed->transient_bytes, all->transient_bytes);
        assert_int_equal(placed->live_bytes, all->live_bytes);
        assert_int_equal(placed->action_count, all->action_count);
        assert_int_equal(collected_only->action_count, all->action_count);
        assert_int_equal(collected_only->wait_count, all->wait_count);
        for (int64_t k = 0; k < all->action_count; k++) {
            const plan_action *x = &all->actions[k], *y = &collected_only->actions[k];
            assert_int_equal(x->kind, y->kind);
            assert_int_equal(x->stream, y->stream);
            assert_int_equal(x->ops_begin, y->ops_begin);
            assert_int_equal(x->ops_count, y->ops_count);
            if (x->kind != ACTION_COMMUNICATE) continue;
            assert_true(strlen(all->comms[x->comm].name) > 0);
        }
        arena_destroy(of_all.a);
        arena_destroy(of_placed.a);
        arena_destroy(of_collected.a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expand_makes_all_visits),
        cmocka_unit_test(bind_gives_every_operand_a_tensor),
        cmocka_unit_test(collect_keeps_all_nodes),
        cmocka_unit_test(a_shorter_lowering_says_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
