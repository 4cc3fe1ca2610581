// The data loader: a thread that fills the next step's batch while the current step runs.
//
// It fills two buffers in turn and allocates nothing after create. The caller gives a pure function
// from the step to its sequences, so the loader needs no other support for a batch-size ramp, a
// rank's part or a restart at any step.
#ifndef DATA_LOADER_H
#define DATA_LOADER_H

#include "data/dataset.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct data_loader data_loader;

typedef struct data_loader_args {
    const host *h;
    const data_dataset *dataset; // borrowed, must outlive the loader
    data_split split;
    int64_t first_step, last_step; // next() returns the batches of these steps, in order
    int64_t max_count;             // the largest number of sequences of any step
    // The sequences of a step: [*first, *first + *count), 0 <= *count <= max_count. Called from the
    // loader's thread; must be pure.
    void (*range)(void *context, int64_t step, int64_t *first, int64_t *count);
    void *context;
    bool no_thread; // next() fills the batch itself: for simulated hosts
} data_loader_args;

typedef struct data_batch {
    int64_t step, first, count;
    data_rows rows;  // (count, seq), borrowed until the next call of next
    int64_t wait_ns; // the time that next() waited for it
} data_batch;

NODISCARD status data_loader_create(const data_loader_args *args, data_loader **out);
// The batch of the next step. The loader may then reuse the previous buffer. ST_INTERNAL after
// last_step.
NODISCARD status data_loader_next(data_loader *l, data_batch *out);
void data_loader_destroy(data_loader *l); // NULL is legal; stops the thread

#ifdef __cplusplus
}
#endif
#endif
