// One operation of a group: checks, the contract, the recorder around it, and what a failure leaves.
#include "comm/comm_internal.h"

#include "base/hash.h"
#include "comm/recorder_write.h"
#include "comm/transport/transport_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char no_name[8];

// ---- making one ---------------------------------------------------------------------------------
static status group_join(comm_group *g, const int32_t *members, int count, int me, uint32_t number)
{
    comm *c = g->owner;
    const comm_members m = {
        .ranks = members, .count = count, .me = me, .group = number, .name = g->name};
    comm_link *link = count == 1 ? c->self : c->link;
    g->transport = count == 1 ? &comm_transport_self : c->transport;
    TRY(comm_direct_create(count, &g->direct));
    g->sent = calloc((size_t)count * 2, sizeof(*g->sent));
    if (g->sent == NULL) return fail(ST_NO_MEMORY, "no memory for a group of %d ranks", count);
    g->received = g->sent + count;
    TRY(g->transport->join(link, &m, &g->port));
    // A transport between hosts hands groups of one host to another.
    g->transport = g->port->transport;
    if (g->transport->levels == NULL) return ST_OK;
    TRY(g->transport->levels(g->port, &g->levels.local, &g->levels.across));
    g->has_levels = g->levels.local != NULL;
    if (!g->has_levels) return ST_OK;
    return comm_direct_create(g->levels.local->members.count, &g->levels.direct);
}

status comm_group_open(comm *c, const int32_t *members, int count, uint32_t number,
                       const char *name, comm_group **out)
{
    comm_group *g = calloc(1, sizeof(*g));
    if (g == NULL) return fail(ST_NO_MEMORY, "no memory for group %s", name);
    g->owner = c;
    g->size = count;
    (void)snprintf(g->name, sizeof(g->name), "%s", name);
    while (g->rank < count && members[g->rank] != c->config.rank) g->rank++;
    ASSERT(g->rank < count);
    if (c->config.board != NULL) g->card = board_card_of(c->config.board, c->config.local_rank);
    const status st = group_join(g, members, count, g->rank, number);
    if (st != ST_OK) {
        comm_group_close(g);
        return st;
    }
    *out = g;
    return ST_OK;
}

void comm_group_close(comm_group *g)
{
    if (g == NULL) return;
    if (g->port != NULL) g->transport->leave(g->port);
    comm_direct_destroy(g->direct);
    comm_direct_destroy(g->levels.direct);
    free(g->sent);
    free(g->scratch);
    free(g);
}

// ---- one operation ------------------------------------------------------------------------------
static uint32_t label_hash(comm_label *l, const char *name)
{
    if (name == NULL || name[0] == '\0') return 0;
    if (l->hash != 0 && strcmp(name, l->text) == 0) return l->hash;
    const uint32_t hash = comm_name_hash(name);
    const size_t length = strlen(name), most = COMM_RECORD_NAME - 1;
    memset(l->text, 0, sizeof(l->text));
    memcpy(l->text, name, length < most ? length : most);
    l->hash = length <= most ? hash : 0;
    l->words = (int32_t)((length < most ? length : most) / 8 + 1);
    return hash;
}

static uint32_t tensor_hash(comm_group *g, const comm_args *a)
{
    uint32_t hash = label_hash(&g->tensor, a->tensor);
    if (a->item_count < 2 && !comm_args_end(a)) return hash;
    // Several counts with one sum, and where pieces end: they must agree one by one.
    const int leaves = comm_args_leaves(a);
    for (int i = 0; i < a->item_count; i++) {
        const comm_item *item = &a->items[(int64_t)i * leaves];
        hash = (uint32_t)hash64(&item->count, sizeof(int64_t), hash);
        if (item->total != 0) hash = (uint32_t)hash64(&item->total, sizeof(int64_t), hash);
    }
    return hash;
}

static bool is_message(op_collective op)
{
    return op == COLLECTIVE_SEND || op == COLLECTIVE_RECEIVE;
}

