// The verifier: every byte that an action reads was written in this step, for this micro-batch, and
// no other tensor has overwritten it since.
//
// The arena's bytes behind the run tensors belong to one tensor at a time: the one written last.
// The actions are walked in an order that "before" allows; as there are no races, every such order
// gives the same result. Accumulators and packed weights are valid for the whole step, all other
// tensors for the micro-batch that wrote them.
#include "plan/verify/verify_internal.h"

typedef struct byte_state {
    int32_t tensor; // -1: no action has written it
    int32_t microbatch, action;
    uint64_t columns; // written in this live interval
} byte_state;

typedef struct written_walk {
    const verifier *v;
    const verify_facts *f;
    int32_t *begin, *end; // [span] its pieces
    byte_state *pieces;
} written_walk;

static status walk_make(written_walk *w)
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
        if (f->span_tensor[i] < f->run_count) continue; // run tensors share no bytes
        w->begin[i] = verify_edge_find(edges, edge_count, f->spans[i].begin);
        w->end[i] = verify_edge_find(edges, edge_count, f->spans[i].end);
    }
    TRY(arena_new(w->v->a, edge_count + 1, &w->pieces));
    for (int32_t i = 0; i <= edge_count; i++) w->pieces[i].tensor = -1;
    return ST_OK;
}

static status read_fail(const written_walk *w, int32_t action, const verify_touch *touch,
                        const byte_state *is)
{
    const verify_facts *f = w->f;
    char reader[VERIFY_NAME_BYTES], writer[VERIFY_NAME_BYTES];
    const char *name = verify_name(w->v, f->rank, action, reader);
    const char *tensor = verify_tensor(f, touch->tensor)->name;
    if (is->tensor < 0) {
        return fail(ST_BROKEN_PLAN, "%s reads %s, which no action has written in this step", name,
                    tensor);
    }
    (void)verify_name(w->v, f->rank, is->action, writer);
    if (is->tensor != touch->tensor) {
        return fail(ST_BROKEN_PLAN, "%s reads %s, but %s has written %s over its bytes", name,
                    tensor, writer, verify_tensor(f, is->tensor)->name);
    }
    const int32_t microbatch = f->p->actions[action].microbatch;
    if (is->microbatch != microbatch && is->microbatch >= 0 && microbatch >= 0) {
        return fail(ST_BROKEN_PLAN,
                    "%s reads %s, which holds the values of micro-batch %d, written by %s", name,
                    tensor, is->microbatch, writer);
    }
    return fail(ST_BROKEN_PLAN,
                "%s reads %s, but some of its columns were not written; the last ones were by %s",
                name, tensor, writer);
}

static status touch_read(const written_walk *w, int32_t action, const verify_touch *touch)
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

static void touch_write(const written_walk *w, int32_t action, const verify_touch *touch)
{
    int32_t microbatch = w->f->p->actions[action].microbatch;
    const plan_tensor *t = verify_tensor(w->f, touch->tensor);
    if (t->kind == PLAN_BYTES_GRADIENTS || t->is_packed) microbatch = -1;
    for (int32_t k = w->begin[touch->span]; k < w->end[touch->span]; k++) {
        byte_state *is = &w->pieces[k];
        const bool goes_on = is->tensor == touch->tensor && is->microbatch == microbatch;
        *is = (byte_state){.tensor = touch->tensor,
                           .microbatch = microbatch,
                           .action = action,
                           .columns = touch->columns | (goes_on ? is->columns : 0)};
    }
}

static status action_walk(const written_walk *w, int32_t action)
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

status verify_written(verifier *v)
{
    const verify_result *r = &v->result;
    written_walk *walks = NULL;
    int32_t *rank_of = NULL;
    TRY(arena_new(v->a, v->rank_count, &walks));
    TRY(arena_new(v->a, r->base[v->rank_count] + 1, &rank_of));
    for (int32_t i = 0; i < v->rank_count; i++) {
        walks[i] = (written_walk){.v = v, .f = &v->facts[i]};
        TRY(walk_make(&walks[i]));
        for (int32_t k = r->base[i]; k < r->base[i + 1]; k++) rank_of[k] = i;
    }
    for (int32_t i = 0; i < r->order_count; i++) {
        const int32_t one = r->order[i];
        const int32_t *members = one >= 0 ? &one : r->rendezvous[-1 - one].members;
        const int32_t count = one >= 0 ? 1 : r->rendezvous[-1 - one].member_count;
        for (int32_t m = 0; m < count; m++) {
            const int32_t rank = rank_of[members[m]];
            TRY(action_walk(&walks[rank], members[m] - r->base[rank]));
        }
    }
    return ST_OK;
}
