// Programs: tensors, views and boundaries, the nodes that the functions for blocks append for each
// purpose, and errors that a model's author can act on.
#include "fixtures/op/blocks_fixture.h"
#include "op/step.h"

#include <math.h>

static arena *a;

static int setup(void **state)
{
    (void)state;
    return arena_create("program", 0, &a) == ST_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    arena_destroy(a);
    return 0;
}

static op_program *program(op_purpose purpose, dtype compute)
{
    op_program *p = NULL;
    MUST(op_program_create(a, purpose, compute, DTYPE_F32, &p));
    return p;
}

static bool error_has(const char *text)
{
    const bool has = strstr(error_last()->text, text) != NULL;
    if (!has) print_error("no \"%s\" in: %s\n", text, error_last()->text);
    return has;
}

static void test_sizes(void **state)
{
    (void)state;
    op_program *p = program(PURPOSE_TRAIN, DTYPE_BF16);
    extent_binding bound = {{1, 12, 3, 30}};
    tensor_id x, v;
    MUST(op_input(p, "x", extent_tokens(2), extent_of(10), &x));
    assert_int_equal(op_tensor_elements(op_at(p, x), &bound), 240);
    assert_int_equal(op_tensor_bytes(op_at(p, x), &bound), 480);
    MUST(op_view(p, x, "v", 3, 4, &v));
    assert_int_equal(op_tensor_elements(op_at(p, v), &bound), 96);
    assert_int_equal(op_tensor_bytes(op_at(p, v), &bound), 0);
    const extent cache = extent_make(2, EXTENT_CACHE);
    assert_int_equal(extent_value(cache, &bound), 60);
    assert_int_equal(extent_value(extent_of(7), &bound), 7);
    bound.value[EXTENT_TOKENS] = 0; // an idle expert
    assert_int_equal(op_tensor_elements(op_at(p, x), &bound), 0);
}

static void test_views(void **state)
{
    (void)state;
    op_program *p = program(PURPOSE_TRAIN, DTYPE_F32);
    tensor_id x, v, w;
    MUST(op_input(p, "x", extent_tokens(1), extent_of(10), &x));
    MUST(op_view(p, x, "v", 2, 6, &v));
    MUST(op_view(p, v, "w", 1, 3, &w)); // of a view: of the whole
    assert_int_equal(op_at(p, w)->view_of, x);
    assert_int_equal(op_at(p, w)->view_begin, 3);
    assert_int_equal(op_at(p, w)->role, ROLE_INPUT);
    assert_int_equal(op_view(p, x, "u", 8, 3, &v), ST_MODEL);
    assert_true(error_has("columns 8 to 10"));
    assert_int_equal(op_view(p, x, "u", -1, 3, &v), ST_MODEL);
    assert_int_equal(op_view(p, x, "u", 0, 0, &v), ST_MODEL);
    assert_int_equal(op_view(p, x, "u", 0, INT64_MAX, &v), ST_MODEL);
    assert_int_equal(op_view(p, block_batch(p, "ids"), "u", 0, 1, &v), ST_MODEL);
}

static void test_boundaries(void **state)
{
    (void)state;
    op_program *p = program(PURPOSE_TRAIN, DTYPE_F32);
    tensor_id x, y;
    for (int i = 0; i < OP_MAX_BOUNDARY; i++) {
        MUST(op_input(p, "x", extent_tokens(1), extent_of(10), &x));
    }
    assert_int_equal(op_input(p, "x", extent_tokens(1), extent_of(10), &x), ST_MODEL);
    x = p->inputs[0];
    assert_int_equal(op_output(p, x), ST_MODEL); // the block did not make it
    MUST(op_activate(p, x, ACT_RELU, &y));
    MUST(op_output(p, y));
    assert_int_equal(op_output(p, y), ST_MODEL);
    assert_true(error_has("twice"));
    assert_int_equal(p->output_count, 1);
}

