// Turns the communications of a plan into operations of comm. Addresses do not change while a plan
// lives, so the items and tree nodes of each operation are made once.
#include "exec/communicate.h"

#include "exec/exec_internal.h"

static status items_make(arena *a, const plan *p, const plan_comm *c, char *base,
                         const comm_item **out)
{
    comm_item *items = NULL;
    TRY(arena_new(a, c->items_count, &items));
    for (int32_t i = 0; i < c->items_count; i++) {
        const plan_comm_item *item = &p->items[c->items_begin + i];
        items[i].count = item->count;
        items[i].total = c->op == COLLECTIVE_ALL_TO_ALLV ? 0 : item->total;
        if (item->in != -1) items[i].in = base + plan_tensor_offset(p, item->in) + item->in_offset;
        if (item->out != -1) {
            items[i].out = base + plan_tensor_offset(p, item->out) + item->out_offset;
        }
    }
    *out = items;
    return ST_OK;
}

static status terms_make(arena *a, const plan *p, const plan_comm *c, const comm_term **out)
{
    comm_term *terms = NULL;
    TRY(arena_new(a, c->leaves_count, &terms));
    for (int32_t i = 0; i < c->leaves_count; i++) {
        const plan_comm_leaf *leaf = &p->leaves[c->leaves_begin + i];
        terms[i] = (comm_term){.begin = leaf->begin, .end = leaf->end};
    }
    *out = terms;
    return ST_OK;
}

static const int32_t *offsets_at(const plan *p, const plan_comm *c, int32_t item, const char *base)
{
    const int64_t at = plan_tensor_offset(p, p->items[c->items_begin + item].in);
    return (const int32_t *)(const void *)(base + at);
}

status exec_comms_make(arena *a, const plan *p, char *base, comm_args **out)
{
    comm_args *all = NULL;
    TRY(arena_new(a, p->comm_count + 1, &all));
    for (int64_t i = 0; i < p->comm_count; i++) {
        const plan_comm *c = &p->comms[i];
        comm_args *args = &all[i];
        const int terms = c->leaves_count > 0 ? c->leaves_count : 1;
        char *site = NULL;
        *args = (comm_args){.op = c->op,
                            .reduction = c->reduction,
                            .order = c->leaves_count > 0 ? COMM_ORDER_SHARD : COMM_ORDER_ANY,
                            .type = c->type,
                            .root = c->peer,
                            .item_count = c->items_count / terms,
                            .term_count = c->leaves_count,
                            .shards = c->leaves_count > 0 ? c->shards : 0,
                            .tensor = c->name,
                            .record = (int32_t)i};
        if (c->op == COLLECTIVE_ALL_TO_ALLV) {
            args->item_count = 1;
            args->send_offsets = offsets_at(p, c, 1, base);
            args->receive_offsets = offsets_at(p, c, 2, base);
            args->stride = c->stride;
            args->row_elements = c->row_elements;
            args->receive_most = p->items[c->items_begin].total;
        }
        TRY(items_make(a, p, c, base, &args->items));
        if (c->leaves_count > 0) TRY(terms_make(a, p, c, &args->terms));
        TRY(arena_format(a, &site, "communication %lld of the plan", (long long)i));
        args->site = site;
    }
    *out = all;
    return ST_OK;
}

// Groups of expert parallelism may have the members of another group on the same stream.
static int number_of(const plan_group *g)
{
    enum { EXPERTS = 64 };
    return (int)g->use + (g->axes == MESH_AXIS(AXIS_EP) ? EXPERTS : 0);
}

// Returns the next row of groups in the order that all ranks share; -1: all are done.
static int64_t group_next(const plan_table *run, const bool *done)
{
    int64_t next = -1;
    for (int64_t i = 0; i < run->group_count; i++) {
        if (done[i]) continue;
        if (next < 0 || plan_group_compare(&run->groups[i], &run->groups[next]) < 0) next = i;
    }
    return next;
}

status exec_groups_make(arena *a, comm *all, const plan_mesh *mesh, const plan_table *run,
                        comm_group ***out)
{
    comm_group **groups = NULL;
    int32_t *members = NULL;
    bool *done = NULL;
    status st = ST_OK;
    TRY(arena_new(a, run->group_count + 1, &groups));
    TRY(arena_new(a, run->group_count + 1, &done));
    TRY(arena_new(a, plan_mesh_ranks(mesh), &members));
    for (int64_t next; st == ST_OK && (next = group_next(run, done)) >= 0; done[next] = true) {
        const plan_group *g = &run->groups[next];
        char name[PLAN_GROUP_NAME_BYTES];
        plan_group_name(g, name);
        plan_group_members(mesh, g, members);
        st = comm_group_create(all, members, (int)plan_group_size(mesh, g), number_of(g), name,
                               &groups[next]);
    }
    if (st != ST_OK) exec_groups_destroy(groups, run);
    TRY(st);
    *out = groups;
    return ST_OK;
}

