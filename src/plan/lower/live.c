// Live intervals: from the write of a tensor's bytes until their last use, derived from the
// accesses of actions (plan/access.h).
//
// Time counts nodes on the compute stream. What computes touches its operands node by node. A
// communication on another stream runs at any time between two actions of the compute stream: from
// the last that it waits for, directly or through others and its stream's order, until the first
// that waits for it. All that time its operands are live.
//
//   compute stream   | GEMM | ...   | ...        | reads the sum |
//   another stream          | sum: its operands  |
//
// A new interval begins when an action writes bytes that the actions of one list on one micro-batch
// (a *run*) have not accessed before; any other access extends the last interval. Four kinds of
// tensors have a single interval:
//   accumulators   from the first term of the step on; optimizer and sums may read them at any
//                  time
//   buffers of transfers between stages: the whole step, because transfers of the next step may
//                  arrive while this one ends
//   packed weights that several nodes read: the whole step
//   tensors that are read after the step: until its end
//
// If a stage runs one micro-batch after the other, all micro-batches after the second repeat it, so
// their intervals are not recorded. An accumulator that is first accessed in one of them counts as
// live from the second micro-batch on, because the first access may be in any of them.
#include "plan/lower/live.h"

#include "plan/access.h"
#include "plan/lower/live_lists.h"

#include <string.h>

status lifetime_touch(lifetime_table *t, int64_t row, int64_t time)
{
    ASSERT(row >= 0);
    if (row >= t->capacity) {
        const int64_t before = t->capacity;
        TRY(arena_grow(t->a, (void **)&t->rows, &t->capacity, row + 1, (int64_t)sizeof(lifetime)));
        memset(t->rows + before, 0, (size_t)(t->capacity - before) * sizeof(lifetime));
    }
    lifetime *l = &t->rows[row];
    if (l->open) {
        live_interval *last = &l->spans[l->count - 1];
        if (time > last->end) last->end = time;
        return ST_OK;
    }
    TRY(arena_grow(t->a, (void **)&l->spans, &l->capacity, l->count + 1,
                   (int64_t)sizeof(live_interval)));
    l->spans[l->count++] = (live_interval){time, time, t->microbatch};
    l->open = true;
    return ST_OK;
}

void lifetime_close(lifetime_table *t, int64_t row)
{
    if (row >= 0 && row < t->capacity) t->rows[row].open = false;
}

typedef struct live_state {
    arena *a;
    const live_input *in;
    const plan *p;
    lifetime_table *out;
    list_uses lists;
    int32_t *microbatch_of; // [action] its own, or that of the next one that computes
    int32_t *run_of;        // [tensor] run that accessed it last
    int32_t run;
    int32_t
        *linked;   // [tensor] 1 + tensor whose bytes it may take over, as the last such node states
    bool *is_link; // [tensor] a buffer of a transfer between stages
    int64_t second_begins;
    // Communications on other streams.
    int32_t
        *behind; // [action] action of the compute stream that it comes after; -1: none in this step
    int32_t *next;    // [action] that follows on its stream
    int32_t *last;    // [stream] the last one so far; -1
    int32_t *pending; // [stream] the first one that may be running still; -1
    int32_t *filling; // [tensor] 1 + the one that writes it and may be running still; 0: none
    int32_t last_compute;
    int64_t stream_count;
} live_state;

// ---- one access ---------------------------------------------------------------------------------

static int32_t owner_of(const plan *p, int32_t ref)
{
    while (ref >= 0 && p->tensors[ref].is_part) ref = p->tensors[ref].whole;
    return ref;
}

// True for an accumulator: its contents are needed until the step ends.
static bool is_held(const plan_tensor *t)
{
    return t->kind == PLAN_BYTES_GRADIENTS && !t->is_unsharded;
}

static bool is_repeated(const live_state *s, int32_t microbatch)
{
    return s->in->repeats != NULL && microbatch >= 0 && s->in->repeats[microbatch];
}

