// Ranks on several hosts: processes that pretend to be on different ones, over UCX's TCP. All
// algorithms against the naive reference, and the errors if ranks differ, die, stop or come late,
// or a message is damaged.
#include "base/fault.h"
#include "comm/algo/algo.h"
#include "comm/comm_internal.h"
#include "control/frame.h"
#include "fixtures/base/test_watch.h"
#include "fixtures/comm/test_reference.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
// after the above, which it needs
#include <cmocka.h>

enum { RANKS = 6, SWAP = 4096, TEXT = 1024, MOST = 1400000, CIRCLES = 8 };

// The data that the members of a group exchange before they can communicate.
typedef struct circle {
    uint64_t key; // 0: none
    atomic_int here;
    unsigned char bytes[RANKS][SWAP];
} circle;

// The memory that all processes of a job share.
typedef struct job {
    int ranks, hosts;
    bool side_by_side;
    int64_t deadline_ns;
    status (*body)(comm *c);
    comm_control_block *blocks[RANKS];
    pid_t pids[RANKS];
    atomic_bool is_over; // stopped ranks may continue
    struct {
        status st;
        char text[TEXT];
    } results[RANKS];
    pthread_mutex_t lock; // of circles
    circle circles[CIRCLES];
    status (*bare)(const comm_config *config); // in place of body: without comm_open
} job;
static job *all;
static int own_rank;

static circle *circle_find(uint64_t key)
{
    circle *c = all->circles;
    while (c->key != 0 && c->key != key) c++;
    assert_true(c < all->circles + CIRCLES);
    c->key = key;
    return c;
}

// Each group has its own place, once.
static status swap(void *context, const control_group *g, const void *mine, int64_t bytes,
                   void *out)
{
    (void)context;
    if (bytes > SWAP)
        return fail_at(__FILE__, __LINE__, ST_INTERNAL, "a record of %lld bytes", (long long)bytes);
    (void)pthread_mutex_lock(&all->lock);
    circle *c = circle_find(g->key);
    (void)pthread_mutex_unlock(&all->lock);
    memcpy(c->bytes[g->place], mine, (size_t)bytes);
    atomic_fetch_add(&c->here, 1);
    while (atomic_load(&c->here) < g->count) (void)usleep(100);
    for (int r = 0; r < g->count; r++) {
        memcpy((char *)out + r * bytes, c->bytes[r], (size_t)bytes);
    }
    return ST_OK;
}

// Ranks are assigned to hosts in turn, so that no two neighbours of a ring share one; or neighbours
// share a host, which makes two levels.
static int host_of(int rank)
{
    return all->side_by_side ? rank / (all->ranks / all->hosts) : rank % all->hosts;
}

static int number_of(int rank)
{
    return all->side_by_side ? rank % (all->ranks / all->hosts) : rank / all->hosts;
}

static int ranks_of(int place)
{
    return (all->ranks - place + all->hosts - 1) / all->hosts;
}

static status run_rank(int rank)
{
    char name[32];
    comm *c = NULL;
    own_rank = rank;
    (void)snprintf(name, sizeof(name), "host%d", host_of(rank));
    const comm_config config = {.h = host_real(),
                                .job = 7,
                                .rank = rank,
                                .ranks = all->ranks,
                                .local_rank = number_of(rank),
                                .local_ranks = ranks_of(host_of(rank)),
                                .transport = "ucx",
                                .control_block = all->blocks[host_of(rank)],
                                .deadline_ns = all->deadline_ns,
                                .machine = 100 + (uint64_t)host_of(rank),
                                .host = name,
                                .swap = swap};
    if (all->bare != NULL) return all->bare(&config);
    TRY(comm_open(&config, &c));
    const status st = all->body(c);
    error_record kept;
    error_take(&kept);
    comm_close(c);
    (void)error_put(&kept);
    return st;
}

static void rank_main(int rank)
{
    watch_start(100);
    const status st = run_rank(rank);
    all->results[rank].st = st;
    (void)snprintf(all->results[rank].text, TEXT, "%.1000s", st == ST_OK ? "" : error_last()->text);
    (void)fflush(NULL);
    _exit(0);
}

