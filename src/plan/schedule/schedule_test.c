// Tests every schedule over a grid of sizes: lists are complete, chunks have the right stages, text
// reads back to the same schedule, an impossible request is refused with a possible choice, and
// hostile files are refused by line and rank.
#include "plan/schedule/schedule.h"
#include "plan/schedule/timeline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const timeline_costs unit = {.each = {1, 1, 1}};

static arena *fresh(void)
{
    arena *a;
    assert_int_equal(arena_create("schedule test", 0, &a), ST_OK);
    return a;
}

static void check_ok(status st)
{
    if (st != ST_OK) print_error("%s\n", error_last()->text);
    assert_int_equal(st, ST_OK);
}

typedef void (*visitor)(arena *a, const plan_schedule *s, const schedule_request *r);

// Runs over all legal rows x stages x micro-batches x chunks and returns their number.
static int visit_grid(visitor visit, int32_t stages, int32_t microbatches)
{
    int visited = 0;
    arena *a = fresh();
    for (int row = 0; plan_schedule_at(row) != NULL; row++) {
        const plan_schedule *s = plan_schedule_at(row);
        for (schedule_request r = {.stages = 1}; r.stages <= stages; r.stages++) {
            for (r.microbatches = 1; r.microbatches <= microbatches; r.microbatches++) {
                for (r.chunks = 1; r.chunks <= 4; r.chunks++) {
                    if (plan_schedule_check(s, &r) != ST_OK) continue;
                    arena_reset(a);
                    visit(a, s, &r);
                    visited++;
                }
            }
        }
    }
    arena_destroy(a);
    return visited;
}

static void one_is_whole(arena *a, const plan_schedule *s, const schedule_request *r)
{
    plan_timeline *t;
    check_ok(plan_schedule_validate(s, r, a));
    check_ok(plan_timeline_simulate(a, s, r, &unit, &t));
    int64_t parts = 0;
    for (int32_t i = 0; i < r->stages; i++) {
        const timeline_rank *rank = &t->ranks[i];
        for (int64_t k = 0; k < rank->list.count; k++) {
            const schedule_kind kind = rank->list.actions[k].kind;
            if (!s->splits_backward) {
                assert_true(kind == SCHEDULE_FORWARD || kind == SCHEDULE_BACKWARD);
            }
            if (k > 0) assert_true(rank->spans[k].begin >= rank->spans[k - 1].end);
            parts += kind == SCHEDULE_BOTH ? 3 : kind == SCHEDULE_BACKWARD ? 2 : 1;
        }
    }
    // Every stage (of both directions) has a forward and two halves of every micro-batch.
    assert_int_equal(parts, 3 * (int64_t)plan_schedule_depth(s, r) * r->microbatches);
}

static void all_lists_are_complete_and_run(void **state)
{
    (void)state;
    assert_true(visit_grid(one_is_whole, 16, 40) > 4000);
}

static void one_lies_right(arena *a, const plan_schedule *s, const schedule_request *r)
{
    (void)a;
    const int32_t depth = plan_schedule_depth(s, r);
    for (int32_t direction = 0; direction < (s->shape == SHAPE_TWO ? 2 : 1); direction++) {
        int32_t held = 0;
        for (int32_t rank = 0; rank < r->stages; rank++) {
            for (int32_t chunk = 0; chunk < r->chunks; chunk++) {
                int32_t rank_again, chunk_again;
                if (plan_schedule_direction(s, chunk) != direction) continue;
                const int32_t stage = plan_schedule_stage(s, r, rank, chunk);
                plan_schedule_holder(s, r, stage, direction, &rank_again, &chunk_again);
                assert_int_equal(rank, rank_again);
                assert_int_equal(chunk, chunk_again);
                held++;
            }
        }
        assert_int_equal(held, depth);
        // Neighbouring stages are on one rank, on neighbours, or a loop returns to the first.
        for (int32_t stage = 1; stage < depth; stage++) {
            int32_t from, to, chunk;
            plan_schedule_holder(s, r, stage - 1, direction, &from, &chunk);
            plan_schedule_holder(s, r, stage, direction, &to, &chunk);
            assert_true((to - from) * (to - from) <= 1 || (from == r->stages - 1 && to == 0));
        }
    }
    int32_t passed = 0;
    for (int32_t chunk = 0; chunk < r->chunks; chunk++) {
        int32_t first, count;
        plan_schedule_share(s, r, chunk, &first, &count);
        assert_int_equal(first, s->shape == SHAPE_TWO ? passed : 0);
        passed += count;
    }
    assert_int_equal(passed, r->microbatches * (s->shape == SHAPE_TWO ? 1 : r->chunks));
}

