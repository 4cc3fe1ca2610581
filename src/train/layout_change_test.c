// A run resumes in another layout bit for bit: it is saved in each layout and loaded in others,
// with one digest in strict order.
//
//   ALL_PAIRS=1  each layout to each other one (make test: to one other, in fp32 or bf16;
//                make test-night: in both)
#include "fixtures/base/test_part.h"
#include "fixtures/train/test_ranks.h"

#include <stdlib.h>

enum { SETTINGS = 10, COMMON = 8 };

static const char *const common[COMMON] = {
    "determinism=strict",  "determinism.tp_shards=4", "model.layers=4", "model.kv_heads=2",
    "train.micro_batch=1", "model.dropout=0.1",       "train.steps=4",  "determinism.cp_shards=2"};

typedef struct layout {
    int ranks;
    const char *keys[SETTINGS];
} layout;

static const layout layouts[] = {
    {1, {NULL}},
    {2, {"layout.dp=2"}},
    {3, {"layout.dp=3", "layout.zero=1"}},
    {2, {"layout.pp=2"}},
    {4, {"layout.pp=4", "layout.schedule=gpipe"}},
    {2, {"layout.pp=2", "layout.schedule=interleaved"}},
    {3, {"layout.pp=3", "layout.stages=1.5,1,1.5", "layout.schedule=zb-h1"}},
    {3, {"layout.pp=3", "layout.stages=0,4,0", "layout.schedule=1f1b"}},
    {4, {"layout.pp=2", "layout.dp=2", "layout.zero=1"}},
    {4, {"layout.pp=2", "layout.dp=2", "layout.zero=1", "layout.schedule=zb-v"}},
    {2, {"layout.pp=2", "layout.schedule=dualpipe"}},
    {2, {"layout.pp=2", "layout.schedule=dualpipe-v"}},
    {2, {"layout.tp=2"}},
    {4, {"layout.tp=4", "layout.sp=yes"}},
    {4, {"layout.tp=2", "layout.dp=2", "layout.zero=1"}},
    {8, {"layout.tp=2", "layout.pp=2", "layout.dp=2", "layout.zero=1"}},
    {8, {"layout.dp=8", "layout.zero=1"}},
    {4, {"layout.dp=2", "layout.cp=2", "layout.zero=1"}},
};

// Adds `more` to the common settings. The precisions save different tensors.
static int settings_of(const layout *l, const char *precision, const char **out)
{
    int n = 0;
    for (; n < COMMON; n++) out[n] = common[n];
    out[n++] = precision;
    out[n++] = "kernels.threads=1";
    for (int i = 0; i < SETTINGS && l->keys[i] != NULL; i++) out[n++] = l->keys[i];
    return n;
}

static status layout_run(const char *name, const layout *l, const char *precision,
                         int64_t stop_after, hash128 *out)
{
    const char *settings[COMMON + 2 + SETTINGS];
    const int n = settings_of(l, precision, settings);
    run_seen seen = {.stop_after = stop_after};
    if (l->ranks == 1) return test_run(name, settings, n, "auto", &seen, out);
    return ranks_run(name, settings, n, l->ranks, "auto", stop_after, out);
}

// Saves after two steps in one layout and finishes in another.
static void pair_check(int from, int to, const char *precision, hash128 want)
{
    char name[32];
    hash128 got;
    (void)snprintf(name, sizeof(name), "%d-%d-%.4s", from, to,
                   precision + strlen("train.precision="));
    const status saved = layout_run(name, &layouts[from], precision, 2, NULL);
    if (saved != ST_STOPPED) print_error("layout %d, saving: %d\n", from, (int)saved);
    assert_int_equal(saved, ST_STOPPED);
    const status loaded = layout_run(name, &layouts[to], precision, 0, &got);
    if (loaded != ST_OK) print_error("layout %d after %d: %d\n", to, from, (int)loaded);
    assert_int_equal(loaded, ST_OK);
    if (got.high != want.high || got.low != want.low) {
        print_error("saved in layout %d, loaded in %d: other bits\n", from, to);
    }
    assert_same(got, want);
}

static void layouts_change_on_resume(void **state)
{
    static const char *const precisions[] = {"train.precision=fp32", "train.precision=bf16"};
    (void)state;
    const bool all = getenv("ALL_PAIRS") != NULL; // a setting of the test, not of the program
    for (int p = 0; p < COUNT_OF(precisions); p++) {
        hash128 want;
        char name[32];
        (void)snprintf(name, sizeof(name), "straight-%d", p);
        assert_int_equal(layout_run(name, &layouts[0], precisions[p], 0, &want), ST_OK);
        const int count = COUNT_OF(layouts);
        for (int from = 0; from < count; from++) {
            for (int to = 0; to < count; to++) {
                const int step = (to - from + count) % count;
                if (step == 0 || (!all && step != (p == 0 ? 1 : 7))) continue;
                if (part_skips(TRIALS_PART, from, count, p, COUNT_OF(precisions))) continue;
                pair_check(from, to, precisions[p], want);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(layouts_change_on_resume)};
    return cmocka_run_group_tests(tests, test_run_setup, test_run_teardown);
}
