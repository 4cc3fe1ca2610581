// A run's output for people and programs: records, log lines, traces. It only reads data that other
// modules emit; it cannot slow a step down or change it.
#ifndef OBSERVE_OBSERVE_H
#define OBSERVE_OBSERVE_H

#include "base/host.h"
#include "base/text.h"
#include "base/trace.h"
#include "plan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

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
} obs_losses;
NODISCARD status obs_losses_read(const host *h, arena *a, const char *path, obs_losses *out);

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
