// Moves pieces of the state into and out of this rank's device, and to rank 0, which writes
// checkpoints.
#include "checkpoint/state.h"

#include <stdlib.h>
#include <string.h>

// ---- holders of pieces --------------------------------------------------------------------------

// Returns a rank's row of a residual, or -1 if it has none. The ranks of a stage are numbered
// consecutively.
static int64_t residual_row(const state_item *item, int64_t rank)
{
    const int64_t stage = rank / item->stage_ranks, place = rank % item->stage_ranks;
    for (int i = 0; i < PLAN_MAX_HOLDERS; i++) {
        if (item->stages[i] == stage) return i * item->stage_ranks + place;
    }
    return -1;
}

plan_piece state_piece(const ckpt_state *s, const state_item *item, int64_t rank)
{
    if (item->weight < 0) {
        const int64_t row = residual_row(item, rank);
        if (row < 0) return (plan_piece){0};
        return (plan_piece){.row = row, .rows = 1, .columns = item->columns};
    }
    if (s->places != NULL)
        return plan_piece_of(s->places, rank, item->weight, item->part, item->what);
    return (plan_piece){.rows = item->dims[0],
                        .columns = item->columns,
                        .at = item->offset / dtype_bytes(item->type)};
}

bool state_is_same_piece(const plan_piece *x, const plan_piece *y)
{
    return x->rows > 0 && x->row == y->row && x->rows == y->rows && x->column == y->column &&
           x->columns == y->columns && x->stripe == y->stripe && x->own == y->own &&
           x->offset == y->offset && x->first == y->first;
}

static bool is_everywhere(const ckpt_state *s, const state_item *item)
{
    if (item->weight < 0) return false;
    return s->places == NULL || plan_is_everywhere(s->places, item->weight, item->what);
}

// Iterates, from -1 on, over the ranks whose pieces together make up the item, each asked first for
// its piece. Returns -1 at the end.
static int64_t holder_next(const ckpt_state *s, const state_item *item, int64_t rank)
{
    if (item->weight < 0) {
        const int64_t row = rank < 0 ? 0 : residual_row(item, rank) + 1;
        if (row == item->dims[0]) return -1;
        return item->stages[row / item->stage_ranks] * item->stage_ranks + row % item->stage_ranks;
    }
    if (is_everywhere(s, item)) return rank < 0 ? s->rank : -1;
    return plan_holder_next(s->places, rank, item->weight, item->part, item->what);
}

bool state_is_here(const ckpt_state *s, const state_item *item)
{
    return state_piece(s, item, s->rank).rows > 0;
}

// Describes a weight as an item; is_master selects its master.
static state_item item_of(const ckpt_state *s, int64_t weight, int part, bool is_master)
{
    const op_weight *w = &s->model->weights[weight];
    state_item item = {.ndim = w->ndim,
                       .dims = {w->parts[part].rows, w->columns},
                       .columns = w->columns,
                       .run_row = state_row(s, is_master ? "master" : "weight", w->name),
                       .weight = (int32_t)weight,
                       .part = part,
                       .what = is_master ? PLACE_STATE : PLACE_WEIGHT};
    if (item.run_row >= 0) item.type = s->run->tensors[item.run_row].type;
    item.offset = w->parts[part].row_begin * w->columns * dtype_bytes(item.type);
    return item;
}

// ---- from the device ----------------------------------------------------------------------------

status state_read(const ckpt_state *s, const state_item *item, int64_t offset, void *to,
                  int64_t bytes)
{
    if (s->read != NULL)
        return s->read(s->context, item->run_row, item->offset + offset, to, bytes);
    const plan_piece piece = state_piece(s, item, s->rank);
    ASSERT(piece.rows == item->dims[0] && piece.columns == item->columns);
    return exec_read(s->e, item->run_row, piece.at * dtype_bytes(item->type) + offset, to, bytes);
}

// The number of rows of a rank's piece that fit in a chunk, at least one.
static int64_t rows_at_once(const plan_piece *p, int64_t width)
{
    return max_i64(1, STATE_CHUNK_BYTES / (p->columns * width));
}

// Returns the layer of a weight whose experts may have moved; -1: they have not.
static int32_t layer_of_moved(const ckpt_state *s, const state_item *item)
{
    if (s->expert_of == NULL || item->weight < 0) return -1;
    if (!s->model->weights[item->weight].is_expert) return -1;
    return op_model_layer_of(s->model, item->weight);
}

