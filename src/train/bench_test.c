// The arithmetic of `bench`: medians, windows of time, parts of a step, FLOPs. No test depends on a
// duration.
#include "train/bench.h"

#include "base/rng.h"
#include "fixtures/train/test_job.h"

static void test_medians(void **state)
{
    (void)state;
    double odd[] = {3.0, 1.0, 2.0}, even[] = {4.0, 1.0, 3.0, 2.0}, one[] = {7.0};
    train_time t = train_time_of(odd, 3);
    assert_true(t.median_s == 2.0 && t.min_s == 1.0 && t.max_s == 3.0 && t.count == 3);
    t = train_time_of(even, 4);
    assert_true(t.median_s == 2.5 && t.min_s == 1.0 && t.max_s == 4.0);
    t = train_time_of(one, 1);
    assert_true(t.median_s == 7.0 && t.min_s == 7.0 && t.max_s == 7.0);
}

static void near_to(double found, double expected)
{
    if (fabs(found - expected) > 1e-9 * fmax(1.0, fabs(expected))) {
        print_error("found %.17g, expected %.17g\n", found, expected);
    }
    assert_true(fabs(found - expected) <= 1e-9 * fmax(1.0, fabs(expected)));
}

// A span counts in each window with its part inside that window, even if it is reported late.
static void test_windows(void **state)
{
    (void)state;
    const int64_t s = 1000000000;
    arena *a = NULL;
    train_windows w;
    assert_ok(arena_create("test", 0, &a));
    train_windows_init(&w, a, 10 * s);
    assert_ok(train_windows_span(&w, OP_ADD, 9 * s, 11 * s));   // begins before the first window
    assert_ok(train_windows_span(&w, OP_CAST, 12 * s, 17 * s)); // runs into the second
    assert_ok(train_windows_close(&w, 15 * s));
    assert_ok(train_windows_span(&w, OP_ADD, 14 * s, 26 * s)); // late, in all three windows
    assert_ok(train_windows_close(&w, 20 * s));
    assert_ok(train_windows_close(&w, 30 * s));
    assert_ok(train_windows_span(&w, OP_ADD, 1 * s, 5 * s)); // before the first window
    train_windows_resume(&w, 40 * s);
    assert_ok(train_windows_span(&w, OP_ADD, 31 * s, 39 * s)); // in no window
    assert_ok(train_windows_span(&w, OP_CAST, 38 * s, 43 * s));
    assert_ok(train_windows_close(&w, 50 * s));
    assert_int_equal(w.count, 4);
    near_to((double)(w.all[3].end_ns - w.all[3].begin_ns) / 1e9, 10.0);
    near_to(w.all[3].in_operation[OP_ADD], 0.0);
    near_to(w.all[3].in_operation[OP_CAST], 3.0);
    near_to(w.all[0].in_operation[OP_ADD], 2.0);
    near_to(w.all[0].in_operation[OP_CAST], 3.0);
    near_to(w.all[1].in_operation[OP_ADD], 5.0);
    near_to(w.all[1].in_operation[OP_CAST], 2.0);
    near_to(w.all[2].in_operation[OP_ADD], 6.0);
    near_to(w.all[2].in_operation[OP_CAST], 0.0);
    assert_int_equal(w.open_count, 0);
    arena_destroy(a);
}

// Windows cut the spans of a stream anywhere and are closed before or after a span is reported. The
// times of the windows' operations add up to the times of the spans.
static void test_windows_lose_nothing(void **state)
{
    (void)state;
    enum { TRIES = 200, SPANS = 40 };
    for (uint64_t seed = 0; seed < TRIES; seed++) {
        arena *a = NULL;
        train_windows w;
        int64_t now = 1000, covered = 0, closed = 1000;
        assert_ok(arena_create("test", 0, &a));
        train_windows_init(&w, a, now);
        for (uint64_t i = 0; i < SPANS; i++) {
            const int64_t gap = (int64_t)(rng_word(seed, 1, i) % 50);
            const int64_t length = (int64_t)(rng_word(seed, 2, i) % 100);
            const int64_t begin = now + gap;
            now = begin + length;
            covered += length;
            // A window ends inside the span, or none does.
            if (rng_word(seed, 3, i) % 3 == 0 && length > 0) {
                closed = begin + (int64_t)(rng_word(seed, 4, i) % (uint64_t)length);
                assert_ok(train_windows_close(&w, closed));
            }
            assert_ok(train_windows_span(&w, (op_code)(i % OP_CODE_COUNT), begin, now));
        }
        assert_ok(train_windows_close(&w, now));
        double sum = 0.0, length = 0.0;
        for (int64_t i = 0; i < w.count; i++) {
            double inside = 0.0;
            for (int k = 0; k < OP_CODE_COUNT; k++) inside += w.all[i].in_operation[k];
            const double window = (double)(w.all[i].end_ns - w.all[i].begin_ns) / 1e9;
            assert_true(inside <= window * (1.0 + 1e-12));
            sum += inside;
            length += window;
        }
        near_to(1e9 * sum, (double)covered);
        near_to(1e9 * length, (double)(now - 1000));
        arena_destroy(a);
    }
}

