// Writes a checkpoint: state files, extra files, sync, and last the rename of the manifest. Then it
// reads everything back from the disk and compares.
#include "checkpoint/save.h"

#include "base/fault.h"
#include "checkpoint/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct saving {
    const ckpt_image *image;
    const host *h;
    arena *a;
    const char *folder; // folder of this checkpoint
    ckpt_manifest manifest;
    hash_stream *digest;
    char *chunk; // NULL if the image is in memory
} saving;

// ---- layout of the files ------------------------------------------------------------------------

static status tensors_list(saving *v)
{
    const state_list *list = &v->image->list;
    ckpt_manifest *m = &v->manifest;
    const int64_t loads = state_load_words(v->image->s);
    m->tensor_count = list->count + (loads > 0 ? 3 : 2);
    TRY(arena_new(v->a, m->tensor_count, &m->tensors));
    for (int64_t i = 0; i < list->count; i++) {
        const state_item *item = &list->items[i];
        m->tensors[i] = (ckpt_tensor){.name = item->name,
                                      .type = item->type,
                                      .ndim = item->ndim,
                                      .dims = {item->dims[0], item->dims[1]},
                                      .bytes = item->bytes};
        if (item->ndim < 2) m->tensors[i].dims[1] = 0;
    }
    m->tensors[list->count] = (ckpt_tensor){.name = "step/counts",
                                            .type = DTYPE_I64,
                                            .ndim = 1,
                                            .dims = {STEP_COUNTS},
                                            .bytes = (int64_t)sizeof(v->image->counts)};
    m->tensors[list->count + 1] = (ckpt_tensor){.name = "step/reals",
                                                .type = DTYPE_F64,
                                                .ndim = 1,
                                                .dims = {STEP_REALS},
                                                .bytes = (int64_t)sizeof(v->image->reals)};
    if (loads == 0) return ST_OK;
    m->tensors[list->count + 2] = (ckpt_tensor){.name = "step/loads",
                                                .type = DTYPE_I64,
                                                .ndim = 1,
                                                .dims = {loads},
                                                .bytes = loads * (int64_t)sizeof(int64_t)};
    return ST_OK;
}

// Returns the first tensor after `begin` that opens a new file. A file has at most file_bytes, but
// at least one tensor.
static int64_t file_end(const saving *v, int64_t begin)
{
    const int64_t most = v->image->file_bytes > 0 ? v->image->file_bytes : STATE_FILE_BYTES;
    int64_t bytes = 0, i = begin;
    for (; i < v->manifest.tensor_count; i++) {
        bytes += v->manifest.tensors[i].bytes;
        if (i > begin && bytes > most) break;
    }
    return i;
}

static status files_list(saving *v)
{
    ckpt_manifest *m = &v->manifest;
    for (int64_t i = 0; i < m->tensor_count; i = file_end(v, i)) m->state_count++;
    TRY(arena_new(v->a, m->state_count, &m->state));
    int64_t begin = 0;
    for (int64_t i = 0; i < m->state_count; i++) {
        char *name = NULL;
        TRY(arena_format(v->a, &name, "state-%05lld-of-%05lld.safetensors", (long long)i,
                         (long long)m->state_count));
        m->state[i].name = name;
        const int64_t end = file_end(v, begin);
        for (; begin < end; begin++) m->tensors[begin].file = name;
    }
    return ST_OK;
}

// ---- state files --------------------------------------------------------------------------------

// Gets `count` bytes of a tensor from the image in memory, or from the device.
static status piece_get(saving *v, int64_t tensor, int64_t at, int64_t count, const void **out)
{
    const ckpt_image *image = v->image;
    if (tensor == image->list.count) {
        *out = (const char *)image->counts + at;
    } else if (tensor == image->list.count + 1) {
        *out = (const char *)image->reals + at;
    } else if (tensor == image->list.count + 2) {
        *out = (const char *)(image->block + 1) + at;
    } else if (image->bytes != NULL) {
        *out = image->bytes + image->list.items[tensor].image_offset + at;
    } else {
        const state_item *item = &image->list.items[tensor];
        TRY(state_read(image->s, item, at, v->chunk, count));
        *out = v->chunk;
    }
    return ST_OK;
}

// Writes one tensor chunk by chunk; the same bytes give digest and checksum.
static status tensor_write(saving *v, safetensors_writer *w, int64_t i)
{
    ckpt_tensor *t = &v->manifest.tensors[i];
    hash_stream *sum = hash_begin();
    if (sum == NULL) return fail(ST_NO_MEMORY, "no memory for a checksum");
    digest_head(v->digest, t->name, t->type, t->ndim, t->dims);
    status st = ST_OK;
    for (int64_t at = 0; at < t->bytes && st == ST_OK; at += STATE_CHUNK_BYTES) {
        const int64_t n = min_i64(STATE_CHUNK_BYTES, t->bytes - at);
        const void *bytes = NULL;
        st = piece_get(v, i, at, n, &bytes);
        if (st != ST_OK) break;
        hash_add(sum, bytes, n);
        hash_add(v->digest, bytes, n);
        st = safetensors_writer_put(w, bytes, n);
    }
    t->checksum = hash_end(sum);
    return st;
}

