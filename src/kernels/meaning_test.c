// Properties that a comparison of backends cannot show: random, masked and counted operations have
// their defined meaning. Every check runs on every backend.
#include "fixtures/kernels/sample_fixture.h"
#include "op/dropout.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

// The tensors that the optimizer tests update.
enum { ROWS = 24, COLUMNS = 20, ELEMENTS = ROWS * COLUMNS };
enum { BYTES_NARROW = 2 * ELEMENTS, BYTES_WIDE = 4 * ELEMENTS };

typedef struct bench {
    arena *a;
    backend_run runs[BACKEND_MAX_RUNS];
    int run_count;
} bench;

static int setup(void **state)
{
    static const bench zero;
    bench *b = malloc(sizeof(*b));
    if (b == NULL) return -1;
    *b = zero;
    *state = b;
    if (arena_create("meaning test", 0, &b->a) != ST_OK) return -1;
    b->run_count = backend_runs_init(b->runs, 2);
    return 0;
}

static int teardown(void **state)
{
    bench *b = *state;
    backend_runs_deinit(b->runs, b->run_count);
    arena_destroy(b->a);
    free(b);
    return 0;
}

static kern_tensor matrix(bench *b, dtype type, int64_t rows, int64_t columns)
{
    const int64_t dims[2] = {rows, columns};
    return kt_make(b->a, type, 2, dims);
}

static kern_tensor vector(bench *b, dtype type, int64_t count)
{
    return kt_make(b->a, type, 1, &count);
}

static void fill(const kern_tensor *t, double value)
{
    for (int64_t e = 0; e < kt_elements(t); e++) kt_put(t, e, value);
}

static void fill_random(const kern_tensor *t, int stream)
{
    for (int64_t e = 0; e < kt_elements(t); e++) kt_put(t, e, test_uniform(21, stream, e));
}

static bool has(const backend_run *run, op_code code)
{
    return run->backend->run[code] != NULL;
}

static void execute(bench *b, const backend_run *run, kern_call *call)
{
    sample_memory m = {.a = b->a};
    must(sample_run_call(&m, run, call));
}

static step_block step_of(uint64_t seed, int64_t number)
{
    step_block step;
    memset(&step, 0, sizeof(step));
    step.host.step = number;
    step.host.seed = seed;
    step.host.lr = 0.01;
    step_device_init(&step.device, 1.0);
    step.device.applied = number;
    step.device.grad_factor = 1.0;
    return step;
}

// ---- dropout ------------------------------------------------------------------------------------

static void test_dropout_share(void **state)
{
    bench *b = *state;
    for (int r = 0; r < b->run_count; r++) {
        if (!has(&b->runs[r], OP_DROPOUT)) continue;
        step_block step = step_of(7, 1);
        const kern_tensor x = matrix(b, DTYPE_F32, 64, 501), y = matrix(b, DTYPE_F32, 64, 501);
        fill(&x, 1.0);
        kern_call call = {.code = OP_DROPOUT, .in = {x}, .out = {y}, .step = &step, .seq = 16};
        call.attrs.dropout = 0.25f;
        execute(b, &b->runs[r], &call);
        int64_t kept = 0;
        for (int64_t e = 0; e < kt_elements(&y); e++) {
            const double value = kt_get(&y, e);
            assert_true(value == 0.0 || value == (double)(1.0f / 0.75f));
            if (value != 0.0) kept++;
        }
        // 32,064 draws: a deviation is 0.0024.
        assert_float_equal((float)kept / (float)kt_elements(&y), 0.75f, 0.01f);
    }
}

