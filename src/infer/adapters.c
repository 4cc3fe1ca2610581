// Adapters that take turns over one base model. The program has the shapes of all of them: it
// covers the matrices that any of them covers, with the largest rank, and its scale is 1. An
// adapter with a smaller rank or fewer matrices has zeros there, and its own scale is in its B:
//
//   program   y = x W^T + (x A^T) B^T        A (rank, in)      B (out, rank)
//   adapter   rank 4, scale 2                4 rows, then 0    2 B in 4 columns, then 0
//
// Values of all adapters stay in memory, in fp32, so a turn only copies them to the device.
#include "infer/open.h"

#include <stdlib.h>
#include <string.h>

static status spec_check(const model_adapter *a, const char *folder)
{
    if (!a->dora) return ST_OK;
    return fail(ST_UNSUPPORTED,
                "%s: the adapter is a DoRA; adapters that take turns are LoRA; serve it alone with "
                "--adapter, or merge it",
                folder);
}

static status targets_join(arena *a, option_list *all, const option_list *more)
{
    const char **items = NULL;
    TRY(arena_new(a, all->count + more->count, &items));
    int64_t count = 0;
    for (; count < all->count; count++) items[count] = all->items[count];
    for (int64_t i = 0; i < more->count; i++) {
        bool there = false;
        for (int64_t k = 0; k < count && !there; k++) {
            there = strcmp(items[k], more->items[i]) == 0;
        }
        if (!there) items[count++] = more->items[i];
    }
    *all = (option_list){.items = items, .count = count};
    return ST_OK;
}

status infer_adapters_begin(infer_core *c, const infer_options *o)
{
    model_adapter all = {.are_modules = true, .saved = DTYPE_F32};
    if (o->adapter_count == 0) return ST_OK;
    if (c->spec.adapter.rank > 0) {
        return fail(ST_USAGE, "the model has an adapter already; give its base model");
    }
    TRY(arena_new(c->a, o->adapter_count, &c->adapters));
    for (int64_t i = 0; i < o->adapter_count; i++) {
        model_adapter *one = &c->adapters[i].spec;
        TRY(model_adapter_read(c->h, c->a, o->adapters[i], true, one));
        TRY(spec_check(one, o->adapters[i]));
        all.rank = max_i64(all.rank, one->rank);
        TRY(targets_join(c->a, &all.targets, &one->targets));
    }
    all.alpha = (double)all.rank;
    c->adapter_count = o->adapter_count;
    c->spec.adapter = all;
    return ST_OK;
}

// Finds the part of the adapter's own model that is called `name`; false: it does not cover it.
static bool part_find(const op_model *m, const char *name, int64_t *weight, int *part)
{
    for (int64_t w = 0; w < m->weight_count; w++) {
        for (int i = 0; m->weights[w].is_adapter && i < m->weights[w].part_count; i++) {
            if (strcmp(m->weights[w].parts[i].name, name) != 0) continue;
            *weight = w;
            *part = i;
            return true;
        }
    }
    return false;
}

// Copies rows of a narrower matrix into the corner of a wider one.
static void corner_copy(const float *from, int64_t rows, int64_t columns, float scale, float *to,
                        int64_t width)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t k = 0; k < columns; k++) to[i * width + k] = scale * from[i * columns + k];
    }
}

static status weight_fill(const model_adapter_source *from, const op_weight *w, float *values)
{
    for (int p = 0; p < w->part_count; p++) {
        int64_t weight = 0;
        int part = 0;
        if (!part_find(from->m, w->parts[p].name, &weight, &part)) continue;
        const op_weight *own = &from->m->weights[weight];
        const bool is_down = strstr(w->parts[p].name, ".lora_A") != NULL;
        const double scale = is_down ? 1.0 : model_adapter_scale(&from->spec->adapter);
        float *whole = malloc((size_t)(own->rows * own->columns) * sizeof(float));
        if (whole == NULL) return fail(ST_NO_MEMORY, "no memory for %s", own->name);
        const status st = model_adapter_weight(from, weight, whole);
        if (st == ST_OK) {
            corner_copy(whole + own->parts[part].row_begin * own->columns, own->parts[part].rows,
                        own->columns, (float)scale, values + w->parts[p].row_begin * w->columns,
                        w->columns);
        }
        free(whole);
        TRY(st);
    }
    return ST_OK;
}

static status adapter_load(infer_core *c, infer_adapter *one)
{
    decoder_spec spec = c->spec;
    op_model *own = NULL;
    model_adapter_source from;
    const model_options options = {
        .purpose = PURPOSE_EVALUATE, .compute = DTYPE_F32, .grad = DTYPE_F32, .seq = 1};
    spec.adapter = one->spec;
    TRY(model_build(c->a, &spec, &options, &own));
    TRY(model_adapter_open(c->h, c->a, &spec, own, 0, &from));
    status st = arena_new(c->a, c->model->weight_count, &one->values);
    for (int64_t w = 0; w < c->model->weight_count && st == ST_OK; w++) {
        const op_weight *weight = &c->model->weights[w];
        if (!weight->is_adapter) continue;
        st = arena_new(c->a, weight->rows * weight->columns, &one->values[w]);
        if (st == ST_OK) st = weight_fill(&from, weight, one->values[w]);
    }
    model_adapter_close(&from);
    return st;
}

status infer_adapters_load(infer_core *c)
{
    if (c->adapter_count == 0) return ST_OK;
    for (int64_t i = 0; i < c->adapter_count; i++) TRY(adapter_load(c, &c->adapters[i]));
    c->adapter_at = INT64_MAX; // none was set yet
    return infer_adapters_use(c, -1);
}

// Sets the values of one weight; NULL: zeros.
static status weight_set(const ckpt_state *state, const op_weight *w, int64_t weight,
                         const float *values)
{
    if (values != NULL) return ckpt_weight_put(state, weight, values);
    float *zeros = calloc((size_t)(w->rows * w->columns), sizeof(float));
    if (zeros == NULL) return fail(ST_NO_MEMORY, "no memory for %s", w->name);
    const status st = ckpt_weight_put(state, weight, zeros);
    free(zeros);
    return st;
}

status infer_adapters_use(infer_core *c, int64_t index)
{
    const ckpt_state state = infer_core_state(c, CKPT_ADAPTER);
    ASSERT(index >= -1 && index < c->adapter_count);
    if (index == c->adapter_at) return ST_OK;
    for (int64_t w = 0; w < c->model->weight_count; w++) {
        const op_weight *weight = &c->model->weights[w];
        if (!weight->is_adapter) continue;
        TRY(weight_set(&state, weight, w, index >= 0 ? c->adapters[index].values[w] : NULL));
    }
    c->adapter_at = index;
    return ST_OK;
}
