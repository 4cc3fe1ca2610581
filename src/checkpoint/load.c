// Loads a checkpoint into a run: copies the reader's verified bytes to the run's tensors.
#include "base/fault.h"
#include "checkpoint/reader.h"
#include "checkpoint/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct loading {
    const ckpt_state *s;
    arena *a;
    const char *path;
    ckpt_reader *r;
    int64_t residuals, residuals_missing;
} loading;

// A residual of another codec or number of ranks does not fit this run.
static bool residual_fits(const loading *l, const state_item *item)
{
    const ckpt_tensor *t = ckpt_reader_find(l->r, item->name);
    return t != NULL && t->type == item->type && t->ndim == 2 && t->dims[0] == item->dims[0] &&
           t->dims[1] == item->dims[1];
}

static status tensor_wanted(const loading *l, const char *name, dtype type, int64_t bytes,
                            const ckpt_tensor **out)
{
    const ckpt_tensor *t = ckpt_reader_find(l->r, name);
    if (t == NULL) return fail(ST_DAMAGED, "%s: the manifest has no tensor %s", l->path, name);
    if (t->type != type || t->bytes != bytes) {
        return fail(ST_CONFIG_FIXED, "%s: tensor %s is %lld bytes of %s, this run has %lld of %s",
                    l->path, name, (long long)t->bytes, dtype_name(t->type), (long long)bytes,
                    dtype_name(type));
    }
    *out = t;
    return ST_OK;
}

static status step_load(const loading *l)
{
    const ckpt_state *s = l->s;
    const ckpt_tensor *counts = NULL, *reals = NULL;
    const void *bytes = NULL;
    int64_t c[STEP_COUNTS];
    double r[STEP_REALS];
    TRY(tensor_wanted(l, "step/counts", DTYPE_I64, (int64_t)sizeof(c), &counts));
    TRY(tensor_wanted(l, "step/reals", DTYPE_F64, (int64_t)sizeof(r), &reals));
    TRY(ckpt_reader_data(l->r, counts, &bytes));
    memcpy(c, bytes, sizeof(c));
    TRY(ckpt_reader_data(l->r, reals, &bytes));
    memcpy(r, bytes, sizeof(r));
    step_block *block = calloc(1, sizeof(*block));
    if (block == NULL) return fail(ST_NO_MEMORY, "no memory for the step block");
    step_device_init(&block->device, 1.0);
    step_unflatten(&block->device, c, r);
    const status st =
        exec_write(s->e, plan_table_find(s->run, "step"), 0, block, (int64_t)sizeof(*block));
    free(block);
    return st;
}

// Loads a weight for inference, or a derived working copy, from the master or from the weight
// itself.
static status weight_load(const loading *l, int64_t weight)
{
    const op_weight *w = &l->s->model->weights[weight];
    if (!ckpt_weight_is_here(l->s, weight, 0, w->rows * w->columns)) return ST_OK;
    float *values = malloc((size_t)(w->rows * w->columns) * sizeof(float));
    if (values == NULL) return fail(ST_NO_MEMORY, "no memory to load %s", w->name);
    status st = ST_OK;
    for (int i = 0; i < w->part_count; i++) {
        char name[PLAN_NAME_BYTES + 16];
        const void *bytes = NULL;
        (void)snprintf(name, sizeof(name), "master/%s", w->parts[i].name);
        const ckpt_tensor *t = ckpt_reader_find(l->r, name);
        if (t == NULL) {
            (void)snprintf(name, sizeof(name), "weight/%s", w->parts[i].name);
            t = ckpt_reader_find(l->r, name);
        }
        const int64_t count = w->parts[i].rows * w->columns;
        if (t == NULL) {
            st = fail(ST_MODEL, "%s: the manifest has no weight %s", l->path, w->parts[i].name);
            goto free_values;
        }
        if (t->bytes != count * dtype_bytes(t->type)) {
            st = fail(ST_MODEL, "%s: %s has %lld bytes, this model's has %lld elements", l->path,
                      name, (long long)t->bytes, (long long)count);
            goto free_values;
        }
        TRY_TO(free_values, ckpt_reader_data(l->r, t, &bytes));
        float *to = values + w->parts[i].row_begin * w->columns;
        for (int64_t k = 0; k < count; k++) to[k] = (float)dtype_load(t->type, bytes, k);
    }
    st = ckpt_weight_put(l->s, weight, values);
free_values:
    free(values);
    return st;
}

typedef struct item_put {
    const ckpt_state *s;
    const state_item *item;
} item_put;

static status item_take(void *context, int64_t at, const void *bytes, int64_t count)
{
    const item_put *p = context;
    return state_write(p->s, p->item, at, bytes, count);
}

static status all_load(loading *l, bool only_weights)
{
    const ckpt_state *s = l->s;
    if (only_weights || s->derived_weights) {
        for (int64_t w = 0; w < s->model->weight_count; w++) TRY(weight_load(l, w));
        if (only_weights) return ST_OK;
    }
    state_list list = {0};
    TRY(state_list_make(s, l->a, &list));
    for (int64_t i = 0; i < list.count; i++) {
        const state_item *item = &list.items[i];
        const ckpt_tensor *t = NULL;
        TRY(fault_point("checkpoint.load"));
        if (item->weight < 0 && !residual_fits(l, item)) {
            l->residuals_missing++;
            continue;
        }
        if (item->weight < 0) l->residuals++;
        TRY(tensor_wanted(l, item->name, item->type, item->bytes, &t));
        if (!state_is_here(s, item)) continue;
        item_put put = {.s = s, .item = item};
        TRY(ckpt_reader_stream(l->r, t, item_take, &put));
    }
    return step_load(l);
}

// Copies the record, so that its strings outlive the reader.
static status info_keep(const ckpt_reader *r, arena *a, ckpt_info *out)
{
    const ckpt_info *info = ckpt_reader_info(r);
    char *numerics = NULL, *best = NULL, *config_sum = NULL, *data = NULL;
    TRY(arena_strdup(a, info->numerics, &numerics));
    TRY(arena_strdup(a, info->config, &config_sum));
    if (info->best != NULL) TRY(arena_strdup(a, info->best, &best));
    if (info->data != NULL) TRY(arena_strdup(a, info->data, &data));
    *out = *info;
    out->numerics = numerics;
    out->config = config_sum;
    out->best = best;
    out->data = data;
    return ST_OK;
}

status ckpt_load(const ckpt_state *s, arena *a, const char *path, bool only_weights,
                 ckpt_info *info)
{
    loading l = {.s = s, .a = a, .path = path};
    TRY(ckpt_reader_open(s->h, path, &l.r));
    status st = all_load(&l, only_weights);
    if (st == ST_OK) st = info_keep(l.r, a, info);
    ckpt_reader_close(l.r);
    if (st != ST_OK) return st;
    info->residuals = l.residuals;
    info->residuals_missing = l.residuals_missing;
    return ST_OK;
}

status ckpt_info_read(const host *h, arena *a, const char *path, ckpt_info *out)
{
    ckpt_reader *r = NULL;
    TRY(ckpt_reader_open_manifest(h, path, &r));
    const status st = info_keep(r, a, out);
    ckpt_reader_close(r);
    return st;
}
