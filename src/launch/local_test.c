// Tests real processes: this program starts itself as four ranks. They join, swap and step, and are
// in turn killed, stopped, spun, refused and frozen together. The test checks for the right verdict
// on the right rank, the right exit code, and no process left behind.
#include "launch/launch.h"
#include "launch/local_internal.h"

#include "fixtures/base/test_watch.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    RANKS = 4,
    STEPS = 40,
    FATE_STEP = 8,
    WAIT_MS = 60000,
    FROZEN_US = 2500000,
    INTERRUPTED = 99
};
static char program[4096], folder[64];

// ---- a rank -------------------------------------------------------------------------------------
typedef struct rank {
    atomic_int counter, is_waiting, launcher_is_gone;
    _Atomic int64_t step;
    int number, victim;
    int64_t step_ns; // that it reports
} rank;
static volatile sig_atomic_t was_signalled;

static void on_signal(int number)
{
    (void)number;
    was_signalled = 1;
}

static void on_notice(void *context, const control_notice *n)
{
    (void)context;
    if (n->kind != CONTROL_NOTE_VERDICT) return;
    (void)dprintf(1, "verdict %s %d: %s\n", control_verdict_name(n->verdict), n->rank, n->text);
}

static void on_launcher_gone(void *context)
{
    rank *r = context;
    atomic_store(&r->launcher_is_gone, 1);
}

// In a collective the rank waits for the victim; otherwise for no rank.
static void report(void *context, control_report *out)
{
    rank *r = context;
    out->step = atomic_load(&r->step);
    out->counter = (uint64_t)atomic_load(&r->counter);
    out->step_ns = r->step_ns;
    if (atomic_load(&r->is_waiting) != 0 && r->victim >= 0 && r->number != r->victim) {
        out->edge_count = 1;
        out->edges[0] = (control_edge){.rank = r->victim, .group = 0, .operation = 1};
    }
}

static int apply_fate(const char *fate, rank *r, launch_job *j)
{
    if (strcmp(fate, "kill") == 0) (void)raise(SIGKILL);
    // Immediately: a sanitizer's report would keep it alive for a second.
    if (strcmp(fate, "crash") == 0) {
        (void)signal(SIGSEGV, SIG_DFL);
        (void)raise(SIGSEGV);
    }
    if (strcmp(fate, "stop") == 0) (void)raise(SIGSTOP);
    if (strcmp(fate, "exit") == 0) {
        (void)dprintf(1, "error[K010] web-0031.bin ends early\n");
        control_fail(j->c, ST_DATA, "web-0031.bin ends early");
        launch_leave(j);
        return 5;
    }
    while (strcmp(fate, "spin") == 0) (void)atomic_load(&r->counter);
    return 0;
}

static int run_steps(const char *fate, rank *r, launch_job *j)
{
    const bool is_endless = strcmp(fate, "signal") == 0;
    bool has_asked = false;
    for (int64_t step = 1; is_endless || step < STEPS; step++) {
        control_decision due[CONTROL_AGREEMENTS];
        if (step == FATE_STEP && r->number == r->victim) {
            const int code = apply_fate(fate, r, j);
            if (code != 0) return code;
        }
        if (step == 2) (void)dprintf(1, "running %lld\n", (long long)getpid());
        const bool must_stop = was_signalled != 0 || atomic_load(&r->launcher_is_gone) != 0;
        if (must_stop && !has_asked) control_request(j->c, CONTROL_AGREE_STOP, 0);
        has_asked = has_asked || must_stop;
        if (control_step(j->c, step, due) != ST_OK) return 7;
        if (due[CONTROL_AGREE_STOP].is_due) {
            (void)dprintf(1, "stopped before %lld\n", (long long)step);
            return 75;
        }
        atomic_store(&r->step, step);
        (void)usleep(2000);
        atomic_store(&r->is_waiting, 1);
        if (control_barrier(j->c) != ST_OK) return 7;
        atomic_store(&r->is_waiting, 0);
        atomic_fetch_add(&r->counter, 1);
    }
    return 0;
}

