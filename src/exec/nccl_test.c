// NCCL's collectives on device cuda, without GPUs: the library of tests (fixtures/comm/fake_nccl.h)
// runs an operation when the streams of all ranks have come to it. No function of the host takes
// part, so whole steps of several ranks are replayed as graphs.
#define TRIAL_STEPS 4
#include "comm/recorder.h"
#include "fixtures/comm/fake_nccl.h"
#include "fixtures/exec/test_gpu.h"

static const trial layouts[] = {
    {.pp = 1, .dp = 2, .micro_batch = 4},
    {.pp = 2, .dp = 1, .schedule = "1f1b", .micro_batch = 4},
    {.zero = 1, .pp = 1, .dp = 2, .micro_batch = 8},
    {.zero = 3, .pp = 1, .dp = 2, .micro_batch = 8},
    {.zero = 2, .pp = 2, .dp = 2, .schedule = "1f1b", .micro_batch = 4},
};

static void ranks_meet_on_their_streams(void **state)
{
    (void)state;
    static reference one;
    reference_make(&one, false, false, SHARDS, 1);
    for (int i = 0; i < COUNT_OF(layouts); i++) {
        nccl_library nccl;
        trial t = layouts[i];
        fake_nccl_begin(&nccl);
        t.nccl = &nccl;
        const fake_driver_counts counts = gpu_trial_run(&t, (uint64_t)i + 1, &one);
        const fake_nccl_counts posted = fake_nccl_look();
        if (t.counts.refused > 0) print_error("layout %d: %s\n", i, t.counts.why);
        assert_int_equal(t.counts.refused, 0);
        assert_int_equal(t.counts.replayed, STEPS - 1);
        assert_int_equal(counts.changed_arguments, 0);
        assert_int_equal(posted.live, 0);
        assert_int_equal(posted.aborted, 0);
        assert_true(posted.launches > 0);
        fake_nccl_end();
    }
    reference_free(&one);
}

// Strict sums have an order that NCCL does not know: they travel through the host as before, and
// then a step is no graph.
static void strict_sums_stay_with_the_host(void **state)
{
    (void)state;
    static reference one;
    nccl_library nccl;
    reference_make(&one, true, false, SHARDS, 1);
    trial t = layouts[0];
    fake_nccl_begin(&nccl);
    t.strict = true;
    t.nccl = &nccl;
    (void)gpu_trial_run(&t, 3, &one);
    assert_true(t.counts.refused > 0);
    fake_nccl_end();
    reference_free(&one);
}

// ---- two ranks by hand --------------------------------------------------------------------------
typedef enum way {
    WAY_RIGHT,
    WAY_ORDER,
    WAY_COUNT,
    WAY_HOST_MEMORY,
    WAY_LOST,
    WAY_ERROR,
    WAY_START_LATE,  // NCCL's start does not end
    WAY_START_LOST,  // and a peer is said to be lost
    WAY_START_STOP,  // and a stop signal comes
    WAY_AGREE,       // on what will be posted, and then as WAY_RIGHT
    WAY_AGREE_COUNT, // WAY_COUNT, seen before it is posted
    WAY_AGREE_MESSAGE,
    WAY_ROWS,      // of experts
    WAY_ROWS_COUNT // with other counts on one rank
} way;

typedef struct pair {
    way way;
    const fixture_job *job;
    const cuda_driver *driver;
    const nccl_library *nccl;
    comm *links[2];
    char text[2][512];
} pair;

static status nothing_run(void *context, const cuda_launch *l)
{
    (void)context;
    (void)l;
    return ST_OK;
}

static int64_t nothing_bytes(void *context, const char *kernel)
{
    (void)context;
    (void)kernel;
    return -1;
}

static comm_args sum_of(const comm_item *item, const char *tensor)
{
    return (comm_args){.op = COLLECTIVE_ALL_REDUCE,
                       .type = DTYPE_F32,
                       .items = item,
                       .item_count = 1,
                       .tensor = tensor,
                       .site = "nccl_test",
                       .step = 1};
}

