// Ranks that live on: after a loss, or when a process joins, the living processes get places in a
// new epoch.
//
//   begin   every process waits; each place gets one, with a new key, socket and control block
//   run     a rank dies, or says that it has left the epoch, or a process joins
//   end     the others say so too; one that is stopped or late is killed
//   begin   survivors keep their places, spares or new processes take those of lost ranks
//
// A rank of an earlier epoch is ready or dead before the next one begins, so nothing that it has
// sent can arrive in it. A rank that ends with 0 or 75 ends the job in order, and one that ends
// with an error that would come again ends it too; the waiting processes see their sockets close.
#include "launch/live_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const int64_t stopped_ns = INT64_C(100000000); // until a stopped rank is killed
// Until a stopped rank is lost, if no other rank says so before: all may be stopped, or start.
static const int64_t silent_ns = INT64_C(800000000);
static const int64_t late_ns = INT64_C(5000000000); // until one that does not leave is killed
enum { LOOK_MS = 20, IDLE_MS = 200, ARGUMENTS_BYTES = 1 << 16 };

status launch_join_address(const char *name, struct sockaddr_un *out, socklen_t *length)
{
    const size_t n = strlen(name);
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (name[0] != '@' || n < 2 || n >= sizeof(out->sun_path)) {
        return fail(ST_CONFIG, "%.100s is no address of a run", name);
    }
    memcpy(out->sun_path + 1, name + 1, n - 1);
    *length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    return ST_OK;
}

int launch_live_waiting(const live *v)
{
    int n = 0;
    for (int i = 0; i < v->l->count; i++) n += live_is_waiting(&v->l->ranks[i]);
    return n;
}

int64_t launch_live_now(const live *v)
{
    return launch_now(v->l);
}

// ---- the end of an epoch ------------------------------------------------------------------------

static void say(int post, const char *message)
{
    const ssize_t n = send(post, message, strlen(message), MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)n; // the end of the process is seen elsewhere
}

// Asks all ranks to leave this epoch.
void launch_live_end_ask(live *v)
{
    for (int i = 0; i < v->l->count; i++) {
        if (live_is_at_work(&v->l->ranks[i])) say(v->l->ranks[i].post, "c");
    }
}

// Notes why the epoch ends. The end of a process is a better reason than what others saw of it.
void launch_live_broken(live *v, int rank, bool is_certain, const char *cause)
{
    if (v->is_broken && (v->is_certain || !is_certain)) return;
    if (!v->is_broken) {
        v->at = launch_live_now(v);
        launch_live_end_ask(v);
    }
    if (v->event != LAUNCH_WRONG) v->event = LAUNCH_LOST;
    v->is_broken = true;
    v->is_certain = is_certain;
    v->lost = rank;
    (void)snprintf(v->cause, sizeof(v->cause), "%s", cause);
}

static bool is_loss(const local_rank *r)
{
    return r->ended_by != 0 || r->exit_code == status_exit_code(ST_PEER_LOST) ||
           r->exit_code == status_exit_code(ST_INTERNAL);
}

// Spares that end before they are ready are started again ever later, and in the end no more.
enum { SPARE_ENDS_MAX = 5, SPARE_WAIT_MS = 250 };

static void spare_failed(live *v, int64_t process, const char *why)
{
    const launch_live_config *c = v->config;
    if (v->is_over || v->l->is_asked) return;
    v->spare_ends++;
    if (c->spare_failed == NULL) return;
    c->spare_failed(c->context, process, why);
    if (v->spare_ends != SPARE_ENDS_MAX) return;
    c->spare_failed(c->context, 0, "no more spares are started: five in a row failed");
}

