// Buffers at stage boundaries: tensors that share a buffer are never live at the same time in the
// simulation, and there are few buffers.
#include "plan/lower/boundary.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { UNIT = 2, TRANSFER = 4 }; // durations of a forward and of a transfer

typedef struct grid {
    const char *name;
    int32_t chunks;
} grid;
static const grid schedules[] = {{"gpipe", 1},       {"1f1b", 1},     {"interleaved", 2},
                                 {"interleaved", 3}, {"zb-h1", 1},    {"zb-h2", 1},
                                 {"zb-v", 2},        {"dualpipe", 2}, {"dualpipe-v", 2}};

typedef struct sample {
    arena *a;
    const plan_schedule *s;
    schedule_request r;
    schedule_list *lists;
    boundary_timelines times;
} sample;

// False: the schedule does not support these numbers.
static bool sample_open(sample *x, const grid *g, int32_t stages, int32_t microbatches)
{
    *x = (sample){.s = plan_schedule_find(g->name),
                  .r = {.stages = stages, .microbatches = microbatches, .chunks = g->chunks}};
    assert_non_null(x->s);
    if (plan_schedule_check(x->s, &x->r) != ST_OK) return false;
    assert_int_equal(arena_create("boundary test", 0, &x->a), ST_OK);
    assert_int_equal(arena_new(x->a, stages, &x->lists), ST_OK);
    for (int32_t i = 0; i < stages; i++) {
        assert_int_equal(plan_schedule_emit(x->s, &x->r, i, x->a, &x->lists[i]), ST_OK);
    }
    assert_int_equal(plan_boundary_simulate(x->a, x->s, &x->r, x->lists, false, &x->times), ST_OK);
    return true;
}

static int32_t buffers_of(const sample *x, int32_t rank, plan_boundary_buffers *out)
{
    assert_int_equal(plan_boundary_assign(x->a, &x->times, rank, NULL, out), ST_OK);
    return out->count;
}

// The interval in which one tensor needs its bytes, from a separate simulation.
typedef struct need {
    int64_t begin, end;
    int32_t buffer;
} need;

static void need_add(need *all, int64_t *count, const plan_boundary_buffers *b, boundary_kind kind,
                     int64_t at, timeline_span span)
{
    const int32_t buffer = b->buffer[kind][at];
    if (buffer >= 0) all[(*count)++] = (need){span.begin, span.end, buffer};
}

// Tensors of a chunk and micro-batch of one rank, for lists without combined forward and backward
// actions.
static int64_t needs_of(const sample *x, const plan_timeline *t, int32_t rank,
                        const plan_boundary_buffers *b, need *all)
{
    const timeline_rank *mine = &t->ranks[rank];
    const int64_t m = x->r.microbatches;
    int64_t count = 0;
    for (int64_t i = 0; i < mine->list.count; i++) {
        const schedule_action *f = &mine->list.actions[i];
        const int64_t at = f->chunk * m + f->microbatch;
        const int64_t stage = plan_schedule_stage(x->s, &x->r, rank, f->chunk);
        timeline_span input = {0, 0}, done = {0, 0};
        if (f->kind != SCHEDULE_FORWARD) continue;
        for (int64_t k = i; k < mine->list.count; k++) {
            const schedule_action *y = &mine->list.actions[k];
            if (y->chunk != f->chunk || y->microbatch != f->microbatch) continue;
            if (y->kind == SCHEDULE_BACKWARD || y->kind == SCHEDULE_BACKWARD_INPUT) {
                input = mine->spans[k];
            }
            done = mine->spans[k];
        }
        const timeline_span made = mine->spans[i];
        need_add(all, &count, b, BOUNDARY_OUT, at,
                 (timeline_span){made.begin, made.end + TRANSFER});
        need_add(all, &count, b, BOUNDARY_D_IN, at,
                 (timeline_span){input.begin, input.end + TRANSFER});
        if (b->buffer[BOUNDARY_IN][at] >= 0) {
            const int64_t came = t->output[(stage - 1) * m + f->microbatch];
            need_add(all, &count, b, BOUNDARY_IN, at, (timeline_span){came, done.end});
        }
        if (b->buffer[BOUNDARY_D_OUT][at] >= 0) {
            const int64_t came = t->gradient[(stage + 1) * m + f->microbatch];
            need_add(all, &count, b, BOUNDARY_D_OUT, at,
                     (timeline_span){came - TRANSFER, done.end});
        }
    }
    return count;
}

