// Mixture of experts: the choice of experts for each token, the permutation to experts and back,
// and GEMMs whose rows use different matrices (Shazeer et al. 2017, arXiv:1701.06538).
//
//   logits -> ROUTE -> PERMUTE -> GROUPED_MATMUL, scale, GROUPED_MATMUL -> UNPERMUTE
//
// Rows are ordered by expert and, within an expert, by token, so the gradient of a weight is one
// sequential sum over the tokens of its expert. Only the device knows how many rows an expert has
// (offsets): shapes have the bound. A block may apply the weights of a token to rows before the
// second GEMM (PERMUTE's scale); then the outputs of experts need not be kept for the gradient of
// these weights. Otherwise UNPERMUTE applies them.
//
// If tokens (dim 0) are cut, the rows of a rank are not a piece of the whole rows: each rank has
// the rows of its own tokens, in its own order, with its own offsets. So rows may be cut between
// PERMUTE and UNPERMUTE but are never gathered.
//
// Costs count the choice of an expert once, as the weight that belongs to it: ids and offsets are
// left out, and so is row_of, which PERMUTE writes and UNPERMUTE reads.
#include "op/op_internal.h"

// Binds R and the column of scales, from ids or row_of (N,T).
static status rows_bind(const op_node *node, op_shapes *shapes)
{
    int64_t taken = 0;
    TRY(op_shapes_constant(node, shapes, 'T', &taken));
    extent rows = shapes->of['N'];
    rows.scale *= taken;
    op_shapes_bind(shapes, 'U', extent_of(1));
    if (shapes->of['R'].scale < 0) {
        op_shapes_bind(shapes, 'R', rows);
        return ST_OK;
    }
    if (extent_bound_equal(rows, shapes->of['R'])) return ST_OK; // which may be bounded
    return fail(ST_MODEL, "%s: rows are not %lld for each token", op_kind_of(node->code)->name,
                (long long)taken);
}

// Returns the bit of an optional output if its optional input is present.
static uint32_t output_wanted(const op_node *node, int in, int out)
{
    return node->in[in] == TENSOR_NONE ? 0 : 1u << out;
}

static double bytes_of(const op_program *p, tensor_id t, const extent_binding *bound)
{
    if (t == TENSOR_NONE) return 0.0;
    return op_elements(p, t, bound) * (double)dtype_bytes(op_at(p, t)->type);
}

// Returns the cost of all operands except the given ones: bit i of `in`, bit o of `out`.
static op_cost cost_without(const op_program *p, const op_node *node, const extent_binding *bound,
                            uint32_t in, uint32_t out)
{
    op_cost cost = op_cost_bytes(p, node, bound);
    for (int i = 0; i < OP_MAX_IN; i++) {
        if ((in >> i & 1u) != 0) cost.bytes_read -= bytes_of(p, node->in[i], bound);
    }
    for (int o = 0; o < OP_MAX_OUT; o++) {
        if ((out >> o & 1u) != 0) cost.bytes_written -= bytes_of(p, node->out[o], bound);
    }
    return cost;
}

// Checks that each expert has M of the W rows of a weight, and that there is one offset more than
// experts.
static void experts_check(const op_facts *f)
{
    const int64_t rows = op_fact(f, 'R'), tokens = op_fact(f, 'N'), offsets = op_fact(f, 'X');
    const int64_t scales = op_fact(f, 'U'), weight = op_fact(f, 'W');
    const int64_t taken = op_fact(f, 'T'), choices = op_fact(f, 'E'), experts = f->attrs->experts;
    ASSERT(scales < 0 || scales == 1);
    if (rows >= 0 && tokens >= 0) ASSERT(rows == tokens * taken);
    if (choices >= 0) ASSERT(taken >= 1 && taken <= choices);
    if (offsets >= 0 || weight >= 0) ASSERT(experts > 0);
    if (offsets >= 0) ASSERT((offsets - 1) % experts == 0);
    const int64_t own = f->piece->whole_rows > 0 ? f->piece->whole_rows : op_fact(f, 'M');
    if (weight >= 0) ASSERT(weight == experts * own);
}

// ---- the router ---------------------------------------------------------------------------------