// hosts < 0: that many hosts, and neighbours share one.
static void job_run(int ranks, int hosts, int64_t deadline_ms, status (*body)(comm *c))
{
    pthread_mutexattr_t shared;
    status (*const bare)(const comm_config *config) = all->bare;
    memset(all, 0, sizeof(*all));
    all->bare = bare;
    all->ranks = ranks;
    all->side_by_side = hosts < 0;
    if (hosts < 0) hosts = -hosts;
    all->hosts = hosts;
    all->deadline_ns = deadline_ms * 1000000;
    all->body = body;
    assert_int_equal(0, pthread_mutexattr_init(&shared));
    assert_int_equal(0, pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED));
    assert_int_equal(0, pthread_mutex_init(&all->lock, &shared));
    for (int h = 0; h < hosts; h++) {
        assert_int_equal(ST_OK, comm_control_block_create(ranks_of(h), 7, 0, &all->blocks[h]));
    }
    (void)fflush(NULL);
    for (int r = 0; r < ranks; r++) {
        all->results[r].st = ST_INTERNAL;
        (void)snprintf(all->results[r].text, TEXT, "the process died");
        const pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) rank_main(r);
        all->pids[r] = pid;
    }
    for (int r = 0; r < ranks; r++) {
        assert_int_equal(all->pids[r], waitpid(all->pids[r], NULL, 0));
    }
    for (int h = 0; h < hosts; h++) comm_control_block_unmap(all->blocks[h]);
}

static void all_are(status wanted)
{
    for (int r = 0; r < all->ranks; r++) {
        if (all->results[r].st == wanted) continue;
        fail_msg("rank %d of %d on %d hosts: %s (%s)", r, all->ranks, all->hosts,
                 status_name(all->results[r].st), all->results[r].text);
    }
}

static void says(int rank, const char *words)
{
    if (strstr(all->results[rank].text, words) == NULL) {
        fail_msg("rank %d says \"%s\", not \"%s\"", rank, all->results[rank].text, words);
    }
}

// ---- operations ---------------------------------------------------------------------------------
static char *memory_in, *memory_out;
static int two_levels;

static status one(comm_group *g, const comm_algorithm *row, dtype type, int64_t count)
{
    const int rank = comm_group_rank(g), size = comm_group_size(g), root = (int)(count % size);
    const reference r = {
        .op = row->op, .type = type, .size = size, .root = root, .seed = (uint64_t)count};
    const comm_item item = {.in = memory_in, .out = memory_out, .count = count};
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
    if (comm_choose(g, &args, &choice) != ST_OK) return ST_OK; // not for such ranks or bytes
    if (row->levels) two_levels++;
    const int64_t bytes = reference_pieces(&r, rank, false) * count * dtype_bytes(type);
    reference_fill(&r, rank, count, memory_in);
    memset(memory_out, 0x5a, (size_t)bytes + 1);
    TRY(comm_run(g, &args));
    double wanted = 0;
    const int64_t wrong = reference_differs(&r, rank, count, memory_out, &wanted);
    if (memory_out[bytes] == 0x5a && wrong < 0) return ST_OK;
    return fail_at(__FILE__, __LINE__, ST_INTERNAL, "%s %s of %lld x %s: element %lld is wrong",
                   op_collective_name(row->op), row->name, (long long)count, dtype_name(type),
                   (long long)wrong);
}

static status every_algorithm(comm *c, const int64_t *counts, int count)
{
    const size_t bytes = (size_t)MOST * 4 * RANKS + 64;
    status st = ST_OK;
    memory_in = malloc(bytes);
    memory_out = malloc(bytes);
    if (memory_in == NULL || memory_out == NULL)
        return fail_at(__FILE__, __LINE__, ST_NO_MEMORY, "no memory");
    for (int i = 0; i < comm_algorithm_count() && st == ST_OK; i++) {
        const comm_algorithm *row = comm_algorithm_table[i];
        if (row->op > COLLECTIVE_ALL_TO_ALL) continue;
        for (int k = 0; k < count && st == ST_OK; k++) {
            st = one(comm_world(c), row, (i + k) % 2 == 0 ? DTYPE_F32 : DTYPE_BF16, counts[k]);
        }
    }
    for (int k = 0; k < 3 && st == ST_OK; k++) st = comm_barrier(comm_world(c), "here");
    free(memory_in);
    free(memory_out);
    return st;
}

