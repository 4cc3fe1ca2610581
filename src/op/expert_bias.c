// Biases of experts, and their gradients.
//
//   BIAS_ROWS       x(R,M) b(E*M,1) [offsets]         -> y(R,M): each row + the bias of its expert
//   BIAS_ROWS_DW    dy(R,M) [scale(R,1)] [offsets] [counts] -> += db(E*M,1), of scale * dy
//   BIAS_TOKENS     x(N,D) ids(N,T) weights(N,T) b(E,D) -> y(N,D) = x + sum of weights b[ids]
//   BIAS_TOKENS_DW  dy ids weights                    -> += db(E,D)
//   BIAS_TOKENS_DS  dy ids b                          -> dweights(N,T)
//
// The bias before an activation is added to rows where the expert is. The one after the last
// product is linear in a token's weights, so it is added to tokens after their experts' sum: it
// travels with no row, and where tensor parallelism cuts experts it is added once. An id below 0
// adds nothing.
#include "op/op_internal.h"

// ---- rows ---------------------------------------------------------------------------------------

static status rows_bind(const op_node *node, op_shapes *shapes)
{
    const char *name = op_kind_of(node->code)->name;
    const int64_t experts = node->attrs.experts;
    int64_t columns = 0;
    TRY(op_shapes_constant(node, shapes, 'M', &columns));
    const extent biases = extent_of(experts * columns), given = shapes->of['W'];
    if (experts < 1 || (given.scale >= 0 && !extent_equal(given, biases))) {
        return fail(ST_MODEL, "%s: %lld biases for %lld columns of each of %lld experts", name,
                    (long long)given.scale, (long long)columns, (long long)experts);
    }
    op_shapes_bind(shapes, 'W', biases);
    op_shapes_bind(shapes, 'B', extent_of(1));
    return ST_OK;
}

static status rows_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    TRY(rows_bind(node, &shapes));
    return op_shapes_out(p, node, wanted, &shapes);
}

static void rows_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "0rr:0", "10r:1");
}

static op_cost rows_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->in[0], 1.0);
}

static status rows_gradient(op_program *p, const op_node *node)
{
    const tensor_id dy = op_grad_get(p, node->out[0]);
    TRY(op_grad_add(p, node->in[0], dy));
    if (!op_trains(p, node->in[1])) return ST_OK;
    op_node dw = op_node_of(OP_BIAS_ROWS_DW);
    dw.attrs = node->attrs;
    dw.piece = node->piece;
    dw.in[0] = dy;
    dw.in[2] = node->in[2];
    TRY(op_grad_weight(p, node->in[1], &dw.out[0]));
    return op_append(p, OP_BACKWARD_WEIGHT, &dw, 0);
}

static void rows_check(const op_facts *f)
{
    const int64_t offsets = op_fact(f, 'X');
    ASSERT(f->attrs->experts > 0 && op_fact(f, 'W') == f->attrs->experts * op_fact(f, 'M'));
    ASSERT(offsets < 0 || (offsets - 1) % f->attrs->experts == 0);
}

const op_kind op_row_bias_rows = {
    .code = OP_BIAS_ROWS,
    .name = "bias_rows",
    .in = "fRM fWB iX",
    .out = "fRM",
    .made = "y",
    .inplace = {0, -1, -1, -1},
    .optional_in = 1u << 2,
    .infer = rows_infer,
    .place = rows_place,
    .cost = rows_cost,
    .gradient = rows_gradient,
    .check = rows_check,
};

static void rows_dw_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "0rrr:p", "1rrr:0");
}

// Offsets and counts are where GROUPED_MATMUL_DW has them. The scale is that of rows whose bias is
// added after they were scaled.
const op_kind op_row_bias_rows_dw = {
    .code = OP_BIAS_ROWS_DW,
    .name = "bias_rows_dw",
    .in = "fRM sRU iX iQL",
    .out = "gWB",
    .made = "db",
    .grad_of = GRAD_OF_WEIGHT,
    .inplace = {-1, -1, -1, -1},
    .optional_in = 1u << 1 | 1u << 2 | 1u << 3,
    .finds_rows = true,
    .accumulates = 1u,
    .infer = rows_infer,
    .place = rows_dw_place,
    .cost = rows_cost,
    .check = rows_check,
};

