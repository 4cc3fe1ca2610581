// The contract of devices, over every row: order, events, errors, memory, full queues.
//
// The kernels are fakes: the test checks when things run, not what they compute.
#include "device/cuda/launch.h"
#include "device/device.h"
#include "fixtures/device/fake_driver.h"

#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { WIDTH = 4, STREAMS = 4, CELLS = 12 };

struct kern_context {
    int32_t stream;
    cuda_queue *queue; // of a stream of the GPU; else NULL
};

static status fake_open(const kern_context *of, int32_t stream, kern_context **out)
{
    assert_non_null(of);
    *out = calloc(1, sizeof(**out));
    assert_non_null(*out);
    (*out)->stream = stream;
    return ST_OK;
}

static status fake_open_queue(const kern_context *of, cuda_queue *queue, kern_context **out)
{
    TRY(fake_open(of, 0, out));
    (*out)->queue = queue;
    return ST_OK;
}

static void fake_close(kern_context *c)
{
    free(c);
}

static atomic_int entered; // streams whose thread has said so
static void fake_enter(const kern_context *c)
{
    assert_non_null(c);
    atomic_fetch_add(&entered, 1);
}

static void fake_parallel(const kern_context *c, int64_t count, device_task task, void *context)
{
    assert_non_null(c);
    for (int64_t i = count - 1; i >= 0; i--) task(context, i, 0);
}

static void *scratch_given;
static void fake_scratch_set(kern_context *c, void *scratch)
{
    assert_int_equal(c->stream, 0);
    scratch_given = scratch;
}

static int fake_threads(const kern_context *of)
{
    (void)of;
    return 2;
}

static const char *fake_level(const kern_context *of)
{
    (void)of;
    return "abacus";
}

static double fake_peak_flops(const kern_context *of, dtype type)
{
    (void)of;
    return (double)dtype_bytes(type);
}

// y = a/2 + b/4 + scale: another order of two such steps gives another result.
static status fake_add(const kern_call *call)
{
    const float *a = call->in[0].data, *b = call->in[1].data;
    float *y = call->out[0].data;
    for (int i = 0; i < WIDTH; i++) y[i] = a[i] / 2 + b[i] / 4 + call->attrs.scale;
    return ST_OK;
}

static status fake_one(const kern_call *call)
{
    if (call->code == OP_ADD) return fake_add(call);
    return fail_at(__FILE__, __LINE__, ST_DEVICE, "unit %d is broken", call->layer);
}

// On the GPU a call is a launch of one kernel, whose argument is the call.
static status fake_launch(const kern_context *context, const kern_call *call)
{
    kern_call copy = *call;
    void *params[] = {&copy};
    const uint32_t size = sizeof(copy);
    const cuda_launch l = {.kernel = "call",
                           .grid = {1, 1, 1},
                           .block = {1, 1, 1},
                           .params = params,
                           .sizes = &size,
                           .count = 1};
    return context->queue->launch(context->queue, &l);
}

static status fake_run(const kern_context *context, const kern_call *call)
{
    assert_non_null(context);
    if (context->queue != NULL) TRY(fake_launch(context, call));
    if (context->queue == NULL) TRY(fake_one(call));
    return call->then != NULL ? fake_run(context, call->then) : ST_OK;
}

static status gpu_run(void *context, const cuda_launch *l)
{
    (void)context;
    return fake_one(l->params[0]);
}

static int64_t gpu_args_bytes(void *context, const char *kernel)
{
    (void)context;
    return strcmp(kernel, "call") == 0 ? (int64_t)sizeof(kern_call) : -1;
}

static const kern_context given;
static const device_kernels fake = {.open = fake_open,
                                    .open_queue = fake_open_queue,
                                    .close = fake_close,
                                    .enter = fake_enter,
                                    .run = fake_run,
                                    .parallel = fake_parallel,
                                    .scratch_set = fake_scratch_set,
                                    .threads = fake_threads,
                                    .level = fake_level,
                                    .peak_flops = fake_peak_flops};

