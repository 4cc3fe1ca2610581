// The CUDA backend on a GPU: every operation over all samples against `ref`, the same bits in a
// second run, and with GPU_SPEED=1 the speed of the kernels as lines of JSON.
//
// The test loads libcuda by itself and needs build/trireme.fatbin (or $TRIREME_KERNELS). Without a
// GPU or that file it reports that it was skipped. Operands go to device memory and back for each
// call: a pool of the GPU and one of the host have the same layout.
#include "fixtures/kernels/sample_values.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { POOL_BYTES = 64 << 20, SPEED_BYTES = 3 << 29, SKIPPED = 77 };

typedef uint64_t gpu_ptr;
typedef struct gpu {
    cuda_queue queue;
    int (*launch)(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                  unsigned bz, unsigned shared, void *stream, void **params, void **extra);
    int (*function_find)(void **f, void *module, const char *name);
    int (*function_set)(void *f, int attribute, int value);
    int (*fill)(gpu_ptr to, unsigned char value, size_t bytes, void *stream);
    int (*copy)(gpu_ptr to, gpu_ptr from, size_t bytes, void *stream);
    int (*copy_in)(gpu_ptr to, const void *from, size_t bytes);
    int (*copy_out)(void *to, gpu_ptr from, size_t bytes);
    int (*sync)(void);
    int (*event_create)(void **e, unsigned flags);
    int (*event_record)(void *e, void *stream);
    int (*event_elapsed)(float *ms, void *from, void *to);
    int (*alloc)(gpu_ptr *out, size_t bytes);
    int (*tiles_encode)(cuda_tensor_map *out, int type, unsigned dims, void *data,
                        const uint64_t *sizes, const uint64_t *strides, const unsigned *tile,
                        const unsigned *steps, int interleave, int swizzle, int l2, int outside);
    void *module;
    char name[96];
    gpu_ptr pool;
    char *host; // what the pool has
    int64_t used;
} gpu;

static status gpu_check(int result, const char *what)
{
    if (result == 0) return ST_OK;
    print_error("%s: CUDA's error %d\n", what, result);
    return ST_DEVICE;
}

// ---- the queue ----------------------------------------------------------------------------------
static status gpu_launch(cuda_queue *q, const cuda_launch *l)
{
    gpu *c = (gpu *)(void *)q;
    void *f = NULL;
    TRY(gpu_check(c->function_find(&f, c->module, l->kernel), l->kernel));
    if (l->shared_bytes > 48 << 10) {
        TRY(gpu_check(c->function_set(f, 8, (int)l->shared_bytes), "shared memory"));
    }
    return gpu_check(c->launch(f, l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1],
                               l->block[2], l->shared_bytes, NULL, l->params, NULL),
                     l->kernel);
}

static status gpu_clear(cuda_queue *q, void *at, size_t bytes)
{
    return gpu_check(((gpu *)(void *)q)->fill((gpu_ptr)(uintptr_t)at, 0, bytes, NULL), "clear");
}

static status gpu_copy(cuda_queue *q, void *to, const void *from, size_t bytes)
{
    return gpu_check(
        ((gpu *)(void *)q)->copy((gpu_ptr)(uintptr_t)to, (gpu_ptr)(uintptr_t)from, bytes, NULL),
        "copy");
}

static status gpu_tiles(cuda_queue *q, const cuda_tiling *t, cuda_tensor_map *out)
{
    const unsigned steps[CUDA_MAP_DIMS] = {1, 1, 1, 1};
    uint64_t sizes[CUDA_MAP_DIMS], strides[CUDA_MAP_DIMS];
    unsigned tile[CUDA_MAP_DIMS];
    for (int i = 0; i < CUDA_MAP_DIMS; i++) {
        sizes[i] = (uint64_t)t->dims[i];
        tile[i] = (unsigned)t->tile[i];
        if (i > 0) strides[i - 1] = (uint64_t)t->strides[i - 1];
    }
    return gpu_check(((gpu *)(void *)q)
                         ->tiles_encode(out, t->type == DTYPE_BF16 ? 9 : 6, CUDA_MAP_DIMS, t->data,
                                        sizes, strides, tile, steps, 0, 3, 3, 0),
                     "cuTensorMapEncodeTiled");
}

