// The queue of a stream, as the rows of the cuda backend see it (launch.h): launches of functions
// of the fat binary, and copies within the device's memory.
#include "device/cuda/cuda_internal.h"

#include <stdio.h>
#include <string.h>

static device_stream *stream_of(cuda_queue *q)
{
    return (device_stream *)(void *)q;
}

static uint64_t hash(const char *name)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (; *name != '\0'; name++) h = (h ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return h;
}

// Loads the kernels. A driver in tests has its own.
static status module_open(cuda_device *d)
{
    file *open = NULL;
    const void *image = NULL;
    if (d->config.driver == NULL) TRY(cuda_image_map(d->config.h, &open, &image));
    const cuda_result r = d->driver.module_load(&d->module, image);
    if (open != NULL) (void)d->config.h->api->file_close(open);
    if (r == CUDA_NO_BINARY) {
        return fail(ST_UNSUPPORTED, "the kernels of this build do not run on %s (sm_%d)",
                    d->gpu.name, d->gpu.arch);
    }
    return cuda_did(d, r, "the driver does not load the kernels");
}

// Finds a function and lets its launches use all shared memory of a block.
static status function_open(cuda_device *d, const char *name, cuda_function *out)
{
    char what[160];
    int fixed = 0;
    if (d->module == NULL) TRY(module_open(d));
    (void)snprintf(what, sizeof(what), "kernel %.100s cannot be prepared", name);
    TRY(cuda_did(d, d->driver.function_find(out, d->module, name), what));
    TRY(cuda_did(d, d->driver.function_get(&fixed, CUDA_FUNCTION_SHARED_BYTES, *out), what));
    return cuda_did(d,
                    d->driver.function_set(*out, CUDA_FUNCTION_DYNAMIC_SHARED_BYTES,
                                           d->gpu.max_shared_bytes - fixed),
                    what);
}

static status function_find(cuda_device *d, const char *name, cuda_function *out)
{
    for (uint64_t i = hash(name), n = 0; n < CUDA_MAX_FUNCTIONS; i++, n++) {
        cuda_named *f = &d->functions[i % CUDA_MAX_FUNCTIONS];
        if (f->name == NULL) {
            TRY(function_open(d, name, &f->handle));
            f->name = name;
        }
        if (f->name != name && strcmp(f->name, name) != 0) continue;
        *out = f->handle;
        return ST_OK;
    }
    return fail(ST_INTERNAL, "more than %d kernels", (int)CUDA_MAX_FUNCTIONS);
}

static status function_of(cuda_device *d, const char *name, cuda_function *out)
{
    (void)pthread_mutex_lock(&d->finding);
    const status st = function_find(d, name, out);
    (void)pthread_mutex_unlock(&d->finding);
    return st;
}

static status queue_launch(cuda_queue *q, const cuda_launch *l)
{
    device_stream *s = stream_of(q);
    cuda_function f = NULL;
    TRY(function_of(s->device, l->kernel, &f));
    const cuda_launch_config config = {
        .grid = {l->grid[0], l->grid[1], l->grid[2]},
        .block = {l->block[0], l->block[1], l->block[2]},
        .shared_bytes = l->shared_bytes,
        .stream = s->handle,
    };
    const cuda_result r = s->device->driver.launch(&config, f, l->params, NULL);
    if (r == 0) return ST_OK;
    char what[240];
    (void)snprintf(
        what, sizeof(what),
        "kernel %.100s cannot be launched with grid %u x %u x %u, block %u x %u x %u and "
        "%u bytes of shared memory",
        l->kernel, l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1], l->block[2],
        l->shared_bytes);
    return cuda_did(s->device, r, what);
}

static status queue_clear(cuda_queue *q, void *memory, size_t bytes)
{
    const device_stream *s = stream_of(q);
    if (bytes == 0) return ST_OK;
    return cuda_did(s->device, s->device->driver.fill(cuda_address_of(memory), 0, bytes, s->handle),
                    "device memory cannot be cleared");
}