static status groups_check(const op_attrs *a, int64_t experts)
{
    if (a->groups == 0) return ST_OK;
    const bool fits = a->groups > 0 && experts % a->groups == 0 && a->top_groups >= 1 &&
                      a->top_groups <= a->groups &&
                      a->top_groups * (experts / a->groups) >= a->top_k;
    if (fits && (!a->group_pairs || experts / a->groups >= 2)) return ST_OK;
    return fail(ST_MODEL,
                "route: %d of %d groups of %lld experts, of which a token takes %d; groups are "
                "equally large, and those that are chosen have enough experts",
                (int)a->top_groups, (int)a->groups, (long long)experts, (int)a->top_k);
}

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
    TRY(groups_check(&node->attrs, experts));
    op_shapes_bind(&shapes, 'T', extent_of(node->attrs.top_k));
    return op_shapes_out(p, node, wanted, &shapes);
}

static void route_choice_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "0r:00");
}

static void route_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "0000r:0");
}

// Ranks with some positions of each sequence count among the choices of all (op/zigzag.h).
static void route_cut(const op_program *p, const op_node *node, int rule, int ways, int at,
                      op_node *piece)
{
    (void)p;
    (void)node;
    if (rule != 1) return;
    piece->piece.row_ways = ways;
    piece->piece.row_at = at;
}

static op_cost route_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    op_cost cost = cost_without(p, node, bound, 0, 1u << 0);
    cost.flops = 10.0 * op_elements(p, node->in[0], bound);
    return cost;
}

static status route_gradient(op_program *p, const op_node *node)
{
    op_node back = op_node_of(OP_ROUTE_BWD);
    back.attrs = node->attrs;
    back.piece = node->piece;
    back.in[0] = op_grad_get(p, node->out[1]);
    back.in[1] = node->in[0];
    back.in[2] = node->out[0];
    back.in[3] = node->out[1];
    return op_grad_append(p, &back, node->in[0]);
}

const op_kind op_row_route = {
    .code = OP_ROUTE,
    .name = "route",
    .in = "fNE fE",
    .out = "iNT sNT",
    .made = "ids weights",
    .optional_in = 1u << 1,
    .host_issues = 1,
    .inplace = {-1, -1, -1, -1},
    .infer = route_infer,
    .place = route_choice_place,
    .cost = route_cost,
    .gradient = route_gradient,
    .check = experts_check,
};

static bool has_loss(const op_attrs *a)
{
    return a->aux_loss > 0.0f || a->z_loss > 0.0f;
}

static void route_bwd_check(const op_facts *f)
{
    experts_check(f);
    if (!has_loss(f->attrs)) return;
    const bool by_sequence = op_balances_sequences(f->attrs);
    if (by_sequence) op_check_sequences(f); // others may be rows of a piece of a sequence
    if (op_has_in(f, 4)) ASSERT(by_sequence && op_fact(f, 'A') > 0);
    ASSERT(f->loss_divisor > 0.0 && f->has_step);
}

static op_cost route_bwd_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    op_cost cost = cost_without(p, node, bound, 1u << 2 | 1u << 4, 0);
    cost.flops = (has_loss(&node->attrs) ? 20.0 : 5.0) * op_elements(p, node->in[1], bound);
    return cost;
}

const op_kind op_row_route_bwd = {
    .code = OP_ROUTE_BWD,
    .name = "route_bwd",
    .in = "sNT fNE iNT sNT iAT",
    .out = "fNE",
    .made = "dlogits",
    .optional_in = 1u << 4,
    .grad_of = GRAD_OF_INPUT,
    .step_reads = STEP_FIELD_LOSS_SCALE | STEP_FIELD_LOADS_BEFORE,
    .host_issues = 2,
    .inplace = {-1, -1, -1, -1},
    .infer = op_infer_signature,
    .place = route_place,
    .cut = route_cut,
    .cost = route_bwd_cost,
    .check = route_bwd_check,
};

// ---- there and back -----------------------------------------------------------------------------

static void permute_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "000:00r0"); // offsets are each rank's own
}

static void rows_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "0000:00");
}

static op_cost rows_added(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->in[0], 1.0);
}

// Makes the offsets first, because the last of them counts the rows.
static status offsets_make(op_program *p, op_node *node, op_shapes *shapes)
{
    const extent count = extent_of((int64_t)node->attrs.experts + 1);
    char name[OP_NAME_BYTES];
    op_shapes_bind(shapes, 'X', count);
    if (node->out[2] == TENSOR_NONE) {
        op_name_unique(p, "", "permute.offsets", name);
        TRY(op_tensor_make(p, name, ROLE_ACTIVATION, DTYPE_I32, 1, count, extent_of(0),
                           &node->out[2]));
    }
    const bool is_exact = node->out[0] != TENSOR_NONE && !op_at(p, node->out[0])->dims[0].bounded;
    if (is_exact) return ST_OK; // all ids are of experts
    op_shapes_bind(shapes, 'R', extent_bounded(shapes->of['R'], node->out[2], node->attrs.experts));
    return ST_OK;
}

