// A block of experts through its operations, on `ref` and on `cpu`: properties that single
// operations against `ref` cannot show.
//
//   cut by tokens   two halves, each with its own order of rows, give the bits of the whole:
//                   results and gradients of tokens, and gradients of weights that continue from
//                   one half to the next
//   loads           all tokens in one expert, experts without tokens, tokens without experts
//   missing rows    hold NaN (the interpreter's fresh memory), which reaches no result
//   shapes          numbers of experts, choices and groups at their limits, idle and crowded
//                   experts, against a naive mixture in double that has no order of rows
#include "fixtures/kernels/sample_fixture.h"
#include "kernels/interpret.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { TOKENS = 24, DIM = 20, FFN = 12, TAKEN = 2, EXPERTS = 5 };

typedef int64_t (*choice)(int64_t token, int64_t k);

static int64_t spread(int64_t token, int64_t k)
{
    return (token * 7 + k * 3 + token / 5) % EXPERTS;
}

static int64_t all_in_one(int64_t token, int64_t k)
{
    (void)token;
    return k == 0 ? 3 : -1;
}

// The first expert has no rows, and every third token takes no expert.
static int64_t holes(int64_t token, int64_t k)
{
    return token % 3 == 0 ? -1 : 1 + (token + k) % (EXPERTS - 1);
}

typedef struct block {
    op_program *p;
    tensor_id x, ids, weights, up, down, y;
    op_permuted rows;
} block;

static void block_write(arena *a, block *b)
{
    tensor_id h, act, d;
    must(op_program_create(a, PURPOSE_TRAIN, DTYPE_F32, DTYPE_F32, &b->p));
    must(op_input(b->p, "x", extent_tokens(1), extent_of(DIM), &b->x));
    must(op_tensor_make(b->p, "ids", ROLE_BATCH, DTYPE_I32, 2, extent_tokens(1), extent_of(TAKEN),
                        &b->ids));
    must(op_tensor_make(b->p, "weights", ROLE_INPUT, DTYPE_F32, 2, extent_tokens(1),
                        extent_of(TAKEN), &b->weights));
    must(op_tensor_make(b->p, "up", ROLE_WEIGHT, DTYPE_F32, 2, extent_of(EXPERTS * 2 * FFN),
                        extent_of(DIM), &b->up));
    must(op_tensor_make(b->p, "down", ROLE_WEIGHT, DTYPE_F32, 2, extent_of(EXPERTS * DIM),
                        extent_of(FFN), &b->down));
    must(op_permute(b->p, b->x, b->ids, b->weights, EXPERTS, &b->rows));
    must(op_grouped_matmul(b->p, b->rows.rows, b->up, b->rows.offsets, EXPERTS, &h));
    must(op_swiglu(b->p, h, &act));
    must(op_scale_rows(b->p, act, b->rows.scale, &act));
    must(op_grouped_matmul(b->p, act, b->down, b->rows.offsets, EXPERTS, &d));
    must(op_unpermute(b->p, d, b->rows.row_of, TENSOR_NONE, &b->y));
    must(op_output(b->p, b->y));
    must(op_program_differentiate(b->p));
}

// Tokens [begin, begin + count) of the block; gradients of weights continue from `before`.
typedef struct half {
    block b;
    kern_interpret *it;
    int64_t begin, count;
} half;

static tensor_id weight_grad(const half *h, tensor_id weight)
{
    for (tensor_id t = 0; t < (tensor_id)h->b.p->tensor_count; t++) {
        const op_tensor *x = &h->b.p->tensors[t];
        if (x->role == ROLE_WEIGHT_GRAD && x->of == weight) return t;
    }
    return TENSOR_NONE;
}