static const char *const names[] = {"cpu", "shadow", "cuda"};
enum { HOSTS = 2 }; // those whose kernels run on the host

// The driver of the device made last: the device before it gave everything back.
static cuda_driver driver;
static void driver_begin(uint64_t seed)
{
    assert_int_equal(fake_driver_look().live, 0);
    (void)fake_driver_end();
    const fake_driver_config config = {.seed = seed,
                                       .memory_bytes = 64 << 20,
                                       .gpus = 2,
                                       .run = gpu_run,
                                       .args_bytes = gpu_args_bytes};
    fake_driver_begin(&config, &driver);
}

static device *device_make(const char *name, uint64_t seed)
{
    const bool is_gpu = strcmp(name, "cuda") == 0;
    const device_config config = {.h = host_real(),
                                  .run = &fake,
                                  .kernels = &given,
                                  .seed = seed,
                                  .driver = is_gpu ? &driver : NULL};
    device *d;
    if (is_gpu) driver_begin(seed);
    assert_int_equal(device_find(name)->create(&config, &d), ST_OK);
    return d;
}

static kern_tensor cell_of(void *memory, int64_t index)
{
    return (kern_tensor){.data = (float *)memory + index * WIDTH,
                         .type = DTYPE_F32,
                         .ndim = 1,
                         .dims = {WIDTH},
                         .strides = {1}};
}

static kern_call call_of(op_code code, void *memory, int64_t a, int64_t b, int64_t y)
{
    kern_call call = {.code = code, .accumulate = false};
    call.in[0] = cell_of(memory, a);
    if (code == OP_ADD) call.in[1] = cell_of(memory, b);
    call.out[0] = cell_of(memory, y);
    return call;
}

// Posts until the queue takes it; polling must make the device progress.
#define POST(api, event, posting)                                       \
    do {                                                                \
        bool posted_ = false, done_;                                    \
        while (!posted_) {                                              \
            bool *posted = &posted_;                                    \
            assert_int_equal((posting), ST_OK);                         \
            assert_int_equal((api)->event_query(event, &done_), ST_OK); \
        }                                                               \
    } while (0)

// ---- order: a random program on random streams equals its sequential run ------------------------
typedef struct use {
    int64_t writer,
        reader[STREAMS]; // latest operation that wrote; latest reader on each stream; -1
} use;

typedef struct program_run {
    const device_api *api;
    device *d;
    device_stream *streams[STREAMS];
    device_event *events[256];
    int stream_of[256];
    use uses[CELLS];
    void *memory;
    float sequential[CELLS][WIDTH];
} program_run;

static void wait_for(program_run *r, int stream, int64_t op)
{
    if (op < 0 || r->stream_of[op] == stream) return;
    POST(r->api, r->events[op], r->api->event_wait(r->streams[stream], r->events[op], posted));
}

static void step(program_run *r, int64_t op, int stream, const int64_t cell[3])
{
    for (int i = 0; i < 3; i++) wait_for(r, stream, r->uses[cell[i]].writer);
    for (int l = 0; l < STREAMS; l++) wait_for(r, stream, r->uses[cell[2]].reader[l]);
    kern_call call = call_of(OP_ADD, r->memory, cell[0], cell[1], cell[2]);
    call.attrs.scale = (float)op;
    POST(r->api, r->events[0], r->api->launch(r->streams[stream], &call, posted));
    POST(r->api, r->events[0], r->api->event_record(r->events[op], r->streams[stream], posted));
    r->stream_of[op] = stream;
    r->uses[cell[0]].reader[stream] = r->uses[cell[1]].reader[stream] = op;
    r->uses[cell[2]].writer = op;
    for (int l = 0; l < STREAMS; l++) r->uses[cell[2]].reader[l] = -1;

    float *y = r->sequential[cell[2]];
    for (int i = 0; i < WIDTH; i++) {
        y[i] = r->sequential[cell[0]][i] / 2 + r->sequential[cell[1]][i] / 4 + (float)op;
    }
}

