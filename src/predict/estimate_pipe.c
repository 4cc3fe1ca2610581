// Least time of a step, action by action over the schedule's lists. It adds to the bound of
// estimate_time.c the waits between ranks. From one norm to the next, as there:
//
//   updates in sequence, and behind each the gather of its weights, on a stream of their own
//   | a chunk's first forward waits for them, layer by layer
//   | lists in order; tensors from another rank arrive over a link, one transfer after the other
//   | a chunk's last backward gives its layers' sums to their streams, one after the other
//
// The step ends when compute and sums of the last rank are done. Left out are slots that are not
// yet free, the share of GEMM time that collectives take, and the norm itself. All layouts that
// share an order use one.
#include "predict/estimate_internal.h"

#include <string.h>

typedef struct pipe_node {
    int32_t at;     // stage * micro-batches + micro-batch
    int32_t stream; // stream of the transfer to another rank; -1: none
    int16_t rank, stage;
    uint8_t kind; // schedule_kind; SCHEDULE_BOTH is split into two nodes
    bool first;   // forward of its chunk
    bool last;    // gradients of weights of its chunk
} pipe_node;

struct estimate_pipe {
    pipe_node *nodes;
    int64_t count;
    int32_t ranks, depth, microbatches;
    bool bidirectional;
    // Buffers.
    int64_t *output, *gradient;              // [at] time of arrival at the receiver
    int64_t *rank_ns;                        // [rank] time when its compute stream is free
    int64_t *rows_ns, *whole_ns, *across_ns; // [rank] the same for its streams of sums
    // Exposed part of those so far, and the time before which no stream can finish it.
    int64_t *rows_late, *whole_late, *late_end;
    int64_t *stream_ns; // [stream]
};

// ---- the order ----------------------------------------------------------------------------------

typedef struct walker {
    const estimate_layout *l;
    estimate_pipe *p;
    schedule_list *lists; // [rank]
    int64_t *next;        // [rank]
    bool *half;           // [rank] the forward of a SCHEDULE_BOTH is done
    bool *made[2];        // [at] outputs, gradients
    int32_t *wanted[2];   // [at] the waiting rank, plus 1
    int32_t *seen;        // [rank * chunks + chunk] remaining forwards, then gradients of weights
    int32_t *left;
    int32_t *ready, ready_count;
} walker;

static schedule_request shape_of(const estimate_layout *l)
{
    return (schedule_request){
        .stages = l->pp, .microbatches = l->microbatches, .chunks = l->chunks};
}

static status list_make(const estimate_layout *l, int32_t rank, arena *a, schedule_list *out)
{
    const schedule_request r = shape_of(l);
    if (l->schedule != NULL) return plan_schedule_emit(l->schedule, &r, rank, a, out);
    TRY(arena_new(a, 2 * (int64_t)l->microbatches, &out->actions));
    for (int32_t m = 0; m < l->microbatches; m++) {
        out->actions[out->count++] = (schedule_action){SCHEDULE_FORWARD, 0, m, -1, -1};
        out->actions[out->count++] = (schedule_action){SCHEDULE_BACKWARD, 0, m, -1, -1};
    }
    return ST_OK;
}

static status walker_make(walker *w, arena *a)
{
    const int64_t items = (int64_t)w->p->depth * w->p->microbatches, ranks = w->p->ranks;
    const int64_t chunks = ranks * w->l->chunks;
    int64_t actions = 0;
    TRY(arena_new(a, ranks, &w->lists));
    TRY(arena_new(a, ranks, &w->next));
    TRY(arena_new(a, ranks, &w->half));
    TRY(arena_new(a, ranks, &w->ready));
    TRY(arena_new(a, chunks, &w->seen));
    TRY(arena_new(a, chunks, &w->left));
    for (int i = 0; i < 2; i++) {
        TRY(arena_new(a, items, &w->made[i]));
        TRY(arena_new(a, items, &w->wanted[i]));
    }
    for (int32_t r = 0; r < ranks; r++) {
        TRY(list_make(w->l, r, a, &w->lists[r]));
        for (int64_t k = 0; k < w->lists[r].count; k++) {
            const schedule_action *x = &w->lists[r].actions[k];
            const bool both = x->kind == SCHEDULE_BOTH;
            actions += both ? 2 : 1;
            if (x->kind == SCHEDULE_FORWARD || x->kind == SCHEDULE_BACKWARD_INPUT) continue;
            w->left[r * w->l->chunks + (both ? x->chunk_b : x->chunk)]++;
        }
        w->ready[w->ready_count++] = r;
    }
    w->p->count = actions;
    return ST_OK;
}