static status queue_copy(cuda_queue *q, void *to, const void *from, size_t bytes)
{
    const device_stream *s = stream_of(q);
    if (bytes == 0) return ST_OK;
    return cuda_did(
        s->device,
        s->device->driver.copy(cuda_address_of(to), cuda_address_of(from), bytes, s->handle),
        "device memory cannot be copied");
}

static status queue_tiles(cuda_queue *q, const cuda_tiling *t, cuda_tensor_map *out)
{
    const device_stream *s = stream_of(q);
    const unsigned steps[CUDA_MAP_DIMS] = {1, 1, 1, 1};
    uint64_t sizes[CUDA_MAP_DIMS], strides[CUDA_MAP_DIMS - 1];
    unsigned tile[CUDA_MAP_DIMS];
    for (int i = 0; i < CUDA_MAP_DIMS; i++) {
        sizes[i] = (uint64_t)t->dims[i];
        tile[i] = (unsigned)t->tile[i];
        if (i > 0) strides[i - 1] = (uint64_t)t->strides[i - 1];
    }
    const int type = t->type == DTYPE_BF16 ? CUDA_MAP_BF16 : CUDA_MAP_F16;
    return cuda_did(s->device,
                    s->device->driver.tiles_encode(out, type, CUDA_MAP_DIMS, t->data, sizes,
                                                   strides, tile, steps, 0, CUDA_MAP_SWIZZLE_128,
                                                   CUDA_MAP_L2_256, 0),
                    "the driver does not encode tiles of a tensor");
}

// The library's workspace: what it recommends for the architecture.
static int64_t workspace_bytes(const cuda_gpu *gpu)
{
    return gpu->arch >= 90 ? INT64_C(32) << 20 : INT64_C(8) << 20;
}

// The queues that get products have a workspace from their first one on.
static status workspace_open(device_stream *s)
{
    const cuda_driver *driver = &s->device->driver;
    const int64_t bytes = workspace_bytes(&s->device->gpu);
    cuda_address memory = 0;
    if (s->queue.workspace != NULL) return ST_OK;
    TRY(cuda_check(driver, driver->memory_alloc(&memory, (size_t)bytes),
                   "the GPU gives no workspace for products"));
    s->queue.workspace = (void *)(uintptr_t)memory;
    s->queue.workspace_bytes = (size_t)bytes;
    return ST_OK;
}

static status queue_product(cuda_queue *q, const cuda_product *p)
{
    device_stream *s = stream_of(q);
    TRY(workspace_open(s));
    const status st = lt_products_post(s->device->products, p, s->handle, q->workspace);
    return st == ST_OK || st == ST_UNSUPPORTED ? st : cuda_break(s->device, st);
}

// Opens the library for the device's streams, if it is on this machine.
status cuda_products_open(cuda_device *d)
{
    lt_library library;
    const char *why = NULL;
    if (d->config.driver != NULL || !lt_library_open(&library, &why)) return ST_OK;
    return lt_products_create(&library, workspace_bytes(&d->gpu), &d->products);
}

bool cuda_has_fp8(const cuda_device *d, bool by_blocks)
{
    if (d->products == NULL) return false;
    const lt_library *library = lt_products_library(d->products);
    return by_blocks ? lt_has_fp8_blocks(library, d->gpu.arch)
                     : lt_has_fp8_tensors(library, d->gpu.arch);
}

void cuda_queue_close(device_stream *s)
{
    const cuda_address memory = cuda_address_of(s->queue.workspace);
    if (memory != 0) (void)s->device->driver.memory_free(memory);
}

void cuda_queue_init(device_stream *s)
{
    const cuda_gpu *gpu = &s->device->gpu;
    s->queue = (cuda_queue){.launch = queue_launch,
                            .product = s->device->products != NULL ? queue_product : NULL,
                            .clear = queue_clear,
                            .copy = queue_copy,
                            .tiles = gpu->arch == 90 ? queue_tiles : NULL,
                            .workspace = NULL,
                            .workspace_bytes = 0,
                            .fp8_tensors = cuda_has_fp8(s->device, false),
                            .fp8_blocks = cuda_has_fp8(s->device, true),
                            .multiprocessors = gpu->multiprocessors,
                            .arch = gpu->arch,
                            .max_shared_bytes = gpu->max_shared_bytes};
}
