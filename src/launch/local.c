// Runs local ranks: N processes of this program, and one thread that watches them.
//
//   rank 0 ---- pipe ---> log file and console      ranks 1.. ---> their log files, directly
//   every rank: the reading end of a pipe whose other end only this process holds, so that it
//               closes when this process ends
//
// Every rank has its own process group, so a ^C in the terminal reaches this process alone, which
// forwards it once. A second ^C kills all ranks: forwarded signals can merge on the way, so some
// ranks would take both for one. A readable pidfd reports the end of a rank; without one this
// process asks again after a short time. After the first failure the other ranks have a grace time:
// they learn of it through control and end by themselves with their own diagnosis. Then they get
// SIGTERM, then SIGKILL; a stopped rank cannot learn of anything and gets SIGKILL after a second.
// Every ended rank is waited for, so no zombie and no orphan remains.
#include "launch/local_internal.h"

#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const int64_t term_ns = INT64_C(2000000000); // longest time from SIGTERM to SIGKILL
static const int64_t stopped_ns = INT64_C(1000000000);
enum {
    LOOK_MS = 20,     // between two looks at a rank without a pidfd
    STOPPED_MS = 100, // between two looks for stopped ranks after a failure
    IDLE_MS = 500     // between two looks at ranks that run, and at the counter of the OOM killer
};

// A child's program, arguments, environment and descriptors. They are prepared before the fork,
// because only system calls are safe between fork and exec.
typedef struct child_setup {
    char variable[512];
    char **environment;
    int keep[6], keep_count; // descriptors that the child inherits
    int out_fd, null_fd;
    bool dies; // with the launcher
} child_setup;

static status fail_system(const char *what)
{
    return fail(errno == ENOMEM || errno == EAGAIN ? ST_NO_MEMORY : ST_IO,
                "cannot start local ranks: %s: %s%s", what, strerror(errno),
                host_limit_remedy(errno));
}

static void child(const child_setup *b, const launch_local_config *c) __attribute__((noreturn));
static void child(const child_setup *b, const launch_local_config *c)
{
    (void)setpgid(0, 0);
    if (b->dies) (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    bool is_ok = dup2(b->null_fd, 0) == 0 && dup2(b->out_fd, 1) == 1 && dup2(b->out_fd, 2) == 2;
    for (int i = 0; i < b->keep_count; i++) {
        is_ok = is_ok && fcntl(b->keep[i], F_SETFD, 0) == 0;
    }
    if (is_ok) (void)execve(c->program, c->argv, b->environment);
    static const char message[] = "error: cannot start this program again as a rank\n";
    const ssize_t n = write(2, message, sizeof(message) - 1);
    (void)n;
    _exit(4);
}

// Puts our variable in front of the environment.
static status set_environment(child_setup *b, const launch_local_config *c)
{
    size_t count = 0, kept = 1;
    while (c->environment[count] != NULL) count++;
    b->environment = calloc(count + 2, sizeof(*b->environment));
    if (b->environment == NULL) return fail(ST_NO_MEMORY, "no memory for an environment");
    b->environment[0] = b->variable;
    for (size_t i = 0; i < count; i++) {
        if (strncmp(c->environment[i], "TRIREME_LAUNCH=", 15) == 0) continue;
        b->environment[kept++] = c->environment[i];
    }
    return ST_OK;
}

static void keep(child_setup *b, int fd)
{
    if (fd >= 0) b->keep[b->keep_count++] = fd;
}

// Makes the folder of the logs and its parent, which were removed under the run.
static void log_folder_make(const local *l)
{
    char path[LAUNCH_PATH_BYTES];
    (void)snprintf(path, sizeof(path), "%s", l->config->log_folder);
    char *slash = strrchr(path, '/');
    if (slash != NULL && slash != path) {
        *slash = '\0';
        (void)mkdir(path, 0777);
    }
    (void)mkdir(l->config->log_folder, 0777);
}

status launch_log_open(const local *l, int rank, int *fd)
{
    static const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY;
    char path[LAUNCH_PATH_BYTES];
    launch_log_path(l->config, rank, path);
    *fd = open(path, flags, 0666);
    if (*fd < 0 && errno == ENOENT && l->is_live) {
        log_folder_make(l);
        *fd = open(path, flags, 0666);
    }
    if (*fd >= 0) return ST_OK;
    const int why = errno;
    // A full or lost disk costs the log, but neither a rank nor the run.
    if (l->is_live && why != EMFILE && why != ENFILE) *fd = fcntl(l->null_fd, F_DUPFD_CLOEXEC, 3);
    if (*fd >= 0) return ST_OK;
    return fail(ST_IO, "%s: open for writing failed: %s%s", path, strerror(why),
                host_limit_remedy(why));
}

status launch_start_rank(local *l, int rank)
{
    child_setup b = {.null_fd = l->null_fd, .out_fd = -1, .dies = l->ranks_die};
    int key_fd = -1, log_fd = -1;
    status st = ST_OK;
    int post[2] = {-1, -1};
    const int listen_fd = rank == 0 && !l->is_live ? l->listen_fd : -1;
    TRY_TO(done, set_environment(&b, l->config));
    TRY_TO(done, fault_point("launch.start"));
    if (!l->is_live) TRY_TO(done, control_key_pipe(l->key, &key_fd));
    TRY_TO(done, launch_log_open(l, rank, &log_fd));
    b.out_fd = rank == 0 && !l->is_live ? l->pipe_in : log_fd;
    if (l->is_live) {
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, post) != 0) {
            st = fail_system("socketpair");
            goto done;
        }
        keep(&b, post[1]);
    } else {
        keep(&b, key_fd);
        keep(&b, l->config->control_block_fd);
        keep(&b, l->liveness_out);
        keep(&b, listen_fd);
    }
    (void)snprintf(b.variable, sizeof(b.variable), "TRIREME_LAUNCH=%d %d %llx %d %d %d %d %s", rank,
                   l->config->ranks, (unsigned long long)l->job, key_fd,
                   l->config->control_block_fd, l->liveness_out, listen_fd, l->address);
    if (l->is_live)
        (void)snprintf(b.variable, sizeof(b.variable), "TRIREME_LAUNCH=post %d", post[1]);
    const pid_t pid = fork();
    if (pid == 0) child(&b, l->config);
    if (pid < 0) {
        st = fail_system("fork");
        goto done;
    }
    local_rank *r = &l->ranks[rank];
    r->pid = pid;
    r->is_alive = true;
    l->alive++;
    (void)setpgid(pid, pid); // the child does the same; the first call counts
    r->pidfd = (int)syscall(SYS_pidfd_open, pid, 0U); // -1: run_once asks without it
    r->post = post[0];
    post[0] = -1;