static void fill(half *h, choice ids)
{
    const block *b = &h->b;
    const tensor_id given[] = {b->x, b->weights, b->up, b->down, b->p->d_outputs[0]};
    for (int i = 0; i < COUNT_OF(given); i++) {
        const tensor_id t = given[i];
        const bool of_tokens = b->p->tensors[t].dims[0].symbol == EXTENT_TOKENS;
        const int64_t skip = of_tokens ? h->begin * b->p->tensors[t].dims[1].scale : 0;
        for (int64_t e = 0; e < kern_interpret_elements(h->it, t); e++) {
            kern_interpret_put(h->it, t, e, test_uniform(5, i, skip + e));
        }
    }
    for (int64_t e = 0; e < h->count * TAKEN; e++) {
        kern_interpret_put(h->it, b->ids, e, (double)ids(h->begin + e / TAKEN, e % TAKEN));
    }
}

static void half_run(arena *a, half *h, const backend_run *run, choice ids, int64_t begin,
                     int64_t count, const half *before)
{
    block_write(a, &h->b);
    h->begin = begin;
    h->count = count;
    kern_interpret_config config = {
        .program = h->b.p, .context = &run->context, .loss_divisor = 1.0, .strict = true};
    config.bound.value[EXTENT_TOKENS] = count;
    config.bound.value[EXTENT_SEQS] = 1;
    must(kern_interpret_create(a, &config, &h->it));
    fill(h, ids);
    const tensor_id weights[] = {h->b.up, h->b.down};
    for (int64_t i = 0; i < COUNT_OF(weights) && before != NULL; i++) {
        const tensor_id grad = weight_grad(h, weights[i]);
        kern_interpret_bind(
            h->it, grad, kern_interpret_tensor(before->it, weight_grad(before, weights[i])).data);
    }
    must(kern_interpret_run(h->it, OP_FORWARD, false));
    must(kern_interpret_run(h->it, OP_BACKWARD_INPUT, false));
    must(kern_interpret_run(h->it, OP_BACKWARD_WEIGHT, before != NULL));
}

// Row `token` of the whole tensor equals that of the half that has it, to the bit.
static void same_rows(const half *whole, const half *part, tensor_id t)
{
    const int64_t columns = whole->b.p->tensors[t].dims[1].scale;
    for (int64_t e = 0; e < part->count * columns; e++) {
        const double want = kern_interpret_get(whole->it, t, part->begin * columns + e);
        const double got = kern_interpret_get(part->it, t, e);
        assert_true(!isnan(want));
        assert_true(memcmp(&want, &got, sizeof(want)) == 0);
    }
}

static void check_cut(const backend_run *run, choice ids)
{
    arena *a = NULL;
    half whole, first, second;
    assert_int_equal(arena_create("experts", 0, &a), ST_OK);
    half_run(a, &whole, run, ids, 0, TOKENS, NULL);
    half_run(a, &first, run, ids, 0, 9, NULL);
    half_run(a, &second, run, ids, 9, TOKENS - 9, &first);
    const tensor_id of_tokens[] = {whole.b.y, op_grad_get(whole.b.p, whole.b.x),
                                   op_grad_get(whole.b.p, whole.b.weights)};
    for (int64_t i = 0; i < COUNT_OF(of_tokens); i++) {
        same_rows(&whole, &first, of_tokens[i]);
        same_rows(&whole, &second, of_tokens[i]);
    }
    const tensor_id weights[] = {whole.b.up, whole.b.down};
    for (int64_t i = 0; i < COUNT_OF(weights); i++) {
        const tensor_id grad = weight_grad(&whole, weights[i]);
        for (int64_t e = 0; e < kern_interpret_elements(whole.it, grad); e++) {
            const double want = kern_interpret_get(whole.it, grad, e);
            const double got = kern_interpret_get(second.it, grad, e);
            assert_true(!isnan(want));
            assert_true(memcmp(&want, &got, sizeof(want)) == 0);
        }
    }
    arena_destroy(a);
}

static void each_backend(void (*check)(const backend_run *run, choice ids), choice ids)
{
    backend_run runs[BACKEND_MAX_RUNS];
    const int count = backend_runs_init(runs, 2);
    for (int r = 0; r < count; r++) {
        if (runs[r].backend->run[OP_PERMUTE] != NULL) check(&runs[r], ids);
    }
    backend_runs_deinit(runs, count);
}

