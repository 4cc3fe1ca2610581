// Pass 3 of lowering, transfers between stages.
//
// A receive waits until the last action that used its buffer has read or sent the previous tensor;
// an action that writes a buffer waits for the send that used it before. Links are in order: a
// stage receives in the order in which its neighbour sends, which follows from the neighbour's
// list. A receive stands in the list before the first action that needs it or a later receive of
// its link, so running the list one action after the other is valid too.
#include "plan/lower/collect_internal.h"

#include <string.h>

// ---- what comes over links ----------------------------------------------------------------------

static status link_group(collector *c, int32_t from, int32_t to, group_use use, int32_t *row)
{
    const plan_group g = plan_group_stages(from, to, use);
    return plan_table_group(c->in->p->run, &g, row);
}

static status chunk_groups(collector *c, int32_t chunk)
{
    const lower_input *in = c->in;
    const bool *crosses = c->b->slots.crosses[chunk];
    int32_t *group = c->links.group[chunk];
    const int32_t me = in->r->mesh.at[AXIS_PP];
    int32_t above = -1, below = -1, its = 0;
    for (int kind = 0; kind < BOUNDARY_COUNT; kind++) group[kind] = -1;
    (void)expand_neighbour(in, me, chunk, 1, &above, &its);
    (void)expand_neighbour(in, me, chunk, -1, &below, &its);
    if (crosses[BOUNDARY_OUT]) {
        TRY(link_group(c, me, above, GROUP_LINK_FORWARD, &group[BOUNDARY_OUT]));
    }
    if (crosses[BOUNDARY_D_OUT]) {
        TRY(link_group(c, above, me, GROUP_LINK_BACKWARD, &group[BOUNDARY_D_OUT]));
    }
    if (crosses[BOUNDARY_IN]) {
        TRY(link_group(c, below, me, GROUP_LINK_FORWARD, &group[BOUNDARY_IN]));
    }
    if (crosses[BOUNDARY_D_IN]) {
        TRY(link_group(c, me, below, GROUP_LINK_BACKWARD, &group[BOUNDARY_D_IN]));
    }
    return ST_OK;
}

static link_state *link_of(collect_links *l, int32_t group, boundary_kind kind)
{
    for (int32_t i = 0; i < l->link_count; i++) {
        if (l->links[i].group == group) return &l->links[i];
    }
    ASSERT(l->link_count < COLLECT_MAX_LINKS);
    link_state *link = &l->links[l->link_count++];
    *link = (link_state){.group = group, .kind = kind};
    return link;
}

static status message_add(collector *c, int32_t chunk, int32_t microbatch, boundary_kind kind)
{
    if (c->links.group[chunk][kind] < 0) return ST_OK;
    link_state *link = link_of(&c->links, c->links.group[chunk][kind], kind);
    TRY(arena_grow(c->in->a, (void **)&link->transfers, &link->capacity, link->count + 1,
                   (int64_t)sizeof(link_transfer)));
    link->transfers[link->count++] = (link_transfer){chunk, microbatch};
    return ST_OK;
}

// Lists the transfers that rank `from` sends to this one, in order.
static status transfers_from(collector *c, int32_t from)
{
    const lower_input *in = c->in;
    const int32_t me = in->r->mesh.at[AXIS_PP];
    schedule_list list = {0};
    TRY(expand_list(in, from, in->a, &list));
    for (int64_t i = 0; i < list.count; i++) {
        const schedule_action *a = &list.actions[i];
        int32_t chunk = -1, microbatch = -1, to = -1, its = -1;
        if (expand_has_forward(a) && expand_neighbour(in, from, a->chunk, 1, &to, &its) &&
            to == me) {
            TRY(message_add(c, its, a->microbatch, BOUNDARY_IN));
        }
        if (expand_input_half(a, &chunk, &microbatch) &&
            expand_neighbour(in, from, chunk, -1, &to, &its) && to == me) {
            TRY(message_add(c, its, microbatch, BOUNDARY_D_OUT));
        }
    }
    return ST_OK;
}

