// Compares the search with a brute-force search that simulates every layout, over random clusters;
// and tests its report when no layout fits.
#include "predict/search.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct world {
    cluster c;
    cost_profile profile;
    cost_model prices;
    candidates each;
} world;

static void assert_ok(status st)
{
    if (st != ST_OK) print_error("%s: %s\n", status_name(st), error_last()->text);
    assert_int_equal(st, ST_OK);
}

static uint64_t mixed(uint64_t x)
{
    x ^= x >> 31;
    x *= UINT64_C(0x9e3779b97f4a7c15);
    return x ^ x >> 29;
}

static void world_make(world *w, uint64_t seed)
{
    memset(w, 0, sizeof(*w));
    w->c = (cluster){.name = "test",
                     .devices = 16,
                     .device = {.name = "device",
                                .maker = "none",
                                .memory_bytes = 1e9,
                                .usable_bytes = 1e9,
                                .memory_bytes_s = 1e11 * (double)(1 + mixed(seed) % 8),
                                .launch_s = 1e-6},
                     .node = {.devices = 4, .host_bytes_s = 1e10},
                     .level_count = 2};
    w->c.device.peak_flops[MATH_FP32] = 1e12 * (double)(1 + mixed(seed + 1) % 8);
    w->c.levels[0] = (cluster_level){.name = "node",
                                     .devices = 4,
                                     .bytes_s = 1e10 * (double)(1 + mixed(seed + 2) % 16),
                                     .latency_s = 1e-6,
                                     .efficiency = 1.0,
                                     .taper = 1.0};
    w->c.levels[1] = (cluster_level){.name = "net",
                                     .devices = 16,
                                     .bytes_s = 1e9 * (double)(1 + mixed(seed + 3) % 16),
                                     .latency_s = 1e-5,
                                     .efficiency = 1.0,
                                     .taper = 1.0};
    w->profile = cost_profile_trireme();
    w->prices = (cost_model){.c = &w->c, .profile = &w->profile};
}

// The searched run: a small decoder with short sequences, so that a second suffices for hundreds of
// simulations.
static void each_make(world *w, arena *a)
{
    static const char *const keys[] = {
        "model.arch=llama",    "model.layers=8",   "model.dim=32",          "model.heads=4",
        "model.kv_heads=4",    "model.ffn_dim=64", "model.vocab=128",       "train.seq=64",
        "model.context=64",    "train.steps=1",    "train.global_batch=32", "train.recompute=none",
        "train.micro_batch=1", "layout.mode=given"};
    candidates *c = &w->each;
    config *values = NULL;
    assert_ok(arena_new(a, 1, &c->base.r));
    assert_ok(run_config_load_searched(host_real(), a, NULL, keys, COUNT_OF(keys), true, c->base.r,
                                       &values));
    assert_ok(model_spec_from_config(host_real(), a, c->base.r, &c->base.spec));
    c->base.name = "test";
    c->base.machine = w->c;
    c->base.profile = w->profile;
    c->base.rule = cost_flops_at(0);
    assert_ok(candidates_scratch_create(c));
}

static void world_open(world *w, uint64_t seed, arena **a)
{
    assert_ok(arena_create("test", 0, a));
    world_make(w, seed);
    each_make(w, *a);
}

static void world_close(world *w, arena *a)
{
    candidates_scratch_destroy(&w->each);
    arena_destroy(a);
}

static search_request request_of(world *w, int64_t usable, int32_t wanted, int32_t simulations)
{
    search_request r = {.devices = w->c.devices,
                        .layers = 8,
                        .heads = 4,
                        .kv_heads = 4,
                        .ffn_dim = 64,
                        .seq = 64,
                        .global_batch = 32,
                        .tp_max = 1,
                        .states = {.moments = DTYPE_F32},
                        .prices = &w->prices,
                        .usable_bytes = usable,
                        .fixed = search_fixed_none(),
                        .wanted = wanted,
                        .simulations = simulations,
                        .each = &w->each};
    r.fixed.cp = 1;
    return r;
}

static status searched(world *w, arena *a, const search_request *r, search_result *out)
{
    candidates_begin(&w->each, r->simulations > 0);
    return search_run(a, r, out);
}