static void a_cut_by_tokens_changes_no_bit(void **state)
{
    (void)state;
    each_backend(check_cut, spread);
    each_backend(check_cut, all_in_one);
    each_backend(check_cut, holes);
}

static double offset(const half *h, int64_t e)
{
    return kern_interpret_get(h->it, h->b.rows.offsets, e);
}

// Rows of an expert are in the order of tokens, and those of a token are at the indices in row_of.
static void check_order(const backend_run *run, choice ids)
{
    arena *a = NULL;
    half h;
    assert_int_equal(arena_create("experts", 0, &a), ST_OK);
    half_run(a, &h, run, ids, 0, TOKENS, NULL);
    int64_t row = 0;
    for (int64_t e = 0; e < EXPERTS; e++) {
        assert_true(offset(&h, e) == (double)row);
        for (int64_t k = 0; k < TOKENS * TAKEN; k++) {
            if (ids(k / TAKEN, k % TAKEN) != e) continue;
            assert_true(kern_interpret_get(h.it, h.b.rows.row_of, k) == (double)row);
            assert_true(kern_interpret_get(h.it, h.b.rows.scale, row) ==
                        kern_interpret_get(h.it, h.b.weights, k));
            for (int64_t j = 0; j < DIM; j++) {
                assert_true(kern_interpret_get(h.it, h.b.rows.rows, row * DIM + j) ==
                            kern_interpret_get(h.it, h.b.x, k / TAKEN * DIM + j));
            }
            row++;
        }
    }
    assert_true(offset(&h, EXPERTS) == (double)row);
    for (int64_t k = 0; k < TOKENS * TAKEN; k++) {
        if (ids(k / TAKEN, k % TAKEN) >= 0) continue;
        assert_true(kern_interpret_get(h.it, h.b.rows.row_of, k) == -1.0);
        assert_true(kern_interpret_get(h.it, op_grad_get(h.b.p, h.b.weights), k) == 0.0);
    }
    for (int64_t e = row * DIM; e < TOKENS * TAKEN * DIM; e++) { // no kernel has written there
        assert_true(isnan(kern_interpret_get(h.it, h.b.rows.rows, e)));
    }
    // Experts without rows have gradients of zero.
    for (int64_t e = 0; e < EXPERTS; e++) {
        if (offset(&h, e) < offset(&h, e + 1)) continue;
        for (int64_t k = 0; k < DIM * FFN; k++) {
            const tensor_id down = weight_grad(&h, h.b.down);
            assert_true(kern_interpret_get(h.it, down, e * DIM * FFN + k) == 0.0);
        }
    }
    arena_destroy(a);
}

static void rows_are_ordered_by_expert_and_token(void **state)
{
    (void)state;
    each_backend(check_order, spread);
    each_backend(check_order, all_in_one);
    each_backend(check_order, holes);
}

// Invalid ids of experts or rows are errors of the data.
static void check_refusals(const backend_run *run, choice ids)
{
    arena *a = NULL;
    half h;
    (void)ids;
    assert_int_equal(arena_create("experts", 0, &a), ST_OK);
    half_run(a, &h, run, spread, 0, TOKENS, NULL);
    const op_node *nodes = h.b.p->lists[OP_FORWARD].nodes;
    kern_interpret_put(h.it, h.b.ids, 5, EXPERTS);
    assert_int_equal(kern_interpret_node(h.it, &nodes[0], false), ST_DATA);
    kern_interpret_put(h.it, h.b.rows.offsets, 2, TOKENS * TAKEN + 1);
    assert_int_equal(nodes[1].code, OP_GROUPED_MATMUL);
    assert_int_equal(kern_interpret_node(h.it, &nodes[1], false), ST_DATA);
    kern_interpret_put(h.it, h.b.rows.row_of, 7, TOKENS * TAKEN);
    assert_int_equal(nodes[5].code, OP_UNPERMUTE);
    assert_int_equal(kern_interpret_node(h.it, &nodes[5], false), ST_DATA);
    arena_destroy(a);
}