static status permute_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    TRY(rows_bind(node, &shapes));
    if (node->attrs.experts < 1) return fail(ST_MODEL, "permute: there is no expert");
    if (node->in[2] == TENSOR_NONE && node->out[3] != TENSOR_NONE) {
        return fail(ST_MODEL, "permute: scales without weights");
    }
    wanted |= output_wanted(node, 2, 3);
    TRY(offsets_make(p, node, &shapes));
    return op_shapes_out(p, node, wanted, &shapes);
}

static op_cost permute_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return cost_without(p, node, bound, 1u << 1, 1u << 1 | 1u << 2);
}

// The gradients of inputs `in` (TENSOR_NONE: there is none) are outputs 0 and 1 of `back`. If
// a gradient is not wanted, its output is computed but not used.
static status two_gradients(op_program *p, op_node *back, const tensor_id in[2])
{
    for (int i = 0; i < 2; i++) {
        if (op_wants_grad(p, in[i])) TRY(op_grad_new(p, in[i], &back->out[i]));
    }
    TRY(op_append(p, OP_BACKWARD_INPUT, back, 0));
    for (int i = 0; i < 2; i++) {
        if (op_wants_grad(p, in[i])) TRY(op_grad_add(p, in[i], back->out[i]));
    }
    return ST_OK;
}

static status permute_gradient(op_program *p, const op_node *node)
{
    op_node back = op_node_of(OP_PERMUTE_BWD);
    back.in[0] = op_grad_get(p, node->out[0]);
    back.in[1] = node->out[1];
    back.in[2] = op_grad_get(p, node->out[3]);
    if (back.in[0] == TENSOR_NONE) return fail(ST_MODEL, "permute: its rows have no gradient");
    const tensor_id in[2] = {node->in[0], back.in[2] == TENSOR_NONE ? TENSOR_NONE : node->in[2]};
    return two_gradients(p, &back, in);
}

// Recompute `selective` keeps the rows, as it keeps results of GEMMs, because computing them again
// means sending them again.
const op_kind op_row_permute = {
    .code = OP_PERMUTE,
    .name = "permute",
    .in = "fND iNT sNT",
    .out = "fRD iNT iX sRU",
    .made = "rows row_of offsets scale",
    .sorts = SORTS_OUTPUT,
    .host_waits = true,
    .inplace = {-1, -1, -1, -1},
    .optional_in = 1u << 2,
    .optional_out = 1u << 3,
    .kept_by_selective = true,
    .infer = permute_infer,
    .place = permute_place,
    .cost = permute_cost,
    .gradient = permute_gradient,
    .check = experts_check,
};

static status permute_bwd_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    TRY(rows_bind(node, &shapes));
    wanted |= output_wanted(node, 2, 1);
    return op_shapes_out(p, node, wanted, &shapes);
}

const op_kind op_row_permute_bwd = {
    .code = OP_PERMUTE_BWD,
    .name = "permute_bwd",
    .in = "fRD iNT sRU",
    .out = "fND sNT",
    .made = "dx dweights",
    .grad_of = GRAD_OF_INPUT,
    .sorts = SORTS_INPUT,
    .inplace = {-1, -1, -1, -1},
    .optional_in = 1u << 2,
    .optional_out = 1u << 1,
    .infer = permute_bwd_infer,
    .place = rows_place,
    .cost = rows_added,
    .check = experts_check,
};

static status unpermute_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    TRY(rows_bind(node, &shapes));
    return op_shapes_out(p, node, wanted, &shapes);
}

static status unpermute_gradient(op_program *p, const op_node *node)
{
    op_node back = op_node_of(OP_UNPERMUTE_BWD);
    back.in[0] = op_grad_get(p, node->out[0]);
    back.in[1] = node->in[1];
    if (node->in[2] != TENSOR_NONE) {
        back.in[2] = node->in[0];
        back.in[3] = node->in[2];
    }
    const tensor_id in[2] = {node->in[0], node->in[2]};
    return two_gradients(p, &back, in);
}

