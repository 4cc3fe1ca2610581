// Reads an entry of any kind through the sheet of its kind.
#include "catalog/entry.h"

#include "catalog/entry_internal.h"

#include <string.h>

typedef status (*sheet_fn)(const host *h, arena *a, const char *name, catalog_sheet **out);

static sheet_fn sheet_of(const char *folder)
{
    static const struct {
        const char *folder;
        sheet_fn open;
    } kinds[] = {{"clusters", catalog_cluster_sheet}, {"devices", catalog_device_sheet},
                 {"links", catalog_link_sheet},       {"profiles", catalog_profile_sheet},
                 {"prices", catalog_prices_sheet},    {"runs", catalog_run_sheet}};
    for (int64_t i = 0; i < COUNT_OF(kinds); i++) {
        if (strcmp(kinds[i].folder, folder) == 0) return kinds[i].open;
    }
    return NULL;
}

// The lists and the line about the entry stand apart from its keys.
static bool is_apart(const char *key)
{
    static const char *const names[] = {"base", "about", "sources", "assumed", "fitted_on"};
    for (int64_t i = 0; i < COUNT_OF(names); i++) {
        if (strcmp(names[i], key) == 0) return true;
    }
    return false;
}

static status keys_take(arena *a, const catalog_sheet *s, catalog_entry *out)
{
    const int64_t all = catalog_sheet_count(s);
    TRY(arena_new(a, all + 1, &out->keys));
    for (int64_t i = 0; i < all; i++) {
        text value = {.a = a};
        const option *o = catalog_sheet_option(s, i);
        if (!catalog_sheet_is_given(s, o->key) || is_apart(o->key)) continue;
        TRY(catalog_sheet_print(s, i, &value));
        out->keys[out->key_count++] = (catalog_key){.key = o->key,
                                                    .value = value.bytes,
                                                    .help = o->help,
                                                    .place = catalog_sheet_place(s, o->key)};
    }
    return ST_OK;
}

status catalog_entry_load(const host *h, arena *a, const char *folder, const char *name,
                          catalog_entry *out)
{
    const sheet_fn open = sheet_of(folder);
    catalog_sheet *s = NULL;
    catalog_entry e = {.about = NULL};
    ASSERT(open != NULL);
    TRY(open(h, a, name, &s));
    TRY(keys_take(a, s, &e));
    e.about = catalog_sheet_text(s, "about");
    e.sources = *catalog_sheet_list(s, "sources");
    e.assumed = *catalog_sheet_list(s, "assumed");
    e.fitted_on = *catalog_sheet_list(s, "fitted_on");
    *out = e;
    return ST_OK;
}
