// Operations at the end of a step: sums into the step block, and the optimizers' updates.
//
// Updates are in place: an output that is not given is the input of the same name.
#include "op/op_internal.h"

#include "op/step.h"

// ---- the step block -----------------------------------------------------------------------------

status op_step_output(op_program *p, op_node *node)
{
    if (node->out[0] != TENSOR_NONE) {
        const op_tensor *t = op_at(p, node->out[0]);
        if (t->role == ROLE_STEP) return ST_OK;
        return fail(ST_MODEL, "%s: %s is not the step block", op_kind_of(node->code)->name,
                    t->name);
    }
    if (p->step == TENSOR_NONE) {
        const extent bytes = extent_of((int64_t)sizeof(step_block));
        TRY(op_tensor_make(p, "step", ROLE_STEP, DTYPE_U8, 1, bytes, bytes, &p->step));
    }
    node->out[0] = p->step;
    return ST_OK;
}

static status block_infer(op_program *p, op_node *node, uint32_t wanted)
{
    (void)wanted;
    return op_step_output(p, node);
}

static op_cost begin_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    (void)p;
    (void)bound;
    const op_attrs *a = &node->attrs;
    const op_cost cost = {0.0, 0.0, (double)step_bytes(a->load_layers, a->experts)};
    return cost;
}

const op_kind op_row_step_begin = {
    .code = OP_STEP_BEGIN,
    .name = "step_begin",
    .in = "",
    .out = ".",
    .step_reads = STEP_FIELD_LOADS,
    .step_writes = STEP_FIELD_OF_THIS,
    .inplace = {-1, -1, -1, -1},
    .infer = block_infer,
    .place = op_place_replicate,
    .cost = begin_cost,
};

static op_cost decide_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    (void)p;
    (void)node;
    (void)bound;
    // Two exact sums are normalized, and the history is sorted.
    const op_cost cost = {2.0 * EXACT_DIGITS + (double)STEP_HISTORY * STEP_HISTORY,
                          (double)sizeof(step_block), (double)sizeof(step_device)};
    return cost;
}

const op_kind op_row_step_decide = {
    .code = OP_STEP_DECIDE,
    .name = "step_decide",
    .in = "",
    .out = ".",
    .step_reads = STEP_FIELD_HOST | STEP_FIELD_DEVICE,
    .step_writes = STEP_FIELD_DEVICE,
    .inplace = {-1, -1, -1, -1},
    .infer = block_infer,
    .place = op_place_replicate,
    .cost = decide_cost,
};

static status loss_infer(op_program *p, op_node *node, uint32_t wanted)
{
    (void)wanted;
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    return op_step_output(p, node);
}

static void loss_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "00:p"); // exact sums: any cut gives the same bits
}

static op_cost loss_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    op_cost cost = op_cost_pointwise(p, node, bound, node->in[0], 4.0);
    cost.bytes_written = (double)sizeof(exact_sum);
    return cost;
}

const op_kind op_row_step_loss = {
    .code = OP_STEP_LOSS,
    .name = "step_loss",
    .in = "sN iN",
    .out = ".",
    .step_reads = STEP_FIELD_TOKENS | STEP_FIELD_LOSS_SUM,
    .step_writes = STEP_FIELD_TOKENS | STEP_FIELD_LOSS_SUM,
    .inplace = {-1, -1, -1, -1},
    .infer = loss_infer,
    .place = loss_place,
    .cost = loss_cost,
};

static status norm_infer(op_program *p, op_node *node, uint32_t wanted)
{
    (void)wanted;
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    return op_step_output(p, node);
}

static void norm_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    // Columns may be cut only at multiples of the 1,024 elements that are summed in double; the
    // plan sees to that.
    OP_RULES(rules, count, "0:p", "1:p");
    if (op_at(p, node->in[0])->ndim == 1) *count -= 1;
}

static op_cost norm_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    op_cost cost = op_cost_pointwise(p, node, bound, node->in[0], 2.0);
    cost.bytes_written = (double)sizeof(exact_sum);
    return cost;
}

const op_kind op_row_grad_norm = {
    .code = OP_GRAD_NORM,
    .name = "grad_norm",
    .in = "f*",
    .out = ".",
    .takes_grad = true,
    .step_reads = STEP_FIELD_BAD_TENSOR | STEP_FIELD_NORM_SUM,
    .step_writes = STEP_FIELD_BAD_TENSOR | STEP_FIELD_NORM_SUM,
    .inplace = {-1, -1, -1, -1},
    .infer = norm_infer,
    .place = norm_place,
    .cost = norm_cost,
};