static void wrong_numbers_are_refused(void **state)
{
    (void)state;
    each_backend(check_refusals, NULL);
}

// ---- shapes -------------------------------------------------------------------------------------

enum { NO_EXPERT = -1, MOST_EXPERTS = 32 };

typedef struct shape {
    const char *name;
    int32_t experts;
    op_attrs route;
    int32_t idle, crowded; // an expert that no token chooses, one that every token does
    bool has_bias;
} shape;

static const shape shapes[] = {
    {"one expert", 1, {.top_k = 1, .normalize = true}, NO_EXPERT, NO_EXPERT, false},
    {"one of one, by its score", 1, {.top_k = 1, .sigmoid = true}, NO_EXPERT, NO_EXPERT, true},
    {"all experts", 4, {.top_k = 4}, NO_EXPERT, NO_EXPERT, false},
    {"all experts, by shares", 5, {.top_k = 5, .normalize = true}, NO_EXPERT, 2, false},
    {"an idle expert", 5, {.top_k = 2, .normalize = true}, 3, NO_EXPERT, false},
    {"the first and only one", 6, {.top_k = 1}, NO_EXPERT, 0, false},
    {"the last one crowded", 8, {.top_k = 2, .sigmoid = true}, 0, 7, true},
    {"best of two groups",
     8,
     {.top_k = 3, .groups = 2, .top_groups = 1},
     NO_EXPERT,
     NO_EXPERT,
     false},
    {"groups of one", 6, {.top_k = 2, .groups = 6, .top_groups = 3}, 5, NO_EXPERT, false},
    {"all groups", 9, {.top_k = 2, .groups = 3, .top_groups = 3}, NO_EXPERT, 4, false},
    {"one group", 6, {.top_k = 2, .groups = 1, .top_groups = 1}, NO_EXPERT, NO_EXPERT, true},
    {"pairs in groups",
     MOST_EXPERTS,
     {.top_k = 6,
      .groups = 8,
      .top_groups = 4,
      .group_pairs = true,
      .sigmoid = true,
      .normalize = true,
      .scale = 2.5f},
     NO_EXPERT,
     17,
     true},
};

typedef struct mixture {
    const shape *s;
    op_program *p;
    kern_interpret *it;
    tensor_id x, logits, bias, up, down, y;
} mixture;

static double at(const mixture *m, tensor_id t, int64_t e)
{
    return kern_interpret_get(m->it, t, e);
}

static void mixture_write(arena *a, mixture *m)
{
    const int32_t experts = m->s->experts;
    tensor_id ids, weights, h, act, d;
    op_permuted rows;
    must(op_program_create(a, PURPOSE_TRAIN, DTYPE_F32, DTYPE_F32, &m->p));
    must(op_input(m->p, "x", extent_tokens(1), extent_of(DIM), &m->x));
    must(op_input(m->p, "logits", extent_tokens(1), extent_of(experts), &m->logits));
    must(op_tensor_make(m->p, "up", ROLE_WEIGHT, DTYPE_F32, 2,
                        extent_of((int64_t)experts * 2 * FFN), extent_of(DIM), &m->up));
    must(op_tensor_make(m->p, "down", ROLE_WEIGHT, DTYPE_F32, 2, extent_of((int64_t)experts * DIM),
                        extent_of(FFN), &m->down));
    m->bias = TENSOR_NONE;
    if (m->s->has_bias) {
        must(op_tensor_make(m->p, "bias", ROLE_CONSTANT, DTYPE_F32, 1, extent_of(experts),
                            extent_of(0), &m->bias));
    }
    must(op_route_scored(m->p, m->logits, m->bias, &m->s->route, &ids, &weights));
    must(op_permute(m->p, m->x, ids, weights, experts, &rows));
    must(op_grouped_matmul(m->p, rows.rows, m->up, rows.offsets, experts, &h));
    must(op_swiglu(m->p, h, &act));
    must(op_scale_rows(m->p, act, rows.scale, &act));
    must(op_grouped_matmul(m->p, act, m->down, rows.offsets, experts, &d));
    must(op_unpermute(m->p, d, rows.row_of, TENSOR_NONE, &m->y));
    must(op_output(m->p, m->y));
    must(op_program_differentiate(m->p));
}

