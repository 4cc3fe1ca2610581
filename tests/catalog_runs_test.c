// Every run of the catalogue against the rest of the program: its model is a preset, its cluster an
// entry, its settings are keys that a run has, and its batch suits its layout.
#include "catalog/catalog.h"
#include "catalog/files.h"
#include "catalog/run.h"
#include "config/run_config.h"
#include "model/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void check_run(arena *a, const char *name)
{
    catalog_run run;
    cluster c;
    decoder_spec spec;
    model_counts counts;
    run_config *r = NULL;
    config *origin = NULL;
    const char **keys = NULL;
    char *model = NULL;
    if (catalog_run_load(host_real(), a, name, &run) != ST_OK ||
        catalog_cluster_load(host_real(), a, run.cluster, NULL, 0, &c) != ST_OK ||
        model_spec_preset(host_real(), a, run.model, &spec) != ST_OK) {
        fail_msg("%s: %s", name, error_last()->text);
    }
    model_count(&spec, &counts);
    assert_true(counts.active <= counts.total && counts.gemm <= counts.active);
    assert_int_equal(arena_new(a, run.setting_count + 1, &keys), ST_OK);
    assert_int_equal(arena_new(a, 1, &r), ST_OK);
    assert_int_equal(arena_format(a, &model, "model.preset=%s", run.model), ST_OK);
    keys[0] = model;
    for (int64_t i = 0; i < run.setting_count; i++) keys[i + 1] = run.settings[i];
    if (config_parse(a, &run_config_table,
                     &(const config_input){.yaml = "",
                                           .bytes = 0,
                                           .name = name,
                                           .folder = ".",
                                           .overrides = keys,
                                           .override_count = run.setting_count + 1},
                     r, &origin) != ST_OK) {
        fail_msg("%s: %s", name, error_last()->text);
    }
    const int64_t inner = r->layout.tp * r->layout.pp * r->layout.cp;
    const int64_t devices = r->cluster.devices;
    if (devices == 0 || devices % inner != 0) {
        fail_msg("%s: %lld devices, layout of %lld", name, (long long)devices, (long long)inner);
    }
    assert_true(r->train.tokens > 0 && r->train.seq > 0 && r->train.seq <= spec.context);
    if (r->train.global_batch % (devices / inner) != 0) {
        fail_msg("%s: a batch of %lld for %lld replicas", name, (long long)r->train.global_batch,
                 (long long)(devices / inner));
    }
}

static void runs_are_whole(void **state)
{
    (void)state;
    int64_t count = 0;
    for (const catalog_file *f = catalog_files; f->name != NULL; f++) {
        arena *a = NULL;
        if (strcmp(f->folder, "runs") != 0) continue;
        assert_int_equal(arena_create("run", 0, &a), ST_OK);
        check_run(a, f->name);
        arena_destroy(a);
        count++;
    }
    assert_true(count >= 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(runs_are_whole)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