// ---- opening ------------------------------------------------------------------------------------
// Stores the address of a function of the library; -Wpedantic allows no cast from void *.
static bool symbol(void *library, const char *name, void *to)
{
    void *found = dlsym(library, name);
    memcpy(to, &found, sizeof(found));
    return found != NULL;
}

static bool symbols_find(gpu *c, void *library)
{
    return symbol(library, "cuLaunchKernel", &c->launch) &&
           symbol(library, "cuModuleGetFunction", &c->function_find) &&
           symbol(library, "cuFuncSetAttribute", &c->function_set) &&
           symbol(library, "cuMemsetD8Async", &c->fill) &&
           symbol(library, "cuMemcpyDtoDAsync_v2", &c->copy) &&
           symbol(library, "cuMemcpyHtoD_v2", &c->copy_in) &&
           symbol(library, "cuMemcpyDtoH_v2", &c->copy_out) &&
           symbol(library, "cuCtxSynchronize", &c->sync) &&
           symbol(library, "cuEventCreate", &c->event_create) &&
           symbol(library, "cuEventRecord", &c->event_record) &&
           symbol(library, "cuEventElapsedTime", &c->event_elapsed) &&
           symbol(library, "cuTensorMapEncodeTiled", &c->tiles_encode) &&
           symbol(library, "cuMemAlloc_v2", &c->alloc);
}

static void *image_read(void)
{
    const char *path = getenv("TRIREME_KERNELS");
    FILE *source = fopen(path != NULL ? path : "build/trireme.fatbin", "rb");
    if (source == NULL) return NULL;
    char *image = malloc(256 << 20);
    const size_t bytes = image != NULL ? fread(image, 1, 256 << 20, source) : 0;
    (void)fclose(source);
    if (bytes > 0) return image;
    free(image);
    return NULL;
}

static status context_open(gpu *c, void *library)
{
    int (*init)(unsigned), (*get)(int *, int), (*retain)(void **, int), (*enter)(void *);
    int (*load)(void **, const void *), (*attribute)(int *, int, int), (*name)(char *, int, int);
    void *context = NULL, *image = image_read();
    if (image == NULL) {
        print_message("there is no build/trireme.fatbin\n");
        return ST_NOT_FOUND;
    }
    if (!symbols_find(c, library) || !symbol(library, "cuInit", &init) ||
        !symbol(library, "cuDeviceGet", &get) || !symbol(library, "cuDeviceGetName", &name) ||
        !symbol(library, "cuDevicePrimaryCtxRetain", &retain) ||
        !symbol(library, "cuCtxSetCurrent", &enter) ||
        !symbol(library, "cuDeviceGetAttribute", &attribute) ||
        !symbol(library, "cuModuleLoadData", &load)) {
        print_error("libcuda lacks a function\n");
        return ST_DEVICE;
    }
    int ordinal = 0;
    TRY(gpu_check(init(0), "cuInit"));
    TRY(gpu_check(get(&ordinal, 0), "cuDeviceGet"));
    TRY(gpu_check(name(c->name, (int)sizeof(c->name), ordinal), "cuDeviceGetName"));
    TRY(gpu_check(retain(&context, ordinal), "cuDevicePrimaryCtxRetain"));
    TRY(gpu_check(enter(context), "cuCtxSetCurrent"));
    TRY(gpu_check(attribute(&c->queue.multiprocessors, 16, ordinal), "cuDeviceGetAttribute"));
    TRY(gpu_check(attribute(&c->queue.max_shared_bytes, 97, ordinal), "cuDeviceGetAttribute"));
    TRY(gpu_check(attribute(&c->queue.arch, 75, ordinal), "cuDeviceGetAttribute"));
    c->queue.arch *= 10;
    TRY(gpu_check(load(&c->module, image), "cuModuleLoadData"));
    free(image);
    c->queue.launch = gpu_launch;
    c->queue.clear = gpu_clear;
    c->queue.copy = gpu_copy;
    c->queue.tiles = c->queue.arch == 90 ? gpu_tiles : NULL;
    return ST_OK;
}

