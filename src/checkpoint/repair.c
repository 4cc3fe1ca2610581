// Repairs a checkpoint: rebuilds its damaged files from other checkpoints that hold the same
// content, such as the copy in memory of the same step, a copy on another disk, or an older
// checkpoint for tensors that did not change. Each byte is taken only if its tensor, header or file
// has the checksum that the manifest states. A file is written next to the old one, synced and
// renamed over it, so a repair that is cut off leaves the checkpoint as it was.
#include "checkpoint/reader.h"

#include <string.h>

typedef struct repair {
    const host *h;
    arena *a;
    const char *path;
    ckpt_reader *own;
    ckpt_reader **others;
    const char **places; // of the others
    int64_t other_count;
    text *report;
    int64_t pieces; // rebuilt
} repair;

static bool is_damage(status st)
{
    return st == ST_DAMAGED || st == ST_NOT_FOUND || st == ST_IO || st == ST_SECURITY;
}

static bool is_same(hash128 x, hash128 y)
{
    return x.high == y.high && x.low == y.low;
}

// A tensor's bytes from here, or from another checkpoint; *from: its folder.
static status tensor_find(repair *p, const ckpt_tensor *t, const void **bytes, const char **from)
{
    *from = p->path;
    status st = ckpt_reader_data(p->own, t, bytes);
    if (!is_damage(st)) return st;
    for (int64_t i = 0; i < p->other_count; i++) {
        const ckpt_tensor *x = ckpt_reader_find(p->others[i], t->name);
        if (x == NULL || x->bytes != t->bytes || !is_same(x->checksum, t->checksum)) continue;
        error_clear();
        st = ckpt_reader_data(p->others[i], x, bytes);
        *from = p->places[i];
        if (!is_damage(st)) return st;
    }
    error_clear();
    return fail(ST_DAMAGED,
                "%s: no other checkpoint holds an intact %s with its checksum; %lld "
                "looked at",
                p->path, t->name, (long long)p->other_count);
}

// The first bytes of a file, if they have the checksum.
static status start_read(repair *p, const char *folder, const ckpt_file *f, int64_t bytes,
                         char **out)
{
    char *path = NULL;
    file *handle = NULL;
    TRY(path_join(p->a, folder, f->name, &path));
    TRY(arena_new(p->a, bytes + 1, out));
    TRY(p->h->api->file_open(p->h, path, FILE_READ_OWN, &handle));
    status st = p->h->api->file_read(handle, 0, *out, bytes);
    (void)p->h->api->file_close(handle); // it was only read
    TRY(st);
    if (is_same(hash128_of(*out, bytes), f->checksum)) return ST_OK;
    return fail(ST_DAMAGED, "%s: other bytes", path);
}

// A header, or a whole extra file, from here or from another checkpoint.
static status start_find(repair *p, const ckpt_file *f, int64_t bytes, char **out,
                         const char **from)
{
    *from = p->path;
    status st = start_read(p, p->path, f, bytes, out);
    for (int64_t i = 0; i < p->other_count && is_damage(st); i++) {
        error_clear();
        *from = p->places[i];
        st = start_read(p, p->places[i], f, bytes, out);
    }
    if (!is_damage(st)) return st;
    error_clear();
    return fail(ST_DAMAGED,
                "%s: no other checkpoint holds an intact %s with its checksum; %lld "
                "looked at",
                p->path, f->name, (long long)p->other_count);
}

static status rebuilt_say(repair *p, const char *what, const char *from)
{
    if (from == p->path) return ST_OK;
    p->pieces++;
    return text_add(p->report, "%s from %s\n", what, from);
}

// Writes the header and the tensors of a state file in the order of their places.
static status state_write_all(repair *p, const ckpt_file *f, file *to)
{
    const ckpt_manifest *m = ckpt_reader_manifest(p->own);
    const char *from = NULL;
    char *head = NULL;
    TRY(start_find(p, f, f->head_bytes, &head, &from));
    TRY(rebuilt_say(p, f->name, from));
    TRY(p->h->api->file_write(to, head, f->head_bytes));
    for (int64_t at = f->head_bytes; at < f->bytes;) {
        const ckpt_tensor *t = NULL;
        const void *bytes = NULL;
        for (int64_t i = 0; i < m->tensor_count && t == NULL; i++) {
            const ckpt_tensor *x = &m->tensors[i];
            if (x->offset == at && x->bytes > 0 && strcmp(x->file, f->name) == 0) t = x;
        }
        if (t == NULL)
            return fail(ST_DAMAGED, "%s: no tensor begins at byte %lld", f->name, (long long)at);
        TRY(tensor_find(p, t, &bytes, &from));
        TRY(rebuilt_say(p, t->name, from));
        TRY(p->h->api->file_write(to, bytes, t->bytes));
        at += t->bytes;
    }
    return ST_OK;
}

