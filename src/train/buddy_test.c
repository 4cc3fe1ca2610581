// Copies in other ranks: after a loss at any point of a copy, in any layout and with another one
// afterwards, the run goes on from the memory of the other ranks and ends with the bits of an
// undisturbed run. No checkpoint is written before the last step.
#include "base/fault.h"
#include "fixtures/base/test_part.h"
#include "fixtures/train/test_ranks.h"
#include "train/process.h"

enum { STEPS = 6 };
static train_restart orders[RANKS_MAX];
static char memory[128];

static void orders_make(train_process *const *buddies, int64_t epoch)
{
    for (int r = 0; r < RANKS_MAX; r++) {
        orders[r] = (train_restart){.memory = memory,
                                    .process = buddies[r],
                                    .epoch = epoch,
                                    .event = "lost",
                                    .done = "the others live on",
                                    .cause = "a test"};
    }
    rank_restarts = orders;
}

static const char *const experts[] = {"model.experts=8", "model.experts_per_token=2",
                                      "model.expert_ffn_dim=8", "model.ffn_dim=0"};

static int keys_of(const char **out, bool has_experts, const char *const *layout)
{
    static const char *const all[] = {"determinism=strict",          "determinism.tp_shards=2",
                                      "kernels.threads=1",           "train.micro_batch=1",
                                      "resilience.mode=live",        "resilience.buddy.ranks=1",
                                      "resilience.buddy.every=1000", "checkpoint.every=1000"};
    int n = 0;
    for (; n < COUNT_OF(all); n++) out[n] = all[n];
    for (int i = 0; i < 4 && layout[i] != NULL; i++) out[n++] = layout[i];
    for (int i = 0; i < COUNT_OF(experts) && has_experts; i++) out[n++] = experts[i];
    return n;
}

#define EXPERTS "layout.ep=2", "moe.rebalance=1"
#define ZERO(n) "layout.zero=" #n

static const struct {
    int before, after; // ranks
    bool shrinks;      // the lost rank is not replaced
    const char *keys[2][4];
    bool has_experts; // which move after each step
    // Places of a rank where it is lost: in each copy, of which there are more if it sends pieces;
    // moves: while it moves experts instead.
    int64_t points, moves;
} cases[] = {
    {4, 3, true, {{"layout.dp=4", "layout.zero=3"}, {"layout.dp=3", "layout.zero=1"}}, false, 4, 0},
    {4, 4, false, {{"layout.dp=2", "layout.pp=2"}, {"layout.dp=2", "layout.pp=2"}}, false, 3, 0},
    {4, 2, true, {{"layout.dp=2", "layout.tp=2"}, {"layout.tp=2"}}, false, 3, 0},
    {2, 2, false, {{"layout.dp=2", ZERO(1)}, {"layout.dp=2", ZERO(1)}}, false, 4, 0},
    {2, 2, false, {{"layout.dp=2", ZERO(2)}, {"layout.dp=2", ZERO(2)}}, false, 4, 0},
    {2, 2, false, {{"layout.dp=2", ZERO(3)}, {"layout.dp=2", ZERO(3)}}, false, 4, 0},
    {4, 3, true, {{"layout.dp=4", EXPERTS}, {"layout.dp=3"}}, true, 3, 0},
    {4, 4, false, {{"layout.pp=2", "layout.dp=2", EXPERTS}, {"layout.dp=4", EXPERTS}}, true, 0, 99},
    {4, 4, false, {{"layout.dp=4", ZERO(1), EXPERTS}, {"layout.dp=4", EXPERTS}}, true, 4, 0},
};