// Records an access to transient tensor `row` for a micro-batch.
static status row_touch(live_state *s, int32_t row, int32_t microbatch, int64_t time)
{
    lifetime_table *out = s->out;
    if (s->is_link[row]) return ST_OK;
    const bool held = is_held(&s->p->tensors[row]);
    if (!held && is_repeated(s, microbatch)) return ST_OK;
    out->microbatch = microbatch;
    const bool fresh = row >= out->capacity || out->rows[row].count == 0;
    if (held && fresh && s->in->repeats != NULL && microbatch >= 1) {
        TRY(lifetime_touch(out, row, s->second_begins));
    }
    return lifetime_touch(out, row, time);
}

// The first write of a run begins a new interval.
static status row_access(live_state *s, int32_t row, bool writes, int32_t microbatch, int64_t time)
{
    if (s->run_of[row] != s->run) {
        s->run_of[row] = s->run;
        if (writes && !is_held(&s->p->tensors[row])) lifetime_close(s->out, row);
    }
    return row_touch(s, row, microbatch, time);
}

// ---- communications -----------------------------------------------------------------------------

static status ref_touch(live_state *s, int32_t ref, int32_t microbatch, int64_t time)
{
    const int32_t row = owner_of(s->p, ref);
    return row >= 0 ? row_touch(s, row, microbatch, time) : ST_OK;
}

// A communication writes a tensor from `time` on. If one before it on its stream does so too, and
// nothing has waited for that one, that one may have run until then.
static status row_fill(live_state *s, int32_t row, int32_t action, int64_t time)
{
    const int32_t before = s->filling[row] - 1;
    const bool is_open = row < s->out->capacity && s->out->rows[row].open;
    s->filling[row] = s->p->actions[action].stream == STREAM_COMPUTE ? 0 : 1 + action;
    if (before < 0 || before == action || !is_open) return ST_OK;
    return row_touch(s, row, s->microbatch_of[before], time - 1);
}

// Records the beginning of a communication: it reads its inputs from time `read` and writes its
// outputs from `time` on.
static status comm_begin(live_state *s, int32_t action, int64_t read, int64_t time)
{
    const plan_action *a = &s->p->actions[action];
    const plan_comm *c = &s->p->comms[a->comm];
    const int32_t microbatch = s->microbatch_of[action];
    if (a->layer < 0) s->run++; // it belongs to no list
    for (int writes = 0; writes < 2; writes++) {
        for (int32_t i = c->items_begin; i < c->items_begin + c->items_count; i++) {
            const plan_comm_item *item = &s->p->items[i];
            const int32_t row = owner_of(s->p, writes != 0 ? item->out : item->in);
            const int64_t at = writes != 0 ? time : read;
            if (row >= 0 && writes != 0) TRY(row_fill(s, row, action, at));
            if (row >= 0) TRY(row_access(s, row, writes != 0, microbatch, at));
        }
    }
    return c->compressed ? ref_touch(s, c->work, microbatch, time) : ST_OK;
}

static bool is_sum(const plan_comm *c)
{
    return c->op == COLLECTIVE_ALL_REDUCE || c->op == COLLECTIVE_REDUCE_SCATTER;
}

static bool outs_are_live(const live_state *s, const plan_comm *c)
{
    for (int32_t i = c->items_begin; i < c->items_begin + c->items_count; i++) {
        const int32_t row = owner_of(s->p, s->p->items[i].out);
        if (row >= 0 && (row >= s->out->capacity || !s->out->rows[row].open)) return false;
    }
    return true;
}

