// A rank's control thread. It and the callers share the state machine under one lock, which is held
// no longer than it takes to copy a message. A waiting caller sleeps on the condition variable.
#include "control/control.h"

#include "base/fault.h"
#include "control/thread.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum {
    READ_BYTES = 64 << 10,
    LAST_READS = 16, // reads from a connection that no longer accepts output
    CONNECT_MS = 2000,
    RETRY_FIRST_MS = 10,
    RETRY_MOST_MS = 250,
    CANCEL_MS = 100, // between two questions whether a join is cancelled
    FIXED_FDS = 2    // wake-up, connection
};

static const int64_t late_ns = INT64_C(2000000000);

struct control {
    control_config config;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    // Guarded by the lock:
    control_member *m;
    bool is_over;       // the thread has ended
    bool is_closing;    // control_close was called
    error_record error; // error of a failed join
    // Used by the thread alone:
    int fd, wake_fd;
    int64_t join_until;
    int retry_ms;
    struct pollfd *polls; // FIXED_FDS entries, then one per local peer's process
    int *watched;         // ranks of these processes
    int watch_count;
    bool is_watching;
    uint8_t buffer[READ_BYTES];
};

static int64_t now_of(const control *c)
{
    return c->config.h->api->monotonic_ns(c->config.h);
}

static void lock(control *c)
{
    (void)pthread_mutex_lock(&c->lock);
}

static void unlock(control *c)
{
    (void)pthread_mutex_unlock(&c->lock);
}

static void wake(control *c)
{
    const uint64_t one = 1;
    const ssize_t n = write(c->wake_fd, &one, sizeof(one));
    (void)n; // the counter is full: the thread is awake
}

static void handle_event(control *c, const control_event *e)
{
    lock(c);
    control_member_handle(c->m, e, now_of(c));
    (void)pthread_cond_broadcast(&c->changed);
    unlock(c);
}

// ---- connecting ---------------------------------------------------------------------------------
// Stores this thread's error for the calling thread.
static void give_up(control *c, status code)
{
    lock(c);
    error_take(&c->error);
    c->error.code = code;
    unlock(c);
}

static void wait_ms(control *c, int ms)
{
    struct pollfd p = {.fd = c->wake_fd, .events = POLLIN};
    (void)poll(&p, 1, ms);
}

// Tries to connect until it succeeds, the deadline passes or control_close is called. Ranks start
// in any order.
static bool reach_coordinator(control *c)
{
    for (;;) {
        const int64_t now = now_of(c);
        lock(c);
        const bool is_closing = c->is_closing;
        unlock(c);
        if (is_closing) return false;
        const int64_t left_ms = (c->join_until - now) / 1000000;
        const int limit = left_ms < CONNECT_MS ? (int)max_i64(left_ms, 1) : CONNECT_MS;
        const status st = control_connect(c->config.address, limit, &c->fd);
        if (st == ST_OK) {
            const control_event opened = {.kind = CONTROL_OPENED};
            handle_event(c, &opened);
            return true;
        }
        if (st != ST_PEER_LOST || left_ms <= 0) {
            give_up(c, st == ST_PEER_LOST ? ST_TIMEOUT : st);
            return false;
        }
        wait_ms(c, c->retry_ms);
        c->retry_ms = (int)min_i64(2 * c->retry_ms, RETRY_MOST_MS);
    }
}

static void disconnect(control *c)
{
    if (c->fd >= 0) (void)close(c->fd);
    c->fd = -1;
}

// ---- the loop -----------------------------------------------------------------------------------
// Watches the processes of this machine once all ranks are known, so that their end is noticed at
// once.
static void watch_peers(control *c)
{
    const int ranks = c->config.ranks;
    const control_peer *self = control_member_peer(c->m, c->config.rank);
    c->is_watching = true;
    for (int r = 0; r < ranks; r++) {
        const control_peer *p = control_member_peer(c->m, r);
        if (p->machine == 0 || p->machine != self->machine || p->pid == self->pid) continue;
        int fd = -1;
        if (!control_watch(p, &fd)) {
            const control_event e = {.kind = CONTROL_EXITED, .rank = r};
            handle_event(c, &e);
        }
        if (fd < 0) continue;
        c->polls[FIXED_FDS + c->watch_count] = (struct pollfd){.fd = fd, .events = POLLIN};
        c->watched[c->watch_count++] = r;
    }
}

