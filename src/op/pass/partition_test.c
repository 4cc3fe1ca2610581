// The pieces of a program: number and positions of collectives, the shapes of the tensors between
// them, and that every tensor is written before it is read.
#include "fixtures/op/blocks_fixture.h"
#include "op/pass/partition.h"

static arena *a;

static int setup(void **state)
{
    (void)state;
    return arena_create("partition", 0, &a) == ST_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    arena_destroy(a);
    return 0;
}

// ---- models of two layers -----------------------------------------------------------------------

typedef struct cut_row {
    const char *name;
    int dim;
    int part_count;
    int64_t parts[3]; // in units of the head size, or of the feed-forward
    int64_t heads[3]; // of the parts, where they are of heads
} cut_row;

// The cuts of the fixture's blocks, as blocks of model/ declare them.
static const cut_row cuts[] = {
    {"qkv",
     0,
     3,
     {BLOCK_HEADS * BLOCK_HEAD_DIM, BLOCK_KV *BLOCK_HEAD_DIM, BLOCK_KV *BLOCK_HEAD_DIM},
     {BLOCK_HEADS, BLOCK_KV, BLOCK_KV}},
    {"o", 1, 0, {0}, {0}},
    {"gate_up", 0, 2, {BLOCK_FFN, BLOCK_FFN}, {0}},
    {"down", 1, 0, {0}, {0}},
    {"qkv_b", 0, 3, {BLOCK_DIM, BLOCK_DIM, BLOCK_DIM}, {0}},
    {"up", 0, 0, {0}, {0}},
    {"up_b", 0, 0, {0}, {0}},
    {"head", 0, 0, {0}, {0}},
};

static const cut_row *cut_of(const char *name)
{
    for (int64_t i = 0; i < COUNT_OF(cuts); i++) {
        if (strcmp(cuts[i].name, name) == 0) return &cuts[i];
    }
    return NULL;
}

static void weights_mark(op_program *p)
{
    for (int64_t t = 0; t < p->tensor_count; t++) {
        op_tensor *tensor = &p->tensors[t];
        const cut_row *row = tensor->role == ROLE_WEIGHT ? cut_of(tensor->name) : NULL;
        if (row == NULL) continue;
        tensor->cut_dim[AXIS_TP] = (int8_t)row->dim;
        const bool even = tensor->dims[0].scale == 3 * BLOCK_DIM; // GPT-2's: no grouped queries
        tensor->part_count = row->part_count;
        for (int i = 0; i < row->part_count; i++) {
            tensor->parts[i].name = row->name;
            tensor->parts[i].rows = even ? BLOCK_DIM : row->parts[i];
            tensor->parts[i].heads = even ? BLOCK_HEADS : row->heads[i];
        }
    }
}

static op_weight weight_like(const op_tensor *t)
{
    op_weight w = {.name = t->name,
                   .ndim = t->ndim,
                   .rows = t->dims[0].scale,
                   .columns = t->ndim == 2 ? t->dims[1].scale : 1,
                   .part_count = t->part_count > 0 ? t->part_count : 1};
    w.parts[0] = (weight_part){.name = t->name, .rows = w.rows};
    int64_t at = 0;
    for (int i = 0; i < t->part_count; i++) {
        w.parts[i] = (weight_part){
            .name = t->name, .row_begin = at, .rows = t->parts[i].rows, .heads = t->parts[i].heads};
        at += t->parts[i].rows;
    }
    memcpy(w.cut_dim, t->cut_dim, sizeof(w.cut_dim));
    return w;
}

// A model of a block and a head.
static op_model model_of(op_program *block, op_program *head, op_recompute policy)
{
    op_program **programs = NULL;
    op_layer *layers = NULL;
    op_weight *weights = NULL;
    MUST(arena_new(a, 2, &programs));
    MUST(arena_new(a, 2, &layers));
    MUST(arena_new(a, 64, &weights));
    op_model m = {.purpose = PURPOSE_TRAIN, .layer_count = 2, .program_count = 2};
    programs[0] = block;
    programs[1] = head;
    for (int i = 0; i < 2; i++) {
        op_program *p = programs[i];
        weights_mark(p);
        MUST(op_program_differentiate(p));
        MUST(op_program_recompute(p, policy));
        int32_t *map = NULL;
        MUST(arena_new(a, p->tensor_count + 1, &map));
        for (int64_t t = 0; t < p->tensor_count; t++) {
            map[t] = -1;
            if (p->tensors[t].role != ROLE_WEIGHT) continue;
            map[t] = (int32_t)m.weight_count;
            weights[m.weight_count++] = weight_like(&p->tensors[t]);
        }
        layers[i] =
            (op_layer){.name = i == 0 ? "layers.0" : "head", .program = i, .weight_of = map};
    }
    m.programs = programs;
    m.layers = layers;
    m.weights = weights;
    return m;
}

