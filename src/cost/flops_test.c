// Compares the conventions with figures that their users printed; nothing is fitted here. A printed
// number stands for every value that rounds to it; if a formula relates two of them, their ranges
// must overlap.
#include "cost/flops.h"

#include "fixtures/base/test_csv.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const flops_rule *rule(const char *name)
{
    const flops_rule *r = cost_flops_find(name);
    assert_non_null(r);
    return r;
}

typedef enum gate { PLAIN, GATED } gate; // two or three matrices in the feed-forward part

static flops_model model_of(const test_csv *c, gate g)
{
    const double l = test_csv_number(c, "layers"), h = test_csv_number(c, "hidden");
    const double heads = test_csv_number(c, "heads"), kv = test_csv_number(c, "kv_heads");
    const double ffn = test_csv_number(c, "ffn"), v = test_csv_number(c, "vocab");
    const double block = 2 * h * h + 2 * h * kv * h / heads + (g == GATED ? 3 : 2) * h * ffn;
    return (flops_model){.layers = l,
                         .dim = h,
                         .vocab = v,
                         .attention_width = h,
                         .parameters = 1e9 * test_csv_number(c, "params_b"),
                         .gemm_parameters = l * block + v * h};
}

// |a - b| is at most the sum of both roundings.
static bool ranges_meet(double a, double a_half, double b, double b_half)
{
    return fabs(a - b) <= (a_half + b_half) * (1.0 + 1e-9);
}

static double rate_of_row(const test_csv *c, const flops_rule *r, gate g, double step_s)
{
    const flops_model m = model_of(c, g);
    return cost_flops_rate(r, &m, test_csv_number(c, "seq"), test_csv_number(c, "global_batch"),
                           test_csv_number(c, "gpus"), step_s);
}

static void assert_near(double a, double b, double most)
{
    if (fabs(a - b) > most) print_error("%.17g is not %.17g\n", a, b);
    assert_true(fabs(a - b) <= most);
}

// ---- the rows themselves ------------------------------------------------------------------------
static void rows_are_what_they_say(void **state)
{
    (void)state;
    // GPT-3 has 12 h^2 weights per layer, so the formulas over dims and those over weights must
    // agree.
    const double l = 96, h = 12288, v = 51200, s = 2048;
    const flops_model m = {.layers = l,
                           .dim = h,
                           .vocab = v,
                           .attention_width = h,
                           .parameters = l * 12 * h * h + v * h,
                           .gemm_parameters = l * 12 * h * h + v * h};
    const double full = rule("nemo")->token(&m, s), attention = 12 * l * h * s;
    assert_string_equal(cost_flops_at(0)->name, "causal");
    assert_near(rule("model-72")->token(&m, s) / full, 1.0, 1e-12);
    assert_near(rule("palm")->token(&m, s) / full, 1.0, 1e-12);
    assert_near(rule("llm-foundry")->token(&m, s) / full, 1.0, 1e-12);
    assert_near((full - rule("causal")->token(&m, s)) / (attention / 2), 1.0, 1e-9);
    // Recomputing attention's GEMMs adds a third of 3 passes over them; recomputing all but the
    // head adds a pass.
    assert_near((rule("selective-72")->token(&m, s) - full) / attention, 1.0, 1e-9);
    assert_near(rule("hardware-96")->token(&m, s) / (full + (full - 6 * v * h) / 3), 1.0, 1e-12);
    assert_null(cost_flops_find("causa"));
    assert_null(cost_flops_at(-1));
    int count = 0;
    for (; cost_flops_at(count) != NULL; count++) {
        assert_ptr_equal(cost_flops_find(cost_flops_at(count)->name), cost_flops_at(count));
    }
    assert_int_equal(count, 7);
    // A rate times a day gives a day's FLOPs.
    assert_near(cost_flops_time_s(rule("nemo"), &m, s, 1e9, 10, full * 1e8 / 3600), 3600, 1e-6);
}

