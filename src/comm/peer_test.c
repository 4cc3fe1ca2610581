// Operations over the memory of GPUs that ranks read from each other, without GPUs: processes, each
// with a driver of tests whose device memory the others map. The bits are those of the same
// operation on host memory; mistakes of the ranks are found as on any other transport.
#include "comm/peer.h"
#include "fixtures/comm/test_ranks.h"
#include "fixtures/device/fake_driver.h"
#include "fixtures/kernels/cuda_emulator.h"
#include "kernels/kernels.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { COUNT = 300, BYTES = 64 << 10, HALF = BYTES / 2 };

static status sum_run(void *context, const cuda_launch *l)
{
    static uint64_t schedule;
    (void)context;
    return cuda_emulate(l, schedule++);
}

static int64_t sum_bytes(void *context, const char *kernel)
{
    (void)context;
    return strcmp(kernel, "cuda_peer_sum") == 0 ? (int64_t)sizeof(device_sum) : -1;
}

// No kernel of the backend runs here.
static status queue_open(const kern_context *of, cuda_queue *queue, kern_context **out)
{
    (void)of;
    *out = (kern_context *)(void *)queue;
    return ST_OK;
}

static void queue_close(kern_context *context)
{
    (void)context;
}

typedef enum way {
    WAY_RIGHT,
    WAY_ORDER,       // rank 1 posts another operation
    WAY_COUNT,       // with other elements
    WAY_ROWS,        // expects other rows
    WAY_HOST_MEMORY, // with a buffer of the host
    WAY_ABSENT,      // not at all
    WAY_GONE,        // its process ends
    WAY_APART        // the GPUs do not reach each other
} way;

typedef struct rig {
    way way;
    int rank, ranks;
    comm_group *group;
    device *d;
    device_stream *stream;
    char *memory; // of the GPU: operands, and in its second half results
    char *pinned, *host;
} rig;

static status posted_run(rig *r, const comm_args *args)
{
    bool posted = false;
    TRY(device_cuda.copy_in(r->stream, r->memory, r->pinned, BYTES, &posted));
    TRY(comm_post(r->group, &device_cuda, r->stream, args, &posted));
    TRY(device_cuda.copy_out(r->stream, r->pinned, r->memory, BYTES, &posted));
    return device_cuda.sync(r->d);
}

// Bytes that are numbers of the type, other ones on each rank and for each seed.
static void fill(const rig *r, dtype type, uint64_t seed)
{
    const int64_t width = dtype_bytes(type);
    for (int64_t i = 0; i < BYTES / width; i++) {
        const uint64_t word = (seed + (uint64_t)r->rank * 977 + (uint64_t)i) * 0x9e3779b97f4a7c15u;
        const double value = (double)(int64_t)(word >> 40) / 65536.0 - 100.0;
        dtype_store(type, r->host, i, i % 41 == 7 ? (double)NAN : i % 29 == 3 ? -0.0 : value);
    }
    memcpy(r->pinned, r->host, BYTES);
}

// The operation on the GPU has the bits of the same one on host memory.
static status compare(rig *r, comm_args args, const comm_item *items)
{
    comm_item here[4], there[4];
    for (int i = 0; i < args.item_count; i++) {
        here[i] = there[i] = items[i]; // offsets, as yet
        here[i].in = r->host + (intptr_t)items[i].in;
        here[i].out = r->host + (intptr_t)items[i].out;
        there[i].in = r->memory + (intptr_t)items[i].in;
        there[i].out = r->memory + (intptr_t)items[i].out;
    }
    args.site = "peer_test";
    args.step = 1;
    args.tensor = "tensor";
    fill(r, args.type, (uint64_t)args.op * 31 + (uint64_t)args.reduction);
    args.items = here;
    TRY(comm_run(r->group, &args));
    args.items = there;
    if (!comm_group_peer_posts(r->group, &args)) {
        return fail_at(__FILE__, __LINE__, ST_INTERNAL, "%s of %s is not for peers",
                       op_collective_name(args.op), dtype_name(args.type));
    }
    args.on_device = true;
    TRY(posted_run(r, &args));
    if (memcmp(r->host, r->pinned, BYTES) == 0) return ST_OK;
    return fail_at(__FILE__, __LINE__, ST_INTERNAL, "%s of %s, reduction %d: other bits",
                   op_collective_name(args.op), dtype_name(args.type), (int)args.reduction);
}

