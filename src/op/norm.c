// RMSNorm and LayerNorm, fused with the residual addition before them, and their gradients.
//
//        x ----(+)---- h ------------------> h goes on as the residual
//               |      |
//        delta -'      '--- norm --- y        the gradient that comes back along h (dh) is
//                                             added to dx, the gradient of both x and delta
//
// If ranks share the columns of a row, each computes ROW_DOTS of its own; their sum is an operand
// of RMSNORM and RMSNORM_DX then.
#include "op/op_internal.h"

// Binds the groups of columns that are normalized separately: the extent of C / D.
static status groups_bind(const op_node *node, op_shapes *shapes)
{
    int64_t columns = 0, dim = 0;
    TRY(op_shapes_constant(node, shapes, 'C', &columns));
    TRY(op_shapes_constant(node, shapes, 'D', &dim));
    if (columns % dim != 0) {
        return fail(ST_MODEL, "%s: %lld columns are not groups of the weight's %lld",
                    op_kind_of(node->code)->name, (long long)columns, (long long)dim);
    }
    op_shapes_bind(shapes, 'G', extent_of(columns / dim));
    return ST_OK;
}

static status residual_check(const op_node *node, int delta, int h)
{
    if (node->in[delta] == TENSOR_NONE && node->out[h] != TENSOR_NONE) {
        return fail(ST_MODEL, "%s: without a delta there is no h to write",
                    op_kind_of(node->code)->name);
    }
    return ST_OK;
}

// The dots are those of one group, of which the node has at least a part.
static status dots_check(const op_program *p, const op_node *node, int dots, tensor_id x, int w)
{
    const int64_t columns = op_at(p, x)->dims[1].scale;
    if (node->in[dots] == TENSOR_NONE) return ST_OK;
    if (op_at(p, node->in[w])->dims[0].scale == columns && node->piece.whole_columns >= columns) {
        return ST_OK;
    }
    return fail(ST_MODEL, "%s: %s are not the sums of %lld columns", op_kind_of(node->code)->name,
                op_at(p, node->in[dots])->name, (long long)columns);
}

static status rms_infer(op_program *p, op_node *node, uint32_t wanted)
{
    TRY(residual_check(node, 2, 2));
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    TRY(groups_bind(node, &shapes));
    TRY(dots_check(p, node, 3, node->in[0], 1));
    // With a delta the gradient rule needs h, even if the caller does not want it.
    const uint32_t h = node->in[2] == TENSOR_NONE ? 0u : 1u << 2;
    return op_shapes_out(p, node, (wanted & ~(1u << 2)) | h, &shapes);
}

static bool has_groups(const op_program *p, tensor_id r)
{
    return op_at(p, r)->dims[1].scale > 1;
}

static void rms_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    if (node->in[3] != TENSOR_NONE) {
        OP_RULES(rules, count, "0r00:000", "101r:1r1");
        return;
    }
    OP_RULES(rules, count, "0r0:000", "1r1:111"); // by rows; by whole groups
    if (!has_groups(p, node->out[1])) *count -= 1;
}

static op_cost rms_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->in[0], node->in[2] == TENSOR_NONE ? 4.0 : 5.0);
}

// Takes the gradient that reached h past the norm; the gradient that the rule makes includes it.
static tensor_id residual_take(op_program *p, const op_node *node, int delta, int h)
{
    return op_grad_take(p, node->in[delta] == TENSOR_NONE ? node->in[0] : node->out[h]);
}

// Gives dx to x and to delta, because both were added with weight one.
static status residual_give(op_program *p, const op_node *node, int delta, tensor_id dx)
{
    TRY(op_grad_add(p, node->in[0], dx));
    return node->in[delta] == TENSOR_NONE ? ST_OK : op_grad_add(p, node->in[delta], dx);
}

static status rms_gradient(op_program *p, const op_node *node)
{
    const tensor_id dy = op_grad_get(p, node->out[0]);
    const tensor_id h = node->in[2] == TENSOR_NONE ? node->in[0] : node->out[2];
    if (dy == TENSOR_NONE) { // only h is used
        const tensor_id dh = op_grad_take(p, h);
        return dh == TENSOR_NONE ? ST_OK : residual_give(p, node, 2, dh);
    }
    if (op_wants_grad(p, h)) {
        op_node dx = op_node_of(OP_RMSNORM_DX);
        dx.in[0] = dy;
        dx.in[1] = h;
        dx.in[2] = node->out[1];
        dx.in[3] = node->in[1];
        dx.in[4] = residual_take(p, node, 2, 2);
        dx.attrs = node->attrs;
        dx.piece = node->piece;
        TRY(op_grad_new(p, h, &dx.out[0]));
        TRY(op_append(p, OP_BACKWARD_INPUT, &dx, 0));
        TRY(residual_give(p, node, 2, dx.out[0]));
    }
    if (!op_trains(p, node->in[1])) return ST_OK;
    op_node dw = op_node_of(OP_RMSNORM_DW);
    dw.in[0] = dy;
    dw.in[1] = h;
    dw.in[2] = node->out[1];
    TRY(op_grad_weight(p, node->in[1], &dw.out[0]));
    return op_append(p, OP_BACKWARD_WEIGHT, &dw, 0);
}

