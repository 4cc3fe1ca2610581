// Learning-rate rules against ../shared/golden/ops/lr_schedules.json, and properties of all rules.
#include "base/format/json.h"
#include "fixtures/base/test_paths.h"
#include "train/lr/lr.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static run_decay shape_of(const char *name)
{
    if (strcmp(name, "cosine") == 0) return RUN_DECAY_COSINE;
    if (strcmp(name, "1-sqrt") == 0) return RUN_DECAY_ONE_MINUS_SQRT;
    return RUN_DECAY_LINEAR;
}

static void golden_rates(void **state)
{
    (void)state;
    char path[1024];
    json *all = NULL;
    if (json_read(host_real(), test_shared("golden/ops/lr_schedules.json", path), 1 << 22, &all) !=
        ST_OK) {
        print_message("SKIP: %s is not there\n", path);
        skip();
    }
    const json *cases = json_get(all, "cases");
    assert_true(json_count(cases) > 0);
    for (int64_t i = 0; i < json_count(cases); i++) {
        const json *c = json_at(cases, i), *args = json_get(c, "arguments");
        const lr_rule *rule = lr_rule_find(json_text(json_get(c, "rule"), ""));
        assert_non_null(rule);
        const lr_settings s = {
            .peak = json_real(json_get(c, "peak"), (double)NAN),
            .steps = json_int(json_get(c, "steps"), -1),
            .warmup = json_int(json_get(args, "warmup"), 0),
            .min_ratio = json_real(json_get(args, "min_ratio"), 0.0),
            .decay_steps = json_int(json_get(args, "decay_steps"), 0),
            .timescale = json_int(json_get(args, "timescale"),
                                  max_i64(1, json_int(json_get(args, "warmup"), 1))),
            .decay_shape = shape_of(json_text(json_get(args, "decay"), "linear")),
        };
        const json *rates = json_get(c, "lr");
        for (int64_t k = 0; k < json_count(rates); k++) {
            const double want = json_real(json_at(rates, k), (double)NAN), got = rule->rate(&s, k);
            if (fabs(got - want) > 1e-12 * s.peak) {
                print_error("%s step %lld: %.17g, expected %.17g\n",
                            json_text(json_get(c, "name"), ""), (long long)k, got, want);
            }
            assert_true(fabs(got - want) <= 1e-12 * s.peak);
        }
    }
    json_free(all);
}

static void rates_stay_between_zero_and_peak(void **state)
{
    (void)state;
    static const char *const names[] = {"constant", "linear", "cosine", "wsd", "inverse_sqrt"};
    for (int i = 0; i < COUNT_OF(names); i++) {
        const lr_rule *rule = lr_rule_find(names[i]);
        assert_non_null(rule);
        const lr_settings s = {.peak = 2.0,
                               .steps = 50,
                               .warmup = 7,
                               .decay_steps = 11,
                               .timescale = 7,
                               .min_ratio = 0.1};
        for (int64_t k = 0; k <= 60; k++) {
            const double rate = rule->rate(&s, k);
            assert_true(rate >= 0.0 && rate <= 2.0);
        }
        assert_true(fabs(rule->rate(&s, 7) - 2.0) < 1e-12); // the peak, where the warm-up ends
    }
    assert_null(lr_rule_find("linearly"));
}

// The first update of a new run changes weights, and no counting exceeds the peak.
static void warmups_are_counted_by_key(void **state)
{
    (void)state;
    static const double first[] = {0.0, 0.25, 0.2}, last[] = {0.75, 1.0, 0.8};
    static const char *const names[] = {"constant", "linear", "cosine", "inverse_sqrt", "wsd"};
    for (int w = 0; w < COUNT_OF(first); w++) {
        for (int i = 0; i < COUNT_OF(names); i++) {
            const lr_settings s = {.peak = 1.0,
                                   .steps = 50,
                                   .warmup = 4,
                                   .decay_steps = 10,
                                   .timescale = 4,
                                   .warmup_from = (run_warmup)w};
            const lr_rule *rule = lr_rule_find(names[i]);
            assert_true(fabs(rule->rate(&s, 0) - first[w]) < 1e-15);
            assert_true(fabs(rule->rate(&s, 3) - last[w]) < 1e-15);
            assert_true(fabs(rule->rate(&s, 4) - 1.0) < 1e-15);
        }
    }
    assert_int_equal(option_find(&run_config_table, "schedule.warmup_from")->kind, OPTION_CHOICE);
    assert_string_equal(option_find(&run_config_table, "schedule.warmup_from")->default_text,
                        "one");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_rates),
        cmocka_unit_test(rates_stay_between_zero_and_peak),
        cmocka_unit_test(warmups_are_counted_by_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
