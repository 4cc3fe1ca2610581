// Tests the verdicts as a table: the observed behaviour of a few ranks, and the rank to blame.
#include "control/failure_detector.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 4, ROWS_MAX = 4 };
static const int64_t MS = 1000000;

// The behaviour of one rank.
typedef enum doing {
    GOES,    // its counter advances
    STANDS,  // it sends heartbeats, its counter stands still
    WAITS,   // the same, and it waits for `on`
    SILENT,  // no beat for a second
    STALLED, // no beat for half a second
    STARVED, // no beat for a second, and the kernel says that it runs
    ABSENT,  // the same for twelve seconds
    GONE,    // its process ended
    LEFT,    // it is done
    UNTIMED, // its counter stands still, and it reported no step time to check against
} doing;

typedef struct seat {
    doing what;
    int on;             // of WAITS
    uint64_t operation; // of WAITS
    int machine;
} seat;

// clang-format off
#define IS(word)              {.what = (word)}
#define ELSEWHERE(word)       {.what = (word), .machine = 1}
#define FOR(rank, number)     {.what = WAITS, .on = (rank), .operation = (number)}
// clang-format on

typedef struct row {
    const char *name;
    seat seats[RANKS];
    int rank; // the rank to blame; -1: none
    control_verdict verdict;
    const char *text;
} row;

static const row rows[] = {
    {"all is well", {IS(GOES), IS(GOES), IS(GOES), IS(GOES)}, -1, CONTROL_FINE, ""},
    {"killed", {IS(GOES), IS(GONE), IS(GOES), IS(GOES)}, 1, CONTROL_DEAD, "rank 1 (n1) is dead"},
    {"killed, others wait for it",
     {FOR(1, 7), IS(GONE), FOR(1, 7), FOR(1, 7)},
     1,
     CONTROL_DEAD,
     "in step 5"},
    {"stopped",
     {IS(GOES), IS(GOES), IS(SILENT), IS(GOES)},
     2,
     CONTROL_STOPPED,
     "its machine answers"},
    {"a stall of half a second", {IS(GOES), IS(GOES), IS(STALLED), IS(GOES)}, -1, CONTROL_FINE, ""},
    {"starved by others of its machine",
     {FOR(2, 7), FOR(2, 7), IS(STARVED), FOR(2, 7)},
     -1,
     CONTROL_FINE,
     ""},
    {"silent for longer than others can starve it",
     {IS(GOES), IS(GOES), IS(ABSENT), IS(GOES)},
     2,
     CONTROL_STOPPED,
     "silent for 12.0 s"},
    {"stopped, the others wait",
     {FOR(2, 7), FOR(2, 7), IS(SILENT), FOR(2, 7)},
     2,
     CONTROL_STOPPED,
     "silent for 1.0 s"},
    {"stopped on a machine whose other rank beats",
     {IS(GOES), IS(GOES), ELSEWHERE(SILENT), ELSEWHERE(GOES)},
     2,
     CONTROL_STOPPED,
     "rank 2"},
    {"a machine that is silent altogether",
     {IS(GOES), IS(GOES), ELSEWHERE(SILENT), ELSEWHERE(SILENT)},
     2,
     CONTROL_DEAD,
     "its whole machine"},
    {"a busy loop",
     {FOR(3, 9), FOR(3, 9), FOR(3, 9), IS(STANDS)},
     3,
     CONTROL_STUCK,
     "rank 3 (n3) is stuck: no progress for 5.0 s in step 5, reading x; 3 ranks wait for it in #9"},
    {"a chain of waits ends at the stuck one",
     {FOR(1, 9), FOR(2, 8), FOR(3, 7), IS(STANDS)},
     3,
     CONTROL_STUCK,
     "1 rank waits"},
    {"all wait for one that computes",
     {FOR(3, 9), FOR(3, 9), FOR(3, 9), IS(GOES)},
     -1,
     CONTROL_FINE,
     ""},
    {"all wait for one that may stand",
     {FOR(3, 9), FOR(3, 9), FOR(3, 9), IS(UNTIMED)},
     -1,
     CONTROL_FINE,
     ""},
    {"two wait for each other",
     {IS(GOES), FOR(2, 4), FOR(1, 6), IS(GOES)},
     1,
     CONTROL_DEADLOCKED,
     "rank 1 (n1) waits for #4 of rank 2, which is past it"},
    {"a ring",
     {FOR(3, 4), FOR(0, 4), FOR(1, 4), FOR(2, 4)},
     0,
     CONTROL_DEADLOCKED,
     "4 ranks are deadlocked: rank 0 (n0) waits for #4 of rank 3; rank 3"},
    {"a ring behind which another waits",
     {FOR(1, 4), FOR(2, 4), FOR(1, 4), IS(GOES)},
     1,
     CONTROL_DEADLOCKED,
     "2 ranks"},
    {"a ring and a stuck rank: that one is to blame",
     {FOR(1, 4), FOR(0, 4), IS(STANDS), IS(GOES)},
     2,
     CONTROL_STUCK,
     "rank 2"},
    {"a wait for one that has left",
     {FOR(1, 4), IS(LEFT), IS(GOES), IS(GOES)},
     0,
     CONTROL_DEADLOCKED,
     "rank 1, which has left"},
    {"ranks that left raise no suspicion",
     {IS(LEFT), IS(LEFT), IS(LEFT), IS(GOES)},
     -1,
     CONTROL_FINE,
     ""},
    {"a wait for oneself",
     {FOR(0, 4), IS(GOES), IS(GOES), IS(GOES)},
     0,
     CONTROL_DEADLOCKED,
     "1 rank"},
};