static status messages_find(collector *c)
{
    const int32_t me = c->in->r->mesh.at[AXIS_PP];
    for (int32_t pp = 0; pp < c->in->pipe.shape.stages; pp++) {
        bool sends = false;
        for (int32_t k = 0; k < c->x->chunk_count && pp != me; k++) {
            int32_t rank = -1, its = -1;
            sends = sends || (expand_neighbour(c->in, me, k, 1, &rank, &its) && rank == pp);
            sends = sends || (expand_neighbour(c->in, me, k, -1, &rank, &its) && rank == pp);
        }
        if (sends) TRY(transfers_from(c, pp));
    }
    return ST_OK;
}

status collect_links_begin(collector *c)
{
    const lower_input *in = c->in;
    const bound_slots *slots = &c->b->slots;
    const int64_t items = (int64_t)c->x->chunk_count * in->pipe.shape.microbatches;
    TRY(arena_new(in->a, c->x->chunk_count, &c->links.group));
    for (int32_t k = 0; k < c->x->chunk_count; k++) TRY(chunk_groups(c, k));
    for (int kind = 0; kind < BOUNDARY_COUNT; kind++) {
        TRY(arena_new(in->a, items, &c->links.received[kind]));
        memset(c->links.received[kind], -1, (size_t)items * sizeof(int32_t));
    }
    TRY(arena_new(in->a, slots->boundary.count + 1, &c->links.buffers));
    for (int32_t b = 0; b < slots->boundary.count; b++) {
        c->links.buffers[b] =
            (boundary_buffer){.ref = slots->buffer_ref[b], .first = -1, .compute = -1, .sent = -1};
    }
    return messages_find(c);
}

// ---- buffers ------------------------------------------------------------------------------------

// The buffer of a tensor; NULL: it crosses to no other rank.
static boundary_buffer *buffer_of(const collector *c, int32_t chunk, int32_t microbatch,
                                  boundary_kind kind)
{
    const int32_t buffer = bind_buffer(c->in, &c->b->slots, chunk, microbatch, kind);
    ASSERT(buffer >= 0 || !c->b->slots.crosses[chunk][kind]);
    return buffer >= 0 ? &c->links.buffers[buffer] : NULL;
}

static void buffer_take(boundary_buffer *b)
{
    ASSERT(!b->is_held); // in the simulated lists its last user is done by now
    b->is_held = true;
}

// Records the actions after which the buffer is free.
static void buffer_leave(boundary_buffer *b, int32_t compute, int32_t sent)
{
    if (b == NULL) return;
    b->is_held = false;
    b->compute = compute;
    b->sent = sent;
}

// ---- transfers ----------------------------------------------------------------------------------

// The name of a transfer, equal on both ends.
static comm_note note_of(const collector *c, int32_t chunk, int32_t microbatch, boundary_kind kind)
{
    const int32_t stage = c->x->chunks[chunk].stage;
    const bool ahead = kind == BOUNDARY_IN || kind == BOUNDARY_OUT;
    const int32_t below = kind == BOUNDARY_IN || kind == BOUNDARY_D_IN ? stage - 1 : stage;
    return (comm_note){.text = ahead ? "activations" : "gradients",
                       .from = ahead ? below : below + 1,
                       .to = ahead ? below + 1 : below,
                       .microbatch = microbatch};
}

static status message_push(collector *c, int32_t chunk, int32_t microbatch, boundary_kind kind,
                           int32_t after, int32_t *action)
{
    const lower_input *in = c->in;
    const int32_t ref = buffer_of(c, chunk, microbatch, kind)->ref;
    const int32_t group = c->links.group[chunk][kind];
    const bool sends = kind == BOUNDARY_OUT || kind == BOUNDARY_D_IN;
    const plan_tensor *t = plan_tensor_at(in->p, ref);
    const comm_note note = note_of(c, chunk, microbatch, kind);
    plan_comm comm = {.op = sends ? COLLECTIVE_SEND : COLLECTIVE_RECEIVE,
                      .group = group,
                      .peer = 1 - plan_group_place(&in->r->mesh, &in->p->run->groups[group]),
                      .type = t->type};
    plan_comm_item item = {.in = sends ? ref : -1, .out = sends ? -1 : ref, .count = 1};
    for (int d = 0; d < t->ndim; d++) item.count *= t->dims[d];
    TRY(collect_item(c, &comm, &item));
    TRY(collect_comm(c, &comm, &note, after, action));
    in->p->actions[*action].microbatch = microbatch; // not c->microbatch: it may be added early
    return ST_OK;
}

