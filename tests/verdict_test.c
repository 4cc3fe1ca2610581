// Tests that the right verdict falls on the right rank. This program starts itself as two to four
// ranks (launch, control, comm and cli's join, as `train` does). The ranks communicate until one of
// them is killed, stopped, spins, loses a message or swaps two operations. All other ranks must
// report which rank it was and why. Whichever process is killed at whatever time, no process and no
// shared memory may be left behind.
//
// TRIALS=200 and KILLS=500 give the long form (verdict_night.c). FATE=0 only kills, and so on for
// the other fates. FIRST=7 begins with trial 7, to repeat one. The test prints the time from the
// fault to the report on the last surviving rank; it never asserts times.
#include "cli/train/ranks.h"

#include "base/fault.h"
#include "base/rng.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#ifndef VERDICT_TRIALS
#    define VERDICT_TRIALS 12
#    define VERDICT_KILLS  12
#endif
enum { RANKS_MAX = 4, COUNT = 40000, STEPS_MAX = 20000, TEXT = 1024 };
extern char **environ;

typedef enum fate { KILLED, STOPPED, BUSY, DROPPED, SWAPPED, CROSSED, FATES, NO_FATE } fate;
static const char *const fate_names[FATES] = {"kill -9",         "SIGSTOP",       "busy loop",
                                              "dropped message", "swapped order", "crossed groups"};

// Memory that the launcher, the ranks and this test share.
typedef struct page {
    int ranks, victim;
    fate what;
    int64_t delay_us; // time from the victim's first step
    int64_t begun_ns; // time of the fault
    int has_happened; // set by the victim's main thread
    int32_t pids[RANKS_MAX];
    struct {
        int64_t known_ns; // time at which an operation ended with the text below; 0: none did
        status st;
        char text[TEXT];
    } said[RANKS_MAX];
    launch_result result;
} page;
static char page_path[64];

static int64_t now_ns(void)
{
    return host_real()->api->monotonic_ns(host_real());
}

static page *page_map(int flags)
{
    const int fd = open(page_path, O_RDWR | O_CLOEXEC | flags, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(page)) != 0) abort();
    page *p = mmap(NULL, sizeof(*p), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) abort();
    (void)close(fd);
    return p;
}

// ---- a rank -------------------------------------------------------------------------------------
static void *fate_main(void *context)
{
    page *p = context;
    (void)usleep((useconds_t)p->delay_us);
    __atomic_store_n(&p->begun_ns, now_ns(), __ATOMIC_RELEASE);
    if (p->what == KILLED) (void)kill(getpid(), SIGKILL);
    if (p->what == STOPPED) (void)kill(getpid(), SIGSTOP);
    if (p->what == DROPPED && fault_arm("comm.shm.send=1") != ST_OK) abort();
    __atomic_store_n(&p->has_happened, 1, __ATOMIC_RELEASE);
    return NULL;
}

static status reduce(comm_group *g, float *x, const char *algorithm, const char *tensor)
{
    const comm_item item = {.in = x, .out = x, .count = COUNT};
    const comm_args a = {.op = COLLECTIVE_ALL_REDUCE,
                         .type = DTYPE_F32,
                         .reduction = REDUCTION_MAX,
                         .items = &item,
                         .item_count = 1,
                         .algorithm = algorithm,
                         .tensor = tensor,
                         .site = "verdict_test.c",
                         .step = -1};
    return comm_run(g, &a);
}

// Runs two operations in place and two by messages, of two groups; the victim's fate strikes in
// between.
static status one_step(page *p, int rank, comm_group *const g[2], float *x)
{
    const bool hit = rank == p->victim && __atomic_load_n(&p->has_happened, __ATOMIC_ACQUIRE) != 0;
    volatile int forever = 1;
    while (hit && p->what == BUSY && forever) {
    }
    const int swap = hit && p->what == SWAPPED, cross = hit && p->what == CROSSED;
    TRY(reduce(g[0], x, NULL, swap ? "second" : "first"));
    TRY(reduce(g[0], x, NULL, swap ? "first" : "second"));
    TRY(reduce(g[cross], x, cross ? "ring" : NULL, cross ? "fourth" : "third"));
    return reduce(g[1 - cross], x, cross ? NULL : "ring", cross ? "third" : "fourth");
}

