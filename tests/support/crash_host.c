// A host over a disk in memory, which logs changes and injects failures: each operation asks
// crash_point whether it fails, and each change of the disk goes through crash_change.
#include "tests/support/crash_host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// base leaves the type of an open file to its host; this is this host's type.
struct file {
    crash_host *c;
    int32_t node;
    bool is_written, sync_failed;
    char *path;
    void *map;
};

static crash_host *crash_of(const host *h)
{
    return (crash_host *)h->state;
}

static status crash_unlock(crash_host *c, status st)
{
    pthread_mutex_unlock(&c->lock);
    return st;
}
#define CRASH_LOCKED(c, call) (pthread_mutex_lock(&(c)->lock), crash_unlock((c), (call)))

// Fails if this call is to fail; *is_short: half of it is done first.
static status crash_point(crash_host *c, const char *operation, const char *path, bool *is_short)
{
    if (is_short != NULL) *is_short = false;
    if (c->where == NULL || strstr(path, c->where) == NULL) return ST_OK;
    c->calls++;
    if (c->fail_at == 0 || c->calls < c->fail_at || c->calls >= c->fail_at + c->fail_count) {
        return ST_OK;
    }
    c->failed++;
    if (c->error == CRASH_SHORT && is_short != NULL) *is_short = true;
    return c->error == CRASH_ENOSPC
               ? fail(ST_DISK_FULL, "%s: %s failed: no space left (injected)", path, operation)
               : fail(ST_IO, "%s: %s failed: input/output error (injected)", path, operation);
}

// Applies a change and logs it. Takes ownership of name, to_name and data.
static void crash_change(crash_host *c, sim_op op)
{
    op.mark = c->mark;
    sim_apply(c->disk, &op, SIM_KEPT);
    if (c->log != NULL) {
        ASSERT(c->log->count < SIM_MAX_OPS);
        c->log->ops[c->log->count++] = op;
        return;
    }
    free(op.name);
    free(op.to_name);
    free(op.data);
}

// ---- paths --------------------------------------------------------------------------------------

typedef struct crash_place {
    int32_t folder; // -1: it does not exist
    char name[256]; // name in the folder; "" for the root
    int32_t node;   // -1: no file of that name
} crash_place;

// Follows every link, but without `follow` not a final one. Links lead to siblings only.
static crash_place crash_find(const crash_host *c, const char *path, bool follow)
{
    const sim_disk *d = c->disk;
    crash_place p = {.folder = SIM_ROOT, .name = "", .node = SIM_ROOT};
    while (*path != '\0') {
        const size_t length = strcspn(path, "/");
        if (length > 0 && !(length == 1 && path[0] == '.')) {
            if (p.node < 0 || d->nodes[p.node].kind != SIM_FOLDER) {
                return (crash_place){.folder = -1, .node = -1};
            }
            p.folder = p.node;
            (void)snprintf(p.name, sizeof(p.name), "%.*s", (int)length, path);
            p.node = sim_child(d, p.folder, p.name);
            const bool last = path[length] == '\0';
            for (int hops = 0; p.node >= 0 && d->nodes[p.node].kind == SIM_LINK; hops++) {
                if ((last && !follow) || hops == 8) break;
                const sim_node *link = &d->nodes[p.node];
                (void)snprintf(p.name, sizeof(p.name), "%.*s", (int)link->bytes, link->data);
                p.node = sim_child(d, p.folder, p.name);
            }
        }
        path += length;
        while (*path == '/') path++;
    }
    return p;
}

static status crash_missing(const char *operation, const char *path)
{
    return fail(ST_NOT_FOUND, "%s: %s failed: no such file or folder", path, operation);
}

static int32_t crash_add(crash_host *c, int32_t folder, const char *name, sim_kind kind,
                         const char *target)
{
    const int32_t node = c->disk->count;
    crash_change(c, (sim_op){.kind = SIM_ADD,
                             .node = node,
                             .folder = folder,
                             .name = sim_text(name),
                             .node_kind = kind,
                             .bytes = target != NULL ? (int64_t)strlen(target) : 0,
                             .data = target != NULL ? sim_text(target) : NULL});
    return node;
}

// ---- files --------------------------------------------------------------------------------------

