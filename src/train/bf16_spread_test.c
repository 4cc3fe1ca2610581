// In bf16, the loss on several ranks differs from that on one rank by no more than rounding
// explains.
//
// In bf16 two layouts have different losses: another order of summation flips the rounding of some
// activations, and with tp every rank rounds its own term. The effect of rounding alone can be
// measured without any layout. A *rounding seed* rounds each initial weight to bf16, up or down at
// random with probability proportional to the discarded part, so that the expected value is the
// weight. Runs of one rank from five seeds are five equivalent versions of one model in bf16. The
// *spread* of a step is the largest of their losses less the smallest. At every step, the loss of a
// layout that starts from the exact weights must lie within three times the spread of the loss of
// one rank from the same weights.
//
// A run with a learning rate that is a hundredth higher breaks the bound, which shows that the test
// can fail.
//
// The daily test runs each layout with one of the models.
#include "fixtures/train/test_ranks.h"

#include "base/rng.h"
#include "fixtures/base/test_part.h"
#include "train/job.h"

#include <stdlib.h>

enum { STEPS = 6, SEEDS = 5, MORE = 8, SETTINGS = 32 };

static const char *const models[][6] = {
    {"model.arch=llama", "model.layers=4", "model.heads=4", "model.kv_heads=2", "model.tied=no",
     "model.vocab=272"},
    {"model.arch=gpt2", "model.layers=4", "model.heads=4", "model.kv_heads=4", "model.tied=yes",
     "model.vocab=272"},
};
static const char *const common[] = {"train.precision=bf16", "train.steps=6",
                                     "train.micro_batch=1",  "kernels.threads=1",
                                     "eval.every=0",         "schedule.name=constant"};

typedef struct layout {
    int ranks;
    const char *keys[MORE]; // unused ones are NULL
} layout;

static const layout layouts[] = {
    {2, {"layout.dp=2", "layout.zero=1"}},
    {4, {"layout.dp=4", "layout.zero=2"}},
    {2, {"layout.dp=2", "layout.zero=3", "train.recompute=full"}},
    {2, {"layout.tp=2"}},
    {4, {"layout.tp=2", "layout.dp=2", "layout.sp=yes"}},
    {2, {"layout.pp=2", "layout.schedule=zb-h1"}},
    {2, {"layout.pp=2", "layout.schedule=dualpipe-v", "train.recompute=selective"}},
    {2, {"layout.cp=2"}},
    {8, {"layout.tp=2", "layout.pp=2", "layout.cp=2"}},
};

typedef struct losses {
    double of[STEPS];
} losses;

static losses losses_of(const run_seen *seen)
{
    losses l;
    assert_int_equal(seen->steps, STEPS);
    memcpy(l.of, seen->losses, sizeof(l.of));
    return l;
}

static int settings_of(int model, const char *const more[MORE], const char *out[SETTINGS])
{
    int n = 0;
    for (int i = 0; i < COUNT_OF(models[0]); i++) out[n++] = models[model][i];
    for (int i = 0; i < COUNT_OF(common); i++) out[n++] = common[i];
    for (int i = 0; more != NULL && i < MORE && more[i] != NULL; i++) out[n++] = more[i];
    return n;
}

static losses one_rank(const char *name, int model, const char *const more[MORE])
{
    const char *list[SETTINGS];
    run_seen seen = {0};
    const int n = settings_of(model, more, list);
    assert_int_equal(test_run(name, list, n, "none", &seen, NULL), ST_OK);
    return losses_of(&seen);
}

static losses many_ranks(const char *name, int model, const layout *l)
{
    const char *list[SETTINGS];
    const int n = settings_of(model, l->keys, list);
    assert_int_equal(ranks_run(name, list, n, l->ranks, "none", 0, NULL), ST_OK);
    return losses_of(&rank_runs[0].seen);
}

// ---- seeds of rounding --------------------------------------------------------------------------

// Rounds to bf16 stochastically: adds a random number below the unit in the last place, then
// truncates.
static float rounded(float value, uint32_t word)
{
    uint32_t bits = 0;
    memcpy(&bits, &value, sizeof(bits));
    bits = (bits + (word & 0xffffu)) & 0xffff0000u;
    memcpy(&value, &bits, sizeof(bits));
    return value;
}

static void weights_round(const train_job *job, const op_model *m, int seed)
{
    for (int64_t w = 0; w < m->weight_count; w++) {
        const int64_t count = m->weights[w].rows * m->weights[w].columns;
        float *values = malloc((size_t)count * sizeof(float));
        assert_non_null(values);
        assert_int_equal(ckpt_weight_get(&job->state, w, values), ST_OK);
        for (int64_t i = 0; i < count; i++) {
            values[i] = rounded(values[i], rng_word((uint64_t)seed, (uint64_t)w, (uint64_t)i));
        }
        assert_int_equal(ckpt_weight_put(&job->state, w, values), ST_OK);
        free(values);
    }
}

