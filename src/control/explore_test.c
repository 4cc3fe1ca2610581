// The protocol of a job explored: three ranks join, swap, take steps, agree to stop and leave,
// while ranks crash, stop for a while or are cut off.
//
//   pairs     every pair of moments at which two of three ranks crash, with the coordinator in rank
//             0 or in a launcher; by day every so many of them
//   random    any faults at any time, by seeds: EXPLORE_SEEDS (2,000)
//
// Safety is checked after each event: no rank is accused that has no fault, all ranks that stop
// stop before the same step, a swap that succeeds has the bytes of all ranks, and a rank with a
// verdict takes no further part. At the end, when no more faults come, each living rank has left,
// or knows why it cannot.
#include "fixtures/base/test_part.h"
#include "fixtures/control/job_fixture.inc"

enum { RANKS = 3, STEPS = 12, ASK_AT = 4, END_MS = 12000 };

typedef enum fault_kind { FAULT_NONE, FAULT_KILL, FAULT_STOP, FAULT_CUT, FAULT_KINDS } fault_kind;

typedef struct fault_event {
    fault_kind kind;
    int rank;
    int64_t at_ms, lasts_ms; // since the start; lasts: of a stop or a cut
} fault_event;

typedef enum app_phase { APP_JOINS, APP_SWAPS, APP_STEPS, APP_LEAVES, APP_ENDED } app_phase;

typedef struct app { // a rank's training, in short
    app_phase phase;
    int64_t step, stopped_at;
    bool has_asked;
} app;

typedef struct world {
    job j;
    app apps[RANKS];
    bool has_fault[RANKS], is_over[RANKS];
    int64_t begin;
    bool is_in_rank; // the coordinator runs in rank 0's process
    int checked[RANKS], checked_by_coordinator;
    char name[96]; // for messages
} world;

static control_key *key;

static bool is_alive(const world *w, int r)
{
    return !w->j.r[r].is_killed;
}

// Whether a fault of this rank can be the reason of what is seen of rank `seen`.
static bool is_explained(const world *w, int seen)
{
    if (seen < 0 || w->has_fault[seen]) return true;
    // Without its coordinator a rank ends, which the others may see.
    return w->is_in_rank && w->has_fault[0];
}

static void state_print(const world *w)
{
    for (int r = 0; r < RANKS; r++) {
        print_error("rank %d: state %d, phase %d, step %lld, fault %d, killed %d\n", r,
                    (int)control_member_state(w->j.r[r].m), (int)w->apps[r].phase,
                    (long long)w->apps[r].step, w->has_fault[r], w->j.r[r].is_killed);
        for (int i = 0; i < w->j.r[r].notice_count; i++) {
            print_error("    heard: %s\n", w->j.r[r].notices[i].text);
        }
    }
    for (int i = 0; i < w->j.notice_count; i++) {
        print_error("coordinator: %s\n", w->j.notices[i].text);
    }
}

static void notice_check(world *w, const control_notice *n)
{
    const bool is_verdict = n->kind == CONTROL_NOTE_VERDICT || n->kind == CONTROL_NOTE_FAILED;
    if (!is_verdict || is_explained(w, n->rank)) return;
    print_error("%s: rank %d is accused without a fault: %s\n", w->name, n->rank, n->text);
    state_print(w);
    assert_true(false);
}

static void safety_check(world *w)
{
    int64_t stop = 0;
    for (int r = 0; r < RANKS; r++) {
        for (; w->checked[r] < w->j.r[r].notice_count; w->checked[r]++) {
            // A rank that is cut off sees the others fall silent.
            if (!w->has_fault[r]) notice_check(w, &w->j.r[r].notices[w->checked[r]]);
        }
        if (w->apps[r].stopped_at == 0) continue;
        if (stop == 0) stop = w->apps[r].stopped_at;
        if (stop != w->apps[r].stopped_at) print_error("%s: two stops\n", w->name);
        assert_int_equal(w->apps[r].stopped_at, stop);
    }
    for (; w->checked_by_coordinator < w->j.notice_count; w->checked_by_coordinator++) {
        notice_check(w, &w->j.notices[w->checked_by_coordinator]);
    }
}

static void swap_check(world *w, int r)
{
    status st = ST_INTERNAL;
    const uint8_t *all = NULL;
    if (!control_member_swapped(w->j.r[r].m, &st, &all)) return;
    w->apps[r].phase = st == ST_OK ? APP_STEPS : APP_ENDED;
    for (int q = 0; q < RANKS && st == ST_OK; q++) assert_int_equal(all[q], 40 + q);
}

