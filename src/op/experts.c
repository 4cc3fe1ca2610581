// Mixture of experts: who takes which token, the way there and back, and products whose rows meet different
// matrices (Shazeer et al. 2017, arXiv:1701.06538). Rows with a cost and no kernel yet: op_codes.h.
//
//   logits -> ROUTE -> DISPATCH -> EXPERTS, gate, WEIGH, EXPERTS -> COMBINE
//
// A token's weight is applied where its expert is, before the second product: so nothing of what experts give
// needs to be kept for the gradient of the gates.
#include "op/op_internal.h"

// The two extents that follow from gates (N,T): R rows in all, and one column.
static status rows_bind(const op_node *node, op_shapes *shapes)
{
    int64_t taken = 0;
    TRY(op_shapes_constant(node, shapes, 'T', &taken));
    extent rows = shapes->of['N'];
    rows.scale *= taken;
    const bool is_met = shapes->of['R'].scale >= 0;
    if (is_met && !extent_equal(rows, shapes->of['R'])) {
        return fail(ST_MODEL, "%s: rows are not %lld for each token", op_kind_of(node->code)->name,
                    (long long)taken);
    }
    op_shapes_bind(shapes, 'R', rows);
    op_shapes_bind(shapes, 'U', extent_of(1));
    return ST_OK;
}

// ---- the router -----------------------------------------------------------------------------------

static status route_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    int64_t experts = 0;
    TRY(op_shapes_in(p, node, &shapes));
    TRY(op_shapes_constant(node, &shapes, 'E', &experts));
    if (node->attrs.top_k < 1 || node->attrs.top_k > experts) {
        return fail(ST_MODEL, "route: a token takes %d of %lld experts", (int)node->attrs.top_k,
                    (long long)experts);
    }
    op_shapes_bind(&shapes, 'T', extent_of(node->attrs.top_k));
    return op_shapes_out(p, node, wanted, &shapes);
}

static void route_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "000:0");
}

static op_cost route_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->in[0], 10.0);
}

static status route_gradient(op_program *p, const op_node *node)
{
    op_node back = op_node_of(OP_ROUTE_BWD);
    back.in[0] = op_grad_get(p, node->out[0]);
    back.in[1] = node->in[0];
    back.in[2] = node->out[0];
    return op_grad_append(p, &back, node->in[0]);
}

const op_kind op_row_route = {
    .code = OP_ROUTE,
    .name = "route",
    .in = "fNE",
    .out = "sNT",
    .made = "gates",
    .host_issues = 1,
    .no_kernel = true,
    .inplace = {-1, -1, -1, -1},
    .infer = route_infer,
    .place = route_place,
    .cut = op_cut_nothing,
    .cost = route_cost,
    .gradient = route_gradient,
};

static op_cost route_bwd_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->in[1], 5.0);
}

const op_kind op_row_route_bwd = {
    .code = OP_ROUTE_BWD,
    .name = "route_bwd",
    .in = "sNT fNE sNT",
    .out = "fNE",
    .made = "dlogits",
    .grad_of = GRAD_OF_INPUT,
    .host_issues = 2,
    .no_kernel = true,
    .inplace = {-1, -1, -1, -1},
    .infer = op_infer_signature,
    .place = route_place,
    .cut = op_cut_nothing,
    .cost = route_bwd_cost,
};

// ---- there and back ---------------------------------------------------------------------------------

static void rows_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "000:00");
}

static status dispatch_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    TRY(rows_bind(node, &shapes));
    return op_shapes_out(p, node, wanted, &shapes);
}

static status dispatch_gradient(op_program *p, const op_node *node)
{
    op_node back = op_node_of(OP_DISPATCH_BWD);
    for (int o = 0; o < 2; o++) back.in[o] = op_grad_get(p, node->out[o]);
    back.in[2] = node->in[1];
    for (int i = 0; i < 2; i++) {
        if (!op_wants_grad(p, node->in[i])) {
            return fail(ST_MODEL, "dispatch: %s is not an activation", op_at(p, node->in[i])->name);
        }
        TRY(op_grad_new(p, node->in[i], &back.out[i]));
    }
    TRY(op_append(p, OP_BACKWARD_INPUT, &back, 0));
    for (int i = 0; i < 2; i++) TRY(op_grad_add(p, node->in[i], back.out[i]));
    return ST_OK;
}

// Kept by recompute `selective`, as products are: to make it again is to send it again.
const op_kind op_row_dispatch = {
    .code = OP_DISPATCH,
    .name = "dispatch",
    .in = "fND sNT",
    .out = "fRD sRU",
    .made = "rows gate",
    .kept_by_selective = true,
    .host_waits = true,
    .sorts = SORTS_OUTPUT,
    .no_kernel = true,
    .inplace = {-1, -1, -1, -1},
    .infer = dispatch_infer,
    .place = rows_place,
    .cut = op_cut_nothing,
    .cost = op_cost_bytes,
    .gradient = dispatch_gradient,
};

