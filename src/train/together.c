// Several runs with adapters over one base model (adapter.files): sessions that take turns.
//
// Each session has its own plans, data, state and folder, as if it ran alone, and all executors use
// one arena. Frozen weights have one place, that of the first session; every other tensor that
// lives for the run has a place of its own; activations share what is behind:
//
//   | base model | adapter 1, its states, step | adapter 2 ... | activations of whose turn it is |
//
// A turn is a step. No tensor of a step lives on into the next one outside the run's tensors, so a
// session sees the values that it would see alone, and gives the same bits.
#include "train/session.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef struct together {
    const host *h;
    const train_order *orders;
    int64_t count;
    session **sessions;
    status *states;
    train_outcome *out;
    bool *done;
    void *memory;
    int64_t bytes;
} together;

// ---- one arena ----------------------------------------------------------------------------------

// A weight of the base model, or what kernels use for a moment.
static bool is_common(const session *s, const plan_tensor *t)
{
    const op_model *m = s->plans.whole;
    if (strcmp(t->name, "scratch") == 0) return true;
    for (int64_t w = 0; w < m->weight_count; w++) {
        if (strcmp(m->weights[w].name, t->name) == 0) return !m->weights[w].is_adapter;
    }
    return false;
}

static status common_place(const session *first, session *s, plan_tensor *t, int64_t *at)
{
    if (s == first) {
        t->offset = *at;
        *at += align_up(t->bytes, ALIGN_TENSOR);
        return ST_OK;
    }
    const int64_t row = plan_table_find(&first->plans.run, t->name);
    const plan_tensor *same = row >= 0 ? &first->plans.run.tensors[row] : NULL;
    if (same == NULL || same->bytes != t->bytes || same->type != t->type) {
        return fail(ST_CONFIG_CONFLICT,
                    "adapter.files: %s has another base model than %s, or holds it in another "
                    "type: %s differs",
                    s->folder.path, first->folder.path, t->name);
    }
    t->offset = same->offset;
    return ST_OK;
}

// Gives the tensors of a session places from *at on: those that all have, or its own.
static status session_place(const together *g, session *s, bool common, int64_t *at)
{
    for (int64_t i = 0; i < s->plans.run.count; i++) {
        plan_tensor *t = &s->plans.run.tensors[i];
        if (is_common(s, t) != common) continue;
        if (common) {
            TRY(common_place(g->sessions[0], s, t, at));
            continue;
        }
        t->offset = *at;
        *at += align_up(t->bytes, ALIGN_TENSOR);
    }
    return ST_OK;
}

static status place(together *g)
{
    int64_t at = 0, transient = 0;
    for (int64_t k = 0; k < g->count; k++) TRY(session_place(g, g->sessions[k], true, &at));
    for (int64_t k = 0; k < g->count; k++) {
        const assemble_plans *p = &g->sessions[k]->plans;
        TRY(session_place(g, g->sessions[k], false, &at));
        for (int64_t i = 0; i < p->count; i++) {
            transient = max_i64(transient, p->all[i]->transient_bytes);
        }
    }
    g->bytes = at + transient;
    for (int64_t k = 0; k < g->count; k++) {
        assemble_plans *p = &g->sessions[k]->plans;
        p->run.run_bytes = at;
        p->arena_bytes = g->bytes;
    }
    return ST_OK;
}

static status memory_make(together *g)
{
    void *memory = mmap(NULL, (size_t)g->bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return fail(ST_NO_MEMORY, "no memory for the arena of %lld adapters", (long long)g->count);
    }
    g->memory = memory;
    for (int64_t k = 0; k < g->count; k++) g->sessions[k]->plans.memory = memory;
    return ST_OK;
}

// ---- turns --------------------------------------------------------------------------------------

static status plan_all(together *g)
{
    for (int64_t k = 0; k < g->count; k++) {
        session *s = g->sessions[k];
        TRY(session_ranks_open(s, NULL));
        TRY(session_plan(s, &g->orders[k]));
        if (s->spec.adapter.rank == 0) {
            return fail(ST_CONFIG_CONFLICT,
                        "adapter.files: %s has no adapter; give adapter.kind or adapter.from",
                        s->folder.path);
        }
        if (k > 0) s->shares = g->sessions[0];
    }
    TRY(place(g));
    TRY(memory_make(g));
    for (int64_t k = 0; k < g->count; k++) TRY(session_job(g->sessions[k]));
    for (int64_t k = 0; k < g->count; k++) TRY(session_start(g->sessions[k], &g->orders[k]));
    return ST_OK;
}

// A stop of one session is that of all, each after its step.
static void stops_share(const together *g, const session *from)
{
    for (int64_t k = 0; k < g->count && from->stop != 0; k++) {
        session *s = g->sessions[k];
        if (g->done[k] || s->stop != 0) continue;
        s->stop = from->stop;
        s->stop_reason = from->stop_reason;
    }
}

static status turns(together *g)
{
    bool any = true;
    while (any) {
        any = false;
        for (int64_t k = 0; k < g->count; k++) {
            session *s = g->sessions[k];
            if (g->done[k]) continue;
            TRY(session_go(s, s->step + 1, &g->done[k]));
            stops_share(g, s);
            if (g->done[k]) g->states[k] = session_finish(s, &g->out[k]);
            if (g->states[k] != ST_OK && g->states[k] != ST_STOPPED) return g->states[k];
            any = any || !g->done[k];
        }
    }
    return ST_OK;
}

status train_together(const host *h, arena *a, const train_order *orders, int64_t count,
                      train_outcome *out, status *states)
{
    together g = {.h = h, .orders = orders, .count = count, .states = states, .out = out};
    int64_t opened = 0;
    memset(out, 0, (size_t)count * sizeof(*out));
    for (int64_t k = 0; k < count; k++) states[k] = ST_OK;
    TRY(arena_new(a, count, &g.sessions));
    TRY(arena_new(a, count, &g.done));
    status st = ST_OK;
    for (; opened < count && st == ST_OK; opened++) {
        st = session_open(h, a, &orders[opened], &g.sessions[opened]);
        if (st != ST_OK) break;
    }
    if (st == ST_OK) st = plan_all(&g);
    if (st == ST_OK) st = turns(&g);
    error_record why;
    error_take(&why);
    for (int64_t k = 0; k < opened; k++) {
        const status own = g.done[k] ? states[k] : st;
        if (own != ST_OK) (void)error_put(&why);
        states[k] = session_close(g.sessions[k], own, &out[k]);
        if (st == ST_OK) st = states[k];
    }
    if (g.memory != NULL) (void)munmap(g.memory, (size_t)g.bytes);
    return st != ST_OK ? error_put(&why) : ST_OK;
}