static const char *look(void *context, const char *name)
{
    (void)context;
    return getenv(name);
}

static int rank_main(const char *fate, int victim)
{
    static rank r;
    launch_place place;
    launch_job j = {0};
    launch_liveness *liveness = NULL;
    (void)signal(SIGTERM, on_signal);
    (void)signal(SIGINT, SIG_IGN); // a rank that is busy and does not react to the first one
    (void)signal(SIGPIPE, SIG_IGN);
    watch_start(100);
    if (launch_detect(look, NULL, &place) != ST_OK || place.ranks != RANKS) return 2;
    r.number = place.rank;
    r.victim = victim;
    // After half a second and three steps a rank is stuck, for which a busy machine is enough.
    r.step_ns = strcmp(fate, "spin") == 0 ? INT64_C(20000000) : INT64_C(10000000000);
    const bool is_odd = strcmp(fate, "config") == 0 && place.rank == victim;
    const control_fact fact = {CONTROL_CONFIG, "layout.tp", is_odd ? "2" : "4"};
    const launch_join_config config = {.h = host_real(),
                                       .place = &place,
                                       .facts = &fact,
                                       .fact_count = 1,
                                       .report = report,
                                       .on_notice = on_notice,
                                       .context = &r};
    const launch_liveness_config watched = {.on_end = on_launcher_gone, .context = &r};
    if (launch_liveness_start(place.liveness_fd, &watched, &liveness) != ST_OK) return 2;
    const status st = launch_join(&config, &j);
    if (st != ST_OK) {
        (void)dprintf(1, "error[%s] %s\n", status_code(st), error_last()->text);
        launch_liveness_stop(liveness);
        return status_exit_code(st);
    }
    int32_t mine = 100 + place.rank, all[RANKS] = {0};
    int code = control_swap(j.c, &mine, sizeof(mine), all) == ST_OK ? 0 : 7;
    for (int i = 0; i < RANKS && code == 0; i++) code = all[i] == 100 + i ? 0 : 1;
    if (code == 0) code = run_steps(fate, &r, &j);
    launch_leave(&j);
    launch_liveness_stop(liveness);
    (void)dprintf(1, "done %d\n", code);
    return code;
}

// ---- the tests ----------------------------------------------------------------------------------
static launch_local_config config_of(char **argv)
{
    return (launch_local_config){.h = host_real(),
                                 .ranks = RANKS,
                                 .program = program,
                                 .argv = argv,
                                 .environment = environ,
                                 .log_folder = folder,
                                 .console_fd = -1,
                                 .control_block_fd = -1,
                                 .grace_ns = 1000000000};
}

static void clear_logs(void)
{
    char path[128];
    for (int r = 0; r < RANKS; r++) {
        (void)snprintf(path, sizeof(path), "%s/rank-%05d.log", folder, r);
        (void)unlink(path);
    }
}

static launch_result launch(const char *fate, int victim)
{
    char number[16], fate_text[16];
    (void)snprintf(number, sizeof(number), "%d", victim);
    (void)snprintf(fate_text, sizeof(fate_text), "%s", fate);
    char *argv[] = {program, fate_text, number, NULL};
    launch_local_config c = config_of(argv);
    launch_result result;
    // Only a rank that spins has to be ended. The others must not be, until they have printed their
    // verdict.
    if (strcmp(fate, "spin") != 0) c.grace_ns = INT64_C(30000000000);
    clear_logs();
    assert_int_equal(launch_local(&c, &result), ST_OK);
    // No child is left, neither running nor as a zombie.
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    return result;
}

static void read_log(int r, char out[4096])
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/rank-%05d.log", folder, r);
    FILE *f = fopen(path, "r");
    size_t n = 0;
    if (f != NULL) {
        n = fread(out, 1, 4095, f);
        (void)fclose(f);
    }
    out[n] = '\0';
}