static void check_peers(control *c)
{
    for (int i = 0; i < c->watch_count; i++) {
        struct pollfd *p = &c->polls[FIXED_FDS + i];
        if (p->fd < 0 || (p->revents & POLLIN) == 0) continue;
        const control_event e = {.kind = CONTROL_EXITED, .rank = c->watched[i]};
        handle_event(c, &e);
        (void)close(p->fd);
        p->fd = -1; // poll skips it
    }
}

static void hang_up(control *c)
{
    const control_event e = {.kind = CONTROL_CLOSED};
    handle_event(c, &e);
    disconnect(c);
}

// Returns the number of bytes, 0, or -1 if the connection has ended.
static int64_t read_coordinator(control *c)
{
    const int64_t n = control_read(c->fd, c->buffer, READ_BYTES);
    const control_event e = {.kind = CONTROL_BYTES, .bytes = c->buffer, .count = n};
    if (n > 0) handle_event(c, &e);
    if (n < 0) hang_up(c);
    return n;
}

// A failed write means that the coordinator has closed. Its earlier messages, above all its
// goodbye, must still be read.
static void drain_input(control *c)
{
    for (int k = 0; k < LAST_READS && read_coordinator(c) > 0; k++) {
    }
    if (c->fd >= 0) hang_up(c);
}

// Returns true while more output is pending than the socket accepts.
static bool write_coordinator(control *c)
{
    lock(c);
    control_span out = control_member_output(c->m);
    const int64_t n = c->fd < 0 || out.bytes == 0 ? 0 : control_write(c->fd, out.data, out.bytes);
    if (n > 0) control_member_sent(c->m, n);
    out = control_member_output(c->m);
    unlock(c);
    if (n >= 0) return c->fd >= 0 && out.bytes > 0;
    drain_input(c);
    return false;
}

static void report_notices(control *c)
{
    control_notice n;
    for (;;) {
        lock(c);
        const bool has = control_member_notice(c->m, &n);
        unlock(c);
        if (!has) return;
        if (c->config.on_notice != NULL) c->config.on_notice(c->config.context, &n);
    }
}

static void tick(control *c)
{
    control_report report = {0};
    const control_event e = {.kind = CONTROL_TICK};
    if (c->config.report != NULL) c->config.report(c->config.context, &report);
    lock(c);
    control_member_report(c->m, &report);
    unlock(c);
    handle_event(c, &e);
}

static control_state state_of(control *c, bool *is_closing)
{
    lock(c);
    const control_state s = control_member_state(c->m);
    *is_closing = c->is_closing;
    unlock(c);
    return s;
}

// Waits once for events and handles them. Returns false when this connection is over.
static bool run_once(control *c)
{
    const bool wants_out = write_coordinator(c);
    lock(c);
    const int64_t left = control_member_wake(c->m) - now_of(c);
    unlock(c);
    c->polls[0] = (struct pollfd){.fd = c->wake_fd, .events = POLLIN};
    c->polls[1] =
        (struct pollfd){.fd = c->fd, .events = (short)(POLLIN | (wants_out ? POLLOUT : 0))};
    const int timeout_ms = left <= 0 ? 0 : (int)(left / 1000000 + 1);
    (void)poll(c->polls, (nfds_t)(FIXED_FDS + c->watch_count), timeout_ms);
    if ((c->polls[0].revents & POLLIN) != 0) {
        uint64_t woken;
        const ssize_t n = read(c->wake_fd, &woken, sizeof(woken));
        (void)n;
    }
    // The coordinator's messages come before the kernel's exit events: a rank that left may end.
    if (c->fd >= 0 && (c->polls[1].revents & (POLLIN | POLLHUP | POLLERR)) != 0)
        (void)read_coordinator(c);
    check_peers(c);
    bool is_closing = false;
    control_state s = state_of(c, &is_closing);
    if (s == CONTROL_RUNNING && !c->is_watching) watch_peers(c);
    lock(c);
    const bool is_due = now_of(c) >= control_member_wake(c->m);
    unlock(c);
    // The coordinator should have reported this.
    if (s < CONTROL_RUNNING && now_of(c) > c->join_until + late_ns) {
        (void)fail(ST_TIMEOUT, "not all of %d ranks had joined within %.0f s", c->config.ranks,
                   (double)c->config.join_ns / 1e9);
        give_up(c, ST_TIMEOUT);
        return false;
    }
    if (is_due && s != CONTROL_OVER && s != CONTROL_LEFT) tick(c);
    report_notices(c);
    s = state_of(c, &is_closing);
    return s != CONTROL_OVER && s != CONTROL_LEFT;
}

