// Any entry of the catalogue as lines for people: its keys, where each value is from, its sources
// and, for a profile, the tables that it was fitted on.
#ifndef CATALOG_ENTRY_H
#define CATALOG_ENTRY_H

#include "base/format/options.h"
#include "base/host.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct catalog_key {
    const char *key, *value; // as a file would have them, in the units of the file
    const char *help;
    const char *place; // "catalog/profiles/fsdp.yaml:3:10"
} catalog_key;

typedef struct catalog_entry {
    const char *about;
    catalog_key *keys; // given by the entry or by one of its bases
    int64_t key_count;
    option_list sources, assumed, fitted_on;
} catalog_entry;

// folder: "clusters", "devices", "links", "profiles", "prices" or "runs"; an unknown name is
// refused with the nearest one.
NODISCARD status catalog_entry_load(const host *h, arena *a, const char *folder, const char *name,
                                    catalog_entry *out);

#ifdef __cplusplus
}
#endif
#endif