// With the best step as the limit a search finds the same layout; below all least times it finds
// none, without a simulation.
static void limits_leave_out(world *w, arena *a, search_request *r, const search_result *all)
{
    search_result found;
    int64_t least_ns = INT64_MAX;
    for (int32_t i = 0; i < all->count; i++) {
        least_ns = min_i64(least_ns, all->plans[i].least.step_ns);
    }
    r->wanted = 1;
    r->limit_ns = all->plans[0].simulated.step_ns;
    assert_ok(searched(w, a, r, &found));
    assert_int_equal(found.count, 1);
    assert_int_equal(found.plans[0].simulated.step_ns, all->plans[0].simulated.step_ns);
    r->limit_ns = least_ns - 1;
    assert_ok(searched(w, a, r, &found));
    assert_int_equal(found.count, 0);
    assert_int_equal(found.simulated, 0);
    assert_true(found.limited);
}

// Simulates every layout of some micro-batches and recomputations.
static void best_are_best(void **state)
{
    (void)state;
    enum { ALL = 1 << 20, WANTED = 3 };
    for (uint64_t seed = 1; seed <= 4; seed++) {
        arena *a = NULL;
        world w;
        search_result all, few;
        world_open(&w, seed, &a);
        search_request r = request_of(&w, INT64_MAX, 20000, ALL);
        r.fixed.micro_batch = 1 << seed % 2;
        r.fixed.recompute = seed > 2 ? RECOMPUTE_NONE : RECOMPUTE_FULL;
        r.fixed.recompute_layers = 0;
        assert_ok(searched(&w, a, &r, &all));
        assert_int_equal(all.count + all.refused, all.layouts);
        assert_int_equal(all.simulated, all.count);
        assert_int_equal(w.each.figure_count, all.simulated);
        assert_true(all.layouts > 60);
        for (int32_t i = 0; i < all.count; i++) {
            const search_found *f = &all.plans[i];
            assert_true(f->simulated.step_ns >= f->least.step_ns && f->least.step_ns > 0);
            assert_true(i == 0 || all.plans[i - 1].simulated.step_ns <= f->simulated.step_ns);
        }
        r.wanted = WANTED;
        assert_ok(searched(&w, a, &r, &few));
        assert_int_equal(few.count, WANTED);
        for (int32_t i = 0; i < WANTED; i++) {
            assert_int_equal(few.plans[i].simulated.step_ns, all.plans[i].simulated.step_ns);
        }
        assert_true(few.simulated < all.simulated);
        assert_int_equal(few.simulated + few.refused + few.slower, few.layouts);
        limits_leave_out(&w, a, &r, &all);
        world_close(&w, a);
    }
}

// A search that may simulate two layouts at once finds the same as one that simulates them in
// sequence.
static void simulating_ahead_changes_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        for (int32_t wanted = 1; wanted <= 5; wanted += 2) {
            arena *a = NULL;
            world w;
            search_result found[2];
            world_open(&w, seed, &a);
            const search_request r = request_of(&w, INT64_MAX, wanted, 2 + (int32_t)seed);
            assert_ok(searched(&w, a, &r, &found[0]));
            assert_non_null(w.each.best_step); // of equal ones the first stays
            assert_int_equal(w.each.best_step->step->step_ns, found[0].plans[0].simulated.step_ns);
            assert_int_equal(w.each.ahead_count > 0, wanted > 1);
            assert_int_equal(w.each.ahead_next, w.each.ahead_count);
            arena *const best = w.each.best;
            w.each.best = NULL; // without it the search does not simulate ahead
            assert_ok(searched(&w, a, &r, &found[1]));
            assert_int_equal(w.each.ahead_count, 0);
            w.each.best = best;
            assert_int_equal(found[0].simulated, found[1].simulated);
            assert_int_equal(found[0].refused, found[1].refused);
            assert_int_equal(found[0].unknown, found[1].unknown);
            assert_int_equal(found[0].slower, found[1].slower);
            assert_int_equal(found[0].count, found[1].count);
            for (int32_t i = 0; i < found[0].count; i++) {
                const search_found *x = &found[0].plans[i], *y = &found[1].plans[i];
                assert_true(search_layout_is_same(&x->layout, &y->layout));
                assert_int_equal(x->simulated.step_ns, y->simulated.step_ns);
            }
            world_close(&w, a);
        }
    }
}