static void program_check(const char *name, unsigned seed)
{
    static program_run r;
    memset(&r, 0, sizeof(r));
    r.api = device_find(name);
    r.d = device_make(name, seed);
    static const char *const stream_names[STREAMS] = {"compute", "one", "two", "copy"};
    for (int l = 0; l < STREAMS; l++) {
        assert_int_equal(r.api->stream_create(r.d, stream_names[l], l, &r.streams[l]), ST_OK);
    }
    for (int i = 0; i < 256; i++) assert_int_equal(r.api->event_create(r.d, &r.events[i]), ST_OK);
    assert_int_equal(r.api->alloc(r.d, (int64_t)sizeof(r.sequential), &r.memory), ST_OK);
    assert_int_equal((uintptr_t)r.memory % 4096, 0);
    for (int i = 0; i < CELLS; i++) {
        r.uses[i].writer = 0;
        for (int l = 0; l < STREAMS; l++) r.uses[i].reader[l] = -1;
        for (int j = 0; j < WIDTH; j++) r.sequential[i][j] = (float)(i * WIDTH + j);
    }
    // Operation 0: the initial values, from a host buffer that stays valid until the end.
    static float initial[CELLS][WIDTH], result[CELLS][WIDTH];
    memcpy(initial, r.sequential, sizeof(initial));
    POST(r.api, r.events[0],
         r.api->copy_in(r.streams[3], r.memory, initial, (int64_t)sizeof(initial), posted));
    POST(r.api, r.events[1], r.api->event_record(r.events[0], r.streams[3], posted));
    r.stream_of[0] = 3;
    for (int64_t op = 1; op < 200; op++) {
        int64_t cell[3];
        for (int i = 0; i < 3; i++) cell[i] = rand_r(&seed) % CELLS;
        if (cell[1] == cell[2]) cell[1] = (cell[1] + 1) % CELLS; // a may lie on y, b may not
        step(&r, op, rand_r(&seed) % STREAMS, cell);
    }
    for (int i = 0; i < CELLS; i++) wait_for(&r, 0, r.uses[i].writer);
    memset(result, 0, sizeof(result));
    POST(r.api, r.events[0],
         r.api->copy_out(r.streams[0], result, r.memory, (int64_t)sizeof(result), posted));
    POST(r.api, r.events[0], r.api->event_record(r.events[255], r.streams[0], posted));
    assert_int_equal(r.api->event_sync(r.events[255]), ST_OK);
    assert_memory_equal(result, r.sequential, sizeof(result));
    assert_int_equal(r.api->sync(r.d), ST_OK);
    r.api->release(r.d, r.memory);
    r.api->destroy(r.d);
}

static void any_legal_order_gives_the_sequential_result(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 12; seed++) {
        for (int64_t i = 0; i < COUNT_OF(names); i++) program_check(names[i], seed);
    }
}

// ---- errors -------------------------------------------------------------------------------------
static void first_error_sticks(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(names); i++) {
        const device_api *api = device_find(names[i]);
        device *d = device_make(names[i], 7);
        device_stream *stream, *other;
        device_event *e;
        void *memory;
        bool posted;
        assert_int_equal(api->stream_create(d, "compute", 0, &stream), ST_OK);
        assert_int_equal(api->stream_create(d, "other", 1, &other), ST_OK);
        assert_int_equal(api->event_create(d, &e), ST_OK);
        assert_int_equal(api->alloc(d, 4096, &memory), ST_OK);
        kern_call call = call_of(OP_CAST, memory, 0, 0, 1);
        call.layer = 33;
        // Posting may or may not see the error already; the first sync must.
        status st = api->launch(stream, &call, &posted);
        if (st == ST_OK) st = api->event_record(e, stream, &posted);
        if (st == ST_OK) st = api->event_wait(other, e, &posted);
        if (st == ST_OK) st = api->event_sync(e);
        assert_int_equal(st, ST_DEVICE);
        error_clear();
        assert_int_equal(api->sync(d), ST_DEVICE);
        assert_non_null(strstr(error_last()->text, "unit 33 is broken"));
        call.layer = 44;
        assert_int_equal(api->launch(other, &call, &posted), ST_DEVICE);
        assert_non_null(strstr(error_last()->text, "unit 33"));
        api->destroy(d);
    }
}