// Its waits, and who comes before it on its stream, say when it may begin.
static status comm_post(live_state *s, int32_t action)
{
    const plan *p = s->p;
    const plan_action *a = &p->actions[action];
    const plan_comm *c = &p->comms[a->comm];
    int32_t behind = s->last[a->stream] >= 0 ? s->behind[s->last[a->stream]] : -1;
    for (int32_t i = 0; i < a->waits_count; i++) {
        const int32_t on = p->waits[a->waits_begin + i];
        if (on < 0) continue;
        const int32_t after = p->actions[on].stream == STREAM_COMPUTE ? on : s->behind[on];
        if (after > behind) behind = after;
    }
    s->behind[action] = behind;
    if (s->last[a->stream] >= 0) s->next[s->last[a->stream]] = action;
    if (s->pending[a->stream] < 0) s->pending[a->stream] = action;
    s->last[a->stream] = action;
    s->next[action] = -1;
    int64_t time = s->in->begins[behind == s->last_compute ? action : behind + 1];
    // A sum that overlaps with its GEMM arrives row by row: it is live from the GEMM's first rows
    // on.
    if (a->layer >= 0 && is_sum(c) && behind >= 0) time = s->in->begins[behind];
    // If all outputs are live already, the communication needs no time step of its own on the
    // compute stream.
    const int64_t read = time > 0 && outs_are_live(s, c) ? time - 1 : time;
    return comm_begin(s, action, read, time);
}

// True if communication `later` begins only after `action` is done.
static bool is_ordered(const plan *p, int32_t action, int32_t later)
{
    const plan_action *a = &p->actions[later];
    for (int32_t i = 0; i < a->waits_count; i++) {
        if (p->waits[a->waits_begin + i] == action) return true;
    }
    return a->stream == p->actions[action].stream;
}

// The last moment in which a communication may run that action `by` of the compute stream waits
// for. Where nothing computes between that and the action before, but others communicate, it is
// done before each that waits for it.
static int64_t end_before(const live_state *s, int32_t action, int32_t by)
{
    const int32_t from = (int32_t)max_i64(action, s->last_compute) + 1;
    const int64_t *begins = s->in->begins;
    for (int32_t i = from; i < by; i++) {
        if (begins[i + 1] > begins[i] && !is_ordered(s->p, action, i)) return begins[by] - 1;
    }
    return begins[from] - 1;
}

static status ref_end(live_state *s, int32_t ref, int32_t by, int64_t end)
{
    const int32_t row = owner_of(s->p, ref);
    if (row < 0) return ST_OK;
    s->filling[row] = 0;
    // Peers may read an accumulator until the action begins.
    if (is_held(&s->p->tensors[row])) end = s->in->begins[by];
    return row_touch(s, row, s->microbatch_of[by], end);
}

static status comm_end(live_state *s, int32_t action, int32_t by)
{
    const plan_comm *c = &s->p->comms[s->p->actions[action].comm];
    const int64_t end = end_before(s, action, by);
    for (int32_t i = c->items_begin; i < c->items_begin + c->items_count; i++) {
        TRY(ref_end(s, s->p->items[i].in, by, end));
        TRY(ref_end(s, s->p->items[i].out, by, end));
    }
    return c->compressed ? ref_end(s, c->work, by, end) : ST_OK;
}

// All communications of the stream up to this one are done before action `by`, and so is all that
// they have waited for.
static status comm_done(live_state *s, int32_t action, int32_t by)
{
    const plan *p = s->p;
    int32_t *at = &s->pending[p->actions[action].stream];
    while (*at >= 0 && *at <= action) {
        const int32_t one = *at;
        const plan_action *a = &p->actions[one];
        *at = s->next[one];
        TRY(comm_end(s, one, by));
        for (int32_t i = 0; i < a->waits_count; i++) {
            const int32_t on = p->waits[a->waits_begin + i];
            if (on >= 0 && p->actions[on].stream >= STREAM_GROUPS) TRY(comm_done(s, on, by));
        }
    }
    return ST_OK;
}

// ---- actions ------------------------------------------------------------------------------------

static status workspace_touch(live_state *s, const op_node *node, int32_t row, int32_t microbatch,
                              int64_t time)
{
    if (plan_access_workspace(node) == ACCESS_WRITE) lifetime_close(s->out, row);
    return row_touch(s, row, microbatch, time);
}