static status crash_open_locked(crash_host *c, const char *path, file_mode mode, file **out)
{
    TRY(crash_point(c, "open", path, NULL));
    const bool writes = mode == FILE_CREATE || mode == FILE_WRITE || mode == FILE_APPEND;
    crash_place p = crash_find(c, path, true);
    if (p.folder < 0 || (p.node < 0 && !writes)) return crash_missing("open", path);
    if (p.node >= 0 && c->disk->nodes[p.node].kind != SIM_FILE) {
        return fail(ST_IO, "%s: is a folder, a regular file expected", path);
    }
    if (p.node >= 0 && mode == FILE_CREATE) return fail(ST_IO, "%s: exists", path);
    if (p.node < 0) p.node = crash_add(c, p.folder, p.name, SIM_FILE, NULL);
    if (mode == FILE_WRITE && c->disk->nodes[p.node].bytes > 0) {
        crash_change(c, (sim_op){.kind = SIM_TRUNCATE, .node = p.node});
    }
    file *f = (file *)sim_alloc(sizeof(*f));
    *f = (file){.c = c, .node = p.node, .is_written = writes, .path = sim_text(path)};
    c->open_files++;
    *out = f;
    return ST_OK;
}

static status crash_open(const host *h, const char *path, file_mode mode, file **out)
{
    return CRASH_LOCKED(crash_of(h), crash_open_locked(crash_of(h), path, mode, out));
}

static status crash_read_locked(file *f, int64_t offset, void *buffer, int64_t bytes)
{
    bool is_short = false;
    const sim_node *n = &f->c->disk->nodes[f->node];
    const status st = crash_point(f->c, "read", f->path, &is_short);
    if (is_short || offset + bytes > n->bytes) {
        return fail(ST_DAMAGED, "%s: ends at byte %lld, %lld bytes expected at %lld", f->path,
                    (long long)n->bytes, (long long)bytes, (long long)offset);
    }
    TRY(st);
    if (bytes > 0) memcpy(buffer, n->data + offset, (size_t)bytes);
    return ST_OK;
}

static status crash_read(file *f, int64_t offset, void *buffer, int64_t bytes)
{
    return CRASH_LOCKED(f->c, crash_read_locked(f, offset, buffer, bytes));
}

static status crash_write_locked(file *f, const void *buffer, int64_t bytes)
{
    bool is_short = false;
    ASSERT(f->is_written);
    status st = crash_point(f->c, "write", f->path, &is_short);
    if (st != ST_OK && !is_short) return st;
    if (is_short) {
        st = fail(ST_DISK_FULL, "%s: write failed: no space left (injected)", f->path);
        bytes /= 2;
    }
    char *data = (char *)sim_alloc((size_t)bytes);
    if (bytes > 0) memcpy(data, buffer, (size_t)bytes);
    crash_change(f->c, (sim_op){.kind = SIM_WRITE,
                                .node = f->node,
                                .offset = f->c->disk->nodes[f->node].bytes,
                                .bytes = bytes,
                                .data = data});
    return st;
}

static status crash_write(file *f, const void *buffer, int64_t bytes)
{
    return CRASH_LOCKED(f->c, crash_write_locked(f, buffer, bytes));
}

static status crash_truncate_locked(file *f, int64_t bytes)
{
    TRY(crash_point(f->c, "truncate", f->path, NULL));
    crash_change(f->c, (sim_op){.kind = SIM_TRUNCATE, .node = f->node, .bytes = bytes});
    return ST_OK;
}

static status crash_truncate(file *f, int64_t bytes)
{
    return CRASH_LOCKED(f->c, crash_truncate_locked(f, bytes));
}

// A failed sync may have dropped the data that it could not write, so a later sync of it does not
// count.
static status crash_sync_locked(file *f)
{
    const status st = crash_point(f->c, "fsync", f->path, NULL);
    if (st != ST_OK) f->sync_failed = true;
    TRY(st);
    if (f->sync_failed || f->c->forgets_file_sync) return ST_OK;
    crash_change(f->c, (sim_op){.kind = SIM_SYNC_FILE, .node = f->node});
    return ST_OK;
}

static status crash_sync(file *f)
{
    return CRASH_LOCKED(f->c, crash_sync_locked(f));
}

// The lock is always free: there is only one process here.
static status crash_lock_file(file *f, bool *taken)
{
    *taken = true;
    return CRASH_LOCKED(f->c, crash_point(f->c, "flock", f->path, NULL));
}

static status crash_forget(file *f)
{
    return CRASH_LOCKED(f->c, crash_point(f->c, "fadvise", f->path, NULL));
}

static status crash_size(file *f, int64_t *out)
{
    pthread_mutex_lock(&f->c->lock);
    *out = f->c->disk->nodes[f->node].bytes;
    pthread_mutex_unlock(&f->c->lock);
    return ST_OK;
}

static status crash_map_locked(file *f, const void **out, int64_t *bytes)
{
    TRY(crash_point(f->c, "mmap", f->path, NULL));
    const sim_node *n = &f->c->disk->nodes[f->node];
    *bytes = n->bytes;
    if (f->map == NULL && n->bytes > 0) {
        f->map = sim_alloc((size_t)n->bytes);
        memcpy(f->map, n->data, (size_t)n->bytes);
    }
    *out = f->map;
    return ST_OK;
}

