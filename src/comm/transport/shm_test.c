// Regions that peers map; calls of other threads of a rank into its shared memory while one thread
// is busy with it; shares of an operation that ranks do for each other; and deadlines of ranks that
// were stopped.
#include "comm/transport/shm.h"

#include "comm/comm_internal.h"
#include "comm/recorder.h"
#include "fixtures/comm/test_ranks.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
// after the above, which it needs
#include <cmocka.h>

// ---- regions -----------------------------------------------------------------------------------
enum { HUGE_PAGE = 2 << 20 };

// Each rank reads the values of the other at both ends of its region, and writes its own there.
static status region_body(comm *c, void *context)
{
    const int64_t bytes = *(const int64_t *)context;
    const char own = (char)(1 + comm_rank(c)), others = (char)(3 - own);
    comm_memory *m = NULL;
    void *address = NULL;
    TRY(comm_memory_create(c, bytes, &m));
    char *at = comm_memory_at(m);
    const comm_place place = shm_locate(c->link, at, bytes);
    at[0] = at[bytes / 2] = at[bytes - 1] = own;
    TRY(comm_barrier(comm_world(c), "written"));
    TRY(shm_address(comm_world(c)->port, 1 - comm_rank(c), place, bytes, &address));
    char *peers = address;
    const bool is_read =
        peers[0] == others && peers[bytes / 2] == others && peers[bytes - 1] == others;
    // Where huge pages can be, on systems that give them.
    const bool is_aligned =
        bytes < HUGE_PAGE || ((uintptr_t)at % HUGE_PAGE == 0 && (uintptr_t)peers % HUGE_PAGE == 0);
    TRY(comm_barrier(comm_world(c), "read"));
    peers[bytes - 1] = own;
    TRY(comm_barrier(comm_world(c), "changed"));
    const bool is_changed = at[0] == own && at[bytes - 1] == others;
    comm_memory_destroy(m);
    if (is_read && is_aligned && is_changed) return comm_barrier(comm_world(c), "end");
    return fail_at(__FILE__, __LINE__, ST_INTERNAL, "%lld bytes: read %d, aligned %d, changed %d",
                   (long long)bytes, is_read, is_aligned, is_changed);
}

static void regions_of_all_sizes(void **state)
{
    (void)state;
    int64_t sizes[] = {2, HUGE_PAGE - 1, HUGE_PAGE, 2 * HUGE_PAGE + 4097, 5 * HUGE_PAGE};
    for (int k = 0; k < COUNT_OF(sizes); k++) {
        fixture_job job = {
            .ranks = 2, .processes = true, .body = region_body, .context = &sizes[k]};
        fixture_run(&job);
        for (int i = 0; i < job.ranks; i++) {
            if (job.results[i].st != ST_OK) fail_msg("rank %d: %s", i, job.results[i].text);
        }
    }
}

// ---- while one is busy -------------------------------------------------------------------------
static void *ask(void *context)
{
    comm_awaited awaited[4];
    (void)comm_waits_for(context, awaited, 4);
    return NULL;
}

// Mapping a peer's gigabytes takes seconds, and each heartbeat asks which ranks this rank waits
// for; a late heartbeat would cause a false verdict.
static status busy_body(comm *c, void *context)
{
    (void)context;
    pthread_t thread;
    (void)pthread_mutex_lock(&c->link->mapping);
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    int late = pthread_create(&thread, NULL, ask, c);
    if (late == 0) late = pthread_timedjoin_np(thread, NULL, &until);
    (void)pthread_mutex_unlock(&c->link->mapping);
    if (late != 0)
        return fail_at(__FILE__, __LINE__, ST_TIMEOUT, "the answer waits for the memory");
    return comm_barrier(comm_world(c), "end");
}

static void heartbeats_do_not_wait_for_memory(void **state)
{
    (void)state;
    fixture_job job = {.ranks = 2, .body = busy_body};
    fixture_run(&job);
    for (int i = 0; i < job.ranks; i++) {
        if (job.results[i].st != ST_OK) fail_msg("rank %d: %s", i, job.results[i].text);
    }
}

// ---- shares that others do ---------------------------------------------------------------------
typedef struct shares {
    atomic_bool taken;
    comm *_Atomic waiting; // of the rank that does
    bool is_seen;          // to wait for the right rank
} shares;

// Until it waits for `rank`; bounded by the deadline of its wait.
static void watch(shares *s, int rank)
{
    comm_awaited now[4];
    for (int i = 0; i < 20000 && !s->is_seen; i++) {
        comm *waiting = atomic_load(&s->waiting);
        const int count = waiting != NULL ? comm_waits_for(waiting, now, 4) : 0;
        for (int k = 0; k < count; k++) s->is_seen = s->is_seen || now[k].rank == rank;
        (void)usleep(1000);
    }
}

static status shares_of_first(comm_port *port, shares *s)
{
    const comm_transport *t = port->transport;
    const shm_wait w = {.port = shm_port_of(port), .departed = shm_port_of(port)->departed + 1};
    const int stolen[3] = {t->steal(port), t->steal(port), t->steal(port)};
    if (stolen[0] != 0 || stolen[1] != 1 || stolen[2] != -1)
        return fail_at(__FILE__, __LINE__, ST_INTERNAL, "rank 0 has the shares %d, %d and %d",
                       stolen[0], stolen[1], stolen[2]);
    if (shm_holder(&w, 1) != 0 || shm_holder(&w, 2) != 2)
        return fail_at(__FILE__, __LINE__, ST_INTERNAL,
                       "the shares of ranks 1 and 2 are held by %d and %d", shm_holder(&w, 1),
                       shm_holder(&w, 2));
    atomic_store(&s->taken, true);
    t->complete(port, 0);
    watch(s, 0);
    t->complete(port, 1);
    return t->wait_all(port);
}

