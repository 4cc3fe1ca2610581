// For tests that run over every backend: which ones there are, at which levels, with how many threads.
#ifndef KERNELS_BACKEND_FIXTURE_H
#define KERNELS_BACKEND_FIXTURE_H

#include "kernels/backend_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// One way to run a kernel: a backend at a level of the machine.
typedef struct backend_run {
    const kern_backend *backend;
    kern_context context;
    void *scratch;
    char name[32]; // "cpu/avx2/2"
} backend_run;

enum { BACKEND_MAX_RUNS = 2 * KERN_LEVEL_COUNT };

static inline bool backend_is_ref(const kern_backend *backend)
{
    return strcmp(backend->name, "ref") == 0;
}

static inline void backend_run_init(backend_run *run, const kern_backend *backend, kern_level level,
                                    int threads)
{
    memset(run, 0, sizeof(*run));
    run->backend = backend;
    run->context.level = level;
    if (kern_pool_create(threads, &run->context.pool) != ST_OK) abort();
    run->scratch = aligned_alloc(4096, (size_t)threads * KERN_SCRATCH_BYTES);
    if (run->scratch == NULL) abort();
    memset(run->scratch, 0xFF, (size_t)threads * KERN_SCRATCH_BYTES);
    kern_pool_scratch_set(run->context.pool, run->scratch);
    snprintf(run->name, sizeof(run->name), "%s/%s/%d", backend->name, kern_level_name(level),
             threads);
}

// Every backend of the table: `ref` once, the others at every level that this machine has.
static inline int backend_runs_init(backend_run *runs, int threads)
{
    int count = 0;
    for (int b = 0; b < KERN_BACKEND_COUNT; b++) {
        const bool is_ref = backend_is_ref(kern_backend_table[b]);
        const int top = is_ref ? 0 : (int)kern_level_of_machine();
        for (int level = 0; level <= top; level++) {
            backend_run_init(&runs[count++], kern_backend_table[b], (kern_level)level, threads);
        }
    }
    return count;
}

static inline void backend_runs_deinit(backend_run *runs, int count)
{
    for (int i = 0; i < count; i++) {
        kern_pool_destroy(runs[i].context.pool);
        free(runs[i].scratch);
    }
}

#endif
