// The search against a dull one that plays every layout, over random clusters; and what it says when nothing
// fits. Plays are made up: any time that is not below the layout's least.
#include "predict/search.h"

#include "fixtures/plan/plan_sample.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct world {
    cluster c;
    cost_profile profile;
    cost_model prices;
    uint64_t seed;
    int64_t plays;
    int64_t refuse;            // every so many plays; 0: none
    const search_found *known; // layouts with their least times
    int32_t known_count;
    search_layout ahead[4]; // that are played next
    int32_t ahead_count, ahead_all;
} world;

static uint64_t mixed(uint64_t x)
{
    x ^= x >> 31;
    x *= UINT64_C(0x9e3779b97f4a7c15);
    return x ^ x >> 29;
}

static void world_make(world *w, uint64_t seed)
{
    memset(w, 0, sizeof(*w));
    w->seed = seed;
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

static status model_of(void *context, arena *a, const search_layout *l, op_model **whole,
                       op_model **local)
{
    (void)context;
    const plan_sample_config config = {.layers = 8,
                                       .dim = 32,
                                       .ffn = 64,
                                       .heads = 4,
                                       .vocab = 128,
                                       .recompute = l->recompute,
                                       .purpose = PURPOSE_TRAIN,
                                       .compute = DTYPE_F32};
    TRY(plan_sample_model(a, &config, whole));
    *local = *whole;
    return ST_OK;
}

static bool is_layout(const search_layout *x, const search_layout *y)
{
    return x->dp == y->dp && x->pp == y->pp && x->chunks == y->chunks && x->zero == y->zero &&
           search_recomputes_alike(x, y->recompute, y->recompute_layers) &&
           x->schedule == y->schedule && x->micro_batch == y->micro_batch;
}

// As if the layout's messages waited for each other by chance: at least its least time.
static status play(void *context, const search_layout *l, search_played *out)
{
    world *w = context;
    const uint64_t hash =
        mixed(w->seed + (uint64_t)l->dp * 3 + (uint64_t)l->pp * 5 + (uint64_t)l->zero * 7 +
              (uint64_t)l->micro_batch * 11 + (uint64_t)l->recompute * 13 +
              (uint64_t)l->chunks * 17 + (uint64_t)l->recompute_layers * 23 +
              (l->schedule != NULL ? (uint64_t)l->schedule->name[0] * 19 : 0));
    w->plays++;
    if (w->refuse > 0 && hash % (uint64_t)w->refuse == 0) {
        return fail_at(__FILE__, __LINE__, ST_CONFIG_CONFLICT, "not this one");
    }
    *out = (search_played){.step_ns = 1, .peak_bytes = 1};
    for (int32_t i = 0; i < w->known_count; i++) {
        if (!is_layout(&w->known[i].layout, l)) continue;
        const int64_t least = w->known[i].least.step_ns;
        out->step_ns = least + (int64_t)(hash % (uint64_t)least);
    }
    return ST_OK;
}

static search_request request_of(world *w, int64_t usable, int32_t wanted, int32_t plays)
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
                        .plays = plays,
                        .calls = {.context = w, .model = model_of, .play = play}};
    r.fixed.cp = 1; // the sample has no pass of its own
    return r;
}

static void best_are_best(void **state)
{
    (void)state;
    enum { ALL = 1 << 20, WANTED = 3 };
    for (uint64_t seed = 1; seed <= 4; seed++) {
        arena *a = NULL;
        world w;
        search_result all, few;
        search_result known;
        world_make(&w, seed);
        assert_int_equal(arena_create("test", 0, &a), ST_OK);
        search_request r = request_of(&w, INT64_MAX, 20000, ALL);
        assert_int_equal(search_run(a, &r, &known), ST_OK);
        assert_int_equal(known.count, known.layouts);
        w.known = known.plans;
        w.known_count = known.count;
        w.refuse = seed % 2 == 0 ? 5 : 0;
        w.plays = 0;
        assert_int_equal(search_run(a, &r, &all), ST_OK);
        assert_int_equal(all.played + all.refused, all.layouts);
        assert_int_equal(w.plays, all.layouts);
        assert_true(all.layouts > 500);
        for (int32_t i = 1; i < all.count; i++) {
            assert_true(all.plans[i - 1].played.step_ns <= all.plans[i].played.step_ns);
        }
        r = request_of(&w, INT64_MAX, WANTED, ALL);
        assert_int_equal(search_run(a, &r, &few), ST_OK);
        assert_int_equal(few.count, WANTED);
        for (int32_t i = 0; i < WANTED; i++) {
            assert_int_equal(few.plans[i].played.step_ns, all.plans[i].played.step_ns);
        }
        assert_true(few.played < all.played);
        assert_int_equal(few.played + few.refused + few.slower, few.layouts);
        arena_destroy(a);
    }
}

