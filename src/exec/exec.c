// Posts the actions of a plan to the streams of a device.
//
// exec_advance walks the actions with a cursor (action, node). When a queue is full the cursor
// stays, and the next call goes on from there. Only the plan's waits order the streams: an action
// that others wait for records an event. Waits on the step before use the events of that step. When
// the plan changes between two steps (evaluation, batch ramps), the device is drained instead.
#include "exec/communicate.h"
#include "exec/exec_internal.h"
#include "plan/access.h"

#include <stdlib.h>
#include <string.h>

static status refuse_if_too_large(const exec_config *config, int64_t bytes)
{
    if (config->memory_limit_bytes <= 0 || bytes <= config->memory_limit_bytes) return ST_OK;
    char need[32], have[32];
    return fail(ST_DOES_NOT_FIT, "the run needs %s, memory.limit is %s",
                text_bytes_human(bytes, need), text_bytes_human(config->memory_limit_bytes, have));
}

// Makes an event for every action that another stream waits for.
static status plan_events_make(exec *e, plan_state *s)
{
    const plan *p = s->p;
    TRY(arena_new(e->a, p->action_count, &s->events));
    for (int64_t i = 0; i < p->wait_count; i++) {
        const int64_t on = p->waits[i] >= 0 ? p->waits[i] : -1 - (int64_t)p->waits[i];
        if (s->events[on] == NULL) {
            TRY(e->config.api->event_create(e->device, &s->events[on]));
        }
    }
    return ST_OK;
}

static status last_uses_make(exec *e, plan_state *s)
{
    if (!s->p->poison) return ST_OK;
    TRY(arena_new(e->a, s->p->binding_count, &s->last_uses));
    for (int64_t i = 0; i < s->p->binding_count; i++) {
        const plan_binding *b = &s->p->bindings[i];
        if (b->layer >= 0) TRY(exec_last_uses_make(e->a, b->program, &s->last_uses[i]));
    }
    return ST_OK;
}

// The losses of compressed sums are read back only if a codec runs.
static status plan_sums_make(exec *e, plan_state *s)
{
    const exec_config *config = &e->config;
    if (s->p->bucket_count == 0) return ST_OK;
    TRY(exec_sums_make(e->a, s->p, &config->codec, config->groups, e->base, s->comms));
    return ST_OK;
}

static comm_group *group_of(const exec *e, const plan_comm *c)
{
    return e->config.groups != NULL ? e->config.groups[c->group] : NULL;
}

// Whether NCCL posts the communication; false without its group, which posting refuses.
static bool library_posts(const exec *e, const plan_state *s, int64_t row)
{
    const comm_group *group = group_of(e, &s->p->comms[row]);
    return group != NULL && comm_group_library_posts(group, e->config.api, &s->comms[row]);
}

// Whether all of it stays on the device: by NCCL, or because GPUs read each other's memory. The
// host reads the offsets of rows in any case.
static bool stays_there(const exec *e, const plan_state *s, int64_t row)
{
    const comm_args *args = &s->comms[row];
    return (args->on_device && args->send_offsets == NULL) || library_posts(e, s, row);
}

static status bounces_of_plan(exec *e, plan_state *s)
{
    TRY(arena_new(e->a, s->p->comm_count + 1, &s->bounces));
    for (int64_t i = 0; i < s->p->comm_count; i++) {
        const plan_comm *c = &s->p->comms[i];
        const comm_group *group = group_of(e, c);
        if (group == NULL || stays_there(e, s, i)) continue;
        TRY(exec_bounce_make(e->a, &s->comms[i], group, e->bounce_memory[c->group],
                             &s->bounces[i]));
    }
    return ST_OK;
}

