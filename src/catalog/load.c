// Reads files of the catalogue into plan/cluster.h. A cluster combines three kinds of files: its
// own, its device's and the link's of each level; a file's own values override those of the files
// that it names.
#include "catalog/catalog.h"
#include "catalog/entry_internal.h"
#include "catalog/fields.h"
#include "catalog/prices.h"
#include "cost/cost.h"

#include <math.h>
#include <string.h>

// Keys that do not go into structs.
static const catalog_field cluster_own_rows[] = {
    {.key = "device.mode", .kind = OPTION_TEXT, .help = "an entry of catalog/devices"},
};
static const catalog_fields cluster_own = {cluster_own_rows, COUNT_OF(cluster_own_rows), ""};
static const catalog_field level_own_rows[] = {
    {.key = "ports", .kind = OPTION_REAL, .max = 1e4, .help = "of the link, per device"},
};
static const catalog_fields level_own = {level_own_rows, COUNT_OF(level_own_rows), ""};

static status name_of(arena *a, const char *name, const char **out)
{
    char *copy = NULL;
    const char *begin = path_base_name(name);
    size_t length = strlen(begin);
    if (length > 5 && strcmp(begin + length - 5, ".yaml") == 0) length -= 5;
    TRY(arena_format(a, &copy, "%.*s", (int)length, begin));
    *out = copy;
    return ST_OK;
}

// ---- devices ------------------------------------------------------------------------------------

static status device_check(const char *shown, const cluster_device *d)
{
    if (d->peak_flops[MATH_BF16] <= 0.0 && d->peak_flops[MATH_FP16] <= 0.0 &&
        d->peak_flops[MATH_FP32] <= 0.0) {
        return fail(ST_CONFIG_KEY, "%s: a device needs peak_tflops of bf16, fp16 or fp32", shown);
    }
    if (d->limit_watts > 0.0 && d->limit_watts <= d->idle_watts) {
        return fail(ST_CONFIG_RANGE, "%s: limit_watts = %.6g is no more than idle_watts = %.6g",
                    shown, d->limit_watts, d->idle_watts);
    }
    // "80 GB" of memory chips is 80 GiB, 7% more; a larger gap is a mistake of units.
    if (d->usable_bytes > 1.075 * d->memory_bytes) {
        return fail(ST_CONFIG_RANGE,
                    "%s: usable_gib = %.6g is more than memory_gb = %.6g, even where that is in "
                    "GiB",
                    shown, d->usable_bytes / 1073741824.0, d->memory_bytes / 1e9);
    }
    for (int i = 0; i < MATH_COUNT; i++) {
        if (d->sparse_flops[i] > 0.0 && d->sparse_flops[i] < d->peak_flops[i]) {
            return fail(ST_CONFIG_RANGE, "%s: a sparse peak is below the dense one: %.6g, %.6g",
                        shown, d->sparse_flops[i] / 1e12, d->peak_flops[i] / 1e12);
        }
    }
    return ST_OK;
}

// A file with the fields of one struct only.
typedef struct sheet_kind {
    const char *title, *folder, *noun;
    const catalog_fields *fields;
} sheet_kind;

static status sheet_of(const host *h, arena *a, const sheet_kind *kind, const char *name,
                       const char *from, catalog_sheet **out)
{
    TRY(catalog_sheet_create(a, kind->title, out));
    TRY(catalog_sheet_add(*out, "", kind->fields, 0, false));
    return catalog_sheet_read(*out, h, kind->folder, kind->noun, name, from, NULL, 0);
}

static const sheet_kind device_sheet = {"A device", "devices", "device", &catalog_device_fields};
static const sheet_kind link_sheet = {"A link", "links", "link", &catalog_link_fields};

static status device_read(const host *h, arena *a, const char *name, const char *from,
                          cluster_device *out);

static bool is_of_file(const catalog_sheet *s, const char *key)
{
    const char *shown = catalog_sheet_place(s, "");
    const size_t length = strlen(shown);
    const char *place = catalog_sheet_place(s, key);
    return strncmp(place, shown, length) == 0 && place[length] == ':';
}

// A file that gives memory_gb and leaves usable_gib to its base keeps the base's share.
static status base_memory_follow(const host *h, arena *a, const catalog_sheet *s,
                                 cluster_device *out)
{
    cluster_device base;
    if (!is_of_file(s, "memory_gb") || is_of_file(s, "usable_gib")) return ST_OK;
    const char *name = catalog_sheet_text(s, "base");
    if (*name == '\0') return ST_OK; // device_check reports what is missing
    TRY(device_read(h, a, name, catalog_sheet_folder(s, "base"), &base));
    out->usable_bytes = base.usable_bytes * (out->memory_bytes / base.memory_bytes);
    return ST_OK;
}

