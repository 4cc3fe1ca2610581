// Context parallelism in whole runs: ranks that have some positions of every sequence give the
// result of one rank. In strict order, with determinism.cp_shards, the digest is equal. The daily
// test runs each layout with some of the models and orders.
#include "fixtures/base/test_part.h"
#include "fixtures/train/test_ranks.h"

enum { SETTINGS_MAX = 20 };

// Grouped queries with a window and packed documents; learned positions, biases, a tied table and
// dropout everywhere; documents with full recomputation.
static const char *const kinds[][6] = {
    {"model.arch=mistral", "model.heads=8", "model.kv_heads=4", "model.window=11",
     "data.packing=masked"},
    {"model.arch=gpt2", "model.heads=4", "model.kv_heads=4", "model.dropout=0.1", "model.tied=yes"},
    {"data.packing=masked", "train.recompute=full", "eval.every=3", "eval.batches=2"},
};

static int settings_of(const char *const *from, int most, const char **out, int n)
{
    for (int i = 0; i < most && from[i] != NULL; i++) {
        assert_true(n < SETTINGS_MAX);
        out[n++] = from[i];
    }
    return n;
}

typedef struct layout {
    int cp, dp, tp, pp, zero;
    int heads; // layout.cp_heads; 0: 1
    bool ring;
} layout;

static int ranks_of(const layout *l)
{
    return l->cp * l->dp * l->tp * l->pp;
}

// Adds the layout's settings.
enum { TEXTS = 6 };
static int layout_set(const layout *l, char texts[TEXTS][32], const char **out, int n)
{
    (void)snprintf(texts[0], 32, "layout.cp=%d", l->cp);
    (void)snprintf(texts[1], 32, "layout.dp=%d", l->dp);
    (void)snprintf(texts[2], 32, "layout.tp=%d", l->tp);
    (void)snprintf(texts[3], 32, "layout.pp=%d", l->pp);
    (void)snprintf(texts[4], 32, "layout.zero=%d", l->zero);
    (void)snprintf(texts[5], 32, "layout.cp_heads=%d", l->heads);
    for (int i = 0; i < TEXTS; i++) {
        if (i < 4 || (i == 4 && l->zero > 0) || (i == 5 && l->heads > 0)) out[n++] = texts[i];
    }
    if (l->ring) out[n++] = "layout.cp_ring=yes";
    out[n++] = "kernels.threads=1";
    return n;
}

static const char *const orders[][6] = {
    {"determinism=strict", "determinism.cp_shards=4"},
    {"determinism=strict", "determinism.cp_shards=4", "train.precision=bf16", "train.micro_batch=2",
     "determinism.shards=3"},
};
static const layout strict_layouts[] = {{2, 1, 1, 1, 0, 0, false}, {4, 1, 1, 1, 0, 0, false},
                                        {2, 2, 1, 1, 0, 0, false}, {2, 1, 1, 2, 0, 0, false},
                                        {2, 2, 1, 1, 1, 0, false}, {2, 1, 1, 1, 0, 2, false},
                                        {4, 1, 1, 1, 0, 2, false}, {2, 2, 1, 2, 0, 2, false}};

static void strict_ranks_are_one(void **state)
{
    (void)state;
    const int turns = COUNT_OF(kinds) * COUNT_OF(orders);
    for (int i = 0; i < turns; i++) {
        const char *settings[SETTINGS_MAX];
        int n = settings_of(kinds[i / (int)COUNT_OF(orders)], 6, settings, 0);
        n = settings_of(orders[i % (int)COUNT_OF(orders)], 6, settings, n);
        run_seen seen = {0};
        hash128 one, many;
        char name[40], texts[TEXTS][32];
        (void)snprintf(name, sizeof(name), "cp-one-%d", i);
        assert_int_equal(test_run(name, settings, n, "auto", &seen, &one), ST_OK);
        for (int m = 0; m < COUNT_OF(strict_layouts); m++) {
            const layout *l = &strict_layouts[m];
            if (l->heads > 0 && i % (int)COUNT_OF(orders) != m % (int)COUNT_OF(orders)) continue;
            if (part_skips(TRIALS_PART, m, COUNT_OF(strict_layouts), i, turns)) continue;
            (void)snprintf(name, sizeof(name), "cp-many-%d-%d", i, m);
            const int all = layout_set(l, texts, settings, n);
            assert_int_equal(ranks_run(name, settings, all, ranks_of(l), "auto", 0, &many), ST_OK);
            print_message("%s: cp %d (%d over heads) dp %d tp %d pp %d zero %d: loss %.9g, one "
                          "rank %.9g\n",
                          name, l->cp, l->heads, l->dp, l->tp, l->pp, l->zero,
                          rank_runs[0].seen.last_loss, seen.last_loss);
            assert_same(one, many);
        }
    }
}

