// Loads NVML and reads the state of a GPU. What a GPU or driver does not have is -1: consumer GPUs
// have no ECC, few have NVLink.
#include "device/cuda/nvml.h"

#include "base/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static bool library_begin(void *library, nvml_library *out, const char **why)
{
    bool all = true;
#define FIND(field, symbol, parameters) all = all && library_find(library, #symbol, &out->field);
    NVML_FUNCTIONS(FIND)
#undef FIND
    *why = all ? "libnvidia-ml.so.1 does not reach the driver"
               : "libnvidia-ml.so.1 lacks a function; update NVIDIA's driver";
    return all && out->init() == 0;
}

bool nvml_library_open(nvml_library *out, const char **why)
{
    void *const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    out->handle = NULL;
    *why = "libnvidia-ml.so.1 is not there; it comes with NVIDIA's driver";
    if (library == NULL) return false;
    if (library_begin(library, out, why)) {
        out->handle = library;
        return true;
    }
    (void)dlclose(library);
    return false;
}

void nvml_library_close(nvml_library *l)
{
    if (l->handle == NULL) return;
    (void)l->shut(); // each begin has its own end
    (void)dlclose(l->handle);
    l->handle = NULL;
}

nvml_device nvml_find(const nvml_library *l, int index)
{
    nvml_device d = NULL;
    return index >= 0 && l->by_index((unsigned)index, &d) == 0 ? d : NULL;
}

nvml_device nvml_find_uuid(const nvml_library *l, const char *uuid)
{
    nvml_device d = NULL;
    char slice[64];
    if (l->by_uuid(uuid, &d) == 0) return d;
    if (strncmp(uuid, "GPU-", 4) != 0) return NULL;
    (void)snprintf(slice, sizeof(slice), "MIG-%s", uuid + 4); // the driver tells no other name
    return l->by_uuid(slice, &d) == 0 ? d : NULL;
}

bool nvml_is_slice(const nvml_library *l, nvml_device d)
{
    unsigned is = 0;
    return l->is_slice(d, &is) == 0 && is != 0;
}

static int64_t number(int result, unsigned value)
{
    return result == 0 ? (int64_t)value : -1;
}

static int64_t value_of(int (*get)(nvml_device d, unsigned *out), nvml_device d)
{
    unsigned value = 0;
    const int result = get(d, &value);
    return number(result, value);
}

static int64_t clock_of(int (*get)(nvml_device d, int which, unsigned *out), nvml_device d,
                        int which)
{
    unsigned value = 0;
    const int result = get(d, which, &value);
    return number(result, value);
}

static int64_t errors_of(const nvml_library *l, nvml_device d, int kind)
{
    unsigned long long count = 0;
    const int result = l->ecc_errors(d, kind, NVML_ECC_SINCE_LOAD, &count);
    return result == 0 ? (int64_t)count : -1;
}

static void memory_look(const nvml_library *l, nvml_device d, nvml_state *s)
{
    nvml_memory memory = {0};
    int on = 0, pending_mode = 0;
    unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
    const bool known = l->memory(d, &memory) == 0;
    s->memory_bytes = known ? (int64_t)memory.total : -1;
    s->memory_used_bytes = known ? (int64_t)memory.used : -1;
    s->ecc_on = l->ecc_mode(d, &on, &pending_mode) == 0 ? on != 0 : -1;
    s->ecc_corrected = errors_of(l, d, NVML_ECC_CORRECTED);
    s->ecc_uncorrected = errors_of(l, d, NVML_ECC_UNCORRECTED);
    const bool remaps = l->remapped(d, &corrected, &uncorrected, &pending, &failed) == 0;
    s->rows_pending = remaps ? pending != 0 : -1;
    s->rows_failed = remaps ? failed != 0 : -1;
}

static void links_look(const nvml_library *l, nvml_device d, nvml_state *s)
{
    s->pcie_generation = value_of(l->pcie_generation, d);
    s->pcie_width = value_of(l->pcie_width, d);
    s->pcie_generation_most = value_of(l->pcie_generation_most, d);
    s->pcie_width_most = value_of(l->pcie_width_most, d);
    s->links = -1;
    for (unsigned i = 0; i < NVML_LINKS; i++) {
        int is_up = 0;
        if (l->link_state(d, i, &is_up) == 0) s->links = max_i64(s->links, 0) + (is_up != 0);
    }
}

void nvml_look(const nvml_library *l, nvml_device d, nvml_state *out)
{
    unsigned long long reasons = 0;
    unsigned mig = 0, mig_pending = 0;
    memset(out, 0, sizeof(*out));
    if (l->name(d, out->name, (unsigned)sizeof(out->name)) != 0) out->name[0] = '\0';
    out->name[sizeof(out->name) - 1] = '\0';
    out->clock_mhz = clock_of(l->clock, d, NVML_CLOCK_SM);
    out->clock_most_mhz = clock_of(l->clock_most, d, NVML_CLOCK_SM);
    out->memory_clock_mhz = clock_of(l->clock, d, NVML_CLOCK_MEMORY);
    out->power_mw = value_of(l->power, d);
    out->power_cap_mw = value_of(l->power_cap, d);
    out->temperature_c = clock_of(l->temperature, d, NVML_TEMPERATURE_GPU);
    out->throttle = l->throttle(d, &reasons) == 0 ? (int64_t)reasons : -1;
    out->mig_on = l->mig_mode(d, &mig, &mig_pending) == 0 ? mig != 0 : -1;
    memory_look(l, d, out);
    links_look(l, d, out);
}

void nvml_throttle_text(int64_t bits, char out[128])
{
    static const struct {
        int64_t bit;
        const char *text;
    } rows[] = {{0x4, "power cap"},      {0x8, "slowdown by the hardware"}, {0x10, "boost group"},
                {0x20, "heat"},          {0x40, "heat of the hardware"},    {0x80, "power brake"},
                {0x2, "clocks are set"}, {0x100, "display clocks"}};
    int used = 0;
    (void)snprintf(out, 128, "no");
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        if ((bits & rows[i].bit) == 0) continue;
        const int more =
            snprintf(out + used, (size_t)(128 - used), "%s%s", used > 0 ? ", " : "", rows[i].text);
        used = (int)min_i64(used + more, 127);
    }
}
