// Lists the logical state of a run: walks over the model's weights and the state of their
// optimizers. The list does not depend on this rank's pieces, so it is the same on all ranks.
#include "checkpoint/state.h"

#include <stdio.h>
#include <string.h>

int64_t state_row(const ckpt_state *s, const char *kind, const char *weight)
{
    if (strcmp(kind, "weight") == 0) return plan_table_find(s->run, weight);
    char name[PLAN_NAME_BYTES];
    (void)snprintf(name, sizeof(name), "%s.%s", kind, weight);
    return plan_table_find(s->run, name);
}

bool state_has_master(const ckpt_state *s, int64_t weight)
{
    const op_program *p = s->optimizer != NULL ? s->optimizer[weight] : NULL;
    for (int64_t t = 0; p != NULL && t < p->tensor_count; t++) {
        if (p->tensors[t].role == ROLE_STATE && strcmp(p->tensors[t].name, "master") == 0) {
            return true;
        }
    }
    return false;
}

bool state_has(const ckpt_state *s, int64_t weight)
{
    const op_weight *w = &s->model->weights[weight];
    const bool is_of_run = w->is_adapter || w->is_history;
    return s->part == CKPT_ALL || (s->part == CKPT_ADAPTER) == is_of_run;
}

// The type of the working copy, as the layers' programs declare it. Only training uses the weights
// of layers above the last norm.
static dtype weight_type(const op_model *m, int64_t weight)
{
    for (int32_t i = 0; i < m->layer_count; i++) {
        const op_program *p = m->programs[m->layers[i].program];
        for (int64_t t = 0; t < p->tensor_count; t++) {
            const bool is_weight = p->tensors[t].role == ROLE_WEIGHT;
            if (is_weight && m->layers[i].weight_of[t] == weight) return p->tensors[t].type;
        }
    }
    ASSERT(m->purpose != PURPOSE_TRAIN);
    return m->weights[weight].type;
}

static status item_push(arena *a, state_list *out, state_item **item)
{
    TRY(arena_grow(a, (void **)&out->items, &out->capacity, out->count + 1,
                   (int64_t)sizeof(state_item)));
    *item = &out->items[out->count++];
    return ST_OK;
}

// Adds the residuals of all ranks, in the order of the ranks.
static status residuals_add(const ckpt_state *s, arena *a, state_list *out)
{
    const size_t skip = strlen(PLAN_FEEDBACK);
    for (int64_t row = 0; row < s->run->count; row++) {
        const plan_tensor *t = &s->run->tensors[row];
        state_item *item = NULL;
        if (strncmp(t->name, PLAN_FEEDBACK, skip) != 0) continue;
        TRY(item_push(a, out, &item));
        *item = (state_item){.type = t->type,
                             .ndim = 2,
                             .dims = {t->pieces, t->dims[1]},
                             .columns = t->dims[1],
                             .run_row = row,
                             .bytes = t->pieces * t->dims[1] * dtype_bytes(t->type),
                             .image_offset = out->bytes,
                             .weight = -1,
                             .stages = {t->stages[0], t->stages[1]},
                             .stage_ranks = t->pieces / (t->stages[1] < 0 ? 1 : 2)};
        out->bytes += item->bytes;
        (void)snprintf(item->name, sizeof(item->name), "feedback/%s", t->name + skip);
    }
    return ST_OK;
}

static status parts_add(const ckpt_state *s, arena *a, int32_t w, const char *kind, dtype type,
                        state_list *out)
{
    const op_weight *weight = &s->model->weights[w];
    const int64_t row = state_row(s, kind, weight->name);
    const int64_t row_bytes = weight->columns * dtype_bytes(type);
    for (int i = 0; i < weight->part_count; i++) {
        const weight_part *part = &weight->parts[i];
        state_item *item = NULL;
        TRY(item_push(a, out, &item));
        *item = (state_item){.type = type,
                             .ndim = weight->ndim,
                             .dims = {part->rows, weight->columns},
                             .columns = weight->columns,
                             .bytes = part->rows * row_bytes,
                             .run_row = row,
                             .offset = part->row_begin * row_bytes,
                             .image_offset = out->bytes,
                             .weight = w,
                             .part = i,
                             .what = strcmp(kind, "weight") == 0 ? PLACE_WEIGHT : PLACE_STATE};
        out->bytes += item->bytes;
        (void)snprintf(item->name, sizeof(item->name), "%s/%s", kind, part->name);
    }
    return ST_OK;
}

status state_list_make(const ckpt_state *s, arena *a, state_list *out)
{
    for (int32_t w = 0; w < s->model->weight_count; w++) {
        const bool is_derived = s->derived_weights && state_has_master(s, w);
        if (!state_has(s, w)) continue;
        if (!is_derived) TRY(parts_add(s, a, w, "weight", weight_type(s->model, w), out));
        const op_program *p = s->optimizer != NULL ? s->optimizer[w] : NULL;
        for (int64_t t = 0; p != NULL && t < p->tensor_count; t++) { // in the optimizer's order
            const op_tensor *x = &p->tensors[t];
            if (x->role == ROLE_STATE) TRY(parts_add(s, a, w, x->name, x->type, out));
        }
    }
    return residuals_add(s, a, out);
}

void step_flatten(const step_device *d, int64_t counts[STEP_COUNTS], double reals[STEP_REALS])
{
    counts[0] = d->applied;
    counts[1] = d->skipped;
    counts[2] = d->halt;
    counts[3] = d->scale_good_steps;
    counts[4] = d->scale_hysteresis_left;
    counts[5] = d->history_count;
    reals[0] = d->loss_scale;
    memcpy(reals + 1, d->history, sizeof(d->history));
}

void step_unflatten(step_device *d, const int64_t counts[STEP_COUNTS],
                    const double reals[STEP_REALS])
{
    d->applied = counts[0];
    d->skipped = counts[1];
    d->halt = counts[2];
    d->scale_good_steps = counts[3];
    d->scale_hysteresis_left = counts[4];
    d->history_count = counts[5];
    d->loss_scale = reals[0];
    memcpy(d->history, reals + 1, sizeof(d->history));
}

void digest_head(hash_stream *digest, const char *name, dtype type, int ndim, const int64_t *dims)
{
    hash_add(digest, name, (int64_t)strlen(name) + 1);
    hash_add(digest, dtype_name(type), (int64_t)strlen(dtype_name(type)) + 1);
    for (int i = 0; i < ndim; i++) hash_add(digest, &dims[i], (int64_t)sizeof(dims[i]));
}