// Whether an element is dropped is a function of (seed, step, site, sequence, position, feature).
static void test_dropout_place(void **state)
{
    bench *b = *state;
    for (int r = 0; r < b->run_count; r++) {
        if (!has(&b->runs[r], OP_DROPOUT)) continue;
        step_block step = step_of(UINT64_C(0xfeedface12345678), 4);
        const kern_tensor x = matrix(b, DTYPE_F32, 6, 37), y = matrix(b, DTYPE_F32, 6, 37);
        fill(&x, 1.0);
        kern_call call = {.code = OP_DROPOUT, .in = {x}, .out = {y}, .step = &step, .seq = 3};
        call.attrs.dropout = 0.5f;
        call.attrs.site = 11;
        call.first_sequence = 100;
        execute(b, &b->runs[r], &call);
        for (int64_t n = 0; n < 6; n++) {
            const dropout_stream s = dropout_stream_of(&step.host, 11, 0, 100 + n / 3);
            for (int64_t j = 0; j < 37; j++) {
                const float want = dropout_factor_at(&s, n % 3, j, 0.5f);
                assert_true(kt_get(&y, n * 37 + j) == (double)want);
            }
        }
        // The second sequence alone.
        kern_tensor again = matrix(b, DTYPE_F32, 3, 37);
        call.in[0].dims[0] = 3;
        call.out[0] = again;
        call.first_sequence = 101;
        execute(b, &b->runs[r], &call);
        assert_memory_equal(again.data, (const float *)y.data + 111, 111 * sizeof(float));
    }
}

// Columns [begin, begin + count) of a matrix, as a view.
static kern_tensor columns_of(const kern_tensor *t, int64_t begin, int64_t count)
{
    kern_tensor view = *t;
    view.data = (char *)t->data + begin * dtype_bytes(t->type);
    view.dims[1] = count;
    return view;
}

// Heads cut over ranks drop the same elements as together: first_head gives their index.
static void test_dropout_heads(void **state)
{
    bench *b = *state;
    enum { TOKENS = 12, HEADS = 4, WIDTH = 8, WIDE = HEADS * WIDTH, HALF = WIDE / 2 };
    for (int r = 0; r < b->run_count; r++) {
        if (!has(&b->runs[r], OP_ATTENTION) || !has(&b->runs[r], OP_ATTENTION_BWD)) continue;
        step_block step = step_of(9, 2);
        kern_tensor in[6], out[3], lse = matrix(b, DTYPE_F32, TOKENS, HEADS);
        for (int i = 0; i < 6; i++) in[i] = matrix(b, DTYPE_F32, TOKENS, WIDE);
        for (int i = 0; i < 3; i++) out[i] = matrix(b, DTYPE_F32, TOKENS, WIDE);
        for (int i = 0; i < 4; i++) fill_random(&in[i], i);
        kern_call whole = {.code = OP_ATTENTION, .step = &step, .seq = TOKENS / 2, .strict = true};
        whole.attrs = (op_attrs){.heads = HEADS, .kv_heads = HEADS, .head_dim = WIDTH};
        whole.attrs.scale = 0.35f;
        whole.attrs.dropout = 0.4f;
        whole.in[0] = in[1];
        whole.in[1] = in[2];
        whole.in[2] = in[3];
        whole.out[0] = in[4];
        whole.out[1] = lse;
        execute(b, &b->runs[r], &whole);
        kern_call back = whole;
        back.code = OP_ATTENTION_BWD;
        for (int i = 0; i < 5; i++) back.in[i] = in[i];
        back.in[5] = lse;
        for (int i = 0; i < 3; i++) back.out[i] = out[i];
        execute(b, &b->runs[r], &back);

        kern_tensor half_y = matrix(b, DTYPE_F32, TOKENS, HALF);
        kern_tensor half_lse = matrix(b, DTYPE_F32, TOKENS, HEADS / 2);
        kern_call half = back;
        half.attrs.heads = half.attrs.kv_heads = HEADS / 2;
        half.first_head = HEADS / 2;
        for (int i = 0; i < 5; i++) half.in[i] = columns_of(&in[i], HALF, HALF);
        half.in[5] = columns_of(&lse, HEADS / 2, HEADS / 2);
        for (int i = 0; i < 3; i++) half.out[i] = matrix(b, DTYPE_F32, TOKENS, HALF);
        execute(b, &b->runs[r], &half);
        kern_call forward = half;
        forward.code = OP_ATTENTION;
        memset(forward.in, 0, sizeof(forward.in));
        memset(forward.out, 0, sizeof(forward.out));
        for (int i = 0; i < 3; i++) forward.in[i] = half.in[i + 1];
        forward.out[0] = half_y;
        forward.out[1] = half_lse;
        execute(b, &b->runs[r], &forward);
        for (int64_t e = 0; e < kt_elements(&half_y); e++) {
            assert_true(kt_get(&half_y, e) == kt_get(&half.in[4], e));
            for (int i = 0; i < 3; i++) {
                const kern_tensor want = columns_of(&out[i], HALF, HALF);
                assert_true(kt_get(&half.out[i], e) == kt_get(&want, e));
            }
        }
    }
}

