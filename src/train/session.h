// A session: one process's part of a run, from opening its folder to closing it. This header is
// internal to train/.
#ifndef TRAIN_SESSION_H
#define TRAIN_SESSION_H

#include "assemble/base.h"
#include "assemble/prove.h"
#include "checkpoint/shard.h"
#include "train/advice.h"
#include "train/folder.h"
#include "train/loader.h"
#include "train/straggler.h"
#include "train/train.h"
#include "train/watch.h"

typedef struct session {
    const host *h;
    arena *a;
    const run_config *r;
    const config *c; // where r's values are from
    const train_watcher *w;
    assemble_options options;
    decoder_spec spec;
    assemble_plans plans;
    train_ranks ranks;
    int64_t gpu_ranks;      // that have this rank's GPU; 0: it has none
    int64_t gpu_ranks_most; // that have one GPU, of all ranks
    train_job job;
    train_folder folder;
    train_loader *loader;
    bool has_data; // the loader has its dataset
    obs_metrics *metrics;
    obs_events *events;
    trace_ring *ring;
    obs_trace *trace;
    int64_t records_lost;          // records that metrics.jsonl or the events file failed to take
    step_device *results;          // results of the step or evaluation read last
    struct rebalance *rebalance;   // NULL: experts stay where they are
    obs_load *loads;               // of its layers with experts; NULL: there are none
    text config_json, config_yaml; // stored in checkpoints
    text adapter_json, base_json;  // too, if the run has an adapter
    assemble_base base;            // of the adapter, on the first rank
    const char *numerics;
    double flops_per_token, peak_flops;
    train_facts facts;       // of data and machine
    train_guessing guessing; // losses of this session
    // The run so far.
    int64_t first_step, step; // step: the last finished one
    int64_t sequences, tokens, skipped_in_a_row;
    double loss, val_loss, best_val_loss;
    char *newest_path, *best_path; // paths of checkpoints, CKPT_PATH_BYTES each; empty: none
    bool best_due; // the last evaluation was the best so far, and its weights are not saved yet
    // Compressed gradients.
    int64_t whole_from;   // first uncompressed step after an error beyond the bound; 0: none so far
    bool codec_changed;   // the configuration changed the codec, so compression is tried again
    double *codec_errors; // errors of the step read last, by bucket
    // Clocks of this session, ns.
    int64_t begin_ns, last_result_ns, busy_ns, wait_ns, step_wait_ns[2];
    device_stream_times comm_times[2]; // at the time of the last record: of all, of ep
    int64_t session_tokens, skipped;
    int64_t steps_timed;
    double mean_step_s;  // moving average over recent steps
    obs_goodput goodput; // of the run so far; last_result_ns is the end of the time that it covers
    uint64_t progress;
    int stop;         // the result of stop_asked
    bool is_changing; // it stops because its ranks are to change
    bool leaves;      // this rank is evicted
    int64_t wrong;    // rank whose state differs from that of the others; -1: none known
    const char *stop_reason;
    // Checkpoints.
    ckpt_saver *saver;
    int64_t saved_step, begun_step; // newest save, and the one in progress; -1: none
    error_record save_error;        // error of the last failed save
    ckpt_extra extras[2][6];        // [session_copy]
    char config_sum[33], data_sum[33], tokenizer_sum[33];
    run_config own;               // s->r: the vocabulary may be filled in
    const struct session *shares; // whose base model it uses; NULL: it has its own
    struct {
        const train_restart *order; // NULL: no copies in memory
        ckpt_saver *saver;          // of the first rank
        bool is_begun, is_failed;   // a copy is in progress; one has failed, which was said
        int32_t ready;              // ranks whose plans and memory were there before
    } memory;
    struct {
        bool is_watched;               // the run's objective has measures, which the host reads
        train_watch *watches;          // [plan]
        data_pair *pairs;              // of one sequence
        double valid[MEASURE_COLUMNS]; // of a validation
    } objective;
    struct session_rollouts *rollouts; // NULL: the run draws no completions
    struct {
        ckpt_replicas *own; // NULL: they are neither compared nor recorded
        bool compares;
        uint64_t *all;           // hashes of all ranks
        struct train_rest *rest; // what is at rest between updates; NULL: it is not hashed
    } replicas;
    struct {
        struct task_spec *specs; // of eval.tasks, on the first rank
        train_loader *loader;    // with a tokenizer of its own
        struct data_chat *chat;  // NULL: prompts are texts
    } tasks;
    struct {
        ckpt_sharder *sharder;       // NULL: no copies in other ranks
        struct buddy_route *route;   // of the session's thread
        comm_group *group;           // of the copier; NULL: it sends nothing
        struct buddy_copier *copier; // copies overlap with the next step; NULL: they do not
        bool is_due;                 // the state was loaded, and some ranks have no copy
    } buddy;
    int64_t *repairs_told; // [rank] repaired products so far; NULL: products are not checked
    int64_t last_step;     // of this session
    struct {
        int64_t at, every; // step of the next save; interval. 0: not chosen yet
        double cost_s;     // of the last save: time that training waited
    } interval;
    struct durable *durable; // NULL: no durable tier
    struct scrub *scrub;     // of the first rank; NULL: checkpoints are not read again
    struct {
        struct rank_word *words;   // of all ranks
        straggler_times own, *all; // of the step read last; of all ranks
        int64_t disk_ns;           // in saves since then
        stragglers *slow;          // of the first rank
    } times;
    struct session_replay *replay; // NULL: no step is replayed
    struct session_health *health; // of this rank's GPU; NULL: NVML does not tell it
    struct session_kept *kept;     // of the sessions of this process; NULL: this is the only one
    hash128 plan_key;              // of this rank's plans, if the process keeps some
    bool had_plan;                 // the process had them before this session
    struct {
        int64_t rank; // of a finding that the first rank tells the others next; -1: none
        double ratio;
        int64_t slow_rank; // of the finding that all know
        double slow_ratio;
        double *slow; // [dp] times of a sequence by the findings of this session; NULL: none
        bool is_due, is_evict; // after this step the ranks take other shares, or lose that one
    } move;
    const char *data_before; // data_sum of the checkpoint that was loaded; NULL: not known
    int64_t fork;            // branch number of the checkpoints that this session writes
    train_start start;       // as passed to the watcher
    const config *given;     // with config_text, as in train_order
    const char *config_text;
    int64_t folder_at;   // time of the last look at the folder
    int folder_looks;    // in a row that did not find it
    bool is_folder_lost; // it is gone and could not be made again
    struct {
        const char **names; // checkpoints that could not be used
        int64_t count, capacity;
    } damaged;
} session;

