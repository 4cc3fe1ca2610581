// Writing a checkpoint: state file, extra files, sync, and last of all the manifest's rename.
#include "base/fault.h"
#include "checkpoint/state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STATE_FILE "state-00000-of-00001.safetensors"

typedef struct saving {
    const ckpt_state *s;
    arena *a;
    const char *folder; // of this checkpoint
    state_list list;
    hash_stream *digest;
    text manifest;
    char *chunk;
    int64_t counts[STEP_COUNTS];
    double reals[STEP_REALS];
} saving;

static status step_read(saving *v)
{
    const int64_t row = plan_table_find(v->s->run, "step");
    ASSERT(row >= 0);
    step_block *block = malloc(sizeof(*block));
    if (block == NULL) return fail(ST_NO_MEMORY, "no memory for the step block");
    const status st = exec_read(v->s->e, row, 0, block, (int64_t)sizeof(*block));
    if (st == ST_OK) step_flatten(&block->device, v->counts, v->reals);
    free(block);
    return st;
}

static status declare_all(const saving *v, safetensors_writer *w)
{
    for (int64_t i = 0; i < v->list.count; i++) {
        const state_item *item = &v->list.items[i];
        TRY(safetensors_writer_declare(w, item->name, item->type, item->ndim, item->dims));
    }
    const int64_t counts = STEP_COUNTS, reals = STEP_REALS;
    TRY(safetensors_writer_declare(w, "step/counts", DTYPE_I64, 1, &counts));
    return safetensors_writer_declare(w, "step/reals", DTYPE_F64, 1, &reals);
}

// One line of the manifest: what, where, and the checksum of its bytes.
static status manifest_tensor(saving *v, const char *name, dtype type, int ndim,
                              const int64_t *dims, int64_t bytes, hash128 sum, bool last)
{
    char hex[33];
    TRY(text_add(&v->manifest, "  {\"name\": \"%s\", \"type\": \"%s\", \"shape\": [", name,
                 dtype_name(type)));
    for (int i = 0; i < ndim; i++) {
        TRY(text_add(&v->manifest, i == 0 ? "%lld" : ", %lld", (long long)dims[i]));
    }
    return text_add(&v->manifest, "], \"file\": \"%s\", \"bytes\": %lld, \"xxh128\": \"%s\"}%s\n",
                    STATE_FILE, (long long)bytes, hash128_text(sum, hex), last ? "" : ",");
}

// One tensor, chunk by chunk: device -> file, digest and checksum from the same bytes.
static status item_write(saving *v, safetensors_writer *w, const state_item *item)
{
    hash_stream *sum = hash_begin();
    if (sum == NULL) return fail(ST_NO_MEMORY, "no memory for a checksum");
    digest_head(v->digest, item->name, item->type, item->ndim, item->dims);
    status st = ST_OK;
    for (int64_t at = 0; at < item->bytes && st == ST_OK; at += STATE_CHUNK_BYTES) {
        const int64_t n = min_i64(STATE_CHUNK_BYTES, item->bytes - at);
        st = exec_read(v->s->e, item->run_row, item->offset + at, v->chunk, n);
        if (st != ST_OK) break;
        hash_add(sum, v->chunk, n);
        hash_add(v->digest, v->chunk, n);
        st = safetensors_writer_put(w, v->chunk, n);
    }
    const hash128 value = hash_end(sum);
    TRY(st);
    return manifest_tensor(v, item->name, item->type, item->ndim, item->dims, item->bytes, value,
                           false);
}

static status small_write(saving *v, safetensors_writer *w, const char *name, dtype type,
                          const void *data, int64_t count, bool last)
{
    const int64_t bytes = count * 8;
    digest_head(v->digest, name, type, 1, &count);
    hash_add(v->digest, data, bytes);
    TRY(safetensors_writer_put(w, data, bytes));
    return manifest_tensor(v, name, type, 1, &count, bytes, hash128_of(data, bytes), last);
}