// ---- optimizers ---------------------------------------------------------------------------------

void op_states_in_place(op_node *node, int count)
{
    for (int o = 0; o < count; o++) {
        if (node->out[o] == TENSOR_NONE) node->out[o] = node->in[1 + o];
    }
}

static status adamw_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_states_in_place(node, 3);
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    return op_shapes_out(p, node, wanted, &shapes);
}

void op_place_update(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    OP_RULES(rules, count, "0000:0000", "1111:1111");
    if (op_at(p, node->in[0])->ndim == 1) *count -= 1;
    // The index of an element in the whole tensor is part of its random counter.
    if (node->attrs.stochastic) *count = 1;
}

static op_cost adamw_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->in[0], 16.0);
}

const op_kind op_row_adamw = {
    .code = OP_ADAMW,
    .name = "adamw",
    .in = "f* f* f* f* sLE",
    .out = "f* f* f* f*",
    .made = "master m v weight",
    .optional_in = 1u << 4,
    .slots_in = 4,
    .optional_out = 1u << 3,
    .takes_grad = true,
    .updates_state = true,
    .by_element = true,
    .step_reads = STEP_FIELD_HOST | STEP_FIELD_DECIDED,
    .inplace = {-1, -1, -1, -1},
    .infer = adamw_infer,
    .place = op_place_update,
    .cost = adamw_cost,
};

enum { MUON_STEPS = 5, MUON_PARTS = 4 };

static status muon_parts(const op_node *node, const op_shapes *shapes, char letter,
                         const int64_t *part_rows)
{
    int64_t rows = 0, parts = 0;
    TRY(op_shapes_constant(node, shapes, letter, &rows));
    if (node->piece.part_count < 0 || node->piece.part_count > MUON_PARTS) {
        return fail(ST_MODEL, "muon: %d parts, expected 0 to %d", (int)node->piece.part_count,
                    (int)MUON_PARTS);
    }
    for (int k = 0; k < node->piece.part_count; k++) parts += part_rows[k];
    if (node->piece.part_count > 0 && parts != rows) {
        return fail(ST_MODEL, "muon: the parts have %lld rows, the weight %lld", (long long)parts,
                    (long long)rows);
    }
    return ST_OK;
}

static status muon_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_states_in_place(node, 2);
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    TRY(muon_parts(node, &shapes, 'R', node->piece.part_rows));
    if (node->attrs.experts > 0) {
        int64_t rows = 0;
        TRY(op_shapes_constant(node, &shapes, 'R', &rows));
        if (rows % node->attrs.experts != 0) {
            return fail(ST_MODEL, "muon: %lld rows are not %d equal matrices", (long long)rows,
                        (int)node->attrs.experts);
        }
    }
    return op_shapes_out(p, node, wanted, &shapes);
}

// Newton-Schulz on (a, b), a <= b: A = X X^T; B = bA + cA^2; X = aX + BX, five times.
static double newton_schulz_flops(double rows, double columns)
{
    const double a = rows < columns ? rows : columns, b = rows < columns ? columns : rows;
    return (double)MUON_STEPS * (4.0 * a * a * b + 2.0 * a * a * a);
}

static op_cost muon_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    op_cost cost = op_cost_pointwise(p, node, bound, node->in[0], 12.0);
    const double columns = op_dim(p, node->in[0], 1, bound), count = node->attrs.experts;
    if (count > 0.0) {
        const double rows = op_dim(p, node->in[0], 0, bound) / count;
        cost.flops += count * newton_schulz_flops(rows, columns);
        return cost;
    }
    if (node->piece.part_count == 0) {
        cost.flops += newton_schulz_flops(op_dim(p, node->in[0], 0, bound), columns);
    }
    for (int k = 0; k < node->piece.part_count; k++) {
        cost.flops += newton_schulz_flops((double)node->piece.part_rows[k], columns);
    }
    return cost;
}

static void muon_check(const op_facts *f)
{
    ASSERT(f->piece->part_count >= 0 && f->piece->part_count <= MUON_PARTS);
    int64_t rows = 0;
    for (int32_t k = 0; k < f->piece->part_count; k++) rows += f->piece->part_rows[k];
    if (f->piece->part_count > 1) ASSERT(rows == op_fact(f, 'R'));
    if (f->attrs->experts > 0) ASSERT(op_fact(f, 'R') % f->attrs->experts == 0);
}