done:
    launch_close(&key_fd);
    launch_close(&post[0]);
    launch_close(&post[1]);
    if (rank == 0 && !l->is_live) {
        l->log_fd = log_fd;
    } else if (log_fd >= 0) {
        (void)close(log_fd);
    }
    free(b.environment);
    return st;
}

// ---- ended ranks --------------------------------------------------------------------------------
void launch_signal_rank(local *l, int rank, int number)
{
    local_rank *r = &l->ranks[rank];
    if (!r->is_alive) return;
    r->sent |= UINT64_C(1) << number;
    // Signals go through the descriptor if there is one. Otherwise the pid is still valid, because
    // the process has not been waited for.
    if (r->pidfd < 0 || syscall(SYS_pidfd_send_signal, r->pidfd, number, NULL, 0U) != 0) {
        (void)kill(r->pid, number);
    }
}

void launch_signal_all(local *l, int number)
{
    for (int r = 0; r < l->count; r++) launch_signal_rank(l, r, number);
}

// Ranks how much an end says about the cause: a signal that we did not send, then an own error,
// then a lost peer. An orderly end says nothing (0).
static int severity(const local_rank *r)
{
    if (r->is_alive || r->was_ended) return 0;
    if (r->ended_by != 0) return 3;
    if (r->exit_code == 0 || r->exit_code == 75) return 0;
    return r->exit_code == 7 ? 1 : 2;
}

void launch_end_rank(local *l, int rank, int64_t now)
{
    local_rank *r = &l->ranks[rank];
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)r->pid, &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0) return;
    r->is_alive = false;
    l->alive--;
    r->ended_at = now;
    if (info.si_code == CLD_EXITED) {
        r->exit_code = info.si_status;
    } else {
        r->ended_by = info.si_status;
        r->was_ended = (r->sent >> r->ended_by & 1) != 0;
    }
    if (r->pidfd >= 0) (void)close(r->pidfd);
    r->pidfd = -1;
    if (r->ended_by == SIGKILL && !r->was_ended) r->by_oom = launch_oom_find(l);
    if (severity(r) > 0 && (l->first < 0 || severity(r) > severity(&l->ranks[l->first]))) {
        l->first = rank;
    }
    if (severity(r) > 0 && l->failed_at == 0) {
        l->failed_at = now;
        l->end_at = now + l->grace_ns;
        const ssize_t n = write(l->liveness_in, "", 1); // tells ranks that have not joined yet
        (void)n;
    }
    if (l->config->on_end != NULL) {
        char said[256];
        launch_say_end(l, rank, said, sizeof(said));
        l->config->on_end(l->config->context, rank, said);
    }
}