// Reads from the file's header where the writer put the tensors.
static status places_read(saving *v, ckpt_file *f, const char *path, int64_t begin, int64_t end)
{
    file *handle = NULL;
    safetensors_head head;
    TRY(v->h->api->file_open(v->h, path, FILE_READ_OWN, &handle));
    const status st = safetensors_head_read(v->h, handle, v->a, path, &head);
    (void)v->h->api->file_close(handle); // it was only read
    TRY(st);
    f->bytes = head.file_bytes;
    f->head_bytes = head.data_begin;
    f->checksum = hash128_of(head.bytes, head.data_begin);
    for (int64_t i = begin; i < end; i++) {
        const safetensors_entry *e = safetensors_head_find(&head, v->manifest.tensors[i].name);
        if (e == NULL) {
            return fail(ST_DAMAGED, "%s: the file lacks the tensor %s when it is read back", path,
                        v->manifest.tensors[i].name);
        }
        v->manifest.tensors[i].offset = e->begin;
    }
    return ST_OK;
}

static status file_write(saving *v, ckpt_file *f, int64_t begin, int64_t end)
{
    char *path = NULL;
    safetensors_writer *w = NULL;
    TRY(fault_point("checkpoint.state"));
    TRY(path_join(v->a, v->folder, f->name, &path));
    TRY(safetensors_writer_create(v->h, path, &w));
    status st = ST_OK;
    for (int64_t i = begin; i < end; i++) {
        const ckpt_tensor *t = &v->manifest.tensors[i];
        TRY_TO(destroy_writer, safetensors_writer_declare(w, t->name, t->type, t->ndim, t->dims));
    }
    for (int64_t i = begin; i < end; i++) TRY_TO(destroy_writer, tensor_write(v, w, i));
    TRY_TO(destroy_writer, fault_point("checkpoint.sync"));
    TRY_TO(destroy_writer, safetensors_writer_finish(w));
    st = places_read(v, f, path, begin, end);
destroy_writer:
    safetensors_writer_destroy(w);
    return st;
}

static status state_files_write(saving *v)
{
    int64_t begin = 0;
    for (int64_t i = 0; i < v->manifest.state_count; i++) {
        const int64_t end = file_end(v, begin);
        TRY(file_write(v, &v->manifest.state[i], begin, end));
        begin = end;
    }
    return ST_OK;
}

// ---- extra files and manifest -------------------------------------------------------------------

static status file_put(const host *h, const char *path, file_mode mode, const void *bytes,
                       int64_t count)
{
    file *f = NULL;
    TRY(h->api->file_open(h, path, mode, &f));
    status st = h->api->file_write(f, bytes, count);
    if (st == ST_OK) st = h->api->file_sync(f);
    if (st == ST_OK) return h->api->file_close(f);
    error_record first; // a failing close must not hide the cause
    error_take(&first);
    (void)h->api->file_close(f);
    return error_put(&first);
}

static status extras_write(saving *v, const ckpt_extra *extras, int64_t count)
{
    ckpt_manifest *m = &v->manifest;
    m->extra_count = count;
    TRY(arena_new(v->a, count, &m->extras));
    for (int64_t i = 0; i < count; i++) {
        char *path = NULL;
        const int64_t bytes = (int64_t)strlen(extras[i].text);
        TRY(fault_point("checkpoint.extra"));
        TRY(path_join(v->a, v->folder, extras[i].name, &path));
        TRY(file_put(v->h, path, FILE_CREATE, extras[i].text, bytes));
        m->extras[i] = (ckpt_file){
            .name = extras[i].name, .bytes = bytes, .checksum = hash128_of(extras[i].text, bytes)};
    }
    return ST_OK;
}

// The checkpoint exists from the rename on, and is durable from the following sync on.
static status manifest_write(saving *v)
{
    text t = {.a = v->a};
    char *temporary = NULL, *path = NULL;
    TRY(ckpt_manifest_print(&v->manifest, &t));
    TRY(path_join(v->a, v->folder, CKPT_MANIFEST_NAME ".tmp", &temporary));
    TRY(path_join(v->a, v->folder, CKPT_MANIFEST_NAME, &path));
    TRY(fault_point("checkpoint.manifest_tmp"));
    TRY(file_put(v->h, temporary, FILE_WRITE, t.bytes, t.length));
    TRY(fault_point("checkpoint.manifest"));
    TRY(v->h->api->path_rename(v->h, temporary, path));
    TRY(fault_point("checkpoint.durable"));
    return v->h->api->path_sync(v->h, v->folder);
}

