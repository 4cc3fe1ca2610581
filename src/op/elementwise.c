// Operations on one element, or one row, at a time: addition, activations, gates, dropout, casts,
// and the sum of two accumulators.
#include "op/op_internal.h"

// All operands have one shape: they are cut by rows or by columns; with `sums` they may be terms
// that are added later.
static void same_place(const op_program *p, tensor_id t, bool sums, op_rule *rules, int *count)
{
    if (op_at(p, t)->ndim == 2 && sums) {
        OP_RULES(rules, count, "00:0", "pp:p", "11:1");
    } else if (op_at(p, t)->ndim == 2) {
        OP_RULES(rules, count, "00:0", "11:1");
    } else if (sums) {
        OP_RULES(rules, count, "00:0", "pp:p");
    } else {
        OP_RULES(rules, count, "00:0");
    }
}

static void linear_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    same_place(p, node->in[0], true, rules, count);
}

void op_place_pointwise(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    same_place(p, node->in[0], false, rules, count);
}

static op_cost one_flop(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->out[0], 1.0);
}

static status add_gradient(op_program *p, const op_node *node)
{
    const tensor_id dy = op_grad_get(p, node->out[0]);
    TRY(op_grad_add(p, node->in[0], dy));
    return op_grad_add(p, node->in[1], dy);
}

const op_kind op_row_add = {
    .code = OP_ADD,
    .name = "add",
    .in = "f* f*",
    .out = "f*",
    .made = "y",
    .pointwise = true,
    .inplace = {0, -1, -1, -1},
    .infer = op_infer_signature,
    .place = linear_place,
    .cost = one_flop,
    .gradient = add_gradient,
};

static void bias_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "0r:0", "10:1", "pp:p");
}

static status bias_gradient(op_program *p, const op_node *node)
{
    const tensor_id dy = op_grad_get(p, node->out[0]);
    TRY(op_grad_add(p, node->in[0], dy));
    if (!op_trains(p, node->in[1])) return ST_OK;
    op_node db = op_node_of(OP_BIAS_DW);
    db.in[0] = dy;
    TRY(op_grad_weight(p, node->in[1], &db.out[0]));
    return op_append(p, OP_BACKWARD_WEIGHT, &db, 0);
}

// A bias that a GEMM does not add: something comes between the two. A partition adds that of a GEMM
// whose result is a sum over ranks after the sum.
const op_kind op_row_add_bias = {
    .code = OP_ADD_BIAS,
    .name = "add_bias",
    .in = "fNM fM",
    .out = "fNM",
    .made = "y",
    .pointwise = true,
    .inplace = {0, -1, -1, -1},
    .infer = op_infer_signature,
    .place = bias_place,
    .cost = one_flop,
    .gradient = bias_gradient,
};

status op_add_bias(op_program *p, tensor_id x, tensor_id bias, tensor_id *y)
{
    op_node node = op_node_of(OP_ADD_BIAS);
    node.in[0] = x;
    node.in[1] = bias;
    TRY(op_append(p, OP_FORWARD, &node, 0));
    *y = node.out[0];
    return ST_OK;
}

static void sum_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    if (op_at(p, node->in[0])->ndim == 2) {
        OP_RULES(rules, count, "00000000:0", "11111111:1", "pppppppp:p");
    } else {
        OP_RULES(rules, count, "00000000:0", "pppppppp:p");
    }
}

static op_cost sum_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    double terms = 0.0;
    for (int i = 0; i < OP_MAX_IN; i++) terms += node->in[i] == TENSOR_NONE ? 0.0 : 1.0;
    return op_cost_pointwise(p, node, bound, node->out[0], terms - 1.0);
}

const op_kind op_row_sum = {
    .code = OP_SUM,
    .name = "sum",
    .in = "f* f* f* f* f* f* f* f*",
    .out = "f*",
    .made = "y",
    .optional_in = 0xfe,
    .inplace = {0, -1, -1, -1},
    .infer = op_infer_signature,
    .place = sum_place,
    .cost = sum_cost,
};

// ---- gates --------------------------------------------------------------------------------------