static void check_verdict(const char *verdict, int victim)
{
    char wanted[64], log[4096];
    (void)snprintf(wanted, sizeof(wanted), "verdict %s %d:", verdict, victim);
    for (int r = 0; r < RANKS; r++) {
        if (r == victim) continue;
        read_log(r, log);
        if (strstr(log, wanted) == NULL) print_message("rank %d, %s: %s\n", r, wanted, log);
        assert_non_null(strstr(log, wanted));
    }
}

static void test_all_well(void **state)
{
    (void)state;
    char log[4096];
    int console[2];
    assert_int_equal(pipe(console), 0);
    char fate[] = "none", number[] = "-1";
    char *argv[] = {program, fate, number, NULL};
    launch_local_config c = config_of(argv);
    c.console_fd = console[1];
    launch_result result;
    clear_logs();
    assert_int_equal(launch_local(&c, &result), ST_OK);
    assert_int_equal(result.exit_code, 0);
    assert_int_equal(result.rank, -1);
    assert_string_equal(result.text, "");
    for (int r = 0; r < RANKS; r++) {
        read_log(r, log);
        assert_non_null(strstr(log, "done 0"));
        assert_null(strstr(log, "verdict"));
    }
    // The console shows rank 0's output only.
    (void)close(console[1]);
    char shown[4096] = "";
    const ssize_t n = read(console[0], shown, sizeof(shown) - 1);
    assert_true(n > 0);
    (void)close(console[0]);
    read_log(0, log);
    assert_string_equal(shown, log);
}

static void test_killed(void **state)
{
    (void)state;
    for (int victim = 0; victim < RANKS; victim++) {
        const launch_result result = launch("kill", victim);
        assert_int_equal(result.exit_code, 7);
        assert_int_equal(result.rank, victim);
        assert_int_equal(result.ended_by, SIGKILL);
        check_verdict("dead", victim);
        assert_non_null(strstr(result.text, "died by signal 9 (SIGKILL)"));
    }
    const launch_result result = launch("crash", 1);
    assert_int_equal(result.rank, 1);
    check_verdict("dead", 1);
}

static void test_stopped(void **state)
{
    (void)state;
    for (int victim = 0; victim < RANKS; victim += 2) {
        const launch_result result = launch("stop", victim);
        assert_int_equal(result.exit_code, 7);
        check_verdict("stopped", victim);
        char wanted[64];
        (void)snprintf(wanted, sizeof(wanted), "rank %d did not end by itself", victim);
        assert_non_null(strstr(result.text, wanted));
    }
}

static void test_spins(void **state)
{
    (void)state;
    const launch_result result = launch("spin", 1);
    assert_int_equal(result.exit_code, 7);
    check_verdict("stuck", 1);
}

static void test_fails_by_itself(void **state)
{
    (void)state;
    const launch_result result = launch("exit", 2);
    assert_int_equal(result.exit_code, 5);
    assert_int_equal(result.rank, 2);
    assert_non_null(strstr(result.text, "ended with exit code 5"));
    assert_non_null(strstr(result.text, "error[K010] web-0031.bin ends early"));
}

static void test_config_differs(void **state)
{
    (void)state;
    const launch_result result = launch("config", 3);
    assert_int_equal(result.exit_code, 3);
    assert_non_null(
        strstr(result.text, "refused: layout.tp is 2 there and 4 on the other 3 ranks"));
}

// Waits until every rank's log has the text; gives up after WAIT_MS.
static bool logs_have(const char *message)
{
    char log[4096];
    for (int ms = 0; ms < WAIT_MS; ms += 10) {
        int count = 0;
        for (int r = 0; r < RANKS; r++) {
            read_log(r, log);
            count += strstr(log, message) != NULL;
        }
        if (count == RANKS) return true;
        (void)usleep(10000);
    }
    return false;
}