static void chunks_lie_where_stages_are(void **state)
{
    (void)state;
    assert_true(visit_grid(one_lies_right, 16, 32) > 3000);
}

static void one_is_read_back(arena *a, const plan_schedule *s, const schedule_request *r)
{
    text written = {.a = a}, again = {.a = a};
    const plan_schedule *read;
    check_ok(plan_schedule_print(s, r, &written));
    check_ok(plan_schedule_parse(a, s->name, written.bytes, written.length, &read));
    assert_int_equal(read->shape, s->shape);
    check_ok(plan_schedule_validate(read, r, a));
    check_ok(plan_schedule_print(read, r, &again));
    // Compare everything except the sentence in the first line.
    assert_string_equal(strchr(written.bytes, '\n'), strchr(again.bytes, '\n'));
    for (int32_t rank = 0; rank < r->stages; rank++) {
        assert_int_equal(plan_schedule_line(read, rank), 3 + rank);
        assert_int_equal(plan_schedule_line(s, rank), 0);
    }
}

static void what_is_written_can_be_read(void **state)
{
    (void)state;
    assert_true(visit_grid(one_is_read_back, 6, 16) > 300);
}

// The refusal names a number that makes the request legal.
static void refusals_name_a_choice_that_is_legal(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        schedule_request asked, better;
        const char *says;
    } cases[] = {
        {"interleaved", {4, 10, 2}, {4, 8, 2}, "(8 or 12)"},
        {"interleaved", {4, 10, 2}, {4, 12, 2}, "layout.pp=4"},
        {"interleaved", {4, 3, 2}, {4, 4, 2}, "(4)"},
        {"interleaved", {4, 8, 1}, {4, 8, 2}, "take 2, or layout.schedule=1f1b"},
        {"interleaved", {4, 8, 65}, {4, 8, 64}, "take 64"},
        {"1f1b", {4, 8, 2}, {4, 8, 1}, "layout.schedule=interleaved"},
        {"gpipe", {0, 8, 1}, {1, 8, 1}, "layout.pp: expected 1 to"},
        {"zb-h1", {4, 0, 1}, {4, 1, 1}, "expected 1 to"},
        {"zb-v", {4, 8, 1}, {4, 8, 2}, "zb-v has 2 chunks"},
        {"dualpipe", {5, 20, 2}, {4, 20, 2}, "take 4 or 6"},
        {"dualpipe", {5, 20, 2}, {6, 20, 2}, "dualpipe-v"},
        {"dualpipe", {1, 20, 2}, {2, 20, 2}, "take 2 or 2"},
        {"dualpipe", {4, 9, 2}, {4, 10, 2}, "the nearest is 10"},
        {"dualpipe", {4, 6, 2}, {4, 8, 2}, "the nearest is 8"},
        {"dualpipe-v", {4, 7, 2}, {4, 8, 2}, "the nearest is 8"},
    };
    for (int64_t i = 0; i < COUNT_OF(cases); i++) {
        const plan_schedule *s = plan_schedule_find(cases[i].name);
        assert_non_null(s);
        assert_int_not_equal(plan_schedule_check(s, &cases[i].asked), ST_OK);
        if (strstr(error_last()->text, cases[i].says) == NULL) {
            print_error("'%s' is not in: %s\n", cases[i].says, error_last()->text);
        }
        assert_non_null(strstr(error_last()->text, cases[i].says));
        check_ok(plan_schedule_check(s, &cases[i].better));
    }
    assert_null(plan_schedule_find("pipedream"));
}

// Reads and simulates the text of a file. Returns "" on success, else the error.
static const char *complaint(arena *a, const char *bytes, int32_t stages, int32_t microbatches,
                             int32_t chunks)
{
    const plan_schedule *s;
    plan_timeline *t;
    const schedule_request r = {stages, microbatches, chunks};
    error_clear();
    if (plan_schedule_parse(a, "pipe.txt", bytes, (int64_t)strlen(bytes), &s) != ST_OK ||
        plan_schedule_check(s, &r) != ST_OK || plan_schedule_validate(s, &r, a) != ST_OK ||
        plan_timeline_simulate(a, s, &r, &unit, &t) != ST_OK) {
        return error_last()->text;
    }
    return "";
}

