// Whole runs of several ranks, as threads of this process over shared memory.
#ifndef TRAIN_TEST_RANKS_H
#define TRAIN_TEST_RANKS_H

#include "train/test_run.h"

#include <pthread.h>

enum { RANKS_MAX = 8 };

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

static rank_run rank_runs[RANKS_MAX]; // those of the last ranks_run

enum { RANKS_JOB = 77 };

static inline status rank_open(comm_board *board, int rank, int ranks, comm **out)
{
    const comm_config wanted = {.h = host_real(),
                                .job = RANKS_JOB,
                                .rank = rank,
                                .ranks = ranks,
                                .local_rank = rank,
                                .local_ranks = ranks,
                                .transport = "shm",
                                .board = board,
                                .deadline_ns = INT64_C(60) * 1000000000};
    return comm_open(&wanted, out);
}

static inline void *rank_main(void *context)
{
    rank_run *k = context;
    comm *all = NULL;
    const train_watcher watcher = {.context = &k->seen,
                                   .step = on_step,
                                   .validated = on_validated,
                                   .saved = on_saved,
                                   .said = on_said,
                                   .stop_asked = on_stop};
    k->st = rank_open(k->board, k->rank, k->ranks, &all);
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
static inline status ranks_run(const char *name, const char *const *more, int count, int ranks,
                               const char *resume, int64_t stop_after, hash128 *out)
{
    rank_run *runs = rank_runs;
    pthread_t threads[RANKS_MAX];
    comm_board *board = NULL;
    assert_true(ranks <= RANKS_MAX);
    assert_int_equal(comm_board_create(ranks, RANKS_JOB, 0, &board), ST_OK);
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

static inline void assert_same(hash128 a, hash128 b)
{
    assert_int_equal(a.high, b.high);
    assert_int_equal(a.low, b.low);
}

#endif