static status inplace_note(live_state *s, int32_t from, int32_t to, int64_t time)
{
    lifetime_table *out = s->out;
    if (from < 0 || to < 0 || from == to || s->linked[to] == from + 1) return ST_OK;
    s->linked[to] = from + 1;
    TRY(arena_grow(out->a, (void **)&out->links, &out->link_capacity, out->link_count + 1,
                   (int64_t)sizeof(inplace_link)));
    out->links[out->link_count++] = (inplace_link){from, to, time};
    return ST_OK;
}

static status nodes_touch(live_state *s, int32_t action)
{
    const plan_action *a = &s->p->actions[action];
    const plan_binding *b = &s->p->bindings[a->binding];
    const op_node *nodes = b->program->lists[a->list].nodes;
    const int32_t *spaces = b->workspace[a->list];
    const list_use *list = NULL;
    int64_t time = s->in->begins[action];
    TRY(list_use_of(&s->lists, b->program, a->list, &list));
    for (int32_t i = a->ops_begin; i < a->ops_begin + a->ops_count; i++, time++) {
        for (int32_t k = list->first[i]; k < list->first[i + 1]; k++) {
            const operand_use *use = &list->uses[k];
            const int32_t row = owner_of(s->p, b->tensor[use->owner]);
            const bool writes = use->writes && !(use->adds && a->accumulate);
            if (row >= 0) TRY(row_access(s, row, writes, a->microbatch, time));
        }
        if (spaces != NULL && spaces[i] >= 0) {
            TRY(workspace_touch(s, &nodes[i], spaces[i], a->microbatch, time));
        }
        for (int32_t k = list->first_inplace[i]; k < list->first_inplace[i + 1]; k++) {
            const inplace_use *use = &list->inplaces[k];
            TRY(inplace_note(s, b->tensor[use->from], b->tensor[use->to], time));
        }
    }
    return ST_OK;
}

// A communication in its turn on the compute stream. A sum may take its input's place.
static status inline_touch(live_state *s, int32_t action)
{
    const plan_comm *c = &s->p->comms[s->p->actions[action].comm];
    const plan_comm_item *first = &s->p->items[c->items_begin];
    const int64_t time = s->in->begins[action];
    TRY(comm_begin(s, action, time, time));
    if (c->op != COLLECTIVE_ALL_REDUCE) return ST_OK;
    return inplace_note(s, first->in, first->out, time);
}

static bool is_of_same_run(const plan_action *a, const plan_action *b)
{
    return a->layer == b->layer && a->list == b->list && a->microbatch == b->microbatch;
}

static status actions_walk(live_state *s)
{
    const plan *p = s->p;
    const plan_action *before = NULL; // the last one that a layer computed
    for (int32_t i = 0; i < p->action_count; i++) {
        const plan_action *a = &p->actions[i];
        const bool computes = a->stream == STREAM_COMPUTE;
        for (int32_t k = 0; k < a->waits_count && computes; k++) {
            const int32_t on = p->waits[a->waits_begin + k];
            if (on < 0 || p->actions[on].stream < STREAM_GROUPS) continue;
            TRY(comm_done(s, on, i));
        }
        if (a->kind == ACTION_COMMUNICATE && !computes) TRY(comm_post(s, i));
        if (!computes) continue;
        s->last_compute = i;
        if (a->kind == ACTION_COMMUNICATE) {
            TRY(inline_touch(s, i));
            continue;
        }
        if (a->layer < 0 || before == NULL || !is_of_same_run(a, before)) s->run++;
        if (a->layer >= 0) before = a;
        TRY(nodes_touch(s, i));
    }
    // The next step waits for communications that no action of the compute stream waits for.
    for (int64_t stream = STREAM_GROUPS; stream < s->stream_count; stream++) {
        if (s->pending[stream] < 0) continue;
        TRY(comm_done(s, s->last[stream], (int32_t)p->action_count));
    }
    return ST_OK;
}

// ---- the whole ----------------------------------------------------------------------------------

static status whole_step(live_state *s, int32_t row)
{
    s->out->microbatch = -1;
    TRY(lifetime_touch(s->out, row, 0));
    return lifetime_touch(s->out, row, s->in->begins[s->p->action_count]);
}

