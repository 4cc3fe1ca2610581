// Tests the choice of settings that a run file leaves open.
#include "fixtures/assemble/test_assemble.h"

typedef struct choice {
    run_config r;
    int64_t arena_bytes;
} choice;

static choice choose(const char *keys[], int64_t count, bool settle)
{
    choice out;
    arena *a = NULL;
    decoder_spec spec;
    config *c = NULL;
    assemble_plans plans;
    const char *all[16] = {"data.train=x", "kernels.level=avx2"};
    for (int64_t i = 0; i < count; i++) all[2 + i] = keys[i];
    assert_ok(arena_create("test", 0, &a));
    assert_ok(run_config_load(host_real(), a, NULL, all, 2 + count, &out.r, &c));
    assert_ok(model_spec_from_config(host_real(), a, &out.r, &spec));
    const assemble_options options = {
        .threads = 2, .device = "cpu", .backend = "cpu", .sizes_only = true};
    assert_ok(settle ? assemble_memory_settle(&out.r, &spec, &options)
                     : assemble_memory_choose(&out.r, &spec, &options));
    assert_false(out.r.train.micro_batch_chosen);
    assert_ok(assemble_rank(a, &out.r, &spec, &options, &plans));
    out.arena_bytes = plans.arena_bytes;
    const run_config once = out.r;
    assert_ok(assemble_memory_choose(&out.r, &spec, &options)); // all settings are given
    assert_int_equal(out.r.train.micro_batch, once.train.micro_batch);
    assert_int_equal(out.r.train.recompute, once.train.recompute);
    arena_destroy(a);
    return out;
}

#define CHOOSE(...) \
    choose((const char *[]){__VA_ARGS__}, COUNT_OF(((const char *[]){__VA_ARGS__})), false)

#define GPT2 "model.preset=gpt2-124m", "train.seq=1024", "train.global_batch=4"

// 0.6 times the memory of PyTorch's compiled step for GPT-2 124M (bench/RESULTS.md): 5.31 GB.
static void large_models_keep_less(void **state)
{
    (void)state;
    const choice gpt2 = CHOOSE(GPT2);
    assert_int_equal(gpt2.r.train.recompute, RUN_RECOMPUTE_SELECTIVE);
    assert_int_equal(gpt2.r.train.micro_batch, 2);
    assert_true(gpt2.r.train.recompute_cost > 0.001 && gpt2.r.train.recompute_cost < 0.02);
    assert_true((double)gpt2.arena_bytes < 0.6 * 5.31e9);
    const choice llama =
        CHOOSE("model.preset=llama-135m", "train.seq=1024", "train.global_batch=8");
    assert_int_equal(llama.r.train.recompute, RUN_RECOMPUTE_SELECTIVE);
    assert_int_equal(llama.r.train.micro_batch, 2);
    assert_true((double)llama.arena_bytes < 0.6 * 7.63e9);
    const choice kept = CHOOSE(GPT2, "train.micro_batch=4", "train.recompute=none");
    assert_true((double)gpt2.arena_bytes < 0.75 * (double)kept.arena_bytes);
}

static void small_models_keep_all(void **state)
{
    (void)state;
    const choice c = CHOOSE("model.preset=gpt2-tiny", "train.seq=256", "train.global_batch=64",
                            "model.vocab=300");
    assert_int_equal(c.r.train.recompute, RUN_RECOMPUTE_NONE);
    assert_int_equal(c.r.train.micro_batch, 16);
    assert_true(c.r.train.recompute_cost == 0.0);
}

static void what_is_given_stays(void **state)
{
    (void)state;
    choice c = CHOOSE(GPT2, "train.recompute=none");
    assert_int_equal(c.r.train.recompute, RUN_RECOMPUTE_NONE);
    assert_int_equal(c.r.train.micro_batch, 2);
    c = CHOOSE(GPT2, "train.micro_batch=4");
    assert_int_equal(c.r.train.micro_batch, 4);
    assert_int_equal(c.r.train.recompute, RUN_RECOMPUTE_SELECTIVE);
    c = CHOOSE(GPT2, "train.recompute=full", "train.micro_batch=4");
    assert_int_equal(c.r.train.micro_batch, 4);
    assert_int_equal(c.r.train.recompute, RUN_RECOMPUTE_FULL);
    assert_true(c.r.train.recompute_cost == 0.0);
}

// No micro-batch has fewer than 2,048 tokens to save a little memory; micro-batches hold whole
// sequences of any length.
static void products_stay_tall(void **state)
{
    (void)state;
    for (int64_t seq = 512; seq <= 4096; seq *= 2) {
        char words[2][40];
        (void)snprintf(words[0], sizeof(words[0]), "train.seq=%lld", (long long)seq);
        (void)snprintf(words[1], sizeof(words[1]), "model.context=%lld", (long long)seq);
        const choice c =
            CHOOSE("model.preset=gpt2-124m", words[0], words[1], "train.global_batch=12");
        assert_true(c.r.train.micro_batch == 1 || c.r.train.micro_batch * seq >= 2048);
        assert_true(c.r.train.micro_batch * seq <= max_i64(4096, seq));
        assert_int_equal(12 % c.r.train.micro_batch, 0);
    }
}

// All stages get one answer: the smallest micro-batch, and the recomputation that any stage needs.
static void stages_agree(void **state)
{
    (void)state;
    const char *keys[] = {"model.preset=gpt2-124m", "train.seq=1024", "train.global_batch=16",
                          "layout.pp=2"};
    const choice all = choose(keys, COUNT_OF(keys), true), first = choose(keys, 4, false);
    assert_true(all.r.train.micro_batch <= first.r.train.micro_batch);
    assert_true(all.r.train.recompute >= first.r.train.recompute);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_models_keep_less), cmocka_unit_test(small_models_keep_all),
        cmocka_unit_test(what_is_given_stays), cmocka_unit_test(products_stay_tall),
        cmocka_unit_test(stages_agree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
