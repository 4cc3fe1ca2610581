// Host functions that are equal for a real and a simulated host: whole small files, paths.
#include "base/host.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>

static status read_whole(const host *h, arena *a, const char *path, file_mode mode,
                         int64_t limit_bytes, char **out, int64_t *bytes)
{
    file *f;
    int64_t size;
    void *contents;
    status st;
    TRY(h->api->file_open(h, path, mode, &f));
    TRY_TO(close_file, h->api->file_size(f, &size));
    if (size > limit_bytes) {
        st = fail(ST_DAMAGED, "%s: %lld bytes, at most %lld expected", path, (long long)size,
                  (long long)limit_bytes);
        goto close_file;
    }
    TRY_TO(close_file, arena_alloc(a, size + 1, &contents)); // zeroed: the NUL is there
    TRY_TO(close_file, h->api->file_read(f, 0, contents, size));
    *out = contents;
    *bytes = size;
close_file:
    (void)h->api->file_close(f); // the file was only read, so close() loses no data
    return st;
}

status host_read_all(const host *h, arena *a, const char *path, int64_t limit_bytes, char **out,
                     int64_t *bytes)
{
    return read_whole(h, a, path, FILE_READ, limit_bytes, out, bytes);
}

status host_read_text(const host *h, arena *a, const char *path, int64_t limit_bytes, char **out,
                      int64_t *bytes)
{
    char *begin = NULL;
    int64_t count = 0;
    TRY(host_read_all(h, a, path, limit_bytes, &begin, &count));
    if (text_is_utf16(begin, count)) {
        return fail(ST_UNSUPPORTED, "%s: UTF-16 text; convert it: iconv -f UTF-16 -t UTF-8", path);
    }
    const int64_t mark = text_mark_bytes(begin, count);
    *out = begin + mark;
    *bytes = count - mark;
    return ST_OK;
}

status host_read_own(const host *h, arena *a, const char *path, int64_t limit_bytes, char **out,
                     int64_t *bytes)
{
    return read_whole(h, a, path, FILE_READ_OWN, limit_bytes, out, bytes);
}

// The folder of a path; "." if the path has none.
static status folder_of(arena *a, const char *path, char **out)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL) return arena_strdup(a, ".", out);
    const int length = slash == path ? 1 : (int)(slash - path);
    return arena_format(a, out, "%.*s", length, path);
}

static status write_synced(const host *h, const char *path, const void *data, int64_t bytes)
{
    file *f;
    status st;
    TRY(h->api->file_open(h, path, FILE_WRITE, &f));
    TRY_TO(close_file, h->api->file_write(f, data, bytes));
    TRY_TO(close_file, h->api->file_sync(f));
    return h->api->file_close(f);
close_file : {
    error_record first; // a failing close must not hide the first error
    error_take(&first);
    (void)h->api->file_close(f);
    (void)error_put(&first);
}
    return st;
}

status host_write_all(const host *h, const char *path, const void *data, int64_t bytes)
{
    arena *a;
    char *temporary, *folder;
    file_info info;
    status st;
    TRY(h->api->path_info(h, path, &info));
    if (info.kind == FILE_KIND_FOLDER) {
        return fail(ST_IO, "%s is a folder; give the name of a file", path);
    }
    TRY(arena_create("write", 0, &a));
    TRY_TO(destroy_arena, arena_format(a, &temporary, "%s.tmp", path));
    TRY_TO(destroy_arena, folder_of(a, path, &folder));
    TRY_TO(remove_temporary, write_synced(h, temporary, data, bytes));
    TRY_TO(remove_temporary, h->api->path_rename(h, temporary, path));
    TRY_TO(destroy_arena, h->api->path_sync(h, folder));
    arena_destroy(a);
    return ST_OK;
remove_temporary : {
    error_record first;
    error_take(&first);
    (void)h->api->path_remove(h, temporary);
    (void)error_put(&first);
}
destroy_arena:
    arena_destroy(a);
    return st;
}

status path_join(arena *a, const char *folder, const char *name, char **out)
{
    if (name[0] == '/' || folder == NULL || folder[0] == '\0') return arena_strdup(a, name, out);
    const size_t length = strlen(folder);
    const char *slash = folder[length - 1] == '/' || name[0] == '\0' ? "" : "/";
    return arena_format(a, out, "%s%s%s", folder, slash, name);
}

const char *path_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}
