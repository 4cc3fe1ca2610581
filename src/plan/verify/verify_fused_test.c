// Marks of fused pairs in sound plans, changed so that one launch would give other bits than two.
#include "fixtures/plan/verify_sample.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

// micro_batch 4: a rank has one micro-batch, so packed weights are used by one node only.
static void job_make(int64_t micro_batch, arena **a, sample_job *j)
{
    const sample_settings settings = {.dp = 2, .sequences = 8, .micro_batch = micro_batch};
    plan_verified verified;
    assert_int_equal(arena_create("verify_fused_test", 0, a), ST_OK);
    assert_int_equal(sample_make(*a, &settings, j), ST_OK);
    assert_int_equal(sample_verify(j, &verified), ST_OK);
}

static void refused(arena *a, const sample_job *j, const char *action, const char *what)
{
    plan_verified verified;
    assert_int_equal(sample_verify(j, &verified), ST_BROKEN_PLAN);
    assert_non_null(strstr(error_last()->text, action));
    if (strstr(error_last()->text, what) == NULL) fail_msg("%s", error_last()->text);
    arena_destroy(a);
}

// The number of the first node in an action that is fused with the next one.
static int64_t fused_node(const plan *p, const plan_action *a)
{
    const bool *fused = p->bindings[a->binding].fused[a->list];
    assert_non_null(fused);
    for (int64_t i = a->ops_begin; i + 1 < a->ops_begin + a->ops_count; i++) {
        if (fused[i]) return i;
    }
    fail_msg("no node is fused");
    return 0;
}

static void fused_result_lies_over_an_operand(void **state)
{
    (void)state;
    arena *a = NULL;
    sample_job j;
    job_make(2, &a, &j);
    plan *p = j.plans[1];
    const int32_t index = sample_find_list(p, "layers.1", OP_FORWARD, 0, 0);
    const plan_action *action = sample_action(p, index);
    const op_node *first =
        &p->bindings[action->binding].program->lists[action->list].nodes[fused_node(p, action)];
    int32_t *map = sample_own_map(p, index);
    map[first[1].out[0]] = map[first->in[1]]; // the weight
    refused(a, &j, "rank 1, action", "writes bytes that the other still uses");
}

static void fused_result_lies_over_packed_weights(void **state)
{
    (void)state;
    arena *a = NULL;
    sample_job j;
    job_make(4, &a, &j);
    plan *p = j.plans[0];
    const int32_t index = sample_find_list(p, "layers.0", OP_FORWARD, 0, 0);
    const plan_action *action = sample_action(p, index);
    const plan_binding *b = &p->bindings[action->binding];
    const int64_t at = fused_node(p, action);
    const op_node *second = &b->program->lists[action->list].nodes[at + 1];
    plan_tensor *packed = &p->tensors[b->packed[action->list][at]];
    packed->offset = p->tensors[b->tensor[second->out[0]]].offset;
    refused(a, &j, "rank 0, action", "writes bytes that the other still uses");
}

static void fused_nodes_are_no_pair(void **state)
{
    (void)state;
    arena *a = NULL;
    sample_job j;
    bool *marks = NULL;
    job_make(2, &a, &j);
    plan *p = j.plans[0];
    const plan_action *action = sample_action(p, sample_find_list(p, "layers.0", OP_FORWARD, 0, 0));
    plan_binding *b = &p->bindings[action->binding];
    assert_int_equal(arena_new(a, b->program->lists[action->list].count, &marks), ST_OK);
    marks[0] = true; // the norm and its product
    b->fused[action->list] = marks;
    refused(a, &j, "forward of layers.0", "does not read the other's result by tiles");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fused_result_lies_over_an_operand),
        cmocka_unit_test(fused_result_lies_over_packed_weights),
        cmocka_unit_test(fused_nodes_are_no_pair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
