// The arena is at most 3% larger than the largest sum of live bytes at any action, for every
// schedule, on every rank and with every kind of recomputation. (exec_test checks that a step
// touches the whole arena.)
//
//   ALL=1  tries each schedule with each depth, model and recomputation (make test: some of them)
//
//   ALL=1  each schedule with each depth, model and way of recomputing (make test: a part of them)
#include "fixtures/train/test_job.h"

#include <stdlib.h>

typedef struct model_keys {
    const char *keys[8];
} model_keys;

static const model_keys models[] = {
    {{"model.arch=llama", "model.dim=32", "model.layers=8", "model.heads=4", "model.ffn_dim=48",
      "model.tied=no", "model.vocab=257", "kernels.keep_panels=no"}},
    {{"model.arch=gpt2", "model.dim=64", "model.layers=8", "model.heads=4", "model.ffn_dim=256",
      "model.tied=yes", "model.vocab=100", "kernels.keep_panels=yes"}},
};

static const char *const schedules[] = {"gpipe", "1f1b", "interleaved", "zb-h1",
                                        "zb-h2", "zb-v", "dualpipe",    "dualpipe-v"};
static const char *const recomputes[] = {"none", "selective", "full"};

typedef struct arena_seen {
    int64_t ranks;
    double worst; // over all plans so far
} arena_seen;

// Checks all ranks of a layout, one for each set of ranks that differ only along dp.
static void layout_check(const model_keys *model, const char *const *more, int count, double most,
                         arena_seen *out)
{
    const char *list[32] = {"data.train=x",        "data.tokenizer=bytes",  "train.seq=64",
                            "train.micro_batch=2", "train.global_batch=32", "kernels.threads=1"};
    int n = 6;
    for (int i = 0; i < COUNT_OF(model->keys); i++) list[n++] = model->keys[i];
    for (int i = 0; i < count; i++) list[n++] = more[i];
    arena *a = NULL;
    config *c = NULL;
    run_config r = {0};
    decoder_spec spec = {0};
    assert_ok(arena_create("test", 0, &a));
    assert_ok(run_config_load(host_real(), a, NULL, list, n, &r, &c));
    assert_ok(model_spec_from_config(host_real(), a, &r, &spec));
    const plan_mesh all = run_config_mesh(&r, 0);
    for (int rank = 0; rank < (int)plan_mesh_ranks(&all); rank++) {
        assemble_plans *plans = NULL;
        const plan_mesh mesh = run_config_mesh(&r, rank);
        if (mesh.at[AXIS_DP] > 0) continue;
        assert_ok(arena_new(a, 1, &plans));
        const assemble_options options = {
            .threads = 1, .device = "cpu", .backend = "cpu", .mesh = mesh};
        assert_ok(assemble_rank(a, &r, &spec, &options, plans));
        const plan *p = plans->all[0];
        const double bound = (double)(plans->run.run_bytes + p->live_bytes);
        const double over = (double)(plans->run.run_bytes + p->transient_bytes) / bound - 1.0;
        assert_true(over >= 0.0);
        if (over > most) {
            print_error("rank %d: %.2f%% above the live bytes with", rank, 100.0 * over);
            for (int i = 0; i < n; i++) print_error(" %s", list[i]);
            print_error("\n");
        }
        assert_true(over <= most);
        out->worst = over > out->worst ? over : out->worst;
        out->ranks++;
    }
    arena_destroy(a);
}

static void schedules_check(const char *first, const char *second, int part, double most)
{
    arena_seen seen = {0};
    for (int i = 0; i < COUNT_OF(schedules) * COUNT_OF(recomputes) * 2 * COUNT_OF(models); i++) {
        const int schedule = i % COUNT_OF(schedules), k = i / COUNT_OF(schedules);
        char words[3][48];
        if ((k / 3 + schedule + k) % (getenv("ALL") != NULL ? 1 : part) != 0) continue;
        (void)snprintf(words[0], sizeof(words[0]), "layout.schedule=%s", schedules[schedule]);
        (void)snprintf(words[1], sizeof(words[1]), "train.recompute=%s", recomputes[k % 3]);
        (void)snprintf(words[2], sizeof(words[2]), "layout.pp=%d", k / 3 % 2 == 0 ? 4 : 2);
        const char *const more[] = {words[0], words[1], words[2], first, second};
        layout_check(&models[k / 6], more, COUNT_OF(more), most, &seen);
    }
    print_message("%s %s: %lld ranks, at most %.2f%% above the live bytes\n", first, second,
                  (long long)seen.ranks, 100.0 * seen.worst);
}

static void pipelines_are_tight(void **state)
{
    (void)state;
    schedules_check("determinism=fast", "layout.dp=1", 3, 0.03);
    schedules_check("determinism=strict", "layout.dp=1", 7, 0.03);
    schedules_check("layout.dp=2", "layout.zero=1", 5, 0.03);
    schedules_check("layout.tp=2", "layout.sp=yes", 7, 0.03);
}

static void zero_2_and_3_are_tight(void **state)
{
    (void)state;
    schedules_check("layout.dp=2", "layout.zero=2", 7, 0.03);
    schedules_check("layout.dp=2", "layout.zero=3", 7, 0.03);
}

static void one_stage_is_tight(void **state)
{
    (void)state;
    static const char *const layouts[][2] = {
        {"layout.dp=1", "layout.tp=1"},   {"layout.dp=2", "layout.zero=1"},
        {"layout.dp=2", "layout.zero=2"}, {"layout.dp=2", "layout.zero=3"},
        {"layout.tp=2", "layout.sp=yes"}, {"layout.tp=2", "layout.cp=2"}};
    arena_seen seen = {0};
    for (int i = 0; i < COUNT_OF(layouts) * COUNT_OF(recomputes) * COUNT_OF(models); i++) {
        char word[48];
        const char *const *layout = layouts[i % COUNT_OF(layouts)];
        const int k = i / COUNT_OF(layouts);
        (void)snprintf(word, sizeof(word), "train.recompute=%s", recomputes[k % 3]);
        const char *const more[] = {layout[0], layout[1], word};
        layout_check(&models[k / 3], more, COUNT_OF(more), 0.03, &seen);
    }
    print_message("%lld ranks, at most %.2f%%\n", (long long)seen.ranks, 100.0 * seen.worst);
}

// With this many layers there are too many live intervals to place one by one.
static void deep_ones_are_tight(void **state)
{
    (void)state;
    arena_seen seen = {0};
    for (int i = 2; i < COUNT_OF(schedules); i++) {
        char word[48];
        (void)snprintf(word, sizeof(word), "layout.schedule=%s", schedules[i]);
        const char *const more[] = {word, "layout.pp=4", "model.layers=48", "train.micro_batch=1",
                                    i % 2 == 0 ? "train.recompute=selective" : "layout.dp=1"};
        layout_check(&models[0], more, COUNT_OF(more), 0.03, &seen);
    }
    print_message("48 layers: %lld ranks, at most %.2f%%\n", (long long)seen.ranks,
                  100.0 * seen.worst);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pipelines_are_tight), cmocka_unit_test(zero_2_and_3_are_tight),
        cmocka_unit_test(deep_ones_are_tight), cmocka_unit_test(one_stage_is_tight)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
