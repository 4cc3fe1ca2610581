// Every operation on every backend, over all samples of fixtures/op/op_sample.h.
//
//   against ref        the same numbers within a tolerance for the type; a call writes nothing but
//                      its outputs, which start as NaN, so only accumulating calls may read them
//   layouts            gaps between rows, outputs on top of the inputs that the operation's row
//                      allows, one thread and two: no bit changes
//   packed weights     packed by the first call and read by the second: no bit changes
//   cuts               two calls, each with some of the rows; accumulators continue from the first
//                      to the second: no bit changes (strict)
#include "fixtures/base/test_part.h"
#include "fixtures/kernels/sample_values.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { PAD = 5 }; // elements between rows: no vector is aligned any more

typedef struct trial {
    arena *a;
    sample s;
    backend_run *runs, *single; // with two threads, with one
    int run_count;
    int64_t compared, kept, failures;
} trial;

// Largest error over largest value. bf16 has 8 bits and fp16 11; if a kernel also rounds
// intermediate values (probabilities, gradients of logits), errors of several such roundings add
// up.
static double tolerance_of(dtype type)
{
    switch ((int)type) {
    case DTYPE_BF16:
        return 0.012;
    case DTYPE_F16:
        return 0.0015;
    case DTYPE_F64:
        return 1e-6;
    default:
        return 1e-5;
    }
}

static dtype narrowest(const kern_call *c)
{
    dtype found = DTYPE_F32;
    for (int i = 0; i < OP_MAX_IN; i++) {
        if (c->in[i].data == NULL) continue;
        if (c->in[i].type == DTYPE_BF16) return DTYPE_BF16;
        if (c->in[i].type == DTYPE_F16) found = DTYPE_F16;
    }
    return found;
}

static void complain(trial *t, const char *run, const char *what)
{
    t->failures++;
    print_error("%s, variant %d, %s: %s\n", t->s.kind->name, t->s.variant, run, what);
}

// ---- comparing ----------------------------------------------------------------------------------

static bool is_step(const sample_memory *m, const kern_tensor *t)
{
    return t->data == (const void *)&m->step;
}

// `size`: at least this counts as the largest value.
static double difference(const kern_tensor *want, const kern_tensor *got, double size)
{
    double worst = 0.0, largest = size;
    for (int64_t e = 0; e < kt_elements(want); e++) {
        const double a = kt_get(want, e), b = kt_get(got, e);
        if (isfinite(a)) largest = fmax(largest, fabs(a));
        if (a == b || (isnan(a) && isnan(b))) continue;
        const double error = fabs(a - b);
        worst = fmax(worst, isnan(error) ? HUGE_VAL : error);
    }
    return largest > 0.0 ? worst / largest : worst;
}

static bool same_bits(double a, double b)
{
    union {
        double value;
        uint64_t bits;
    } x = {.value = a}, y = {.value = b};
    return x.bits == y.bits;
}

static bool same_step(const step_device *a, const step_device *b)
{
    return a->applied == b->applied && a->skip == b->skip && a->halt == b->halt &&
           a->tokens == b->tokens && a->bad_tensor == b->bad_tensor &&
           same_bits(exact_value(&a->norm_sum), exact_value(&b->norm_sum)) &&
           same_bits(exact_value(&a->loss_sum), exact_value(&b->loss_sum)) &&
           same_bits(a->grad_norm, b->grad_norm) && same_bits(a->grad_factor, b->grad_factor);
}

// Counts are equal; sums of losses differ by the rounding of each token's.
static bool same_loads(const sample_memory *want, const sample_memory *got)
{
    const int64_t experts = want->call.attrs.experts, rows = want->call.in[0].dims[0];
    for (int64_t i = 0; i < SAMPLE_LOADS; i++) {
        const bool rounds = want->call.code == OP_STEP_ROUTES && i >= experts + LOAD_AUX &&
                            i < experts + LOAD_WORDS;
        const double slack = rounds ? 1e-2 * (double)rows * (double)(1 << LOAD_UNIT_BITS) : 0.0;
        if (fabs((double)(want->loads[i] - got->loads[i])) > slack) return false;
    }
    return true;
}

