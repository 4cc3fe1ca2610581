// Starts a communicator of NCCL without a wait that nothing ends. ncclCommInitRank returns when all
// ranks have connected to each other, which is never if a firewall or the wrong interface lies
// between them. So a thread of its own makes the call, and the caller waits with the deadline of
// the other waits, for a stop signal, and for news of a lost rank. Then it leaves the thread to
// itself, which gives the communicator back if the call ever returns.
//
// NCCL can also start without blocking (ncclConfig_t.blocking = 0) and be aborted meanwhile. But
// such a communicator stays so: newer versions then start a thread for each group of operations,
// which the plan's thread would have to wait for. Operations of a step are to cost no thread.
//
// Meanwhile the flight recorder has an operation that is not done, by which a report of a hang
// tells where the rank is, and by which the other ranks of the host see that it has come.
#include "comm/nccl/start.h"

#include "comm/comm_internal.h"
#include "comm/recorder.h"
#include "comm/recorder_write.h"
#include "comm/transport/timeout_tracker.h"
#include "control/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char start_name[48] = "NCCL's start (ncclCommInitRank)";

typedef struct start {
    nccl_library library;
    nccl_id id;
    int rank, ranks;
    const device_api *api;
    device *d;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    nccl_handle handle;
    int result;
    bool has_device, is_done, is_left; // left: the thread frees
} start;

static void start_free(start *s)
{
    (void)pthread_cond_destroy(&s->changed);
    (void)pthread_mutex_destroy(&s->lock);
    free(s);
}

static void *start_run(void *context)
{
    start *s = context;
    nccl_handle handle = NULL;
    if (s->api->enter != NULL) (void)s->api->enter(s->d); // NCCL tells an error of it
    (void)pthread_mutex_lock(&s->lock);
    s->has_device = true;
    (void)pthread_cond_signal(&s->changed);
    (void)pthread_mutex_unlock(&s->lock);
    const int result = s->library.join(&handle, s->ranks, s->id, s->rank);
    (void)pthread_mutex_lock(&s->lock);
    s->handle = handle;
    s->result = result;
    s->is_done = true;
    const bool is_left = s->is_left;
    (void)pthread_cond_signal(&s->changed);
    (void)pthread_mutex_unlock(&s->lock);
    if (!is_left) return NULL;
    if (result == 0) (void)s->library.stop(handle);
    start_free(s);
    return NULL;
}

// Whether the rank, if it is of this host, is in the start of this group now.
static bool has_come(const comm_group *g, int32_t rank)
{
    const comm_config *config = &g->owner->config;
    comm_record *records = malloc(COMM_RECORDS * sizeof(*records));
    bool has = false;
    for (int l = 0; records != NULL && l < config->local_ranks && !has; l++) {
        comm_rank_state state;
        if (!comm_recorder_rank(config->control_block, l, &state) || state.rank != rank) continue;
        const int count = comm_recorder_read(config->control_block, l, records, COMM_RECORDS);
        for (int i = 0; i < count; i++) {
            const comm_record *r = &records[i];
            has = has || (r->done_ns == 0 && r->group == g->port->members.group &&
                          r->epoch == config->epoch && strcmp(r->tensor, start_name) == 0);
        }
    }
    free(records);
    return has;
}

// The members that may be missing: all but this rank and those of this host that have come, or all
// of them if they have.
static void awaited_tell(const comm_group *g, char *out, int bytes)
{
    enum { TOLD_MAX = 8 };
    const comm_config *config = &g->owner->config;
    const comm_members *m = &g->port->members;
    int told = 0, more = 0, used = 0;
    bool all = false;
    for (int pass = 0; pass < 2 && told == 0; pass++, all = true) {
        for (int i = 0; i < m->count; i++) {
            const int32_t rank = m->ranks[i];
            if (i == m->me || (!all && g->record != NULL && has_come(g, rank))) continue;
            if (told == TOLD_MAX || used > bytes - 100) {
                more++;
                continue;
            }
            const char *where =
                config->host_of != NULL ? config->host_of(config->watch_context, rank) : NULL;
            used += snprintf(out + used, (size_t)(bytes - used), "%srank %d%s%.64s",
                             told++ > 0 ? ", " : "", rank, where != NULL ? " on " : "",
                             where != NULL ? where : "");
        }
    }
    if (more > 0) (void)snprintf(out + used, (size_t)(bytes - used), " and %d more", more);
}

