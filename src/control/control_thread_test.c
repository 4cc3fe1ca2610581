// Tests the coordinator and ranks with real sockets and threads, all in one process, so that the
// thread sanitizer sees them. src/launch/local_test.c tests processes (kill, stop); machine_test.c
// tests timing.
#include "control/control.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS = 4, STEPS = 200 };

typedef struct seat {
    control_config config;
    pthread_t thread;
    status st;
    char said[ERROR_TEXT_BYTES];
    int64_t stopped_at;
    _Atomic int verdicts, reports;
    _Atomic bool is_leaving;
    control *c;
} seat;

typedef struct table {
    control_key *key, *other;
    char address[CONTROL_ADDRESS_BYTES];
    control_server *server;
    _Atomic int refused;
    seat seats[RANKS];
} table;

static void on_coordinator_notice(void *context, const control_notice *n)
{
    table *t = context;
    if (n->kind != CONTROL_NOTE_REFUSED) return;
    print_message("refused: rank %d: %s\n", n->rank, n->text);
    atomic_fetch_add(&t->refused, 1);
}

static void on_notice(void *context, const control_notice *n)
{
    seat *s = context;
    if (n->kind != CONTROL_NOTE_VERDICT) return;
    print_message("verdict: rank %d hears: %s\n", s->config.rank, n->text);
    atomic_fetch_add(&s->verdicts, 1);
}

// A name of this process alone, since the same test of another build may run at the same time.
static const char *own_address(void)
{
    static char address[64];
    (void)snprintf(address, sizeof(address), "unix:@trireme-control-test-%d", (int)getpid());
    return address;
}

static void lay(table *t, const char *address)
{
    const host *h = host_real();
    int fd = -1;
    memset(t, 0, sizeof(*t));
    assert_int_equal(control_key_create(h, &t->key), ST_OK);
    assert_int_equal(control_key_create(h, &t->other), ST_OK);
    assert_int_equal(control_listen(address, false, &fd, t->address), ST_OK);
    const control_server_config config = {.h = h,
                                          .key = t->key,
                                          .job = 7,
                                          .epoch = 1,
                                          .ranks = RANKS,
                                          .rank = 0,
                                          .on_notice = on_coordinator_notice,
                                          .context = t};
    assert_int_equal(control_server_start(&config, fd, &t->server), ST_OK);
    for (int r = 0; r < RANKS; r++) {
        t->seats[r].config = (control_config){.h = h,
                                              .key = t->key,
                                              .job = 7,
                                              .epoch = 1,
                                              .rank = r,
                                              .ranks = RANKS,
                                              .address = t->address,
                                              .join_ns = INT64_C(20000000000),
                                              .on_notice = on_notice,
                                              .context = &t->seats[r]};
    }
}

static void clear(table *t)
{
    control_server_stop(t->server);
    control_key_destroy(t->key);
    control_key_destroy(t->other);
}

static status keep(seat *s, status st)
{
    if (st != ST_OK) (void)snprintf(s->said, sizeof(s->said), "%s", error_last()->text);
    s->st = st;
    return st;
}

// Joins, swaps, steps until all ranks agree to stop, then leaves.
static void *sit(void *context)
{
    seat *s = context;
    control *c = NULL;
    if (keep(s, control_open(&s->config, &c)) != ST_OK) return NULL;
    for (int n = 0; n < 20 && s->st == ST_OK; n++) {
        int64_t mine[3] = {s->config.rank, n, 77}, all[3 * RANKS];
        if (keep(s, control_swap(c, mine, sizeof(mine), all)) != ST_OK) break;
        for (int r = 0; r < RANKS; r++) {
            if (all[3 * r] != r || all[3 * r + 1] != n || all[3 * r + 2] != 77) {
                s->st = ST_INTERNAL;
            }
        }
    }
    for (int64_t step = 1; s->st == ST_OK && step < STEPS; step++) {
        control_decision due[CONTROL_AGREEMENTS];
        if (s->config.rank == 2 && step == 20) control_request(c, CONTROL_AGREE_STOP, 0);
        if (keep(s, control_step(c, step, due)) != ST_OK) break;
        if (due[CONTROL_AGREE_STOP].is_due) {
            s->stopped_at = step;
            break;
        }
        (void)keep(s, control_barrier(c)); // paces the steps as collectives do
    }
    control_close(c);
    return NULL;
}

static void all_do(table *t, void *(*what)(void *))
{
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(pthread_create(&t->seats[r].thread, NULL, what, &t->seats[r]), 0);
    }
    for (int r = 0; r < RANKS; r++) (void)pthread_join(t->seats[r].thread, NULL);
}

static void test_job(void **state)
{
    (void)state;
    const char *const addresses[] = {"127.0.0.1:0", own_address()};
    for (int i = 0; i < 2; i++) {
        table t;
        lay(&t, addresses[i]);
        all_do(&t, sit);
        for (int r = 0; r < RANKS; r++) {
            if (t.seats[r].st != ST_OK) print_message("rank %d: %s\n", r, t.seats[r].said);
            assert_int_equal(t.seats[r].st, ST_OK);
            assert_in_range(t.seats[r].stopped_at, 21, 24);
            assert_int_equal(t.seats[r].stopped_at, t.seats[0].stopped_at);
            assert_int_equal(t.seats[r].verdicts, 0);
        }
        assert_int_equal(t.refused, 0);
        clear(&t);
    }
}

// ---- pending output -----------------------------------------------------------------------------
static void wait_ms(int64_t ms)
{
    const struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    (void)nanosleep(&t, NULL);
}