static status steps(page *p, cli_ranks *k, int rank)
{
    comm *c = cli_ranks_comm(k);
    comm_group *g[2] = {comm_world(c), NULL};
    // A rank is stuck after half a second and three steps of so long, for which a busy machine is
    // enough. So they are short only where that is what ends the job.
    const bool is_seen = p->what == KILLED || p->what == STOPPED || p->what == NO_FATE;
    train_progress progress = {.doing = "talking",
                               .step_ns = is_seen ? INT64_C(10000000000) : INT64_C(10000000)};
    float *x = calloc(COUNT, sizeof(*x));
    if (x == NULL) return fail_at(__FILE__, __LINE__, ST_NO_MEMORY, "no memory");
    pthread_t thread;
    status st = comm_split(c, 0, "second", &g[1]);
    const bool is_victim = rank == p->victim && p->what < FATES;
    if (is_victim && pthread_create(&thread, NULL, fate_main, p) != 0) abort();
    for (progress.step = 1; st == ST_OK && progress.step < STEPS_MAX; progress.step++) {
        progress.counter++;
        cli_ranks_progress(k, &progress);
        st = one_step(p, rank, g, x);
        (void)usleep(1000); // stands for a device's work
    }
    p->said[rank].known_ns = now_ns();
    p->said[rank].st = st;
    (void)snprintf(p->said[rank].text, TEXT, "%.*s", TEXT - 1,
                   st != ST_OK ? error_last()->text : "");
    if (is_victim) (void)pthread_join(thread, NULL);
    free(x);
    return st;
}

static int rank_main(void)
{
    page *p = page_map(0);
    cli_context cli;
    launch_place place;
    cli_ranks *k = NULL;
    run_config *r = NULL;
    config *c = NULL;
    char key[32];
    (void)snprintf(key, sizeof(key), "layout.dp=%d", p->ranks);
    const char *const keys[] = {key, "model.preset=gpt2-124m", "data.train=none"}; // both unused
    status st = cli_context_init(&cli, stdout, stderr);
    if (st == ST_OK) st = cli_ranks_place(&place);
    if (st == ST_OK) st = arena_new(cli.a, 1, &r);
    if (st == ST_OK) st = run_config_load(cli.h, cli.a, NULL, keys, COUNT_OF(keys), r, &c);
    if (st == ST_OK) {
        __atomic_store_n(&p->pids[place.rank], (int32_t)getpid(), __ATOMIC_RELEASE);
        st = cli_ranks_join(&cli, r, NULL, &place, &k);
    }
    if (st == ST_OK) st = steps(p, k, place.rank);
    if (st != ST_OK) (void)dprintf(1, "%s\n", error_last()->text);
    cli_ranks_leave(k, st);
    cli_context_deinit(&cli);
    return status_exit_code(st);
}

// ---- a launcher ---------------------------------------------------------------------------------
static void launcher_main(page *p) __attribute__((noreturn));
static void launcher_main(page *p)
{
    char program[] = "verdict_test",
         rank[] = "rank", *const argv[] = {program, rank, page_path, NULL};
    char logs[80];
    comm_control_block *control_block = NULL;
    (void)snprintf(logs, sizeof(logs), "%s.logs", page_path);
    if (comm_control_block_create(p->ranks, 77, 0, &control_block) != ST_OK) _exit(1);
    const launch_local_config c = {.h = host_real(),
                                   .ranks = p->ranks,
                                   .program = "/proc/self/exe",
                                   .argv = argv,
                                   .environment = environ,
                                   .job = 77,
                                   .log_folder = logs,
                                   .console_fd = -1,
                                   .control_block_fd = comm_control_block_fd(control_block),
                                   .grace_ns = 400000000};
    _exit(launch_local(&c, &p->result) == ST_OK ? 0 : 1);
}

// Starts a launcher as a separate process, so that it can be killed, too.
static pid_t start(page *p, int ranks, int victim, fate what, int64_t delay_us)
{
    memset(p, 0, sizeof(*p));
    p->ranks = ranks;
    p->victim = victim;
    p->what = what;
    p->delay_us = delay_us;
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) launcher_main(p);
    assert_true(pid > 0);
    return pid;
}

// Checks that all processes that this one started, directly or indirectly, have ended. Orphans
// become children of this process.
static void nobody_is_left(pid_t launcher)
{
    (void)launcher;
    for (int i = 0; i < 3000; i++) {
        while (waitpid(-1, NULL, WNOHANG) > 0) {
        }
        if (waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD) return;
        (void)usleep(10000);
    }
    fail_msg("a process is still there 30 s after its launcher was to end");
}

