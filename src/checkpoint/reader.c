// Reads a checkpoint: first the manifest, then each file's size and header against it, later the
// tensors, each against its checksum. One file is open at a time and no file is mapped, so a
// failing disk or a file that is truncated during the read gives a status and not a signal.
#include "checkpoint/reader.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE_BYTES = 4 << 20 };

struct ckpt_reader {
    const host *h;
    arena *a;
    const char *path;
    ckpt_manifest manifest;
    bool bypasses_cache;
    const char *open_name; // name of the open file; NULL: none
    file *handle;
    void *tensor; // the last result of ckpt_reader_data
    int64_t tensor_capacity;
    char *piece; // PIECE_BYTES, allocated at first use
};

static void file_let_go(ckpt_reader *r)
{
    error_record kept;
    error_take(&kept);
    if (r->handle != NULL) (void)r->h->api->file_close(r->handle); // it was only read
    r->handle = NULL;
    r->open_name = NULL;
    (void)error_put(&kept);
}

// Opens a file of the folder. It refuses a link, and a size that differs from the manifest's.
static status file_take(ckpt_reader *r, const char *name, int64_t bytes)
{
    if (r->open_name == name) return ST_OK; // the same string of the manifest
    file_let_go(r);
    arena *work = NULL;
    char *path = NULL;
    int64_t size = 0;
    TRY(arena_create("path", 0, &work));
    status st = path_join(work, r->path, name, &path);
    if (st == ST_OK) st = r->h->api->file_open(r->h, path, FILE_READ_OWN, &r->handle);
    arena_destroy(work);
    if (st == ST_NOT_FOUND) {
        return fail(ST_DAMAGED, "%s/%s is missing, but the manifest lists it", r->path, name);
    }
    TRY(st);
    r->open_name = name;
    TRY(r->h->api->file_size(r->handle, &size));
    if (size != bytes) {
        file_let_go(r);
        return fail(ST_DAMAGED, "%s/%s has %lld bytes, the manifest says %lld", r->path, name,
                    (long long)size, (long long)bytes);
    }
    return r->bypasses_cache ? r->h->api->file_forget(r->handle) : ST_OK;
}

