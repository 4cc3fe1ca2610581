// Training on toy devices, which have CUDA's rules: memory that the host cannot touch, no host
// functions on streams, no hints for a CPU. All ranks are in one process and one thread, and their
// collectives go through comm_transport.post only. Losses, weights and moments are those of one
// rank on the cpu device, to the bit.
#include "fixtures/comm/toy_transport.h"
#include "fixtures/exec/test_trial.h"

#include <errno.h>
#include <unistd.h>

enum { SHARDS = 8 };

typedef struct toy_rank {
    arena *a;
    plan_mesh mesh;
    plan_table run;
    exec_workspace_context workspace;
    const plan *plans[2];
    comm *link;
    comm_group **groups;
    exec *e;
} toy_rank;

static void ok(status st)
{
    if (st != ST_OK) print_error("%s\n", error_last()->text);
    assert_int_equal(st, ST_OK);
}

// Kernels of an accelerator, without threads and vector units.
static const device_kernels *kernels_without_hints(void)
{
    static device_kernels run;
    run = kern_device_kernels;
    run.scratch_set = NULL;
    run.threads = NULL;
    run.level = NULL;
    run.peak_flops = NULL;
    return &run;
}

static void rank_open(toy_rank *r, trial *t, toy_network *network, int rank, int ranks)
{
    const plan_mesh mesh = {.size = {[AXIS_PP] = t->pp, [AXIS_DP] = t->dp}};
    const comm_config config = {.h = host_real(),
                                .rank = rank,
                                .ranks = ranks,
                                .row = &toy_transport,
                                .row_context = network};
    exec_codec none = {.codec = NULL};
    *r = (toy_rank){.mesh = plan_mesh_from(&mesh, rank)};
    ok(arena_create("rank", 0, &r->a));
    r->run.a = r->a;
    ok(trial_plan(r->a, t, &r->mesh, &r->run, &r->workspace, &none, r->plans));
    ok(comm_open(&config, &r->link));
    ok(exec_groups_make(r->a, r->link, &r->mesh, &r->run, &r->groups));
    const exec_config wanted = {.api = &toy_device,
                                .device = {.h = host_real(),
                                           .run = kernels_without_hints(),
                                           .kernels = r->workspace.kernels},
                                .run = &r->run,
                                .plans = r->plans,
                                .plan_count = 2,
                                .groups = r->groups};
    ok(exec_create(&wanted, &r->e));
    ok(state_init(r->e, &r->run, &r->mesh));
}

static void rank_close(toy_rank *r)
{
    exec_destroy(r->e);
    exec_groups_destroy(r->groups, &r->run);
    comm_close(r->link);
    arena_destroy(r->a);
}

// Posts a step of all ranks in turn, as far as the queue of each has space.
static void step_post(toy_rank *ranks, int count, const trial *t, int s)
{
    bool posted[MAX_RANKS] = {false};
    for (int i = 0; i < count; i++) {
        toy_rank *r = &ranks[i];
        int32_t own[2][SEQUENCES * SEQ];
        const exec_input input = trial_input(r->plans[s / STEPS], &r->mesh, t, s, own);
        ok(exec_begin(r->e, r->plans[s / STEPS], &input));
    }
    for (int left = count; left > 0;) {
        for (int i = 0; i < count; i++) {
            exec_state state = EXEC_POSTED;
            if (posted[i]) continue;
            ok(exec_advance(ranks[i].e, &state));
            posted[i] = state == EXEC_POSTED;
            left -= posted[i];
        }
    }
}

static void toy_trial_run(const trial *layout, const reference *one)
{
    static toy_rank ranks[MAX_RANKS];
    static toy_network network;
    trial t = *layout;
    const int count = t.pp * t.dp;
    t.strict = true;
    t.shards = SHARDS;
    network = (toy_network){0};
    for (int i = 0; i < count; i++) rank_open(&ranks[i], &t, &network, i, count);
    for (int s = 0; s <= STEPS; s++) {
        step_post(ranks, count, &t, s);
        for (int i = 0; i < count && s + 1 >= STEPS; i++) ok(exec_finish(ranks[i].e));
        for (int i = 0; i < count; i++) ok(losses_take(ranks[i].e, &t, i));
    }
    for (int i = 0; i < count; i++) {
        const toy_rank *r = &ranks[i];
        for (int s = 0; s <= STEPS; s++) assert_true(t.loss[i][s] == one->loss[s]);
        ok(state_compare(r->e, &r->run, &r->mesh, one->tensors, one->count, true, &t.worst[i]));
        assert_string_equal(exec_facts(r->e).name, "toy");
    }
    assert_true(count == 1 || network.operations > 0);
    for (int i = 0; i < count; i++) rank_close(&ranks[i]);
}

