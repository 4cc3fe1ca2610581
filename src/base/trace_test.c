// The trace ring: order, overwriting, and with threads that the reader takes every record whole or
// counts it as dropped.
#include "base/trace.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

#include <cmocka.h>

static void span(trace_ring *t, int64_t i)
{
    const trace_record r = {.kind = TRACE_SPAN,
                            .stream = 3,
                            .step = (int32_t)i,
                            .microbatch = -1,
                            .layer = 7,
                            .begin_ns = i,
                            .end_ns = i * 2,
                            .value = (double)i,
                            .name = "matmul"};
    trace_put(t, &r);
}

static void records_come_in_order(void **state)
{
    (void)state;
    trace_ring *t;
    trace_record r[8];
    assert_int_equal(trace_create(host_real(), 8, &t), ST_OK);
    assert_int_equal(trace_take(t, r, 8), 0);
    int64_t next = 0;
    for (int64_t i = 0; i < 1000; i++) {
        span(t, i);
        if (i % 3 != 0) continue;
        for (int64_t n; (n = trace_take(t, r, 2)) > 0;) {
            for (int64_t k = 0; k < n; k++, next++) {
                assert_int_equal(r[k].begin_ns, next);
                assert_int_equal(r[k].stream, 3);
                assert_int_equal(r[k].layer, 7);
                assert_string_equal(r[k].name, "matmul");
                assert_string_equal(r[k].text, "");
            }
        }
    }
    assert_int_equal(next, 1000);
    assert_int_equal(trace_dropped(t), 0);
    trace_destroy(t);
}

static void a_full_ring_drops_the_oldest(void **state)
{
    (void)state;
    trace_ring *t;
    trace_record r[32];
    assert_int_equal(trace_create(host_real(), 16, &t), ST_OK);
    for (int64_t i = 0; i < 100; i++) span(t, i);
    assert_int_equal(trace_dropped(t), 84); // before the first read
    assert_int_equal(trace_take(t, r, 32), 16);
    for (int64_t k = 0; k < 16; k++) assert_int_equal(r[k].begin_ns, 84 + k);
    assert_int_equal(trace_dropped(t), 84);
    assert_int_equal(trace_take(t, r, 32), 0);
    trace_destroy(t);
}

static void notes_are_formatted_and_cut(void **state)
{
    (void)state;
    trace_ring *t;
    trace_record r[2];
    char longest[400];
    memset(longest, 'x', sizeof(longest));
    longest[399] = '\0';
    assert_int_equal(trace_create(host_real(), 4, &t), ST_OK);
    trace_note(t, LOG_WARN, "rank %d is slow", 3);
    trace_note(t, LOG_INFO, "%s", longest);
    assert_int_equal(trace_take(t, r, 2), 2);
    assert_int_equal(r[0].kind, TRACE_NOTE);
    assert_int_equal(r[0].level, LOG_WARN);
    assert_string_equal(r[0].text, "rank 3 is slow");
    assert_true(r[0].begin_ns > 0);
    assert_int_equal(strlen(r[1].text), TRACE_TEXT_BYTES - 1);
    assert_string_equal(r[1].text + TRACE_TEXT_BYTES - 4, "...");
    trace_destroy(t);
}

static void no_ring_is_legal(void **state)
{
    (void)state;
    trace_record r;
    trace_put(NULL, &(trace_record){.kind = TRACE_SPAN});
    trace_note(NULL, LOG_INFO, "x");
    assert_int_equal(trace_take(NULL, &r, 1), 0);
    assert_int_equal(trace_dropped(NULL), 0);
    trace_destroy(NULL);
}

enum { WRITERS = 4, RECORDS = 20000 };

typedef struct writer {
    trace_ring *t;
    int32_t id;
    atomic_int *running;
} writer;

// All fields hold the same value, so a torn record shows.
static void *write_many(void *argument)
{
    const writer *w = argument;
    for (int32_t i = 1; i <= RECORDS; i++) {
        const bool is_note = i % 4 == 0;
        trace_record r = {.kind = is_note ? TRACE_NOTE : TRACE_COUNTER,
                          .stream = w->id,
                          .step = i,
                          .begin_ns = i,
                          .end_ns = -i,
                          .value = w->id * 1e6 + i,
                          .name = "n"};
        if (is_note) memset(r.text, 'a' + w->id, sizeof(r.text) - 1);
        trace_put(w->t, &r);
    }
    atomic_fetch_sub(w->running, 1);
    return NULL;
}

static void check_whole(const trace_record *r, int32_t *last)
{
    assert_true(r->stream >= 0 && r->stream < WRITERS);
    assert_int_equal(r->begin_ns, r->step);
    assert_int_equal(r->end_ns, -r->step);
    assert_true(r->value == r->stream * 1e6 + r->step);
    for (int i = 0; i < TRACE_TEXT_BYTES - 1; i++) {
        assert_int_equal(r->text[i], r->kind == TRACE_NOTE ? 'a' + r->stream : 0);
    }
    assert_true(r->step > last[r->stream]); // a writer's records stay in order
    last[r->stream] = r->step;
}

static void race(int64_t capacity)
{
    pthread_t threads[WRITERS];
    writer writers[WRITERS];
    atomic_int running = WRITERS;
    int32_t last[WRITERS] = {0};
    int64_t taken = 0;
    trace_ring *t;
    assert_int_equal(trace_create(host_real(), capacity, &t), ST_OK);
    for (int32_t i = 0; i < WRITERS; i++) {
        writers[i] = (writer){.t = t, .id = i, .running = &running};
        assert_int_equal(pthread_create(&threads[i], NULL, write_many, &writers[i]), 0);
    }
    for (bool more = true; more;) {
        trace_record r[64];
        more = atomic_load(&running) > 0; // read before the last take
        for (int64_t n; (n = trace_take(t, r, 64)) > 0; taken += n) {
            for (int64_t k = 0; k < n; k++) check_whole(&r[k], last);
        }
    }
    for (int i = 0; i < WRITERS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(taken + trace_dropped(t), WRITERS * RECORDS);
    assert_true(taken > 0);
    trace_destroy(t);
}

static void threads_race_for_a_tiny_ring(void **state)
{
    (void)state;
    race(2);
}

static void threads_race_for_a_small_ring(void **state)
{
    (void)state;
    race(64);
}

static void threads_race_for_a_large_ring(void **state)
{
    (void)state;
    race(1 << 17);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_come_in_order),
        cmocka_unit_test(a_full_ring_drops_the_oldest),
        cmocka_unit_test(notes_are_formatted_and_cut),
        cmocka_unit_test(no_ring_is_legal),
        cmocka_unit_test(threads_race_for_a_tiny_ring),
        cmocka_unit_test(threads_race_for_a_small_ring),
        cmocka_unit_test(threads_race_for_a_large_ring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
