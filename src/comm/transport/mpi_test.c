// Ranks over MPI: this program starts itself under mpirun, with 2 to 4 ranks. All algorithms over
// messages against the naive reference; the errors if ranks differ, in a field or in their
// messages, if one is late, or if a message is damaged; and that ranks which mpirun did not start
// are refused.
#include "base/fault.h"
#include "comm/algo/algo.h"
#include "comm/comm_internal.h"
#include "fixtures/base/test_watch.h"
#include "fixtures/comm/test_reference.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
// after the above, which it needs
#include <cmocka.h>

enum { MOST_COUNT = 300001, MOST_RANKS = 4 };
static const char *program;

// ---- as a rank ----------------------------------------------------------------------------------
static status wrong(const char *what)
{
    return fail_at(__FILE__, __LINE__, ST_INTERNAL, "%s", what);
}

static status one(comm_group *g, const comm_algorithm *row, dtype type, int64_t count, char *in,
                  char *out, int *ran)
{
    const int rank = comm_group_rank(g), size = comm_group_size(g), root = (int)(count % size);
    const reference r = {
        .op = row->op, .type = type, .size = size, .root = root, .seed = (uint64_t)count};
    const comm_item item = {.in = in, .out = out, .count = count};
    const comm_args args = {.op = row->op,
                            .order = row->order,
                            .type = type,
                            .root = root,
                            .items = &item,
                            .item_count = 1,
                            .algorithm = row->name,
                            .tensor = "x",
                            .site = "here"};
    comm_choice choice;
    if (comm_choose(g, &args, &choice) != ST_OK)
        return ST_OK; // not for this number of ranks, or not over messages
    const int64_t bytes = reference_pieces(&r, rank, false) * count * dtype_bytes(type);
    reference_fill(&r, rank, count, in);
    memset(out, 0x5a, (size_t)bytes + 1);
    TRY(comm_run(g, &args));
    double wanted = 0;
    ++*ran;
    if (out[bytes] == 0x5a && reference_differs(&r, rank, count, out, &wanted) < 0) return ST_OK;
    return fail_at(__FILE__, __LINE__, ST_INTERNAL, "%s %s of %lld x %s is wrong",
                   op_collective_name(row->op), row->name, (long long)count, dtype_name(type));
}

static status operations(comm *c)
{
    static const int64_t counts[] = {0, 1, 1000, 4099, MOST_COUNT};
    const size_t bytes = (size_t)MOST_COUNT * 4 * MOST_RANKS + 64;
    char *in = malloc(bytes), *out = malloc(bytes);
    status st = in == NULL || out == NULL ? wrong("no memory") : ST_OK;
    int ran = 0;
    for (int i = 0; i < comm_algorithm_count() && st == ST_OK; i++) {
        const comm_algorithm *row = comm_algorithm_table[i];
        if (row->op > COLLECTIVE_ALL_TO_ALL || row->direct) continue;
        for (int k = 0; k < COUNT_OF(counts) && st == ST_OK; k++) {
            const dtype type = (i + k) % 2 == 0 ? DTYPE_F32 : DTYPE_BF16;
            st = one(comm_world(c), row, type, counts[k], in, out, &ran);
        }
    }
    free(in);
    free(out);
    TRY(st);
    if (ran < 40) return wrong("few operations were run");
    if (strcmp(comm_transport_name(c), "mpi") != 0) return wrong("it is another transport");
    // A group of some, and memory.
    comm_group *half = NULL;
    comm_memory *m = NULL;
    float x = 1, want = 0;
    TRY(comm_split(c, comm_rank(c) % 2, "half", &half));
    for (int r = comm_rank(c) % 2; r < comm_ranks(c); r += 2) want += 1;
    TRY(comm_all_reduce(half, &x, 1, DTYPE_F32, REDUCTION_SUM, "x", "here"));
    comm_group_destroy(half);
    TRY(comm_memory_create(c, 5000, &m));
    memset(comm_memory_at(m), 1, 5000);
    comm_memory_destroy(m);
    return x == want ? comm_barrier(comm_world(c), "end") : wrong("a group's sum is wrong");
}

// The last rank is the odd one.
static status differ(comm *c)
{
    static float x[64], y[64];
    const bool is_odd = comm_rank(c) == comm_ranks(c) - 1;
    const comm_item item = {.in = x, .out = y, .count = is_odd ? 9 : 8};
    const comm_args args = {.op = COLLECTIVE_ALL_REDUCE,
                            .type = DTYPE_F32,
                            .items = &item,
                            .item_count = 1,
                            .tensor = "gradients",
                            .site = is_odd ? "odd.c:2" : "even.c:1",
                            .step = -1};
    return comm_run(comm_world(c), &args);
}

// Rank 0 broadcasts from itself; for the last the root is another, so both would only send.
static status cross(comm *c)
{
    static float x[64];
    const bool is_odd = comm_rank(c) == comm_ranks(c) - 1;
    const comm_item item = {.in = x, .out = x, .count = 8};
    const comm_args args = {.op = is_odd ? COLLECTIVE_GATHER : COLLECTIVE_BROADCAST,
                            .type = DTYPE_F32,
                            .root = is_odd ? comm_ranks(c) - 1 : 0,
                            .items = &item,
                            .item_count = 1,
                            .tensor = "weights",
                            .site = is_odd ? "odd.c:2" : "even.c:1",
                            .step = -1};
    TRY(comm_run(comm_world(c), &args));
    return comm_barrier(comm_world(c), "after");
}

