// Tests, as a table, what launchers leave in the environment, and host lists, including hostile
// ones.
#include "launch/launch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { VARIABLES_MAX = 14 };

typedef struct row {
    const char *name;
    const char *variables[VARIABLES_MAX]; // "NAME=value"
    status st;
    const char *launcher;
    int rank, ranks, local_rank, local_ranks;
    const char *address; // NULL: not compared
} row;

static const char *lookup(void *context, const char *name)
{
    const char *const *variables = context;
    const size_t length = strlen(name);
    for (int i = 0; i < VARIABLES_MAX && variables[i] != NULL; i++) {
        if (strncmp(variables[i], name, length) == 0 && variables[i][length] == '=') {
            return variables[i] + length + 1;
        }
    }
    return NULL;
}

static const row rows[] = {
    {"nothing", {NULL}, ST_OK, "none", 0, 1, 0, 1, ""},
    {"ours",
     {"TRIREME_LAUNCH=2 4 ab12 5 -1 6 -1 unix:@trireme-1", "RANK=1", "WORLD_SIZE=2"},
     ST_OK,
     "trireme",
     2,
     4,
     2,
     4,
     "unix:@trireme-1"},
    {"ours, damaged", {"TRIREME_LAUNCH=2 2 ab12 5 -1 6 -1 x"}, ST_CONFIG, "", 0, 0, 0, 0, NULL},
    {"torchrun-style",
     {"RANK=3", "WORLD_SIZE=8", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=n1",
      "MASTER_PORT=29500"},
     ST_OK,
     "torchrun",
     3,
     8,
     1,
     2,
     "n1:29500"},
    {"torchrun itself has its port",
     {"RANK=3", "WORLD_SIZE=8", "MASTER_ADDR=fe80::1", "MASTER_PORT=29500",
      "TORCHELASTIC_USE_AGENT_STORE=True"},
     ST_OK,
     "torchrun",
     3,
     8,
     -1,
     -1,
     "[fe80::1]:29501"},
    {"one process of one",
     {"RANK=0", "WORLD_SIZE=1", "LOCAL_RANK=0"},
     ST_OK,
     "none",
     0,
     1,
     0,
     1,
     ""},
    {"a rank beyond the world",
     {"RANK=8", "WORLD_SIZE=8", "MASTER_ADDR=n1", "MASTER_PORT=29500"},
     ST_CONFIG,
     "",
     0,
     0,
     0,
     0,
     NULL},
    {"no number",
     {"RANK=x", "WORLD_SIZE=8", "MASTER_ADDR=n1", "MASTER_PORT=29500"},
     ST_CONFIG,
     "",
     0,
     0,
     0,
     0,
     NULL},
    {"srun",
     {"SLURM_JOB_ID=77", "SLURM_STEP_ID=0", "SLURM_PROCID=5", "SLURM_NTASKS=6", "SLURM_LOCALID=1",
      "SLURM_NODEID=2", "SLURM_TASKS_PER_NODE=2(x3)", "SLURM_JOB_NODELIST=n[1-2,5]",
      "TRIREME_PORT=4000"},
     ST_OK,
     "slurm",
     5,
     6,
     1,
     2,
     "n1:4000"},
    {"sbatch without srun",
     {"SLURM_JOB_ID=77", "SLURM_PROCID=0", "SLURM_NTASKS=6", "SLURM_JOB_NODELIST=n[1-2,5]"},
     ST_OK,
     "none",
     0,
     1,
     0,
     1,
     ""},
    {"the batch step",
     {"SLURM_JOB_ID=77", "SLURM_STEP_ID=4294967291", "SLURM_PROCID=0", "SLURM_NTASKS=6",
      "SLURM_JOB_NODELIST=n[1-2,5]"},
     ST_OK,
     "none",
     0,
     1,
     0,
     1,
     ""},
    {"srun with a typo for a host list",
     {"SLURM_JOB_ID=77", "SLURM_STEP_ID=0", "SLURM_PROCID=5", "SLURM_NTASKS=6",
      "SLURM_JOB_NODELIST=n[1-99999999]"},
     ST_CONFIG,
     "",
     0,
     0,
     0,
     0,
     NULL},
    {"Open MPI on one host",
     {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=1",
      "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_NAMESPACE=123"},
     ST_OK,
     "openmpi",
     1,
     2,
     1,
     2,
     NULL},
    {"Open MPI on many",
     {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=1",
      "OMPI_COMM_WORLD_LOCAL_SIZE=2", "TRIREME_ADDRESS=n7:99"},
     ST_OK,
     "openmpi",
     1,
     4,
     1,
     2,
     "n7:99"},
    {"MPICH",
     {"PMI_RANK=1", "PMI_SIZE=4", "MPI_LOCALRANKID=0", "MPI_LOCALNRANKS=2"},
     ST_OK,
     "pmi",
     1,
     4,
     0,
     2,
     ""},
    {"an indexed job",
     {"JOB_COMPLETION_INDEX=3", "WORLD_SIZE=4", "HOSTNAME=train-gpt-3", "TRIREME_PORT=5000"},
     ST_OK,
     "kubernetes",
     3,
     4,
     0,
     1,
     "train-gpt-0.train-gpt:5000"},
    {"an indexed job with a service",
     {"JOB_COMPLETION_INDEX=3", "WORLD_SIZE=4", "HOSTNAME=train-3", "TRIREME_SERVICE=svc",
      "TRIREME_PORT=5000"},
     ST_OK,
     "kubernetes",
     3,
     4,
     0,
     1,
     "train-0.svc:5000"},
    {"a bad port",
     {"JOB_COMPLETION_INDEX=3", "WORLD_SIZE=4", "HOSTNAME=train-3", "TRIREME_PORT=70000"},
     ST_CONFIG,
     "",
     0,
     0,
     0,
     0,
     NULL},
};