// Offsets in a buffer stand for its addresses.
static comm_item item_at(intptr_t in, intptr_t out, int64_t count, int64_t total)
{
    return (comm_item){.in = (const void *)in, .out = (void *)out, .count = count, .total = total};
}

static status sums_compare(rig *r)
{
    static const dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_I32,
                                  DTYPE_U32, DTYPE_I64,  DTYPE_U64};
    for (int t = 0; t < COUNT_OF(types); t++) {
        const bool is_float = t < 3;
        for (int k = 0; k < REDUCTION_COUNT; k++) {
            if (!is_float && k == REDUCTION_AVG) continue;
            const comm_item two[2] = {item_at(0, 0, COUNT, 0), item_at(8192, HALF, COUNT - 7, 0)};
            const comm_args args = {.op = COLLECTIVE_ALL_REDUCE,
                                    .reduction = (op_reduction)k,
                                    .order = k % 2 == 0 ? COMM_ORDER_ANY : COMM_ORDER_RANK,
                                    .type = types[t],
                                    .item_count = 2};
            TRY(compare(r, args, two));
        }
        const comm_item piece = item_at(0, HALF, COUNT, r->ranks * COUNT - COUNT - 5);
        const comm_args scatter = {
            .op = COLLECTIVE_REDUCE_SCATTER, .type = types[t], .item_count = 1};
        TRY(compare(r, scatter, &piece));
    }
    return ST_OK;
}

static status copies_compare(rig *r)
{
    static const struct {
        op_collective op;
        int root;
        int64_t count, total;
    } rows[] = {
        {COLLECTIVE_ALL_GATHER, 0, COUNT, 0}, {COLLECTIVE_ALL_GATHER, 0, COUNT, 2 * COUNT - 9},
        {COLLECTIVE_ALL_GATHER, 0, 1, 0},     {COLLECTIVE_BROADCAST, 1, COUNT, 0},
        {COLLECTIVE_REDUCE, 1, COUNT, 0},     {COLLECTIVE_GATHER, 1, COUNT, 0},
        {COLLECTIVE_SCATTER, 1, COUNT, 0},    {COLLECTIVE_ALL_TO_ALL, 0, COUNT, 0}};
    for (int i = 0; i < COUNT_OF(rows); i++) {
        const comm_item item = item_at(0, HALF, rows[i].count, rows[i].total);
        const comm_args args = {
            .op = rows[i].op, .type = DTYPE_BF16, .item_count = 1, .root = rows[i].root};
        TRY(compare(r, args, &item));
    }
    // Messages of both lengths from each rank to the next; the first begins.
    for (int i = 0; i < 2 * r->ranks; i++) {
        const int from = i / 2, to = (from + 1) % r->ranks;
        if (r->rank != from && r->rank != to) continue;
        const comm_item item = item_at(0, HALF, i % 2 == 0 ? 3 : 4000, 0);
        const bool sends = r->rank == from;
        const comm_args args = {.op = sends ? COLLECTIVE_SEND : COLLECTIVE_RECEIVE,
                                .type = DTYPE_F32,
                                .item_count = 1,
                                .root = sends ? to : from};
        TRY(compare(r, args, &item));
    }
    return ST_OK;
}

// ---- rows of experts ----------------------------------------------------------------------------
enum { STRIDE = 2, ROW = 5, ROWS_MOST = 40, RANKS_MOST = 3 };

