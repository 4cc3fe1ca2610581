// NVIDIA GPUs: the driver, the kernels of this build, the library of products, and the health of
// each GPU as NVML tells it.
#include "cli/doctor/doctor.h"

#include "base/library.h"
#include "cli/gpu_text.h"
#include "cli/gpus.h"
#include "device/cuda/cublaslt.h"
#include "kernels/kernels.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// A GPU by NVML, whose numbers count all GPUs of the host, not only the visible ones.
static status gpu_health(const doctor *d, doctor_finding *f, const nvml_library *l,
                         const cuda_driver *driver, int gpu)
{
    text is = {.a = d->cli->a}, wrong = {.a = d->cli->a};
    char uuid[CUDA_UUID_BYTES];
    bool is_broken = false;
    nvml_state s;
    TRY(cuda_gpu_uuid(driver, gpu, uuid));
    nvml_device handle = nvml_find_uuid(l, uuid);
    if (handle == NULL) return doctor_found(d, f, "NVML does not know %s", uuid);
    if (nvml_is_slice(l, handle)) {
        TRY(doctor_found(d, f, "MIG-%s: a slice by MIG, which has its own memory", uuid + 4));
    }
    nvml_look(l, handle, &s);
    TRY(cli_gpu_text(&s, &is));
    TRY(cli_gpu_wrong(&s, &wrong, &is_broken));
    TRY(doctor_found(d, f, "%s", is.bytes));
    if (wrong.length == 0) return ST_OK;
    return doctor_costs(d, f, is_broken ? DOCTOR_FAIL : DOCTOR_WARN, "GPU %d: %s", gpu,
                        wrong.bytes);
}

// The daemon that lets several processes use a GPU at the same time.
static status mps_find(const doctor *d, doctor_finding *f)
{
    const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
    char path[4096];
    (void)snprintf(path, sizeof(path), "%s/control",
                   folder != NULL ? folder : "/tmp/nvidia-mps"); // where its maker puts it
    if (access(path, F_OK) != 0) return ST_OK;
    return doctor_found(d, f, "MPS runs: ranks that share a GPU work on it at the same time");
}

static status gpu_found(const doctor *d, doctor_finding *f, const cuda_driver *driver, int i)
{
    cuda_gpu gpu;
    char human[32];
    TRY(cuda_gpu_describe(driver, i, &gpu));
    return doctor_found(d, f, "GPU %d: %s, %s, sm_%d, %d multiprocessors", i, gpu.name,
                        text_bytes_human(gpu.memory_bytes, human), gpu.arch, gpu.multiprocessors);
}

// Names each GPU, its memory, its architecture and its state; says which of driver and kernels is
// missing.
static status gpus(const doctor *d, doctor_finding *f)
{
    cuda_driver driver;
    int count = 0;
    char path[CUDA_PATH_BYTES];
    lt_library library;
    nvml_library nvml;
    const char *why = NULL, *blind = NULL;
    if (cuda_driver_open(&driver) != ST_OK || cuda_gpu_count(&driver, &count) != ST_OK) {
        return doctor_costs(d, f, DOCTOR_FAIL, "%s", error_last()->text);
    }
    const bool has_nvml = nvml_library_open(&nvml, &blind);
    status st = ST_OK;
    for (int i = 0; i < count && st == ST_OK; i++) {
        st = gpu_found(d, f, &driver, i);
        if (has_nvml && st == ST_OK) st = gpu_health(d, f, &nvml, &driver, i);
    }
    nvml_library_close(&nvml);
    TRY(st);
    if (!has_nvml) {
        TRY(doctor_costs(d, f, DOCTOR_WARN,
                         "errors of memory and throttling of the GPUs are not seen: %s", blind));
    }
    TRY(mps_find(d, f));
    if (cuda_image_path(d->cli->h, path) != ST_OK) {
        return doctor_costs(d, f, DOCTOR_WARN, "%s", error_last()->text);
    }
    const bool has_library = lt_library_open(&library, &why);
    TRY(doctor_found(d, f, "kernels in %s", path));
    if (has_library) {
        TRY(doctor_found(d, f, "cuBLASLt %lld", (long long)library.version()));
    } else {
        TRY(doctor_costs(d, f, DOCTOR_WARN, "matrix products are slower without cuBLASLt: %s",
                         why));
    }
    TRY(doctor_found(d, f, "train with kernels.device=cuda"));
    return doctor_found(
        d, f, "generate, eval and serve take that key too, but have not run on a GPU yet");
}

static bool driver_sees_gpu(void)
{
    cuda_driver driver;
    int count = 0;
    error_record kept;
    error_take(&kept);
    const bool sees =
        cuda_driver_open(&driver) == ST_OK && cuda_gpu_count(&driver, &count) == ST_OK && count > 0;
    (void)error_put(&kept);
    return sees;
}

// Takes the GPUs that Slurm chose, before the driver is loaded.
static status slurm_find(const doctor *d, doctor_finding *f)
{
    const char *said = NULL;
    if (cli_gpus_show(d->cli, 0, &said) != ST_OK) {
        return doctor_costs(d, f, DOCTOR_FAIL, "%s", error_last()->text);
    }
    return said != NULL ? doctor_found(d, f, "%s", said) : ST_OK;
}

// Says why training will use the CPU: there is no driver, it is broken, or a variable hides all
// GPUs from it.
static status none_found(const doctor *d, doctor_finding *f)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES"), *why = NULL;
    const bool has_driver = library_load("libcuda.so.1", &why) != NULL;
    TRY(doctor_found(d, f, "no device"));
    if (has_driver && visible != NULL) {
        return doctor_costs(d, f, DOCTOR_WARN,
                            "CUDA_VISIBLE_DEVICES=\"%s\" hides all GPUs from NVIDIA's driver, so "
                            "training will use the CPU; unset it, or name GPUs that there are",
                            visible);
    }
    if (why != NULL) {
        return doctor_costs(d, f, DOCTOR_WARN,
                            "NVIDIA's driver cannot be loaded: %s; training will use the CPU", why);
    }
    return doctor_costs(d, f, DOCTOR_WARN, "training will use the CPU");
}

status doctor_cuda(const doctor *d, doctor_finding *f)
{
    char version[256];
    TRY(slurm_find(d, f));
    const int devices = doctor_entries("/dev", "nvidia");
    if (devices == 0 && !driver_sees_gpu()) return none_found(d, f);
    TRY(doctor_found(d, f, "%d device%s", devices, text_plural(devices, "s")));
    doctor_file("/proc/driver/nvidia/version", version, sizeof(version));
    // "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build"
    const char *dot = strstr(version, "Kernel Module") != NULL ? strchr(version, '.') : NULL;
    if (dot != NULL) {
        const char *number = dot;
        while (number > version && isdigit((unsigned char)number[-1])) number--;
        TRY(doctor_found(d, f, "driver %.*s", (int)strspn(number, "0123456789."), number));
    }
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible != NULL) TRY(doctor_found(d, f, "CUDA_VISIBLE_DEVICES=%s", visible));
    return gpus(d, f);
}