// session_step.c: runs the steps after s->step up to `until`, where an evaluation or a save is due,
// and reads all results.
NODISCARD status session_steps(session *s, int64_t until);
// The input of a step without its batch.
exec_input session_input(const session *s, int64_t step, int64_t sequences);
// Adds an event's line to metrics.jsonl, on the rank that writes it. A failed write costs the line,
// as it costs a step's record, and the run goes on.
NODISCARD status session_event(session *s, const text *line);
// session_save.c
NODISCARD status session_saver_open(session *s);
// Begins a save of this step, unless one is in progress. A full or failing disk costs that
// checkpoint and logs a warning; the run goes on.
NODISCARD status session_save_begin(session *s, bool is_best);
// Polls the save in progress; with `wait`, waits until it has ended.
NODISCARD status session_save_poll(session *s, bool wait);
// Saves, and returns when the checkpoint is durable and verified, or fails.
NODISCARD status session_save_last(session *s);
NODISCARD status session_load(session *s, const char *path);
// Goes on after this record's step; newest: path of the newest checkpoint, "": none.
NODISCARD status session_follow(session *s, const ckpt_info *info, const char *newest);
ckpt_info session_info(const session *s); // the record of the state after this step
// Describes the state after this step. The result refers to s->extras, so the last save of this
// kind has ended.
typedef enum session_copy { COPY_ON_DISK, COPY_IN_MEMORY } session_copy;
NODISCARD status session_order_fill(session *s, session_copy where, ckpt_order *order);
// The part of a rank that does not save in a save of the first rank: gives its pieces of the state,
// and compares replicas.
NODISCARD status session_confirm(session *s);

