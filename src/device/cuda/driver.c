// Loads CUDA's driver at run time, so that one program serves machines with and without a GPU.
#include "device/cuda/driver.h"

#include "base/library.h"

#include <stdio.h>
#include <string.h>

enum { OLDEST_VERSION = 12000 }; // the first with all of these functions

static status functions_find(void *library, cuda_driver *out)
{
    const char *missing = NULL;
#define FIND(field, symbol, parameters) \
    if (!library_find(library, #symbol, &out->field)) missing = #symbol;
    CUDA_DRIVER_FUNCTIONS(FIND)
#undef FIND
    if (missing == NULL) return ST_OK;
    return fail(ST_DEVICE,
                "NVIDIA's driver (libcuda.so.1) has no function %s; install a driver of CUDA 12.0 "
                "or later",
                missing);
}

status cuda_check(const cuda_driver *c, cuda_result r, const char *what)
{
    const char *name = NULL, *text = NULL;
    if (r == 0) return ST_OK;
    if (c->error_name(r, &name) != 0 || name == NULL) name = "an unknown error";
    if (c->error_text(r, &text) != 0 || text == NULL) text = "the driver has no text for it";
    return fail(r == CUDA_OUT_OF_MEMORY ? ST_NO_MEMORY : ST_DEVICE, "%s: %s (error %d): %s", what,
                name, r, text);
}

static status no_gpu(void)
{
    return fail(ST_DEVICE, "NVIDIA's driver sees no GPU; CUDA_VISIBLE_DEVICES may hide them");
}

status cuda_driver_open(cuda_driver *out)
{
    int version = 0, count = 0;
    const char *why = NULL;
    void *const library = library_load("libcuda.so.1", &why);
    if (library == NULL && why != NULL) {
        return fail(ST_DEVICE,
                    "NVIDIA's driver cannot be loaded: %s; install the driver anew, or set "
                    "kernels.device = cpu",
                    why);
    }
    if (library == NULL) {
        return fail(ST_DEVICE, "NVIDIA's driver is not on this machine: the loader does not find "
                               "libcuda.so.1; install the driver, or set kernels.device = cpu");
    }
    TRY(functions_find(library, out));
    const cuda_result begun = out->init(0);
    if (begun == CUDA_NO_DEVICE) return no_gpu();
    TRY(cuda_check(out, begun, "NVIDIA's driver does not start"));
    TRY(cuda_check(out, out->version(&version), "NVIDIA's driver does not tell its version"));
    if (version < OLDEST_VERSION) {
        return fail(ST_DEVICE, "NVIDIA's driver is of CUDA %d.%d; install one of 12.0 or later",
                    version / 1000, version % 1000 / 10);
    }
    TRY(cuda_gpu_count(out, &count));
    return count > 0 ? ST_OK : no_gpu();
}

// ---- GPUs ---------------------------------------------------------------------------------------
status cuda_gpu_count(const cuda_driver *c, int *out)
{
    return cuda_check(c, c->device_count(out), "the driver cannot count the GPUs");
}

status cuda_gpu_uuid(const cuda_driver *c, int ordinal, char out[CUDA_UUID_BYTES])
{
    int device = 0, used = 0;
    cuda_uuid id;
    TRY(cuda_check(c, c->device_get(&device, ordinal), "a GPU cannot be opened"));
    TRY(cuda_check(c, c->device_uuid(&id, device), "the driver tells no UUID of a GPU"));
    used = snprintf(out, CUDA_UUID_BYTES, "GPU");
    for (int i = 0; i < 16; i++) {
        const bool begins = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
        used += snprintf(out + used, (size_t)(CUDA_UUID_BYTES - used), "%s%02x", begins ? "-" : "",
                         id.bytes[i]);
    }
    return ST_OK;
}

status cuda_gpu_describe(const cuda_driver *c, int ordinal, cuda_gpu *out)
{
    int device = 0, major = 0, minor = 0, memory_khz = 0, memory_bits = 0;
    size_t bytes = 0;
    char what[64];
    (void)snprintf(what, sizeof(what), "the driver cannot describe GPU %d", ordinal);
    memset(out, 0, sizeof(*out));
    TRY(cuda_check(c, c->device_get(&device, ordinal), what));
    TRY(cuda_check(c, c->device_name(out->name, (int)sizeof(out->name), device), what));
    TRY(cuda_check(c, c->device_memory(&bytes, device), what));
    out->memory_bytes = (int64_t)bytes;
    const struct {
        int attribute, *to;
    } wanted[] = {{CUDA_ATTRIBUTE_MULTIPROCESSORS, &out->multiprocessors},
                  {CUDA_ATTRIBUTE_CLOCK_KHZ, &out->clock_khz},
                  {CUDA_ATTRIBUTE_CAPABILITY_MAJOR, &major},
                  {CUDA_ATTRIBUTE_CAPABILITY_MINOR, &minor},
                  {CUDA_ATTRIBUTE_SHARED_BYTES_OPTIN, &out->max_shared_bytes}};
    for (int64_t i = 0; i < COUNT_OF(wanted); i++) {
        TRY(cuda_check(c, c->device_attribute(wanted[i].to, wanted[i].attribute, device), what));
    }
    out->arch = 10 * major + minor;
    // Drivers of virtual machines may hide these two.
    const bool told = c->device_attribute(&memory_khz, CUDA_ATTRIBUTE_MEMORY_KHZ, device) == 0 &&
                      c->device_attribute(&memory_bits, CUDA_ATTRIBUTE_MEMORY_BITS, device) == 0;
    out->bytes_per_s = told ? 2e3 * memory_khz * memory_bits / 8 : 0.0;
    return ST_OK;
}

// FLOPs of one multiprocessor in one cycle, bf16 products with fp32 sums: 312 TFLOP/s of an A100
// (108 at 1.41 GHz), 989 of an H100 SXM (132 at 1.83 GHz), 2,250 of a B200 (148 at 1.86 GHz). The
// clock that the driver reports may be above the one of these figures.
double cuda_gpu_peak_flops(const cuda_gpu *g, dtype type)
{
    static const struct {
        int arch;
        double per_cycle, clock_hz;
    } rows[] = {{80, 2048, 1.41e9}, {90, 4096, 1.83e9}, {100, 8192, 1.86e9}};
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        if (rows[i].arch != g->arch) continue;
        const double reported = 1e3 * g->clock_khz;
        const double clock =
            reported > 0.0 && reported < rows[i].clock_hz ? reported : rows[i].clock_hz;
        const double bf16 = rows[i].per_cycle * clock * g->multiprocessors;
        // 128 units of fp32 in each, of which each does a multiplication and an addition.
        return dtype_bytes(type) <= 2 ? bf16 : 256.0 * clock * g->multiprocessors;
    }
    return 0.0;
}