static void process_ended(live *v, int i)
{
    local_rank *r = &v->l->ranks[i];
    launch_result how = {.rank = i};
    launch_close(&r->post);
    if (r->rank < 0) { // a spare
        launch_say_how(r, how.text, sizeof(how.text));
        spare_failed(v, (int64_t)r->pid, how.text);
        return;
    }
    launch_tell_rank(v->l, i, &how);
    if (r->was_stopped) {
        (void)snprintf(how.text, sizeof(how.text),
                       "rank %d was stopped (SIGSTOP), so the launcher ended it", r->rank);
    }
    const bool is_orderly = r->ended_by == 0 && (r->exit_code == 0 || r->exit_code == 75);
    if (is_orderly || (!is_loss(r) && !r->was_ended)) {
        v->is_over = true;
        if (is_orderly || v->error >= 0) return;
        v->error = i;
        v->at = v->at > 0 ? v->at : launch_live_now(v);
        launch_live_end_ask(v);
        return;
    }
    launch_live_broken(v, r->rank, !r->was_ended || r->was_stopped, how.text);
    r->rank = -1;
}

// A process that this one did not start cannot be waited for.
static void joined_look(local *l, int i, int64_t now)
{
    local_rank *r = &l->ranks[i];
    struct pollfd p = {.fd = r->pidfd, .events = POLLIN};
    if (poll(&p, 1, 0) <= 0) return;
    r->is_alive = false;
    l->alive--;
    r->ended_at = now;
    r->ended_by = SIGKILL; // or how it ended; it was not told
    launch_close(&r->pidfd);
}

static void processes_look(live *v, int64_t now)
{
    local *l = v->l;
    for (int i = 0; i < l->count; i++) {
        local_rank *r = &l->ranks[i];
        if (!r->is_alive) continue;
        if (r->is_joined) {
            joined_look(l, i, now);
        } else {
            launch_end_rank(l, i, now);
        }
        if (!r->is_alive) process_ended(v, i);
    }
}

// "s BYTES PLACES".
static void spare_take(live *v, int i, const char *message)
{
    long long bytes = 0, places = 0;
    if (sscanf(message, "s %lld %lld", &bytes, &places) != 2 || v->config->spare == NULL) return;
    v->spare_ends = 0;
    v->config->spare(v->config->context, v->l->ranks[i].pid, bytes, places);
}

// "r ASKED WRONG STEP TEXT".
static void ready_take(live *v, int i, const char *message)
{
    int asked = 0, wrong = -1, at = 0;
    long long step = 0;
    local_rank *r = &v->l->ranks[i];
    const int n = sscanf(message, "r %d %d %lld %n", &asked, &wrong, &step, &at);
    if (n != 3 || at == 0 || r->is_ready) return;
    r->is_ready = true;
    v->step = max_i64(v->step, step);
    if (asked || r->rank < 0) return;
    if (wrong >= 0) v->event = LAUNCH_WRONG;
    for (int k = 0; k < v->l->count && wrong >= 0; k++) {
        if (live_is_placed(&v->l->ranks[k]) && v->l->ranks[k].rank == wrong) v->blamed = k;
    }
    // A rank that is wrong by itself says so, perhaps after others have told that it failed.
    if (wrong >= 0 && v->is_broken && v->lost < 0) {
        v->lost = wrong;
        (void)snprintf(v->cause, sizeof(v->cause), "%s", message + at);
    }
    launch_live_broken(v, wrong, false, message + at);
}

static void messages_take(live *v)
{
    char message[LAUNCH_TEXT_BYTES + 1];
    for (int i = 0; i < v->l->count; i++) {
        if (v->l->ranks[i].post < 0) continue;
        const ssize_t n = recv(v->l->ranks[i].post, message, sizeof(message) - 1, MSG_DONTWAIT);
        if (n <= 0) continue; // the end of the process is seen by its descriptor
        message[n] = '\0';
        if (message[0] == 's') {
            spare_take(v, i, message);
        } else if (message[0] == 'x') {
            spare_failed(v, (int64_t)v->l->ranks[i].pid, n > 2 ? message + 2 : "");
        } else {
            ready_take(v, i, message);
        }
    }
}

