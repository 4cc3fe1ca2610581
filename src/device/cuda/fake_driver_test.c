// The driver without a GPU finds mistakes of the host: each test makes some, by calls of the
// driver, and reads the rule that was broken.
#include "device/cuda/launch.h"
#include "fixtures/device/fake_driver.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static cuda_driver cu;

static status kernel_run(void *context, const cuda_launch *l)
{
    (void)context;
    int *const *at = l->params[0];
    **at += 1;
    return ST_OK;
}

static int64_t kernel_bytes(void *context, const char *kernel)
{
    (void)context;
    return strcmp(kernel, "count") == 0 ? (int64_t)sizeof(int *) : -1;
}

typedef struct rig {
    cuda_context context;
    cuda_stream one, two;
    cuda_event event;
    cuda_module module;
    cuda_function count;
    cuda_address memory;
    void *pinned;
} rig;

static rig rig_make(uint64_t seed)
{
    rig r = {0};
    const fake_driver_config config = {.seed = seed,
                                       .memory_bytes = 1 << 20,
                                       .gpus = 1,
                                       .run = kernel_run,
                                       .args_bytes = kernel_bytes};
    fake_driver_begin(&config, &cu);
    assert_int_equal(cu.context_retain(&r.context, 0), 0);
    assert_int_equal(cu.context_enter(r.context), 0);
    assert_int_equal(cu.stream_create(&r.one, CUDA_STREAM_NON_BLOCKING), 0);
    assert_int_equal(cu.stream_create(&r.two, CUDA_STREAM_NON_BLOCKING), 0);
    assert_int_equal(cu.event_create(&r.event, 0), 0);
    assert_int_equal(cu.module_load(&r.module, NULL), 0);
    assert_int_equal(cu.function_find(&r.count, r.module, "count"), 0);
    assert_int_equal(cu.memory_alloc(&r.memory, 4096), 0);
    assert_int_equal(cu.host_alloc(&r.pinned, 4096, 0), 0);
    return r;
}

// Ends the rig and checks the rule that was broken; NULL: none.
static void rig_end(rig *r, const char *rule)
{
    assert_int_equal(cu.context_release(0), 0);
    const char *said = fake_driver_end();
    if (rule == NULL) {
        assert_null(said);
    } else {
        assert_non_null(said);
        assert_non_null(strstr(said, rule));
    }
    memset(r, 0, sizeof(*r));
}

static void *without_context(void *result)
{
    cuda_event e = NULL;
    *(cuda_result *)result = cu.event_create(&e, 0);
    return NULL;
}

