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

// Cuts each stripe of a weight of experts, or of the rank's experts.
static op_weight local_stripes(const plan_places *p, int32_t weight, op_weight w)
{
    ASSERT(w.stripe % w.ways == 0);
    w.rows = 0;
    for (int i = 0; i < w.part_count; i++) {
        w.parts[i].whole_rows = p->whole->weights[weight].parts[i].rows;
        w.parts[i].rows /= w.ways;
        w.parts[i].row_begin = w.rows;
        w.rows += w.parts[i].rows;
    }
    return w;
}

// Returns the weight as op_model_partition makes it for this rank: dim 0 of each part is cut
// separately, and of experts that of each one's parts.
static op_weight local_of(const plan_places *p, const plan_mesh *mesh, int32_t weight)
{
    op_weight w = p->whole->weights[weight];
    const int64_t size = plan_mesh_size(mesh, AXIS_TP), at = mesh->at[AXIS_TP];
    const bool is_whole = size == 1 || (w.is_expert && mesh->whole_experts);
    const int dim = is_whole ? -1 : w.cut_dim[AXIS_TP];
    w.cut_dim[AXIS_TP] = (int8_t)dim;
    if (plan_is_shared_out(mesh, &w)) w = local_experts(mesh, w);
    if (dim < 0) return w;
    w.ways = (int32_t)size;
    w.at = (int32_t)at;
    w.whole_columns = w.columns;
    if (w.is_expert && dim == 0) return local_stripes(p, weight, w);
    if (dim == 1) {
        w.first_column = cut_at(w.columns, size, at);
        w.columns = cut_at(w.columns, size, at + 1) - w.first_column;
    }
    int64_t rows = 0;
    for (int i = 0; i < w.part_count; i++) {
        weight_part *part = &w.parts[i];
        if (!w.is_expert) part->whole_rows = part->rows;
        part->copies = dim == 0 ? op_part_copies(part->heads, w.ways) : 1;
        const int64_t pieces = size / part->copies, piece = at / part->copies;
        if (!w.is_expert) part->first = dim == 0 ? cut_at(part->rows, pieces, piece) : 0;
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
    const bool striped = op_weight_is_striped(&local);
    const int64_t each = striped ? local.stripe / local.ways : 0;
    const plan_piece all = {.row = whole.row,
                            .rows = w->rows,
                            .column = whole.column,
                            .columns = whole.columns,
                            .stripe = striped ? local.stripe : 0,
                            .own = each,
                            .offset = each * local.at};
    plan_piece piece = plan_piece_rows(&all, first - w->row_begin, end - first);
    piece.at = (first - own.first) * local.columns;
    return piece;
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
        const bool is_copy = !mesh->whole_experts && local.ways < 2 && mesh->at[AXIS_TP] != 0;
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

static int64_t within(int64_t x, int64_t most)
{
    return min_i64(max_i64(x, 0), most);
}

// Counts the rows of a piece before row `row` of the part, and says whether that row is one too.
static int64_t rows_before(const plan_piece *p, int64_t row, bool *is_own)
{
    int64_t count = row - p->row;
    bool in_stripe = true;
    if (p->stripe > 0 && count >= 0) {
        const int64_t at = count % p->stripe - p->offset;
        in_stripe = at >= 0 && at < p->own;
        count = count / p->stripe * p->own + within(at, p->own) - p->first;
    }
    *is_own = row >= p->row && in_stripe && count >= 0 && count < p->rows;
    return within(count, p->rows);
}

int64_t plan_piece_before(const plan_piece *piece, int64_t columns, int64_t at)
{
    bool is_own = false;
    const int64_t before = rows_before(piece, at / columns, &is_own) * piece->columns;
    return before + (is_own ? within(at % columns - piece->column, piece->columns) : 0);
}

// A range of elements that are consecutive in the part and in the piece.
typedef struct span {
    int64_t begin, end;
} span;

// Returns the first range in elements [at, end) of the part; empty if there is none.
static span span_next(const plan_piece *piece, int64_t columns, int64_t at, int64_t end)
{
    const span none = {end, end};
    const int64_t right = piece->column + piece->columns;
    bool is_own = false;
    if (piece->rows == 0 || piece->columns == 0) return none;
    int64_t k = rows_before(piece, at / columns, &is_own);
    if (is_own && at % columns >= right) { // in the next row
        k++;
        is_own = false;
    }
    if (k == piece->rows) return none;
    const int64_t row = plan_piece_row(piece, k) * columns;
    if (!is_own || at < row + piece->column) at = row + piece->column;
    if (at >= end) return none;
    if (piece->columns < columns) return (span){at, min_i64(end, row + right)};
    const int64_t rest = piece->rows - k;
    const int64_t in_stripe =
        piece->stripe > 0 ? piece->own - (piece->first + k) % piece->own : rest;
    return (span){at, min_i64(end, row + min_i64(rest, in_stripe) * columns)};
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