// A rank that is stopped for long is lost.
static void stopped_look(live *v, int64_t now)
{
    for (int i = 0; i < v->l->count; i++) {
        local_rank *r = &v->l->ranks[i];
        char cause[96];
        if (!live_is_placed(r) || r->is_joined || !launch_is_stopped(r)) {
            r->stopped_at = 0;
            continue;
        }
        if (r->stopped_at == 0) r->stopped_at = now;
        if (now - r->stopped_at < silent_ns) continue;
        (void)snprintf(cause, sizeof(cause), "rank %d was stopped (SIGSTOP)", r->rank);
        launch_live_broken(v, r->rank, true, cause);
        r->is_ready = false; // it could not take another place
    }
}

// Kills ranks that do not leave an epoch which has ended: stopped ones soon, late ones in the end.
static void fence(live *v, int64_t now)
{
    local *l = v->l;
    if (!v->is_broken && v->error < 0) return;
    for (int i = 0; i < l->count; i++) {
        local_rank *r = &l->ranks[i];
        if (!live_is_at_work(r)) continue;
        const bool is_stopped = now - v->at >= stopped_ns && !r->is_joined && launch_is_stopped(r);
        if (!is_stopped && now - v->at < late_ns) continue;
        r->was_stopped = r->was_stopped || is_stopped;
        r->was_forced = true;
        launch_signal_rank(l, i, SIGKILL);
    }
}

// ---- the beginning of an epoch ------------------------------------------------------------------

// A place in the table for another process; -1: there is none.
static int process_place(local *l)
{
    for (int i = 0; i < l->count; i++) {
        if (!l->ranks[i].is_alive && l->ranks[i].post < 0) return i;
    }
    return l->count < LAUNCH_LOCAL_MAX ? l->count++ : -1;
}

// process: its number in the table.
static status process_start(live *v, int *process)
{
    const int i = process_place(v->l);
    *process = i;
    if (i < 0) return fail(ST_UNSUPPORTED, "more than %d processes", LAUNCH_LOCAL_MAX);
    v->l->ranks[i] = (local_rank){.pidfd = -1, .post = -1, .rank = -1};
    return launch_start_rank(v->l, i);
}

status launch_live_process_start(live *v)
{
    int process = -1;
    return process_start(v, &process);
}

static status socket_make(live *v)
{
    local *l = v->l;
    uint64_t name[2];
    char bound[CONTROL_ADDRESS_BYTES];
    launch_close(&l->listen_fd);
    control_key_destroy(l->key);
    l->key = NULL;
    TRY(control_key_create(l->config->h, &l->key));
    TRY(l->config->h->api->random_fill(l->config->h, name, sizeof(name)));
    (void)snprintf(l->address, sizeof(l->address), "unix:@trireme-%016llx%016llx",
                   (unsigned long long)name[0], (unsigned long long)name[1]);
    return control_listen(l->address, false, &l->listen_fd, bound);
}

// Sends place k of this host's to process i.
static status place_send(live *v, int i, const live_places *p, int k)
{
    local *l = v->l;
    char message[LAUNCH_ORDER_BYTES + 512];
    const bool has_block = p->control_block_fd >= 0;
    int fds[POST_FDS] = {-1, -1, has_block ? p->control_block_fd : l->null_fd, p->listen_fd};
    const int rank = p->first + k, count = rank == 0 ? POST_FDS : POST_FDS - 1;
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int) * POST_FDS)];
    } rights = {0};
    status st = ST_OK;
    if (rank > 0) {
        st = launch_log_open(l, rank, &fds[POST_OUT]);
    } else if ((fds[POST_OUT] = fcntl(l->pipe_in, F_DUPFD_CLOEXEC, 3)) < 0) {
        st = fail(ST_IO, "the output of rank 0: %s%s", strerror(errno), host_limit_remedy(errno));
    }
    if (st == ST_OK) st = control_key_pipe(l->key, &fds[POST_KEY]);
    const int n = snprintf(message, sizeof(message), "p %d %d %d %d %d %llx %u %s\n%s", rank,
                           p->ranks, p->local + k, p->locals, has_block, (unsigned long long)p->job,
                           p->epoch, p->address, p->order);
    struct iovec part = {.iov_base = message, .iov_len = (size_t)n};
    struct msghdr m = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = rights.bytes,
                       .msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)count)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)count);
    memcpy(CMSG_DATA(c), fds, sizeof(int) * (size_t)count);
    if (st == ST_OK) { // to a process that has just ended it fails, which its descriptor shows
        const ssize_t sent = sendmsg(l->ranks[i].post, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        (void)sent;
    }
    launch_close(&fds[POST_OUT]);
    launch_close(&fds[POST_KEY]);
    return st;
}

