// Placement rules against kernels: an operation is cut in two by each of its rules and run piece by
// piece on `ref`; the joined or summed pieces equal the whole.
//
//   shard d     the piece is every rank's half along dim d (halves of each part of a fused operand)
//   replicate   the piece is the whole; as an output, equal on both ranks
//   partial     two terms of the sum; as an output, they are added
//
// All floating operands become fp64, so only the rule can make a difference.
#include "fixtures/kernels/sample_values.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { WAYS = 2 };

typedef struct piece_step {
    step_block block;
    int64_t loads[SAMPLE_LOADS];
} piece_step;

typedef struct trial {
    arena *a;
    sample s;
    sample_memory *whole;
    piece_step before; // the whole's, before it ran
    op_rule rule;
    int rule_idx;
    backend_run run;
    int64_t failures;
    int64_t done[OP_CODE_COUNT][OP_MAX_RULES]; // variants that could be cut by the rule
    int rule_count[OP_CODE_COUNT];
} trial;

static void widen(sample *s)
{
    for (int64_t t = 0; t < s->program->tensor_count; t++) {
        op_tensor *tensor = &s->program->tensors[t];
        const bool is_params = s->node.code == OP_SAMPLE && t == s->node.in[1];
        if (tensor->type < DTYPE_F64 && !is_params) tensor->type = DTYPE_F64;
    }
    s->node.attrs.fp8 = FP8_NONE; // a cut inside a block has other factors
    // Two sequences: cuts by tokens are between them.
    const int64_t seq = sample_seq(s), cache = sample_cache_seq(s);
    s->bound.value[EXTENT_SEQS] = WAYS;
    s->bound.value[EXTENT_TOKENS] = WAYS * seq;
    s->bound.value[EXTENT_CACHE] = WAYS * cache;
}

// ---- which elements a piece holds ---------------------------------------------------------------

// Returns the length of the first of the parts in a fused operand's columns; each part is cut
// separately. The whole width if there is one part.
static int64_t first_part(const kern_call *c, bool is_input, int operand, const kern_tensor *t,
                          int dim)
{
    const int64_t width = t->dims[dim];
    if (dim != 1) return width;
    const bool is_gate = c->code == OP_SWIGLU || c->code == OP_GEGLU || c->code == OP_CLAMPED_GATE;
    const bool is_gradient =
        c->code == OP_SWIGLU_BWD || c->code == OP_GEGLU_BWD || c->code == OP_CLAMPED_GATE_BWD;
    const bool is_gated = (is_gate && is_input) || (is_gradient && operand == 0);
    if (is_gated) return width / 2;
    if (c->code == OP_ROPE) return (int64_t)c->attrs.heads * c->attrs.head_dim;
    return width;
}

static bool halves(int64_t extent_count, int64_t unit)
{
    return extent_count % (WAYS * unit) == 0;
}

// Returns the number of experts if the operand is a weight of experts, or its gradient.
static int64_t blocks_of(const kern_call *c, bool is_input, int operand)
{
    const bool reads =
        c->code == OP_GROUPED_MATMUL || c->code == OP_GROUPED_MATMUL_DX || c->code == OP_BIAS_ROWS;
    const bool adds = c->code == OP_GROUPED_MATMUL_DW || c->code == OP_BIAS_ROWS_DW;
    const bool is_weight = c->code == OP_FP8_COUNTS_ROWS ? is_input && operand == 4
                           : reads                       ? is_input && operand == 1
                                                         : adds && !is_input;
    return is_weight ? c->attrs.experts : 1;
}