// session_memory.c: copies of the state in the machine's memory, from which a run continues after a
// loss. All functions do nothing without a launcher that starts the run again.
bool session_memory_is_kept(const session *s); // in a folder of this machine
NODISCARD status session_memory_open(session *s);
// Copies the state of this step if that is due. Collective where the state is cut over ranks.
NODISCARD status session_memory_save(session *s);
// Copies the state of the last step and returns when the copy is complete, or saves a checkpoint if
// that fails. Collective.
NODISCARD status session_memory_last(session *s);
// Loads the newest copy if it is newer than the checkpoint `newest` (NULL: none). *is_loaded: done.
NODISCARD status session_memory_load(session *s, const ckpt_entry *newest, bool *is_loaded);
// The newest of them, if it is newer than *newest (which may be NULL).
NODISCARD status session_memory_newest(session *s, const ckpt_entry **newest);
// Tells people and metrics.jsonl about the loss before this session. First rank.
NODISCARD status session_memory_tell(session *s);
void session_memory_close(session *s);

// session_resume.c: loads the state of --resume, or the first one.
NODISCARD status session_state(session *s, const char *resume);

// session_buddy.c: copies of each rank's shard in its own and in another rank's memory
// (resilience.buddy.ranks). All functions but the load do nothing without such copies. Collective.
NODISCARD status session_buddy_open(session *s);
// Copies the state of this step if that is due, or in any case.
NODISCARD status session_buddy_save(session *s, bool in_any_case);
// Loads the newest state that the processes have together, unless `newest` (NULL: none) is newer.
// `saved`: the newest checkpoint on the disk. *is_loaded: done.
NODISCARD status session_buddy_load(session *s, const ckpt_entry *newest, const ckpt_entry *saved,
                                    bool *is_loaded);

// run.c: options of the plans of a rank.
assemble_options session_options(const run_config *r, const plan_mesh *mesh);
// session_process.c: what a process keeps between its sessions; NULL: it keeps nothing.
struct train_process *session_process(const session *s);
// Makes the plans of this rank, or finds those that the process kept. prove: the plans of all
// ranks, if they were not verified before. bytes: memory that it kept.
NODISCARD status session_process_plan(session *s);
NODISCARD status session_process_prove(session *s, assemble_proved *out);
int64_t session_process_bytes(const session *s);
// put: gives the job the memory that was kept. take: before the state is loaded; the device may
// hold it. clear: no state that it may hold is wanted. holds: the device has the state of this
// step, which was copied or loaded. forget: it may have another one.
void session_process_put(session *s);
void session_process_take(session *s);
NODISCARD status session_process_clear(session *s);
void session_process_holds(session *s);
void session_process_forget(session *s);
double session_process_peak(session *s); // of the device, measured once
// Counts the ranks whose plans and memory were there before this session. Collective.
NODISCARD status session_process_ready(session *s);

// session_folder.c: makes the run's folder again if it was removed. At most once a second, unless
// `at_once`. ST_LOCKED: another process uses a folder in its place.
NODISCARD status session_folder_check(session *s, bool at_once);
// run.c: opens metrics.jsonl and the events file at this step; those of before are closed.
NODISCARD status session_records_open(session *s);

// session_arena.c: writes RUN/logs/arenas/RANK.json, if that folder is there.
NODISCARD status session_arena_tell(session *s);

// session_replicas.c: compares the state that several ranks hold, if sdc.digests is set.
// is_copied: a copy was taken, in which nothing wrong may be. ST_CORRUPT: it differs. Collective.
NODISCARD status session_replicas_open(session *s);
NODISCARD status session_replicas_check(session *s, bool is_copied);
// Hashes of all ranks' pieces, [ranks][count]. Collective.
NODISCARD status session_hashes(session *s, const uint64_t **all);
// session_checks.c: sdc.abft. own: the products that this rank has repaired. see: the first rank
// tells what is new of one. last: after the last step. Collective, but own and see.
typedef struct rank_repairs {
    int64_t count;
    kern_hit last;
} rank_repairs;
NODISCARD status session_checks_open(session *s);
rank_repairs session_checks_own(const session *s);
NODISCARD status session_checks_see(session *s, int64_t rank, const rank_repairs *x);
NODISCARD status session_checks_last(session *s);
// session_record.c: sdc.replay. The distance between two recorded steps, 0: none; and the recording
// of this step, if it is one. Collective.
int64_t session_record_every(const session *s);
NODISCARD status session_record(session *s);