// Stream of the transfer to the stage `step` above; -1: that stage is on the same rank, or there is
// none.
static int32_t stream_of(const walker *w, int32_t rank, int32_t stage, int32_t chunk, int32_t step)
{
    const schedule_request r = shape_of(w->l);
    int32_t to = -1, its = 0;
    if (stage + step < 0 || stage + step >= w->p->depth) return -1;
    plan_schedule_holder(w->l->schedule, &r, stage + step,
                         plan_schedule_direction(w->l->schedule, chunk), &to, &its);
    if (to == rank) return -1;
    return 4 * rank + (step > 0 ? 2 : 0) + (to > rank ? 1 : 0);
}

static pipe_node node_of(walker *w, int32_t rank, schedule_kind kind, int32_t chunk,
                         int32_t microbatch)
{
    const int32_t stage = estimate_stage_of(w->l, rank, chunk);
    const int64_t row = (int64_t)rank * w->l->chunks + chunk;
    pipe_node n = {.at = stage * w->p->microbatches + microbatch,
                   .stream = -1,
                   .rank = (int16_t)rank,
                   .stage = (int16_t)stage,
                   .kind = (uint8_t)kind};
    if (kind == SCHEDULE_FORWARD) n.first = w->seen[row]++ == 0;
    if (kind == SCHEDULE_BACKWARD || kind == SCHEDULE_BACKWARD_WEIGHT) {
        n.last = --w->left[row] == 0;
    }
    if (kind != SCHEDULE_BACKWARD_WEIGHT) {
        n.stream = stream_of(w, rank, stage, chunk, kind == SCHEDULE_FORWARD ? 1 : -1);
    }
    return n;
}

// True if the node's input from another stage has arrived; otherwise its rank waits.
static bool is_there(walker *w, schedule_kind kind, int32_t rank, int32_t chunk, int32_t microbatch)
{
    const int32_t stage = estimate_stage_of(w->l, rank, chunk);
    const bool ahead = kind == SCHEDULE_FORWARD;
    const int32_t other = ahead ? stage - 1 : stage + 1;
    if (kind == SCHEDULE_BACKWARD_WEIGHT || other < 0 || other >= w->p->depth) return true;
    const int64_t at = (int64_t)other * w->p->microbatches + microbatch;
    if (w->made[ahead ? 0 : 1][at]) return true;
    w->wanted[ahead ? 0 : 1][at] = rank + 1;
    return false;
}

static void node_add(walker *w, int64_t *count, schedule_kind kind, int32_t rank, int32_t chunk,
                     int32_t microbatch)
{
    const pipe_node n = node_of(w, rank, kind, chunk, microbatch);
    w->p->nodes[(*count)++] = n;
    if (kind == SCHEDULE_BACKWARD_WEIGHT) return;
    const int i = kind == SCHEDULE_FORWARD ? 0 : 1;
    w->made[i][n.at] = true;
    if (w->wanted[i][n.at] > 0) w->ready[w->ready_count++] = w->wanted[i][n.at] - 1;
}

static void rank_walk(walker *w, int32_t rank, int64_t *count)
{
    const schedule_list *list = &w->lists[rank];
    for (; w->next[rank] < list->count; w->next[rank]++) {
        const schedule_action *x = &list->actions[w->next[rank]];
        const bool both = x->kind == SCHEDULE_BOTH;
        const schedule_kind kind = both ? SCHEDULE_FORWARD : x->kind;
        if (!w->half[rank]) {
            if (!is_there(w, kind, rank, x->chunk, x->microbatch)) return;
            node_add(w, count, kind, rank, x->chunk, x->microbatch);
        }
        if (!both) continue;
        w->half[rank] = true;
        if (!is_there(w, SCHEDULE_BACKWARD, rank, x->chunk_b, x->microbatch_b)) return;
        node_add(w, count, SCHEDULE_BACKWARD, rank, x->chunk_b, x->microbatch_b);
        w->half[rank] = false;
    }
}

static status buffers_make(arena *a, estimate_pipe *p)
{
    const int64_t items = (int64_t)p->depth * p->microbatches;
    TRY(arena_new(a, items, &p->output));
    TRY(arena_new(a, items, &p->gradient));
    TRY(arena_new(a, p->ranks, &p->rank_ns));
    TRY(arena_new(a, p->ranks, &p->rows_ns));
    TRY(arena_new(a, p->ranks, &p->whole_ns));
    TRY(arena_new(a, p->ranks, &p->across_ns));
    TRY(arena_new(a, p->ranks, &p->rows_late));
    TRY(arena_new(a, p->ranks, &p->whole_late));
    TRY(arena_new(a, p->ranks, &p->late_end));
    return arena_new(a, 4 * (int64_t)p->ranks, &p->stream_ns);
}

