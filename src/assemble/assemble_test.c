// Plans of one rank agree for every layout: the rank that holds a weight trains it.
#include "fixtures/assemble/test_assemble.h"

static void every_weight_of_a_stage_is_trained_there(void **state)
{
    (void)state;
    // The head costs as much as several layers, and evaluation has no backward to balance it.
    static const char *const list[] = {
        "data.train=x",        "data.valid=0.5",  "train.seq=8",       "train.global_batch=8",
        "train.micro_batch=1", "model.dim=8",     "model.layers=13",   "model.heads=1",
        "model.vocab=300",     "model.ffn_dim=8", "kernels.threads=1", "layout.pp=4"};
    arena *a;
    run_config r;
    decoder_spec spec;
    config *c = NULL;
    assert_ok(arena_create("test", 0, &a));
    assert_ok(run_config_load(host_real(), a, NULL, list, COUNT_OF(list), &r, &c));
    assert_ok(model_spec_from_config(host_real(), a, &r, &spec));
    for (int64_t rank = 0; rank < 4; rank++) {
        assemble_plans plans;
        int64_t weights = 0;
        const assemble_options options = {.threads = 1,
                                          .device = "cpu",
                                          .backend = "ref",
                                          .evaluate = true,
                                          .mesh = run_config_mesh(&r, rank)};
        assert_ok(assemble_rank(a, &r, &spec, &options, &plans));
        assert_non_null(plans.eval);
        for (int64_t i = 0; i < plans.run.count; i++) {
            const plan_tensor *t = &plans.run.tensors[i];
            char moment[PLAN_NAME_BYTES + 2];
            if (t->kind != PLAN_BYTES_WEIGHTS || t->role != ROLE_WEIGHT) continue;
            (void)snprintf(moment, sizeof(moment), "m.%s", t->name);
            if (plan_table_find(&plans.run, moment) < 0)
                print_error("%s on %d\n", t->name, (int)rank);
            assert_true(plan_table_find(&plans.run, moment) >= 0);
            weights++;
        }
        assert_true(weights > 0);
    }
    arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_weight_of_a_stage_is_trained_there)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
