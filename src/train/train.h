// Training: a run from its configuration to its last checkpoint.
//
// train_run() owns the run's folder and its clocks. It prints nothing: it tells a watcher about
// events and asks it between steps whether to stop.
#ifndef TRAIN_TRAIN_H
#define TRAIN_TRAIN_H

#include "base/format/config.h"
#include "comm/comm.h"
#include "config/run_config.h"
#include "observe/observe.h"
#include "train/job.h"

// Facts that are known before the first step.
typedef struct train_start {
    const run_config *config;
    const decoder_spec *spec;
    const char *run_dir;
    const char *data_about; // "1 source  1,021,334 tokens  0.43 epochs planned"
    const char *tokenizer;
    bool resumed;
    int64_t first_step; // the next step, counted from 1
    int64_t parameters;
    int64_t arena_bytes, available_bytes;
    int64_t snapshot_bytes; // copy of the state that is saved while training continues
    int64_t copies_bytes;   // copies in the memory of ranks (resilience.buddy.ranks)
    const plan *largest;
    const plan *compressed; // plan of steps with compressed gradients; NULL: no compression
    double codec_bound;     // bound of their relative error; 0: none
    int64_t whole_from; // first step without compression after the bound was broken; 0: none known
    int threads;        // per rank
    int ranks;
    const char *transport, *tuning; // transport name and tuning table between ranks; NULL: none
    const char *level;              // kernel level
    int64_t outside_bytes;          // predicted for a GPU's context, code and libraries; 0: none
    exec_ways ways;                 // of the communications of a step on a GPU
    int64_t gpu_ranks;              // that share one GPU, the most of any; 0: not known
    double flops_per_token, peak_flops;
    const char *warnings; // lines about settings and data, of a dry run; NULL: none
} train_start;

// A checkpoint that is durable and verified.
typedef struct train_saved {
    int64_t step, steps, bytes;
    double seconds; // from the copy to the end of verification
    double stall_s; // time that training waited: the copy, and the wait for an earlier save
    const char *path;
} train_saved;

// The state of a run, from which the failure detector tells a slow rank from a stuck one.
typedef struct train_progress {
    int64_t step;      // the last one begun
    uint64_t counter;  // grows with every unit of work
    int64_t step_ns;   // usual time of a step; 0: the current work has no usual time
    const char *doing; // "training", "evaluating", ...; static
} train_progress;

typedef struct train_watcher {
    void *context;
    // The run's folder is open, and nothing else has been done. NULL: not told.
    void (*opened)(void *context, const char *run_dir);
    void (*started)(void *context, const train_start *start);
    void (*step)(void *context, const obs_record *record);
    void (*validated)(void *context, int64_t step, int64_t steps, double loss, int64_t batches,
                      double seconds, bool best);
    void (*saved)(void *context, const train_saved *saved);
    void (*said)(void *context, log_level level, const char *text);
    void (*folder_made)(void *context); // again, after it was removed: open its files anew
    void (*progress)(void *progress_context, const train_progress *p); // called often; NULL: unused
    void *progress_context;                                            // of the next one too
    // True if the ranks of the run are to change: each of them then stops after the same step, with
    // a copy of the state in memory (train_outcome.changes). NULL: never.
    bool (*change_asked)(void *progress_context);
    // 0: go on; 1: finish the step, save, stop; 2: stop at once. *why, for STATUS: "SIGTERM".
    int (*stop_asked)(void *context, const char **why);
} train_watcher;

typedef struct train_outcome {
    int64_t steps, tokens, skipped;
    int64_t trained;       // steps of this session; 0: the run had its last step before
    double wall_s, busy_s; // of this session; busy: inside steps
    double start_s;        // from the start of train_run to the first action of the first step
    double loss, val_loss, best_val_loss;
    double lr_next;                           // learning rate of a step after the last one
    double tokens_per_s, mfu;                 // means of this session
    const char *checkpoint, *best_checkpoint; // NULL: none
    bool stopped;                             // on request, before the last step
    bool changes;                             // the ranks are to change; the run is not over
    bool leaves;                              // the rank was evicted, and its process is to end
    int64_t wrong;                            // ST_CORRUPT: the rank at fault; -1: unknown
} train_outcome;

// Runs before the ranks start: refuses a layout that does not fit the model, and converts the run's
// text to tokens, so that no rank waits for that inside a collective.
NODISCARD status train_prepare(const host *h, arena *a, const run_config *r);

