// The programs of ranks that share experts: their collectives and the operations between them; and
// tensor parallelism cuts the same blocks.
#include "fixtures/op/blocks_fixture.h"
#include "op/pass/expert_ranks.h"
#include "op/pass/partition.h"

enum { COUNT = 8, TOP_K = 2, FFN = 20 };

static arena *a;
// Evenly loaded, as in predictions.
static const op_expert_cut one = {.ways = 1}, four = {.ways = 4, .even = true}, seven = {.ways = 7};

static int setup(void **state)
{
    (void)state;
    return arena_create("experts", 0, &a) == ST_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    arena_destroy(a);
    return 0;
}

static tensor_id expert_weight(op_program *p, const char *name, int64_t rows, int64_t columns,
                               int tp)
{
    const tensor_id w = block_weight(p, name, rows, columns);
    p->tensors[w].cut_dim[AXIS_TP] = (int8_t)tp;
    p->tensors[w].cut_dim[AXIS_EP] = 0;
    return w;
}

// A block of experts only, as model/block/experts.c builds it.
static op_program *block_experts(op_recompute recompute)
{
    op_program *p = NULL;
    tensor_id x, logits, ids, weights, h, act, d, y;
    op_permuted e;
    MUST(op_program_create(a, PURPOSE_TRAIN, DTYPE_BF16, DTYPE_F32, &p));
    MUST(op_input(p, "x", extent_tokens(1), extent_of(BLOCK_DIM), &x));
    MUST(op_matmul(p, x, block_weight(p, "router", COUNT, BLOCK_DIM), TENSOR_NONE, ACT_NONE,
                   &logits));
    MUST(op_route(p, logits, TOP_K, true, &ids, &weights));
    MUST(op_permute(p, x, ids, weights, COUNT, &e));
    MUST(op_grouped_matmul(p, e.rows, expert_weight(p, "up", COUNT * 2 * FFN, BLOCK_DIM, 0),
                           e.offsets, COUNT, &h));
    MUST(op_swiglu(p, h, &act));
    MUST(op_scale_rows(p, act, e.scale, &act));
    MUST(op_grouped_matmul(p, act, expert_weight(p, "down", COUNT * BLOCK_DIM, FFN, 1), e.offsets,
                           COUNT, &d));
    MUST(op_unpermute(p, d, e.row_of, TENSOR_NONE, &y));
    MUST(op_output(p, y));
    MUST(op_program_differentiate(p));
    MUST(op_program_recompute(p, recompute));
    return p;
}

static op_model *model_of(op_program *p)
{
    op_model *m = NULL;
    op_program **programs = NULL;
    op_layer *layers = NULL;
    op_weight *weights = NULL;
    int32_t *map = NULL;
    MUST(arena_new(a, 1, &m));
    MUST(arena_new(a, 1, &programs));
    MUST(arena_new(a, 1, &layers));
    MUST(arena_new(a, p->tensor_count, &weights));
    MUST(arena_new(a, p->tensor_count, &map));
    programs[0] = p;
    for (tensor_id t = 0; t < p->tensor_count; t++) {
        const op_tensor *x = &p->tensors[t];
        map[t] = -1;
        if (x->role != ROLE_WEIGHT) continue;
        op_weight *w = &weights[m->weight_count];
        *w = (op_weight){.name = x->name,
                         .ndim = 2,
                         .rows = x->dims[0].scale,
                         .columns = x->dims[1].scale,
                         .part_count = 1,
                         .is_expert = x->cut_dim[AXIS_EP] >= 0};
        w->parts[0] = (weight_part){.name = x->name, .rows = w->rows};
        memcpy(w->cut_dim, x->cut_dim, sizeof(w->cut_dim));
        map[t] = (int32_t)m->weight_count++;
    }
    layers[0] = (op_layer){.name = "layer", .weight_of = map};
    *m = (op_model){.purpose = PURPOSE_TRAIN,
                    .programs = programs,
                    .program_count = 1,
                    .layers = layers,
                    .layer_count = 1,
                    .weights = weights,
                    .weight_count = m->weight_count};
    return m;
}

static int nodes_of(const op_program *p, op_list list, op_code code, mesh_axis axis)
{
    int n = 0;
    for (int64_t i = 0; i < p->lists[list].count; i++) {
        const op_node *node = &p->lists[list].nodes[i];
        n += node->code == code && node->attrs.axis == axis ? 1 : 0;
    }
    return n;
}