plan_piece state_rows_of_expert(const ckpt_state *s, const state_item *item, const plan_piece *p,
                                int64_t r, int64_t most)
{
    const int32_t layer = layer_of_moved(s, item);
    const int64_t experts = s->model->load_experts, each = item->dims[0] / experts;
    const int64_t slot = plan_piece_row(p, r) / each;
    int64_t rows = 1;
    while (rows < most && plan_piece_row(p, r + rows) / each == slot) rows++;
    plan_piece out = plan_piece_rows(p, r, rows);
    if (layer >= 0) out.row += (s->expert_of[layer * experts + slot] - slot) * each;
    return out;
}

// Copies one rank's piece; that rank and rank 0 call this. If there is an image (of the item), the
// piece goes there through `chunk`.
static status piece_read(const ckpt_state *s, const state_item *item, int64_t owner, char *chunk,
                         char *image)
{
    const plan_piece p = state_piece(s, item, owner);
    const int64_t width = dtype_bytes(item->type), most = rows_at_once(&p, width);
    const bool is_wide = p.columns == item->columns && p.stripe == 0;
    const int32_t layer = layer_of_moved(s, item);
    int64_t rows = 0;
    for (int64_t r = 0; r < p.rows; r += rows) {
        rows = min_i64(most, p.rows - r);
        const plan_piece now =
            layer < 0 ? plan_piece_rows(&p, r, rows) : state_rows_of_expert(s, item, &p, r, rows);
        rows = now.rows;
        const int64_t bytes = rows * p.columns * width;
        const int64_t begin = plan_piece_row(&now, 0), end = plan_piece_row(&now, rows - 1) + 1;
        char *whole = image != NULL ? image + begin * item->columns * width : NULL;
        char *to = is_wide && whole != NULL ? whole : chunk;
        if (owner == s->rank) {
            TRY(exec_read(s->e, item->run_row, (p.at + r * p.columns) * width, to, bytes));
        }
        if (owner != 0) TRY(s->give(s->ranks, s->rank, (int)owner, to, bytes));
        if (whole == NULL || to == whole) continue;
        (void)plan_piece_put(&now, item->columns, begin * item->columns,
                             (end - begin) * item->columns, width, to, whole);
    }
    return ST_OK;
}

// Allocates a chunk that holds at least one row of any item.
static status chunk_take(const state_list *list, char **out)
{
    int64_t bytes = STATE_CHUNK_BYTES;
    for (int64_t i = 0; i < list->count; i++) {
        bytes = max_i64(bytes, list->items[i].columns * dtype_bytes(list->items[i].type));
    }
    *out = malloc((size_t)bytes);
    return *out != NULL ? ST_OK : fail(ST_NO_MEMORY, "no memory to transfer the state");
}

