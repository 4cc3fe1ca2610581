// Writes one safetensors file: the caller declares all tensors first, because the header precedes
// the data.
//
// The writer pads the header with blanks so that the data starts at a multiple of 64 bytes in the
// file (the format's own library pads to 8). So a mapped file has aligned tensors.
#include "base/format/safetensors.h"
#include "base/format/safetensors_internal.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

typedef struct declared {
    const char *name;
    dtype type;
    int ndim;
    int64_t dims[SAFETENSORS_MAX_DIMS];
    int64_t bytes;
} declared;

struct safetensors_writer {
    const host *h;
    arena *a;
    char *path;
    file *handle; // NULL once closed
    declared *tensors;
    int64_t count, capacity;
    safetensors_pair *metadata;
    int64_t metadata_count, metadata_capacity;
    int64_t data_bytes, written_bytes;
    int64_t data_align; // the data begins at a multiple of it
    bool header_is_written, is_finished;
};

status safetensors_writer_create(const host *h, const char *path, safetensors_writer **out)
{
    arena *a;
    safetensors_writer *w;
    status st;
    TRY(arena_create("safetensors writer", 0, &a));
    TRY_TO(destroy_arena, arena_new(a, 1, &w));
    w->h = h;
    w->a = a;
    w->data_align = ALIGN_TENSOR;
    TRY_TO(destroy_arena, arena_strdup(a, path, &w->path));
    TRY_TO(destroy_arena, h->api->file_open(h, path, FILE_WRITE, &w->handle));
    *out = w;
    return ST_OK;
destroy_arena:
    arena_destroy(a);
    return st;
}

void safetensors_writer_pack(safetensors_writer *w)
{
    ASSERT(!w->header_is_written);
    w->data_align = 8;
}

status safetensors_writer_metadata(safetensors_writer *w, const char *key, const char *value)
{
    if (w->header_is_written) {
        return fail(ST_INTERNAL, "%s: metadata after the first data", w->path);
    }
    for (int64_t i = 0; i < w->metadata_count; i++) {
        if (strcmp(w->metadata[i].key, key) == 0) {
            return fail(ST_INTERNAL, "%s: metadata \"%s\" is given twice", w->path, key);
        }
    }
    void *items = w->metadata;
    TRY(arena_grow(w->a, &items, &w->metadata_capacity, w->metadata_count + 1,
                   sizeof(*w->metadata)));
    w->metadata = items;
    char *key_copy, *value_copy;
    TRY(arena_strdup(w->a, key, &key_copy));
    TRY(arena_strdup(w->a, value, &value_copy));
    w->metadata[w->metadata_count++] = (safetensors_pair){.key = key_copy, .value = value_copy};
    return ST_OK;
}

