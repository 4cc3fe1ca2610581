// Weights whose rows have a length of their own, which is trained apart from their direction (DoRA,
// arXiv:2402.09353): y_j = m_j / |v_j| times x_j, where v = w + s b a is a weight with the terms of
// its adapter, and x = x0 v^T.
//
//   ROW_SQUARES   w(M,K) a(R,K) b(M,R) -> sq(1,M): the squared length of each row of v
//   MAGNITUDE     x(N,M) m(M) sq(1,M)  -> y(N,M); its gradient is the same operation on dy
//   MAGNITUDE_DW  dy x sq              -> += dm(M)
//
// The lengths count as constants in the backward pass, as section 4.3 of the paper and PEFT have
// it, so ROW_SQUARES has no gradient. If v is cut by columns, each rank has a term of the squares.
#include "op/op_internal.h"

static status squares_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    op_shapes_bind(&shapes, 'U', extent_of(1));
    return op_shapes_out(p, node, wanted, &shapes);
}

static void squares_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "0r0:1", "11r:p");
}

static op_cost squares_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    const double rank = op_dim(p, node->in[1], 0, bound);
    return op_cost_pointwise(p, node, bound, node->in[0], 2.0 * rank + 4.0);
}

const op_kind op_row_row_squares = {
    .code = OP_ROW_SQUARES,
    .name = "row_squares",
    .in = "fMK fRK fMR",
    .out = "sUM",
    .made = "squares",
    .kept_by_selective = true,
    .cost_class = COST_GEMM,
    .inplace = {-1, -1, -1, -1},
    .infer = squares_infer,
    .place = squares_place,
    .cost = squares_cost,
};

static status magnitude_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    if (!extent_equal(shapes.of['U'], extent_of(1))) {
        return fail(ST_MODEL, "%s: %lld rows of squares, expected 1", op_kind_of(node->code)->name,
                    (long long)shapes.of['U'].scale);
    }
    return op_shapes_out(p, node, wanted, &shapes);
}

static void magnitude_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "0rr:0", "101:1", "prr:p");
}

static op_cost magnitude_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->in[0], 2.0);
}

static status magnitude_gradient(op_program *p, const op_node *node)
{
    const tensor_id dy = op_grad_get(p, node->out[0]);
    op_node dx = op_node_of(OP_MAGNITUDE);
    dx.in[0] = dy;
    dx.in[1] = node->in[1];
    dx.in[2] = node->in[2];
    TRY(op_grad_append(p, &dx, node->in[0]));
    if (!op_trains(p, node->in[1])) return ST_OK;
    op_node dm = op_node_of(OP_MAGNITUDE_DW);
    dm.in[0] = dy;
    dm.in[1] = node->in[0];
    dm.in[2] = node->in[2];
    TRY(op_grad_weight(p, node->in[1], &dm.out[0]));
    return op_append(p, OP_BACKWARD_WEIGHT, &dm, 0);
}

static void magnitude_check(const op_facts *f)
{
    ASSERT(op_fact(f, 'U') == 1);
}

const op_kind op_row_magnitude = {
    .code = OP_MAGNITUDE,
    .name = "magnitude",
    .in = "fNM fM sUM",
    .out = "fNM",
    .made = "y",
    .pointwise = true,
    .inplace = {0, -1, -1, -1},
    .infer = magnitude_infer,
    .place = magnitude_place,
    .cost = magnitude_cost,
    .gradient = magnitude_gradient,
    .check = magnitude_check,
};

static void magnitude_dw_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "00r:p", "111:0");
}

const op_kind op_row_magnitude_dw = {
    .code = OP_MAGNITUDE_DW,
    .name = "magnitude_dw",
    .in = "fNM fNM sUM",
    .out = "gM",
    .made = "dm",
    .accumulates = 1u,
    .pointwise = true,
    .grad_of = GRAD_OF_WEIGHT,
    .inplace = {-1, -1, -1, -1},
    .infer = magnitude_infer,
    .place = magnitude_dw_place,
    .cost = magnitude_cost,
    .check = magnitude_check,
};

status op_row_squares(op_program *p, const tensor_id in[3], float scale, tensor_id *squares)
{
    op_node node = op_node_of(OP_ROW_SQUARES);
    for (int i = 0; i < 3; i++) node.in[i] = in[i];
    node.attrs.scale = scale;
    TRY(op_append(p, OP_FORWARD, &node, 0));
    *squares = node.out[0];
    return ST_OK;
}

status op_magnitude(op_program *p, tensor_id x, tensor_id m, tensor_id squares, tensor_id *y)
{
    op_node node = op_node_of(OP_MAGNITUDE);
    node.in[0] = x;
    node.in[1] = m;
    node.in[2] = squares;
    node.out[0] = *y;
    TRY(op_append(p, OP_FORWARD, &node, 0));
    *y = node.out[0];
    return ST_OK;
}