// Delays a heartbeat: the coordinator has said goodbye and closed by the time the rank sends it.
static void report_late(void *context, control_report *out)
{
    seat *s = context;
    (void)out;
    if (atomic_load(&s->is_leaving) && atomic_fetch_add(&s->reports, 1) == 1) wait_ms(700);
}

static void *sit_and_leave(void *context)
{
    seat *s = context;
    control *c = NULL;
    if (keep(s, control_open(&s->config, &c)) != ST_OK) return NULL;
    (void)keep(s, control_barrier(c));
    if (s->config.rank == 1) wait_ms(400); // the last one to leave
    atomic_store(&s->is_leaving, true);
    control_close(c);
    return NULL;
}

static void test_goodbye_is_heard(void **state)
{
    (void)state;
    table t;
    lay(&t, own_address());
    t.seats[3].config.report = report_late;
    all_do(&t, sit_and_leave);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(t.seats[r].st, ST_OK);
        assert_int_equal(t.seats[r].verdicts, 0);
    }
    assert_int_equal(t.refused, 0);
    clear(&t);
}

static void test_config_differs(void **state)
{
    (void)state;
    static const control_fact facts[2] = {{CONTROL_CONFIG, "layout.tp", "4"},
                                          {CONTROL_CONFIG, "layout.tp", "2"}};
    table t;
    lay(&t, "127.0.0.1:0");
    for (int r = 0; r < RANKS; r++) {
        t.seats[r].config.facts = &facts[r == 3];
        t.seats[r].config.fact_count = 1;
    }
    all_do(&t, sit);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(t.seats[r].st, ST_REFUSED);
        assert_non_null(
            strstr(t.seats[r].said, "refused: layout.tp is 2 there and 4 on the other 3 ranks"));
    }
    clear(&t);
}

// A rank with another key and many strangers connect while the other ranks join.
static void test_strangers(void **state)
{
    (void)state;
    enum { STRANGERS = 200 };
    table t;
    lay(&t, "127.0.0.1:0");
    int fds[STRANGERS], opened = 0;
    for (int i = 0; i < STRANGERS; i++) {
        if (control_connect(t.address, 1000, &fds[opened]) != ST_OK) continue;
        const char noise[300] = "GET / HTTP/1.1\r\n\r\n";
        if (i % 3 == 0) (void)control_write(fds[opened], noise, i % 2 == 0 ? 300 : 18);
        opened++;
    }
    seat bad = t.seats[1];
    bad.config.key = t.other;
    (void)sit(&bad);
    if (bad.st != ST_SECURITY) print_message("%s\n", bad.said);
    assert_int_equal(bad.st, ST_SECURITY);
    all_do(&t, sit);
    for (int r = 0; r < RANKS; r++) assert_int_equal(t.seats[r].st, ST_OK);
    assert_true(t.refused > 0);
    for (int i = 0; i < opened; i++) (void)close(fds[i]);
    clear(&t);
}

static void *sit_and_fail(void *context)
{
    seat *s = context;
    control *c = NULL;
    if (keep(s, control_open(&s->config, &c)) != ST_OK) return NULL;
    if (s->config.rank == 1) {
        control_fail(c, ST_DATA, "web-0031.bin ends early");
    } else {
        (void)keep(s, control_barrier(c));
    }
    control_close(c);
    return NULL;
}

static void test_one_fails(void **state)
{
    (void)state;
    table t;
    lay(&t, own_address());
    all_do(&t, sit_and_fail);
    for (int r = 0; r < RANKS; r++) {
        if (r == 1) continue;
        assert_int_equal(t.seats[r].st, ST_PEER_LOST);
        assert_int_equal(t.seats[r].verdicts, 1);
    }
    clear(&t);
}

static void test_no_peer_answers(void **state)
{
    (void)state;
    table t;
    lay(&t, "127.0.0.1:0");
    seat *s = &t.seats[0];
    control_server_stop(t.server);
    t.server = NULL;
    s->config.join_ns = 100000000;
    (void)sit(s);
    assert_int_equal(s->st, ST_TIMEOUT);
    assert_non_null(strstr(s->said, "cannot connect to"));
    clear(&t);
}

static void test_addresses(void **state)
{
    (void)state;
    static const char *const wild[] = {"0.0.0.0:0", "[::]:0", ":0"};
    static const char *const bad[] = {
        "", "here", "unix:", "unix:@", "127.0.0.1:", "127.0.0.1:http x"};
    char bound[CONTROL_ADDRESS_BYTES];
    int fd = -1;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(control_listen(wild[i], false, &fd, bound), ST_SECURITY);
    }
    for (int i = 0; i < 6; i++) {
        const status st = control_listen(bad[i], false, &fd, bound);
        assert_true(st == ST_CONFIG || st == ST_PEER_LOST);
    }
    assert_int_equal(control_listen(wild[0], true, &fd, bound), ST_OK);
    (void)close(fd);
    assert_int_equal(control_listen("127.0.0.1:0", false, &fd, bound), ST_OK);
    assert_memory_equal(bound, "127.0.0.1:", 10);
    assert_string_not_equal(bound, "127.0.0.1:0");
    int second = -1;
    const status taken = control_listen(bound, false, &second, bound);
    assert_int_equal(taken, ST_LOCKED);
    (void)close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_job),
        cmocka_unit_test(test_config_differs),
        cmocka_unit_test(test_goodbye_is_heard),
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_one_fails),
        cmocka_unit_test(test_no_peer_answers),
        cmocka_unit_test(test_addresses),
    };
    return cmocka_run_group_tests_name("control/threads", tests, NULL, NULL);
}
