// Profiles: catalog/profiles/*.yaml, the speed of a software (cost/cost.h: cost_profile) and its
// habits (cost/habits.h).
//
// A key that is left out has the value of `trireme`, or of the profile that `base` names. Kernels
// differ by device: if NAME.DEVICE exists, such as fsdp.h100, it replaces NAME on that device and
// on devices based on it. `fitted_on` lists the tables of published figures that the numbers were
// fitted on, so that they are not tested on them again.
#ifndef CATALOG_PROFILE_H
#define CATALOG_PROFILE_H

#include "base/format/options.h"
#include "base/host.h"
#include "cost/cost.h"

#ifdef __cplusplus
extern "C" {
#endif

// name: NAME or path, as for a cluster (catalog/catalog.h); `device`: cluster_device.name, NULL:
// any; `overrides`: "key=value" of the current run. Strings and habits are in `a`.
NODISCARD status catalog_profile_load(const host *h, arena *a, const char *name, const char *device,
                                      const char *const *overrides, int64_t override_count,
                                      cost_profile *out);
// All keys that a profile may have, each without the "profile." of a run's keys.
NODISCARD status catalog_profile_keys(arena *a, const option_table **out);
// The tables that a profile was fitted on; empty: its numbers are assumed or measured.
NODISCARD status catalog_profile_fitted(const host *h, arena *a, const char *name,
                                        option_list *out);

#ifdef __cplusplus
}
#endif
#endif