static status halves_bind(const op_node *node, op_shapes *shapes)
{
    int64_t columns = 0;
    TRY(op_shapes_constant(node, shapes, 'C', &columns));
    if (columns % 2 != 0) {
        return fail(ST_MODEL, "%s: %lld columns are not a gate and a value",
                    op_kind_of(node->code)->name, (long long)columns);
    }
    op_shapes_bind(shapes, 'F', extent_of(columns / 2));
    return ST_OK;
}

status op_infer_gate(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    TRY(halves_bind(node, &shapes));
    return op_shapes_out(p, node, wanted, &shapes);
}

static op_cost swiglu_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->out[0], 5.0);
}

status op_gate_gradient(op_program *p, const op_node *node, op_code bwd)
{
    op_node dh = op_node_of(bwd);
    dh.attrs = node->attrs;
    dh.piece = node->piece;
    dh.in[0] = node->in[0];
    dh.in[1] = op_grad_get(p, node->out[0]);
    return op_grad_append(p, &dh, node->in[0]);
}

static status swiglu_gradient(op_program *p, const op_node *node)
{
    return op_gate_gradient(p, node, OP_SWIGLU_BWD);
}

void op_check_gate(const op_facts *f)
{
    ASSERT(op_fact(f, 'C') == 2 * op_fact(f, 'F'));
}

const op_kind op_row_swiglu = {
    .code = OP_SWIGLU,
    .name = "swiglu",
    .in = "fNC",
    .out = "fNF",
    .made = "a",
    .pointwise = true,
    .composed = true,
    .tiles = 1u,
    .inplace = {-1, -1, -1, -1},
    .infer = op_infer_gate,
    .place = op_place_pointwise,
    .cost = swiglu_cost,
    .gradient = swiglu_gradient,
    .check = op_check_gate,
};

status op_infer_gate_bwd(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    const extent half = shapes.of['F'];
    TRY(halves_bind(node, &shapes));
    if (!extent_equal(half, shapes.of['F'])) {
        return fail(ST_MODEL, "%s: the gradient has %lld columns, expected %lld",
                    op_kind_of(node->code)->name, (long long)half.scale,
                    (long long)shapes.of['F'].scale);
    }
    return op_shapes_out(p, node, wanted, &shapes);
}

static op_cost swiglu_bwd_cost(const op_program *p, const op_node *node,
                               const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->in[1], 11.0);
}

const op_kind op_row_swiglu_bwd = {
    .code = OP_SWIGLU_BWD,
    .name = "swiglu_bwd",
    .in = "fNC fNF",
    .out = "fNC",
    .made = "dh",
    .pointwise = true,
    .composed = true,
    .grad_of = GRAD_OF_INPUT,
    .tiles = 1u << 1,
    .inplace = {-1, -1, -1, -1},
    .infer = op_infer_gate_bwd,
    .place = op_place_pointwise,
    .cost = swiglu_bwd_cost,
    .check = op_check_gate,
};

// ---- activations --------------------------------------------------------------------------------

static status kind_check(const op_node *node)
{
    switch (node->attrs.activation) {
    case ACT_GELU_TANH:
    case ACT_GELU_ERF:
    case ACT_SILU:
    case ACT_RELU:
        return ST_OK;
    case ACT_NONE:
    default:
        return fail(ST_MODEL, "%s: activation %d is none", op_kind_of(node->code)->name,
                    (int)node->attrs.activation);
    }
}

static status activation_infer(op_program *p, op_node *node, uint32_t wanted)
{
    TRY(kind_check(node));
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    return op_shapes_out(p, node, wanted, &shapes);
}

static op_cost activation_cost(const op_program *p, const op_node *node,
                               const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->out[0], 10.0);
}

static status activation_gradient(op_program *p, const op_node *node)
{
    op_node dx = op_node_of(OP_ACTIVATION_BWD);
    dx.in[0] = node->in[0];
    dx.in[1] = op_grad_get(p, node->out[0]);
    dx.attrs = node->attrs;
    dx.piece = node->piece;
    return op_grad_append(p, &dx, node->in[0]);
}

const op_kind op_row_activation = {
    .code = OP_ACTIVATION,
    .name = "activation",
    .in = "f*",
    .out = "f*",
    .made = "y",
    .pointwise = true,
    .tiles = 1u,
    .inplace = {0, -1, -1, -1},
    .infer = activation_infer,
    .place = op_place_pointwise,
    .cost = activation_cost,
    .gradient = activation_gradient,
};