// ---- queues and events --------------------------------------------------------------------------
static void events_without_record_are_done(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(names); i++) {
        const device_api *api = device_find(names[i]);
        device *d = device_make(names[i], 1);
        device_stream *stream;
        device_event *e;
        bool done = false, posted = false;
        assert_int_equal(api->stream_create(d, "compute", 0, &stream), ST_OK);
        assert_int_equal(api->event_create(d, &e), ST_OK);
        assert_int_equal(api->event_query(e, &done), ST_OK);
        assert_true(done);
        assert_int_equal(api->event_sync(e), ST_OK);
        assert_int_equal(api->event_wait(stream, e, &posted), ST_OK);
        assert_true(posted);
        const host *h = host_real();
        const int64_t before = h->api->monotonic_ns(h);
        assert_int_equal(api->event_record(e, stream, &posted), ST_OK);
        assert_int_equal(api->event_sync(e), ST_OK);
        assert_true(api->event_ns(e) >= before && api->event_ns(e) <= h->api->monotonic_ns(h));
        assert_int_equal(api->sync(d), ST_OK);
        api->destroy(d);
    }
}

// The facts are those of the kernels, scratch goes to stream 0, and the thread of each stream opens
// its context.
static void kernels_are_asked(void **state)
{
    (void)state;
    for (int64_t i = 0; i < HOSTS; i++) {
        const device_api *api = device_find(names[i]);
        device *d = device_make(names[i], 3);
        device_stream *stream;
        char scratch[64];
        scratch_given = NULL;
        assert_int_equal(api->stream_create(d, "other", 1, &stream), ST_OK);
        assert_int_equal(api->stream_create(d, "compute", 0, &stream), ST_OK);
        assert_int_equal(api->scratch_set(d, scratch), ST_OK);
        assert_ptr_equal(scratch_given, scratch);
        const device_facts facts = api->facts(d);
        assert_string_equal(facts.name, names[i]);
        assert_string_equal(facts.level, "abacus");
        assert_int_equal(facts.units, 2);
        assert_true(api->peak_flops(d, DTYPE_BF16) == 2.0);
        api->destroy(d);
    }
    assert_true(atomic_load(&entered) >= 2);
}

// A queue is bounded: it reports that it is full, loses no work, and accepts more after it was
// polled.
static void full_queues_say_so(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(names); i++) {
        const device_api *api = device_find(names[i]);
        device *d = device_make(names[i], 5);
        device_stream *stream;
        device_event *e;
        void *memory;
        assert_int_equal(api->stream_create(d, "compute", 0, &stream), ST_OK);
        assert_int_equal(api->event_create(d, &e), ST_OK);
        assert_int_equal(api->alloc(d, 4096, &memory), ST_OK);
        static const float zero[2 * WIDTH];
        static float result[WIDTH];
        POST(api, e, api->copy_in(stream, memory, zero, (int64_t)sizeof(zero), posted));
        kern_call call = call_of(OP_ADD, memory, 0, 1, 0);
        int64_t count = 0;
        for (; count < 3000; count++) {
            call.attrs.scale = (float)(count % 7);
            POST(api, e, api->launch(stream, &call, posted));
        }
        POST(api, e, api->copy_out(stream, result, memory, (int64_t)sizeof(result), posted));
        assert_int_equal(api->sync(d), ST_OK);
        float expected = 0;
        for (int64_t k = 0; k < count; k++) expected = expected / 2 + 0.0F / 4 + (float)(k % 7);
        assert_true(result[0] == expected);
        api->destroy(d);
    }
}

