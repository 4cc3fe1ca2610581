// Profiles: catalog/profiles/*.yaml, the speed of a software (cost/cost.h: cost_profile) and its habits (cost/habits.h).
//
// What a key leaves out is `trireme`'s, or that of the profile that `base` names. Kernels differ by device:
// NAME.DEVICE, such as fsdp.h100, is taken for NAME on that device and on those based on it, where there is one.
// `fitted_on` lists the tables of published figures that the numbers were fitted on, so that nobody tests on them again.
#ifndef CATALOG_PROFILE_H
#define CATALOG_PROFILE_H

#include "base/format/options.h"
#include "base/host.h"
#include "cost/cost.h"

#ifdef __cplusplus
extern "C" {
#endif

// NAME or path, as of a cluster (catalog/catalog.h); `device`: cluster_device.name, NULL: any; `overrides`: "key=value" of
// the run at hand. Texts and habits lie in `a`.
NODISCARD status catalog_profile_load(const host *h, arena *a, const char *name, const char *device,
                                      const char *const *overrides, int64_t override_count,
                                      cost_profile *out);
// What a profile was fitted on; empty: nothing, its numbers are assumed or measured.
NODISCARD status catalog_profile_fitted(const host *h, arena *a, const char *name,
                                        option_list *out);

#ifdef __cplusplus
}
#endif
#endif
