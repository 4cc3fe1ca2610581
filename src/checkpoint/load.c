// Loads a checkpoint into a run: copies the reader's verified bytes to the run's tensors.
#include "base/fault.h"
#include "checkpoint/reader.h"
#include "checkpoint/state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONVERT_ELEMENTS = 1 << 16 };

typedef struct loading {
    const ckpt_state *s;
    arena *a;
    const char *path;
    ckpt_reader *r;
    int64_t residuals, residuals_missing;
    int64_t updates;            // in the step block, applied and skipped
    int64_t converted, rounded; // tensors of another type, and those whose type is narrower here
    char *values;               // CONVERT_ELEMENTS values of any type; NULL until one is converted
} loading;

// A residual of another codec or number of ranks does not fit this run.
static bool residual_fits(const loading *l, const state_item *item)
{
    const ckpt_tensor *t = ckpt_reader_find(l->r, item->name);
    return t != NULL && t->type == item->type && t->ndim == 2 && t->dims[0] == item->dims[0] &&
           t->dims[1] == item->dims[1];
}

// A complete checkpoint without a tensor is not damaged: another configuration has written it.
static status tensor_missing(const loading *l, const char *name)
{
    return fail(ST_CONFIG_FIXED,
                "%s has no tensor %s: it was written with another model, optimizer.name or "
                "train.freeze than this run has, or with or without an adapter",
                l->path, name);
}

static status tensor_differs(const loading *l, const ckpt_tensor *t, dtype type, int64_t bytes)
{
    return fail(ST_CONFIG_FIXED, "%s: tensor %s is %lld bytes of %s, this run has %lld of %s",
                l->path, t->name, (long long)t->bytes, dtype_name(t->type), (long long)bytes,
                dtype_name(type));
}

static status tensor_wanted(const loading *l, const char *name, dtype type, int64_t bytes,
                            const ckpt_tensor **out)
{
    const ckpt_tensor *t = ckpt_reader_find(l->r, name);
    if (t == NULL) return tensor_missing(l, name);
    if (t->type != type || t->bytes != bytes) return tensor_differs(l, t, type, bytes);
    *out = t;
    return ST_OK;
}

// The tensor that holds the values of an item. The values of a weight are in its fp32 master or in
// the weight itself, depending on the precision of the run that wrote the checkpoint.
static const ckpt_tensor *tensor_of(const loading *l, const state_item *item)
{
    static const char *const kinds[] = {"master/", "weight/"};
    const bool is_weight = strncmp(item->name, kinds[1], strlen(kinds[1])) == 0;
    const bool is_master = strncmp(item->name, kinds[0], strlen(kinds[0])) == 0;
    if (!is_weight && !is_master) return ckpt_reader_find(l->r, item->name);
    // A working copy with a master is its rounding; alone, it takes the most exact values.
    const bool own_first = is_weight && state_has_master(l->s, item->weight);
    const char *part = item->name + strlen(kinds[0]);
    _Static_assert(sizeof("master/") == sizeof("weight/"), "both prefixes have the same length");
    const ckpt_tensor *t = NULL;
    for (int i = 0; i < COUNT_OF(kinds) && t == NULL; i++) {
        char name[PLAN_NAME_BYTES + 16];
        (void)snprintf(name, sizeof(name), "%s%s", kinds[own_first ? 1 - i : i], part);
        t = ckpt_reader_find(l->r, name);
    }
    return t;
}

static bool is_real(dtype type)
{
    return type == DTYPE_F64 || type == DTYPE_F32 || type == DTYPE_BF16 || type == DTYPE_F16;
}

// True if values of `from` may have to be rounded to become `to`.
static bool rounds(dtype from, dtype to)
{
    if (dtype_bytes(from) != dtype_bytes(to)) return dtype_bytes(from) > dtype_bytes(to);
    return from != to;
}

static status item_source(loading *l, const state_item *item, const ckpt_tensor **out)
{
    const ckpt_tensor *t = tensor_of(l, item);
    if (t == NULL) return tensor_missing(l, item->name);
    bool fits = t->ndim == item->ndim && t->dims[0] == item->dims[0] &&
                (t->ndim < 2 || t->dims[1] == item->dims[1]);
    if (t->type != item->type) fits = fits && is_real(t->type) && is_real(item->type);
    if (!fits) return tensor_differs(l, t, item->type, item->bytes);
    if (t->type != item->type) l->converted++;
    if (t->type != item->type && rounds(t->type, item->type)) l->rounded++;
    *out = t;
    return ST_OK;
}

// The numbers of a step block come from a file. Those that no run writes are refused here, because
// kernels index with them and divide by them.
static status step_check(const loading *l, const int64_t c[STEP_COUNTS], const double r[STEP_REALS])
{
    enum { HALT = 2, GOOD_STEPS = 3, HISTORY_COUNT = 5 };
    const int64_t step = ckpt_reader_info(l->r)->step;
    bool good = c[HALT] == 0 || c[HALT] == 1;
    for (int i = 0; i < STEP_COUNTS; i++) good = good && c[i] >= 0;
    good = good && c[GOOD_STEPS] <= step && c[HISTORY_COUNT] <= step;
    good =
        good && r[0] >= 0x1p-24 && r[0] <= 0x1p65; // between the least floor and the last doubling
    for (int i = 1; i < STEP_REALS; i++) good = good && isfinite(r[i]) && r[i] >= 0.0;
    if (good) return ST_OK;
    return fail(ST_DAMAGED,
                "%s: the numbers in step/counts and step/reals are not those of a run of %lld "
                "steps",
                l->path, (long long)step);
}

