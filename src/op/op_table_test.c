// The contract of every row, over every sample: each statement of op.h about rows holds.
#include "fixtures/op/op_sample.h"
#include "op/op_internal.h"
#include "op/step.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

typedef struct sample {
    op_program *p;
    op_list list;
    int64_t index;
    extent_binding bound;
    const op_node *node;
    const op_kind *kind;
} sample;

static sample sample_make(arena *a, op_code code, int variant)
{
    sample s = {.kind = op_kind_of(code)};
    const status st = op_sample(a, code, variant, &s.p, &s.list, &s.index, &s.bound);
    if (st != ST_OK) print_error("%s.%d: %s\n", s.kind->name, variant, error_last()->text);
    assert_int_equal(st, ST_OK);
    s.node = &s.p->lists[s.list].nodes[s.index];
    return s;
}

// Calls check for every variant of every operation, each in a fresh arena.
static void each_sample(void (*check)(arena *a, const sample *s, int variant))
{
    arena *a = NULL;
    assert_int_equal(arena_create("samples", 0, &a), ST_OK);
    for (int code = 0; code < OP_CODE_COUNT; code++) {
        for (int v = 0; v < op_sample_count((op_code)code); v++) {
            arena_reset(a);
            const sample s = sample_make(a, (op_code)code, v);
            check(a, &s, v);
        }
    }
    arena_destroy(a);
}

static void test_rows_are_in_order(void **state)
{
    (void)state;
#define NAME_OF(upper, lower) #lower,
    static const char *const names[] = {OP_TABLE(NAME_OF)};
#undef NAME_OF
    assert_int_equal(COUNT_OF(names), OP_CODE_COUNT);
    for (int code = 0; code < OP_CODE_COUNT; code++) {
        const op_kind *k = op_kind_of((op_code)code);
        assert_int_equal(k->code, code);
        assert_string_equal(k->name, names[code]);
        const int ins = op_word_count(k->in), outs = op_word_count(k->out);
        assert_true(ins <= OP_MAX_IN && outs <= OP_MAX_OUT && outs >= 1);
        assert_int_equal(k->optional_in >> ins, 0);
        assert_int_equal(k->optional_out >> outs, 0);
        assert_int_equal(k->accumulates >> outs, 0);
        assert_int_equal((k->picks | k->tiles) >> ins, 0);
        assert_int_equal((k->step_reads | k->step_writes) / STEP_FIELD_END, 0);
        if (k->out[0] != '.') assert_int_equal(op_word_count(k->made), outs);
        for (int o = 0; o < OP_MAX_OUT; o++) {
            assert_true(k->inplace[o] >= -1 && k->inplace[o] < ins);
            if (o >= outs) assert_int_equal(k->inplace[o], -1);
        }
        assert_non_null(k->infer);
        assert_non_null(k->place);
        assert_non_null(k->cost);
        assert_true(op_sample_count((op_code)code) > 0);
    }
}

// Traits that must agree with one another.
static void test_traits(void **state)
{
    (void)state;
    for (int code = 0; code < OP_CODE_COUNT; code++) {
        const op_kind *k = op_kind_of((op_code)code);
        assert_int_equal(k->communicates, k->cost_class == COST_FREE);
        assert_int_equal(k->communicates, op_communicates((op_code)code));
        if (k->pointwise) assert_int_equal(k->cost_class, COST_MEMORY);
        if (k->logits != LOGITS_NONE || k->grad_of == GRAD_OF_WEIGHT) assert_null(k->gradient);
        if (k->tiles != 0) assert_true(k->pointwise);
        if (k->accumulates != 0 && k->logits == LOGITS_NONE) {
            assert_true(k->grad_of == GRAD_OF_WEIGHT || k->merges_sums);
        }
        // An update reads the decision; only operations without other results add to the sums of
        // the step.
        const uint32_t decided = STEP_FIELD_HOST | STEP_FIELD_DECIDED;
        if (k->updates_state) assert_int_equal(k->step_reads & decided, decided);
        if (k->step_writes != 0) assert_string_equal(k->out, ".");
        if (k->gemm == NULL) continue;
        assert_int_equal(k->cost_class, COST_GEMM);
        assert_int_equal(strlen(k->gemm), 3);
    }
}

