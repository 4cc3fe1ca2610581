// Tests the verifier on whole plans: every plan of plan_create is sound, for every number of ranks,
// ZeRO stage, order, micro-batch and recompute policy, and its counts are right.
#include "fixtures/plan/verify_sample.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void sample_is_sound(const sample_settings *s, int64_t *sound)
{
    arena *a = NULL;
    sample_job j;
    plan_verified v;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    if (sample_make(a, s, &j) == ST_OK) {
        if (sample_verify(&j, &v) != ST_OK) {
            print_error(
                "dp %d zero %d strict %d sequences %d micro-batch %d recompute %d compressed "
                "%d: %s\n",
                s->dp, s->zero, s->strict, (int)s->sequences, (int)s->micro_batch,
                (int)s->recompute, s->compressed, error_last()->text);
            assert_true(false);
        }
        assert_int_equal(v.ranks, plan_mesh_ranks(&j.mesh));
        for (int32_t r = 0; r < v.ranks; r++) {
            const plan *one = j.plans[r];
            assert_int_equal(v.peak_bytes[r],
                             plan_arena_bytes(&j.tables[r], (const plan *const[]){one}, 1));
        }
        if (!s->alone) assert_true(v.sums > 0);
        if (s->dp > 1) assert_true(v.rendezvous > 0);
        (*sound)++;
    }
    arena_destroy(a);
}

static void plans_that_are_made_are_sound(void **state)
{
    (void)state;
    int64_t sound = 0;
    for (int32_t dp = 1; dp <= 4; dp++) {
        for (int32_t i = 0; i < 48; i++) {
            const sample_settings s = {.dp = dp,
                                       .zero = i % 2,
                                       .strict = i / 2 % 2 != 0,
                                       .micro_batch = (int64_t[]){0, 1, 2, 4}[i / 4 % 4],
                                       .sequences = (int64_t[]){4, 8, 12}[(i / 16 + i) % 3],
                                       .recompute = (op_recompute)(i / 16 % 3),
                                       .untied = i % 11 == 0,
                                       .shards = i % 7 == 0 ? 5 : 8};
            sample_is_sound(&s, &sound);
        }
    }
    assert_true(sound > 100);
}

static void so_are_compressed_ones_and_evaluations(void **state)
{
    (void)state;
    static const char *const schedules[] = {"1f1b", "interleaved", "zb-v", "dualpipe"};
    int64_t sound = 0;
    for (int32_t i = 0; i < 2 * COUNT_OF(schedules); i++) {
        const sample_settings stages = {.pp = 2,
                                        .schedule = schedules[i / 2],
                                        .dp = 2,
                                        .zero = i % 2,
                                        .layers = 8,
                                        .sequences = 16,
                                        .micro_batch = 1,
                                        .untied = i == 0,
                                        .compressed = true};
        sample_is_sound(&stages, &sound);
    }
    for (int32_t dp = 2; dp <= 4; dp++) {
        for (int32_t zero = 0; zero < 2; zero++) {
            const sample_settings compressed = {
                .dp = dp, .zero = zero, .sequences = 12, .micro_batch = 1, .compressed = true};
            const sample_settings evaluation = {
                .dp = dp, .sequences = 12, .micro_batch = 1, .alone = true, .strict = zero != 0};
            sample_is_sound(&compressed, &sound);
            sample_is_sound(&evaluation, &sound);
        }
    }
    assert_int_equal(sound, 12 + 2 * COUNT_OF(schedules));
}

// Each sum has a row of measurements in one table, whose rows do not end at tensors' ends.
static void sums_of_any_number_measure_apart(void **state)
{
    (void)state;
    int64_t sound = 0;
    for (int layers = 1; layers <= 8; layers++) {
        const sample_settings s = {.dp = 4,
                                   .zero = 1,
                                   .zero_group = 2,
                                   .layers = layers,
                                   .sequences = 4,
                                   .micro_batch = 1,
                                   .compressed = true};
        sample_is_sound(&s, &sound);
    }
    assert_int_equal(sound, 8);
}

static const char *const schedules[] = {"gpipe", "1f1b", "interleaved", "zb-h1",
                                        "zb-h2", "zb-v", "dualpipe",    "dualpipe-v"};

static void pipelines_are_sound(void **state)
{
    (void)state;
    int64_t sound = 0;
    for (int64_t i = 0; i < COUNT_OF(schedules); i++) {
        for (int32_t k = 0; k < 9; k++) {
            const uint32_t dice = ((uint32_t)i * 9 + (uint32_t)k + 1) * 2654435761u >> 8;
            const sample_settings s = {.pp = 2 + k % 3,
                                       .schedule = schedules[i],
                                       .dp = 1 + k / 3 % 2,
                                       .micro_batch = 1 + (dice >> 3 & 1),
                                       .sequences = 16,
                                       .layers = 8,
                                       .zero = dice & 1,
                                       .strict = (dice >> 1 & 1) != 0,
                                       .alone = (dice >> 4) % 8 == 0,
                                       .untied = (dice >> 2 & 1) != 0,
                                       .recompute = (op_recompute)((dice >> 7) % 3),
                                       .stages = {k == 0 && i < 2 ? 5 : 0, 3}};
            sample_is_sound(&s, &sound);
        }
    }
    assert_true(sound > 50);
}

// A cycle of waits may need many ranks and micro-batches: shared buffers at the stage boundaries of
// a V caused one from four stages and 16 micro-batches on.
static void long_pipelines_are_sound(void **state)
{
    (void)state;
    int64_t sound = 0;
    for (int64_t i = 0; i < COUNT_OF(schedules); i++) {
        for (int32_t pp = 4; pp <= 8; pp += 2) {
            for (int32_t turns = 2; turns <= 5; turns += 3) {
                const sample_settings s = {.pp = pp,
                                           .schedule = schedules[i],
                                           .micro_batch = 1,
                                           .sequences = (int64_t)turns * pp,
                                           .layers = 2 * pp,
                                           .dim = 8};
                sample_is_sound(&s, &sound);
            }
        }
    }
    assert_int_equal(sound, 6 * COUNT_OF(schedules));
}

// Unsharded gradients of a layer whose backward halves follow one another: if one is summed while
// the next begins, the next gradient of the same weight is another tensor.
static void whole_gradients_come_anew(void **state)
{
    (void)state;
    int64_t sound = 0;
    for (int32_t i = 0; i < 24; i++) {
        const sample_settings s = {.pp = 3 + i % 3,
                                   .schedule = i % 2 == 0 ? "zb-h1" : "zb-h2",
                                   .dp = 2,
                                   .zero = 2 + i / 2 % 2,
                                   .micro_batch = 1,
                                   .sequences = 2 * (3 + i / 4 % 4),
                                   .layers = 3 + i % 3,
                                   .untied = true,
                                   .recompute = i < 12 ? RECOMPUTE_NONE : RECOMPUTE_FULL};
        sample_is_sound(&s, &sound);
    }
    assert_int_equal(sound, 24);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_that_are_made_are_sound),
        cmocka_unit_test(pipelines_are_sound),
        cmocka_unit_test(long_pipelines_are_sound),
        cmocka_unit_test(whole_gradients_come_anew),
        cmocka_unit_test(so_are_compressed_ones_and_evaluations),
        cmocka_unit_test(sums_of_any_number_measure_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
