// Differentiation: the lists of whole blocks, and properties of any program's lists. The tests of
// the kernels run these lists and check that the numbers are gradients.
#include "fixtures/op/blocks_fixture.h"

static arena *a;

static int setup(void **state)
{
    (void)state;
    return arena_create("differentiate", 0, &a) == ST_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    arena_destroy(a);
    return 0;
}

// Returns columns [begin, end) of the bytes of t.
static void columns(const op_program *p, tensor_id t, int64_t *begin, int64_t *end)
{
    const op_tensor *x = op_at(p, t);
    *begin = x->view_of == TENSOR_NONE ? 0 : x->view_begin;
    *end = *begin + (x->ndim == 2 ? x->dims[1].scale : 1);
}

// Runs the lists in order and tracks which columns of which tensor have been written: every byte is
// written before it is read, completely, and exactly once.
typedef struct written {
    unsigned char column[4096];
} written;

static void write_columns(const op_program *p, const op_node *n, written *w)
{
    for (int o = 0; o < OP_MAX_OUT; o++) {
        if (n->out[o] == TENSOR_NONE || op_at(p, n->out[o])->role == ROLE_STEP) continue;
        int64_t begin, end;
        columns(p, n->out[o], &begin, &end);
        for (int64_t c = begin; c < end; c++) {
            const bool again = n->in[0] == n->out[o]; // += in place
            assert_int_equal(w[op_owner(p, n->out[o]).id].column[c], again ? 1 : 0);
            w[op_owner(p, n->out[o]).id].column[c] = 1;
        }
    }
}

static void read_columns(const op_program *p, const op_node *n, const written *w)
{
    for (int i = 0; i < OP_MAX_IN; i++) {
        if (n->in[i] == TENSOR_NONE) continue;
        const tensor_role role = op_at(p, op_owner(p, n->in[i]).id)->role;
        if (role != ROLE_ACTIVATION && role != ROLE_WEIGHT_GRAD) continue;
        int64_t begin, end;
        columns(p, n->in[i], &begin, &end);
        for (int64_t c = begin; c < end; c++) {
            assert_int_equal(w[op_owner(p, n->in[i]).id].column[c], 1);
        }
    }
}

static void check_flow(const op_program *p)
{
    written *w = NULL;
    MUST(arena_new(a, p->tensor_count, &w));
    const bool loss_first = p->output_count == 0;
    const op_list order[] = {OP_FORWARD, loss_first ? OP_BACKWARD_WEIGHT : OP_BACKWARD_INPUT,
                             loss_first ? OP_BACKWARD_INPUT : OP_BACKWARD_WEIGHT};
    for (int k = 0; k < 3; k++) {
        for (int64_t i = 0; i < p->lists[order[k]].count; i++) {
            const op_node *n = &p->lists[order[k]].nodes[i];
            read_columns(p, n, w);
            write_columns(p, n, w);
        }
    }
    // Every weight has one accumulator, of its shape, for each use; here each weight has one use.
    for (tensor_id t = 0; t < p->tensor_count; t++) {
        if (op_at(p, t)->role != ROLE_WEIGHT) continue;
        int uses = 0;
        for (tensor_id g = 0; g < p->tensor_count; g++) {
            const op_tensor *grad = op_at(p, g);
            if (grad->role != ROLE_WEIGHT_GRAD || grad->of != t) continue;
            uses++;
            assert_int_equal(grad->type, p->grad);
            assert_int_equal(grad->ndim, op_at(p, t)->ndim);
            assert_true(extent_equal(grad->dims[0], op_at(p, t)->dims[0]));
            assert_int_equal(w[g].column[0], 1);
        }
        assert_int_equal(uses, 1);
    }
    for (int i = 0; i < p->input_count; i++) {
        assert_int_not_equal(p->d_inputs[i], TENSOR_NONE);
        int64_t begin, end;
        columns(p, p->d_inputs[i], &begin, &end);
        for (int64_t c = begin; c < end; c++) {
            assert_int_equal(w[op_owner(p, p->d_inputs[i]).id].column[c], 1);
        }
    }
}

