// The coordinator's thread: it moves bytes between the sockets and the coordinator's state machine.
//
// It reads a new connection right after accepting it. Otherwise the next connection could displace
// a rank as a silent stranger before its hello is read.
#include "control/control.h"

#include "base/fault.h"
#include "control/thread.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    EVENTS_MAX = 128,
    READ_BYTES = 64 << 10,
    LAST_READS = 16, // reads from a connection that no longer accepts output
    ACCEPTS_AT_ONCE = 64,
    LINGER_MS = 1000, // time to send pending output
};
// Values in epoll's data that are not connection numbers.
enum { IS_LISTENER = 1 << 30, IS_WAKE };

typedef struct server_line {
    int fd; // -1: none
    bool wants_out;
    int64_t dropped_at;
} server_line;

struct control_server {
    control_server_config config;
    control_coordinator *coordinator;
    int listen_fd, epoll_fd, wake_fd;
    server_line *lines;
    int line_count;
    pthread_t thread;
    atomic_bool is_stopping;
    uint8_t buffer[READ_BYTES];
};

static int64_t now_of(const control_server *s)
{
    return s->config.h->api->monotonic_ns(s->config.h);
}

static void watch(control_server *s, int fd, int mark, uint32_t events, int operation)
{
    struct epoll_event e = {.events = events};
    e.data.u64 = (uint64_t)mark;
    (void)epoll_ctl(s->epoll_fd, operation, fd, &e);
}

static void hang_up(control_server *s, int i)
{
    server_line *line = &s->lines[i];
    const control_event e = {.kind = CONTROL_CLOSED, .connection = i};
    (void)close(line->fd); // also removes it from epoll
    *line = (server_line){.fd = -1};
    control_coordinator_handle(s->coordinator, &e, now_of(s));
}

// Returns the number of bytes, 0, or -1 if the connection has ended.
static int64_t read_line(control_server *s, int i)
{
    const int64_t n = control_read(s->lines[i].fd, s->buffer, READ_BYTES);
    if (n < 0) {
        hang_up(s, i);
        return n;
    }
    const control_event e = {
        .kind = CONTROL_BYTES, .connection = i, .bytes = s->buffer, .count = n};
    if (n > 0) control_coordinator_handle(s->coordinator, &e, now_of(s));
    return n;
}

// A failed write means that the rank has closed. Its earlier messages, above all the reason for its
// failure, must still be read.
static void drain_input(control_server *s, int i)
{
    for (int k = 0; k < LAST_READS && read_line(s, i) > 0; k++) {
    }
    if (s->lines[i].fd >= 0) hang_up(s, i);
}

static void write_line(control_server *s, int i)
{
    server_line *line = &s->lines[i];
    const control_span out = control_coordinator_output(s->coordinator, i);
    if (out.bytes > 0) {
        const int64_t n = control_write(line->fd, out.data, out.bytes);
        if (n < 0) {
            drain_input(s, i);
            return;
        }
        control_coordinator_sent(s->coordinator, i, n);
    }
    const bool wants = control_coordinator_output(s->coordinator, i).bytes > 0;
    if (wants != line->wants_out) {
        line->wants_out = wants;
        watch(s, line->fd, i, EPOLLIN | (wants ? EPOLLOUT : 0U), EPOLL_CTL_MOD);
    }
    if (!control_coordinator_drops(s->coordinator, i)) return;
    const int64_t now = now_of(s);
    if (line->dropped_at == 0) line->dropped_at = now;
    if (!wants || now - line->dropped_at > (int64_t)LINGER_MS * 1000000) hang_up(s, i);
}

// This process has no descriptor left for a rank that wants to join. Without this, the listener
// would stay readable, and the other ranks would wait for the whole limit of joining.
static void cannot_accept(control_server *s, int error)
{
    control_notice n = {.kind = CONTROL_NOTE_FAILED, .rank = CONTROL_COORDINATOR, .code = ST_IO};
    if (error != EMFILE && error != ENFILE && error != ENOBUFS && error != ENOMEM) return;
    watch(s, s->listen_fd, IS_LISTENER, 0, EPOLL_CTL_DEL);
    (void)snprintf(n.text, sizeof(n.text), "rank 0 cannot accept the connections of ranks: %s%s",
                   strerror(error), host_limit_remedy(error));
    if (!control_coordinator_fail(s->coordinator, n.code, n.text)) return;
    if (s->config.on_notice != NULL) s->config.on_notice(s->config.context, &n);
}

static void accept_some(control_server *s)
{
    for (int k = 0; k < ACCEPTS_AT_ONCE; k++) {
        const int fd = control_accept(s->listen_fd);
        if (fd < 0) {
            cannot_accept(s, errno);
            return;
        }
        const int i = control_coordinator_accept(s->coordinator, now_of(s));
        if (i < 0) {
            (void)close(fd);
            continue;
        }
        s->lines[i] = (server_line){.fd = fd};
        watch(s, fd, i, EPOLLIN, EPOLL_CTL_ADD);
        (void)read_line(s, i);
    }
}

static void write_all(control_server *s)
{
    for (int i = 0; i < s->line_count; i++) {
        if (s->lines[i].fd >= 0) write_line(s, i);
    }
}

static bool has_output_left(const control_server *s)
{
    for (int i = 0; i < s->line_count; i++) {
        if (s->lines[i].fd >= 0 && control_coordinator_output(s->coordinator, i).bytes > 0)
            return true;
    }
    return false;
}