static bool gpu_open(gpu *c)
{
    memset(c, 0, sizeof(*c));
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) return false;
    return context_open(c, library) == ST_OK;
}

// ---- samples ------------------------------------------------------------------------------------
// Gives `bytes` of the host's memory a place in the pool. Returns the address on the GPU.
static char *place(gpu *c, const void *from, int64_t bytes)
{
    char *at = (char *)(uintptr_t)c->pool + c->used;
    if (c->used + bytes > POOL_BYTES) fail_msg("a sample is larger than the pool");
    if (bytes > 0) memcpy(c->host + c->used, from, (size_t)bytes);
    c->used = align_up(c->used + bytes, 256);
    return at;
}

static void translate(kern_tensor *t, const sample_memory *m, char *const *places, char *step)
{
    if (t->data == (const void *)&m->step) {
        t->data = step;
        return;
    }
    for (int64_t i = 0; t->data != NULL && i < m->of->program->tensor_count; i++) {
        const sample_buffer *b = &m->buffers[i];
        const unsigned char *at = t->data;
        if (b->base == NULL || at < b->base || at >= b->base + b->bytes) continue;
        t->data = places[i] + (at - b->base);
        return;
    }
}

// Runs the sample's call on the GPU and brings its buffers back.
static status sample_on_gpu(gpu *c, sample_memory *m, bool accumulate)
{
    const int64_t count = m->of->program->tensor_count;
    const kern_context context = {.backend = &kern_backend_cuda, .threads = 1, .queue = &c->queue};
    char **places;
    kern_call call = m->call;
    must(arena_new(m->a, count, &places));
    c->used = 0;
    for (int64_t i = 0; i < count; i++) {
        if (m->buffers[i].base == NULL) continue;
        // Tensors begin at multiples of 64 bytes on the GPU too.
        places[i] = place(c, m->buffers[i].base, m->buffers[i].bytes);
    }
    char *step = place(c, &m->step, (int64_t)sizeof(m->step));
    for (int i = 0; i < OP_MAX_IN; i++) translate(&call.in[i], m, places, step);
    for (int i = 0; i < OP_MAX_OUT; i++) translate(&call.out[i], m, places, step);
    call.step = (step_block *)(void *)step;
    call.accumulate = accumulate;
    call.workspace_bytes = kern_workspace_bytes(&context, &call);
    const int64_t begin = c->used;
    call.workspace = (char *)(uintptr_t)c->pool + begin;
    ASSERT(begin + call.workspace_bytes <= POOL_BYTES);
    TRY(gpu_check(c->copy_in(c->pool, c->host, (size_t)begin), "copy"));
    TRY(gpu_check(c->fill(c->pool + (uint64_t)begin, 0xFF, (size_t)call.workspace_bytes + 1, NULL),
                  "fill"));
    TRY(kern_run(&context, &call));
    TRY(gpu_check(c->sync(), op_kind_of(call.code)->name));
    TRY(gpu_check(c->copy_out(c->host, c->pool, (size_t)begin), "copy"));
    for (int64_t i = 0; i < count; i++) {
        if (places[i] == NULL) continue;
        memcpy(m->buffers[i].base, c->host + (places[i] - (char *)(uintptr_t)c->pool),
               (size_t)m->buffers[i].bytes);
    }
    memcpy(&m->step, c->host + (step - (char *)(uintptr_t)c->pool), sizeof(m->step));
    return ST_OK;
}

static double tolerance_of(const kern_call *call, dtype type)
{
    const dtype narrow =
        call->in[0].type == DTYPE_BF16 || call->in[0].type == DTYPE_F16 ? call->in[0].type : type;
    return narrow == DTYPE_BF16 || type == DTYPE_BF16 ? 0.012
           : narrow == DTYPE_F16 || type == DTYPE_F16 ? 0.002
                                                      : 2e-5;
}

// The largest error of an output over its largest value.
static double error_of(const kern_tensor *want, const kern_tensor *got)
{
    double worst = 0.0, largest = 1e-3;
    for (int64_t e = 0; e < kt_elements(want); e++) {
        const double a = kt_get(want, e), b = kt_get(got, e);
        if (isfinite(a)) largest = fmax(largest, fabs(a));
        if (a == b || (isnan(a) && isnan(b))) continue;
        worst = fmax(worst, isnan(a - b) ? HUGE_VAL : fabs(a - b));
    }
    return worst / largest;
}