// Makes a buffer per group, as large as its largest operation, for a device whose memory no
// transport reaches.
static status bounces_make(exec *e)
{
    const device_api *api = e->config.api;
    const int64_t groups = e->config.run->group_count;
    int64_t *bytes = NULL;
    if (!api->hides_memory || groups == 0) return ST_OK;
    TRY(arena_new(e->a, groups, &bytes));
    TRY(arena_new(e->a, groups, &e->bounce_memory));
    for (int64_t k = 0; k < e->config.plan_count; k++) {
        const plan_state *s = &e->plans[k];
        for (int64_t i = 0; i < s->p->comm_count; i++) {
            const comm_group *group = group_of(e, &s->p->comms[i]);
            const int32_t g = s->p->comms[i].group;
            if (group == NULL || stays_there(e, s, i)) continue;
            bytes[g] = max_i64(bytes[g], exec_bounce_bytes(&s->comms[i], group));
        }
    }
    for (int64_t g = 0; g < groups; g++) {
        if (bytes[g] > 0) TRY(api->host_alloc(e->device, bytes[g], &e->bounce_memory[g]));
    }
    for (int64_t k = 0; k < e->config.plan_count; k++) TRY(bounces_of_plan(e, &e->plans[k]));
    return ST_OK;
}

// Host memory of the steps in flight: as much as any plan's batch and read-back take.
static status slots_make(exec *e)
{
    const plan_table *run = e->config.run;
    int64_t reals = 0, batch = 0, readback = 0;
    for (int64_t i = 0; i < e->config.plan_count; i++) {
        const plan *p = e->config.plans[i];
        readback = max_i64(readback, plan_readback_bytes(p));
        if (e->config.codec.codec != NULL) reals = max_i64(reals, p->bucket_count * p->codec_reals);
    }
    for (int64_t i = 0; i < run->count; i++) {
        if (strncmp(run->tensors[i].name, "batch.", 6) != 0) continue;
        batch += align_up(run->tensors[i].bytes, ALIGN_TENSOR);
    }
    const int64_t results = align_up((int64_t)sizeof(step_block), ALIGN_TENSOR);
    const int64_t losses = results + align_up(readback, ALIGN_TENSOR);
    const int64_t tensors = losses + align_up(reals * (int64_t)sizeof(double), ALIGN_TENSOR);
    for (int i = 0; i < SLOTS; i++) {
        step_slot *slot = &e->slots[i];
        TRY(e->config.api->host_alloc(e->device, tensors + batch, &slot->memory));
        char *base = slot->memory;
        slot->given = (step_block *)(void *)base;
        slot->results = (step_device *)(void *)(base + results);
        slot->losses = reals > 0 ? (double *)(void *)(base + losses) : NULL;
        slot->batch = base + tensors;
    }
    return ST_OK;
}

// Allocates the arena. If the device has too little free memory, the error says how much it has.
static status memory_take(exec *e)
{
    const device_api *api = e->config.api;
    char have[32], all[32];
    const status st = api->alloc(e->device, max_i64(e->arena_bytes, 1), (void **)&e->base);
    if (st == ST_OK) return ST_OK;
    const device_memory_info info = api->memory_info(e->device);
    if (info.all_bytes > 0) {
        note("while the arena was allocated: %s of %s are free on device %s",
             text_bytes_human(info.free_bytes, have), text_bytes_human(info.all_bytes, all),
             api->name);
    }
    return st;
}

static status streams_create(exec *e)
{
    const device_api *api = e->config.api;
    const plan_table *run = e->config.run;
    TRY(arena_new(e->a, STREAM_GROUPS + run->group_count, &e->streams));
    TRY(api->stream_create(e->device, "compute", STREAM_COMPUTE, &e->streams[STREAM_COMPUTE]));
    TRY(api->stream_create(e->device, "copy", STREAM_COPY, &e->streams[STREAM_COPY]));
    for (int32_t i = 0; i < run->group_count; i++) {
        char *name = NULL;
        if (run->groups[i].use == GROUP_INLINE) continue;
        TRY(arena_new(e->a, PLAN_GROUP_NAME_BYTES, &name));
        plan_group_name(&run->groups[i], name);
        TRY(api->stream_create(e->device, name, STREAM_GROUPS + i, &e->streams[STREAM_GROUPS + i]));
    }
    return ST_OK;
}

