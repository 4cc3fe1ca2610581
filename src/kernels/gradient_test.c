// Gradient rules and kernels together, against central differences in double.
//
// A case builds a small program; op_program_differentiate adds its backward lists. The loss is
// sum(c * output) with random c, or that of the head. Every element of every weight and input is
// moved by +-h, the forward list runs again on `ref` in fp64, and the slope is compared with the
// gradients of the backward lists. The last case is a network of two transformer blocks, which also
// runs with recomputation and then has the same gradients to the bit.
#include "fixtures/kernels/gradient_fixture.h"
#include "fixtures/kernels/sample_fixture.h"
#include "kernels/kernels_internal.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { SEQS = 2, SEQ = 5, ROWS = SEQS * SEQ, VOCAB = 7, PLACES = 9 };
enum { HEADS = 4, KV = 2, HEAD_DIM = 4, WIDE = HEADS * HEAD_DIM, PAIR = 2 * HEAD_DIM };
enum { DIM = 8, FFN = 6, GATED = 2 * FFN, EXPERTS = 5 };

typedef struct example {
    const char *name;
    status (*build)(op_program *p);
} example;

// ---- writing programs ---------------------------------------------------------------------------

static status weight2(op_program *p, const char *name, int64_t rows, int64_t columns, tensor_id *w)
{
    return op_tensor_make(p, name, ROLE_WEIGHT, p->compute, 2, extent_of(rows), extent_of(columns),
                          w);
}

static status weight1(op_program *p, const char *name, int64_t count, tensor_id *w)
{
    return op_tensor_make(p, name, ROLE_WEIGHT, p->compute, 1, extent_of(count), extent_of(0), w);
}

static status batch(op_program *p, const char *name, tensor_id *t)
{
    return op_tensor_make(p, name, ROLE_BATCH, DTYPE_I32, 1, extent_tokens(1), extent_of(0), t);
}

static status input(op_program *p, const char *name, int64_t columns, tensor_id *x)
{
    return op_input(p, name, extent_tokens(1), extent_of(columns), x);
}

static status rope_table(op_program *p, tensor_id *table)
{
    return op_tensor_make(p, "rope", ROLE_CONSTANT, p->compute, 2, extent_of(PLACES),
                          extent_of(HEAD_DIM), table);
}

static status build_embedding(op_program *p)
{
    tensor_id ids, table, positions, places, x;
    TRY(batch(p, "ids", &ids));
    TRY(batch(p, "positions", &positions));
    TRY(weight2(p, "table", VOCAB, DIM, &table));
    TRY(weight2(p, "places", PLACES, DIM, &places));
    TRY(op_embedding(p, ids, table, positions, places, &x));
    return op_output(p, x);
}

static status build_product(op_program *p, op_activation activation, bool has_bias)
{
    tensor_id x, w, bias = TENSOR_NONE, y;
    TRY(input(p, "x", DIM, &x));
    TRY(weight2(p, "w", FFN, DIM, &w));
    if (has_bias) TRY(weight1(p, "bias", FFN, &bias));
    TRY(op_matmul(p, x, w, bias, activation, &y));
    return op_output(p, y);
}

static status build_matmul(op_program *p)
{
    return build_product(p, ACT_NONE, false);
}

static status build_matmul_bias(op_program *p)
{
    return build_product(p, ACT_NONE, true);
}

static status build_matmul_gelu_tanh(op_program *p)
{
    return build_product(p, ACT_GELU_TANH, true);
}

static status build_matmul_gelu_erf(op_program *p)
{
    return build_product(p, ACT_GELU_ERF, true);
}

static status build_matmul_silu(op_program *p)
{
    return build_product(p, ACT_SILU, false);
}

static status build_matmul_relu(op_program *p)
{
    return build_product(p, ACT_RELU, true);
}

// One input used twice, and once more through another node.
static status build_add(op_program *p)
{
    tensor_id a, b, sum, twice;
    TRY(input(p, "a", DIM, &a));
    TRY(input(p, "b", DIM, &b));
    TRY(op_add(p, a, b, &sum));
    TRY(op_add(p, sum, a, &twice));
    return op_output(p, twice);
}