// The letters of `gemm` give the FLOPs of the row's own cost, except for operations fused with the
// GEMM.
static void check_gemm(arena *a, const sample *s, int variant)
{
    (void)a;
    (void)variant;
    op_gemm g;
    if (!op_gemm_of(s->p, s->node, &s->bound, &g)) return;
    int64_t gemms = 1;
    for (int o = 1; o < OP_MAX_OUT && s->kind->logits == LOGITS_LOSS; o++) {
        gemms += s->node->out[o] != TENSOR_NONE ? 1 : 0;
    }
    const double flops = 2.0 * (double)gemms * g.count * g.m * g.n * g.k;
    const double elements = g.count * g.m * g.n;
    const double all = op_node_cost(s->p, s->node, &s->bound).flops;
    assert_true(all >= flops && all <= flops + 12.0 * elements);
}

static void test_gemm_shapes(void **state)
{
    (void)state;
    each_sample(check_gemm);
}

static void check_shape(arena *a, const sample *s, int variant)
{
    (void)a;
    (void)variant;
    const op_kind *k = s->kind;
    for (int i = 0; i < OP_MAX_IN; i++) {
        const bool may_miss = i >= op_word_count(k->in) || (k->optional_in >> i & 1u) != 0;
        assert_true(s->node->in[i] != TENSOR_NONE || may_miss);
    }
    for (int o = 0; o < OP_MAX_OUT; o++) {
        const tensor_id t = s->node->out[o];
        if (t == TENSOR_NONE) {
            assert_true(o >= op_word_count(k->out) || (k->optional_out >> o & 1u) != 0);
            continue;
        }
        assert_true(op_tensor_elements(op_at(s->p, t), &s->bound) > 0);
        if ((k->accumulates >> o & 1u) != 0) {
            assert_int_equal(op_at(s->p, t)->role, ROLE_WEIGHT_GRAD);
        }
        // An input that may be overwritten has as many elements as the output.
        if (k->inplace[o] < 0 || s->node->in[k->inplace[o]] == TENSOR_NONE) continue;
        assert_int_equal(op_tensor_elements(op_at(s->p, t), &s->bound),
                         op_tensor_elements(op_at(s->p, s->node->in[k->inplace[o]]), &s->bound));
    }
}

static void test_operands(void **state)
{
    (void)state;
    each_sample(check_shape);
}

// Tables of pages of a cache, the last operands: kernels/pages_test.c has them.
static uint32_t pages_of(const op_kind *k)
{
    const size_t length = strlen(k->in);
    const bool has = length > 2 && strcmp(k->in + length - 2, "iQ") == 0;
    return has ? 1u << (op_word_count(k->in) - 1) : 0;
}

// Every optional operand is present in one sample and missing in another.
static void test_samples_cover_options(void **state)
{
    (void)state;
    arena *a = NULL;
    assert_int_equal(arena_create("options", 0, &a), ST_OK);
    for (int code = 0; code < OP_CODE_COUNT; code++) {
        const op_kind *k = op_kind_of((op_code)code);
        uint32_t in_there = 0, in_missing = 0, out_there = 0, out_missing = 0, types = 0;
        for (int v = 0; v < op_sample_count((op_code)code); v++) {
            arena_reset(a);
            const sample s = sample_make(a, (op_code)code, v);
            for (int i = 0; i < op_word_count(k->in); i++) {
                *(s.node->in[i] == TENSOR_NONE ? &in_missing : &in_there) |= 1u << i;
            }
            for (int o = 0; o < op_word_count(k->out); o++) {
                *(s.node->out[o] == TENSOR_NONE ? &out_missing : &out_there) |= 1u << o;
            }
            types |= 1u << (int)s.p->compute;
        }
        assert_int_equal(in_missing, k->optional_in);
        assert_int_equal(out_missing, k->optional_out);
        assert_int_equal(in_there | pages_of(k), (1u << op_word_count(k->in)) - 1);
        assert_int_equal(out_there, (1u << op_word_count(k->out)) - 1);
        assert_int_equal(types, 1u << DTYPE_F32 | 1u << DTYPE_BF16 | 1u << DTYPE_F16);
    }
    arena_destroy(a);
}