const op_kind op_row_unpermute = {
    .code = OP_UNPERMUTE,
    .name = "unpermute",
    .in = "fRD iNT sNT",
    .out = "fND",
    .made = "y",
    .sorts = SORTS_INPUT,
    .inplace = {-1, -1, -1, -1},
    .optional_in = 1u << 2,
    .infer = unpermute_infer,
    .place = rows_place,
    .cost = rows_added,
    .gradient = unpermute_gradient,
    .check = experts_check,
};

static status unpermute_bwd_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    if (shapes.of['R'].scale < 0 && node->out[0] != TENSOR_NONE) { // the gradient of such rows
        op_shapes_bind(&shapes, 'R', op_at(p, node->out[0])->dims[0]);
    }
    TRY(rows_bind(node, &shapes));
    if ((node->in[2] == TENSOR_NONE) != (node->in[3] == TENSOR_NONE)) {
        return fail(ST_MODEL, "unpermute_bwd: rows without weights, or weights without rows");
    }
    wanted |= output_wanted(node, 3, 1);
    return op_shapes_out(p, node, wanted, &shapes);
}

const op_kind op_row_unpermute_bwd = {
    .code = OP_UNPERMUTE_BWD,
    .name = "unpermute_bwd",
    .in = "fND iNT fRD sNT",
    .out = "fRD sNT",
    .made = "drows dweights",
    .grad_of = GRAD_OF_INPUT,
    .sorts = SORTS_OUTPUT,
    .inplace = {-1, -1, -1, -1},
    .optional_in = 1u << 2 | 1u << 3,
    .optional_out = 1u << 1,
    .infer = unpermute_bwd_infer,
    .place = rows_place,
    .cost = op_cost_bytes,
    .check = experts_check,
};

// ---- products -----------------------------------------------------------------------------------

// Binds rows of the weight (W), M for each expert; there is one more offset (X) than experts.
static status experts_bind(const op_node *node, op_shapes *shapes)
{
    const char *name = op_kind_of(node->code)->name;
    const int64_t experts = node->attrs.experts;
    if (experts < 1) return fail(ST_MODEL, "%s: there is no expert", name);
    const extent offsets = shapes->of['X']; // of the rows of one rank, or of several
    const bool is_count = offsets.symbol == EXTENT_ONE && (offsets.scale - 1) % experts == 0;
    if (offsets.scale >= 0 && !is_count) {
        return fail(ST_MODEL, "%s: %lld offsets for %lld experts", name, (long long)offsets.scale,
                    (long long)experts);
    }
    return ST_OK;
}

static status matrix_bind(const op_node *node, op_shapes *shapes)
{
    int64_t rows = 0;
    const char *name = op_kind_of(node->code)->name;
    const int64_t experts = node->attrs.experts;
    TRY(experts_bind(node, shapes));
    TRY(op_shapes_constant(node, shapes, 'W', &rows));
    if (rows % experts != 0) {
        return fail(ST_MODEL, "%s: %lld rows of the weight are not those of %lld experts", name,
                    (long long)rows, (long long)experts);
    }
    const extent each = extent_of(rows / experts), met = shapes->of['M'];
    const op_piece *piece = &node->piece;
    if (piece->whole_rows > 0) { // some rows of each matrix
        if (piece->whole_rows == each.scale && piece->first_row >= 0 &&
            piece->first_row + met.scale <= each.scale) {
            return ST_OK;
        }
        return fail(ST_MODEL, "%s: rows %lld to %lld of %lld of each matrix", name,
                    (long long)piece->first_row, (long long)(piece->first_row + met.scale),
                    (long long)each.scale);
    }
    if (met.scale >= 0 && !extent_equal(met, each)) {
        return fail(ST_MODEL, "%s: %lld columns, expected the %lld rows of an expert's matrix",
                    name, (long long)met.scale, (long long)each.scale);
    }
    op_shapes_bind(shapes, 'M', each);
    return ST_OK;
}

static status grouped_matmul_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    TRY(matrix_bind(node, &shapes));
    return op_shapes_out(p, node, wanted, &shapes);
}

static void grouped_matmul_place(const op_program *p, const op_node *node, op_rule *rules,
                                 int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "0rrr:0", "r0rr:1", "11rr:p");
}

static op_cost grouped_matmul_cost(const op_program *p, const op_node *node,
                                   const extent_binding *bound)
{
    op_cost cost = cost_without(p, node, bound, 1u << 2, 0);
    cost.flops = 2.0 * op_dim(p, node->in[0], 1, bound) * op_elements(p, node->out[0], bound);
    return cost;
}