// How the operands of each communication travel.
static void ways_find(exec *e)
{
    for (int64_t k = 0; k < e->config.plan_count; k++) {
        plan_state *s = &e->plans[k];
        for (int64_t i = 0; i < s->p->comm_count; i++) {
            comm_group *group = group_of(e, &s->p->comms[i]);
            s->needs_host = s->needs_host || !library_posts(e, s, i);
            s->comms[i].on_device = !library_posts(e, s, i) && group != NULL &&
                                    (comm_group_peer_posts(group, &s->comms[i]) ||
                                     comm_group_rows_posts(group, &s->comms[i]));
        }
    }
}

// The groups that exchange rows by counts in some plan; all members of a group have the same ones.
static void rows_find(const exec *e, bool *has_rows)
{
    for (int64_t k = 0; k < e->config.plan_count; k++) {
        const plan *p = e->config.plans[k];
        for (int64_t i = 0; i < p->comm_count; i++) {
            if (p->comms[i].op == COLLECTIVE_ALL_TO_ALLV) has_rows[p->comms[i].group] = true;
        }
    }
}

static status create_parts(exec *e)
{
    const device_api *api = e->config.api;
    TRY(api->create(&e->config.device, &e->device));
    TRY(memory_take(e));
    TRY(slots_make(e));
    TRY(streams_create(e));
    for (int i = 0; i < SLOTS; i++) TRY(api->event_create(e->device, &e->slots[i].done));
    if (e->config.graphs) {
        const int64_t count = STREAM_GROUPS + e->config.run->group_count;
        TRY(exec_replay_make(e->a, api, e->device, e->streams, count, &e->replay));
    }
    TRY(arena_new(e->a, e->config.plan_count, &e->plans));
    for (int64_t i = 0; i < e->config.plan_count; i++) {
        e->plans[i].p = e->config.plans[i];
        TRY(exec_counts_check(e->plans[i].p));
        TRY(plan_events_make(e, &e->plans[i]));
        TRY(last_uses_make(e, &e->plans[i]));
        TRY(exec_comms_make(e->a, e->plans[i].p, e->base, &e->plans[i].comms));
        TRY(plan_sums_make(e, &e->plans[i]));
    }
    const exec_memory arena_memory = {api, e->device, e->base, max_i64(e->arena_bytes, 1)};
    bool *has_rows = NULL;
    TRY(arena_new(e->a, e->config.run->group_count + 1, &has_rows));
    rows_find(e, has_rows);
    TRY(exec_groups_library_open(e->a, e->config.groups, e->config.run, &arena_memory, has_rows));
    TRY(exec_groups_peer_open(e->a, e->config.groups, e->config.run, &arena_memory));
    TRY(exec_library_agree(e));
    ways_find(e);
    TRY(bounces_make(e));
    const int64_t scratch = plan_table_find(e->config.run, "scratch");
    if (scratch < 0 || api->scratch_set == NULL) return ST_OK;
    const plan_tensor *t = &e->config.run->tensors[scratch];
    e->touched_bytes = max_i64(e->touched_bytes, t->offset + t->bytes);
    return api->scratch_set(e->device, e->base + t->offset);
}

status exec_create(const exec_config *config, exec **out)
{
    const int64_t bytes = plan_arena_bytes(config->run, config->plans, config->plan_count);
    TRY(refuse_if_too_large(config, bytes));
    arena *a = NULL;
    TRY(arena_create("executor", 0, &a));
    exec *e = NULL;
    status st = arena_new(a, 1, &e);
    if (st != ST_OK) {
        arena_destroy(a);
        return st;
    }
    *e = (exec){.a = a, .config = *config, .arena_bytes = bytes};
    st = create_parts(e);
    if (st != ST_OK) {
        exec_destroy(e);
        return st;
    }
    *out = e;
    return ST_OK;
}

