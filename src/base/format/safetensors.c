// Reads safetensors: one file, or the files that an index names.
//
// Opening reads only the headers; a tensor is read when the caller asks for it. An index maps
// tensors to files. It decides which tensors the set holds, and each must be in the file that it
// names. File names come from outside, so only files in the folder of the index are opened.
#include "base/format/safetensors.h"
#include "base/format/json.h"
#include "base/format/safetensors_internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct opened_file {
    const char *name;
    file *handle;
    safetensors_file content;
} opened_file;

struct safetensors {
    const host *h;
    arena *a;
    bool is_mapped;
    opened_file *files;
    int64_t file_count, file_capacity;
    safetensors_entry *entries; // sorted by name
    int64_t count;
};

// Reads only the header and the file's metadata.
static status head_read(const host *h, file *f, arena *a, const char *what, safetensors_head *out,
                        safetensors_file *content)
{
    unsigned char first[8] = {0};
    int64_t size = 0, have = 0;
    void *bytes = NULL;
    TRY(h->api->file_size(f, &size));
    TRY(h->api->file_read(f, 0, first, min_i64(size, 8)));
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--) length = length << 8 | first[i];
    have = min_i64(size, 8);
    // The parser refuses a length that the file cannot hold, and then needs only 8 bytes.
    if (length <= SAFETENSORS_MAX_HEADER_BYTES && (int64_t)length <= size - 8) {
        have = 8 + (int64_t)length;
    }
    TRY(arena_alloc(a, max_i64(have, 16), &bytes));
    TRY(h->api->file_read(f, 0, bytes, have));
    TRY(safetensors_parse_head(a, bytes, have, size, what, content));
    *out = (safetensors_head){.entries = content->entries,
                              .count = content->count,
                              .bytes = bytes,
                              .data_begin = have,
                              .file_bytes = size};
    return ST_OK;
}

static const char single_name[] = "model.safetensors";
static const char index_name[] = "model.safetensors.index.json";

static status open_file(safetensors *s, const char *path, const char *name)
{
    void *files = s->files;
    TRY(arena_grow(s->a, &files, &s->file_capacity, s->file_count + 1, sizeof(opened_file)));
    s->files = files;
    opened_file *f = &s->files[s->file_count];
    *f = (opened_file){.name = name};
    TRY(s->h->api->file_open(s->h, path, FILE_READ_OWN, &f->handle));
    s->file_count++; // from here close() closes it
    const void *bytes;
    int64_t count;
    if (s->is_mapped) {
        TRY(s->h->api->file_map(f->handle, &bytes, &count));
        TRY(safetensors_parse(s->a, bytes, count, path, &f->content));
    } else {
        safetensors_head head;
        TRY(head_read(s->h, f->handle, s->a, path, &head, &f->content));
    }
    for (int64_t i = 0; i < f->content.count; i++) {
        f->content.entries[i].file_idx = (int)(s->file_count - 1);
    }
    return ST_OK;
}

// An allow list is safer than a deny list: letters, digits, '.', '-', '_', no leading dot.
static bool is_plain_name(const char *name)
{
    if (name[0] == '\0' || name[0] == '.' || strlen(name) > 255) return false;
    for (const char *c = name; *c != '\0'; c++) {
        const bool plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                           (*c >= '0' && *c <= '9') || *c == '.' || *c == '-' || *c == '_';
        if (!plain) return false;
    }
    return true;
}

static status file_of_index(safetensors *s, const char *folder, const char *index_path,
                            const char *name, const opened_file **out)
{
    for (int64_t i = 0; i < s->file_count; i++) {
        if (strcmp(s->files[i].name, name) == 0) {
            *out = &s->files[i];
            return ST_OK;
        }
    }
    if (s->file_count == SAFETENSORS_MAX_FILES) {
        return fail(ST_DAMAGED, "%s: names more than %d files", index_path, SAFETENSORS_MAX_FILES);
    }
    char *path, *copy;
    TRY(arena_strdup(s->a, name, &copy));
    TRY(path_join(s->a, folder, name, &path));
    const status st = open_file(s, path, copy);
    if (st == ST_NOT_FOUND) {
        return fail(ST_DAMAGED, "%s: names %s, which is not there; a download that was cut off?",
                    index_path, name);
    }
    if (st != ST_OK) {
        note("opening a file that %s names", index_path);
        return st;
    }
    *out = &s->files[s->file_count - 1];
    return ST_OK;
}

