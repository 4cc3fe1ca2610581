// The verifier: what is read has been written, in this step and for this micro-batch, and by nobody
// else since.
//
// The arena's bytes behind the run tensors belong to one tensor at a time: whoever wrote them last.
// They are walked in an order that "before" allows; since nothing races, any such order shows the
// same. Accumulators and packed weights live through the step; all else belongs to the micro-batch
// that wrote it.
#include "plan/verify/verify_internal.h"

typedef struct byte_state {
    int32_t tensor; // -1: nobody has written
    int32_t microbatch, action;
    uint64_t columns; // that have been written in this life
} byte_state;

typedef struct life_walk {
    const verifier *v;
    const verify_facts *f;
    int32_t *begin, *end; // [span] its pieces
    byte_state *pieces;
} life_walk;

static status walk_make(life_walk *w)
{
    const verify_facts *f = w->f;
    int64_t *edges = NULL;
    int32_t n = 0;
    TRY(arena_new(w->v->a, 2 * f->span_count + 1, &edges));
    TRY(arena_new(w->v->a, f->span_count + 1, &w->begin));
    TRY(arena_new(w->v->a, f->span_count + 1, &w->end));
    for (int64_t i = 0; i < f->span_count; i++) {
        if (f->span_tensor[i] < f->run_count) continue;
        edges[n++] = f->spans[i].begin;
        edges[n++] = f->spans[i].end;
    }
    const int32_t edge_count = verify_edges_sort(edges, n);
    for (int64_t i = 0; i < f->span_count; i++) {
        if (f->span_tensor[i] < f->run_count) continue; // run tensors are nobody else's
        w->begin[i] = verify_edge_find(edges, edge_count, f->spans[i].begin);
        w->end[i] = verify_edge_find(edges, edge_count, f->spans[i].end);
    }
    TRY(arena_new(w->v->a, edge_count + 1, &w->pieces));
    for (int32_t i = 0; i <= edge_count; i++) w->pieces[i].tensor = -1;
    return ST_OK;
}

static status read_fail(const life_walk *w, int32_t action, const verify_touch *touch,
                        const byte_state *is)
{
    const verify_facts *f = w->f;
    char reader[VERIFY_NAME_BYTES], writer[VERIFY_NAME_BYTES];
    const char *name = verify_name(w->v, f->rank, action, reader);
    const char *tensor = verify_tensor(f, touch->tensor)->name;
    if (is->tensor < 0) {
        return fail(ST_BROKEN_PLAN, "%s reads %s, which nothing has written in this step", name,
                    tensor);
    }
    (void)verify_name(w->v, f->rank, is->action, writer);
    if (is->tensor != touch->tensor) {
        return fail(ST_BROKEN_PLAN, "%s reads %s, but %s has written %s over its bytes", name,
                    tensor, writer, verify_tensor(f, is->tensor)->name);
    }
    const int32_t microbatch = f->p->actions[action].microbatch;
    if (is->microbatch != microbatch && is->microbatch >= 0 && microbatch >= 0) {
        return fail(ST_BROKEN_PLAN, "%s reads %s, where that of micro-batch %d stands, by %s", name,
                    tensor, is->microbatch, writer);
    }
    return fail(ST_BROKEN_PLAN,
                "%s reads %s, of which some columns have not been written; the last were by %s",
                name, tensor, writer);
}

static status touch_read(const life_walk *w, int32_t action, const verify_touch *touch)
{
    const int32_t microbatch = w->f->p->actions[action].microbatch;
    for (int32_t k = w->begin[touch->span]; k < w->end[touch->span]; k++) {
        const byte_state *is = &w->pieces[k];
        if (is->tensor == touch->tensor && (touch->columns & ~is->columns) == 0 &&
            (is->microbatch == microbatch || is->microbatch < 0 || microbatch < 0)) {
            continue;
        }
        return read_fail(w, action, touch, is);
    }
    return ST_OK;
}

static void touch_write(const life_walk *w, int32_t action, const verify_touch *touch)
{
    int32_t microbatch = w->f->p->actions[action].microbatch;
    const plan_tensor *t = verify_tensor(w->f, touch->tensor);
    if (t->kind == BYTES_GRADIENTS || t->is_packed) microbatch = -1;
    for (int32_t k = w->begin[touch->span]; k < w->end[touch->span]; k++) {
        byte_state *is = &w->pieces[k];
        const bool goes_on = is->tensor == touch->tensor && is->microbatch == microbatch;
        *is = (byte_state){.tensor = touch->tensor,
                           .microbatch = microbatch,
                           .action = action,
                           .columns = touch->columns | (goes_on ? is->columns : 0)};
    }
}

static status action_walk(const life_walk *w, int32_t action)
{
    const verify_facts *f = w->f;
    const verify_pattern *pattern = &f->patterns[f->pattern_of[action]];
    for (int32_t i = 0; i < pattern->touches_count; i++) {
        const verify_touch *touch = &f->touches[pattern->touches_begin + i];
        if (touch->tensor < f->run_count) continue;
        if (touch->writes) {
            touch_write(w, action, touch);
        } else {
            TRY(touch_read(w, action, touch));
        }
    }
    return ST_OK;
}

status verify_lives(verifier *v)
{
    const verify_result *r = &v->result;
    life_walk *walks = NULL;
    int32_t *rank_of = NULL;
    TRY(arena_new(v->a, v->rank_count, &walks));
    TRY(arena_new(v->a, r->base[v->rank_count] + 1, &rank_of));
    for (int32_t i = 0; i < v->rank_count; i++) {
        walks[i] = (life_walk){.v = v, .f = &v->facts[i]};
        TRY(walk_make(&walks[i]));
        for (int32_t k = r->base[i]; k < r->base[i + 1]; k++) rank_of[k] = i;
    }
    for (int32_t i = 0; i < r->order_count; i++) {
        const int32_t one = r->order[i];
        const int32_t *members = one >= 0 ? &one : r->meetings[-1 - one].members;
        const int32_t count = one >= 0 ? 1 : r->meetings[-1 - one].member_count;
        for (int32_t m = 0; m < count; m++) {
            const int32_t rank = rank_of[members[m]];
            TRY(action_walk(&walks[rank], members[m] - r->base[rank]));
        }
    }
    return ST_OK;
}