static void test_bound(void **state)
{
    (void)state;
    const train_part part = {.flops = 200.0, .bytes = 30.0};
    assert_true(train_part_bound_s(&part, 100.0, 10.0) == 3.0);
    assert_true(train_part_bound_s(&part, 50.0, 10.0) == 4.0);
    assert_true(train_part_bound_s(&part, 0.0, 10.0) == 3.0); // an unmeasured rate gives no bound
    const train_part none = {.flops = 0.0, .bytes = 0.0};
    assert_true(train_part_bound_s(&none, 50.0, 10.0) == 0.0);
}

static void test_flops_by_hand(void **state)
{
    (void)state;
    assert_true(train_gemm_flops(OP_MATMUL, 4, 3, 2) == 48.0);
    assert_true(train_gemm_flops(OP_MATMUL_DX, 4, 3, 2) == 48.0);
    assert_true(train_gemm_flops(OP_HEAD_LOSS, 4, 3, 2) == 144.0);
    // One sequence of 1024, 12 heads of 64: q k^T and p v over half of 1024 x 1024 each.
    train_attention a = {.batch = 1, .seq = 1024, .heads = 12, .kv_heads = 4, .head_dim = 64};
    assert_true(train_attention_flops(&a) == 2.0 * 2.0 * 12.0 * 64.0 * 1024.0 * 1024.0 / 2.0);
    a.backward = true; // dv, dp, dq, dk
    assert_true(train_attention_flops(&a) == 4.0 * 2.0 * 12.0 * 64.0 * 1024.0 * 1024.0 / 2.0);
}

static int64_t calls_of(const train_gemm *all, int64_t count, op_code code, int64_t m, int64_t k)
{
    for (int64_t i = 0; i < count; i++) {
        if (all[i].code == code && all[i].m == m && all[i].k == k) return all[i].calls;
    }
    return 0;
}

// The GEMMs of a step have the FLOPs of the convention: 6 x weights in GEMMs x tokens; the rest is
// attention.
static void test_shapes_are_the_convention(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double product_weights, attention_width; // computed independently
    } models[] = {
        {"gpt2-124m",
         12.0 * (768.0 * 2304.0 + 768.0 * 768.0 + 2.0 * 768.0 * 3072.0) + 50257.0 * 768.0,
         12.0 * 768.0},
        {"llama-135m",
         30.0 * (576.0 * (576.0 + 2.0 * 192.0) + 576.0 * 576.0 + 3.0 * 576.0 * 1536.0) +
             49152.0 * 576.0,
         30.0 * 576.0},
    };
    enum { SEQ = 1024, TOKENS = 4096 };
    for (int i = 0; i < COUNT_OF(models); i++) {
        arena *a = NULL;
        decoder_spec spec;
        op_model *m = NULL;
        train_gemm *all = NULL;
        int64_t count = 0;
        const model_options options = {
            .purpose = PURPOSE_TRAIN, .compute = DTYPE_F32, .grad = DTYPE_F32, .seq = SEQ};
        assert_ok(arena_create("test", 0, &a));
        assert_ok(model_spec_preset(host_real(), a, models[i].name, &spec));
        assert_ok(train_gemm_shapes(a, &spec, DTYPE_F32, TOKENS, SEQ, &all, &count));
        assert_ok(model_build(a, &spec, &options, &m));
        double flops = 0.0;
        for (int64_t k = 0; k < count; k++) flops += all[k].flops * (double)all[k].calls;
        near_to(flops, 6.0 * models[i].product_weights * TOKENS);
        train_attention at = {.batch = TOKENS / SEQ,
                              .seq = SEQ,
                              .heads = spec.heads,
                              .kv_heads = spec.kv_heads,
                              .head_dim = spec.head_dim};
        double attention = train_attention_flops(&at);
        at.backward = true;
        attention = (attention + train_attention_flops(&at)) * (double)spec.layers;
        near_to(attention, 6.0 * SEQ * models[i].attention_width * TOKENS);
        near_to(flops + attention, op_model_flops_per_token(m, SEQ) * TOKENS);
        assert_int_equal(calls_of(all, count, OP_HEAD_LOSS, spec.vocab, spec.dim), 1);
        assert_int_equal(calls_of(all, count, OP_MATMUL, spec.dim, spec.ffn_dim), spec.layers);
        arena_destroy(a);
    }
}

