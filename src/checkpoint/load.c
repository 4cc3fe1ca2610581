// Reading a checkpoint: the manifest says what must be there, and every byte that is used is checked
// against it before it is used.
#include "checkpoint/state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MANIFEST_LIMIT_BYTES = 64 << 20 };

typedef struct loading {
    const host *h;
    arena *a;
    const char *path;
    json *manifest;
    safetensors *files;
} loading;

static status manifest_open(loading *l)
{
    char *name = NULL;
    TRY(path_join(l->a, l->path, "manifest.json", &name));
    TRY(json_read(l->h, name, MANIFEST_LIMIT_BYTES, &l->manifest));
    const char *format = json_text(json_get(l->manifest, "format"), "");
    if (strcmp(format, "trireme-checkpoint-1") != 0) {
        return fail(ST_DAMAGED, "%s: format is \"%s\", expected \"trireme-checkpoint-1\"", name,
                    format);
    }
    return ST_OK;
}

// All tensors come from one file so far; its name is a plain one in this folder.
static status files_open(loading *l)
{
    const json *first = json_at(json_get(l->manifest, "tensors"), 0);
    const char *file_name = json_text(json_get(first, "file"), NULL);
    if (file_name == NULL || strchr(file_name, '/') != NULL || strcmp(file_name, "..") == 0) {
        return fail(ST_DAMAGED, "%s/manifest.json: its first tensor names no file of this folder",
                    l->path);
    }
    char *name = NULL;
    TRY(path_join(l->a, l->path, file_name, &name));
    return safetensors_open(l->h, name, &l->files);
}

static void loading_close(loading *l)
{
    safetensors_close(l->files);
    json_free(l->manifest);
}

// The tensor of the file that a line of the manifest names, with the bytes that it promises.
static status tensor_verified(const loading *l, const json *line, const safetensors_entry **out)
{
    const char *name = json_text(json_get(line, "name"), "");
    const safetensors_entry *t = safetensors_find(l->files, name);
    if (t == NULL) return fail(ST_DAMAGED, "%s: tensor %s is missing", l->path, name);
    const int64_t bytes = json_int(json_get(line, "bytes"), -1);
    const char *type = json_text(json_get(line, "type"), "");
    if (t->bytes != bytes || strcmp(dtype_name(t->type), type) != 0) {
        return fail(ST_DAMAGED, "%s: tensor %s is %lld bytes of %s, the manifest says %lld of %s",
                    l->path, name, (long long)t->bytes, dtype_name(t->type), (long long)bytes,
                    type);
    }
    char have[33];
    (void)hash128_text(hash128_of(t->data, t->bytes), have);
    const char *want = json_text(json_get(line, "xxh128"), "");
    if (strcmp(have, want) != 0) {
        return fail(ST_DAMAGED,
                    "%s: tensor %s (byte %lld of its file): checksum %s, the manifest says %s",
                    l->path, name, (long long)t->begin, have, want);
    }
    *out = t;
    return ST_OK;
}

static const json *line_find(const loading *l, const char *name)
{
    const json *lines = json_get(l->manifest, "tensors");
    for (int64_t i = 0; i < json_count(lines); i++) {
        const json *line = json_at(lines, i);
        if (strcmp(json_text(json_get(line, "name"), ""), name) == 0) return line;
    }
    return NULL;
}

static status tensor_wanted(const loading *l, const char *name, dtype type, int64_t bytes,
                            const safetensors_entry **out)
{
    const json *line = line_find(l, name);
    if (line == NULL) return fail(ST_DAMAGED, "%s: the manifest has no tensor %s", l->path, name);
    TRY(tensor_verified(l, line, out));
    if ((*out)->type != type || (*out)->bytes != bytes) {
        return fail(ST_CONFIG_FIXED, "%s: tensor %s is %lld bytes of %s, this run has %lld of %s",
                    l->path, name, (long long)(*out)->bytes, dtype_name((*out)->type),
                    (long long)bytes, dtype_name(type));
    }
    return ST_OK;
}

static void info_of(const json *m, ckpt_info *out)
{
    *out = (ckpt_info){.step = json_int(json_get(m, "step"), 0),
                       .sequences = json_int(json_get(m, "sequences"), 0),
                       .tokens = json_int(json_get(m, "tokens"), 0),
                       .seed = json_int(json_get(m, "seed"), 0),
                       .val_loss = json_real(json_get(m, "val_loss"), (double)NAN),
                       .best_val_loss = json_real(json_get(m, "best_val_loss"), (double)NAN)};
}

static status info_keep(loading *l, ckpt_info *out)
{
    char *numerics = NULL;
    info_of(l->manifest, out);
    TRY(arena_strdup(l->a, json_text(json_get(l->manifest, "numerics"), ""), &numerics));
    out->numerics = numerics;
    return ST_OK;
}