// Waits until the group has ended, for a minute at most.
static bool has_ended(const comm_group *g)
{
    for (int i = 0; i < 6000; i++) {
        if (comm_group_check(g) != ST_OK) return true;
        host_real()->api->sleep_ns(host_real(), 10000000);
    }
    return false;
}

// Rank 0 sends 3 rows to itself and 1 to rank 1, which sends 2 and none.
static status rows_work(const pair *p, comm_group *g, device *d, device_stream *s, float *memory)
{
    enum { ROW = 4, MOST = 8, BACK = 512 };
    static const int32_t offsets[2][2][3] = {{{0, 3, 4}, {0, 3, 5}}, {{0, 2, 2}, {0, 1, 1}}};
    const int rank = comm_group_rank(g);
    int32_t receive[3];
    float *pinned = NULL;
    bool posted = false;
    TRY(comm_group_rows_open(g, &device_cuda, d));
    TRY(device_cuda.host_alloc(d, 4096, (void **)&pinned));
    for (int i = 0; i < BACK; i++) pinned[i] = (float)(rank * 100 + i);
    memcpy(receive, offsets[rank][1], sizeof(receive));
    if (rank == 1 && p->way == WAY_ROWS_COUNT) receive[1] = receive[2] = 2;
    const comm_item item = {.in = memory, .out = memory + BACK, .count = MOST * ROW};
    const comm_args args = {.op = COLLECTIVE_ALL_TO_ALLV,
                            .type = DTYPE_F32,
                            .items = &item,
                            .item_count = 1,
                            .send_offsets = offsets[rank][0],
                            .receive_offsets = receive,
                            .stride = 1,
                            .row_elements = ROW,
                            .receive_most = MOST * ROW,
                            .on_device = true,
                            .tensor = "rows",
                            .site = "nccl_test",
                            .step = 1};
    ASSERT(comm_group_rows_posts(g, &args));
    status st = device_cuda.copy_in(s, memory, pinned, 2048, &posted);
    if (st == ST_OK) st = comm_post(g, &device_cuda, s, &args, &posted);
    if (st == ST_OK) st = device_cuda.copy_out(s, pinned, memory + BACK, 2048, &posted);
    if (st == ST_OK) st = device_cuda.sync(d);
    for (int i = 0; i < receive[2] * ROW && st == ST_OK; i++) {
        const float want = rank == 1 ? (float)(12 + i) : i < 12 ? (float)i : (float)(100 + i - 12);
        if (pinned[i] != want) st = fail_at(__FILE__, __LINE__, ST_INTERNAL, "a wrong row");
    }
    error_record why;
    error_take(&why);
    device_cuda.host_free(d, pinned);
    comm_group_library_close(g);
    return st == ST_OK ? ST_OK : error_put(&why);
}

// Rank 0 sends before it receives, and rank 1 receives first. Two plans.
static status agree(const pair *p, comm_group *g, const comm_args *a, const comm_args *b)
{
    const int rank = comm_group_rank(g);
    comm_item item = a->items[0];
    if (p->way == WAY_AGREE_MESSAGE && rank == 1) item.count = 9;
    comm_args send = *b, receive = *a;
    send.op = COLLECTIVE_SEND;
    receive.op = COLLECTIVE_RECEIVE;
    send.root = receive.root = 1 - rank;
    send.tensor = receive.tensor = "message";
    send.items = rank == 0 ? a->items : b->items;
    receive.items = rank == 0 ? b->items : &item;
    const comm_args *plans[] = {a, &send, &receive, NULL, b, NULL};
    if (rank == 1) {
        plans[1] = &receive;
        plans[2] = &send;
    }
    return comm_group_library_agree(g, &device_cuda, plans, COUNT_OF(plans));
}