void exec_destroy(exec *e)
{
    if (e == NULL) return;
    if (e->device != NULL) {
        (void)e->config.api->sync(e->device);
        exec_groups_library_close(e->config.groups, e->config.run);
        for (int64_t i = 0; e->plans != NULL && i < e->config.plan_count; i++) {
            exec_replay_free(&e->replay, &e->plans[i].replay);
        }
        if (e->base != NULL) e->config.api->release(e->device, e->base);
        for (int i = 0; i < SLOTS; i++) e->config.api->host_free(e->device, e->slots[i].memory);
        for (int32_t g = 0; e->bounce_memory != NULL && g < e->config.run->group_count; g++) {
            e->config.api->host_free(e->device, e->bounce_memory[g]);
        }
        exec_host_memory_free(e);
        e->config.api->destroy(e->device);
    }
    arena_destroy(e->a);
}

// ---- one step -----------------------------------------------------------------------------------

static status batch_take(exec *e, step_slot *slot, const exec_input *input)
{
    int64_t at = 0;
    slot->part_count = 0;
    for (int i = 0; i < input->batch_count; i++) {
        const exec_batch *b = &input->batch[i];
        char name[PLAN_NAME_BYTES] = "batch.";
        strncat(name, b->name, sizeof(name) - strlen(name) - 1);
        const int64_t row = plan_table_find(e->config.run, name);
        if (row < 0) continue; // no program of this run reads it
        if (b->bytes > e->config.run->tensors[row].bytes) {
            return fail(ST_INTERNAL, "batch %s has %lld bytes, its tensor %lld", b->name,
                        (long long)b->bytes, (long long)e->config.run->tensors[row].bytes);
        }
        memcpy(slot->batch + at, b->data, (size_t)b->bytes);
        slot->parts[slot->part_count].run_row = row;
        slot->parts[slot->part_count].at = at;
        slot->parts[slot->part_count].bytes = b->bytes;
        slot->part_count++;
        at += align_up(b->bytes, ALIGN_TENSOR);
    }
    return ST_OK;
}

// The actions of a plan touch the same bytes in every step, so they are counted in its first.
static void bytes_cover(exec *e, plan_state *s)
{
    if (s->is_covered) return;
    for (int64_t i = 0; i < s->p->action_count; i++) {
        e->touched_bytes = max_i64(e->touched_bytes, plan_access_end(s->p, &s->p->actions[i]));
    }
    s->is_covered = true;
}

static exec_replay_mode mode_choose(exec *e, plan_state *state, int slot, int64_t step)
{
    const device_config *c = &e->config.device;
    const bool traced = c->trace != NULL && step >= c->trace_begin && step <= c->trace_end;
    e->next = (exec_replay_step){.slot = slot,
                                 .needs_host = state->needs_host,
                                 .is_watched = traced || state->probe_count > 0};
    for (int i = 0; i < e->slots[slot].part_count; i++) {
        e->next.batch[i] = e->slots[slot].parts[i].bytes;
    }
    return exec_replay_choose(&e->replay, &state->replay, &e->next);
}

static int64_t now_ns(const exec *e)
{
    return e->config.device.h->api->monotonic_ns(e->config.device.h);
}

static void cursor_reset(exec *e)
{
    e->action = e->node = e->probe = e->stage = 0;
    e->launched = false;
}

status exec_begin(exec *e, const plan *p, const exec_input *input)
{
    const int next = (e->current + 1) % SLOTS;
    step_slot *slot = &e->slots[next];
    ASSERT(e->running == NULL || e->slots[e->current].posted);
    if (slot->begun) TRY(e->config.api->event_sync(slot->done)); // its host buffers are free
    plan_state *state = exec_state_of(e, p);
    bytes_cover(e, state);
    TRY(batch_take(e, slot, input));
    const exec_replay_mode mode = mode_choose(e, state, next, input->host.step);
    ASSERT(mode == REPLAY_NONE || input->moved == 0); // a graph repeats arguments
    e->previous = e->running;
    // A graph contains no waits for work before it: the one before it on its stream is done.
    if (e->previous != state || (mode == REPLAY_NONE) != (e->mode == REPLAY_NONE)) {
        TRY(e->config.api->sync(e->device));
        e->previous = NULL;
    }
    if (mode != REPLAY_NONE) e->previous = NULL;
    e->mode = mode;
    memset(slot->given, 0, sizeof(*slot->given));
    slot->given->host = input->host;
    slot->given->settings = input->settings;
    slot->given->settings.loss_divisor = p->loss_divisor;
    slot->step = input->host.step;
    slot->moved = input->moved;
    slot->p = p;
    slot->begun = true;
    slot->posted = slot->taken = false;
    e->current = next;
    e->running = state;
    cursor_reset(e);
    if (e->first_action_ns == 0) e->first_action_ns = now_ns(e);
    return ST_OK;
}