static status step_load(const loading *l, const ckpt_state *s)
{
    const safetensors_entry *counts = NULL, *reals = NULL;
    TRY(tensor_wanted(l, "step/counts", DTYPE_I64, (int64_t)STEP_COUNTS * 8, &counts));
    TRY(tensor_wanted(l, "step/reals", DTYPE_F64, (int64_t)STEP_REALS * 8, &reals));
    int64_t c[STEP_COUNTS];
    double r[STEP_REALS];
    memcpy(c, counts->data, sizeof(c));
    memcpy(r, reals->data, sizeof(r));
    step_block *block = calloc(1, sizeof(*block));
    if (block == NULL) return fail(ST_NO_MEMORY, "no memory for the step block");
    step_device_init(&block->device, 1.0);
    step_unflatten(&block->device, c, r);
    const status st =
        exec_write(s->e, plan_table_find(s->run, "step"), 0, block, (int64_t)sizeof(*block));
    free(block);
    return st;
}

// Elements [begin, begin + count) of a stored part, as fp32.
static void part_values(const safetensors_entry *t, float *out, int64_t count)
{
    for (int64_t i = 0; i < count; i++) out[i] = (float)dtype_load(t->type, t->data, i);
}

// A weight for inference, or a working copy that is derived: from the master or the weight itself.
static status weight_load(const loading *l, const ckpt_state *s, int64_t weight)
{
    const op_weight *w = &s->model->weights[weight];
    float *values = malloc((size_t)(w->rows * w->columns) * sizeof(float));
    if (values == NULL) return fail(ST_NO_MEMORY, "no memory to load %s", w->name);
    status st = ST_OK;
    for (int i = 0; i < w->part_count; i++) {
        char name[PLAN_NAME_BYTES + 16];
        (void)snprintf(name, sizeof(name), "master/%s", w->parts[i].name);
        const json *line = line_find(l, name);
        if (line == NULL) {
            (void)snprintf(name, sizeof(name), "weight/%s", w->parts[i].name);
            line = line_find(l, name);
        }
        const int64_t count = w->parts[i].rows * w->columns;
        const safetensors_entry *t = NULL;
        if (line == NULL) {
            st = fail(ST_DAMAGED, "%s: the manifest has no weight %s", l->path, w->parts[i].name);
            goto free_values;
        }
        TRY_TO(free_values, tensor_verified(l, line, &t));
        if (t->bytes != count * dtype_bytes(t->type)) {
            st = fail(ST_MODEL, "%s: %s has %lld bytes, this model's has %lld elements", l->path,
                      name, (long long)t->bytes, (long long)count);
            goto free_values;
        }
        part_values(t, values + w->parts[i].row_begin * w->columns, count);
    }
    st = ckpt_weight_put(s, weight, values);
free_values:
    free(values);
    return st;
}

static status all_load(const loading *l, const ckpt_state *s, bool only_weights)
{
    if (only_weights || s->derived_weights) {
        for (int64_t w = 0; w < s->model->weight_count; w++) TRY(weight_load(l, s, w));
        if (only_weights) return ST_OK;
    }
    state_list list = {0};
    TRY(state_list_make(s, l->a, &list));
    for (int64_t i = 0; i < list.count; i++) {
        const state_item *item = &list.items[i];
        const safetensors_entry *t = NULL;
        TRY(tensor_wanted(l, item->name, item->type, item->bytes, &t));
        for (int64_t at = 0; at < item->bytes; at += STATE_CHUNK_BYTES) {
            TRY(exec_write(s->e, item->run_row, item->offset + at, (const char *)t->data + at,
                           min_i64(STATE_CHUNK_BYTES, item->bytes - at)));
        }
    }
    return step_load(l, s);
}

status ckpt_load(const ckpt_state *s, arena *a, const char *path, bool only_weights,
                 ckpt_info *info)
{
    loading l = {.h = s->h, .a = a, .path = path};
    status st = ST_OK;
    TRY_TO(close_files, manifest_open(&l));
    TRY_TO(close_files, files_open(&l));
    TRY_TO(close_files, all_load(&l, s, only_weights));
    TRY_TO(close_files, info_keep(&l, info));
close_files:
    loading_close(&l);
    return st;
}

status ckpt_info_read(const host *h, arena *a, const char *path, ckpt_info *out)
{
    loading l = {.h = h, .a = a, .path = path};
    status st = ST_OK;
    TRY_TO(close_files, manifest_open(&l));
    TRY_TO(close_files, info_keep(&l, out));
close_files:
    loading_close(&l);
    return st;
}

static status digest_lines(const loading *l, hash_stream *digest)
{
    const json *lines = json_get(l->manifest, "tensors");
    for (int64_t i = 0; i < json_count(lines); i++) {
        const safetensors_entry *t = NULL;
        TRY(tensor_verified(l, json_at(lines, i), &t));
        digest_head(digest, t->name, t->type, t->ndim, t->dims);
        hash_add(digest, t->data, t->bytes);
    }
    return ST_OK;
}

status ckpt_digest(const host *h, arena *a, const char *path, hash128 *out)
{
    loading l = {.h = h, .a = a, .path = path};
    hash_stream *digest = hash_begin();
    if (digest == NULL) return fail(ST_NO_MEMORY, "no memory for a digest");
    status st = ST_OK;
    TRY_TO(close_files, manifest_open(&l));
    TRY_TO(close_files, files_open(&l));
    TRY_TO(close_files, digest_lines(&l, digest));
close_files:
    loading_close(&l);
    const hash128 value = hash_end(digest);
    if (st == ST_OK) *out = value;
    return st;
}