static double flops_of(const op_program *p)
{
    const extent_binding bound = {
        .value = {
            [EXTENT_ONE] = 1, [EXTENT_TOKENS] = 64, [EXTENT_SEQS] = 2, [EXTENT_TOKENS_CUT] = 32}};
    double flops = 0.0;
    for (int list = 0; list < OP_LIST_COUNT; list++) {
        for (int64_t i = 0; i < p->lists[list].count; i++) {
            const op_node *node = &p->lists[list].nodes[i];
            const bool is_product = node->code == OP_GROUPED_MATMUL ||
                                    node->code == OP_GROUPED_MATMUL_DX ||
                                    node->code == OP_GROUPED_MATMUL_DW;
            if (is_product) flops += op_node_cost(p, node, &bound).flops;
        }
    }
    return flops;
}

// Checks, in the order of the lists, that every tensor that a node reads was made before, or is no
// activation.
static void made_before_read(const op_program *p)
{
    bool made[256] = {false};
    assert_true(p->tensor_count <= COUNT_OF(made));
    for (int list = 0; list < OP_LIST_COUNT; list++) {
        for (int64_t i = 0; i < p->lists[list].count; i++) {
            const op_node *node = &p->lists[list].nodes[i];
            for (int k = 0; k < OP_MAX_IN; k++) {
                const tensor_id t = node->in[k];
                if (t == TENSOR_NONE || p->tensors[t].role != ROLE_ACTIVATION) continue;
                assert_true(made[op_owner(p, t).id]);
            }
            for (int k = 0; k < OP_MAX_OUT; k++) {
                if (node->out[k] != TENSOR_NONE) made[op_owner(p, node->out[k]).id] = true;
            }
        }
    }
}

static void rows_travel_there_and_back(void **state)
{
    (void)state;
    for (int policy = RECOMPUTE_NONE; policy <= RECOMPUTE_FULL; policy++) {
        op_model *whole = model_of(block_experts((op_recompute)policy)), *local = NULL;
        const op_program *before = whole->programs[0];
        MUST(op_model_experts(a, whole, &four, &local));
        const op_program *p = local->programs[0];
        made_before_read(p);
        assert_int_equal(nodes_of(p, OP_FORWARD, OP_ALL_TO_ALL, AXIS_EP), 2);
        assert_int_equal(nodes_of(p, OP_BACKWARD_INPUT, OP_ALL_TO_ALL, AXIS_EP), 2);
        assert_int_equal(nodes_of(p, OP_BACKWARD_WEIGHT, OP_ALL_TO_ALL, AXIS_EP), 0);
        // Recomputed rows are sent again; `selective` keeps the received rows.
        const int again = policy == RECOMPUTE_FULL ? 1 : 0;
        assert_int_equal(nodes_of(p, OP_RECOMPUTE, OP_ALL_TO_ALL, AXIS_EP), again);
        // A rank has a quarter of the experts and as many rows, which is the same work.
        assert_true(flops_of(p) == flops_of(before));
        for (int64_t w = 0; w < local->weight_count; w++) {
            const op_weight *x = &local->weights[w];
            assert_int_equal(x->rows * (x->is_expert ? 4 : 1), whole->weights[w].rows);
        }
        for (tensor_id t = 0; t < before->tensor_count; t++) {
            const op_tensor *x = &p->tensors[t];
            const bool is_cut = x->cut_dim[AXIS_EP] >= 0;
            assert_int_equal(x->dims[0].scale * (is_cut ? 4 : 1), before->tensors[t].dims[0].scale);
        }
    }
}

// Where experts may move, rows go to the slots of a table, in which an expert has its own at first.
static void moving_experts_have_slots(void **state)
{
    (void)state;
    op_model *whole = model_of(block_experts(RECOMPUTE_FULL)), *local = NULL;
    const op_expert_cut how = {.ways = 4, .at = 1, .moves_layers = 3};
    MUST(op_model_experts(a, whole, &how, &local));
    const op_program *p = local->programs[0];
    made_before_read(p);
    assert_int_equal(whole->constant_count, 0);
    assert_int_equal(local->constant_count, 1);
    const op_constant *slots = &local->constants[0];
    assert_string_equal(slots->name, OP_SLOTS);
    assert_int_equal(slots->rows * slots->columns, 3 * COUNT);
    for (int i = 0; i < 3 * COUNT; i++) assert_int_equal((int)slots->data[i], i % COUNT);
    for (int list = 0; list < OP_LIST_COUNT; list++) {
        const bool has = list == OP_FORWARD || list == OP_RECOMPUTE;
        int n = 0;
        for (int64_t i = 0; i < p->lists[list].count; i++) {
            const op_node *node = &p->lists[list].nodes[i];
            if (node->code == OP_PERMUTE || node->code == OP_COUNT_ROWS) {
                assert_string_equal(p->tensors[node->in[node->code == OP_PERMUTE ? 1 : 0]].name,
                                    "route.ids.sent");
            }
            n += node->code == OP_PLACE_EXPERTS ? 1 : 0;
        }
        assert_int_equal(n, has ? 1 : 0);
    }
}