// ---- choosing a token ---------------------------------------------------------------------------

typedef struct chooser {
    double temperature, top_k, top_p, min_p;
} chooser;

// Returns ids of `count` sequences that all have the logits 0, 1, 2, 3 ... / 2 (the last is best).
static kern_tensor choose(bench *b, const backend_run *run, const chooser *how, int64_t count,
                          int64_t vocab)
{
    step_block step = step_of(1, 1);
    const kern_tensor logits = matrix(b, DTYPE_F32, count, vocab);
    const kern_tensor params = matrix(b, DTYPE_F32, count, 8), draws = vector(b, DTYPE_I64, count);
    const kern_tensor ids = vector(b, DTYPE_I32, count);
    for (int64_t e = 0; e < count * vocab; e++) kt_put(&logits, e, 0.5 * (double)(e % vocab));
    fill(&params, 0.0);
    for (int64_t i = 0; i < count; i++) {
        kt_put(&params, 8 * i, how->temperature);
        kt_put(&params, 8 * i + 1, how->top_k);
        kt_put(&params, 8 * i + 2, how->top_p);
        kt_put(&params, 8 * i + 3, how->min_p);
        kt_put(&draws, i, (double)i);
    }
    kern_call call = {.code = OP_SAMPLE, .in = {logits, params, draws}, .out = {ids}};
    call.step = &step;
    call.seq = 1;
    execute(b, run, &call);
    return ids;
}

static void test_choice(void **state)
{
    bench *b = *state;
    enum { VOCAB = 5, COUNT = 4000 };
    const chooser greedy = {.temperature = 0.0}, one = {1.0, 1.0, 0.0, 0.0};
    const chooser narrow = {1.0, 0.0, 1e-6, 0.0}, equal = {1.0, 0.0, 0.0, 1.0};
    const chooser two = {1.0, 2.0, 0.0, 0.0}, free_choice = {2.0, 0.0, 1.0, 0.0};
    for (int r = 0; r < b->run_count; r++) {
        if (!has(&b->runs[r], OP_SAMPLE)) continue;
        const chooser *sure[] = {&greedy, &one, &narrow, &equal};
        for (int64_t k = 0; k < COUNT_OF(sure); k++) {
            const kern_tensor ids = choose(b, &b->runs[r], sure[k], 8, VOCAB);
            for (int64_t i = 0; i < 8; i++) assert_int_equal((int)kt_get(&ids, i), VOCAB - 1);
        }
        kern_tensor ids = choose(b, &b->runs[r], &two, 64, VOCAB);
        for (int64_t i = 0; i < 64; i++) assert_true(kt_get(&ids, i) >= VOCAB - 2);

        ids = choose(b, &b->runs[r], &free_choice, COUNT, VOCAB);
        double count[VOCAB] = {0}, sum = 0.0;
        for (int64_t i = 0; i < COUNT; i++) count[(int)kt_get(&ids, i)] += 1.0;
        for (int v = 0; v < VOCAB; v++) sum += exp(0.25 * v); // logits / temperature
        for (int v = 0; v < VOCAB; v++) {                     // a deviation is at most 0.008
            assert_true(fabs(count[v] / COUNT - exp(0.25 * v) / sum) < 0.03);
        }
    }
}