static void step_take(world *w, int r)
{
    app *a = &w->apps[r];
    control_member *m = w->j.r[r].m;
    control_decision due[CONTROL_AGREEMENTS];
    int64_t slowest = INT64_MAX; // collectives keep living ranks at most one step apart
    for (int q = 0; q < RANKS; q++) slowest = min_i64(slowest, w->apps[q].step);
    if (a->step > slowest || !control_member_step(m, a->step + 1, due)) return;
    a->step++;
    if (a->step == ASK_AT + r && !a->has_asked) {
        control_member_request(m, CONTROL_AGREE_STOP, 0);
        a->has_asked = true;
    }
    if (!due[CONTROL_AGREE_STOP].is_due) return;
    a->stopped_at = a->step;
    control_member_leave(m);
    a->phase = APP_LEAVES;
}

static void app_run(world *w, int r)
{
    app *a = &w->apps[r];
    job_rank *rank = &w->j.r[r];
    const uint8_t mine = (uint8_t)(40 + r);
    const control_group everyone = {.place = r, .count = RANKS};
    const control_state state = control_member_state(rank->m);
    if (rank->is_stopped || rank->is_killed || a->phase == APP_ENDED) return;
    if (state == CONTROL_OVER || state == CONTROL_LEFT) {
        a->phase = APP_ENDED;
        w->is_over[r] = state == CONTROL_OVER;
    } else if (a->phase == APP_JOINS && state == CONTROL_RUNNING) {
        a->phase =
            control_member_swap(rank->m, &everyone, &mine, 1) == ST_OK ? APP_SWAPS : APP_ENDED;
    } else if (a->phase == APP_SWAPS) {
        swap_check(w, r);
    } else if (a->phase == APP_STEPS && job_draw(&w->j, 3) > 0) {
        step_take(w, r);
    }
}

static void fault_begin(world *w, const fault_event *f)
{
    job_rank *r = &w->j.r[f->rank];
    if (r->is_killed || f->kind == FAULT_NONE) return;
    // A coordinator that ends early may still owe the others their farewell.
    const bool is_needed = w->is_in_rank && f->rank == 0;
    if (is_needed || control_member_state(r->m) != CONTROL_LEFT) w->has_fault[f->rank] = true;
    if (f->kind == FAULT_KILL) job_kill(&w->j, f->rank, job_draw(&w->j, 2) == 0);
    if (f->kind == FAULT_STOP) r->is_stopped = true;
    if (f->kind == FAULT_CUT) r->is_cut = true;
    if (w->is_in_rank && f->rank == 0) {
        w->j.is_coordinator_stopped = f->kind != FAULT_CUT;
        if (f->kind == FAULT_CUT) return;
    }
}

static void fault_end(world *w, const fault_event *f)
{
    job_rank *r = &w->j.r[f->rank];
    if (f->kind == FAULT_STOP && !r->is_killed) {
        r->is_stopped = false;
        if (w->is_in_rank && f->rank == 0) w->j.is_coordinator_stopped = false;
    }
    if (f->kind == FAULT_CUT) r->is_cut = false;
}

// A connection to a killed coordinator ends.
static void coordinator_end(world *w)
{
    const control_event closed = {.kind = CONTROL_CLOSED};
    if (!w->is_in_rank || !w->j.r[0].is_killed) return;
    for (int r = 1; r < RANKS; r++) {
        job_rank *rank = &w->j.r[r];
        if (rank->line < 0 || rank->is_stopped || rank->is_killed || rank->is_cut) continue;
        control_member_handle(rank->m, &closed, w->j.now);
        rank->line = -1;
    }
}

static bool knows(const world *w, int r)
{
    const job_rank *rank = &w->j.r[r];
    for (int i = 0; i < rank->notice_count; i++) {
        if (rank->notices[i].kind == CONTROL_NOTE_VERDICT ||
            rank->notices[i].kind == CONTROL_NOTE_FAILED)
            return true;
    }
    return w->is_over[r] || control_member_state(rank->m) == CONTROL_LEFT ||
           control_member_state(rank->m) == CONTROL_OVER;
}

static bool is_settled(const world *w)
{
    for (int r = 0; r < RANKS; r++) {
        if (is_alive(w, r) && !knows(w, r)) return false;
    }
    return true;
}