// Keeps between the sessions of a process: copies of shards, its own and those of another rank; the
// memory of the arena, with the state in it; plans; and what was measured once.
typedef struct train_process train_process;
NODISCARD status train_process_create(train_process **out);
void train_process_destroy(train_process *p); // NULL is legal
// Around a session in an arena of its own: begin says that plans in it may be kept, and end takes
// it, and destroys it unless plans that are kept lie in it.
void train_process_begin(train_process *p, arena *a);
void train_process_end(train_process *p, arena *a);

// A launcher that starts ranks again after a loss, or gives the living ones new places.
typedef struct train_restart {
    // Folder in the machine's memory for the state after each step; NULL: none, on several hosts.
    const char *memory;
    train_process *process; // this one's; NULL: it keeps nothing
    int64_t epoch;          // number of changes so far; 0: none, and the fields below have no value
    const char *event;      // "lost", "joined", "sdc"
    const char *done;       // "all ranks were started again", for people
    int64_t rank;           // the rank that was lost
    int64_t lost_ns;        // Unix time at which its end was noticed
    int64_t begun_ns;       // and at which its launcher began, which counts epochs from 1
    double detect_ms;       // from then until all other ranks had ended
    int64_t living;         // ranks that waited since then
    const char *cause;
    // Earlier changes, newest first, which a session that ended early may not have told.
    const struct train_restart *before;
    int64_t before_count;
} train_restart;

// A process that waits for a place prepares for all that it may get: plans, and memory for the
// largest of their arenas, with its pages. asked: true ends it early, with what there is.
typedef struct train_spare {
    int64_t bytes;  // reserved; 0: none
    int64_t places; // that it has plans for
} train_spare;
NODISCARD status train_spare_prepare(const host *h, arena *a, const run_config *r, train_process *p,
                                     bool (*asked)(void *context), void *context, train_spare *out);

typedef struct train_order {
    const run_config *r;
    const config *c;         // source of r's values
    const char *config_text; // as given by the user; NULL: the run's folder has it
    const char
        *resume; // "auto" (the newest checkpoint of run.dir, if any), "none", or a checkpoint
    // The ranks of the run, which all get the same order; NULL: this is the only process. The first
    // rank owns the folder; the watchers of the others hear of steps, not of files.
    comm *ranks;
    const train_watcher *watcher;
    const train_restart *restart; // NULL: the run ends at a loss
    int64_t last_step; // the session ends after it, with a checkpoint; 0: after train.steps
} train_order;

// Writes the run's STATUS after a session whose rank 0 could not: it was killed, or never came to
// train_run(). Does nothing if nothing was made in run_dir, or if another process is using it.
// FIRST is rank 0 or the launcher; OTHER ranks write only if STATUS still says "running". LAUNCHER
// writes after a rank 0 that ended by itself: only if STATUS does not hold its exit code.
typedef enum train_end_writer {
    TRAIN_END_WRITER_FIRST,
    TRAIN_END_WRITER_OTHER,
    TRAIN_END_WRITER_LAUNCHER
} train_end_writer;
void train_end_write(const host *h, arena *a, const char *run_dir, train_end_writer who,
                     const char *state, int exit_code, const char *reason);
// The same for a failure while rank 0 is still there, because it was stopped (SIGSTOP) and keeps
// the folder's lock. Waits a moment for rank 0 to write; then writes if STATUS still says "running"
// and the lock is still that of `first`, the "host:process" of rank 0.
void train_end_write_held(const host *h, arena *a, const char *run_dir, const char *first,
                          int exit_code, const char *reason);

// Returns ST_STOPPED (exit 75) if it stopped with a checkpoint before the last step.
NODISCARD status train_run(const host *h, arena *a, const train_order *order, train_outcome *out);
// Runs several runs with adapters over one base model, which is in memory once: they take turns,
// a step each, and each gives the bits that it would give alone. They have their own folders,
// data and adapters; model, precision, layout and ranks are common. out, ends: [count]; ends:
// why each ended, with code ST_OK if it did all its steps. Returns the failure of the run that had
// the turn, or the first stop; a stop of one is that of all.
NODISCARD status train_together(const host *h, arena *a, const train_order *orders, int64_t count,
                                train_outcome *out, error_record *ends);

#endif