status state_read_all(const ckpt_state *s, const state_list *list, char *image)
{
    char *chunk = NULL;
    status st = chunk_take(list, &chunk);
    for (int64_t i = 0; i < list->count && st == ST_OK; i++) {
        const state_item *item = &list->items[i];
        if (is_everywhere(s, item)) {
            if (image != NULL) st = piece_read(s, item, s->rank, chunk, image + item->image_offset);
            continue;
        }
        int64_t owner = holder_next(s, item, -1);
        for (; owner >= 0 && st == ST_OK; owner = holder_next(s, item, owner)) {
            if (image == NULL && (owner == 0 || owner != s->rank)) continue;
            st = piece_read(s, item, owner, chunk,
                            image != NULL ? image + item->image_offset : NULL);
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

// ---- to the device ------------------------------------------------------------------------------

// Writes bytes of an item as far as this rank holds them, where `places` has them.
static status placed_write(const ckpt_state *s, const state_item *item, int64_t offset,
                           const void *from, int64_t bytes)
{
    const int64_t width = dtype_bytes(item->type);
    ASSERT(offset % width == 0 && bytes % width == 0);
    const plan_piece p = state_piece(s, item, s->rank);
    const int64_t begin = offset / width, count = bytes / width;
    const int64_t first = plan_piece_before(&p, item->columns, begin);
    const int64_t own = plan_piece_before(&p, item->columns, begin + count) - first;
    if (own == 0) return ST_OK;
    if (own == count) {
        return exec_write(s->e, item->run_row, (p.at + first) * width, from, bytes);
    }
    void *chunk = malloc((size_t)(own * width));
    if (chunk == NULL) return fail(ST_NO_MEMORY, "no memory to load %s", item->name);
    (void)plan_piece_take(&p, item->columns, begin, count, width, from, chunk);
    const status st = exec_write(s->e, item->run_row, (p.at + first) * width, chunk, own * width);
    free(chunk);
    return st;
}

status state_write(const ckpt_state *s, const state_item *item, int64_t offset, const void *from,
                   int64_t bytes)
{
    const int32_t layer = layer_of_moved(s, item);
    if (layer < 0) return placed_write(s, item, offset, from, bytes);
    const int64_t experts = s->model->load_experts,
                  each = item->dims[0] / experts * item->columns * dtype_bytes(item->type);
    const int32_t *expert_of = s->expert_of + layer * experts;
    for (int64_t at = offset; at < offset + bytes;) {
        const int64_t expert = at / each, end = min_i64((expert + 1) * each, offset + bytes);
        int64_t slot = 0;
        while (expert_of[slot] != expert) slot++;
        TRY(placed_write(s, item, at + (slot - expert) * each, (const char *)from + (at - offset),
                         end - at));
        at = end;
    }
    return ST_OK;
}

// Converts elements [begin, begin + count) of a part from fp32 into a run tensor of any type,
// through `chunk`.
static status put_elements(const ckpt_state *s, const state_item *item, int64_t begin,
                           int64_t count, const float *values, void *chunk)
{
    const int64_t width = dtype_bytes(item->type), most = STATE_CHUNK_BYTES / width;
    if (item->type == DTYPE_F32) return state_write(s, item, begin * width, values, count * width);
    for (int64_t at = 0; at < count; at += most) {
        const int64_t n = min_i64(most, count - at);
        for (int64_t i = 0; i < n; i++) dtype_store(item->type, chunk, i, (double)values[at + i]);
        TRY(state_write(s, item, (begin + at) * width, chunk, n * width));
    }
    return ST_OK;
}

// Intersects elements [begin, begin + count) of a weight with one part, and gives their position in
// the part.
static void in_part(const op_weight *w, int part, int64_t begin, int64_t count, int64_t *first,
                    int64_t *own)
{
    const int64_t at = w->parts[part].row_begin * w->columns;
    const int64_t from = max_i64(begin, at);
    const int64_t to = min_i64(begin + count, at + w->parts[part].rows * w->columns);
    *first = from - at;
    *own = max_i64(0, to - from);
}

bool ckpt_weight_is_here(const ckpt_state *s, int64_t weight, int64_t begin, int64_t count)
{
    const op_weight *w = &s->model->weights[weight];
    for (int i = 0; i < w->part_count; i++) {
        int64_t first = 0, own = 0;
        in_part(w, i, begin, count, &first, &own);
        // The master lies within the weight's piece.
        const state_item item = item_of(s, weight, i, false);
        const plan_piece p = state_piece(s, &item, s->rank);
        if (own > 0 && plan_piece_before(&p, w->columns, first + own) >
                           plan_piece_before(&p, w->columns, first)) {
            return true;
        }
    }
    return false;
}

// Stores rows of a weight that is held in few bits. A rank's piece begins and ends between blocks.
static status put_quantized(const ckpt_state *s, int64_t weight, int part, const float *values)
{
    const op_weight *w = &s->model->weights[weight];
    const state_item item = item_of(s, weight, part, false);
    const plan_piece p = state_piece(s, &item, s->rank);
    if (p.rows == 0 || item.run_row < 0) return ST_OK;
    const int64_t bytes = op_quant_row_bytes(w->quant, p.columns), first = p.at / p.columns;
    uint8_t *row = malloc((size_t)bytes);
    if (row == NULL) return fail(ST_NO_MEMORY, "no memory for a row of %s", w->name);
    status st = ST_OK;
    for (int64_t i = 0; i < p.rows && st == ST_OK; i++) {
        const float *from = values + plan_piece_row(&p, i) * w->columns + p.column;
        op_quant_row_encode(w->quant, from, p.columns, row);
        st = exec_write(s->e, item.run_row, (first + i) * bytes, row, bytes);
    }
    free(row);
    return st;
}

status ckpt_weight_put_range(const ckpt_state *s, int64_t weight, int64_t begin, int64_t count,
                             const float *values)
{
    const op_weight *w = &s->model->weights[weight];
    ASSERT(begin >= 0 && count >= 0 && begin + count <= w->rows * w->columns);
    const int copies = state_has_master(s, weight) ? 2 : 1;
    if (w->quant != QUANT_NONE) {
        ASSERT(begin == 0 && count == w->rows * w->columns);
        for (int i = 0; i < w->part_count; i++) {
            TRY(put_quantized(s, weight, i, values + w->parts[i].row_begin * w->columns));
        }
        return ST_OK;
    }
    void *chunk = malloc(STATE_CHUNK_BYTES);
    if (chunk == NULL) return fail(ST_NO_MEMORY, "no memory to convert %s", w->name);
    status st = ST_OK;
    for (int i = 0; i < w->part_count && st == ST_OK; i++) {
        int64_t first = 0, own = 0;
        in_part(w, i, begin, count, &first, &own);
        const float *from = values + (w->parts[i].row_begin * w->columns + first - begin);
        for (int k = 0; k < copies && own > 0 && st == ST_OK; k++) {
            const state_item item = item_of(s, weight, i, k == 1);
            if (item.run_row >= 0) st = put_elements(s, &item, first, own, from, chunk);
        }
    }
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
        const int64_t count = s->model->weights[w].rows * s->model->weights[w].columns;
        if (!ckpt_weight_is_here(s, w, 0, count)) continue;
        st = get(context, w, values);
        if (st == ST_OK) st = ckpt_weight_put(s, w, values);
    }
    free(values);
    return st;
}

// ---- by value -----------------------------------------------------------------------------------

// Reads elements [at, at + count) of this rank's piece as fp32.
static status values_read(const ckpt_state *s, const state_item *item, const plan_piece *p,
                          int64_t at, int64_t count, float *out)
{
    const int64_t width = dtype_bytes(item->type), most = STATE_CHUNK_BYTES / width;
    if (item->type == DTYPE_F32) {
        return exec_read(s->e, item->run_row, (p->at + at) * width, out, count * width);
    }
    void *chunk = malloc(STATE_CHUNK_BYTES);
    if (chunk == NULL) return fail(ST_NO_MEMORY, "no memory to convert a weight");
    status st = ST_OK;
    for (int64_t i = 0; i < count && st == ST_OK; i += most) {
        const int64_t n = min_i64(most, count - i);
        st = exec_read(s->e, item->run_row, (p->at + at + i) * width, chunk, n * width);
        for (int64_t k = 0; k < n && st == ST_OK; k++) {
            out[i + k] = (float)dtype_load(item->type, chunk, k);
        }
    }
    free(chunk);
    return st;
}

static status part_get(const ckpt_state *s, const state_item *item, float *piece, float *out)
{
    const bool shared = !is_everywhere(s, item);
    int64_t owner = holder_next(s, item, -1);
    for (; owner >= 0; owner = holder_next(s, item, owner)) {
        const plan_piece p = state_piece(s, item, owner);
        const int64_t count = p.rows * p.columns;
        if (owner == s->rank) TRY(values_read(s, item, &p, 0, count, piece));
        if (shared) TRY(s->share(s->ranks, (int)owner, piece, count * (int64_t)sizeof(float)));
        const int32_t layer = layer_of_moved(s, item);
        plan_piece now = p;
        for (int64_t r = 0; r < p.rows; r += now.rows) {
            if (layer >= 0) now = state_rows_of_expert(s, item, &p, r, p.rows - r);
            (void)plan_piece_put(&now, item->columns, 0, item->dims[0] * item->columns,
                                 (int64_t)sizeof(float), piece + r * p.columns, out);
        }
    }
    return ST_OK;
}

status ckpt_weight_get(const ckpt_state *s, int64_t weight, float *values)
{
    const op_weight *w = &s->model->weights[weight];
    float *piece = malloc((size_t)(w->rows * w->columns) * sizeof(float));
    if (piece == NULL) return fail(ST_NO_MEMORY, "no memory for %s", w->name);
    status st = ST_OK;
    for (int i = 0; i < w->part_count && st == ST_OK; i++) {
        const state_item item = item_of(s, weight, i, state_has_master(s, weight));
        st = part_get(s, &item, piece, values + w->parts[i].row_begin * w->columns);
    }
    free(piece);
    return st;
}

status state_is_held(const ckpt_state *s, int64_t step, int64_t applied, int64_t skipped, bool *out)
{
    step_block now;
    *out = false;
    if (s->held_step <= 0 || step != s->held_step) return ST_OK;
    TRY(exec_read(s->e, plan_table_find(s->run, "step"), 0, &now, (int64_t)sizeof(now)));
    *out = now.device.applied == applied && now.device.skipped == skipped;
    return ST_OK;
}
