// The steps at which a run saves. checkpoint.every = auto takes the interval with the least
// expected loss (cost_interval_best) for the time that a save stalls training and the mean time
// between losses: a day before the first one, and from then on (a day + the time so far) /
// (1 + losses).
#include "cost/failure.h"
#include "train/session.h"

enum { FIRST_SAVE = 10 }; // an early save measures the cost

int64_t session_save_next(const session *s)
{
    const int64_t every = s->r->checkpoint.every;
    if (every == 0) return INT64_MAX;
    if (every > 0) return (s->step / every + 1) * every;
    if (s->interval.at > s->step) return s->interval.at;
    return s->step + (s->interval.every > 0 ? s->interval.every : FIRST_SAVE);
}

static int64_t best_steps(const session *s)
{
    const double day_s = 86400.0;
    const double ran_s = (double)(session_now(s) - s->begin_ns) / 1e9;
    const int64_t losses = s->memory.order != NULL ? s->memory.order->epoch : 0;
    const double between_s = (day_s + ran_s) / (double)(1 + losses);
    const double cost_s = s->interval.cost_s > 1e-3 ? s->interval.cost_s : 1e-3;
    const double step_s = s->mean_step_s > 1e-6 ? s->mean_step_s : 1e-6;
    const double steps = cost_interval_best(between_s, cost_s) / step_s;
    return steps < 1.0 ? 1 : steps > 1e6 ? 1000000 : (int64_t)steps;
}

status session_interval_choose(session *s)
{
    if (s->r->checkpoint.every != RUN_EVERY_AUTO) return ST_OK;
    const bool is_measured = session_is_first(s) && s->saved_step >= 0;
    int steps = is_measured ? (int)best_steps(s) : 0;
    TRY(session_agree(s, &steps, "interval of checkpoints"));
    if (session_is_first(s) && steps > 0 && steps != s->interval.every) {
        session_say(s, LOG_INFO,
                    "a checkpoint every %d steps from step %lld on: a save stalls %.3g s", steps,
                    (long long)s->step, s->interval.cost_s);
    }
    s->interval.every = steps;
    s->interval.at = s->step + (steps > 0 ? steps : FIRST_SAVE);
    return ST_OK;
}
