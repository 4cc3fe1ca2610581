// Steps and evaluations. Step n is posted before the results of step n - 1 are read, so the device
// never waits for the host. The time of a step is the device time between two step ends.
#include "train/buddy.h"
#include "train/session.h"
#include "train/times.h"

#include "train/lr/lr.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

exec_input session_input(const session *s, int64_t step, int64_t sequences)
{
    exec_input input = {.settings = train_step_settings(s->r)};
    input.host.step = step;
    input.host.seed = (uint64_t)s->r->train.seed;
    input.host.lr = lr_rate(s->r, step - 1);
    input.host.sequences = sequences;
    input.host.first_sequence = s->sequences;
    return input;
}

static const plan *plan_of_step(session *s, int64_t step)
{
    return assemble_plan_of(&s->plans, run_config_batch(s->r, step - 1),
                            session_compresses(s, step));
}

// Posts step `step`. *is_posted is false if the run stopped while it drew completions.
static status step_post(session *s, int64_t step, bool *is_posted)
{
    const int64_t sequences = run_config_batch(s->r, step - 1);
    exec_input input = session_input(s, step, sequences);
    int64_t *wait_ns = &s->step_wait_ns[step % 2];
    *is_posted = true;
    if (s->rollouts != NULL) {
        TRY(session_rollouts_take(s, step, sequences, &input, wait_ns, is_posted));
        if (!*is_posted) return ST_OK;
    } else {
        TRY(train_loader_take(s->loader, step, &input, wait_ns));
    }
    const plan *p = assemble_plan_of(&s->plans, sequences, session_compresses(s, step));
    ASSERT(p != NULL);
    session_buddy_before(s, step, sequences);
    TRY(exec_begin(s->job.e, p, &input));
    s->sequences += sequences;
    session_progress(s, "training", true);
    return exec_post(s->job.e);
}

static const char *why_skipped(const session *s, const step_device *d, char buffer[160])
{
    if (d->tokens == 0) return "no token of the batch has a label";
    if (d->bad_tensor >= 0 && d->bad_tensor < s->plans.model->weight_count) {
        (void)snprintf(buffer, 160, "gradient not finite, first in %s",
                       s->plans.model->weights[d->bad_tensor].name);
        return buffer;
    }
    if (!isfinite(d->loss)) return "loss not finite";
    return "gradient norm far above the median of recent steps";
}

// Policies that stop a run look at results on the host one step late; the device has masked the
// update by then.
static status policies_apply(session *s, const step_device *d, int64_t step, const char *why)
{
    s->skipped_in_a_row = d->skip != 0 ? s->skipped_in_a_row + 1 : 0;
    if (d->halt != 0) {
        return fail(ST_NUMERICS, "step %lld: %s; no weight was changed by it", (long long)step,
                    why);
    }
    const bool spike = d->bad_tensor < 0 && isfinite(d->loss);
    const int64_t limit = spike ? s->r->policy.spike.limit : s->r->policy.nan.limit;
    if (d->skip != 0 && d->tokens > 0 && limit > 0 && s->skipped_in_a_row > limit) {
        return fail(ST_NUMERICS,
                    "step %lld: %lld steps in a row were skipped, policy.%s.limit is "
                    "%lld; the last because: %s",
                    (long long)step, (long long)s->skipped_in_a_row, spike ? "spike" : "nan",
                    (long long)limit, why);
    }
    return ST_OK;
}

// Adds communication times since the last record. The next step has begun by then, so a share
// includes some of that step and is capped at the step's length.
static void comm_apply(session *s, obs_record *record, double seconds)
{
    double *const worked[] = {&record->comm, &record->comm_ep};
    double *const exposed[] = {&record->comm_exposed, &record->comm_ep_exposed};
    for (int i = 0; i < 2; i++) {
        const uint32_t axes = i == 0 ? 0 : MESH_AXIS(AXIS_EP);
        const device_stream_times now = exec_stream_times(s->job.e, axes);
        const device_stream_times before = s->comm_times[i];
        s->comm_times[i] = now;
        if (seconds <= 0.0) continue;
        *worked[i] = fmin(1.0, (double)(now.worked_ns - before.worked_ns) / 1e9 / seconds);
        *exposed[i] = fmin(1.0, (double)(now.awaited_ns - before.awaited_ns) / 1e9 / seconds);
    }
}