static void test_llama(void **state)
{
    (void)state;
    op_program *p = block_llama(a, PURPOSE_TRAIN, false);
    MUST(op_program_differentiate(p));
    check_flow(p);
    assert_int_equal(p->lists[OP_FORWARD].count, 11);
    // There is no addition: residual gradients are added inside the norms.
    static const op_code input[] = {OP_MATMUL_DX, OP_SWIGLU_BWD,    OP_MATMUL_DX, OP_RMSNORM_DX,
                                    OP_MATMUL_DX, OP_ATTENTION_BWD, OP_ROPE,      OP_ROPE,
                                    OP_MATMUL_DX, OP_RMSNORM_DX};
    assert_int_equal(p->lists[OP_BACKWARD_INPUT].count, COUNT_OF(input));
    for (int64_t i = 0; i < COUNT_OF(input); i++) {
        assert_int_equal(p->lists[OP_BACKWARD_INPUT].nodes[i].code, input[i]);
    }
    static const op_code products[] = {OP_MATMUL_DW, OP_MATMUL_DW, OP_RMSNORM_DW,
                                       OP_MATMUL_DW, OP_MATMUL_DW, OP_RMSNORM_DW};
    assert_int_equal(p->lists[OP_BACKWARD_WEIGHT].count, COUNT_OF(products));
    for (int64_t i = 0; i < COUNT_OF(products); i++) {
        assert_int_equal(p->lists[OP_BACKWARD_WEIGHT].nodes[i].code, products[i]);
    }
    // The second norm adds the gradient of the output; the first adds that of the second.
    const op_node *norm2 = node_of(p, OP_BACKWARD_INPUT, OP_RMSNORM_DX, 0);
    const op_node *norm1 = node_of(p, OP_BACKWARD_INPUT, OP_RMSNORM_DX, 1);
    assert_int_equal(norm2->in[4], p->d_outputs[0]);
    assert_int_equal(norm1->in[4], norm2->out[0]);
    assert_int_equal(p->d_inputs[0], norm1->out[0]);
    assert_int_equal(op_at(p, p->d_outputs[0])->role, ROLE_INPUT_GRAD);
    // The gradients of q and k are rotated back, that of v is not; all are parts of one tensor.
    const op_node *back = node_of(p, OP_BACKWARD_INPUT, OP_ATTENTION_BWD, 0);
    const op_node *dk = node_of(p, OP_BACKWARD_INPUT, OP_ROPE, 0);
    const op_node *dq = node_of(p, OP_BACKWARD_INPUT, OP_ROPE, 1);
    assert_true(dq->attrs.inverse && dk->attrs.inverse);
    assert_false(node_of(p, OP_FORWARD, OP_ROPE, 0)->attrs.inverse);
    const tensor_id dqkv = op_owner(p, back->out[2]).id;
    assert_int_not_equal(dqkv, back->out[2]);
    assert_int_equal(op_owner(p, dq->out[0]).id, dqkv);
    assert_int_equal(op_owner(p, dk->out[0]).id, dqkv);
    assert_int_equal(node_of(p, OP_BACKWARD_INPUT, OP_MATMUL_DX, 3)->in[0], dqkv);
}

static void test_llama_with_qk_norm(void **state)
{
    (void)state;
    op_program *p = block_llama(a, PURPOSE_TRAIN, true);
    MUST(op_program_differentiate(p));
    check_flow(p);
    assert_int_equal(count_of(p, OP_BACKWARD_INPUT, OP_RMSNORM_DX), 4);
    assert_int_equal(count_of(p, OP_BACKWARD_INPUT, OP_ADD), 0);
    // The dx of both are columns of the gradient of qkv.
    const op_node *k = node_of(p, OP_BACKWARD_INPUT, OP_RMSNORM_DX, 1);
    assert_int_not_equal(op_at(p, k->out[0])->view_of, TENSOR_NONE);
}