static const int64_t now = 100000 * INT64_C(1000000);
static const char *const names[RANKS] = {"n0", "n1", "n2", "n3"};

static void seat_down(const row *r, control_seen seen[RANKS])
{
    memset(seen, 0, RANKS * sizeof(*seen));
    for (int i = 0; i < RANKS; i++) {
        const seat *s = &r->seats[i];
        const bool stands = s->what == STANDS || s->what == WAITS || s->what == UNTIMED;
        const bool is_running = s->what == STARVED || s->what == ABSENT;
        const int64_t silent = s->what == SILENT || s->what == STARVED ? 1000 * MS
                               : s->what == ABSENT                     ? 12000 * MS
                               : s->what == STALLED                    ? 600 * MS
                                                                       : 50 * MS;
        seen[i] = (control_seen){
            .is_here = s->what != LEFT,
            .is_gone = s->what == GONE,
            .is_running = is_running,
            .heard_at = now - silent,
            .moved_at = now - (stands ? 5000 * MS : silent),
            .machine = (uint64_t)(s->machine + 1),
            .host = names[i],
            .report = {.step = 5,
                       .counter = 10,
                       .step_ns = s->what == UNTIMED ? 0 : 100 * MS,
                       .edge_count = s->what == WAITS ? 1 : 0,
                       .edges = {{.rank = s->on, .group = 2, .operation = s->operation}},
                       .doing = "reading x"},
        };
    }
}

static void test_table(void **state)
{
    (void)state;
    control_limits limits = {0};
    control_limits_complete(&limits);
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        control_seen seen[RANKS];
        control_finding found[ROWS_MAX];
        seat_down(&rows[i], seen);
        const int count = control_detect_failures(seen, RANKS, 1, now, 0, &limits, found, ROWS_MAX);
        if (rows[i].rank < 0) {
            if (count != 0) print_message("%s: %s\n", rows[i].name, found[0].text);
            assert_int_equal(count, 0);
            continue;
        }
        if (count == 0) print_message("%s\n", rows[i].name);
        assert_true(count >= 1);
        if (strstr(found[0].text, rows[i].text) == NULL) {
            print_message("%s: %s\n", rows[i].name, found[0].text);
        }
        assert_int_equal(found[0].rank, rows[i].rank);
        assert_int_equal(found[0].verdict, rows[i].verdict);
        assert_non_null(strstr(found[0].text, rows[i].text));
    }
}

// A late failure detector excuses silence and idle counters for the time that it lost.
static void test_late_detector(void **state)
{
    (void)state;
    control_limits limits = {0};
    control_limits_complete(&limits);
    control_seen seen[RANKS];
    control_finding found[ROWS_MAX];
    const row silent = {"", {IS(SILENT), IS(SILENT), IS(STANDS), IS(GOES)}, 0, CONTROL_FINE, ""};
    seat_down(&silent, seen);
    assert_int_equal(
        control_detect_failures(seen, RANKS, 1, now, 5000 * MS, &limits, found, ROWS_MAX), 0);
    assert_int_equal(control_detect_failures(seen, RANKS, 1, now, 0, &limits, found, ROWS_MAX), 2);
    // If there are more findings than the capacity, the first ones are returned.
    assert_int_equal(control_detect_failures(seen, RANKS, 1, now, 0, &limits, found, 1), 1);
}

// A long usual step raises the limit for all ranks: 3 steps and half a second.
static void test_stuck_limit(void **state)
{
    (void)state;
    control_limits limits = {0};
    control_limits_complete(&limits);
    control_seen seen[RANKS];
    control_finding found[ROWS_MAX];
    const row one = {"", {IS(GOES), IS(GOES), IS(STANDS), IS(GOES)}, 0, CONTROL_FINE, ""};
    for (int64_t stood = 100 * MS; stood < 5000 * MS; stood += 100 * MS) {
        seat_down(&one, seen);
        for (int r = 0; r < RANKS; r++) seen[r].report.step_ns = 1000 * MS;
        seen[2].moved_at = now - stood;
        assert_int_equal(control_detect_failures(seen, RANKS, 1, now, 0, &limits, found, ROWS_MAX),
                         stood > 3500 * MS);
    }
}