static void a_thread_needs_a_context(void **state)
{
    (void)state;
    rig r = rig_make(1);
    pthread_t thread;
    cuda_result result = 0;
    assert_int_equal(pthread_create(&thread, NULL, without_context, &result), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(result, 201);
    rig_end(&r, "a thread without a context");
}

static cuda_result count_launch(const rig *r, unsigned threads, unsigned grid_y, unsigned shared)
{
    int *at = (int *)(uintptr_t)r->memory;
    void *params[] = {&at};
    const cuda_launch_config config = {
        .grid = {1, grid_y, 1}, .block = {threads, 1, 1}, .shared_bytes = shared, .stream = r->one};
    return cu.launch(&config, r->count, params, NULL);
}

static void launches_have_limits(void **state)
{
    (void)state;
    static const unsigned wrong[][3] = {
        {0, 1, 0}, {1025, 1, 0}, {32, 0, 0}, {32, 65536, 0}, {32, 1, 49153}};
    for (int i = 0; i < COUNT_OF(wrong); i++) {
        rig r = rig_make(2);
        assert_int_equal(count_launch(&r, wrong[i][0], wrong[i][1], wrong[i][2]), 1);
        rig_end(&r, "the shape of a launch of count");
    }
    rig r = rig_make(2);
    assert_int_equal(cu.function_set(r.count, CUDA_FUNCTION_DYNAMIC_SHARED_BYTES, 100000), 0);
    assert_int_equal(count_launch(&r, 32, 1, 100000), 0);
    assert_int_equal(cu.stream_sync(r.one), 0);
    assert_int_equal(cu.function_set(r.count, CUDA_FUNCTION_DYNAMIC_SHARED_BYTES, 300000), 1);
    rig_end(&r, "more shared memory than a block has");
}

static void an_unknown_kernel_is_not_found(void **state)
{
    (void)state;
    rig r = rig_make(3);
    cuda_function f = NULL;
    assert_int_equal(cu.function_find(&f, r.module, "counts"), CUDA_NOT_FOUND);
    rig_end(&r, NULL);
}

static void copies_stay_in_their_memory(void **state)
{
    (void)state;
    rig r = rig_make(4);
    assert_int_equal(cu.copy_in(r.memory + 4000, r.pinned, 97, r.one), 1);
    rig_end(&r, "a copy outside of allocations");
    r = rig_make(4);
    assert_int_equal(cu.copy(r.memory, r.memory + 4096, 8, r.one), 1);
    rig_end(&r, "a copy outside of allocations");
    r = rig_make(4);
    assert_int_equal(cu.fill(r.memory, 0, 4097, r.one), 1);
    rig_end(&r, "a fill outside of allocations");
    r = rig_make(4);
    assert_int_equal(cu.memory_free(r.memory), 0);
    assert_int_equal(cu.copy_in(r.memory, r.pinned, 8, r.one), 1); // after it was freed
    rig_end(&r, "a copy outside of allocations");
}

static void pageable_copies_are_counted(void **state)
{
    (void)state;
    rig r = rig_make(5);
    char stack[64] = "text";
    assert_int_equal(cu.copy_in(r.memory, stack, 64, r.one), 0);
    assert_int_equal(cu.copy_in(r.memory, r.pinned, 64, r.one), 0);
    assert_int_equal(cu.copy_out(stack + 1, r.memory, 7, r.one), 0);
    assert_int_equal(fake_driver_look().pageable_copies, 2);
    assert_int_equal(cu.stream_sync(r.one), 0);
    rig_end(&r, NULL);
}

static void memory_outlives_its_work(void **state)
{
    (void)state;
    rig r = rig_make(6);
    for (int i = 0; i < 100; i++) assert_int_equal(count_launch(&r, 32, 1, 0), 0);
    assert_int_equal(cu.memory_free(r.memory), 0);
    rig_end(&r, "memory is freed while streams work");
    r = rig_make(6);
    for (int i = 0; i < 100; i++) assert_int_equal(count_launch(&r, 32, 1, 0), 0);
    assert_int_equal(cu.stream_destroy(r.one), 0);
    rig_end(&r, "a stream is destroyed with work");
    r = rig_make(6);
    assert_int_equal(cu.memory_free(r.memory), 0);
    assert_int_equal(cu.memory_free(r.memory), 1);
    rig_end(&r, "memory is freed that is not allocated");
    r = rig_make(6);
    assert_int_equal(cu.host_free(&r), 1);
    rig_end(&r, "host memory is freed that is not pinned");
}

static void handles_are_used_while_they_live(void **state)
{
    (void)state;
    rig r = rig_make(7);
    assert_int_equal(cu.stream_destroy(r.two), 0);
    assert_int_equal(cu.event_record(r.event, r.two), 400);
    rig_end(&r, "a stream that is gone");
    r = rig_make(7);
    assert_int_equal(cu.event_destroy(r.event), 0);
    assert_int_equal(cu.stream_wait(r.one, r.event, 0), 400);
    rig_end(&r, "an event that is gone");
    r = rig_make(7);
    assert_int_equal(cu.event_destroy(r.event), 0);
    assert_int_equal(cu.event_destroy(r.event), 400);
    rig_end(&r, "an event is destroyed twice");
}

// A host that forgets to wait for an event reads too early for some seed, and never with the wait.
static void a_missing_wait_shows(void **state)
{
    (void)state;
    int early[2] = {0};
    for (int waits = 0; waits < 2; waits++) {
        for (uint64_t seed = 0; seed < 20; seed++) {
            rig r = rig_make(seed);
            int *result = r.pinned;
            *result = 7;
            assert_int_equal(cu.copy_in(r.memory, result, 4, r.one), 0);
            assert_int_equal(count_launch(&r, 1, 1, 0), 0);
            assert_int_equal(cu.event_record(r.event, r.one), 0);
            if (waits != 0) assert_int_equal(cu.stream_wait(r.two, r.event, 0), 0);
            assert_int_equal(cu.copy_out(&result[1], r.memory, 4, r.two), 0);
            assert_int_equal(cu.stream_sync(r.two), 0);
            early[waits] += result[1] != 8;
            assert_int_equal(cu.stream_sync(r.one), 0);
            rig_end(&r, NULL);
        }
    }
    assert_true(early[0] > 0);
    assert_int_equal(early[1], 0);
}

// A wait for a count must be in pinned memory, and memory beyond the GPU's is refused.
static void waits_and_memory_have_limits(void **state)
{
    (void)state;
    rig r = rig_make(8);
    uint32_t count = 1;
    const cuda_address at = (cuda_address)(uintptr_t)&count;
    assert_int_equal(cu.stream_wait_value(r.one, at, 1, CUDA_WAIT_AT_LEAST), 1);
    rig_end(&r, "a wait for a value that is not in pinned memory");
    r = rig_make(8);
    cuda_address more = 0;
    assert_int_equal(cu.memory_alloc(&more, 1 << 20), CUDA_OUT_OF_MEMORY);
    rig_end(&r, NULL);
}

// ---- captures -----------------------------------------------------------------------------------
static cuda_result capture_begin(const rig *r)
{
    return cu.capture_begin(r->one, CUDA_CAPTURE_THREAD);
}

static cuda_graph_exec graph_end(const rig *r)
{
    cuda_graph g = NULL;
    cuda_graph_exec e = NULL;
    assert_int_equal(cu.capture_end(r->one, &g), 0);
    assert_int_equal(cu.graph_make(&e, g, 0), 0);
    assert_int_equal(cu.graph_destroy(g), 0);
    return e;
}

// A graph of two streams adds one to a number and copies it out, each time it is launched.
static void a_graph_repeats_its_work(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 10; seed++) {
        rig r = rig_make(seed);
        int *result = r.pinned;
        *result = 0;
        assert_int_equal(cu.copy_in(r.memory, result, 4, r.one), 0);
        assert_int_equal(cu.stream_sync(r.one), 0);
        assert_int_equal(capture_begin(&r), 0);
        assert_int_equal(count_launch(&r, 1, 1, 0), 0);
        assert_int_equal(cu.event_record(r.event, r.one), 0);
        assert_int_equal(cu.stream_wait(r.two, r.event, 0), 0);
        assert_int_equal(cu.copy_out(result, r.memory, 4, r.two), 0);
        assert_int_equal(cu.event_record(r.event, r.two), 0);
        assert_int_equal(cu.stream_wait(r.one, r.event, 0), 0);
        const cuda_graph_exec e = graph_end(&r);
        assert_int_equal(*result, 0); // nothing was done yet
        for (int i = 1; i <= 5; i++) {
            assert_int_equal(cu.graph_launch(e, r.one), 0);
            assert_int_equal(cu.stream_sync(r.one), 0);
            assert_int_equal(*result, i);
        }
        assert_int_equal(cu.graph_exec_destroy(e), 0);
        rig_end(&r, NULL);
    }
}