static void test_greedy_ties(void **state)
{
    bench *b = *state;
    for (int r = 0; r < b->run_count; r++) {
        if (!has(&b->runs[r], OP_SAMPLE)) continue;
        const kern_tensor logits = matrix(b, DTYPE_F32, 1, 300), ids = vector(b, DTYPE_I32, 1);
        const kern_tensor params = matrix(b, DTYPE_F32, 1, 8), draws = vector(b, DTYPE_I64, 1);
        fill(&logits, -1.0);
        kt_put(&logits, 17, 2.5);
        kt_put(&logits, 255, 2.5);
        fill(&params, 0.0);
        fill(&draws, 0.0);
        kern_call call = {.code = OP_SAMPLE, .in = {logits, params, draws}, .out = {ids}, .seq = 1};
        execute(b, &b->runs[r], &call);
        assert_int_equal((int)kt_get(&ids, 0), 17);
    }
}

// ---- optimizers ---------------------------------------------------------------------------------

typedef struct update {
    kern_tensor grad, master, m, v, weight;
} update;

static update update_make(bench *b, dtype master, dtype moments)
{
    update u = {.grad = matrix(b, DTYPE_F32, ROWS, COLUMNS),
                .master = matrix(b, master, ROWS, COLUMNS)};
    u.m = matrix(b, moments, ROWS, COLUMNS);
    u.v = matrix(b, moments, ROWS, COLUMNS);
    u.weight = matrix(b, DTYPE_BF16, ROWS, COLUMNS);
    fill_random(&u.grad, 1);
    fill_random(&u.master, 2);
    fill(&u.m, 0.0);
    fill(&u.v, 0.0);
    fill(&u.weight, 0.25);
    return u;
}

static kern_call update_call(op_code code, const update *u, step_block *step)
{
    kern_call call = {.code = code, .step = step};
    call.attrs = (op_attrs){.eps = 1e-8f, .beta1 = 0.9f, .beta2 = 0.95f, .momentum = 0.95f};
    call.attrs.lr_scale = 1.0f;
    call.in[0] = u->grad;
    call.in[1] = u->master;
    call.in[2] = u->m;
    call.out[0] = u->master;
    call.out[1] = u->m;
    if (code == OP_ADAMW) {
        call.in[3] = u->v;
        call.out[2] = u->v;
        call.out[3] = u->weight;
    } else {
        call.out[2] = u->weight;
    }
    return call;
}

// A masked update changes no bit of any state.
static void test_masks(void **state)
{
    bench *b = *state;
    const op_code codes[] = {OP_ADAMW, OP_MUON, OP_LION};
    for (int trial = 0; trial < b->run_count * 12; trial++) {
        const backend_run *run = &b->runs[trial / 12];
        const op_code code = codes[trial / 4 % 3];
        if (!has(run, code)) continue;
        const update before = update_make(b, DTYPE_F32, DTYPE_F32);
        const update after = update_make(b, DTYPE_F32, DTYPE_F32);
        step_block step = step_of(1, 1);
        if (trial % 4 < 2) step.device.skip = 1;
        if (trial % 4 >= 2) step.device.halt = 1;
        step.device.grad_factor = (double)NAN;
        kern_call call = update_call(code, &after, &step);
        execute(b, run, &call);
        assert_memory_equal(before.master.data, after.master.data, BYTES_WIDE);
        assert_memory_equal(before.m.data, after.m.data, BYTES_WIDE);
        assert_memory_equal(before.v.data, after.v.data, BYTES_WIDE);
        assert_memory_equal(before.weight.data, after.weight.data, BYTES_NARROW);
    }
}

