// Compares the executor on virtual devices with the simulator, to the nanosecond, over many plans:
// schedules, stages, dp, ZeRO, recompute, strict order and a profile's habits; with all ranks and
// with one rank of each stage.
#include "cost/habits.h"
#include "fixtures/plan/verify_sample.h"
#include "fixtures/sim/test_cluster.h"
#include "sim/sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_RANKS = 16 };

static sample_settings settings_of(uint32_t i)
{
    static const char *const names[] = {"gpipe", "1f1b", "interleaved", "zb-h1",
                                        "zb-h2", "zb-v", "dualpipe",    "dualpipe-v"};
    const uint32_t seed = (i + 1) * 2654435761u >> 5;
    const bool two = i % 8 == 2 || i % 8 >= 5;
    return (sample_settings){.pp = 1 + (int32_t)(seed % 4),
                             .dp = 1 + (int32_t)(seed / 4 % 3),
                             .zero = (int32_t)(seed / 16 % 4),
                             .schedule = names[i % 8],
                             .chunks = two ? 2 : 1,
                             .micro_batch = 1 + (int64_t)(seed / 64 % 2),
                             .sequences = 8 * (1 + (int64_t)(seed / 128 % 3)),
                             .strict = seed / 512 % 4 == 0,
                             .shards = 4,
                             .untied = seed / 2048 % 2 == 0,
                             .recompute = (op_recompute)(seed / 4096 % 3),
                             .layers = 8 + (int)(seed / 16384 % 3)};
}

// Selects every `apart`-th rank of the job.
static int32_t ranks_of(const sample_job *job, int32_t apart, sim_rank out[MAX_RANKS])
{
    int32_t count = 0;
    for (int32_t i = 0; i < job->ranks; i += apart) {
        out[count++] = (sim_rank){.p = job->plans[i], .mesh = plan_mesh_from(&job->mesh, i)};
    }
    return count;
}

static int64_t simulated_ns(arena *a, const cost_model *m, const sim_rank *ranks, int32_t count,
                            int64_t *first)
{
    sim_prices prices[MAX_RANKS];
    sim_step *step = NULL;
    assert_int_equal(sim_price(a, m, ranks, count, prices), ST_OK);
    assert_int_equal(sim_step_run(a, ranks, count, prices, 777, SIM_STEPS, &step), ST_OK);
    *first = step->first_ns;
    return step->step_ns;
}

static sim_executed executed(arena *a, const cost_model *m, const sim_rank *ranks, int32_t count)
{
    sim_executed out;
    const status st = sim_execute(a, m, ranks, count, 777, SIM_STEPS, &out);
    if (st != ST_OK) print_error("%s\n", error_last()->text);
    assert_int_equal(st, ST_OK);
    return out;
}

// SIM_LAYOUTS is the number of layouts; the night run takes 1,000.
static void the_executor_takes_the_same_time(void **state)
{
    (void)state;
    const char *wanted = getenv("SIM_LAYOUTS");
    const uint32_t most = wanted != NULL ? (uint32_t)strtoul(wanted, NULL, 10) : 60;
    const cluster c = small_cluster();
    cost_profile profile = cost_profile_trireme();
    cost_habits habits = cost_habits_none;
    profile.habits = &habits;
    const cost_model m = {.c = &c, .profile = &profile};
    uint32_t compared = 0;
    for (uint32_t i = 0; compared < most; i++) {
        const sample_settings s = settings_of(i);
        sample_job job;
        sim_rank ranks[MAX_RANKS];
        arena *a = NULL;
        int64_t first = 0;
        assert_int_equal(arena_create("execute", 0, &a), ST_OK);
        assert_true(i < 8 * most + 64);
        if (sample_make(a, &s, &job) != ST_OK) { // no such layout
            error_clear();
            arena_destroy(a);
            continue;
        }
        // Every third profile hides only a part of its collectives.
        profile.overlap[TRAFFIC_DP] = profile.overlap[TRAFFIC_PP] = i % 3 == 0 ? 0.6 : 1.0;
        habits.crowding = i % 3 == 0 ? 0.1 : 0.0;
        const int32_t count = ranks_of(&job, job.ranks / (s.pp > 0 ? s.pp : 1), ranks);
        const int64_t step = simulated_ns(a, &m, ranks, count, &first);
        const sim_executed out = executed(a, &m, ranks, count);
        if (out.step_ns != step || out.first_ns != first) {
            print_error(
                "%u: %s pp %d dp %d zero %d: %lld and %lld executed, %lld and %lld simulated\n", i,
                s.schedule, (int)s.pp, (int)s.dp, (int)s.zero, (long long)out.first_ns,
                (long long)out.step_ns, (long long)first, (long long)step);
        }
        assert_int_equal(out.first_ns, first);
        assert_int_equal(out.step_ns, step);
        assert_int_equal(out.touched_bytes, out.arena_bytes);
        assert_true(out.calls > 0);
        compared++;
        arena_destroy(a);
    }
}

// One rank of each stage stands for its whole stage: the step takes as long as with every rank
// simulated.
static void one_rank_stands_for_its_stage(void **state)
{
    (void)state;
    const cluster c = small_cluster();
    const cost_profile profile = cost_profile_trireme();
    const cost_model m = {.c = &c, .profile = &profile};
    int compared = 0;
    for (uint32_t i = 0; compared < 24; i++) {
        sample_settings s = settings_of(i);
        sample_job job;
        sim_rank few[MAX_RANKS], all[MAX_RANKS];
        arena *a = NULL;
        s.dp = s.dp == 3 ? 2 : s.dp; // every rank has the same number of sequences
        assert_int_equal(arena_create("execute", 0, &a), ST_OK);
        if (s.dp == 1 || s.pp * s.dp > MAX_RANKS || sample_make(a, &s, &job) != ST_OK) {
            error_clear();
            arena_destroy(a);
            continue;
        }
        const sim_executed one = executed(a, &m, few, ranks_of(&job, job.ranks / s.pp, few));
        const sim_executed whole = executed(a, &m, all, ranks_of(&job, 1, all));
        assert_int_equal(whole.first_ns, one.first_ns);
        assert_int_equal(whole.step_ns, one.step_ns);
        assert_true(whole.calls > one.calls);
        compared++;
        arena_destroy(a);
    }
}

// A receive stands before the send that its peer waits for: both streams stop, and the error says
// so.
static void a_plan_that_waits_for_itself_is_named(void **state)
{
    (void)state;
    const cluster c = small_cluster();
    const cost_profile profile = cost_profile_trireme();
    const cost_model m = {.c = &c, .profile = &profile};
    const sample_settings s = {
        .pp = 2, .schedule = "1f1b", .micro_batch = 1, .sequences = 4, .untied = true, .layers = 2};
    sample_job job;
    sim_rank ranks[MAX_RANKS];
    sim_executed out;
    arena *a = NULL;
    assert_int_equal(arena_create("execute", 0, &a), ST_OK);
    assert_int_equal(sample_make(a, &s, &job), ST_OK);
    sample_leave_out(job.plans[0], sample_find_comm(job.plans[0], COLLECTIVE_SEND, "", 0));
    const int32_t count = ranks_of(&job, 1, ranks);
    assert_int_equal(sim_execute(a, &m, ranks, count, 0, 1, &out), ST_INTERNAL);
    error_clear();
    arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_executor_takes_the_same_time),
        cmocka_unit_test(one_rank_stands_for_its_stage),
        cmocka_unit_test(a_plan_that_waits_for_itself_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