static void check_stopped_together(void)
{
    char first[4096], log[4096];
    read_log(0, first);
    const char *line = strstr(first, "stopped before ");
    assert_non_null(line);
    char wanted[64] = "";
    if (line != NULL)
        (void)snprintf(wanted, sizeof(wanted), "%.*s", (int)strcspn(line, "\n"), line);
    for (int r = 1; r < RANKS; r++) {
        read_log(r, log);
        if (strstr(log, wanted) == NULL) print_message("rank %d, %s: %s\n", r, wanted, log);
        assert_non_null(strstr(log, wanted));
    }
}

static pid_t fork_launcher(void)
{
    clear_logs();
    const pid_t pid = fork();
    if (pid == 0) {
        char fate[] = "signal", number[] = "-1";
        char *argv[] = {program, fate, number, NULL};
        const launch_local_config c = config_of(argv);
        launch_result result;
        const status st = launch_local(&c, &result);
        _exit(st != ST_OK ? 1 : result.is_interrupted ? INTERRUPTED : result.exit_code);
    }
    assert_true(pid > 0);
    assert_true(logs_have("running"));
    return pid;
}

// The launcher receives a stop signal and forwards it: all ranks stop before the same step.
static void test_signal(void **state)
{
    (void)state;
    const pid_t pid = fork_launcher();
    int how = 0;
    assert_int_equal(kill(pid, SIGTERM), 0);
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 75);
    check_stopped_together();
}

// The launcher is killed: the ranks stop by themselves, together, and no process remains.
static void test_launcher_killed(void **state)
{
    (void)state;
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
    const pid_t pid = fork_launcher();
    assert_int_equal(kill(pid, SIGKILL), 0);
    int ended = 0, stopped = 0, how = 0;
    for (int ms = 0; ms < WAIT_MS && ended < 1 + RANKS; ms += 10) {
        const pid_t child = waitpid(-1, &how, WNOHANG);
        if (child > 0) {
            ended++;
            stopped += WIFEXITED(how) && WEXITSTATUS(how) == 75;
        } else {
            (void)usleep(10000);
        }
    }
    assert_int_equal(ended, 1 + RANKS);
    assert_int_equal(stopped, RANKS);
    for (int r = 1; r < RANKS; r++) {
        char log[4096];
        read_log(r, log);
        assert_non_null(strstr(log, "done 75"));
    }
    (void)prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
}

// Reads the ranks' process numbers from their logs.
static void pids_read(pid_t pids[RANKS])
{
    for (int r = 0; r < RANKS; r++) {
        char log[4096];
        read_log(r, log);
        const char *at = strstr(log, "running ");
        assert_non_null(at);
        pids[r] = at != NULL ? (pid_t)strtol(at + strlen("running "), NULL, 10) : 0;
        assert_true(pids[r] > 1);
    }
}

// The launcher and all ranks are stopped for a while, as when a machine pauses. No rank is
// suspected, and all continue.
static void test_frozen(void **state)
{
    (void)state;
    pid_t all[RANKS + 1];
    int how = 0;
    all[RANKS] = fork_launcher();
    pids_read(all);
    for (int i = 0; i <= RANKS; i++) assert_int_equal(kill(all[i], SIGSTOP), 0);
    (void)usleep(FROZEN_US);
    for (int i = 0; i <= RANKS; i++) assert_int_equal(kill(all[i], SIGCONT), 0);
    (void)usleep(500000); // the failure detector has run, late
    assert_int_equal(kill(all[RANKS], SIGTERM), 0);
    assert_int_equal(waitpid(all[RANKS], &how, 0), all[RANKS]);
    for (int r = 0; r < RANKS; r++) {
        char log[4096];
        read_log(r, log);
        if (strstr(log, "verdict") != NULL) print_message("rank %d: %s\n", r, log);
        assert_null(strstr(log, "verdict"));
    }
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 75);
    check_stopped_together();
}

