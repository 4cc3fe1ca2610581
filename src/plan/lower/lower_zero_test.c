// ZeRO: the plans of all ranks are sound, for every stage, group, schedule and order; and a rank
// holds as much as the paper says.
#include "fixtures/plan/verify_sample.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void print_settings(const sample_settings *s, const char *why)
{
    print_error(
        "dp %d / %d pp %d %s zero %d strict %d sequences %d micro-batch %d recompute %d tied %d "
        "evaluation %d compressed %d: %s\n",
        s->dp, s->zero_group, s->pp, s->schedule != NULL ? s->schedule : "", s->zero, s->strict,
        (int)s->sequences, (int)s->micro_batch, (int)s->recompute, !s->untied, s->alone,
        s->compressed, why);
}

// Counts sound plans; a layout may be refused only for its micro-batches.
static void job_is_sound(const sample_settings *s, int64_t *sound)
{
    arena *a = NULL;
    sample_job j;
    plan_verified v;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    status st = sample_make(a, s, &j);
    if (st == ST_OK) {
        st = sample_verify(&j, &v);
        if (st != ST_OK) print_settings(s, error_last()->text);
        assert_int_equal(st, ST_OK);
        (*sound)++;
    } else {
        if (st != ST_CONFIG_CONFLICT) print_settings(s, error_last()->text);
        assert_int_equal(st, ST_CONFIG_CONFLICT);
    }
    arena_destroy(a);
}

static void one_stage_is_sound(void **state)
{
    (void)state;
    int64_t sound = 0;
    static const int32_t groups[][2] = {{2, 0}, {3, 0}, {4, 0}, {4, 2}, {6, 3}, {6, 2}};
    for (int g = 0; g < COUNT_OF(groups); g++) {
        for (int32_t i = 0; i < 16; i++) {
            const sample_settings s = {.dp = groups[g][0],
                                       .zero_group = groups[g][1],
                                       .zero = 1 + i % 3,
                                       .strict = i / 3 % 2 != 0,
                                       .micro_batch = (int64_t[]){0, 1, 2, 1}[i / 6 % 4],
                                       .sequences = i / 8 != 0 ? 24 : 12,
                                       .recompute = (op_recompute)(i / 8 % 3),
                                       .untied = i % 5 == 0,
                                       .alone = i % 11 == 7,
                                       .layers = 1 + i % 4,
                                       .shards = i % 7 == 0 ? 12 : 8};
            job_is_sound(&s, &sound);
        }
    }
    assert_true(sound > 70);
}

// Some ranks have no rows of some weights: 8 over 6, 12, 2 x 6.
static void ranks_without_rows_are_sound(void **state)
{
    (void)state;
    int64_t sound = 0;
    static const int32_t groups[][3] = {{6, 0, 1}, {12, 0, 1}, {12, 6, 1}, {6, 0, 2}};
    for (int32_t i = 0; i < 6 * COUNT_OF(groups); i++) {
        const int32_t *g = groups[i / 6];
        const sample_settings s = {.dp = g[0],
                                   .zero_group = g[1],
                                   .pp = g[2],
                                   .schedule = "1f1b",
                                   .zero = 1 + i % 3,
                                   .strict = i / 3 % 2 != 0,
                                   .micro_batch = 1,
                                   .sequences = 24,
                                   .untied = i % 2 == 0,
                                   .alone = i % 5 == 4,
                                   .layers = 2,
                                   .dim = 8,
                                   .shards = 12};
        job_is_sound(&s, &sound);
    }
    assert_true(sound >= 20);
}

// The verifier refuses the plans of all ranks after each of the mistakes.
static void each_is_found(const sample_settings *s, int mistakes,
                          void (*make)(sample_job *j, int mistake))
{
    for (int i = 0; i < mistakes; i++) {
        arena *a = NULL;
        sample_job j;
        plan_verified v;
        assert_int_equal(arena_create("test", 0, &a), ST_OK);
        assert_int_equal(sample_make(a, s, &j), ST_OK);
        make(&j, i);
        const status st = sample_verify(&j, &v);
        if (st != ST_BROKEN_PLAN) print_error("mistake %d is not found\n", i);
        assert_int_equal(st, ST_BROKEN_PLAN);
        arena_destroy(a);
    }
}

// Changes the end of pieces, on one rank or on all.
static void wrong_end_make(sample_job *j, int mistake)
{
    for (int32_t r = mistake == 0 ? 5 : 0; r < 6; r++) {
        plan *p = j->plans[r];
        const int32_t sum =
            sample_find_comm(p, COLLECTIVE_REDUCE_SCATTER, "gradients, layers.1", 0);
        const int32_t gather = sample_find_comm(p, COLLECTIVE_ALL_GATHER, "weights, layers.1", 0);
        const int32_t action = mistake == 1 ? gather : sum;
        for (int32_t k = 0; k < sample_comm(p, action)->items_count; k++) {
            plan_comm_item *item = sample_item(p, action, k);
            if (item->total > 0) item->total -= 8; // a row
        }
    }
}

static void wrong_ends_are_found(void **state)
{
    (void)state;
    const sample_settings s = {
        .dp = 6, .zero = 3, .sequences = 6, .micro_batch = 1, .layers = 2, .dim = 8};
    each_is_found(&s, 3, wrong_end_make);
}

