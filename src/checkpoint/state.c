// What of a run is logical state: a walk over the model's weights in the tensor table, and the ways
// in and out of the device.
#include "checkpoint/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kinds[] = {"weight", "master", "m", "v"};

// Row of "<kind>.<weight>" (or the weight itself) in the run's table; -1: there is none.
static int64_t row_of(const ckpt_state *s, const char *kind, const char *weight)
{
    if (strcmp(kind, "weight") == 0) return plan_table_find(s->run, weight);
    char name[PLAN_NAME_BYTES];
    (void)snprintf(name, sizeof(name), "%s.%s", kind, weight);
    return plan_table_find(s->run, name);
}

// Of all ranks, one after the other.
static status residuals_add(const ckpt_state *s, arena *a, state_list *out)
{
    const size_t skip = strlen(PLAN_FEEDBACK);
    for (int64_t row = 0; row < s->run->count; row++) {
        const plan_tensor *t = &s->run->tensors[row];
        if (strncmp(t->name, PLAN_FEEDBACK, skip) != 0) continue;
        TRY(arena_grow(a, (void **)&out->items, &out->capacity, out->count + 1,
                       (int64_t)sizeof(state_item)));
        state_item *item = &out->items[out->count++];
        *item = (state_item){.type = t->type,
                             .ndim = 2,
                             .dims = {t->pieces, t->dims[1]},
                             .run_row = row,
                             .bytes = t->pieces * t->dims[1] * dtype_bytes(t->type),
                             .image_offset = out->bytes,
                             .residual = true};
        out->bytes += item->bytes;
        (void)snprintf(item->name, sizeof(item->name), "feedback/%s", t->name + skip);
    }
    return ST_OK;
}

status state_list_make(const ckpt_state *s, arena *a, state_list *out)
{
    for (int64_t w = 0; w < s->model->weight_count; w++) {
        const op_weight *weight = &s->model->weights[w];
        const bool has_master = row_of(s, "master", weight->name) >= 0;
        for (int k = 0; k < COUNT_OF(kinds); k++) {
            if (k == 0 && has_master && s->derived_weights) continue;
            const int64_t row = row_of(s, kinds[k], weight->name);
            if (row < 0) continue;
            const int64_t row_bytes = weight->columns * dtype_bytes(s->run->tensors[row].type);
            TRY(arena_grow(a, (void **)&out->items, &out->capacity, out->count + weight->part_count,
                           (int64_t)sizeof(state_item)));
            for (int i = 0; i < weight->part_count; i++) {
                state_item *item = &out->items[out->count++];
                *item = (state_item){.type = s->run->tensors[row].type,
                                     .ndim = weight->ndim,
                                     .dims = {weight->parts[i].rows, weight->columns},
                                     .run_row = row,
                                     .offset = weight->parts[i].row_begin * row_bytes,
                                     .bytes = weight->parts[i].rows * row_bytes,
                                     .image_offset = out->bytes};
                out->bytes += item->bytes;
                (void)snprintf(item->name, sizeof(item->name), "%s/%s", kinds[k],
                               weight->parts[i].name);
            }
        }
    }
    return residuals_add(s, a, out);
}

// What of bytes [offset, end) of a whole tensor one rank holds, from `offset` on.
typedef struct piece {
    int rank;
    int64_t begin; // of the rank's bytes, in the whole tensor
    int64_t bytes;
} piece;

static piece piece_at(const ckpt_state *s, int64_t row, int64_t offset, int64_t end)
{
    const plan_tensor *t = &s->run->tensors[row];
    if (t->piece_rows == 0) return (piece){.rank = s->rank, .bytes = end - offset};
    const int64_t all = t->piece_rows * t->dims[1] * dtype_bytes(t->type);
    const int64_t begin = offset / all * all;
    return (piece){
        .rank = (int)(offset / all), .begin = begin, .bytes = min_i64(end, begin + all) - offset};
}

status state_read(const ckpt_state *s, int64_t row, int64_t offset, void *to, int64_t bytes)
{
    if (s->read != NULL) return s->read(s->context, row, offset, to, bytes);
    for (int64_t at = 0; at < bytes;) {
        const piece p = piece_at(s, row, offset + at, offset + bytes);
        char *here = (char *)to + at;
        if (p.rank == s->rank) {
            TRY(exec_read(s->e, row, offset + at - p.begin, here, p.bytes));
        }
        if (s->run->tensors[row].piece_rows > 0) {
            TRY(s->share(s->ranks, p.rank, here, p.bytes));
        }
        at += p.bytes;
    }
    return ST_OK;
}

status state_write(const ckpt_state *s, int64_t row, int64_t offset, const void *from,
                   int64_t bytes)
{
    for (int64_t at = 0; at < bytes;) {
        const piece p = piece_at(s, row, offset + at, offset + bytes);
        if (p.rank == s->rank) {
            TRY(exec_write(s->e, row, offset + at - p.begin, (const char *)from + at, p.bytes));
        }
        at += p.bytes;
    }
    return ST_OK;
}