static int outputs_compare(const sample_memory *want, const sample_memory *got, int variant,
                           bool accumulate)
{
    int failures = 0;
    for (int o = 0; o < OP_MAX_OUT; o++) {
        const kern_tensor *w = &want->call.out[o];
        if (w->data == NULL) continue;
        const bool is_step = w->data == (const void *)&want->step;
        const step_device *a = &want->step.device, *b = &got->step.device;
        double error = is_step ? 0.0 : error_of(w, &got->call.out[o]);
        if (is_step &&
            (exact_value(&a->loss_sum) != exact_value(&b->loss_sum) ||
             exact_value(&a->norm_sum) != exact_value(&b->norm_sum) || a->tokens != b->tokens ||
             a->skip != b->skip || a->bad_tensor != b->bad_tensor || a->applied != b->applied)) {
            error = HUGE_VAL;
        }
        if (error <= tolerance_of(&want->call, w->type)) continue;
        failures++;
        print_error("%s, variant %d%s: output %d (%s) is off by %g of its largest\n",
                    want->of->kind->name, variant, accumulate ? ", accumulating" : "", o,
                    dtype_name(w->type), error);
    }
    return failures;
}

static bool same_bytes(const sample_memory *a, const sample_memory *b)
{
    for (int64_t t = 0; t < a->of->program->tensor_count; t++) {
        const sample_buffer *x = &a->buffers[t], *y = &b->buffers[t];
        if (x->base != NULL && memcmp(x->base, y->base, (size_t)x->bytes) != 0) return false;
    }
    return true;
}

// Returns the number of failures; *compared counts calls.
static int variant_try(gpu *c, op_code code, int variant, int *compared)
{
    arena *a;
    sample s;
    int failures = 0;
    must(arena_create("gpu", 0, &a));
    sample_open(a, code, variant, &s);
    backend_run ref = {.backend = &kern_backend_ref, .context = {.backend = &kern_backend_ref}};
    for (int accumulate = 0; accumulate <= (s.kind->accumulates != 0 ? 1 : 0); accumulate++) {
        sample_memory *want = sample_memory_create(a, &s, 0);
        sample_fill(want, 1, accumulate != 0);
        if (sample_run(want, &ref, accumulate != 0, false) != ST_OK) break;
        sample_memory *got[2];
        status st = ST_OK;
        for (int k = 0; k < 2 && st == ST_OK; k++) {
            got[k] = sample_memory_create(a, &s, 0);
            sample_fill(got[k], 1, accumulate != 0);
            st = sample_on_gpu(c, got[k], accumulate != 0);
        }
        if (st == ST_UNSUPPORTED) break;
        if (st != ST_OK) fail_msg("%s, variant %d: %s", s.kind->name, variant, error_last()->text);
        (*compared)++;
        failures += outputs_compare(want, got[0], variant, accumulate != 0);
        if (!same_bytes(got[0], got[1])) {
            failures++;
            print_error("%s, variant %d: other bits in the second run\n", s.kind->name, variant);
        }
    }
    arena_destroy(a);
    return failures;
}

static void test_samples(void **state)
{
    gpu *c = *state;
    int failures = 0, compared = 0;
    for (int code = 0; code < OP_CODE_COUNT; code++) {
        if (kern_backend_cuda.run[code] == NULL) continue;
        for (int v = 0; v < op_sample_count((op_code)code); v++) {
            failures += variant_try(c, (op_code)code, v, &compared);
        }
    }
    print_message("%s: %d calls compared with ref, %d failures\n", c->name, compared, failures);
    assert_true(compared > 0);
    assert_int_equal(failures, 0);
}

