// Tests, as a table, what Slurm's variables say about GPUs.
#include "launch/launch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { VARIABLES_MAX = 6 };

typedef struct row {
    const char *name;
    const char *variables[VARIABLES_MAX]; // "NAME=value"
    const char *numbers;                  // " 2 3"; "": none
    const char *variable;                 // of the numbers
    int local_rank;
} row;

static const row rows[] = {
    {"no Slurm", {"SLURM_STEP_GPUS=1"}, "", "", 0},
    {"a task's own",
     {"SLURM_JOB_ID=1", "SLURM_STEP_GPUS=3", "SLURM_LOCALID=2"},
     " 3",
     "SLURM_STEP_GPUS",
     2},
    {"a step's", {"SLURM_JOB_ID=1", "SLURM_STEP_GPUS=0,2-4,7"}, " 0 2 3 4 7", "SLURM_STEP_GPUS", 0},
    {"the step's before the job's",
     {"SLURM_JOB_ID=1", "SLURM_JOB_GPUS=0,1", "SLURM_STEP_GPUS=1", "SLURM_NNODES=1"},
     " 1",
     "SLURM_STEP_GPUS",
     0},
    {"the job's on one node",
     {"SLURM_JOB_ID=1", "SLURM_JOB_GPUS=4,5", "SLURM_JOB_NUM_NODES=1"},
     " 4 5",
     "SLURM_JOB_GPUS",
     0},
    {"the job's on another node",
     {"SLURM_JOB_ID=1", "SLURM_JOB_GPUS=4,5", "SLURM_JOB_NUM_NODES=2"},
     "",
     "",
     0},
    {"the job's on any nodes", {"SLURM_JOB_ID=1", "SLURM_JOB_GPUS=4,5"}, "", "", 0},
    {"no device files", {"SLURM_JOB_ID=1", "SLURM_STEP_GPUS=NoDevFiles"}, "", "", 0},
    {"nothing", {"SLURM_JOB_ID=1", "SLURM_STEP_GPUS="}, "", "", 0},
    {"an end that is missing", {"SLURM_JOB_ID=1", "SLURM_STEP_GPUS=1,"}, "", "", 0},
    {"backwards", {"SLURM_JOB_ID=1", "SLURM_STEP_GPUS=3-1"}, "", "", 0},
    {"too many", {"SLURM_JOB_ID=1", "SLURM_STEP_GPUS=0-999"}, "", "", 0},
    {"too large", {"SLURM_JOB_ID=1", "SLURM_STEP_GPUS=99999999999999999999"}, "", "", 0},
    {"a strange rank",
     {"SLURM_JOB_ID=1", "SLURM_STEP_GPUS=1", "SLURM_LOCALID=-4"},
     " 1",
     "SLURM_STEP_GPUS",
     0},
};

static const char *lookup(void *context, const char *name)
{
    const row *r = context;
    const size_t length = strlen(name);
    for (int i = 0; i < VARIABLES_MAX && r->variables[i] != NULL; i++) {
        if (strncmp(r->variables[i], name, length) == 0 && r->variables[i][length] == '=') {
            return r->variables[i] + length + 1;
        }
    }
    return NULL;
}

static void test_lists(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        row r = rows[i];
        launch_gpus g;
        char numbers[256] = "";
        launch_gpus_of_slurm(lookup, &r, &g);
        for (int k = 0; k < g.count; k++) {
            const size_t used = strlen(numbers);
            (void)snprintf(numbers + used, sizeof(numbers) - used, " %d", g.numbers[k]);
        }
        if (strcmp(numbers, r.numbers) != 0) print_error("%s: \"%s\"\n", r.name, numbers);
        assert_string_equal(numbers, r.numbers);
        if (g.count > 0) assert_string_equal(g.variable, r.variable);
        assert_int_equal(g.local_rank, r.local_rank);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lists)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