// Rebuilds one file next to the old one, and puts it in its place.
static status file_rebuild(repair *p, const ckpt_file *f, bool is_state)
{
    char *path = NULL, *fresh = NULL, *bytes = NULL;
    const char *from = NULL;
    file *to = NULL;
    TRY(path_join(p->a, p->path, f->name, &path));
    TRY(arena_format(p->a, &fresh, "%s.repair", path));
    TRY(p->h->api->file_open(p->h, fresh, FILE_WRITE, &to));
    status st = ST_OK;
    if (is_state) {
        TRY_TO(close_file, state_write_all(p, f, to));
    } else {
        TRY_TO(close_file, start_find(p, f, f->bytes, &bytes, &from));
        TRY_TO(close_file, rebuilt_say(p, f->name, from));
        TRY_TO(close_file, p->h->api->file_write(to, bytes, f->bytes));
    }
    TRY_TO(close_file, p->h->api->file_sync(to));
close_file:
    if (st == ST_OK) {
        st = p->h->api->file_close(to);
    } else {
        (void)p->h->api->file_close(to);
    }
    if (st == ST_OK) st = p->h->api->path_rename(p->h, fresh, path);
    if (st == ST_OK) return p->h->api->path_sync(p->h, p->path);
    error_record kept;
    error_take(&kept);
    const status removed = p->h->api->path_remove(p->h, fresh);
    (void)removed;
    return error_put(&kept);
}

// True if the file is as the manifest says.
static status file_look(repair *p, const ckpt_file *f, bool is_state, bool *is_whole)
{
    const ckpt_manifest *m = ckpt_reader_manifest(p->own);
    int64_t tensors = 0;
    status st =
        is_state ? ckpt_reader_head_check(p->own, f, &tensors) : ckpt_reader_extra_check(p->own, f);
    for (int64_t i = 0; i < m->tensor_count && is_state && st == ST_OK; i++) {
        const ckpt_tensor *t = &m->tensors[i];
        if (strcmp(t->file, f->name) == 0) st = ckpt_reader_stream(p->own, t, NULL, NULL);
    }
    *is_whole = st == ST_OK;
    if (!is_damage(st)) return st;
    error_clear();
    return ST_OK;
}

static status files_repair(repair *p)
{
    const ckpt_manifest *m = ckpt_reader_manifest(p->own);
    bool is_whole = false;
    for (int64_t i = 0; i < m->state_count + m->extra_count; i++) {
        const bool is_state = i < m->state_count;
        const ckpt_file *f = is_state ? &m->state[i] : &m->extras[i - m->state_count];
        TRY(file_look(p, f, is_state, &is_whole));
        if (!is_whole) TRY(file_rebuild(p, f, is_state));
    }
    return ST_OK;
}

// A lost or damaged manifest comes from a whole checkpoint of the same name. Its own checksum, and
// then those in it, are checked.
static status manifest_repair(repair *p)
{
    char *own = NULL, *other = NULL, *bytes = NULL;
    int64_t count = 0;
    TRY(path_join(p->a, p->path, CKPT_MANIFEST_NAME, &own));
    for (int64_t i = 0; i < p->other_count; i++) {
        if (strcmp(path_base_name(p->places[i]), path_base_name(p->path)) != 0) continue;
        TRY(path_join(p->a, p->places[i], CKPT_MANIFEST_NAME, &other));
        TRY(host_read_own(p->h, p->a, other, CKPT_MANIFEST_LIMIT_BYTES, &bytes, &count));
        TRY(host_write_all(p->h, own, bytes, count));
        TRY(rebuilt_say(p, CKPT_MANIFEST_NAME, p->places[i]));
        return ckpt_reader_open_manifest(p->h, p->path, &p->own);
    }
    return fail(ST_DAMAGED,
                "%s: its %s is lost or damaged, and no other intact checkpoint has its name",
                p->path, CKPT_MANIFEST_NAME);
}

status ckpt_repair(const host *h, arena *a, const char *path, const file_names *others,
                   text *report, int64_t *pieces)
{
    repair p = {.h = h, .a = a, .path = path, .report = report};
    TRY(arena_new(a, others->count + 1, &p.others));
    TRY(arena_new(a, others->count + 1, &p.places));
    for (int64_t i = 0; i < others->count; i++) {
        if (ckpt_reader_open_manifest(h, others->names[i], &p.others[p.other_count]) == ST_OK) {
            p.places[p.other_count++] = others->names[i];
        }
        error_clear();
    }
    status st = ckpt_reader_open_manifest(h, path, &p.own);
    if (is_damage(st)) {
        error_clear();
        st = manifest_repair(&p);
    }
    if (st == ST_OK) st = files_repair(&p);
    ckpt_reader_close(p.own);
    for (int64_t i = 0; i < p.other_count; i++) ckpt_reader_close(p.others[i]);
    TRY(st);
    *pieces = p.pieces;
    text damage = {.a = a};
    return ckpt_verify(h, a, path, &damage);
}
