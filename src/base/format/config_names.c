// Names that a configuration gives to parts of itself: the keys of one of its maps. A caller makes
// the rows of its option table from them and then reads the file with config_load().
#include "base/format/config_internal.h"

#include <string.h>

typedef struct name_list {
    arena *a;
    option_list *names;
    int64_t capacity;
} name_list;

// Adds name[0..count) unless the list has it.
static status add(name_list *l, const char *name, int64_t count)
{
    for (int64_t i = 0; i < l->names->count; i++) {
        const char *other = l->names->items[i];
        if ((int64_t)strlen(other) == count && strncmp(other, name, (size_t)count) == 0) {
            return ST_OK;
        }
    }
    char *copy = NULL;
    TRY(arena_format(l->a, &copy, "%.*s", (int)count, name));
    void *items = l->names->items;
    TRY(arena_grow(l->a, &items, &l->capacity, l->names->count + 1, sizeof(char *)));
    l->names->items = items;
    l->names->items[l->names->count++] = copy;
    return ST_OK;
}

// Adds the name of "heading.NAME.key"; other keys give none.
static status add_dotted(name_list *l, const char *heading, const char *key)
{
    const size_t n = strlen(heading);
    if (strncmp(key, heading, n) != 0 || key[n] != '.') return ST_OK;
    const char *name = key + n + 1, *dot = strpbrk(name, ".=");
    if (dot == NULL || *dot == '=' || dot == name) return ST_OK;
    return add(l, name, dot - name);
}

static status add_map(name_list *l, const char *heading, const config_node *root)
{
    if (root == NULL || root->kind != CONFIG_MAP) return ST_OK;
    for (const config_node *n = root->first; n != NULL; n = n->next) {
        if (strcmp(n->key->text, heading) != 0) {
            TRY(add_dotted(l, heading, n->key->text));
            continue;
        }
        if (n->kind != CONFIG_MAP) continue;
        for (const config_node *entry = n->first; entry != NULL; entry = entry->next) {
            const char *key = entry->key->text, *dot = strchr(key, '.');
            TRY(add(l, key, dot != NULL ? dot - key : (int64_t)strlen(key)));
        }
    }
    return ST_OK;
}

status config_names(const host *h, arena *a, const char *yaml_path, const char *heading,
                    const char *const *overrides, int64_t override_count, option_list *names)
{
    name_list l = {.a = a, .names = names};
    *names = (option_list){0};
    if (yaml_path != NULL) {
        config_source source = {.name = yaml_path};
        config_complaints complaints;
        config_node *root = NULL;
        char *yaml = NULL;
        const status st = host_read_text(h, a, yaml_path, CONFIG_BYTES_MAX, &yaml, &source.count);
        if (st == ST_DAMAGED) return ST_OK; // too long, as config_load says
        TRY(st);
        source.bytes = yaml;
        config_complaints_init(&complaints, a, &source);
        TRY(config_tree_read(&complaints, &root));
        TRY(add_map(&l, heading, root));
    }
    for (int64_t i = 0; i < override_count; i++) TRY(add_dotted(&l, heading, overrides[i]));
    error_clear();
    return ST_OK;
}