static void test_purposes(void **state)
{
    (void)state;
    // Training has a separate activation; evaluation fuses it and drops nothing.
    const op_program *train = block_gpt2(a, PURPOSE_TRAIN, 0.1f);
    const op_program *evaluate = block_gpt2(a, PURPOSE_EVALUATE, 0.1f);
    assert_int_equal(count_of(train, OP_FORWARD, OP_DROPOUT), 2);
    assert_int_equal(count_of(evaluate, OP_FORWARD, OP_DROPOUT), 0);
    assert_int_equal(count_of(evaluate, OP_FORWARD, OP_ACTIVATION), 0);
    assert_int_equal(node_of(evaluate, OP_FORWARD, OP_MATMUL, 2)->attrs.activation, ACT_GELU_TANH);
    assert_int_equal(node_of(train, OP_FORWARD, OP_MATMUL, 2)->attrs.activation, ACT_NONE);
    assert_true(node_of(train, OP_FORWARD, OP_ATTENTION, 0)->attrs.dropout > 0.0f);
    assert_true(node_of(evaluate, OP_FORWARD, OP_ATTENTION, 0)->attrs.dropout == 0.0f);
    // The default scale.
    assert_true(node_of(train, OP_FORWARD, OP_ATTENTION, 0)->attrs.scale ==
                (float)(1.0 / sqrt(6.0)));
    // Losses only, in the forward list.
    const op_program *head = block_head(a, PURPOSE_EVALUATE);
    assert_int_equal(head->lists[OP_FORWARD].count, 3);
    assert_int_equal(head->lists[OP_BACKWARD_WEIGHT].count, 0);
    const op_node *loss = node_of(head, OP_FORWARD, OP_HEAD_LOSS, 0);
    assert_int_equal(loss->out[1], TENSOR_NONE);
    assert_int_equal(loss->out[2], TENSOR_NONE);
    assert_int_equal(op_at(head, loss->out[0])->type, DTYPE_F32);
    assert_int_equal(node_of(head, OP_FORWARD, OP_STEP_LOSS, 0)->out[0], head->step);
}

static void test_types(void **state)
{
    (void)state;
    const op_program *p = block_gpt2(a, PURPOSE_TRAIN, 0.0f);
    const op_node *norm = node_of(p, OP_FORWARD, OP_LAYERNORM, 1);
    assert_int_equal(op_at(p, norm->out[0])->type, DTYPE_BF16);
    assert_int_equal(op_at(p, norm->out[1])->type, DTYPE_F32);
    assert_int_equal(op_at(p, norm->out[2])->type, DTYPE_F32);
    assert_int_equal(op_at(p, norm->out[3])->type, DTYPE_BF16);
    assert_int_equal(op_at(p, node_of(p, OP_FORWARD, OP_ATTENTION, 0)->out[1])->type, DTYPE_F32);
}

// Names are unique, because the plan, the trace and errors refer to tensors by name.
static void test_names(void **state)
{
    (void)state;
    op_program *p = block_llama(a, PURPOSE_TRAIN, true);
    MUST(op_program_differentiate(p));
    for (tensor_id i = 0; i < p->tensor_count; i++) {
        assert_true(op_at(p, i)->name[0] != '\0');
        for (tensor_id k = 0; k < i; k++) {
            if (strcmp(op_at(p, i)->name, op_at(p, k)->name) != 0) continue;
            print_error("%s twice\n", op_at(p, i)->name);
            fail_msg("a name is taken twice");
        }
    }
    char name[OP_NAME_BYTES];
    for (int n = 1; n < 20;
         n++) { // one after the other, as if the lowest free number were looked for
        char wanted[16] = "name";
        tensor_id t = TENSOR_NONE;
        if (n > 1) (void)snprintf(wanted, sizeof(wanted), "name.%d", n);
        op_name_unique(p, "", "name", name);
        assert_string_equal(name, wanted);
        MUST(
            op_tensor_make(p, name, ROLE_ACTIVATION, DTYPE_F32, 1, extent_of(1), extent_of(0), &t));
    }
    op_name_unique(p, "d_", "a_name_that_is_far_too_long_for_the_bytes_that_there_are", name);
    assert_int_equal(strlen(name), OP_NAME_BYTES - 1);
}