// If the gradients of a norm cancel (one column), their error is that of the terms: about r dy w.
static double size_of_terms(const sample_memory *m)
{
    const kern_call *c = &m->call;
    if (c->code != OP_RMSNORM_DX && c->code != OP_LAYERNORM_DX) return 0.0;
    const kern_tensor *factors[] = {&c->in[0], c->code == OP_RMSNORM_DX ? &c->in[2] : &c->in[3]};
    double size = 1.0;
    for (int64_t i = 0; i < COUNT_OF(factors); i++) {
        double largest = 0.0;
        for (int64_t e = 0; e < kt_elements(factors[i]); e++) {
            largest = fmax(largest, fabs(kt_get(factors[i], e)));
        }
        size *= largest;
    }
    return size;
}

// `limit` < 0: by type; 0: to the bit.
static void compare(trial *t, const sample_memory *want, const sample_memory *got, double limit,
                    const char *run, const char *what)
{
    const op_code code = want->call.code;
    for (int o = 0; o < OP_MAX_OUT; o++) {
        const kern_tensor *w = &want->call.out[o], *g = &got->call.out[o];
        if (w->data == NULL) continue;
        t->compared++;
        if (is_step(want, w)) {
            if (!same_step(&want->step.device, &got->step.device)) complain(t, run, what);
            if (!same_loads(want, got)) complain(t, run, "the loads of experts differ");
            continue;
        }
        const bool rounds_inside =
            code == OP_HEAD_LOSS || code == OP_HEAD_STATS || code == OP_ATTENTION_BWD;
        double allowed = limit;
        if (limit < 0.0) {
            allowed = tolerance_of(w->type);
            if (rounds_inside) allowed = fmax(allowed, tolerance_of(narrowest(&want->call)));
            if (!kt_is_floating(w) || code == OP_CAST) allowed = 0.0;
        }
        const double error = difference(w, g, size_of_terms(want));
        if (error <= allowed) continue;
        char text[160];
        snprintf(text, sizeof(text), "%s: output %d (%s) is off by %g of its largest, at most %g",
                 what, o, dtype_name(w->type), error, allowed);
        complain(t, run, text);
    }
}

// Rows behind the last expert's belong to no one, so they keep what was there: `before`, if the
// output is on it. Takes them from `want`.
static void take_unwritten_rows(const sample_memory *want, sample_memory *got)
{
    const kern_call *c = &want->call;
    if (c->code != OP_GROUPED_MATMUL_DX || c->in[2].data == NULL) return;
    const int32_t *offsets = c->in[2].data;
    const kern_tensor *from = &c->out[0], *to = &got->call.out[0];
    const int64_t bytes = from->dims[1] * dtype_bytes(from->type);
    for (int64_t n = offsets[c->attrs.experts]; n < from->dims[0]; n++) {
        memcpy((char *)to->data + n * to->strides[0] * dtype_bytes(to->type),
               (const char *)from->data + n * from->strides[0] * dtype_bytes(from->type),
               (size_t)bytes);
    }
}

// ---- against ref --------------------------------------------------------------------------------

// Runs the call. False: the backend does not support it (fp64).
static bool execute(trial *t, sample_memory *m, const backend_run *run, bool accumulate,
                    bool strict)
{
    const status st = sample_run(m, run, accumulate, strict);
    if (st == ST_OK) return true;
    if (st != ST_UNSUPPORTED) complain(t, run->name, error_last()->text);
    return false;
}

// Short runs with sanitizers test each variant of an operation on some of the backends.
static bool is_left_out(const trial *t, int r)
{
    const int variants = op_sample_count(t->s.node.code);
    return part_skips(CASES_PART, r, t->run_count, t->s.variant, variants);
}

// The fastest way to run a backend: the one that most calls are tried on.
static bool is_fastest(const trial *t, int r)
{
    return r == t->run_count - 1 || t->runs[r].backend->on_gpu;
}