// ---- steps --------------------------------------------------------------------------------------

static void parts_check(const train_bench *b)
{
    const train_parts *parts = &b->parts;
    double sum = 0.0, flops = 0.0;
    assert_true(parts->count >= 2 && parts->count <= TRAIN_MAX_PARTS);
    for (int i = 0; i < parts->count; i++) {
        const train_part *p = &parts->rows[i];
        const bool is_last = i + 1 == parts->count;
        assert_true(p->seconds >= -1e-12);
        assert_true(is_last == (strcmp(p->name, "no operation") == 0));
        if (i > 0 && !is_last) assert_true(parts->rows[i - 1].seconds >= p->seconds);
        if (!is_last) assert_true(p->calls > 0 && p->bytes > 0.0);
        sum += p->seconds;
        flops += p->flops;
    }
    near_to(sum, b->step_s);
    assert_true(parts->step_s == b->step_s);
    assert_true(b->step_s_min <= b->step_s && b->step_s <= b->step_s_max);
    // The rows include all counted FLOPs, and small operations that are not counted.
    assert_true(flops >= b->flops && flops < 3.0 * b->flops);
}

static train_part part_find(const train_bench *b, const char *name)
{
    for (int i = 0; i < b->parts.count; i++) {
        if (strcmp(b->parts.rows[i].name, name) == 0) return b->parts.rows[i];
    }
    fail_msg("there is no part %s", name);
    return (train_part){0};
}

static void steps(arena *a, const char *const *keys, int64_t count, int64_t counted,
                  train_bench *out)
{
    run_config *r = NULL;
    config *c = NULL;
    decoder_spec spec;
    assert_ok(arena_new(a, 1, &r));
    assert_ok(run_config_load(host_real(), a, NULL, keys, count, r, &c));
    assert_ok(model_spec_from_config(host_real(), a, r, &spec));
    assert_ok(train_bench_steps(host_real(), a, r, &spec, counted > 2 ? 1 : 0, counted, out));
    parts_check(out);
}

#define KEYS                                                                                       \
    "data.train=random", "train.seq=16", "train.global_batch=4", "model.dim=32", "model.layers=2", \
        "model.heads=2", "model.ffn_dim=64", "model.vocab=257", "model.context=64",                \
        "kernels.threads=2", "eval.every=0"

// The FLOPs do not depend on how the step is cut: into micro-batches or shards, with an even or an
// odd number of steps.
static void test_parts_of_steps(void **state)
{
    (void)state;
    static const char *const whole[] = {KEYS, "train.micro_batch=4"};
    static const char *const cut[] = {KEYS, "train.micro_batch=2"};
    static const char *const strict[] = {KEYS, "train.micro_batch=2", "determinism=strict",
                                         "determinism.shards=4"};
    static const char *const shadow[] = {KEYS, "train.micro_batch=2", "kernels.device=shadow"};
    train_bench *b = NULL;
    arena *a = NULL;
    assert_ok(arena_create("test", 0, &a));
    assert_ok(arena_new(a, 4, &b));
    steps(a, whole, COUNT_OF(whole), 3, &b[0]);
    steps(a, cut, COUNT_OF(cut), 4, &b[1]);
    steps(a, strict, COUNT_OF(strict), 1, &b[2]);
    steps(a, shadow, COUNT_OF(shadow), 3, &b[3]);
    static const int64_t pieces[] = {1, 2, 4, 2};
    const train_part first = part_find(&b[0], "matmul_dw");
    for (int i = 0; i < 4; i++) {
        const train_part dw = part_find(&b[i], "matmul_dw");
        near_to(dw.flops, first.flops);
        near_to(part_find(&b[i], "matmul").flops, first.flops);
        assert_int_equal(dw.calls, first.calls * pieces[i]);
        near_to(part_find(&b[i], "adamw").bytes, part_find(&b[0], "adamw").bytes);
    }
    arena_destroy(a);
}

