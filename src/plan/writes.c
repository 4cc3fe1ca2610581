// Walks the actions once. The nodes of the compute stream run in order; an action of another stream
// comes after the last action of the compute stream that it waits for, itself or through others.
#include "plan/writes.h"

#include "plan/access.h"

typedef struct walk {
    const plan *p;
    const plan_mesh *mesh;
    const bool *rows;
    int32_t *after;     // [action] the last one of the compute stream that is done before it; -1
    int32_t *previous;  // [stream] its action before; -1
    plan_place *last;   // [stream]
    plan_place compute; // the newest node of the compute stream
    plan_place before;  // the first one that a write waits for
    bool any;
} walk;

bool plan_place_is_before(plan_place x, plan_place y)
{
    return x.action != y.action ? x.action < y.action : x.node < y.node;
}

int plan_place_compare(plan_place x, plan_place y)
{
    return plan_place_is_before(x, y) ? -1 : plan_place_is_before(y, x);
}

static bool is_wanted(const walk *w, const plan_access *x)
{
    if (x->ref == -1 || x->kind == ACCESS_READ || !plan_ref_is_run(x->ref)) return false;
    return w->rows[plan_ref_row(x->ref)];
}

static status access_see(void *context, const plan_access *x)
{
    walk *w = context;
    w->any = w->any || is_wanted(w, x);
    return ST_OK;
}

static bool node_writes(const walk *w, const plan_action *a, int32_t node)
{
    plan_access all[ACCESS_NODE_MAX];
    const int32_t n = plan_access_node(w->p, a, a->ops_begin + node, all);
    for (int32_t i = 0; i < n; i++) {
        if (is_wanted(w, &all[i])) return true;
    }
    return false;
}

static void write_add(walk *w, int32_t stream, plan_place at, plan_place before)
{
    w->last[stream] = at;
    if (plan_place_is_before(before, w->before)) w->before = before;
}

static bool computes(const plan_action *a)
{
    return a->stream == STREAM_COMPUTE && a->ops_count > 0;
}

// The last action of the compute stream that this one waits for.
static int32_t after_of(const walk *w, const plan_action *a)
{
    int32_t last = w->previous[a->stream] >= 0 ? w->after[w->previous[a->stream]] : -1;
    for (int32_t i = 0; i < a->waits_count; i++) {
        const int32_t on = w->p->waits[a->waits_begin + i];
        if (on < 0) continue;
        const int32_t x = computes(&w->p->actions[on]) ? on : w->after[on];
        if (x > last) last = x;
    }
    return last;
}

static status action_see(walk *w, int32_t i)
{
    const plan_action *a = &w->p->actions[i];
    const int32_t after = after_of(w, a);
    const plan_place before = {after, after >= 0 ? w->p->actions[after].ops_count - 1 : -1};
    w->after[i] = computes(a) ? i : after;
    w->previous[a->stream] = i;
    if (a->kind == ACTION_COMMUNICATE) {
        w->any = false;
        TRY(plan_access_each(w->p, w->mesh, a, access_see, w));
        if (w->any) write_add(w, a->stream, (plan_place){i, 0}, before);
        return ST_OK;
    }
    for (int32_t k = 0; k < a->ops_count; k++) {
        const plan_place at = {i, k};
        if (node_writes(w, a, k)) write_add(w, a->stream, at, computes(a) ? w->compute : before);
        if (computes(a)) w->compute = at;
    }
    return ST_OK;
}

status plan_writes_find(arena *a, const plan *p, const plan_mesh *mesh, const bool *rows,
                        plan_writes *out)
{
    const int64_t streams = STREAM_GROUPS + p->run->group_count;
    walk w = {.p = p, .mesh = mesh, .rows = rows, .compute = {-1, -1}, .before = {INT32_MAX, 0}};
    TRY(arena_new(a, p->action_count + 1, &w.after));
    TRY(arena_new(a, streams, &w.previous));
    TRY(arena_new(a, streams, &w.last));
    for (int64_t i = 0; i < streams; i++) {
        w.previous[i] = -1;
        w.last[i] = (plan_place){-1, -1};
    }
    for (int32_t i = 0; i < p->action_count; i++) TRY(action_see(&w, i));
    *out = (plan_writes){.last = w.last, .before = {-1, -1}};
    for (int64_t i = 0; i < streams; i++) { // the order of the plan
        const plan_place x = w.last[i];
        int32_t k = out->count;
        if (x.action < 0) continue;
        for (; k > 0 && plan_place_is_before(x, w.last[k - 1]); k--) w.last[k] = w.last[k - 1];
        w.last[k] = x;
        out->count++;
    }
    if (out->count > 0) out->before = w.before;
    return ST_OK;
}