static status build_norm(op_program *p, bool layer, bool has_delta, bool has_bias, float plus)
{
    tensor_id x, w, b = TENSOR_NONE, delta = TENSOR_NONE, y, h;
    TRY(input(p, "x", DIM, &x));
    if (has_delta) TRY(input(p, "delta", DIM, &delta));
    TRY(weight1(p, "w", DIM, &w));
    if (has_bias) TRY(weight1(p, "b", DIM, &b));
    if (layer) {
        TRY(op_layernorm(p, x, w, b, delta, 1e-3f, &y, &h));
    } else {
        TRY(op_rmsnorm(p, x, w, delta, 1e-3f, plus, &y, &h));
    }
    TRY(op_output(p, y));
    return has_delta ? op_output(p, h) : ST_OK;
}

static status build_rmsnorm(op_program *p)
{
    return build_norm(p, false, false, false, 0.0f);
}

static status build_rmsnorm_residual(op_program *p)
{
    return build_norm(p, false, true, false, 1.0f);
}

static status build_layernorm(op_program *p)
{
    return build_norm(p, true, false, true, 0.0f);
}

static status build_layernorm_residual(op_program *p)
{
    return build_norm(p, true, true, false, 0.0f);
}

// A norm of each head separately: the weight is as wide as one head.
static status build_rmsnorm_groups(op_program *p)
{
    tensor_id x, w, y;
    TRY(input(p, "x", WIDE, &x));
    TRY(weight1(p, "w", HEAD_DIM, &w));
    TRY(op_rmsnorm(p, x, w, TENSOR_NONE, 1e-3f, 0.0f, &y, NULL));
    return op_output(p, y);
}

static status build_turn(op_program *p, int64_t columns, int32_t head, bool interleaved)
{
    tensor_id x, positions, table, y;
    TRY(input(p, "x", columns, &x));
    TRY(batch(p, "positions", &positions));
    TRY(rope_table(p, &table));
    TRY(op_rope(p, x, positions, table, 2, head, interleaved, &y));
    return op_output(p, y);
}

static status build_rope(op_program *p)
{
    return build_turn(p, PAIR, HEAD_DIM, false);
}

static status build_rope_fused(op_program *p)
{
    return build_turn(p, 2 * (HEAD_DIM + 3) + 1, HEAD_DIM + 3, true); // 3 of a head stay
}

static status attend(op_program *p, const op_attrs *attrs, bool has_documents)
{
    tensor_id q, k, v, documents = TENSOR_NONE, y;
    TRY(input(p, "q", (int64_t)attrs->heads * HEAD_DIM, &q));
    TRY(input(p, "k", (int64_t)attrs->kv_heads * HEAD_DIM, &k));
    TRY(input(p, "v", (int64_t)attrs->kv_heads * HEAD_DIM, &v));
    if (has_documents) TRY(batch(p, "documents", &documents));
    TRY(op_attention(p, q, k, v, documents, TENSOR_NONE, attrs, &y));
    return op_output(p, y);
}

static op_attrs attention_attrs(int32_t kv_heads)
{
    return (op_attrs){.heads = HEADS, .kv_heads = kv_heads, .head_dim = HEAD_DIM, .scale = 0.7f};
}

static status build_attention(op_program *p)
{
    const op_attrs attrs = attention_attrs(HEADS);
    return attend(p, &attrs, false);
}

static status build_attention_groups_window(op_program *p)
{
    op_attrs attrs = attention_attrs(KV);
    attrs.window = 3;
    return attend(p, &attrs, false);
}

static status build_attention_documents_dropout(op_program *p)
{
    op_attrs attrs = attention_attrs(1);
    attrs.dropout = 0.3f;
    attrs.site = 6;
    return attend(p, &attrs, true);
}

// Capped scores, sinks, and values of another width than keys.
static status build_attention_capped_sinks(op_program *p)
{
    enum { VALUE = HEAD_DIM + 1 };
    tensor_id in[7] = {0, 0, 0, TENSOR_NONE, TENSOR_NONE, 0, TENSOR_NONE}, y;
    op_attrs attrs = attention_attrs(KV);
    attrs.cap = 0.4f;
    attrs.value_dim = VALUE;
    TRY(input(p, "q", WIDE, &in[0]));
    TRY(input(p, "k", PAIR, &in[1]));
    TRY(input(p, "v", (int64_t)KV * VALUE, &in[2]));
    TRY(weight1(p, "sinks", HEADS, &in[5]));
    TRY(op_attention_sinks(p, in, &attrs, &y));
    return op_output(p, y);
}

