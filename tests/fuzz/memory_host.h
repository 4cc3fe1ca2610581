// A host of a few files in memory, for fuzz entries: parsers read it as they read a disk. What is
// written goes into the file's own buffer; memory_free gives those back.
#ifndef FUZZ_MEMORY_HOST_H
#define FUZZ_MEMORY_HOST_H

#include "base/host.h"

#include <stdlib.h>
#include <string.h>

// base keeps what an open file is to itself; here it is one of the files below.
struct file {
    const char *path;
    const void *bytes;
    int64_t count;
    char *written; // bytes lies here once something was written
};

enum { MEMORY_FILES = 3 };
typedef struct memory_files {
    struct file files[MEMORY_FILES]; // path NULL: none
} memory_files;

static struct file *memory_find(const host *h, const char *path)
{
    memory_files *m = h->state;
    for (int i = 0; i < MEMORY_FILES; i++) {
        if (m->files[i].path != NULL && strcmp(m->files[i].path, path) == 0) return &m->files[i];
    }
    return NULL;
}

static status memory_open(const host *h, const char *path, file_mode mode, file **out)
{
    struct file *f = memory_find(h, path);
    if (f == NULL && mode != FILE_READ && mode != FILE_READ_OWN) {
        memory_files *m = h->state;
        for (int i = 0; i < MEMORY_FILES && f == NULL; i++) {
            if (m->files[i].path == NULL) f = &m->files[i];
        }
        ASSERT(f != NULL);
        f->path = path; // which outlives its use
    }
    if (f == NULL) return fail(ST_NOT_FOUND, "%s: no such file", path);
    if (mode == FILE_WRITE) f->count = 0;
    *out = f;
    return ST_OK;
}

static inline status memory_write(file *f, const void *bytes, int64_t count)
{
    char *grown = malloc((size_t)(f->count + count) + 1);
    ASSERT(grown != NULL);
    if (f->count > 0) memcpy(grown, f->bytes, (size_t)f->count);
    if (count > 0) memcpy(grown + f->count, bytes, (size_t)count);
    free(f->written);
    f->bytes = f->written = grown;
    f->count += count;
    return ST_OK;
}

static inline status memory_rename(const host *h, const char *from, const char *to)
{
    struct file *a = memory_find(h, from), *b = memory_find(h, to);
    ASSERT(a != NULL && b != NULL);
    free(b->written);
    *b = (struct file){b->path, a->bytes, a->count, a->written};
    *a = (struct file){0};
    return ST_OK;
}

static inline status memory_folder_sync(const host *h, const char *folder)
{
    (void)h;
    (void)folder;
    return ST_OK;
}

// It has no folders, so no names are listed.
static inline status memory_list(const host *h, arena *a, const char *folder, file_names *out)
{
    (void)h;
    (void)a;
    (void)folder;
    *out = (file_names){0};
    return ST_OK;
}

static inline void memory_free(memory_files *m)
{
    for (int i = 0; i < MEMORY_FILES; i++) free(m->files[i].written);
}

static status memory_read(file *f, int64_t offset, void *buffer, int64_t bytes)
{
    ASSERT(offset >= 0 && bytes >= 0);
    if (offset > f->count || bytes > f->count - offset) {
        return fail(ST_DAMAGED, "%s: ends at byte %lld", f->path, (long long)f->count);
    }
    if (bytes > 0) memcpy(buffer, (const char *)f->bytes + offset, (size_t)bytes);
    return ST_OK;
}

static status memory_size(file *f, int64_t *out)
{
    *out = f->count;
    return ST_OK;
}

static inline status memory_truncate(file *f, int64_t bytes)
{
    ASSERT(bytes >= 0 && bytes <= f->count);
    f->count = bytes;
    return ST_OK;
}

static status memory_forget(file *f)
{
    (void)f;
    return ST_OK;
}

static status memory_map(file *f, const void **out, int64_t *bytes)
{
    *out = f->count > 0 ? f->bytes : NULL;
    *bytes = f->count;
    return ST_OK;
}

static status memory_close(file *f)
{
    (void)f;
    return ST_OK;
}

static status memory_info(const host *h, const char *path, file_info *out)
{
    const struct file *f = memory_find(h, path);
    *out = (file_info){.kind = f != NULL ? FILE_KIND_REGULAR : FILE_KIND_NONE,
                       .bytes = f != NULL ? f->count : 0};
    return ST_OK;
}

static const host_api memory_api = {
    .file_open = memory_open,
    .file_read = memory_read,
    .file_write = memory_write,
    .file_sync = memory_forget,
    .file_forget = memory_forget,
    .file_size = memory_size,
    .file_truncate = memory_truncate,
    .file_map = memory_map,
    .file_close = memory_close,
    .path_info = memory_info,
    .path_list = memory_list,
    .path_rename = memory_rename,
    .path_sync = memory_folder_sync,
};

#endif