// Two calls of one launch take two items of the queue and run in its order, each once, even if the
// queue is full.
static void two_calls_are_one_launch(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(names); i++) {
        const device_api *api = device_find(names[i]);
        device *d = device_make(names[i], 6);
        device_stream *stream;
        device_event *e;
        void *memory;
        assert_int_equal(api->stream_create(d, "compute", 0, &stream), ST_OK);
        assert_int_equal(api->event_create(d, &e), ST_OK);
        assert_int_equal(api->alloc(d, 4096, &memory), ST_OK);
        static const float zero[2 * WIDTH];
        static float result[WIDTH];
        float expected = 0;
        POST(api, e, api->copy_in(stream, memory, zero, (int64_t)sizeof(zero), posted));
        for (int64_t count = 0; count < 1500; count++) {
            kern_call first = call_of(OP_ADD, memory, 0, 1, 0), second = first;
            first.attrs.scale = (float)(count % 7);
            second.attrs.scale = (float)(count % 5);
            first.then = count % 3 != 0 ? &second : NULL;
            POST(api, e, api->launch(stream, &first, posted));
            expected = expected / 2 + first.attrs.scale;
            if (first.then != NULL) expected = expected / 2 + second.attrs.scale;
            memset(&second, 0xff, sizeof(second)); // the device has a copy
        }
        POST(api, e, api->copy_out(stream, result, memory, (int64_t)sizeof(result), posted));
        assert_int_equal(api->sync(d), ST_OK);
        assert_true(result[0] == expected);
        api->destroy(d);
    }
}

static status gate_pass(void *context)
{
    while (sem_wait(context) != 0) continue;
    return ST_OK;
}

static status gate_open(void *context)
{
    const host *h = host_real();
    h->api->sleep_ns(h, 20000000);
    assert_int_equal(sem_post(context), 0);
    return ST_OK;
}

// Work that leaves a full queue wakes a thread that waits for queue space, and the queue takes as
// many items as a plan may count on.
static void queue_space_is_awaited(void **state)
{
    (void)state;
    const device_api *api = &device_cpu;
    device *d = device_make("cpu", 5);
    device_stream *stream, *other;
    void *memory;
    sem_t gate;
    bool posted = true;
    assert_int_equal(sem_init(&gate, 0, 0), 0);
    assert_int_equal(api->stream_create(d, "compute", 0, &stream), ST_OK);
    assert_int_equal(api->stream_create(d, "other", 1, &other), ST_OK);
    assert_int_equal(api->alloc(d, 8, &memory), ST_OK);
    assert_int_equal(api->space_wait(d), ST_OK);
    assert_int_equal(api->call(stream, gate_pass, &gate, &posted), ST_OK);
    while (posted) assert_int_equal(api->fill(stream, memory, 1, 8, &posted), ST_OK);
    assert_int_equal(api->call(other, gate_open, &gate, &posted), ST_OK);
    // It returns when much has been done, in this stream or in the other one: not once for each
    // item of work.
    int awaits = 0;
    for (int i = 0; i < DEVICE_QUEUE_ITEMS; i += posted) {
        assert_int_equal(api->fill(stream, memory, 2, 8, &posted), ST_OK);
        if (posted) continue;
        assert_int_equal(api->space_wait(d), ST_OK);
        assert_true(++awaits <= 12);
    }
    assert_int_equal(api->sync(d), ST_OK);
    api->destroy(d);
    assert_int_equal(sem_destroy(&gate), 0);
}

static void fill_sets_every_byte(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(names); i++) {
        const device_api *api = device_find(names[i]);
        device *d = device_make(names[i], 9);
        device_stream *stream;
        device_event *e;
        void *memory;
        unsigned char result[8] = {0};
        assert_int_equal(api->stream_create(d, "compute", 0, &stream), ST_OK);
        assert_int_equal(api->event_create(d, &e), ST_OK);
        assert_int_equal(api->alloc(d, 8, &memory), ST_OK);
        POST(api, e, api->fill(stream, memory, 0x11, 8, posted));
        POST(api, e, api->fill(stream, (char *)memory + 2, 0xff, 3, posted));
        POST(api, e, api->copy_out(stream, result, memory, 8, posted));
        assert_int_equal(api->sync(d), ST_OK);
        static const unsigned char want[8] = {0x11, 0x11, 0xff, 0xff, 0xff, 0x11, 0x11, 0x11};
        assert_memory_equal(result, want, sizeof(want));
        api->destroy(d);
    }
}