static void what_does_not_fit_is_measured(void **state)
{
    (void)state;
    arena *a = NULL;
    world w;
    search_result none, some;
    world_open(&w, 7, &a);
    search_request r = request_of(&w, 1, 1, 1);
    assert_int_equal(searched(&w, a, &r, &none), ST_OK);
    assert_int_equal(none.count, 0);
    assert_int_equal(none.too_large, none.layouts);
    assert_int_equal(w.each.figure_count, 0);
    assert_true(none.smallest.layout.dp > 0 && none.smallest.bytes > 1);
    // With exactly this many bytes one layout fits, with one fewer none does, except for ZeRO's
    // estimates above.
    r = request_of(&w, none.smallest.bytes, 1, 0);
    assert_int_equal(searched(&w, a, &r, &some), ST_OK);
    assert_int_equal(some.count, 1);
    r.usable_bytes = none.smallest.bytes - 1;
    r.fixed.zero = 1;
    assert_int_equal(searched(&w, a, &r, &some), ST_OK);
    const int64_t least = some.smallest.bytes;
    assert_true(least >= none.smallest.bytes);
    r.usable_bytes = least;
    assert_int_equal(searched(&w, a, &r, &some), ST_OK);
    assert_int_equal(some.count, 1);
    r.usable_bytes = least - 1;
    assert_int_equal(searched(&w, a, &r, &some), ST_OK);
    assert_int_equal(some.count, 0);
    world_close(&w, a);
}

static void rules_are_counted(void **state)
{
    (void)state;
    arena *a = NULL;
    world w;
    search_result found;
    world_open(&w, 3, &a);
    search_request r = request_of(&w, INT64_MAX, 1, 1);
    r.global_batch = 5; // with 16 devices only dp 1 divides it: 16 stages of 8 layers
    assert_int_equal(searched(&w, a, &r, &found), ST_CONFIG_CONFLICT);
    assert_non_null(strstr(error_last()->text, "no layout of 16 devices"));
    assert_true(found.ruled_out[RULE_DP_BATCH] > 0 && found.ruled_out[RULE_PP_LAYERS] > 0);
    r = request_of(&w, INT64_MAX, 1, 1);
    r.fixed.tp = 3;
    assert_int_equal(searched(&w, a, &r, &found), ST_CONFIG_CONFLICT);
    world_close(&w, a);
}

static void fixed_parts_stay(void **state)
{
    (void)state;
    arena *a = NULL;
    world w;
    search_result found;
    world_open(&w, 5, &a);
    search_request r = request_of(&w, INT64_MAX, 50, 1 << 20);
    r.fixed.pp = 4;
    r.fixed.zero = 2;
    r.fixed.micro_batch = 2;
    r.fixed.schedule = plan_schedule_find("zb-h1");
    r.fixed.recompute = RECOMPUTE_FULL;
    r.fixed.recompute_layers = 0;
    assert_int_equal(searched(&w, a, &r, &found), ST_OK);
    assert_int_equal(found.layouts, 1);
    const search_layout *l = &found.plans[0].layout;
    assert_int_equal(l->pp, 4);
    assert_int_equal(l->dp, 4);
    assert_int_equal(l->zero, 2);
    assert_int_equal(l->micro_batch, 2);
    assert_string_equal(l->schedule->name, "zb-h1");
    r.fixed.recompute_layers = -1; // a quarter, half and three quarters of 8, and all
    assert_int_equal(searched(&w, a, &r, &found), ST_OK);
    assert_int_equal(found.layouts, 4);
    world_close(&w, a);
}

// Batches of 32 and 24 sequences: ranks and micro-batches divide both.
static void batches_that_grow_are_shared_out(void **state)
{
    (void)state;
    arena *a = NULL;
    world w;
    search_result all, found;
    int64_t kept = 0;
    world_open(&w, 5, &a);
    search_request r = request_of(&w, INT64_MAX, 20000, 0);
    assert_int_equal(searched(&w, a, &r, &all), ST_OK);
    r.batch_divisor = 8;
    assert_int_equal(searched(&w, a, &r, &found), ST_OK);
    for (int32_t i = 0; i < all.count; i++) {
        const search_layout *l = &all.plans[i].layout;
        if (8 % (l->dp * l->micro_batch) == 0) kept++;
    }
    assert_true(kept > 0 && kept < all.count);
    assert_int_equal(found.layouts, kept);
    for (int32_t i = 0; i < found.count; i++) {
        const search_layout *l = &found.plans[i].layout;
        assert_int_equal(8 % (l->dp * l->micro_batch), 0);
    }
    world_close(&w, a);
}