// Writes a file under a folder that stands for the root of the file system.
static void file_put(const char *root, const char *path, const char *content)
{
    char whole[512];
    (void)snprintf(whole, sizeof(whole), "%s%s", root, path);
    for (char *at = strchr(whole + strlen(root) + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
        *at = '\0';
        (void)mkdir(whole, 0700);
        *at = '/';
    }
    FILE *f = fopen(whole, "w");
    assert_non_null(f);
    if (f == NULL) return;
    (void)fputs(content, f);
    assert_int_equal(fclose(f), 0);
}

static void file_remove(const char *root, const char *path)
{
    char whole[512];
    (void)snprintf(whole, sizeof(whole), "%s%s", root, path);
    for (; strlen(whole) > strlen(root); *strrchr(whole, '/') = '\0') (void)remove(whole);
}

// The counter of the process's control group is preferred to that of the machine, in both versions.
static void test_oom_counter(void **state)
{
    (void)state;
    char root[128];
    static const char *const paths[] = {"/proc/vmstat", "/proc/self/cgroup",
                                        "/sys/fs/cgroup/a/b/memory.events",
                                        "/sys/fs/cgroup/memory/c/memory.oom_control"};
    (void)snprintf(root, sizeof(root), "%s/root", folder);
    assert_int_equal(mkdir(root, 0700), 0);
    assert_int_equal(launch_oom_kills(root), -1);
    file_put(root, paths[0], "nr_free_pages 5\noom_kill 7\n");
    assert_int_equal(launch_oom_kills(root), 7);
    file_put(root, paths[1], "8:pids:/\n4:memory:/c\n0::/a/b\n");
    assert_int_equal(launch_oom_kills(root), 7);
    file_put(root, paths[3], "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
    assert_int_equal(launch_oom_kills(root), 2);
    file_put(root, paths[2], "low 0\nmax 12\noom 3\noom_kill 4\noom_group_kill 0\n");
    assert_int_equal(launch_oom_kills(root), 4);
    for (int64_t i = COUNT_OF(paths) - 1; i >= 0; i--) file_remove(root, paths[i]);
    assert_int_equal(rmdir(root), 0);
}

// Two ^C: how many of them a rank sees does not matter, the job ends at once and says so.
static void test_interrupted(void **state)
{
    (void)state;
    const pid_t pid = fork_launcher();
    int how = 0;
    assert_int_equal(kill(pid, SIGINT), 0);
    for (int ms = 0; ms < WAIT_MS && waitpid(pid, &how, WNOHANG) == 0; ms += 10) {
        (void)kill(pid, SIGINT);
        (void)usleep(10000);
    }
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), INTERRUPTED);
}

static void test_cannot_start(void **state)
{
    (void)state;
    char path[] = "/nowhere/trireme";
    char *argv[] = {path, NULL};
    launch_local_config c = config_of(argv);
    launch_result result;
    clear_logs();
    c.program = path;
    assert_int_equal(launch_local(&c, &result), ST_OK);
    assert_int_equal(result.exit_code, 4);
    c.log_folder = "/nowhere";
    assert_int_equal(launch_local(&c, &result), ST_IO);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

int main(int argc, char **argv)
{
    if (argc == 3) return rank_main(argv[1], (int)strtol(argv[2], NULL, 10));
    const ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
    (void)snprintf(folder, sizeof(folder), "/tmp/trireme-launch-XXXXXX");
    if (n <= 0 || mkdtemp(folder) == NULL) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_well),        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_stopped),         cmocka_unit_test(test_spins),
        cmocka_unit_test(test_fails_by_itself), cmocka_unit_test(test_config_differs),
        cmocka_unit_test(test_signal),          cmocka_unit_test(test_launcher_killed),
        cmocka_unit_test(test_oom_counter),     cmocka_unit_test(test_interrupted),
        cmocka_unit_test(test_frozen),          cmocka_unit_test(test_cannot_start),
    };
    const int failed = cmocka_run_group_tests_name("launch/local", tests, NULL, NULL);
    clear_logs();
    (void)rmdir(folder);
    return failed;
}