static status crash_map(file *f, const void **out, int64_t *bytes)
{
    return CRASH_LOCKED(f->c, crash_map_locked(f, out, bytes));
}

// As on Linux, the descriptor is closed whatever close reports.
static status crash_close(file *f)
{
    if (f == NULL) return ST_OK;
    crash_host *c = f->c;
    pthread_mutex_lock(&c->lock);
    const status st = crash_point(c, "close", f->path, NULL);
    c->open_files--;
    free(f->map);
    free(f->path);
    free(f);
    return crash_unlock(c, st);
}

// ---- names --------------------------------------------------------------------------------------

static status crash_info(const host *h, const char *path, file_info *out)
{
    crash_host *c = crash_of(h);
    pthread_mutex_lock(&c->lock);
    const crash_place p = crash_find(c, path, true);
    *out = (file_info){.kind = FILE_KIND_NONE};
    if (p.node >= 0) {
        const sim_node *n = &c->disk->nodes[p.node];
        *out = (file_info){.kind = n->kind == SIM_FILE     ? FILE_KIND_REGULAR
                                   : n->kind == SIM_FOLDER ? FILE_KIND_FOLDER
                                                           : FILE_KIND_OTHER,
                           .bytes = n->bytes,
                           .inode = (uint64_t)p.node};
    }
    return crash_unlock(c, ST_OK);
}

static status crash_rename_locked(crash_host *c, const char *from, const char *to)
{
    TRY(crash_point(c, "rename", from, NULL));
    const crash_place p = crash_find(c, from, false), q = crash_find(c, to, false);
    if (p.node < 0 || q.folder < 0) return crash_missing("rename", from);
    if (q.node >= 0 && c->disk->nodes[q.node].entry_count > 0) {
        return fail(ST_IO, "%s: rename failed: the folder is not empty", to);
    }
    crash_change(c, (sim_op){.kind = SIM_RENAME,
                             .node = p.node,
                             .folder = p.folder,
                             .to_folder = q.folder,
                             .name = sim_text(p.name),
                             .to_name = sim_text(q.name)});
    return ST_OK;
}

static status crash_rename(const host *h, const char *from, const char *to)
{
    return CRASH_LOCKED(crash_of(h), crash_rename_locked(crash_of(h), from, to));
}

static status crash_remove_locked(crash_host *c, const char *path)
{
    TRY(crash_point(c, "remove", path, NULL));
    const crash_place p = crash_find(c, path, false);
    if (p.node < 0) return crash_missing("remove", path);
    if (c->disk->nodes[p.node].entry_count > 0) {
        return fail(ST_IO, "%s: remove failed: the folder is not empty", path);
    }
    crash_change(
        c,
        (sim_op){.kind = SIM_DROP, .node = p.node, .folder = p.folder, .name = sim_text(p.name)});
    return ST_OK;
}

static status crash_remove(const host *h, const char *path)
{
    return CRASH_LOCKED(crash_of(h), crash_remove_locked(crash_of(h), path));
}

static status crash_mkdir_locked(crash_host *c, const char *path)
{
    char part[1024];
    TRY(crash_point(c, "mkdir", path, NULL));
    const size_t length = strlen(path);
    ASSERT(length < sizeof(part));
    for (size_t end = 1; end <= length; end++) {
        if (path[end] != '/' && path[end] != '\0') continue;
        memcpy(part, path, end);
        part[end] = '\0';
        const crash_place p = crash_find(c, part, true);
        if (p.node < 0) {
            (void)crash_add(c, p.folder, p.name, SIM_FOLDER, NULL);
        } else if (c->disk->nodes[p.node].kind != SIM_FOLDER) {
            return fail(ST_IO, "%s: cannot make a folder, a file has this name", part);
        }
    }
    return ST_OK;
}

static status crash_mkdir(const host *h, const char *path)
{
    return CRASH_LOCKED(crash_of(h), crash_mkdir_locked(crash_of(h), path));
}

static status crash_path_sync_locked(crash_host *c, const char *folder)
{
    TRY(crash_point(c, "fsync", folder, NULL));
    const crash_place p = crash_find(c, folder, true);
    if (p.node < 0) return crash_missing("open", folder);
    if (c->forgets_folder_sync) return ST_OK;
    crash_change(c, (sim_op){.kind = SIM_SYNC_FOLDER, .node = p.node});
    return ST_OK;
}

static status crash_path_sync(const host *h, const char *folder)
{
    return CRASH_LOCKED(crash_of(h), crash_path_sync_locked(crash_of(h), folder));
}