// Tells a process without a place that it is a spare of this epoch.
static void spare_tell(const live *v, int i)
{
    char message[LAUNCH_ORDER_BYTES + 8];
    const local_rank *r = &v->l->ranks[i];
    (void)snprintf(message, sizeof(message), "s\n%s", v->order);
    if (r->is_alive && r->rank < 0 && r->post >= 0) say(r->post, message);
}

// Starts a spare in place of one that has got a place or has ended, a moment later: the ranks of
// the new epoch come first.
static void spares_keep(live *v)
{
    int spares = 0, i = -1;
    const int64_t now = launch_live_now(v);
    const bool is_calm = v->ranks > 0 && !v->is_broken && !v->is_changing && !v->is_waiting;
    if (!is_calm || v->is_over || v->st != ST_OK || v->l->is_asked) return;
    if (v->spare_ends >= SPARE_ENDS_MAX) return;
    for (int k = 0; k < v->l->count; k++) {
        spares += v->l->ranks[k].is_alive && v->l->ranks[k].rank < 0;
    }
    if (spares >= v->config->spares) {
        v->spare_at = 0;
        return;
    }
    if (v->spare_at == 0) v->spare_at = now + ((INT64_C(1000000) * SPARE_WAIT_MS) << v->spare_ends);
    if (now < v->spare_at) return;
    v->spare_at = 0;
    if (process_start(v, &i) == ST_OK) {
        spare_tell(v, i);
        return;
    }
    spare_failed(v, 0, error_last()->text);
    error_clear();
}

status launch_live_place(live *v, const live_places *p, const int *by_place)
{
    local *l = v->l;
    int64_t processes[LAUNCH_LOCAL_MAX];
    status st = ST_OK;
    for (int i = 0; i < l->count; i++) l->ranks[i].rank = -1;
    v->ranks = p->ranks;
    for (int k = 0; k < p->count; k++) {
        local_rank *r = &l->ranks[by_place[k]];
        r->rank = p->first + k;
        processes[k] = (int64_t)r->pid;
        if (st == ST_OK) st = place_send(v, by_place[k], p, k);
        r->is_ready = st != ST_OK; // it still waits, and would not see a signal
    }
    TRY(st);
    (void)snprintf(v->order, sizeof(v->order), "%s", p->order);
    for (int i = 0; i < l->count; i++) spare_tell(v, i);
    v->is_waiting = v->is_broken = v->is_changing = v->is_certain = false;
    v->event = LAUNCH_LOST;
    v->lost = -1;
    if (v->config->placed != NULL) {
        v->config->placed(v->config->context, processes, p->first, p->count);
    }
    return ST_OK;
}

// Survivors keep their places if the number of places is as before, and else their order; the rest
// get the other waiting processes. by_place: [ranks], -1: free.
static void places_fill(live *v, int ranks, int by_place[LAUNCH_LOCAL_MAX])
{
    local *l = v->l;
    int before[LAUNCH_LOCAL_MAX], next = 0;
    for (int r = 0; r < LAUNCH_LOCAL_MAX; r++) before[r] = by_place[r] = -1;
    for (int i = 0; i < l->count; i++) {
        if (live_is_placed(&l->ranks[i])) before[l->ranks[i].rank] = i;
    }
    for (int r = 0; r < LAUNCH_LOCAL_MAX; r++) {
        const int to = ranks == v->ranks ? r : next;
        if (before[r] < 0 || to >= ranks) continue;
        by_place[to] = before[r];
        next++;
    }
    next = 0;
    for (int i = 0; i < l->count && next < ranks; i++) {
        if (!l->ranks[i].is_alive || l->ranks[i].rank >= 0) continue;
        while (next < ranks && by_place[next] >= 0) next++;
        if (next < ranks) by_place[next] = i;
    }
}