// session_replay.c: steps that this rank and another one compute again. next: the step after which
// one begins, or ends, that is replayed; INT64_MAX: none. before, after: around that one;
// ST_CORRUPT if its gradients differ, or a rank repeats a wrong one. Collective, but next.
NODISCARD status session_replay_open(session *s);
int64_t session_replay_next(const session *s);
NODISCARD status session_replay_before(session *s);
NODISCARD status session_replay_after(session *s);
void session_replay_tell(const session *s); // how many steps, after the last one

// session_interval.c: returns the step of the next checkpoint, INT64_MAX: none.
int64_t session_save_next(const session *s);
// checkpoint.every = auto: chooses the interval anew, after a save was begun. Collective.
NODISCARD status session_interval_choose(session *s);
// session_durable.c: copies of finished checkpoints in the folder of the durable tier. First rank;
// all functions but the merge do nothing on others.
NODISCARD status session_durable_open(session *s);
void session_durable_close(session *s); // waits for a copy in progress
// Begins a copy of this checkpoint if one is due.
void session_durable_copy(session *s, const ckpt_saved *saved);
// The checkpoints of the disk and of the durable tier in the order in which they are tried: those
// of the tier that are newer than all of the disk come last. Their name is their path. Collective.
NODISCARD status session_durable_merge(session *s, const ckpt_entries *disk, ckpt_entries *out);

// session_scrub.c: reads the run's checkpoints again at an interval of time. First rank; poll,
// between two steps, begins a pass that is due and tells the result of one that has ended.
NODISCARD status session_scrub_open(session *s);
NODISCARD status session_scrub_poll(session *s);
// Waits for the end of a pass in progress, or ends it early if the run is to stop.
void session_scrub_close(session *s);

// session_times.c: slow ranks, from the times that travel with each word about a stop.
NODISCARD status session_times_open(session *s);
void session_times_put(session *s, const obs_record *record, double seconds, int64_t data_ns);
// *stop becomes the largest of all ranks. Tells about a slow rank. Collective.
NODISCARD status session_words_swap(session *s, int *stop);
// Tells how many steps were replayed as graphs, on a device that has them.
NODISCARD status session_graphs_tell(session *s);
// Tells the bytes of the GPU outside the arena, measured and predicted.
NODISCARD status session_outside_tell(session *s);

// session_shares.c: micro-batches that move from a slow rank to others (resilience.straggler).
// found: the first rank has found a slow rank. take: all ranks hear of it with the next words.
// plan: decides whether the run goes on with other shares, whose plans are made and verified;
// s->move.is_due is false if not. keep: keeps the state for the session that goes on with them.
// put: loads it. known: what the ranks know of each other's speed. evict: ends the epoch without
// the slow rank. Collective, but found and known.
void session_shares_found(session *s, const straggler *x);
void session_shares_take(session *s, int64_t rank, double ratio);
NODISCARD status session_shares_plan(session *s);
NODISCARD status session_shares_keep(session *s);
NODISCARD status session_shares_put(session *s);
status session_shares_evict(session *s);
bool session_goes_on(const session *s);
// Sets s->kept, and the shares that it has, before the plans are made.
void session_shares_use(session *s, struct session_kept *c);
// How many times as many sequences as this rank of the job the average rank has.
double session_shares_scale(const session *s, int64_t rank);
void session_shares_known(const session *s, stragglers *of);
// The memory that outlives a session of this process.
NODISCARD status session_kept_create(arena *a, struct session_kept **out);
void session_kept_destroy(struct session_kept *c);

// session_objective.c: for objectives that compare answers. open: gets the reference's
// log-probabilities and watches the measures; before the state is loaded. Collective.
NODISCARD status session_objective_open(session *s);
// Adds the measures of the plan's last step, of all ranks. Collective; the device is idle.
NODISCARD status session_objective_take(session *s, const plan *p, double sums[MEASURE_COLUMNS]);
void session_objective_record(const session *s, const double sums[MEASURE_COLUMNS], bool valid,
                              obs_record *record);
bool session_evaluates(const session *s); // a validation loss is computed

