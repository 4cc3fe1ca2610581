// Compressed gradients: decides which steps compress, measures the relative error, and stops
// compressing when the error exceeds its bound.
//
// The step itself adds the errors over the ranks and returns them with its results, one step late.
// The error of step n is known after step n + 1 has been posted, so all ranks stop compressing at
// step n + 2. An evaluation, a save or a signal in between would allow an earlier stop, but does
// not cause one: the bits of a run do not depend on such events. The checkpoint holds the step.
#include "train/session.h"

#include <math.h>

bool session_compresses(const session *s, int64_t step)
{
    const int64_t whole = run_config_has_error_feedback(s->r) ? s->r->comm.compression.warmup : 0;
    if (s->plans.codec.codec == NULL || step <= whole) return false;
    return s->whole_from == 0 || step < s->whole_from;
}

// A failed write costs the record; the run continues.
static status switch_record(session *s)
{
    s->start.whole_from = s->whole_from;
    const status st = train_folder_rerun(&s->folder, &s->start);
    if (st != ST_DISK_FULL && st != ST_IO) return st;
    session_say(s, LOG_WARN, "run.json is not up to date: %.700s", error_last()->text);
    error_clear();
    return ST_OK;
}

// The error is out of bound: reports and records it, and stops compressing.
static status switch_over(session *s, const plan *p, const char *worst, const obs_record *record)
{
    s->whole_from = record->step + 2;
    session_say(s, LOG_WARN,
                "step %lld: %s has a relative error of %.3g in bucket %s, above the bound %.3g "
                "(comm.compression.bound): gradients are not compressed from step %lld on",
                (long long)record->step, p->codec, record->codec_error, worst, s->plans.codec_bound,
                (long long)s->whole_from);
    return switch_record(s);
}

status session_codec_take(session *s, obs_record *record)
{
    const double *losses = exec_losses(s->job.e);
    if (losses == NULL) return ST_OK;
    const plan *p = assemble_plan_of(&s->plans, run_config_batch(s->r, record->step - 1), true);
    double bytes = 0;
    int64_t count = 0;
    const char *worst = NULL;
    ASSERT(p != NULL && p->codec_reals == COMM_REALS);
    if (s->codec_errors == NULL) TRY(arena_new(s->a, p->bucket_count, &s->codec_errors));
    record->codec_error = 0.0;
    for (int64_t i = 0; i < p->bucket_count; i++) {
        const double *row = &losses[i * COMM_REALS];
        if (p->buckets[i].name[0] == '\0') continue; // this stage has fewer buckets
        const double error = comm_compressed_error(row);
        s->codec_errors[count++] = error;
        bytes += row[COMM_BYTES_SENT];
        if (worst != NULL && !(error > record->codec_error)) continue;
        record->codec_error = error;
        worst = p->buckets[i].name;
    }
    record->codec_errors = s->codec_errors;
    record->codec_buckets = count;
    record->codec_bytes = (int64_t)bytes;
    const double bound = s->plans.codec_bound;
    if (s->whole_from > 0 || bound == 0.0 || record->codec_error <= bound) return ST_OK;
    return switch_over(s, p, worst, record);
}

void session_codec_load(session *s, const ckpt_info *info)
{
    if (s->plans.codec.codec == NULL) return;
    s->whole_from = s->codec_changed ? 0 : info->whole_from;
    if (s->whole_from > 0) {
        session_say(s, LOG_INFO,
                    "gradients are not compressed from step %lld on, because the error of the "
                    "compression was above its bound",
                    (long long)s->whole_from);
    }
    if (info->residuals_missing == 0) return;
    session_say(
        s, LOG_WARN,
        "the residual of %s begins at zero for %lld of %lld buckets: the checkpoint has none "
        "for this codec and layout",
        s->plans.codec.codec->name, (long long)info->residuals_missing,
        (long long)(info->residuals + info->residuals_missing));
}