static status state_write(saving *v)
{
    char *path = NULL;
    TRY(path_join(v->a, v->folder, STATE_FILE, &path));
    safetensors_writer *w = NULL;
    TRY(safetensors_writer_create(v->s->h, path, &w));
    status st = ST_OK;
    TRY_TO(destroy_writer, declare_all(v, w));
    for (int64_t i = 0; i < v->list.count; i++) {
        TRY_TO(destroy_writer, item_write(v, w, &v->list.items[i]));
    }
    TRY_TO(destroy_writer,
           small_write(v, w, "step/counts", DTYPE_I64, v->counts, STEP_COUNTS, false));
    TRY_TO(destroy_writer, small_write(v, w, "step/reals", DTYPE_F64, v->reals, STEP_REALS, true));
    TRY_TO(destroy_writer, safetensors_writer_finish(w));
destroy_writer:
    safetensors_writer_destroy(w);
    return st;
}

static status real_or_null(text *t, const char *name, double value)
{
    if (isnan(value)) return text_add(t, " \"%s\": null,\n", name);
    return text_add(t, " \"%s\": %.17g,\n", name, value);
}

static status manifest_head(saving *v, const ckpt_info *info)
{
    text *t = &v->manifest;
    TRY(text_add(t, "{\n \"format\": \"trireme-checkpoint-1\",\n \"step\": %lld,\n",
                 (long long)info->step));
    TRY(text_add(t, " \"sequences\": %lld,\n \"tokens\": %lld,\n \"seed\": %lld,\n",
                 (long long)info->sequences, (long long)info->tokens, (long long)info->seed));
    TRY(real_or_null(t, "val_loss", info->val_loss));
    TRY(real_or_null(t, "best_val_loss", info->best_val_loss));
    TRY(text_add(t, " \"numerics\": "));
    TRY(text_add_json(t, info->numerics != NULL ? info->numerics : ""));
    return text_add(t, ",\n \"tensors\": [\n");
}

static status extras_write(saving *v, const ckpt_extra *extras, int64_t count)
{
    char hex[33];
    TRY(text_add(&v->manifest, " ],\n \"files\": [\n"));
    for (int64_t i = 0; i < count; i++) {
        char *path = NULL;
        const int64_t bytes = (int64_t)strlen(extras[i].text);
        TRY(path_join(v->a, v->folder, extras[i].name, &path));
        TRY(host_write_all(v->s->h, path, extras[i].text, bytes));
        TRY(text_add(&v->manifest, "  {\"name\": \"%s\", \"bytes\": %lld, \"xxh128\": \"%s\"}%s\n",
                     extras[i].name, (long long)bytes,
                     hash128_text(hash128_of(extras[i].text, bytes), hex),
                     i + 1 < count ? "," : ""));
    }
    return ST_OK;
}

static status save_into(saving *v, const ckpt_info *info, const ckpt_extra *extras,
                        int64_t extra_count)
{
    char hex[33], *path = NULL;
    TRY(state_list_make(v->s, v->a, &v->list));
    TRY(step_read(v));
    TRY(manifest_head(v, info));
    TRY(state_write(v));
    TRY(extras_write(v, extras, extra_count));
    const hash128 digest = hash_end(v->digest);
    v->digest = NULL;
    TRY(text_add(&v->manifest, " ],\n \"digest\": \"%s\"\n}\n", hash128_text(digest, hex)));
    TRY(v->s->h->api->path_sync(v->s->h, v->folder));
    TRY(fault_point("checkpoint.manifest"));
    TRY(path_join(v->a, v->folder, "manifest.json", &path));
    return host_write_all(v->s->h, path, v->manifest.bytes, v->manifest.length);
}

status ckpt_save(const ckpt_state *s, arena *a, const char *folder, const ckpt_info *info,
                 const ckpt_extra *extras, int64_t extra_count, char **path)
{
    char *own = NULL;
    TRY(arena_format(a, &own, "%s/step-%07lld", folder, (long long)info->step));
    TRY(s->h->api->path_mkdir(s->h, own));
    TRY(s->h->api->path_sync(s->h, folder));
    saving v = {.s = s, .a = a, .folder = own, .manifest = {.a = a}};
    v.chunk = malloc(STATE_CHUNK_BYTES);
    v.digest = hash_begin();
    status st = ST_OK;
    if (v.chunk == NULL || v.digest == NULL) {
        st = fail(ST_NO_MEMORY, "no memory to write a checkpoint");
    } else {
        st = save_into(&v, info, extras, extra_count);
    }
    if (v.digest != NULL) (void)hash_end(v.digest);
    free(v.chunk);
    if (st == ST_OK) *path = own;
    return st;
}