// ---- speed --------------------------------------------------------------------------------------
// A tensor in the GPU's memory; its numbers are those that the memory has (zeros).
static kern_tensor tensor_at(gpu_ptr *next, dtype type, int64_t rows, int64_t columns)
{
    kern_tensor t = {.data = (void *)(uintptr_t)*next,
                     .type = type,
                     .ndim = rows > 0 ? 2 : 1,
                     .dims = {rows > 0 ? rows : columns, columns},
                     .strides = {rows > 0 ? columns : 1, 1}};
    const int64_t bytes = (rows > 0 ? rows : 1) * columns * dtype_bytes(type);
    *next += (uint64_t)align_up(bytes, 256);
    return t;
}

// Prints the time of one call, and the rate in `amount` (bytes or FLOPs) per second.
static void speed_of(gpu *c, const char *what, kern_call *call, gpu_ptr workspace, double amount)
{
    const kern_context context = {.backend = &kern_backend_cuda, .threads = 1, .queue = &c->queue};
    void *begin = NULL, *end = NULL;
    float ms = 0.0f;
    enum { REPEATS = 10 };
    call->workspace = (void *)(uintptr_t)workspace;
    call->workspace_bytes = kern_workspace_bytes(&context, call);
    must(gpu_check(c->event_create(&begin, 0), "event"));
    must(gpu_check(c->event_create(&end, 0), "event"));
    for (int i = 0; i < 3; i++) must(kern_run(&context, call));
    must(gpu_check(c->event_record(begin, NULL), "event"));
    for (int i = 0; i < REPEATS; i++) must(kern_run(&context, call));
    must(gpu_check(c->event_record(end, NULL), "event"));
    must(gpu_check(c->sync(), what));
    must(gpu_check(c->event_elapsed(&ms, begin, end), "event"));
    const double seconds = (double)ms / 1000.0 / REPEATS;
    print_message("{\"kernel\": \"%s\", \"us\": %.1f, \"per_s\": %.4g}\n", what, seconds * 1e6,
                  amount / seconds);
}

static void speed_products(gpu *c, gpu_ptr at)
{
    static const int64_t sizes[][3] = {{4096, 4096, 4096}, {8192, 2304, 768}, {8192, 768, 3072}};
    for (int64_t i = 0; i < COUNT_OF(sizes); i++) {
        const int64_t n = sizes[i][0], m = sizes[i][1], k = sizes[i][2];
        gpu_ptr next = at;
        const kern_tensor x = tensor_at(&next, DTYPE_BF16, n, k),
                          y = tensor_at(&next, DTYPE_BF16, n, m);
        const kern_tensor w = tensor_at(&next, DTYPE_BF16, m, k),
                          dw = tensor_at(&next, DTYPE_F32, m, k);
        const double flops = 2.0 * (double)n * (double)m * (double)k;
        char name[64];
        kern_call forward = {.code = OP_MATMUL, .in = {x, w}, .out = {y}};
        kern_call dx = {.code = OP_MATMUL_DX, .in = {y, w}, .out = {x}};
        kern_call weights = {.code = OP_MATMUL_DW, .in = {y, x}, .out = {dw}, .accumulate = true};
        (void)snprintf(name, sizeof(name), "matmul %lld x %lld x %lld", (long long)n, (long long)m,
                       (long long)k);
        speed_of(c, name, &forward, next, flops);
        speed_of(c, "  its dx", &dx, next, flops);
        speed_of(c, "  its dw", &weights, next, flops);
    }
}