static status dispatch_bwd_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    TRY(rows_bind(node, &shapes));
    return op_shapes_out(p, node, wanted, &shapes);
}

static op_cost rows_added(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->in[0], 1.0);
}

const op_kind op_row_dispatch_bwd = {
    .code = OP_DISPATCH_BWD,
    .name = "dispatch_bwd",
    .in = "fRD sRU sNT",
    .out = "fND sNT",
    .made = "dx dgates",
    .grad_of = GRAD_OF_INPUT,
    .sorts = SORTS_INPUT,
    .no_kernel = true,
    .inplace = {-1, -1, -1, -1},
    .infer = dispatch_bwd_infer,
    .place = rows_place,
    .cut = op_cut_nothing,
    .cost = rows_added,
};

static status combine_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    TRY(rows_bind(node, &shapes));
    return op_shapes_out(p, node, wanted, &shapes);
}

static status combine_gradient(op_program *p, const op_node *node)
{
    op_node back = op_node_of(OP_COMBINE_BWD);
    back.in[0] = op_grad_get(p, node->out[0]);
    back.in[1] = node->in[1];
    return op_grad_append(p, &back, node->in[0]);
}

const op_kind op_row_combine = {
    .code = OP_COMBINE,
    .name = "combine",
    .in = "fRD sNT",
    .out = "fND",
    .made = "y",
    .sorts = SORTS_INPUT,
    .no_kernel = true,
    .inplace = {-1, -1, -1, -1},
    .infer = combine_infer,
    .place = rows_place,
    .cut = op_cut_nothing,
    .cost = rows_added,
    .gradient = combine_gradient,
};

static status combine_bwd_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    TRY(rows_bind(node, &shapes));
    return op_shapes_out(p, node, wanted, &shapes);
}

const op_kind op_row_combine_bwd = {
    .code = OP_COMBINE_BWD,
    .name = "combine_bwd",
    .in = "fND sNT",
    .out = "fRD",
    .made = "drows",
    .grad_of = GRAD_OF_INPUT,
    .sorts = SORTS_OUTPUT,
    .no_kernel = true,
    .inplace = {-1, -1, -1, -1},
    .infer = combine_bwd_infer,
    .place = rows_place,
    .cut = op_cut_nothing,
    .cost = op_cost_bytes,
};

// ---- products ---------------------------------------------------------------------------------------

// Rows of the weight (W) are those of M for each expert.
static status matrix_bind(const op_node *node, op_shapes *shapes)
{
    int64_t rows = 0;
    const int64_t experts = node->attrs.experts;
    TRY(op_shapes_constant(node, shapes, 'W', &rows));
    if (experts < 1 || rows % experts != 0) {
        return fail(ST_MODEL, "%s: %lld rows of the weight are not those of %lld experts",
                    op_kind_of(node->code)->name, (long long)rows, (long long)experts);
    }
    const extent each = extent_of(rows / experts), met = shapes->of['M'];
    if (met.scale >= 0 && !extent_equal(met, each)) {
        return fail(ST_MODEL, "%s: %lld columns, expected the %lld rows of an expert's matrix",
                    op_kind_of(node->code)->name, (long long)met.scale, (long long)each.scale);
    }
    op_shapes_bind(shapes, 'M', each);
    return ST_OK;
}

static status experts_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    TRY(matrix_bind(node, &shapes));
    return op_shapes_out(p, node, wanted, &shapes);
}

static void experts_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "0r:0", "r0:1", "11:p");
}

static op_cost experts_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    const double inner = op_dim(p, node->in[0], 1, bound);
    return op_cost_pointwise(p, node, bound, node->out[0], 2.0 * inner);
}

static status experts_gradient(op_program *p, const op_node *node)
{
    op_node dx = op_node_of(OP_EXPERTS_DX), dw = op_node_of(OP_EXPERTS_DW);
    dx.attrs = dw.attrs = node->attrs;
    dx.in[0] = dw.in[0] = op_grad_get(p, node->out[0]);
    dx.in[1] = node->in[1];
    dw.in[1] = node->in[0];
    TRY(op_grad_append(p, &dx, node->in[0]));
    TRY(op_grad_weight(p, node->in[1], &dw.out[0]));
    return op_append(p, OP_BACKWARD_WEIGHT, &dw, 0);
}