static void test_slow(void **state)
{
    (void)state;
    control_limits limits = {0};
    control_limits_complete(&limits);
    control_seen seen[RANKS];
    control_finding found[ROWS_MAX];
    const row fine = {"", {IS(GOES), IS(GOES), IS(GOES), IS(GOES)}, 0, CONTROL_FINE, ""};
    seat_down(&fine, seen);
    int told = 0;
    for (int64_t step = 6; step < 30; step++) {
        for (int r = 0; r < RANKS; r++) {
            seen[r].report.step = step;
            // Rank 1 is slow now and then, rank 2 always; rank 3 takes no part in the comparison.
            const bool is_slow = (r == 1 && step % 4 == 0) || r == 2;
            seen[r].report.own_ns = r == 3 ? 0 : is_slow ? 120 * MS : 100 * MS + r * MS;
        }
        for (int again = 0; again < 3; again++) { // a step is checked once
            const int count =
                control_detect_failures(seen, RANKS, 1, now, 0, &limits, found, ROWS_MAX);
            if (count == 0) continue;
            told++;
            assert_int_equal(found[0].rank, 2);
            assert_int_equal(found[0].verdict, CONTROL_SLOW);
            assert_true(step <= 11); // within 5 steps
        }
    }
    assert_int_equal(told, 1);
}

static void test_diverged(void **state)
{
    (void)state;
    control_seen seen[RANKS] = {0};
    control_history h = {0};
    control_finding f;
    for (int r = 0; r < RANKS; r++) seen[r].host = names[r];
    for (uint64_t sequence = 1; sequence < 200; sequence++) {
        for (int r = 0; r < RANKS; r++) {
            const bool is_odd = sequence == 150 && r == 2;
            const control_report report = {.sequence = sequence,
                                           .fingerprint = sequence * 3 + (is_odd ? 1 : 0)};
            control_history_add(&h, r, &report, now);
            const bool found = control_history_check(&h, seen, RANKS, now, &f);
            assert_int_equal(found, sequence == 150 && r == 3);
            if (found) {
                assert_int_equal(f.rank, 2);
                assert_int_equal(f.verdict, CONTROL_DIVERGED);
                assert_non_null(strstr(f.text, "ranks differ at #150: rank 2 (n2)"));
            }
        }
    }
    // Two ranks differ and the others report nothing: the difference is still reported after a
    // while.
    const control_report a = {.sequence = 300, .fingerprint = 1};
    const control_report b = {.sequence = 300, .fingerprint = 2};
    control_history_add(&h, 1, &a, now);
    control_history_add(&h, 3, &b, now);
    assert_false(control_history_check(&h, seen, RANKS, now + 100 * MS, &f));
    assert_true(control_history_check(&h, seen, RANKS, now + 400 * MS, &f));
    assert_int_equal(f.rank, 3);
}

// Edges come from outside: they may name any rank and form any graph.
static void test_hostile_edges(void **state)
{
    (void)state;
    control_limits limits = {0};
    control_limits_complete(&limits);
    control_seen seen[RANKS];
    control_finding found[ROWS_MAX];
    uint32_t draw = 1;
    for (int n = 0; n < 20000; n++) {
        const row all = {"", {IS(WAITS), IS(WAITS), IS(WAITS), IS(WAITS)}, 0, CONTROL_FINE, ""};
        seat_down(&all, seen);
        for (int r = 0; r < RANKS; r++) {
            draw = draw * 1664525 + 1013904223;
            seen[r].report.edge_count = (int)(draw >> 28) % (CONTROL_EDGES_MAX + 1);
            for (int e = 0; e < seen[r].report.edge_count; e++) {
                draw = draw * 1664525 + 1013904223;
                seen[r].report.edges[e].rank = (int)(draw >> 29) - 2;
            }
        }
        assert_in_range(control_detect_failures(seen, RANKS, 1, now, 0, &limits, found, ROWS_MAX),
                        0, ROWS_MAX);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),       cmocka_unit_test(test_late_detector),
        cmocka_unit_test(test_stuck_limit), cmocka_unit_test(test_slow),
        cmocka_unit_test(test_diverged),    cmocka_unit_test(test_hostile_edges),
    };
    return cmocka_run_group_tests_name("control/failure_detector", tests, NULL, NULL);
}
