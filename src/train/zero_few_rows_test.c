// ZeRO over more ranks than a weight has rows, so some ranks have no rows of it. The result is that
// of one rank at every stage, and a checkpoint of such ranks loads in any layout, bit for bit.
#include "fixtures/train/test_ranks.h"

enum { KEYS = 8, COMMON = 11 };

// Weights of 4, 6, 8 and 12 rows.
static const char *const common[COMMON] = {
    "model.dim=4",         "model.heads=2",     "model.kv_heads=1", "model.ffn_dim=6",
    "model.layers=2",      "train.seq=16",      "train.steps=4",    "train.micro_batch=1",
    "optimizer.clip=0.01", "kernels.threads=1", "model.tied=no"};

typedef struct layout {
    int ranks;
    const char *keys[KEYS];
} layout;

static const layout layouts[] = {
    {8, {"layout.dp=8", "layout.zero=1"}},
    {8, {"layout.dp=8", "layout.zero=2"}},
    {8, {"layout.dp=8", "layout.zero=3"}},
    {6, {"layout.dp=3", "layout.tp=2", "layout.zero=3"}},
    {6, {"layout.dp=3", "layout.pp=2", "layout.zero=1", "layout.schedule=1f1b"}},
    {6, {"layout.dp=6", "layout.zero=1", "layout.zero_group=3"}},
    {1, {NULL}},
};

static const char *const strict = "determinism=strict", *const bf16 = "train.precision=bf16";

static int settings_of(const layout *l, const char *order, const char *more, const char **out)
{
    int n = 0;
    for (; n < COMMON; n++) out[n] = common[n];
    out[n++] = order;
    if (strcmp(order, strict) == 0) out[n++] = "determinism.tp_shards=2";
    if (more != NULL) out[n++] = more;
    if (l->ranks > 1) out[n++] = "sdc.digests=1";
    for (int i = 0; i < KEYS && l->keys[i] != NULL; i++) out[n++] = l->keys[i];
    return n;
}

static status layout_run(const char *name, const layout *l, const char *order, const char *more,
                         int64_t stop_after, run_seen *seen, hash128 *out)
{
    const char *settings[COMMON + 4 + KEYS];
    const int n = settings_of(l, order, more, settings);
    *seen = (run_seen){.stop_after = stop_after};
    if (l->ranks == 1) return test_run(name, settings, n, "auto", seen, out);
    const status st = ranks_run(name, settings, n, l->ranks, "auto", stop_after, out);
    *seen = rank_runs[0].seen;
    return st;
}

static const layout *const one = &layouts[COUNT_OF(layouts) - 1];

static void strict_has_one_digest(void **state)
{
    (void)state;
    run_seen seen;
    hash128 want, got;
    assert_int_equal(layout_run("one", one, strict, bf16, 0, &seen, &want), ST_OK);
    for (int i = 0; i + 1 < COUNT_OF(layouts); i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "strict-%d", i);
        assert_int_equal(layout_run(name, &layouts[i], strict, bf16, 0, &seen, &got), ST_OK);
        assert_same(got, want);
    }
    // Saves after two steps in one layout and finishes in another.
    static const int pairs[][2] = {{2, 3}, {3, 0}, {1, 6}, {6, 2}};
    for (int i = 0; i < COUNT_OF(pairs); i++) {
        char name[32];
        const layout *from = &layouts[pairs[i][0]], *to = &layouts[pairs[i][1]];
        (void)snprintf(name, sizeof(name), "pair-%d", i);
        assert_int_equal(layout_run(name, from, strict, bf16, 2, &seen, NULL), ST_STOPPED);
        assert_int_equal(layout_run(name, to, strict, bf16, 0, &seen, &got), ST_OK);
        assert_same(got, want);
    }
}

static void fast_is_near(void **state)
{
    (void)state;
    run_seen alone, seen;
    assert_int_equal(layout_run("fast", one, "determinism=fast", NULL, 0, &alone, NULL), ST_OK);
    for (int i = 0; i + 1 < COUNT_OF(layouts); i++) {
        char name[32];
        // Stages 2 and 3 have a collective in every micro-batch, and of three ranks some have more
        // micro-batches.
        if (layouts[i].ranks == 6 && i == 3) continue;
        (void)snprintf(name, sizeof(name), "fast-%d", i);
        assert_int_equal(layout_run(name, &layouts[i], "determinism=fast", NULL, 0, &seen, NULL),
                         ST_OK);
        assert_true(fabs(seen.last_loss - alone.last_loss) < 1e-3);
    }
    // With compression, ranks without rows have no part of the sums, nor of those across copies.
    static const int compressed[] = {0, 5};
    for (int i = 0; i < COUNT_OF(compressed); i++) {
        assert_int_equal(layout_run(i == 0 ? "small" : "copies", &layouts[compressed[i]],
                                    "determinism=fast", "comm.compression=int8", 0, &seen, NULL),
                         ST_OK);
        assert_true(fabs(seen.last_loss - alone.last_loss) < 2e-2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(strict_has_one_digest),
                                       cmocka_unit_test(fast_is_near)};
    return cmocka_run_group_tests(tests, test_run_setup, test_run_teardown);
}