static void files_are_refused_by_line_and_rank(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *says;
        int32_t stages, microbatches, chunks;
    } cases[] = {
        {"F0.0 B0.0 # the first\n\n  F0.0\tI0.0 W0.0\r\n", "", 2, 1, 1},
        {"shape: v\nF0.0 F1.0 B1.0 B0.0", "", 1, 1, 2},
        {"shape: two # both ways\nF0.0 F1.1 B1.1 B0.0\nF0.0 F1.1 B1.1 B0.0", "", 2, 2, 2},
        {"", "pipe.txt: no rank has a line", 1, 1, 1},
        {"# nothing\n\n", "pipe.txt: no rank has a line", 1, 1, 1},
        {"F0.0 B0.0\nF0.0 X0.0", "pipe.txt:2: rank 1, action 2: 'X0.0' is none", 2, 1, 1},
        {"F0.0 B0", "pipe.txt:1: rank 0, action 2: 'B0' is none", 1, 1, 1},
        {"F0.0 B0.", "'B0.' is none", 1, 1, 1},
        {"F0.0 B0.0.0", "'B0.0.0' is none", 1, 1, 1},
        {"F0.0 B-0.0", "'B-0.0' is none", 1, 1, 1},
        {"F0.0 \x01\x7f", "'?\?' is none", 1, 1, 1},
        {"F64.0", "'F64.0' is none", 1, 1, 1},
        {"F0.1048576", "'F0.1048576' is none", 1, 1, 1},
        {"F0.99999999999999999999", "'F0.99999999999999999999' is none", 1, 1, 1},
        {"Fyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy", "'Fyyyyyyyyyyyyyyyyyyyyyyy...' is none", 1, 2,
         1},
        {"B0.0+F0.0", "'B0.0+F0.0' is none", 1, 1, 1},
        {"F0.0+W0.0", "'F0.0+W0.0' is none", 1, 1, 1},
        {"F0.0+", "'F0.0+' is none", 1, 1, 1},
        {"shape: ring\nF0.0", "pipe.txt:1: shape 'ring': expected loop, v or two", 1, 1, 1},
        {"shape:\nF0.0", "shape '': expected", 1, 1, 1},
        {"shape: v F0.0\n", "'F0.0' after the shape", 1, 1, 1},
        {"F0.0 B0.0\nshape: v\n", "pipe.txt:2: 'shape:' stands before", 1, 1, 1},
        {"shape: v\nF0.0 B0.0", "shape v has chunks 0 and 1", 1, 1, 1},
        {"F0.0 B0.0", "layout.pp: pipe.txt lists 1 ranks, the layout has 2", 2, 1, 1},
        {"F0.0 B0.0", "pipe.txt lists 1 micro-batches", 1, 2, 1},
        {"F0.0 B0.0", "layout.vpp: pipe.txt has", 1, 1, 2},
        {"shape: two\nF0.0 F1.0 B1.0 B0.0", "half of the micro-batches in each", 1, 1, 2},
        {"shape: two\nF0.1 F1.0 B1.0 B0.1", "action 1, F0.1: this micro-batch goes the other way",
         1, 2, 2},
        {"F0.0 B0.0\nB0.0 F0.0",
         "pipe.txt:2: rank 1, action 1, B0.0: a backward without its forward", 2, 1, 1},
        {"F0.0 F0.0 B0.0", "action 2, F0.0: this has been done before", 1, 1, 1},
        {"F0.0 B0.0 I0.0", "action 3, I0.0: this has been done before", 1, 1, 1},
        {"F0.0 W0.0 I0.0", "action 2, W0.0: gradients of weights need", 1, 1, 1},
        {"F0.0 F0.1 B0.1 B0.0", "action 3, B0.1: a chunk's gradients of weights are added in", 1, 2,
         1},
        {"F0.0 F0.1 I0.1 I0.0 W0.0 W0.1", "", 1, 2, 1},
        {"F0.0 F0.1 B0.0", "pipe.txt:1: rank 0: the backward of chunk 0, micro-batch 1 is missing",
         1, 2, 1},
        {"F0.0 I0.0", "the backward of the weights (W) of chunk 0, micro-batch 0", 1, 1, 1},
        {"F0.1 B0.1", "order of micro-batches", 1, 2, 1},
        {"F0.0+B0.0", "a backward without its forward", 1, 1, 1},
        {"F0.0 F0.1+B0.0 B0.1", "", 1, 2, 1},
        {"F1.0 F0.0 B1.0 B0.0",
         "the schedule waits for itself: pipe.txt:1: rank 0, action 1, F1.0 waits for the output of 0.0 from rank 0",
         1, 1, 2},
        {"F0.0 B0.0 F0.1 B0.1\nF0.1 B0.1 F0.0 B0.0", "order of micro-batches", 2, 2, 1},
        {"F0.0 I0.0 F0.1 I0.1 W0.0 W0.1\n\nF0.1 I0.1 F0.0 I0.0 W0.0 W0.1",
         "pipe.txt:3: rank 1, action 1, F0.1 waits for the output of 0.1 from rank 0", 2, 2, 1},
        {"F0.0 I0.0 F0.1 I0.1 W0.0 W0.1\nF0.1 I0.1 F0.0 I0.0 W0.0 W0.1",
         "pipe.txt:1: rank 0, action 2, I0.0 waits for the gradient of 0.0 from rank 1", 2, 2, 1},
    };
    arena *a = fresh();
    for (int64_t i = 0; i < COUNT_OF(cases); i++) {
        const char *got =
            complaint(a, cases[i].bytes, cases[i].stages, cases[i].microbatches, cases[i].chunks);
        if (strstr(got, cases[i].says) == NULL || (cases[i].says[0] == '\0' && got[0] != '\0')) {
            print_error("case %d: '%s' is not in: %s\n", (int)i, cases[i].says, got);
            assert_non_null(strstr(got, cases[i].says));
            assert_string_equal(got, "");
        }
    }
    arena_destroy(a);
}