// The rows for expert e of rank `to` that rank `from` sends: often none, now and then many.
static int32_t rows_of(int routing, int from, int to, int e)
{
    const uint64_t word =
        ((uint64_t)routing * 64 + (uint64_t)(from * 16 + to * 4 + e) + 1) * 0x9e3779b97f4a7c15u;
    return word >> 62 == 0 ? 0 : (int32_t)(word >> 40) % 7;
}

typedef struct rows {
    int32_t send[RANKS_MOST * STRIDE + 1], receive[RANKS_MOST * STRIDE + 1];
} rows;

static comm_args rows_make(const rig *r, int routing, rows *out)
{
    for (int i = 0; i < r->ranks * STRIDE; i++) {
        const int peer = i / STRIDE, e = i % STRIDE;
        out->send[i + 1] = out->send[i] + rows_of(routing, r->rank, peer, e);
        out->receive[i + 1] = out->receive[i] + rows_of(routing, peer, r->rank, e);
    }
    return (comm_args){.op = COLLECTIVE_ALL_TO_ALLV,
                       .type = DTYPE_BF16,
                       .item_count = 1,
                       .send_offsets = out->send,
                       .receive_offsets = out->receive,
                       .stride = STRIDE,
                       .row_elements = ROW,
                       .receive_most = ROWS_MOST * ROW,
                       .tensor = "rows",
                       .site = "peer_test"};
}

static status rows_compare(rig *r)
{
    for (int routing = 0; routing < 20; routing++) {
        rows of = {.send = {0}};
        const comm_item item = item_at(0, HALF, ROWS_MOST * ROW, 0);
        TRY(compare(r, rows_make(r, routing, &of), &item));
    }
    return ST_OK;
}

static status rows_wrong_run(rig *r)
{
    rows of = {.send = {0}};
    const comm_item item = {.in = r->memory, .out = r->memory + HALF, .count = ROWS_MOST * ROW};
    comm_args args = rows_make(r, 4, &of);
    args.items = &item;
    args.on_device = true;
    if (r->rank == 1) of.receive[r->ranks * STRIDE]++; // one more of the last
    return posted_run(r, &args);
}

static status wrong_run(rig *r)
{
    const bool other = r->rank == 1;
    if (r->way == WAY_ROWS) return rows_wrong_run(r);
    char *buffer = other && r->way == WAY_HOST_MEMORY ? r->host : r->memory;
    const comm_item item = {
        .in = buffer, .out = buffer, .count = other && r->way == WAY_COUNT ? COUNT - 1 : COUNT};
    const comm_args args = {.op = COLLECTIVE_ALL_REDUCE,
                            .type = DTYPE_F32,
                            .items = &item,
                            .item_count = 1,
                            .tensor = other && r->way == WAY_ORDER ? "second" : "first",
                            .site = "peer_test",
                            .on_device = buffer == r->memory};
    if (other && r->way == WAY_GONE) _exit(0);
    if (other && r->way == WAY_ABSENT) return ST_OK;
    return posted_run(r, &args);
}

static status work(rig *r)
{
    if (r->way != WAY_RIGHT) return wrong_run(r);
    TRY(sums_compare(r));
    TRY(copies_compare(r));
    return rows_compare(r);
}