// Counts the magnitudes of the operands of products in 8 bits, for each expert.
static status history_gradient(op_program *p, const op_node *node, const op_node *dw)
{
    op_node counts = op_node_of(OP_FP8_COUNTS_ROWS);
    if (!op_trains(p, node->in[3])) return ST_OK;
    counts.attrs.experts = node->attrs.experts;
    for (int i = 0; i < 3; i++) counts.in[i] = dw->in[i];
    counts.in[4] = node->in[1];
    TRY(op_grad_weight(p, node->in[3], &counts.out[0]));
    return op_append(p, OP_BACKWARD_WEIGHT, &counts, 0);
}

static status grouped_matmul_gradient(op_program *p, const op_node *node)
{
    op_node dx = op_node_of(OP_GROUPED_MATMUL_DX), dw = op_node_of(OP_GROUPED_MATMUL_DW);
    dx.attrs = dw.attrs = node->attrs;
    dx.piece = dw.piece = node->piece;
    dx.in[0] = dw.in[0] = op_grad_get(p, node->out[0]);
    dx.in[1] = node->in[1];
    dw.in[1] = node->in[0];
    // Which rows of an expert would share the factor of a block depends on the layout.
    if (node->attrs.fp8 == FP8_BLOCK) dw.attrs.fp8 = FP8_NONE;
    dx.in[2] = dw.in[2] = node->in[2];
    dx.in[4] = dw.in[4] = node->in[3];
    TRY(op_grad_append(p, &dx, node->in[0]));
    TRY(history_gradient(p, node, &dw));
    if (!op_trains(p, node->in[1])) return ST_OK;
    TRY(op_grad_weight(p, node->in[1], &dw.out[0]));
    return op_append(p, OP_BACKWARD_WEIGHT, &dw, 0);
}

const op_kind op_row_grouped_matmul = {
    .code = OP_GROUPED_MATMUL,
    .name = "grouped_matmul",
    .in = "fRK fWK iX sHJ",
    .out = "fRM",
    .made = "y",
    .cost_class = COST_GEMM,
    .gemm = "RMK",
    .inplace = {-1, -1, -1, -1},
    .optional_in = 1u << 2 | 1u << 3,
    .kept_by_selective = true,
    .infer = grouped_matmul_infer,
    .place = grouped_matmul_place,
    .cost = grouped_matmul_cost,
    .gradient = grouped_matmul_gradient,
    .check = experts_check,
};

static status grouped_matmul_dx_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    TRY(matrix_bind(node, &shapes));
    return op_shapes_out(p, node, wanted, &shapes);
}

static void grouped_matmul_dx_place(const op_program *p, const op_node *node, op_rule *rules,
                                    int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "0rr0r:0", "r1r1r:1", "10rpr:p");
}

const op_kind op_row_grouped_matmul_dx = {
    .code = OP_GROUPED_MATMUL_DX,
    .name = "grouped_matmul_dx",
    .in = "fRM fWK iX fRK sHJ",
    .out = "fRK",
    .made = "dx",
    .cost_class = COST_GEMM,
    .gemm = "RKM",
    .grad_of = GRAD_OF_INPUT,
    .inplace = {3, -1, -1, -1},
    .optional_in = 1u << 2 | 1u << 3 | 1u << 4,
    .kept_by_selective = true,
    .infer = grouped_matmul_dx_infer,
    .place = grouped_matmul_dx_place,
    .cost = grouped_matmul_cost,
    .check = experts_check,
};

static status grouped_matmul_dw_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    TRY(experts_bind(node, &shapes));
    extent rows = shapes.of['M'];
    rows.scale *= node->attrs.experts;
    op_shapes_bind(&shapes, 'W', rows);
    return op_shapes_out(p, node, wanted, &shapes);
}

static void grouped_matmul_dw_place(const op_program *p, const op_node *node, op_rule *rules,
                                    int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "00rrr:p", "1rrrr:0", "r1rrr:1");
}

static op_cost grouped_matmul_dw_cost(const op_program *p, const op_node *node,
                                      const extent_binding *bound)
{
    op_cost cost = cost_without(p, node, bound, 1u << 2 | 1u << 3, 0);
    cost.flops = 2.0 * op_dim(p, node->in[1], 1, bound) * op_elements(p, node->in[0], bound);
    return cost;
}

