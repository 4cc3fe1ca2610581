// Measures collectives: forked ranks, samples and the limit.
#include "comm/bench.h"

#include "comm/comm_internal.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    SAMPLE_NS = 300000,
    MAX_OPS = 4096,
    STREAM_OPS = 16,
    KINDS = 3
}; // kinds: the operation, two limits

// In memory that all ranks and the parent share.
typedef struct shared {
    struct {
        status st;
        char text[BLOCK_TEXT];
    } results[COMM_MAX_LOCAL];
    comm_bench_row rows[COMM_BENCH_SIZES];
} shared;

typedef struct bench_rank {
    const comm_bench_config *config;
    shared *s;
    comm *c;
    comm_group *g;
    char *in, *out;
    int64_t *counts; // of all_to_allv
    int cores;       // that its ranks have here
} bench_rank;

static int64_t now_ns(const bench_rank *b)
{
    return b->config->h->api->monotonic_ns(b->config->h);
}

// ---- one operation ------------------------------------------------------------------------------
static int64_t count_of(const comm_bench_config *f, int64_t bytes)
{
    const comm_shape shape = comm_shape_of(f->op, f->ranks, true);
    const int pieces = shape.in_pieces > shape.out_pieces ? shape.in_pieces : shape.out_pieces;
    const int64_t per_piece = bytes / dtype_bytes(f->type) /
                              (f->op == COLLECTIVE_ALL_TO_ALLV ? f->ranks : max_i64(pieces, 1));
    return f->op == COLLECTIVE_BARRIER ? 0 : max_i64(per_piece, bytes > 0 ? 1 : 0);
}

static void args_fill(bench_rank *b, int64_t bytes, int64_t turn, comm_item *item, comm_args *a)
{
    const comm_bench_config *f = b->config;
    const int rank = comm_rank(b->c);
    *item = (comm_item){.in = b->in, .out = b->out, .count = count_of(f, bytes)};
    *a = (comm_args){.op = f->op,
                     .reduction = f->reduction,
                     .order = f->order,
                     .type = f->type,
                     .items = item,
                     .item_count = 1,
                     .algorithm = f->algorithm,
                     .tensor = "bench",
                     .site = "bench comm",
                     .step = -1};
    if (f->op == COLLECTIVE_ALL_TO_ALLV) {
        for (int i = 0; i < f->ranks; i++) b->counts[i] = item->count;
        item->count = 0;
        a->send_counts = a->receive_counts = b->counts;
    } else if (f->op == COLLECTIVE_SEND) { // between neighbours
        const bool there = f->stream || turn % 2 == 0;
        a->op = (rank % 2 == 0) == there ? COLLECTIVE_SEND : COLLECTIVE_RECEIVE;
        a->root = rank ^ 1;
    }
}

static status ops_run(bench_rank *b, int64_t bytes, int64_t ops)
{
    comm_item item;
    comm_args a;
    args_fill(b, bytes, 0, &item, &a);
    for (int64_t i = 0; i < ops; i++) {
        if (b->config->op == COLLECTIVE_SEND) args_fill(b, bytes, i, &item, &a);
        if (a.op == COLLECTIVE_SEND || a.op == COLLECTIVE_RECEIVE) {
            if (a.root >= b->config->ranks) return ST_OK; // no neighbour: idle
        }
        TRY(comm_run(b->g, &a));
    }
    return ST_OK;
}

// ---- the limit: the direct algorithm without waits between ranks --------------------------------
static status no_arrive(comm_port *port, const comm_descriptor *mine)
{
    (void)port;
    (void)mine;
    return ST_OK;
}

static status no_depart(comm_port *port)
{
    (void)port;
    return ST_OK;
}

