// Pieces of logical tensors: arithmetic on shapes and coordinates.
#include "plan/place.h"

#include <string.h>

static plan_mesh mesh_at(const plan_places *p, int64_t rank)
{
    return plan_mesh_from(&p->mesh, rank);
}

status plan_places_stages(plan_places *p, arena *a, const plan_pipeline *pipeline)
{
    (void)a;
    p->stages = pipeline->holders;
    return ST_OK;
}

static bool stage_holds(const plan_places *p, const plan_mesh *mesh, int32_t weight)
{
    if (p->stages == NULL) return true;
    for (int i = 0; i < PLAN_MAX_HOLDERS; i++) {
        if (p->stages[weight][i] == mesh->at[AXIS_PP]) return true;
    }
    return false;
}

static int64_t cut_at(int64_t whole, int64_t size, int64_t k)
{
    return whole * k / size;
}

// Returns the weight of the experts of this rank, as op_model_experts makes it.
static op_weight local_experts(const plan_mesh *mesh, op_weight w)
{
    const int32_t ways = plan_mesh_ep(mesh);
    if (ways == 1) return w;
    w.expert_ways = ways;
    w.whole_columns = w.columns;
    w.rows = 0;
    for (int i = 0; i < w.part_count; i++) {
        weight_part *part = &w.parts[i];
        part->whole_rows = part->rows;
        part->rows /= ways;
        part->first = part->rows * plan_ep_place(mesh);
        part->row_begin = w.rows;
        w.rows += part->rows;
    }
    return w;
}

// Returns the weight as op_model_partition makes it for this rank: dim 0 of each part is cut
// separately.
static op_weight local_of(const plan_places *p, const plan_mesh *mesh, int32_t weight)
{
    op_weight w = p->whole->weights[weight];
    const int64_t size = plan_mesh_size(mesh, AXIS_TP), at = mesh->at[AXIS_TP];
    const int dim = size > 1 ? w.cut_dim[AXIS_TP] : -1;
    if (plan_is_shared_out(mesh, &w)) return local_experts(mesh, w);
    if (dim < 0) return w;
    w.ways = (int32_t)size;
    w.at = (int32_t)at;
    w.whole_columns = w.columns;
    if (dim == 1) {
        w.first_column = cut_at(w.columns, size, at);
        w.columns = cut_at(w.columns, size, at + 1) - w.first_column;
    }
    int64_t rows = 0;
    for (int i = 0; i < w.part_count; i++) {
        weight_part *part = &w.parts[i];
        part->whole_rows = part->rows;
        part->copies = dim == 0 ? op_part_copies(part->heads, w.ways) : 1;
        const int64_t pieces = size / part->copies, piece = at / part->copies;
        part->first = dim == 0 ? cut_at(part->rows, pieces, piece) : 0;
        if (dim == 0) part->rows = cut_at(part->rows, pieces, piece + 1) - part->first;
        part->row_begin = rows;
        rows += part->rows;
    }
    w.rows = rows;
    return w;
}

static plan_rows rows_of(const plan_places *p, const plan_mesh *mesh, const op_weight *local,
                         int32_t weight, plan_what what)
{
    const bool whole = p->whole_units != NULL && p->whole_units[weight];
    return plan_rows_of(mesh, what == PLACE_STATE || p->zero >= 3 ? p->zero : 0, local, whole);
}

plan_piece plan_piece_of(const plan_places *p, int64_t rank, int32_t weight, int part,
                         plan_what what)
{
    const plan_mesh mesh = mesh_at(p, rank);
    const plan_piece nothing = {0};
    if (!stage_holds(p, &mesh, weight)) return nothing;
    const op_weight local = local_of(p, &mesh, weight);
    const plan_rows own = rows_of(p, &mesh, &local, weight, what);
    const weight_part *w = &local.parts[part];
    const int64_t first = max_i64(own.first, w->row_begin);
    const int64_t end = min_i64(own.first + own.count, w->row_begin + w->rows);
    if (first >= end || local.columns == 0) return nothing;
    const weight_piece whole = op_weight_piece(&local, part);
    return (plan_piece){.row = whole.row + (first - w->row_begin),
                        .rows = end - first,
                        .column = whole.column,
                        .columns = whole.columns,
                        .at = (first - own.first) * local.columns};
}

