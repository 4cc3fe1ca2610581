// Posting: the calls of a transport's post(), recorded by a row that takes operations in any order;
// and the blocking transports on a device without host functions.
#include "comm/comm.h"
#include "comm/transport/transport.h"
#include "comm/transport/transport_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// ---- a transport that writes down what it is given ----------------------------------------------
enum { MOST = 16 };

typedef struct journal {
    comm_contract contracts[MOST];
    comm_args args[MOST];
    int count;
    bool full;
} journal;

struct comm_link {
    journal *journal;
};

static bool available(const comm_config *config, const char **why)
{
    (void)config;
    (void)why;
    return true;
}

static status link_open(const comm_config *config, comm_link **out)
{
    *out = calloc(1, sizeof(**out));
    if (*out == NULL) return ST_NO_MEMORY;
    (*out)->journal = config->row_context;
    return ST_OK;
}

static void link_close(comm_link *link)
{
    free(link);
}

static const comm_transport journal_transport;

static status join(comm_link *link, const comm_members *members, comm_port **out)
{
    *out = calloc(1, sizeof(**out));
    if (*out == NULL) return ST_NO_MEMORY;
    (*out)->transport = &journal_transport;
    (*out)->link = link;
    (*out)->members.count = members->count;
    (*out)->members.group = members->group;
    return ST_OK;
}

static void leave(comm_port *port)
{
    free(port);
}

static status post(comm_port *port, const device_api *api, device_stream *stream,
                   const comm_args *args, const comm_contract *contract, bool *posted)
{
    journal *j = port->link->journal;
    (void)api;
    (void)stream;
    *posted = !j->full;
    if (j->full) return ST_OK;
    assert_in_range(j->count, 0, MOST - 1);
    j->contracts[j->count] = *contract;
    j->args[j->count++] = *args;
    return ST_OK;
}

static status kill_group(comm_port *port)
{
    (void)port;
    return error_last()->code;
}

static void stop(comm_link *link, status code, const char *text)
{
    (void)link;
    (void)code;
    (void)text;
}

static const comm_transport journal_transport = {
    .name = "journal",
    .available = available,
    .open = link_open,
    .close = link_close,
    .join = join,
    .leave = leave,
    .post = post,
    .kill = kill_group,
    .stop = stop,
};

static comm *open_rank(journal *j)
{
    comm *c = NULL;
    const comm_config config = {.h = host_real(),
                                .job = 7,
                                .epoch = 3,
                                .rank = 1,
                                .ranks = 4,
                                .row = &journal_transport,
                                .row_context = j};
    assert_int_equal(comm_open(&config, &c), ST_OK);
    assert_string_equal(comm_transport_name(c), "journal");
    return c;
}

static void post_one(comm *c, op_collective op, int32_t root, bool expected)
{
    static float buffer[64];
    bool posted = !expected;
    const comm_item item = {.in = buffer, .out = buffer, .count = 8};
    const comm_args args = {.op = op,
                            .type = DTYPE_F32,
                            .root = root,
                            .items = &item,
                            .item_count = 1,
                            .tensor = "gradients",
                            .record = 42};
    assert_int_equal(comm_post(comm_world(c), &device_cpu, NULL, &args, &posted), ST_OK);
    assert_int_equal(posted, expected);
}

static void contracts_follow_each_other(void **state)
{
    (void)state;
    static journal j;
    comm *c = open_rank(&j);
    post_one(c, COLLECTIVE_ALL_REDUCE, 0, true);
    j.full = true; // takes no number
    post_one(c, COLLECTIVE_ALL_GATHER, 0, false);
    post_one(c, COLLECTIVE_ALL_GATHER, 0, false);
    j.full = false;
    post_one(c, COLLECTIVE_ALL_GATHER, 0, true);
    post_one(c, COLLECTIVE_SEND, 2, true); // counted for each peer and direction
    post_one(c, COLLECTIVE_SEND, 3, true);
    post_one(c, COLLECTIVE_RECEIVE, 3, true);
    post_one(c, COLLECTIVE_SEND, 3, true);
    post_one(c, COLLECTIVE_BROADCAST, 2, true);
    const uint64_t sequences[] = {1, 2, 1, 1, 1, 2, 3};
    const int32_t roots[] = {0, 0, 2, 3, 1, 3, 2};
    assert_int_equal(j.count, COUNT_OF(sequences));
    for (int i = 0; i < j.count; i++) {
        const comm_contract *k = &j.contracts[i];
        assert_int_equal(k->sequence, sequences[i]);
        assert_int_equal(k->root, roots[i]);
        assert_int_equal(k->job, 7);
        assert_int_equal(k->epoch, 3);
        assert_int_equal(k->count, 8);
        assert_int_equal(k->tensor, comm_name_hash("gradients"));
        assert_int_equal(j.args[i].record, 42);
    }
    comm_close(c);
}

static void it_only_posts(void **state)
{
    (void)state;
    static journal j;
    comm *c = open_rank(&j);
    assert_int_equal(comm_barrier(comm_world(c), "here"), ST_UNSUPPORTED);
    assert_non_null(strstr(error_last()->text, "transport journal only posts"));
    error_clear();
    post_one(c, COLLECTIVE_ALL_REDUCE, 0, true); // the group lives
    comm_close(c);
}

static void wrong_arguments_end_the_group(void **state)
{
    (void)state;
    static journal j;
    bool posted = true;
    comm *c = open_rank(&j);
    const comm_args args = {.op = COLLECTIVE_BROADCAST, .type = DTYPE_F32, .root = 4};
    const status st = comm_post(comm_world(c), &device_cpu, NULL, &args, &posted);
    assert_int_equal(st, ST_INTERNAL);
    assert_false(posted);
    assert_int_equal(comm_barrier(comm_world(c), "here"), ST_INTERNAL);
    assert_non_null(strstr(error_last()->text, "root 4"));
    error_clear();
    assert_int_equal(j.count, 0);
    comm_close(c);
}

// ---- the blocking transports -------------------------------------------------------------------
static void host_functions_are_needed(void **state)
{
    (void)state;
    device_api deaf = device_cpu;
    comm *c = NULL;
    bool posted = true;
    deaf.name = "deaf";
    deaf.call = NULL;
    const comm_config config = {
        .h = host_real(), .ranks = 1, .local_ranks = 1, .transport = "self"};
    assert_int_equal(comm_open(&config, &c), ST_OK);
    const comm_args args = {.op = COLLECTIVE_BARRIER, .type = DTYPE_U8};
    assert_int_equal(comm_post(comm_world(c), &deaf, NULL, &args, &posted), ST_UNSUPPORTED);
    assert_false(posted);
    assert_non_null(strstr(error_last()->text, "device deaf"));
    assert_non_null(strstr(error_last()->text, "transport self"));
    error_clear();
    assert_int_equal(comm_barrier(comm_world(c), "here"), ST_OK); // the group lives
    comm_close(c);
}

static void every_row_posts(void **state)
{
    (void)state;
    for (int i = 0; i < comm_transport_count(); i++) {
        const comm_transport *t = comm_transport_table[i];
        const char *why = "";
        const comm_config config = {.h = host_real(), .ranks = 2, .local_ranks = 2};
        if (t->open != NULL) assert_non_null(t->post);
        if (t->open == NULL) assert_false(t->available(&config, &why)); // built without it
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contracts_follow_each_other),
        cmocka_unit_test(it_only_posts),
        cmocka_unit_test(wrong_arguments_end_the_group),
        cmocka_unit_test(host_functions_are_needed),
        cmocka_unit_test(every_row_posts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