static void test_gpt2(void **state)
{
    (void)state;
    op_program *p = block_gpt2(a, PURPOSE_TRAIN, 0.1f);
    MUST(op_program_differentiate(p));
    check_flow(p);
    assert_int_equal(count_of(p, OP_FORWARD, OP_ACTIVATION), 1); // kept apart from its product
    assert_int_equal(count_of(p, OP_BACKWARD_INPUT, OP_ACTIVATION_BWD), 1);
    assert_int_equal(count_of(p, OP_BACKWARD_INPUT, OP_DROPOUT), 2);
    assert_int_equal(count_of(p, OP_BACKWARD_INPUT, OP_LAYERNORM_DX), 2);
    assert_int_equal(count_of(p, OP_BACKWARD_INPUT, OP_ADD), 0);
    assert_int_equal(count_of(p, OP_BACKWARD_WEIGHT, OP_BIAS_DW), 4);
    assert_int_equal(count_of(p, OP_BACKWARD_WEIGHT, OP_LAYERNORM_DW), 2);
    const op_node *drop = node_of(p, OP_BACKWARD_INPUT, OP_DROPOUT, 0);
    assert_int_equal(drop->attrs.site, 3); // the same draws as the forward's
    const op_node *back = node_of(p, OP_BACKWARD_INPUT, OP_ATTENTION_BWD, 0);
    assert_true(back->attrs.dropout == 0.1f && back->attrs.site == 1);
    assert_int_equal(op_at(p, back->out[0])->view_begin, 0);
    assert_int_equal(op_at(p, back->out[2])->view_begin, 2 * BLOCK_DIM);
}

static void test_head(void **state)
{
    (void)state;
    op_program *p = block_head(a, PURPOSE_TRAIN);
    MUST(op_program_differentiate(p));
    check_flow(p);
    assert_int_equal(p->lists[OP_BACKWARD_WEIGHT].nodes[0].code, OP_HEAD_LOSS);
    assert_int_equal(p->lists[OP_BACKWARD_WEIGHT].nodes[1].code, OP_STEP_LOSS);
    const op_node *loss = &p->lists[OP_BACKWARD_WEIGHT].nodes[0];
    const op_node *norm = node_of(p, OP_BACKWARD_INPUT, OP_RMSNORM_DX, 0);
    assert_int_equal(norm->in[0], loss->out[1]);
    assert_int_equal(norm->in[4], TENSOR_NONE);
    assert_int_equal(p->d_inputs[0], norm->out[0]);
}

// A head directly on the block's input: its dx is the block's.
static void test_bare_head(void **state)
{
    (void)state;
    op_program *p = NULL;
    tensor_id x, loss;
    MUST(op_program_create(a, PURPOSE_TRAIN, DTYPE_F32, DTYPE_F32, &p));
    MUST(op_input(p, "x", extent_tokens(1), extent_of(BLOCK_DIM), &x));
    MUST(op_head_loss(p, x, block_weight(p, "head", 50, BLOCK_DIM), block_batch(p, "labels"),
                      &(op_head_options){.z_loss = 0.1f}, &loss));
    MUST(op_program_differentiate(p));
    check_flow(p);
    assert_int_equal(p->lists[OP_FORWARD].count, 0);
    assert_int_equal(p->lists[OP_BACKWARD_INPUT].count, 0);
    assert_int_equal(p->d_inputs[0], p->lists[OP_BACKWARD_WEIGHT].nodes[0].out[1]);
}

static void test_embedding(void **state)
{
    (void)state;
    op_program *p = NULL;
    tensor_id x;
    MUST(op_program_create(a, PURPOSE_TRAIN, DTYPE_F32, DTYPE_F32, &p));
    const tensor_id ids = block_batch(p, "ids"), positions = block_batch(p, "positions");
    MUST(op_embedding(p, ids, block_weight(p, "wte", 50, BLOCK_DIM), positions,
                      block_weight(p, "wpe", 20, BLOCK_DIM), &x));
    MUST(op_dropout(p, x, 0.5f, 0, &x));
    MUST(op_output(p, x));
    MUST(op_program_differentiate(p));
    check_flow(p);
    assert_int_equal(count_of(p, OP_BACKWARD_WEIGHT, OP_EMBEDDING_DW), 2);
    assert_int_equal(p->lists[OP_BACKWARD_INPUT].count, 1); // dropout's
}

// Three nodes read one tensor: two additions, in the order of the walk.
static void test_several_uses(void **state)
{
    (void)state;
    op_program *p = NULL;
    tensor_id x, y1, y2, y3, s, out;
    MUST(op_program_create(a, PURPOSE_TRAIN, DTYPE_F32, DTYPE_F32, &p));
    MUST(op_input(p, "x", extent_tokens(1), extent_of(8), &x));
    MUST(op_activate(p, x, ACT_RELU, &y1));
    MUST(op_activate(p, x, ACT_SILU, &y2));
    MUST(op_add(p, x, y1, &y3));
    MUST(op_add(p, y3, y2, &s));
    MUST(op_add(p, s, s, &out));
    MUST(op_output(p, out));
    MUST(op_program_differentiate(p));
    check_flow(p);
    // s is read twice, and x three times.
    assert_int_equal(count_of(p, OP_BACKWARD_INPUT, OP_ADD), 3);
}

