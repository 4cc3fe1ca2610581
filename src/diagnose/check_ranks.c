// Runs the ranks of `check` as threads of this process.
#include "diagnose/check_ranks.h"

#include <pthread.h>

typedef struct check_rank {
    const host *h;
    comm_control_block *control_block;
    int rank, ranks;
    check_rank_fn *work;
    void *context;
    arena *a;
    pthread_t thread;
    status st;
    error_record error;
} check_rank;

enum { CHECK_JOB = 1 };

static status rank_work(const check_rank *k, comm **all)
{
    const comm_config wanted = {.h = k->h,
                                .job = CHECK_JOB,
                                .rank = k->rank,
                                .ranks = k->ranks,
                                .local_rank = k->rank,
                                .local_ranks = k->ranks,
                                .transport = "shm",
                                .control_block = k->control_block};
    TRY(comm_open(&wanted, all));
    return k->work(k->context, *all, k->rank, k->a);
}

static void *rank_main(void *context)
{
    check_rank *k = context;
    comm *all = NULL;
    k->st = rank_work(k, &all);
    error_take(&k->error);
    if (k->st != ST_OK) comm_control_block_abort(k->control_block, ST_PEER_LOST, k->error.text);
    comm_close(all);
    return NULL;
}

// Starts a thread for each rank; if one cannot be started, all fail.
static status ranks_start(check_rank *ranks, int count)
{
    int started = 0;
    while (started < count &&
           pthread_create(&ranks[started].thread, NULL, rank_main, &ranks[started]) == 0) {
        started++;
    }
    if (started < count)
        comm_control_block_abort(ranks[0].control_block, ST_NO_MEMORY, "no thread for a rank");
    for (int i = 0; i < started; i++) (void)pthread_join(ranks[i].thread, NULL);
    if (started < count) return fail(ST_NO_MEMORY, "no thread for rank %d", started);
    const check_rank *first = NULL; // the first rank that failed by itself, not because of another
    for (int i = 0; i < count; i++) {
        if (ranks[i].st == ST_OK) continue;
        if (first == NULL || (first->st == ST_PEER_LOST && ranks[i].st != ST_PEER_LOST)) {
            first = &ranks[i];
        }
    }
    return first != NULL ? error_put(&first->error) : ST_OK;
}

status check_ranks_run(const host *h, arena *a, int count, check_rank_fn *work, void *context)
{
    check_rank *ranks = NULL;
    comm_control_block *control_block = NULL;
    TRY(arena_new(a, count, &ranks));
    TRY(comm_control_block_create(count, CHECK_JOB, 0, &control_block));
    status st = ST_OK;
    for (int i = 0; i < count && st == ST_OK; i++) {
        ranks[i] = (check_rank){.h = h,
                                .control_block = control_block,
                                .rank = i,
                                .ranks = count,
                                .work = work,
                                .context = context,
                                .a = a};
        if (i > 0) st = arena_create("rank", 0, &ranks[i].a);
    }
    if (st == ST_OK) st = ranks_start(ranks, count);
    for (int i = 1; i < count; i++) arena_destroy(ranks[i].a);
    comm_control_block_unmap(control_block);
    return st;
}
