// Which connections end for others, and when: sockets of this process and a clock of its own.
#include "serve/connections.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static int64_t now_s;

static int64_t clock_ns(const host *h)
{
    (void)h;
    return now_s * INT64_C(1000000000);
}

static const host_api api = {.monotonic_ns = clock_ns};
static const host test_host = {.api = &api};

static void connections_open(serve_connections *l)
{
    now_s = 100;
    assert_int_equal(serve_connections_init(l, &test_host), ST_OK);
}

enum { MOST = SERVE_CONNECTIONS_MAX - SERVE_CONNECTIONS_SPARE };

typedef struct client {
    int far, near; // near: the server's end
    serve_connection *c;
} client;

static client connect_one(serve_connections *l)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    return (client){ends[0], ends[1], serve_connection_begin(l, ends[1])};
}

static bool has_ended(const client *x)
{
    char byte;
    return recv(x->far, &byte, 1, MSG_DONTWAIT) == 0;
}

static void close_one(serve_connections *l, client *x)
{
    serve_connection_end(l, x->c);
    (void)close(x->far);
    (void)close(x->near);
}

static void a_request_has_a_time_to_arrive_in(void **state)
{
    serve_connections l;
    (void)state;
    connections_open(&l);
    client slow = connect_one(&l), quick = connect_one(&l);
    serve_connection_works(&l, quick.c, true);
    now_s += SERVE_ARRIVAL_S + 1;
    client late = connect_one(&l);
    serve_connections_look(&l);
    assert_true(has_ended(&slow));
    assert_false(has_ended(&quick)); // it has its request
    assert_false(has_ended(&late));
    serve_connection_works(&l, quick.c, false);
    serve_connections_look(&l);
    assert_false(has_ended(&quick)); // its next request has the time from here on
    now_s += SERVE_ARRIVAL_S + 1;
    serve_connections_look(&l);
    assert_true(has_ended(&quick));
    assert_true(has_ended(&late));
    client *all[] = {&slow, &quick, &late};
    for (int64_t i = 0; i < COUNT_OF(all); i++) close_one(&l, all[i]);
    serve_connections_deinit(&l);
}

// A request that is refused by its headers is answered before it is whole.
static void an_answer_begins_the_time_of_the_next_request(void **state)
{
    serve_connections l;
    (void)state;
    connections_open(&l);
    client refused = connect_one(&l), silent = connect_one(&l);
    now_s += SERVE_ARRIVAL_S;
    serve_connection_works(&l, refused.c, false);
    now_s++;
    serve_connections_look(&l);
    assert_true(has_ended(&silent));
    assert_false(has_ended(&refused));
    now_s += SERVE_ARRIVAL_S;
    serve_connections_look(&l);
    assert_true(has_ended(&refused));
    close_one(&l, &refused);
    close_one(&l, &silent);
    serve_connections_deinit(&l);
}

static void the_one_that_waits_longest_ends_for_a_new_one(void **state)
{
    serve_connections l;
    static client all[MOST + 2];
    (void)state;
    connections_open(&l);
    for (int i = 0; i < MOST; i++) all[i] = connect_one(&l);
    serve_connection_works(&l, all[0].c, true);
    for (int i = 0; i < MOST; i++) assert_false(has_ended(&all[i]));
    all[MOST] = connect_one(&l);
    assert_false(has_ended(&all[0]));
    assert_true(has_ended(&all[1]));
    assert_false(has_ended(&all[2]));
    assert_false(has_ended(&all[MOST]));
    for (int i = 0; i < MOST; i++) serve_connection_works(&l, all[i].c, true);
    serve_connection_works(&l, all[MOST].c, true);
    all[MOST + 1] = connect_one(&l); // all others work: none ends for it
    for (int i = 2; i < MOST + 2; i++) assert_false(has_ended(&all[i]));
    for (int i = 0; i < MOST + 2; i++) close_one(&l, &all[i]);
    serve_connections_deinit(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_has_a_time_to_arrive_in),
        cmocka_unit_test(an_answer_begins_the_time_of_the_next_request),
        cmocka_unit_test(the_one_that_waits_longest_ends_for_a_new_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