static void pipelines_are_sound(void **state)
{
    (void)state;
    int64_t sound = 0;
    static const char *const schedules[] = {"gpipe", "1f1b", "interleaved", "zb-h1",
                                            "zb-h2", "zb-v", "dualpipe",    "dualpipe-v"};
    for (int k = 0; k < COUNT_OF(schedules); k++) {
        for (int32_t i = 0; i < 8; i++) {
            const bool grouped = i / 6 != 0;
            const sample_settings s = {.dp = grouped ? 4 : 2,
                                       .zero_group = grouped ? 2 : 0,
                                       .pp = i == 3 ? 4 : 2,
                                       .schedule = schedules[k],
                                       .zero = 1 + i % 3,
                                       .strict = i / 3 % 2 != 0,
                                       .micro_batch = 1,
                                       .sequences = grouped ? 32 : 16,
                                       .recompute = (op_recompute)(i % 2),
                                       .untied = (i + k) % 2 != 0,
                                       .alone = i % 7 == 5,
                                       .layers = 8,
                                       .shards = 8};
            job_is_sound(&s, &sound);
        }
    }
    assert_true(sound > 50);
}

// The verifier misses each wait that orders an unsharded tensor: the sum that waits for its
// gradients, the layer that waits for its weights, and the first gather, which waits for the update
// of the step before.
static void every_wait_is_needed(void **state)
{
    (void)state;
    const sample_settings s = {.dp = 2, .zero = 3, .sequences = 8, .micro_batch = 1, .layers = 3};
    for (int i = 0; i < 3; i++) {
        arena *a = NULL;
        sample_job j;
        plan_verified v;
        assert_int_equal(arena_create("test", 0, &a), ST_OK);
        assert_int_equal(sample_make(a, &s, &j), ST_OK);
        plan *p = j.plans[1];
        const int32_t action =
            i == 0   ? sample_find_comm(p, COLLECTIVE_REDUCE_SCATTER, "gradients, layers.1", 1)
            : i == 1 ? sample_find_list(p, "layers.1", OP_FORWARD, 1, 0)
                     : sample_find_comm(p, COLLECTIVE_ALL_GATHER, "weights, embed", 0);
        sample_forget_waits(p, action);
        const status st = sample_verify(&j, &v);
        if (st != ST_BROKEN_PLAN) print_error("mistake %d is not found\n", i);
        assert_int_equal(st, ST_BROKEN_PLAN);
        arena_destroy(a);
    }
}

// Compressed sums of rows with copies, inside and across groups, also if some ranks have no rows of
// some weights.
static void compressed_copies_are_sound(void **state)
{
    (void)state;
    int64_t sound = 0;
    static const int32_t groups[][3] = {{4, 2, 1}, {6, 3, 1}, {6, 2, 1}, {12, 6, 1}, {4, 2, 2}};
    for (int32_t i = 0; i < 4 * COUNT_OF(groups); i++) {
        const int32_t *g = groups[i / 4];
        const sample_settings s = {.dp = g[0],
                                   .zero_group = g[1],
                                   .pp = g[2],
                                   .schedule = i % 4 == 3 ? "dualpipe" : "1f1b",
                                   .zero = 1,
                                   .micro_batch = 1,
                                   .sequences = 24,
                                   .untied = i % 2 == 0,
                                   .layers = 4,
                                   .dim = i % 4 < 2 ? 8 : 32,
                                   .compressed = true};
        job_is_sound(&s, &sound);
    }
    assert_int_equal(sound, 4 * COUNT_OF(groups));
}

// Mistakes of the sum across groups: it is left out, shares the workspace of a sum inside, or is
// whole on one rank only.
static void wrong_sum_make(sample_job *j, int mistake)
{
    for (int32_t r = 0; r < (mistake == 2 ? 1 : 4); r++) {
        plan *p = j->plans[r];
        const int32_t across =
            sample_find_comm(p, COLLECTIVE_ALL_REDUCE, "layers.0.down.across", 0);
        const int32_t inside =
            sample_find_comm(p, COLLECTIVE_REDUCE_SCATTER, "layers.0.down.rows", 0);
        if (mistake == 0) sample_leave_out(p, across);
        if (mistake == 1) sample_comm(p, inside)->work = sample_comm(p, across)->work;
        if (mistake == 2) sample_comm(p, across)->compressed = false;
    }
}

static void wrong_sums_across_are_found(void **state)
{
    (void)state;
    const sample_settings s = {.dp = 4,
                               .zero_group = 2,
                               .zero = 1,
                               .micro_batch = 1,
                               .sequences = 8,
                               .layers = 2,
                               .compressed = true};
    each_is_found(&s, 3, wrong_sum_make);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_stage_is_sound),
        cmocka_unit_test(ranks_without_rows_are_sound),
        cmocka_unit_test(wrong_ends_are_found),
        cmocka_unit_test(pipelines_are_sound),
        cmocka_unit_test(every_wait_is_needed),
        cmocka_unit_test(compressed_copies_are_sound),
        cmocka_unit_test(wrong_sums_across_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
