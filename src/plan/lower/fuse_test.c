// Fusion: the plan marks the right pairs, and none whose operands would overlap in memory.
#include "fixtures/plan/plan_sample.h"
#include "plan/lower/lower.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

typedef struct asked {
    bool answer;
    int count;
} asked;

static bool fuses(void *context, const plan *p, const op_program *program, const op_node *first,
                  const op_node *second, const extent_binding *bound)
{
    asked *a = context;
    assert_int_equal(bound->value[EXTENT_SEQS], p->micro_batch);
    assert_ptr_equal(second, first + 1);
    assert_true(program->tensor_count > 0);
    a->count++;
    return a->answer;
}

static plan *make(arena *a, plan_request *request, plan_table *run)
{
    const plan_sample_config config = {
        .layers = 3, .dim = 64, .ffn = 96, .heads = 4, .vocab = 331, .purpose = PURPOSE_TRAIN};
    op_model *m = NULL;
    op_program *const *optimizer = NULL;
    plan *p = NULL;
    assert_int_equal(plan_sample_model(a, &config, &m), ST_OK);
    assert_int_equal(plan_sample_optimizer(a, m, &optimizer), ST_OK);
    request->model = m;
    request->optimizer = optimizer;
    request->sequences = 8;
    request->micro_batch = 2;
    request->seq = 24;
    request->shards = 8;
    *run = (plan_table){.a = a};
    assert_int_equal(plan_create(a, request, run, &p), ST_OK);
    plan_table_place(run);
    return p;
}

// Marked pairs, each of which is a GEMM and the activation, or its gradient, that reads its result.
static int pairs_count(const plan *p)
{
    int count = 0;
    for (int64_t i = 0; i < p->binding_count; i++) {
        const plan_binding *b = &p->bindings[i];
        for (int list = 0; list < OP_LIST_COUNT; list++) {
            const op_node *nodes = b->program->lists[list].nodes;
            for (int64_t k = 0; b->fused[list] != NULL && k < b->program->lists[list].count; k++) {
                if (!b->fused[list][k]) continue;
                count++;
                assert_true(k + 1 < b->program->lists[list].count);
                const op_code first = nodes[k].code, second = nodes[k + 1].code;
                assert_true((first == OP_MATMUL && second == OP_SWIGLU) ||
                            (first == OP_MATMUL_DX && second == OP_SWIGLU_BWD));
            }
        }
    }
    return count;
}

static void pairs_are_marked_where_the_backend_fuses(void **state)
{
    (void)state;
    arena *a = NULL;
    plan_table run;
    asked yes = {.answer = true}, no = {.answer = false};
    assert_int_equal(arena_create("fuse", 0, &a), ST_OK);
    plan_request request = {.workspace_context = &yes};
    assert_int_equal(pairs_count(make(a, &request, &run)), 0);
    assert_int_equal(yes.count, 0);
    request.fuses = fuses;
    const plan *p = make(a, &request, &run);
    assert_true(pairs_count(p) > 0);
    assert_true(yes.count > 0 && yes.count <= p->binding_count * 2);
    request.workspace_context = &no;
    assert_int_equal(pairs_count(make(a, &request, &run)), 0);
    assert_true(no.count > 0);
    request.last = PLAN_COLLECTED; // a plan that is only priced launches nothing
    request.workspace_context = &yes;
    assert_int_equal(pairs_count(make(a, &request, &run)), 0);
    arena_destroy(a);
}

// The test moves the result onto the GEMM's input: the pair is not marked any more.
static void operands_that_meet_are_not_fused(void **state)
{
    (void)state;
    arena *a = NULL;
    plan_table run;
    asked yes = {.answer = true};
    int pairs = 0;
    assert_int_equal(arena_create("fuse", 0, &a), ST_OK);
    plan_request request = {.workspace_context = &yes, .fuses = fuses};
    plan *p = make(a, &request, &run);
    const int before = pairs_count(p);
    for (int64_t i = 0; i < p->binding_count; i++) {
        const plan_binding *b = &p->bindings[i];
        const op_node *nodes = b->program->lists[OP_FORWARD].nodes;
        for (int64_t k = 0; k + 1 < b->program->lists[OP_FORWARD].count; k++) {
            if (b->fused[OP_FORWARD] == NULL || !b->fused[OP_FORWARD][k]) continue;
            const int32_t in = b->tensor[nodes[k].in[0]], out = b->tensor[nodes[k + 1].out[0]];
            assert_true(in >= 0 && out >= 0 && !p->tensors[in].is_part);
            p->tensors[out].offset = p->tensors[in].offset + p->tensors[in].bytes - 64;
            pairs++;
        }
    }
    assert_true(pairs > 0);
    assert_int_equal(plan_fuse(&request, p), ST_OK);
    assert_true(pairs_count(p) <= before - pairs);
    arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_are_marked_where_the_backend_fuses),
        cmocka_unit_test(operands_that_meet_are_not_fused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