static void speed_attention(gpu *c, gpu_ptr at)
{
    static const struct {
        int64_t sequences, seq, heads, kv_heads, dim;
    } cases[] = {{8, 1024, 12, 12, 64}, {1, 8192, 32, 8, 128}};
    for (int64_t i = 0; i < COUNT_OF(cases); i++) {
        const int64_t rows = cases[i].sequences * cases[i].seq,
                      width = cases[i].heads * cases[i].dim;
        const int64_t narrow = cases[i].kv_heads * cases[i].dim;
        gpu_ptr next = at;
        const kern_tensor q = tensor_at(&next, DTYPE_BF16, rows, width);
        const kern_tensor k = tensor_at(&next, DTYPE_BF16, rows, narrow);
        const kern_tensor v = tensor_at(&next, DTYPE_BF16, rows, narrow);
        const kern_tensor y = tensor_at(&next, DTYPE_BF16, rows, width);
        const kern_tensor lse = tensor_at(&next, DTYPE_F32, rows, cases[i].heads);
        const kern_tensor dy = tensor_at(&next, DTYPE_BF16, rows, width);
        const kern_tensor dq = tensor_at(&next, DTYPE_BF16, rows, width);
        const kern_tensor dk = tensor_at(&next, DTYPE_BF16, rows, narrow);
        const kern_tensor dv = tensor_at(&next, DTYPE_BF16, rows, narrow);
        kern_call forward = {
            .code = OP_ATTENTION, .in = {q, k, v}, .out = {y, lse}, .seq = cases[i].seq};
        forward.attrs.heads = (int32_t)cases[i].heads;
        forward.attrs.kv_heads = (int32_t)cases[i].kv_heads;
        forward.attrs.head_dim = (int32_t)cases[i].dim;
        forward.attrs.scale = 0.1f;
        kern_call backward = forward;
        backward.code = OP_ATTENTION_BWD;
        const kern_tensor in[] = {dy, q, k, v, y, lse}, out[] = {dq, dk, dv};
        memcpy(backward.in, in, sizeof(in));
        memcpy(backward.out, out, sizeof(out));
        const double flops = 2.0 * (double)rows * (double)cases[i].seq * (double)width;
        char name[64];
        (void)snprintf(name, sizeof(name), "attention d=%lld, %lld", (long long)cases[i].dim,
                       (long long)cases[i].seq);
        speed_of(c, name, &forward, next, flops);
        speed_of(c, "  backward", &backward, next, 2.5 * flops);
    }
}

static void speed_rows(gpu *c, gpu_ptr at)
{
    const int64_t n = 8192, d = 4096;
    gpu_ptr next = at;
    const kern_tensor x = tensor_at(&next, DTYPE_BF16, n, d),
                      y = tensor_at(&next, DTYPE_BF16, n, d);
    const kern_tensor z = tensor_at(&next, DTYPE_BF16, n, d),
                      w = tensor_at(&next, DTYPE_BF16, 0, d);
    const kern_tensor r = tensor_at(&next, DTYPE_F32, n, 1), dw = tensor_at(&next, DTYPE_F32, 0, d);
    const double bytes = (double)(n * d) * 2.0;
    kern_call add = {.code = OP_ADD, .in = {x, y}, .out = {z}};
    kern_call gelu = {.code = OP_ACTIVATION, .in = {x}, .out = {y}};
    gelu.attrs.activation = ACT_GELU_TANH;
    kern_call norm = {.code = OP_RMSNORM, .in = {x, w}, .out = {y, r}};
    kern_call norm_dx = {.code = OP_RMSNORM_DX, .in = {x, y, r, w}, .out = {z}};
    kern_call norm_dw = {.code = OP_RMSNORM_DW, .in = {x, y, r}, .out = {dw}};
    speed_of(c, "add", &add, next, 3.0 * bytes);
    speed_of(c, "gelu", &gelu, next, 2.0 * bytes);
    speed_of(c, "rmsnorm", &norm, next, 2.0 * bytes);
    speed_of(c, "rmsnorm dx", &norm_dx, next, 3.0 * bytes);
    speed_of(c, "rmsnorm dw", &norm_dw, next, 2.0 * bytes);
}

static void test_speed(void **state)
{
    gpu *c = *state;
    gpu_ptr memory = 0;
    if (getenv("GPU_SPEED") == NULL) return;
    must(gpu_check(c->alloc(&memory, SPEED_BYTES), "memory"));
    must(gpu_check(c->fill(memory, 0, SPEED_BYTES, NULL), "fill"));
    speed_rows(c, memory);
    speed_products(c, memory);
    speed_attention(c, memory);
}

int main(void)
{
    gpu c;
    if (!gpu_open(&c)) {
        print_message("skipped: no GPU\n");
        return SKIPPED;
    }
    c.host = malloc(POOL_BYTES);
    if (c.host == NULL || c.alloc(&c.pool, POOL_BYTES) != 0) return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(test_samples, &c),
                                       cmocka_unit_test_prestate(test_speed, &c)};
    const int failures = cmocka_run_group_tests(tests, NULL, NULL);
    free(c.host);
    return failures;
}