// Returns whether the operand can be cut along the dim into equal pieces that are still valid.
static bool can_cut(const kern_call *c, bool is_input, int operand, const kern_tensor *t, int dim)
{
    if (dim >= t->ndim) return false;
    const int64_t part = first_part(c, is_input, operand, t, dim);
    int64_t unit = 1;
    if (dim == 1 &&
        (c->code == OP_ROPE || c->code == OP_ATTENTION || c->code == OP_ATTENTION_BWD)) {
        // Whole heads; the statistic has one column a head.
        if (c->attrs.kv_heads > 0 && c->attrs.kv_heads % WAYS != 0) return false;
        const bool is_statistic = t->dims[1] == c->attrs.heads && c->attrs.head_dim > 1;
        unit = is_statistic ? 1 : c->attrs.head_dim;
        if (c->code == OP_ROPE && !halves(t->dims[1] - part, 1)) return false;
    }
    const bool is_latent =
        c->code == OP_LATENT || c->code == OP_LATENT_BWD || c->code == OP_LATENT_DR;
    if (dim == 1 && is_latent && c->attrs.heads % WAYS != 0) return false;
    if (dim == 1 && (c->code == OP_RMSNORM || c->code == OP_RMSNORM_DX)) {
        const int64_t norm_dim = c->in[c->code == OP_RMSNORM ? 1 : 3].dims[0];
        const bool is_statistic = t->type == DTYPE_F64 && t->dims[1] * norm_dim == c->in[0].dims[1];
        unit = is_statistic && t->dims[1] != c->in[0].dims[1] ? 1 : norm_dim;
        if (c->piece.whole_columns > 0) unit = 1; // sums of rows are given
    }
    if (dim == 0) unit = blocks_of(c, is_input, operand);
    return halves(part, unit) && halves(t->dims[dim], 1);
}

// Maps the index of a piece to the index in the whole, along the cut dim.
static int64_t index_in_whole(int64_t part, int64_t width, int piece, int64_t index)
{
    const int64_t here = part / WAYS;
    if (index < here) return piece * here + index;
    return part + piece * ((width - part) / WAYS) + (index - here);
}

typedef struct cut {
    int dim; // -1: not cut
    int64_t part, width;
    int64_t
        blocks; // of rows, one below the other, that are each cut apart: the matrices of experts
} cut;

// If rows of experts are cut by tokens, each rank has its own order of rows; experts_test.c tests
// those.
static bool has_own_order(const kern_call *c, const op_rule *rule)
{
    const bool rows = rule->in[0].kind == PLACE_SHARD && rule->in[0].dim == 0;
    return rows && c->code >= OP_PERMUTE && c->code <= OP_BIAS_ROWS_DW;
}

static cut cut_of(const trial *t, bool is_input, int operand, const kern_tensor *whole)
{
    const placement p = is_input ? t->rule.in[operand] : t->rule.out[operand];
    if (p.kind != PLACE_SHARD) return (cut){.dim = -1};
    return (cut){.dim = p.dim,
                 .part = first_part(&t->whole->call, is_input, operand, whole, p.dim),
                 .width = whole->dims[p.dim],
                 .blocks = p.dim == 0 ? blocks_of(&t->whole->call, is_input, operand) : 1};
}

static kern_tensor piece_make(const trial *t, const kern_tensor *whole, const cut *c)
{
    int64_t dims[OP_MAX_DIMS];
    memcpy(dims, whole->dims, sizeof(dims));
    if (c->dim >= 0) dims[c->dim] /= WAYS;
    return kt_make(t->a, whole->type, whole->ndim, dims);
}

// Returns the element of the whole that corresponds to an element of a piece.
static int64_t element_in_whole(const kern_tensor *whole, const kern_tensor *piece, const cut *c,
                                int k, int64_t element)
{
    if (c->dim < 0) return element;
    const int64_t columns = piece->ndim == 2 ? piece->dims[1] : 1;
    int64_t row = element / columns, column = element % columns;
    if (c->dim == 0) {
        const int64_t block = c->width / c->blocks, here = block / WAYS;
        row = c->blocks > 1 ? row / here * block + index_in_whole(block, block, k, row % here)
                            : index_in_whole(c->part, c->width, k, row);
    }
    if (c->dim == 1) column = index_in_whole(c->part, c->width, k, column);
    return row * (whole->ndim == 2 ? whole->dims[1] : 1) + column;
}

// ---- one rule -----------------------------------------------------------------------------------

static bool rule_applies(const trial *t)
{
    const kern_call *c = &t->whole->call;
    for (int i = 0; i < OP_MAX_IN; i++) {
        if (c->in[i].data == NULL || t->rule.in[i].kind != PLACE_SHARD) continue;
        if (!can_cut(c, true, i, &c->in[i], t->rule.in[i].dim)) return false;
    }
    for (int o = 0; o < OP_MAX_OUT; o++) {
        if (c->out[o].data == NULL || t->rule.out[o].kind != PLACE_SHARD) continue;
        if (!can_cut(c, false, o, &c->out[o], t->rule.out[o].dim)) return false;
    }
    return true;
}