// ---- shared memory of this machine that is ours alone -------------------------------------------
static bool is_apart; // in own namespaces, where everything in shared memory belongs to these jobs

static void apart(void)
{
    is_apart = unshare(CLONE_NEWNS | CLONE_NEWIPC) == 0 &&
               mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
               mount("none", "/dev/shm", "tmpfs", 0, NULL) == 0;
    if (!is_apart) printf("skipped: shared memory left behind is not looked for: not root\n");
}

static int shared_count(void)
{
    int count = -3; // ".", ".." and the table's header
    DIR *d = opendir("/dev/shm");
    FILE *f = fopen("/proc/sysvipc/shm", "r");
    char line[512];
    assert_true(d != NULL && f != NULL);
    while (readdir(d) != NULL) count++;
    while (fgets(line, sizeof(line), f) != NULL) count++;
    (void)closedir(d);
    (void)fclose(f);
    return count;
}

// ---- verdicts -----------------------------------------------------------------------------------
// True if the output contains "BEFORE V AFTER" followed, at any distance, by `expected`.
static bool says(const page *p, int rank, const char *before, const char *after,
                 const char *expected)
{
    char begin[48];
    (void)snprintf(begin, sizeof(begin), "%s%d%s", before, p->victim, after);
    const char *at = strstr(p->said[rank].text, begin);
    return at != NULL && strstr(at, expected) != NULL;
}

static bool is_right(const page *p, int rank)
{
    const char *said = p->said[rank].text;
    switch (p->what) {
    case KILLED:
        return says(p, rank, "rank ", " (", "died by signal 9") ||
               says(p, rank, "rank ", " (", "is dead");
    case STOPPED:
        return says(p, rank, "rank ", " (", "is stopped");
    case BUSY:
        return says(p, rank, "rank ", " (", "is stuck");
    case DROPPED:
        return says(p, rank, "from rank ", " to", "was lost") ||
               says(p, rank, " of rank ", ", which", "a message was lost");
    case SWAPPED:
        return p->said[rank].st == ST_DIVERGED && strstr(said, "differ in tensor") != NULL &&
               says(p, rank, "rank ", " has ", "in all_reduce");
    case CROSSED:
        return says(p, rank, "rank ", " (", " waits for ") && strstr(said, "deadlocked") != NULL;
    case FATES:
    case NO_FATE:
        break;
    }
    return false;
}

