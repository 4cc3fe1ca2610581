// GEMMs: y = act(x w^T + bias) with weights stored (out, in), and their gradients.
#include "op/op_internal.h"

static status matmul_infer(op_program *p, op_node *node, uint32_t wanted)
{
    if (p->purpose == PURPOSE_TRAIN && node->attrs.activation != ACT_NONE) {
        return fail(ST_MODEL, "matmul: a product with an activation has no gradient rule; write "
                              "op_matmul, which keeps them apart in training");
    }
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    return op_shapes_out(p, node, wanted, &shapes);
}

static void matmul_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    // Cut by tokens; by columns of y; along K, where every rank has a term of y (and of the bias).
    OP_RULES(rules, count, "0rrr:0", "r00r:1", "11pr:p");
    if (node->attrs.activation != ACT_NONE) *count -= 1; // not of a term
}

// Counts the magnitudes of the operands of a product in 8 bits. w: as numbers.
static status history_gradient(op_program *p, const op_node *node, tensor_id dy, tensor_id w)
{
    op_node counts = op_node_of(OP_FP8_COUNTS);
    if (!op_trains(p, node->in[3])) return ST_OK;
    counts.in[0] = dy;
    counts.in[1] = node->in[0];
    counts.in[2] = w;
    TRY(op_grad_weight(p, node->in[3], &counts.out[0]));
    return op_append(p, OP_BACKWARD_WEIGHT, &counts, 0);
}

static op_cost matmul_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    const double inner = op_dim(p, node->in[0], 1, bound);
    op_cost cost = op_cost_pointwise(p, node, bound, node->out[0], 2.0 * inner);
    if (node->in[2] != TENSOR_NONE) cost.flops += op_elements(p, node->out[0], bound);
    if (node->attrs.activation != ACT_NONE)
        cost.flops += 10.0 * op_elements(p, node->out[0], bound);
    return cost;
}

static status matmul_gradient(op_program *p, const op_node *node)
{
    const tensor_id dy = op_grad_get(p, node->out[0]);
    op_node dx = op_node_of(OP_MATMUL_DX);
    dx.attrs.fp8 = node->attrs.fp8;
    dx.attrs.fp8_margin = node->attrs.fp8_margin;
    dx.in[3] = node->in[3];
    dx.in[0] = dy;
    dx.in[1] = node->in[1];
    if (op_wants_grad(p, node->in[0])) TRY(op_dequantize_again(p, node->in[1], &dx.in[1]));
    TRY(op_grad_append(p, &dx, node->in[0]));
    if (op_trains(p, node->in[1])) {
        op_node dw = op_node_of(OP_MATMUL_DW);
        dw.attrs.fp8 = node->attrs.fp8;
        dw.attrs.fp8_margin = node->attrs.fp8_margin;
        dw.in[2] = node->in[3];
        dw.in[0] = dy;
        dw.in[1] = node->in[0];
        TRY(op_grad_weight(p, node->in[1], &dw.out[0]));
        TRY(op_append(p, OP_BACKWARD_WEIGHT, &dw, 0));
    }
    TRY(history_gradient(p, node, dy, dx.in[1]));
    if (!op_trains(p, node->in[2])) return ST_OK;
    op_node db = op_node_of(OP_BIAS_DW);
    db.in[0] = dy;
    TRY(op_grad_weight(p, node->in[2], &db.out[0]));
    return op_append(p, OP_BACKWARD_WEIGHT, &db, 0);
}

const op_kind op_row_matmul = {
    .code = OP_MATMUL,
    .name = "matmul",
    .in = "fNK fMK fM sTJ",
    .out = "fNM",
    .made = "y",
    .optional_in = 1u << 2 | 1u << 3,
    .kept_by_selective = true,
    .cost_class = COST_GEMM,
    .gemm = "NMK",
    .inplace = {-1, -1, -1, -1},
    .infer = matmul_infer,
    .place = matmul_place,
    .cost = matmul_cost,
    .gradient = matmul_gradient,
};

static void dx_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "0r0r:0", "r11r:1", "10pr:p");
}

static op_cost dx_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    const double inner = op_dim(p, node->in[0], 1, bound);
    return op_cost_pointwise(p, node, bound, node->out[0], 2.0 * inner);
}

const op_kind op_row_matmul_dx = {
    .code = OP_MATMUL_DX,
    .name = "matmul_dx",
    .in = "fNM fMK fNK sTJ",
    .out = "fNK",
    .made = "dx",
    .optional_in = 1u << 2 | 1u << 3,
    .kept_by_selective = true,
    .cost_class = COST_GEMM,
    .gemm = "NKM",
    .grad_of = GRAD_OF_INPUT,
    .inplace = {2, -1, -1, -1},
    .infer = op_infer_signature,
    .place = dx_place,
    .cost = dx_cost,
};

static void dw_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "00r:p", "1rr:0", "r1r:1");
}

static op_cost dw_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    const double rows = op_dim(p, node->in[0], 0, bound);
    return op_cost_pointwise(p, node, bound, node->out[0], 2.0 * rows);
}

const op_kind op_row_matmul_dw = {
    .code = OP_MATMUL_DW,
    .name = "matmul_dw",
    .in = "fNM fNK sTJ",
    .out = "gMK",
    .made = "dw",
    .optional_in = 1u << 2,
    .accumulates = 1u,
    .kept_by_selective = true,
    .cost_class = COST_GEMM,
    .gemm = "MKN",
    .grad_of = GRAD_OF_WEIGHT,
    .inplace = {-1, -1, -1, -1},
    .infer = op_infer_signature,
    .place = dw_place,
    .cost = dw_cost,
};

static void bias_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "0:p", "1:0");
}

static op_cost bias_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->in[0], 1.0);
}

const op_kind op_row_bias_dw = {
    .code = OP_BIAS_DW,
    .name = "bias_dw",
    .in = "fNM",
    .out = "gM",
    .made = "db",
    .accumulates = 1u,
    .pointwise = true,
    .grad_of = GRAD_OF_WEIGHT,
    .inplace = {-1, -1, -1, -1},
    .infer = op_infer_signature,
    .place = bias_place,
    .cost = bias_cost,
};