static op_model llama(op_recompute policy, bool qk_norm)
{
    return model_of(block_llama(a, PURPOSE_TRAIN, qk_norm), block_head(a, PURPOSE_TRAIN), policy);
}

static op_model gpt2(op_recompute policy)
{
    return model_of(block_gpt2(a, PURPOSE_TRAIN, 0.1f), block_head(a, PURPOSE_TRAIN), policy);
}

static const op_model *cut_model(op_model *whole, const op_cut *how)
{
    op_model *local = NULL;
    MUST(op_model_partition(a, whole, how, &local));
    return local;
}

// ---- where communications stand -----------------------------------------------------------------

static int index_of(const op_program *p, op_list list, const op_node *node)
{
    return (int)(node - p->lists[list].nodes);
}

static const op_node *maker_of(const op_program *p, op_list list, tensor_id t)
{
    for (int64_t i = 0; i < p->lists[list].count; i++) {
        if (p->lists[list].nodes[i].out[0] == t) return &p->lists[list].nodes[i];
    }
    return NULL;
}

// One sum after attention, one after the MLP; in the backward one before each norm; biases after
// the sums.
static void sums_stand_where_they_must(void **state)
{
    (void)state;
    const op_cut how = {.ways = 2, .at = 1, .shards = 1};
    for (int kind = 0; kind < 2; kind++) {
        op_model whole = kind == 0 ? llama(RECOMPUTE_NONE, false) : gpt2(RECOMPUTE_NONE);
        const op_program *p = cut_model(&whole, &how)->programs[0];
        for (int list = OP_FORWARD; list < OP_LIST_COUNT; list++) {
            const int sums = list == OP_FORWARD || list == OP_BACKWARD_INPUT ? 2 : 0;
            assert_int_equal(count_of(p, (op_list)list, OP_ALL_REDUCE), sums);
            assert_int_equal(count_of(p, (op_list)list, OP_ALL_GATHER), 0);
            assert_int_equal(count_of(p, (op_list)list, OP_REDUCE_SCATTER), 0);
            for (int k = 0; k < sums; k++) {
                const op_node *sum = node_of(p, (op_list)list, OP_ALL_REDUCE, k);
                const op_node *maker = maker_of(p, (op_list)list, sum->in[0]);
                assert_int_equal(sum->attrs.axis, AXIS_TP);
                assert_int_equal(sum->piece.shards, 0);
                assert_non_null(maker);
                assert_int_equal(maker->code, list == OP_FORWARD ? OP_MATMUL : OP_MATMUL_DX);
                assert_int_equal(index_of(p, (op_list)list, maker) + 1,
                                 index_of(p, (op_list)list, sum));
                if (list == OP_FORWARD && kind == 1) {
                    const op_node *bias = sum + 1;
                    assert_int_equal(bias->code, OP_ADD_BIAS);
                    assert_int_equal(bias->in[0], sum->out[0]);
                    assert_int_equal(maker->in[2], TENSOR_NONE);
                }
            }
        }
    }
}

