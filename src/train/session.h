// A session: one process's part of a run, from opening its folder to closing it. Internal to
// train/.
#ifndef TRAIN_SESSION_H
#define TRAIN_SESSION_H

#include "train/folder.h"
#include "train/loader.h"
#include "train/train.h"

typedef struct session {
    const host *h;
    arena *a;
    const run_config *r;
    const train_watcher *w;
    assemble_options options;
    decoder_spec spec;
    assemble_plans plans;
    train_ranks ranks;
    train_job job;
    train_folder folder;
    train_loader *loader;
    obs_metrics *metrics;
    obs_events *events;
    trace_ring *ring;
    obs_trace *trace;
    int64_t records_lost;          // that metrics.jsonl or the events could not take
    step_device *results;          // of the step or evaluation read last
    text config_json, config_yaml; // what a checkpoint carries
    const char *numerics;
    double flops_per_token, peak_flops;
    // The run so far.
    int64_t first_step, step; // step: finished
    int64_t sequences, tokens, skipped_in_a_row;
    double loss, val_loss, best_val_loss;
    char *newest_path, *best_path; // of checkpoints, CKPT_PATH_BYTES each; empty: none
    bool best_due;                 // an evaluation was the best so far and is not saved yet
    // Gradients that travel compressed.
    int64_t whole_from;   // step from which they travel whole, being out of bound; 0: none so far
    bool codec_changed;   // since the run was made with it: it is tried anew
    double *codec_errors; // of the step read last, by bucket
    // Clocks of this session, ns.
    int64_t begin_ns, last_result_ns, busy_ns, wait_ns, step_wait_ns[2];
    device_stream_times comm_times; // when the last record was made
    int64_t session_tokens, skipped;
    int64_t steps_timed;
    double mean_step_s; // of recent steps
    uint64_t progress;
    int stop; // as stop_asked gave it
    const char *stop_reason;
    // Checkpoints.
    ckpt_saver *saver;
    int64_t saved_step, begun_step; // of the newest one, and of the one on the way; -1: none
    error_record save_error;        // why the last one was given up
    ckpt_extra extras[2];
    char config_sum[33], data_sum[33];
    const char *data_before; // data_sum of the checkpoint that was loaded; NULL: not known
    int64_t fork;            // of the checkpoints that this session writes
    train_start start;       // as it was told
    struct {
        const char **names; // checkpoints that were refused
        int64_t count, capacity;
    } damaged;
} session;

// session_step.c: steps from the one after s->step up to `until` (a multiple of nothing: where an
// evaluation or a save is due), all results read.
NODISCARD status session_steps(session *s, int64_t until);
NODISCARD status session_validate(session *s, bool *whole); // false: it was asked to stop
// session_save.c
NODISCARD status session_saver_open(session *s);
// Begins a save of this step, unless there is one. A disk that is full or fails costs that
// checkpoint, told aloud, not the run.
NODISCARD status session_save_begin(session *s, bool is_best);
// Looks at what became of the save on the way; `wait`: until it has ended.
NODISCARD status session_save_poll(session *s, bool wait);
// Saves, and returns when it is durable and verified, or fails.
NODISCARD status session_save_last(session *s);
NODISCARD status session_load(session *s, const char *path);

// session_ranks.c
NODISCARD status session_ranks_open(session *s, comm *all); // NULL: this process is all there is
void session_ranks_close(session *s);
plan_mesh session_mesh(const session *s);
bool session_is_first(const session *s);
// Collective: the largest value of all ranks.
NODISCARD status session_agree(const session *s, int *value, const char *what);
NODISCARD status session_meet(const session *s, const char *what); // Collective

// session_codec.c: does this step's gradient travel compressed? The same on all ranks.
bool session_compresses(const session *s, int64_t step);
// What the results taken last say of it, into `record`; all ranks see the same, and draw the same
// conclusion: out of bound, and from the step after the next on gradients travel whole.
NODISCARD status session_codec_take(session *s, obs_record *record);
// What a checkpoint says of it.
void session_codec_load(session *s, const ckpt_info *info);

// Something was done. `usual`: the next is due within a usual step.
void session_progress(session *s, const char *doing, bool usual);
void session_say(const session *s, log_level level, const char *format, ...) PRINTF_LIKE(3, 4);
bool session_should_stop(session *s); // asks the watcher and the clock
// The same for all ranks: s->stop is one for all afterwards. Collective.
NODISCARD status session_stop_agree(session *s);
int64_t session_now(const session *s);

#endif