static void times_apply(session *s, const step_device *d, int64_t step, obs_record *record)
{
    const int64_t now = exec_results_ns(s->job.e); // the host may have read them later
    const double seconds = (double)(now - s->last_result_ns) / 1e9;
    const double wait = (double)s->step_wait_ns[step % 2] / 1e9;
    s->last_result_ns = now;
    s->busy_ns += (int64_t)(seconds * 1e9);
    s->goodput.steps_s += seconds;
    record->goodput = &s->goodput;
    s->session_tokens += d->tokens;
    s->steps_timed++;
    const double weight = s->steps_timed <= 2 ? 1.0 : 0.1; // the first step is slower
    s->mean_step_s += weight * (seconds - s->mean_step_s);
    const double trained = (double)(run_config_batch(s->r, step - 1) * s->r->train.seq);
    record->tokens_per_s = seconds > 0.0 ? trained / seconds : 0.0;
    record->mfu = s->peak_flops > 0.0 ? record->tokens_per_s * s->flops_per_token / s->peak_flops
                                      : (double)NAN;
    record->wait = seconds > 0.0 ? fmin(1.0, wait / seconds) : 0.0;
    comm_apply(s, record, seconds);
    session_times_put(s, record, seconds, s->step_wait_ns[step % 2]);
    record->eta_s = (double)(s->r->train.steps - step) * s->mean_step_s;
    record->time = (double)s->h->api->unix_ns(s->h) / 1e9;
}

// Makes the record of a finished step. `last`: its line in metrics.jsonl waits for the evaluation.
static status result_take(session *s, obs_record *record)
{
    step_device *d = s->results;
    int64_t step = 0;
    bool any = false;
    char buffer[160];
    TRY(exec_results(s->job.e, d, &step, &any));
    ASSERT(any);
    ASSERT(step == s->step + 1);
    *record = (obs_record){.step = step,
                           .steps = s->r->train.steps,
                           .loss = d->loss,
                           .val_loss = (double)NAN,
                           .grad_norm = d->grad_norm,
                           .lr = lr_rate(s->r, step - 1),
                           .loss_scale = d->loss_scale,
                           .skipped = d->skip != 0,
                           .memory_bytes = assemble_peak_bytes(&s->plans)};
    if (record->skipped) record->why = why_skipped(s, d, buffer);
    s->tokens += d->tokens;
    s->step = step;
    s->loss = d->loss;
    if (record->skipped) s->skipped++;
    record->tokens = s->tokens;
    if (s->objective.is_watched) {
        double sums[MEASURE_COLUMNS] = {0.0};
        TRY(session_objective_take(s, plan_of_step(s, step), sums));
        session_objective_record(s, sums, false, record);
        session_rollouts_record(s, record);
    }
    times_apply(s, d, step, record);
    TRY(session_codec_take(s, record));
    session_loads_take(s, record);
    if (s->w->step != NULL) s->w->step(s->w->context, record);
    const status st =
        policies_apply(s, d, step, record->skipped ? record->why : "gradient not finite");
    record->why = NULL;
    return st;
}

static bool eval_due(const session *s, int64_t step)
{
    return session_evaluates(s) && (step % s->r->eval.every == 0 || step == s->r->train.steps);
}

// A failed write costs the record; the run goes on. Only the first failure is reported.
static status record_or_go_on(session *s, int64_t step, status st)
{
    if (st != ST_DISK_FULL && st != ST_IO) return st;
    if (s->records_lost++ == 0) {
        session_say(s, LOG_WARN, "record of step %lld lost: %s; training goes on", (long long)step,
                    error_last()->text);
    }
    error_clear();
    return ST_OK;
}

status session_event(session *s, const text *line)
{
    if (s->metrics == NULL) return ST_OK;
    return record_or_go_on(s, s->step, obs_metrics_add_event(s->metrics, line));
}

// A loss that stays above that of guessing is the sign of a learning rate that is too high.
static void divergence_warn(session *s, const obs_record *record)
{
    const bool is_last = record->step == s->r->train.steps;
    if (!train_guessing_see(&s->guessing, s->spec.vocab, record->loss, is_last)) return;
    session_say(
        s, LOG_WARN,
        "step %lld: loss %.4g is above that of guessing (ln %lld = %.4g), so training "
        "diverges; take a lower optimizer.lr than %g, or a longer schedule.warmup than %lld",
        (long long)record->step, record->loss, (long long)s->spec.vocab, log((double)s->spec.vocab),
        s->r->optimizer.lr, (long long)s->r->schedule.warmup);
}