static void test_generation(void **state)
{
    (void)state;
    op_program *p = program(PURPOSE_DECODE, DTYPE_BF16);
    const extent sequences = extent_make(1, EXTENT_SEQS), cached = extent_make(1, EXTENT_CACHE);
    tensor_id q, k, cache, lengths, y, rows, last, logits, params, draws, ids;
    MUST(op_input(p, "q", extent_tokens(1), extent_of(24), &q));
    MUST(op_input(p, "k", extent_tokens(1), extent_of(12), &k));
    MUST(op_tensor_make(p, "lengths", ROLE_BATCH, DTYPE_I32, 1, sequences, extent_of(0), &lengths));
    MUST(op_tensor_make(p, "k_cache", ROLE_CACHE, DTYPE_BF16, 2, cached, extent_of(12), &cache));
    MUST(op_cache_append(p, k, lengths, TENSOR_NONE, 0, cache));
    op_attrs attrs = op_node_of(OP_ATTENTION).attrs;
    attrs.heads = 4;
    attrs.kv_heads = 2;
    attrs.head_dim = 6;
    MUST(op_attention(p, q, cache, cache, TENSOR_NONE, lengths, &attrs, &y));
    // Without lengths, queries and keys have the same rows.
    assert_int_equal(op_attention(p, q, cache, cache, TENSOR_NONE, TENSOR_NONE, &attrs, &y),
                     ST_MODEL);
    MUST(op_tensor_make(p, "rows", ROLE_BATCH, DTYPE_I32, 1, sequences, extent_of(0), &rows));
    MUST(op_gather(p, y, rows, &last));
    assert_int_equal(op_at(p, last)->dims[0].symbol, EXTENT_SEQS);
    MUST(op_matmul(p, last, block_weight(p, "head", 50, 24), TENSOR_NONE, ACT_NONE, &logits));
    MUST(op_cast(p, logits, DTYPE_F32, &logits));
    MUST(op_tensor_make(p, "params", ROLE_BATCH, DTYPE_F32, 2, sequences, extent_of(8), &params));
    MUST(op_tensor_make(p, "draws", ROLE_BATCH, DTYPE_I64, 1, sequences, extent_of(0), &draws));
    MUST(op_sample_ids(p, logits, params, draws, &ids));
    assert_int_equal(op_at(p, ids)->type, DTYPE_I32);
    MUST(op_output(p, ids));
}

// Updates write into the states.
static void test_optimizer_is_in_place(void **state)
{
    (void)state;
    op_program *p = program(PURPOSE_TRAIN, DTYPE_BF16);
    op_node n = op_node_of(OP_ADAMW);
    const char *const names[] = {"grad", "master", "m", "v"};
    for (int i = 0; i < 4; i++) {
        MUST(op_tensor_make(p, names[i], i == 0 ? ROLE_WEIGHT_GRAD : ROLE_STATE, DTYPE_F32, 2,
                            extent_of(4), extent_of(6), &n.in[i]));
    }
    MUST(op_append(p, OP_FORWARD, &n, 0));
    for (int o = 0; o < 3; o++) assert_int_equal(n.out[o], n.in[1 + o]);
    assert_int_equal(n.out[3], TENSOR_NONE);
    op_node begin = op_node_of(OP_STEP_BEGIN), norm = op_node_of(OP_GRAD_NORM);
    norm.in[0] = n.in[0];
    MUST(op_append(p, OP_FORWARD, &begin, 0));
    MUST(op_append(p, OP_FORWARD, &norm, 0));
    assert_int_equal(begin.out[0], norm.out[0]); // one step block
    extent_binding bound = {{1}};
    assert_int_equal(op_tensor_bytes(op_at(p, p->step), &bound), (int64_t)sizeof(step_block));
}

