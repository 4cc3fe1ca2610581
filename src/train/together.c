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
    const train_order *orders;
    int64_t count, turn; // turn: whose it is, or was last
    session **sessions;
    error_record *ends;
    train_outcome *out;
    bool *done;
    void *memory;
    int64_t bytes;
    comm_memory *shared; // memory that the other ranks of this host reach; NULL: there are none
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

// Gives a tensor the place that it has in the first session.
static status common_place(const session *first, const session *s, plan_tensor *t)
{
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
        if (common && s != g->sessions[0]) {
            TRY(common_place(g->sessions[0], s, t));
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

static status memory_take(together *g)
{
    comm *all = g->orders[0].ranks;
    if (all != NULL) {
        TRY(comm_memory_create(all, g->bytes, &g->shared));
        g->memory = comm_memory_at(g->shared);
        return ST_OK;
    }
    void *memory = mmap(NULL, (size_t)g->bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return fail(ST_NO_MEMORY, "no memory for the arena of %lld adapters", (long long)g->count);
    }
    g->memory = memory;
    return ST_OK;
}

static void memory_give(together *g)
{
    if (g->shared != NULL) {
        comm_memory_destroy(g->shared);
    } else if (g->memory != NULL) {
        (void)munmap(g->memory, (size_t)g->bytes);
    }
}

static status memory_make(together *g)
{
    TRY(memory_take(g));
    for (int64_t k = 0; k < g->count; k++) g->sessions[k]->plans.memory = g->memory;
    return ST_OK;
}

// ---- turns --------------------------------------------------------------------------------------

static status plan_all(together *g)
{
    for (int64_t k = 0; k < g->count; k++) {
        session *s = g->sessions[k];
        TRY(session_ranks_open(s, g->orders[k].ranks));
        TRY(session_plan(s, &g->orders[k]));
        if (s->spec.adapter.rank == 0) {
            return fail(ST_CONFIG_CONFLICT,
                        "adapter.files: %s has no adapter; give adapter.kind or adapter.from",
                        s->folder.path);
        }
        if (k == 0) continue;
        s->shares = g->sessions[0];
        s->ranks.lender = &g->sessions[0]->job;
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

// A stop is the end of this session alone; the others stop by themselves.
static status finish(together *g, int64_t k)
{
    const status st = session_finish(g->sessions[k], &g->out[k]);
    if (st == ST_OK) return ST_OK;
    error_take(&g->ends[k]);
    return st == ST_STOPPED ? ST_OK : error_put(&g->ends[k]);
}

static status turns(together *g)
{
    bool any = true;
    while (any) {
        any = false;
        for (int64_t k = 0; k < g->count; k++) {
            session *s = g->sessions[k];
            if (g->done[k]) continue;
            g->turn = k;
            TRY(session_go(s, s->step + 1, &g->done[k]));
            stops_share(g, s);
            if (g->done[k]) TRY(finish(g, k));
            any = any || !g->done[k];
        }
    }
    return ST_OK;
}

// Sessions that had not finished end by `why`. The first one, whose groups all use, closes last.
static void close_all(together *g, int64_t opened, const error_record *why)
{
    for (int64_t k = g->count - 1; k >= 0; k--) {
        error_record *end = &g->ends[k];
        if (!g->done[k]) *end = *why;
        if (end->code != ST_OK) (void)error_put(end);
        if (k >= opened) continue;
        end->code = session_close(g->sessions[k], end->code, &g->out[k]);
        if (end->code != ST_OK) error_take(end);
    }
}

status train_together(const host *h, arena *a, const train_order *orders, int64_t count,
                      train_outcome *out, error_record *ends)
{
    together g = {.orders = orders, .count = count, .ends = ends, .out = out};
    int64_t opened = 0;
    memset(out, 0, (size_t)count * sizeof(*out));
    memset(ends, 0, (size_t)count * sizeof(*ends));
    TRY(arena_new(a, count, &g.sessions));
    TRY(arena_new(a, count, &g.done));
    status st = ST_OK;
    while (opened < count && st == ST_OK) {
        st = session_open(h, a, &orders[opened], &g.sessions[opened]);
        if (st == ST_OK) opened++;
    }
    if (st == ST_OK) st = plan_all(&g);
    if (st == ST_OK) st = turns(&g);
    error_record why;
    error_take(&why);
    close_all(&g, opened, &why);
    memory_give(&g);
    int64_t first = st != ST_OK ? g.turn : 0;
    while (first < count && ends[first].code == ST_OK) first++;
    return first < count ? error_put(&ends[first]) : ST_OK;
}
