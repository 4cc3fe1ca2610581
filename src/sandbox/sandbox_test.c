// Commands that try to leave: each confinement and limit is shown by a command that meets it.
#include "sandbox/sandbox.h"

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const int64_t plenty_ns = INT64_C(100000000000); // also on a machine that does much else

typedef struct fixture {
    arena *a;
    char parent[64]; // of the scratch folders
    unsigned confined;
} fixture;

static int setup(void **state)
{
    static fixture f;
    assert_int_equal(arena_create("test", 1 << 28, &f.a), ST_OK);
    (void)snprintf(f.parent, sizeof(f.parent), "/tmp/trireme-sandbox-XXXXXX");
    assert_non_null(mkdtemp(f.parent));
    assert_int_equal(chmod(f.parent, 0755), 0);
    assert_int_equal(sandbox_probe(host_real(), f.a, &f.confined), ST_OK);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    assert_int_equal(rmdir(f->parent), 0); // every scratch folder has gone
    arena_destroy(f->a);
    return 0;
}

static void needs_confinement(const fixture *f)
{
    const unsigned needed = SANDBOX_WRITES | SANDBOX_NETWORK;
    if ((f->confined & needed) != needed) skip();
}

static sandbox_result one(const fixture *f, const char *command, sandbox_limits limits)
{
    if (limits.time_ns == 0) limits.time_ns = plenty_ns;
    const sandbox_spec spec = {.parent = f->parent, .limits = limits};
    const sandbox_job job = {.command = command};
    sandbox_result result = {.code = 0};
    assert_int_equal(sandbox_run(host_real(), f->a, &spec, &job, 1, &result), ST_OK);
    return result;
}

static void a_command_gets_files_and_input(void **state)
{
    const fixture *f = *state;
    needs_confinement(f);
    const sandbox_file given = {.name = "given.txt", .bytes = "a file\n", .count = 7};
    const sandbox_job job = {.command =
                                 "cat given.txt - && echo to-err >&2 && mkdir d && echo x > d/y "
                                 "&& cat d/y && exit 3",
                             .files = &given,
                             .file_count = 1,
                             .input = "the input\n",
                             .input_bytes = 10};
    const sandbox_spec spec = {.parent = f->parent, .limits = {.time_ns = plenty_ns}};
    sandbox_result r = {.code = 0};
    assert_int_equal(sandbox_run(host_real(), f->a, &spec, &job, 1, &r), ST_OK);
    assert_int_equal(r.end, SANDBOX_EXITED);
    assert_string_equal(r.out, "a file\nthe input\nx\n");
    assert_string_equal(r.err, "to-err\n");
    assert_int_equal(r.code, 3);
}

static void nothing_is_written_elsewhere(void **state)
{
    const fixture *f = *state;
    char command[2048];
    needs_confinement(f);
    // Anyone may write into the folder that holds the scratch folder, but not the command.
    assert_int_equal(chmod(f->parent, 0777), 0);
    char victim[128];
    (void)snprintf(victim, sizeof(victim), "%s/victim", f->parent);
    FILE *v = fopen(victim, "w");
    assert_non_null(v);
    (void)fputs("kept", v);
    (void)fclose(v);
    assert_int_equal(chmod(victim, 0666), 0);
    (void)snprintf(command, sizeof(command),
                   "echo x > %s/new; echo x > %s; rm %s; ln %s mine; mv %s stolen; mkdir %s/d; "
                   "echo x > mine2; cd /; echo x > %s; true",
                   f->parent, victim, victim, victim, victim, f->parent, victim);
    const sandbox_result r = one(f, command, (sandbox_limits){.time_ns = 0});
    assert_int_equal(r.code, 0);
    struct stat info;
    assert_int_equal(stat(victim, &info), 0);
    assert_int_equal(info.st_size, 4);
    assert_int_equal(info.st_nlink, 1);
    assert_int_equal(unlink(victim), 0);
    (void)chmod(f->parent, 0755);
}

static void there_is_no_network(void **state)
{
    const fixture *f = *state;
    needs_confinement(f);
    if (access("/bin/bash", X_OK) != 0) skip();
    const sandbox_result r = one(
        f, "/bin/bash -c 'exec 3<>/dev/tcp/127.0.0.1/1' 2>&1 | grep -o 'not permitted' | head -1",
        (sandbox_limits){.time_ns = 0});
    assert_string_equal(r.out, "not permitted\n");
}

static void time_ends(void **state)
{
    const fixture *f = *state;
    needs_confinement(f);
    const sandbox_limits limits = {.time_ns = 200000000};
    // A child that outlives the command's first process, and one that ignores signals.
    sandbox_result r = one(f, "trap '' TERM INT; (sleep 1000 &) ; sleep 1000", limits);
    assert_int_equal(r.end, SANDBOX_TIMED_OUT);
    r = one(f, "(sleep 1000 &) ; echo done", (sandbox_limits){.time_ns = 0});
    assert_int_equal(r.end, SANDBOX_EXITED);
    assert_string_equal(r.out, "done\n");
}

