// The keys that files of the catalogue may have: one row per key with its name, the unit in the
// file, and its place in plan/cluster.h.
#ifndef CATALOG_FIELDS_H
#define CATALOG_FIELDS_H

#include "catalog/sheet.h"
#include "plan/cluster.h"

#ifdef __cplusplus
extern "C" {
#endif

// One end of a cable, or all links of a device if they are never used separately (NVLink).
typedef struct catalog_link {
    double bytes_s; // per port, per direction
    double latency_s, efficiency, joules_per_bit;
    int32_t shape;
    bool reduces;
} catalog_link;

extern const catalog_fields catalog_device_fields, catalog_link_fields;
extern const catalog_fields catalog_level_fields, catalog_cluster_fields;

#ifdef __cplusplus
}
#endif
#endif