static status sums_check(device *d, device_stream *s, const float *memory, float *pinned)
{
    bool posted = false;
    TRY(device_cuda.copy_out(s, pinned, memory, 1536, &posted));
    TRY(device_cuda.sync(d));
    for (int i = 0; i < 384; i++) {
        if (pinned[i] != 3.0f) return fail_at(__FILE__, __LINE__, ST_INTERNAL, "a wrong sum");
    }
    return ST_OK;
}

static status lost_check(comm_group *g, device *d, device_stream *s, const comm_args *a)
{
    bool posted = false;
    TRY(device_cuda.sync(d));
    const bool used = comm_group_check(g) == ST_OK; // what it waited for may be any bytes
    if (used) return fail_at(__FILE__, __LINE__, ST_INTERNAL, "a result after an abort");
    return comm_post(g, &device_cuda, s, a, &posted);
}

// Called while this rank waits for NCCL's start: control's news come then.
static _Thread_local comm *own;
static status start_watched(void *context)
{
    const pair *p = context;
    comm_record last;
    char words[256];
    const int count = comm_recorder_read(p->job->control_block, comm_rank(own), &last, 1);
    if (count != 1 ||
        strstr(comm_record_text(&last, words, sizeof(words)), "NCCL's start") == NULL ||
        last.done_ns != 0) {
        return fail_at(__FILE__, __LINE__, ST_INTERNAL, "no record of the start");
    }
    if (p->way == WAY_START_LOST) comm_abort(own, ST_PEER_LOST, "rank 1 died by signal 9");
    if (p->way != WAY_START_STOP) return ST_OK;
    return fail_at(__FILE__, __LINE__, ST_STOPPED, "SIGTERM before the first step");
}

static status pair_work(pair *p, comm *c, device *d, device_stream *s, float *memory)
{
    comm_group *g = NULL;
    const int rank = comm_rank(c);
    float *pinned = NULL;
    bool posted = false;
    TRY(comm_split(c, 0, "pair", &g));
    if (p->way >= WAY_ROWS) {
        if (rows_work(p, g, d, s, memory) == ST_OK) return ST_OK;
        (void)snprintf(p->text[rank], sizeof(p->text[rank]), "%.255s", error_last()->text);
        return ST_OK;
    }
    own = c;
    if (comm_group_library_open(g, &device_cuda, d) != ST_OK) {
        (void)snprintf(p->text[rank], sizeof(p->text[rank]), "%.511s", error_last()->text);
        return ST_OK;
    }
    TRY(device_cuda.host_alloc(d, 4096, (void **)&pinned));
    for (int i = 0; i < 512; i++) pinned[i] = (float)(rank + 1);
    TRY(device_cuda.copy_in(s, memory, pinned, 2048, &posted));
    TRY(device_cuda.sync(d)); // a failure below frees what the copy reads
    const bool other = rank == 1;
    const comm_item items[2] = {{memory, memory, 256, 0}, {memory + 256, memory + 256, 128, 0}};
    const bool swaps = other && p->way == WAY_ORDER;
    comm_item first = items[swaps], second = items[!swaps];
    if (other && (p->way == WAY_COUNT || p->way == WAY_AGREE_COUNT)) first.count = 255;
    if (p->way == WAY_HOST_MEMORY) first.in = first.out = pinned;
    const comm_args a = sum_of(&first, "first"), b = sum_of(&second, "second");
    status st = p->way >= WAY_AGREE ? agree(p, g, &a, &b) : ST_OK;
    if (st == ST_OK && !(other && p->way == WAY_LOST)) {
        st = comm_post(g, &device_cuda, s, &a, &posted);
        if (st == ST_OK) st = comm_post(g, &device_cuda, s, &b, &posted);
    }
    if (p->way == WAY_LOST) { // its peer is said to be lost, and it waits no more
        comm_abort(c, ST_PEER_LOST, "rank 1 is lost");
        if (st == ST_OK) st = lost_check(g, d, s, &a);
    } else if (p->way == WAY_ERROR) {
        if (st == ST_OK) st = device_cuda.sync(d);
        if (rank == 0) fake_nccl_fail(0, NCCL_REMOTE_ERROR);
        if (rank == 0 && has_ended(g)) st = comm_group_check(g);
    } else if (st == ST_OK) {
        st = sums_check(d, s, memory, pinned);
    }
    if (st != ST_OK)
        (void)snprintf(p->text[rank], sizeof(p->text[rank]), "%.255s", error_last()->text);
    device_cuda.host_free(d, pinned);
    comm_group_library_close(g);
    return ST_OK;
}