static status build_scale(op_program *p)
{
    tensor_id x, y;
    TRY(input(p, "x", DIM, &x));
    TRY(op_scale(p, x, 1.7f, &y));
    TRY(op_clamp(p, y, 0.8f, &y)); // some are above it
    return op_output(p, y);
}

static status build_swiglu(op_program *p)
{
    tensor_id h, a;
    TRY(input(p, "h", GATED, &h));
    TRY(op_swiglu(p, h, &a));
    return op_output(p, a);
}

static status build_geglu(op_program *p, op_activation gelu)
{
    tensor_id h, a;
    TRY(input(p, "h", GATED, &h));
    TRY(op_geglu(p, h, gelu, &a));
    return op_output(p, a);
}

static status build_geglu_tanh(op_program *p)
{
    return build_geglu(p, ACT_GELU_TANH);
}

static status build_geglu_erf(op_program *p)
{
    return build_geglu(p, ACT_GELU_ERF);
}

static status build_activation(op_program *p)
{
    tensor_id x, a, b, c;
    TRY(input(p, "x", DIM, &x));
    TRY(op_activate(p, x, ACT_SILU, &a));
    TRY(op_activate(p, a, ACT_GELU_TANH, &b));
    TRY(op_activate(p, b, ACT_GELU_ERF, &c));
    return op_output(p, c);
}

static status build_dropout(op_program *p)
{
    tensor_id x, y;
    TRY(input(p, "x", DIM, &x));
    TRY(op_dropout(p, x, 0.4f, 9, &y));
    return op_output(p, y);
}

// The lengths count as constants.
static status build_magnitude(op_program *p)
{
    tensor_id x, m, bias, squares, y = TENSOR_NONE;
    TRY(input(p, "x", DIM, &x));
    TRY(weight1(p, "m", DIM, &m));
    TRY(weight1(p, "bias", DIM, &bias));
    TRY(op_tensor_make(p, "squares", ROLE_CONSTANT, p->compute, 2, extent_of(1), extent_of(DIM),
                       &squares));
    TRY(op_magnitude(p, x, m, squares, &y));
    TRY(op_add_bias(p, y, bias, &y));
    return op_output(p, y);
}

static status build_cast(op_program *p)
{
    tensor_id x, y;
    TRY(input(p, "x", DIM, &x));
    TRY(op_cast(p, x, DTYPE_F32, &y));
    return op_output(p, y);
}

static status build_head_of(op_program *p, float cap)
{
    tensor_id x, w, labels, loss;
    TRY(input(p, "x", DIM, &x));
    TRY(weight2(p, "w", VOCAB, DIM, &w));
    TRY(batch(p, "labels", &labels));
    return op_head_loss(p, x, w, labels, &(op_head_options){.z_loss = 0.1f, .cap = cap}, &loss);
}

static status build_head(op_program *p)
{
    return build_head_of(p, 0.0f);
}

static status build_head_capped(op_program *p)
{
    return build_head_of(p, 0.8f);
}

// A loss of pairs behind a head, with a capped logit.
static status build_objective(op_program *p)
{
    tensor_id in[5];
    op_objective_rows rows;
    TRY(input(p, "x", DIM, &in[0]));
    TRY(weight2(p, "w", VOCAB, DIM, &in[1]));
    TRY(batch(p, "labels", &in[2]));
    TRY(batch(p, "documents", &in[3]));
    TRY(op_tensor_make(p, "given", ROLE_BATCH, DTYPE_F64, 2, extent_tokens(1),
                       extent_of(GIVEN_COLUMNS), &in[4]));
    const op_objective_attrs dpo = {.kind = OBJECTIVE_DPO, .beta = 0.5f, .smoothing = 0.2f};
    return op_head_objective(p, in, &(op_head_options){.cap = 0.8f}, &dpo, &rows);
}

