// Pass 5 of lowering, the bound: the largest sum of live bytes at any time, which is a lower bound
// of any assignment. Tests compare the arena with it.
#include "plan/lower/place_internal.h"

#include <string.h>

// Which kind of unsharded tensor it is: weight, gradient or (0) neither.
static uint32_t unsharded_of(const plan *p, int32_t row)
{
    const plan_tensor *t = &p->tensors[row];
    if (!t->is_unsharded) return 0;
    return t->kind == PLAN_BYTES_WEIGHTS ? PLAN_UNSHARDED_WEIGHTS : PLAN_UNSHARDED_GRADIENTS;
}

// Finds the largest sum of live bytes at any time, also without unsharded weights, without
// unsharded gradients, and without both.
static status live_bound(arena *a, plan *p, const placing *pl, int64_t *when)
{
    int64_t last = 0, live[PLAN_UNSHARDED_COUNT] = {0};
    int64_t *more[PLAN_UNSHARDED_COUNT] = {0}; // [kinds][time] increase over the time before
    uint32_t all = 0;                          // kinds that occur
    for (int64_t k = 0; k < pl->order_count; k++) {
        const unit *u = &pl->units[pl->order[k]];
        last = max_i64(last, u->spans[u->span_count - 1].end);
    }
    for (int64_t k = 0; k < pl->order_count; k++) {
        const unit *u = &pl->units[pl->order[k]];
        const uint32_t unsharded = unsharded_of(p, pl->order[k]);
        if (more[unsharded] == NULL) TRY(arena_new(a, last + 2, &more[unsharded]));
        all |= unsharded;
        for (int64_t s = 0; s < u->span_count; s++) {
            more[unsharded][u->spans[s].begin] += u->bytes;
            more[unsharded][u->spans[s].end + 1] -= u->bytes;
        }
    }
    memset(p->live_without, 0, sizeof(p->live_without));
    *when = 0;
    for (int64_t time = 0; time <= last; time++) {
        for (uint32_t bits = 0; bits < PLAN_UNSHARDED_COUNT; bits++) {
            if (more[bits] != NULL) live[bits] += more[bits][time];
        }
        for (uint32_t without = 0; without <= all; without++) {
            int64_t sum = 0;
            for (uint32_t bits = 0; bits < PLAN_UNSHARDED_COUNT; bits++) {
                sum += (bits & without) == 0 ? live[bits] : 0;
            }
            if (sum <= p->live_without[without]) continue;
            p->live_without[without] = sum;
            if (without == 0) *when = time;
        }
    }
    for (uint32_t without = all + 1; without < PLAN_UNSHARDED_COUNT; without++) {
        p->live_without[without] = p->live_without[without & all];
    }
    p->live_bytes = p->live_without[0];
    return ST_OK;
}

// Splits the bytes of the fullest moment by kind.
static void live_kinds(plan *p, const placing *pl, int64_t when)
{
    for (int64_t k = 0; k < pl->order_count; k++) {
        const unit *u = &pl->units[pl->order[k]];
        for (int64_t s = 0; s < u->span_count; s++) {
            if (u->spans[s].begin > when || u->spans[s].end < when) continue;
            p->live_by_kind[p->tensors[pl->order[k]].kind] += u->bytes;
            if (unsharded_of(p, pl->order[k]) == 0) continue;
            p->unsharded_by_kind[p->tensors[pl->order[k]].kind] += u->bytes;
        }
    }
}

status place_bound(plan *p, arena *a, placing *fused)
{
    int64_t fullest = 0;
    TRY(live_bound(a, p, fused, &fullest));
    live_kinds(p, fused, fullest);
    return ST_OK;
}