// PaLM prints 46.2% for 540.35B parameters, 118 layers of 48 heads of 256 and 2048 tokens at 238.3k
// tokens/s on 6144 chips of 275e12 FLOP/s.
static void palm_is_46_2_percent(void **state)
{
    (void)state;
    const flops_model m = {.layers = 118, .attention_width = 48 * 256, .parameters = 540.35e9};
    const double mfu = rule("palm")->token(&m, 2048) * 238.3e3 / (6144 * 275e12);
    assert_true(ranges_meet(100 * mfu, 100 * mfu * 0.05 / 238.3, 46.2, 0.05));
}

// ---- tables -------------------------------------------------------------------------------------
// Computes MFU, HFU and TFLOP/s of Korthikanti's tables 3 and 5 from the printed step times.
static void korthikanti_follows_from_step_times(void **state)
{
    (void)state;
    test_csv c;
    int met = 0;
    if (!test_csv_open(&c, "validation/korthikanti_table3_5.csv")) skip();
    while (test_csv_line(&c) > 0) {
        const double step = test_csv_number(&c, "step_time_s");
        const double half = test_csv_rounding(&c, "step_time_s"), peak = 312e12;
        if (step <= 0.0) continue;
        const double model = rate_of_row(&c, rule("model-72"), PLAIN, step);
        const double spread = half / step;
        assert_true(ranges_meet(100 * model / peak, 100 * model / peak * spread,
                                test_csv_number(&c, "mfu_pct"), 0.05));
        assert_true(ranges_meet(model / 1e12, model / 1e12 * spread,
                                test_csv_number(&c, "tflops_per_gpu"), 0.05 + 0.0005 * 312));
        met++;
        if (test_csv_number(&c, "hfu_pct") <= 0.0) continue;
        const double hardware = 100 * rate_of_row(&c, rule("selective-72"), PLAIN, step) / peak;
        assert_true(ranges_meet(hardware, hardware * spread, test_csv_number(&c, "hfu_pct"), 0.05));
        met++;
    }
    test_csv_close(&c);
    assert_int_equal(met, 9 + 4);
}

// Returns the number after `key` in the notes.
static double noted(const test_csv *c, const char *key)
{
    const char *at = strstr(test_csv_cell(c, "notes"), key);
    assert_non_null(at);
    return strtod(at + strlen(key), NULL);
}

// Computes the days for 300 billion tokens from the printed TFLOP/s.
static void sc21_days_follow_from_flops(void **state)
{
    (void)state;
    test_csv c;
    int met = 0;
    if (!test_csv_open(&c, "validation/megatron_sc21_table2.csv")) skip();
    while (test_csv_line(&c) > 0) {
        const flops_model m = model_of(&c, PLAIN);
        const double rate = test_csv_number(&c, "tflops_per_gpu");
        const double days = cost_flops_time_s(rule("hardware-96"), &m, test_csv_number(&c, "seq"),
                                              300e9, test_csv_number(&c, "gpus"), 1e12 * rate) /
                            86400;
        assert_true(ranges_meet(days, 0, noted(&c, "recomputed from TFLOPs: "), 0.05));
        assert_true(ranges_meet(days, days * 0.5 / rate, noted(&c, "300B tokens: "), 0.5));
        assert_true(ranges_meet(100 * rate / 312, 0, test_csv_number(&c, "hfu_pct"), 0.05));
        met++;
    }
    test_csv_close(&c);
    assert_int_equal(met, 12);
}

// The cost of recomputing attention for GPT-3 and MT-NLG, as the paper's text gives it.
static void recomputed_attention_costs_what_is_said(void **state)
{
    (void)state;
    static const struct {
        const char *quantity;
        flops_model m;
    } said[] = {
        {"FLOP overhead of selective recompute, GPT-3", {.layers = 96, .dim = 12288}},
        {"FLOP overhead of selective recompute, MT-NLG", {.layers = 105, .dim = 20480}},
    };
    test_csv c;
    int met = 0;
    if (!test_csv_open(&c, "validation/korthikanti_text_facts.csv")) skip();
    while (test_csv_line(&c) > 0) {
        for (int64_t i = 0; i < COUNT_OF(said); i++) {
            if (strcmp(test_csv_cell(&c, "quantity"), said[i].quantity) != 0) continue;
            const flops_model *m = &said[i].m;
            const double more =
                rule("selective-72")->token(m, 2048) / rule("model-72")->token(m, 2048);
            assert_true(ranges_meet(100 * (more - 1), 0, test_csv_number(&c, "value"), 0.05));
            met++;
        }
    }
    test_csv_close(&c);
    assert_int_equal(met, 2);
}