status safetensors_writer_declare(safetensors_writer *w, const char *name, dtype type, int ndim,
                                  const int64_t *dims)
{
    declared d = {.type = type, .ndim = ndim, .bytes = dtype_bytes(type)};
    if (w->header_is_written) {
        return fail(ST_INTERNAL, "%s: tensor %s is declared after the first data", w->path, name);
    }
    if (ndim < 0 || ndim > SAFETENSORS_MAX_DIMS || name[0] == '\0' ||
        strlen(name) > SAFETENSORS_MAX_NAME_BYTES || !text_is_utf8(name, (int64_t)strlen(name)) ||
        strcmp(name, "__metadata__") == 0) {
        return fail(ST_INTERNAL, "%s: a tensor of %d dims named \"%.100s\" cannot be written",
                    w->path, ndim, name);
    }
    for (int i = 0; i < ndim; i++) {
        d.dims[i] = dims[i];
        if (!size_mul(d.bytes, dims[i], &d.bytes)) {
            return fail(ST_INTERNAL, "%s: tensor %s: the size of its shape overflows", w->path,
                        name);
        }
    }
    int64_t total;
    if (!size_add(w->data_bytes, d.bytes, &total)) {
        return fail(ST_INTERNAL, "%s: tensor %s: the file's size overflows", w->path, name);
    }
    void *items = w->tensors;
    TRY(arena_grow(w->a, &items, &w->capacity, w->count + 1, sizeof(*w->tensors)));
    w->tensors = items;
    char *copy;
    TRY(arena_strdup(w->a, name, &copy));
    d.name = copy;
    w->tensors[w->count++] = d;
    w->data_bytes = total;
    return ST_OK;
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static status check_names(const safetensors_writer *w)
{
    const char **names;
    TRY(arena_new(w->a, w->count, &names));
    for (int64_t i = 0; i < w->count; i++) names[i] = w->tensors[i].name;
    qsort(names, (size_t)w->count, sizeof(*names), compare_texts);
    for (int64_t i = 1; i < w->count; i++) {
        if (strcmp(names[i - 1], names[i]) == 0) {
            return fail(ST_INTERNAL, "%s: tensor %s is declared twice", w->path, names[i]);
        }
    }
    return ST_OK;
}

static status add_metadata(const safetensors_writer *w, text *header)
{
    TRY(text_add(header, "\"__metadata__\":{"));
    for (int64_t i = 0; i < w->metadata_count; i++) {
        if (i > 0) TRY(text_add(header, ","));
        TRY(text_add_json(header, w->metadata[i].key));
        TRY(text_add(header, ":"));
        TRY(text_add_json(header, w->metadata[i].value));
    }
    return text_add(header, "}");
}

static status add_tensor(const declared *d, int64_t begin, text *header)
{
    TRY(text_add_json(header, d->name));
    TRY(text_add(header, ":{\"dtype\":\"%s\",\"shape\":[", dtype_safetensors_name(d->type)));
    for (int i = 0; i < d->ndim; i++) {
        TRY(text_add(header, "%s%lld", i > 0 ? "," : "", (long long)d->dims[i]));
    }
    return text_add(header, "],\"data_offsets\":[%lld,%lld]}", (long long)begin,
                    (long long)(begin + d->bytes));
}

static status write_header(safetensors_writer *w)
{
    TRY(check_names(w));
    text header = {.a = w->a};
    TRY(text_add(&header, "{"));
    bool first = w->metadata_count == 0;
    if (!first) TRY(add_metadata(w, &header));
    int64_t begin = 0;
    for (int64_t i = 0; i < w->count; i++) {
        if (!first) TRY(text_add(&header, ","));
        first = false;
        TRY(add_tensor(&w->tensors[i], begin, &header));
        begin += w->tensors[i].bytes;
    }
    TRY(text_add(&header, "}"));
    while ((8 + header.length) % w->data_align != 0) TRY(text_add_bytes(&header, " ", 1));
    if (header.length > SAFETENSORS_MAX_HEADER_BYTES) {
        return fail(ST_INTERNAL, "%s: the header takes %lld bytes, the format allows %d", w->path,
                    (long long)header.length, SAFETENSORS_MAX_HEADER_BYTES);
    }
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)header.length >> (8 * i));
    TRY(w->h->api->file_write(w->handle, length, sizeof(length)));
    TRY(w->h->api->file_write(w->handle, header.bytes, header.length));
    w->header_is_written = true;
    return ST_OK;
}

status safetensors_writer_put(safetensors_writer *w, const void *data, int64_t bytes)
{
    if (!w->header_is_written) TRY(write_header(w));
    if (bytes < 0 || bytes > w->data_bytes - w->written_bytes) {
        return fail(ST_INTERNAL, "%s: %lld bytes after %lld of the %lld declared", w->path,
                    (long long)bytes, (long long)w->written_bytes, (long long)w->data_bytes);
    }
    TRY(w->h->api->file_write(w->handle, data, bytes));
    w->written_bytes += bytes;
    return ST_OK;
}

status safetensors_writer_finish(safetensors_writer *w)
{
    if (!w->header_is_written) TRY(write_header(w));
    if (w->written_bytes != w->data_bytes) {
        return fail(ST_INTERNAL, "%s: %lld bytes written, %lld declared", w->path,
                    (long long)w->written_bytes, (long long)w->data_bytes);
    }
    TRY(w->h->api->file_sync(w->handle));
    file *handle = w->handle;
    w->handle = NULL;
    TRY(w->h->api->file_close(handle));
    w->is_finished = true;
    return ST_OK;
}

void safetensors_writer_destroy(safetensors_writer *w)
{
    if (w == NULL) return;
    if (!w->is_finished) {
        // Abandoned: the first error stays, and the partial file is removed so that it cannot pass
        // for a whole one.
        error_record first;
        error_take(&first);
        (void)w->h->api->file_close(w->handle);
        file_info info; // never removes a device that the path names
        if (w->h->api->path_info(w->h, w->path, &info) == ST_OK && info.kind == FILE_KIND_REGULAR) {
            (void)w->h->api->path_remove(w->h, w->path);
        }
        (void)error_put(&first);
    }
    arena_destroy(w->a); // `w` itself lies in it
}
