// Starts a run as a child process, finds the processes of its ranks, and injects faults.
#include "base/rng.h"
#include "cli/chaos/chaos.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const int64_t look_ns = 10000000;      // between two looks at the child
static const int64_t pause_ns = 300000000;    // shorter than the time after which a rank is lost
static const int64_t slow_ns = 2000000000;    // of a slow rank
static const int64_t slow_part_ns = 20000000; // it runs half of the time

static void sleep_ns(int64_t ns)
{
    const struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    (void)nanosleep(&t, NULL);
}

// ---- kinds of faults ----------------------------------------------------------------------------

static bool inject_kill(const chaos_target *target)
{
    return kill(target->process, SIGKILL) == 0;
}

static bool inject_stop(const chaos_target *target)
{
    return kill(target->process, SIGSTOP) == 0;
}

static bool inject_pause(const chaos_target *target)
{
    if (kill(target->process, SIGSTOP) != 0) return false;
    sleep_ns(pause_ns);
    (void)kill(target->process, SIGCONT);
    return true;
}

static bool inject_slow(const chaos_target *target)
{
    for (int64_t at = 0; at < slow_ns; at += 2 * slow_part_ns) {
        (void)kill(target->process, SIGSTOP);
        sleep_ns(slow_part_ns);
        if (kill(target->process, SIGCONT) != 0) return at > 0;
        sleep_ns(slow_part_ns);
    }
    return true;
}

const chaos_kind chaos_kinds[] = {
    {"kill", "ends a rank by SIGKILL", true, false, inject_kill},
    {"stop", "stops a rank by SIGSTOP for good", true, false, inject_stop},
    {"pause", "stops a rank for 0.3 s", false, false, inject_pause},
    {"slow", "lets a rank run half of the time for 2 s", false, false, inject_slow},
    {"flip", "flips a bit of a rank's weights or optimizer state", true, false, chaos_inject_flip},
    {"flip_weight", "flips a bit of a rank's weights", true, false, chaos_inject_flip_weight},
    {"flip_moment", "flips a bit of a rank's moments", true, false, chaos_inject_flip_moment},
    {"flip_gradient", "flips a bit in the memory of a rank's gradients", false, false,
     chaos_inject_flip_gradient},
    {"cut", "cuts the connections of a rank to the others", true, false, chaos_inject_cut},
    {"diskfull", "lets no file of rank 0 grow for 2 s", false, true, chaos_inject_diskfull},
    {"host", "ends the launcher of this host with its ranks, and starts it again", true, false,
     NULL},
    {NULL, NULL, false, false, NULL},
};

const chaos_kind *chaos_kind_find(const char *name)
{
    for (const chaos_kind *k = chaos_kinds; k->name != NULL; k++) {
        if (strcmp(k->name, name) == 0) return k;
    }
    return NULL;
}

status chaos_kind_names(arena *a, const char **out)
{
    text t = {.a = a};
    for (const chaos_kind *k = chaos_kinds; k->name != NULL; k++) {
        const char *before = k == chaos_kinds ? "" : k[1].name == NULL ? " and " : ", ";
        TRY(text_add(&t, "%s%s (%s)", before, k->name, k->about));
    }
    *out = t.bytes;
    return ST_OK;
}

// ---- the child ----------------------------------------------------------------------------------

static status child_start(char *const *arguments, const char *log, bool again, pid_t *out)
{
    const int fd = open(log, O_WRONLY | O_CREAT | (again ? O_APPEND : O_TRUNC) | O_CLOEXEC, 0666);
    if (fd < 0) return fail(ST_IO, "%s: open for writing failed: %s", log, strerror(errno));
    const pid_t pid = fork();
    if (pid == 0) {
        // A run without its `chaos` saves and ends.
        (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (dup2(fd, STDOUT_FILENO) >= 0 && dup2(fd, STDERR_FILENO) >= 0) {
            (void)execv("/proc/self/exe", arguments);
        }
        _exit(4);
    }
    const int error = errno;
    (void)close(fd);
    if (pid < 0) return fail(ST_NO_MEMORY, "cannot start the run: fork: %s", strerror(error));
    *out = pid;
    return ST_OK;
}

// The rank that TRIREME_LAUNCH in the process's environment names; -1: none.
static int64_t rank_of(pid_t process)
{
    static const char begin[] = "TRIREME_LAUNCH=";
    char path[64], bytes[4096];
    (void)snprintf(path, sizeof(path), "/proc/%d/environ", (int)process);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    const ssize_t n = read(fd, bytes, sizeof(bytes) - 1);
    (void)close(fd);
    if (n <= 0) return -1;
    bytes[n] = '\0';
    // The launcher puts it in front of the environment.
    if (strncmp(bytes, begin, sizeof(begin) - 1) != 0) return -1;
    return strtoll(bytes + sizeof(begin) - 1, NULL, 10);
}

// With resilience.mode = live the launcher writes who has which place. A process that is not alive
// has none.
static int ranks_read(const char *processes, pid_t ranks[CHAOS_RANKS_MAX])
{
    char line[64];
    int count = 0;
    FILE *f = fopen(processes, "re");
    while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
        int rank = -1;
        long pid = 0;
        if (sscanf(line, "%d %ld", &rank, &pid) != 2 || rank < 0 || rank >= CHAOS_RANKS_MAX)
            continue;
        if (pid <= 0 || kill((pid_t)pid, 0) != 0) continue;
        ranks[rank] = (pid_t)pid;
        count++;
    }
    if (f != NULL) (void)fclose(f);
    return count;
}