static status epoch_plan(live *v, launch_epoch *e)
{
    const launch_change change = {
        .event = v->event,
        .available = launch_live_waiting(v),
        .step = v->step,
        .rank = v->lost,
        .at = v->at,
        .cause = v->cause,
        .filler = v->filler,
        .is_last = v->l->is_asked || (v->is_waiting && launch_live_now(v) >= v->wait_until)};
    return v->config->plan(v->config->context, &change, e);
}

// A rank whose values were wrong a second time gets no place again.
void launch_live_quarantine(live *v)
{
    if (v->blamed < 0 || v->event != LAUNCH_WRONG) return;
    local_rank *r = &v->l->ranks[v->blamed];
    v->blamed = -1;
    if (!r->is_alive || ++r->hits < 2) return;
    const size_t used = strlen(v->cause);
    (void)snprintf(v->cause + used, sizeof(v->cause) - used,
                   "; it is the second time, so rank %d is replaced", r->rank);
    r->rank = -1;
    launch_signal_rank(v->l, (int)(r - v->l->ranks), SIGKILL);
    while (r->is_alive) { // SIGKILL does not wait
        (void)usleep(1000);
        if (r->is_joined) joined_look(v->l, (int)(r - v->l->ranks), launch_live_now(v));
        if (!r->is_joined) launch_end_rank(v->l, (int)(r - v->l->ranks), launch_live_now(v));
    }
    launch_close(&r->post);
}

static status epoch_begin(live *v)
{
    local *l = v->l;
    launch_epoch e = {0};
    int by_place[LAUNCH_LOCAL_MAX];
    launch_live_quarantine(v);
    v->filler = NULL;
    for (int i = 0; i < l->count; i++) {
        if (l->ranks[i].is_alive && l->ranks[i].rank < 0) v->filler = "a spare";
    }
    while (v->config->replaces && launch_live_waiting(v) < l->config->ranks && !l->is_asked) {
        TRY(launch_live_process_start(v));
        v->filler = "a new process";
    }
    TRY(epoch_plan(v, &e));
    if (e.ranks == 0) {
        if (!v->is_waiting) v->wait_until = launch_live_now(v) + v->config->wait_ns;
        v->is_waiting = true;
        return ST_OK;
    }
    TRY(socket_make(v));
    places_fill(v, e.ranks, by_place);
    const live_places p = {.job = e.job,
                           .epoch = v->epoch,
                           .ranks = e.ranks,
                           .count = e.ranks,
                           .locals = e.ranks,
                           .control_block_fd = e.control_block_fd,
                           .listen_fd = l->listen_fd,
                           .address = l->address,
                           .order = e.text};
    TRY(launch_live_place(v, &p, by_place));
    launch_close(&l->listen_fd);
    v->epoch++;
    return ST_OK;
}

// ---- processes that join ------------------------------------------------------------------------

// The arguments of the ranks, after the folder of this process.
static int64_t arguments_list(const live *v, char out[ARGUMENTS_BYTES])
{
    int64_t used = 0;
    if (getcwd(out, ARGUMENTS_BYTES) == NULL) return 0;
    used = (int64_t)strlen(out) + 1;
    for (char *const *a = v->config->local.argv; *a != NULL; a++) {
        const int64_t bytes = (int64_t)strlen(*a) + 1;
        if (used + bytes > ARGUMENTS_BYTES) return 0;
        memcpy(out + used, *a, (size_t)bytes);
        used += bytes;
    }
    return used;
}