static void memory_and_output_end(void **state)
{
    const fixture *f = *state;
    needs_confinement(f);
    // 64 MiB hold a shell, but not a text of 512 MiB.
    sandbox_result r = one(f, "x=$(head -c 536870912 /dev/zero | tr '\\0' a); echo ${#x}",
                           (sandbox_limits){.memory_bytes = 64 << 20});
    assert_string_not_equal(r.out, "536870912\n");
    r = one(f,
            "head -c 100000 /dev/zero | tr '\\0' a; head -c 9000000 /dev/zero > big; ls -s big | "
            "wc -l",
            (sandbox_limits){.file_bytes = 1 << 20, .output_bytes = 1000});
    assert_int_equal(r.out_bytes, 1000);
    r = one(f, "exec head -c 9000000 /dev/zero > big", (sandbox_limits){.file_bytes = 1 << 20});
    assert_int_equal(r.end, SANDBOX_SIGNALED);
    assert_int_equal(r.code, SIGXFSZ);
}

static void processes_are_counted(void **state)
{
    const fixture *f = *state;
    if ((f->confined & SANDBOX_COUNT) == 0) skip();
    const sandbox_result r = one(f, "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 100 & done; echo all",
                                 (sandbox_limits){.processes = 5, .time_ns = plenty_ns});
    assert_string_not_equal(r.out, "all\n"); // the shell gives up
}

static void processes_outside_get_no_signal(void **state)
{
    const fixture *f = *state;
    char command[64];
    if ((f->confined & SANDBOX_PROCESSES) == 0) skip();
    (void)snprintf(command, sizeof(command), "kill -9 %d", (int)getpid());
    assert_int_not_equal(one(f, command, (sandbox_limits){.time_ns = 0}).code, 0);
}

static void deep_and_locked_folders_go(void **state)
{
    const fixture *f = *state;
    needs_confinement(f);
    const sandbox_result r =
        one(f,
            "i=0; while [ $i -lt 150 ]; do mkdir aaaaaaaaaa && cd aaaaaaaaaa || exit 1; "
            "i=$((i+1)); done; cd - >/dev/null; mkdir l; touch l/x; chmod 0 l; echo made",
            (sandbox_limits){.time_ns = 0});
    assert_int_equal(r.end, SANDBOX_EXITED); // teardown looks for what is left
}

static void many_at_once_keep_their_order(void **state)
{
    enum { JOBS = 12 };
    const fixture *f = *state;
    char commands[JOBS][64];
    sandbox_job jobs[JOBS];
    sandbox_result results[JOBS];
    needs_confinement(f);
    for (int i = 0; i < JOBS; i++) {
        (void)snprintf(commands[i], sizeof(commands[i]), "sleep 0.0%d; echo %d", i * 7 % 10, i);
        jobs[i] = (sandbox_job){.command = commands[i]};
    }
    const sandbox_spec spec = {.parent = f->parent, .limits = {.time_ns = plenty_ns}, .at_once = 4};
    assert_int_equal(sandbox_run(host_real(), f->a, &spec, jobs, JOBS, results), ST_OK);
    for (int i = 0; i < JOBS; i++) {
        assert_int_equal(results[i].end, SANDBOX_EXITED);
        assert_int_equal((int)strtol(results[i].out, NULL, 10), i);
    }
}

static void what_is_missing_is_said(void **state)
{
    const fixture *f = *state;
    text t = {.a = f->a};
    assert_int_equal(sandbox_missing(SANDBOX_ALL, &t), ST_OK);
    assert_int_equal(t.length, 0);
    assert_int_equal(sandbox_missing(SANDBOX_ALL & ~(unsigned)SANDBOX_COUNT, &t), ST_OK);
    assert_string_equal(t.bytes, "is not kept from starting any number of processes");
}

static void a_missing_parent_is_an_error(void **state)
{
    const fixture *f = *state;
    const sandbox_spec spec = {.parent = "/nonexistent"};
    const sandbox_job job = {.command = "true"};
    sandbox_result r;
    assert_int_equal(sandbox_run(host_real(), f->a, &spec, &job, 1, &r), ST_IO);
    error_clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_command_gets_files_and_input),
        cmocka_unit_test(nothing_is_written_elsewhere),
        cmocka_unit_test(there_is_no_network),
        cmocka_unit_test(time_ends),
        cmocka_unit_test(memory_and_output_end),
        cmocka_unit_test(processes_are_counted),
        cmocka_unit_test(processes_outside_get_no_signal),
        cmocka_unit_test(deep_and_locked_folders_go),
        cmocka_unit_test(many_at_once_keep_their_order),
        cmocka_unit_test(what_is_missing_is_said),
        cmocka_unit_test(a_missing_parent_is_an_error),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