static void report_notices(control_server *s)
{
    control_notice n;
    while (control_coordinator_notice(s->coordinator, &n)) {
        if (s->config.on_notice != NULL) s->config.on_notice(s->config.context, &n);
    }
}

static void run_once(control_server *s)
{
    struct epoll_event events[EVENTS_MAX];
    const int64_t left = control_coordinator_wake(s->coordinator) - now_of(s);
    const int timeout_ms = left <= 0 ? 0 : (int)(left / 1000000 + 1);
    const int count = epoll_wait(s->epoll_fd, events, EVENTS_MAX, timeout_ms);
    // Messages of ranks are handled before the clock, so that verdicts take them into account.
    for (int k = 0; k < count; k++) {
        const uint64_t mark = events[k].data.u64;
        if (mark < (uint64_t)s->line_count && s->lines[mark].fd >= 0) (void)read_line(s, (int)mark);
    }
    for (int k = 0; k < count; k++) {
        if (events[k].data.u64 == IS_LISTENER) accept_some(s);
    }
    const int64_t now = now_of(s);
    if (now >= control_coordinator_wake(s->coordinator)) {
        const control_event tick = {.kind = CONTROL_TICK};
        control_coordinator_handle(s->coordinator, &tick, now);
    }
    write_all(s);
    report_notices(s);
}

static void *server_main(void *context)
{
    control_server *s = context;
    int64_t stop_at = 0;
    for (;;) {
        run_once(s);
        if (!atomic_load(&s->is_stopping)) continue;
        uint64_t woken; // without this read the wake-up would stay ready
        const ssize_t n = read(s->wake_fd, &woken, sizeof(woken));
        (void)n;
        const int64_t now = now_of(s);
        if (stop_at == 0) stop_at = now + (int64_t)LINGER_MS * 1000000;
        if (!has_output_left(s) || now > stop_at) break;
    }
    return NULL;
}

static void server_destroy(control_server *s)
{
    for (int i = 0; s->lines != NULL && i < s->line_count; i++) {
        if (s->lines[i].fd >= 0) (void)close(s->lines[i].fd);
    }
    if (s->epoll_fd >= 0) (void)close(s->epoll_fd);
    if (s->wake_fd >= 0) (void)close(s->wake_fd);
    (void)close(s->listen_fd);
    control_coordinator_destroy(s->coordinator);
    free(s->lines);
    free(s);
}

// The thread blocks all signals: they belong to the program's own threads.
int control_thread_start(pthread_t *thread, void *(*run)(void *), void *context)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(thread, NULL, run, context);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

bool control_condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t wait_ns)
{
    static const int64_t second_ns = 1000000000;
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    const int64_t ns = until.tv_nsec + wait_ns;
    until.tv_sec += (time_t)(ns / second_ns);
    until.tv_nsec = (long)(ns % second_ns);
    return pthread_cond_clockwait(condition, lock, CLOCK_MONOTONIC, &until) == 0;
}

static status server_init(control_server *s)
{
    const control_server_config *c = &s->config;
    control_coordinator_config coordinator = {.h = c->h,
                                              .key = c->key,
                                              .job = c->job,
                                              .epoch = c->epoch,
                                              .ranks = c->ranks,
                                              .rank = c->rank,
                                              .join_ns = c->join_ns,
                                              .limits = c->limits,
                                              .runs = control_is_running};
    TRY(control_self(c->h, &coordinator.self));
    TRY(control_coordinator_create(&coordinator, now_of(s), &s->coordinator));
    s->line_count = control_coordinator_connections(s->coordinator);
    s->lines = calloc((size_t)(unsigned)s->line_count, sizeof(*s->lines));
    if (s->lines == NULL) return fail(ST_NO_MEMORY, "no memory for %d connections", s->line_count);
    for (int i = 0; i < s->line_count; i++) s->lines[i].fd = -1;
    TRY(fault_point("control.server.epoll"));
    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->epoll_fd < 0 || s->wake_fd < 0) {
        return fail(ST_IO, "cannot open descriptors for the coordinator: %s%s", strerror(errno),
                    host_limit_remedy(errno));
    }
    watch(s, s->listen_fd, IS_LISTENER, EPOLLIN, EPOLL_CTL_ADD);
    watch(s, s->wake_fd, IS_WAKE, EPOLLIN, EPOLL_CTL_ADD);
    const int error = control_thread_start(&s->thread, server_main, s);
    if (error != 0) {
        return fail(ST_NO_MEMORY, "cannot start the coordinator's thread (error %d)%s", error,
                    host_limit_remedy(error));
    }
    return ST_OK;
}

status control_server_start(const control_server_config *config, int listen_fd,
                            control_server **out)
{
    control_server *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        (void)close(listen_fd);
        return fail(ST_NO_MEMORY, "no memory for the coordinator");
    }
    s->config = *config;
    s->listen_fd = listen_fd;
    s->epoll_fd = s->wake_fd = -1;
    const status st = server_init(s);
    if (st != ST_OK) {
        server_destroy(s);
        return st;
    }
    *out = s;
    return ST_OK;
}

void control_server_stop(control_server *s)
{
    if (s == NULL) return;
    const uint64_t one = 1;
    atomic_store(&s->is_stopping, true);
    const ssize_t n = write(s->wake_fd, &one, sizeof(one));
    (void)n;
    (void)pthread_join(s->thread, NULL);
    server_destroy(s);
}
