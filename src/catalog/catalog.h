// The catalogue: devices, links, clusters and whole runs as YAML files under catalog/, which the
// build embeds in the program, read into plain data (plan/cluster.h).
//
// A NAME is a file's name without .yaml; a name with a '/' or with .yaml at the end is a path. A
// file may begin with `base: NAME` and then contains only the differences, which is how users
// extend entries. Errors name file, line and column, the key, and the nearest valid key; for a
// wrong name they name the nearest names.
#ifndef CATALOG_CATALOG_H
#define CATALOG_CATALOG_H

#include "base/format/options.h"
#include "base/host.h"
#include "plan/cluster.h"

#ifdef __cplusplus
extern "C" {
#endif

// overrides: "key=value" over the file's own keys, without the "cluster." of a run's keys:
// "devices=1024", "prices.on_demand_usd_h=2". Strings are in `a`.
NODISCARD status catalog_cluster_load(const host *h, arena *a, const char *name,
                                      const char *const *overrides, int64_t override_count,
                                      cluster *out);
// All keys that a cluster may have, each without the "cluster." of a run's keys.
NODISCARD status catalog_cluster_keys(arena *a, const option_table **out);
NODISCARD status catalog_device_load(const host *h, arena *a, const char *name,
                                     cluster_device *out);
// Bytes per second of one port of a link, in one direction.
NODISCARD status catalog_link_load(const host *h, arena *a, const char *name, double *bytes_s);

// Sources of the figures of an entry and of its bases.
typedef struct catalog_notes {
    option_list sources;
    option_list assumed; // keys, or remarks, without a public source
} catalog_notes;
NODISCARD status catalog_cluster_notes(const host *h, arena *a, const char *name,
                                       catalog_notes *out);
NODISCARD status catalog_device_notes(const host *h, arena *a, const char *name,
                                      catalog_notes *out);
NODISCARD status catalog_link_notes(const host *h, arena *a, const char *name, catalog_notes *out);

#ifdef __cplusplus
}
#endif
#endif
