// A session in a process that keeps things between its sessions (train/process.h).
//
//   plan    the same configuration, layout and place: the plans of before, already verified
//   put     the memory of before, if it is large enough; and the state in it, if it is laid out by
//           the same plans
//   holds   after each copy: the device has the state of this step
//
// Whether a later step has changed the state is in the step block: STEP_DECIDE counts the step as
// applied or skipped before the first update, and a load compares the counts with those of the
// copy. So a fault before the update costs no copy, and one after it a copy from own memory.
#include "train/process.h"
#include "train/session.h"

#include <string.h>

struct train_process *session_process(const session *s)
{
    return s->memory.order != NULL ? s->memory.order->process : NULL;
}

status session_process_plan(session *s)
{
    struct train_process *p = session_process(s);
    if (p == NULL) return assemble_rank(s->a, s->r, &s->spec, &s->options, &s->plans);
    TRY(process_key(s->a, s->r, &s->spec, &s->options, &s->options.mesh, &s->plan_key));
    const assemble_plans *found = process_plans_find(p, s->plan_key);
    if (found != NULL) {
        s->had_plan = true;
        s->plans = *found;
        return ST_OK;
    }
    TRY(assemble_rank(s->a, s->r, &s->spec, &s->options, &s->plans));
    process_plans_keep(p, s->plan_key, s->a, &s->plans);
    return ST_OK;
}

status session_process_prove(session *s, assemble_proved *out)
{
    struct train_process *p = session_process(s);
    hash128 key = {0};
    *out = (assemble_proved){0};
    if (p != NULL) {
        TRY(process_key(s->a, s->r, &s->spec, &s->options, NULL, &key));
        if (hash128_compare(p->proved, key) == 0) return ST_OK;
    }
    TRY(assemble_prove(s->h, s->a, s->r, &s->spec, &s->options, out));
    if (p != NULL) p->proved = key;
    return ST_OK;
}

int64_t session_process_bytes(const session *s)
{
    const struct train_process *p = session_process(s);
    return p != NULL && p->memory != NULL ? comm_memory_bytes(p->memory) : 0;
}

// A value that was found to be wrong may be in place. Experts that have moved, residuals of
// compression and factors of fp8 change without a count.
static bool may_hold(const session *s)
{
    const train_restart *o = s->memory.order;
    const bool is_wrong = o->event != NULL && strcmp(o->event, "sdc") == 0;
    return !is_wrong && s->r->moe.rebalance == 0 && s->plans.codec.codec == NULL &&
           s->r->train.precision != RUN_FP8 && !session_goes_on(s);
}

void session_process_put(session *s)
{
    struct train_process *p = session_process(s);
    if (p == NULL || s->ranks.all == NULL) return;
    s->ranks.kept = &p->memory;
    s->ranks.kept_is_fresh = p->memory_is_fresh;
    p->memory_is_fresh = false;
    s->ranks.keeps_state =
        p->state_step > 0 && may_hold(s) && hash128_compare(p->state_key, s->plan_key) == 0;
    // The job writes over a state that it does not keep, and a loss may come before the load.
    if (!s->ranks.keeps_state) p->state_step = -1;
}

void session_process_take(session *s)
{
    struct train_process *p = session_process(s);
    if (p == NULL) return;
    s->job.state.held_step = s->job.has_state ? p->state_step : 0;
    p->state_step = -1;
}

status session_process_clear(session *s)
{
    s->job.state.held_step = 0;
    return s->job.has_state ? train_job_clear(&s->job) : ST_OK;
}

void session_process_holds(session *s)
{
    struct train_process *p = session_process(s);
    s->job.state.held_step = 0; // only for the load at the beginning
    if (p == NULL || s->job.shared.memory == NULL) return;
    p->state_key = s->plan_key;
    p->state_step = s->step;
}

void session_process_forget(session *s)
{
    struct train_process *p = session_process(s);
    if (p != NULL) p->state_step = -1;
}

double session_process_peak(session *s)
{
    struct train_process *p = session_process(s);
    const dtype type = assemble_peak_type(s->r);
    if (p != NULL && p->peak_flops > 0.0 && p->peak_threads == s->options.threads &&
        p->peak_type == type) {
        return p->peak_flops;
    }
    const double flops = exec_peak_flops(s->job.e, type);
    if (p == NULL) return flops;
    p->peak_flops = flops;
    p->peak_type = type;
    p->peak_threads = s->options.threads;
    return flops;
}

status session_process_ready(session *s)
{
    const train_restart *o = s->memory.order;
    s->memory.ready = s->had_plan && s->job.shared.is_kept;
    if (o == NULL || o->epoch == 0 || s->ranks.hosts == NULL) return ST_OK;
    return comm_all_reduce(s->ranks.hosts, &s->memory.ready, 1, DTYPE_I32, REDUCTION_SUM,
                           "ranks that were ready", __func__);
}
