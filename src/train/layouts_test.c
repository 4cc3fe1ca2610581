// One digest for every layout: a random walk, from a seed, through layouts of 1 to 8 ranks (threads
// of this process). Each trains in strict order, in fp32 and in bf16, and is compared with one
// rank. In fast order the losses are near.
//
//   LAYOUTS  layouts of each kind of model (8; make test: 3; make test-night: 120)
//   STEPS    of each run (6; 30)
//   SEED     of the walk
#include "base/rng.h"
#include "fixtures/train/test_ranks.h"

#include <stdlib.h>

enum { SHARDS = 8, SETTINGS = 32, SETTING_BYTES = 64 };

// The GPT-2 kind has learned positions, LayerNorm, biases, one table for embedding and head; the
// Llama kind has rotary positions, RMSNorm, grouped queries, a gated MLP.
static const char *const models[][8] = {
    {"model.arch=gpt2", "model.layers=8", "model.dim=32", "model.heads=4", "model.kv_heads=4",
     "model.ffn_dim=48", "model.dropout=0.1", "train.z_loss=1e-4"},
    {"model.arch=llama", "model.layers=8", "model.dim=32", "model.heads=8", "model.kv_heads=2",
     "model.ffn_dim=64", "model.tied=no", "optimizer.clip=0.5"},
};

typedef struct layout {
    char text[SETTINGS][SETTING_BYTES];
    const char *list[SETTINGS];
    int count;
    int ranks;
    bool strict;
} layout;

typedef enum walk_order { WALK_STRICT, WALK_STRICT_BF16, WALK_FAST } walk_order;

static void set(layout *l, const char *key, int64_t value)
{
    assert_true(l->count < SETTINGS);
    (void)snprintf(l->text[l->count], SETTING_BYTES, "%s=%lld", key, (long long)value);
    l->list[l->count] = l->text[l->count];
    l->count++;
}

static void set_word(layout *l, const char *key, const char *word)
{
    assert_true(l->count < SETTINGS);
    (void)snprintf(l->text[l->count], SETTING_BYTES, "%s=%s", key, word);
    l->list[l->count] = l->text[l->count];
    l->count++;
}

static int64_t number(const char *name, int64_t otherwise)
{
    const char *value = getenv(name); // a setting of the test, not of the program
    return value != NULL ? strtoll(value, NULL, 10) : otherwise;
}

static uint32_t walk; // state of the walk
static int64_t pick(int64_t count)
{
    walk = walk * 1664525u + 1013904223u;
    return (int64_t)(((uint64_t)(walk >> 8) * (uint64_t)count) >> 24);
}

static void settings_begin(layout *l, int kind, int64_t steps, walk_order order)
{
    const bool strict = order != WALK_FAST;
    *l = (layout){.ranks = 1};
    for (int i = 0; i < COUNT_OF(models[kind]); i++) {
        (void)snprintf(l->text[l->count], SETTING_BYTES, "%s", models[kind][i]);
        l->list[l->count] = l->text[l->count];
        l->count++;
    }
    l->strict = strict;
    set_word(l, "determinism", strict ? "strict" : "fast");
    if (strict) set(l, "determinism.tp_shards", 4);
    if (strict) set(l, "determinism.cp_shards", 4);
    if (order == WALK_STRICT_BF16) set_word(l, "train.precision", "bf16");
    set(l, "train.steps", steps);
    set(l, "train.global_batch", 16);
}

static void pipeline_pick(layout *l, int64_t pp, int64_t dp)
{
    static const char *const schedules[] = {"gpipe", "1f1b",       "interleaved", "zb-h1",
                                            "zb-h2", "zb-v",       "dualpipe",    "dualpipe-v",
                                            "1f1b",  "interleaved"};
    const char *schedule = schedules[pick(COUNT_OF(schedules))];
    const bool even = pp % 2 == 0 && (dp == 1 || dp == 2);
    if (strncmp(schedule, "dualpipe", 8) == 0 && (!even || pp > 4)) schedule = "zb-h1";
    if (pp > 4 && strcmp(schedule, "1f1b") != 0) schedule = "gpipe"; // needs a layer for each chunk
    const bool by_pp = pp != 3 && 16 % (dp * pp) == 0;               // micro-batches
    if (!by_pp && strcmp(schedule, "interleaved") == 0) schedule = "1f1b";
    set(l, "layout.pp", pp);
    set_word(l, "layout.schedule", schedule);
    if (strcmp(schedule, "interleaved") == 0 && pp == 2 && pick(2) == 0) set(l, "layout.vpp", 4);
    if (pp == 3 && strcmp(schedule, "zb-v") != 0) {
        static const char *const of_three[] = {"3,4,1", "2.5,4,1.5", "0,4.5,3.5"};
        set_word(l, "layout.stages", of_three[pick(3)]);
    }
    // Cuts stages by layers, with a stage boundary in the middle of one.
    const bool has_chunks = strcmp(schedule, "interleaved") == 0 || strstr(schedule, "-v") != NULL;
    if (pp == 2 && !has_chunks && pick(2) == 0) set_word(l, "layout.stages", "4.5,3.5");
}