static status device_read(const host *h, arena *a, const char *name, const char *from,
                          cluster_device *out)
{
    catalog_sheet *s = NULL;
    TRY(sheet_of(h, a, &device_sheet, name, from, &s));
    memset(out, 0, sizeof(*out));
    catalog_sheet_apply(s, out);
    out->about = catalog_sheet_text(s, "about");
    TRY(name_of(a, name, &out->name));
    out->entry = catalog_sheet_entry(s);
    TRY(base_memory_follow(h, a, s, out));
    return device_check(catalog_sheet_place(s, ""), out);
}

status catalog_device_load(const host *h, arena *a, const char *name, cluster_device *out)
{
    return device_read(h, a, name, "", out);
}

// ---- levels -------------------------------------------------------------------------------------

static status link_read(const host *h, arena *a, const char *name, const char *from,
                        catalog_link *out)
{
    catalog_sheet *s = NULL;
    TRY(sheet_of(h, a, &link_sheet, name, from, &s));
    memset(out, 0, sizeof(*out));
    catalog_sheet_apply(s, out);
    return ST_OK;
}

status catalog_link_load(const host *h, arena *a, const char *name, double *bytes_s)
{
    catalog_link link = {0};
    TRY(link_read(h, a, name, "", &link));
    *bytes_s = link.bytes_s;
    return ST_OK;
}

static status levels_add(arena *a, catalog_sheet *s)
{
    for (int i = 0; i < CLUSTER_LEVELS; i++) {
        char *prefix = NULL;
        const int64_t at = (int64_t)offsetof(cluster, levels) + i * (int64_t)sizeof(cluster_level);
        TRY(arena_format(a, &prefix, "levels.%d.", i + 1));
        TRY(catalog_sheet_add(s, prefix, &catalog_level_fields, at, true));
        TRY(catalog_sheet_add(s, prefix, &level_own, -1, true));
    }
    return ST_OK;
}

// Starts with the link's values; the level's values override them.
static status level_begin(const host *h, arena *a, const catalog_sheet *s, int i,
                          cluster_level *out)
{
    char *key = NULL, *ports = NULL, *speed = NULL;
    catalog_link link = {.efficiency = 0.8, .latency_s = 5e-6};
    TRY(arena_format(a, &key, "levels.%d.link", i + 1));
    TRY(arena_format(a, &ports, "levels.%d.ports", i + 1));
    TRY(arena_format(a, &speed, "levels.%d.gbit_s", i + 1));
    const char *name = catalog_sheet_text(s, key);
    if (*name != '\0') {
        const status st = link_read(h, a, name, catalog_sheet_folder(s, key), &link);
        if (st != ST_OK) {
            note("while reading the link at %s", catalog_sheet_place(s, key));
            return st;
        }
    } else if (!catalog_sheet_is_given(s, speed)) {
        return fail(ST_CONFIG_KEY, "%s: levels.%d needs a link, or gbit_s",
                    catalog_sheet_place(s, ""), i + 1);
    }
    const double count = catalog_sheet_is_given(s, ports) ? catalog_sheet_real(s, ports) : 1.0;
    *out = (cluster_level){.name = "",
                           .link = "",
                           .shape = (cluster_shape)link.shape,
                           .bytes_s = link.bytes_s * count,
                           .latency_s = link.latency_s,
                           .efficiency = link.efficiency,
                           .taper = 1.0,
                           .reduces = link.reduces,
                           .joules_per_bit = link.joules_per_bit};
    return ST_OK;
}

static status levels_begin(const host *h, arena *a, const catalog_sheet *s, cluster *out)
{
    int count = 0;
    for (int i = 0; i < CLUSTER_LEVELS; i++) {
        char *key = NULL;
        TRY(arena_format(a, &key, "levels.%d.devices", i + 1));
        if (catalog_sheet_whole(s, key) == 0) continue; // not given, or removed
        if (i != count) {
            return fail(ST_CONFIG_KEY, "%s  %s is given, but not levels.%d.devices",
                        catalog_sheet_place(s, key), key, count + 1);
        }
        TRY(level_begin(h, a, s, i, &out->levels[i]));
        count++;
    }
    if (count == 0) {
        return fail(ST_CONFIG_KEY,
                    "%s: a cluster needs levels.1.devices and levels.1.link: what joins devices",
                    catalog_sheet_place(s, ""));
    }
    out->level_count = count;
    return ST_OK;
}