typedef enum forbidden {
    CAPTURE_TWICE,
    CAPTURE_ALLOCATES,
    CAPTURE_FREES,
    CAPTURE_PINS,
    CAPTURE_LOADS,
    CAPTURE_SYNCS,
    CAPTURE_SYNCS_EVENT,
    CAPTURE_QUERIES,
    CAPTURE_PAGEABLE,
    CAPTURE_WAITS_VALUE,
    CAPTURE_WAITS_BEFORE,
    CAPTURE_LAUNCHES_GRAPH,
    FORBIDDEN_COUNT
} forbidden;

static cuda_result forbidden_call(const rig *r, forbidden which, cuda_event before,
                                  cuda_graph_exec graph)
{
    cuda_address memory = 0;
    cuda_module module = NULL;
    void *pinned = NULL;
    int stack = 0;
    switch (which) {
    case CAPTURE_TWICE:
        return cu.capture_begin(r->two, CUDA_CAPTURE_THREAD);
    case CAPTURE_ALLOCATES:
        return cu.memory_alloc(&memory, 16);
    case CAPTURE_FREES:
        return cu.memory_free(r->memory);
    case CAPTURE_PINS:
        return cu.host_alloc(&pinned, 16, 0);
    case CAPTURE_LOADS:
        return cu.module_load(&module, NULL);
    case CAPTURE_SYNCS:
        return cu.stream_sync(r->one);
    case CAPTURE_SYNCS_EVENT:
        return cu.event_sync(before);
    case CAPTURE_QUERIES:
        return cu.event_query(before);
    case CAPTURE_PAGEABLE:
        return cu.copy_in(r->memory, &stack, 4, r->one);
    case CAPTURE_WAITS_VALUE:
        return cu.stream_wait_value(r->one, (cuda_address)(uintptr_t)r->pinned, 1,
                                    CUDA_WAIT_AT_LEAST);
    case CAPTURE_WAITS_BEFORE:
        return cu.stream_wait(r->one, before, 0);
    case CAPTURE_LAUNCHES_GRAPH:
        return cu.graph_launch(graph, r->one);
    case FORBIDDEN_COUNT:
        break;
    }
    return 0;
}