// Experts as model/block/experts.c builds them: weights travel with the rows and are applied
// between the GEMMs.
static status build_experts(op_program *p)
{
    tensor_id x, router, up, down, logits, ids, weights, h, a, d, y;
    op_permuted rows;
    TRY(input(p, "x", DIM, &x));
    TRY(weight2(p, "router", EXPERTS, DIM, &router));
    TRY(weight2(p, "up", EXPERTS * GATED, DIM, &up));
    TRY(weight2(p, "down", EXPERTS * DIM, FFN, &down));
    TRY(op_matmul(p, x, router, TENSOR_NONE, ACT_NONE, &logits));
    TRY(op_route(p, logits, 2, true, &ids, &weights));
    TRY(op_permute(p, x, ids, weights, EXPERTS, &rows));
    TRY(op_grouped_matmul(p, rows.rows, up, rows.offsets, EXPERTS, &h));
    TRY(op_swiglu(p, h, &a));
    TRY(op_scale_rows(p, a, rows.scale, &a));
    TRY(op_grouped_matmul(p, a, down, rows.offsets, EXPERTS, &d));
    TRY(op_unpermute(p, d, rows.row_of, TENSOR_NONE, &y));
    return op_output(p, y);
}

// Weights of the softmax over all experts, applied where rows come back; some tokens take one
// expert only, some none.
static status build_experts_weighted(op_program *p)
{
    tensor_id x, router, w, logits, ids, chosen, weights, h, y;
    op_permuted rows;
    TRY(input(p, "x", DIM, &x));
    TRY(weight2(p, "router", EXPERTS, DIM, &router));
    TRY(weight2(p, "w", EXPERTS * DIM, DIM, &w));
    TRY(op_matmul(p, x, router, TENSOR_NONE, ACT_NONE, &logits));
    TRY(op_route(p, logits, 2, false, &ids, &weights));
    TRY(op_tensor_make(p, "experts", ROLE_BATCH, DTYPE_I32, 2, extent_tokens(1), extent_of(2),
                       &chosen));
    TRY(op_permute(p, x, chosen, TENSOR_NONE, EXPERTS, &rows));
    TRY(op_grouped_matmul(p, rows.rows, w, rows.offsets, EXPERTS, &h));
    TRY(op_unpermute(p, h, rows.row_of, weights, &y));
    return op_output(p, y);
}

// Experts of gpt-oss: biases of rows and of tokens, and a gate with limits that some values meet.
static status build_experts_biased(op_program *p)
{
    tensor_id x, router, up, up_bias, down, down_bias, logits, h, a, d, y;
    op_chosen chosen;
    op_permuted rows;
    TRY(input(p, "x", DIM, &x));
    TRY(weight2(p, "router", EXPERTS, DIM, &router));
    TRY(weight2(p, "up", EXPERTS * GATED, DIM, &up));
    TRY(weight2(p, "up_bias", EXPERTS * GATED, 1, &up_bias));
    TRY(weight2(p, "down", EXPERTS * DIM, FFN, &down));
    TRY(weight2(p, "down_bias", EXPERTS, DIM, &down_bias));
    TRY(op_matmul(p, x, router, TENSOR_NONE, ACT_NONE, &logits));
    TRY(op_route(p, logits, 2, true, &chosen.ids, &chosen.weights));
    TRY(op_permute(p, x, chosen.ids, chosen.weights, EXPERTS, &rows));
    TRY(op_grouped_matmul(p, rows.rows, up, rows.offsets, EXPERTS, &h));
    TRY(op_bias_rows(p, h, up_bias, rows.offsets, EXPERTS, &h));
    TRY(op_clamped_gate(p, h, 1.702f, 0.5f, &a));
    TRY(op_scale_rows(p, a, rows.scale, &a));
    TRY(op_grouped_matmul(p, a, down, rows.offsets, EXPERTS, &d));
    TRY(op_unpermute(p, d, rows.row_of, TENSOR_NONE, &y));
    TRY(op_bias_tokens(p, y, &chosen, down_bias, &y));
    return op_output(p, y);
}