static status levels_check(arena *a, const catalog_sheet *s, const cluster *c)
{
    for (int i = 0; i < c->level_count; i++) {
        const cluster_level *l = &c->levels[i];
        const int64_t below = i == 0 ? 1 : c->levels[i - 1].devices;
        char *key = NULL;
        TRY(arena_format(a, &key, "levels.%d.devices", i + 1));
        if (l->devices < below || l->devices % below != 0) {
            return fail(ST_CONFIG_RANGE,
                        "%s  %s = %lld: expected a multiple of the level below it, %lld",
                        catalog_sheet_place(s, key), key, (long long)l->devices, (long long)below);
        }
        if (l->bytes_s <= 0.0 || l->efficiency <= 0.0) {
            return fail(ST_CONFIG_RANGE, "%s  levels.%d: no bandwidth", catalog_sheet_place(s, key),
                        i + 1);
        }
        int64_t torus = 1;
        for (int d = 0; d < CLUSTER_DIMS; d++) torus *= max_i64(l->dims[d], 1);
        if (l->shape == SHAPE_TORUS && torus != l->devices / below) {
            return fail(ST_CONFIG_RANGE, "%s  levels.%d: dims make %lld places, its group has %lld",
                        catalog_sheet_place(s, key), i + 1, (long long)torus,
                        (long long)(l->devices / below));
        }
        if (l->shape == SHAPE_CUBE && l->devices / below != 8) {
            return fail(ST_CONFIG_RANGE,
                        "%s  levels.%d: a cube joins eight, its group has %lld: ring, or mesh",
                        catalog_sheet_place(s, key), i + 1, (long long)(l->devices / below));
        }
    }
    return ST_OK;
}

// ---- clusters -----------------------------------------------------------------------------------

static status failures_check(const catalog_sheet *s, cluster_failures *f)
{
    double sum = 0.0;
    for (int i = 0; i < CAUSE_COUNT; i++) sum += f->share[i];
    if (sum == 0.0) {
        f->share[CAUSE_OTHER] = 1.0;
        return ST_OK;
    }
    if (fabs(sum - 1.0) > 0.02) {
        return fail(ST_CONFIG_RANGE, "%s  failures.share.* add up to %.6g: expected 1",
                    catalog_sheet_place(s, "failures.share.device"), sum);
    }
    for (int i = 0; i < CAUSE_COUNT; i++) f->share[i] /= sum;
    return ST_OK;
}

// The share of the memory that programs get is the entry's, if only the memory is given.
static void memory_follow(const catalog_sheet *s, const cluster_device *entry, cluster_device *out)
{
    static const char command_line[] = "command line";
    const char *memory = "device.memory_gb", *usable = "device.usable_gib";
    if (!catalog_sheet_is_given(s, memory) || entry->memory_bytes <= 0.0) return;
    const bool is_nearer = strcmp(catalog_sheet_place(s, memory), command_line) == 0 &&
                           strcmp(catalog_sheet_place(s, usable), command_line) != 0;
    if (catalog_sheet_is_given(s, usable) && !is_nearer) return;
    out->usable_bytes = entry->usable_bytes * (out->memory_bytes / entry->memory_bytes);
}

// The nearer of a list and a price wins: a price of the command line stays over a list of a file.
static status prices_take(const host *h, arena *a, const catalog_sheet *s, cluster *out)
{
    static const char command_line[] = "command line";
    catalog_prices list;
    const char *name = out->prices.list, *key = "prices.list";
    const cluster_prices own = out->prices;
    if (name == NULL || *name == '\0') return ST_OK;
    TRY(catalog_prices_load(h, a, name, catalog_sheet_folder(s, key), &list));
    TRY(catalog_prices_apply(a, &list, out->device.name, &out->prices));
    const struct {
        const char *key;
        double given, *to;
    } rows[] = {{"prices.on_demand_usd_h", own.on_demand_usd_h, &out->prices.on_demand_usd_h},
                {"prices.reserved_usd_h", own.reserved_usd_h, &out->prices.reserved_usd_h},
                {"prices.reserved_1y_usd_h", own.reserved_1y_usd_h, &out->prices.reserved_1y_usd_h},
                {"prices.reserved_3y_usd_h", own.reserved_3y_usd_h, &out->prices.reserved_3y_usd_h},
                {"prices.spot_usd_h", own.spot_usd_h, &out->prices.spot_usd_h},
                {"prices.egress_usd_gb", own.egress_usd_gb, &out->prices.egress_usd_gb},
                {"prices.storage_usd_gb_month", own.storage_usd_gb_month,
                 &out->prices.storage_usd_gb_month}};
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        if (strcmp(catalog_sheet_place(s, rows[i].key), command_line) != 0) continue;
        *rows[i].to = rows[i].given;
    }
    return ST_OK;
}