// Algorithm 2 of Chen et al. 2023 in double, written independently: ten steps with changing
// gradients.
static void test_lion(void **state)
{
    bench *b = *state;
    enum { STEPS = 10 };
    const double lr = 0.01, decay = 0.1, beta1 = 0.9, beta2 = 0.99;
    for (int r = 0; r < b->run_count; r++) {
        if (!has(&b->runs[r], OP_LION)) continue;
        const update u = update_make(b, DTYPE_F32, DTYPE_F32);
        double p[ELEMENTS], m[ELEMENTS];
        for (int64_t e = 0; e < ELEMENTS; e++) p[e] = kt_get(&u.master, e);
        memset(m, 0, sizeof(m));
        for (int s = 1; s <= STEPS; s++) {
            step_block step = step_of(3, s);
            step.host.lr = lr;
            step.device.grad_factor = 0.5;
            fill_random(&u.grad, 100 + s);
            kern_call call = update_call(OP_LION, &u, &step);
            call.attrs.beta2 = (float)beta2;
            call.attrs.weight_decay = (float)decay;
            call.attrs.decay = true;
            execute(b, &b->runs[r], &call);
            for (int64_t e = 0; e < ELEMENTS; e++) {
                const double g = 0.5 * kt_get(&u.grad, e);
                const double c = beta1 * m[e] + (1.0 - beta1) * g;
                p[e] = p[e] - lr * ((c > 0.0) - (c < 0.0)) - lr * decay * p[e];
                m[e] = beta2 * m[e] + (1.0 - beta2) * g;
            }
        }
        for (int64_t e = 0; e < ELEMENTS; e++) {
            assert_true(fabs(kt_get(&u.master, e) - p[e]) < 1e-6);
            assert_true(fabs(kt_get(&u.m, e) - m[e]) < 1e-6);
            const double copy = (double)f32_from_bf16(bf16_from_f32((float)kt_get(&u.master, e)));
            assert_true(kt_get(&u.weight, e) == copy);
        }
    }
}

// Parts are orthogonalized separately: a fused weight is updated like its parts alone.
static void test_muon_parts(void **state)
{
    bench *b = *state;
    for (int r = 0; r < b->run_count; r++) {
        if (!has(&b->runs[r], OP_MUON)) continue;
        const update fused = update_make(b, DTYPE_F32, DTYPE_F32);
        const update apart = update_make(b, DTYPE_F32, DTYPE_F32);
        step_block step = step_of(1, 1);
        kern_call call = update_call(OP_MUON, &fused, &step);
        call.piece.part_count = 2;
        call.piece.part_rows[0] = 8;
        call.piece.part_rows[1] = 16;
        execute(b, &b->runs[r], &call);
        for (int part = 0; part < 2; part++) {
            kern_call alone = update_call(OP_MUON, &apart, &step);
            kern_tensor *operands[] = {&alone.in[0],  &alone.in[1],  &alone.in[2],
                                       &alone.out[0], &alone.out[1], &alone.out[2]};
            for (int64_t i = 0; i < COUNT_OF(operands); i++) {
                kern_tensor *t = operands[i];
                t->data =
                    (char *)t->data + (part == 0 ? 0 : INT64_C(8) * COLUMNS * dtype_bytes(t->type));
                t->dims[0] = part == 0 ? 8 : 16;
            }
            execute(b, &b->runs[r], &alone);
        }
        assert_memory_equal(fused.master.data, apart.master.data, BYTES_WIDE);
        assert_memory_equal(fused.m.data, apart.m.data, BYTES_WIDE);
    }
}

// Rounding to nearest would lose an update of a hundredth of the last bit every time; stochastic
// rounding keeps it on average.
static void test_stochastic_rounding(void **state)
{
    bench *b = *state;
    enum { STEPS = 100 };
    for (int r = 0; r < b->run_count; r++) {
        if (!has(&b->runs[r], OP_ADAMW)) continue;
        double moved[2] = {0.0, 0.0};
        for (int stochastic = 0; stochastic < 2; stochastic++) {
            const update u = update_make(b, DTYPE_BF16, DTYPE_F32);
            fill(&u.grad, 1.0);
            fill(&u.master, 1.25);
            for (int s = 1; s <= STEPS; s++) {
                step_block step = step_of(3, s);
                step.host.lr = 0x1p-7 / 100.0;
                kern_call call = update_call(OP_ADAMW, &u, &step);
                call.attrs.stochastic = stochastic != 0;
                execute(b, &b->runs[r], &call);
            }
            for (int64_t e = 0; e < ELEMENTS; e++) moved[stochastic] += 1.25 - kt_get(&u.master, e);
            moved[stochastic] /= ELEMENTS;
        }
        assert_true(moved[0] == 0.0);
        // 100 updates of a hundredth; the mean over 480 elements deviates by 0.045 of it.
        assert_true(fabs(moved[1] / 0x1p-7 - 1.0) < 0.25);
    }
}