// Weights of a router, by scores, groups and a bias; its gate is that of shared experts.
static status route_of(op_program *p, const op_attrs *attrs, bool has_bias)
{
    tensor_id x, router, w, bias = TENSOR_NONE, logits, ids, weights, gate, y;
    TRY(input(p, "x", DIM, &x));
    TRY(weight2(p, "router", 6, DIM, &router));
    TRY(weight2(p, "gate", 1, DIM, &w));
    TRY(op_matmul(p, x, router, TENSOR_NONE, ACT_NONE, &logits));
    if (has_bias) {
        TRY(op_tensor_make(p, "bias", ROLE_CONSTANT, p->compute, 1, extent_of(6), extent_of(0),
                           &bias));
    }
    TRY(op_route_scored(p, logits, bias, attrs, &ids, &weights));
    TRY(op_matmul(p, x, w, TENSOR_NONE, ACT_NONE, &gate));
    TRY(op_gate_rows(p, weights, gate, &y));
    return op_output(p, y);
}

static status build_route_softmax(op_program *p)
{
    const op_attrs attrs = {.top_k = 2, .groups = 3, .top_groups = 2, .scale = 1.5f};
    return route_of(p, &attrs, false);
}

static status build_route_sigmoid(op_program *p)
{
    const op_attrs attrs = {.top_k = 3,
                            .sigmoid = true,
                            .normalize = true,
                            .groups = 3,
                            .top_groups = 2,
                            .group_pairs = true,
                            .scale = 2.5f};
    return route_of(p, &attrs, true);
}

static status build_latent(op_program *p)
{
    enum { HEAD = HEAD_DIM + 3, VALUE = HEAD_DIM + 1 };
    tensor_id in[5], out[3], y;
    const op_attrs attrs = {.heads = 2,
                            .kv_heads = 2,
                            .head_dim = HEAD,
                            .value_dim = VALUE,
                            .interleaved = true,
                            .scale = 0.5f};
    TRY(input(p, "q", 2 * HEAD, &in[0]));
    TRY(input(p, "kv", 2 * (HEAD - HEAD_DIM + VALUE), &in[1]));
    TRY(input(p, "r", HEAD_DIM, &in[2]));
    TRY(batch(p, "positions", &in[3]));
    TRY(rope_table(p, &in[4]));
    TRY(op_latent(p, in, &attrs, out));
    TRY(op_attention(p, out[0], out[1], out[2], TENSOR_NONE, TENSOR_NONE, &attrs, &y));
    return op_output(p, y);
}

// norm -> fused q, k, v -> rotation -> attention -> product -> norm with residual -> gated MLP.
static status build_block(op_program *p, tensor_id x, tensor_id *delta, tensor_id *residual,
                          tensor_id positions, tensor_id table)
{
    enum { Q = HEADS * HEAD_DIM, K = KV * HEAD_DIM };
    tensor_id norm1, norm2, w_qkv, w_o, w_gate_up, w_down;
    TRY(weight1(p, "norm1", DIM, &norm1));
    TRY(weight1(p, "norm2", DIM, &norm2));
    TRY(weight2(p, "qkv", Q + K + K, DIM, &w_qkv));
    TRY(weight2(p, "o", DIM, Q, &w_o));
    TRY(weight2(p, "gate_up", GATED, DIM, &w_gate_up));
    TRY(weight2(p, "down", DIM, FFN, &w_down));
    tensor_id y, h, qkv, rotated, q, k, v, a, o, gate_up, gated;
    TRY(op_rmsnorm(p, x, norm1, *delta, 1e-3f, 0.0f, &y, &h));
    TRY(op_matmul(p, y, w_qkv, TENSOR_NONE, ACT_NONE, &qkv));
    TRY(op_rope(p, qkv, positions, table, HEADS + KV, HEAD_DIM, false, &rotated));
    TRY(op_view(p, rotated, "q", 0, Q, &q));
    TRY(op_view(p, rotated, "k", Q, K, &k));
    TRY(op_view(p, rotated, "v", Q + K, K, &v));
    const op_attrs attrs = attention_attrs(KV);
    TRY(op_attention(p, q, k, v, TENSOR_NONE, TENSOR_NONE, &attrs, &a));
    TRY(op_matmul(p, a, w_o, TENSOR_NONE, ACT_NONE, &o));
    TRY(op_rmsnorm(p, h, norm2, o, 1e-3f, 0.0f, &y, residual));
    TRY(op_matmul(p, y, w_gate_up, TENSOR_NONE, ACT_NONE, &gate_up));
    TRY(op_swiglu(p, gate_up, &gated));
    return op_matmul(p, gated, w_down, TENSOR_NONE, ACT_NONE, delta);
}