static void who_shares_a_buffer_is_not_there_at_once(void **state)
{
    (void)state;
    int64_t shared = 0;
    for (int64_t i = 0; i < COUNT_OF(schedules); i++) {
        for (int32_t stages = 2; stages <= 6; stages++) {
            sample x;
            if (strcmp(schedules[i].name, "dualpipe") == 0) continue; // its actions are combined
            if (strcmp(schedules[i].name, "dualpipe-v") == 0) continue;
            if (!sample_open(&x, &schedules[i], stages, 4 * stages)) continue;
            const timeline_costs costs = {.each = {UNIT, UNIT, UNIT}};
            const int64_t items = 4LL * x.r.chunks * x.r.microbatches;
            plan_timeline *t = NULL;
            need *all = NULL;
            assert_int_equal(plan_timeline_simulate(x.a, x.s, &x.r, &costs, &t), ST_OK);
            assert_int_equal(arena_new(x.a, items, &all), ST_OK);
            for (int32_t rank = 0; rank < stages; rank++) {
                plan_boundary_buffers b;
                (void)buffers_of(&x, rank, &b);
                const int64_t count = needs_of(&x, t, rank, &b, all);
                assert_true(count > 0);
                for (int64_t p = 0; p < count; p++) {
                    for (int64_t q = 0; q < p; q++) {
                        if (all[p].buffer != all[q].buffer) continue;
                        assert_true(all[p].begin >= all[q].end || all[q].begin >= all[p].end);
                        shared++;
                    }
                }
            }
            arena_destroy(x.a);
        }
    }
    assert_true(shared > 1000);
}

// Two buffers for each micro-batch in flight (some only wait for their weight gradients), and a few
// for transfers: not four for each, and no more for more micro-batches.
static void there_are_few(void **state)
{
    (void)state;
    enum { ON_THEIR_WAY = 8 };
    for (int64_t i = 0; i < COUNT_OF(schedules); i++) {
        if (strcmp(schedules[i].name, "gpipe") == 0) continue; // all micro-batches are in flight
        // Four if only tensors of the same boundary share.
        const int32_t each = plan_schedule_find(schedules[i].name)->shape != SHAPE_LOOP ? 4 : 2;
        for (int32_t stages = 4; stages <= 16; stages *= 2) {
            int32_t before[16] = {0};
            for (int32_t turn = 0; turn < 2; turn++) {
                sample x;
                if (!sample_open(&x, &schedules[i], stages, (8 + 8 * turn) * stages)) continue;
                for (int32_t rank = 0; rank < stages; rank++) {
                    plan_boundary_buffers b;
                    const int32_t count = buffers_of(&x, rank, &b);
                    const int32_t live = x.times.timelines[0]->ranks[rank].live_peak;
                    if (count > each * live + ON_THEIR_WAY) {
                        print_error("%s, rank %d of %d: %d buffers, %d in flight\n",
                                    schedules[i].name, (int)rank, (int)stages, (int)count,
                                    (int)live);
                    }
                    assert_true(count <= each * live + ON_THEIR_WAY);
                    if (turn > 0) assert_int_equal(count, before[rank]);
                    before[rank] = count;
                }
                arena_destroy(x.a);
            }
        }
    }
}

// The verifier reports deadlocks; for lists with one, each tensor has its own buffer.
static void a_circle_shares_nothing(void **state)
{
    (void)state;
    static const char lists[] = "B0.0 F0.0 F0.1 B0.1\nF0.1 B0.1 F0.0 B0.0\n";
    arena *a = NULL;
    sample x = {.r = {.stages = 2, .microbatches = 2, .chunks = 1}};
    plan_boundary_buffers b;
    assert_int_equal(arena_create("boundary test", 0, &a), ST_OK);
    x.a = a;
    assert_int_equal(plan_schedule_parse(a, "circle", lists, (int64_t)strlen(lists), &x.s), ST_OK);
    assert_int_equal(arena_new(a, 2, &x.lists), ST_OK);
    for (int32_t i = 0; i < 2; i++) {
        assert_int_equal(plan_schedule_emit(x.s, &x.r, i, a, &x.lists[i]), ST_OK);
    }
    assert_int_equal(plan_boundary_simulate(a, x.s, &x.r, x.lists, false, &x.times), ST_OK);
    assert_int_equal(buffers_of(&x, 0, &b), 4); // two outputs and their gradients
    arena_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_shares_a_buffer_is_not_there_at_once),
        cmocka_unit_test(there_are_few),
        cmocka_unit_test(a_circle_shares_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