static void mixture_fill(mixture *m)
{
    const tensor_id given[] = {m->x, m->logits, m->bias, m->up, m->down, m->p->d_outputs[0]};
    for (int i = 0; i < COUNT_OF(given); i++) {
        for (int64_t e = 0; given[i] != TENSOR_NONE && e < kern_interpret_elements(m->it, given[i]);
             e++) {
            double value = test_uniform(23, i, e);
            if (i == 1 && e % m->s->experts == m->s->idle) value -= 30.0;
            if (i == 1 && e % m->s->experts == m->s->crowded) value += 6.0;
            if (i == 2) value *= 0.3;
            kern_interpret_put(m->it, given[i], e, value);
        }
    }
}

// Returns the best `count` of values, marked; the lower index wins a tie.
static void best_mark(const double *value, const bool *may, int64_t n, int64_t count, bool *chosen)
{
    memset(chosen, 0, (size_t)n);
    for (int64_t k = 0; k < count; k++) {
        int64_t best = -1;
        for (int64_t i = 0; i < n; i++) {
            if (!chosen[i] && may[i] && (best < 0 || value[i] > value[best])) best = i;
        }
        chosen[best] = true;
    }
}

// Sets the weight of each expert for a token; 0: it does not take it.
static void weights_of(const mixture *m, int64_t n, double weight[MOST_EXPERTS])
{
    const op_attrs *r = &m->s->route;
    const int64_t experts = m->s->experts, groups = r->groups > 0 ? r->groups : 1;
    const int64_t each = experts / groups;
    double score[MOST_EXPERTS], wanted[MOST_EXPERTS], group[MOST_EXPERTS], sum = 0.0;
    bool may[MOST_EXPERTS], chosen[MOST_EXPERTS], kept[MOST_EXPERTS];
    for (int64_t e = 0; e < experts; e++) {
        score[e] = exp(at(m, m->logits, n * experts + e));
        if (r->sigmoid) score[e] /= 1.0 + score[e];
        sum += score[e];
    }
    for (int64_t e = 0; e < experts; e++) {
        if (!r->sigmoid) score[e] /= sum;
        wanted[e] = score[e] + (m->bias != TENSOR_NONE ? at(m, m->bias, e) : 0.0);
        may[e] = true;
    }
    for (int64_t g = 0; g < groups; g++) {
        double first = -(double)INFINITY, second = first;
        for (int64_t e = g * each; e < (g + 1) * each; e++) {
            if (wanted[e] > first) {
                second = first;
                first = wanted[e];
            } else if (wanted[e] > second) {
                second = wanted[e];
            }
        }
        group[g] = r->group_pairs ? first + second : first;
    }
    if (r->groups > 0) {
        best_mark(group, may, groups, r->top_groups, kept);
        for (int64_t e = 0; e < experts; e++) may[e] = kept[e / each];
    }
    best_mark(wanted, may, experts, r->top_k, chosen);
    sum = 0.0;
    for (int64_t e = 0; e < experts; e++) sum += chosen[e] ? score[e] : 0.0;
    for (int64_t e = 0; e < experts; e++) {
        const double factor = r->scale > 0.0f ? (double)r->scale : 1.0;
        weight[e] = chosen[e] ? factor * score[e] / (r->normalize ? sum : 1.0) : 0.0;
    }
}

// The gated activation of a token in expert e.
static void activation_of(const mixture *m, int64_t n, int64_t e, double act[FFN])
{
    for (int64_t f = 0; f < FFN; f++) {
        double gate = 0.0, up = 0.0;
        for (int64_t j = 0; j < DIM; j++) {
            const double x = at(m, m->x, n * DIM + j);
            gate += x * at(m, m->up, ((e * 2) * FFN + f) * DIM + j);
            up += x * at(m, m->up, ((e * 2 + 1) * FFN + f) * DIM + j);
        }
        act[f] = gate / (1.0 + exp(-gate)) * up;
    }
}

