// The keys of a file as the command line would give them, so that they can be laid over those of
// another file.
#include "config/run_config_overrides.h"

#include <string.h>

static status value_add(const option *o, const run_config *from, text *out)
{
    const char *field = (const char *)from + o->offset;
    const bool is_list = o->kind == OPTION_LIST || o->kind == OPTION_PATHS ||
                         o->kind == OPTION_SHARE || o->kind == OPTION_RAMP;
    if (is_list) {
        option_list list;
        text items = {.a = out->a};
        memcpy(&list, field, sizeof(list));
        for (int64_t i = 0; i < list.count; i++) {
            TRY(option_add_item(&items, list.items[i], (int64_t)strlen(list.items[i])));
        }
        return text_add(out, "%s", items.length > 0 ? items.bytes : "null");
    }
    if (o->kind == OPTION_TEXT || o->kind == OPTION_PATH) {
        const char *value = NULL;
        memcpy(&value, field, sizeof(value));
        return text_add(out, "%s", value != NULL ? value : "null");
    }
    return option_print(o, from, out);
}

status run_config_overrides(const host *h, arena *a, const char *path, option_list *out)
{
    run_config *r = NULL;
    config *c = NULL;
    const option_table *t = &run_config_table;
    TRY(arena_new(a, 1, &r));
    TRY(config_load(h, a, t, path, NULL, 0, r, &c));
    *out = (option_list){.count = 0};
    TRY(arena_new(a, t->count, &out->items));
    for (int64_t i = 0; i < t->count; i++) {
        text line = {.a = a};
        if (!config_is_given(c, t->rows[i].key)) continue;
        TRY(text_add(&line, "%s=", t->rows[i].key));
        TRY(value_add(&t->rows[i], r, &line));
        out->items[out->count++] = line.bytes;
    }
    return ST_OK;
}