// Posts the waits of the action under the cursor; e->node counts those that are posted.
static status post_waits(exec *e, const plan_action *action, bool *posted)
{
    const plan *p = e->running->p;
    for (; e->node < action->waits_count; e->node++) {
        const int32_t on = p->waits[action->waits_begin + e->node];
        device_event *event = NULL;
        if (on >= 0) {
            event = e->running->events[on];
        } else if (e->previous != NULL) {
            event = e->previous->events[-1 - on];
        }
        if (event == NULL) continue;
        TRY(e->config.api->event_wait(e->streams[action->stream], event, posted));
        if (!*posted) return ST_OK;
    }
    return ST_OK;
}

// Fills the bytes whose last use was the node just posted. If the queue is full they are skipped,
// because this is only a check.
static status post_poison(exec *e, const plan_action *action, int64_t at)
{
    if (e->running->last_uses == NULL) return ST_OK;
    const exec_last_uses *last_uses = &e->running->last_uses[action->binding];
    for (int k = 0; k < OP_MAX_IN + OP_MAX_OUT; k++) {
        void *from = NULL;
        int64_t bytes = 0;
        bool posted = true;
        if (!exec_poison_after(last_uses, e->running->p, action, at, k, e->base, &from, &bytes)) {
            continue;
        }
        TRY(e->config.api->fill(e->streams[action->stream], from, 0xff, bytes, &posted));
        if (posted) e->poisoned_bytes += bytes;
    }
    return ST_OK;
}

// The nodes that are launched with the one under the cursor: it, and the next one where the plan
// fused them and no probe reads the value between them.
static int64_t nodes_together(const exec *e, const plan_action *action)
{
    const plan_state *s = e->running;
    const bool *fused = s->p->bindings[action->binding].fused[action->list];
    const bool is_last = e->node + 1 >= action->ops_count;
    if (is_last || fused == NULL || !fused[action->ops_begin + e->node]) return 1;
    const exec_probe *next = e->probe < s->probe_count ? &s->probes[e->probe] : NULL;
    return next != NULL && next->action == e->action && next->node == e->node ? 1 : 2;
}

static status post_nodes(exec *e, const plan_action *action, bool *posted)
{
    const plan *p = e->running->p;
    const int64_t count = nodes_together(e, action), at = action->ops_begin + e->node;
    kern_call calls[2];
    for (int64_t k = 0; k < count; k++) {
        exec_call_make(p, action, at + k, e->base, e->slots[e->current].step, &calls[k]);
        calls[k].first_sequence += e->slots[e->current].moved;
        calls[k].seal = exec_seal_of(e->running, e->action, (int32_t)(e->node + k));
    }
    if (count == 2) calls[0].then = &calls[1];
    TRY(e->config.api->launch(e->streams[action->stream], &calls[0], posted));
    if (!*posted) return ST_OK;
    e->together = count;
    e->node += count - 1; // the last of them
    return ST_OK;
}

// Posts the probes of the node just posted.
static status post_probes(exec *e, const plan_action *action, bool *posted)
{
    const plan_state *s = e->running;
    const device_api *api = e->config.api;
    for (; e->probe < s->probe_count; e->probe++) {
        const exec_probe *t = &s->probes[e->probe];
        if (t->action != e->action || t->node != e->node) return ST_OK;
        const char *from = e->base + plan_tensor_offset(s->p, t->ref);
        device_stream *stream = e->streams[action->stream];
        if (t->bytes > 0) TRY(api->copy_out(stream, t->to, from, t->bytes, posted));
        if (*posted && t->call != NULL) TRY(api->call(stream, t->call, t->context, posted));
        if (!*posted) return ST_OK; // a copy is made once more
    }
    return ST_OK;
}

