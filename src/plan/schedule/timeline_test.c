// Compares simulated timelines with the published formulas: with those written here and, where
// ../shared exists, with the text of the formulas in its table, which the test evaluates.
#include "plan/schedule/timeline.h"

#include "fixtures/base/test_paths.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const timeline_costs unit = {.each = {1, 1, 1}};

static arena *fresh(void)
{
    arena *a;
    assert_int_equal(arena_create("timeline test", 0, &a), ST_OK);
    return a;
}

static const plan_timeline *play(arena *a, const char *name, schedule_request r,
                                 timeline_costs costs)
{
    plan_timeline *t;
    const plan_schedule *s = plan_schedule_find(name);
    assert_non_null(s);
    const status st = plan_timeline_simulate(a, s, &r, &costs, &t);
    if (st != ST_OK) print_error("%s\n", error_last()->text);
    assert_int_equal(st, ST_OK);
    return t;
}

static timeline_costs with_barrier(timeline_costs costs)
{
    costs.optimizer_barrier = true;
    return costs;
}

// ---- pictures -----------------------------------------------------------------------------------
// Draws a row per rank and a column per unit of time: F, I, W and the micro-batch, small letters
// for chunk 1 (b of a whole backward fills both of its columns).
static void row_print(const timeline_rank *rank, int64_t length, char *out)
{
    static const char letters[2][4] = {"FBIW", "fbiw"};
    memset(out, '.', (size_t)(2 * length));
    out[2 * length] = '\0';
    for (int64_t k = 0; k < rank->list.count; k++) {
        const schedule_action *x = &rank->list.actions[k];
        const timeline_span span = rank->spans[k];
        for (int64_t t = span.begin; t < span.end; t++) {
            const bool second = x->kind == SCHEDULE_BOTH && t > span.begin;
            const int32_t chunk = second ? x->chunk_b : x->chunk;
            const int32_t i = second ? x->microbatch_b : x->microbatch;
            const int kind = second                     ? SCHEDULE_BACKWARD
                             : x->kind == SCHEDULE_BOTH ? 0
                                                        : (int)x->kind;
            out[2 * t] = letters[chunk][kind];
            out[2 * t + 1] = (char)('0' + i % 10);
        }
    }
}

static void gaps_remove(char *row)
{
    char *to = row;
    for (; *row != '\0'; row++) {
        if (*row != '.') *to++ = *row;
    }
    *to = '\0';
}

// Gaps count where they must be right; a picture may draw an action later than it could begin.
static void assert_rows(const plan_timeline *t, const char *const *rows, bool with_gaps)
{
    char got[1024], want[1024];
    for (int32_t i = 0; i < t->request.stages; i++) {
        assert_int_equal(strlen(rows[i]), 2 * t->length);
        assert_true(2 * t->length < (int64_t)sizeof(got));
        row_print(&t->ranks[i], t->length, got);
        snprintf(want, sizeof(want), "%s", rows[i]);
        if (!with_gaps) {
            gaps_remove(got);
            gaps_remove(want);
        }
        assert_string_equal(got, want);
    }
}

// DualPipe-V: 4 ranks and 10 micro-batches as drawn in github.com/deepseek-ai/DualPipe, copied by
// eye; the others (arXiv:2104.04473, arXiv:2401.10241), smaller than in their sources, by hand.
static void pictures_are_as_published(void **state)
{
    (void)state;
    static const char *const dualpipe_v[] = {
        "F0F1F2F3F4F5F6f0i0w0f1i1w1f2i2w2f3F7b3b3......f4B0B0F8b4b4f5B1B1F9"
        "b5b5f6B2B2..b6b6f7B3B3..b7b7f8B4B4..b8b8f9B5B5b9b9I6W6I7W7I8W8I9W9",
        "..F0F1F2F3F4f0F5f1i0w0f2i1w1f3F6b2b2....f4B0B0F7b3b3f5B1B1F8b4b4f6"
        "B2B2F9b5b5f7B3B3..b6b6f8B4B4..b7b7f9B5B5..b8b8B6B6i9I7w9I8W7I9W8W9",
        "....F0F1F2f0F3f1F4f2i0w0f3F5b1b1..f4B0B0F6b2b2f5B1B1F7b3b3f6B2B2F8"
        "b4b4f7B3B3F9b5b5f8B4B4..b6b6f9B5B5..b7b7..B6B6b8b8I7i9I8W7I9w9W8W9",
        "......F0f0F1f1F2f2F3f3F4b0b0f4B0B0F5b1b1f5B1B1F6b2b2f6B2B2F7b3b3f7"
        "B3B3F8b4b4f8B4B4F9b5b5f9B5B5..b6b6..B6B6..b7b7B7B7i8I8i9I9w8W8w9W9"};
    static const char *const one_forward[] = {"F0F1F2........B0B0F3B1B1..B2B2..B3B3",
                                              "..F0F1....B0B0F2B1B1F3B2B2..B3B3....",
                                              "....F0B0B0F1B1B1F2B2B2F3B3B3........"};
    static const char *const h1[] = {"F0F1F2....I0W0F3I1W1I2W2I3W3", "..F0F1..I0F2I1W0F3I2W1I3W2W3",
                                     "....F0I0F1I1F2I2W0F3I3W1W2W3"};
    arena *a = fresh();
    assert_rows(play(a, "dualpipe-v", (schedule_request){4, 10, 2}, unit), dualpipe_v, false);
    assert_rows(play(a, "1f1b", (schedule_request){3, 4, 1}, unit), one_forward, true);
    assert_rows(play(a, "zb-h1", (schedule_request){3, 4, 1}, unit), h1, true);
    arena_destroy(a);
}

