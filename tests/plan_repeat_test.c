// Very many micro-batches of which a few are lowered (predict/repeat.h): to the last byte what a
// plan of all of them says, for every schedule, and where rounds do not repeat themselves too.
#include "fixtures/base/test_part.h"
#include "fixtures/train/test_job.h"
#include "predict/repeat.h"

enum { WORDS = 24 };

static const char *const base[] = {"data.train=x",    "train.seq=64",        "train.micro_batch=1",
                                   "model.dim=64",    "model.layers=8",      "model.heads=4",
                                   "model.vocab=256", "model.ffn_dim=192",   "kernels.threads=1",
                                   "train.steps=10",  "train.precision=bf16"};

typedef struct trial {
    arena *a;
    run_config r;
    decoder_spec spec;
} trial;

static void trial_open(trial *t, const char *words)
{
    static char copy[512];
    const char *list[COUNT_OF(base) + WORDS];
    int64_t n = 0;
    config *c = NULL;
    for (; n < COUNT_OF(base); n++) list[n] = base[n];
    (void)snprintf(copy, sizeof(copy), "%s", words);
    for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " ")) list[n++] = word;
    assert_true(n <= COUNT_OF(list));
    memset(t, 0, sizeof(*t));
    assert_ok(arena_create("test", 0, &t->a));
    assert_ok(run_config_load_planned(host_real(), t->a, NULL, list, n, &t->r, &c));
    assert_ok(model_spec_from_config(host_real(), t->a, &t->r, &t->spec));
    if (t->r.layout.ep == 1) return;
    t->spec.experts = (model_experts){
        .count = 8, .top_k = 2, .shared = 1, .ffn_dim = 96, .dense_layers = 2, .every = 2};
}

// Of every stage.
static assemble_plans *assembled(trial *t, assemble_plan_fn make)
{
    assemble_plans *plans = NULL;
    const assemble_options options = {.threads = 1,
                                      .device = "cpu",
                                      .backend = "cpu",
                                      .sizes_only = true,
                                      .last = PLAN_PLACED,
                                      .make = make,
                                      .mesh = run_config_mesh(&t->r, 0)};
    assert_ok(arena_new(t->a, t->r.layout.pp, &plans));
    assert_ok(assemble_stages(t->a, &t->r, &t->spec, &options, plans));
    return plans;
}

static bool is_same(const assemble_plans *few, const assemble_plans *all)
{
    const plan *x = few->all[0], *y = all->all[0];
    return few->arena_bytes == all->arena_bytes && few->run.run_bytes == all->run.run_bytes &&
           x->transient_bytes == y->transient_bytes && x->live_bytes == y->live_bytes &&
           x->tensor_count == y->tensor_count &&
           memcmp(x->live_by_kind, y->live_by_kind, sizeof(x->live_by_kind)) == 0 &&
           memcmp(x->unsharded_by_kind, y->unsharded_by_kind, sizeof(x->unsharded_by_kind)) == 0 &&
           memcmp(x->live_without, y->live_without, sizeof(x->live_without)) == 0;
}

// How many stages were not lowered whole; what they say is what all micro-batches say.
static int64_t compare(const char *words)
{
    trial t;
    int64_t repeated = 0;
    trial_open(&t, words);
    const assemble_plans *few = assembled(&t, predict_plan_bytes), *all = assembled(&t, NULL);
    for (int32_t pp = 0; pp < t.r.layout.pp; pp++) {
        const plan *x = few[pp].all[0], *y = all[pp].all[0];
        repeated += x->repeated > 0 ? 1 : 0;
        assert_int_equal(y->repeated, 0);
        if (is_same(&few[pp], &all[pp])) continue;
        print_error("%s: stage %d, %lld repeated: %lld (%lld live), of all %lld (%lld)\n", words,
                    (int)pp, (long long)x->repeated, (long long)x->transient_bytes,
                    (long long)x->live_bytes, (long long)y->transient_bytes,
                    (long long)y->live_bytes);
        assert_true(false);
    }
    arena_destroy(t.a);
    return repeated;
}

static const char *const pipelines[] = {
    "layout.pp=2 layout.schedule=1f1b",
    "layout.pp=3 layout.schedule=1f1b",
    "layout.pp=4 layout.schedule=1f1b",
    "layout.pp=4 layout.schedule=interleaved layout.vpp=2",
    "layout.pp=2 layout.schedule=interleaved layout.vpp=4",
    "layout.pp=4 layout.schedule=zb-h1",
    "layout.pp=4 layout.schedule=zb-h2",
    "layout.pp=4 layout.schedule=zb-v",
    "layout.pp=2 layout.schedule=dualpipe-v",
    "layout.pp=4 layout.schedule=dualpipe-v",
    "layout.pp=4 layout.schedule=dualpipe",
    "layout.pp=4 layout.schedule=gpipe",
};
static const char *const besides[] = {
    "model.arch=llama layout.dp=1",
    "model.arch=llama layout.dp=2 layout.zero=1",
    "model.arch=llama layout.dp=2 layout.zero=2",
    "model.arch=llama layout.dp=2 layout.zero=3 layout.tp=2 layout.sp=yes",
    "model.arch=llama layout.dp=2 layout.zero=3 layout.zero_sums=step layout.cp=2 train.recompute=selective",
    "model.arch=llama train.recompute=full train.recompute_layers=3 layout.cp=2 layout.cp_ring=yes",
    "model.arch=llama layout.dp=2 layout.ep=2 layout.zero=2",
    "model.arch=llama train.recompute=full",
};

static void bytes_are_those_of_all(void **state)
{
    (void)state;
    int64_t repeated[COUNT_OF(pipelines)] = {0}, all = 0;
    for (int64_t k = 0; k < COUNT_OF(pipelines); k++) {
        for (int64_t i = 0; i < COUNT_OF(besides); i++) {
            if (part_skips(TRIALS_PART, k, COUNT_OF(pipelines), i, COUNT_OF(besides))) continue;
            char words[512];
            const int64_t dp = strstr(besides[i], "dp=2") != NULL ? 2 : 1;
            const int64_t batch = dp * (76 + 4 * ((k + i) % 5)); // of three stages no whole rounds
            (void)snprintf(words, sizeof(words), "%s %s train.global_batch=%lld", pipelines[k],
                           besides[i], (long long)batch);
            repeated[k] += compare(words);
        }
        print_message("%3lld stages repeated: %s\n", (long long)repeated[k], pipelines[k]);
        all += repeated[k];
    }
    assert_true(all > 100 / part_of(TRIALS_PART));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bytes_are_those_of_all)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