static int compare_entries(const void *a, const void *b)
{
    return strcmp(((const safetensors_entry *)a)->name, ((const safetensors_entry *)b)->name);
}

// Checks all names before any file is opened.
static status check_names(const char *index_path, const json *map)
{
    for (int64_t i = 0; i < json_count(map); i++) {
        const json *value;
        const char *tensor = json_key_at(map, i, &value), *name = json_text(value, NULL);
        if (name == NULL || (int64_t)strlen(name) != json_text_bytes(value)) {
            return fail(ST_DAMAGED, "%s: tensor %.200s: its file's name is not a text", index_path,
                        tensor);
        }
        if (is_plain_name(name)) continue;
        return fail(ST_SECURITY,
                    "%s names \"%.200s\"; only plain names of files in its own folder are "
                    "followed; nothing was opened",
                    index_path, name);
    }
    return ST_OK;
}

// Files are opened in the order of the map, so file 0 is the first that the index names.
static status read_weight_map(safetensors *s, const char *index_path, const json *map)
{
    if (json_kind_of(map) != JSON_MAP) {
        return fail(ST_DAMAGED, "%s: no \"weight_map\" that maps tensors to files", index_path);
    }
    TRY(check_names(index_path, map));
    char *folder;
    const int length = (int)(path_base_name(index_path) - index_path);
    TRY(arena_format(s->a, &folder, "%.*s", length, index_path));
    s->count = json_count(map);
    TRY(arena_new(s->a, s->count, &s->entries));
    for (int64_t i = 0; i < s->count; i++) {
        const json *value;
        const opened_file *f;
        const char *name = json_key_at(map, i, &value), *file_name = json_text(value, "");
        TRY(file_of_index(s, folder, index_path, file_name, &f));
        const safetensors_entry *e = safetensors_search(f->content.entries, f->content.count, name);
        if (e == NULL) {
            return fail(ST_DAMAGED, "%s: tensor %.200s is not in %s", index_path, name, file_name);
        }
        s->entries[i] = *e;
    }
    qsort(s->entries, (size_t)s->count, sizeof(*s->entries), compare_entries);
    return ST_OK;
}

static status open_index(safetensors *s, const char *path)
{
    json *index;
    TRY(json_read(s->h, path, SAFETENSORS_MAX_HEADER_BYTES, &index));
    const status st = read_weight_map(s, path, json_get(index, "weight_map"));
    json_free(index);
    return st;
}

