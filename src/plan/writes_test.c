// Places of writes against a naive search: every action that writes the state is done when the last
// ones of all streams are, and begins after the place before them, by the plan's waits alone.
#include "fixtures/plan/verify_sample.h"
#include "plan/access.h"
#include "plan/writes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct search {
    const bool *rows;
    bool writes;
} search;

static status see(void *context, const plan_access *x)
{
    search *s = context;
    const bool is_run = x->ref != -1 && plan_ref_is_run(x->ref);
    s->writes = s->writes || (is_run && x->kind != ACCESS_READ && s->rows[plan_ref_row(x->ref)]);
    return ST_OK;
}

static bool writes(const plan *p, const plan_mesh *mesh, int32_t i, const bool *rows)
{
    search s = {.rows = rows};
    if (p->actions[i].kind == ACTION_COPY) return false;
    assert_int_equal(plan_access_each(p, mesh, &p->actions[i], see, &s), ST_OK);
    return s.writes;
}

// Marks all actions that are done before action i begins.
static void before_mark(const plan *p, int32_t i, bool *done)
{
    const plan_action *a = &p->actions[i];
    for (int32_t k = 0; k < i; k++) {
        if (p->actions[k].stream != a->stream || done[k]) continue;
        done[k] = true;
        before_mark(p, k, done);
    }
    for (int32_t k = 0; k < a->waits_count; k++) {
        const int32_t on = p->waits[a->waits_begin + k];
        if (on < 0 || done[on]) continue;
        done[on] = true;
        before_mark(p, on, done);
    }
}

static bool *state_rows(arena *a, const plan_table *run)
{
    bool *rows = NULL;
    assert_int_equal(arena_new(a, run->count + 1, &rows), ST_OK);
    for (int64_t i = 0; i < run->count; i++) {
        const plan_tensor *t = &run->tensors[i];
        const bool is_residual = strncmp(t->name, PLAN_FEEDBACK, strlen(PLAN_FEEDBACK)) == 0;
        rows[i] =
            (t->role == ROLE_WEIGHT || t->role == ROLE_STATE) && (t->weight >= 0 || is_residual);
    }
    return rows;
}

// Returns how many streams write.
static int32_t rank_check(arena *a, const sample_job *j, int32_t rank)
{
    const plan *p = j->plans[rank];
    const plan_mesh mesh = plan_mesh_from(&j->mesh, rank);
    plan_writes w;
    bool *done = NULL, *rows = state_rows(a, p->run);
    assert_int_equal(plan_writes_find(a, p, &mesh, rows, &w), ST_OK);
    assert_int_equal(arena_new(a, p->action_count + 1, &done), ST_OK);
    for (int32_t i = 0; i < p->action_count; i++) {
        const plan_action *at = &p->actions[i];
        bool is_covered = false;
        if (!writes(p, &mesh, i, rows)) continue;
        for (int32_t k = 0; k < w.count; k++) {
            is_covered = is_covered || (p->actions[w.last[k].action].stream == at->stream &&
                                        w.last[k].action >= i);
        }
        assert_true(is_covered);
        assert_true(w.before.action >= 0);
        memset(done, 0, (size_t)p->action_count);
        before_mark(p, i, done);
        assert_true(i == w.before.action || done[w.before.action]);
        assert_int_equal(p->actions[w.before.action].stream, STREAM_COMPUTE);
    }
    for (int32_t k = 0; k < w.count; k++) {
        assert_true(writes(p, &mesh, w.last[k].action, rows));
        assert_true(k == 0 || plan_place_is_before(w.last[k - 1], w.last[k]));
    }
    return w.count;
}

static void writes_are_between_their_places(void **state)
{
    (void)state;
    const struct {
        sample_settings settings;
        int32_t least; // streams of some rank
    } cases[] = {
        {{.schedule = "1f1b", .sequences = 2}, 1},
        {{.schedule = "1f1b", .dp = 2, .sequences = 4}, 1},
        {{.schedule = "1f1b", .dp = 2, .zero = 1, .sequences = 4}, 2},
        {{.schedule = "1f1b", .dp = 4, .zero = 2, .sequences = 8, .micro_batch = 1}, 2},
        {{.schedule = "1f1b", .dp = 2, .zero = 3, .sequences = 4}, 1},
        {{.schedule = "1f1b", .dp = 2, .pp = 2, .zero = 1, .sequences = 8, .micro_batch = 1}, 2},
        {{.schedule = "1f1b", .dp = 2, .compressed = true, .sequences = 4}, 2},
        {{.schedule = "1f1b", .dp = 2, .alone = true, .sequences = 4}, 0},
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        arena *a = NULL;
        sample_job j;
        int32_t most = 0;
        assert_int_equal(arena_create("writes", 0, &a), ST_OK);
        assert_int_equal(sample_make(a, &cases[i].settings, &j), ST_OK);
        for (int32_t r = 0; r < j.ranks; r++) {
            const int32_t streams = rank_check(a, &j, r);
            if (streams > most) most = streams;
        }
        assert_int_equal(most, cases[i].least);
        arena_destroy(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(writes_are_between_their_places)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