// The head: statistics, then losses; its dx is a sum; the first rank counts losses.
static void heads_talk_in_statistics(void **state)
{
    (void)state;
    for (int at = 0; at < 2; at++) {
        const op_cut how = {.ways = 2, .at = at, .shards = 1};
        op_model whole = llama(RECOMPUTE_NONE, false);
        const op_program *p = cut_model(&whole, &how)->programs[1];
        const op_node *n = p->lists[OP_BACKWARD_WEIGHT].nodes;
        assert_int_equal(n[0].code, OP_HEAD_STATS);
        assert_int_equal(n[1].code, OP_ALL_GATHER);
        assert_true(n[1].attrs.stacked);
        assert_int_equal(n[2].code, OP_HEAD_LOSS);
        assert_int_equal(n[2].in[3], n[1].out[0]);
        assert_int_equal(n[2].piece.first_row, 25 * at);
        assert_int_equal(n[2].piece.whole_rows, 50);
        assert_int_equal(op_at(p, n[2].in[1])->dims[0].scale, 25);
        assert_int_equal(n[3].code, OP_ALL_REDUCE);
        assert_int_equal(count_of(p, OP_BACKWARD_WEIGHT, OP_STEP_LOSS), at == 0);
    }
}

static bool backward_reads(const op_program *p, tensor_id t)
{
    for (int list = OP_BACKWARD_INPUT; list <= OP_BACKWARD_WEIGHT; list++) {
        for (int64_t i = 0; i < p->lists[list].count; i++) {
            for (int k = 0; k < OP_MAX_IN; k++) {
                if (p->lists[list].nodes[i].in[k] == t) return true;
            }
        }
    }
    return false;
}

// All rows of the outputs of norms exist for a GEMM but not until the backward: they are gathered
// again there, or by the recomputation.
static void gathered_rows_are_not_kept(void **state)
{
    (void)state;
    const op_cut how = {.ways = 2, .at = 0, .shards = 1, .rows = true};
    for (int policy = RECOMPUTE_NONE; policy <= RECOMPUTE_FULL; policy++) {
        op_model whole = llama((op_recompute)policy, false);
        const op_program *p = cut_model(&whole, &how)->programs[0];
        const bool again = policy == RECOMPUTE_FULL;
        assert_int_equal(count_of(p, OP_RECOMPUTE, OP_ALL_GATHER), again ? 2 : 0);
        assert_int_equal(count_of(p, OP_BACKWARD_WEIGHT, OP_ALL_GATHER), again ? 0 : 2);
        for (int64_t i = 0; i < p->lists[OP_FORWARD].count && !again; i++) {
            const op_node *node = &p->lists[OP_FORWARD].nodes[i];
            if (node->code == OP_ALL_GATHER) assert_false(backward_reads(p, node->out[0]));
        }
    }
}

// Rows cut by positions: sums are scattered, inputs of GEMMs are gathered, once for forward and
// once for backward.
static void rows_are_gathered_once(void **state)
{
    (void)state;
    const op_cut how = {.ways = 2, .at = 0, .shards = 1, .rows = true};
    op_model whole = gpt2(RECOMPUTE_NONE);
    const op_model *m = cut_model(&whole, &how);
    const op_program *p = m->programs[0];
    assert_int_equal(count_of(p, OP_FORWARD, OP_REDUCE_SCATTER), 2);
    assert_int_equal(count_of(p, OP_FORWARD, OP_ALL_GATHER), 2);
    assert_int_equal(count_of(p, OP_BACKWARD_INPUT, OP_REDUCE_SCATTER), 2);
    assert_int_equal(count_of(p, OP_BACKWARD_INPUT, OP_ALL_GATHER), 2);
    assert_int_equal(count_of(p, OP_BACKWARD_WEIGHT, OP_ALL_GATHER), 2);
    assert_int_equal(op_at(p, p->inputs[0])->dims[0].symbol, EXTENT_TOKENS_CUT);
    const op_node *drop = node_of(p, OP_FORWARD, OP_DROPOUT, 0);
    assert_int_equal(drop->piece.row_ways, 2);
    // Norms read some rows only, so their gradients are terms. (GEMMs have gathered the rows that
    // biases need.)
    int64_t terms = 0;
    for (int64_t w = 0; w < m->weight_count; w++) {
        const bool cut = m->weights[w].cut_dim[AXIS_TP] >= 0;
        assert_false(cut && m->weights[w].partial_grad);
        terms += m->weights[w].partial_grad;
    }
    assert_int_equal(terms, 4 + 1); // of LayerNorms, and the last norm
}

// ---- order --------------------------------------------------------------------------------------

