// The state in the memory that a process keeps: which sessions may go on with it in place.
#include "train/process.h"
#include "train/session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { STEP = 5 };

// Gives a session the memory, in which the plans with key 1 have left the state of STEP.
static bool is_kept_for(train_process *p, uint64_t key, const char *event)
{
    static char ranks; // is not looked at
    const run_config r = {0};
    const train_restart order = {.process = p, .epoch = 1, .event = event};
    session s = {.r = &r};
    s.memory.order = &order;
    s.ranks.all = (comm *)(void *)&ranks;
    s.plan_key = (hash128){.low = key};
    session_process_put(&s);
    assert_ptr_equal(s.ranks.kept, &p->memory);
    return s.ranks.keeps_state;
}

static train_process *process_make(void)
{
    train_process *p = NULL;
    assert_int_equal(train_process_create(&p), ST_OK);
    p->state_key = (hash128){.low = 1};
    p->state_step = STEP;
    return p;
}

// Epochs that end before they load the state: they have changed nothing.
static void equal_plans_keep_the_state(void **state)
{
    (void)state;
    train_process *p = process_make();
    for (int i = 0; i < 3; i++) {
        assert_true(is_kept_for(p, 1, "lost"));
        assert_int_equal(p->state_step, STEP);
    }
    train_process_destroy(p);
}

// A shrunken job clears its own rows in the memory. If another loss comes before it has loaded its
// state, and the ranks grow back, the first plans must not find theirs there.
static void other_plans_end_the_state(void **state)
{
    (void)state;
    train_process *p = process_make();
    assert_false(is_kept_for(p, 2, "lost"));
    assert_false(is_kept_for(p, 1, "joined"));
    train_process_destroy(p);
}

static void a_wrong_value_ends_the_state(void **state)
{
    (void)state;
    train_process *p = process_make();
    assert_false(is_kept_for(p, 1, "sdc"));
    assert_false(is_kept_for(p, 1, "lost"));
    train_process_destroy(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_plans_keep_the_state),
        cmocka_unit_test(other_plans_end_the_state),
        cmocka_unit_test(a_wrong_value_ends_the_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