static int crash_name_order(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static status crash_list_locked(crash_host *c, arena *a, const char *folder, file_names *out)
{
    TRY(crash_point(c, "list", folder, NULL));
    const crash_place p = crash_find(c, folder, true);
    if (p.node < 0) return crash_missing("list", folder);
    const sim_node *n = &c->disk->nodes[p.node];
    char **names = NULL;
    TRY(arena_new(a, n->entry_count + 1, &names));
    for (int32_t i = 0; i < n->entry_count; i++) {
        TRY(arena_strdup(a, n->entries[i].name, &names[i]));
    }
    qsort(names, (size_t)n->entry_count, sizeof(*names), crash_name_order);
    *out = (file_names){.names = names, .count = n->entry_count};
    return ST_OK;
}

static status crash_list(const host *h, arena *a, const char *folder, file_names *out)
{
    return CRASH_LOCKED(crash_of(h), crash_list_locked(crash_of(h), a, folder, out));
}

// Makes three changes, like the real host: it removes a leftover, makes a link next to it, and
// renames.
static status crash_link_locked(crash_host *c, const char *target, const char *link)
{
    char temporary[1024];
    TRY(crash_point(c, "symlink", link, NULL));
    (void)snprintf(temporary, sizeof(temporary), "%s.tmp", link);
    const crash_place p = crash_find(c, temporary, false);
    if (p.folder < 0) return crash_missing("symlink", link);
    if (p.node >= 0) TRY(crash_remove_locked(c, temporary));
    (void)crash_add(c, p.folder, p.name, SIM_LINK, target);
    return crash_rename_locked(c, temporary, link);
}

static status crash_link(const host *h, const char *target, const char *link)
{
    return CRASH_LOCKED(crash_of(h), crash_link_locked(crash_of(h), target, link));
}

static status crash_glob(const host *h, arena *a, const char *pattern, file_names *out)
{
    file_info info;
    TRY(crash_info(h, pattern, &info));
    *out = (file_names){0};
    if (info.kind == FILE_KIND_NONE) return ST_OK;
    TRY(arena_new(a, 1, &out->names));
    out->count = 1;
    return arena_strdup(a, pattern, &out->names[0]);
}

// ---- time and chance ----------------------------------------------------------------------------

static int64_t crash_monotonic(const host *h)
{
    (void)h;
    return host_real()->api->monotonic_ns(host_real());
}

static int64_t crash_unix(const host *h)
{
    (void)h;
    return 1700000000000000000;
}

static void crash_sleep(const host *h, int64_t ns)
{
    (void)h;
    host_real()->api->sleep_ns(host_real(), min_i64(ns, 1000000));
}

static status crash_random(const host *h, void *buffer, int64_t bytes)
{
    (void)h;
    memset(buffer, 0x5a, (size_t)bytes);
    return ST_OK;
}

static status crash_machine_name(const host *h, char name[HOST_NAME_BYTES])
{
    (void)h;
    (void)snprintf(name, HOST_NAME_BYTES, "simulated");
    return ST_OK;
}

static int64_t crash_process_id(const host *h)
{
    (void)h;
    return 1;
}

static status crash_space(const host *h, const char *path, int64_t *free_bytes)
{
    (void)h, (void)path;
    *free_bytes = -1;
    return ST_OK;
}

static const host_api crash_api = {
    .monotonic_ns = crash_monotonic,
    .unix_ns = crash_unix,
    .sleep_ns = crash_sleep,
    .random_fill = crash_random,
    .machine_name = crash_machine_name,
    .process_id = crash_process_id,
    .file_open = crash_open,
    .file_read = crash_read,
    .file_write = crash_write,
    .file_truncate = crash_truncate,
    .file_sync = crash_sync,
    .file_lock = crash_lock_file,
    .file_forget = crash_forget,
    .file_size = crash_size,
    .file_map = crash_map,
    .file_close = crash_close,
    .path_info = crash_info,
    .path_rename = crash_rename,
    .path_remove = crash_remove,
    .path_mkdir = crash_mkdir,
    .path_sync = crash_path_sync,
    .path_space = crash_space,
    .path_list = crash_list,
    .path_link = crash_link,
    .path_glob = crash_glob,
};

// Takes ownership of the disk.
crash_host *crash_host_create(sim_disk *take)
{
    crash_host *c = (crash_host *)sim_alloc(sizeof(*c));
    c->h = (host){.api = &crash_api, .state = c};
    c->disk = take;
    c->fail_count = 1;
    pthread_mutex_init(&c->lock, NULL);
    return c;
}

void crash_host_destroy(crash_host *c)
{
    pthread_mutex_destroy(&c->lock);
    sim_disk_destroy(c->disk);
    free(c);
}
