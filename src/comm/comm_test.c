// Operations over threads and processes against a naive reference, and the errors of a group if
// ranks die or do not come. mismatch_test.c tests ranks that differ.
#include "fixtures/comm/test_ranks.h"
#include "fixtures/comm/test_reference.h"
#include "kernels/kernels.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/mman.h>
// after the above, which it needs
#include <cmocka.h>

static void all_ok(const fixture_job *job)
{
    for (int i = 0; i < job->ranks; i++) {
        if (job->results[i].st != ST_OK) printf("rank %d: %s\n", i, job->results[i].text);
        assert_int_equal(job->results[i].st, ST_OK);
    }
}

// ---- operations against the reference -----------------------------------------------------------
typedef struct sweep {
    op_collective op;
    dtype type;
    bool is_private;
    const int64_t *counts;
    int count_count;
} sweep;

static status one_op(comm_group *g, const sweep *s, int64_t count, char *memory)
{
    const int rank = comm_group_rank(g), size = comm_group_size(g), root = (int)(count % size);
    const int64_t width = dtype_bytes(s->type);
    const reference r = {.op = s->op, .type = s->type, .size = size, .root = root};
    const int64_t out_bytes = reference_pieces(&r, rank, false) * count * width;
    char *out = memory + align_up(reference_pieces(&r, rank, true) * count * width, 64) + 64;
    reference_fill(&r, rank, count, memory);
    memset(out, 0x5a, (size_t)(out_bytes + 1));
    const comm_item item = {.in = memory, .out = out, .count = count};
    const comm_args args = {.op = s->op,
                            .type = s->type,
                            .root = root,
                            .items = &item,
                            .item_count = 1,
                            .tensor = "x",
                            .site = "here",
                            .step = -1};
    TRY(comm_run(g, &args));
    if (out[out_bytes] != 0x5a) {
        return fail_at(__FILE__, __LINE__, ST_INTERNAL, "%s of %lld wrote past its end",
                       op_collective_name(s->op), (long long)count);
    }
    double wanted = 0;
    const int64_t wrong = reference_differs(&r, rank, count, out, &wanted);
    if (wrong < 0) return ST_OK;
    return fail_at(__FILE__, __LINE__, ST_INTERNAL,
                   "%s of %lld x %s, %d ranks, rank %d: element %lld is %g, not %g",
                   op_collective_name(s->op), (long long)count, dtype_name(s->type), size, rank,
                   (long long)wrong, dtype_load(s->type, out, wrong), wanted);
}

static status sweep_body(comm *c, void *context)
{
    const sweep *all = context;
    comm_memory *m = NULL;
    const int64_t bytes = 16 << 20;
    TRY(comm_memory_create(c, bytes, &m));
    char *own = malloc((size_t)bytes);
    if (own == NULL) return fail_at(__FILE__, __LINE__, ST_NO_MEMORY, "no memory");
    status st = ST_OK;
    for (const sweep *s = all; s->counts != NULL && st == ST_OK; s++) {
        for (int i = 0; i < s->count_count && st == ST_OK; i++) {
            st = one_op(comm_world(c), s, s->counts[i], s->is_private ? own : comm_memory_at(m));
        }
    }
    if (st == ST_OK) st = comm_barrier(comm_world(c), "end");
    free(own);
    if (st == ST_OK) comm_memory_destroy(m); // else it goes with c
    return st;
}

static void sweep_run(int ranks, bool processes, const int64_t *counts, int count_count)
{
    static const dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_F64, DTYPE_I32,
                                  DTYPE_I64, DTYPE_U8,   DTYPE_U16, DTYPE_U32};
    static sweep all[COUNT_OF(types) * 8 * 2 + 1];
    int n = 0;
    for (int t = 0; t < COUNT_OF(types); t++) {
        for (int op = 0; op <= COLLECTIVE_ALL_TO_ALL; op++) {
            for (int p = 0; p < 2; p++) {
                if (t > 0 && (t + op + ranks) % 3 != 0) continue; // types by turns
                all[n++] = (sweep){.op = (op_collective)op,
                                   .type = types[t],
                                   .is_private = p == 1,
                                   .counts = counts,
                                   .count_count = count_count};
            }
        }
    }
    all[n] = (sweep){0};
    fixture_job job = {.ranks = ranks, .processes = processes, .body = sweep_body, .context = all};
    fixture_run(&job);
    all_ok(&job);
}