// Every sum has the same number of terms for any number of ranks; one rank adds all of them itself.
static void ordered_sums_have_all_shards(void **state)
{
    (void)state;
    for (int ways = 1; ways <= 4; ways *= 2) {
        const op_cut how = {.ways = ways, .at = ways - 1, .shards = 4, .ordered = true};
        op_model whole = llama(RECOMPUTE_NONE, false);
        const op_program *p = cut_model(&whole, &how)->programs[0];
        const op_code code = ways == 1 ? OP_SUM : OP_ALL_REDUCE;
        assert_int_equal(count_of(p, OP_FORWARD, code), 2);
        // The sums of dk and dv too: two shards attend to a head of keys.
        const int copies = ways == 4 ? 1 : 0; // a sum over ranks is copied into a view
        assert_int_equal(count_of(p, OP_BACKWARD_INPUT, OP_ALL_REDUCE), ways == 4   ? 4
                                                                        : ways == 2 ? 2
                                                                                    : 0);
        assert_int_equal(count_of(p, OP_BACKWARD_INPUT, OP_SUM), ways == 1   ? 2 + 4
                                                                 : ways == 2 ? 2
                                                                             : copies);
        assert_int_equal(count_of(p, OP_BACKWARD_INPUT, OP_ATTENTION_BWD), 4 / ways);
        for (int k = 0; k < 2; k++) {
            const op_node *sum = node_of(p, OP_FORWARD, code, k);
            int terms = 0;
            while (terms < OP_MAX_IN && sum->in[terms] != TENSOR_NONE) terms++;
            assert_int_equal(terms, 4 / ways);
            if (ways == 1) continue;
            assert_int_equal(sum->piece.shards, 4);
            assert_int_equal(sum->piece.first_shard, (ways - 1) * terms);
        }
        // Each term of dx adds q, k and v, or gate and up, one after the other.
        assert_int_equal(count_of(p, OP_BACKWARD_INPUT, OP_MATMUL_DX), 2 + (4 / ways) * (3 + 2));
    }
}

// ---- keys that several ranks have ---------------------------------------------------------------

// Four ranks and two heads of keys: each rank has one head; two ranks sum dk and dv, and each of
// them adds half of their terms of dx.
static void shared_keys_are_summed_once(void **state)
{
    (void)state;
    for (int at = 0; at < 4; at++) {
        const op_cut how = {.ways = 4, .at = at, .shards = 1};
        op_model whole = llama(RECOMPUTE_NONE, false);
        const op_program *p = cut_model(&whole, &how)->programs[0];
        const op_node *attention = node_of(p, OP_FORWARD, OP_ATTENTION, 0);
        assert_int_equal(attention->attrs.heads, 1);
        assert_int_equal(attention->attrs.kv_heads, 1);
        assert_int_equal(attention->piece.first_head, at);
        int inside = 0;
        for (int k = 0; k < 4; k++) {
            const op_node *sum = node_of(p, OP_BACKWARD_INPUT, OP_ALL_REDUCE, k);
            if (sum->piece.inside == 0) continue;
            const op_node *back = node_of(p, OP_BACKWARD_INPUT, OP_ATTENTION_BWD, 0);
            assert_int_equal(sum->piece.inside, 2);
            assert_true(sum->in[0] == back->out[1] || sum->in[0] == back->out[2]);
            inside++;
        }
        assert_int_equal(inside, 2);
        int halves = 0;
        for (int k = 0; k < 6; k++) { // out, down, gate_up, and q, k, v one by one
            const op_node *dx = node_of(p, OP_BACKWARD_INPUT, OP_MATMUL_DX, k);
            const op_tensor *w = op_at(p, dx->in[1]);
            if (w->dims[0].scale != BLOCK_HEAD_DIM / 2) continue;
            assert_int_equal(w->view_row,
                             (1 + halves) * BLOCK_HEAD_DIM + at % 2 * (BLOCK_HEAD_DIM / 2));
            halves++;
        }
        assert_int_equal(halves, 2);
    }
}

// Norms of heads of keys: one term for each head, not for each rank; with one head there is no sum.
static void norms_of_shared_keys_have_a_term_a_head(void **state)
{
    (void)state;
    const op_cut how = {.ways = 4, .at = 3, .shards = 1};
    op_model whole = llama(RECOMPUTE_NONE, true);
    const op_model *m = cut_model(&whole, &how);
    int terms = 0;
    for (int64_t w = 0; w < m->weight_count; w++) {
        const bool is_k = strcmp(m->weights[w].name, "k_norm") == 0;
        if (!m->weights[w].partial_grad) continue;
        assert_int_equal(m->weights[w].partial_copies, is_k ? 2 : 1);
        terms++;
    }
    assert_int_equal(terms, 2);
}