static const ckpt_file *state_find(const ckpt_reader *r, const char *name)
{
    int64_t low = 0, high = r->manifest.state_count; // sorted by name
    while (low < high) {
        const int64_t mid = low + (high - low) / 2;
        const int order = strcmp(r->manifest.state[mid].name, name);
        if (order == 0) return &r->manifest.state[mid];
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

// ---- opening ------------------------------------------------------------------------------------

static status manifest_read(ckpt_reader *r)
{
    char *path = NULL, *bytes = NULL;
    int64_t count = 0;
    file *f = NULL;
    TRY(path_join(r->a, r->path, CKPT_MANIFEST_NAME, &path));
    const status opened = r->h->api->file_open(r->h, path, FILE_READ_OWN, &f);
    if (opened == ST_NOT_FOUND) {
        ckpt_folder kind = CKPT_FOLDER_DEBRIS;
        TRY(ckpt_folder_look(r->h, r->a, r->path, &kind));
        if (kind == CKPT_FOLDER_LOST) return ckpt_lost_fail(r->h, r->a, r->path);
        return fail(ST_NOT_FOUND,
                    "%s does not exist; only a folder with a manifest is a checkpoint", path);
    }
    TRY(opened);
    status st = ST_OK;
    TRY_TO(close_file, r->h->api->file_size(f, &count));
    if (count > CKPT_MANIFEST_LIMIT_BYTES) {
        st = fail(ST_DAMAGED, "%s: it has %lld bytes, expected at most %d", path, (long long)count,
                  CKPT_MANIFEST_LIMIT_BYTES);
        goto close_file;
    }
    if (r->bypasses_cache) TRY_TO(close_file, r->h->api->file_forget(f));
    bytes = malloc((size_t)count + 1);
    if (bytes == NULL) {
        st = fail(ST_NO_MEMORY, "%s: no memory to read it", path);
        goto close_file;
    }
    TRY_TO(close_file, r->h->api->file_read(f, 0, bytes, count));
    st = ckpt_manifest_parse(r->a, bytes, count, path, &r->manifest);
close_file:
    free(bytes);
    (void)r->h->api->file_close(f); // it was only read
    return st;
}

static status reader_make(const host *h, const char *path, ckpt_reader **out)
{
    arena *a = NULL;
    ckpt_reader *r = NULL;
    char *copy = NULL;
    status st = ST_OK;
    TRY(arena_create("checkpoint", 0, &a));
    TRY_TO(destroy_arena, arena_new(a, 1, &r));
    TRY_TO(destroy_arena, arena_strdup(a, path, &copy));
    *r = (ckpt_reader){.h = h, .a = a, .path = copy};
    *out = r;
    return ST_OK;
destroy_arena:
    arena_destroy(a);
    return st;
}

// A folder called "step-0000100" holds step 100: otherwise folder or manifest were exchanged. Any
// other name says nothing.
status ckpt_reader_name_check(const ckpt_reader *r)
{
    int64_t length = (int64_t)strlen(r->path), step = 0, fork = 0;
    char name[64];
    while (length > 1 && r->path[length - 1] == '/') length--;
    int64_t begin = length;
    while (begin > 0 && r->path[begin - 1] != '/') begin--;
    if (length - begin >= (int64_t)sizeof(name)) return ST_OK;
    memcpy(name, r->path + begin, (size_t)(length - begin));
    name[length - begin] = '\0';
    if (!ckpt_name_parse(name, &step, &fork) || step == r->manifest.info.step) return ST_OK;
    return fail(ST_DAMAGED,
                "%s: its name says step %lld, its manifest.json says step %lld; the folder was "
                "renamed or its files were exchanged",
                r->path, (long long)step, (long long)r->manifest.info.step);
}

status ckpt_reader_open_manifest(const host *h, const char *path, ckpt_reader **out)
{
    ckpt_reader *r = NULL;
    TRY(reader_make(h, path, &r));
    const status st = manifest_read(r);
    if (st == ST_OK) {
        *out = r;
    } else {
        ckpt_reader_close(r);
    }
    return st;
}

// Checks that header and manifest give the same place for each tensor.
static status head_agrees(ckpt_reader *r, const ckpt_file *f, const safetensors_head *head)
{
    for (int64_t i = 0; i < head->count; i++) {
        const safetensors_entry *e = &head->entries[i];
        const ckpt_tensor *t = ckpt_manifest_find(&r->manifest, e->name);
        if (t == NULL || t->file != f->name) {
            return fail(ST_DAMAGED,
                        "%s/%s: it holds the tensor %s, which the manifest does not list", r->path,
                        f->name, e->name);
        }
        if (t->type != e->type || t->ndim != e->ndim || t->offset != e->begin ||
            t->bytes != e->bytes ||
            memcmp(t->dims, e->dims, (size_t)e->ndim * sizeof(e->dims[0])) != 0) {
            return fail(ST_DAMAGED,
                        "%s/%s: tensor %s: type, shape or place differ from the manifest", r->path,
                        f->name, e->name);
        }
    }
    return ST_OK;
}

status ckpt_reader_head_check(ckpt_reader *r, const ckpt_file *state, int64_t *tensors)
{
    arena *work = NULL;
    char *path = NULL, have[33], want[33];
    safetensors_head head;
    TRY(file_take(r, state->name, state->bytes));
    TRY(arena_create("header", 0, &work));
    status st = path_join(work, r->path, state->name, &path);
    if (st != ST_OK) goto destroy_arena;
    TRY_TO(destroy_arena, safetensors_head_read(r->h, r->handle, work, path, &head));
    const hash128 sum = hash128_of(head.bytes, head.data_begin);
    if (head.data_begin != state->head_bytes || sum.high != state->checksum.high ||
        sum.low != state->checksum.low) {
        st = fail(ST_DAMAGED, "%s byte 0 (its header): checksum %s, the manifest says %s", path,
                  hash128_text(sum, have), hash128_text(state->checksum, want));
        goto destroy_arena;
    }
    st = head_agrees(r, state, &head);
    *tensors += head.count;
destroy_arena:
    arena_destroy(work);
    return st;
}

// Every tensor of a header is in the manifest; equal counts prove that the manifest has no others.
static status files_check(ckpt_reader *r)
{
    const ckpt_manifest *m = &r->manifest;
    int64_t tensors = 0;
    for (int64_t i = 0; i < m->state_count; i++) {
        TRY(ckpt_reader_head_check(r, &m->state[i], &tensors));
    }
    if (tensors != m->tensor_count) {
        return fail(ST_DAMAGED, "%s: its files hold %lld tensors, the manifest lists %lld", r->path,
                    (long long)tensors, (long long)m->tensor_count);
    }
    for (int64_t i = 0; i < m->extra_count; i++) {
        TRY(file_take(r, m->extras[i].name, m->extras[i].bytes));
    }
    return ST_OK;
}

static int compare_places(const void *a, const void *b)
{
    const ckpt_tensor *x = *(const ckpt_tensor *const *)a, *y = *(const ckpt_tensor *const *)b;
    if (x->file != y->file) return strcmp(x->file, y->file);
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

// Checks that the manifest's tensors of a file fill it from its header to its end.
status ckpt_reader_cover_check(ckpt_reader *r)
{
    const ckpt_manifest *m = &r->manifest;
    const ckpt_tensor **order = NULL;
    TRY(arena_new(r->a, m->tensor_count, &order));
    for (int64_t i = 0; i < m->tensor_count; i++) order[i] = &m->tensors[i];
    if (m->tensor_count > 1) {
        qsort(order, (size_t)m->tensor_count, sizeof(*order), compare_places);
    }
    int64_t next = 0;
    for (int64_t i = 0; i < m->state_count; i++) {
        const ckpt_file *f = &m->state[i];
        int64_t at = f->head_bytes;
        for (; next < m->tensor_count && order[next]->file == f->name; next++) {
            if (order[next]->offset != at) {
                return fail(ST_DAMAGED, "%s: tensor %s begins at byte %lld of %s, expected %lld",
                            r->path, order[next]->name, (long long)order[next]->offset, f->name,
                            (long long)at);
            }
            at += order[next]->bytes;
        }
        if (at != f->bytes) {
            return fail(ST_DAMAGED, "%s: the tensors of %s end at byte %lld, it has %lld", r->path,
                        f->name, (long long)at, (long long)f->bytes);
        }
    }
    return ST_OK;
}

status ckpt_reader_open(const host *h, const char *path, ckpt_reader **out)
{
    ckpt_reader *r = NULL;
    TRY(ckpt_reader_open_manifest(h, path, &r));
    status st = ckpt_reader_cover_check(r);
    if (st == ST_OK) st = files_check(r);
    if (st == ST_OK) st = ckpt_reader_name_check(r);
    if (st == ST_OK) {
        *out = r;
    } else {
        ckpt_reader_close(r);
    }
    return st;
}

void ckpt_reader_close(ckpt_reader *r)
{
    if (r == NULL) return;
    file_let_go(r);
    free(r->tensor);
    free(r->piece);
    arena_destroy(r->a); // the arena also holds `r`
}

void ckpt_reader_bypass_cache(ckpt_reader *r)
{
    r->bypasses_cache = true;
    file_let_go(r); // each file is opened, and dropped from the cache, anew
}

const ckpt_manifest *ckpt_reader_manifest(const ckpt_reader *r)
{
    return &r->manifest;
}

const ckpt_info *ckpt_reader_info(const ckpt_reader *r)
{
    return &r->manifest.info;
}

hash128 ckpt_reader_root(const ckpt_reader *r)
{
    return r->manifest.root;
}

hash128 ckpt_reader_digest(const ckpt_reader *r)
{
    return r->manifest.digest;
}

int64_t ckpt_reader_count(const ckpt_reader *r)
{
    return r->manifest.tensor_count;
}

const ckpt_tensor *ckpt_reader_at(const ckpt_reader *r, int64_t i)
{
    return i < 0 || i >= r->manifest.tensor_count ? NULL : &r->manifest.tensors[i];
}

const ckpt_tensor *ckpt_reader_find(const ckpt_reader *r, const char *name)
{
    return ckpt_manifest_find(&r->manifest, name);
}

// ---- bytes --------------------------------------------------------------------------------------

static status sum_check(const ckpt_reader *r, const ckpt_tensor *t, hash128 sum)
{
    char have[33], want[33];
    if (sum.high == t->checksum.high && sum.low == t->checksum.low) return ST_OK;
    return fail(ST_DAMAGED, "%s/%s byte %lld (tensor %s): checksum %s, the manifest says %s",
                r->path, t->file, (long long)t->offset, t->name, hash128_text(sum, have),
                hash128_text(t->checksum, want));
}

static status tensor_file(ckpt_reader *r, const ckpt_tensor *t)
{
    const ckpt_file *f = state_find(r, t->file);
    ASSERT(f != NULL); // the manifest's parser has checked this
    return file_take(r, f->name, f->bytes);
}

status ckpt_reader_data(ckpt_reader *r, const ckpt_tensor *t, const void **bytes)
{
    TRY(tensor_file(r, t)); // checks the size before any allocation
    if (t->bytes > r->tensor_capacity || r->tensor == NULL) {
        free(r->tensor);
        r->tensor_capacity = 0;
        r->tensor = malloc((size_t)max_i64(t->bytes, 64));
        if (r->tensor == NULL) {
            return fail(ST_NO_MEMORY, "no memory for tensor %s of %s: %lld bytes", t->name, r->path,
                        (long long)t->bytes);
        }
        r->tensor_capacity = t->bytes;
    }
    TRY(r->h->api->file_read(r->handle, t->offset, r->tensor, t->bytes));
    TRY(sum_check(r, t, hash128_of(r->tensor, t->bytes)));
    *bytes = r->tensor;
    return ST_OK;
}

// Passes [begin, begin + bytes) of the open file piece by piece to `take` (may be NULL) and
// computes the checksum.
static status stream(ckpt_reader *r, int64_t begin, int64_t bytes, ckpt_take *take, void *context,
                     hash128 *out)
{
    if (r->piece == NULL) r->piece = malloc(PIECE_BYTES);
    hash_stream *sum = hash_begin();
    status st = ST_OK;
    if (r->piece == NULL || sum == NULL) st = fail(ST_NO_MEMORY, "no memory to read %s", r->path);
    for (int64_t at = 0; st == ST_OK && at < bytes; at += PIECE_BYTES) {
        const int64_t n = min_i64(PIECE_BYTES, bytes - at);
        st = r->h->api->file_read(r->handle, begin + at, r->piece, n);
        if (st != ST_OK) break;
        hash_add(sum, r->piece, n);
        if (take != NULL) st = take(context, at, r->piece, n);
    }
    const hash128 value = sum != NULL ? hash_end(sum) : (hash128){0, 0};
    if (st == ST_OK) *out = value;
    return st;
}

status ckpt_reader_stream(ckpt_reader *r, const ckpt_tensor *t, ckpt_take *take, void *context)
{
    hash128 sum;
    TRY(tensor_file(r, t));
    TRY(stream(r, t->offset, t->bytes, take, context, &sum));
    return sum_check(r, t, sum);
}

status ckpt_reader_extra_check(ckpt_reader *r, const ckpt_file *extra)
{
    hash128 sum;
    char have[33], want[33];
    TRY(file_take(r, extra->name, extra->bytes));
    TRY(stream(r, 0, extra->bytes, NULL, NULL, &sum));
    if (sum.high == extra->checksum.high && sum.low == extra->checksum.low) return ST_OK;
    return fail(ST_DAMAGED, "%s/%s byte 0: checksum %s, the manifest says %s", r->path, extra->name,
                hash128_text(sum, have), hash128_text(extra->checksum, want));
}

status ckpt_extra_read(const host *h, arena *a, const char *path, const char *name, char **out,
                       int64_t *bytes)
{
    ckpt_reader *r = NULL;
    char *contents = NULL, have[33], want[33];
    TRY(ckpt_reader_open_manifest(h, path, &r));
    status st = ST_OK;
    for (int64_t i = 0; i < r->manifest.extra_count && contents == NULL; i++) {
        const ckpt_file *f = &r->manifest.extras[i];
        if (strcmp(f->name, name) != 0) continue;
        TRY_TO(close_reader, file_take(r, f->name, f->bytes));
        TRY_TO(close_reader, arena_new(a, f->bytes + 1, &contents));
        TRY_TO(close_reader, r->h->api->file_read(r->handle, 0, contents, f->bytes));
        *bytes = f->bytes;
        const hash128 sum = hash128_of(contents, f->bytes);
        if (sum.high == f->checksum.high && sum.low == f->checksum.low) continue;
        st = fail(ST_DAMAGED, "%s/%s byte 0: checksum %s, the manifest says %s", r->path, name,
                  hash128_text(sum, have), hash128_text(f->checksum, want));
        goto close_reader;
    }
    *out = contents;
close_reader:
    ckpt_reader_close(r);
    return st;
}

status ckpt_extras_verify(const host *h, const char *path)
{
    ckpt_reader *r = NULL;
    TRY(ckpt_reader_open_manifest(h, path, &r));
    status st = ckpt_reader_name_check(r);
    for (int64_t i = 0; i < r->manifest.extra_count && st == ST_OK; i++) {
        st = ckpt_reader_extra_check(r, &r->manifest.extras[i]);
    }
    ckpt_reader_close(r);
    return st;
}