// ---- formulas as text ---------------------------------------------------------------------------
// Evaluates "(p-1)(T_F+T_B-T_W)": numbers, names, + - * / (a missing * counts as one), brackets.
typedef struct formula_name {
    const char *name;
    double value;
} formula_name;

typedef struct formula {
    const char *at;
    const formula_name *names; // longer ones first; ends with NULL
    bool broken;
} formula;

static double formula_sum(formula *f);

static bool formula_atom(formula *f, double *out)
{
    if (*f->at == '(') {
        f->at++;
        *out = formula_sum(f);
        if (*f->at++ != ')') f->broken = true;
        return true;
    }
    if (*f->at >= '0' && *f->at <= '9') {
        char *end;
        *out = strtod(f->at, &end);
        f->at = end;
        return true;
    }
    for (const formula_name *n = f->names; n->name != NULL; n++) {
        if (strncmp(f->at, n->name, strlen(n->name)) != 0) continue;
        f->at += strlen(n->name);
        *out = n->value;
        return true;
    }
    return false;
}

static double formula_product(formula *f)
{
    double value = 1.0, next = 0.0;
    if (!formula_atom(f, &value)) f->broken = true;
    for (;;) {
        const char sign = *f->at;
        if (sign == '*' || sign == '/') f->at++;
        if (!formula_atom(f, &next)) {
            if (sign == '*' || sign == '/') f->broken = true;
            return value;
        }
        value = sign == '/' ? value / next : value * next;
    }
}

static double formula_sum(formula *f)
{
    double value = formula_product(f);
    while (*f->at == '+' || *f->at == '-') {
        const char sign = *f->at++;
        const double next = formula_product(f);
        value = sign == '+' ? value + next : value - next;
    }
    return value;
}

// Evaluates the formula at the beginning of the text.
static double evaluate(const char *formula_text, const formula_name *names)
{
    formula f = {.at = formula_text, .names = names};
    const double value = formula_sum(&f);
    if (f.broken) print_error("cannot read the formula '%s'\n", formula_text);
    assert_false(f.broken);
    return value;
}

enum { CSV_COLUMNS = 32, CSV_CELL = 256 };
typedef struct csv {
    char *bytes;
    const char *at;
    char cell[CSV_COLUMNS][CSV_CELL];
    int count;
} csv;

// Returns false and prints why if ../shared does not exist.
static bool csv_open(csv *c, const char *name)
{
    char path[1024];
    FILE *f = fopen(test_shared(name, path), "rb");
    if (f == NULL) {
        print_message("skipped: %s is not there\n", path);
        return false;
    }
    enum { MOST = 1 << 20 };
    c->bytes = calloc(1, MOST);
    assert_non_null(c->bytes);
    assert_true(fread(c->bytes, 1, MOST - 1, f) > 0);
    (void)fclose(f);
    c->at = c->bytes;
    return true;
}

// Splits the next line into cells; quoted ones may hold commas.
static bool csv_next(csv *c)
{
    if (*c->at == '\0') return false;
    memset(c->cell, 0, sizeof(c->cell));
    c->count = 1;
    bool quoted = false;
    for (int n = 0; *c->at != '\0' && (quoted || *c->at != '\n'); c->at++) {
        if (*c->at == '"') {
            quoted = !quoted;
        } else if (*c->at == ',' && !quoted) {
            assert_true(c->count++ < CSV_COLUMNS);
            n = 0;
        } else if (*c->at != '\r') {
            assert_true(n < CSV_CELL - 1);
            c->cell[c->count - 1][n++] = *c->at;
        }
    }
    if (*c->at == '\n') c->at++;
    return true;
}