enum { GATHERED = 8 }; // number of rows that gather
static const layout fast_layouts[] = {
    {2, 1, 1, 1, 0, 0, false}, {4, 1, 1, 1, 0, 0, false}, {2, 2, 1, 1, 0, 0, false},
    {2, 1, 2, 1, 0, 0, false}, {2, 1, 1, 2, 0, 0, false}, {8, 1, 1, 1, 0, 0, false},
    {2, 2, 1, 1, 1, 0, false}, {2, 2, 1, 1, 3, 0, false}, // gathered
    {2, 1, 1, 1, 0, 2, false}, {4, 1, 1, 1, 0, 4, false}, {4, 1, 1, 1, 0, 2, false},
    {2, 1, 2, 1, 0, 2, false}, {2, 1, 1, 2, 0, 2, false}, // heads distributed
    {2, 1, 1, 1, 0, 0, true},  {4, 1, 1, 1, 0, 0, true},  {4, 1, 1, 1, 0, 2, true},
    {2, 1, 2, 1, 0, 0, true},  {4, 1, 1, 2, 0, 0, true}}; // in a ring

// Fast order gives other bits and nearly the same losses.
static void fast_ranks_are_near(void **state)
{
    (void)state;
    for (int kind = 0; kind < COUNT_OF(kinds); kind++) {
        const char *settings[SETTINGS_MAX];
        const int n = settings_of(kinds[kind], 6, settings, 0);
        run_seen seen = {0};
        char name[40], texts[TEXTS][32];
        (void)snprintf(name, sizeof(name), "cp-fast-one-%d", kind);
        assert_int_equal(test_run(name, settings, n, "auto", &seen, NULL), ST_OK);
        for (int m = 0; m < COUNT_OF(fast_layouts); m++) {
            const layout *l = &fast_layouts[m];
            if (m >= GATHERED && m % (int)COUNT_OF(kinds) != kind) continue; // in turn
            if (m < GATHERED && part_skips(TRIALS_PART, m, GATHERED, kind, COUNT_OF(kinds)))
                continue;
            (void)snprintf(name, sizeof(name), "cp-fast-%d-%d", kind, m);
            const int all = layout_set(l, texts, settings, n);
            assert_int_equal(ranks_run(name, settings, all, ranks_of(l), "auto", 0, NULL), ST_OK);
            const double loss = rank_runs[0].seen.last_loss;
            print_message("%s: cp %d (%d over heads%s) dp %d tp %d pp %d zero %d: loss %.9g, one "
                          "rank %.9g\n",
                          name, l->cp, l->heads, l->ring ? ", ring" : "", l->dp, l->tp, l->pp,
                          l->zero, loss, seen.last_loss);
            assert_true(fabs(loss - seen.last_loss) < 1e-3);
        }
    }
}