// ---- everything is there ------------------------------------------------------------------------

// Walks the lists as they run and checks that the tensors of the program that a node reads have
// been written.
static void check_flow(const op_program *p, op_recompute policy)
{
    bool *made = NULL;
    MUST(arena_new(a, p->tensor_count + 1, &made));
    const bool top = p->output_count == 0;
    const op_list lists[] = {OP_FORWARD, OP_RECOMPUTE, top ? OP_BACKWARD_WEIGHT : OP_BACKWARD_INPUT,
                             top ? OP_BACKWARD_INPUT : OP_BACKWARD_WEIGHT};
    for (int l = 0; l < 4; l++) {
        if (l == 1 && policy == RECOMPUTE_FULL) memset(made, 0, (size_t)p->tensor_count);
        for (int64_t i = 0; i < p->lists[lists[l]].count; i++) {
            const op_node *n = &p->lists[lists[l]].nodes[i];
            for (int k = 0; k < OP_MAX_IN; k++) {
                if (n->in[k] == TENSOR_NONE) continue;
                const tensor_id t = op_owner(p, n->in[k]).id;
                if (op_at(p, t)->role == ROLE_ACTIVATION && !made[t]) {
                    print_error("%s of list %d reads %s, which is not there\n",
                                op_kind_of(n->code)->name, (int)lists[l], op_at(p, t)->name);
                    assert_true(false);
                }
            }
            for (int k = 0; k < OP_MAX_OUT; k++) {
                if (n->out[k] != TENSOR_NONE) made[op_owner(p, n->out[k]).id] = true;
            }
        }
    }
    for (int k = 0; k < p->output_count; k++) assert_true(made[p->outputs[k]] || policy > 0);
}

static void all_is_made_before_it_is_read(void **state)
{
    (void)state;
    static const op_cut hows[] = {
        {.ways = 2, .at = 1, .shards = 1},
        {.ways = 2, .at = 0, .shards = 1, .rows = true},
        {.ways = 2, .at = 1, .shards = 4, .ordered = true},
        {.ways = 2, .at = 1, .shards = 2, .ordered = true, .rows = true},
        {.ways = 1, .at = 0, .shards = 2, .ordered = true},
        {.ways = 4, .at = 2, .shards = 1},
        {.ways = 4, .at = 3, .shards = 4, .ordered = true, .rows = true},
        {.ways = 1, .at = 0, .shards = 4, .ordered = true},
    };
    for (int i = 0; i < COUNT_OF(hows) * 3 * 2; i++) {
        const op_cut *how = &hows[i % (int)COUNT_OF(hows)];
        const op_recompute policy = (op_recompute)(i / (int)COUNT_OF(hows) % 3);
        op_model whole = i / (int)COUNT_OF(hows) / 3 == 0 ? llama(policy, false) : gpt2(policy);
        const op_model *m = cut_model(&whole, how);
        for (int k = 0; k < m->program_count; k++) check_flow(m->programs[k], policy);
    }
}

// Norms of heads: their gradients gather the columns of all heads, because terms of heads have no
// order.
static void norms_of_heads_keep_order(void **state)
{
    (void)state;
    for (int ways = 1; ways <= 4; ways *= 2) {
        const op_cut how = {.ways = ways, .at = 0, .shards = 4, .ordered = true};
        op_model whole = llama(RECOMPUTE_NONE, true);
        const op_model *m = cut_model(&whole, &how);
        const op_program *p = m->programs[0];
        assert_int_equal(count_of(p, OP_BACKWARD_WEIGHT, OP_UNPACK), ways == 1 ? 0 : 6);
        for (int64_t w = 0; w < m->weight_count; w++) assert_false(m->weights[w].partial_grad);
        check_flow(p, RECOMPUTE_NONE);
    }
}

// ---- pieces -------------------------------------------------------------------------------------