static void rms_check(const op_facts *f)
{
    const int64_t columns = op_fact(f, 'C'), dim = op_fact(f, 'D'), groups = op_fact(f, 'G');
    ASSERT(dim > 0 && columns % dim == 0);
    ASSERT(groups < 0 || columns == groups * dim);
}

const op_kind op_row_rmsnorm = {
    .code = OP_RMSNORM,
    .name = "rmsnorm",
    .in = "fNC fD fNC sNG",
    .out = "fNC sNG fNC",
    .made = "y r h",
    .optional_in = 1u << 2 | 1u << 3,
    .optional_out = 1u << 2,
    .pointwise = true,
    .composed = true,
    .inplace = {-1, -1, 0, -1},
    .infer = rms_infer,
    .place = rms_place,
    .cost = rms_cost,
    .gradient = rms_gradient,
    .check = rms_check,
};

static status rms_dx_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    TRY(groups_bind(node, &shapes));
    TRY(dots_check(p, node, 5, node->in[1], 3));
    return op_shapes_out(p, node, wanted, &shapes);
}

static void rms_dx_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    if (node->in[5] != TENSOR_NONE) {
        OP_RULES(rules, count, "000r00:0", "11r01r:1");
        return;
    }
    OP_RULES(rules, count, "000r0:0", "111r1:1");
    if (!has_groups(p, node->in[2])) *count -= 1;
}

static op_cost rms_dx_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->in[0], node->in[4] == TENSOR_NONE ? 7.0 : 8.0);
}

const op_kind op_row_rmsnorm_dx = {
    .code = OP_RMSNORM_DX,
    .name = "rmsnorm_dx",
    .in = "fNC fNC sNG fD fNC sNG",
    .out = "fNC",
    .made = "dx",
    .optional_in = 1u << 4 | 1u << 5,
    .pointwise = true,
    .composed = true,
    .grad_of = GRAD_OF_INPUT,
    .inplace = {4, -1, -1, -1},
    .infer = rms_dx_infer,
    .place = rms_dx_place,
    .cost = rms_dx_cost,
    .check = rms_check,
};

static status rms_dw_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    int64_t columns = 0, groups = 0;
    TRY(op_shapes_constant(node, &shapes, 'C', &columns));
    TRY(op_shapes_constant(node, &shapes, 'G', &groups));
    if (columns % groups != 0) {
        return fail(ST_MODEL, "rmsnorm_dw: %lld columns are not %lld groups", (long long)columns,
                    (long long)groups);
    }
    op_shapes_bind(&shapes, 'D', extent_of(columns / groups));
    return op_shapes_out(p, node, wanted, &shapes);
}

static void rms_dw_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    if (has_groups(p, node->in[2])) {
        OP_RULES(rules, count, "000:p", "111:p");
    } else {
        OP_RULES(rules, count, "000:p", "11r:0");
    }
}

static op_cost rms_dw_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->in[0], 3.0);
}

const op_kind op_row_rmsnorm_dw = {
    .code = OP_RMSNORM_DW,
    .name = "rmsnorm_dw",
    .in = "fNC fNC sNG",
    .out = "gD",
    .made = "dw",
    .accumulates = 1u,
    .pointwise = true,
    .composed = true,
    .grad_of = GRAD_OF_WEIGHT,
    .inplace = {-1, -1, -1, -1},
    .infer = rms_dw_infer,
    .place = rms_dw_place,
    .cost = rms_dw_cost,
    .check = rms_check,
};

// ---- sums along rows ----------------------------------------------------------------------------

static status dots_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    if ((node->in[1] == TENSOR_NONE) != (node->in[2] == TENSOR_NONE)) {
        return fail(ST_MODEL, "row_dots: a gradient and a weight, or neither");
    }
    TRY(op_shapes_in(p, node, &shapes));
    op_shapes_bind(&shapes, 'U', extent_of(1));
    return op_shapes_out(p, node, wanted, &shapes);
}

static void dots_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "00r:0", "110:p");
}

static void dots_cut(const op_program *p, const op_node *node, int rule, int ways, int at,
                     op_node *piece)
{
    if (rule != 2 || node->piece.shards == 0) return;
    piece->piece.first_column += op_piece_begin(op_at(p, node->in[0])->dims[1].scale, ways, at);
}

static op_cost dots_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->in[0], node->in[1] == TENSOR_NONE ? 2.0 : 4.0);
}

const op_kind op_row_row_dots = {
    .code = OP_ROW_DOTS,
    .name = "row_dots",
    .in = "fNC fNC fC",
    .out = "sNU",
    .made = "dots",
    .optional_in = 1u << 1 | 1u << 2,
    .pointwise = true,
    .inplace = {-1, -1, -1, -1},
    .infer = dots_infer,
    .place = dots_place,
    .cut = dots_cut,
    .cost = dots_cost,
};