// Receives all transfers of the link up to the one that is needed now.
static status receive(collector *c, const layer_visit *visit, boundary_kind kind)
{
    const int32_t group = c->links.group[visit->chunk][kind];
    const int64_t n = c->in->pipe.shape.microbatches;
    int32_t *received = c->links.received[kind];
    const int64_t wanted = visit->chunk * n + visit->microbatch;
    if (group < 0) return ST_OK;
    link_state *link = link_of(&c->links, group, kind);
    while (received[wanted] < 0) {
        if (link->taken == link->count) {
            return fail(ST_INTERNAL, "stage %d never receives micro-batch %d",
                        (int)c->x->chunks[visit->chunk].stage, (int)visit->microbatch);
        }
        const link_transfer *m = &link->transfers[link->taken++];
        boundary_buffer *b = buffer_of(c, m->chunk, m->microbatch, kind);
        int32_t action = -1;
        buffer_take(b);
        TRY(message_push(c, m->chunk, m->microbatch, kind, b->compute, &action));
        if (b->sent >= 0) TRY(collect_wait(c, action, b->sent));
        if (b->first < 0) b->first = action;
        received[m->chunk * n + m->microbatch] = action;
    }
    return collect_wait_next(c, received[wanted]);
}

// Waits, before a tensor is made, until its buffer is free.
static status send_begin(collector *c, const layer_visit *visit, boundary_kind kind)
{
    boundary_buffer *b = buffer_of(c, visit->chunk, visit->microbatch, kind);
    if (b == NULL) return ST_OK;
    buffer_take(b);
    return b->sent >= 0 ? collect_wait_next(c, b->sent) : ST_OK;
}

// The first action on the compute stream from `at` on; transfers and gathers may come before it.
static int32_t compute_from(const plan *p, int32_t at)
{
    while (at < p->action_count && p->actions[at].stream != STREAM_COMPUTE) at++;
    return at;
}

// Adds the send of a tensor; `first`: the first action that makes it.
static status send(collector *c, const layer_visit *visit, boundary_kind kind, int32_t first)
{
    boundary_buffer *b = buffer_of(c, visit->chunk, visit->microbatch, kind);
    int32_t action = -1;
    if (b == NULL) return ST_OK;
    first = compute_from(c->in->p, first);
    TRY(message_push(c, visit->chunk, visit->microbatch, kind, c->last_compute, &action));
    if (b->first < 0) b->first = first;
    buffer_leave(b, -1, action);
    return ST_OK;
}

// ---- a chunk's action ---------------------------------------------------------------------------

status collect_chunk_begin(collector *c, const layer_visit *visit)
{
    if (visit->forward) TRY(receive(c, visit, BOUNDARY_IN));
    if (visit->forward) TRY(send_begin(c, visit, BOUNDARY_OUT));
    if (visit->input) TRY(receive(c, visit, BOUNDARY_D_OUT));
    return visit->input ? send_begin(c, visit, BOUNDARY_D_IN) : ST_OK;
}

status collect_chunk_end(collector *c, const layer_visit *visit, int32_t first)
{
    if (visit->forward) TRY(send(c, visit, BOUNDARY_OUT, first));
    if (visit->input) TRY(send(c, visit, BOUNDARY_D_IN, first));
    if (!visit->weight && (!visit->forward || c->in->r->optimizer != NULL)) return ST_OK;
    buffer_leave(buffer_of(c, visit->chunk, visit->microbatch, BOUNDARY_IN), c->last_compute, -1);
    if (visit->forward) return ST_OK;
    buffer_leave(buffer_of(c, visit->chunk, visit->microbatch, BOUNDARY_D_OUT), c->last_compute,
                 -1);
    return ST_OK;
}

// Makes the first use of each buffer in a step wait for the last use in the step before.
status collect_steps_join(collector *c)
{
    for (int32_t b = 0; b < c->b->slots.boundary.count; b++) {
        const boundary_buffer *x = &c->links.buffers[b];
        ASSERT(x->first >= 0 && !x->is_held);
        if (x->compute >= 0) TRY(collect_wait(c, x->first, -1 - x->compute));
        if (x->sent >= 0) TRY(collect_wait(c, x->first, -1 - x->sent));
    }
    return ST_OK;
}