// A call that a capture forbids fails; what was captured is lost, and the device goes on.
static void captures_forbid_calls(void **state)
{
    (void)state;
    static const char *const rules[] = {"a capture within a capture",
                                        "an allocation in a capture",
                                        "memory that is freed in a capture",
                                        "an allocation of host memory in a capture",
                                        "a module that is loaded in a capture",
                                        "a wait of the host in a capture",
                                        "a wait of the host in a capture",
                                        "a query in a capture",
                                        "a copy to pageable memory in a capture",
                                        "a wait for a value in a capture",
                                        "a wait for work before in a capture",
                                        "a launch of a graph in a capture"};
    for (int i = 0; i < FORBIDDEN_COUNT; i++) {
        rig r = rig_make(9);
        cuda_event before = NULL;
        cuda_graph g = NULL;
        assert_int_equal(cu.event_create(&before, 0), 0);
        assert_int_equal(cu.event_record(before, r.two), 0);
        assert_int_equal(capture_begin(&r), 0);
        const cuda_graph_exec graph = graph_end(&r);
        assert_int_equal(capture_begin(&r), 0);
        assert_int_not_equal(forbidden_call(&r, (forbidden)i, before, graph), 0);
        assert_int_equal(cu.capture_end(r.one, &g), i == CAPTURE_TWICE ? 0 : 901);
        assert_int_equal(count_launch(&r, 1, 1, 0), 0);
        assert_int_equal(cu.stream_sync(r.one), 0);
        rig_end(&r, rules[i]);
    }
}