static status build_network(op_program *p)
{
    tensor_id x, positions, table, delta = TENSOR_NONE, residual, out;
    TRY(input(p, "x", DIM, &x));
    TRY(batch(p, "positions", &positions));
    TRY(rope_table(p, &table));
    TRY(build_block(p, x, &delta, &residual, positions, table));
    TRY(build_block(p, residual, &delta, &residual, positions, table));
    TRY(op_add(p, residual, delta, &out));
    return op_output(p, out);
}

// ---- running them -------------------------------------------------------------------------------

// Names determine the range of integers: ids and labels of VOCAB, positions of PLACES, documents of
// two.
static double integer_value(const op_tensor *t, int64_t row)
{
    const char *name = t->name;
    if (strcmp(name, "positions") == 0) return (double)(row % SEQ * 2 % PLACES);
    if (strcmp(name, "documents") == 0) return row % SEQ < 3 ? 0.0 : 1.0;
    if (strcmp(name, "experts") == 0) return (double)(row * 3 % 7 < 4 ? row * 3 % 7 : -1);
    if (strcmp(name, "labels") == 0) return (double)((row * 3 + 1) % (VOCAB + 1) - 1);
    return (double)(row * 5 % VOCAB);
}

// sum(c * output), or the head's mean loss, whose node makes everything at once.
static double loss(const gradient_subject *s)
{
    double sum = 0.0;
    must(kern_interpret_run(s->it, OP_FORWARD, false));
    if (s->p->output_count > 0) return gradient_outputs(s);
    must(kern_interpret_run(s->it, OP_BACKWARD_WEIGHT, false));
    const bool has_objective = s->p->lists[OP_FORWARD].count > 0;
    const op_node *head = has_objective ? &s->p->lists[OP_FORWARD].nodes[1]
                                        : &s->p->lists[OP_BACKWARD_WEIGHT].nodes[0];
    assert_int_equal(head->code, has_objective ? OP_OBJECTIVE : OP_HEAD_LOSS);
    const int64_t count = kern_interpret_elements(s->it, head->out[0]);
    for (int64_t e = 0; e < count; e++) sum += kern_interpret_get(s->it, head->out[0], e);
    return sum / s->divisor;
}

static void subject_init(gradient_subject *s, const example *x, op_recompute policy)
{
    *s = (gradient_subject){.divisor = 3.0, .loss = loss};
    must(arena_create("gradient test", 0, &s->a));
    must(op_program_create(s->a, PURPOSE_TRAIN, DTYPE_F64, DTYPE_F64, &s->p));
    must(x->build(s->p));
    must(op_program_differentiate(s->p));
    must(op_program_recompute(s->p, policy));
    gradient_open(s, ROWS, SEQS, 4);
    gradient_fill(s, integer_value);
}

static int check_example(const example *x)
{
    gradient_subject s;
    subject_init(&s, x, RECOMPUTE_NONE);
    int failures = 0;
    for (tensor_id t = 0; t < (tensor_id)s.p->tensor_count; t++) {
        const tensor_role role = s.p->tensors[t].role;
        if (role == ROLE_WEIGHT || role == ROLE_INPUT)
            failures += gradient_is_right(&s, x->name, t) ? 0 : 1;
    }
    arena_destroy(s.a);
    return failures;
}

static const example examples[] = {
    {"embedding", build_embedding},
    {"matmul", build_matmul},
    {"matmul with bias", build_matmul_bias},
    {"matmul, tanh GELU", build_matmul_gelu_tanh},
    {"matmul, erf GELU", build_matmul_gelu_erf},
    {"matmul, SiLU", build_matmul_silu},
    {"matmul, ReLU", build_matmul_relu},
    {"add", build_add},
    {"rmsnorm", build_rmsnorm},
    {"rmsnorm with residual", build_rmsnorm_residual},
    {"rmsnorm of heads", build_rmsnorm_groups},
    {"layernorm", build_layernorm},
    {"layernorm with residual", build_layernorm_residual},
    {"rope", build_rope},
    {"rope of parts of heads, fused and interleaved", build_rope_fused},
    {"attention", build_attention},
    {"attention, groups and window", build_attention_groups_window},
    {"attention, documents and dropout", build_attention_documents_dropout},
    {"attention, capped, with sinks", build_attention_capped_sinks},
    {"scale and clamp", build_scale},
    {"swiglu", build_swiglu},
    {"geglu by tanh", build_geglu_tanh},
    {"geglu by erf", build_geglu_erf},
    {"activations", build_activation},
    {"dropout", build_dropout},
    {"magnitude", build_magnitude},
    {"cast", build_cast},
    {"head", build_head},
    {"head, capped", build_head_capped},
    {"head with a loss of pairs", build_objective},
    {"experts", build_experts},
    {"experts, weighted on the way back", build_experts_weighted},
    {"experts, biased, with limits", build_experts_biased},
    {"router, softmax in groups", build_route_softmax},
    {"router, sigmoids in groups", build_route_sigmoid},
    {"latent attention", build_latent},
    {"network of two blocks", build_network},
};