static bool is_survivor(const page *p, int rank)
{
    const bool speaks = p->what == DROPPED || p->what == SWAPPED || p->what == CROSSED;
    return rank != p->victim || speaks;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void percentiles_print(const char *what, double *ms, int count)
{
    if (count == 0) return;
    qsort(ms, (size_t)count, sizeof(*ms), compare);
    const int at[] = {count / 2, count * 95 / 100, count * 99 / 100};
    printf("%-16s %4d trials: %.1f ms in the median, %.1f at 95%%, %.1f at 99%%, %.1f at most\n",
           what, count, ms[at[0]], ms[min_i64(at[1], count - 1)], ms[min_i64(at[2], count - 1)],
           ms[count - 1]);
}

static int number_of(const char *name, int usual)
{
    const char *value = getenv(name);
    const int n = value != NULL ? (int)strtol(value, NULL, 10) : usual;
    assert_true(n >= 0 && n <= 100000);
    return n;
}

// FATE=0 selects kills, and so on; otherwise the fates take turns.
static fate fate_of(int number)
{
    const char *only = getenv("FATE");
    return (fate)((only != NULL ? (int)strtol(only, NULL, 10) : number) % FATES);
}

// Returns the milliseconds until the last survivor knew, or a negative value if one reported
// something else or did not report.
static double one_trial(page *p, int number)
{
    // Each rank of each number of ranks is the victim in turn: 9 cases.
    static const int turns[][2] = {{2, 0}, {3, 1}, {4, 2}, {2, 1}, {3, 2},
                                   {4, 3}, {3, 0}, {4, 0}, {4, 1}};
    const int *turn = turns[(getenv("FATE") != NULL ? number : number / FATES) % COUNT_OF(turns)];
    const int ranks = turn[0], victim = turn[1];
    const fate what = fate_of(number);
    const int64_t delay_us = 20000 + rng_word(9, 1, (uint64_t)number) % 80000;
    const pid_t launcher = start(p, ranks, victim, what, delay_us);
    nobody_is_left(launcher);
    double ms = 0;
    for (int r = 0; r < ranks; r++) {
        if (!is_survivor(p, r)) continue;
        if (!is_right(p, r)) {
            printf("trial %d, %s of rank %d of %d: rank %d says: %s; the launcher: %s\n", number,
                   fate_names[what], victim, ranks, r, p->said[r].text, p->result.text);
            return -1;
        }
        const double took = (double)(p->said[r].known_ns - p->begun_ns) / 1e6;
        if (took > ms) ms = took;
    }
    if (what == KILLED && (p->result.rank != victim || p->result.ended_by != SIGKILL)) {
        printf("trial %d: the launcher says: %s\n", number, p->result.text);
        return -1;
    }
    return ms;
}

static void verdicts_are_right(void **state)
{
    page *p = *state;
    const int trials = number_of("TRIALS", VERDICT_TRIALS), first = number_of("FIRST", 0);
    double *ms = calloc((size_t)trials * (FATES + 1), sizeof(*ms));
    int counts[FATES + 1] = {0}, right = 0;
    assert_non_null(ms);
    for (int i = 0; i < trials; i++) {
        const double took = one_trial(p, first + i);
        if (took < 0) continue;
        right++;
        const int f = (int)fate_of(first + i);
        ms[f * trials + counts[f]++] = took;
        ms[FATES * trials + counts[FATES]++] = took;
    }
    printf("%d of %d verdicts were right\n", right, trials);
    for (int f = 0; f < FATES; f++) percentiles_print(fate_names[f], ms + f * trials, counts[f]);
    percentiles_print("all", ms + FATES * trials, counts[FATES]);
    free(ms);
    const int few = trials < 10 ? 0 : 1;
    assert_true(trials - right <= (trials / 20 > few ? trials / 20 : few)); // at least 95%
    if (is_apart) assert_int_equal(shared_count(), 0);
}

// ---- leftovers ----------------------------------------------------------------------------------
// Kills any rank, the launcher or all of them, at any time from the start on.
static void kill_something(const page *p, pid_t launcher, uint32_t choice)
{
    const uint32_t whom = choice % (uint32_t)(p->ranks + 2);
    for (int r = 0; r < p->ranks; r++) {
        const int32_t pid = __atomic_load_n(&p->pids[r], __ATOMIC_ACQUIRE);
        const bool is_meant = whom == (uint32_t)r || whom == (uint32_t)p->ranks;
        if (pid > 0 && is_meant) (void)kill(pid, SIGKILL);
    }
    // If the chosen rank has not started yet, no other event would end the job.
    const bool is_there = whom >= (uint32_t)p->ranks || p->pids[whom] > 0;
    if (whom >= (uint32_t)p->ranks || !is_there) (void)kill(launcher, SIGKILL);
}

static void nothing_is_left_behind(void **state)
{
    page *p = *state;
    const int kills = number_of("KILLS", VERDICT_KILLS);
    for (int i = 0; i < kills; i++) {
        const int ranks = 2 + i % 3;
        const pid_t launcher = start(p, ranks, 0, NO_FATE, 0);
        (void)usleep((useconds_t)(rng_word(9, 2, (uint64_t)i) % 200000));
        kill_something(p, launcher, rng_word(9, 3, (uint64_t)i));
        nobody_is_left(launcher);
        if (is_apart) assert_int_equal(shared_count(), 0);
    }
    printf("%d kills: no process%s is left\n", kills, is_apart ? " and no shared memory" : "");
}

static int set_up(void **state)
{
    char logs[80];
    (void)snprintf(page_path, sizeof(page_path), "/tmp/verdict-%d", (int)getpid());
    (void)snprintf(logs, sizeof(logs), "%s.logs", page_path);
    if (host_real()->api->path_mkdir(host_real(), logs) != ST_OK) return -1;
    *state = page_map(O_CREAT);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    apart();
    return 0;
}

static int tear_down(void **state)
{
    char path[128];
    for (int r = 0; r < RANKS_MAX; r++) {
        (void)snprintf(path, sizeof(path), "%s.logs/rank-%05d.log", page_path, r);
        (void)unlink(path);
    }
    (void)snprintf(path, sizeof(path), "%s.logs", page_path);
    (void)rmdir(path);
    (void)unlink(page_path);
    return munmap(*state, sizeof(page));
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "rank") == 0) {
        (void)snprintf(page_path, sizeof(page_path), "%s", argv[2]);
        return rank_main();
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verdicts_are_right),
        cmocka_unit_test(nothing_is_left_behind),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