static void against_ref(trial *t, bool accumulate)
{
    const backend_run *ref = &t->runs[0];
    sample_memory *want = sample_memory_create(t->a, &t->s, 0);
    sample_fill(want, 1, accumulate);
    if (!execute(t, want, ref, accumulate, false)) return;
    if (!sample_rest_is_untouched(want)) complain(t, ref->name, "writes outside its outputs");
    for (int r = 1; r < t->run_count; r++) {
        if (t->runs[r].backend->run[t->s.node.code] == NULL) continue;
        if (is_left_out(t, r)) continue;
        if (!is_fastest(t, r) && accumulate && sample_largest(&t->s) > 2500) continue;
        // Calls that are not strict run only on the fastest level of a backend. On a GPU strict
        // ones differ where rows are summed.
        const bool gpu = t->runs[r].backend->on_gpu;
        const int last = gpu && (!accumulate || t->s.kind->accumulates == 0) ? 0 : 1;
        for (int strict = is_fastest(t, r) ? 0 : 1; strict <= last; strict++) {
            sample_memory *got = sample_memory_create(t->a, &t->s, 0);
            sample_fill(got, 1, accumulate);
            if (!execute(t, got, &t->runs[r], accumulate, strict != 0)) continue;
            if (!sample_rest_is_untouched(got)) {
                complain(t, t->runs[r].name, "writes outside its outputs");
            }
            compare(t, want, got, -1.0, t->runs[r].name,
                    accumulate ? "against ref, accumulating" : "against ref");
        }
    }
}

// ---- layouts ------------------------------------------------------------------------------------

static void layouts(trial *t, const backend_run *run, const backend_run *single)
{
    const bool strict = !run->backend->on_gpu; // a GPU has other kernels for sums in fast order
    sample_memory *plain = sample_memory_create(t->a, &t->s, 0);
    sample_fill(plain, 2, false);
    if (!execute(t, plain, run, false, strict)) return;

    sample_memory *apart = sample_memory_create(t->a, &t->s, PAD);
    sample_fill(apart, 2, false);
    (void)execute(t, apart, run, false, strict);
    compare(t, plain, apart, 0.0, run->name, "rows apart");
    if (!sample_rest_is_untouched(apart)) complain(t, run->name, "writes between rows");

    if (!run->backend->on_gpu) { // a GPU has no threads of the host
        sample_memory *alone = sample_memory_create(t->a, &t->s, 0);
        sample_fill(alone, 2, false);
        (void)execute(t, alone, single, false, strict);
        compare(t, plain, alone, 0.0, run->name, "one thread against two");
    }

    for (int o = 0; o < OP_MAX_OUT; o++) {
        if (t->s.kind->inplace[o] < 0) continue;
        const int i = (unsigned char)t->s.kind->inplace[o];
        if (plain->call.out[o].data == NULL || plain->call.in[i].data == NULL) continue;
        const kern_tensor *in = &plain->call.in[i], *out = &plain->call.out[o];
        if (in->type != out->type || kt_elements(in) != kt_elements(out)) continue;
        sample_memory *over = sample_memory_create(t->a, &t->s, 0);
        sample_fill(over, 2, false);
        over->call.out[o].data = over->call.in[i].data;
        memcpy(over->call.out[o].strides, over->call.in[i].strides, sizeof(in->strides));
        (void)execute(t, over, run, false, strict);
        take_unwritten_rows(plain, over);
        compare(t, plain, over, 0.0, run->name, "output on its input");
    }
}

// ---- packed weights -----------------------------------------------------------------------------

static void packed_weights(trial *t, const backend_run *run)
{
    for (int strict = 0; strict < 2; strict++) {
        sample_memory *plain = sample_memory_create(t->a, &t->s, 0);
        sample_fill(plain, 2, false);
        plain->call.strict = strict != 0;
        const int64_t bytes = kern_packed_bytes(&run->context, &plain->call);
        if (bytes == 0 || !execute(t, plain, run, false, strict != 0)) continue;
        void *packed = kt_make(t->a, DTYPE_U8, 1, &bytes).data;
        memset(packed, 0xff, (size_t)bytes); // NaN
        for (int call = 0; call < 2; call++) {
            sample_memory *kept = sample_memory_create(t->a, &t->s, 0);
            sample_fill(kept, 2, false);
            kept->call.packed = packed;
            kept->call.fills = call == 0;
            (void)execute(t, kept, run, false, strict != 0);
            compare(t, plain, kept, 0.0, run->name,
                    call == 0 ? "weights packed" : "packed weights kept");
            t->kept++;
        }
    }
}

// ---- cuts ---------------------------------------------------------------------------------------

static bool needs_whole_sequences(op_code code)
{
    return code == OP_ATTENTION || code == OP_ATTENTION_BWD || code == OP_CACHE_APPEND ||
           code == OP_DROPOUT || code == OP_LATENT_CACHED || code == OP_ROUTE_BWD ||
           code == OP_STEP_ROUTES || code == OP_OBJECTIVE;
}

