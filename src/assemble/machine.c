// The machine that a run is for: its cores, its memory, the level of its kernels.
#include "assemble/assemble.h"

status train_level(const run_config *r, kern_level *out)
{
    static const kern_level levels[] = {
        [RUN_LEVEL_SCALAR] = KERN_SCALAR, [RUN_LEVEL_AVX2] = KERN_AVX2,
        [RUN_LEVEL_AVX512] = KERN_AVX512, [RUN_LEVEL_AVX512_BF16] = KERN_AVX512_BF16,
        [RUN_LEVEL_AMX] = KERN_AMX,
    };
    const kern_level machine = kern_level_of_machine();
    const bool is_auto = r->kernels.level == RUN_LEVEL_AUTO;
    const kern_level wanted = is_auto ? kern_level_fastest() : levels[r->kernels.level];
    if (wanted > machine) {
        return fail(ST_DEVICE, "kernels.level = %s, this machine has only %s",
                    kern_level_name(wanted), kern_level_name(machine));
    }
    *out = wanted;
    return ST_OK;
}

int train_threads(const run_config *r)
{
    return r->kernels.threads > 0 ? (int)r->kernels.threads : kern_core_count();
}

int64_t train_memory_limit(const host *h, const run_config *r, int64_t local)
{
    return r->memory.limit > 0 ? r->memory.limit : host_memory_bytes(h) / local;
}