// Whether the rank is the first of those that hold the same piece.
static bool is_first(const plan_places *p, const plan_mesh *mesh, int32_t weight, int part,
                     plan_what what)
{
    const int32_t stage = p->stages != NULL ? p->stages[weight][0] : 0;
    if (mesh->at[AXIS_PP] != stage) return false;
    const op_weight local = local_of(p, mesh, weight);
    const bool is_cut = rows_of(p, mesh, &local, weight, what).cut;
    const int32_t copies = local.parts[part].copies;
    if (plan_is_shared_out(mesh, &local)) {
        const bool is_copy = !mesh->whole_experts && mesh->at[AXIS_TP] != 0;
        return !is_copy && (is_cut || plan_expert_place(mesh) == 0);
    }
    if (local.ways < 2 && mesh->at[AXIS_TP] != 0)
        return false; // each of its ranks has the whole part
    if (local.ways > 1 && copies > 1 && mesh->at[AXIS_TP] % copies != 0) return false;
    return plan_zero_is_first(mesh, is_cut);
}

int64_t plan_holder_next(const plan_places *p, int64_t rank, int32_t weight, int part,
                         plan_what what)
{
    const int64_t ranks = plan_mesh_ranks(&p->mesh);
    for (int64_t i = rank + 1; i < ranks; i++) {
        const plan_mesh mesh = mesh_at(p, i);
        if (!is_first(p, &mesh, weight, part, what)) continue;
        if (plan_piece_of(p, i, weight, part, what).rows > 0) return i;
    }
    return -1;
}

bool plan_is_everywhere(const plan_places *p, int32_t weight, plan_what what)
{
    const op_weight *w = &p->whole->weights[weight];
    const bool by_tp = plan_mesh_size(&p->mesh, AXIS_TP) > 1 && w->cut_dim[AXIS_TP] >= 0;
    const bool by_pp = p->stages != NULL;
    if (plan_is_shared_out(&p->mesh, w)) return false;
    return !by_tp && !by_pp && !rows_of(p, &p->mesh, w, weight, what).cut;
}

int64_t plan_piece_before(const plan_piece *piece, int64_t columns, int64_t at)
{
    const int64_t row = at / columns, column = at % columns;
    if (row < piece->row) return 0;
    if (row >= piece->row + piece->rows) return piece->rows * piece->columns;
    const int64_t in_row = min_i64(max_i64(column - piece->column, 0), piece->columns);
    return (row - piece->row) * piece->columns + in_row;
}

// A range of elements that are consecutive in the part and in the piece.
typedef struct span {
    int64_t begin, end;
} span;

// Returns the first range in elements [at, end) of the part; empty if there is none.
static span span_next(const plan_piece *piece, int64_t columns, int64_t at, int64_t end)
{
    const span none = {end, end};
    const int64_t last = min_i64(end, (piece->row + piece->rows) * columns);
    at = max_i64(at, piece->row * columns);
    if (piece->rows == 0 || piece->columns == 0) return none;
    if (piece->columns == columns) return at < last ? (span){at, last} : none;
    const int64_t in_row = at % columns, right = piece->column + piece->columns;
    if (in_row < piece->column) at += piece->column - in_row;
    if (in_row >= right) at += columns - in_row + piece->column; // in the next row
    if (at >= last) return none;
    return (span){at, min_i64(last, at / columns * columns + right)};
}

int64_t plan_piece_take(const plan_piece *piece, int64_t columns, int64_t begin, int64_t count,
                        int64_t width, const void *whole, void *own)
{
    int64_t taken = 0;
    span s = span_next(piece, columns, begin, begin + count);
    for (; s.begin < s.end; s = span_next(piece, columns, s.end, begin + count)) {
        memcpy((char *)own + taken * width, (const char *)whole + (s.begin - begin) * width,
               (size_t)((s.end - s.begin) * width));
        taken += s.end - s.begin;
    }
    return taken;
}

int64_t plan_piece_put(const plan_piece *piece, int64_t columns, int64_t begin, int64_t count,
                       int64_t width, const void *own, void *whole)
{
    int64_t put = 0;
    span s = span_next(piece, columns, begin, begin + count);
    for (; s.begin < s.end; s = span_next(piece, columns, s.end, begin + count)) {
        memcpy((char *)whole + (s.begin - begin) * width, (const char *)own + put * width,
               (size_t)((s.end - s.begin) * width));
        put += s.end - s.begin;
    }
    return put;
}