// No kernel runs here.
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

static status pair_rank(comm *c, void *context)
{
    pair *p = context;
    static device_kernels run;
    device *d = NULL;
    device_stream *s = NULL;
    void *memory = NULL;
    run = kern_device_kernels;
    run.open_queue = queue_open;
    run.close = queue_close;
    const device_config config = {.h = host_real(), .run = &run, .driver = p->driver};
    TRY(device_cuda.create(&config, &d));
    status st = device_cuda.alloc(d, 4096, &memory);
    if (st == ST_OK) st = device_cuda.stream_create(d, "pair", 1, &s);
    if (st == ST_OK) st = pair_work(p, c, d, s, memory);
    device_cuda.destroy(d);
    return st;
}

static int64_t operations; // that NCCL ran for the last pair

static void pair_run(way w, const char *said[2], const char *rule)
{
    cuda_driver driver;
    nccl_library nccl;
    const fake_driver_config fake = {.seed = 5,
                                     .memory_bytes = 1 << 20,
                                     .gpus = 1,
                                     .run = nothing_run,
                                     .args_bytes = nothing_bytes};
    const bool never = w == WAY_START_LATE || w == WAY_START_LOST || w == WAY_START_STOP;
    pair p = {.way = w, .driver = &driver, .nccl = &nccl};
    fixture_job job = {.ranks = 2,
                       .deadline_ns = INT64_C(1000000000) * (w == WAY_START_LATE ? 1 : 2),
                       .nccl = &nccl,
                       .cancelled = never ? start_watched : NULL,
                       .body = pair_rank,
                       .context = &p};
    fake_driver_begin(&fake, &driver);
    fake_nccl_begin(&nccl);
    fake_nccl_never_meet(never);
    p.job = &job;
    fixture_run(&job);
    fake_nccl_never_meet(false);
    // Communicators that begin after all are given back.
    while (never && fake_nccl_look().aborted < 2) host_real()->api->sleep_ns(host_real(), 1000000);
    for (int r = 0; r < 2; r++) {
        if (job.results[r].st != ST_OK) print_error("rank %d: %s\n", r, job.results[r].text);
        assert_int_equal(job.results[r].st, ST_OK);
        if (said[r] != NULL && strstr(p.text[r], said[r]) == NULL)
            print_error("rank %d said %s\n", r, p.text[r]);
        if (said[r] != NULL) assert_non_null(strstr(p.text[r], said[r]));
        if (said[r] == NULL && rule == NULL) assert_string_equal(p.text[r], "");
    }
    assert_int_equal(fake_nccl_look().live, 0);
    operations = fake_nccl_look().operations;
    fake_nccl_end();
    const char *broken = fake_driver_end();
    if (rule == NULL) assert_null(broken);
    if (rule != NULL) assert_non_null(broken);
    if (rule != NULL) assert_non_null(strstr(broken, rule));
}

static void two_ranks_add(void **state)
{
    (void)state;
    pair_run(WAY_RIGHT, (const char *[]){NULL, NULL}, NULL);
}

static void rows_come_by_their_counts(void **state)
{
    (void)state;
    pair_run(WAY_ROWS, (const char *[]){NULL, NULL}, NULL);
}

static void mistakes_are_found(void **state)
{
    (void)state;
    static const char *none[] = {NULL, NULL}, *both[] = {"invalid argument", "invalid argument"};
    static const char *expects[] = {"rank 0 sends 4 elements to rank 1, which expects 8",
                                    "rank 0 sends 4 elements to rank 1, which expects 8"};
    pair_run(WAY_ROWS_COUNT, expects, NULL);
    pair_run(WAY_ORDER, none, "members post different operations");
    pair_run(WAY_COUNT, none, "members post different operations");
    pair_run(WAY_HOST_MEMORY, both, "a buffer that is not the GPU's");
}