static bool same_cost(op_cost a, op_cost b)
{
    return a.flops == b.flops && a.bytes_read == b.bytes_read && a.bytes_written == b.bytes_written;
}

static void check_cost(arena *a, const sample *s, int variant)
{
    (void)a;
    (void)variant;
    const op_cost once = op_node_cost(s->p, s->node, &s->bound);
    assert_true(once.flops >= 0.0 && once.bytes_read >= 0.0 && once.bytes_written > 0.0);
    // Twice the sequences: no cost decreases, and only weights are still read once.
    extent_binding twice = s->bound;
    for (int k = EXTENT_ONE + 1; k < EXTENT_SYMBOL_COUNT; k++) twice.value[k] *= 2;
    const op_cost more = op_node_cost(s->p, s->node, &twice);
    assert_true(more.flops == once.flops || more.flops == 2.0 * once.flops);
    assert_true(more.bytes_read >= once.bytes_read && more.bytes_read <= 2.0 * once.bytes_read);
    assert_true(more.bytes_written >= once.bytes_written);
    assert_true(more.bytes_written <= 2.0 * once.bytes_written);
    bool symbol = false;
    for (int i = 0; i < op_word_count(s->kind->in); i++) {
        if (s->node->in[i] == TENSOR_NONE) continue;
        symbol = symbol || op_at(s->p, s->node->in[i])->dims[0].symbol != EXTENT_ONE;
    }
    assert_true(symbol != same_cost(once, more));
}

static void test_cost(void **state)
{
    (void)state;
    each_sample(check_cost);
}

// The FLOPs of GEMMs have their textbook values.
static void test_cost_of_products(void **state)
{
    (void)state;
    arena *a = NULL;
    assert_int_equal(arena_create("cost", 0, &a), ST_OK);
    for (int v = 0; v < 2; v++) {
        const sample s = sample_make(a, OP_MATMUL, v);
        const double n = op_dim(s.p, s.node->in[0], 0, &s.bound);
        const double m = op_dim(s.p, s.node->in[1], 0, &s.bound);
        const double k = op_dim(s.p, s.node->in[1], 1, &s.bound);
        const op_cost c = op_node_cost(s.p, s.node, &s.bound);
        assert_true(c.flops == 2.0 * n * m * k);
        const double width = v == 0 ? 4.0 : 2.0;
        assert_true(c.bytes_read == width * (n * k + m * k));
        assert_true(c.bytes_written == width * n * m);
    }
    // Setting 0: 2 sequences of 5; 15 pairs each, 14 inside a window of 4 (1 + 2 + 3 + 4 + 4).
    const double per_pair = 4.0 * (4.0 * 6.0 + 6.0);
    const sample causal = sample_make(a, OP_ATTENTION, 0);
    assert_true(op_node_cost(causal.p, causal.node, &causal.bound).flops == 2.0 * 15.0 * per_pair);
    const sample window = sample_make(a, OP_ATTENTION, 2 * 7);
    assert_int_equal(window.node->attrs.window, 4);
    assert_true(op_node_cost(window.p, window.node, &window.bound).flops == 2.0 * 14.0 * per_pair);
    // A full cache of 9: queries 4 .. 8 see 5 .. 9 keys.
    const sample cached = sample_make(a, OP_ATTENTION, 4 * 7);
    assert_true(op_node_cost(cached.p, cached.node, &cached.bound).flops == 2.0 * 35.0 * per_pair);
    arena_destroy(a);
}