// Returns the rows of the operand that belong to one unit (a sequence, or a row); 0: it is not cut.
static int64_t rows_per_unit(const sample *s, tensor_id id)
{
    if (id == TENSOR_NONE) return 0;
    const op_tensor *tensor = &s->program->tensors[id];
    const bool by_sequence = needs_whole_sequences(s->node.code);
    switch (tensor->role == ROLE_STEP ? EXTENT_ONE : tensor->dims[0].symbol) {
    case EXTENT_TOKENS:
        return by_sequence ? sample_seq(s) * tensor->dims[0].scale : 1;
    case EXTENT_SEQS:
        return 1;
    case EXTENT_CACHE:
        return by_sequence ? sample_cache_seq(s) : 0;
    case EXTENT_ONE:
    case EXTENT_TOKENS_CUT: // of operations without kernels
    case EXTENT_SYMBOL_COUNT:
        break;
    }
    return 0;
}

static void cut_operand(kern_tensor *k, int64_t per_unit, int64_t begin, int64_t end)
{
    if (k->data == NULL || per_unit == 0) return;
    const int64_t stride = k->ndim == 2 ? k->strides[0] : 1;
    k->data = (char *)k->data + begin * per_unit * stride * dtype_bytes(k->type);
    k->dims[0] = (end - begin) * per_unit;
}

// Returns the call restricted to units [begin, end).
static kern_call cut_call(const sample *s, const kern_call *whole, int64_t begin, int64_t end)
{
    kern_call c = *whole;
    for (int i = 0; i < OP_MAX_IN; i++) {
        // GATHER's rows point into all of x.
        if (c.code == OP_GATHER && i == 0) continue;
        cut_operand(&c.in[i], rows_per_unit(s, s->node.in[i]), begin, end);
    }
    for (int o = 0; o < OP_MAX_OUT; o++) {
        cut_operand(&c.out[o], rows_per_unit(s, s->node.out[o]), begin, end);
    }
    if (needs_whole_sequences(c.code) || c.code == OP_SAMPLE) {
        c.first_sequence += begin;
    } else {
        c.seq = end - begin;
    }
    return c;
}

static int64_t unit_count(const sample *s)
{
    const op_code code = s->node.code;
    const bool by_sequence = needs_whole_sequences(code) || code == OP_SAMPLE || code == OP_GATHER;
    for (int i = 0; i < OP_MAX_IN; i++) {
        if (rows_per_unit(s, s->node.in[i]) == 0) continue;
        return s->bound.value[by_sequence ? EXTENT_SEQS : EXTENT_TOKENS];
    }
    return 0;
}

// Accumulators narrower than fp32 are rounded at the cut (kernels/ref/ref.h).
static bool sums_survive_cuts(const sample_memory *m)
{
    for (int o = 0; o < OP_MAX_OUT; o++) {
        const kern_tensor *out = &m->call.out[o];
        if (out->data == NULL || (m->of->kind->accumulates >> o & 1u) == 0) continue;
        if (out->type != DTYPE_F32 && out->type != DTYPE_F64) return false;
    }
    return true;
}

// Returns whether an operand has all rows once for each rank, one after the other, so that rows
// cannot be cut out of it.
static bool is_stacked(const sample *s)
{
    if (s->node.attrs.ranks > 0 || s->node.attrs.limit > 0) return true;
    for (int i = 0; i < OP_MAX_IN + OP_MAX_OUT; i++) {
        const tensor_id t = i < OP_MAX_IN ? s->node.in[i] : s->node.out[i - OP_MAX_IN];
        if (t == TENSOR_NONE) continue;
        const extent e = s->program->tensors[t].dims[0];
        if (e.symbol == EXTENT_TOKENS && e.scale > 1) return true;
    }
    return false;
}

// Two calls count twice, in the columns of one.
static void count_once(sample_memory *m)
{
    const kern_tensor *counts = &m->call.out[0];
    for (int64_t e = 0; e < kt_elements(counts); e++)
        kt_put(counts, e, fmin(kt_get(counts, e), 1.0));
}