// session_tasks.c: eval.tasks. open: reads the task files. Collective.
NODISCARD status session_tasks_open(session *s);
void session_tasks_close(session *s);
// The next step after which tasks are due; INT64_MAX: none.
int64_t session_tasks_next(const session *s);
// Saves this step's state and runs the tasks on it, if they are due and metrics.jsonl does not have
// their results. The first rank runs them, and the others wait. Collective.
NODISCARD status session_tasks_run(session *s);

// session_rollout.c: completions that the job draws for its own steps. open: after the job and the
// prompts exist. take: the batch of the step; *whole is false if it was stopped. Collective.
NODISCARD status session_rollouts_open(session *s);
NODISCARD status session_rollouts_take(session *s, int64_t step, int64_t batch, exec_input *input,
                                       int64_t *wait_ns, bool *whole);
void session_rollouts_record(const session *s, obs_record *record); // of the step taken last
// The batches that were drawn ahead, for a checkpoint of this step and from one; *out is NULL if
// there are none. The text lives until the next call for the same copy.
NODISCARD status session_rollouts_print(session *s, session_copy where, const char **out);
NODISCARD status session_rollouts_load(session *s, const char *path, int64_t step);
void session_rollouts_close(session *s);

// session_ranks.c
NODISCARD status session_ranks_open(session *s, comm *all); // NULL: this is the only process
// Finds how many ranks have the GPU of this one: those of a host take the visible ones in turn, and
// a launcher may show each rank its own. Collective.
NODISCARD status session_gpu_find(session *s);
void session_ranks_close(session *s);
plan_mesh session_mesh(const session *s);
bool session_is_first(const session *s);
// Collective: *value becomes the largest value of all ranks.
NODISCARD status session_agree(const session *s, int *value, const char *what);
// Gathers a record of every rank in `all`, ordered by rank. One rank: a copy of its own.
NODISCARD status session_gather(const session *s, const void *own, void *all, int64_t bytes,
                                const char *what);
NODISCARD status session_barrier(const session *s, const char *what); // Collective

// session_loads.c: the load of experts of the results taken last, for a record.
NODISCARD status session_loads_open(session *s);
void session_loads_take(session *s, obs_record *record);

// session_rebalance.c: experts that move between ranks. count: adds the loads of a step. The third
// moves experts if that is due after this step; the device is idle. Collective.
NODISCARD status session_rebalance_open(session *s);
void session_rebalance_count(session *s, const int64_t *words);
NODISCARD status session_rebalance(session *s);
// A small file of a checkpoint, so that a resumed run goes on with the same places and loads. *out:
// its text, or NULL; load: experts are there before the state is loaded.
NODISCARD status session_rebalance_print(session *s, session_copy where, const char **out);
NODISCARD status session_rebalance_load(session *s, const char *path);

// session_codec.c: returns whether this step's gradients are compressed. All ranks return the same.
bool session_compresses(const session *s, int64_t step);
// Adds the compression errors of the results taken last to `record`. All ranks see the same errors,
// so all stop compressing at the same step (the step after the next) if the bound is broken.
NODISCARD status session_codec_take(session *s, obs_record *record);
// Restores the codec's state from a checkpoint.
void session_codec_load(session *s, const ckpt_info *info);

// run.c: the parts of a session, in this order; train_run() calls them one after the other, and
// train_together() for several sessions at once. open: the folder. plan: model and plans, before
// the job exists. start: job, data and state. go: steps up to `until`, and what is due after them;
// *done: there are no more. finish: the last save. close: also after a failure.
NODISCARD status session_open(const host *h, arena *a, const train_order *order, session **out);
NODISCARD status session_plan(session *s, const train_order *order);
NODISCARD status session_job(session *s);
NODISCARD status session_start(session *s, const train_order *order);
NODISCARD status session_go(session *s, int64_t until, bool *done);
NODISCARD status session_finish(session *s, train_outcome *out);
NODISCARD status session_close(session *s, status st, train_outcome *out); // st, with advice

// Reports progress to the watcher. `usual`: the next report is due within a usual step time.
void session_progress(session *s, const char *doing, bool usual);
void session_say(const session *s, log_level level, const char *format, ...) PRINTF_LIKE(3, 4);
bool session_should_stop(session *s); // asks the watcher and the clock
// Makes s->stop the same on all ranks. Collective.
NODISCARD status session_stop_agree(session *s);
int64_t session_now(const session *s);

#endif