// Loads the loads of experts of the newest step, which moe.aux_loss_scope=batch needs. A checkpoint
// of before them, or of a model without experts, has none.
static status loads_load(loading *l)
{
    const ckpt_state *s = l->s;
    const int64_t bytes = state_load_words(s) * (int64_t)sizeof(int64_t);
    const ckpt_tensor *t = ckpt_reader_find(l->r, "step/loads");
    const void *data = NULL;
    if (t == NULL || bytes == 0) return ST_OK;
    TRY(tensor_wanted(l, "step/loads", DTYPE_I64, bytes, &t));
    TRY(ckpt_reader_data(l->r, t, &data));
    for (int64_t i = 0; i < bytes / (int64_t)sizeof(int64_t); i++) {
        int64_t count = 0;
        memcpy(&count, (const char *)data + i * (int64_t)sizeof(count), sizeof(count));
        if (count >= 0) continue;
        return fail(ST_DAMAGED, "%s: a count in step/loads is %lld", l->path, (long long)count);
    }
    return exec_write(s->e, plan_table_find(s->run, "step"), (int64_t)sizeof(step_block), data,
                      bytes);
}

static status step_load(loading *l)
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
    TRY(step_check(l, c, r));
    if (!size_add(c[0], c[1], &l->updates)) l->updates = -1;
    step_block *block = calloc(1, sizeof(*block));
    if (block == NULL) return fail(ST_NO_MEMORY, "no memory for the step block");
    step_device_init(&block->device, 1.0);
    step_unflatten(&block->device, c, r);
    const status st =
        exec_write(s->e, plan_table_find(s->run, "step"), 0, block, (int64_t)sizeof(*block));
    free(block);
    return st == ST_OK ? loads_load(l) : st;
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
        if (t == NULL && l->s->may_lack != NULL && strcmp(w->name, l->s->may_lack) == 0) {
            goto free_values;
        }
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
    dtype type;   // of the checkpoint's tensor
    char *values; // as in struct loading
} item_put;

static status item_take(void *context, int64_t at, const void *bytes, int64_t count)
{
    const item_put *p = context;
    if (p->type == p->item->type) return state_write(p->s, p->item, at, bytes, count);
    const int64_t from = dtype_bytes(p->type), to = dtype_bytes(p->item->type);
    const int64_t all = count / from, first = at / from;
    for (int64_t begin = 0; begin < all; begin += CONVERT_ELEMENTS) {
        const int64_t n = min_i64(CONVERT_ELEMENTS, all - begin);
        for (int64_t i = 0; i < n; i++) {
            dtype_store(p->item->type, p->values, i, dtype_load(p->type, bytes, begin + i));
        }
        TRY(state_write(p->s, p->item, (first + begin) * to, p->values, n * to));
    }
    return ST_OK;
}

static status item_load(loading *l, const state_item *item)
{
    const ckpt_tensor *t = NULL;
    TRY(item_source(l, item, &t));
    if (!state_is_here(l->s, item)) return ST_OK;
    if (t->type != item->type && l->values == NULL) {
        l->values = malloc(CONVERT_ELEMENTS * sizeof(double));
        if (l->values == NULL) return fail(ST_NO_MEMORY, "no memory to convert %s", t->name);
    }
    item_put put = {.s = l->s, .item = item, .type = t->type, .values = l->values};
    return ckpt_reader_stream(l->r, t, item_take, &put);
}

// Whether the device still has the state of this checkpoint.
static status is_held(const loading *l, bool *out)
{
    const ckpt_tensor *t = ckpt_reader_find(l->r, "step/counts");
    const void *bytes = NULL;
    int64_t counts[2]; // applied, skipped
    *out = false;
    if (t == NULL || t->bytes < (int64_t)sizeof(counts)) return ST_OK;
    TRY(ckpt_reader_data(l->r, t, &bytes));
    memcpy(counts, bytes, sizeof(counts));
    return state_is_held(l->s, ckpt_reader_info(l->r)->step, counts[0], counts[1], out);
}

static status all_load(loading *l, bool only_weights)
{
    const ckpt_state *s = l->s;
    bool holds = false;
    if (!only_weights && s->held_step > 0) TRY(is_held(l, &holds));
    if (holds) return step_load(l);
    if (only_weights || s->derived_weights) {
        for (int64_t w = 0; w < s->model->weight_count; w++) {
            if (state_has(s, w)) TRY(weight_load(l, w));
        }
        if (only_weights) return ST_OK;
    }
    state_list list = {0};
    TRY(state_list_make(s, l->a, &list));
    for (int64_t i = 0; i < list.count; i++) {
        const state_item *item = &list.items[i];
        TRY(fault_point("checkpoint.load"));
        if (item->weight < 0 && !residual_fits(l, item)) {
            l->residuals_missing++;
            continue;
        }
        if (item->weight < 0) l->residuals++;
        TRY(item_load(l, item));
    }
    return step_load(l);
}

// Copies the record, so that its strings outlive the reader.
static status info_keep(const ckpt_reader *r, arena *a, ckpt_info *out)
{
    const ckpt_info *info = ckpt_reader_info(r);
    char *numerics = NULL, *best = NULL, *config_sum = NULL, *data = NULL;
    char *tokenizer = NULL;
    TRY(arena_strdup(a, info->numerics, &numerics));
    TRY(arena_strdup(a, info->config, &config_sum));
    if (info->best != NULL) TRY(arena_strdup(a, info->best, &best));
    if (info->data != NULL) TRY(arena_strdup(a, info->data, &data));
    if (info->tokenizer != NULL) TRY(arena_strdup(a, info->tokenizer, &tokenizer));
    *out = *info;
    out->tokenizer = tokenizer;
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
    free(l.values);
    if (st != ST_OK) return st;
    info->updates = l.updates;
    info->converted = l.converted;
    info->rounded = l.rounded;
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
