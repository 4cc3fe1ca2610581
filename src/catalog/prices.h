// Lists of prices: catalog/prices/*.yaml, one provider and region each, with date and source.
#ifndef CATALOG_PRICES_H
#define CATALOG_PRICES_H

#include "base/host.h"
#include "plan/cluster.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct catalog_price {
    const char *device; // an entry of catalog/devices
    // US dollars per device and hour; 0: not in the list.
    double on_demand, reserved, reserved_1y, reserved_3y, spot;
} catalog_price;

typedef struct catalog_prices {
    const char *name, *about, *date; // date: when the list was read
    catalog_price *rows;             // devices that have a price
    int64_t row_count;
    double storage_usd_gb_month, egress_usd_gb; // 0: not in the list
} catalog_prices;

// name: NAME or path; `from`: the folder of the file that names it.
NODISCARD status catalog_prices_load(const host *h, arena *a, const char *name, const char *from,
                                     catalog_prices *out);
// Replaces a cluster's prices of rented devices by those of a list. Refused if the list does not
// have the device.
NODISCARD status catalog_prices_apply(arena *a, const catalog_prices *list, const char *device,
                                      cluster_prices *prices);

#ifdef __cplusplus
}
#endif
#endif
