// A session: one process's part of a run, from opening its folder to closing it. Internal to train/.
#ifndef TRAIN_SESSION_H
#define TRAIN_SESSION_H

#include "train/feed.h"
#include "train/folder.h"
#include "train/train.h"

typedef struct session {
    const host *h;
    arena *a;
    const run_config *r;
    const train_watcher *w;
    train_options options;
    decoder_spec spec;
    train_plans plans;
    train_job job;
    train_folder folder;
    train_feed *feed;
    obs_metrics *metrics;
    obs_events *events;
    trace_ring *ring;
    obs_trace *trace;
    step_device *results;          // of the step or evaluation read last
    text config_json, config_yaml; // what a checkpoint carries
    const char *numerics;
    double flops_per_token, peak_flops;
    // The run so far.
    int64_t first_step, step; // step: finished
    int64_t sequences, tokens, skipped_in_a_row;
    double loss, val_loss, best_val_loss;
    const char *best; // folder name of the best checkpoint
    const char *newest_path, *best_path;
    // Clocks of this session, ns.
    int64_t begin_ns, last_result_ns, busy_ns, wait_ns, step_wait_ns[2];
    int64_t session_tokens, skipped;
    int64_t steps_timed;
    double mean_step_s; // of recent steps
    int stop;           // as stop_asked gave it
    const char *stop_reason;
    int64_t saved_step; // of the newest checkpoint; -1: none
    int64_t fork;       // of the checkpoints that this session writes
    struct {
        const char **names; // checkpoints that were refused
        int64_t count, capacity;
    } damaged;
} session;

// session_step.c: steps from the one after s->step up to `until` (a multiple of nothing: where an
// evaluation or a save is due), all results read.
NODISCARD status session_steps(session *s, int64_t until);
NODISCARD status session_validate(session *s);
// session_save.c
NODISCARD status session_save(session *s);
// In the middle of a run a disk that is full or fails costs that checkpoint, told aloud, not the run.
NODISCARD status session_save_or_go_on(session *s);
NODISCARD status session_load(session *s, const char *path);

void session_say(const session *s, log_level level, const char *format, ...) PRINTF_LIKE(3, 4);
bool session_should_stop(session *s); // asks the watcher and the clock
int64_t session_now(const session *s);

#endif