static void join_take(live *v)
{
    local *l = v->l;
    char arguments[ARGUMENTS_BYTES];
    struct ucred peer = {0};
    socklen_t bytes = sizeof(peer);
    int fd = accept4(v->config->join_fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) return;
    const bool is_known = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0;
    const int64_t count = arguments_list(v, arguments);
    const int i = is_known && peer.uid == geteuid() && count > 0 && !v->is_over && !l->is_asked
                      ? process_place(l)
                      : -1;
    const int pidfd = i >= 0 ? (int)syscall(SYS_pidfd_open, peer.pid, 0U) : -1;
    if (pidfd < 0 || send(fd, arguments, (size_t)count, MSG_NOSIGNAL | MSG_DONTWAIT) != count) {
        if (pidfd >= 0) (void)close(pidfd);
        launch_close(&fd);
        return;
    }
    l->ranks[i] = (local_rank){.pid = peer.pid,
                               .pidfd = pidfd,
                               .post = fd,
                               .rank = -1,
                               .is_alive = true,
                               .is_joined = true};
    l->alive++;
    if (v->is_waiting || v->ranks >= l->config->ranks || v->is_broken || v->is_changing) return;
    v->is_changing = true;
    v->event = LAUNCH_JOINED;
    v->at = launch_live_now(v);
    (void)snprintf(v->cause, sizeof(v->cause), "a process joined");
    launch_live_end_ask(v);
}

// ---- the loop -----------------------------------------------------------------------------------

// True if each rank of the epoch that is to end is ready or dead.
bool launch_live_is_at_rest(const live *v)
{
    for (int i = 0; i < v->l->count; i++) {
        if (live_is_at_work(&v->l->ranks[i])) return false;
    }
    return true;
}

static int sleep_ms(const live *v)
{
    if (v->hosts != NULL) return LOOK_MS / 4; // the others may have agreed on something
    return v->is_broken || v->is_changing || v->is_waiting || v->is_over ? LOOK_MS : IDLE_MS;
}

static void wait_once(live *v)
{
    enum { SIGNALS, OUTPUT, CONSOLE, JOIN, FIXED };
    struct pollfd polls[FIXED + 2 * LAUNCH_LOCAL_MAX];
    local *l = v->l;
    polls[SIGNALS] = (struct pollfd){.fd = l->signal_fd, .events = POLLIN};
    polls[OUTPUT] = (struct pollfd){.fd = l->pipe_out, .events = POLLIN};
    polls[CONSOLE] = (struct pollfd){.fd = launch_output_is_waiting(l) ? l->config->console_fd : -1,
                                     .events = POLLOUT};
    polls[JOIN] = (struct pollfd){.fd = v->config->join_fd, .events = POLLIN};
    for (int i = 0; i < l->count; i++) {
        polls[FIXED + 2 * i] = (struct pollfd){.fd = l->ranks[i].pidfd, .events = POLLIN};
        polls[FIXED + 2 * i + 1] = (struct pollfd){.fd = l->ranks[i].post, .events = POLLIN};
    }
    (void)poll(polls, (nfds_t)(FIXED + 2 * l->count), sleep_ms(v));
    const int64_t now = launch_live_now(v);
    messages_take(v); // what a process said before it ended
    processes_look(v, now);
    launch_forward_signals(l);
    if (l->pipe_out >= 0 && polls[OUTPUT].revents != 0) launch_output_read(l);
    if (polls[CONSOLE].revents != 0) launch_output_write(l);
    if (polls[JOIN].revents != 0) join_take(v);
    launch_oom_look(l, now);
    stopped_look(v, now);
    fence(v, now);
}

// The job ends: waiting processes see their sockets close.
static void posts_close(live *v)
{
    for (int i = 0; i < v->l->count; i++) {
        local_rank *r = &v->l->ranks[i];
        if (!live_is_at_work(r)) launch_close(&r->post);
    }
}

static int working_count(const live *v)
{
    int n = 0;
    for (int i = 0; i < v->l->count; i++) n += live_is_at_work(&v->l->ranks[i]);
    return n;
}