// Gradients of views that are used twice are added in place; the gradient of one view given to
// another is copied.
static void test_views(void **state)
{
    (void)state;
    op_program *p = NULL;
    tensor_id x, wide, left, right, l1, l2, sum, out;
    MUST(op_program_create(a, PURPOSE_TRAIN, DTYPE_F32, DTYPE_F32, &p));
    MUST(op_input(p, "x", extent_tokens(1), extent_of(8), &x));
    MUST(op_activate(p, x, ACT_RELU, &wide));
    MUST(op_view(p, wide, "left", 0, 4, &left));
    MUST(op_view(p, wide, "right", 4, 4, &right));
    MUST(op_activate(p, left, ACT_SILU, &l1));
    MUST(op_activate(p, left, ACT_GELU_ERF, &l2));
    MUST(op_add(p, l1, l2, &sum));
    MUST(op_add(p, sum, right, &out));
    MUST(op_output(p, out));
    MUST(op_program_differentiate(p));
    check_flow(p);
    assert_int_equal(count_of(p, OP_BACKWARD_INPUT, OP_CAST), 1);
    const op_node *add = node_of(p, OP_BACKWARD_INPUT, OP_ADD, 0);
    assert_int_equal(add->in[0], add->out[0]);
    assert_int_equal(op_at(p, add->out[0])->view_begin, 0);
}

static void test_refusals(void **state)
{
    (void)state;
    op_program *p = NULL;
    tensor_id x, y, v;
    // Columns without a gradient.
    MUST(op_program_create(a, PURPOSE_TRAIN, DTYPE_F32, DTYPE_F32, &p));
    MUST(op_input(p, "x", extent_tokens(1), extent_of(8), &x));
    MUST(op_activate(p, x, ACT_RELU, &y));
    MUST(op_view(p, y, "left", 0, 4, &v));
    MUST(op_activate(p, v, ACT_RELU, &y));
    MUST(op_output(p, y));
    assert_int_equal(op_program_differentiate(p), ST_UNSUPPORTED);
    assert_non_null(strstr(error_last()->text, "4 of the 8 columns"));
    // No rule.
    MUST(op_program_create(a, PURPOSE_TRAIN, DTYPE_F32, DTYPE_F32, &p));
    MUST(op_input(p, "x", extent_tokens(1), extent_of(8), &x));
    tensor_id rows;
    const extent sequences = extent_make(1, EXTENT_SEQS);
    MUST(op_tensor_make(p, "rows", ROLE_BATCH, DTYPE_I32, 1, sequences, extent_of(0), &rows));
    MUST(op_gather(p, x, rows, &y));
    MUST(op_output(p, y));
    assert_int_equal(op_program_differentiate(p), ST_UNSUPPORTED);
    assert_non_null(strstr(error_last()->text, "gather"));
    // Only training has gradients.
    p = block_llama(a, PURPOSE_EVALUATE, false);
    assert_int_equal(op_program_differentiate(p), ST_INTERNAL);
    // A GEMM before the loss: its weight gradient would depend on the other list.
    MUST(op_program_create(a, PURPOSE_TRAIN, DTYPE_F32, DTYPE_F32, &p));
    MUST(op_input(p, "x", extent_tokens(1), extent_of(8), &x));
    MUST(op_matmul(p, x, block_weight(p, "w", 8, 8), TENSOR_NONE, ACT_SILU, &y));
    MUST(op_head_loss(p, y, block_weight(p, "head", 50, 8), block_batch(p, "labels"),
                      &(op_head_options){.z_loss = 0.0f}, &v));
    assert_int_equal(op_program_differentiate(p), ST_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama),        cmocka_unit_test(test_llama_with_qk_norm),
        cmocka_unit_test(test_gpt2),         cmocka_unit_test(test_head),
        cmocka_unit_test(test_bare_head),    cmocka_unit_test(test_embedding),
        cmocka_unit_test(test_several_uses), cmocka_unit_test(test_views),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("differentiate", tests, setup, teardown);
}