static status limit_run(bench_rank *b, int64_t bytes, int64_t ops, comm_stores_choice stores)
{
    comm_item item;
    comm_args a;
    args_fill(b, bytes, 0, &item, &a);
    comm_transport still =
        *b->g->transport; // descriptors of the last operation stay where they are
    still.arrive = no_arrive;
    still.depart = no_depart;
    still.steal = NULL;
    const comm_algorithm *direct = comm_algorithm_find(a.op, "direct");
    comm_call call = {.args = &a,
                      .transport = &still,
                      .port = b->g->port,
                      .rank = b->g->rank,
                      .size = b->g->size,
                      .vectors = b->c->vectors,
                      .contract = {.count = item.count},
                      .stores = stores,
                      .direct = b->g->direct};
    for (int64_t i = 0; i < ops; i++) TRY(direct->run(&call));
    return ST_OK;
}

// ---- samples ------------------------------------------------------------------------------------
static status sample(bench_rank *b, int kind, int64_t bytes, int64_t ops, double *seconds)
{
    TRY(comm_barrier(b->g, "bench begin"));
    // The limit reads the descriptors of the last operation, so no barrier may come between. Each
    // kind runs once before, so the caches hold its own data.
    const comm_stores_choice stores = kind == 1 ? COMM_STORES_CACHED : COMM_STORES_STREAM;
    TRY(ops_run(b, bytes, 1));
    if (kind > 0) TRY(limit_run(b, bytes, 1, stores));
    const int64_t begin = now_ns(b);
    if (kind == 0) {
        TRY(ops_run(b, bytes, ops));
    } else {
        TRY(limit_run(b, bytes, ops, stores));
    }
    // The time is from the first begin to the last end, since ranks that share a core would each
    // see only their own work. Different hosts have no common clock.
    const int64_t end = now_ns(b);
    int64_t most[2] = {end, -begin};
    if (!b->g->transport->direct) {
        most[0] = end - begin;
        most[1] = 0;
    }
    TRY(comm_all_reduce(b->g, most, 2, DTYPE_I64, REDUCTION_MAX, "bench", "bench end"));
    *seconds = (double)(most[0] + most[1]) / 1e9 / (double)ops;
    return ST_OK;
}

static int by_value(const void *a, const void *b)
{
    double x, y;
    memcpy(&x, a, sizeof(x));
    memcpy(&y, b, sizeof(y));
    return x < y ? -1 : x > y ? 1 : 0;
}

static bool has_limit(const bench_rank *b, int64_t bytes)
{
    const op_collective op = b->config->op;
    return b->config->limit && b->g->transport->direct && !b->config->is_private &&
           bytes > b->g->port->inline_bytes && op != COLLECTIVE_BARRIER && op != COLLECTIVE_SEND &&
           op != COLLECTIVE_ALL_TO_ALLV;
}

// Chooses enough operations per sample for the clock. All ranks use the number of rank 0.
static status ops_find(bench_rank *b, int64_t bytes, int64_t *out)
{
    int64_t ops = 1;
    double once = 0;
    for (int i = 0; i < 3; i++) TRY(sample(b, 0, bytes, ops, &once));
    // Ranks that share cores do not begin at the same time.
    const double sample_s = (b->g->size > b->cores ? 10.0 : 1.0) * SAMPLE_NS / 1e9;
    ops = (int64_t)(sample_s / (once > 1e-8 ? once : 1e-8));
    ops = ops < 1 ? 1 : ops > MAX_OPS ? MAX_OPS : ops;
    // All ranks saw the same times, so they get the same number. A stream needs a start.
    if (b->config->stream) ops = max_i64(ops, STREAM_OPS);
    *out = b->config->op == COLLECTIVE_SEND ? align_up(ops, 2) : ops;
    return ST_OK;
}