const op_kind op_row_grouped_matmul_dw = {
    .code = OP_GROUPED_MATMUL_DW,
    .name = "grouped_matmul_dw",
    .in = "fRM fRK iX iQL sHJ",
    .out = "gWK",
    .made = "dw",
    .cost_class = COST_GEMM,
    .gemm = "MKR",
    .grad_of = GRAD_OF_WEIGHT,
    .inplace = {-1, -1, -1, -1},
    .optional_in = 1u << 2 | 1u << 3 | 1u << 4,
    .finds_rows = true,
    .accumulates = 1u,
    .kept_by_selective = true,
    .infer = grouped_matmul_dw_infer,
    .place = grouped_matmul_dw_place,
    .cost = grouped_matmul_dw_cost,
    .check = experts_check,
};

static status counts_rows_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    TRY(experts_bind(node, &shapes));
    op_shapes_bind(&shapes, 'H', extent_of(FP8_OPERANDS * (int64_t)node->attrs.experts));
    op_shapes_bind(&shapes, 'J', extent_of(FP8_COLUMNS));
    return op_shapes_out(p, node, wanted, &shapes);
}

static void counts_rows_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "00rrr:p", "1rrr0:p", "r1rr1:p");
}

static op_cost counts_rows_cost(const op_program *p, const op_node *node,
                                const extent_binding *bound)
{
    return cost_without(p, node, bound, 1u << 2 | 1u << 3, 0);
}

// Offsets and counts are where GROUPED_MATMUL_DW has them.
const op_kind op_row_fp8_counts_rows = {
    .code = OP_FP8_COUNTS_ROWS,
    .name = "fp8_counts_rows",
    .in = "fRM fRK iX iQL fWK",
    .out = "gHJ",
    .made = "counts",
    .grad_of = GRAD_OF_WEIGHT,
    .inplace = {-1, -1, -1, -1},
    .optional_in = 1u << 2 | 1u << 3,
    .finds_rows = true,
    .accumulates = 1u,
    .infer = counts_rows_infer,
    .place = counts_rows_place,
    .cost = counts_rows_cost,
    .check = experts_check,
};

// ---- scales -------------------------------------------------------------------------------------

static status scale_rows_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    int64_t columns = 0;
    TRY(op_shapes_in(p, node, &shapes));
    TRY(op_shapes_constant(node, &shapes, 'U', &columns));
    if (columns != 1) return fail(ST_MODEL, "scale_rows: %lld scales a row", (long long)columns);
    return op_shapes_out(p, node, wanted, &shapes);
}

static void scale_rows_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "00:0", "1r:1");
}

static op_cost scale_rows_cost(const op_program *p, const op_node *node,
                               const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->out[0], 1.0);
}

static status scale_rows_gradient(op_program *p, const op_node *node)
{
    op_node dx = op_node_of(OP_SCALE_ROWS), ds = op_node_of(OP_SCALE_ROWS_DS);
    dx.in[0] = ds.in[0] = op_grad_get(p, node->out[0]);
    dx.in[1] = node->in[1];
    ds.in[1] = node->in[0];
    TRY(op_grad_append(p, &ds, node->in[1]));
    return op_grad_append(p, &dx, node->in[0]);
}

const op_kind op_row_scale_rows = {
    .code = OP_SCALE_ROWS,
    .name = "scale_rows",
    .in = "fRF sRU",
    .out = "fRF",
    .made = "y",
    .pointwise = true,
    .inplace = {0, -1, -1, -1},
    .infer = scale_rows_infer,
    .place = scale_rows_place,
    .cost = scale_rows_cost,
    .gradient = scale_rows_gradient,
    .check = experts_check,
};

static status scale_rows_ds_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    op_shapes_bind(&shapes, 'U', extent_of(1));
    return op_shapes_out(p, node, wanted, &shapes);
}

static void scale_rows_ds_place(const op_program *p, const op_node *node, op_rule *rules,
                                int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "00:0", "11:p");
}

static op_cost scale_rows_ds_cost(const op_program *p, const op_node *node,
                                  const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->in[0], 2.0);
}

const op_kind op_row_scale_rows_ds = {
    .code = OP_SCALE_ROWS_DS,
    .name = "scale_rows_ds",
    .in = "fRF fRF",
    .out = "sRU",
    .made = "dscale",
    .pointwise = true,
    .grad_of = GRAD_OF_INPUT,
    .inplace = {-1, -1, -1, -1},
    .infer = scale_rows_ds_infer,
    .place = scale_rows_ds_place,
    .cost = scale_rows_ds_cost,
    .check = experts_check,
};
