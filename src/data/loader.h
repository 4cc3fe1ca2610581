// The loader: a thread that fills the next step's batch while this step runs.
//
// Two buffers, filled in turn; no allocation after create. What a step takes is a pure function
// that the caller gives, so a batch-size ramp, a rank's part and a restart at any step need
// nothing else.
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
    int64_t first_step, last_step; // next() gives these, in order
    int64_t max_count;             // the most sequences of any step
    // Which sequences a step takes: [*first, *first + *count), 0 <= *count <= max_count. Called
    // from the loader's thread; must be pure.
    void (*range)(void *context, int64_t step, int64_t *first, int64_t *count);
    void *context;
    bool no_thread; // fill in next() itself: for simulated hosts
} data_loader_args;

typedef struct data_batch {
    int64_t step, first, count;
    data_rows rows;  // (count, seq), borrowed until the next call of next
    int64_t wait_ns; // how long next() waited for it
} data_batch;

NODISCARD status data_loader_create(const data_loader_args *args, data_loader **out);
// The batch of the next step; gives the buffer of the one before back. ST_INTERNAL after last_step.
NODISCARD status data_loader_next(data_loader *l, data_batch *out);
void data_loader_destroy(data_loader *l); // NULL is legal; ends the thread

#ifdef __cplusplus
}
#endif
#endif