static void cuts(trial *t, const backend_run *run)
{
    const int64_t units = unit_count(&t->s);
    if (units < 2 || is_stacked(&t->s)) return;
    sample_memory *whole = sample_memory_create(t->a, &t->s, 0);
    sample_fill(whole, 3, false);
    if (!sums_survive_cuts(whole)) return;
    if (!execute(t, whole, run, false, true)) return;
    const int64_t places[2] = {1, units - units / 3};
    for (int k = 0; k < 2; k++) {
        if (places[k] >= units || (k > 0 && places[k] == places[0])) continue;
        if (k == 0 && sample_is_big(&t->s)) continue;
        sample_memory *pieces = sample_memory_create(t->a, &t->s, 0);
        sample_fill(pieces, 3, false);
        kern_call first = cut_call(&t->s, &pieces->call, 0, places[k]);
        kern_call second = cut_call(&t->s, &pieces->call, places[k], units);
        first.strict = second.strict = true;
        second.accumulate = true;
        must(sample_run_call(pieces, run, &first));
        must(sample_run_call(pieces, run, &second));
        const op_code code = t->s.node.code;
        if (code == OP_FP8_COUNTS || code == OP_FP8_COUNTS_ROWS) count_once(pieces);
        compare(t, whole, pieces, 0.0, run->name, "two cuts");
    }
}

// ---- all operations -----------------------------------------------------------------------------

static void try_operation(trial *t, op_code code)
{
    for (int variant = 0; variant < op_sample_count(code); variant++) {
        assert_int_equal(arena_create("backend test", 0, &t->a), ST_OK);
        sample_open(t->a, code, variant, &t->s);
        against_ref(t, false);
        if (t->s.kind->accumulates != 0) against_ref(t, true);
        for (int r = 0; r < t->run_count; r++) {
            if (t->runs[r].backend->run[code] == NULL) continue;
            if (is_left_out(t, r)) continue;
            if (r < t->run_count - 1 && sample_largest(&t->s) > 2500) continue;
            layouts(t, &t->runs[r], &t->single[r]);
            packed_weights(t, &t->runs[r]);
            cuts(t, &t->runs[r]);
        }
        arena_destroy(t->a);
    }
}

static void test_all_operations(void **state)
{
    (void)state;
    backend_run runs[BACKEND_MAX_RUNS], single[BACKEND_MAX_RUNS];
    trial t = {.runs = runs, .single = single, .run_count = backend_runs_init(runs, 2)};
    (void)backend_runs_init(single, 1);
    for (int code = 0; code < OP_CODE_COUNT; code++) {
        if (!op_has_kernel((op_code)code)) continue;
        const int64_t failures = t.failures;
        try_operation(&t, (op_code)code);
        if (t.failures == failures) continue;
        print_error("%s: %lld failures\n", op_kind_of((op_code)code)->name,
                    (long long)(t.failures - failures));
    }
    print_message("%lld outputs compared, %lld calls with packed weights\n", (long long)t.compared,
                  (long long)t.kept);
    assert_true(t.kept > 0);
    backend_runs_deinit(runs, t.run_count);
    backend_runs_deinit(single, t.run_count);
    assert_int_equal(t.failures, 0);
}

// A missing kernel is an error status, found before anything runs.
static void test_missing_kernel(void **state)
{
    (void)state;
    const kern_backend empty = {.name = "empty"};
    const kern_context none = {.backend = &empty}, ref = {.backend = &kern_backend_ref};
    float cells[4] = {1, 2, 3, 4}, sums[4];
    kern_call call = {.code = OP_ADD};
    call.in[0] = (kern_tensor){.data = cells, .ndim = 1, .dims = {4}, .strides = {1}};
    call.in[1] = call.in[0];
    call.out[0] = call.in[0];
    call.out[0].data = sums;
    assert_int_equal(kern_run(&none, &call), ST_UNSUPPORTED);
    assert_int_equal(kern_run(&ref, &call), ST_OK);
    assert_true(sums[3] == 8.0f);
    assert_null(kern_backend_find("abacus"));
}

// `ref` has every operation; the test prints which ones other backends lack.
static void test_tables_are_full(void **state)
{
    (void)state;
    for (int b = 0; b < KERN_BACKEND_COUNT; b++) {
        const kern_backend *backend = kern_backend_table[b];
        for (int code = 0; code < OP_CODE_COUNT; code++) {
            if (!op_has_kernel((op_code)code) || backend->run[code] != NULL) continue;
            print_message("%s has no kernel for %s\n", backend->name,
                          op_kind_of((op_code)code)->name);
            assert_false(backend_is_ref(backend));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_operations),
        cmocka_unit_test(test_missing_kernel),
        cmocka_unit_test(test_tables_are_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
