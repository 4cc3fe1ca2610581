// Exchanges of rows whose offsets are those of other rows, or whose rows do not fit, are found.
#include "fixtures/op/blocks_fixture.h"
#include "op/pass/expert_ranks.h"
#include "plan/verify/verify_internal.h"

enum { EXPERTS = 8, TOP_K = 2, RANKS = 4 };

static arena *a;
static const extent_binding bound = {
    .value = {[EXTENT_ONE] = 1, [EXTENT_TOKENS] = 12, [EXTENT_SEQS] = 3, [EXTENT_TOKENS_CUT] = 6}};

static int setup(void **state)
{
    (void)state;
    return arena_create("exchange", 0, &a) == ST_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    arena_destroy(a);
    return 0;
}

// The program of one of four ranks, with a limit of rows or without.
static op_program *program_of(int64_t limit)
{
    static const op_expert_cut four = {.ways = RANKS, .ordered = true},
                               moving = {.ways = RANKS, .moves_layers = 1};
    op_program *p = NULL, **programs = NULL;
    op_layer *layer = NULL;
    op_model *whole = NULL, *local = NULL;
    tensor_id x, logits, ids, weights, y, h;
    op_permuted e;
    MUST(op_program_create(a, PURPOSE_EVALUATE, DTYPE_F32, DTYPE_F32, &p));
    MUST(op_input(p, "x", extent_tokens(1), extent_of(BLOCK_DIM), &x));
    MUST(op_matmul(p, x, block_weight(p, "router", EXPERTS, BLOCK_DIM), TENSOR_NONE, ACT_NONE,
                   &logits));
    MUST(op_route(p, logits, TOP_K, true, &ids, &weights));
    if (limit > 0) MUST(op_limit_rows(p, ids, EXPERTS, 4, limit, &ids));
    MUST(op_permute(p, x, ids, weights, EXPERTS, &e));
    const tensor_id w = block_weight(p, "up", EXPERTS * BLOCK_DIM, BLOCK_DIM);
    p->tensors[w].cut_dim[AXIS_EP] = 0;
    MUST(op_grouped_matmul(p, e.rows, w, e.offsets, EXPERTS, &h));
    MUST(op_unpermute(p, h, e.row_of, TENSOR_NONE, &y));
    MUST(op_output(p, y));
    MUST(arena_new(a, 1, &whole));
    MUST(arena_new(a, 1, &programs));
    MUST(arena_new(a, 1, &layer));
    int32_t *map = NULL;
    MUST(arena_new(a, p->tensor_count, &map));
    programs[0] = p;
    *layer = (op_layer){.name = "layer", .weight_of = map};
    *whole =
        (op_model){.programs = programs, .program_count = 1, .layers = layer, .layer_count = 1};
    MUST(op_model_experts(a, whole, limit == 3 ? &moving : &four, &local)); // experts may move
    return local->programs[0];
}

static op_node *node_at(op_program *p, op_code code, int n)
{
    for (int64_t i = 0; i < p->lists[OP_FORWARD].count; i++) {
        op_node *node = &p->lists[OP_FORWARD].nodes[i];
        if (node->code == code && n-- == 0) return node;
    }
    assert_true(false);
    return NULL;
}

static void refused(const op_program *p, const char *words)
{
    assert_int_equal(verify_exchange_program(p, &bound), ST_BROKEN_PLAN);
    assert_non_null(strstr(error_last()->text, words));
}

static void exchanges_are_sound(void **state)
{
    (void)state;
    MUST(verify_exchange_program(program_of(0), &bound));
    op_program *p = program_of(1);
    const tensor_id rows = node_at(p, OP_EXCHANGE_ROWS, 0)->out[0];
    // Two experts of a rank take one row of each of three sequences of four ranks.
    assert_int_equal(extent_value(p->tensors[rows].dims[0], &bound), 24);
    MUST(verify_exchange_program(p, &bound));
}

static void mistakes_are_found(void **state)
{
    (void)state;
    op_program *p = program_of(0);
    node_at(p, OP_EXCHANGE_ROWS, 0)->in[1] = node_at(p, OP_EXCHANGE_ROWS, 0)->in[2];
    refused(p, "not of the same rows");
    p = program_of(0);
    node_at(p, OP_COUNT_ROWS, 0)->in[0] = node_at(p, OP_PERMUTE, 0)->out[1];
    refused(p, "not of the same rows");
    p = program_of(0);
    node_at(p, OP_ALL_TO_ALL, 0)->attrs.axis = AXIS_DP;
    refused(p, "not of the same rows");
    p = program_of(0);
    p->tensors[node_at(p, OP_EXCHANGE_ROWS, 0)->out[0]].dims[0].scale--;
    refused(p, "may bring 96 rows");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(exchanges_are_sound, setup, teardown),
        cmocka_unit_test_setup_teardown(mistakes_are_found, setup, teardown),
    };
    return cmocka_run_group_tests_name("verify_exchange", tests, NULL, NULL);
}