// The thread keeps watching local peers after the coordinator is lost, because their ends still
// matter.
static void *control_main(void *context)
{
    control *c = context;
    while (reach_coordinator(c)) {
        while (run_once(c)) {
        }
        (void)write_coordinator(c); // sends pending output
        disconnect(c);
        report_notices(c);
        lock(c);
        const bool again = control_member_may_retry(c->m) && now_of(c) < c->join_until;
        if (again) control_member_reset(c->m, now_of(c));
        unlock(c);
        if (!again) break;
        wait_ms(c, c->retry_ms);
        c->retry_ms = (int)min_i64(2 * c->retry_ms, RETRY_MOST_MS);
    }
    lock(c);
    c->is_over = true;
    (void)pthread_cond_broadcast(&c->changed);
    unlock(c);
    return NULL;
}

// ---- public -------------------------------------------------------------------------------------
static void destroy(control *c)
{
    for (int i = 0; i < c->watch_count; i++) {
        if (c->polls[FIXED_FDS + i].fd >= 0) (void)close(c->polls[FIXED_FDS + i].fd);
    }
    if (c->wake_fd >= 0) (void)close(c->wake_fd);
    disconnect(c);
    control_member_destroy(c->m);
    (void)pthread_mutex_destroy(&c->lock);
    (void)pthread_cond_destroy(&c->changed);
    free(c->polls);
    free(c->watched);
    free(c);
}

static status prepare(control *c)
{
    const control_config *g = &c->config;
    control_member_config m = {.h = g->h,
                               .key = g->key,
                               .job = g->job,
                               .epoch = g->epoch,
                               .rank = g->rank,
                               .ranks = g->ranks,
                               .facts = g->facts,
                               .fact_count = g->fact_count,
                               .limits = g->limits,
                               .runs = control_is_running};
    TRY(control_self(g->h, &m.self));
    TRY(control_member_create(&m, now_of(c), &c->m));
    c->polls = calloc((size_t)(unsigned)g->ranks + FIXED_FDS, sizeof(*c->polls));
    c->watched = calloc((size_t)(unsigned)g->ranks, sizeof(*c->watched));
    if (c->polls == NULL || c->watched == NULL) return fail(ST_NO_MEMORY, "no memory for control");
    TRY(fault_point("control.open"));
    c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->wake_fd < 0)
        return fail(ST_IO, "cannot open a descriptor for control: %s%s", strerror(errno),
                    host_limit_remedy(errno));
    const int error = control_thread_start(&c->thread, control_main, c);
    if (error != 0) {
        return fail(ST_NO_MEMORY, "cannot start the control thread (error %d)%s", error,
                    host_limit_remedy(error));
    }
    return ST_OK;
}

// Returns why the connection ended. The caller holds the lock.
static status reason(control *c)
{
    const char *said = "";
    const status st = control_member_error(c->m, &said);
    if (c->error.code != ST_OK) return error_put(&c->error);
    if (st != ST_OK) return fail(st, "%s", said);
    return fail(ST_PEER_LOST, "this rank has left the job");
}

// Ends the join with the status of this thread's record. The caller holds the lock.
static void cancel(control *c, status st)
{
    c->is_closing = true;
    control_member_fail(c->m, st, error_last()->text);
    error_take(&c->error);
    c->error.code = st;
    wake(c);
}