status op_bias_rows(op_program *p, tensor_id x, tensor_id bias, tensor_id offsets, int32_t experts,
                    tensor_id *y)
{
    op_node node = op_node_of(OP_BIAS_ROWS);
    node.attrs.experts = experts;
    node.in[0] = x;
    node.in[1] = bias;
    node.in[2] = offsets;
    TRY(op_append(p, OP_FORWARD, &node, 0));
    *y = node.out[0];
    return ST_OK;
}

// ---- tokens -------------------------------------------------------------------------------------

static void tokens_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "000r:0");
}

static op_cost tokens_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    const double taken = (double)op_at(p, node->in[1])->dims[1].scale;
    return op_cost_pointwise(p, node, bound, node->in[0], 2.0 * taken);
}

static status tokens_gradient(op_program *p, const op_node *node)
{
    const tensor_id dy = op_grad_get(p, node->out[0]);
    op_node dw = op_node_of(OP_BIAS_TOKENS_DW), ds = op_node_of(OP_BIAS_TOKENS_DS);
    dw.attrs = ds.attrs = node->attrs;
    dw.in[0] = ds.in[0] = dy;
    dw.in[1] = ds.in[1] = node->in[1];
    dw.in[2] = node->in[2];
    ds.in[2] = node->in[3];
    TRY(op_grad_add(p, node->in[0], dy));
    if (op_wants_grad(p, node->in[2])) TRY(op_grad_append(p, &ds, node->in[2]));
    if (!op_trains(p, node->in[3])) return ST_OK;
    TRY(op_grad_weight(p, node->in[3], &dw.out[0]));
    return op_append(p, OP_BACKWARD_WEIGHT, &dw, 0);
}

const op_kind op_row_bias_tokens = {
    .code = OP_BIAS_TOKENS,
    .name = "bias_tokens",
    .in = "fND iNT sNT fED",
    .out = "fND",
    .made = "y",
    .pointwise = true,
    .inplace = {0, -1, -1, -1},
    .infer = op_infer_signature,
    .place = tokens_place,
    .cost = tokens_cost,
    .gradient = tokens_gradient,
};

static void tokens_dw_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "000:p", "1rr:1");
}

static status tokens_dw_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    if (node->attrs.experts < 1) return fail(ST_MODEL, "bias_tokens_dw: there is no expert");
    op_shapes_bind(&shapes, 'E', extent_of(node->attrs.experts));
    return op_shapes_out(p, node, wanted, &shapes);
}

const op_kind op_row_bias_tokens_dw = {
    .code = OP_BIAS_TOKENS_DW,
    .name = "bias_tokens_dw",
    .in = "fND iNT sNT",
    .out = "gED",
    .made = "db",
    .grad_of = GRAD_OF_WEIGHT,
    .inplace = {-1, -1, -1, -1},
    .accumulates = 1u,
    .infer = tokens_dw_infer,
    .place = tokens_dw_place,
    .cost = tokens_cost,
};

static void tokens_ds_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "00r:0");
}

const op_kind op_row_bias_tokens_ds = {
    .code = OP_BIAS_TOKENS_DS,
    .name = "bias_tokens_ds",
    .in = "fND iNT fED",
    .out = "sNT",
    .made = "dweights",
    .pointwise = true,
    .grad_of = GRAD_OF_INPUT,
    .inplace = {-1, -1, -1, -1},
    .infer = op_infer_signature,
    .place = tokens_ds_place,
    .cost = tokens_cost,
};

status op_bias_tokens(op_program *p, tensor_id x, const op_chosen *chosen, tensor_id bias,
                      tensor_id *y)
{
    op_node node = op_node_of(OP_BIAS_TOKENS);
    node.attrs.experts = (int32_t)op_at(p, bias)->dims[0].scale;
    node.in[0] = x;
    node.in[1] = chosen->ids;
    node.in[2] = chosen->weights;
    node.in[3] = bias;
    TRY(op_append(p, OP_FORWARD, &node, 0));
    *y = node.out[0];
    return ST_OK;
}
