// The input files of a build, in the order of their documents: sources as the configuration lists
// them, the paths of a source likewise, and the files of a folder or glob by name.
#include "data/corpus/build.h"

#include <stdlib.h>
#include <string.h>

enum { FOLDERS_MAX = 32 }; // nested

static status add_file(build *b, int64_t source, const char *path, const file_info *info)
{
    if (b->file_count == CORPUS_FILES_MAX) {
        return fail(ST_DATA, "more than %d input files; combine them", CORPUS_FILES_MAX);
    }
    void *items = b->files;
    TRY(arena_grow(b->a, &items, &b->file_capacity, b->file_count + 1, sizeof(build_file)));
    b->files = items;
    b->files[b->file_count++] = (build_file){
        .path = path, .source = source, .bytes = info->bytes, .modified_ns = info->modified_ns};
    return ST_OK;
}

static bool is_hidden(const char *path)
{
    return path_base_name(path)[0] == '.';
}

// A build whose output lies in a folder of its input does not read its own files.
static bool is_own(const build *b, const char *path)
{
    const size_t n = strlen(b->c->out);
    return strncmp(path, b->c->out, n) == 0 && (path[n] == 0 || path[n] == '/');
}

static bool has_name(const file_names *names, const char *wanted)
{
    for (int64_t i = 0; i < names->count; i++) {
        if (strcmp(names->names[i], wanted) == 0) return true;
    }
    return false;
}

static bool is_table(const char *name)
{
    const size_t n = strlen(name);
    return (n > 6 && strcmp(name + n - 6, ".arrow") == 0) ||
           (n > 8 && strcmp(name + n - 8, ".parquet") == 0);
}

// "train-00000-of-00002.parquet" is of the split train.
static bool is_of_split(const char *name, const char *split)
{
    const size_t n = strlen(split);
    return strncmp(name, split, n) == 0 && name[n] != 0 && strchr("-._", name[n]) != NULL;
}

// Leaves the names of a folder that are read. The folders of Hugging Face datasets hold tables, by
// splits in the names of files or folders, and descriptions next to them, which are no data.
static void choose_names(file_names *names, const char *split)
{
    const bool all = strcmp(split, "all") == 0, is_dict = has_name(names, "dataset_dict.json");
    bool any_table = false, any_split = false;
    int64_t kept = 0;
    for (int64_t i = 0; i < names->count; i++) {
        any_table = any_table || is_table(names->names[i]);
        any_split = any_split || (is_table(names->names[i]) && is_of_split(names->names[i], split));
    }
    for (int64_t i = 0; i < names->count; i++) {
        const char *name = names->names[i];
        bool is_read = !is_hidden(name);
        if (is_dict) is_read = all ? strchr(name, '.') == NULL : strcmp(name, split) == 0;
        if (any_table) is_read = is_table(name) && (all || !any_split || is_of_split(name, split));
        if (is_read) names->names[kept++] = names->names[i];
    }
    names->count = kept;
}

// above: the folders that hold the path.
static status add_path(build *b, int64_t source, const char *path, file_info above[], int depth)
{
    file_info info;
    TRY(b->h->api->path_info(b->h, path, &info));
    if (info.kind == FILE_KIND_REGULAR) return add_file(b, source, path, &info);
    if (info.kind == FILE_KIND_NONE) return fail(ST_NOT_FOUND, "%s: no such file", path);
    if (info.kind != FILE_KIND_FOLDER) return fail(ST_DATA, "%s: a file or folder expected", path);
    if (is_own(b, path)) return ST_OK;
    if (depth == FOLDERS_MAX) {
        return fail(ST_DATA, "%s: more than %d folders within each other", path, FOLDERS_MAX);
    }
    for (int i = 0; i < depth; i++) {
        if (above[i].device != info.device || above[i].inode != info.inode) continue;
        return fail(ST_DATA, "%s: a link to a folder above it; remove the link", path);
    }
    above[depth] = info;
    file_names names;
    TRY(b->h->api->path_list(b->h, b->a, path, &names));
    choose_names(&names, b->c->sources[source].split);
    for (int64_t i = 0; i < names.count; i++) {
        char *child = NULL;
        TRY(path_join(b->a, path, names.names[i], &child));
        TRY(add_path(b, source, child, above, depth + 1));
    }
    return ST_OK;
}