static status open_single(safetensors *s, const char *path)
{
    TRY(open_file(s, path, path_base_name(path)));
    s->entries = s->files[0].content.entries;
    s->count = s->files[0].content.count;
    return ST_OK;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

// Names the files of other formats, which people expect to be read.
static status complain_of_folder(safetensors *s, const char *path)
{
    static const char *const torch_ends[] = {".bin", ".pt", ".pth", ".bin.index.json"};
    file_names names;
    TRY(s->h->api->path_list(s->h, s->a, path, &names));
    for (int64_t i = 0; i < names.count; i++) {
        const char *name = names.names[i];
        for (int64_t k = 0; k < COUNT_OF(torch_ends); k++) {
            if (!ends_with(name, torch_ends[k])) continue;
            return fail(ST_NOT_FOUND,
                        "%s: holds %.200s but neither %s nor %s; a pickle of PyTorch is a program "
                        "and is never read; save it with transformers: "
                        "model.save_pretrained(FOLDER, safe_serialization=True)",
                        path, name, single_name, index_name);
        }
        if (!ends_with(name, ".safetensors") && !ends_with(name, ".gguf")) continue;
        return fail(ST_NOT_FOUND, "%s: holds %.200s but neither %s nor %s%s", path, name,
                    single_name, index_name,
                    strcmp(name, "adapter_model.safetensors") == 0
                        ? "; an adapter (LoRA) is not a model; merge it: merge_and_unload()"
                    : strncmp(name, "model-0", 7) == 0 ? "; download the index too"
                                                       : "");
    }
    return fail(ST_NOT_FOUND, "%s: holds neither %s nor %s", path, single_name, index_name);
}

static status open_path(safetensors *s, const char *path)
{
    file_info info;
    TRY(s->h->api->path_info(s->h, path, &info));
    if (info.kind != FILE_KIND_FOLDER) {
        return ends_with(path, ".json") ? open_index(s, path) : open_single(s, path);
    }
    char *single, *index;
    TRY(path_join(s->a, path, single_name, &single));
    TRY(path_join(s->a, path, index_name, &index));
    TRY(s->h->api->path_info(s->h, single, &info));
    if (info.kind != FILE_KIND_NONE) return open_single(s, single);
    TRY(s->h->api->path_info(s->h, index, &info));
    if (info.kind != FILE_KIND_NONE) return open_index(s, index);
    return complain_of_folder(s, path);
}

static status open_set(const host *h, const char *path, bool is_mapped, safetensors **out)
{
    arena *a;
    safetensors *s;
    TRY(arena_create("safetensors", 0, &a));
    status st = arena_new(a, 1, &s);
    if (st != ST_OK) {
        arena_destroy(a);
        return st;
    }
    s->h = h;
    s->a = a;
    s->is_mapped = is_mapped;
    st = open_path(s, path);
    if (st != ST_OK) {
        safetensors_close(s);
        return st;
    }
    *out = s;
    return ST_OK;
}

status safetensors_open(const host *h, const char *path, safetensors **out)
{
    return open_set(h, path, false, out);
}

status safetensors_open_mapped(const host *h, const char *path, safetensors **out)
{
    return open_set(h, path, true, out);
}

status safetensors_read(const safetensors *s, const safetensors_entry *e, int64_t at, void *out,
                        int64_t bytes)
{
    ASSERT(at >= 0 && bytes >= 0 && at <= e->bytes - bytes);
    const status st = s->h->api->file_read(s->files[e->file_idx].handle, e->begin + at, out, bytes);
    if (st != ST_OK) note("reading tensor %.200s", e->name);
    return st;
}

void safetensors_close(safetensors *s)
{
    if (s == NULL) return;
    for (int64_t i = 0; i < s->file_count; i++) (void)s->h->api->file_close(s->files[i].handle);
    arena_destroy(s->a); // `s` itself lies in it
}

int64_t safetensors_count(const safetensors *s)
{
    return s->count;
}

const safetensors_entry *safetensors_at(const safetensors *s, int64_t index)
{
    return index < 0 || index >= s->count ? NULL : &s->entries[index];
}

const safetensors_entry *safetensors_find(const safetensors *s, const char *name)
{
    return safetensors_search(s->entries, s->count, name);
}

const char *safetensors_metadata(const safetensors *s, const char *key)
{
    if (s->file_count == 0) return NULL;
    const safetensors_file *f = &s->files[0].content;
    for (int64_t i = 0; i < f->metadata_count; i++) {
        if (strcmp(f->metadata[i].key, key) == 0) return f->metadata[i].value;
    }
    return NULL;
}

// ---- the header alone ---------------------------------------------------------------------------

status safetensors_head_read(const host *h, file *f, arena *a, const char *what,
                             safetensors_head *out)
{
    safetensors_file content;
    return head_read(h, f, a, what, out, &content);
}

const safetensors_entry *safetensors_head_find(const safetensors_head *s, const char *name)
{
    return safetensors_search(s->entries, s->count, name);
}