// ---- the step's sums ----------------------------------------------------------------------------

static void test_step_sums(void **state)
{
    bench *b = *state;
    for (int r = 0; r < b->run_count; r++) {
        if (!has(&b->runs[r], OP_GRAD_NORM) || !has(&b->runs[r], OP_STEP_LOSS)) continue;
        step_block step = step_of(1, 1);
        kern_call begin = {.code = OP_STEP_BEGIN, .step = &step};
        step.device.tokens = 99;
        execute(b, &b->runs[r], &begin);
        assert_int_equal(step.device.tokens, 0);
        assert_int_equal(step.device.bad_tensor, -1);

        const kern_tensor losses = vector(b, DTYPE_F32, 5), labels = vector(b, DTYPE_I32, 5);
        for (int64_t i = 0; i < 5; i++) {
            kt_put(&losses, i, i == 2 ? 0.0 : 0.5 + (double)i);
            kt_put(&labels, i, i == 2 ? -1.0 : (double)i);
        }
        kern_call loss = {.code = OP_STEP_LOSS, .in = {losses, labels}, .step = &step, .seq = 5};
        execute(b, &b->runs[r], &loss);
        assert_int_equal(step.device.tokens, 4);
        assert_true(exact_value(&step.device.loss_sum) == 0.5 + 1.5 + 3.5 + 4.5);

        // Squares of 3, over rows longer than a block, and of one huge and one tiny element.
        const kern_tensor grad = matrix(b, DTYPE_F32, 3, 1500), small = vector(b, DTYPE_F32, 2);
        fill(&grad, 3.0);
        kt_put(&small, 0, 0x1p60);
        kt_put(&small, 1, 1.0);
        kern_call norm = {.code = OP_GRAD_NORM, .in = {grad}, .step = &step};
        norm.attrs.tensor_index = 8;
        execute(b, &b->runs[r], &norm);
        assert_true(exact_value(&step.device.norm_sum) == 9.0 * 3.0 * 1500.0);
        assert_int_equal(step.device.bad_tensor, -1);

        const int64_t order[3] = {8, 5, 6};
        for (int64_t i = 0; i < 3; i++) { // the lowest index is named
            kt_put(&grad, 700, i == 1 ? (double)NAN : (double)INFINITY);
            norm.attrs.tensor_index = (int32_t)order[i];
            execute(b, &b->runs[r], &norm);
        }
        assert_int_equal(step.device.bad_tensor, 5);
        assert_true(isnan(exact_value(&step.device.norm_sum)));
    }
}

// An index outside a table is an error status, not a crash.
static void test_rows_outside(void **state)
{
    bench *b = *state;
    for (int r = 0; r < b->run_count; r++) {
        if (!has(&b->runs[r], OP_EMBEDDING)) continue;
        const kern_tensor ids = vector(b, DTYPE_I32, 3), table = matrix(b, DTYPE_F32, 4, 8);
        const kern_tensor x = matrix(b, DTYPE_F32, 3, 8);
        fill(&ids, 3.0);
        fill(&table, 1.0);
        kern_call call = {.code = OP_EMBEDDING, .in = {ids, table}, .out = {x}, .seq = 3};
        execute(b, &b->runs[r], &call);
        const double bad[] = {4.0, -1.0};
        for (int64_t i = 0; i < COUNT_OF(bad); i++) {
            kt_put(&ids, 1, bad[i]);
            assert_int_equal(kern_run(&b->runs[r].context, &call), ST_DATA);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dropout_share),
        cmocka_unit_test(test_dropout_place),
        cmocka_unit_test(test_dropout_heads),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_greedy_ties),
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_lion),
        cmocka_unit_test(test_muon_parts),
        cmocka_unit_test(test_stochastic_rounding),
        cmocka_unit_test(test_step_sums),
        cmocka_unit_test(test_rows_outside),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
