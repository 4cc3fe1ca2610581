// Reads the runs of the catalogue.
#include "catalog/run.h"
#include "catalog/entry_internal.h"
#include "catalog/sheet.h"

#include <string.h>

static const catalog_field rows[] = {
    {.key = "model", .kind = OPTION_TEXT, .help = "a preset of models"},
    {.key = "cluster", .kind = OPTION_TEXT, .help = "an entry of clusters"},
    {.key = "published",
     .kind = OPTION_TEXT,
     .help = "a figure of the run, as simulate's JSON names it: step_s=60.1"},
    {.key = "published_source", .kind = OPTION_TEXT, .help = "where that figure is from"},
    {.key = "difference", .kind = OPTION_TEXT, .help = "why the prediction differs from it"},
    {.key = "uncompared",
     .kind = OPTION_TEXT,
     .help = "a published figure that no prediction is held against, and why"},
    {.key = "public", .kind = OPTION_LIST, .help = "key=value, as its makers published them"},
    {.key = "reported", .kind = OPTION_LIST, .help = "key=value, as others told them"},
};
static const catalog_fields fields = {rows, COUNT_OF(rows), "run"};

bool catalog_run_exists(const char *name)
{
    return catalog_file_find("runs", name) != NULL;
}

static status settings_take(const catalog_sheet *s, const char *key, const option_list *from,
                            catalog_run *out)
{
    for (int64_t i = 0; i < from->count; i++) {
        const char *equals = strchr(from->items[i], '=');
        if (equals == NULL || equals == from->items[i]) {
            return fail(ST_CONFIG_SYNTAX, "%s  %s: \"%.64s\" is not key=value",
                        catalog_sheet_place(s, key), key, from->items[i]);
        }
        const int length = (int)(equals - from->items[i]) + 1;
        for (int64_t k = 0; k < out->setting_count; k++) {
            if (strncmp(out->settings[k], from->items[i], (size_t)length) != 0) continue;
            return fail(ST_CONFIG_SYNTAX, "%s  %s: %.*s is given twice",
                        catalog_sheet_place(s, key), key, length - 1, from->items[i]);
        }
        out->settings[out->setting_count++] = from->items[i];
    }
    return ST_OK;
}

status catalog_run_sheet(const host *h, arena *a, const char *name, catalog_sheet **out)
{
    TRY(catalog_sheet_create(a, "A run", out));
    TRY(catalog_sheet_add(*out, "", &fields, -1, false));
    return catalog_sheet_read(*out, h, "runs", "run", name, "", NULL, 0);
}

status catalog_run_load(const host *h, arena *a, const char *name, catalog_run *out)
{
    catalog_sheet *s = NULL;
    catalog_run r = {.name = name};
    TRY(catalog_run_sheet(h, a, name, &s));
    r.about = catalog_sheet_text(s, "about");
    r.model = catalog_sheet_text(s, "model");
    r.cluster = catalog_sheet_text(s, "cluster");
    if (*r.model == '\0' || *r.cluster == '\0') {
        return fail(ST_CONFIG_KEY, "%s: a run needs \"model\" and \"cluster\"",
                    catalog_sheet_place(s, ""));
    }
    r.published = catalog_sheet_text(s, "published");
    r.published_source = catalog_sheet_text(s, "published_source");
    r.difference = catalog_sheet_text(s, "difference");
    r.uncompared = catalog_sheet_text(s, "uncompared");
    if (*r.published != '\0' && (strchr(r.published, '=') == NULL || *r.published_source == '\0')) {
        return fail(ST_CONFIG_SYNTAX,
                    "%s  published: expected figure=value, and a published_source",
                    catalog_sheet_place(s, "published"));
    }
    r.told = *catalog_sheet_list(s, "public");
    r.reported = *catalog_sheet_list(s, "reported");
    r.assumed = *catalog_sheet_list(s, "assumed");
    r.sources = *catalog_sheet_list(s, "sources");
    TRY(arena_new(a, r.told.count + r.reported.count + r.assumed.count + 1, &r.settings));
    TRY(settings_take(s, "public", &r.told, &r));
    TRY(settings_take(s, "reported", &r.reported, &r));
    TRY(settings_take(s, "assumed", &r.assumed, &r));
    *out = r;
    return ST_OK;
}