// Writes the initial weights, rounded by a seed, as a checkpoint that a run can start from.
static char *rounded_write(arena *a, int model, int seed)
{
    const char *list[SETTINGS];
    char name[32], *folder = NULL, *path = NULL;
    run_config r;
    config *c = NULL;
    decoder_spec spec;
    assemble_plans *plans = NULL;
    train_job job;
    text words = {.a = a};
    (void)snprintf(name, sizeof(name), "from-%d-%d", model, seed);
    test_config(name, list, settings_of(model, NULL, list), a, &r, &c);
    assert_int_equal(model_spec_from_config(host_real(), a, &r, &spec), ST_OK);
    assert_int_equal(arena_new(a, 1, &plans), ST_OK);
    const assemble_options options = {.threads = 1, .device = "cpu", .backend = "cpu"};
    assert_int_equal(assemble_rank(a, &r, &spec, &options, plans), ST_OK);
    assert_int_equal(train_job_create(host_real(), a, plans, &options, NULL, NULL, &job), ST_OK);
    assert_int_equal(train_job_weights(&job, a), ST_OK);
    weights_round(&job, plans->whole, seed);
    assert_int_equal(model_spec_print_json(&spec, &words), ST_OK);
    const ckpt_extra extras[] = {{"config.json", words.bytes}, {"config.resolved.yaml", "{}\n"}};
    const ckpt_info info = {.val_loss = (double)NAN, .best_val_loss = (double)NAN, .numerics = ""};
    assert_int_equal(arena_format(a, &folder, "%s/%s", test_folder, name), ST_OK);
    assert_int_equal(host_real()->api->path_mkdir(host_real(), folder), ST_OK);
    assert_int_equal(ckpt_save(&job.state, a, folder, 0, &info, extras, COUNT_OF(extras), &path),
                     ST_OK);
    train_job_destroy(&job);
    return path;
}

// Runs one rank from those weights, with their model.
static losses rounded_run(int model, int seed)
{
    arena *a = NULL;
    run_config r = {0};
    config *c = NULL;
    run_seen seen = {0};
    overrides o = {.count = 0};
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    add(&o, "model.from=%s", rounded_write(a, model, seed));
    add(&o, "run.dir=%s/seed-%d-%d", test_folder, model, seed);
    add(&o, "data.train=%s", text_path);
    for (int i = 0; i < COUNT_OF(common); i++) add(&o, "%s", common[i]);
    // as test_config does
    add(&o, "data.tokenizer=bytes");
    add(&o, "train.seq=32");
    add(&o, "train.global_batch=8");
    add(&o, "optimizer.lr=3e-3");
    add(&o, "schedule.warmup=2");
    const status loaded = run_config_load(host_real(), a, NULL, o.list, o.count, &r, &c);
    if (loaded != ST_OK) print_error("%s\n", error_last()->text);
    assert_int_equal(loaded, ST_OK);
    const train_watcher watcher = {.context = &seen,
                                   .step = on_step,
                                   .validated = on_validated,
                                   .saved = on_saved,
                                   .said = on_said,
                                   .stop_asked = on_stop};
    train_outcome outcome;
    const train_order order = {.r = &r, .c = c, .resume = "none", .watcher = &watcher};
    const status st = train_run(host_real(), a, &order, &outcome);
    if (st != ST_OK) print_error("%s\n", error_last()->text);
    assert_int_equal(st, ST_OK);
    arena_destroy(a);
    return losses_of(&seen);
}

// ---- layouts ------------------------------------------------------------------------------------

static double spread_at(const losses seeds[SEEDS], int step)
{
    double least = seeds[0].of[step], most = least;
    for (int s = 1; s < SEEDS; s++) {
        least = fmin(least, seeds[s].of[step]);
        most = fmax(most, seeds[s].of[step]);
    }
    return most - least;
}

// The largest distance from one rank, in units of the step's spread.
static double worst_of(const losses *one, const losses *many, const losses seeds[SEEDS])
{
    double worst = 0.0;
    for (int step = 0; step < STEPS; step++) {
        const double apart = fabs(many->of[step] - one->of[step]);
        worst = fmax(worst, apart / spread_at(seeds, step));
    }
    return worst;
}

static void layouts_are_as_near_as_rounding(void **state)
{
    (void)state;
    static const char *const hotter[MORE] = {"optimizer.lr=3.03e-3"};
    for (int model = 0; model < COUNT_OF(models); model++) {
        losses seeds[SEEDS];
        char name[32];
        (void)snprintf(name, sizeof(name), "one-%d", model);
        const losses one = one_rank(name, model, NULL);
        for (int s = 0; s < SEEDS; s++) seeds[s] = rounded_run(model, s + 1);
        for (int step = 0; step < STEPS; step++) assert_true(spread_at(seeds, step) > 0.0);
        print_message("%s: spread %.2g at the first step, %.2g at the last\n", models[model][0],
                      spread_at(seeds, 0), spread_at(seeds, STEPS - 1));
        for (int i = 0; i < COUNT_OF(layouts); i++) {
            if (part_skips(TRIALS_PART, i, COUNT_OF(layouts), model, COUNT_OF(models))) continue;
            (void)snprintf(name, sizeof(name), "many-%d-%d", model, i);
            const losses many = many_ranks(name, model, &layouts[i]);
            const double worst = worst_of(&one, &many, seeds);
            print_message("    %.2f spreads: %s %s\n", worst, layouts[i].keys[0],
                          layouts[i].keys[1] != NULL ? layouts[i].keys[1] : "");
            assert_true(worst <= 3.0);
        }
        (void)snprintf(name, sizeof(name), "hotter-%d", model);
        const losses other = one_rank(name, model, hotter);
        const double worst = worst_of(&one, &other, seeds);
        print_message("    %.2f spreads: a learning rate a hundredth higher\n", worst);
        assert_true(worst > 3.0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(layouts_are_as_near_as_rounding)};
    return cmocka_run_group_tests(tests, test_run_setup, test_run_teardown);
}