// ---- LayerNorm ----------------------------------------------------------------------------------

static status layer_infer(op_program *p, op_node *node, uint32_t wanted)
{
    TRY(residual_check(node, 3, 3));
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    const uint32_t h = node->in[3] == TENSOR_NONE ? 0u : 1u << 3;
    return op_shapes_out(p, node, (wanted & ~(1u << 3)) | h, &shapes);
}

static void layer_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "0rr0:0000");
}

static op_cost layer_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    double per_element = 6.0;
    if (node->in[2] != TENSOR_NONE) per_element += 1.0;
    if (node->in[3] != TENSOR_NONE) per_element += 1.0;
    return op_cost_pointwise(p, node, bound, node->in[0], per_element);
}

// For a frozen gain only the gradient of the bias is computed, which is the plain sum of dy over
// rows.
static status layer_dw(op_program *p, const op_node *node, tensor_id dy, tensor_id h)
{
    if (!op_trains(p, node->in[1])) {
        if (!op_trains(p, node->in[2])) return ST_OK;
        op_node db = op_node_of(OP_BIAS_DW);
        db.in[0] = dy;
        TRY(op_grad_weight(p, node->in[2], &db.out[0]));
        return op_append(p, OP_BACKWARD_WEIGHT, &db, 0);
    }
    op_node dw = op_node_of(OP_LAYERNORM_DW);
    dw.in[0] = dy;
    dw.in[1] = h;
    dw.in[2] = node->out[1];
    dw.in[3] = node->out[2];
    TRY(op_grad_weight(p, node->in[1], &dw.out[0]));
    if (op_trains(p, node->in[2])) TRY(op_grad_weight(p, node->in[2], &dw.out[1]));
    return op_append(p, OP_BACKWARD_WEIGHT, &dw, 0);
}

static status layer_gradient(op_program *p, const op_node *node)
{
    const tensor_id dy = op_grad_get(p, node->out[0]);
    const tensor_id h = node->in[3] == TENSOR_NONE ? node->in[0] : node->out[3];
    if (dy == TENSOR_NONE) {
        const tensor_id dh = op_grad_take(p, h);
        return dh == TENSOR_NONE ? ST_OK : residual_give(p, node, 3, dh);
    }
    if (op_wants_grad(p, h)) {
        op_node dx = op_node_of(OP_LAYERNORM_DX);
        dx.in[0] = dy;
        dx.in[1] = h;
        dx.in[2] = node->out[1];
        dx.in[3] = node->out[2];
        dx.in[4] = node->in[1];
        dx.in[5] = residual_take(p, node, 3, 3);
        dx.attrs = node->attrs;
        dx.piece = node->piece;
        TRY(op_grad_new(p, h, &dx.out[0]));
        TRY(op_append(p, OP_BACKWARD_INPUT, &dx, 0));
        TRY(residual_give(p, node, 3, dx.out[0]));
    }
    return layer_dw(p, node, dy, h);
}

const op_kind op_row_layernorm = {
    .code = OP_LAYERNORM,
    .name = "layernorm",
    .in = "fND fD fD fND",
    .out = "fND sN sN fND",
    .made = "y mean r h",
    .optional_in = 1u << 2 | 1u << 3,
    .optional_out = 1u << 3,
    .pointwise = true,
    .inplace = {-1, -1, -1, 0},
    .infer = layer_infer,
    .place = layer_place,
    .cost = layer_cost,
    .gradient = layer_gradient,
};

static void layer_dx_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "0000r0:0");
}

static op_cost layer_dx_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->in[0], node->in[5] == TENSOR_NONE ? 10.0 : 11.0);
}

const op_kind op_row_layernorm_dx = {
    .code = OP_LAYERNORM_DX,
    .name = "layernorm_dx",
    .in = "fND fND sN sN fD fND",
    .out = "fND",
    .made = "dx",
    .optional_in = 1u << 5,
    .pointwise = true,
    .grad_of = GRAD_OF_INPUT,
    .inplace = {5, -1, -1, -1},
    .infer = op_infer_signature,
    .place = layer_dx_place,
    .cost = layer_dx_cost,
};

static void layer_dw_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "0000:pp");
}

static op_cost layer_dw_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->in[0], node->out[1] == TENSOR_NONE ? 4.0 : 5.0);
}

const op_kind op_row_layernorm_dw = {
    .code = OP_LAYERNORM_DW,
    .name = "layernorm_dw",
    .in = "fND fND sN sN",
    .out = "gD gD",
    .made = "dw db",
    .optional_out = 1u << 1,
    .accumulates = 1u | 1u << 1,
    .pointwise = true,
    .grad_of = GRAD_OF_WEIGHT,
    .inplace = {-1, -1, -1, -1},
    .infer = op_infer_signature,
    .place = layer_dw_place,
    .cost = layer_dw_cost,
};
