// Several ranks train what one trains: threads of this process as ranks, over shared memory. In strict
// order the digest of weights and optimizer is the same for every number of them.
#include "train/test_run.h"

#include <pthread.h>

enum { RANKS_MAX = 4 };

typedef struct rank_run {
    comm_board *board;
    int rank, ranks;
    run_config r;
    config *c;
    arena *a;
    const char *resume;
    run_seen seen;
    status st;
    train_outcome outcome;
    char error[400];
} rank_run;

static void *rank_main(void *context)
{
    rank_run *k = context;
    comm *all = NULL;
    const comm_config wanted = {.h = host_real(),
                                .job = 77,
                                .rank = k->rank,
                                .ranks = k->ranks,
                                .local_rank = k->rank,
                                .local_ranks = k->ranks,
                                .transport = "shm",
                                .board = k->board,
                                .deadline_ns = INT64_C(60) * 1000000000};
    const train_watcher watcher = {.context = &k->seen,
                                   .step = on_step,
                                   .validated = on_validated,
                                   .saved = on_saved,
                                   .said = on_said,
                                   .stop_asked = on_stop};
    k->st = comm_open(&wanted, &all);
    if (k->st == ST_OK) {
        const train_order order = {&k->r, k->c, NULL, k->resume, all, &watcher};
        k->st = train_run(host_real(), k->a, &order, &k->outcome);
    }
    (void)snprintf(k->error, sizeof(k->error), "%.399s", error_last()->text);
    if (k->st != ST_OK && k->st != ST_STOPPED) {
        if (all != NULL) comm_abort(all, k->st, k->error);
    }
    comm_close(all);
    return NULL;
}

// Every rank's status is the same; the digest is of what the first one saved.
static status ranks_run(const char *name, const char *const *more, int count, int ranks,
                        const char *resume, int64_t stop_after, hash128 *out)
{
    static rank_run runs[RANKS_MAX];
    pthread_t threads[RANKS_MAX];
    comm_board *board = NULL;
    assert_true(ranks <= RANKS_MAX);
    assert_int_equal(comm_board_create(ranks, 77, 0, &board), ST_OK);
    for (int i = 0; i < ranks; i++) {
        rank_run *k = &runs[i];
        *k = (rank_run){.board = board, .rank = i, .ranks = ranks, .resume = resume};
        if (i == ranks - 1) k->seen.stop_after = stop_after; // one is asked, all stop
        assert_int_equal(arena_create("rank", 0, &k->a), ST_OK);
        test_config(name, more, count, k->a, &k->r, &k->c);
    }
    for (int i = 0; i < ranks; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, rank_main, &runs[i]), 0);
    }
    for (int i = 0; i < ranks; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    const status st = runs[0].st;
    for (int i = 0; i < ranks; i++) {
        if (runs[i].st != ST_OK && runs[i].st != ST_STOPPED) {
            print_error("rank %d of %d: %s\n", i, ranks, runs[i].error);
        }
        assert_int_equal(runs[i].st, st);
        assert_int_equal(runs[i].seen.steps, runs[0].seen.steps);
        assert_true(runs[i].seen.last_loss == runs[0].seen.last_loss); // to the bit
    }
    if (out != NULL && (st == ST_OK || st == ST_STOPPED)) {
        assert_int_equal(ckpt_digest(host_real(), runs[0].a, runs[0].outcome.checkpoint, out),
                         ST_OK);
    }
    for (int i = 0; i < ranks; i++) arena_destroy(runs[i].a);
    comm_board_unmap(board);
    return st;
}

static void assert_same(hash128 a, hash128 b)
{
    assert_int_equal(a.high, b.high);
    assert_int_equal(a.low, b.low);
}

// Settings under which any number of ranks must give the digest of one.
static const char *const kinds[][6] = {
    {"determinism=strict", "train.micro_batch=2"},
    {"determinism=strict", "model.dropout=0.1", "model.tied=yes", "train.micro_batch=1"},
    {"determinism=strict", "train.precision=bf16", "determinism.shards=6"},
    {"determinism=strict", "train.batch_ramp=0=4,2=6,4=8"},
    {"determinism=strict", "optimizer.name=muon", "eval.every=2", "eval.batches=2"},
};

// And how the state is cut.
static const char *const cuts[] = {"layout.zero=0", "layout.zero=1"};

static int settings_of(int kind, const char **out)
{
    int n = 0;
    while (n < 6 && kinds[kind][n] != NULL) {
        out[n] = kinds[kind][n];
        n++;
    }
    return n;
}

static void any_number_of_ranks_is_one(void **state)
{
    (void)state;
    for (int kind = 0; kind < COUNT_OF(kinds); kind++) {
        const char *settings[12];
        const int n = settings_of(kind, settings);
        run_seen seen = {0};
        hash128 one, many;
        char name[32], dp[32];
        (void)snprintf(name, sizeof(name), "one-%d", kind);
        assert_int_equal(test_run(name, settings, n, "auto", &seen, &one), ST_OK);
        for (int i = 0; i < 2 * (RANKS_MAX - 1); i++) {
            const int ranks = 2 + i / 2, cut = i % 2;
            (void)snprintf(name, sizeof(name), "many-%d-%d-%d", kind, ranks, cut);
            (void)snprintf(dp, sizeof(dp), "layout.dp=%d", ranks);
            settings[n] = dp;
            settings[n + 1] = cuts[cut];
            settings[n + 2] = "kernels.threads=1";
            assert_int_equal(ranks_run(name, settings, n + 3, ranks, "auto", 0, &many), ST_OK);
            assert_same(one, many);
        }
    }
}

// Stopped by a signal to one rank, continued by another number of ranks.
static void ranks_change_on_resume(void **state)
{
    (void)state;
    const char *const one[] = {"determinism=strict"};
    const char *const two[] = {"determinism=strict", "layout.dp=2", "kernels.threads=1"};
    const char *const three[] = {"determinism=strict", "layout.dp=3", "kernels.threads=1",
                                 "layout.zero=1"};
    run_seen seen = {0};
    hash128 straight, changed;
    assert_int_equal(test_run("straight", one, 1, "auto", &seen, &straight), ST_OK);
    assert_int_equal(ranks_run("changed", two, 3, 2, "auto", 2, NULL), ST_STOPPED);
    assert_int_equal(ranks_run("changed", three, 4, 3, "auto", 4, NULL), ST_STOPPED);
    seen = (run_seen){0};
    assert_int_equal(test_run("changed", one, 1, "auto", &seen, &changed), ST_OK);
    assert_same(straight, changed);
}

// Fast order: other bits, the same losses.
static void fast_ranks_are_near(void **state)
{
    (void)state;
    const char *const one[] = {"train.steps=6"};
    const char *const two[] = {"train.steps=6", "layout.dp=2", "kernels.threads=1"};
    run_seen seen = {0};
    assert_int_equal(test_run("fast-one", one, 1, "auto", &seen, NULL), ST_OK);
    hash128 a, b;
    assert_int_equal(ranks_run("fast-two", two, 3, 2, "auto", 0, &a), ST_OK);
    assert_int_equal(ranks_run("fast-again", two, 3, 2, "auto", 0, &b), ST_OK);
    assert_same(a, b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_ranks_is_one),
        cmocka_unit_test(ranks_change_on_resume),
        cmocka_unit_test(fast_ranks_are_near),
    };
    return cmocka_run_group_tests(tests, test_run_setup, test_run_teardown);
}