static const int64_t small_counts[] = {0, 1, 7, 33, 1000};
static const int64_t large_counts[] = {65537};

static void operations_of_threads(void **state)
{
    (void)state;
    for (int n = 1; n <= 9; n++) sweep_run(n, false, small_counts, COUNT_OF(small_counts));
}

static void operations_of_processes(void **state)
{
    (void)state;
    for (int n = 2; n <= 8; n += 3) sweep_run(n, true, small_counts, COUNT_OF(small_counts));
}

static void large_operations(void **state)
{
    (void)state;
    sweep_run(2, true, large_counts, 1);
    sweep_run(3, false, large_counts, 1);
}

// ---- messages -----------------------------------------------------------------------------------
static status ring_body(comm *c, void *context)
{
    (void)context;
    static const int64_t counts[] = {0, 1, 64, 65, 100000};
    comm_group *g = comm_world(c);
    const int rank = comm_group_rank(g), size = comm_group_size(g);
    float *x = calloc(100000, sizeof(*x));
    if (x == NULL) return fail_at(__FILE__, __LINE__, ST_NO_MEMORY, "no memory");
    status st = ST_OK;
    for (int i = 0; i < COUNT_OF(counts) && st == ST_OK; i++) {
        const comm_item item = {.in = x, .out = x, .count = counts[i]};
        comm_args args = {.items = &item, .item_count = 1, .tensor = "token", .site = "ring"};
        for (int turn = 0; turn < 2 && st == ST_OK; turn++) {
            const bool sends = (turn == 0) == (rank == 0);
            if (rank == 0 && sends) {
                for (int64_t k = 0; k < counts[i]; k++) x[k] = (float)(k % 1000 + i);
            }
            args.op = sends ? COLLECTIVE_SEND : COLLECTIVE_RECEIVE;
            args.root = sends ? (rank + 1) % size : (rank + size - 1) % size;
            st = comm_run(g, &args);
            if (st == ST_OK && !sends) {
                for (int64_t k = 0; k < counts[i]; k++) x[k] += 1.0f;
            }
        }
        for (int64_t k = 0; k < counts[i] && st == ST_OK && rank == 0; k++) {
            const float wanted = (float)(k % 1000 + i + size);
            if (x[k] != wanted)
                st =
                    fail_at(__FILE__, __LINE__, ST_INTERNAL, "element %lld is wrong", (long long)k);
        }
    }
    free(x);
    return st;
}

static void messages_go_round(void **state)
{
    (void)state;
    for (int n = 2; n <= 5; n++) {
        fixture_job job = {
            .ranks = n,
            .processes = n % 2 == 1,
            .body = ring_body,
        };
        fixture_run(&job);
        all_ok(&job);
    }
}

// ---- ranks that do not come ---------------------------------------------------------------------
static status absent_body(comm *c, void *context)
{
    TRY(comm_barrier(comm_world(c), "all.c:1"));
    if (comm_rank(c) == 1 && context != NULL) _exit(3); // as if it were killed
    if (comm_rank(c) == 1) {
        usleep(700000);
        return ST_OK;
    }
    float x[4] = {0};
    return comm_all_reduce(comm_world(c), x, 4, DTYPE_F32, REDUCTION_SUM, "late", "some.c:2");
}

static void deadlines_name_who_is_missing(void **state)
{
    (void)state;
    fixture_job job = {
        .ranks = 3,
        .deadline_ns = 300000000,
        .body = absent_body,
    };
    fixture_run(&job);
    for (int i = 0; i < 3; i += 2) {
        assert_int_equal(job.results[i].st, ST_TIMEOUT);
        assert_non_null(strstr(job.results[i].text, "rank 1 (last: barrier"));
        assert_non_null(strstr(job.results[i].text, "all.c:1"));
    }
}

static void *abort_later(void *argument)
{
    usleep(100000);
    comm_abort(argument, ST_PEER_LOST, "rank 1 died by signal 9");
    return NULL;
}

