// Which rank loses its place, of several that are found in one step.
#include "train/process.h"
#include "train/session_health.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static char there; // what is only asked for being there

typedef struct rig {
    run_config r;
    train_restart order;
    session s;
} rig;

static void rig_make(rig *x, train_process **p)
{
    assert_int_equal(train_process_create(p), ST_OK);
    *x = (rig){.r.resilience.straggler = RUN_STRAGGLER_EVICT, .order = {.process = *p}};
    x->s.r = &x->r;
    x->s.memory.order = &x->order;
    x->s.kept = (struct session_kept *)(void *)&there;
    x->s.ranks.hosts = (comm_group *)(void *)&there;
    x->s.move.rank = -1;
}

static const straggler slow = {.rank = 2, .ratio = 1.5, .cause = STRAGGLER_COMPUTE};

// A rank that was told to lose its place because of its GPU loses it, although another one is slow
// or fails in the same step.
static void a_failing_gpu_goes_first(void **state)
{
    (void)state;
    train_process *p = NULL;
    rig x;
    rig_make(&x, &p);
    assert_true(session_shares_drain(&x.s, 1, HEALTH_GPU));
    assert_false(session_shares_drain(&x.s, 3, HEALTH_GPU));
    session_shares_found(&x.s, &slow);
    assert_int_equal(x.s.move.rank, 1);
    session_shares_take(&x.s, x.s.move.rank, x.s.move.ratio); // the next words
    assert_int_equal(x.s.move.slow_rank, 1);
    assert_false(session_shares_drain(&x.s, 1, HEALTH_GPU)); // once
    const double of_gpu = x.s.move.slow_ratio;
    assert_true(session_shares_drain(&x.s, 3, HEALTH_MACHINE));
    assert_true(x.s.move.ratio != of_gpu); // the others learn what is failing
    train_process_destroy(p);
}

static void a_slow_rank_is_evicted(void **state)
{
    (void)state;
    train_process *p = NULL;
    rig x;
    rig_make(&x, &p);
    session_shares_found(&x.s, &slow);
    assert_int_equal(x.s.move.rank, 2);
    train_process_destroy(p);
}

static void one_rank_keeps_its_place(void **state)
{
    (void)state;
    train_process *p = NULL;
    rig x;
    rig_make(&x, &p);
    x.s.ranks.hosts = NULL;
    assert_false(session_shares_drain(&x.s, 0, HEALTH_GPU));
    train_process_destroy(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failing_gpu_goes_first),
        cmocka_unit_test(a_slow_rank_is_evicted),
        cmocka_unit_test(one_rank_keeps_its_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