static status size_run(bench_rank *b, int at)
{
    const int64_t bytes = b->config->bytes[at];
    double times[KINDS][COMM_BENCH_SAMPLES] = {{0}};
    int64_t ops = 1;
    TRY(ops_find(b, bytes, &ops));
    const int kinds = has_limit(b, bytes) ? KINDS : 1;
    // One large operation takes tens of milliseconds: fewer samples are enough there.
    const int samples = bytes >= 32 << 20 ? 9 : COMM_BENCH_SAMPLES;
    for (int i = 0; i < samples; i++) {
        for (int k = kinds - 1; k >= 0; k--) {
            TRY(sample(b, k, bytes, ops, &times[k][i]));
        }
    }
    if (b->g->rank != 0) return ST_OK;
    comm_bench_row *row = &b->s->rows[at];
    for (int k = 0; k < kinds; k++) qsort(times[k], (size_t)samples, sizeof(double), by_value);
    row->bytes = bytes;
    row->median_s = times[0][samples / 2];
    row->min_s = times[0][0];
    row->max_s = times[0][samples - 1];
    for (int k = 1; k < kinds; k++) {
        const double t = times[k][samples / 2];
        if (row->limit_s == 0 || t < row->limit_s) row->limit_s = t;
    }
    comm_item item;
    comm_args a;
    comm_choice choice;
    args_fill(b, bytes, 0, &item, &a);
    TRY(comm_choose(b->g, &a, &choice));
    (void)snprintf(row->algorithm, sizeof(row->algorithm), "%s", choice.algorithm);
    (void)snprintf(row->transport, sizeof(row->transport), "%s", comm_transport_name(b->c));
    row->staged = choice.staged;
    return ST_OK;
}

// ---- ranks --------------------------------------------------------------------------------------
// Pins ranks in turn to the cores that this process may use.
static void pin(int rank)
{
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof(all), &all) != 0 || CPU_COUNT(&all) == 0) return;
    int left = rank % CPU_COUNT(&all);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET((size_t)cpu, &all) || left-- > 0) continue;
        CPU_ZERO(&one);
        CPU_SET((size_t)cpu, &one);
        (void)sched_setaffinity(0, sizeof(one), &one); // a wish
        return;
    }
}

static int64_t bytes_most(const comm_bench_config *f)
{
    int64_t most = 64;
    for (int i = 0; i < f->count; i++) most = max_i64(most, f->bytes[i]);
    return align_up(most + (int64_t)f->ranks * 64, 4096);
}

static status sizes_run(bench_rank *b)
{
    for (int i = 0; i < b->config->count; i++) TRY(size_run(b, i));
    return ST_OK;
}

static status memory_run(bench_rank *b)
{
    const int64_t most = bytes_most(b->config);
    comm_memory *m = NULL;
    char *own = NULL;
    b->counts = calloc((size_t)b->config->ranks, sizeof(*b->counts));
    if (b->config->is_private) own = malloc((size_t)most * 2);
    if (b->counts == NULL || (b->config->is_private && own == NULL)) {
        free(b->counts);
        return fail(ST_NO_MEMORY, "no %lld bytes for a measurement", (long long)most * 2);
    }
    status st = ST_OK;
    if (!b->config->is_private) st = comm_memory_create(b->c, most * 2, &m);
    if (st == ST_OK) {
        b->in = own != NULL ? own : comm_memory_at(m);
        b->out = b->in + most;
        memset(b->in, 0, (size_t)most * 2);
        st = sizes_run(b);
    }
    free(b->counts);
    free(own);
    comm_memory_destroy(m); // peers have their own mappings
    return st;
}

static int cores_count(void)
{
    cpu_set_t all;
    return sched_getaffinity(0, sizeof(all), &all) == 0 ? CPU_COUNT(&all) : 1;
}

static void rank_main(const comm_bench_config *f, shared *s, comm_control_block *block, int rank)
{
    const int cores = cores_count(); // before it is pinned to one
    bench_rank b = {.config = f, .s = s, .cores = cores};
    const comm_config config = {.h = f->h,
                                .rank = rank,
                                .ranks = f->ranks,
                                .local_rank = rank,
                                .local_ranks = f->ranks,
                                .transport = f->ranks > 1 ? "shm" : "self",
                                .control_block = block,
                                .tuning = f->tuning,
                                .deadline_ns = INT64_C(60) * 1000000000};
    pin(rank);
    status st = comm_open(&config, &b.c);
    if (st == ST_OK) {
        b.g = comm_world(b.c);
        st = memory_run(&b);
    }
    (void)snprintf(s->results[rank].text, BLOCK_TEXT, "%.*s", BLOCK_TEXT - 1,
                   st == ST_OK ? "" : error_last()->text);
    comm_close(b.c);
    __atomic_store_n(&s->results[rank].st, st, __ATOMIC_RELEASE);
}