// The pieces of all ranks make up the whole, each element once; programs and model agree on their
// shapes.
static void check_pieces(int32_t ways)
{
    op_model whole = llama(RECOMPUTE_NONE, false);
    int64_t elements[64] = {0};
    for (int at = 0; at < ways; at++) {
        const op_cut how = {.ways = ways, .at = at, .shards = 1};
        const op_model *m = cut_model(&whole, &how);
        for (int64_t w = 0; w < m->weight_count; w++) {
            const op_weight *one = &m->weights[w];
            int64_t rows = 0, mine = 0; // of those that several have, this rank's share
            for (int i = 0; i < one->part_count; i++) {
                int64_t share = 0;
                const int64_t from = op_part_share(one, i, at, &share);
                assert_true(from >= 0 && from + share <= one->parts[i].rows);
                mine += share;
                const weight_piece piece = op_weight_piece(one, i);
                assert_int_equal(one->parts[i].row_begin, rows);
                assert_int_equal(piece.whole_rows, whole.weights[w].parts[i].rows);
                assert_int_equal(piece.whole_columns, whole.weights[w].columns);
                if (one->ways > 1 && one->cut_dim[AXIS_TP] == 0) {
                    assert_int_equal(piece.row + from, piece.whole_rows * at / ways);
                }
                rows += piece.rows;
            }
            assert_int_equal(rows, one->rows);
            elements[w] += one->ways > 1 || at == 0 ? mine * one->columns : 0;
        }
        for (int i = 0; i < m->layer_count; i++) {
            const op_program *p = m->programs[m->layers[i].program];
            for (int64_t t = 0; t < p->tensor_count; t++) {
                if (m->layers[i].weight_of[t] < 0) continue;
                const op_weight *one = &m->weights[m->layers[i].weight_of[t]];
                assert_int_equal(op_at(p, (tensor_id)t)->dims[0].scale, one->rows);
            }
        }
    }
    for (int64_t w = 0; w < whole.weight_count; w++) {
        assert_int_equal(elements[w], whole.weights[w].rows * whole.weights[w].columns);
    }
}

static void pieces_are_the_whole(void **state)
{
    (void)state;
    check_pieces(2);
    check_pieces(4);
}

static void what_cannot_be_cut_is_refused(void **state)
{
    (void)state;
    op_model whole = llama(RECOMPUTE_NONE, false);
    op_model *local = NULL;
    const op_cut three = {.ways = 3, .shards = 1};
    assert_int_equal(op_model_partition(a, &whole, &three, &local), ST_CONFIG_CONFLICT);
    assert_non_null(
        strstr(error_last()->text, "layout.tp = 3 does not divide the model's 4 heads"));
    const op_cut odd = {.ways = 2, .shards = 3, .ordered = true};
    assert_int_equal(op_model_partition(a, &whole, &odd, &local), ST_CONFIG_CONFLICT);
    const op_cut many = {.ways = 1, .shards = 16, .ordered = true};
    assert_int_equal(op_model_partition(a, &whole, &many, &local), ST_CONFIG_RANGE);
    const op_cut one = {.ways = 1, .shards = 1, .ordered = true};
    assert_int_equal(op_model_partition(a, &whole, &one, &local), ST_OK);
    assert_ptr_equal(local, &whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sums_stand_where_they_must, setup, teardown),
        cmocka_unit_test_setup_teardown(heads_talk_in_statistics, setup, teardown),
        cmocka_unit_test_setup_teardown(rows_are_gathered_once, setup, teardown),
        cmocka_unit_test_setup_teardown(gathered_rows_are_not_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(ordered_sums_have_all_shards, setup, teardown),
        cmocka_unit_test_setup_teardown(shared_keys_are_summed_once, setup, teardown),
        cmocka_unit_test_setup_teardown(norms_of_shared_keys_have_a_term_a_head, setup, teardown),
        cmocka_unit_test_setup_teardown(all_is_made_before_it_is_read, setup, teardown),
        cmocka_unit_test_setup_teardown(norms_of_heads_keep_order, setup, teardown),
        cmocka_unit_test_setup_teardown(pieces_are_the_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(what_cannot_be_cut_is_refused, setup, teardown),
    };
    return cmocka_run_group_tests_name("partition", tests, NULL, NULL);
}