static status small_body(comm *c)
{
    static const int64_t counts[] = {0, 1, 1000, 4099};
    comm_group *pair = NULL;
    TRY(every_algorithm(c, counts, (int)COUNT_OF(counts)));
    if ((two_levels > 0) != all->side_by_side) {
        return fail_at(__FILE__, __LINE__, ST_INTERNAL, "%d operations had two levels", two_levels);
    }
    // Groups inside hosts and between them.
    for (int k = 0; k < 2; k++) {
        const int place = host_of(own_rank), number = number_of(own_rank);
        float x = (float)(1 << own_rank), want = 0;
        TRY(comm_split(c, k == 0 ? place : number, k == 0 ? "host" : "rail", &pair));
        for (int r = 0; r < all->ranks; r++) {
            const bool with = k == 0 ? host_of(r) == place : number_of(r) == number;
            want += with ? (float)(1 << r) : 0;
        }
        TRY(comm_all_reduce(pair, &x, 1, DTYPE_F32, REDUCTION_SUM, "x", "here"));
        if (x != want)
            return fail_at(__FILE__, __LINE__, ST_INTERNAL, "a group's sum is %g, not %g",
                           (double)x, (double)want);
        comm_group_destroy(pair);
    }
    return ST_OK;
}

static status large_body(comm *c)
{
    static const int64_t counts[] = {70001, MOST}; // one piece, several
    return every_algorithm(c, counts, (int)COUNT_OF(counts));
}

static void operations(void **state)
{
    (void)state;
    static const int shapes[][2] = {{2, 2}, {3, 3}, {4, 2}, {5, 2}, {4, -2}, {6, -2}, {6, -3}};
    for (int i = 0; i < COUNT_OF(shapes); i++) {
        job_run(shapes[i][0], shapes[i][1], 30000, small_body);
        all_are(ST_OK);
    }
}

static void large_operations(void **state)
{
    (void)state;
    job_run(2, 2, 30000, large_body);
    all_are(ST_OK);
    job_run(3, 2, 30000, large_body);
    all_are(ST_OK);
    job_run(4, -2, 30000, large_body);
    all_are(ST_OK);
}

// ---- rows with offsets --------------------------------------------------------------------------
enum { ROWS_EACH = 40, ROW = 3, STRIDE = 2, TRIALS = 12 };

// The rows that a rank sends to another: few, or none, or all to one rank, or so many that they go
// to other hosts in several pieces.
static int rows_between(int trial, int from, int to)
{
    const int of_all = (int)(reference_mix((uint64_t)(trial * 1000 + from * 10 + to)) % ROWS_EACH);
    if (trial % 4 == 1) return to == trial % all->ranks ? of_all : 0;
    if (trial % 4 == 2) return from == trial % all->ranks ? of_all : 0;
    return trial % 4 == 3 && (from + to) % 2 == 1 ? 0 : of_all;
}

static float row_value(int trial, int from, int to, int row, int column)
{
    return (float)((((trial * RANKS + from) * RANKS + to) * ROWS_EACH + row) * ROW + column);
}

static status rows_check(int trial, const float *out)
{
    for (int from = 0; from < all->ranks; from++) {
        for (int i = 0; i < rows_between(trial, from, own_rank); i++) {
            for (int k = 0; k < ROW; k++) {
                if (*out++ == row_value(trial, from, own_rank, i, k)) continue;
                return fail_at(__FILE__, __LINE__, ST_INTERNAL, "trial %d: row %d of rank %d",
                               trial, i, from);
            }
        }
    }
    return ST_OK;
}

