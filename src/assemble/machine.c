// The machine of a run: its cores, its memory and the peak for its utilization.
#include "assemble/assemble.h"

int assemble_threads(const run_config *r)
{
    return r->kernels.threads > 0 ? (int)r->kernels.threads : kern_core_count();
}

int64_t assemble_memory_share(const host *h, bool on_gpu, int64_t local)
{
    const int64_t gpu = on_gpu ? device_cuda_memory(local) : 0;
    return gpu > 0 ? gpu : host_memory_bytes(h) / local;
}

int64_t assemble_memory_limit(const host *h, const run_config *r, int64_t local)
{
    if (r->memory.limit > 0) return r->memory.limit;
    return assemble_memory_share(h, r->kernels.device == RUN_DEVICE_CUDA, local);
}

double assemble_cores_share(int threads, int ranks, int cores)
{
    const double wanted = (double)threads * (double)max_i64(ranks, 1);
    return cores > 0 && wanted > (double)cores ? (double)cores / wanted : 1.0;
}

dtype assemble_peak_type(const run_config *r)
{
    return r->train.precision == RUN_FP32 ? DTYPE_F32 : DTYPE_BF16;
}