static status activation_bwd_infer(op_program *p, op_node *node, uint32_t wanted)
{
    TRY(kind_check(node));
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    return op_shapes_out(p, node, wanted, &shapes);
}

static op_cost activation_bwd_cost(const op_program *p, const op_node *node,
                                   const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->out[0], 16.0);
}

const op_kind op_row_activation_bwd = {
    .code = OP_ACTIVATION_BWD,
    .name = "activation_bwd",
    .in = "f* f*",
    .out = "f*",
    .made = "dx",
    .pointwise = true,
    .grad_of = GRAD_OF_INPUT,
    .tiles = 1u << 1,
    .inplace = {1, -1, -1, -1},
    .infer = activation_bwd_infer,
    .place = op_place_pointwise,
    .cost = activation_bwd_cost,
};

// ---- dropout ------------------------------------------------------------------------------------

static status dropout_infer(op_program *p, op_node *node, uint32_t wanted)
{
    const float probability = node->attrs.dropout;
    if (!(probability >= 0.0f && probability < 1.0f)) {
        return fail(ST_MODEL, "dropout: probability %g, expected 0 to below 1",
                    (double)probability);
    }
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    return op_shapes_out(p, node, wanted, &shapes);
}

static void dropout_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "0:0", "p:p", "1:1");
}

// The position of a row and the index of a column are parts of their random counter.
static void dropout_cut(const op_program *p, const op_node *node, int rule, int ways, int at,
                        op_node *piece)
{
    if (rule == 1) {
        piece->piece.row_ways = ways;
        piece->piece.row_at = at;
    } else if (rule == 3) {
        const int64_t columns = op_at(p, node->in[0])->dims[1].scale;
        piece->piece.whole_columns = max_i64(node->piece.whole_columns, columns);
        piece->piece.first_column += op_piece_begin(columns, ways, at);
    }
}

// Ten rounds of Philox for four elements are about twelve integer operations for each.
static op_cost dropout_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->out[0], 13.0);
}

static status dropout_gradient(op_program *p, const op_node *node)
{
    op_node dx = op_node_of(OP_DROPOUT);
    dx.in[0] = op_grad_get(p, node->out[0]);
    dx.attrs = node->attrs;
    dx.piece = node->piece; // the same site: the same elements
    return op_grad_append(p, &dx, node->in[0]);
}

static void dropout_check(const op_facts *f)
{
    op_check_sequences(f);
    ASSERT(f->attrs->dropout >= 0.0f && f->attrs->dropout < 1.0f);
}

const op_kind op_row_dropout = {
    .code = OP_DROPOUT,
    .name = "dropout",
    .in = "fND",
    .out = "fND",
    .made = "y",
    .pointwise = true,
    .step_reads = STEP_FIELD_HOST,
    .inplace = {0, -1, -1, -1},
    .infer = dropout_infer,
    .place = dropout_place,
    .cut = dropout_cut,
    .cost = dropout_cost,
    .gradient = dropout_gradient,
    .check = dropout_check,
};

// ---- casts and the tree -------------------------------------------------------------------------

static status cast_gradient(op_program *p, const op_node *node)
{
    op_node dx = op_node_of(OP_CAST);
    dx.in[0] = op_grad_get(p, node->out[0]);
    return op_grad_append(p, &dx, node->in[0]);
}

const op_kind op_row_cast = {
    .code = OP_CAST,
    .name = "cast",
    .in = "a*",
    .out = "a*",
    .made = "y",
    .pointwise = true,
    .inplace = {-1, -1, -1, -1},
    .infer = op_infer_signature,
    .place = op_place_pointwise,
    .cost = one_flop,
    .gradient = cast_gradient,
};

const op_kind op_row_tree_add = {
    .code = OP_TREE_ADD,
    .name = "tree_add",
    .in = "f*",
    .out = "g*",
    .made = "dst",
    .accumulates = 1u,
    .merges_sums = true,
    .inplace = {-1, -1, -1, -1},
    .infer = op_infer_signature,
    .place = linear_place,
    .cost = one_flop,
};