static status late(comm *c)
{
    if (comm_rank(c) == 1) usleep(1500000);
    return comm_barrier(comm_world(c), "late");
}

static status damage(comm *c)
{
    static float x[64];
    if (comm_rank(c) == 0) TRY(fault_arm("comm.mpi.damage=1"));
    const comm_item item = {.in = x, .out = x, .count = 64};
    const comm_args args = {.op = COLLECTIVE_BROADCAST,
                            .type = DTYPE_F32,
                            .items = &item,
                            .item_count = 1,
                            .tensor = "weights",
                            .site = "here",
                            .step = -1};
    TRY(comm_run(comm_world(c), &args));
    return comm_barrier(comm_world(c), "after");
}

typedef struct way {
    const char *name;
    status (*body)(comm *c);
    int64_t deadline_ms;
    status wanted;
    const char *words[3];
} way;
static const way ways[] = {
    {"operations", operations, 60000, ST_OK, {NULL}},
    {"differ", differ, 20000, ST_DIVERGED, {"differ in count", "at even.c:1", "at odd.c:2"}},
    {"cross", cross, 20000, ST_DIVERGED, {"differ in operation", "at even.c:1", "at odd.c:2"}},
    {"late", late, 500, ST_TIMEOUT, {"over MPI", "barrier", NULL}},
    {"damage", damage, 20000, ST_DEVICE, {"came damaged over MPI", NULL}},
};

static int rank_main(const way *w)
{
    comm *c = NULL;
    const comm_config config = {.h = host_real(),
                                .job = 7,
                                .rank = (int)strtol(getenv("OMPI_COMM_WORLD_RANK"), NULL, 10),
                                .ranks = (int)strtol(getenv("OMPI_COMM_WORLD_SIZE"), NULL, 10),
                                .local_ranks =
                                    (int)strtol(getenv("OMPI_COMM_WORLD_SIZE"), NULL, 10),
                                .transport = "mpi",
                                .deadline_ns = w->deadline_ms * 1000000};
    watch_start(100);
    status st = comm_open(&config, &c);
    if (st == ST_OK) st = w->body(c);
    bool is_right = st == w->wanted;
    for (int i = 0; i < 3 && is_right && w->words[i] != NULL; i++) {
        is_right = strstr(error_last()->text, w->words[i]) != NULL;
    }
    printf("rank %d %s: %s %s\n", config.rank, is_right ? "is right" : "is wrong", status_name(st),
           st == ST_OK ? "" : error_last()->text);
    (void)fflush(stdout);
    if (st != ST_OK) usleep(500000); // a rank that fails ends the others
    comm_close(c);
    return is_right ? 0 : 3;
}

// ---- as the test --------------------------------------------------------------------------------
static void started(const char *name, int ranks)
{
    char command[4600], line[2000];
    int right = 0;
    FILE *out = tmpfile();
    assert_non_null(out);
    assert_true(fileno(out) < 10); // the shell's limit
    (void)snprintf(command, sizeof(command),
                   "mpirun --allow-run-as-root --oversubscribe --mca mpi_yield_when_idle 1 "
                   "-n %d '%s' %s >&%d 2>&1",
                   ranks, program, name, fileno(out));
    (void)!system(command); // MPI's own code where ranks failed, as they should
    rewind(out);
    while (fgets(line, sizeof(line), out) != NULL) {
        if (strstr(line, " is right: ") != NULL) right++;
        if (strstr(line, " is wrong: ") != NULL) printf("%s", line);
    }
    (void)fclose(out);
    assert_int_equal(right, ranks);
}

static void every_algorithm(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= MOST_RANKS; ranks++) started("operations", ranks);
}

static void ranks_differ(void **state)
{
    (void)state;
    started("differ", 2);
    started("differ", 3);
    started("cross", 2);
}

static void one_is_late(void **state)
{
    (void)state;
    started("late", 2);
}

static void a_message_is_damaged(void **state)
{
    (void)state;
    started("damage", 2);
}

static void not_by_mpirun(void **state)
{
    (void)state;
    (void)fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        comm *c = NULL;
        const comm_config config = {
            .h = host_real(), .rank = 0, .ranks = 2, .local_ranks = 2, .transport = "mpi"};
        const status st = comm_open(&config, &c);
        const char *text = error_last()->text;
        _exit(st == ST_UNSUPPORTED && strstr(text, "mpirun -n 2") != NULL ? 0 : 1);
    }
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

int main(int count, char **words)
{
    for (int i = 0; count == 2 && i < COUNT_OF(ways); i++) {
        if (strcmp(words[1], ways[i].name) == 0) return rank_main(&ways[i]);
    }
    comm_path paths[16];
    bool is_there = false;
    for (int i = comm_paths(paths, 16) - 1; i >= 0; i--) {
        is_there = is_there || (strcmp(paths[i].name, "mpi") == 0 && paths[i].is_there);
    }
    if (!is_there || system("command -v mpirun >/dev/null") != 0) {
        printf("skipped: Open MPI is not on this machine or was not when this was built\n");
        return 77;
    }
    program = words[0];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_algorithm), cmocka_unit_test(ranks_differ),
        cmocka_unit_test(one_is_late),     cmocka_unit_test(a_message_is_damaged),
        cmocka_unit_test(not_by_mpirun),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
