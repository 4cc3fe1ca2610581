// Training: a run from its configuration to its last checkpoint.
//
// train_run() owns the run's folder and the passing of time. It prints nothing: a watcher hears
// what happens, and is asked between steps whether to stop.
#ifndef TRAIN_TRAIN_H
#define TRAIN_TRAIN_H

#include "base/format/config.h"
#include "comm/comm.h"
#include "config/run_config.h"
#include "observe/observe.h"
#include "train/job.h"

// What is known before the first step.
typedef struct train_start {
    const run_config *config;
    const decoder_spec *spec;
    const char *run_dir;
    const char *data_about; // "1 source  1,021,334 tokens  0.43 epochs planned"
    const char *tokenizer;
    bool resumed;
    int64_t first_step; // the step that comes next, from 1
    int64_t parameters;
    int64_t arena_bytes, available_bytes;
    int64_t snapshot_bytes; // the copy of the state that is saved beside training
    const plan *largest;
    const plan *compressed; // of steps whose gradients travel compressed; NULL: none do
    double codec_bound;     // of their relative error; 0: none
    int64_t whole_from;     // step from which they travel whole again; 0: not known of any
    int threads;            // of each rank
    int ranks;
    const char *transport, *tuning; // between ranks: its name, the table's text; NULL: none
    const char *level;              // of kernels
    double flops_per_token, peak_flops;
} train_start;

// A checkpoint that is durable and verified.
typedef struct train_saved {
    int64_t step, steps, bytes;
    double seconds; // from the copy to the end of reading back
    double stall_s; // for which training stood still: the copy, and what it waited for the rest
    const char *path;
} train_saved;

// Where a run is, for whoever must tell a slow one from one that stands.
typedef struct train_progress {
    int64_t step;      // the one begun last
    uint64_t counter;  // grows with whatever is done
    int64_t step_ns;   // of a usual step; 0: what is being done now has no usual time
    const char *doing; // "training", "evaluating", ...; static
} train_progress;

typedef struct train_watcher {
    void *context;
    void (*started)(void *context, const train_start *start);
    void (*step)(void *context, const obs_record *record);
    void (*validated)(void *context, int64_t step, int64_t steps, double loss, int64_t batches,
                      double seconds, bool best);
    void (*saved)(void *context, const train_saved *saved);
    void (*said)(void *context, log_level level, const char *text);
    void (*progress)(void *progress_context, const train_progress *p); // often; NULL: nobody asks
    void *progress_context;
    // 0: go on; 1: finish the step, save, stop; 2: stop at once. *why, for STATUS: "SIGTERM".
    int (*stop_asked)(void *context, const char **why);
} train_watcher;

typedef struct train_outcome {
    int64_t steps, tokens, skipped;
    double wall_s, busy_s; // of this session; busy: inside steps
    double start_s;        // from the start of train_run to the first action of the first step
    double loss, val_loss, best_val_loss;
    double tokens_per_s, mfu;                 // means of this session
    const char *checkpoint, *best_checkpoint; // NULL: none
    bool stopped;                             // asked to, before the last step
} train_outcome;

// Before there are ranks: refuses a layout that the model does not have, and makes the run's texts
// tokens, if they are not yet, so that no rank waits for that in an operation.
NODISCARD status train_prepare(const host *h, arena *a, const run_config *r);

typedef struct train_order {
    const run_config *r;
    const config *c;         // where r's values are from
    const char *config_text; // as the user gave it; NULL where the run's folder has it
    const char
        *resume; // "auto" (the newest checkpoint of run.dir, if any), "none", or a checkpoint
    // The ranks of the run, all of which run the same order; NULL: this process is all there is.
    // The first one has the folder; the others' watchers hear of steps, not of files.
    comm *ranks;
    const train_watcher *watcher;
} train_order;

// Returns ST_STOPPED (exit 75) if it stopped with a checkpoint before the last step.
NODISCARD status train_run(const host *h, arena *a, const train_order *order, train_outcome *out);

#endif