// Large copies are made in pieces, by several threads; the last piece is not whole.
static void large_copies_are_whole(void **state)
{
    (void)state;
    enum { BYTES = (5 << 20) + 77, FILLED = (2 << 20) + 5 };
    unsigned char *source = malloc(BYTES), *result = calloc(1, BYTES);
    assert_true(source != NULL && result != NULL);
    for (int64_t i = 0; i < BYTES; i++) source[i] = (unsigned char)(i * 31 >> 3);
    for (int64_t i = 0; i < COUNT_OF(names); i++) {
        const device_api *api = device_find(names[i]);
        device *d = device_make(names[i], 4);
        device_stream *stream;
        device_event *e;
        void *memory;
        assert_int_equal(api->stream_create(d, "compute", 0, &stream), ST_OK);
        assert_int_equal(api->event_create(d, &e), ST_OK);
        assert_int_equal(api->alloc(d, BYTES + 1, &memory), ST_OK);
        POST(api, e, api->fill(stream, memory, 0x5a, BYTES + 1, posted));
        POST(api, e, api->copy_in(stream, memory, source, BYTES, posted));
        POST(api, e, api->fill(stream, (char *)memory + 3, 0x77, FILLED, posted));
        POST(api, e, api->copy_out(stream, result, (char *)memory + 1, BYTES, posted));
        assert_int_equal(api->sync(d), ST_OK);
        for (int64_t k = 1; k <= BYTES; k++) {
            const bool filled = k >= 3 && k < 3 + FILLED;
            const unsigned char want = k == BYTES ? 0x5a : filled ? 0x77 : source[k];
            if (result[k - 1] != want) assert_int_equal(k, -1);
        }
        api->destroy(d);
    }
    free(source);
    free(result);
}

// Only calls of the traced steps leave a span, on their stream, with the name of the operation.
static void traced_steps_leave_spans(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(names); i++) {
        const device_api *api = device_find(names[i]);
        const bool is_gpu = strcmp(names[i], "cuda") == 0;
        trace_ring *ring;
        assert_int_equal(trace_create(host_real(), 64, &ring), ST_OK);
        const device_config config = {.h = host_real(),
                                      .run = &fake,
                                      .kernels = &given,
                                      .trace = ring,
                                      .trace_begin = 2,
                                      .trace_end = 3,
                                      .driver = is_gpu ? &driver : NULL};
        if (is_gpu) driver_begin(11);
        device *d;
        device_stream *stream;
        device_event *e;
        void *memory;
        assert_int_equal(api->create(&config, &d), ST_OK);
        assert_int_equal(api->stream_create(d, "side", 4, &stream), ST_OK);
        assert_int_equal(api->event_create(d, &e), ST_OK);
        assert_int_equal(api->alloc(d, 4096, &memory), ST_OK);
        kern_call call = call_of(OP_ADD, memory, 0, 1, 2);
        for (call.step_no = 1; call.step_no <= 4; call.step_no++) {
            call.layer = call.step_no * 10;
            POST(api, e, api->launch(stream, &call, posted));
        }
        assert_int_equal(api->sync(d), ST_OK);
        trace_record spans[8];
        assert_int_equal(trace_take(ring, spans, 8), 2);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(spans[k].kind, TRACE_SPAN);
            assert_int_equal(spans[k].stream, 4);
            assert_int_equal(spans[k].step, 2 + k);
            assert_int_equal(spans[k].layer, 20 + 10 * k);
            assert_string_equal(spans[k].name, "add");
            assert_true(spans[k].begin_ns <= spans[k].end_ns);
        }
        api->destroy(d);
        trace_destroy(ring);
    }
}

