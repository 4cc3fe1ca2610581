// Pages of the lists of prices: one list, and all lists as a table by device.
#include "catalog/entry.h"
#include "catalog/files.h"
#include "catalog/prices.h"
#include "cli/explain/catalog_pages.h"

#include <stdio.h>
#include <string.h>

static const char *usd(double value, char buffer[16])
{
    if (value <= 0.0) return "-";
    (void)snprintf(buffer, 16, "%.2f", value);
    return buffer;
}

static status row_add(text *t, const char *head, const catalog_price *p, const char *date)
{
    char a[16], b[16], c[16], d[16], e[16];
    return text_add(t, "  %-20s%10s%9s%8s%8s%8s%13s\n", head, usd(p->on_demand, a),
                    usd(p->reserved, b), usd(p->reserved_1y, c), usd(p->reserved_3y, d),
                    usd(p->spot, e), date);
}

static status head_add(text *t, const char *first)
{
    return text_add(t, "  %-20s%10s%9s%8s%8s%8s%13s\n", first, "on demand", "reserved", "1 year",
                    "3 years", "spot", "read on");
}

status catalog_prices_page(cli_context *cli, const char *name, text *t)
{
    catalog_prices p;
    catalog_entry e;
    TRY(catalog_prices_load(cli->h, cli->a, name, "", &p));
    TRY(catalog_entry_load(cli->h, cli->a, "prices", name, &e));
    TRY(catalog_column_add(cli, t, "prices", 10, p.about));
    TRY(text_add(t, "US dollars per device and hour; - is not in the list\n"));
    TRY(head_add(t, "device"));
    for (int64_t i = 0; i < p.row_count; i++) {
        TRY(row_add(t, p.rows[i].device, &p.rows[i], p.date));
    }
    if (p.storage_usd_gb_month > 0.0) {
        TRY(text_add(t, "storage   $%.4g per GB and month\n", p.storage_usd_gb_month));
    } else {
        TRY(text_add(t, "storage   not in the list: the cluster's, or "
                        "cluster.prices.storage_usd_gb_month\n"));
    }
    TRY(text_add(t, "network   in the device's price; cluster.prices.network_usd_h adds to it\n"));
    if (p.egress_usd_gb > 0.0) {
        TRY(text_add(t, "egress    $%.4g per GB, for the last checkpoint\n", p.egress_usd_gb));
    }
    const catalog_notes notes = {.sources = e.sources, .assumed = e.assumed};
    return catalog_notes_add(cli, t, "sources", &notes);
}

// The rows of one device in all lists.
static status device_add(cli_context *cli, text *t, const char *device, const char *const *lists,
                         int64_t count)
{
    bool is_begun = false;
    for (int64_t i = 0; i < count; i++) {
        catalog_prices p;
        TRY(catalog_prices_load(cli->h, cli->a, lists[i], "", &p));
        for (int64_t k = 0; k < p.row_count; k++) {
            if (strcmp(p.rows[k].device, device) != 0) continue;
            if (!is_begun) TRY(text_add(t, "\n"));
            if (!is_begun) TRY(head_add(t, device));
            is_begun = true;
            TRY(row_add(t, lists[i], &p.rows[k], p.date));
        }
    }
    return ST_OK;
}

status catalog_prices_table(cli_context *cli, text *t)
{
    const char **lists = NULL, **devices = NULL;
    int64_t list_count = 0, device_count = 0;
    TRY(catalog_names(cli->a, "prices", &lists, &list_count));
    TRY(catalog_names(cli->a, "devices", &devices, &device_count));
    TRY(text_add(t, "\nUS dollars per device and hour, for cluster.prices.list=NAME\n"));
    for (int64_t i = 0; i < device_count; i++) {
        TRY(device_add(cli, t, devices[i], lists, list_count));
    }
    return text_add(
        t, "\nCommitments of AWS, Azure and TPUs are in none of these lists; give a price of "
           "your own\nas cluster.prices.reserved_usd_h.\n");
}