// ---- a reference simulation ---------------------------------------------------------------------
// Visits all actions until no time changes any more; every action begins as late as it must.
static int64_t dull_end(const plan_timeline *t, int32_t rank, int32_t chunk, int32_t i,
                        bool forward)
{
    const timeline_rank *k = &t->ranks[rank];
    for (int64_t a = 0; a < k->list.count; a++) {
        const schedule_action *x = &k->list.actions[a];
        const bool both = x->kind == SCHEDULE_BOTH;
        const bool f = x->kind == SCHEDULE_FORWARD || both;
        const bool b = x->kind != SCHEDULE_FORWARD && x->kind != SCHEDULE_BACKWARD_WEIGHT;
        if (forward && f && x->chunk == chunk && x->microbatch == i) return k->spans[a].end;
        if (!forward && b && (both ? x->chunk_b : x->chunk) == chunk &&
            (both ? x->microbatch_b : x->microbatch) == i) {
            return k->spans[a].end;
        }
    }
    fail_msg("not in the list");
    return 0;
}

static int64_t dull_need(const plan_timeline *t, int32_t rank, int32_t chunk, int32_t i,
                         bool forward)
{
    const plan_schedule *s = t->schedule;
    const schedule_request *r = &t->request;
    const int32_t stage = plan_schedule_stage(s, r, rank, chunk);
    int32_t holder = rank, holder_chunk = chunk;
    if (forward && stage == 0) return 0;
    if (!forward && stage == plan_schedule_depth(s, r) - 1)
        return dull_end(t, rank, chunk, i, true);
    plan_schedule_holder(s, r, forward ? stage - 1 : stage + 1, plan_schedule_direction(s, chunk),
                         &holder, &holder_chunk);
    const int64_t end = dull_end(t, holder, holder_chunk, i, forward);
    return end + (holder != rank ? t->costs.latency : 0);
}

// The times are a fixed point: each action begins exactly when the last of its dependencies ends.
static void assert_begins_right(const plan_timeline *t)
{
    for (int32_t rank = 0; rank < t->request.stages; rank++) {
        const timeline_rank *k = &t->ranks[rank];
        for (int64_t a = 0; a < k->list.count; a++) {
            const schedule_action *x = &k->list.actions[a];
            const bool both = x->kind == SCHEDULE_BOTH;
            int64_t begin = a > 0 ? k->spans[a - 1].end : 0;
            if (x->kind == SCHEDULE_FORWARD || both) {
                begin = max_i64(begin, dull_need(t, rank, x->chunk, x->microbatch, true));
            }
            if (x->kind == SCHEDULE_BACKWARD || x->kind == SCHEDULE_BACKWARD_INPUT) {
                begin = max_i64(begin, dull_need(t, rank, x->chunk, x->microbatch, false));
            }
            if (both)
                begin = max_i64(begin, dull_need(t, rank, x->chunk_b, x->microbatch_b, false));
            assert_int_equal(k->spans[a].begin, begin);
        }
    }
}

static void every_action_begins_when_it_can(void **state)
{
    (void)state;
    uint32_t seed = 7;
    arena *a = fresh();
    for (int row = 0; plan_schedule_at(row) != NULL; row++) {
        const plan_schedule *s = plan_schedule_at(row);
        for (int round = 0; round < 24; round++) {
            int64_t draw[5];
            timeline_cost stages[24];
            for (int i = 0; i < 5; i++) {
                seed = seed * 1664525u + 1013904223u;
                draw[i] = (int64_t)(seed >> 16) % 9;
            }
            const schedule_request r = {1 + round % 6, 2 * (1 + round % 6) + round / 6 * 6,
                                        s->chunks_min + (s->chunks_max > 2 ? round % 3 : 0)};
            for (int i = 0; i < 24; i++) {
                const int64_t w = 1 + (int64_t)(seed >> i) % 3;
                stages[i] = (timeline_cost){w * (1 + draw[0]), w * (1 + draw[1]), w * draw[2]};
            }
            if (plan_schedule_check(s, &r) != ST_OK) continue;
            const timeline_costs costs = {
                .stages = stages, .latency = draw[3], .hidden = draw[4] > 4 ? 1 : 0};
            arena_reset(a);
            assert_begins_right(play(a, s->name, r, costs));
        }
    }
    arena_destroy(a);
}

