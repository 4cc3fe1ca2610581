// A run's output for people and programs: records, log lines, traces. It only reads data that other
// modules emit; it cannot slow a step down or change it.
#ifndef OBSERVE_OBSERVE_H
#define OBSERVE_OBSERVE_H

#include "base/format/json.h"
#include "base/host.h"
#include "base/text.h"
#include "base/trace.h"
#include "plan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

// Where the time of a run went, in seconds, by the clock of the first rank: from its first step to
// its newest record, without the time between two commands. recovery: from the end of a rank until
// training, for the share of ranks that lived. redone: steps and parts of steps that came to
// nothing. copies, saves, digests, evaluation: while no step was computed.
typedef enum obs_cause {
    OBS_RECOVERY,
    OBS_REDONE,
    OBS_COPIES,
    OBS_SAVES,
    OBS_DIGESTS,
    OBS_EVALUATION,
    OBS_OTHER,
    OBS_CAUSE_COUNT
} obs_cause;
extern const char *const obs_cause_names[OBS_CAUSE_COUNT];
typedef struct obs_goodput {
    double steps_s; // in steps that count
    double lost_s[OBS_CAUSE_COUNT];
} obs_goodput;
double obs_goodput_seconds(const obs_goodput *g); // all of them
double obs_goodput_share(const obs_goodput *g);   // steps_s of these; 1 before the first step
// "goodput": 0.98, "steps_s": 12.3, "lost_s": {"recovery": 0.2}; the causes that took time.
NODISCARD status obs_goodput_print_json(const obs_goodput *g, text *out);
bool obs_goodput_read(const json *record, obs_goodput *out); // false: it has none
// "goodput 98.1% (recovery 1.2%, copies 0.7%)"
void obs_goodput_print(const obs_goodput *g, char *out, int64_t bytes);

// The record of one step. NaN means that a number is unknown; metrics.jsonl has the same fields in
// this order.
enum { OBS_MEASURES = 16 };
typedef struct obs_measure {
    const char *name;
    double value;
    bool on_line; // of the log too
} obs_measure;
typedef struct obs_record {
    int64_t step, steps; // finished and planned steps
    int64_t tokens;      // trained on so far
    double time;         // Unix seconds
    double loss, val_loss, grad_norm, lr, loss_scale;
    bool skipped;
    double tokens_per_s, mfu, wait; // mfu and wait are fractions
    // Fractions of the step: with any communication in progress (concurrent transfers count once,
    // so it is at most 1), and with computation waiting for it. 0: there was none.
    double comm, comm_exposed;
    double comm_ep, comm_ep_exposed; // the same of rows that travel to experts and back
    double eta_s;
    const obs_goodput *goodput; // so far; NULL: not known
    int64_t memory_bytes;
    const char *why; // why the step was skipped; NULL if it was not
    // With compressed gradients: the relative error of each bucket, and the bytes that ranks sent.
    const double *codec_errors; // NULL: gradients were not compressed
    int64_t codec_buckets;
    double codec_error; // the largest
    int64_t codec_bytes;
    // The load of each layer that has experts; NULL: no layer of the model has any.
    const struct obs_load *loads;
    int64_t load_count;
    double aux_loss; // what the losses of routers add to the loss; NaN: there are none
    // Numbers of the run's objective: rewards of chosen and rejected answers, say.
    obs_measure measures[OBS_MEASURES];
    int measure_count;
} obs_record;

// The load of one layer's experts in a step, over all ranks.
typedef struct obs_load {
    int32_t layer;
    double max;     // tokens of the fullest expert, as a multiple of the mean
    double dropped; // share of choices that moe.capacity_factor left out
    double entropy; // of the distribution of choices: 1 is even, 0 is one expert
    int64_t idle;   // experts without a token
} obs_load;
// Computes them from the row of a layer (op/step.h: step_loads).
obs_load obs_load_of(const int64_t *row, int64_t experts, int32_t layer);

// metrics.jsonl: one JSON object per line, appended. A file that has reached limit_bytes becomes
// metrics-<its last step>.jsonl, and another one begins. A resumed run cuts the lines of steps
// after the resumed step from all of them.
typedef struct obs_metrics obs_metrics;
typedef struct obs_metrics_config {
    const char *path;
    int64_t finished_steps;
    int64_t limit_bytes; // 0: never
} obs_metrics_config;
NODISCARD status obs_metrics_open(const host *h, arena *a, const obs_metrics_config *c,
                                  obs_metrics **out);
NODISCARD status obs_metrics_add(obs_metrics *m, const obs_record *r);
// Adds the line of an event, {"step": 317, "event": ...}, which ends with a newline.
NODISCARD status obs_metrics_add_event(obs_metrics *m, const text *line);
// The newest step or loss of the file when it was opened, and the time of its record. False: it had
// none.
bool obs_metrics_before(const obs_metrics *m, obs_goodput *out, double *time);
NODISCARD status obs_metrics_close(obs_metrics *m); // NULL is legal

// The events of ranks in a metrics.jsonl, and the steps that count.
typedef struct obs_loss {
    int64_t step; // the run went on after this step
    int64_t rank, epoch;
    double detect_ms, resume_ms; // from the end of the rank: until all had ended, until training
    const char *event;           // "lost", "sdc", "joined", "straggler"
    bool is_loss;                // "lost" or "sdc", but no repaired product, nor a replay's verdict
    const char *cause;
} obs_loss;
typedef struct obs_losses {
    obs_loss *items;
    int64_t count, capacity;
    int64_t losses; // of these events
    int64_t steps, tokens;
    double steps_s; // time of these steps
    obs_goodput goodput;
    bool has_goodput; // false: records of an older version
} obs_losses;
// since: Unix seconds; of the records of before nothing is counted. 0: all of the file.
NODISCARD status obs_losses_read(const host *h, arena *a, const char *path, double since,
                                 obs_losses *out);

NODISCARD status obs_print_json(const obs_record *r, text *out); // one line, no newline
// "step    10/2000  loss 9.8431  gnorm 3.21  lr 3.0e-05  tok/s 41.2k  mfu 38.1% ..." The line
// leaves out the first field that does not fit into `columns` and all later ones except the time
// left; 0: no limit.
NODISCARD status obs_print_line(const obs_record *r, int columns, text *out);
// The live line of a terminal, at most `columns` wide: bar, fraction done, loss, speed, time left.
NODISCARD status obs_print_live(const obs_record *r, int columns, text *out);

// TensorBoard scalars: one file per session, which begins after `finished_steps`. *out is set, and
// must be closed, even if opening failed after the file was created.
typedef struct obs_events obs_events;
NODISCARD status obs_events_open(const host *h, arena *a, const char *path, int64_t finished_steps,
                                 obs_events **out);
NODISCARD status obs_events_add(obs_events *e, const obs_record *r);
NODISCARD status obs_events_close(obs_events *e); // NULL is legal

// A Chrome trace (Perfetto) of the spans taken from a ring: streams are tracks, times are in
// microseconds.
typedef struct obs_trace obs_trace;
NODISCARD status obs_trace_create(arena *a, obs_trace **out);
NODISCARD status obs_trace_take(obs_trace *t, trace_ring *ring); // drains it
NODISCARD status obs_trace_write(obs_trace *t, const host *h, const char *path);

#ifdef __cplusplus
}
#endif
#endif
