// Tests pieces of logical tensors over a grid of meshes: every element has its holders, the first
// of them is found, and the pieces of a tensor join to the tensor again.
#include "plan/place.h"

#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { CELLS = 256, RANKS = 64 };

// A weight of each kind: cut by rows, part by part, by columns, not cut, too small for ZeRO, and a
// matrix that its optimizer needs in one piece.
static const struct {
    int ndim, cut;
    int64_t columns;
    int parts;
    int64_t rows[3];
    bool whole;
    int64_t heads; // in the parts after the first
} kinds[] = {{2, 0, 6, 1, {13}, false, 0},       {2, 0, 6, 3, {8, 4, 4}, false, 0},
             {1, 0, 1, 3, {8, 4, 4}, false, 0},  {2, 1, 8, 1, {6}, false, 0},
             {1, -1, 1, 1, {6}, false, 0},       {2, -1, 6, 1, {5}, false, 0},
             {2, -1, 6, 1, {2}, false, 0},       {2, 0, 6, 2, {10, 10}, true, 0},
             {2, 1, 7, 2, {3, 5}, false, 0},     {2, 0, 3, 3, {29, 7, 3}, false, 0},
             {2, 0, 3, 3, {16, 4, 4}, false, 2}, {1, 0, 1, 3, {16, 6, 6}, false, 1}};

typedef struct fixture {
    op_weight weights[COUNT_OF(kinds)];
    bool whole[COUNT_OF(kinds)];
    int32_t stages[COUNT_OF(kinds)][PLAN_MAX_HOLDERS];
    op_model model;
    plan_places places;
} fixture;

static void make(fixture *f, int32_t pp, int32_t dp, int32_t cp, int32_t tp, int32_t zero)
{
    memset(f, 0, sizeof(*f));
    for (int i = 0; i < COUNT_OF(kinds); i++) {
        op_weight *w = &f->weights[i];
        *w = (op_weight){.ndim = kinds[i].ndim, .columns = kinds[i].columns};
        w->part_count = kinds[i].parts;
        memset(w->cut_dim, -1, sizeof(w->cut_dim));
        w->cut_dim[AXIS_TP] = (int8_t)kinds[i].cut;
        for (int k = 0; k < w->part_count; k++) {
            w->parts[k] = (weight_part){.row_begin = w->rows, .rows = kinds[i].rows[k]};
            if (k > 0) w->parts[k].heads = kinds[i].heads;
            w->rows += kinds[i].rows[k];
        }
        f->whole[i] = kinds[i].whole;
        f->stages[i][0] = i % pp;
        f->stages[i][1] = i == 0 && pp > 1 ? pp - 1 : -1; // a table that two stages use
    }
    f->model = (op_model){.weights = f->weights, .weight_count = COUNT_OF(kinds)};
    f->places = (plan_places){
        .whole = &f->model,
        .mesh = {.size = {[AXIS_PP] = pp, [AXIS_DP] = dp, [AXIS_CP] = cp, [AXIS_TP] = tp}},
        .zero = zero,
        .whole_units = f->whole};
    if (pp > 1) f->places.stages = (const int32_t(*)[PLAN_MAX_HOLDERS])f->stages;
}

static bool holds(const plan_piece *p, int64_t columns, int64_t element)
{
    const int64_t row = element / columns, column = element % columns;
    return row >= p->row && row < p->row + p->rows && column >= p->column &&
           column < p->column + p->columns;
}

// Every element has one holder per replica, and the first holders have it once.
static void check_cover(const fixture *f, int32_t w, int part, plan_what what)
{
    const plan_places *p = &f->places;
    const int64_t ranks = plan_mesh_ranks(&p->mesh), columns = f->weights[w].columns;
    const int64_t elements = f->weights[w].parts[part].rows * columns;
    for (int64_t e = 0; e < elements; e++) {
        int64_t holders = 0, lowest = -1, chosen = -1;
        for (int64_t r = 0; r < ranks; r++) {
            const plan_piece piece = plan_piece_of(p, r, w, part, what);
            if (!holds(&piece, columns, e)) continue;
            if (lowest < 0) lowest = r;
            holders++;
        }
        for (int64_t r = plan_holder_next(p, -1, w, part, what); r >= 0;
             r = plan_holder_next(p, r, w, part, what)) {
            const plan_piece piece = plan_piece_of(p, r, w, part, what);
            if (!holds(&piece, columns, e)) continue;
            assert_int_equal(chosen, -1);
            chosen = r;
        }
        assert_int_equal(chosen, lowest);
        assert_true(chosen >= 0);
        // The axes that do not cut the part multiply its replicas.
        const plan_mesh mesh = plan_mesh_from(&p->mesh, lowest);
        int64_t replicas = 1;
        const int32_t tp = plan_mesh_size(&mesh, AXIS_TP);
        if (kinds[w].cut < 0) replicas *= tp;
        if (part > 0) replicas *= op_part_copies(kinds[w].heads, tp);
        if (p->stages != NULL && f->stages[w][1] >= 0) replicas *= 2;
        const int64_t data =
            (int64_t)plan_mesh_size(&mesh, AXIS_DP) * plan_mesh_size(&mesh, AXIS_CP);
        assert_true(holders == replicas * data || (what == PLACE_STATE && p->zero > 0));
        assert_true(holders == replicas || holders == replicas * data);
        if (plan_is_everywhere(p, w, what)) assert_int_equal(holders, ranks);
    }
}