static void fill_piece(const trial *t, int operand, const kern_tensor *piece, const cut *c, int k)
{
    const kern_tensor *whole = &t->whole->call.in[operand];
    for (int64_t e = 0; e < kt_elements(piece); e++) {
        double value = kt_get(whole, element_in_whole(whole, piece, c, k, e));
        if (t->rule.in[operand].kind == PLACE_PARTIAL) {
            const double term = test_uniform(77, operand, e);
            value = k == 0 ? term : value - term;
        }
        kt_put(piece, e, value);
    }
}

// Returns whether the operand with the rows of tokens is cut by them.
static bool is_cut_by_tokens(const trial *t)
{
    for (int i = 0; i < OP_MAX_IN; i++) {
        const tensor_id id = t->s.node.in[i];
        if (id == TENSOR_NONE || t->rule.in[i].kind != PLACE_SHARD || t->rule.in[i].dim != 0) {
            continue;
        }
        if (t->s.program->tensors[id].dims[0].symbol != EXTENT_ONE) return true;
    }
    return false;
}

static void run_piece(trial *t, int k, kern_call *call, piece_step *step, cut *out_cuts)
{
    const kern_call *whole = &t->whole->call;
    *call = *whole;
    *step = t->before;
    call->step = &step->block;
    op_node piece;
    op_node_cut(t->s.program, &t->s.node, t->rule_idx, WAYS, k, &piece);
    call->attrs = piece.attrs;
    call->piece = piece.piece;
    if (is_cut_by_tokens(t)) call->first_sequence += k; // one of the two sequences each
    if (call->attrs.heads < whole->attrs.heads) call->first_head = (int64_t)k * call->attrs.heads;
    for (int i = 0; i < OP_MAX_IN; i++) {
        if (whole->in[i].data == NULL || whole->in[i].data == (void *)&t->whole->step) continue;
        const cut c = cut_of(t, true, i, &whole->in[i]);
        call->in[i] = piece_make(t, &whole->in[i], &c);
        fill_piece(t, i, &call->in[i], &c, k);
    }
    for (int o = 0; o < OP_MAX_OUT; o++) {
        out_cuts[o].dim = -1;
        if (whole->out[o].data == NULL) continue;
        if (whole->out[o].data == (void *)&t->whole->step) {
            call->out[o].data = &step->block;
            continue;
        }
        out_cuts[o] = cut_of(t, false, o, &whole->out[o]);
        call->out[o] = piece_make(t, &whole->out[o], &out_cuts[o]);
    }
    must(sample_run_call(t->whole, &t->run, call));
}

static void complain(trial *t, int output, double error)
{
    t->failures++;
    print_error("%s, variant %d, rule %d: output %d is off by %g\n", t->s.kind->name, t->s.variant,
                t->rule_idx, output, error);
}

static void check_output(trial *t, int o, const kern_call *pieces, const cut *c)
{
    const kern_tensor *whole = &t->whole->call.out[o];
    const place_kind kind = t->rule.out[o].kind;
    double worst = 0.0, largest = 1e-3;
    for (int k = 0; k < WAYS; k++) {
        const kern_tensor *piece = &pieces[k].out[o];
        for (int64_t e = 0; e < kt_elements(piece); e++) {
            const double want = kt_get(whole, element_in_whole(whole, piece, c, k, e));
            double got = kt_get(piece, e);
            if (kind == PLACE_PARTIAL) got += kt_get(&pieces[WAYS - 1 - k].out[o], e);
            // Pieces count more calls than the whole, in the same columns.
            const op_code code = t->s.node.code;
            const bool is_count = code == OP_FP8_COUNTS || code == OP_FP8_COUNTS_ROWS;
            if (is_count) got = fmin(got, 1.0);
            const double error = fabs(got - want);
            largest = fmax(largest, fabs(want));
            if (!(isnan(got) && isnan(want))) worst = fmax(worst, isnan(error) ? HUGE_VAL : error);
        }
    }
    if (worst > 1e-9 * largest) complain(t, o, worst / largest);
}

// The loads of experts that the pieces add are those of the whole.
static void check_loads(trial *t, int o, const piece_step *steps)
{
    const bool adds = t->rule.out[o].kind == PLACE_PARTIAL;
    for (int i = 0; i < SAMPLE_LOADS; i++) {
        const int64_t before = t->before.loads[i];
        int64_t more = steps[0].loads[i] - before;
        if (adds) more += steps[1].loads[i] - before;
        if (more != t->whole->loads[i] - before) complain(t, o, (double)more);
    }
}