static status lost_body(comm *c, void *context)
{
    pthread_t thread;
    if (comm_rank(c) != 1 && pthread_create(&thread, NULL, abort_later, c) != 0) abort();
    const status st = absent_body(c, context);
    if (comm_rank(c) != 1) (void)pthread_join(thread, NULL);
    return st;
}

static void the_dead_are_not_waited_for(void **state)
{
    (void)state;
    int dies = 1;
    fixture_job job = {.ranks = 3, .processes = true, .body = lost_body, .context = &dies};
    fixture_run(&job);
    for (int i = 0; i < 3; i += 2) {
        assert_int_equal(job.results[i].st, ST_PEER_LOST);
        assert_non_null(strstr(job.results[i].text, "signal 9"));
    }
}

// ---- ranks that are waited for ------------------------------------------------------------------
typedef struct watch {
    comm *c;
    comm_awaited seen[FIXTURE_RANKS];
    int most, wanted; // waits seen at once
} watch;

static _Atomic(bool) *waits_are_seen; // by rank 0's watch; of all processes

static void *watch_main(void *argument)
{
    watch *w = argument;
    for (int i = 0; i < 20000 && w->most < w->wanted; i++) {
        comm_awaited now[FIXTURE_RANKS];
        const int count = comm_waits_for(w->c, now, FIXTURE_RANKS);
        if (count > w->most) {
            w->most = count;
            memcpy(w->seen, now, (size_t)count * sizeof(now[0]));
        }
        usleep(1000);
    }
    atomic_store(waits_are_seen, true);
    return NULL;
}

// Ranks 1 and 2 come to operation 2, or rank 1 sends its message, when rank 0 has been seen to
// wait.
static status waits_body(comm *c, void *context)
{
    const bool by_message = context != NULL;
    comm_group *g = comm_world(c);
    const int rank = comm_group_rank(g), wanted = by_message ? 1 : 2;
    watch w = {.c = c, .wanted = wanted};
    pthread_t thread;
    float x = 1.0f;
    const comm_item item = {.in = &x, .out = &x, .count = 1};
    const comm_args args = {.op = rank == 0 ? COLLECTIVE_RECEIVE : COLLECTIVE_SEND,
                            .root = rank == 0 ? 1 : 0,
                            .items = &item,
                            .item_count = 1,
                            .tensor = "late",
                            .site = "waits",
                            .step = -1};
    TRY(comm_barrier(g, "before"));
    if (rank == 0 && pthread_create(&thread, NULL, watch_main, &w) != 0) abort();
    for (int i = 0; i < 20000 && rank != 0 && !atomic_load(waits_are_seen); i++) usleep(1000);
    status st = ST_OK;
    if (!by_message) {
        st = comm_barrier(g, "late");
    } else if (rank < 2) {
        st = comm_run(g, &args);
    }
    if (rank != 0) return st;
    (void)pthread_join(thread, NULL);
    if (st != ST_OK) return st;
    const uint64_t operation = by_message ? 1 : 2;
    if (w.most != wanted || w.seen[0].rank != 1 || w.seen[0].operation != operation ||
        (wanted > 1 && w.seen[1].rank != 2)) {
        return fail_at(__FILE__, __LINE__, ST_INTERNAL, "%d waits seen, the first of #%llu of %d",
                       w.most, (unsigned long long)w.seen[0].operation, w.seen[0].rank);
    }
    const bool is_over = comm_waits_for(c, w.seen, FIXTURE_RANKS) == 0;
    return is_over ? ST_OK : fail_at(__FILE__, __LINE__, ST_INTERNAL, "a wait that is over");
}

