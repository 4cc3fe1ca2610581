// Tests ranks that share cores: with a core each they take the time of the simulator of a step; on
// fewer cores, and with other programs, they take turns, and the parts of their time add up.
#include "fixtures/plan/verify_sample.h"
#include "sim/sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { WORK_NS = 20000000, STAGES_MAX = 4 };

typedef struct job {
    arena *a;
    sample_job made;
    sim_rank ranks[STAGES_MAX]; // the first of each stage
    sim_prices prices[STAGES_MAX];
    int32_t count;
    int64_t alone; // time of a step in lockstep
} job;

// Each action of a compute stream but collectives takes WORK_NS.
static void job_make(const sample_settings *s, job *j)
{
    sim_step *step = NULL;
    memset(j, 0, sizeof(*j));
    assert_int_equal(arena_create("turns", 0, &j->a), ST_OK);
    assert_int_equal(sample_make(j->a, s, &j->made), ST_OK);
    j->count = s->pp > 0 ? s->pp : 1;
    const int32_t apart = j->made.ranks / j->count;
    for (int32_t i = 0; i < j->count; i++) {
        const plan *p = j->made.plans[i * apart];
        j->ranks[i] = (sim_rank){.p = p, .mesh = plan_mesh_from(&j->made.mesh, i * apart)};
        assert_int_equal(arena_new(j->a, p->action_count, &j->prices[i].ns), ST_OK);
        for (int64_t k = 0; k < p->action_count; k++) {
            if (p->actions[k].kind == ACTION_COMPUTE) j->prices[i].ns[k] = WORK_NS;
        }
    }
    assert_int_equal(sim_step_run(j->a, j->ranks, j->count, j->prices, 0, SIM_STEPS, &step), ST_OK);
    j->alone = step->step_ns;
}

static int64_t turns_of(job *j, int32_t cores, int32_t others, sim_turns *out)
{
    const sim_cores how = {.cores = cores, .threads = 1, .others = others, .speed = 1.0};
    assert_int_equal(sim_turns_run(j->a, j->ranks, j->count, j->prices, &how, out), ST_OK);
    assert_int_equal(out->count, j->made.ranks);
    for (int32_t i = 0; i < out->count; i++) {
        const sim_turn *t = &out->ranks[i];
        int64_t sum = t->compute + t->cores + t->data;
        for (int k = 0; k < TRAFFIC_COUNT; k++) sum += t->waits[k];
        assert_int_equal(sum, t->length);
        assert_true(t->compute > 0 && t->cores >= 0 && t->data >= 0);
    }
    return out->step_ns;
}

static void a_core_each_is_lockstep(void **state)
{
    (void)state;
    static const sample_settings all[] = {
        {.micro_batch = 1, .sequences = 2, .layers = 2},
        {.dp = 2, .micro_batch = 1, .sequences = 4, .layers = 2},
        {.pp = 2, .schedule = "1f1b", .micro_batch = 1, .sequences = 4, .layers = 4},
        {.pp = 2, .dp = 2, .schedule = "1f1b", .micro_batch = 1, .sequences = 8, .layers = 4},
    };
    for (int i = 0; i < COUNT_OF(all); i++) {
        sim_turns t;
        job j;
        job_make(&all[i], &j);
        assert_int_equal(turns_of(&j, j.made.ranks, 0, &t), j.alone);
        for (int32_t r = 0; r < t.count; r++) assert_int_equal(t.ranks[r].cores, 0);
        arena_destroy(j.a);
    }
}

static bool is_near(int64_t x, double y)
{
    return (double)x > 0.9 * y && (double)x < 1.1 * y;
}

static void fewer_cores_are_taken_in_turns(void **state)
{
    (void)state;
    const sample_settings s = {.dp = 2, .micro_batch = 1, .sequences = 8, .layers = 2};
    sim_turns t;
    job j;
    job_make(&s, &j);
    assert_true(is_near(turns_of(&j, 1, 0, &t), 2.0 * (double)j.alone));
    // Each rank waits for the other one's turn: for a core, or at a sum of both.
    const sim_turn *first = &t.ranks[0];
    assert_true(first->length - first->compute > first->length * 2 / 5);
    assert_true(turns_of(&j, 2, 4, &t) > 2 * j.alone);
    arena_destroy(j.a);
}

static void other_programs_take_their_share(void **state)
{
    (void)state;
    const sample_settings s = {.micro_batch = 1, .sequences = 8, .layers = 2};
    sim_turns t;
    job j;
    job_make(&s, &j);
    for (int32_t others = 1; others < 5; others++) {
        assert_true(is_near(turns_of(&j, 1, others, &t), (1.0 + others) * (double)j.alone));
        assert_true(t.ranks[0].cores > 0);
    }
    arena_destroy(j.a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_core_each_is_lockstep),
        cmocka_unit_test(fewer_cores_are_taken_in_turns),
        cmocka_unit_test(other_programs_take_their_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