void launch_forward_signals(local *l)
{
    struct signalfd_siginfo info;
    while (read(l->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGINT && l->is_asked) {
            l->is_interrupted = true;
            launch_signal_all(l, SIGKILL);
        } else {
            launch_signal_all(l, (int)info.ssi_signo);
        }
        l->is_asked = true;
    }
}

bool launch_is_stopped(const local_rank *r)
{
    siginfo_t info = {0};
    return r->is_alive && waitid(P_PID, (id_t)r->pid, &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid != 0;
}

// If all ranks are stopped, none is left to say so. A job that was stopped as a whole, with this
// process, goes on: this process did not look while it was stopped itself.
static void all_stopped(local *l, int64_t now)
{
    int stopped = 0;
    for (int i = 0; i < l->config->ranks; i++) stopped += launch_is_stopped(&l->ranks[i]);
    const bool is_new = l->all_stopped_at == 0 || now - l->looked_at > stopped_ns;
    l->looked_at = now;
    if (stopped == 0 || stopped < l->alive) {
        l->all_stopped_at = 0;
    } else if (is_new) {
        l->all_stopped_at = now;
    } else if (now - l->all_stopped_at >= stopped_ns) {
        l->failed_at = now;
        l->end_at = now + l->grace_ns;
    }
}

// After a failure: ends the ranks that SIGSTOP holds, once the others have ended. Those may need up
// to stopped_ns to see for themselves that a rank is stopped, and should not see it die instead.
static void end_stopped(local *l, int64_t now)
{
    int stopped = 0;
    if (l->failed_at == 0) all_stopped(l, now);
    if (l->failed_at == 0) return;
    for (int i = 0; i < l->config->ranks; i++) stopped += launch_is_stopped(&l->ranks[i]);
    if (stopped == 0 || (stopped < l->alive && now - l->failed_at < stopped_ns)) return;
    for (int i = 0; i < l->config->ranks; i++) {
        if (!launch_is_stopped(&l->ranks[i])) continue;
        l->ranks[i].was_stopped = l->ranks[i].was_forced = true;
        launch_signal_rank(l, i, SIGKILL);
    }
}

// Ends the remaining ranks after a failure: grace time, SIGTERM, SIGKILL.
static void escalate(local *l, int64_t now)
{
    if (l->end_at == 0 || now < l->end_at) return;
    l->last_signal = l->last_signal == 0 ? SIGTERM : SIGKILL;
    for (int r = 0; r < l->config->ranks; r++) {
        if (l->ranks[r].is_alive) l->ranks[r].was_forced = true;
    }
    launch_signal_all(l, l->last_signal);
    l->end_at = now + min_i64(term_ns, l->grace_ns);
}

// Longest time for which run_once may sleep.
static int sleep_ms(const local *l)
{
    int64_t ms = IDLE_MS;
    for (int r = 0; r < l->config->ranks; r++) {
        if (l->ranks[r].is_alive && l->ranks[r].pidfd < 0) ms = LOOK_MS;
    }
    if (l->end_at == 0) return (int)ms;
    const int64_t left_ms = max_i64(l->end_at - launch_now(l), 0) / 1000000 + 1;
    return (int)min_i64(ms, min_i64(left_ms, STOPPED_MS));
}

static void run_once(local *l)
{
    enum { SIGNALS, OUTPUT, CONSOLE, FIXED };
    struct pollfd polls[FIXED + LAUNCH_LOCAL_MAX];
    const int ranks = l->config->ranks;
    polls[SIGNALS] = (struct pollfd){.fd = l->signal_fd, .events = POLLIN};
    polls[OUTPUT] = (struct pollfd){.fd = l->pipe_out, .events = POLLIN};
    polls[CONSOLE] = (struct pollfd){.fd = launch_output_is_waiting(l) ? l->config->console_fd : -1,
                                     .events = POLLOUT};
    for (int r = 0; r < ranks; r++) {
        polls[FIXED + r] = (struct pollfd){.fd = l->ranks[r].pidfd, .events = POLLIN};
    }
    // poll refuses more entries than `ulimit -n`. Then this process looks at all of them.
    const bool is_blind = poll(polls, (nfds_t)(FIXED + ranks), sleep_ms(l)) < 0 && errno != EINTR;
    if (is_blind) (void)usleep(LOOK_MS * 1000);
    const int64_t now = launch_now(l);
    for (int r = 0; r < ranks; r++) {
        if (!l->ranks[r].is_alive) continue;
        if (is_blind || l->ranks[r].pidfd < 0 || polls[FIXED + r].revents != 0)
            launch_end_rank(l, r, now);
    }
    if (is_blind || polls[SIGNALS].revents != 0) launch_forward_signals(l);
    if (l->pipe_out >= 0 && (is_blind || polls[OUTPUT].revents != 0)) launch_output_read(l);
    if (is_blind || polls[CONSOLE].revents != 0) launch_output_write(l);
    end_stopped(l, now);
    launch_oom_look(l, now);
    escalate(l, now);
}

// ---- beginning and end --------------------------------------------------------------------------
status launch_prepare(local *l)
{
    const launch_local_config *c = l->config;
    int ends[2];
    uint64_t name[2];
    char bound[CONTROL_ADDRESS_BYTES];
    TRY(control_key_create(c->h, &l->key));
    TRY(c->h->api->random_fill(c->h, name, sizeof(name)));
    l->job = c->job != 0 ? c->job : name[0] | 1;
    (void)snprintf(l->address, sizeof(l->address), "unix:@trireme-%016llx%016llx",
                   (unsigned long long)name[0], (unsigned long long)name[1]);
    TRY(control_listen(l->address, false, &l->listen_fd, bound));
    if (pipe2(ends, O_CLOEXEC) != 0) return fail_system("pipe");
    l->liveness_out = ends[0];
    l->liveness_in = ends[1];
    if (pipe2(ends, O_CLOEXEC) != 0) return fail_system("pipe");
    l->pipe_out = ends[0];
    l->pipe_in = ends[1];
    if (fcntl(l->pipe_out, F_SETFL, O_NONBLOCK) != 0) return fail_system("fcntl");
    l->null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (l->null_fd < 0) return fail_system("/dev/null");
    sigset_t set;
    struct sigaction hang_up;
    launch_signals(&set);
    // nohup ignores it on purpose, but a blocked signal arrives even if it is ignored.
    if (sigaction(SIGHUP, NULL, &hang_up) == 0 && hang_up.sa_handler == SIG_IGN) {
        (void)sigdelset(&set, SIGHUP);
    }
    if (pthread_sigmask(SIG_BLOCK, &set, &l->mask_before) != 0) return fail_system("sigmask");
    l->is_masked = true;
    l->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return l->signal_fd < 0 ? fail_system("signalfd") : ST_OK;
}

void launch_close(int *fd)
{
    if (*fd >= 0) (void)close(*fd);
    *fd = -1;
}

void launch_release(local *l)
{
    int *fds[] = {&l->listen_fd, &l->liveness_out, &l->liveness_in, &l->pipe_out,
                  &l->pipe_in,   &l->null_fd,      &l->log_fd,      &l->signal_fd};
    for (int64_t i = 0; i < COUNT_OF(fds); i++) launch_close(fds[i]);
    if (l->is_masked) (void)pthread_sigmask(SIG_SETMASK, &l->mask_before, NULL);
    (void)sigaction(SIGPIPE, &l->pipe_before, NULL);
    control_key_destroy(l->key);
    free(l->queue);
}

status launch_local(const launch_local_config *config, launch_result *out)
{
    ASSERT(config->ranks >= 1 && config->ranks <= LAUNCH_LOCAL_MAX);
    local *l = calloc(1, sizeof(*l));
    if (l == NULL) return fail(ST_NO_MEMORY, "no memory to start %d ranks", config->ranks);
    l->config = config;
    l->grace_ns = config->grace_ns > 0 ? config->grace_ns : INT64_C(10000000000);
    l->first = -1;
    l->listen_fd = l->liveness_out = l->liveness_in = l->pipe_out = l->pipe_in = l->null_fd = -1;
    l->log_fd = l->signal_fd = -1;
    l->count = config->ranks;
    for (int r = 0; r < config->ranks; r++) l->ranks[r].pidfd = l->ranks[r].post = -1;
    launch_oom_look(l, launch_now(l));
    // A console that was closed (`| head`) ends neither this process nor the job.
    const struct sigaction ignored = {.sa_handler = SIG_IGN};
    (void)sigaction(SIGPIPE, &ignored, &l->pipe_before);
    status st = launch_prepare(l);
    for (int r = 0; r < config->ranks && st == ST_OK; r++) st = launch_start_rank(l, r);
    error_record cause;
    error_take(&cause);
    // From here on only the ranks hold these descriptors, so that this process notices when they
    // close.
    launch_close(&l->listen_fd);
    launch_close(&l->liveness_out);
    launch_close(&l->pipe_in);
    if (st != ST_OK) launch_signal_all(l, SIGKILL);
    while (l->alive > 0) run_once(l);
    launch_output_end(l);
    if (st == ST_OK) launch_tell(l, out);
    launch_release(l);
    free(l);
    return st == ST_OK ? ST_OK : error_put(&cause);
}
