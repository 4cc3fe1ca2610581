// A change that no session has told, because it ended before it could, is told by the next one,
// once.
#include "base/fault.h"
#include "fixtures/train/test_ranks.h"

static void an_untold_loss_is_told(void **state)
{
    (void)state;
    static const char *const keys[] = {"layout.dp=2", "kernels.threads=1"};
    train_restart before[] = {{.epoch = 2,
                               .event = "lost",
                               .done = "all ranks were started again",
                               .rank = 1,
                               .cause = "rank 1 died"},
                              {.epoch = 1,
                               .event = "lost",
                               .done = "all ranks were started again",
                               .rank = 0,
                               .cause = "rank 0 died"}};
    train_restart of[2];
    rank_restarts = of;
    of[0] = of[1] = before[1];
    assert_int_equal(ranks_run("told", keys, 2, 2, "auto", 2, NULL), ST_STOPPED);
    assert_int_equal(metrics_with("told", "\"event\": \"lost\", \"rank\": 0, \"epoch\": 1,", ""),
                     1);
    for (int i = 0; i < 2; i++) {
        of[i] = before[0];
        of[i].epoch = 3;
        of[i].rank = 0;
        of[i].before = before;
        of[i].before_count = 2;
    }
    assert_int_equal(ranks_run("told", keys, 2, 2, "auto", 0, NULL), ST_OK);
    rank_restarts = NULL;
    assert_int_equal(metrics_with("told", "\"epoch\": 1, \"ranks\"", ""), 1);
    assert_int_equal(metrics_with("told", "\"rank\": 1, \"epoch\": 2, \"ranks\"", ""), 1);
    assert_int_equal(metrics_with("told", "\"rank\": 0, \"epoch\": 3, \"ranks\"", ""), 1);
}

// A launcher that is started again counts its epochs from 1, so an event of the one before it may
// have the number of a loss that was not told.
static void an_event_of_an_earlier_launcher_hides_no_loss(void **state)
{
    (void)state;
    static const char *const keys[] = {"layout.dp=2", "kernels.threads=1"};
    train_restart of[2], before = {.epoch = 1,
                                   .event = "lost",
                                   .done = "all ranks were started again",
                                   .rank = 0,
                                   .cause = "rank 0 died"};
    of[0] = of[1] = before;
    rank_restarts = of;
    assert_int_equal(ranks_run("again", keys, 2, 2, "auto", 2, NULL), ST_STOPPED);
    assert_int_equal(metrics_with("again", "\"epoch\": 1, \"ranks\"", ""), 1);
    // Another launcher begins, and loses rank 1 and then, before that is told, rank 0.
    const int64_t begun_ns = host_real()->api->unix_ns(host_real());
    before.rank = 1;
    before.begun_ns = begun_ns;
    for (int i = 0; i < 2; i++) {
        of[i].epoch = 2;
        of[i].begun_ns = begun_ns;
        of[i].before = &before;
        of[i].before_count = 1;
    }
    assert_int_equal(ranks_run("again", keys, 2, 2, "auto", 3, NULL), ST_STOPPED);
    assert_int_equal(metrics_with("again", "\"rank\": 1, \"epoch\": 1, \"ranks\"", ""), 1);
    // It loses rank 0 once more: what was told is not told again.
    for (int i = 0; i < 2; i++) of[i].epoch = 3;
    assert_int_equal(ranks_run("again", keys, 2, 2, "auto", 0, NULL), ST_OK);
    rank_restarts = NULL;
    assert_int_equal(metrics_with("again", "\"epoch\": 1, \"ranks\"", ""), 2);
}

// The event, which is the third append, is lost, and the run goes on.
static void a_full_disk_ends_no_run_that_tells_a_loss(void **state)
{
    (void)state;
    static const char *const keys[] = {"layout.dp=2", "kernels.threads=1"};
    train_restart of[2];
    for (int i = 0; i < 2; i++) {
        of[i] = (train_restart){.epoch = 1,
                                .event = "lost",
                                .done = "all ranks were started again",
                                .cause = "rank 0 died"};
    }
    rank_restarts = of;
    assert_int_equal(fault_arm("observe.append=3:DISK_FULL"), ST_OK);
    assert_int_equal(ranks_run("full", keys, 2, 2, "auto", 0, NULL), ST_OK);
    assert_int_equal(fault_arm(NULL), ST_OK);
    rank_restarts = NULL;
    assert_int_equal(metrics_with("full", "\"epoch\": 1, \"ranks\"", ""), 0);
}

// A folder in the place of a new file keeps it from being written, as a full disk does.
static void a_full_disk_ends_no_run_that_begins_again(void **state)
{
    (void)state;
    static const char *const keys[] = {"layout.dp=2", "kernels.threads=1"};
    char path[160];
    train_restart of[2];
    for (int i = 0; i < 2; i++) {
        of[i] = (train_restart){
            .event = "lost", .done = "all ranks were started again", .cause = "rank 0 died"};
    }
    assert_int_equal(ranks_run("begun", keys, 2, 2, "auto", 2, NULL), ST_STOPPED);
    (void)snprintf(path, sizeof(path), "%s/begun/plan.json.tmp/full", test_folder);
    assert_int_equal(host_real()->api->path_mkdir(host_real(), path), ST_OK);
    rank_restarts = of;
    ranks_fail_alone = true;
    assert_int_not_equal(ranks_run("begun", keys, 2, 2, "auto", 0, NULL), ST_OK); // its first start
    ranks_fail_alone = false;
    of[0].epoch = of[1].epoch = 1;
    assert_int_equal(ranks_run("begun", keys, 2, 2, "auto", 0, NULL), ST_OK);
    rank_restarts = NULL;
    assert_non_null(strstr(rank_runs[0].seen.said, "the run goes on with the file of before"));
    assert_int_equal(metrics_with("begun", "\"epoch\": 1, \"ranks\"", ""), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_untold_loss_is_told),
        cmocka_unit_test(an_event_of_an_earlier_launcher_hides_no_loss),
        cmocka_unit_test(a_full_disk_ends_no_run_that_tells_a_loss),
        cmocka_unit_test(a_full_disk_ends_no_run_that_begins_again),
    };
    return cmocka_run_group_tests(tests, test_run_setup, test_run_teardown);
}