static void explore(const char *name, bool is_in_rank, uint64_t seed, const fault_event *faults,
                    int count)
{
    world w = {.is_in_rank = is_in_rank};
    bool has_begun[4] = {false}, has_ended[4] = {false};
    (void)snprintf(w.name, sizeof(w.name), "%s, seed %llu", name, (unsigned long long)seed);
    job_init(&w.j, RANKS, key, seed);
    w.j.coordinator_config.join_ns = 2000 * MS;
    w.j.coordinator_config.rank = is_in_rank ? 0 : CONTROL_COORDINATOR;
    job_start_coordinator(&w.j);
    w.begin = w.j.now;
    for (int r = 0; r < RANKS; r++) {
        control_member_config c = job_config(&w.j, r);
        (void)job_add(&w.j, &c);
    }
    bool is_done = false;
    while (!is_done && w.j.now - w.begin < END_MS * MS) {
        const int64_t ms = (w.j.now - w.begin) / MS;
        is_done = true;
        for (int i = 0; i < count; i++) {
            if (!has_begun[i] && ms >= faults[i].at_ms) {
                fault_begin(&w, &faults[i]);
                has_begun[i] = true;
            }
            const bool is_over = ms >= faults[i].at_ms + faults[i].lasts_ms;
            if (has_begun[i] && !has_ended[i] && is_over) {
                fault_end(&w, &faults[i]);
                has_ended[i] = true;
            }
            is_done = is_done && has_ended[i];
        }
        coordinator_end(&w);
        job_step(&w.j);
        for (int r = 0; r < RANKS; r++) app_run(&w, r);
        safety_check(&w);
        is_done = is_done && is_settled(&w);
    }
    if (!is_done) print_error("%s: no progress\n", w.name);
    if (!is_done) state_print(&w);
    assert_true(is_done);
    job_deinit(&w.j);
}

// Moments are 8 ms apart, from the first hello to after the last farewell of a run without faults.
static void every_pair_of_crashes(void **state)
{
    (void)state;
    enum { MOMENTS = 24, APART_MS = 8 };
    int64_t turn = 0;
    for (int in_rank = 0; in_rank < 2; in_rank++) {
        for (int a = 0; a < RANKS; a++) {
            for (int b = 0; b < RANKS; b++) {
                if (a == b) continue;
                for (int i = 0; i < MOMENTS * MOMENTS; i++) {
                    const int64_t first = i / MOMENTS, second = i % MOMENTS;
                    if (second < first ||
                        part_skips(TRIALS_PART, i, MOMENTS * MOMENTS, turn++, MOMENTS * MOMENTS)) {
                        continue;
                    }
                    const fault_event faults[] = {{FAULT_KILL, a, first * APART_MS, 0},
                                                  {FAULT_KILL, b, second * APART_MS, 0}};
                    char name[64];
                    (void)snprintf(name, sizeof(name), "%d at %d ms, %d at %d ms, in %d", a,
                                   (int)first * APART_MS, b, (int)second * APART_MS, in_rank);
                    explore(name, in_rank == 1, (uint64_t)i, faults, 2);
                }
            }
        }
    }
}

static void faults_of_any_kind(void **state)
{
    (void)state;
    const char *given = getenv("EXPLORE_SEEDS");
    const int64_t seeds = given != NULL ? strtoll(given, NULL, 10) : 2000;
    for (int64_t seed = 1; seed <= seeds; seed++) {
        fault_event faults[3];
        const int count = (int)(rng_word((uint64_t)seed, 1, 0) % 4);
        for (int i = 0; i < count; i++) {
            const uint32_t at = rng_word((uint64_t)seed, 2, (uint64_t)i) % 250;
            const uint32_t lasts = rng_word((uint64_t)seed, 3, (uint64_t)i) % 1500;
            faults[i] = (fault_event){
                .kind = (fault_kind)(rng_word((uint64_t)seed, 4, (uint64_t)i) % FAULT_KINDS),
                .rank = (int)(rng_word((uint64_t)seed, 5, (uint64_t)i) % RANKS),
                .at_ms = at,
                .lasts_ms = lasts};
        }
        explore("random", seed % 2 == 0, (uint64_t)seed, faults, count);
    }
}

static int setup(void **state)
{
    (void)state;
    key = job_key(1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    control_key_destroy(key);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_of_crashes),
        cmocka_unit_test(faults_of_any_kind),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