static void test_launchers(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        const row *r = &rows[i];
        const char *variables[VARIABLES_MAX];
        memcpy(variables, r->variables, sizeof(variables));
        launch_place p;
        const status st = launch_detect(lookup, variables, &p);
        if (st != r->st) print_message("%s: %s\n", r->name, error_last()->text);
        assert_int_equal(st, r->st);
        if (st != ST_OK) continue;
        assert_string_equal(p.launcher, r->launcher);
        assert_int_equal(p.rank, r->rank);
        assert_int_equal(p.ranks, r->ranks);
        assert_int_equal(p.local_rank, r->local_rank);
        assert_int_equal(p.local_ranks, r->local_ranks);
        if (r->address != NULL) assert_string_equal(p.address, r->address);
        const bool is_alone_in_slurm = strstr(r->name, "batch") != NULL;
        assert_int_equal(p.note[0] != '\0', is_alone_in_slurm);
    }
}

// Sets that are begun but not complete, or contradict themselves, are refused by the variable's
// name.
static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *variables[VARIABLES_MAX], *named;
    } sets[] = {
        {{"RANK=3", "WORLD_SIZE=8", "MASTER_ADDR=n1"}, "but MASTER_PORT is not"},
        {{"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "MASTER_PORT=29500"}, "but MASTER_ADDR is not"},
        {{"RANK=0", "WORLD_SIZE=2"}, "but MASTER_ADDR and MASTER_PORT are not"},
        {{"RANK=0"}, "but WORLD_SIZE, MASTER_ADDR and MASTER_PORT are not"},
        {{"WORLD_SIZE=2"}, "but RANK, MASTER_ADDR and MASTER_PORT are not"},
        {{"RANK=1", "WORLD_SIZE=1"}, "but MASTER_ADDR and MASTER_PORT are not"},
        {{"LOCAL_RANK=1"}, "LOCAL_RANK is set"},
        {{"LOCAL_WORLD_SIZE=2", "MASTER_ADDR=n1"}, "LOCAL_WORLD_SIZE is set"},
        {{"RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=2", "MASTER_ADDR=n1", "MASTER_PORT=29500"},
         "LOCAL_RANK=2"},
        {{"RANK=2", "WORLD_SIZE=4", "LOCAL_RANK=2", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=n1",
          "MASTER_PORT=29500"},
         "LOCAL_RANK is 2, but LOCAL_WORLD_SIZE is 2"},
        {{"RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=n1",
          "MASTER_PORT=29500"},
         "LOCAL_RANK=0"},
        {{"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=4", "MASTER_ADDR=n1",
          "MASTER_PORT=29500"},
         "LOCAL_WORLD_SIZE is \"4\""},
        {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=n1", "MASTER_PORT=0"}, "MASTER_PORT is \"0\""},
        {{"SLURM_PROCID=1", "SLURM_NTASKS=2"}, "SLURM_STEP_ID and SLURM_JOB_NODELIST are not"},
        {{"SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_JOB_NODELIST=n1"},
         "but SLURM_NTASKS is not"},
        {{"SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_NTASKS=2",
          "SLURM_JOB_NODELIST=n1", "SLURM_LOCALID=1"},
         "SLURM_LOCALID=1"},
        {{"OMPI_COMM_WORLD_RANK=0"}, "but OMPI_COMM_WORLD_SIZE is not"},
        {{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "WORLD_SIZE=4"}, "WORLD_SIZE is 4"},
        {{"PMI_SIZE=2"}, "but PMI_RANK is not"},
        {{"PMI_RANK=2", "PMI_SIZE=2"}, "PMI_RANK is \"2\""},
        {{"PMIX_RANK=1"}, "PMIX_RANK is 1: other processes"},
        {{"FLUX_TASK_RANK=0", "FLUX_JOB_SIZE=2"}, "FLUX_TASK_RANK is 0 of 2"},
        {{"JSM_NAMESPACE_RANK=1", "JSM_NAMESPACE_SIZE=2"}, "JSM_NAMESPACE_RANK is 1 of 2"},
        {{"MV2_COMM_WORLD_SIZE=4"}, "unset MV2_COMM_WORLD_SIZE"},
        {{"MPI_LOCALRANKID=3"}, "MPI_LOCALRANKID is 3"},
    };
    for (int64_t i = 0; i < COUNT_OF(sets); i++) {
        const char *variables[VARIABLES_MAX];
        memcpy(variables, sets[i].variables, sizeof(variables));
        launch_place p;
        assert_int_equal(launch_detect(lookup, variables, &p), ST_CONFIG);
        if (strstr(error_last()->text, sets[i].named) == NULL) {
            print_message("%s: %s\n", sets[i].named, error_last()->text);
        }
        assert_non_null(strstr(error_last()->text, sets[i].named));
    }
}

// An address alone is no sign of other ranks, but the user learns that it has no effect.
static void test_leftover(void **state)
{
    (void)state;
    const char *variables[VARIABLES_MAX] = {"MASTER_ADDR=n1", "MASTER_PORT=29500", "PMIX_RANK=0",
                                            "FLUX_TASK_RANK=0", "FLUX_JOB_SIZE=1"};
    launch_place p;
    assert_int_equal(launch_detect(lookup, variables, &p), ST_OK);
    assert_string_equal(p.launcher, "none");
    assert_non_null(strstr(p.note, "MASTER_ADDR and MASTER_PORT are set"));
}

// All ranks of a job derive the same job number, and another job a different one.
static void test_job_names(void **state)
{
    (void)state;
    const char *a[VARIABLES_MAX] = {"SLURM_JOB_ID=77", "SLURM_STEP_ID=0", "SLURM_PROCID=0",
                                    "SLURM_NTASKS=2", "SLURM_JOB_NODELIST=n1"};
    launch_place p, q;
    assert_int_equal(launch_detect(lookup, a, &p), ST_OK);
    a[2] = "SLURM_PROCID=1";
    assert_int_equal(launch_detect(lookup, a, &q), ST_OK);
    assert_true(p.job == q.job && p.job != 0);
    assert_string_equal(p.address, q.address);
    a[0] = "SLURM_JOB_ID=78";
    assert_int_equal(launch_detect(lookup, a, &q), ST_OK);
    assert_true(p.job != q.job);
    a[0] = "SLURM_JOB_ID=77";
    a[5] = "SLURM_RESTART_COUNT=1";
    assert_int_equal(launch_detect(lookup, a, &q), ST_OK);
    assert_true(p.job != q.job);
}

static void test_host_lists(void **state)
{
    (void)state;
    static const struct {
        const char *list, *names; // names joined by spaces; NULL: refused
    } lists[] = {
        {"n1", "n1"},
        {"n[1-2,5]", "n1 n2 n5"},
        {"n[1-2,5],m", "n1 n2 n5 m"},
        {"a[08-11]-x.b", "a08-x.b a09-x.b a10-x.b a11-x.b"},
        {"r[1-2]n[3-4]", "r1n3 r1n4 r2n3 r2n4"},
        {"[1-2]", "1 2"},
        {"n[7]", "n7"},
        {"", NULL},
        {",", NULL},
        {"n1,", NULL},
        {"n[", NULL},
        {"n[]", NULL},
        {"n[1", NULL},
        {"n[1-]", NULL},
        {"n[-1]", NULL},
        {"n[2-1]", NULL},
        {"n[1,]", NULL},
        {"n[1x]", NULL},
        {"n[1-99999999]", NULL},
        {"n[1-1000000000000000000000]", NULL},
        {"n[1-9]x[1-9]", NULL}, // 81 names; the limit is 64
        {"n[1-2]a[1-2]b[1-2]c[1-2]d[1-2]", NULL},
        {"n]", NULL},
        {"n 1", NULL},
        {"n;reboot", NULL},
    };
    for (int64_t i = 0; i < COUNT_OF(lists); i++) {
        arena *a = NULL;
        file_names names = {0};
        char joined[256] = "";
        assert_int_equal(arena_create("test", 1 << 20, &a), ST_OK);
        const status st = launch_hosts(a, lists[i].list, 64, &names);
        if ((st == ST_OK) != (lists[i].names != NULL)) print_message("%s\n", lists[i].list);
        assert_int_equal(st, lists[i].names == NULL ? ST_CONFIG : ST_OK);
        for (int64_t k = 0; st == ST_OK && k < names.count; k++) {
            (void)strncat(joined, k == 0 ? "" : " ", 2);
            (void)strncat(joined, names.names[k], 64);
        }
        if (st == ST_OK) assert_string_equal(joined, lists[i].names);
        arena_destroy(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_launchers),  cmocka_unit_test(test_refused),
        cmocka_unit_test(test_leftover),   cmocka_unit_test(test_job_names),
        cmocka_unit_test(test_host_lists),
    };
    return cmocka_run_group_tests_name("launch/detect", tests, NULL, NULL);
}