// Rank 0 has the share of rank 1 while that is away, not that of rank 2, whose memory it cannot
// reach.
static status shares_body(comm *c, void *context)
{
    shares *s = context;
    comm_port *port = comm_world(c)->port;
    const comm_transport *t = port->transport;
    const int rank = comm_rank(c);
    comm_descriptor descriptor = {.contract = {.magic = COMM_MAGIC, .sequence = ++port->sequence}};
    descriptor.staged = rank == 2 ? COMM_ALONE : 0;
    TRY(t->arrive(port, &descriptor));
    if (rank == 0) return shares_of_first(port, s);
    for (int i = 0; i < 20000 && !atomic_load(&s->taken); i++) (void)usleep(1000);
    const int stolen = t->steal(port);
    if (stolen != (rank == 2 ? 2 : -1))
        return fail_at(__FILE__, __LINE__, ST_INTERNAL, "rank %d has the share %d", rank, stolen);
    if (rank == 1) atomic_store(&s->waiting, c);
    if (rank == 2) t->complete(port, 2);
    return t->wait_all(port);
}

static void shares_are_done_by_others(void **state)
{
    (void)state;
    shares s = {.is_seen = false};
    fixture_job job = {.ranks = 3, .cores = 1, .body = shares_body, .context = &s};
    fixture_run(&job);
    for (int i = 0; i < job.ranks; i++) {
        if (job.results[i].st != ST_OK) fail_msg("rank %d: %s", i, job.results[i].text);
    }
    assert_true(s.is_seen);
}

// The time of an end is taken before the wait for it, if that is short, or else after.
static status ends_body(comm *c, void *context)
{
    shares *s = context;
    comm_port *port = comm_world(c)->port;
    const comm_descriptor descriptor = {
        .contract = {.magic = COMM_MAGIC, .sequence = ++port->sequence}};
    TRY(port->transport->arrive(port, &descriptor));
    const int rank = comm_rank(c);
    if (rank == 0) atomic_store(&s->waiting, c);
    if (rank == 1) watch(s, 1);
    const int64_t before = comm_recorder_now_ns(c->config.control_block);
    TRY(port->transport->depart(port));
    const bool is_right = rank == 0 ? port->ended_ns == 0 : port->ended_ns >= before;
    return is_right ? ST_OK
                    : fail_at(__FILE__, __LINE__, ST_INTERNAL, "an end at %lld, %lld before it",
                              (long long)port->ended_ns, (long long)before);
}

static void ends_are_those_of_all(void **state)
{
    (void)state;
    for (int spin_ns = 0; spin_ns < 2; spin_ns++) {
        shares s = {.is_seen = false};
        fixture_job job = {
            .ranks = 2, .cores = 2, .spin_ns = spin_ns, .body = ends_body, .context = &s};
        fixture_run(&job);
        for (int i = 0; i < job.ranks; i++) {
            if (job.results[i].st != ST_OK) fail_msg("rank %d: %s", i, job.results[i].text);
        }
        assert_true(s.is_seen);
    }
}

// ---- deadlines ---------------------------------------------------------------------------------
enum { FROZEN_US = 2500000 }; // with a deadline of 2 s
typedef struct frozen {
    _Atomic pid_t pids[3];
} frozen;

static status freeze(const frozen *f)
{
    (void)usleep(200000); // they wait, and sleep
    for (int i = 0; i < 3; i += 2) (void)kill(atomic_load(&f->pids[i]), SIGSTOP);
    (void)usleep(FROZEN_US);
    for (int i = 0; i < 3; i += 2) (void)kill(atomic_load(&f->pids[i]), SIGCONT);
    (void)usleep(200000); // they look at the clock
    return ST_OK;
}

// A job that was stopped as a whole continues: rank 0 waits in an operation, rank 2 for a message
// of rank 1.
static status frozen_body(comm *c, void *context)
{
    frozen *f = context;
    comm_group *g = comm_world(c);
    const int rank = comm_rank(c);
    int32_t value = 10 + rank;
    const comm_item item = {.in = &value, .out = &value, .count = 1};
    const comm_args message = {.op = rank == 1 ? COLLECTIVE_SEND : COLLECTIVE_RECEIVE,
                               .type = DTYPE_I32,
                               .root = rank == 1 ? 2 : 1,
                               .items = &item,
                               .item_count = 1,
                               .step = -1};
    atomic_store(&f->pids[rank], getpid());
    TRY(comm_barrier(g, "begin"));
    if (rank == 1) TRY(freeze(f));
    if (rank != 0) TRY(comm_run(g, &message));
    if (value != 10 + (rank == 2 ? 1 : rank))
        return fail_at(__FILE__, __LINE__, ST_INTERNAL, "rank %d has %d", rank, (int)value);
    return comm_barrier(g, "end");
}

static void stopped_time_does_not_count(void **state)
{
    (void)state;
    frozen *f = mmap(NULL, sizeof(*f), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(f != MAP_FAILED);
    fixture_job job = {.ranks = 3,
                       .processes = true,
                       .deadline_ns = INT64_C(2000000000),
                       .body = frozen_body,
                       .context = f};
    fixture_run(&job);
    for (int i = 0; i < job.ranks; i++) {
        if (job.results[i].st != ST_OK) fail_msg("rank %d: %s", i, job.results[i].text);
    }
    (void)munmap(f, sizeof(*f));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regions_of_all_sizes),
        cmocka_unit_test(heartbeats_do_not_wait_for_memory),
        cmocka_unit_test(shares_are_done_by_others),
        cmocka_unit_test(ends_are_those_of_all),
        cmocka_unit_test(stopped_time_does_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