// Processes of the ranks, by rank; 0: none. Returns their number.
static int ranks_find(const chaos_target *run, pid_t ranks[CHAOS_RANKS_MAX])
{
    char path[64], bytes[16384];
    const pid_t launcher = run->process;
    int count = 0;
    memset(ranks, 0, CHAOS_RANKS_MAX * sizeof(*ranks));
    if (run->processes != NULL) return ranks_read(run->processes, ranks);
    (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)launcher, (int)launcher);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    const ssize_t n = read(fd, bytes, sizeof(bytes) - 1);
    (void)close(fd);
    if (n <= 0) return 0;
    bytes[n] = '\0';
    char *at = bytes;
    for (;;) {
        char *end = NULL;
        const long pid = strtol(at, &end, 10);
        if (end == at || pid <= 0) return count;
        at = end;
        const int64_t rank = rank_of((pid_t)pid);
        if (rank < 0 || rank >= CHAOS_RANKS_MAX) continue;
        ranks[rank] = (pid_t)pid;
        count++;
    }
}

// ---- the run ------------------------------------------------------------------------------------

// The n-th rank that is there; on several hosts they are not counted from 0.
static int64_t rank_any(const pid_t ranks[CHAOS_RANKS_MAX], uint64_t n)
{
    int64_t rank = 0;
    for (; rank < CHAOS_RANKS_MAX - 1; rank++) {
        if (ranks[rank] != 0 && n-- == 0) break;
    }
    return rank;
}

// Injects the fault into its rank of the run, whose launcher is the target's process. False: that
// rank is not there now.
static bool fault_inject(const chaos_target *run, const chaos_fault *f)
{
    pid_t ranks[CHAOS_RANKS_MAX];
    const int count = ranks_find(run, ranks);
    if (count == 0) return false;
    const int64_t any = f->kind->is_first ? 0 : rank_any(ranks, run->word % (uint64_t)count);
    const int64_t rank = f->rank >= 0 ? f->rank : any;
    if (rank >= CHAOS_RANKS_MAX || ranks[rank] == 0) return false;
    chaos_target target = *run;
    target.process = ranks[rank];
    target.rank = (int)rank;
    return f->kind->inject(&target);
}

static status child_wait(pid_t child, bool *has_ended, int *exit_code)
{
    int how = 0;
    const pid_t got = waitpid(child, &how, WNOHANG);
    if (got < 0 && errno != EINTR) return fail(ST_IO, "waitpid: %s", strerror(errno));
    *has_ended = got == child;
    if (got == child) *exit_code = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
    return ST_OK;
}

// Ends the launcher, with which its ranks die, and starts it again.
static status launcher_fail(const chaos_order *order, pid_t *child, bool *is_done)
{
    pid_t ranks[CHAOS_RANKS_MAX] = {0};
    int how = 0;
    *is_done = ranks_read(order->processes, ranks) > 0; // else it has not begun yet, or is not back
    if (!*is_done) return ST_OK;
    (void)kill(*child, SIGKILL);
    while (waitpid(*child, &how, 0) < 0 && errno == EINTR) {
    }
    return child_start(order->arguments, order->log, true, child);
}

status chaos_run(cli_context *cli, const chaos_order *order, chaos_injected *injected,
                 int *exit_code)
{
    const chaos_schedule *schedule = order->schedule;
    const host *h = cli->h;
    pid_t child = 0;
    bool has_ended = false;
    double begun_s = 0.0; // of the run's steps: a start may take long
    int64_t next = 0;
    *injected = (chaos_injected){0};
    // A ^C in the terminal reaches the run too, which saves and ends; this process waits for it.
    (void)signal(SIGINT, SIG_IGN);
    TRY(child_start(order->arguments, order->log, false, &child));
    const int64_t begin = h->api->monotonic_ns(h);
    while (!has_ended) {
        TRY(child_wait(child, &has_ended, exit_code));
        const double now_s = (double)(h->api->monotonic_ns(h) - begin) / 1e9;
        const bool is_due = next < schedule->count && now_s >= schedule->items[next].at_s;
        if (!has_ended && is_due) {
            const chaos_fault *f = &schedule->items[next];
            const uint64_t high = rng_word(order->seed, 2, (uint64_t)next);
            const chaos_target run = {.h = h,
                                      .process = child,
                                      .run_dir = order->run_dir,
                                      .processes = order->processes,
                                      .word =
                                          high << 32 | rng_word(order->seed, 3, (uint64_t)next)};
            bool is_done = false;
            if (f->kind->inject == NULL) {
                TRY(launcher_fail(order, &child, &is_done));
            } else {
                is_done = fault_inject(&run, f);
            }
            if (is_done) {
                injected->count++;
                injected->losses += f->kind->is_loss;
                next++;
            } else if (!chaos_has_stepped(&run)) {
                begun_s = now_s;
            } else if (now_s > fmax(f->at_s, begun_s) + 5.0) { // the rank does not come
                injected->skipped++;
                next++;
            }
        }
        if (!has_ended) h->api->sleep_ns(h, look_ns);
    }
    injected->skipped += schedule->count - next;
    return ST_OK;
}