static void test_differences(void **state)
{
    (void)state;
    int failures = 0;
    for (int64_t i = 0; i < COUNT_OF(examples); i++) failures += check_example(&examples[i]);
    assert_int_equal(failures, 0);
}

// Every operation with a gradient rule occurs in some example.
static void test_rules_are_covered(void **state)
{
    (void)state;
    bool seen[OP_CODE_COUNT] = {false};
    for (int64_t i = 0; i < COUNT_OF(examples); i++) {
        gradient_subject s;
        subject_init(&s, &examples[i], RECOMPUTE_NONE);
        for (int list = 0; list < OP_LIST_COUNT; list++) {
            for (int64_t n = 0; n < s.p->lists[list].count; n++) {
                seen[s.p->lists[list].nodes[n].code] = true;
            }
        }
        arena_destroy(s.a);
    }
    for (int code = 0; code < OP_CODE_COUNT; code++) {
        if (!op_has_kernel((op_code)code)) continue;
        if (seen[code] || op_kind_of((op_code)code)->gradient == NULL) continue;
        fail_msg("no example differentiates %s", op_kind_of((op_code)code)->name);
    }
}

// ---- recomputation ------------------------------------------------------------------------------

// Fills tensors that the forward list made and the policy does not keep with NaN before the
// backward lists run.
static void forget(const gradient_subject *s, op_recompute policy)
{
    for (int64_t n = 0; n < s->p->lists[OP_FORWARD].count; n++) {
        const op_node *node = &s->p->lists[OP_FORWARD].nodes[n];
        if (policy == RECOMPUTE_SELECTIVE && op_kind_of(node->code)->kept_by_selective) continue;
        for (int o = 0; o < OP_MAX_OUT; o++) {
            if (node->out[o] == TENSOR_NONE) continue;
            const int64_t count = kern_interpret_elements(s->it, node->out[o]);
            for (int64_t e = 0; e < count; e++) {
                kern_interpret_put(s->it, node->out[o], e, (double)NAN);
            }
        }
    }
}

static void test_recompute(void **state)
{
    (void)state;
    const example network = {"network", build_network};
    gradient_subject plain;
    subject_init(&plain, &network, RECOMPUTE_NONE);
    (void)loss(&plain);
    gradient_backward(&plain);
    const op_recompute policies[] = {RECOMPUTE_SELECTIVE, RECOMPUTE_FULL};
    for (int64_t i = 0; i < COUNT_OF(policies); i++) {
        gradient_subject s;
        subject_init(&s, &network, policies[i]);
        assert_true(s.p->lists[OP_RECOMPUTE].count > 0);
        (void)loss(&s);
        forget(&s, policies[i]);
        gradient_backward(&s);
        for (tensor_id t = 0; t < (tensor_id)plain.p->tensor_count; t++) {
            const tensor_role role = plain.p->tensors[t].role;
            if (role != ROLE_WEIGHT && role != ROLE_INPUT) continue;
            const int64_t count = kern_interpret_elements(plain.it, t);
            for (int64_t e = 0; e < count; e++) {
                double want, got;
                assert_true(gradient_of(&plain, t, e, &want));
                assert_true(gradient_of(&s, t, e, &got));
                assert_memory_equal(&want, &got, sizeof(want));
            }
        }
        arena_destroy(s.a);
    }
    arena_destroy(plain.a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_differences),
        cmocka_unit_test(test_rules_are_covered),
        cmocka_unit_test(test_recompute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