static void check_step(trial *t, int o, piece_step *pieces)
{
    const step_device *whole = &t->whole->step.device;
    const step_device *steps[WAYS] = {&pieces[0].block.device, &pieces[1].block.device};
    exact_sum loss = steps[0]->loss_sum, norm = steps[0]->norm_sum;
    int64_t tokens = steps[0]->tokens;
    if (t->rule.out[o].kind == PLACE_PARTIAL) {
        exact_merge(&loss, &steps[1]->loss_sum);
        exact_merge(&norm, &steps[1]->norm_sum);
        tokens += steps[1]->tokens;
    }
    check_loads(t, o, pieces);
    const double loss_error = fabs(exact_value(&loss) - exact_value(&whole->loss_sum));
    const double norm_error = fabs(exact_value(&norm) - exact_value(&whole->norm_sum));
    if (tokens != whole->tokens || loss_error > 1e-9 || norm_error > 1e-9) {
        complain(t, o, fmax(loss_error, norm_error));
    }
}

static void try_rule(trial *t)
{
    if (!rule_applies(t)) return;
    t->done[t->s.node.code][t->rule_idx]++;
    kern_call pieces[WAYS];
    piece_step steps[WAYS];
    cut out_cuts[OP_MAX_OUT];
    for (int k = 0; k < WAYS; k++) run_piece(t, k, &pieces[k], &steps[k], out_cuts);
    for (int o = 0; o < OP_MAX_OUT; o++) {
        if (pieces[0].out[o].data == NULL) continue;
        if (pieces[0].out[o].data == (void *)&steps[0].block) {
            check_step(t, o, steps);
        } else {
            check_output(t, o, pieces, &out_cuts[o]);
        }
    }
}

static void try_variant(trial *t, op_code code, int variant)
{
    assert_int_equal(arena_create("placement test", 0, &t->a), ST_OK);
    sample_open(t->a, code, variant, &t->s);
    widen(&t->s);
    if (sample_is_big(&t->s)) { // a rule holds for any size
        arena_destroy(t->a);
        return;
    }
    t->whole = sample_memory_create(t->a, &t->s, 0);
    t->before.block = t->whole->step;
    memcpy(t->before.loads, t->whole->loads, sizeof(t->before.loads));
    sample_fill(t->whole, 4, false);
    must(sample_run(t->whole, &t->run, false, false));
    // State is updated in place, so pieces start from its old value.
    sample_memory *start = sample_memory_create(t->a, &t->s, 0);
    sample_fill(start, 4, false);
    for (int i = 0; i < OP_MAX_IN; i++) {
        if (start->call.in[i].data == (void *)&start->step) continue;
        t->whole->call.in[i] = start->call.in[i];
    }
    op_rule rules[OP_MAX_RULES];
    int count = 0;
    t->s.kind->place(t->s.program, &t->s.node, rules, &count);
    assert_true(count >= 1 && count <= OP_MAX_RULES);
    t->rule_count[code] = count;
    for (t->rule_idx = 0; t->rule_idx < count; t->rule_idx++) {
        t->rule = rules[t->rule_idx];
        if (has_own_order(&t->whole->call, &t->rule)) {
            t->done[code][t->rule_idx]++;
            continue;
        }
        try_rule(t);
    }
    arena_destroy(t->a);
}

static void test_rules(void **state)
{
    (void)state;
    trial t;
    memset(&t, 0, sizeof(t));
    backend_run_init(&t.run, &kern_backend_ref, KERN_SCALAR, 1);
    for (int code = 0; code < OP_CODE_COUNT; code++) {
        if (!op_has_kernel((op_code)code)) continue;
        for (int variant = 0; variant < op_sample_count((op_code)code); variant++) {
            try_variant(&t, (op_code)code, variant);
        }
        for (int r = 0; r < t.rule_count[code]; r++) {
            if (t.done[code][r] > 0) continue;
            print_error("%s: no sample can be cut by rule %d\n", op_kind_of((op_code)code)->name,
                        r);
            t.failures++;
        }
    }
    backend_runs_deinit(&t.run, 1);
    assert_int_equal(t.failures, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rules)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