static status ahead(void *context, const search_layout *const *l, int32_t count)
{
    world *w = context;
    assert_int_equal(w->ahead_count, 0);
    assert_in_range(count, 2, COUNT_OF(w->ahead));
    for (int32_t i = 0; i < count; i++) w->ahead[count - 1 - i] = *l[i];
    w->ahead_count = count;
    w->ahead_all += count;
    return ST_OK;
}

static status play_in_order(void *context, const search_layout *l, search_played *out)
{
    world *w = context;
    if (w->ahead_count > 0) assert_true(is_layout(&w->ahead[--w->ahead_count], l));
    TRY(play(context, l, out));
    out->peak_bytes = 0; // fit says it
    return ST_OK;
}

static status fit(void *context, const search_layout *l, const int32_t *stages, int32_t count,
                  search_played *out)
{
    (void)context;
    (void)l;
    (void)stages;
    (void)count;
    out->peak_bytes = 1;
    return ST_OK;
}

// Whoever may play several at once finds what is found one by one.
static void plays_ahead_change_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        for (int32_t wanted = 1; wanted <= 5; wanted += 2) {
            arena *a = NULL;
            world w;
            search_result known, found[2];
            world_make(&w, seed);
            w.refuse = seed % 2 == 0 ? 3 : 0;
            assert_int_equal(arena_create("test", 0, &a), ST_OK);
            search_request r = request_of(&w, INT64_MAX, 1 << 20, 0);
            assert_int_equal(search_run(a, &r, &known), ST_OK);
            w.known = known.plans;
            w.known_count = known.count;
            r = request_of(&w, INT64_MAX, wanted, 2 + (int32_t)seed);
            r.calls.fit = fit;
            r.calls.play = play_in_order;
            for (int i = 0; i < 2; i++) {
                r.calls.ahead = i == 0 ? NULL : ahead;
                assert_int_equal(search_run(a, &r, &found[i]), ST_OK);
            }
            assert_int_equal(w.ahead_count, 0);
            assert_int_equal(w.ahead_all > 0, wanted > 1);
            assert_int_equal(found[0].played, found[1].played);
            assert_int_equal(found[0].refused, found[1].refused);
            assert_int_equal(found[0].unknown, found[1].unknown);
            assert_int_equal(found[0].slower, found[1].slower);
            assert_int_equal(found[0].count, found[1].count);
            for (int32_t i = 0; i < found[0].count; i++) {
                const search_found *x = &found[0].plans[i], *y = &found[1].plans[i];
                assert_true(is_layout(&x->layout, &y->layout));
                assert_int_equal(x->played.step_ns, y->played.step_ns);
            }
            arena_destroy(a);
        }
    }
}

static void what_does_not_fit_is_measured(void **state)
{
    (void)state;
    arena *a = NULL;
    world w;
    search_result none, some;
    world_make(&w, 7);
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    search_request r = request_of(&w, 1, 1, 1);
    assert_int_equal(search_run(a, &r, &none), ST_OK);
    assert_int_equal(none.count, 0);
    assert_int_equal(none.too_large, none.layouts);
    assert_int_equal(w.plays, 0);
    assert_true(none.smallest.layout.dp > 0 && none.smallest.bytes > 1);
    // With exactly so many bytes that one fits, with one fewer none does, but for what ZeRO may be over.
    r = request_of(&w, none.smallest.bytes, 1, 0);
    assert_int_equal(search_run(a, &r, &some), ST_OK);
    assert_int_equal(some.count, 1);
    r.usable_bytes = none.smallest.bytes - 1;
    r.fixed.zero = 1;
    assert_int_equal(search_run(a, &r, &some), ST_OK);
    const int64_t least = some.smallest.bytes;
    assert_true(least >= none.smallest.bytes);
    r.usable_bytes = least;
    assert_int_equal(search_run(a, &r, &some), ST_OK);
    assert_int_equal(some.count, 1);
    r.usable_bytes = least - 1;
    assert_int_equal(search_run(a, &r, &some), ST_OK);
    assert_int_equal(some.count, 0);
    arena_destroy(a);
}