static void test_errors(void **state)
{
    (void)state;
    op_program *p = program(PURPOSE_TRAIN, DTYPE_F32);
    tensor_id x, y, rope;
    MUST(op_input(p, "x", extent_tokens(1), extent_of(24), &x));
    const tensor_id w = block_weight(p, "w", 8, 23), positions = block_batch(p, "positions");
    assert_int_equal(op_matmul(p, x, w, TENSOR_NONE, ACT_NONE, &y), ST_MODEL);
    assert_true(error_has("matmul: dim 1 of input 1 (w) is 23, expected 24"));
    assert_int_equal(op_matmul(p, positions, w, TENSOR_NONE, ACT_NONE, &y), ST_MODEL);
    assert_true(error_has("positions"));
    assert_int_equal(
        op_rmsnorm(p, x, block_weight(p, "n", 7, 0), TENSOR_NONE, 1e-5f, 0.0f, &y, NULL), ST_MODEL);
    assert_true(error_has("24 columns"));
    MUST(
        op_tensor_make(p, "rope", ROLE_CONSTANT, DTYPE_F32, 2, extent_of(64), extent_of(6), &rope));
    assert_int_equal(op_rope(p, x, positions, rope, 5, 6, false, &y), ST_MODEL);
    assert_int_equal(op_rope(p, x, positions, rope, 4, 5, false, &y), ST_MODEL);
    op_attrs attrs = op_node_of(OP_ATTENTION).attrs;
    attrs.heads = 4;
    attrs.kv_heads = 3;
    attrs.head_dim = 6;
    assert_int_equal(op_attention(p, x, x, x, TENSOR_NONE, TENSOR_NONE, &attrs, &y), ST_MODEL);
    attrs.heads = attrs.kv_heads = 2;
    attrs.head_dim = 300;
    assert_int_equal(op_attention(p, x, x, x, TENSOR_NONE, TENSOR_NONE, &attrs, &y),
                     ST_UNSUPPORTED);
    assert_int_equal(op_dropout(p, x, 1.0f, 0, &y), ST_MODEL);
    assert_int_equal(op_swiglu(p, block_weight(p, "odd", 3, 5), &y), ST_MODEL);
    op_node fused = op_node_of(OP_MATMUL);
    fused.in[0] = x;
    fused.in[1] = block_weight(p, "square", 24, 24);
    fused.attrs.activation = ACT_SILU;
    assert_int_equal(op_append(p, OP_FORWARD, &fused, 0), ST_MODEL);
    assert_true(error_has("op_matmul"));
    op_node onto = op_node_of(OP_ADD);
    onto.in[0] = onto.in[1] = onto.out[0] = x;
    assert_int_equal(op_append(p, OP_FORWARD, &onto, 0), ST_MODEL);
    assert_true(error_has("may not be written"));
    onto.out[0] = 1000;
    assert_int_equal(op_append(p, OP_FORWARD, &onto, 0), ST_MODEL);
    tensor_id huge;
    assert_int_equal(op_tensor_make(p, "huge", ROLE_WEIGHT, DTYPE_F32, 1, extent_of(INT64_MAX),
                                    extent_of(0), &huge),
                     ST_MODEL);
    assert_int_equal(p->lists[OP_FORWARD].count, 0); // nothing of all this was appended
}

// Rows that the device counts: tensors that have them, results made of them, and errors.
static void bounded_rows(void **state)
{
    (void)state;
    op_program *p = program(PURPOSE_TRAIN, DTYPE_BF16);
    tensor_id counts, h, act, y, w;
    MUST(
        op_tensor_make(p, "counts", ROLE_BATCH, DTYPE_I32, 1, extent_of(3), extent_of(0), &counts));
    const extent rows = extent_bounded(extent_tokens(2), counts, 2);
    MUST(op_tensor_make(p, "h", ROLE_ACTIVATION, DTYPE_BF16, 2, rows, extent_of(8), &h));
    MUST(op_swiglu(p, h, &act));
    MUST(op_tensor_make(p, "w", ROLE_WEIGHT, DTYPE_BF16, 2, extent_of(5), extent_of(4), &w));
    MUST(op_matmul(p, act, w, TENSOR_NONE, ACT_NONE, &y));
    assert_true(extent_equal(op_at(p, y)->dims[0], rows));
    assert_int_equal(op_count_of(p, y), counts);
    assert_int_equal(op_count_of(p, w), TENSOR_NONE);
    const extent_binding bound = {{1, 12, 3, 30}};
    assert_int_equal(op_tensor_elements(op_at(p, y), &bound), 2 * 12 * 5);
    // Other rows, or the same bound with another element as the count, are different rows.
    tensor_id other;
    MUST(op_tensor_make(p, "other", ROLE_ACTIVATION, DTYPE_BF16, 2,
                        extent_bounded(extent_tokens(2), counts, 1), extent_of(5), &other));
    assert_int_equal(op_add(p, y, other, &h), ST_MODEL);
    assert_int_equal(op_output(p, y), ST_MODEL);
    const extent wrong[] = {extent_bounded(extent_tokens(2), counts, 3),
                            extent_bounded(extent_tokens(2), w, 0),
                            extent_bounded(extent_tokens(2), (tensor_id)p->tensor_count, 0)};
    for (int64_t i = 0; i < COUNT_OF(wrong); i++) {
        assert_int_equal(
            op_tensor_make(p, "x", ROLE_ACTIVATION, DTYPE_BF16, 2, wrong[i], extent_of(5), &other),
            ST_MODEL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),      cmocka_unit_test(test_views),
        cmocka_unit_test(test_boundaries), cmocka_unit_test(test_purposes),
        cmocka_unit_test(test_types),      cmocka_unit_test(test_names),
        cmocka_unit_test(test_generation), cmocka_unit_test(test_optimizer_is_in_place),
        cmocka_unit_test(test_errors),     cmocka_unit_test(bounded_rows),
    };
    return cmocka_run_group_tests_name("program", tests, setup, teardown);
}
