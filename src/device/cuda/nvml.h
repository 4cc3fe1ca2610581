// The state of NVIDIA GPUs by NVML (libnvidia-ml), which is found at run time and never linked. The
// build needs no header of it: the types below have the layout of those in nvml.h. Tests put a
// library of their own into the loader's path (tests/fixtures/cuda/libnvidia-ml.c).
#ifndef DEVICE_CUDA_NVML_H
#define DEVICE_CUDA_NVML_H

#include "base/base.h"
#include "base/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nvml_device_handle *nvml_device; // nvmlDevice_t
typedef struct nvml_memory {                    // nvmlMemory_t, bytes
    unsigned long long total, free, used;
} nvml_memory;

// Enumerations by their numbers in nvml.h.
enum {
    NVML_CLOCK_SM = 1,
    NVML_CLOCK_MEMORY = 2,
    NVML_ECC_CORRECTED = 0,
    NVML_ECC_UNCORRECTED = 1,
    NVML_ECC_SINCE_LOAD = 0, // since the driver was loaded
    NVML_TEMPERATURE_GPU = 0,
    NVML_LINKS = 18 // of NVLink, at most
};

// X(field, symbol, parameters): each returns an nvmlReturn_t; 0: success.
#define NVML_FUNCTIONS(X)                                                                       \
    X(init, nvmlInit_v2, (void))                                                                \
    X(shut, nvmlShutdown, (void))                                                               \
    X(count, nvmlDeviceGetCount_v2, (unsigned *out))                                            \
    X(by_index, nvmlDeviceGetHandleByIndex_v2, (unsigned index, nvml_device *out))              \
    X(by_uuid, nvmlDeviceGetHandleByUUID, (const char *uuid, nvml_device *out))                 \
    X(is_slice, nvmlDeviceIsMigDeviceHandle, (nvml_device d, unsigned *out))                    \
    X(name, nvmlDeviceGetName, (nvml_device d, char *out, unsigned bytes))                      \
    X(uuid, nvmlDeviceGetUUID, (nvml_device d, char *out, unsigned bytes))                      \
    X(minor, nvmlDeviceGetMinorNumber, (nvml_device d, unsigned *out))                          \
    X(memory, nvmlDeviceGetMemoryInfo, (nvml_device d, nvml_memory * out))                      \
    X(clock, nvmlDeviceGetClockInfo, (nvml_device d, int which, unsigned *out))                 \
    X(clock_most, nvmlDeviceGetMaxClockInfo, (nvml_device d, int which, unsigned *out))         \
    X(power, nvmlDeviceGetPowerUsage, (nvml_device d, unsigned *out))                           \
    X(power_cap, nvmlDeviceGetPowerManagementLimit, (nvml_device d, unsigned *out))             \
    X(temperature, nvmlDeviceGetTemperature, (nvml_device d, int sensor, unsigned *out))        \
    X(ecc_mode, nvmlDeviceGetEccMode, (nvml_device d, int *now, int *pending))                  \
    X(ecc_errors, nvmlDeviceGetTotalEccErrors,                                                  \
      (nvml_device d, int kind, int counter, unsigned long long *out))                          \
    X(remapped, nvmlDeviceGetRemappedRows,                                                      \
      (nvml_device d, unsigned *corrected, unsigned *uncorrected, unsigned *pending,            \
       unsigned *failed))                                                                       \
    X(throttle, nvmlDeviceGetCurrentClocksThrottleReasons,                                      \
      (nvml_device d, unsigned long long *out))                                                 \
    X(pcie_generation, nvmlDeviceGetCurrPcieLinkGeneration, (nvml_device d, unsigned *out))     \
    X(pcie_width, nvmlDeviceGetCurrPcieLinkWidth, (nvml_device d, unsigned *out))               \
    X(pcie_generation_most, nvmlDeviceGetMaxPcieLinkGeneration, (nvml_device d, unsigned *out)) \
    X(pcie_width_most, nvmlDeviceGetMaxPcieLinkWidth, (nvml_device d, unsigned *out))           \
    X(link_state, nvmlDeviceGetNvLinkState, (nvml_device d, unsigned link, int *out))           \
    X(mig_mode, nvmlDeviceGetMigMode, (nvml_device d, unsigned *now, unsigned *pending))

typedef struct nvml_library {
    void *handle; // NULL: it is not open
#define NVML_FIELD(field, symbol, parameters) int(*field) parameters;
    NVML_FUNCTIONS(NVML_FIELD)
#undef NVML_FIELD
} nvml_library;

// Loads libnvidia-ml.so.1 and begins its use. False: it is not there or too old; *why, static, says
// so, and there is nothing to close.
bool nvml_library_open(nvml_library *out, const char **why);
void nvml_library_close(nvml_library *l); // legal if it is not open

// A GPU at one moment. -1: the GPU or the driver does not tell.
typedef struct nvml_state {
    char name[96];
    int64_t memory_bytes, memory_used_bytes;
    int64_t clock_mhz, clock_most_mhz, memory_clock_mhz;
    int64_t power_mw, power_cap_mw, temperature_c;
    int64_t ecc_on;                         // 0 or 1
    int64_t ecc_corrected, ecc_uncorrected; // since the driver was loaded
    int64_t rows_pending, rows_failed;      // 0 or 1: of memory that is to be remapped
    int64_t throttle;                       // bits, of nvml_throttle_text
    int64_t pcie_generation, pcie_width, pcie_generation_most, pcie_width_most;
    int64_t links;  // of NVLink that are up
    int64_t mig_on; // 0 or 1
} nvml_state;

// Throttling that costs speed: by heat, by the power supply or by a fault; not that of an idle GPU
// or of a power cap that its owner has set.
#define NVML_THROTTLE_BAD (INT64_C(0x8) | 0x20 | 0x40 | 0x80)

// Finds a GPU by number, or by its UUID ("GPU-..."), which may be a slice's; NULL: there is none.
nvml_device nvml_find(const nvml_library *l, int index);
nvml_device nvml_find_uuid(const nvml_library *l, const char *uuid);
bool nvml_is_slice(const nvml_library *l, nvml_device d); // by MIG
void nvml_look(const nvml_library *l, nvml_device d, nvml_state *out);
// "heat, power cap"; "no" without a reason.
void nvml_throttle_text(int64_t bits, char out[128]);

#ifdef __cplusplus
}
#endif
#endif