static status rows_once(comm *c, int trial, const char *algorithm, float *in, float *out)
{
    int32_t sends[RANKS * STRIDE + 1] = {0}, comes[RANKS * STRIDE + 1] = {0};
    float *at = in;
    for (int r = 0; r < all->ranks; r++) {
        const int sent = rows_between(trial, own_rank, r), come = rows_between(trial, r, own_rank);
        sends[r * STRIDE + 1] = sends[r * STRIDE] + sent / 2;
        sends[(r + 1) * STRIDE] = sends[r * STRIDE] + sent;
        comes[r * STRIDE + 1] = comes[(r + 1) * STRIDE] = comes[r * STRIDE] + come;
        for (int i = 0; i < sent * ROW; i++) {
            *at++ = row_value(trial, own_rank, r, i / ROW, i % ROW);
        }
    }
    const int64_t most = (int64_t)all->ranks * ROWS_EACH * ROW;
    const comm_item item = {.in = in, .out = out, .count = most};
    const comm_args args = {.op = COLLECTIVE_ALL_TO_ALLV,
                            .type = DTYPE_F32,
                            .items = &item,
                            .item_count = 1,
                            .send_offsets = sends,
                            .receive_offsets = comes,
                            .stride = STRIDE,
                            .row_elements = ROW,
                            .receive_most = most,
                            .algorithm = algorithm,
                            .tensor = "rows",
                            .site = "here"};
    comm_choice choice;
    memset(out, 0x5a, (size_t)most * 4);
    TRY(comm_choose(comm_world(c), &args, &choice));
    if (strcmp(choice.algorithm, algorithm == NULL ? "two_level" : algorithm) != 0) {
        return fail_at(__FILE__, __LINE__, ST_INTERNAL, "rows go by %s", choice.algorithm);
    }
    TRY(comm_run(comm_world(c), &args));
    return rows_check(trial, out);
}

// Rows come by both algorithms, also if the other ranks of the host cannot reach the input.
static status rows_body(comm *c)
{
    static float own[2][RANKS * ROWS_EACH * ROW];
    comm_memory *memory = NULL;
    status st = ST_OK;
    TRY(comm_memory_create(c, (int64_t)sizeof(own), &memory));
    float *shared = comm_memory_at(memory);
    for (int t = 0; t < TRIALS && st == ST_OK; t++) {
        float *const in = t % 3 == 0 ? own[0] : shared;
        st = rows_once(c, t, NULL, in, t % 2 == 0 ? own[1] : shared + COUNT_OF(own[0]));
        if (st == ST_OK) st = rows_once(c, t, "pairwise", in, own[1]);
    }
    if (st == ST_OK) st = comm_barrier(comm_world(c), "end");
    comm_memory_destroy(memory);
    return st;
}

static void rows_of_experts(void **state)
{
    (void)state;
    static const int shapes[][2] = {{4, -2}, {6, -2}, {6, -3}};
    for (int i = 0; i < COUNT_OF(shapes); i++) {
        job_run(shapes[i][0], shapes[i][1], 30000, rows_body);
        all_are(ST_OK);
    }
}

// ---- errors -------------------------------------------------------------------------------------
static float numbers[4000];

static status sum_of(comm *c, int64_t count, const char *site)
{
    return comm_all_reduce(comm_world(c), numbers, count, DTYPE_F32, REDUCTION_SUM, "gradients",
                           site);
}

static status other_count(comm *c)
{
    TRY(sum_of(c, 10, "before"));
    return sum_of(c, own_rank == 1 ? 11 : 10, own_rank == 1 ? "b.c:2" : "a.c:1");
}

// One rank sends to all others and waits for none; the others wait for a rank that never sends.
static status other_operation(comm *c)
{
    const comm_item item = {.in = numbers, .out = numbers, .count = 1};
    const comm_args args = {.op = COLLECTIVE_BROADCAST,
                            .type = DTYPE_F32,
                            .root = 2,
                            .items = &item,
                            .item_count = 1,
                            .tensor = "weights",
                            .site = "b.c:2"};
    return own_rank == 1 ? comm_run(comm_world(c), &args) : comm_barrier(comm_world(c), "a.c:1");
}

// Rank 3 has no core while the others find the difference and leave, and no rank has communicated
// with it before.
static status other_operation_late(comm *c)
{
    if (own_rank == 3) (void)raise(SIGSTOP);
    if (own_rank == 1 && fork() == 0) {
        (void)usleep(800000);
        (void)kill(all->pids[3], SIGCONT);
        _exit(0);
    }
    return other_operation(c);
}