static comm_contract contract_of(comm_group *g, const comm_args *a, int algorithm)
{
    const comm_config *config = &g->owner->config;
    comm_contract k = {.magic = COMM_MAGIC,
                       .epoch = config->epoch,
                       .job = config->job,
                       .group = g->port->members.group,
                       .op = (uint8_t)a->op,
                       .reduction = (uint8_t)a->reduction,
                       .order = (uint8_t)a->order,
                       .type = (uint8_t)a->type,
                       .root = a->root,
                       .algorithm = (uint16_t)algorithm,
                       .items = (uint16_t)a->item_count,
                       .count = a->op == COLLECTIVE_ALL_TO_ALLV ? 0 : comm_args_count(a),
                       .tensor = tensor_hash(g, a),
                       .shards = a->leaves != NULL ? (uint32_t)a->shards : 0,
                       .site = label_hash(&g->site, a->site)};
    const comm_op_row *row = &comm_op_rows[a->op];
    if (!row->rooted) k.root = 0;
    if (!row->adds) k.reduction = k.order = 0;
    if (is_message(a->op)) { // the same on both sides: the receiver is the root
        k.op = COLLECTIVE_SEND;
        k.root = a->op == COLLECTIVE_SEND ? a->root : g->rank;
        k.algorithm = 0;
        k.sequence = a->op == COLLECTIVE_SEND ? ++g->sent[a->root] : ++g->received[a->root];
    } else {
        k.sequence = ++g->port->sequence;
    }
    return k;
}

static status scratch_grow(comm_group *g, int64_t bytes)
{
    if (bytes <= g->scratch_bytes) return ST_OK;
    free(g->scratch);
    g->scratch_bytes = 0;
    g->scratch = aligned_alloc(64, (size_t)align_up(bytes, 64));
    if (g->scratch == NULL)
        return fail(ST_NO_MEMORY, "no %lld bytes for a collective", (long long)bytes);
    g->scratch_bytes = align_up(bytes, 64);
    return ST_OK;
}

static status run_alive(comm_group *g, const comm_args *args, int64_t posted_ns)
{
    TRY(comm_args_check(args, g->rank, g->size));
    int number = 0;
    TRY(comm_algorithm_choose(g, args, &number));
    const comm_algorithm *algorithm = comm_algorithm_table[number];
    __attribute__((uninitialized)) comm_call call; // every field is written
    call.args = args;
    call.transport = g->transport;
    call.port = g->port;
    call.rank = g->rank;
    call.size = g->size;
    call.level = g->owner->level;
    call.contract = contract_of(g, args, number);
    call.scratch = NULL;
    call.scratch_bytes = 0;
    call.stores = COMM_STORES_AUTO;
    call.direct = g->direct;
    call.levels = g->has_levels ? &g->levels : NULL;
    if (algorithm->scratch != NULL) {
        call.scratch_bytes = algorithm->scratch(args, g->size);
        TRY(scratch_grow(g, call.scratch_bytes));
        call.scratch = g->scratch;
    }
    const comm_board *board = g->owner->config.board;
    board_record *record = NULL;
    if (g->card != NULL) {
        const bool named = args->tensor != NULL && args->tensor[0] != '\0';
        const recorder_name tensor = {named ? g->tensor.text : no_name,
                                      named ? g->tensor.words : 1};
        const bool later = algorithm->direct && g->transport->stamps;
        record = recorder_begin(g->card, &call.contract, args, tensor, posted_ns,
                                later ? 0 : board_now_ns(board));
        if (later) g->port->begun = &record->begun_ns;
        g->port->ended_ns = 0;
    }
    g->transport->note(g->port, &call.contract, args->tensor, args->site);
    TRY(algorithm->run(&call));
    if (record != NULL) {
        recorder_end(record, g->port->ended_ns != 0 ? g->port->ended_ns : board_now_ns(board));
    }
    return ST_OK;
}

