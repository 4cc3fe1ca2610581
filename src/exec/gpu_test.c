// Trains on device cuda over a driver without a GPU (fixtures/device/fake_driver.h): ranks are
// threads, each with streams that complete late. The kernels are those of the host, launched one
// call at a time on the GPU's side, so every layout has the bits of one rank on the CPU. The host
// cannot touch the arena: collectives and read-backs travel through pinned memory.
#include "fixtures/device/fake_driver.h"
#include "fixtures/exec/test_trials.h"

enum { SHARDS = 8 };

// The argument of the one kernel: a call and the one that was fused with it.
typedef struct gpu_call {
    const kern_context *kernels;
    kern_call call, then;
} gpu_call;

// The context of a stream of the GPU: devices know it as a kern_context.
typedef struct gpu_context {
    cuda_queue *queue;
    kern_context *host; // with the scratch that the kernels need
} gpu_context;

static status gpu_open_queue(const kern_context *of, cuda_queue *queue, kern_context **out)
{
    gpu_context *c = calloc(1, sizeof(*c));
    assert_non_null(c);
    c->queue = queue;
    *out = (kern_context *)(void *)c;
    return kern_context_open(of, 1, &c->host);
}

static void gpu_close(kern_context *context)
{
    gpu_context *c = (gpu_context *)(void *)context;
    kern_context_close(c->host);
    free(c);
}

static status gpu_run(const kern_context *context, const kern_call *call)
{
    const gpu_context *c = (const gpu_context *)(const void *)context;
    gpu_call args = {.kernels = c->host, .call = *call};
    void *params[] = {&args};
    const uint32_t size = sizeof(args);
    const cuda_launch l = {.kernel = "call",
                           .grid = {1, 1, 1},
                           .block = {32, 1, 1},
                           .params = params,
                           .sizes = &size,
                           .count = 1};
    if (call->then != NULL) args.then = *call->then;
    return c->queue->launch(c->queue, &l);
}

static status kernel_run(void *context, const cuda_launch *l)
{
    gpu_call args;
    (void)context;
    memcpy(&args, l->params[0], sizeof(args));
    if (args.call.then != NULL) args.call.then = &args.then;
    return kern_run(args.kernels, &args.call);
}

static int64_t kernel_args(void *context, const char *kernel)
{
    (void)context;
    return strcmp(kernel, "call") == 0 ? (int64_t)sizeof(gpu_call) : -1;
}

static void trials_on_gpu(const trial *rows, int count, uint64_t seed, bool strict)
{
    static device_kernels run;
    static reference one;
    cuda_driver driver;
    run = kern_device_kernels;
    run.open_queue = gpu_open_queue;
    run.close = gpu_close;
    run.run = gpu_run;
    const fake_driver_config fake = {.seed = seed,
                                     .memory_bytes = 1 << 30,
                                     .gpus = 1,
                                     .run = kernel_run,
                                     .args_bytes = kernel_args};
    const device_config config = {.h = host_real(), .run = &run, .driver = &driver};
    reference_make(&one, strict, false, SHARDS, 1);
    for (int i = 0; i < count; i++) {
        trial t = rows[i];
        t.strict = strict;
        t.shards = SHARDS;
        t.cp_shards = 1;
        t.api = &device_cuda;
        t.device = &config;
        fake_driver_begin(&fake, &driver);
        trial_run(&t, &one);
        assert_int_equal(fake_driver_look().live, 0);
        assert_true(fake_driver_look().launches > 100);
        assert_null(fake_driver_end());
    }
    reference_free(&one);
}

static const trial one_rank[] = {
    {.pp = 1, .dp = 1, .micro_batch = 4},
    {.pp = 1, .dp = 1, .micro_batch = 2, .recompute = RECOMPUTE_FULL},
};

static void one_rank_has_the_bits_of_the_cpu(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 2; seed++) {
        trials_on_gpu(one_rank, COUNT_OF(one_rank), seed, true);
    }
}

static const trial layouts[] = {
    {.pp = 1, .dp = 2, .micro_batch = 4},
    {.pp = 2, .dp = 1, .schedule = "1f1b", .micro_batch = 4},
    {.zero = 1, .pp = 1, .dp = 2, .micro_batch = 8},
    {.zero = 3, .pp = 1, .dp = 2, .micro_batch = 2},
    {.zero = 2, .pp = 2, .dp = 2, .schedule = "zb-h1", .micro_batch = 2},
};

static void ranks_have_the_bits_of_one(void **state)
{
    (void)state;
    trials_on_gpu(layouts, COUNT_OF(layouts), 7, true);
    trials_on_gpu(layouts, 1, 8, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_has_the_bits_of_the_cpu),
        cmocka_unit_test(ranks_have_the_bits_of_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