// ---- formulas -----------------------------------------------------------------------------------
static void plain_ones_match(arena *a, int32_t p, int32_t m, timeline_costs c)
{
    const int64_t whole = c.each.forward + c.each.backward_input + c.each.backward_weight;
    const plan_timeline *g = play(a, "gpipe", (schedule_request){p, m, 1}, c);
    const plan_timeline *t = play(a, "1f1b", (schedule_request){p, m, 1}, c);
    assert_int_equal(g->bubble, (p - 1) * whole);
    assert_int_equal(t->bubble, (p - 1) * whole);
    assert_int_equal(g->length, (m + p - 1) * whole);
    assert_int_equal(t->length, (m + p - 1) * whole);
    assert_int_equal(t->barrier, 0);
    for (int32_t rank = 0; rank < p; rank++) {
        assert_int_equal(g->ranks[rank].live_peak, m);
        assert_int_equal(t->ranks[rank].live_peak, min_i64(m, p - rank));
    }
}

static void plain_schedules_match_their_formulas(void **state)
{
    (void)state;
    static const timeline_costs costs[] = {
        {.each = {1, 1, 1}}, {.each = {3, 2, 1}}, {.each = {1, 4, 2}}, {.each = {5, 1, 0}}};
    arena *a = fresh();
    for (int64_t i = 0; i < COUNT_OF(costs); i++) {
        for (int32_t p = 1; p <= 16; p++) {
            for (int32_t m = 1; m <= 40; m++) {
                arena_reset(a);
                plain_ones_match(a, p, m, costs[i]);
                plain_ones_match(a, p, m, with_barrier(costs[i]));
            }
        }
    }
    arena_destroy(a);
}

static void interleaving_divides_the_bubble(void **state)
{
    (void)state;
    arena *a = fresh();
    for (int32_t p = 1; p <= 16; p++) {
        for (int32_t v = 2; v <= 5; v++) {
            for (int32_t m = p; m <= 5 * p; m += p) {
                const schedule_request r = {p, m, v};
                arena_reset(a);
                const plan_timeline *t = play(a, "interleaved", r, unit);
                // Times are in units of a chunk, which is a v-th of a stage.
                assert_int_equal(t->bubble, 3 * (p - 1));
                assert_int_equal(t->live_peak, min_i64((int64_t)m * v, v * p + p - 1));
                assert_int_equal(t->ranks[0].live_peak, t->live_peak);
            }
        }
    }
    arena_destroy(a);
}

static void zero_bubbles_are_as_published(void **state)
{
    (void)state;
    arena *a = fresh();
    for (int32_t p = 1; p <= 16; p++) {
        for (int32_t m = p; m <= 64; m += m < 2 * p + 4 ? 1 : 5) {
            arena_reset(a);
            const plan_timeline *h1 = play(a, "zb-h1", (schedule_request){p, m, 1}, unit);
            assert_int_equal(h1->bubble, p - 1);
            assert_int_equal(h1->barrier, 0);
            for (int32_t i = 0; i < p; i++) assert_int_equal(h1->ranks[i].live_peak, p);
            if (m < 2 * p) continue;
            const plan_timeline *h2 = play(a, "zb-h2", (schedule_request){p, m, 1}, unit);
            const plan_timeline *v = play(a, "zb-v", (schedule_request){p, m, 2}, unit);
            assert_int_equal(h2->bubble, 0);
            assert_int_equal(h2->barrier, p - 1); // the slope of its parallelogram
            assert_int_equal(v->bubble, 0);
            assert_int_equal(v->barrier, p - 1);
            for (int32_t i = 0; i < p; i++) {
                assert_int_equal(h2->ranks[i].live_peak, 2 * p - 1);
                assert_int_equal(v->ranks[i].live_peak, 2 * p); // of half the size: as 1F1B's first
            }
        }
    }
    arena_destroy(a);
}

static int64_t most_idle(const plan_timeline *t)
{
    int64_t most = 0;
    for (int32_t i = 0; i < t->request.stages; i++) most = max_i64(most, t->ranks[i].bubble);
    return most;
}

