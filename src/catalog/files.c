// Finds files of the catalogue in the program and reads others from their paths.
#include "catalog/files.h"

#include <string.h>

enum { FILE_BYTES_MAX = 1 << 20 };

bool catalog_is_path(const char *name)
{
    const size_t length = strlen(name);
    return strchr(name, '/') != NULL || (length > 5 && strcmp(name + length - 5, ".yaml") == 0);
}

const catalog_file *catalog_file_find(const char *folder, const char *name)
{
    const catalog_file *found = NULL;
    int64_t count = 0;
    for (const catalog_file *f = catalog_files; f->name != NULL; f++) {
        if (strcmp(f->folder, folder) != 0) continue;
        if (strcmp(f->name, name) == 0) return f;
        if (text_find_name(name, &f->name, 1) < 0) continue;
        found = f;
        count++;
    }
    return count == 1 ? found : NULL;
}

status catalog_names(arena *a, const char *folder, const char ***out, int64_t *count)
{
    int64_t all = 0, n = 0;
    const char **names = NULL;
    while (catalog_files[all].name != NULL) all++;
    TRY(arena_new(a, all + 1, &names));
    for (int64_t i = 0; i < all; i++) {
        if (strcmp(catalog_files[i].folder, folder) == 0) names[n++] = catalog_files[i].name;
    }
    *out = names;
    *count = n;
    return ST_OK;
}

static status unknown_refuse(arena *a, const char *folder, const char *what, const char *name)
{
    const char **names = NULL;
    int64_t count = 0;
    text near = {.a = a};
    TRY(catalog_names(a, folder, &names, &count));
    TRY(text_add_nearest(&near, name, names, count));
    return fail(
        ST_CONFIG,
        "there is no %s \"%.64s\"%s `trireme catalog %s` lists all %lld; a path to a YAML file "
        "does too",
        what, name, near.bytes == NULL ? ";" : near.bytes, folder, (long long)count);
}

static status path_read(const host *h, arena *a, const char *name, const char *from,
                        catalog_source *out)
{
    char *path = NULL, *folder = NULL, *yaml = NULL;
    int64_t bytes = 0;
    const bool is_plain = name[0] == '/' || *from == '\0';
    if (strncmp(name, "~/", 2) == 0 && h->home != NULL) {
        TRY(arena_format(a, &path, "%s%s", h->home, name + 1));
    } else if (is_plain) {
        TRY(arena_strdup(a, name, &path));
    } else {
        TRY(path_join(a, from, name, &path));
    }
    file_info info;
    TRY(h->api->path_info(h, path, &info));
    if (info.kind == FILE_KIND_FOLDER) {
        return fail(ST_CONFIG_SYNTAX, "%s is a folder; give the YAML file of an entry", path);
    }
    const status st = host_read_text(h, a, path, FILE_BYTES_MAX, &yaml, &bytes);
    if (st == ST_DAMAGED) {
        return fail(ST_CONFIG_SYNTAX, "%s: more than %d bytes, which no entry of the catalogue has",
                    path, FILE_BYTES_MAX);
    }
    TRY(st);
    const char *slash = strrchr(path, '/');
    TRY(arena_format(a, &folder, "%.*s", slash == NULL ? 0 : (int)(slash - path + 1), path));
    *out = (catalog_source){.yaml = yaml, .bytes = bytes, .shown = path, .folder = folder};
    return ST_OK;
}

status catalog_source_read(const host *h, arena *a, const char *folder, const char *what,
                           const char *name, const char *from, catalog_source *out)
{
    char *shown = NULL;
    if (catalog_is_path(name)) return path_read(h, a, name, from, out);
    const catalog_file *f = catalog_file_find(folder, name);
    if (f == NULL) return unknown_refuse(a, folder, what, name);
    TRY(arena_format(a, &shown, "catalog/%s/%s.yaml", folder, f->name));
    *out = (catalog_source){
        .yaml = f->yaml, .bytes = (int64_t)strlen(f->yaml), .shown = shown, .folder = ""};
    return ST_OK;
}