// Sequences whose pieces are shorter than the zigzag layout makes them.
static void small_pieces_are_near(void **state)
{
    (void)state;
    static const layout layouts[] = {
        {2, 1, 1, 1, 0, 0, false}, {4, 1, 1, 1, 0, 2, false}, {4, 1, 1, 1, 0, 0, true}};
    const char *settings[SETTINGS_MAX];
    char name[40], texts[TEXTS][32];
    int n = settings_of(kinds[0], 6, settings, 0);
    settings[n++] = "train.seq=256";
    settings[n++] = "train.steps=3";
    run_seen seen = {0};
    assert_int_equal(test_run("cp-small-one", settings, n, "auto", &seen, NULL), ST_OK);
    for (int m = 0; m < COUNT_OF(layouts); m++) {
        (void)snprintf(name, sizeof(name), "cp-small-%d", m);
        const int all = layout_set(&layouts[m], texts, settings, n);
        assert_int_equal(ranks_run(name, settings, all, layouts[m].cp, "auto", 0, NULL), ST_OK);
        assert_true(run_config_cp_turns(&rank_runs[0].r) > 1);
        assert_true(fabs(rank_runs[0].seen.last_loss - seen.last_loss) < 1e-3);
    }
}

// Matrices are cut too: both strict orders hold at once, and layout.sp cuts a rank's positions
// again.
static void strict_with_tensor_parallelism(void **state)
{
    (void)state;
    static const layout cuts[] = {
        {2, 1, 2, 1, 0, 0, false}, {4, 1, 2, 1, 0, 0, false}, {4, 1, 2, 1, 0, 2, false}};
    static const char *const order[] = {"determinism=strict", "determinism.cp_shards=4",
                                        "determinism.tp_shards=2", NULL};
    for (int kind = 0; kind < 2; kind++) {
        const char *settings[SETTINGS_MAX];
        int n = settings_of(kinds[kind], 6, settings, 0);
        n = settings_of(order, 4, settings, n);
        run_seen seen = {0};
        hash128 one, many;
        char name[40], texts[TEXTS][32];
        (void)snprintf(name, sizeof(name), "cp-tp-one-%d", kind);
        assert_int_equal(test_run(name, settings, n, "auto", &seen, &one), ST_OK);
        for (int m = 0; m < COUNT_OF(cuts); m++) {
            (void)snprintf(name, sizeof(name), "cp-tp-%d-%d", kind, m);
            int all = layout_set(&cuts[m], texts, settings, n);
            if (part_skips(TRIALS_PART, m, COUNT_OF(cuts), kind, 2)) continue;
            if (cuts[m].cp == 4 && cuts[m].heads == 0) settings[all++] = "layout.sp=yes";
            assert_int_equal(ranks_run(name, settings, all, ranks_of(&cuts[m]), "auto", 0, &many),
                             ST_OK);
            assert_same(one, many);
        }
    }
}

// A run stops with one number of ranks and resumes with another.
static void ranks_change_on_resume(void **state)
{
    (void)state;
    static const layout two = {2, 1, 1, 1, 0, 2, false}, four = {4, 1, 1, 1, 0, 0, false};
    const char *settings[SETTINGS_MAX];
    char texts[TEXTS][32];
    const int n = settings_of(orders[0], 6, settings, 0);
    run_seen seen = {0};
    hash128 straight, changed;
    assert_int_equal(test_run("cp-straight", settings, n, "auto", &seen, &straight), ST_OK);
    int all = layout_set(&two, texts, settings, n);
    assert_int_equal(ranks_run("cp-changed", settings, all, 2, "auto", 2, NULL), ST_STOPPED);
    all = layout_set(&four, texts, settings, n);
    assert_int_equal(ranks_run("cp-changed", settings, all, 4, "auto", 4, NULL), ST_STOPPED);
    seen = (run_seen){0};
    assert_int_equal(test_run("cp-changed", settings, n, "auto", &seen, &changed), ST_OK);
    assert_same(straight, changed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fast_ranks_are_near),    cmocka_unit_test(small_pieces_are_near),
        cmocka_unit_test(strict_ranks_are_one),   cmocka_unit_test(strict_with_tensor_parallelism),
        cmocka_unit_test(ranks_change_on_resume),
    };
    return cmocka_run_group_tests(tests, test_run_setup, test_run_teardown);
}