static void rules_are_counted(void **state)
{
    (void)state;
    arena *a = NULL;
    world w;
    search_result found;
    world_make(&w, 3);
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    search_request r = request_of(&w, INT64_MAX, 1, 1);
    r.global_batch = 5; // of 16 devices dp may be 1 only: 16 stages of 8 layers
    assert_int_equal(search_run(a, &r, &found), ST_CONFIG_CONFLICT);
    assert_non_null(strstr(error_last()->text, "no layout of 16 devices"));
    assert_true(found.ruled_out[RULE_DP_BATCH] > 0 && found.ruled_out[RULE_PP_LAYERS] > 0);
    r = request_of(&w, INT64_MAX, 1, 1);
    r.fixed.tp = 3;
    assert_int_equal(search_run(a, &r, &found), ST_CONFIG_CONFLICT);
    arena_destroy(a);
}

static void fixed_parts_stay(void **state)
{
    (void)state;
    arena *a = NULL;
    world w;
    search_result found;
    world_make(&w, 5);
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    search_request r = request_of(&w, INT64_MAX, 50, 1 << 20);
    r.fixed.pp = 4;
    r.fixed.zero = 2;
    r.fixed.micro_batch = 2;
    r.fixed.schedule = plan_schedule_find("zb-h1");
    r.fixed.recompute = RECOMPUTE_FULL;
    r.fixed.recompute_layers = 0;
    assert_int_equal(search_run(a, &r, &found), ST_OK);
    assert_int_equal(found.layouts, 1);
    const search_layout *l = &found.plans[0].layout;
    assert_int_equal(l->pp, 4);
    assert_int_equal(l->dp, 4);
    assert_int_equal(l->zero, 2);
    assert_int_equal(l->micro_batch, 2);
    assert_string_equal(l->schedule->name, "zb-h1");
    r.fixed.recompute_layers = -1; // a quarter, half and three quarters of 8, and all
    assert_int_equal(search_run(a, &r, &found), ST_OK);
    assert_int_equal(found.layouts, 4);
    arena_destroy(a);
}

// Batches of 32 and 24 sequences: ranks and micro-batches share out both.
static void batches_that_grow_are_shared_out(void **state)
{
    (void)state;
    arena *a = NULL;
    world w;
    search_result all, found;
    int64_t kept = 0;
    world_make(&w, 5);
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    search_request r = request_of(&w, INT64_MAX, 20000, 1 << 20);
    assert_int_equal(search_run(a, &r, &all), ST_OK);
    r.batch_divisor = 8;
    assert_int_equal(search_run(a, &r, &found), ST_OK);
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
    arena_destroy(a);
}

// Stages as the layout that is fixed has them: a heavy first one takes longer than even ones.
static void given_stages_are_priced(void **state)
{
    (void)state;
    static const int32_t even[] = {2, 2, 2, 2}, heavy[] = {5, 1, 1, 1};
    arena *a = NULL;
    world w;
    int64_t step_ns[3];
    world_make(&w, 5);
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
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
        assert_int_equal(search_run(a, &r, &found), ST_OK);
        assert_int_equal(found.layouts, 1);
        step_ns[i] = found.plans[0].least.step_ns;
    }
    assert_true(step_ns[2] > step_ns[1] && step_ns[2] > step_ns[0]);
    arena_destroy(a);
}

static int64_t half_bytes(void *context, int64_t count, int32_t ranks, int64_t piece)
{
    (void)context;
    return 2 * (piece > 0 ? piece : (count + ranks - 1) / ranks);
}

// Compressed are sums of a step between several ranks: nothing else is looked at, and that is said.
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
    world_make(&w, 2);
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    search_request r = request_of(&w, INT64_MAX, 20000, 1 << 20);
    assert_int_equal(search_run(a, &r, &plain), ST_OK);
    r.codec = &codec;
    assert_int_equal(search_run(a, &r, &packed), ST_OK);
    int64_t kept = 0, cheaper = 0;
    for (int32_t i = 0; i < plain.count; i++) {
        const search_layout *l = &plain.plans[i].layout;
        if (l->zero > 1 || l->dp == 1) continue;
        kept++;
        for (int32_t k = 0; k < packed.count; k++) {
            const search_found *f = &packed.plans[k];
            if (!is_layout(&f->layout, l)) continue;
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
    assert_int_equal(search_run(a, &r, &packed), ST_CONFIG_CONFLICT);
    assert_non_null(strstr(error_last()->text, "comm.compression wants"));
    assert_true(packed.ruled_out[RULE_CODEC] > 0);
    arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(best_are_best),
                                       cmocka_unit_test(plays_ahead_change_nothing),
                                       cmocka_unit_test(what_does_not_fit_is_measured),
                                       cmocka_unit_test(rules_are_counted),
                                       cmocka_unit_test(fixed_parts_stay),
                                       cmocka_unit_test(batches_that_grow_are_shared_out),
                                       cmocka_unit_test(given_stages_are_priced),
                                       cmocka_unit_test(compression_rules_layouts_out)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