static void captures_end_where_they_began(void **state)
{
    (void)state;
    cuda_graph g = NULL;
    rig r = rig_make(10);
    assert_int_equal(capture_begin(&r), 0);
    assert_int_equal(cu.capture_end(r.two, &g), 903);
    rig_end(&r, "that this stream did not begin");
    r = rig_make(10); // the second stream's work is not awaited
    assert_int_equal(capture_begin(&r), 0);
    assert_int_equal(cu.event_record(r.event, r.one), 0);
    assert_int_equal(cu.stream_wait(r.two, r.event, 0), 0);
    assert_int_equal(cu.fill(r.memory, 0, 4, r.two), 0);
    assert_int_equal(cu.capture_end(r.one, &g), 904);
    rig_end(&r, "work that the first stream does not wait for");
    r = rig_make(10); // awaited too early
    assert_int_equal(capture_begin(&r), 0);
    assert_int_equal(cu.event_record(r.event, r.one), 0);
    assert_int_equal(cu.stream_wait(r.two, r.event, 0), 0);
    assert_int_equal(cu.event_record(r.event, r.two), 0);
    assert_int_equal(cu.stream_wait(r.one, r.event, 0), 0);
    assert_int_equal(cu.fill(r.memory, 0, 4, r.two), 0);
    assert_int_equal(cu.capture_end(r.one, &g), 904);
    rig_end(&r, "work that the first stream does not wait for");
    r = rig_make(10); // an event that was recorded in a graph only
    assert_int_equal(capture_begin(&r), 0);
    assert_int_equal(cu.event_record(r.event, r.one), 0);
    (void)graph_end(&r);
    assert_int_equal(cu.event_sync(r.event), 907);
    rig_end(&r, "an event of a capture");
}

static void graphs_use_what_is_there(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++) {
        static const char *const rules[] = {
            "a graph uses memory that is gone", "a graph uses memory that is gone",
            "a graph is destroyed that runs", "a graph that is gone"};
        rig r = rig_make(11);
        assert_int_equal(capture_begin(&r), 0);
        for (int i = 0; i < 50; i++) assert_int_equal(cu.copy_in(r.memory, r.pinned, 4, r.one), 0);
        const cuda_graph_exec e = graph_end(&r);
        if (how == 0) assert_int_equal(cu.memory_free(r.memory), 0);
        if (how == 1) assert_int_equal(cu.host_free(r.pinned), 0);
        if (how == 2) {
            // Behind other work, so that it waits.
            for (int i = 0; i < 100; i++) assert_int_equal(count_launch(&r, 1, 1, 0), 0);
            for (int i = 0; i < 20; i++) assert_int_equal(cu.graph_launch(e, r.one), 0);
        }
        if (how >= 2) assert_int_equal(cu.graph_exec_destroy(e), 0);
        if (how != 2) assert_int_not_equal(cu.graph_launch(e, r.one), 0);
        rig_end(&r, rules[how]);
    }
}

// ---- memory of another process ------------------------------------------------------------------
// The owner is a child with a driver of its own. It gives a handle, and then does as it is told.
typedef enum order { OWNER_ENDS, OWNER_FREES, OWNER_WRITES, OWNER_SYNCS } order;
typedef struct owner {
    pid_t child;
    int orders, answers;
    cuda_ipc_handle handle;
} owner;

// Answers an order by the rule that it broke, "" for none.
static void owner_obey(rig *r, int orders, int answers)
{
    cuda_ipc_handle handle = {{0}};
    order o;
    assert_int_equal(cu.ipc_handle(&handle, r->memory), 0);
    if (write(answers, &handle, sizeof(handle)) < 0) _exit(1);
    while (read(orders, &o, sizeof(o)) == (ssize_t)sizeof(o) && o != OWNER_ENDS) {
        char said[256] = "";
        if (o == OWNER_FREES) (void)cu.memory_free(r->memory);
        if (o == OWNER_WRITES) { // behind other work, so it is late
            for (int i = 0; i < 8; i++) (void)cu.fill(r->memory + 64, 0, 4, r->one);
            (void)cu.fill(r->memory, 5, 64, r->one);
        }
        if (o == OWNER_SYNCS) (void)cu.stream_sync(r->one);
        const char *rule = o == OWNER_FREES ? fake_driver_end() : NULL;
        if (rule != NULL) strncpy(said, rule, sizeof(said) - 1);
        if (write(answers, said, sizeof(said)) < 0) _exit(1);
    }
    _exit(0);
}