static status ranks_wait(const comm_bench_config *f, shared *s, comm_control_block *block,
                         const pid_t *pids, int started)
{
    for (int i = 0; i < started; i++) {
        int how = 0;
        const pid_t pid = wait(&how);
        int rank = 0;
        while (rank < started && pids[rank] != pid) rank++;
        if (rank == started || (WIFEXITED(how) && WEXITSTATUS(how) == 0)) continue;
        comm_control_block_abort(block, ST_PEER_LOST, "a rank of the measurement died");
    }
    for (int i = 0; i < f->ranks; i++) {
        const status st = s->results[i].st;
        if (st != ST_OK) return fail(st, "rank %d of %d: %s", i, f->ranks, s->results[i].text);
    }
    return ST_OK;
}

static void rows_take(const comm_bench_config *f, const shared *s, comm_bench_row *rows)
{
    const int n = f->ranks;
    for (int i = 0; i < f->count; i++) {
        rows[i] = s->rows[i];
        rows[i].bus = f->op == COLLECTIVE_ALL_REDUCE ? 2.0 * (n - 1) / n
                      : f->op == COLLECTIVE_BARRIER  ? 0.0
                      : f->op == COLLECTIVE_REDUCE || f->op == COLLECTIVE_BROADCAST ||
                              f->op == COLLECTIVE_SEND
                          ? 1.0
                          : (double)(n - 1) / n;
    }
}

status comm_bench_join(comm *c, const comm_bench_config *f, comm_bench_row *rows)
{
    shared *s = calloc(1, sizeof(*s));
    if (s == NULL) return fail(ST_NO_MEMORY, "no memory for the results");
    ASSERT(f->ranks == comm_ranks(c));
    bench_rank b = {.config = f, .s = s, .c = c, .g = comm_world(c), .cores = f->ranks};
    const status st = memory_run(&b);
    if (st == ST_OK) rows_take(f, s, rows);
    free(s);
    return st;
}

status comm_bench_run(const comm_bench_config *f, comm_bench_row *rows)
{
    pid_t pids[COMM_MAX_LOCAL];
    int started = 0;
    comm_control_block *block = NULL;
    if (f->op == COLLECTIVE_SEND && f->ranks < 2)
        return fail(ST_USAGE, "send takes two ranks or more");
    TRY(comm_control_block_create(f->ranks, 0, 0, &block));
    shared *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s == MAP_FAILED) {
        comm_control_block_unmap(block);
        return fail(ST_NO_MEMORY, "no memory for the results: %s", strerror(errno));
    }
    status st = ST_OK;
    for (int i = 0; i < f->ranks; i++) s->results[i].st = ST_PEER_LOST;
    for (; started < f->ranks; started++) {
        pids[started] = fork();
        if (pids[started] == 0) {
            rank_main(f, s, block, started);
            _exit(0); // nothing of the parent's is flushed or freed twice
        }
        if (pids[started] > 0) continue;
        comm_control_block_abort(block, ST_NO_MEMORY, "not all ranks could be started");
        st = fail(ST_NO_MEMORY, "cannot start rank %d: %s", started, strerror(errno));
        break;
    }
    const status ran = ranks_wait(f, s, block, pids, started);
    if (st == ST_OK) st = ran;
    if (st == ST_OK) rows_take(f, s, rows);
    (void)munmap(s, sizeof(*s));
    comm_control_block_unmap(block);
    return st;
}

int comm_bench_algorithms(op_collective op, int ranks, const char **names, int capacity)
{
    int count = 0;
    for (int i = 0; i < comm_algorithm_count() && count < capacity; i++) {
        const comm_algorithm *a = comm_algorithm_table[i];
        if (a->op != op || a->levels || (a->max_ranks > 0 && ranks > a->max_ranks)) continue;
        if (a->power_of_two && (ranks & (ranks - 1)) != 0) continue;
        names[count++] = a->name;
    }
    return count;
}