// The bubble is the mean of the ranks: with stages of unlike length, that of the idle share of all.
static void the_bubble_is_the_mean_of_the_ranks(void **state)
{
    (void)state;
    arena *a = fresh();
    static const timeline_cost stages[] = {{5, 3, 2}, {9, 9, 0}, {1, 1, 1}, {4, 0, 8}};
    const timeline_costs costs = {.stages = stages, .optimizer_barrier = true};
    const plan_timeline *t = play(a, "1f1b", (schedule_request){4, 8, 1}, costs);
    int64_t idle = 0, busy = 0, window = 0;
    for (int32_t i = 0; i < 4; i++) {
        idle += t->ranks[i].bubble;
        busy += t->ranks[i].busy;
        window = max_i64(window, t->ranks[i].end - t->ranks[i].begin);
    }
    assert_int_equal(idle, 4 * t->length - busy);
    assert_true(llabs(4 * t->bubble - idle) <= 2); // rounded
    assert_true(t->bubble < most_idle(t));
    assert_int_equal(t->barrier, t->length - window);
    arena_destroy(a);
}

// An overlapped F and B take `both`. Idle time is counted over the whole step; if the overlap saves
// no time it is the same on all ranks (else the middle one, which has a pair less, idles most).
static void dual_pipes_are_as_published(void **state)
{
    (void)state;
    arena *a = fresh();
    for (int32_t p = 1; p <= 16; p++) {
        for (int32_t m = 2 * p; m <= 4 * p; m += 2) {
            for (int64_t both = 2; both <= 3; both++) {
                timeline_costs c = with_barrier(unit);
                c.hidden = 3 - both;
                arena_reset(a);
                const plan_timeline *v = play(a, "dualpipe-v", (schedule_request){p, m, 2}, c);
                const plan_timeline *d =
                    p % 2 == 0 ? play(a, "dualpipe", (schedule_request){p, m, 2}, c) : NULL;
                assert_int_equal(most_idle(v), (p - 1) * (both + 2 - 3));
                if (d != NULL) assert_int_equal(most_idle(d), (p / 2 - 1) * (both + 2 - 3));
                for (int32_t i = 0; i < p && both == 3; i++) {
                    assert_int_equal(v->ranks[i].bubble, v->bubble);
                    if (d != NULL) assert_int_equal(d->ranks[i].bubble, d->bubble);
                }
                assert_int_equal(v->live_peak, 2 * p + 1);
                if (d != NULL) assert_int_equal(d->live_peak, p + 1);
            }
        }
    }
    arena_destroy(a);
}

// ---- the tables of ../shared --------------------------------------------------------------------
typedef struct published {
    const char *row; // in the table
    const char *schedule;
    int32_t chunks;     // of a stage: units are of a chunk
    int32_t stages_per; // of PP, ranks of ours: dualpipe-v's ranks have two stages
    const char *memory; // where the formula of the memory begins
} published;

static void row_matches(arena *a, const csv *c, const published *row, int32_t p, int32_t m)
{
    const schedule_request r = {p, m, row->chunks};
    const double v = row->chunks, per = strncmp(row->row, "Interleaved", 11) == 0 ? v : 1.0;
    const plan_timeline *t = play(a, row->schedule, r, unit);
    const formula_name names[] = {
        {"T_F", 1},     {"T_B", 1},
        {"T_W", 1},     {"M_B", row->chunks},
        {"F&B", 3},     {"PP", row->stages_per * p},
        {"p", p},       {"m", m},
        {"v", v},       {"F", per},
        {"B", 2 * per}, {"W", 1},
        {"L", p * v},   {NULL, 0},
    };
    const char *bubble = c->cell[1], *share = c->cell[2], *memory = strstr(c->cell[3], row->memory);
    if (bubble[0] != '\0') {
        assert_true(evaluate(bubble, names) == (double)t->bubble);
    } else {
        assert_string_equal(share, "0"); // ZB-V
        assert_int_equal(t->bubble, 0);
    }
    if (share[0] == '(') {
        // The share is of the whole step.
        const double all = (double)(t->ranks[0].busy + t->bubble);
        const double difference = evaluate(share, names) - (double)t->bubble / all;
        assert_true(difference < 1e-12 && difference > -1e-12);
    }
    assert_non_null(memory);
    assert_true(evaluate(memory, names) == (double)t->live_peak);
}