static status write_all(saving *v, const ckpt_info *info, const ckpt_extra *extras,
                        int64_t extra_count)
{
    v->manifest.info = *info;
    TRY(tensors_list(v));
    TRY(files_list(v));
    TRY(state_files_write(v));
    TRY(extras_write(v, extras, extra_count));
    v->manifest.digest = hash_end(v->digest);
    v->digest = NULL;
    TRY(fault_point("checkpoint.folder_sync"));
    TRY(v->h->api->path_sync(v->h, v->folder));
    return manifest_write(v);
}

// Verifies the contents of the disk, not of the system's cache.
static status read_back(const host *h, const char *path)
{
    ckpt_reader *r = NULL;
    TRY(fault_point("checkpoint.readback"));
    TRY(ckpt_reader_open(h, path, &r));
    ckpt_reader_bypass_cache(r);
    const status st = ckpt_reader_verify(r, path, NULL);
    ckpt_reader_close(r);
    if (st != ST_OK) note("while reading back the checkpoint that was just written");
    return st;
}

static status save_into(const ckpt_image *image, arena *a, const char *folder,
                        const ckpt_info *info, const ckpt_extra *extras, int64_t extra_count)
{
    saving v = {.image = image, .h = image->s->h, .a = a, .folder = folder};
    v.chunk = image->bytes == NULL ? malloc(STATE_CHUNK_BYTES) : NULL;
    v.digest = hash_begin();
    status st = ST_OK;
    if ((image->bytes == NULL && v.chunk == NULL) || v.digest == NULL) {
        st = fail(ST_NO_MEMORY, "no memory to write a checkpoint");
    } else {
        st = write_all(&v, info, extras, extra_count);
    }
    if (v.digest != NULL) (void)hash_end(v.digest);
    free(v.chunk);
    return st;
}

// The mark of a save in progress: manifest.json.tmp, which becomes the manifest at the end. It is
// durable before any state is, so a folder with state and without both has lost its manifest.
static status mark_write(const host *h, arena *a, const char *own)
{
    char *mark = NULL;
    file *f = NULL;
    TRY(path_join(a, own, CKPT_MANIFEST_NAME ".tmp", &mark));
    TRY(h->api->file_open(h, mark, FILE_CREATE, &f));
    TRY(h->api->file_close(f));
    return h->api->path_sync(h, own);
}

status ckpt_image_save(const ckpt_image *image, arena *a, const char *folder, const ckpt_info *info,
                       const ckpt_extra *extras, int64_t extra_count, const char *name)
{
    const host *h = image->s->h;
    char *own = NULL;
    TRY(path_join(a, folder, name, &own));
    TRY(fault_point("checkpoint.folder"));
    TRY(h->api->path_mkdir(h, own));
    status st = mark_write(h, a, own);
    if (st == ST_OK) st = h->api->path_sync(h, folder);
    if (st == ST_OK) st = save_into(image, a, own, info, extras, extra_count);
    if (st == ST_OK) st = read_back(h, own);
    if (st == ST_OK) return ST_OK;
    // A file that cannot be removed now is debris, and is removed at the next start.
    error_record first;
    error_take(&first);
    if (ckpt_remove(h, a, own) != ST_OK) error_clear();
    return error_put(&first);
}

// ---- the image ----------------------------------------------------------------------------------

static status step_read(ckpt_image *image)
{
    const int64_t row = plan_table_find(image->s->run, "step");
    ASSERT(row >= 0);
    const ckpt_state *s = image->s;
    const int64_t loads = state_load_words(s) * (int64_t)sizeof(int64_t);
    const int64_t bytes = (int64_t)sizeof(*image->block) + loads;
    TRY(s->read != NULL ? s->read(s->context, row, 0, image->block, bytes)
                        : exec_read(s->e, row, 0, image->block, bytes));
    step_flatten(&image->block->device, image->counts, image->reals);
    return ST_OK;
}

status ckpt_image_block(ckpt_image *image, arena *a)
{
    const op_model *m = image->s->model;
    return arena_alloc(a, step_bytes(m->load_layers, m->load_experts), (void **)&image->block);
}

status ckpt_image_take(ckpt_image *image)
{
    TRY(fault_point("checkpoint.snapshot"));
    TRY(step_read(image));
    return image->bytes != NULL ? state_read_all(image->s, &image->list, image->bytes) : ST_OK;
}

status ckpt_save(const ckpt_state *s, arena *a, const char *folder, int64_t fork,
                 const ckpt_info *info, const ckpt_extra *extras, int64_t extra_count, char **path)
{
    char *name = NULL;
    ckpt_image *image = NULL;
    TRY(arena_new(a, 1, &image));
    image->s = s;
    TRY(ckpt_image_block(image, a));
    TRY(state_list_make(s, a, &image->list));
    TRY(ckpt_name_free(s->h, a, folder, info->step, fork, &name));
    TRY(ckpt_image_take(image));
    TRY(ckpt_image_save(image, a, folder, info, extras, extra_count, name));
    return path_join(a, folder, name, path);
}
