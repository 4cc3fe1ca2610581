// Groups, and one operation of a group: its checks, its contract, its record, and the end of the
// group after a failure. Operations on streams of blocking transports are in posted.c.
#include "comm/comm_internal.h"

#include "base/hash.h"
#include "comm/compressed.h"
#include "comm/recorder_write.h"
#include "comm/transport/transport_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char no_name[8];

// ---- opening ------------------------------------------------------------------------------------
static status group_join(comm_group *g, const int32_t *members, int count, int me, uint32_t number)
{
    comm *c = g->owner;
    const comm_members m = {
        .ranks = members, .count = count, .me = me, .group = number, .name = g->name};
    comm_link *link = count == 1 ? c->self : c->link;
    g->transport = count == 1 ? &comm_transport_self : c->transport;
    TRY(g->transport->join(link, &m, &g->port));
    // A transport between hosts may have given the group to that of one host.
    g->transport = g->port->transport;
    g->port->group = g;
    if (!comm_transport_runs(g->transport)) return ST_OK;
    TRY(comm_direct_create(count, &g->direct));
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
    if (c->config.control_block != NULL)
        g->record = rank_record_of(c->config.control_block, c->config.local_rank);
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
    comm_group_library_close(g);
    comm_group_peer_close(g);
    if (g->port != NULL) g->transport->leave(g->port);
    comm_direct_destroy(g->direct);
    comm_direct_destroy(g->levels.direct);
    free(g->counts);
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

static uint32_t tensor_hash(comm_memo *memo, const comm_args *a)
{
    uint32_t hash = label_hash(&memo->tensor, a->tensor);
    if (a->item_count < 2 && !comm_args_end(a)) return hash;
    // The single counts and totals must agree, too.
    const int terms = comm_args_terms(a);
    for (int i = 0; i < a->item_count; i++) {
        const comm_item *item = &a->items[(int64_t)i * terms];
        hash = (uint32_t)hash64(&item->count, sizeof(int64_t), hash);
        if (item->total != 0) hash = (uint32_t)hash64(&item->total, sizeof(int64_t), hash);
    }
    return hash;
}

static bool is_message(op_collective op)
{
    return op == COLLECTIVE_SEND || op == COLLECTIVE_RECEIVE;
}

// Gives the counter of an operation: collectives are counted per group, messages per peer and
// direction.
static status counter_of(comm_group *g, const comm_args *a, uint64_t **out)
{
    if (!is_message(a->op)) {
        *out = &g->port->sequence;
        return ST_OK;
    }
    if (g->sent == NULL) {
        g->sent = calloc((size_t)g->size * 2, sizeof(*g->sent));
        if (g->sent == NULL) {
            return fail(ST_NO_MEMORY, "no memory for a group of %d ranks", g->size);
        }
        g->received = g->sent + g->size;
    }
    *out = a->op == COLLECTIVE_SEND ? &g->sent[a->root] : &g->received[a->root];
    return ST_OK;
}

static comm_contract contract_of(comm_group *g, comm_memo *memo, const comm_args *a, int algorithm,
                                 uint64_t sequence)
{
    const comm_config *config = &g->owner->config;
    comm_contract k = {.magic = COMM_MAGIC,
                       .epoch = config->epoch,
                       .job = config->job,
                       .sequence = sequence,
                       .group = g->port->members.group,
                       .op = (uint8_t)a->op,
                       .reduction = (uint8_t)a->reduction,
                       .order = (uint8_t)a->order,
                       .type = (uint8_t)a->type,
                       .root = a->root,
                       .algorithm = (uint16_t)algorithm,
                       .items = (uint16_t)a->item_count,
                       .count = a->op == COLLECTIVE_ALL_TO_ALLV ? 0 : comm_args_count(a),
                       .tensor = tensor_hash(memo, a),
                       .shards = a->terms != NULL ? (uint32_t)a->shards : 0,
                       .site = label_hash(&memo->site, a->site)};
    const comm_op_row *row = &comm_op_rows[a->op];
    if (!row->rooted) k.root = 0;
    if (!row->adds) k.reduction = k.order = 0;
    if (is_message(a->op)) { // the same on both sides: the receiver is the root
        k.op = COLLECTIVE_SEND;
        k.root = a->op == COLLECTIVE_SEND ? a->root : g->rank;
        k.algorithm = 0;
    }
    return k;
}

status comm_contract_make(comm_group *g, comm_memo *memo, const comm_args *args, uint64_t sequence,
                          comm_contract *out)
{
    int algorithm = 0;
    if (comm_transport_runs(g->transport) && args->compressed == NULL) {
        TRY(comm_algorithm_choose(g, memo, args, &algorithm));
    }
    *out = contract_of(g, memo, args, algorithm, sequence);
    return ST_OK;
}

// The contract of the next operation. Its numbers are taken when it begins, or after it is posted.
typedef struct next_operation {
    comm_contract contract;
    uint64_t *counter;
} next_operation;

static status next_make(comm_group *g, const comm_args *args, next_operation *out)
{
    TRY(comm_args_check(args, g->rank, g->size));
    TRY(counter_of(g, args, &out->counter));
    return comm_contract_make(g, &g->caller, args, *out->counter + 1, &out->contract);
}

// The exchanges of a compressed sum take a number each: all_to_all, then all_gather of the sum.
static void next_take(const next_operation *next, const comm_args *args)
{
    const bool two = args->compressed != NULL && args->compressed->cut.piece == 0;
    *next->counter += two ? 2 : 1;
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

status comm_algorithm_run(comm_group *g, comm_memo *memo, const comm_args *args,
                          const comm_contract *contract, int64_t posted_ns)
{
    int number = contract->algorithm;
    // Both sides of a message have the same contract, but each has its own algorithm.
    if (is_message(args->op)) TRY(comm_algorithm_choose(g, memo, args, &number));
    const comm_algorithm *algorithm = comm_algorithm_table[number];
    __attribute__((uninitialized)) comm_call call; // every field is written
    call.args = args;
    call.transport = g->transport;
    call.port = g->port;
    call.rank = g->rank;
    call.size = g->size;
    call.vectors = g->owner->vectors;
    call.contract = *contract;
    call.scratch = NULL;
    call.scratch_bytes = 0;
    call.stores = COMM_STORES_AUTO;
    call.direct = g->direct;
    call.levels = g->has_levels ? &g->levels : NULL;
    g->port->peer = args->on_device ? g->peer : NULL;
    if (algorithm->scratch != NULL) {
        call.scratch_bytes = algorithm->scratch(args, g->size);
        TRY(scratch_grow(g, call.scratch_bytes));
        call.scratch = g->scratch;
    }
    const comm_control_block *block = g->owner->config.control_block;
    flight_record *record = NULL;
    if (g->record != NULL) {
        const bool named = label_hash(&memo->tensor, args->tensor) != 0;
        const recorder_name tensor = {named ? memo->tensor.text : no_name,
                                      named ? memo->tensor.words : 1};
        const bool later = algorithm->direct && g->transport->stamps;
        record = recorder_begin(g->record, &call.contract, args, tensor, posted_ns,
                                later ? 0 : block_now_ns(block));
        if (later) g->port->begun = &record->begun_ns;
        g->port->ended_ns = 0;
    }
    g->transport->note(g->port, &call.contract, args->tensor, args->site);
    TRY(algorithm->run(&call));
    if (record != NULL) {
        recorder_end(record, g->port->ended_ns != 0 ? g->port->ended_ns : block_now_ns(block));
    }
    return ST_OK;
}

// Ends the group on all members, since their waits for this rank would not end. Two threads may
// call it at once; the first error stays.
static status group_kill(comm_group *g)
{
    comm *c = g->owner;
    const status st = g->transport->kill(g->port);
    (void)pthread_mutex_lock(&c->lock);
    if (!g->dead) error_take(&g->error);
    __atomic_store_n(&g->dead, true, __ATOMIC_RELEASE);
    (void)pthread_mutex_unlock(&c->lock);
    (void)error_put(&g->error);
    __atomic_store_n(&c->failed, true, __ATOMIC_RELEASE);
    return st;
}

status comm_group_check(const comm_group *g)
{
    if (__atomic_load_n(&g->dead, __ATOMIC_ACQUIRE)) return error_put(&g->error);
    return g->nccl != NULL ? comm_nccl_abort_check(g->nccl) : ST_OK;
}

static status counts_take(const comm_args *args, const int32_t *offsets, int64_t most, int size,
                          int64_t *counts)
{
    int64_t all = 0;
    for (int r = 0; r < size; r++) {
        const int64_t begin = offsets[(int64_t)r * args->stride];
        const int64_t end = offsets[(int64_t)(r + 1) * args->stride];
        counts[r] = (end - begin) * args->row_elements;
        all += counts[r];
        if (begin >= 0 && begin <= end && all <= most) continue;
        return fail(ST_DATA, "%s: rows %lld to %lld are those of rank %d, and there are %lld",
                    args->tensor != NULL ? args->tensor : "all_to_allv", (long long)begin,
                    (long long)end, r, (long long)(most / max_i64(args->row_elements, 1)));
    }
    return ST_OK;
}

static status counts_differ(const comm_group *g, const comm_args *args, int from, int to,
                            int64_t sent, int64_t expected)
{
    const int32_t *ranks = g->port->members.ranks;
    return fail(ST_DIVERGED,
                "all_to_allv of %s in step %lld: rank %d sends %lld elements to rank %d, which "
                "expects %lld at %s",
                args->tensor != NULL ? args->tensor : "?", (long long)args->step, ranks[from],
                (long long)sent, ranks[to], (long long)expected,
                args->site != NULL ? args->site : "?");
}

// The ranks tell each other how many elements they send and expect, and then NCCL sends them. So
// both ranks of a pair that differs know it before they wait for each other in NCCL.
static status rows_run(comm_group *g, comm_memo *memo, const comm_args *args, uint64_t sequence,
                       int64_t posted_ns)
{
    const int64_t *sends = g->counts, *receives = g->counts + g->size;
    int64_t *mine = g->counts + (int64_t)g->size * 2, *told = mine + (int64_t)g->size * 2;
    const comm_item item = {.in = mine, .out = told, .count = 2};
    const comm_args counts = {.op = COLLECTIVE_ALL_TO_ALL,
                              .type = DTYPE_I64,
                              .items = &item,
                              .item_count = 1,
                              .tensor = args->tensor,
                              .site = args->site,
                              .step = args->step};
    comm_contract contract;
    for (int64_t r = 0; r < g->size; r++) {
        mine[2 * r] = sends[r];
        mine[2 * r + 1] = receives[r];
    }
    TRY(comm_contract_make(g, memo, &counts, sequence, &contract));
    TRY(comm_algorithm_run(g, memo, &counts, &contract, posted_ns));
    for (int r = 0; r < g->size; r++) {
        const int64_t *of = told + (int64_t)r * 2;
        if (of[0] != receives[r]) return counts_differ(g, args, r, g->rank, of[0], receives[r]);
        if (of[1] != sends[r]) return counts_differ(g, args, g->rank, r, sends[r], of[1]);
    }
    return comm_nccl_rows_run(g->rows, args, sends, receives);
}

// Runs an operation whose counts are offsets in device memory.
static status offsets_run(comm_group *g, comm_memo *memo, const comm_args *args,
                          const comm_contract *contract, int64_t posted_ns)
{
    comm_args counted = *args;
    const comm_item *item = &args->items[0];
    if (g->counts == NULL) {
        g->counts = calloc((size_t)g->size * 6, sizeof(*g->counts));
        if (g->counts == NULL) {
            return fail(ST_NO_MEMORY, "no memory for the counts of %d ranks", g->size);
        }
    }
    TRY(counts_take(args, args->send_offsets, item->count, g->size, g->counts));
    TRY(counts_take(args, args->receive_offsets, args->receive_most, g->size, g->counts + g->size));
    if (args->on_device && comm_group_rows_posts(g, args))
        return rows_run(g, memo, args, contract->sequence, posted_ns);
    counted.send_counts = g->counts;
    counted.receive_counts = g->counts + g->size;
    return comm_algorithm_run(g, memo, &counted, contract, posted_ns);
}

status comm_operation_run(comm_group *g, comm_memo *memo, const comm_args *args,
                          const comm_contract *contract, int64_t posted_ns)
{
    TRY(comm_group_check(g));
    const status st =
        args->compressed != NULL ? comm_compressed_run(g, memo, args, contract->sequence, posted_ns)
        : args->send_offsets != NULL ? offsets_run(g, memo, args, contract, posted_ns)
                                     : comm_algorithm_run(g, memo, args, contract, posted_ns);
    return st == ST_OK ? ST_OK : group_kill(g);
}

status comm_run(comm_group *g, const comm_args *args)
{
    next_operation next;
    TRY(comm_group_check(g));
    if (!comm_transport_runs(g->transport)) {
        return fail(ST_UNSUPPORTED, "%s of group %s: transport %s only posts to a device's streams",
                    op_collective_name(args->op), g->name, g->transport->name);
    }
    if (next_make(g, args, &next) != ST_OK) return group_kill(g);
    next_take(&next, args);
    return comm_operation_run(g, &g->caller, args, &next.contract, 0);
}

status comm_post(comm_group *g, const device_api *api, device_stream *stream, const comm_args *args,
                 bool *posted)
{
    next_operation next;
    *posted = false;
    if (next_make(g, args, &next) != ST_OK) return group_kill(g);
    if (comm_group_library_posts(g, api, args)) {
        TRY(comm_group_check(g));
        if (comm_nccl_post(g->nccl, api, stream, args) != ST_OK) return group_kill(g);
        *posted = true;
        next_take(&next, args);
        return ST_OK;
    }
    TRY(g->transport->post(g->port, api, stream, args, &next.contract, posted));
    if (*posted) next_take(&next, args);
    return ST_OK;
}

// ---- NCCL ---------------------------------------------------------------------------------------
// By the watchdog, with the error in its thread's record: ends the group, and this rank's waits.
static void group_broken(comm_group *g, status st)
{
    comm *c = g->owner;
    (void)group_kill(g);
    c->transport->stop(c->link, st, g->error.text);
}

static status watch_begin(comm *c)
{
    comm_nccl_watch *watch = NULL;
    if (c->watch != NULL) return ST_OK;
    TRY(comm_nccl_watch_begin(group_broken, &watch));
    __atomic_store_n(&c->watch, watch, __ATOMIC_RELEASE);
    return ST_OK;
}

status comm_group_library_open(comm_group *g, const device_api *api, device *d)
{
    comm *c = g->owner;
    if (c->config.nccl == NULL || g->size == 1 || g->nccl != NULL) return ST_OK;
    TRY(watch_begin(c));
    if (comm_nccl_create(c->config.nccl, g, api, d, &g->nccl) != ST_OK) return group_kill(g);
    comm_nccl_watch_add(c->watch, g->nccl);
    return ST_OK;
}

status comm_group_rows_open(comm_group *g, const device_api *api, device *d)
{
    comm *c = g->owner;
    if (c->config.nccl == NULL || g->size == 1 || g->rows != NULL || api->stream_native == NULL)
        return ST_OK;
    TRY(watch_begin(c));
    if (comm_nccl_rows_create(c->config.nccl, g, api, d, &g->rows) != ST_OK) return group_kill(g);
    comm_nccl_watch_add(c->watch, comm_nccl_rows_library(g->rows));
    return ST_OK;
}

status comm_group_library_agree(comm_group *g, const device_api *api, const comm_args *const *plans,
                                int64_t count)
{
    if (g->nccl == NULL) return ST_OK;
    TRY(comm_group_check(g));
    const status st = comm_plans_compare(g, api, plans, count);
    return st == ST_OK ? ST_OK : group_kill(g);
}

void comm_group_library_close(comm_group *g)
{
    if (g->rows != NULL) comm_nccl_watch_remove(g->owner->watch, comm_nccl_rows_library(g->rows));
    comm_nccl_rows_destroy(g->rows);
    g->rows = NULL;
    if (g->nccl == NULL) return;
    comm_nccl_watch_remove(g->owner->watch, g->nccl);
    comm_nccl_destroy(g->nccl);
    g->nccl = NULL;
}

bool comm_group_rows_posts(const comm_group *g, const comm_args *args)
{
    return g->rows != NULL && comm_nccl_rows_can(args);
}

bool comm_group_library_posts(const comm_group *g, const device_api *api, const comm_args *args)
{
    return g->nccl != NULL && comm_nccl_posts(api, args);
}

// ---- GPUs that read each other's memory ---------------------------------------------------------
// Groups share the pieces: a piece is one region however many groups it serves.
static status piece_share(comm_group *g, device *d, void *memory, int64_t bytes)
{
    comm *c = g->owner;
    int at = -1;
    for (int i = COMM_MAX_SHARED - 1; i >= 0; i--) {
        if (c->shared[i].users == 0) at = at < 0 || c->shared[at].users == 0 ? i : at;
        if (c->shared[i].users > 0 && c->shared[i].memory == memory) at = i;
    }
    if (at < 0)
        return fail(ST_UNSUPPORTED, "more than %d pieces of a GPU's memory", COMM_MAX_SHARED);
    if (c->shared[at].users == 0) {
        TRY(g->transport->region_share(g->port->link, d, memory, bytes, &c->shared[at].region));
        c->shared[at].memory = memory;
        c->shared[at].link = g->port->link;
        c->shared[at].transport = g->transport;
    }
    c->shared[at].users++;
    return ST_OK;
}

static void piece_unshare(comm *c, const void *memory)
{
    for (int i = 0; i < COMM_MAX_SHARED; i++) {
        if (c->shared[i].users == 0 || c->shared[i].memory != memory) continue;
        if (--c->shared[i].users == 0) {
            c->shared[i].transport->region_destroy(c->shared[i].link, c->shared[i].region);
        }
        return;
    }
}

// All ranks get the answer of the rank that reaches the fewest. The first sum tells that all pieces
// are shown, the second that all ranks have looked.
static status reach_check(comm_group *g, device *d)
{
    int32_t ready = 1, refused = 0;
    TRY(comm_all_reduce(g, &ready, 1, DTYPE_I32, REDUCTION_MIN, "memory of GPUs", __func__));
    status st = ST_OK;
    for (int r = 0; r < g->size && st == ST_OK; r++) {
        if (r != g->rank) st = g->transport->peer_check(g->port, r, d);
    }
    error_record why;
    error_take(&why);
    refused = st != ST_OK;
    TRY(comm_all_reduce(g, &refused, 1, DTYPE_I32, REDUCTION_MAX, "refusals of GPUs", __func__));
    if (st != ST_OK) return error_put(&why);
    if (refused == 0) return ST_OK;
    return fail(ST_UNSUPPORTED,
                "comm.transport = peer: the GPU of another rank of group %s does "
                "not reach all others; set comm.transport = auto",
                g->name);
}

status comm_group_peer_open(comm_group *g, const device_api *api, device *d, void *memory,
                            int64_t bytes)
{
    const comm *c = g->owner;
    if (!c->config.peer || g->size == 1 || g->size > DEVICE_PEERS || api->peers == NULL ||
        g->transport->region_share == NULL || g->peer != NULL) {
        return ST_OK;
    }
    comm_peer *p = NULL;
    TRY(comm_peer_create(api, d, &p));
    status st = piece_share(g, d, memory, bytes);
    if (st == ST_OK) {
        g->peer_memory = memory;
        st = reach_check(g, d);
        if (st != ST_OK) piece_unshare(g->owner, memory);
    }
    if (st != ST_OK) {
        comm_peer_destroy(p);
        return st;
    }
    g->peer = p;
    return ST_OK;
}

void comm_group_peer_close(comm_group *g)
{
    if (g->peer == NULL) return;
    error_record kept;
    error_take(&kept);
    comm_peer_destroy(g->peer);
    g->peer = NULL;
    piece_unshare(g->owner, g->peer_memory);
    (void)error_put(&kept);
}

bool comm_group_peer_posts(const comm_group *g, const comm_args *args)
{
    return g->peer != NULL && comm_peer_can(args, g->size);
}

status comm_barrier(comm_group *g, const char *site)
{
    const comm_args args = {.op = COLLECTIVE_BARRIER, .type = DTYPE_U8, .site = site, .step = -1};
    return comm_run(g, &args);
}

// Runs a communication outside of steps on one buffer.
static status run_alone(comm_group *g, comm_args args, void *buffer, int64_t count)
{
    const comm_item item = {.in = buffer, .out = buffer, .count = count};
    args.items = &item;
    args.item_count = 1;
    args.step = -1;
    return comm_run(g, &args);
}

status comm_all_reduce(comm_group *g, void *buffer, int64_t count, dtype type,
                       op_reduction reduction, const char *tensor, const char *site)
{
    const comm_args args = {.op = COLLECTIVE_ALL_REDUCE,
                            .reduction = reduction,
                            .type = type,
                            .tensor = tensor,
                            .site = site};
    return run_alone(g, args, buffer, count);
}

status comm_pass(comm_group *g, op_collective op, int root, void *data, int64_t bytes,
                 const char *tensor, const char *site)
{
    ASSERT(op == COLLECTIVE_BROADCAST || op == COLLECTIVE_SEND || op == COLLECTIVE_RECEIVE);
    const comm_args args = {
        .op = op, .type = DTYPE_U8, .root = root, .tensor = tensor, .site = site};
    return run_alone(g, args, data, bytes);
}