static void ranks_agree_before_they_post(void **state)
{
    (void)state;
    static const char *collectives = "collectives of group pair that NCCL would run differ between "
                                     "rank 0 and rank 1: the ranks were started with different";
    static const char *messages = "rank 0 sends others than rank 1 expects";
    pair_run(WAY_AGREE, (const char *[]){NULL, NULL}, NULL);
    assert_int_equal(operations, 4); // two of each rank
    pair_run(WAY_AGREE_COUNT, (const char *[]){collectives, collectives}, NULL);
    assert_int_equal(operations, 0);
    pair_run(WAY_AGREE_MESSAGE, (const char *[]){messages, messages}, NULL);
    assert_int_equal(operations, 0);
}

// The last of two ranks has a model of its own.
static void plans_are_compared_before_the_first_step(void **state)
{
    (void)state;
    static reference one;
    reference_make(&one, false, false, SHARDS, 1);
    for (int i = 0; i < 2; i++) {
        cuda_driver driver;
        nccl_library nccl;
        static device_kernels run;
        const fake_driver_config fake = gpu_driver(9, &run);
        const device_config config = {.h = host_real(), .run = &run, .driver = &driver};
        trial t = layouts[i];
        fixture_job job = {.ranks = 2,
                           .deadline_ns = INT64_C(20) * 1000000000,
                           .nccl = &nccl,
                           .body = rank_body,
                           .context = &t};
        gpu_trial_set(&t, &config);
        t.last_dim = 32;
        t.want = one.tensors;
        t.want_count = one.count;
        fake_driver_begin(&fake, &driver);
        fake_nccl_begin(&nccl);
        fixture_run(&job);
        for (int r = 0; r < 2; r++) {
            if (job.results[r].st != ST_DIVERGED) print_error("%s\n", job.results[r].text);
            assert_int_equal(job.results[r].st, ST_DIVERGED);
            assert_non_null(strstr(job.results[r].text, "were started with different"));
        }
        assert_int_equal(fake_nccl_look().operations, 0);
        fake_nccl_end();
        assert_null(fake_driver_end());
    }
    reference_free(&one);
}

static void a_lost_peer_ends_the_waits(void **state)
{
    (void)state;
    pair_run(WAY_LOST, (const char *[]){"NCCL was aborted", "NCCL was aborted"}, NULL);
}

static void the_watchdog_finds_later_errors(void **state)
{
    (void)state;
    pair_run(WAY_ERROR, (const char *[]){"remote process exited", NULL}, NULL);
}

static void the_start_of_nccl_ends(void **state)
{
    (void)state;
    // The first rank to give up may end the other one too, with its own words.
    static const char *late[] = {"s for rank ", "NCCL_SOCKET_IFNAME"};
    static const char *lost[] = {"rank 1 died by signal 9", "while NCCL started in group pair"};
    static const char *stop[] = {"SIGTERM", "SIGTERM"};
    pair_run(WAY_START_LATE, late, NULL);
    pair_run(WAY_START_LOST, lost, NULL);
    pair_run(WAY_START_STOP, stop, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_ranks_add),
        cmocka_unit_test(rows_come_by_their_counts),
        cmocka_unit_test(mistakes_are_found),
        cmocka_unit_test(ranks_agree_before_they_post),
        cmocka_unit_test(plans_are_compared_before_the_first_step),
        cmocka_unit_test(a_lost_peer_ends_the_waits),
        cmocka_unit_test(the_watchdog_finds_later_errors),
        cmocka_unit_test(the_start_of_nccl_ends),
        cmocka_unit_test(ranks_meet_on_their_streams),
        cmocka_unit_test(strict_sums_stay_with_the_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