// Copies the host part of the step block and the batch tensors to the device, one per e->node.
static status post_copy(exec *e, const plan_action *action, bool *posted)
{
    const device_api *api = e->config.api;
    step_slot *slot = &e->slots[e->current];
    device_stream *stream = e->streams[action->stream];
    const plan *p = e->running->p;
    if (e->node == 0) {
        TRY(api->copy_in(stream, e->base + plan_tensor_offset(p, p->step_ref), slot->given,
                         (int64_t)offsetof(step_block, device), posted));
        if (!*posted) return ST_OK;
        e->node++;
    }
    for (; e->node <= slot->part_count; e->node++) {
        const int i = (int)e->node - 1;
        char *to = e->base + e->config.run->tensors[slot->parts[i].run_row].offset;
        TRY(api->copy_in(stream, to, slot->batch + slot->parts[i].at, slot->parts[i].bytes,
                         posted));
        if (!*posted) return ST_OK;
    }
    return ST_OK;
}

static status post_readback(exec *e, const plan_action *action, bool *posted)
{
    const device_api *api = e->config.api;
    step_slot *slot = &e->slots[e->current];
    const plan *p = e->running->p;
    const char *from = e->base + plan_tensor_offset(p, p->step_ref) + offsetof(step_block, device);
    if (e->node == 0) {
        TRY(api->copy_out(e->streams[action->stream], slot->results, from, plan_readback_bytes(p),
                          posted));
        if (!*posted) return ST_OK;
        e->node++;
    }
    if (e->node == 1 && p->bucket_count > 0 && slot->losses != NULL) {
        const int64_t reals = (int64_t)p->bucket_count * p->codec_reals;
        TRY(api->copy_out(e->streams[action->stream], slot->losses,
                          e->base + plan_tensor_offset(p, p->losses),
                          reals * (int64_t)sizeof(double), posted));
        if (!*posted) return ST_OK;
        e->node++;
    }
    if (e->mode == REPLAY_CAPTURE) return ST_OK; // recorded after the graph
    return api->event_record(slot->done, e->streams[action->stream], posted);
}

static status post_communication(exec *e, const plan_action *action, bool *posted)
{
    const plan *p = e->running->p;
    const plan_comm *c = &p->comms[action->comm];
    comm_group *group = group_of(e, c);
    if (group == NULL) {
        return fail(ST_INTERNAL, "the plan has %s in a group that was not created", c->name);
    }
    if (e->running->bounces != NULL && !stays_there(e, e->running, action->comm)) {
        TRY(exec_bounce_post(&e->running->bounces[action->comm], group, e->config.api,
                             e->streams[action->stream], e->slots[e->current].step, &e->node,
                             posted));
        if (*posted) e->node = 0; // probes count from here
        return ST_OK;
    }
    comm_args args = e->running->comms[action->comm];
    args.step = e->slots[e->current].step;
    return comm_post(group, e->config.api, e->streams[action->stream], &args, posted);
}

static status post_work(exec *e, const plan_action *action, bool *posted)
{
    switch (action->kind) {
    case ACTION_COPY:
        return post_copy(e, action, posted);
    case ACTION_READBACK:
        return post_readback(e, action, posted);
    case ACTION_COMPUTE:
    case ACTION_OPTIMIZER:
        for (; e->node < action->ops_count; e->node++) {
            if (!e->launched) TRY(post_nodes(e, action, posted));
            e->launched = e->launched || *posted;
            if (*posted) TRY(post_probes(e, action, posted));
            if (!*posted) return ST_OK;
            e->launched = false;
            for (int64_t k = e->together - 1; k >= 0; k--) {
                TRY(post_poison(e, action, action->ops_begin + e->node - k));
            }
        }
        return ST_OK;
    case ACTION_COMMUNICATE:
        if (!e->launched) TRY(post_communication(e, action, posted));
        e->launched = e->launched || *posted;
        if (*posted) TRY(post_probes(e, action, posted));
        if (*posted) e->launched = false;
        return ST_OK;
    case ACTION_KIND_COUNT:
    default:
        return fail(ST_INTERNAL, "an action of kind %d", (int)action->kind);
    }
}

