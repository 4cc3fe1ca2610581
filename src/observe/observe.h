// What people and programs see of a run: records, log lines, traces. Reads what other floors emit;
// nothing here can slow a step down or change it.
#ifndef OBSERVE_OBSERVE_H
#define OBSERVE_OBSERVE_H

#include "base/host.h"
#include "base/text.h"
#include "base/trace.h"
#include "plan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

// One step. NaN where a number is not known; metrics.jsonl has the same fields in this order.
typedef struct obs_record {
    int64_t step, steps; // of how many
    int64_t tokens;      // trained on so far
    double time;         // Unix seconds
    double loss, val_loss, grad_norm, lr, loss_scale;
    bool skipped;
    double tokens_per_s, mfu, wait; // fractions
    // Shares of the step: in which any communication was on its way (several at a time count once, so it is
    // at most 1), and for which products stood still. 0: there was none.
    double comm, comm_exposed;
    double eta_s;
    int64_t memory_bytes;
    const char *why; // why the step was skipped; NULL if it was not
    // Where its gradients travelled compressed: the relative error of each bucket, and what ranks sent.
    const double *codec_errors; // NULL: they travelled whole
    int64_t codec_buckets;
    double codec_error; // the largest
    int64_t codec_bytes;
} obs_record;

// metrics.jsonl: one JSON object a line, appended; on resume cut back to the resumed step.
typedef struct obs_metrics obs_metrics;
NODISCARD status obs_metrics_open(const host *h, arena *a, const char *path, int64_t finished_steps,
                                  obs_metrics **out);
NODISCARD status obs_metrics_add(obs_metrics *m, const obs_record *r);
NODISCARD status obs_metrics_close(obs_metrics *m); // NULL is legal

NODISCARD status obs_print_json(const obs_record *r, text *out); // one line, no newline
// "step    10/2000  loss 9.8431  gnorm 3.21  lr 3.0e-05  tok/s 41.2k  mfu 38.1% ..."
// Fields beyond `columns` are left out, the first that does not fit and all after it but the time
// left; 0: no limit.
NODISCARD status obs_print_line(const obs_record *r, int columns, text *out);
// The live line of a terminal, at most `columns` wide: bar, share, loss, speed, time left.
NODISCARD status obs_print_live(const obs_record *r, int columns, text *out);

// TensorBoard scalars, one file a session, which begins after `finished_steps`. *out is set, and must
// be closed, also where opening failed after the file was there.
typedef struct obs_events obs_events;
NODISCARD status obs_events_open(const host *h, arena *a, const char *path, int64_t finished_steps,
                                 obs_events **out);
NODISCARD status obs_events_add(obs_events *e, const obs_record *r);
NODISCARD status obs_events_close(obs_events *e); // NULL is legal

// Chrome trace (Perfetto) of the spans taken from a ring: lanes as tracks, times in microseconds.
typedef struct obs_trace obs_trace;
NODISCARD status obs_trace_create(arena *a, obs_trace **out);
NODISCARD status obs_trace_take(obs_trace *t, trace_ring *ring); // drains it
NODISCARD status obs_trace_write(obs_trace *t, const host *h, const char *path);

#ifdef __cplusplus
}
#endif
#endif
