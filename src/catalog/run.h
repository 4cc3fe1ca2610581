// Published or planned runs: catalog/runs/*.yaml gives model, cluster and the keys of a run's
// configuration, each in the list of its standing.
#ifndef CATALOG_RUN_H
#define CATALOG_RUN_H

#include "base/format/options.h"
#include "base/host.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct catalog_run {
    const char *name, *about;
    const char *model;   // a preset of models: model.preset
    const char *cluster; // an entry of clusters
    // "layout.tp=8": published by its makers, reported by others, or not known publicly.
    option_list told, reported, assumed;
    option_list sources;
    // A figure that its makers published: "tflops_per_device=400"; "" if there is none.
    const char *published, *published_source;
    const char *difference; // why the prediction differs from it; ""
    const char *uncompared; // a figure that no prediction is held against, and why; ""
    const char **settings;  // all three lists in sequence
    int64_t setting_count;
} catalog_run;

bool catalog_run_exists(const char *name); // in the program; paths are not looked up
NODISCARD status catalog_run_load(const host *h, arena *a, const char *name, catalog_run *out);

#ifdef __cplusplus
}
#endif
#endif