// All processes may be lost at once: then new ones are started, or join.
static void run(live *v)
{
    int64_t failed_at = 0;
    while (v->l->alive > 0 || (!v->is_over && v->st == ST_OK) ||
           (v->hosts != NULL && !launch_hosts_is_done(v))) {
        v->is_over = v->is_over || v->l->is_interrupted;
        const bool ends = v->is_broken || v->is_changing || v->is_waiting || v->ranks == 0;
        if (v->hosts != NULL) {
            launch_hosts_look(v);
        } else if (!v->is_over && v->st == ST_OK && ends && launch_live_is_at_rest(v)) {
            v->st = epoch_begin(v);
        }
        if (v->st != ST_OK) v->is_over = true;
        spares_keep(v);
        if (v->is_over) posts_close(v);
        if (v->is_over && v->st != ST_OK && working_count(v) > 0) {
            if (failed_at == 0) failed_at = launch_live_now(v);
            launch_signal_all(v->l, launch_live_now(v) - failed_at < late_ns ? SIGTERM : SIGKILL);
        }
        wait_once(v);
    }
}

// Makes the result from the ends of the processes.
static void end_tell(const live *v, launch_result *out)
{
    const local *l = v->l;
    *out = (launch_result){.rank = -1, .lost = -1, .was_asked = l->is_asked};
    if (v->hosts != NULL && !l->is_interrupted) {
        launch_hosts_tell_end(v, out);
        return;
    }
    if (l->is_interrupted) {
        out->is_interrupted = true;
        out->ended_by = SIGINT;
        (void)snprintf(out->text, sizeof(out->text),
                       "a second SIGINT ended the run at once, without a checkpoint");
        return;
    }
    if (v->error >= 0) {
        out->rank = out->lost = l->ranks[v->error].rank;
        launch_tell_rank(l, v->error, out);
        launch_tell_tail(l, v->error, out);
        return;
    }
    for (int i = 0; i < l->count; i++) {
        const local_rank *r = &l->ranks[i];
        if (r->rank >= 0 && r->exit_code == 75) out->exit_code = 75;
    }
    if (v->is_over) return;
    // All processes have ended, and none in order.
    out->exit_code = status_exit_code(ST_PEER_LOST);
    out->rank = out->lost = v->lost > 0 ? v->lost : 0;
    (void)snprintf(out->text, sizeof(out->text), "%.2000s; no rank is left", v->cause);
}

status launch_live(const launch_live_config *config, launch_result *out)
{
    local *l = calloc(1, sizeof(*l));
    live v = {
        .config = config, .l = l, .lost = -1, .blamed = -1, .error = -1, .event = LAUNCH_BEGIN};
    const int parts = config->place != NULL ? config->place->ranks : 1;
    const int wanted = config->local.ranks / parts + config->spares;
    if (l == NULL) return fail(ST_NO_MEMORY, "no memory to start %d ranks", wanted);
    l->config = &config->local;
    l->is_live = true;
    l->first = -1;
    l->listen_fd = l->liveness_out = l->liveness_in = l->pipe_out = l->pipe_in = l->null_fd = -1;
    l->log_fd = l->signal_fd = -1;
    const struct sigaction ignored = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &ignored, &l->pipe_before);
    v.st = launch_prepare(l);
    if (v.st == ST_OK && config->place != NULL) v.st = launch_hosts_open(&v);
    char path[LAUNCH_PATH_BYTES];
    launch_log_path(l->config, 0, path);
    l->log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0666);
    for (int r = 0; r < wanted && v.st == ST_OK; r++) v.st = launch_live_process_start(&v);
    if (v.st != ST_OK) launch_signal_all(l, SIGKILL);
    error_record cause;
    run(&v);
    error_take(&cause);
    launch_close(&l->pipe_in);
    launch_output_end(l);
    end_tell(&v, out);
    for (int i = 0; i < l->count; i++) launch_close(&l->ranks[i].post);
    const status st = v.st;
    launch_hosts_close(&v);
    launch_release(l);
    free(l);
    return st == ST_OK ? ST_OK : error_put(&cause);
}