static owner owner_make(uint64_t seed)
{
    int to[2], back[2];
    owner w = {0};
    assert_int_equal(pipe(to) + pipe(back), 0);
    w.child = fork();
    assert_true(w.child >= 0);
    if (w.child == 0) {
        (void)close(to[1]);
        (void)close(back[0]);
        rig r = rig_make(seed);
        owner_obey(&r, to[0], back[1]);
    }
    (void)close(to[0]);
    (void)close(back[1]);
    w.orders = to[1];
    w.answers = back[0];
    assert_int_equal(read(w.answers, &w.handle, sizeof(w.handle)), sizeof(w.handle));
    return w;
}

static void owner_tell(const owner *w, order o, const char *rule)
{
    char said[256];
    assert_int_equal(write(w->orders, &o, sizeof(o)), sizeof(o));
    assert_int_equal(read(w->answers, said, sizeof(said)), sizeof(said));
    assert_string_equal(said, rule);
}

static void owner_end(const owner *w)
{
    int result = 0;
    (void)close(w->orders);
    (void)close(w->answers);
    assert_int_equal(waitpid(w->child, &result, 0), w->child);
}

typedef enum peer_mistake {
    PEER_NONE,
    PEER_OPENS_OWN,       // the handle of its own memory
    PEER_HANDLE_INSIDE,   // of an address within a piece
    PEER_FLAGS,           // without access to other GPUs
    PEER_OPENS_GONE,      // a handle of memory that its owner has freed
    PEER_OPENS_DEAD,      // of a process that has ended
    PEER_OFFSET,          // copies beyond the end of the owner's memory
    PEER_USES_CLOSED,     // after it has closed it
    PEER_USES_FREED,      // after the owner has freed it
    PEER_FREES,           // frees it instead of closing it
    PEER_CLOSES_TWICE,    // or what it never opened
    PEER_CLOSES_OWN,      // its own memory
    PEER_CLOSES_EARLY,    // before its work is done
    PEER_OPENS_CAPTURING, // within a capture
    PEER_ENABLE_FLAGS,    // of access to another GPU
    PEER_MISTAKES
} peer_mistake;

// Opens the owner's memory and copies from it, with one mistake.
static void peer_mistake_make(rig *r, const owner *w, peer_mistake which)
{
    cuda_ipc_handle handle = w->handle;
    cuda_address at = 0;
    if (which == PEER_OPENS_OWN) (void)cu.ipc_handle(&handle, r->memory);
    if (which == PEER_HANDLE_INSIDE) (void)cu.ipc_handle(&handle, r->memory + 64);
    if (which == PEER_OPENS_GONE) owner_tell(w, OWNER_FREES, "");
    if (which == PEER_OPENS_CAPTURING) (void)capture_begin(r);
    if (which == PEER_ENABLE_FLAGS) (void)cu.peer_enable(r->context, 1);
    const cuda_result opened = cu.ipc_open(&at, handle, which == PEER_FLAGS ? 0 : CUDA_IPC_PEERS);
    if (which == PEER_OPENS_CAPTURING) (void)cu.capture_end(r->one, &(cuda_graph){NULL});
    if (opened != 0) return;
    if (which == PEER_USES_FREED) {
        owner_tell(w, OWNER_FREES, "memory is freed that a peer has open");
    }
    if (which == PEER_USES_CLOSED) (void)cu.ipc_close(at);
    (void)cu.copy(r->memory, at + (which == PEER_OFFSET ? 4090 : 0), 64, r->one);
    if (which == PEER_USES_CLOSED) return;
    for (int i = 0; i < 100 && which == PEER_CLOSES_EARLY; i++) {
        (void)cu.copy(r->memory, at, 64, r->one);
    }
    if (which != PEER_CLOSES_EARLY) (void)cu.stream_sync(r->one);
    if (which == PEER_FREES) (void)cu.memory_free(at);
    if (which == PEER_CLOSES_OWN) (void)cu.ipc_close(r->memory);
    (void)cu.ipc_close(at);
    if (which == PEER_CLOSES_TWICE) (void)cu.ipc_close(at);
}

