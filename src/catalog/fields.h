// The keys that files of the catalogue may have. One row a key: what it is called, in which unit the
// file gives it, where it goes in plan/cluster.h.
#ifndef CATALOG_FIELDS_H
#define CATALOG_FIELDS_H

#include "catalog/sheet.h"
#include "plan/cluster.h"

#ifdef __cplusplus
extern "C" {
#endif

// One cable's end, or all of a device's where they are never used apart (NVLink).
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