// The run fails at this hit; the rank that fails is lost with its memory. Returns false if the run
// ended before.
static bool trial(int kind, int64_t hit, const hash128 *calm)
{
    const char *keys[20];
    char name[32], fault[64];
    train_process *buddies[RANKS_MAX] = {NULL};
    hash128 end;
    bool has_failed = false;
    (void)snprintf(name, sizeof(name), "trial-%d-%lld", kind, (long long)hit);
    (void)snprintf(fault, sizeof(fault), "train.%s=%lld:IO",
                   cases[kind].moves > 0 ? "rebalance.move" : "buddy.save", (long long)hit);
    for (int r = 0; r < cases[kind].before; r++) {
        assert_int_equal(train_process_create(&buddies[r]), ST_OK);
    }
    orders_make(buddies, 0);
    int n = keys_of(keys, cases[kind].has_experts, cases[kind].keys[0]);
    assert_int_equal(fault_arm(fault), ST_OK);
    ranks_fail_alone = true;
    (void)ranks_run(name, keys, n, cases[kind].before, "auto", 0, NULL);
    ranks_fail_alone = false;
    assert_int_equal(fault_arm(NULL), ST_OK);
    int lost = -1;
    for (int r = 0; r < cases[kind].before; r++) {
        if (rank_runs[r].st == ST_IO) lost = r;
    }
    const int64_t of_copy = cases[kind].before * cases[kind].points;
    const bool had_copy = cases[kind].moves == 0 && hit > 3 * of_copy;
    if (lost >= 0) {
        train_process_destroy(buddies[lost]);
        buddies[lost] = NULL;
        if (cases[kind].shrinks) {
            for (int r = lost; r + 1 < RANKS_MAX; r++) buddies[r] = buddies[r + 1];
            buddies[RANKS_MAX - 1] = NULL;
        } else {
            assert_int_equal(train_process_create(&buddies[lost]), ST_OK);
        }
        orders_make(buddies, 1);
        n = keys_of(keys, cases[kind].has_experts, cases[kind].keys[1]);
        assert_int_equal(ranks_run(name, keys, n, cases[kind].after, "auto", 0, &end), ST_OK);
        assert_same(*calm, end);
        // If it was lost after the last step, the others may have saved that one on the disk.
        const bool is_told = strstr(rank_runs[0].seen.said, "came from the memory") != NULL ||
                             strstr(rank_runs[0].seen.said, "continues after step 6") != NULL;
        // With dp=2, tp=2 both ranks that go on may have the same pieces.
        const bool has_all = cases[kind].before != 2 * cases[kind].after || lost != 1;
        if (had_copy && has_all) assert_true(is_told);
        has_failed = true;
    }
    for (int r = 0; r < RANKS_MAX; r++) train_process_destroy(buddies[r]);
    rank_restarts = NULL;
    return has_failed;
}

// Runs two ranks with this stage of ZeRO until one fails at this hit, and replaces it. Returns -1
// if none does; the run then ends.
static int run_until(const char *name, int zero, train_process **buddies, int64_t epoch,
                     int64_t hit, hash128 *end)
{
    const char *keys[20], *const stages[] = {ZERO(0), ZERO(1), ZERO(2), ZERO(3)};
    const char *const layout[4] = {"layout.dp=2", stages[zero]};
    char fault[64];
    int lost = -1;
    (void)snprintf(fault, sizeof(fault), "train.buddy.save=%lld:IO", (long long)hit);
    orders_make(buddies, epoch);
    assert_int_equal(fault_arm(hit > 0 ? fault : NULL), ST_OK);
    ranks_fail_alone = true;
    const status st = ranks_run(name, keys, keys_of(keys, false, layout), 2, "auto", 0, end);
    ranks_fail_alone = false;
    assert_int_equal(fault_arm(NULL), ST_OK);
    for (int r = 0; r < 2; r++) lost = rank_runs[r].st == ST_IO ? r : lost;
    assert_true(lost >= 0 || st == ST_OK);
    if (lost < 0) return -1;
    train_process_destroy(buddies[lost]);
    assert_int_equal(train_process_create(&buddies[lost]), ST_OK);
    return lost;
}

// A rank is lost in the fourth copy, and one in the first or second copy after that. The copies
// that were loaded must not be overwritten before all ranks have the next ones, so the state still
// comes from memory, unless the rank is lost that has the only ones.
static void two_losses_leave_no_trace(void **state)
{
    (void)state;
    enum { POINTS = 2 * 4, FIRST = 3 * POINTS, TRIALS = 2 * POINTS * POINTS };
    const char *one[] = {"determinism=strict", "determinism.tp_shards=2", "train.micro_batch=1"};
    run_seen seen = {0};
    hash128 calm, end;
    assert_int_equal(test_run("calm-two", one, COUNT_OF(one), "auto", &seen, &calm), ST_OK);
    const int64_t parts = part_of(TRIALS_PART) > 1 ? TRIALS : 1;
    for (int64_t i = parts > 1 ? POINTS + 3 : 0; i < TRIALS; i += parts) {
        train_process *buddies[RANKS_MAX] = {NULL};
        char name[32];
        const int zero = 1 + (int)(i % 3);
        const int64_t first = FIRST + 1 + i % POINTS, second = 1 + i / POINTS;
        (void)snprintf(name, sizeof(name), "two-%lld", (long long)i);
        for (int r = 0; r < 2; r++) assert_int_equal(train_process_create(&buddies[r]), ST_OK);
        const int a = run_until(name, zero, buddies, 0, first, &end);
        const int b = run_until(name, zero, buddies, 1, second, &end);
        assert_true(a >= 0 && b >= 0);
        assert_int_equal(run_until(name, zero, buddies, 2, 0, &end), -1);
        assert_same(calm, end);
        const bool is_told = strstr(rank_runs[0].seen.said, "came from the memory") != NULL;
        if (a == b || second > POINTS) assert_true(is_told);
        for (int r = 0; r < 2; r++) train_process_destroy(buddies[r]);
        rank_restarts = NULL;
    }
}