status exec_groups_library_open(arena *a, comm_group *const *groups, const plan_table *run,
                                const exec_memory *memory, const bool *has_rows)
{
    bool *done = NULL;
    if (groups == NULL) return ST_OK;
    TRY(arena_new(a, run->group_count + 1, &done));
    for (int64_t next; (next = group_next(run, done)) >= 0; done[next] = true) {
        if (groups[next] == NULL) continue;
        TRY(comm_group_library_open(groups[next], memory->api, memory->d));
        if (has_rows[next]) TRY(comm_group_rows_open(groups[next], memory->api, memory->d));
    }
    return ST_OK;
}

status exec_groups_peer_open(arena *a, comm_group *const *groups, const plan_table *run,
                             const exec_memory *memory)
{
    bool *done = NULL;
    if (groups == NULL) return ST_OK;
    TRY(arena_new(a, run->group_count + 1, &done));
    for (int64_t next; (next = group_next(run, done)) >= 0; done[next] = true) {
        if (groups[next] == NULL) continue;
        TRY(comm_group_peer_open(groups[next], memory->api, memory->d, memory->at, memory->bytes));
    }
    return ST_OK;
}

// Lists what all plans post for a group, in the order of their actions.
static int64_t posts_list(const exec *e, int64_t group, const comm_args **out)
{
    int64_t count = 0;
    for (int64_t k = 0; k < e->config.plan_count; k++) {
        const plan_state *s = &e->plans[k];
        for (int64_t i = 0; i < s->p->action_count; i++) {
            const plan_action *action = &s->p->actions[i];
            if (action->kind != ACTION_COMMUNICATE) continue;
            if (s->p->comms[action->comm].group == group) out[count++] = &s->comms[action->comm];
        }
        out[count++] = NULL;
    }
    return count;
}

status exec_library_agree(exec *e)
{
    comm_group *const *groups = e->config.groups;
    const plan_table *run = e->config.run;
    const comm_args **posts = NULL;
    bool *done = NULL;
    int64_t most = e->config.plan_count;
    if (groups == NULL || e->config.api->stream_native == NULL) return ST_OK;
    for (int64_t k = 0; k < e->config.plan_count; k++) most += e->plans[k].p->action_count;
    TRY(arena_new(e->a, most, &posts));
    TRY(arena_new(e->a, run->group_count + 1, &done));
    for (int64_t next; (next = group_next(run, done)) >= 0; done[next] = true) {
        if (groups[next] == NULL) continue;
        const int64_t count = posts_list(e, next, posts);
        TRY(comm_group_library_agree(groups[next], e->config.api, posts, count));
    }
    return ST_OK;
}

void exec_groups_library_close(comm_group *const *groups, const plan_table *run)
{
    for (int64_t i = 0; groups != NULL && i < run->group_count; i++) {
        if (groups[i] == NULL) continue;
        comm_group_library_close(groups[i]);
        comm_group_peer_close(groups[i]);
    }
}

void exec_groups_destroy(comm_group **groups, const plan_table *run)
{
    for (int64_t i = 0; groups != NULL && i < run->group_count; i++) comm_group_destroy(groups[i]);
}

// ---- memory -------------------------------------------------------------------------------------

// Takes the memory that an earlier executor had, if there is enough of it.
static void kept_take(exec_shared *shared, int64_t bytes)
{
    comm_memory *m = shared->kept != NULL ? *shared->kept : NULL;
    if (m == NULL) return;
    *shared->kept = NULL;
    shared->is_kept = comm_memory_bytes(m) >= bytes && comm_memory_join(shared->ranks, m) == ST_OK;
    if (shared->is_kept) {
        shared->memory = m;
        return;
    }
    error_clear();
    comm_memory_destroy(m);
}

static status shared_take(void *context, int64_t bytes, void **out)
{
    exec_shared *shared = context;
    kept_take(shared, bytes);
    if (!shared->is_kept) TRY(comm_memory_create(shared->ranks, bytes, &shared->memory));
    *out = comm_memory_at(shared->memory);
    return ST_OK;
}

static void shared_give(void *context, void *memory)
{
    exec_shared *shared = context;
    ASSERT(memory == comm_memory_at(shared->memory));
    if (shared->kept != NULL && comm_memory_leave(shared->memory)) {
        *shared->kept = shared->memory;
    } else {
        comm_memory_destroy(shared->memory);
    }
    shared->memory = NULL;
}

void exec_memory_share(exec_shared *shared, exec_config *wanted)
{
    wanted->device.ordinal = comm_local_rank(shared->ranks);
    wanted->device.sharing = comm_local_ranks(shared->ranks);
    if (wanted->api->hides_memory) return;
    wanted->device.memory_take = shared_take;
    wanted->device.memory_give = shared_give;
    wanted->device.memory_context = shared;
    wanted->device.memory_is_used =
        shared->kept != NULL && *shared->kept != NULL && !shared->kept_is_fresh;
}

const void *exec_arena(const exec *e)
{
    return e->config.api->hides_memory ? NULL : e->base;
}