// Returns when the member runs, or its thread has ended. The caller holds the lock.
static void await_join(control *c)
{
    const control_config *g = &c->config;
    // OVER may be the end of one connection of several; the thread decides whether it tries again.
    while (!c->is_over && control_member_state(c->m) != CONTROL_RUNNING) {
        if (g->cancelled == NULL || c->is_closing) {
            (void)pthread_cond_wait(&c->changed, &c->lock);
        } else if (!control_condition_wait(&c->changed, &c->lock, CANCEL_MS * INT64_C(1000000))) {
            const status st = g->cancelled(g->context);
            if (st != ST_OK) cancel(c, st);
        }
    }
}

status control_open(const control_config *config, control **out)
{
    control *c = calloc(1, sizeof(*c));
    if (c == NULL) return fail(ST_NO_MEMORY, "no memory for control");
    c->config = *config;
    c->fd = c->wake_fd = -1;
    c->retry_ms = RETRY_FIRST_MS;
    if (c->config.join_ns == 0) c->config.join_ns = INT64_C(60) * 1000000000;
    c->join_until = now_of(c) + c->config.join_ns;
    (void)pthread_mutex_init(&c->lock, NULL);
    (void)pthread_cond_init(&c->changed, NULL);
    status st = prepare(c);
    if (st != ST_OK) {
        destroy(c);
        return st;
    }
    lock(c);
    await_join(c);
    st = control_member_state(c->m) == CONTROL_RUNNING ? ST_OK : reason(c);
    unlock(c);
    if (st != ST_OK) {
        (void)pthread_join(c->thread, NULL);
        destroy(c);
        return st;
    }
    *out = c;
    return ST_OK;
}

void control_close(control *c)
{
    if (c == NULL) return;
    lock(c);
    c->is_closing = true;
    control_member_leave(c->m);
    unlock(c);
    wake(c);
    (void)pthread_join(c->thread, NULL);
    destroy(c);
}

void control_fail(control *c, status code, const char *said)
{
    lock(c);
    control_member_fail(c->m, code, said);
    (void)pthread_cond_broadcast(&c->changed);
    unlock(c);
    wake(c);
}

int control_rank(const control *c)
{
    return c->config.rank;
}

int control_ranks(const control *c)
{
    return c->config.ranks;
}

const control_peer *control_peer_of(const control *c, int rank)
{
    return control_member_peer(c->m, rank); // constant after control_open
}

status control_group_swap(control *c, const control_group *g, const void *mine, int64_t bytes,
                          void *all)
{
    const uint8_t *got = NULL;
    lock(c);
    status st = control_member_swap(c->m, g, mine, bytes);
    if (st == ST_OK) {
        wake(c);
        status result = ST_OK;
        while (!control_member_swapped(c->m, &result, &got) && !c->is_over) {
            (void)pthread_cond_wait(&c->changed, &c->lock);
        }
        if (got == NULL) {
            st = reason(c);
        } else if (result != ST_OK) {
            const char *said = "";
            (void)control_member_error(c->m, &said);
            st = fail(result, "a swap of %lld bytes failed: %s", (long long)bytes,
                      said[0] == '\0' ? "a rank was lost" : said);
        } else if (bytes > 0) {
            memcpy(all, got, (size_t)(bytes * g->count));
        }
    }
    unlock(c);
    return st;
}

status control_swap(control *c, const void *mine, int64_t bytes, void *all)
{
    const control_group everyone = {.place = c->config.rank, .count = c->config.ranks};
    return control_group_swap(c, &everyone, mine, bytes, all);
}

status control_barrier(control *c)
{
    return control_swap(c, NULL, 0, NULL);
}

void control_request(control *c, control_agreement kind, uint64_t argument)
{
    lock(c);
    control_member_request(c->m, kind, argument);
    unlock(c);
    wake(c);
}

status control_step(control *c, int64_t step, control_decision *due)
{
    lock(c);
    while (!control_member_step(c->m, step, due) && !c->is_over) {
        (void)pthread_cond_wait(&c->changed, &c->lock);
    }
    const status st = control_member_state(c->m) == CONTROL_OVER ? reason(c) : ST_OK;
    unlock(c);
    return st;
}