static void a_loss_leaves_no_trace(void **state)
{
    (void)state;
    const char *one[3 + COUNT_OF(experts)] = {"determinism=strict", "determinism.tp_shards=2",
                                              "train.micro_batch=1"};
    run_seen seen = {0};
    hash128 calm[2];
    for (int i = 0; i < COUNT_OF(experts); i++) one[3 + i] = experts[i];
    assert_int_equal(test_run("calm", one, 3, "auto", &seen, &calm[0]), ST_OK);
    assert_int_equal(test_run("calm-experts", one, COUNT_OF(one), "auto", &seen, &calm[1]), ST_OK);
    for (int kind = 0; kind < COUNT_OF(cases); kind++) {
        const int64_t all = cases[kind].moves > 0 ? cases[kind].moves
                                                  : STEPS * cases[kind].points * cases[kind].before;
        // At night two ranks are lost at every point.
        const bool is_each = part_of(TRIALS_PART) == 1 && cases[kind].before == 2;
        const int64_t trials = is_each ? all : 4;
        for (int64_t i = 0; i < trials; i++) {
            if (part_skips(TRIALS_PART, i, trials, kind, COUNT_OF(cases))) continue;
            const bool has_failed =
                trial(kind, 1 + (all - 1) * i / (trials - 1), &calm[cases[kind].has_experts]);
            assert_true(has_failed || i + 1 >= trials - cases[kind].points * cases[kind].before);
        }
    }
}

// The step that a run of these orders begins with, from the memory of the ranks; -1: elsewhere.
static int64_t step_loaded(void)
{
    const char *at = strstr(rank_runs[0].seen.said, " came from the memory");
    if (at == NULL) return -1;
    while (at > rank_runs[0].seen.said && at[-1] != ' ') at--;
    return strtoll(at, NULL, 10);
}

// Runs until a rank is lost at this hit, in a new process of which it begins the next epoch.
static int64_t step_until_loss(train_process **buddies, int64_t epoch, const char *fault)
{
    static const char *const layout[4] = {"layout.dp=2", ZERO(1)};
    const char *keys[20];
    orders_make(buddies, epoch);
    const int n = keys_of(keys, false, layout);
    assert_int_equal(fault_arm(fault), ST_OK);
    ranks_fail_alone = true;
    (void)ranks_run("twice", keys, n, 2, "auto", 0, NULL);
    ranks_fail_alone = false;
    assert_int_equal(fault_arm(NULL), ST_OK);
    for (int r = 0; r < 2; r++) {
        if (rank_runs[r].st != ST_IO) continue;
        train_process_destroy(buddies[r]);
        assert_int_equal(train_process_create(&buddies[r]), ST_OK);
    }
    return step_loaded();
}

static int64_t kept_bytes(const train_process *p)
{
    int64_t bytes = 0;
    for (int i = 0; i < PROCESS_GENERATIONS; i++) bytes += p->own[i].capacity + p->lone[i].capacity;
    return bytes;
}

// The state that a new process has got is copied at once: before the copy of the next step, which
// would be the first that it has.
static void a_new_process_has_copies_at_once(void **state)
{
    (void)state;
    enum { OF_COPY = 8 }; // hits of a whole copy of two ranks
    train_process *buddies[RANKS_MAX] = {NULL};
    char fault[64];
    for (int r = 0; r < 2; r++) assert_int_equal(train_process_create(&buddies[r]), ST_OK);
    (void)snprintf(fault, sizeof(fault), "train.buddy.save=%d:IO", 2 * OF_COPY + 1);
    assert_int_equal(step_until_loss(buddies, 0, fault), -1);
    (void)snprintf(fault, sizeof(fault), "train.buddy.save=%d:IO", OF_COPY + 1);
    const int64_t first = step_until_loss(buddies, 1, fault);
    assert_true(first > 0);
    assert_int_equal(step_until_loss(buddies, 2, NULL), first);
    for (int r = 0; r < 2; r++)
        assert_int_equal(kept_bytes(buddies[r]), rank_runs[r].seen.copies_bytes);
    for (int r = 0; r < RANKS_MAX; r++) train_process_destroy(buddies[r]);
    rank_restarts = NULL;
}

static int setup(void **state)
{
    const int st = test_run_setup(state);
    (void)snprintf(memory, sizeof(memory), "%s/memory", test_folder);
    return st != 0 ? st : (int)host_real()->api->path_mkdir(host_real(), memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_loss_leaves_no_trace),
                                       cmocka_unit_test(a_new_process_has_copies_at_once),
                                       cmocka_unit_test(two_losses_leave_no_trace)};
    return cmocka_run_group_tests(tests, setup, test_run_teardown);
}