static status rank_body(comm *c, void *context)
{
    const way *w = context;
    rig r = {.way = *w, .rank = comm_rank(c), .ranks = comm_ranks(c)};
    device_kernels run = kern_device_kernels;
    cuda_driver driver;
    void *memory = NULL, *pinned = NULL;
    run.open_queue = queue_open;
    run.close = queue_close;
    const fake_driver_config fake = {.seed = (uint64_t)r.rank + 1,
                                     .memory_bytes = 1 << 20,
                                     .gpus = 4,
                                     .apart = r.way == WAY_APART,
                                     .run = sum_run,
                                     .args_bytes = sum_bytes};
    fake_driver_begin(&fake, &driver);
    const device_config config = {
        .h = host_real(), .run = &run, .driver = &driver, .ordinal = r.rank};
    TRY(comm_split(c, 0, "gpus", &r.group));
    TRY(device_cuda.create(&config, &r.d));
    TRY(device_cuda.alloc(r.d, BYTES, &memory));
    TRY(device_cuda.host_alloc(r.d, BYTES, &pinned));
    TRY(device_cuda.stream_create(r.d, "group", 1, &r.stream));
    r.host = calloc(1, BYTES);
    r.memory = memory;
    r.pinned = pinned;
    status st = comm_group_peer_open(r.group, &device_cuda, r.d, memory, BYTES);
    if (st == ST_OK) st = work(&r);
    error_record kept;
    error_take(&kept);
    comm_group_peer_close(r.group);
    free(r.host);
    device_cuda.host_free(r.d, pinned);
    device_cuda.destroy(r.d);
    const fake_driver_counts counts = fake_driver_look();
    const char *rule = fake_driver_end();
    if (rule != NULL)
        return fail_at(__FILE__, __LINE__, ST_INTERNAL, "a rule was broken: %s", rule);
    if (counts.live != 0) return fail_at(__FILE__, __LINE__, ST_INTERNAL, "handles are left");
    return st == ST_OK ? ST_OK : error_put(&kept);
}

static void ranks_run(way w, int ranks, fixture_job *out)
{
    static way context;
    context = w;
    *out = (fixture_job){.ranks = ranks,
                         .processes = true,
                         .deadline_ns = INT64_C(700) * 1000000,
                         .peer = true,
                         .body = rank_body,
                         .context = &context};
    if (w == WAY_RIGHT) out->deadline_ns = INT64_C(20) * 1000000000;
    fixture_run(out);
}

static void operations_have_the_bits_of_host_memory(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 3; ranks++) {
        fixture_job job;
        ranks_run(WAY_RIGHT, ranks, &job);
        for (int r = 0; r < ranks; r++) {
            if (job.results[r].st != ST_OK) print_error("rank %d: %s\n", r, job.results[r].text);
            assert_int_equal(job.results[r].st, ST_OK);
        }
    }
}

// st, text: of rank 0; and of rank 1, unless it is NULL.
static void mistake_run(way w, status st, const char *text, const char *other)
{
    fixture_job job;
    ranks_run(w, 2, &job);
    const char *const texts[2] = {text, other};
    for (int r = 0; r < 2; r++) {
        if (texts[r] == NULL) continue;
        if (job.results[r].st != st || strstr(job.results[r].text, texts[r]) == NULL)
            print_error("way %d, rank %d: %s\n", (int)w, r, job.results[r].text);
        assert_int_equal(job.results[r].st, st);
        assert_non_null(strstr(job.results[r].text, texts[r]));
    }
}

static void ranks_that_differ_are_named(void **state)
{
    (void)state;
    mistake_run(WAY_ORDER, ST_DIVERGED, "second", "first");
    mistake_run(WAY_COUNT, ST_DIVERGED, "299", "299");
    mistake_run(WAY_ROWS, ST_DIVERGED, "elements to rank 1, which expects", "which expects");
    mistake_run(WAY_HOST_MEMORY, ST_DIVERGED, "rank 1 lie outside of the memory that GPUs share",
                NULL);
}

static void no_wait_lasts_for_ever(void **state)
{
    (void)state;
    mistake_run(WAY_ABSENT, ST_TIMEOUT, "rank 1", NULL);
    mistake_run(WAY_GONE, ST_TIMEOUT, "rank 1", NULL);
}

static void gpus_that_are_apart_are_refused(void **state)
{
    (void)state;
    const char *text = "set comm.transport = auto";
    mistake_run(WAY_APART, ST_UNSUPPORTED, text, text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_have_the_bits_of_host_memory),
        cmocka_unit_test(ranks_that_differ_are_named),
        cmocka_unit_test(no_wait_lasts_for_ever),
        cmocka_unit_test(gpus_that_are_apart_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