status estimate_pipe_make(arena *a, const estimate_layout *l, estimate_pipe **out)
{
    const schedule_request r = shape_of(l);
    estimate_pipe *p = NULL;
    arena *work = NULL;
    int64_t count = 0;
    TRY(arena_new(a, 1, &p));
    p->ranks = l->pp;
    p->depth = l->schedule != NULL ? plan_schedule_depth(l->schedule, &r) : 1;
    p->microbatches = l->microbatches;
    p->bidirectional = l->schedule != NULL && l->schedule->shape == SHAPE_TWO;
    walker w = {.l = l, .p = p};
    TRY(arena_create("order of a pipeline", 0, &work));
    status st = walker_make(&w, work);
    if (st == ST_OK) st = arena_new(a, p->count, &p->nodes);
    if (st == ST_OK) st = buffers_make(a, p);
    while (st == ST_OK && w.ready_count > 0) rank_walk(&w, w.ready[--w.ready_count], &count);
    arena_destroy(work);
    TRY(st);
    if (count < p->count) {
        return fail(ST_CONFIG, "the schedule waits for itself: %lld of %lld actions are never done",
                    (long long)(p->count - count), (long long)p->count);
    }
    *out = p;
    return ST_OK;
}

int64_t estimate_pipe_actions(const estimate_pipe *p)
{
    return p->count;
}

// ---- times --------------------------------------------------------------------------------------

typedef struct timing {
    const estimate *e;
    const estimate_layout *l;
    const program_price *prices;
    const layer_time *layers;
    const stage_time *stages;
    estimate_pipe *p;
    estimate_link link;
    bool visits; // gradients are summed at every visit
} timing;

// Updates in the order of the layers, with the gathers behind them.
static void updates_time(const timing *t, int64_t *gathered)
{
    estimate_pipe *p = t->p;
    for (int32_t r = 0; r < p->ranks; r++) {
        int64_t now = 0, stream = 0;
        bool is_last = false;
        for (int32_t c = 0; c < t->l->chunks; c++) {
            const int32_t s = estimate_stage_of(t->l, r, c);
            for (int32_t i = t->l->first_layer[s]; i < t->l->first_layer[s + 1]; i++) {
                const layer_time *x = &t->layers[t->e->m->layers[i].program];
                stream = max_i64(stream, now) + x->gathers;
                now += x->update;
                is_last = c + 1 == t->l->chunks && i + 1 == t->l->first_layer[s + 1];
                if (!is_last) now += x->gathers_held; // the last one delays nothing in this step
                gathered[i] = x->gathers > 0 ? max_i64(stream, now) : 0;
            }
        }
        p->rank_ns[r] = now;
        p->rows_ns[r] = p->whole_ns[r] = p->across_ns[r] = 0;
        p->rows_late[r] = p->whole_late[r] = p->late_end[r] = 0;
    }
}

// A chunk's first forward. In two directions a layer is on two ranks and is gathered for both.
static int64_t first_forward(const timing *t, const pipe_node *n, int64_t now,
                             const int64_t *gathered)
{
    const int64_t all = now + t->stages[n->stage].forward;
    for (int32_t i = t->l->first_layer[n->stage]; i < t->l->first_layer[n->stage + 1]; i++) {
        now = max_i64(now, t->p->bidirectional ? 0 : gathered[i]);
        now += t->prices[t->e->m->layers[i].program].forward;
    }
    return max_i64(now, all);
}

// The layer with the loss creates gradients of weights together with those of the input, earlier.
static bool makes_at_input(const timing *t, const pipe_node *n, int32_t program)
{
    return n->kind == SCHEDULE_BACKWARD_WEIGHT &&
           t->e->programs[program].program->output_count == 0;
}

// No stream is done before the late part of its sums has run after the last gradients.
static void late_add(estimate_pipe *p, int32_t rank, const layer_time *x, int64_t made)
{
    p->rows_late[rank] += x->rows_late;
    p->whole_late[rank] += x->whole_late;
    if (x->rows_late > 0) p->late_end[rank] = max_i64(p->late_end[rank], made + p->rows_late[rank]);
    if (x->whole_late > 0) {
        p->late_end[rank] = max_i64(p->late_end[rank], made + p->whole_late[rank]);
    }
}