// Stages of a fixed layout: a heavy first one takes longer than even ones.
static void given_stages_are_priced(void **state)
{
    (void)state;
    static const int32_t even[] = {2, 2, 2, 2}, heavy[] = {5, 1, 1, 1};
    arena *a = NULL;
    world w;
    int64_t step_ns[3];
    world_open(&w, 5, &a);
    search_request r = request_of(&w, INT64_MAX, 1, 0);
    r.fixed.pp = 4;
    r.fixed.micro_batch = 2;
    r.fixed.chunks = 1;
    r.fixed.zero = r.fixed.recompute = r.fixed.recompute_layers = 0;
    r.fixed.schedule = plan_schedule_find("1f1b");
    for (int i = 0; i < 3; i++) {
        search_result found;
        const plan_pipeline_request cut = {.schedule = r.fixed.schedule,
                                           .chunks = 1,
                                           .rows = i == 1 ? even : heavy,
                                           .rows_count = 4};
        r.pipeline = i == 0 ? NULL : &cut;
        assert_int_equal(searched(&w, a, &r, &found), ST_OK);
        assert_int_equal(found.layouts, 1);
        step_ns[i] = found.plans[0].least.step_ns;
    }
    assert_true(step_ns[2] > step_ns[1] && step_ns[2] > step_ns[0]);
    world_close(&w, a);
}

static int64_t half_bytes(void *context, int64_t count, int32_t ranks, int64_t piece)
{
    (void)context;
    return 2 * (piece > 0 ? piece : (count + ranks - 1) / ranks);
}

// Compression applies to sums of a step between several ranks: other layouts are excluded, and the
// error says so.
static void compression_rules_layouts_out(void **state)
{
    (void)state;
    arena *a = NULL;
    world w;
    search_result plain, packed;
    const plan_codec codec = {.name = "half",
                              .reals = 5,
                              .feedback_bytes = half_bytes,
                              .work_bytes = half_bytes,
                              .stream_bytes = half_bytes};
    world_open(&w, 2, &a);
    search_request r = request_of(&w, INT64_MAX, 20000, 0);
    assert_int_equal(searched(&w, a, &r, &plain), ST_OK);
    r.codec = &codec;
    assert_int_equal(searched(&w, a, &r, &packed), ST_OK);
    int64_t kept = 0, cheaper = 0;
    for (int32_t i = 0; i < plain.count; i++) {
        const search_layout *l = &plain.plans[i].layout;
        if (l->zero > 1 || l->dp == 1) continue;
        kept++;
        for (int32_t k = 0; k < packed.count; k++) {
            const search_found *f = &packed.plans[k];
            if (!search_layout_is_same(&f->layout, l)) continue;
            if (f->least.step_ns < plain.plans[i].least.step_ns) cheaper++;
        }
    }
    assert_true(kept > 100 && kept < plain.count);
    assert_int_equal(packed.layouts, kept);
    assert_int_equal(packed.count, kept);
    assert_true(cheaper > 0); // half the bytes, where they count
    for (int32_t k = 0; k < packed.count; k++) {
        assert_true(packed.plans[k].layout.zero <= 1 && packed.plans[k].layout.dp > 1);
    }
    r.fixed.zero = 2;
    assert_int_equal(searched(&w, a, &r, &packed), ST_CONFIG_CONFLICT);
    assert_non_null(strstr(error_last()->text, "comm.compression needs"));
    assert_true(packed.ruled_out[RULE_CODEC] > 0);
    world_close(&w, a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(best_are_best),
                                       cmocka_unit_test(simulating_ahead_changes_nothing),
                                       cmocka_unit_test(what_does_not_fit_is_measured),
                                       cmocka_unit_test(rules_are_counted),
                                       cmocka_unit_test(fixed_parts_stay),
                                       cmocka_unit_test(batches_that_grow_are_shared_out),
                                       cmocka_unit_test(given_stages_are_priced),
                                       cmocka_unit_test(compression_rules_layouts_out)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
