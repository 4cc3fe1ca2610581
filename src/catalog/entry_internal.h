// The sheet of an entry, which each reader of the catalogue makes for its own kind.
#ifndef CATALOG_ENTRY_INTERNAL_H
#define CATALOG_ENTRY_INTERNAL_H

#include "catalog/sheet.h"

#ifdef __cplusplus
extern "C" {
#endif

NODISCARD status catalog_cluster_sheet(const host *h, arena *a, const char *name,
                                       catalog_sheet **out);
NODISCARD status catalog_device_sheet(const host *h, arena *a, const char *name,
                                      catalog_sheet **out);
NODISCARD status catalog_link_sheet(const host *h, arena *a, const char *name, catalog_sheet **out);
NODISCARD status catalog_profile_sheet(const host *h, arena *a, const char *name,
                                       catalog_sheet **out);
NODISCARD status catalog_prices_sheet(const host *h, arena *a, const char *name,
                                      catalog_sheet **out);
NODISCARD status catalog_run_sheet(const host *h, arena *a, const char *name, catalog_sheet **out);

#ifdef __cplusplus
}
#endif
#endif
