// The load of experts, and the bias that balances it.
//
// STEP_ROUTES counts the tokens of each expert in the step block. The counts are whole numbers that
// ranks add with the other sums of a step, so in every layout they are those of the global batch:
//
//   forward of each micro-batch      the end of the step
//   ROUTE -> ids -> STEP_ROUTES      sums of the step block -> STEP_DECIDE -> BALANCE -> bias
//
// BALANCE is the update of DeepSeek-V3 (arXiv:2412.19437, section 2.1.2): a bias that is added to
// scores for the choice of experts alone rises by a fixed rate where an expert had less than the
// mean load and falls where it had more. No loss and no gradient takes part.
#include "op/op_internal.h"
#include "op/step.h"

static status routes_infer(op_program *p, op_node *node, uint32_t wanted)
{
    (void)wanted;
    op_shapes shapes;
    const op_attrs *a = &node->attrs;
    TRY(op_shapes_in(p, node, &shapes));
    if (a->experts < 1 || a->load_layers < 1) {
        return fail(ST_MODEL, "step_routes: %d experts in %d layers", (int)a->experts,
                    (int)a->load_layers);
    }
    if (shapes.of['E'].scale >= 0 && shapes.of['E'].scale != a->experts) {
        return fail(ST_MODEL, "step_routes: %lld logits for %d experts",
                    (long long)shapes.of['E'].scale, (int)a->experts);
    }
    return op_step_output(p, node);
}

static void routes_place(const op_program *p, const op_node *node, op_rule *rules, int *count)
{
    (void)p;
    (void)node;
    OP_RULES(rules, count, "000r:p"); // whole numbers: any cut gives the same sums
}

static op_cost routes_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    const bool has_losses = node->in[2] != TENSOR_NONE;
    op_cost cost = op_cost_pointwise(p, node, bound, node->in[has_losses ? 2 : 0], 8.0);
    cost.bytes_written = (double)(step_load_row(node->attrs.experts) * (int64_t)sizeof(int64_t));
    return cost;
}

static void routes_check(const op_facts *f)
{
    ASSERT(f->has_step && f->attrs->experts > 0 && f->attrs->load_layers > 0);
    if (op_has_in(f, 2)) ASSERT(op_fact(f, 'E') == f->attrs->experts);
    const bool by_sequence = op_balances_sequences(f->attrs);
    if (op_has_in(f, 2) && by_sequence) op_check_sequences(f);
    if (op_has_in(f, 3)) ASSERT(by_sequence && op_fact(f, 'A') > 0);
}

const op_kind op_row_step_routes = {
    .code = OP_STEP_ROUTES,
    .name = "step_routes",
    .in = "iNT iNT fNE iAT",
    .out = ".",
    .optional_in = 1u << 1 | 1u << 2 | 1u << 3,
    .step_reads = STEP_FIELD_LOADS | STEP_FIELD_LOADS_BEFORE,
    .step_writes = STEP_FIELD_LOADS,
    .inplace = {-1, -1, -1, -1},
    .infer = routes_infer,
    .place = routes_place,
    .cost = routes_cost,
    .check = routes_check,
};

static status balance_infer(op_program *p, op_node *node, uint32_t wanted)
{
    op_states_in_place(node, 1);
    op_shapes shapes;
    const op_attrs *a = &node->attrs;
    TRY(op_shapes_in(p, node, &shapes));
    if (a->load_row < 0 || a->load_row >= a->load_layers) {
        return fail(ST_MODEL, "balance: row %d of %d", (int)a->load_row, (int)a->load_layers);
    }
    return op_shapes_out(p, node, wanted, &shapes);
}

static void balance_check(const op_facts *f)
{
    ASSERT(f->has_step && op_fact(f, 'E') == f->attrs->experts);
    ASSERT(f->attrs->load_row >= 0 && f->attrs->load_row < f->attrs->load_layers);
}

static op_cost balance_cost(const op_program *p, const op_node *node, const extent_binding *bound)
{
    return op_cost_pointwise(p, node, bound, node->in[1], 3.0);
}

const op_kind op_row_balance = {
    .code = OP_BALANCE,
    .name = "balance",
    .in = "fE fE",
    .out = "fE",
    .made = "bias",
    .optional_in = 1u << 0,
    .updates_state = true,
    .step_reads = STEP_FIELD_HOST | STEP_FIELD_DECIDED | STEP_FIELD_LOADS,
    .inplace = {-1, -1, -1, -1},
    .infer = balance_infer,
    .place = op_place_replicate, // its mean is that of all experts
    .cost = balance_cost,
    .check = balance_check,
};