static void mistakes_with_peers_are_found(void **state)
{
    (void)state;
    static const char *const rules[PEER_MISTAKES] = {
        [PEER_OPENS_OWN] = "a handle is opened where it was made",
        [PEER_HANDLE_INSIDE] = "a handle of what is no piece of memory",
        [PEER_FLAGS] = "flags of a handle",
        [PEER_OPENS_GONE] = "a handle of memory that is gone",
        [PEER_OPENS_DEAD] = "a handle of memory that is gone",
        [PEER_OFFSET] = "a copy outside of allocations",
        [PEER_USES_CLOSED] = "a copy outside of allocations",
        [PEER_USES_FREED] = "memory of a peer is used that its owner has freed",
        [PEER_FREES] = "memory is freed that is a peer's",
        [PEER_CLOSES_TWICE] = "memory is closed that is not a peer's",
        [PEER_CLOSES_OWN] = "memory is closed that is not a peer's",
        [PEER_CLOSES_EARLY] = "a peer's memory is closed while streams work",
        [PEER_OPENS_CAPTURING] = "memory that is opened in a capture",
        [PEER_ENABLE_FLAGS] = "flags of peers",
    };
    for (int i = 0; i < PEER_MISTAKES; i++) {
        const owner w = owner_make(12);
        if (i == PEER_OPENS_DEAD) owner_end(&w);
        rig r = rig_make(13);
        peer_mistake_make(&r, &w, (peer_mistake)i);
        rig_end(&r, rules[i]);
        if (i != PEER_OPENS_DEAD) owner_end(&w);
    }
}

// A peer that does not wait for the owner's work reads too early.
static void a_missing_wait_for_a_peer_shows(void **state)
{
    (void)state;
    int early[2] = {0};
    for (int waits = 0; waits < 2; waits++) {
        for (uint64_t seed = 0; seed < 5; seed++) {
            const owner w = owner_make(seed);
            rig r = rig_make(seed);
            cuda_address at = 0;
            assert_int_equal(cu.ipc_open(&at, w.handle, CUDA_IPC_PEERS), 0);
            owner_tell(&w, OWNER_WRITES, "");
            if (waits != 0) owner_tell(&w, OWNER_SYNCS, "");
            assert_int_equal(cu.copy(r.memory, at, 64, r.one), 0);
            assert_int_equal(cu.copy_out(r.pinned, r.memory, 64, r.one), 0);
            assert_int_equal(cu.stream_sync(r.one), 0);
            early[waits] += *(const char *)r.pinned != 5;
            assert_int_equal(cu.ipc_close(at), 0);
            rig_end(&r, NULL);
            owner_end(&w);
        }
    }
    assert_true(early[0] > 0);
    assert_int_equal(early[1], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_needs_a_context),
        cmocka_unit_test(launches_have_limits),
        cmocka_unit_test(an_unknown_kernel_is_not_found),
        cmocka_unit_test(copies_stay_in_their_memory),
        cmocka_unit_test(pageable_copies_are_counted),
        cmocka_unit_test(memory_outlives_its_work),
        cmocka_unit_test(handles_are_used_while_they_live),
        cmocka_unit_test(a_missing_wait_shows),
        cmocka_unit_test(waits_and_memory_have_limits),
        cmocka_unit_test(a_graph_repeats_its_work),
        cmocka_unit_test(captures_forbid_calls),
        cmocka_unit_test(captures_end_where_they_began),
        cmocka_unit_test(graphs_use_what_is_there),
        cmocka_unit_test(mistakes_with_peers_are_found),
        cmocka_unit_test(a_missing_wait_for_a_peer_shows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
