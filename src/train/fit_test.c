// Errors about a run that does not fit: each suggested setting has the stated effect, and the
// suggested number of layers to recompute is the smallest that fits.
#include "fixtures/train/test_job.h"

#include <stdlib.h>

typedef struct trial {
    arena *a;
    run_config r;
    decoder_spec spec;
    assemble_options options;
} trial;

static void trial_open(trial *t, const char *more)
{
    const char *list[] = {"data.train=x",    "train.seq=64",         "train.global_batch=16",
                          "model.dim=128",   "model.layers=8",       "model.heads=4",
                          "model.vocab=512", "model.ffn_dim=384",    "kernels.threads=1",
                          "train.steps=10",  "train.micro_batch=16", more};
    config *c = NULL;
    memset(t, 0, sizeof(*t));
    assert_ok(arena_create("test", 0, &t->a));
    assert_ok(run_config_load_planned(host_real(), t->a, NULL, list, COUNT_OF(list), &t->r, &c));
    assert_ok(model_spec_from_config(host_real(), t->a, &t->r, &t->spec));
    t->options =
        (assemble_options){.threads = 1, .device = "cpu", .backend = "cpu", .sizes_only = true};
}

static int64_t bytes_of(trial *t, int32_t recompute, int64_t layers, assemble_plans **plans)
{
    run_config r = t->r;
    r.train.recompute = recompute;
    r.train.recompute_layers = layers;
    assert_ok(arena_new(t->a, 1, plans));
    assert_ok(assemble_rank(t->a, &r, &t->spec, &t->options, *plans));
    return assemble_peak_bytes(*plans);
}

static void fewest_layers_recompute(void **state)
{
    (void)state;
    trial t;
    assemble_plans *plans = NULL, *now = NULL;
    trial_open(&t, "train.recompute=none");
    const int64_t all = bytes_of(&t, RUN_RECOMPUTE_FULL, 0, &plans);
    const int64_t none = bytes_of(&t, RUN_RECOMPUTE_NONE, 0, &now);
    int fewer = 0;
    for (int64_t part = 1; part < 8; part++) {
        const int64_t limit = all + (none - all) / 8 * part;
        assert_int_equal(assemble_fit_check(&t.r, &t.spec, &t.options, now, limit),
                         ST_DOES_NOT_FIT);
        static const char key[] = "train.recompute=full train.recompute_layers=";
        const char *said = strstr(error_last()->text, key);
        // The error names no number of layers if all must recompute.
        const int64_t layers = said != NULL ? strtoll(said + sizeof(key) - 1, NULL, 10) : 8;
        fewer += layers < 8 ? 1 : 0;
        error_clear();
        assert_true(bytes_of(&t, RUN_RECOMPUTE_FULL, layers, &plans) <= limit);
        if (layers > 1) {
            assert_true(bytes_of(&t, RUN_RECOMPUTE_FULL, layers - 1, &plans) > limit);
        }
    }
    assert_true(fewer >= 5);
    arena_destroy(t.a);
}

static void error_names_fewest_layers(void **state)
{
    (void)state;
    trial t;
    assemble_plans *plans = NULL, *now = NULL;
    trial_open(&t, "train.recompute=full");
    const int64_t all = bytes_of(&t, RUN_RECOMPUTE_FULL, 0, &plans);
    t.r.train.recompute_layers = 2;
    const int64_t some = bytes_of(&t, RUN_RECOMPUTE_FULL, 2, &now);
    assert_true(all < some);
    assert_int_equal(assemble_fit_check(&t.r, &t.spec, &t.options, now, all), ST_DOES_NOT_FIT);
    assert_non_null(
        strstr(error_last()->text, "train.recompute=full train.recompute_layers=all needs"));
    error_clear();
    assert_ok(assemble_fit_check(&t.r, &t.spec, &t.options, now, some));
    arena_destroy(t.a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(fewest_layers_recompute),
                                       cmocka_unit_test(error_names_fewest_layers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
