// For tests of comm: ranks as threads of this process or as forked processes.
#ifndef COMM_TEST_RANKS_H
#define COMM_TEST_RANKS_H

#include "comm/comm.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

// Runs on every rank; what it returns and the error's text come back.
typedef status (*fixture_body)(comm *c, void *context);

enum { FIXTURE_RANKS = 16, FIXTURE_TEXT = 1024 };
typedef struct fixture_result {
    status st;
    char text[FIXTURE_TEXT];
} fixture_result;

typedef struct fixture_job {
    int ranks;
    bool processes;
    int cores; // that its ranks have, as they are told; 0: those of this machine
    int64_t deadline_ns;
    const char *tuning;
    int spin_ns;
    fixture_body body;
    void *context;
    comm_board *board;
    fixture_result *results; // of the last run, in memory that processes share
} fixture_job;

static inline fixture_result *fixture_results(void)
{
    static fixture_result *results;
    if (results == NULL) {
        results = mmap(NULL, FIXTURE_RANKS * sizeof(*results), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (results == MAP_FAILED) abort();
    }
    return results;
}

typedef struct fixture_rank {
    fixture_job *job;
    int rank;
} fixture_rank;

static inline status fixture_open(const fixture_job *job, int rank, comm **out)
{
    const comm_config config = {.h = host_real(),
                                .job = 7,
                                .rank = rank,
                                .ranks = job->ranks,
                                .local_rank = rank,
                                .local_ranks = job->ranks,
                                .transport = "shm",
                                .board = job->board,
                                .tuning = job->tuning,
                                .deadline_ns = job->deadline_ns,
                                .spin_ns = job->spin_ns};
    return comm_open(&config, out);
}

static inline void *fixture_main(void *argument)
{
    const fixture_rank *r = argument;
    fixture_result *result = &r->job->results[r->rank];
    comm *c = NULL;
    result->st = fixture_open(r->job, r->rank, &c);
    if (result->st == ST_OK) result->st = r->job->body(c, r->job->context);
    snprintf(result->text, sizeof(result->text), "%.*s", FIXTURE_TEXT - 1,
             result->st == ST_OK ? "" : error_last()->text);
    comm_close(c);
    return NULL;
}

// Results of all ranks. A process that died counts as ST_PEER_LOST here.
static inline void fixture_run(fixture_job *job)
{
    pthread_t threads[FIXTURE_RANKS];
    pid_t pids[FIXTURE_RANKS];
    fixture_rank ranks[FIXTURE_RANKS];
    job->results = fixture_results();
    status st = comm_board_create(job->ranks, 7, job->cores, &job->board);
    if (st != ST_OK) {
        printf("no board: %s\n", error_last()->text);
        abort();
    }
    for (int i = 0; i < job->ranks; i++) {
        ranks[i] = (fixture_rank){.job = job, .rank = i};
        job->results[i] = (fixture_result){.st = ST_PEER_LOST, .text = "the process died"};
        if (!job->processes) {
            if (pthread_create(&threads[i], NULL, fixture_main, &ranks[i]) != 0) abort();
            continue;
        }
        (void)fflush(NULL);
        pids[i] = fork();
        if (pids[i] < 0) abort();
        if (pids[i] == 0) {
            (void)fixture_main(&ranks[i]);
            (void)fflush(NULL);
            _exit(0);
        }
    }
    for (int i = 0; i < job->ranks; i++) {
        if (!job->processes)
            (void)pthread_join(threads[i], NULL);
        else
            (void)waitpid(pids[i], NULL, 0);
    }
    comm_board_unmap(job->board);
    job->board = NULL;
}

#endif