const op_kind op_row_muon = {
    .code = OP_MUON,
    .name = "muon",
    .in = "fRC fRC fRC",
    .out = "fRC fRC fRC",
    .made = "master m weight",
    .optional_out = 1u << 2,
    .cost_class = COST_GEMM,
    .takes_grad = true,
    .updates_state = true,
    .step_reads = STEP_FIELD_HOST | STEP_FIELD_DECIDED,
    .inplace = {-1, -1, -1, -1},
    .infer = muon_infer,
    .place = op_place_replicate, // the unit is a whole matrix
    .cost = muon_cost,
    .check = muon_check,
};

static status direction_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_states_in_place(node, 1);
    op_shapes shapes;
    TRY(op_shapes_in(p, node, &shapes));
    return op_shapes_out(p, node, wanted, &shapes);
}

static op_cost direction_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->in[0], 6.0);
}

const op_kind op_row_muon_direction = {
    .code = OP_MUON_DIRECTION,
    .name = "muon_direction",
    .in = "fRC fRC",
    .out = "fRC sRC",
    .made = "m u",
    .takes_grad = true,
    .updates_state = true,
    .step_reads = STEP_FIELD_HOST | STEP_FIELD_DECIDED,
    .inplace = {-1, -1, -1, -1},
    .infer = direction_infer,
    .place = op_place_replicate, // its random counters are those of one piece
    .cost = direction_cost,
};

static status update_infer(op_program *p, op_node *node, uint32_t wanted)
{
    const op_piece *piece = &node->piece;
    if (node->out[0] == TENSOR_NONE) node->out[0] = node->in[1];
    op_shapes shapes;
    int64_t columns = 0, whole = 0;
    TRY(op_shapes_in(p, node, &shapes));
    TRY(muon_parts(node, &shapes, 'R', piece->part_rows));
    TRY(muon_parts(node, &shapes, 'Q', piece->part_whole));
    TRY(op_shapes_constant(node, &shapes, 'C', &columns));
    TRY(op_shapes_constant(node, &shapes, 'E', &whole));
    if (piece->part_count < 1 || piece->first_column < 0 || piece->first_column + columns > whole ||
        piece->whole_columns != whole) {
        return fail(ST_MODEL, "muon_update: columns [%lld, %lld) of %lld, %lld expected",
                    (long long)piece->first_column, (long long)(piece->first_column + columns),
                    (long long)piece->whole_columns, (long long)whole);
    }
    int64_t before = 0; // rows of the parts before
    for (int k = 0; k < piece->part_count; k++) {
        const int64_t first = piece->part_first[k] - before;
        if (first < 0 || first + piece->part_rows[k] > piece->part_whole[k]) {
            return fail(ST_MODEL, "muon_update: rows [%lld, %lld) of part %d of %lld",
                        (long long)first, (long long)(first + piece->part_rows[k]), k,
                        (long long)piece->part_whole[k]);
        }
        before += piece->part_whole[k];
    }
    return op_shapes_out(p, node, wanted, &shapes);
}

static op_cost update_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    op_cost cost = op_cost_pointwise(p, node, bound, node->in[1], 6.0);
    const double columns = op_dim(p, node->in[0], 1, bound);
    for (int k = 0; k < node->piece.part_count; k++) {
        cost.flops += newton_schulz_flops((double)node->piece.part_whole[k], columns);
    }
    return cost;
}

// Checks the piece of each part, and of the columns.
static void update_check(const op_facts *f)
{
    const op_piece *piece = f->piece;
    int64_t rows = 0, whole = 0;
    for (int32_t k = 0; k < piece->part_count; k++) {
        ASSERT(piece->part_first[k] >= whole);
        ASSERT(piece->part_first[k] - whole + piece->part_rows[k] <= piece->part_whole[k]);
        rows += piece->part_rows[k];
        whole += piece->part_whole[k];
    }
    ASSERT(rows == op_fact(f, 'R') && whole == op_fact(f, 'Q'));
    ASSERT(piece->whole_columns == op_fact(f, 'E'));
    ASSERT(piece->first_column >= 0 &&
           piece->first_column + op_fact(f, 'C') <= piece->whole_columns);
}

const op_kind op_row_muon_update = {
    .code = OP_MUON_UPDATE,
    .name = "muon_update",
    .in = "sQE fRC",
    .out = "fRC fRC",
    .made = "master weight",
    .optional_out = 1u << 1,
    .updates_state = true,
    .step_reads = STEP_FIELD_HOST | STEP_FIELD_DECIDED,
    .inplace = {-1, -1, -1, -1},
    .infer = update_infer,
    .place = op_place_replicate,
    .cost = update_cost,
    .check = update_check,
};