const op_kind op_row_experts = {
    .code = OP_EXPERTS,
    .name = "experts",
    .in = "fRK fWK",
    .out = "fRM",
    .made = "y",
    .kept_by_selective = true,
    .cost_class = COST_GEMM,
    .gemm = "RMK",
    .no_kernel = true,
    .inplace = {-1, -1, -1, -1},
    .infer = experts_infer,
    .place = experts_place,
    .cut = op_cut_nothing,
    .cost = experts_cost,
    .gradient = experts_gradient,
};

static status experts_dx_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    TRY(matrix_bind(node, &shapes));
    return op_shapes_out(p, node, wanted, &shapes);
}

static void experts_dx_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "0r:0", "r1:1", "10:p");
}

const op_kind op_row_experts_dx = {
    .code = OP_EXPERTS_DX,
    .name = "experts_dx",
    .in = "fRM fWK",
    .out = "fRK",
    .made = "dx",
    .kept_by_selective = true,
    .cost_class = COST_GEMM,
    .gemm = "RKM",
    .grad_of = GRAD_OF_INPUT,
    .no_kernel = true,
    .inplace = {-1, -1, -1, -1},
    .infer = experts_dx_infer,
    .place = experts_dx_place,
    .cut = op_cut_nothing,
    .cost = experts_cost,
};

static status experts_dw_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    extent rows = shapes.of['M'];
    rows.scale *= node->attrs.experts;
    op_shapes_bind(&shapes, 'W', rows);
    if (node->attrs.experts < 1) return fail(ST_MODEL, "experts_dw: there is no expert");
    return op_shapes_out(p, node, wanted, &shapes);
}

static void experts_dw_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "00:p", "1r:0", "r1:1");
}

static op_cost experts_dw_cost(const op_program *p, const op_node *node,
                               const extent_binding *bound)
{
    const double inner = op_dim(p, node->in[1], 1, bound);
    return op_cost_pointwise(p, node, bound, node->in[0], 2.0 * inner);
}

const op_kind op_row_experts_dw = {
    .code = OP_EXPERTS_DW,
    .name = "experts_dw",
    .in = "fRM fRK",
    .out = "gWK",
    .made = "dw",
    .accumulates = 1u,
    .kept_by_selective = true,
    .cost_class = COST_GEMM,
    .gemm = "MKR",
    .grad_of = GRAD_OF_WEIGHT,
    .no_kernel = true,
    .inplace = {-1, -1, -1, -1},
    .infer = experts_dw_infer,
    .place = experts_dw_place,
    .cut = op_cut_nothing,
    .cost = experts_dw_cost,
};

// ---- gates ------------------------------------------------------------------------------------------

static status weigh_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    int64_t columns = 0;
    TRY(op_shapes_in(p, node, &shapes));
    TRY(op_shapes_constant(node, &shapes, 'U', &columns));
    if (columns != 1) return fail(ST_MODEL, "weigh: %lld gates a row", (long long)columns);
    return op_shapes_out(p, node, wanted, &shapes);
}

static void weigh_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "00:0", "1r:1");
}

static op_cost weigh_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->out[0], 1.0);
}

static status weigh_gradient(op_program *p, const op_node *node)
{
    op_node dx = op_node_of(OP_WEIGH), dg = op_node_of(OP_WEIGH_DG);
    dx.in[0] = dg.in[0] = op_grad_get(p, node->out[0]);
    dx.in[1] = node->in[1];
    dg.in[1] = node->in[0];
    TRY(op_grad_append(p, &dg, node->in[1]));
    return op_grad_append(p, &dx, node->in[0]);
}

const op_kind op_row_weigh = {
    .code = OP_WEIGH,
    .name = "weigh",
    .in = "fRF sRU",
    .out = "fRF",
    .made = "weighed",
    .pointwise = true,
    .no_kernel = true,
    .inplace = {0, -1, -1, -1},
    .infer = weigh_infer,
    .place = weigh_place,
    .cut = op_cut_nothing,
    .cost = weigh_cost,
    .gradient = weigh_gradient,
};

static status weigh_dg_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    op_shapes_bind(&shapes, 'U', extent_of(1));
    return op_shapes_out(p, node, wanted, &shapes);
}

static void weigh_dg_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "00:0", "11:p");
}

static op_cost weigh_dg_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->in[0], 2.0);
}

const op_kind op_row_weigh_dg = {
    .code = OP_WEIGH_DG,
    .name = "weigh_dg",
    .in = "fRF fRF",
    .out = "sRU",
    .made = "dgate",
    .pointwise = true,
    .grad_of = GRAD_OF_INPUT,
    .no_kernel = true,
    .inplace = {-1, -1, -1, -1},
    .infer = weigh_dg_infer,
    .place = weigh_dg_place,
    .cut = op_cut_nothing,
    .cost = weigh_dg_cost,
};