static void near_all(const mixture *m, tensor_id t, const double *want, const char *what)
{
    double most = 1e-3, worst = 0.0;
    const int64_t count = kern_interpret_elements(m->it, t);
    for (int64_t e = 0; e < count; e++) {
        const double off = fabs(at(m, t, e) - want[e]);
        most = fmax(most, fabs(want[e]));
        worst = isnan(off) ? (double)INFINITY : fmax(worst, off);
    }
    if (worst > 2e-5 * most) fail_msg("%s: %s is off by %g", m->s->name, what, worst / most);
}

// Results, and gradients of the second matrix, which are 0 for experts that no token takes.
static void check_shape(const backend_run *run, const shape *s)
{
    static double y[TOKENS * DIM], dw[MOST_EXPERTS * DIM * FFN];
    double weight[MOST_EXPERTS], act[FFN];
    arena *a = NULL;
    mixture m = {.s = s};
    assert_int_equal(arena_create("experts", 0, &a), ST_OK);
    mixture_write(a, &m);
    kern_interpret_config config = {.program = m.p, .context = &run->context, .loss_divisor = 1.0};
    config.bound.value[EXTENT_TOKENS] = TOKENS;
    config.bound.value[EXTENT_SEQS] = 1;
    must(kern_interpret_create(a, &config, &m.it));
    mixture_fill(&m);
    must(kern_interpret_run(m.it, OP_FORWARD, false));
    must(kern_interpret_run(m.it, OP_BACKWARD_INPUT, false));
    must(kern_interpret_run(m.it, OP_BACKWARD_WEIGHT, false));
    memset(y, 0, sizeof(y));
    memset(dw, 0, sizeof(dw));
    for (int64_t n = 0; n < TOKENS; n++) {
        weights_of(&m, n, weight);
        if (s->idle >= 0) assert_true(weight[s->idle] == 0.0);
        if (s->crowded >= 0) assert_true(weight[s->crowded] > 0.0);
        for (int64_t e = 0; e < s->experts; e++) {
            if (weight[e] == 0.0) continue;
            activation_of(&m, n, e, act);
            for (int64_t k = 0; k < (int64_t)DIM * FFN; k++) {
                const int64_t j = k / FFN, of = (e * DIM + j) * FFN + k % FFN;
                y[n * DIM + j] += weight[e] * act[k % FFN] * at(&m, m.down, of);
                dw[of] += weight[e] * act[k % FFN] * at(&m, m.p->d_outputs[0], n * DIM + j);
            }
        }
    }
    near_all(&m, m.y, y, "the result");
    for (tensor_id t = 0; t < (tensor_id)m.p->tensor_count; t++) {
        const op_tensor *g = &m.p->tensors[t];
        if (g->role == ROLE_WEIGHT_GRAD && g->of == m.down) near_all(&m, t, dw, "the gradient");
    }
    arena_destroy(a);
}

static void shapes_agree_with_a_naive_mixture(void **state)
{
    (void)state;
    backend_run runs[BACKEND_MAX_RUNS];
    const int count = backend_runs_init(runs, 2);
    for (int r = 0; r < count; r++) {
        if (runs[r].backend->run[OP_PERMUTE] == NULL) continue;
        for (int64_t i = 0; i < COUNT_OF(shapes); i++) check_shape(&runs[r], &shapes[i]);
    }
    backend_runs_deinit(runs, count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cut_by_tokens_changes_no_bit),
        cmocka_unit_test(rows_are_ordered_by_expert_and_token),
        cmocka_unit_test(wrong_numbers_are_refused),
        cmocka_unit_test(shapes_agree_with_a_naive_mixture),
    };
    return cmocka_run_group_tests_name("experts", tests, NULL, NULL);
}