// Every changed byte of a good file is either refused or read as a schedule with the same limits.
static void changed_bytes_are_survived(void **state)
{
    (void)state;
    const schedule_request r = {.stages = 4, .microbatches = 8, .chunks = 2};
    arena *a = fresh(), *b = fresh();
    text good = {.a = a};
    int refused = 0, read = 0;
    check_ok(plan_schedule_print(plan_schedule_find("dualpipe-v"), &r, &good));
    static const char with[] = "0129.+FBIWX \n#\0\xff";
    for (int64_t i = 0; i < good.length; i++) {
        for (size_t j = 0; j < sizeof(with); j++) {
            const plan_schedule *s;
            plan_timeline *t;
            const char was = good.bytes[i];
            good.bytes[i] = with[j];
            arena_reset(b);
            if (plan_schedule_parse(b, "f", good.bytes, good.length, &s) == ST_OK &&
                plan_timeline_simulate(b, s, &r, &unit, &t) == ST_OK) {
                read++;
            } else {
                refused++;
            }
            good.bytes[i] = was;
        }
    }
    assert_true(refused > 1000 && read > 100);
    arena_destroy(a);
    arena_destroy(b);
}

static void file_limits_hold(void **state)
{
    (void)state;
    arena *a = fresh();
    const plan_schedule *s;
    text many = {.a = a};
    for (int i = 0; i <= SCHEDULE_MAX_STAGES; i++) check_ok(text_add(&many, "F0.0\n"));
    assert_int_equal(plan_schedule_parse(a, "f", many.bytes, many.length, &s), ST_CONFIG);
    assert_non_null(strstr(error_last()->text, "f:4097: more than 4096 lines of ranks"));
    assert_int_equal(plan_schedule_parse(a, "f", "F0.0", (int64_t)1 << 40, &s), ST_CONFIG);
    assert_non_null(strstr(error_last()->text, "bytes"));
    arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_lists_are_complete_and_run),
        cmocka_unit_test(chunks_lie_where_stages_are),
        cmocka_unit_test(what_is_written_can_be_read),
        cmocka_unit_test(refusals_name_a_choice_that_is_legal),
        cmocka_unit_test(files_are_refused_by_line_and_rank),
        cmocka_unit_test(changed_bytes_are_survived),
        cmocka_unit_test(file_limits_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