static void differences(void **state)
{
    (void)state;
    for (int hosts = 2; hosts <= 3; hosts++) {
        job_run(3, hosts, 30000, other_count);
        all_are(ST_DIVERGED);
        for (int r = 0; r < 3; r++) {
            assert_string_equal(all->results[r].text, all->results[0].text);
            says(r, "differ in count: rank");
            says(r, "at a.c:1");
            says(r, "rank 1 (host1) has 11 in all_reduce #2 of gradients (11 x fp32) at b.c:2");
        }
    }
    job_run(4, -2, 30000, other_count);
    all_are(ST_DIVERGED);
    says(3, "rank 1 has 11 in all_reduce #2 of gradients (11 x fp32) at b.c:2");
    for (int late = 0; late < 2; late++) {
        job_run(4, 4, 30000, late ? other_operation_late : other_operation);
        all_are(ST_DIVERGED);
        for (int r = 0; r < 4; r++) {
            says(r, "differ in operation: rank");
            says(r, " has barrier in ");
            says(r, "rank 1 (host1) has broadcast in ");
        }
    }
}

static status damaged(comm *c)
{
    TRY(sum_of(c, 10, "here"));
    if (own_rank == 1) TRY(fault_arm("comm.ucx.damage=2"));
    for (int i = 0; i < 3; i++) TRY(sum_of(c, 10, "here"));
    return ST_OK;
}

static status dies(comm *c)
{
    TRY(sum_of(c, 10, "here"));
    if (own_rank == 1) _exit(1);
    return sum_of(c, 10, "here");
}

static status comes_late(comm *c)
{
    TRY(sum_of(c, 10, "here"));
    if (own_rank == 1) (void)usleep(900000);
    return sum_of(c, 10, "there");
}

// The job was stopped as a whole, or lost its only core: time in which a rank did not run does not
// count.
static status is_frozen(comm *c)
{
    TRY(sum_of(c, 10, "here"));
    if (own_rank == 1) {
        (void)usleep(100000); // rank 0 waits, mostly
        (void)kill(all->pids[0], SIGSTOP);
        (void)usleep(2500000);
        (void)kill(all->pids[0], SIGCONT);
        (void)usleep(200000);
    }
    return sum_of(c, 10, "there");
}

static status stands_still(comm *c)
{
    TRY(sum_of(c, 10, "here"));
    while (own_rank == 1 && !atomic_load(&all->is_over))
        (void)raise(SIGSTOP); // again after each wake-up
    const status st = sum_of(c, 10, "there");
    if (own_rank == 0) atomic_store(&all->is_over, true);
    if (own_rank == 0) (void)kill(all->pids[1], SIGCONT);
    return st;
}

static status is_stopped(comm *c)
{
    TRY(sum_of(c, 10, "here"));
    comm_abort(c, ST_PEER_LOST, "rank 7 went home");
    return sum_of(c, 10, "there");
}

static void failures(void **state)
{
    (void)state;
    job_run(2, 2, 30000, damaged);
    all_are(ST_DEVICE);
    says(1, "a message of rank 1 came damaged over the link host0 - host1 (ucx, tcp/");
    job_run(3, 3, 30000, dies);
    says(0, "rank 1 (host1) is gone: the link host0 - host1 (ucx, tcp/");
    assert_int_equal(ST_PEER_LOST, all->results[2].st);
    job_run(2, 2, 300, comes_late);
    assert_int_equal(ST_TIMEOUT, all->results[0].st);
    says(0, "s for a message of rank 1 over the link host0 - host1");
    says(0, "in all_reduce #2 of gradients (10 x fp32) at there of group world");
    job_run(2, 2, 2000, is_frozen);
    all_are(ST_OK);
    job_run(2, 2, 30000, stands_still);
    says(0, "the link host0 - host1 (ucx, tcp/");
    says(0, ") is cut or rank 1 stands still: nothing came for ");
    job_run(2, 2, 30000, is_stopped);
    all_are(ST_PEER_LOST);
    says(0, "rank 7 went home; this rank waits over the link host");
}