static void training_has_the_bits_of_the_cpu(void **state)
{
    static const trial layouts[] = {
        {.pp = 1, .dp = 1, .micro_batch = 4},
        {.pp = 1, .dp = 2, .micro_batch = 4},
        {.zero = 3, .pp = 1, .dp = 2, .micro_batch = 4},
        {.schedule = "1f1b", .pp = 2, .dp = 1, .micro_batch = 4},
        {.zero = 1, .schedule = "zb-v", .pp = 2, .dp = 2, .micro_batch = 2},
    };
    static reference one;
    (void)state;
    reference_make(&one, true, false, SHARDS, 1);
    for (int i = 0; i < COUNT_OF(layouts); i++) toy_trial_run(&layouts[i], &one);
    reference_free(&one);
}

// ---- what the device refuses --------------------------------------------------------------------
typedef struct bench {
    arena *a;
    device *d;
    device_stream *stream;
} bench;

static void bench_open(bench *b)
{
    kern_context *kernels = NULL;
    const kern_hint hint = {.threads = 1};
    ok(arena_create("bench", 0, &b->a));
    ok(kern_context_create(b->a, "ref", &hint, &kernels));
    const device_config config = {
        .h = host_real(), .run = kernels_without_hints(), .kernels = kernels};
    ok(toy_device.create(&config, &b->d));
    ok(toy_device.stream_create(b->d, "compute", 0, &b->stream));
}

static void bench_close(const bench *b)
{
    toy_device.destroy(b->d);
    arena_destroy(b->a);
}

// Lets the system read the byte, which reports an error where it cannot.
static bool host_reads(const void *memory)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const bool reads = write(ends[1], memory, 1) == 1;
    if (!reads) assert_int_equal(errno, EFAULT);
    (void)close(ends[0]);
    (void)close(ends[1]);
    return reads;
}

static void the_host_cannot_touch_memory(void **state)
{
    (void)state;
    bench b;
    bool posted = false;
    void *memory = NULL;
    char value = 7;
    bench_open(&b);
    ok(toy_device.alloc(b.d, 4096, &memory));
    assert_false(host_reads(memory));
    ok(toy_device.fill(b.stream, memory, 42, 4096, &posted));
    assert_true(posted);
    ok(toy_device.copy_out(b.stream, &value, (const char *)memory + 4095, 1, &posted));
    assert_true(posted);
    assert_int_equal(value, 7); // posted work runs later
    ok(toy_device.sync(b.d));
    assert_int_equal(value, 42);
    assert_false(host_reads(memory));
    assert_true(host_reads(&value));
    bench_close(&b);
}

static status memory_refuse(void *context, int64_t bytes, void **out)
{
    (void)context;
    (void)bytes;
    (void)out;
    return ST_INTERNAL;
}

static void hints_and_memory_of_the_host_are_refused(void **state)
{
    (void)state;
    device *d = NULL;
    const device_config config = {.h = host_real(), .memory_take = memory_refuse};
    assert_null(toy_device.call);
    assert_null(toy_device.scratch_set);
    assert_int_equal(toy_device.create(&config, &d), ST_UNSUPPORTED);
    assert_non_null(strstr(error_last()->text, "device toy"));
}

static void a_blocking_transport_refuses_it_by_name(void **state)
{
    (void)state;
    bench b;
    comm *c = NULL;
    bool posted = true;
    float x = 1.0f;
    const comm_item item = {.in = &x, .out = &x, .count = 1};
    const comm_args args = {.op = COLLECTIVE_ALL_REDUCE,
                            .type = DTYPE_F32,
                            .items = &item,
                            .item_count = 1,
                            .tensor = "x",
                            .site = "test",
                            .step = -1};
    const comm_config config = {.h = host_real(), .ranks = 1, .local_ranks = 1};
    bench_open(&b);
    ok(comm_open(&config, &c));
    const status st = comm_post(comm_world(c), &toy_device, b.stream, &args, &posted);
    assert_int_equal(st, ST_UNSUPPORTED);
    assert_false(posted);
    assert_non_null(strstr(error_last()->text, "device toy runs no host functions"));
    assert_non_null(strstr(error_last()->text, "all_reduce"));
    comm_close(c);
    bench_close(&b);
}

static status nothing_run(const void *const *shares, int32_t members)
{
    (void)shares;
    (void)members;
    return ST_OK;
}

// A rendezvous at which a member never arrives is an error, not a hang.
static void a_rendezvous_waits_for_all(void **state)
{
    (void)state;
    bench b[2];
    bool posted = false;
    toy_rendezvous at = {.run = nothing_run, .members = 2};
    for (int i = 0; i < 2; i++) bench_open(&b[i]);
    ok(toy_rendezvous_post(b[0].stream, &at, 0, "", 0, &posted));
    assert_true(posted);
    assert_int_equal(toy_device.sync(b[0].d), ST_INTERNAL);
    assert_non_null(strstr(error_last()->text, "stream compute stands still"));
    ok(toy_rendezvous_post(b[1].stream, &at, 1, "", 0, &posted));
    ok(toy_device.sync(b[0].d));
    for (int i = 0; i < 2; i++) bench_close(&b[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_has_the_bits_of_the_cpu),
        cmocka_unit_test(the_host_cannot_touch_memory),
        cmocka_unit_test(hints_and_memory_of_the_host_are_refused),
        cmocka_unit_test(a_blocking_transport_refuses_it_by_name),
        cmocka_unit_test(a_rendezvous_waits_for_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