static bool place_is_legal(const op_program *p, tensor_id t, placement at)
{
    if (at.kind != PLACE_SHARD) return at.kind == PLACE_REPLICATE || at.kind == PLACE_PARTIAL;
    return at.dim >= 0 && (t == TENSOR_NONE || at.dim < op_at(p, t)->ndim);
}

static void check_rules(arena *a, const sample *s, int variant)
{
    (void)a;
    (void)variant;
    op_rule rules[OP_MAX_RULES];
    int count = 0;
    s->kind->place(s->p, s->node, rules, &count);
    assert_true(count >= 1 && count <= OP_MAX_RULES);
    for (int r = 0; r < count; r++) {
        bool cuts = false;
        for (int i = 0; i < OP_MAX_IN; i++) {
            if (r == 0) assert_int_equal(rules[r].in[i].kind, PLACE_REPLICATE);
            assert_true(place_is_legal(s->p, s->node->in[i], rules[r].in[i]));
            if (s->node->in[i] != TENSOR_NONE) cuts |= rules[r].in[i].kind != PLACE_REPLICATE;
        }
        for (int o = 0; o < OP_MAX_OUT; o++) {
            if (r == 0) assert_int_equal(rules[r].out[o].kind, PLACE_REPLICATE);
            assert_true(place_is_legal(s->p, s->node->out[o], rules[r].out[o]));
            if (s->node->out[o] != TENSOR_NONE) cuts |= rules[r].out[o].kind != PLACE_REPLICATE;
        }
        assert_true(cuts == (r > 0));
        op_node piece;
        op_node_cut(s->p, s->node, r, 2, 1, &piece);
        if (r == 0) assert_memory_equal(&piece, s->node, sizeof(piece));
    }
}

static void test_rules(void **state)
{
    (void)state;
    each_sample(check_rules);
}

// A cut node is a valid node on its pieces: infer accepts the pieces and makes the pieces of the
// outputs.
static extent cut_extent(extent e, int ways, bool *whole)
{
    if (e.scale % ways != 0 && e.symbol == EXTENT_ONE) *whole = false;
    if (e.symbol == EXTENT_ONE) e.scale /= ways;
    return e;
}

static void check_cut(arena *a, const sample *s, int variant)
{
    (void)a;
    (void)variant;
    op_rule rules[OP_MAX_RULES];
    int count = 0;
    s->kind->place(s->p, s->node, rules, &count);
    for (int r = 1; r < count; r++) {
        op_program q = *s->p; // its tensors are changed, then put back
        op_tensor *tensors = NULL;
        assert_int_equal(arena_new(a, s->p->tensor_count + 8, &tensors), ST_OK);
        memcpy(tensors, s->p->tensors, (size_t)s->p->tensor_count * sizeof(*tensors));
        q.tensors = tensors;
        q.tensor_capacity = s->p->tensor_count + 8;
        op_node piece;
        op_node_cut(s->p, s->node, r, 2, 1, &piece);
        bool even = s->node->attrs.heads % 2 == 0 && s->node->attrs.kv_heads % 2 == 0;
        if (rules[r].in[0].kind == PLACE_SHARD && rules[r].in[0].dim == 0) even = true;
        bool done[64] = {false};
        for (int k = 0; k < OP_MAX_IN + OP_MAX_OUT; k++) {
            const bool in = k < OP_MAX_IN;
            const tensor_id t = in ? piece.in[k] : piece.out[k - OP_MAX_IN];
            const placement at = in ? rules[r].in[k] : rules[r].out[k - OP_MAX_IN];
            if (t == TENSOR_NONE || at.kind != PLACE_SHARD || done[t]) continue;
            done[t] = true;
            tensors[t].dims[at.dim] = cut_extent(tensors[t].dims[at.dim], 2, &even);
        }
        // Halves of a gate must be even themselves.
        if (s->kind->code == OP_SWIGLU || s->kind->code == OP_SWIGLU_BWD) {
            even = even && tensors[piece.in[0]].dims[1].scale % 2 == 0;
        }
        if (!even) continue;
        const status st = s->kind->infer(&q, &piece, 0);
        if (st != ST_OK) print_error("%s rule %d: %s\n", s->kind->name, r, error_last()->text);
        assert_int_equal(st, ST_OK);
    }
}

