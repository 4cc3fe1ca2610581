// Decides whether a step repeats itself. Once a pipeline is full, each round of micro-batches does
// the same as the round before, a fixed number of nanoseconds later. If that holds for all actions
// of a stretch of micro-batches on every stream of every rank, it holds from then on, because an
// action waits for nothing further back than the length of the stretch.
#include "sim/sim.h"

// The actions of a rank ordered by micro-batch.
typedef struct by_microbatch {
    int32_t *first; // [micro-batch] its first action; -1: none
    int32_t *next;  // [action] the next one of the same micro-batch; -1: none
} by_microbatch;

static status actions_sort(arena *a, const plan *p, int32_t microbatches, by_microbatch *out)
{
    TRY(arena_new(a, microbatches, &out->first));
    TRY(arena_new(a, p->action_count + 1, &out->next));
    for (int32_t m = 0; m < microbatches; m++) out->first[m] = -1;
    for (int64_t i = p->action_count; i-- > 0;) {
        const int32_t m = p->actions[i].microbatch;
        if (m < 0 || m >= microbatches) continue;
        out->next[i] = out->first[m];
        out->first[m] = (int32_t)i;
    }
    return ST_OK;
}

static bool is_equivalent(const plan_action *x, const plan_action *y)
{
    return x->kind == y->kind && x->stream == y->stream && x->layer == y->layer &&
           x->list == y->list && x->ops_begin == y->ops_begin && x->ops_count == y->ops_count;
}

// True if micro-batch `now` does all that micro-batch `before` did, *period later. Takes the period
// from the first action.
static bool is_later(const plan *p, const sim_span *spans, const by_microbatch *x, int32_t before,
                     int32_t now, int64_t *period)
{
    int32_t i = x->first[before], k = x->first[now];
    for (; i >= 0 && k >= 0; i = x->next[i], k = x->next[k]) {
        if (!is_equivalent(&p->actions[i], &p->actions[k])) return false;
        if (*period == 0) *period = spans[k].end - spans[i].end;
        if (spans[k].begin - spans[i].begin != *period || spans[k].end - spans[i].end != *period) {
            return false;
        }
    }
    return i < 0 && k < 0;
}

status sim_repeats(arena *a, const sim_rank *ranks, const sim_step *step, const sim_stretch *s,
                   int64_t *period_ns)
{
    int64_t period = 0;
    *period_ns = 0;
    for (int32_t r = 0; r < step->ranks; r++) {
        by_microbatch x;
        TRY(actions_sort(a, ranks[r].p, s->first + s->count + s->apart, &x));
        for (int32_t m = s->first; m < s->first + s->count; m++) {
            if (!is_later(ranks[r].p, step->spans[r], &x, m, m + s->apart, &period)) return ST_OK;
        }
    }
    *period_ns = period;
    return ST_OK;
}