// The nodes of shared experts, and their gradients, are right behind the exchange that brings rows
// to the other experts; every node is still there, behind those that make its operands.
static void shared_experts_run_while_rows_travel(void **state)
{
    (void)state;
    op_program *p = NULL;
    tensor_id x, ids, weights, h, y, z;
    op_permuted e;
    MUST(op_program_create(a, PURPOSE_TRAIN, DTYPE_BF16, DTYPE_F32, &p));
    MUST(op_input(p, "x", extent_tokens(1), extent_of(BLOCK_DIM), &x));
    MUST(op_matmul(p, x, block_weight(p, "router", COUNT, BLOCK_DIM), TENSOR_NONE, ACT_NONE, &h));
    MUST(op_route(p, h, TOP_K, true, &ids, &weights));
    MUST(op_permute(p, x, ids, weights, COUNT, &e));
    MUST(op_grouped_matmul(p, e.rows, expert_weight(p, "up", COUNT * FFN, BLOCK_DIM, 0), e.offsets,
                           COUNT, &h));
    MUST(op_scale_rows(p, h, e.scale, &h));
    MUST(op_grouped_matmul(p, h, expert_weight(p, "down", COUNT * BLOCK_DIM, FFN, 1), e.offsets,
                           COUNT, &h));
    MUST(op_unpermute(p, h, e.row_of, TENSOR_NONE, &y));
    MUST(op_matmul(p, x, block_weight(p, "shared.up", 2 * FFN, BLOCK_DIM), TENSOR_NONE, ACT_NONE,
                   &h));
    MUST(op_swiglu(p, h, &h));
    MUST(
        op_matmul(p, h, block_weight(p, "shared.down", BLOCK_DIM, FFN), TENSOR_NONE, ACT_NONE, &z));
    MUST(op_add(p, y, z, &y));
    MUST(op_output(p, y));
    MUST(op_program_differentiate(p));
    op_model *local = NULL;
    const op_expert_cut how = {.ways = 4, .at = 1};
    MUST(op_model_experts(a, model_of(p), &how, &local));
    p = local->programs[0];
    made_before_read(p);
    static const op_code expected[][3] = {{OP_MATMUL, OP_SWIGLU, OP_MATMUL},
                                          {OP_MATMUL_DX, OP_SWIGLU_BWD, OP_MATMUL_DX}};
    static const op_list lists[] = {OP_FORWARD, OP_BACKWARD_INPUT};
    for (int l = 0; l < COUNT_OF(lists); l++) {
        const op_node *nodes = p->lists[lists[l]].nodes;
        int64_t i = 0;
        while (nodes[i].code != OP_EXCHANGE_ROWS) i++;
        while (nodes[i].code == OP_EXCHANGE_ROWS) i++;
        for (int k = 0; k < 3; k++) assert_int_equal(nodes[i + k].code, expected[l][k]);
    }
}

static void one_rank_is_the_model_itself(void **state)
{
    (void)state;
    op_model *whole = model_of(block_experts(RECOMPUTE_NONE)), *local = NULL;
    MUST(op_model_experts(a, whole, &one, &local));
    assert_ptr_equal(local, whole);
    assert_int_equal(op_model_experts(a, whole, &seven, &local), ST_CONFIG_CONFLICT);
}

// The columns of each expert are cut, with rows of tokens cut or not: each of two ranks does half
// of the work.
static void tensor_parallelism_cuts_them(void **state)
{
    (void)state;
    for (int rows = 0; rows < 2; rows++) {
        op_model *whole = model_of(block_experts(RECOMPUTE_FULL)), *cut = NULL, *local = NULL;
        const op_cut how = {
            .ways = 2, .at = 1, .shards = 1, .rows = rows == 1, .gathers_experts = true};
        MUST(op_model_partition(a, whole, &how, &cut));
        MUST(op_model_experts(a, cut, &four, &local));
        const op_program *p = local->programs[0];
        made_before_read(p);
        assert_true(2.0 * flops_of(p) == flops_of(whole->programs[0]));
        // The sum of the experts' terms is taken before the rows are sent back, with rows cut or
        // whole.
        assert_int_equal(
            nodes_of(p, OP_FORWARD, rows == 1 ? OP_REDUCE_SCATTER : OP_ALL_REDUCE, AXIS_TP), 1);
        assert_int_equal(nodes_of(p, OP_FORWARD, OP_ALL_TO_ALL, AXIS_EP), 2);
        assert_true(nodes_of(p, OP_FORWARD, OP_ALL_GATHER, AXIS_TP) ==
                    2 * rows); // rows, and their scales
    }
}

