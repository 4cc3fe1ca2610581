// A part of a plan: the actions of one micro-batch alone. A wait on an action of another one
// becomes a wait on the last action before it on the same stream that is in the part.
#include "plan/plan.h"

// The place of this action, or of the one before it; -1: there is none.
static int32_t kept_before(const plan *all, const int32_t *place, int32_t on)
{
    const int32_t stream = all->actions[on].stream;
    while (on >= 0 && (place[on] < 0 || all->actions[on].stream != stream)) on--;
    return on >= 0 ? place[on] : -1;
}

status plan_microbatch(arena *a, const plan *all, int64_t b, plan **out)
{
    int32_t *place = NULL; // [action of all] its index in the part, -1: not in it
    plan *part = NULL;
    TRY(arena_new(a, 1, &part));
    *part = *all;
    TRY(arena_new(a, all->action_count, &place));
    TRY(arena_new(a, all->action_count, &part->actions));
    TRY(arena_new(a, max_i64(1, all->wait_count), &part->waits));
    part->action_count = part->wait_count = 0;
    int32_t count = 0;
    for (int64_t i = 0; i < all->action_count; i++) {
        const int32_t of = all->actions[i].microbatch;
        place[i] = of < 0 || of == b ? count++ : -1;
    }
    for (int64_t i = 0; i < all->action_count; i++) {
        const plan_action *from = &all->actions[i];
        if (place[i] < 0) continue;
        plan_action *action = &part->actions[part->action_count++];
        *action = *from;
        action->waits_begin = (int32_t)part->wait_count;
        for (int32_t w = 0; w < from->waits_count; w++) {
            const int32_t on = all->waits[from->waits_begin + w];
            const int32_t at = kept_before(all, place, on >= 0 ? on : -1 - on);
            if (at >= 0) part->waits[part->wait_count++] = on >= 0 ? at : -1 - at;
        }
        action->waits_count = (int32_t)part->wait_count - action->waits_begin;
    }
    *out = part;
    return ST_OK;
}