// Walks the stages of each action: its waits, its work, the record of its event.
static status post_actions(exec *e, bool *posted)
{
    enum { STAGE_WAITS, STAGE_WORK, STAGE_RECORD, STAGE_COUNT };
    const plan *p = e->running->p;
    while (e->action < p->action_count) {
        const plan_action *action = &p->actions[e->action];
        if (e->stage == STAGE_WAITS) {
            TRY(post_waits(e, action, posted));
        } else if (e->stage == STAGE_WORK) {
            TRY(post_work(e, action, posted));
        } else if (e->running->events[e->action] != NULL) {
            TRY(e->config.api->event_record(e->running->events[e->action],
                                            e->streams[action->stream], posted));
        }
        if (!*posted) return ST_OK;
        e->node = 0;
        e->stage = (e->stage + 1) % STAGE_COUNT;
        if (e->stage == STAGE_WAITS) e->action++;
    }
    return ST_OK;
}

// Captures the step if its slot has no graph yet. A step that cannot be captured is posted.
static status post_graph(exec *e, bool *posted)
{
    const device_api *api = e->config.api;
    device_stream *stream = e->streams[STREAM_COMPUTE];
    exec_replay_plan *replay = &e->running->replay;
    if (e->mode == REPLAY_CAPTURE) {
        TRY(api->graph_begin(stream));
        status st = exec_replay_fork(&e->replay);
        if (st == ST_OK) st = post_actions(e, posted);
        ASSERT(*posted); // a capture has no queue that could be full
        cursor_reset(e);
        if (!exec_replay_end(&e->replay, replay, &e->next, st)) {
            TRY(api->sync(e->device));
            e->mode = REPLAY_NONE;
            return post_actions(e, posted);
        }
        e->mode = REPLAY_LAUNCH;
    }
    if (e->node == 0) {
        TRY(api->graph_launch(replay->slots[e->current].graph, stream, posted));
        if (!*posted) return ST_OK;
        e->node++;
    }
    return api->event_record(e->slots[e->current].done, stream, posted);
}

status exec_advance(exec *e, exec_state *state)
{
    if (e->running == NULL) {
        *state = EXEC_IDLE;
        return ST_OK;
    }
    bool posted = true;
    if (e->slots[e->current].posted) { // exec_finish asks again
        *state = EXEC_POSTED;
        return ST_OK;
    }
    const bool timed = e->replay.api != NULL;
    const int64_t begin_ns = timed ? now_ns(e) : 0;
    TRY(e->mode == REPLAY_NONE ? post_actions(e, &posted) : post_graph(e, &posted));
    if (timed) e->replay.counts.posting_ns += now_ns(e) - begin_ns;
    if (posted) e->slots[e->current].posted = true;
    *state = posted ? EXEC_POSTED : EXEC_WAITING;
    return ST_OK;
}

exec_graphs exec_graphs_of(const exec *e)
{
    return e->replay.counts;
}

exec_ways exec_ways_of(const exec *e, const plan *p)
{
    exec_ways ways = {0};
    const plan_state *s = e->plans;
    while (s->p != p) ASSERT(++s < e->plans + e->config.plan_count);
    for (int64_t i = 0; i < p->comm_count && e->config.api->hides_memory; i++) {
        const comm_group *group = group_of(e, &p->comms[i]);
        if (group == NULL || comm_group_size(group) == 1) continue;
        const bool by_library =
            library_posts(e, s, i) || comm_group_rows_posts(group, &s->comms[i]);
        const bool by_peers = s->comms[i].on_device;
        *(by_library ? &ways.library : by_peers ? &ways.peers : &ways.host) += 1;
    }
    return ways;
}