// Gradients of weights: the sums of a chunk's last ones, layer by layer; the sums of every visit
// with ZeRO-2. Returns when the rank may continue; *end: when its output exists.
static int64_t weights_time(const timing *t, const pipe_node *n, int64_t begin, int64_t *end)
{
    estimate_pipe *p = t->p;
    int64_t now = begin, all = 0, held = 0;
    const bool both = n->kind == SCHEDULE_BACKWARD, sums = n->last && !p->bidirectional;
    for (int32_t i = t->l->first_layer[n->stage + 1]; i-- > t->l->first_layer[n->stage];) {
        const int32_t program = t->e->m->layers[i].program;
        const layer_time *x = &t->layers[program];
        const bool before = makes_at_input(t, n, program);
        now += held + (both ? t->prices[program].input : 0) + t->prices[program].weight;
        held = before ? 0 : x->visit_held + (sums ? x->sums_held : 0);
        all += held;
        int64_t *rows = &p->rows_ns[n->rank], *across = &p->across_ns[n->rank];
        int64_t *whole = &p->whole_ns[n->rank];
        const int64_t made = before ? 0 : now;
        if (x->visit_sums > 0) *rows = max_i64(*rows, made) + x->visit_sums;
        if (!sums) continue;
        if (x->scatters > 0) *rows = max_i64(*rows, made) + x->scatters;
        if (x->across > 0) *across = max_i64(*across + x->across, *rows);
        if (x->sums > 0) *whole = max_i64(*whole, made) + x->sums;
        late_add(p, n->rank, x, made);
    }
    *end += all - held; // the lowest layer's delay falls into the rank's next action
    return *end + held;
}

// In two directions: sums run layer by layer when both ranks of a stage are done.
static void pair_sums_time(const timing *t, int32_t rank)
{
    estimate_pipe *p = t->p;
    int64_t now = max_i64(p->rank_ns[rank], p->rank_ns[p->ranks - 1 - rank]);
    for (int32_t c = 0; c < t->l->chunks; c++) {
        const int32_t s = estimate_stage_of(t->l, rank, c);
        for (int32_t i = t->l->first_layer[s]; i < t->l->first_layer[s + 1]; i++) {
            const layer_time *x = &t->layers[t->e->m->layers[i].program];
            now += x->sums + x->sums_held;
        }
    }
    p->whole_ns[rank] = now;
}

static void node_time(const timing *t, const pipe_node *n, const int64_t *gathered)
{
    estimate_pipe *p = t->p;
    const stage_time *x = &t->stages[n->stage];
    int64_t begin = p->rank_ns[n->rank], end = 0, next = 0;
    if (n->kind == SCHEDULE_FORWARD) {
        if (n->stage > 0) begin = max_i64(begin, p->output[n->at - p->microbatches]);
        end = n->first ? first_forward(t, n, begin, gathered) : begin + x->forward;
    } else {
        const bool waits = n->kind != SCHEDULE_BACKWARD_WEIGHT && n->stage + 1 < p->depth;
        if (waits) begin = max_i64(begin, p->gradient[n->at + p->microbatches]);
        end = begin + (n->kind != SCHEDULE_BACKWARD_WEIGHT ? x->input : 0) +
              (n->kind != SCHEDULE_BACKWARD_INPUT ? x->weight : 0);
        next = end;
        const bool makes = n->kind != SCHEDULE_BACKWARD_INPUT;
        if (makes && (n->last || t->visits)) next = weights_time(t, n, begin, &end);
    }
    p->rank_ns[n->rank] = max_i64(next, end) + (n->stream >= 0 ? t->link.held : 0);
    if (n->kind == SCHEDULE_BACKWARD_WEIGHT) return;
    int64_t there = end;
    if (n->stream >= 0) {
        there = p->stream_ns[n->stream] = max_i64(p->stream_ns[n->stream], end) + t->link.ns;
    }
    *(n->kind == SCHEDULE_FORWARD ? &p->output[n->at] : &p->gradient[n->at]) = there;
}

int64_t estimate_pipe_time(const estimate *e, estimate_prices *prices, const cost_model *m,
                           const estimate_links *links, const estimate_layout *l, estimate_pipe *p)
{
    const int32_t depth = estimate_stages(e, prices, m, links, l);
    ASSERT(depth == p->depth && l->pp == p->ranks && l->microbatches == p->microbatches);
    const estimate_buffers *buffers = prices->buffers;
    int64_t *gathered = buffers->gathered, step = 0;
    timing t = {.e = e,
                .l = l,
                .prices = prices->programs,
                .layers = buffers->layers,
                .stages = buffers->stages,
                .p = p,
                .link = estimate_link_of(e, m, links, l, depth)};
    for (int32_t i = 0; i < e->m->program_count; i++) {
        t.visits = t.visits || buffers->layers[i].visit_sums > 0;
    }
    memset(p->stream_ns, 0, 4 * (size_t)p->ranks * sizeof(*p->stream_ns));
    updates_time(&t, gathered);
    for (int64_t k = 0; k < p->count; k++) node_time(&t, &p->nodes[k], gathered);
    for (int32_t r = 0; r < p->ranks; r++) {
        if (p->bidirectional) pair_sums_time(&t, r);
        step = max_i64(step, max_i64(p->rank_ns[r], max_i64(p->rows_ns[r], p->whole_ns[r])));
        step = max_i64(step, max_i64(p->across_ns[r], p->late_end[r]));
    }
    return step + cost_step_ns(m->profile);
}