// The pieces of a weight on a rank are one tensor without gaps.
static void check_local(const fixture *f, int64_t rank, int32_t w, plan_what what)
{
    unsigned char used[CELLS] = {0};
    int64_t total = 0;
    for (int i = 0; i < f->weights[w].part_count; i++) {
        const plan_piece p = plan_piece_of(&f->places, rank, w, i, what);
        for (int64_t k = 0; k < p.rows * p.columns; k++) {
            assert_true(p.at + k < CELLS);
            assert_int_equal(used[p.at + k]++, 0);
            total++;
        }
    }
    for (int64_t k = 0; k < total; k++) assert_int_equal(used[k], 1);
}

// Copies a tensor to its pieces, in ranges that end anywhere, and back.
static void check_round_trip(const fixture *f, int32_t w, int part, plan_what what, uint64_t seed)
{
    static int32_t locals[RANKS][CELLS];
    int32_t whole[CELLS], again[CELLS], taken[CELLS];
    const plan_places *p = &f->places;
    const int64_t columns = f->weights[w].columns;
    const int64_t elements = f->weights[w].parts[part].rows * columns;
    assert_true(elements <= CELLS && plan_mesh_ranks(&p->mesh) <= RANKS);
    memset(again, -1, sizeof(again));
    for (int64_t e = 0; e < elements; e++) whole[e] = (int32_t)e;
    for (int64_t r = 0; r < plan_mesh_ranks(&p->mesh); r++) {
        const plan_piece piece = plan_piece_of(p, r, w, part, what);
        uint64_t draw = seed + (uint64_t)r;
        for (int64_t e = 0, n = 0; e < elements; e += n) {
            draw = draw * 6364136223846793005u + 1442695040888963407u;
            n = min_i64(elements - e, 1 + (int64_t)(draw >> 33) % 19);
            const int64_t at = plan_piece_before(&piece, columns, e);
            const int64_t got =
                plan_piece_take(&piece, columns, e, n, (int64_t)sizeof(*whole), whole + e, taken);
            assert_int_equal(got, plan_piece_before(&piece, columns, e + n) - at);
            memcpy(&locals[r][piece.at + at], taken, (size_t)got * sizeof(*taken));
        }
        assert_int_equal(plan_piece_before(&piece, columns, elements), piece.rows * piece.columns);
    }
    for (int64_t r = plan_holder_next(p, -1, w, part, what); r >= 0;
         r = plan_holder_next(p, r, w, part, what)) {
        const plan_piece piece = plan_piece_of(p, r, w, part, what);
        const int64_t put = plan_piece_put(&piece, columns, 0, elements, (int64_t)sizeof(*whole),
                                           &locals[r][piece.at], again);
        assert_int_equal(put, piece.rows * piece.columns);
    }
    assert_memory_equal(whole, again, (size_t)elements * sizeof(*whole));
}

static void check_mesh(int32_t pp, int32_t dp, int32_t cp, int32_t tp, int32_t zero)
{
    fixture f;
    make(&f, pp, dp, cp, tp, zero);
    for (int32_t w = 0; w < COUNT_OF(kinds); w++) {
        for (int what = PLACE_WEIGHT; what <= PLACE_STATE; what++) {
            for (int i = 0; i < kinds[w].parts; i++) {
                check_cover(&f, w, i, (plan_what)what);
                check_round_trip(&f, w, i, (plan_what)what, (uint64_t)(w * 7 + i));
            }
            for (int64_t r = 0; r < plan_mesh_ranks(&f.places.mesh); r++) {
                check_local(&f, r, w, (plan_what)what);
            }
        }
    }
}

static void pieces_are_the_whole(void **state)
{
    (void)state;
    for (int32_t pp = 1; pp <= 3; pp++) {
        for (int32_t dp = 1; dp <= 3; dp++) {
            for (int32_t tp = 1; tp <= 4; tp++) {
                for (int32_t zero = 0; zero <= 1; zero++) check_mesh(pp, dp, 1, tp, zero);
            }
        }
    }
    check_mesh(1, 2, 2, 2, 1);
    check_mesh(2, 2, 2, 1, 0);
    check_mesh(1, 1, 3, 2, 1);
    check_mesh(2, 3, 2, 1, 1);
    check_mesh(1, 5, 1, 1, 1);
    check_mesh(1, 1, 1, 5, 0); // more ranks of tp than rows in some parts
}

// An example by hand: dp 2 x tp 2 with ZeRO; rank 3 has the last rows of q (8 x 6), k and v (4 x
// 6).
static void an_example(void **state)
{
    (void)state;
    fixture f;
    make(&f, 1, 2, 1, 2, 1);
    // Its tensor has q rows 4..7, k 2..3, v 2..3: 8 rows. The second dp rank updates the last 4.
    const plan_piece weight = plan_piece_of(&f.places, 3, 1, 1, PLACE_WEIGHT);
    assert_int_equal(weight.row, 2);
    assert_int_equal(weight.rows, 2);
    assert_int_equal(weight.columns, 6);
    assert_int_equal(weight.at, 4 * 6);
    const plan_piece none = plan_piece_of(&f.places, 3, 1, 0, PLACE_STATE);
    assert_int_equal(none.rows, 0);
    const plan_piece state_of_v = plan_piece_of(&f.places, 3, 1, 2, PLACE_STATE);
    assert_int_equal(state_of_v.row, 2);
    assert_int_equal(state_of_v.at, 2 * 6);
    // attn.out (6 x 8) is cut by columns.
    const plan_piece out = plan_piece_of(&f.places, 1, 3, 0, PLACE_WEIGHT);
    assert_int_equal(out.column, 4);
    assert_int_equal(out.columns, 4);
    assert_int_equal(plan_piece_before(&out, 8, 8 + 5), 4 + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_the_whole),
        cmocka_unit_test(an_example),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