typedef struct converted {
    const char *file, *convention;
    gate gated;
    double bound; // on the remaining difference: no table prints all digits of its formula's inputs
    int rows;

} converted;

static bool is_of(const test_csv *c, const converted *x)
{
    if (test_csv_number(c, "hidden") <= 0 || test_csv_number(c, "tflops_per_gpu") <= 0)
        return false;
    if (test_csv_number(c, "tokens_per_s_per_gpu") <= 0) return false;
    if (strstr(x->file, "bridge") != NULL) {
        // True for rows of dense models with all weights trained; mb-80 prints TFLOP/s and tokens/s
        // of two runs.
        return strstr(test_csv_cell(c, "model"), "LLAMA") != NULL &&
               strstr(test_csv_cell(c, "model"), "LoRA") == NULL &&
               strcmp(test_csv_cell(c, "row_id"), "mb-80") != 0;
    }
    // Recomputation counts for rows that do it.
    return strstr(x->file, "internevo") == NULL || (strcmp(test_csv_cell(c, "recompute"), "none") ==
                                                    0) == (strcmp(x->convention, "model-72") == 0);
}

// These tables print TFLOP/s and tokens/s: one must follow from the other.
static void tables_convert(void **state)
{
    (void)state;
    static const converted tables[] = {
        {"validation/megatron_readme_2020.csv", "hardware-96", PLAIN, 0.001, 12},
        {"validation/megatron_readme_2021_01.csv", "hardware-96", PLAIN, 0.003, 10},
        {"validation/megatron_sc21_table1.csv", "hardware-96", PLAIN, 0.003, 10},
        {"validation/internevo.csv", "hardware-96", GATED, 0.032, 8},
        {"validation/internevo.csv", "model-72", GATED, 0.013, 5},
        {"validation/llm_foundry_mpt.csv", "llm-foundry", PLAIN, 0.007, 94},
        {"validation/megatron_bridge_perf.csv", "causal", GATED, 0.002, 6},
        {"validation/llm_c.csv", "palm", PLAIN, 0.004, 4},
    };
    int seen = 0;
    for (int64_t i = 0; i < COUNT_OF(tables); i++) {
        const converted *x = &tables[i];
        test_csv c;
        int met = 0;
        double worst = 0.0;
        if (!test_csv_open(&c, x->file)) continue;
        while (test_csv_line(&c) > 0) {
            if (!is_of(&c, x)) continue;
            const flops_model m = model_of(&c, x->gated);
            const double tokens = test_csv_number(&c, "tokens_per_s_per_gpu");
            const double flops =
                rule(x->convention)->token(&m, test_csv_number(&c, "seq")) * tokens;
            worst = fmax(worst, fabs(flops / (1e12 * test_csv_number(&c, "tflops_per_gpu")) - 1.0));
            met++;
        }
        print_message("%-42s %-12s %3d rows, worst %.2f%%\n", x->file, x->convention, met,
                      100 * worst);
        test_csv_close(&c);
        assert_int_equal(met, x->rows);
        assert_true(worst <= x->bound);
        seen++;
    }
    if (seen == 0) skip();
    assert_int_equal(seen, COUNT_OF(tables));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_what_they_say),
        cmocka_unit_test(palm_is_46_2_percent),
        cmocka_unit_test(korthikanti_follows_from_step_times),
        cmocka_unit_test(sc21_days_follow_from_flops),
        cmocka_unit_test(recomputed_attention_costs_what_is_said),
        cmocka_unit_test(tables_convert),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
