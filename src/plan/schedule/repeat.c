// Loop compression of schedules. Once a pipeline is full, a schedule repeats a round of actions for
// later micro-batches, so a long list is a short one with more rounds in its middle.
#include "plan/schedule/schedule_internal.h"

static bool is_later(const schedule_action *x, const schedule_action *y, int32_t by)
{
    return x->kind == y->kind && x->chunk == y->chunk && x->microbatch + by == y->microbatch &&
           x->chunk_b == y->chunk_b &&
           x->microbatch_b + (x->chunk_b >= 0 ? by : 0) == y->microbatch_b;
}

bool plan_schedule_repeat(const schedule_list *few, const schedule_list *all, int64_t rounds,
                          int32_t round, schedule_repeat *out)
{
    const int64_t more = all->count - few->count, period = more / rounds;
    int64_t until = 0, from = few->count;
    if (more % rounds != 0) return false;
    while (until < few->count && is_later(&few->actions[until], &all->actions[until], 0)) until++;
    while (from > 0 && is_later(&few->actions[from - 1], &all->actions[from - 1 + more],
                                (int32_t)rounds * round)) {
        from--;
    }
    if (from + period > until) return false;
    for (int64_t i = from; i < from + more; i++) {
        if (!is_later(&all->actions[i], &all->actions[i + period], round)) return false;
    }
    *out = (schedule_repeat){.until = until, .from = from, .period = period};
    return true;
}