status exec_sleep(exec *e)
{
    const device_api *api = e->config.api;
    const host *h = e->config.device.h;
    bool done = false;
    // A real device wakes this thread when much of its work is done. Polling every 0.2 ms instead
    // would interrupt the GEMMs of both cores 3,000 times a second: 2 to 4% of a step of Llama 135M
    // (two cores of a Zen 4, 2026-11-22).
    if (api->space_wait != NULL) return api->space_wait(e->device);
    // Some devices make progress only during a query.
    TRY(api->event_query(e->slots[e->current].done, &done));
    h->api->sleep_ns(h, 200000);
    return ST_OK;
}

status exec_post(exec *e)
{
    exec_state state = EXEC_RUNNING;
    for (;;) {
        TRY(exec_advance(e, &state));
        if (state == EXEC_POSTED || state == EXEC_IDLE) return ST_OK;
        TRY(exec_sleep(e));
    }
}

static status groups_check(const exec *e)
{
    for (int64_t i = 0; e->config.groups != NULL && i < e->config.run->group_count; i++) {
        if (e->config.groups[i] != NULL) TRY(comm_group_check(e->config.groups[i]));
    }
    return ST_OK;
}

status exec_results(exec *e, step_device *out, int64_t *step, bool *any)
{
    *any = false;
    // The other slot holds the step before. After exec_finish the current one may be taken too.
    for (int k = 1; k <= SLOTS; k++) {
        step_slot *slot = &e->slots[(e->current + k) % SLOTS];
        if (!slot->begun || !slot->posted || slot->taken) continue;
        TRY(e->config.api->event_sync(slot->done));
        TRY(groups_check(e)); // a library that ends its waits leaves any bytes
        *out = *slot->results;
        *step = slot->step;
        e->results_ns = e->config.api->event_ns(slot->done);
        e->taken = (int)(slot - e->slots);
        *any = slot->taken = true;
        return ST_OK;
    }
    return ST_OK;
}

const double *exec_losses(const exec *e)
{
    const step_slot *slot = &e->slots[e->taken];
    return slot->p != NULL && slot->p->bucket_count > 0 ? slot->losses : NULL;
}

const int64_t *exec_loads(const exec *e)
{
    const step_slot *s = &e->slots[e->taken];
    const bool any = s->p != NULL && plan_load_words(s->p) > 0;
    return any ? (const int64_t *)(const void *)(s->results + 1) : NULL;
}

device_stream_times exec_stream_times(const exec *e, uint32_t axes)
{
    device_stream_times sum = {0};
    comm_group *any = NULL;
    for (int64_t i = 0; i < e->config.run->group_count; i++) {
        if (axes != 0 && e->config.run->groups[i].axes != axes) continue;
        const device_stream *stream = e->streams[STREAM_GROUPS + i];
        comm_group *g = e->config.groups != NULL ? e->config.groups[i] : NULL;
        const int64_t worked = g != NULL ? comm_group_worked_ns(g) : 0;
        any = g != NULL ? g : any;
        sum.worked_ns += worked;
        // A collective on the compute stream lets it wait meanwhile.
        sum.awaited_ns += stream == NULL ? worked : e->config.api->stream_times(stream).awaited_ns;
    }
    if (axes == 0 && any != NULL) sum.worked_ns = comm_busy_ns(any); // of the whole rank
    return sum;
}

int64_t exec_results_ns(const exec *e)
{
    return e->results_ns;
}

status exec_finish(exec *e)
{
    if (e->running != NULL) TRY(exec_post(e));
    TRY(e->config.api->sync(e->device));
    return groups_check(e); // the state that is read next is no good either
}

int64_t exec_arena_bytes(const exec *e)
{
    return e->arena_bytes;
}

int64_t exec_touched_bytes(const exec *e)
{
    return e->touched_bytes;
}

int64_t exec_poisoned_bytes(const exec *e)
{
    return e->poisoned_bytes;
}

int64_t exec_outside_bytes(const exec *e)
{
    return e->config.api->memory_info(e->device).outside_bytes;
}

device_facts exec_facts(const exec *e)
{
    return e->config.api->facts(e->device);
}

double exec_peak_flops(const exec *e, dtype type)
{
    return e->config.api->peak_flops(e->device, type);
}

int64_t exec_first_action_ns(const exec *e)
{
    return e->first_action_ns;
}