static void the_table_of_formulas_matches(void **state)
{
    (void)state;
    static const published rows[] = {
        {"GPipe", "gpipe", 1, 1, "m micro"},
        {"1F1B", "1f1b", 1, 1, "p micro"},
        {"Interleaved 1F1B, v chunks", "interleaved", 2, 1, "L*"},
        {"Interleaved 1F1B, v chunks", "interleaved", 3, 1, "L*"},
        {"ZB-H1", "zb-h1", 1, 1, "(p*M_B)"},
        {"ZB-H2", "zb-h2", 1, 1, "(2p-1)"},
        {"ZB-V", "zb-v", 2, 1, "(p*M_B)"},
        {"DualPipe", "dualpipe", 2, 1, "PP+1"},
        {"DualPipe", "dualpipe-v", 2, 2, "PP+1"},
    };
    csv c;
    if (!csv_open(&c, "validation/schedule_formulas.csv")) skip();
    arena *a = fresh();
    int matched = 0;
    while (csv_next(&c)) {
        for (int64_t i = 0; i < COUNT_OF(rows); i++) {
            if (strcmp(c.cell[0], rows[i].row) != 0) continue;
            for (int32_t p = 2; p <= 16; p += 2) {
                for (int32_t m = 2 * p; m <= 4 * p; m += p) {
                    arena_reset(a);
                    row_matches(a, &c, &rows[i], p, m);
                }
            }
            matched++;
        }
    }
    assert_int_equal(matched, COUNT_OF(rows));
    arena_destroy(a);
    free(c.bytes);
}

static double simulated_share(arena *a, const char *schedule, int32_t p, int32_t m)
{
    const plan_timeline *t = play(a, schedule, (schedule_request){p, m, 1}, unit);
    return (double)t->bubble / (double)(t->ranks[0].busy + t->bubble);
}

// The rates in the table come from profiled times that it does not have. The test compares the
// share of 1F1B with equal times, from its notes, and the order of the schedules.
static void the_zero_bubble_tables_match(void **state)
{
    (void)state;
    static const char *const ours[][2] = {{"1F1B", "1f1b"}, {"ZB-H1", "zb-h1"}, {"ZB-H2", "zb-h2"}};
    enum { ROWS = 256, PP = 9, MICROBATCHES = 13, SCHEDULE = 14, RATE = 20, NOTES = 22 };
    static struct {
        char model[16];
        int32_t p, m;
        double rate, share;
    } seen[ROWS];
    csv c;
    int count = 0, shares = 0, pairs = 0;
    if (!csv_open(&c, "validation/zero_bubble_tables.csv")) skip();
    arena *a = fresh();
    while (csv_next(&c)) {
        const char *note = strstr(c.cell[NOTES], "(p-1)/(m+p-1) = ");
        const int32_t p = (int32_t)strtol(c.cell[PP], NULL, 10);
        const int32_t m = (int32_t)strtol(c.cell[MICROBATCHES], NULL, 10);
        if (note == NULL) continue;
        char share[16];
        arena_reset(a);
        snprintf(share, sizeof(share), "%.4f", simulated_share(a, "1f1b", p, m));
        assert_int_equal(strncmp(note + strlen("(p-1)/(m+p-1) = "), share, 6), 0);
        shares++;
        for (int64_t i = 0; i < COUNT_OF(ours) && c.cell[RATE][0] != '\0'; i++) {
            if (strcmp(c.cell[SCHEDULE], ours[i][0]) != 0) continue;
            assert_true(count < ROWS);
            snprintf(seen[count].model, sizeof(seen[count].model), "%.15s", c.cell[1]);
            seen[count].p = p;
            seen[count].m = m;
            seen[count].rate = strtod(c.cell[RATE], NULL);
            seen[count++].share = simulated_share(a, ours[i][1], p, m);
        }
    }
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < i; j++) {
            if (strcmp(seen[i].model, seen[j].model) != 0) continue;
            if (seen[i].p != seen[j].p || seen[i].m != seen[j].m) continue;
            if (seen[i].share < seen[j].share) assert_true(seen[i].rate < seen[j].rate);
            if (seen[i].share > seen[j].share) assert_true(seen[i].rate > seen[j].rate);
            pairs++;
        }
    }
    assert_true(shares > 40 && pairs > 10);
    arena_destroy(a);
    free(c.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_are_as_published),
        cmocka_unit_test(every_action_begins_when_it_can),
        cmocka_unit_test(plain_schedules_match_their_formulas),
        cmocka_unit_test(interleaving_divides_the_bubble),
        cmocka_unit_test(the_bubble_is_the_mean_of_the_ranks),
        cmocka_unit_test(zero_bubbles_are_as_published),
        cmocka_unit_test(dual_pipes_are_as_published),
        cmocka_unit_test(the_table_of_formulas_matches),
        cmocka_unit_test(the_zero_bubble_tables_match),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