static void layout_pick(layout *l, int kind, int64_t steps, walk_order order)
{
    const bool strict = order != WALK_FAST;
    static const int64_t sizes[] = {1, 2, 3, 4, 8};
    static const char *const recomputes[] = {"none", "selective", "full"};
    settings_begin(l, kind, steps, order);
    int64_t pp = 1, dp = 1, tp = 1, cp = 1;
    while (pp * dp * tp * cp == 1 || pp * dp * tp * cp > RANKS_MAX) {
        pp = sizes[pick(COUNT_OF(sizes))];
        dp = 1 + pick(8);
        tp = INT64_C(1) << pick(3);
        cp = INT64_C(1) << pick(3);
    }
    l->ranks = (int)(pp * dp * tp * cp);
    if (tp > 1) set(l, "layout.tp", tp);
    if (cp > 1) set(l, "layout.cp", cp);
    if (tp > 1) set_word(l, "layout.sp", pick(2) == 0 ? "yes" : "no");
    if (dp > 1) set(l, "layout.dp", dp);
    static const char *const shares[] = {"3,1", "1,4,3", "1,3,2,2"};
    const bool uneven = strict && pp == 1 && dp > 1 && dp <= 4 && (tp * cp + dp) % 2 == 0;
    if (uneven) set_word(l, "layout.shares", shares[dp - 2]);
    // If dp does not divide the batch, ranks have different numbers of micro-batches, which ZeRO-2
    // and ZeRO-3 do not always support.
    const bool even = (strict ? SHARDS : 16) % dp == 0;
    const bool once = pick(2) == 0; // strict order never sums in micro-batches
    const int64_t zero = pick(even || (once && pp == 1) ? 4 : !strict ? 2 : pp > 1 ? 3 : 4);
    if (dp * cp > 1) set(l, "layout.zero", zero);
    if (dp * cp > 1 && zero > 0 && once) set_word(l, "layout.zero_sums", "step");
    if (dp > 1 && zero > 0 && dp % 2 == 0 && pick(2) == 0)
        set(l, "layout.zero_group", dp > 2 ? dp / 2 : 2);
    if (pp > 1) pipeline_pick(l, pp, dp);
    set(l, "train.micro_batch", pp > 2 || 16 % (dp * pp * 2) != 0 ? 1 : 1 + pick(2));
    const int64_t recompute = pick(COUNT_OF(recomputes));
    set_word(l, "train.recompute", recomputes[recompute]);
    if (recompute > 0) set(l, "train.recompute_layers", pick(8)); // 0: all 8
    set(l, "kernels.threads", 1);
    set_word(l, "kernels.keep_panels", pick(2) == 0 ? "yes" : "no");
}

static void settings_print(const layout *l, const char *what)
{
    print_message("%s, %d ranks:", what, l->ranks);
    for (int i = COUNT_OF(models[0]) + 5; i < l->count; i++) print_message(" %s", l->list[i]);
    print_message("\n");
}

// Compares a layout's run with that of one rank.
static void layout_compare(const layout *l, const char *name, const run_seen *seen, hash128 one)
{
    hash128 many;
    const status st = ranks_run(name, l->list, l->count, l->ranks, "auto", 0, &many);
    if (st != ST_OK) settings_print(l, "fails");
    assert_int_equal(st, ST_OK);
    const double apart = fabs(rank_runs[0].seen.last_loss - seen->last_loss);
    const bool same = one.high == many.high && one.low == many.low;
    if (l->strict && !same) settings_print(l, "other bits");
    if (!(apart < 1e-3)) settings_print(l, "another loss");
    if (l->strict) assert_same(one, many);
    assert_true(apart < 1e-3);
}

static void walk_layouts(walk_order order, int64_t layouts, int64_t steps)
{
    walk = (uint32_t)number("SEED", 20261121);
    for (int kind = 0; kind < COUNT_OF(models); kind++) {
        static layout l;
        char name[32];
        run_seen seen = {0};
        hash128 one;
        settings_begin(&l, kind, steps, order);
        (void)snprintf(name, sizeof(name), "one-%d-%d", kind, order);
        assert_int_equal(test_run(name, l.list, l.count, "auto", &seen, &one), ST_OK);
        for (int64_t i = 0; i < layouts; i++) {
            layout_pick(&l, kind, steps, order);
            (void)snprintf(name, sizeof(name), "many-%d-%d-%lld", kind, order, (long long)i);
            layout_compare(&l, name, &seen, one);
        }
    }
    print_message("%lld layouts of %lld steps\n", (long long)(layouts * COUNT_OF(models)),
                  (long long)steps);
}

static void every_layout_has_one_digest(void **state)
{
    (void)state;
    walk_layouts(WALK_STRICT, number("LAYOUTS", 8), number("STEPS", 6));
}

static void bf16_has_one_digest(void **state)
{
    (void)state;
    walk_layouts(WALK_STRICT_BF16, (number("LAYOUTS", 8) + 1) / 2, number("STEPS", 6));
}

static void fast_layouts_are_near(void **state)
{
    (void)state;
    walk_layouts(WALK_FAST, number("LAYOUTS", 8) / 2, number("STEPS", 6));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_has_one_digest),
        cmocka_unit_test(bf16_has_one_digest),
        cmocka_unit_test(fast_layouts_are_near),
    };
    return cmocka_run_group_tests(tests, test_run_setup, test_run_teardown);
}