static void validated(session *s, int64_t batches, int64_t begin_ns)
{
    const bool best = !(s->val_loss >= s->best_val_loss); // NaN: no best loss yet
    if (best) s->best_val_loss = s->val_loss;
    if (s->w->validated != NULL) {
        s->w->validated(s->w->context, s->step, s->r->train.steps, s->val_loss, batches,
                        (double)(session_now(s) - begin_ns) / 1e9, best);
    }
    s->best_due = best && s->r->checkpoint.every != 0;
}

// Mean loss over the tokens of eval.batches fixed batches, the same ones every time. On a stop
// request it ends early, because the rest may take longer than the time until a kill.
static status validate(session *s, bool *whole)
{
    step_device *d = s->results;
    exact_sum sum;
    exact_zero(&sum);
    int64_t tokens = 0, batches = 0, step = 0;
    memset(s->objective.valid, 0, sizeof(s->objective.valid));
    const int64_t begin = session_now(s), count = s->plans.eval->sequences;
    for (; batches < s->r->eval.batches; batches++) {
        session_progress(s, "evaluating", false);
        TRY(session_stop_agree(s));
        if (s->stop > 0) break;
        exec_input input = session_input(s, s->step > 0 ? s->step : 1, count);
        bool any = false;
        TRY(train_loader_valid(s->loader, batches * count, count, &input));
        TRY(exec_begin(s->job.e, s->plans.eval, &input));
        TRY(exec_finish(s->job.e));
        TRY(exec_results(s->job.e, d, &step, &any));
        ASSERT(any);
        exact_merge(&sum, &d->loss_sum);
        TRY(session_objective_take(s, s->plans.eval, s->objective.valid));
        tokens += d->tokens;
    }
    *whole = batches == s->r->eval.batches;
    if (!*whole) {
        session_say(s, LOG_INFO, "evaluation of step %lld stopped after %lld of %lld batches",
                    (long long)s->step, (long long)batches, (long long)s->r->eval.batches);
        return ST_OK;
    }
    if (tokens == 0) {
        return fail(ST_DATA, "the validation batches have no token with a label");
    }
    s->val_loss = exact_value(&sum) / (double)tokens;
    validated(s, batches, begin);
    session_spend(s, OBS_EVALUATION);
    return ST_OK;
}

// Completes the record with the validation loss if one is due. A run that is to stop evaluates no
// more.
static status record_end(session *s, obs_record *record)
{
    if (eval_due(s, record->step) && s->stop == 0) {
        bool whole = false;
        TRY(validate(s, &whole));
        if (whole) record->val_loss = s->val_loss;
        if (whole) session_objective_record(s, s->objective.valid, true, record);
    }
    if (s->ring != NULL) TRY(obs_trace_take(s->trace, s->ring));
    if (session_is_first(s)) {
        TRY(session_folder_check(s, false));
        divergence_warn(s, record);
        TRY(record_or_go_on(s, record->step, obs_events_add(s->events, record)));
        TRY(record_or_go_on(s, record->step, obs_metrics_add(s->metrics, record)));
    }
    if (!s->best_due) return session_save_poll(s, false);
    s->best_due = false; // after the step's line, so that a resumed run has it
    return session_save_begin(s, true);
}

status session_steps(session *s, int64_t until)
{
    obs_record record;
    int64_t posted = s->step;
    session_spend(s, OBS_OTHER);
    while (posted < until && s->stop == 0 && !s->move.is_due) {
        bool is_posted = false;
        TRY(step_post(s, posted + 1, &is_posted));
        if (!is_posted) break; // s->stop is set
        posted++;
        // The host reads the watched values before the next step writes them.
        if (s->objective.is_watched) TRY(exec_finish(s->job.e));
        if (posted - 1 > s->step || s->objective.is_watched) {
            TRY(result_take(s, &record));
            TRY(record_end(s, &record));
        }
        TRY(session_buddy_see(s));
        TRY(session_stop_agree(s));
    }
    TRY(exec_finish(s->job.e));
    if (posted > s->step) {
        TRY(result_take(s, &record));
        TRY(record_end(s, &record));
    }
    ASSERT(s->step == posted);
    return ST_OK;
}

// Handles a validation loss: reports it, and marks the weights to be saved if it is the best so
// far.