static status timed_out(const comm_group *g, int64_t waited)
{
    char awaited[900] = "";
    awaited_tell(g, awaited, (int)sizeof(awaited));
    return fail(
        ST_TIMEOUT,
        "NCCL's start of group %s waited %.1f s for %s; let the hosts connect to each other "
        "on all ports (firewall), name their network interface in NCCL_SOCKET_IFNAME, and see "
        "with NCCL_DEBUG=INFO which connection is missing",
        g->name, (double)waited / 1e9, awaited);
}

// An error if something other than NCCL ends the wait.
static status news_check(const comm_group *g)
{
    comm *c = g->owner;
    const comm_config *config = &c->config;
    TRY(comm_group_check(g));
    TRY(comm_abort_check(c));
    if (config->control_block != NULL) {
        TRY(block_failure_get(&config->control_block->head->failure));
    }
    if (g->record != NULL) TRY(block_failure_get(&g->record->failure));
    return config->cancelled != NULL ? config->cancelled(config->watch_context) : ST_OK;
}

// Returns with s->lock held.
static status start_wait(const comm_group *g, start *s)
{
    enum { LOOK_MS = 10 };
    const host *h = g->owner->config.h;
    comm_timeout_tracker timer;
    status st = ST_OK;
    comm_timeout_begin(&timer, h->api->monotonic_ns(h));
    (void)pthread_mutex_lock(&s->lock);
    while (!s->is_done && (st == ST_OK || !s->has_device)) {
        (void)control_condition_wait(&s->changed, &s->lock, LOOK_MS * INT64_C(1000000));
        if (s->is_done || st != ST_OK) continue;
        const int64_t waited = comm_timeout_waited(&timer, h->api->monotonic_ns(h));
        st = news_check(g);
        if (st != ST_OK && st != ST_STOPPED) note("while NCCL started in group %s", g->name);
        if (st == ST_OK && waited >= g->owner->config.deadline_ns) st = timed_out(g, waited);
    }
    return st;
}

static status start_do(const comm_group *g, start *s, nccl_handle *out, int *result)
{
    pthread_t thread;
    const int error = control_thread_start(&thread, start_run, s);
    if (error != 0) {
        start_free(s);
        return fail(ST_NO_MEMORY, "cannot start the thread that starts NCCL (error %d)%s", error,
                    host_limit_remedy(error));
    }
    const status st = start_wait(g, s);
    const bool is_done = s->is_done;
    s->is_left = !is_done;
    (void)pthread_mutex_unlock(&s->lock);
    if (!is_done) {
        (void)pthread_detach(thread);
        return st;
    }
    (void)pthread_join(thread, NULL);
    *out = s->handle;
    *result = s->result;
    start_free(s);
    return ST_OK;
}

static flight_record *record_begin(comm_group *g)
{
    static const comm_args args = {.op = COLLECTIVE_BARRIER, .type = DTYPE_U8, .step = -1};
    static const recorder_name name = {start_name, (int32_t)(sizeof(start_name) / 8)};
    const comm_config *config = &g->owner->config;
    const comm_contract k = {.sequence = ++g->port->sequence, // the same on all members
                             .group = g->port->members.group,
                             .epoch = config->epoch,
                             .op = COLLECTIVE_BARRIER};
    if (g->record == NULL) return NULL;
    return recorder_begin(g->record, &k, &args, name, 0, block_now_ns(config->control_block));
}

status comm_nccl_start(const nccl_library *library, comm_group *g, const device_api *api, device *d,
                       const nccl_id *id, nccl_handle *out, int *result)
{
    start *s = calloc(1, sizeof(*s));
    if (s == NULL) return fail(ST_NO_MEMORY, "no memory to start NCCL in group %s", g->name);
    s->library = *library;
    s->id = *id;
    s->rank = g->rank;
    s->ranks = g->size;
    s->api = api;
    s->d = d;
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_cond_init(&s->changed, NULL);
    flight_record *record = record_begin(g);
    TRY(start_do(g, s, out, result));
    if (record != NULL) recorder_end(record, block_now_ns(g->owner->config.control_block));
    return ST_OK;
}
