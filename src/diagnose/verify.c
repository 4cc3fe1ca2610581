// Verifies a configuration with the options of its run.
#include "diagnose/verify.h"

status diagnose_verify(const host *h, arena *a, run_config *r, const decoder_spec *spec,
                       assemble_proved *out)
{
    const int64_t ranks = run_config_ranks(r);
    const int64_t share = max_i64(1, assemble_threads(r) / ranks);
    const assemble_options options = {
        .threads = r->kernels.threads > 0 ? (int)r->kernels.threads : (int)share,
        .device = run_config_device(r),
        .backend = run_config_backend(r),
        .documents = r->data.packing == RUN_PACKING_MASKED,
        .evaluate = r->eval.every > 0 && run_config_has_valid(r),
        .rollouts = run_config_has_rollouts(r),
    };
    TRY(assemble_layout_check(r, spec));
    TRY(assemble_memory_settle(r, spec, &options));
    return assemble_prove(h, a, r, spec, &options, out);
}