// ---- kernels and machine ------------------------------------------------------------------------

static void time_check(const train_time *t, int64_t count)
{
    assert_int_equal(t->count, count);
    assert_true(t->min_s > 0.0 && t->min_s <= t->median_s && t->median_s <= t->max_s);
}

static void test_kernels(void **state)
{
    (void)state;
    static const op_code codes[] = {OP_MATMUL, OP_MATMUL_DX, OP_MATMUL_DW, OP_HEAD_LOSS};
    static const dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    const kern_hint hint = {.threads = 2, .level = kern_level_highest()};
    kern_context *kernels = NULL;
    arena *a = NULL;
    assert_ok(arena_create("bench", 0, &a));
    assert_ok(kern_context_create(a, "cpu", &hint, &kernels));
    for (int t = 0; t < COUNT_OF(types); t++) {
        const train_bench_on on = {
            .h = host_real(), .kernels = kernels, .type = types[t], .repeats = 2};
        for (int i = 0; i < COUNT_OF(codes); i++) {
            train_gemm g = {.code = codes[i], .n = 5, .m = 9, .k = 7};
            assert_ok(train_gemm_time(&on, &g));
            time_check(&g.time, 2);
            g = (train_gemm){.code = codes[i], .n = 3, .m = 1, .k = 1};
            assert_ok(train_gemm_time(&on, &g));
        }
        for (int backward = 0; backward < 2; backward++) {
            train_attention at = {.batch = 2,
                                  .seq = 9,
                                  .heads = 4,
                                  .kv_heads = 2,
                                  .head_dim = 8,
                                  .backward = backward == 1};
            assert_ok(train_attention_time(&on, &at));
            time_check(&at.time, 2);
            at.heads = at.kv_heads = 1;
            assert_ok(train_attention_time(&on, &at));
        }
    }
    train_gemm wrong = {.code = OP_ADD, .n = 1, .m = 1, .k = 1};
    const train_bench_on on = {.h = host_real(), .kernels = kernels, .type = DTYPE_F32};
    assert_int_equal(train_gemm_time(&on, &wrong), ST_INTERNAL);
    error_clear();
    arena_destroy(a);
}

static void test_machine(void **state)
{
    (void)state;
    train_machine *m = malloc(sizeof(*m));
    assert_non_null(m);
    const kern_hint hint = {.threads = 2};
    kern_context *kernels = NULL;
    arena *a = NULL;
    assert_ok(arena_create("bench", 0, &a));
    assert_ok(kern_context_create(a, "cpu", &hint, &kernels));
    assert_ok(train_machine_measure(host_real(), kernels, 1 << 20, m));
    arena_destroy(a);
    assert_int_equal(m->memory_count, 6); // 16 KiB, 256 KiB, the largest; one thread and two
    for (int i = 0; i < m->memory_count; i++) {
        const train_memory_row *row = &m->memory[i];
        assert_int_equal(row->threads, i < 3 ? 1 : 2);
        assert_true(row->read > 0.0 && row->write > 0.0 && row->copy > 0.0);
    }
    assert_true(m->copy_bytes_per_s == m->memory[5].copy);
    assert_int_equal(m->latency_count, 4); // 8, 32, 128 and 512 KiB
    for (int i = 0; i < m->latency_count; i++) assert_true(m->latency[i].load_s > 0.0);
    for (int i = 0; i < 2; i++) assert_true(m->loop_flops[i] > 0.0 && m->product_flops[i] > 0.0);
    assert_true(m->frequency_hz > 0.0 && m->barrier_s > 0.0 && m->thread_share > 0.0);
    assert_true(m->cores >= 1 && m->hardware_threads >= 1);
    free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_medians),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_windows_lose_nothing),
        cmocka_unit_test(test_bound),
        cmocka_unit_test(test_flops_by_hand),
        cmocka_unit_test(test_shapes_are_the_convention),
        cmocka_unit_test(test_parts_of_steps),
        cmocka_unit_test(test_kernels),
        cmocka_unit_test(test_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