static status cluster_fill(const host *h, arena *a, const catalog_sheet *s, cluster *out)
{
    const char *device = catalog_sheet_text(s, "device.mode");
    if (*device == '\0') {
        return fail(ST_CONFIG_KEY, "%s: a cluster needs \"device\": an entry such as h100",
                    catalog_sheet_place(s, ""));
    }
    const status st =
        device_read(h, a, device, catalog_sheet_folder(s, "device.mode"), &out->device);
    if (st != ST_OK) {
        note("while reading the device at %s", catalog_sheet_place(s, "device.mode"));
        return st;
    }
    TRY(levels_begin(h, a, s, out));
    const cluster_device entry = out->device;
    catalog_sheet_apply(s, out); // overrides device and links
    memory_follow(s, &entry, &out->device);
    TRY(device_check(catalog_sheet_place(s, ""), &out->device));
    cost_limit_power(&out->device);
    TRY(levels_check(a, s, out));
    TRY(failures_check(s, &out->failures));
    TRY(prices_take(h, a, s, out));
    if (out->devices < out->node.devices)
        out->node.devices = (int32_t)out->devices; // the cluster is part of one node
    return ST_OK;
}

static status cluster_rows_create(arena *a, catalog_sheet **out)
{
    TRY(catalog_sheet_create(a, "A cluster", out));
    TRY(catalog_sheet_add(*out, "", &catalog_cluster_fields, 0, false));
    TRY(catalog_sheet_add(*out, "", &cluster_own, -1, false));
    TRY(catalog_sheet_add(*out, "device.", &catalog_device_fields,
                          (int64_t)offsetof(cluster, device), true));
    return levels_add(a, *out);
}

static status cluster_sheet(const host *h, arena *a, const char *name, const char *const *overrides,
                            int64_t override_count, catalog_sheet **out)
{
    TRY(cluster_rows_create(a, out));
    return catalog_sheet_read(*out, h, "clusters", "cluster", name, "", overrides, override_count);
}

status catalog_cluster_load(const host *h, arena *a, const char *name, const char *const *overrides,
                            int64_t override_count, cluster *out)
{
    catalog_sheet *s = NULL;
    cluster *c = NULL;
    TRY(arena_new(a, 1, &c));
    TRY(cluster_sheet(h, a, name, overrides, override_count, &s));
    TRY(cluster_fill(h, a, s, c));
    c->about = catalog_sheet_text(s, "about");
    TRY(name_of(a, name, &c->name));
    *out = *c;
    return ST_OK;
}

status catalog_cluster_keys(arena *a, const option_table **out)
{
    catalog_sheet *s = NULL;
    TRY(cluster_rows_create(a, &s));
    *out = catalog_sheet_table(s);
    return ST_OK;
}

status catalog_cluster_sheet(const host *h, arena *a, const char *name, catalog_sheet **out)
{
    return cluster_sheet(h, a, name, NULL, 0, out);
}

status catalog_device_sheet(const host *h, arena *a, const char *name, catalog_sheet **out)
{
    return sheet_of(h, a, &device_sheet, name, "", out);
}

status catalog_link_sheet(const host *h, arena *a, const char *name, catalog_sheet **out)
{
    return sheet_of(h, a, &link_sheet, name, "", out);
}

static catalog_notes notes_of(const catalog_sheet *s)
{
    return (catalog_notes){*catalog_sheet_list(s, "sources"), *catalog_sheet_list(s, "assumed")};
}

status catalog_cluster_notes(const host *h, arena *a, const char *name, catalog_notes *out)
{
    catalog_sheet *s = NULL;
    TRY(catalog_cluster_sheet(h, a, name, &s));
    *out = notes_of(s);
    return ST_OK;
}

status catalog_device_notes(const host *h, arena *a, const char *name, catalog_notes *out)
{
    catalog_sheet *s = NULL;
    TRY(catalog_device_sheet(h, a, name, &s));
    *out = notes_of(s);
    return ST_OK;
}

status catalog_link_notes(const host *h, arena *a, const char *name, catalog_notes *out)
{
    catalog_sheet *s = NULL;
    TRY(catalog_link_sheet(h, a, name, &s));
    *out = notes_of(s);
    return ST_OK;
}