// Pinned memory is zeroed and aligned; the total memory of the device is at least its free memory.
static void host_memory_is_given(void **state)
{
    (void)state;
    for (int64_t i = 0; i < COUNT_OF(names); i++) {
        const device_api *api = device_find(names[i]);
        device *d = device_make(names[i], 2);
        device_stream *stream;
        void *memory;
        char *host_memory = NULL;
        assert_int_equal(api->stream_create(d, "copy", 1, &stream), ST_OK);
        assert_int_equal(api->alloc(d, 100, &memory), ST_OK);
        assert_int_equal(api->host_alloc(d, 100, (void **)&host_memory), ST_OK);
        assert_int_equal((uintptr_t)host_memory % 64, 0);
        for (int k = 0; k < 100; k++) assert_int_equal(host_memory[k], 0);
        bool posted = false;
        memset(host_memory, 7, 50);
        assert_int_equal(api->copy_in(stream, memory, host_memory, 50, &posted), ST_OK);
        assert_true(posted);
        assert_int_equal(api->copy_out(stream, host_memory + 50, memory, 50, &posted), ST_OK);
        assert_true(posted);
        assert_int_equal(api->sync(d), ST_OK);
        for (int k = 0; k < 100; k++) assert_int_equal(host_memory[k], 7);
        api->host_free(d, host_memory);
        api->host_free(d, NULL);
        const device_memory_info info = api->memory_info(d);
        assert_true(info.all_bytes > 0);
        assert_true(info.free_bytes > 0 && info.free_bytes <= info.all_bytes);
        api->destroy(d);
    }
}

// ---- what only a GPU has ------------------------------------------------------------------------
static status mark(void *context)
{
    *(volatile int *)context += 1;
    return ST_OK;
}

static status refuse(void *context)
{
    return fail_at(__FILE__, __LINE__, ST_TIMEOUT, "rank %d did not come", *(int *)context);
}

// A host function runs after the work before it and before the work after it, and one stream's may
// wait for another's.
static void host_functions_keep_the_order(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 8; seed++) {
        device *d = device_make("cuda", seed);
        const device_api *api = d->api;
        device_stream *one, *two;
        bool posted = false;
        sem_t gate;
        int *memory = NULL;
        void *on_gpu;
        assert_int_equal(sem_init(&gate, 0, 0), 0);
        assert_int_equal(api->stream_create(d, "one", 1, &one), ST_OK);
        assert_int_equal(api->stream_create(d, "two", 2, &two), ST_OK);
        assert_int_equal(api->alloc(d, 64, &on_gpu), ST_OK);
        assert_int_equal(api->host_alloc(d, 64, (void **)&memory), ST_OK);
        memory[0] = 40;
        assert_int_equal(api->call(one, gate_pass, &gate, &posted), ST_OK);
        assert_int_equal(api->call(two, gate_open, &gate, &posted), ST_OK);
        // 40 goes to the GPU and back to another place, which the function then changes.
        assert_int_equal(api->copy_in(one, on_gpu, &memory[0], 4, &posted), ST_OK);
        assert_int_equal(api->copy_out(one, &memory[1], on_gpu, 4, &posted), ST_OK);
        for (int i = 0; i < 3; i++)
            assert_int_equal(api->call(one, mark, &memory[1], &posted), ST_OK);
        assert_int_equal(api->copy_in(one, on_gpu, &memory[1], 4, &posted), ST_OK);
        assert_int_equal(api->copy_out(one, &memory[2], on_gpu, 4, &posted), ST_OK);
        assert_int_equal(api->sync(d), ST_OK);
        assert_int_equal(memory[2], 43);
        assert_int_equal(fake_driver_look().pageable_copies, 0);
        api->host_free(d, memory);
        api->destroy(d);
        assert_null(fake_driver_end());
        assert_int_equal(sem_destroy(&gate), 0);
    }
}

static void an_error_of_a_host_function_sticks(void **state)
{
    (void)state;
    device *d = device_make("cuda", 3);
    device_stream *stream;
    bool posted = false;
    int rank = 5;
    assert_int_equal(d->api->stream_create(d, "dp", 1, &stream), ST_OK);
    assert_int_equal(d->api->call(stream, refuse, &rank, &posted), ST_OK);
    assert_int_equal(d->api->sync(d), ST_TIMEOUT);
    assert_non_null(strstr(error_last()->text, "rank 5 did not come"));
    assert_int_equal(d->api->call(stream, mark, &rank, &posted), ST_TIMEOUT);
    d->api->destroy(d);
}

