// The bytes of a GPU that no plan has: the driver's context, the code of kernels, libraries.
#include "catalog/catalog.h"
#include "catalog/files.h"
#include "train/job.h"

status train_outside_bytes(const host *h, arena *a, const run_config *r, int64_t *out)
{
    char gpu[64];
    const char *entry = NULL;
    cluster_device d;
    *out = 0;
    if (r->kernels.device != RUN_DEVICE_CUDA) return ST_OK;
    device_cuda_name(gpu);
    TRY(catalog_gpu_entry(a, gpu, &entry));
    TRY(catalog_device_load(h, a, entry, &d));
    *out = (int64_t)d.context_bytes;
    return ST_OK;
}