// All members learn of it: whoever waits for this rank here would wait in vain.
static status group_kill(comm_group *g)
{
    const status st = g->transport->kill(g->port);
    g->dead = true;
    error_take(&g->error);
    (void)error_put(&g->error);
    __atomic_store_n(&g->owner->failed, true, __ATOMIC_RELEASE);
    return st;
}

static status run_posted(comm_group *g, const comm_args *args, int64_t posted_ns)
{
    if (g->dead) return error_put(&g->error);
    const status st = run_alive(g, args, posted_ns);
    return st == ST_OK ? ST_OK : group_kill(g);
}

status comm_run(comm_group *g, const comm_args *args)
{
    return run_posted(g, args, 0);
}

void comm_busy_begin(comm_group *g)
{
    comm *c = g->owner;
    if (c->config.board == NULL) return;
    (void)pthread_mutex_lock(&c->lock);
    if (c->under_way++ == 0) c->busy_since = board_now_ns(c->config.board);
    (void)pthread_mutex_unlock(&c->lock);
}

void comm_busy_end(comm_group *g)
{
    comm *c = g->owner;
    if (c->config.board == NULL) return;
    (void)pthread_mutex_lock(&c->lock);
    ASSERT(c->under_way > 0);
    if (--c->under_way == 0) c->busy_ns += board_now_ns(c->config.board) - c->busy_since;
    (void)pthread_mutex_unlock(&c->lock);
}

int64_t comm_busy_ns(comm_group *g)
{
    comm *c = g->owner;
    (void)pthread_mutex_lock(&c->lock);
    int64_t ns = c->busy_ns;
    if (c->under_way > 0) ns += board_now_ns(c->config.board) - c->busy_since;
    (void)pthread_mutex_unlock(&c->lock);
    return ns;
}

static status posted_run(void *context)
{
    comm_posted *p = context;
    comm_group *g = p->group;
    const comm_board *board = g->owner->config.board;
    const int64_t began = board != NULL ? board_now_ns(board) : 0;
    comm_busy_begin(g);
    const status st = run_posted(g, &p->args, p->posted_ns);
    comm_busy_end(g);
    const int64_t took = board != NULL ? board_now_ns(board) - began : 0;
    (void)__atomic_fetch_add(&g->worked_ns, took, __ATOMIC_RELAXED);
    __atomic_store_n(&p->busy, 0, __ATOMIC_RELEASE);
    return st;
}

// One thread posts; the lane's thread gives the places back, in their order.
status comm_post(comm_group *g, const kern_device_api *api, kern_lane *lane, const comm_args *args,
                 bool *posted)
{
    comm_posted *p = &g->posted[g->posted_next];
    *posted = false;
    if (__atomic_load_n(&p->busy, __ATOMIC_ACQUIRE) != 0) return ST_OK;
    const comm_board *board = g->owner->config.board;
    *p = (comm_posted){
        .group = g, .args = *args, .posted_ns = board != NULL ? board_now_ns(board) : 0, .busy = 1};
    const status st = api->call(lane, posted_run, p, posted);
    if (*posted) {
        g->posted_next = (g->posted_next + 1) % COMM_MAX_POSTED;
    } else {
        p->busy = 0;
    }
    return st;
}

int64_t comm_group_worked_ns(const comm_group *g)
{
    return __atomic_load_n(&g->worked_ns, __ATOMIC_RELAXED);
}

status comm_barrier(comm_group *g, const char *site)
{
    const comm_args args = {.op = COLLECTIVE_BARRIER, .type = DTYPE_U8, .site = site, .step = -1};
    return comm_run(g, &args);
}

status comm_all_reduce(comm_group *g, void *buffer, int64_t count, dtype type,
                       op_reduction reduction, const char *tensor, const char *site)
{
    const comm_item item = {.in = buffer, .out = buffer, .count = count};
    const comm_args args = {.op = COLLECTIVE_ALL_REDUCE,
                            .reduction = reduction,
                            .type = type,
                            .items = &item,
                            .item_count = 1,
                            .tensor = tensor,
                            .site = site,
                            .step = -1};
    return comm_run(g, &args);
}