static void links_find(live_state *s)
{
    const plan *p = s->p;
    for (int64_t i = 0; i < p->comm_count; i++) {
        const plan_comm *c = &p->comms[i];
        const group_use use = p->run->groups[c->group].use;
        if (use != GROUP_LINK_FORWARD && use != GROUP_LINK_BACKWARD) continue;
        for (int32_t k = c->items_begin; k < c->items_begin + c->items_count; k++) {
            const int32_t ref = p->items[k].in >= 0 ? p->items[k].in : p->items[k].out;
            if (ref >= 0) s->is_link[owner_of(p, ref)] = true;
        }
    }
}

// A packed weight that a single node reads (a head does so once for each of its chunks) is live at
// that node only.
static status packed_touch(live_state *s)
{
    typedef struct packed_use {
        int64_t count, first;
    } packed_use;
    const plan *p = s->p;
    packed_use *uses = NULL; // [tensor]
    TRY(arena_new(s->a, p->tensor_count + 1, &uses));
    for (int64_t i = 0; i < p->action_count; i++) {
        const plan_action *a = &p->actions[i];
        const int32_t *rows =
            a->kind == ACTION_COMPUTE ? p->bindings[a->binding].packed[a->list] : NULL;
        for (int32_t k = 0; rows != NULL && k < a->ops_count; k++) {
            const int32_t row = rows[a->ops_begin + k];
            if (row >= 0 && uses[row].count++ == 0) uses[row].first = s->in->begins[i] + k;
        }
    }
    s->out->microbatch = -1;
    for (int32_t row = 0; row < (int32_t)p->tensor_count; row++) {
        if (uses[row].count == 1) TRY(lifetime_touch(s->out, row, uses[row].first));
        if (uses[row].count > 1) TRY(whole_step(s, row));
    }
    return ST_OK;
}

static status state_make(live_state *s)
{
    const plan *p = s->p;
    const int64_t streams = STREAM_GROUPS + p->run->group_count, n = p->action_count;
    s->stream_count = streams;
    TRY(arena_new(s->a, n + 1, &s->microbatch_of));
    TRY(arena_new(s->a, n + 1, &s->behind));
    TRY(arena_new(s->a, n + 1, &s->next));
    TRY(arena_new(s->a, p->tensor_count + 1, &s->run_of));
    TRY(arena_new(s->a, p->tensor_count + 1, &s->is_link));
    TRY(arena_new(s->a, p->tensor_count + 1, &s->linked));
    TRY(arena_new(s->a, streams, &s->last));
    TRY(arena_new(s->a, streams, &s->pending));
    TRY(arena_new(s->a, p->tensor_count + 1, &s->filling));
    memset(s->last, -1, (size_t)streams * sizeof(*s->last));
    memset(s->pending, -1, (size_t)streams * sizeof(*s->pending));
    s->last_compute = -1;
    int32_t next = -1;
    s->microbatch_of[n] = -1;
    for (int64_t i = n; i-- > 0;) {
        const plan_action *a = &p->actions[i];
        if (a->stream == STREAM_COMPUTE) next = a->microbatch;
        s->microbatch_of[i] = a->microbatch >= 0 ? a->microbatch : next;
        if (a->microbatch == 1 && a->stream == STREAM_COMPUTE) s->second_begins = s->in->begins[i];
    }
    links_find(s);
    return ST_OK;
}

status plan_live(const live_input *in, lifetime_table *out)
{
    live_state s = {.a = out->a, .in = in, .p = in->p, .out = out, .lists = {.a = out->a}};
    TRY(state_make(&s));
    for (int32_t row = 0; row < (int32_t)in->p->tensor_count; row++) {
        if (s.is_link[row]) TRY(whole_step(&s, row));
    }
    TRY(actions_walk(&s));
    out->now = in->begins[in->p->action_count];
    out->microbatch = -1;
    for (int64_t i = 0; i < in->kept_count; i++) {
        const int32_t row = owner_of(in->p, in->kept[i]);
        if (row >= 0) TRY(lifetime_touch(out, row, out->now));
    }
    return packed_touch(&s);
}