// ---- groups without one of all ranks -----------------------------------------------------------
// Each member gives the next one a number.
static status once_round(comm_link *link, const int32_t *ranks, int count, uint32_t number)
{
    comm_members m = {.ranks = ranks, .count = count, .group = number, .name = "some"};
    comm_port *port = NULL;
    while (ranks[m.me] != own_rank) m.me++;
    const int next = (m.me + 1) % count, before = (m.me + count - 1) % count;
    const int32_t mine = own_rank * 10;
    int32_t theirs = -1;
    const comm_contract k = {.magic = COMM_MAGIC,
                             .job = 7,
                             .sequence = 1,
                             .group = number,
                             .op = COLLECTIVE_ALL_GATHER,
                             .type = DTYPE_I32,
                             .items = 1,
                             .count = 1};
    TRY(comm_transport_find("ucx")->join(link, &m, &port));
    const comm_transport *t = port->transport; // shared memory's, where all are on one host
    t->note(port, &k, "numbers", "there");
    status st = t->exchange(port, &k, (comm_message){.peer = next, .send = &mine, .bytes = 4},
                            (comm_message){.peer = before, .receive = &theirs, .bytes = 4});
    if (st == ST_OK && theirs != ranks[before] * 10) {
        st = fail_at(__FILE__, __LINE__, ST_INTERNAL, "%d from rank %d", theirs, ranks[before]);
    }
    t->leave(port);
    return st;
}

// {0, 2} and {1, 3} at the same time; then {0, 1, 3}, of which 3 and 1 were connected only to each
// other.
static status joins_some(const comm_config *config)
{
    static const int32_t pairs[2][2] = {{0, 2}, {1, 3}}, three[] = {0, 1, 3};
    const comm_transport *ucx = comm_transport_find("ucx");
    comm_link *link = NULL;
    TRY(ucx->open(config, &link));
    status st = once_round(link, pairs[own_rank % 2], 2, 5);
    if (st == ST_OK && own_rank != 2) st = once_round(link, three, 3, 6);
    ucx->close(link);
    return st;
}

// Rank 1 has no way to others. Its partner learns of it; the other pair is not held up.
static status cannot_start(const comm_config *config)
{
    static const int32_t pairs[2][2] = {{0, 2}, {1, 3}};
    const comm_transport *ucx = comm_transport_find("ucx");
    comm_link *link = NULL;
    if (own_rank == 1) TRY(fault_arm("comm.ucx.open=1"));
    TRY(ucx->open(config, &link));
    const status st = once_round(link, pairs[own_rank % 2], 2, 5);
    const error_record kept = *error_last();
    ucx->close(link);
    return st == ST_OK ? ST_OK : error_put(&kept);
}

static void groups_of_some(void **state)
{
    (void)state;
    all->bare = joins_some;
    for (int hosts = 2; hosts <= 4; hosts += 2) {
        job_run(4, hosts, 20000, NULL);
        all_are(ST_OK);
    }
    all->bare = cannot_start;
    job_run(4, 4, 20000, NULL);
    for (int r = 0; r <= 2; r += 2) assert_int_equal(all->results[r].st, ST_OK);
    assert_int_not_equal(all->results[1].st, ST_OK);
    assert_int_equal(all->results[3].st, ST_PEER_LOST);
    says(3, "rank 1 (host1) has no way to other hosts");
    all->bare = NULL;
}

int main(void)
{
    const char *why = NULL;
    const comm_config config = {.ranks = 2, .swap = swap};
    const comm_transport *ucx = comm_transport_find("ucx");
    // TCP, as between hosts that have nothing better; no hooks in the memory functions of
    // sanitizers.
    if (setenv("UCX_TLS", "tcp", 0) != 0 || setenv("UCX_MEM_EVENTS", "n", 0) != 0) return 1;
    if (!ucx->available(&config, &why)) {
        printf("skipped: %s\n", why);
        return 77;
    }
    all = mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations),      cmocka_unit_test(large_operations),
        cmocka_unit_test(rows_of_experts), cmocka_unit_test(differences),
        cmocka_unit_test(failures),        cmocka_unit_test(groups_of_some),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