// In a run all ranks of tp have the rows of all tokens, their terms travel back as such, and those
// of tokens are summed once.
static void terms_travel_back(void **state)
{
    (void)state;
    for (int rows = 0; rows < 2; rows++) {
        op_model *whole = model_of(block_experts(RECOMPUTE_NONE)), *cut = NULL, *local = NULL;
        const op_cut how = {.ways = 2, .at = 1, .shards = 1, .rows = rows == 1};
        const op_expert_cut ranks = {.ways = 4, .at = 1};
        MUST(op_model_partition(a, whole, &how, &cut));
        MUST(op_model_experts(a, cut, &ranks, &local));
        const op_program *p = local->programs[0];
        const op_code sum = rows == 1 ? OP_REDUCE_SCATTER : OP_ALL_REDUCE;
        made_before_read(p);
        assert_int_equal(nodes_of(p, OP_FORWARD, sum, AXIS_TP), 1);
        assert_int_equal(nodes_of(p, OP_FORWARD, OP_EXCHANGE_ROWS, AXIS_EP), 3); // and scales
        assert_int_equal(nodes_of(p, OP_FORWARD, OP_ALL_GATHER, AXIS_TP), 3 * rows);
        for (int64_t w = 0; w < local->weight_count; w++) {
            const op_weight *x = &local->weights[w], *of = &whole->weights[w];
            if (x->is_expert) assert_int_equal(x->rows * x->columns * 8, of->rows * of->columns);
        }
    }
}

// Experts that tensor parallelism leaves whole: a rank sends its own rows, none of them is gathered
// or summed over tp, and neither are gradients of experts; those of the router are.
static void tensor_parallelism_leaves_them_whole(void **state)
{
    (void)state;
    for (int policy = RECOMPUTE_NONE; policy <= RECOMPUTE_FULL; policy++) {
        op_model *whole = model_of(block_experts((op_recompute)policy)), *cut = NULL, *local = NULL;
        const op_cut how = {.ways = 2, .at = 1, .shards = 1, .rows = true, .whole_experts = true};
        MUST(op_model_partition(a, whole, &how, &cut));
        MUST(op_model_experts(a, cut, &four, &local));
        const op_program *p = local->programs[0];
        made_before_read(p);
        assert_true(2.0 * flops_of(p) == flops_of(whole->programs[0])); // of half of the rows
        assert_int_equal(nodes_of(p, OP_FORWARD, OP_ALL_TO_ALL, AXIS_EP), 2);
        for (int list = 0; list < OP_LIST_COUNT; list++) {
            assert_int_equal(nodes_of(p, (op_list)list, OP_REDUCE_SCATTER, AXIS_TP), 0);
            assert_int_equal(nodes_of(p, (op_list)list, OP_ALL_GATHER, AXIS_TP), 0);
        }
        for (int64_t w = 0; w < local->weight_count; w++) {
            const op_weight *x = &local->weights[w];
            assert_int_equal(x->ways, 1);
            assert_int_equal(x->columns, whole->weights[w].columns);
            assert_int_equal(x->rows * (x->is_expert ? 4 : 1), whole->weights[w].rows);
            assert_true(x->partial_grad == !x->is_expert);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rows_travel_there_and_back, setup, teardown),
        cmocka_unit_test_setup_teardown(moving_experts_have_slots, setup, teardown),
        cmocka_unit_test_setup_teardown(shared_experts_run_while_rows_travel, setup, teardown),
        cmocka_unit_test_setup_teardown(one_rank_is_the_model_itself, setup, teardown),
        cmocka_unit_test_setup_teardown(tensor_parallelism_cuts_them, setup, teardown),
        cmocka_unit_test_setup_teardown(terms_travel_back, setup, teardown),
        cmocka_unit_test_setup_teardown(tensor_parallelism_leaves_them_whole, setup, teardown),
    };
    return cmocka_run_group_tests_name("expert_ranks", tests, NULL, NULL);
}