// Errors of the driver are sentences with its name for the error.
static void errors_of_the_driver_are_named(void **state)
{
    (void)state;
    device *d = device_make("cuda", 4);
    void *memory = NULL;
    device_stream *stream;
    bool posted = false;
    assert_int_equal(d->api->alloc(d, 80 << 20, &memory), ST_NO_MEMORY);
    assert_non_null(strstr(error_last()->text, "80.0 MiB of memory: CUDA_ERROR_OUT_OF_MEMORY"));
    assert_int_equal(d->api->alloc(d, 1 << 20, &memory), ST_OK); // it does not stick
    assert_int_equal(d->api->facts(d).units, 4);
    assert_string_equal(d->api->facts(d).level, "sm_90 fake GPU 0");
    assert_true(d->api->peak_flops(d, DTYPE_BF16) == 4096e9 * 4);
    assert_int_equal(d->api->stream_create(d, "compute", 0, &stream), ST_OK);
    static char source[64];
    assert_int_equal(d->api->copy_in(stream, (char *)memory + (1 << 20) - 32, source, 64, &posted),
                     ST_OK);
    assert_int_equal(d->api->copy_in(stream, (char *)memory + (2 << 20), source, 64, &posted),
                     ST_DEVICE);
    assert_non_null(strstr(error_last()->text, "a copy outside of allocations"));
    assert_int_equal(d->api->fill(stream, memory, 0, 64, &posted), ST_DEVICE);
    d->api->destroy(d);
    assert_non_null(fake_driver_end());
}

// ---- mistakes that only the shadow device shows -------------------------------------------------
static void host_cannot_touch_shadow_memory(void **state)
{
    (void)state;
    device *d = device_make("shadow", 1);
    void *memory;
    assert_int_equal(d->api->alloc(d, 100000, &memory), ST_OK);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)signal(SIGSEGV, SIG_DFL);
        *(volatile char *)memory = 1;
        _exit(0);
    }
    int result;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFSIGNALED(result));
    assert_int_equal(WTERMSIG(result), SIGSEGV);
    d->api->destroy(d);
}

// A buffer that is reused before its event is done must show for some seed.
static void shadow_reads_the_source_late(void **state)
{
    (void)state;
    int late = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
        device *d = device_make("shadow", seed);
        device_stream *stream;
        device_event *e;
        void *memory;
        assert_int_equal(d->api->stream_create(d, "copy", 0, &stream), ST_OK);
        assert_int_equal(d->api->event_create(d, &e), ST_OK);
        assert_int_equal(d->api->alloc(d, 4096, &memory), ST_OK);
        int source = 1, target = 0;
        POST(d->api, e, d->api->copy_in(stream, memory, &source, (int64_t)sizeof(source), posted));
        source = 2;
        POST(d->api, e, d->api->copy_out(stream, &target, memory, (int64_t)sizeof(target), posted));
        assert_int_equal(d->api->sync(d), ST_OK);
        assert_true(target == 1 || target == 2);
        late += target == 2;
        d->api->destroy(d);
    }
    assert_true(late > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_legal_order_gives_the_sequential_result),
        cmocka_unit_test(first_error_sticks),
        cmocka_unit_test(events_without_record_are_done),
        cmocka_unit_test(kernels_are_asked),
        cmocka_unit_test(full_queues_say_so),
        cmocka_unit_test(two_calls_are_one_launch),
        cmocka_unit_test(queue_space_is_awaited),
        cmocka_unit_test(fill_sets_every_byte),
        cmocka_unit_test(large_copies_are_whole),
        cmocka_unit_test(traced_steps_leave_spans),
        cmocka_unit_test(host_memory_is_given),
        cmocka_unit_test(host_functions_keep_the_order),
        cmocka_unit_test(an_error_of_a_host_function_sticks),
        cmocka_unit_test(errors_of_the_driver_are_named),
        cmocka_unit_test(host_cannot_touch_shadow_memory),
        cmocka_unit_test(shadow_reads_the_source_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