static status add_entry(build *b, int64_t source, const char *entry)
{
    file_info info;
    file_names names;
    const int64_t before = b->file_count;
    file_info above[FOLDERS_MAX];
    TRY(b->h->api->path_info(b->h, entry, &info));
    if (info.kind == FILE_KIND_NONE && strpbrk(entry, "*?[") != NULL) {
        TRY(b->h->api->path_glob(b->h, b->a, entry, &names));
        for (int64_t i = 0; i < names.count; i++)
            TRY(add_path(b, source, names.names[i], above, 0));
    } else {
        TRY(add_path(b, source, entry, above, 0));
    }
    if (b->file_count > before) return ST_OK;
    return fail(ST_NOT_FOUND, "sources.%s.paths: no file fits %s", b->c->sources[source].name,
                entry);
}

static int compare_paths(const void *left, const void *right)
{
    const build_file *const *a = left, *const *b = right;
    return strcmp((*a)->path, (*b)->path);
}

static status check_twice(build *b)
{
    const build_file **sorted = NULL;
    TRY(arena_new(b->a, b->file_count, &sorted));
    for (int64_t i = 0; i < b->file_count; i++) sorted[i] = &b->files[i];
    qsort(sorted, (size_t)b->file_count, sizeof(*sorted), compare_paths);
    for (int64_t i = 1; i < b->file_count; i++) {
        if (strcmp(sorted[i - 1]->path, sorted[i]->path) != 0) continue;
        return fail(ST_CONFIG_CONFLICT, "%s is given twice: in the sources %s and %s",
                    sorted[i]->path, b->c->sources[sorted[i - 1]->source].name,
                    b->c->sources[sorted[i]->source].name);
    }
    return ST_OK;
}

static status print_inventory(const build *b, text *t)
{
    char digits[33], id[33];
    TRY(text_add(t, "{\"version\": 1, \"config\": \"%s\", \"tokenizer\": \"%s\",\n \"files\": [",
                 hash128_text(b->c->digest, digits), hash128_text(b->tokenizer_id, id)));
    for (int64_t i = 0; i < b->file_count; i++) {
        const build_file *f = &b->files[i];
        TRY(text_add(t, "%s\n  [%lld, %lld, %lld, ", i > 0 ? "," : "", (long long)f->source,
                     (long long)f->bytes, (long long)f->modified_ns));
        TRY(build_add_text(t, f->path, (int64_t)strlen(f->path)));
        TRY(text_add(t, "]"));
    }
    return text_add(t, "]}\n");
}

// Tells the first difference between an interrupted build's inventory and this one's.
static status compare(const build *b, const json *was)
{
    char digits[33];
    const char *remedy = "remove its folder work to begin again, or name another folder in out";
    if (strcmp(json_text(json_get(was, "config"), ""), hash128_text(b->c->digest, digits)) != 0) {
        return fail(ST_CONFIG_CONFLICT, "%s: this build was begun with another configuration; %s",
                    b->c->out, remedy);
    }
    if (strcmp(json_text(json_get(was, "tokenizer"), ""), hash128_text(b->tokenizer_id, digits)) !=
        0) {
        return fail(ST_CONFIG_CONFLICT,
                    "%s: the tokenizer was changed since this build was begun; %s", b->c->out,
                    remedy);
    }
    const json *files = json_get(was, "files");
    for (int64_t i = 0; i < max_i64(json_count(files), b->file_count); i++) {
        const json *f = json_at(files, i);
        const char *old_path = json_text(json_at(f, 3), "");
        if (i >= b->file_count || f == NULL || strcmp(old_path, b->files[i].path) != 0) {
            return fail(ST_DATA,
                        "%s: input files were added or removed since this build was begun, the "
                        "first is %s; %s",
                        b->c->out, i < b->file_count ? b->files[i].path : old_path, remedy);
        }
        if (json_int(json_at(f, 1), -1) != b->files[i].bytes ||
            json_int(json_at(f, 2), -1) != b->files[i].modified_ns) {
            return fail(ST_DATA, "%s was changed since this build was begun; %s", old_path, remedy);
        }
    }
    return ST_OK;
}

status build_find_files(build *b)
{
    for (int64_t i = 0; i < b->c->source_count; i++) {
        for (int64_t k = 0; k < b->c->sources[i].paths.count; k++) {
            TRY(add_entry(b, i, b->c->sources[i].paths.items[k]));
        }
    }
    return check_twice(b);
}

status build_inventory(build *b)
{
    TRY(build_find_files(b));
    char *path = NULL;
    file_info info;
    TRY(path_join(b->a, b->work, "inventory.json", &path));
    TRY(b->h->api->path_info(b->h, path, &info));
    if (info.kind == FILE_KIND_NONE) {
        text t = {.a = b->a};
        TRY(print_inventory(b, &t));
        return host_write_all(b->h, path, t.bytes, t.length);
    }
    json *was = NULL;
    TRY(json_read(b->h, path, BUILD_JSON_MAX, &was));
    const status st = compare(b, was);
    json_free(was);
    return st;
}