static void waits_are_reported(void **state)
{
    (void)state;
    int by_message = 1;
    waits_are_seen = mmap(NULL, sizeof(*waits_are_seen), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(waits_are_seen, MAP_FAILED);
    for (int i = 0; i < 4; i++) {
        atomic_store(waits_are_seen, false);
        fixture_job job = {.ranks = 3,
                           .processes = i / 2 == 1,
                           .body = waits_body,
                           .context = i % 2 == 1 ? &by_message : NULL};
        fixture_run(&job);
        all_ok(&job);
    }
    (void)munmap(waits_are_seen, sizeof(*waits_are_seen));
}

// ---- on a stream of a device --------------------------------------------------------------------
static status take(void *context, int64_t bytes, void **out)
{
    comm_memory *m = NULL; // goes with the link
    TRY(comm_memory_create(context, bytes, &m));
    *out = comm_memory_at(m);
    free(m);
    return ST_OK;
}

static void give(void *context, void *memory)
{
    (void)context;
    (void)memory;
}

static status stream_body(comm *c, void *context)
{
    const device_api *api = context;
    const bool shared =
        api == &device_cpu; // other processes cannot map the shadow's memory: staged
    arena *a = NULL;
    kern_context *kernels = NULL;
    const kern_hint hint = {.threads = 1};
    TRY(arena_create("kernels", 0, &a));
    TRY(kern_context_create(a, "ref", &hint, &kernels));
    const device_config config = {.h = host_real(),
                                  .run = &kern_device_kernels,
                                  .kernels = kernels,
                                  .seed = (uint64_t)comm_rank(c),
                                  .memory_take = shared ? take : NULL,
                                  .memory_give = give,
                                  .memory_context = c};
    enum { COUNT = 5000, TURNS = 20 };
    device *d = NULL;
    device_stream *stream = NULL;
    device_event *e = NULL;
    void *x = NULL;
    float *host_x = calloc(COUNT, sizeof(*host_x));
    if (host_x == NULL) return fail_at(__FILE__, __LINE__, ST_NO_MEMORY, "no memory");
    for (int i = 0; i < COUNT; i++) host_x[i] = 1.0f;
    TRY(api->create(&config, &d));
    status st = api->alloc(d, COUNT * (int64_t)sizeof(float), &x);
    if (st == ST_OK) st = api->stream_create(d, "dp", 1, &stream);
    if (st == ST_OK) st = api->event_create(d, &e);
    const comm_item item = {.in = x, .out = x, .count = COUNT};
    const comm_args args = {.op = COLLECTIVE_ALL_REDUCE,
                            .type = DTYPE_F32,
                            .items = &item,
                            .item_count = 1,
                            .tensor = "gradients",
                            .site = "stream"};
    bool posted = false;
    comm_choice choice = {0};
    if (st == ST_OK) st = comm_choose(comm_world(c), &args, &choice);
    if (choice.staged == shared) st = fail_at(__FILE__, __LINE__, ST_INTERNAL, "staged or not");
    if (st == ST_OK) st = api->copy_in(stream, x, host_x, COUNT * (int64_t)sizeof(float), &posted);
    for (int i = 0; i < TURNS && st == ST_OK;) {
        st = comm_post(comm_world(c), api, stream, &args, &posted);
        if (posted) i++;
    }
    if (st == ST_OK) st = api->copy_out(stream, host_x, x, COUNT * (int64_t)sizeof(float), &posted);
    if (st == ST_OK) st = api->event_record(e, stream, &posted);
    if (st == ST_OK) st = api->event_sync(e);
    float wanted = 1.0f;
    for (int i = 0; i < TURNS; i++) wanted *= (float)comm_ranks(c);
    for (int i = 0; i < COUNT && st == ST_OK; i++) {
        if (host_x[i] != wanted) st = fail_at(__FILE__, __LINE__, ST_INTERNAL, "%d is wrong", i);
    }
    if (st == ST_OK) st = comm_barrier(comm_world(c), "end"); // peers are done with the arena
    api->destroy(d);
    arena_destroy(a);
    free(host_x);
    return st;
}

static void streams_communicate(void **state)
{
    (void)state;
    const device_api *const apis[] = {&device_cpu, &device_shadow};
    for (int i = 0; i < 4; i++) {
        fixture_job job = {
            .ranks = 2,
            .processes = i / 2 == 1,
            .body = stream_body,
        };
        memcpy(&job.context, &apis[i % 2], sizeof(job.context));
        fixture_run(&job);
        all_ok(&job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_of_threads),
        cmocka_unit_test(operations_of_processes),
        cmocka_unit_test(large_operations),
        cmocka_unit_test(messages_go_round),
        cmocka_unit_test(deadlines_name_who_is_missing),
        cmocka_unit_test(the_dead_are_not_waited_for),
        cmocka_unit_test(waits_are_reported),
        cmocka_unit_test(streams_communicate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