status state_read_all(const ckpt_state *s, const state_list *list, char *image)
{
    char *chunk = image == NULL ? malloc(STATE_CHUNK_BYTES) : NULL;
    if (image == NULL && chunk == NULL) {
        return fail(ST_NO_MEMORY, "no memory to hand over the state");
    }
    status st = ST_OK;
    for (int64_t i = 0; i < list->count && st == ST_OK; i++) {
        const state_item *item = &list->items[i];
        if (image == NULL && s->run->tensors[item->run_row].piece_rows == 0) continue;
        for (int64_t at = 0; at < item->bytes && st == ST_OK; at += STATE_CHUNK_BYTES) {
            st = state_read(s, item->run_row, item->offset + at,
                            image != NULL ? image + item->image_offset + at : chunk,
                            min_i64(STATE_CHUNK_BYTES, item->bytes - at));
        }
    }
    free(chunk);
    return st;
}

status ckpt_state_give(const ckpt_state *s, arena *a)
{
    state_list list = {0};
    TRY(state_list_make(s, a, &list));
    return state_read_all(s, &list, NULL);
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

// Elements [begin, begin + count) from fp32 into a run tensor of any type, through `chunk`.
static status put_elements(const ckpt_state *s, int64_t row, int64_t begin, int64_t count,
                           const float *values, void *chunk)
{
    const dtype type = s->run->tensors[row].type;
    const int64_t width = dtype_bytes(type), most = STATE_CHUNK_BYTES / width;
    if (type == DTYPE_F32) return state_write(s, row, begin * width, values, count * width);
    for (int64_t at = 0; at < count; at += most) {
        const int64_t n = min_i64(most, count - at);
        for (int64_t i = 0; i < n; i++) dtype_store(type, chunk, i, (double)values[at + i]);
        TRY(state_write(s, row, (begin + at) * width, chunk, n * width));
    }
    return ST_OK;
}

status ckpt_weight_put_range(const ckpt_state *s, int64_t weight, int64_t begin, int64_t count,
                             const float *values)
{
    const op_weight *w = &s->model->weights[weight];
    ASSERT(begin >= 0 && count >= 0 && begin + count <= w->rows * w->columns);
    const int64_t master = row_of(s, "master", w->name), row = row_of(s, "weight", w->name);
    ASSERT(row >= 0);
    void *chunk = malloc(STATE_CHUNK_BYTES);
    if (chunk == NULL) return fail(ST_NO_MEMORY, "no memory to convert %s", w->name);
    status st = put_elements(s, row, begin, count, values, chunk);
    if (st == ST_OK && master >= 0) st = put_elements(s, master, begin, count, values, chunk);
    free(chunk);
    return st;
}

status ckpt_weight_put(const ckpt_state *s, int64_t weight, const float *values)
{
    const op_weight *w = &s->model->weights[weight];
    return ckpt_weight_put_range(s, weight, 0, w->rows * w->columns, values);
}

status ckpt_weights_put(const ckpt_state *s, ckpt_weight_fn get, void *context)
{
    int64_t largest = 0;
    for (int64_t w = 0; w < s->model->weight_count; w++) {
        largest = max_i64(largest, s->model->weights[w].rows * s->model->weights[w].columns);
    }
    float *values = malloc((size_t)largest * sizeof(float));
    if (values == NULL) return fail(ST_NO_MEMORY, "no memory for the largest weight");
    status st = ST_OK;
    for (int64_t w = 0; w < s->model->weight_count && st == ST_OK; w++) {
        st = get(context, w, values);
        if (st == ST_OK) st = ckpt_weight_put(s, w, values);
    }
    free(values);
    return st;
}

status ckpt_weight_get(const ckpt_state *s, int64_t weight, float *values)
{
    const op_weight *w = &s->model->weights[weight];
    int64_t row = row_of(s, "master", w->name);
    if (row < 0) row = row_of(s, "weight", w->name);
    ASSERT(row >= 0);
    const dtype type = s->run->tensors[row].type;
    const int64_t count = w->rows * w->columns, width = dtype_bytes(type);
    if (type == DTYPE_F32) return exec_read(s->e, row, 0, values, count * width);
    void *chunk = malloc(STATE_CHUNK_BYTES);
    if (chunk == NULL) return fail(ST_NO_MEMORY, "no memory to convert %s", w->name);
    status st = ST_OK;
    const int64_t most = STATE_CHUNK_BYTES / width;
    for (int64_t at = 0; at < count; at += most) {
        const int64_t n = min_i64(most, count - at);
        TRY_TO(free_chunk, exec_read(s->e, row, at * width, chunk, n * width));
        for (int64_t i = 0; i < n; i++) values[at + i] = (float)dtype_load(type, chunk, i);
    }
free_chunk:
    free(chunk);
    return st;
}
