// Reads lists of prices. A list may have any device of the catalogue, so its rows are made from the
// names of catalog/devices.
#include "catalog/prices.h"

#include "catalog/entry_internal.h"
#include "catalog/files.h"
#include "catalog/sheet.h"

#include <math.h>
#include <string.h>

static const catalog_field own_rows[] = {
    {.key = "date", .kind = OPTION_TEXT, .help = "day on which the list was read"},
    {.key = "storage_usd_gb_month",
     .kind = OPTION_REAL,
     .max = 1e6,
     .help = "storage of kept checkpoints, per GB and month"},
    {.key = "egress_usd_gb",
     .kind = OPTION_REAL,
     .max = 1e6,
     .help = "what leaves the region, per GB"},
};
static const catalog_fields own = {own_rows, COUNT_OF(own_rows), ""};

static const char *const kinds[] = {"on_demand", "reserved", "reserved_1y", "reserved_3y", "spot"};

static status rows_add(arena *a, catalog_sheet *s, const char *kind)
{
    const char **names = NULL;
    catalog_field *rows = NULL;
    catalog_fields *fields = NULL;
    int64_t count = 0;
    char *prefix = NULL;
    TRY(catalog_names(a, "devices", &names, &count));
    TRY(arena_new(a, count + 1, &rows));
    TRY(arena_new(a, 1, &fields));
    for (int64_t i = 0; i < count; i++) {
        rows[i] = (catalog_field){.key = names[i],
                                  .kind = OPTION_REAL,
                                  .max = 1e6,
                                  .help = "US dollars per device and hour"};
    }
    *fields = (catalog_fields){rows, count, ""};
    TRY(arena_format(a, &prefix, "%s.", kind));
    return catalog_sheet_add(s, prefix, fields, -1, true);
}

static status sheet_read(const host *h, arena *a, const char *name, const char *from,
                         catalog_sheet **out)
{
    TRY(catalog_sheet_create(a, "A list of prices", out));
    TRY(catalog_sheet_add(*out, "", &own, -1, true));
    for (int64_t i = 0; i < COUNT_OF(kinds); i++) TRY(rows_add(a, *out, kinds[i]));
    return catalog_sheet_read(*out, h, "prices", "list of prices", name, from, NULL, 0);
}

status catalog_prices_sheet(const host *h, arena *a, const char *name, catalog_sheet **out)
{
    return sheet_read(h, a, name, "", out);
}

status catalog_prices_load(const host *h, arena *a, const char *name, const char *from,
                           catalog_prices *out)
{
    catalog_sheet *s = NULL;
    const char **names = NULL;
    int64_t count = 0;
    TRY(sheet_read(h, a, name, from, &s));
    TRY(catalog_names(a, "devices", &names, &count));
    catalog_prices p = {.name = name,
                        .about = catalog_sheet_text(s, "about"),
                        .date = catalog_sheet_text(s, "date"),
                        .storage_usd_gb_month = catalog_sheet_real(s, "storage_usd_gb_month"),
                        .egress_usd_gb = catalog_sheet_real(s, "egress_usd_gb")};
    TRY(arena_new(a, count + 1, &p.rows));
    for (int64_t i = 0; i < count; i++) {
        double usd[COUNT_OF(kinds)], most = 0.0;
        for (int64_t k = 0; k < COUNT_OF(kinds); k++) {
            char *key = NULL;
            TRY(arena_format(a, &key, "%s.%s", kinds[k], names[i]));
            usd[k] = catalog_sheet_real(s, key);
            most = fmax(most, usd[k]);
        }
        if (most <= 0.0) continue;
        p.rows[p.row_count++] = (catalog_price){names[i], usd[0], usd[1], usd[2], usd[3], usd[4]};
    }
    *out = p;
    return ST_OK;
}

status catalog_prices_apply(arena *a, const catalog_prices *list, const char *device,
                            cluster_prices *prices)
{
    text all = {.a = a};
    for (int64_t i = 0; i < list->row_count; i++) {
        const catalog_price *p = &list->rows[i];
        TRY(text_add(&all, "%s%s", i == 0 ? "" : ", ", p->device));
        if (strcmp(p->device, device) != 0) continue;
        prices->on_demand_usd_h = p->on_demand;
        prices->reserved_usd_h = p->reserved;
        prices->reserved_1y_usd_h = p->reserved_1y;
        prices->reserved_3y_usd_h = p->reserved_3y;
        prices->egress_usd_gb = list->egress_usd_gb;
        prices->spot_usd_h = p->spot;
        prices->list = list->name;
        prices->date = list->date;
        if (list->storage_usd_gb_month > 0.0) {
            prices->storage_usd_gb_month = list->storage_usd_gb_month;
        }
        return ST_OK;
    }
    return fail(ST_CONFIG_RANGE,
                "the prices of %s have no %s, only %s; take another list (`trireme catalog "
                "prices`), or give price.device_hour",
                list->name, device, all.length > 0 ? all.bytes : "no device");
}