static void test_cut_nodes_are_legal(void **state)
{
    (void)state;
    each_sample(check_cut);
}

// Each missing required operand is refused with a clear error that names the operation.
static void check_missing(arena *a, const sample *s, int variant)
{
    (void)a;
    (void)variant;
    for (int i = 0; i < op_word_count(s->kind->in); i++) {
        if ((s->kind->optional_in >> i & 1u) != 0) continue;
        op_node broken = *s->node;
        broken.in[i] = TENSOR_NONE;
        assert_int_equal(op_append(s->p, s->list, &broken, 0), ST_MODEL);
        assert_non_null(strstr(error_last()->text, s->kind->name));
    }
    op_node broken = *s->node;
    if (op_word_count(s->kind->in) < OP_MAX_IN) {
        broken.in[op_word_count(s->kind->in)] = 0;
        if (s->p->tensor_count > 0) {
            assert_int_equal(op_append(s->p, s->list, &broken, 0), ST_MODEL);
        }
    }
    assert_int_equal(s->p->lists[s->list].count, s->index + 1);
}

static void test_missing_operands(void **state)
{
    (void)state;
    each_sample(check_missing);
}

// Any operand whose type or number of dims is wrong is refused.
static void check_wrong(arena *a, const sample *s, int variant)
{
    (void)a;
    (void)variant;
    for (int i = 0; i < op_word_count(s->kind->in); i++) {
        const tensor_id t = s->node->in[i];
        if (t == TENSOR_NONE) continue;
        op_node broken = *s->node;
        const op_tensor was = *op_at(s->p, t);
        op_tensor *now = &s->p->tensors[t];
        if (s->kind->code != OP_CAST && s->kind->code != OP_ALL_TO_ALL) { // they take any
            now->type = DTYPE_BOOL;
            assert_int_equal(op_append(s->p, s->list, &broken, 0), ST_MODEL);
            *now = was;
        }
        now->ndim = 3;
        now->dims[2] = extent_of(1);
        broken = *s->node;
        assert_int_equal(op_append(s->p, s->list, &broken, 0), ST_MODEL);
        *now = was;
    }
}

static void test_wrong_operands(void **state)
{
    (void)state;
    each_sample(check_wrong);
}

static void test_facts(void **state)
{
    (void)state;
    assert_true(op_kind_of(OP_MATMUL)->kept_by_selective);
    assert_true(op_kind_of(OP_ATTENTION)->kept_by_selective);
    assert_false(op_kind_of(OP_RMSNORM)->kept_by_selective);
    assert_true((op_kind_of(OP_DROPOUT)->step_reads & STEP_FIELD_HOST) != 0);
    assert_null(op_kind_of(OP_GATHER)->gradient);
    assert_null(op_kind_of(OP_ADAMW)->gradient);
    assert_non_null(op_kind_of(OP_ROPE)->gradient);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_in_order),     cmocka_unit_test(test_traits),
        cmocka_unit_test(test_gemm_shapes),           cmocka_unit_test(test_operands),
        cmocka_unit_test(test_samples_cover_options), cmocka_unit_test(test_cost),
        cmocka_unit_test(test_cost_of_products),      cmocka_unit_test(test_rules),
        cmocka_unit_test(test_cut_nodes_are_legal),   cmocka_unit_test(test_missing_operands),
        cmocka_unit_test(test_wrong_operands),        cmocka_unit_test(test_facts),
    };
    return cmocka_run_group_tests_name("op_table", tests, NULL, NULL);
}
