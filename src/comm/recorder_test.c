// The flight recorder: written records are read back, the newest of many; the unfinished operation
// of a killed process is recorded; and a reader survives a control block full of random bytes.
#include "comm/control_block.h"
#include "comm/recorder.h"
#include "comm/recorder_write.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static flight_record *begin(comm_control_block *b, int rank, uint64_t sequence, const char *tensor)
{
    const comm_contract k = {.sequence = sequence, .group = 5, .count = 100, .epoch = 3};
    const comm_args args = {
        .op = COLLECTIVE_ALL_REDUCE, .type = DTYPE_F32, .tensor = tensor, .step = 12};
    const int64_t now = comm_recorder_now_ns(b);
    char name[COMM_RECORD_NAME] = {0};
    (void)snprintf(name, sizeof(name), "%s", tensor);
    const recorder_name words = {name, (int)(strlen(name) / 8 + 1)};
    return recorder_begin(rank_record_of(b, rank), &k, &args, words, 0, now);
}

static void what_was_written_reads_back(void **state)
{
    (void)state;
    enum { MANY = COMM_RECORDS + 44 };
    static comm_record read[COMM_RECORDS];
    comm_control_block *b = NULL;
    char line[300];
    assert_int_equal(comm_control_block_create(2, 9, 0, &b), ST_OK);
    assert_int_equal(comm_recorder_read(b, 0, read, COMM_RECORDS), 0);
    for (uint64_t i = 1; i <= MANY; i++) {
        flight_record *r = begin(b, 0, i, "gradients\n7");
        if (i < MANY) recorder_end(r, comm_recorder_now_ns(b));
    }
    assert_int_equal(comm_recorder_read(b, 0, read, COMM_RECORDS), COMM_RECORDS);
    for (int i = 0; i < COMM_RECORDS; i++) {
        assert_int_equal(read[i].sequence, MANY - COMM_RECORDS + 1 + i);
        assert_int_equal(read[i].group, 5);
        assert_int_equal(read[i].step, 12);
        assert_int_equal(read[i].op, COLLECTIVE_ALL_REDUCE);
        assert_true(read[i].begun_ns > 0);
        assert_true((read[i].done_ns > 0) == (i + 1 < COMM_RECORDS));
    }
    assert_string_equal(read[0].tensor, "gradients?7"); // no line of its own in a log
    assert_int_equal(comm_recorder_read(b, 0, read, 3), 3);
    assert_int_equal(read[2].sequence, MANY);
    assert_non_null(strstr(comm_record_text(&read[2], line, (int)sizeof(line)), "not done"));
    assert_int_equal(comm_recorder_read(b, 1, read, 3), 0);
    assert_int_equal(comm_recorder_read(b, 2, read, 3), 0); // there is no such rank
    comm_control_block_unmap(b);
}

// A record writes the words of its name, the ring's last round wrote others there.
static void a_name_ends_where_an_older_one_went_on(void **state)
{
    (void)state;
    static const char *const names[] = {"", "short", "of eight",
                                        "the gradients of layer 11, summed",
                                        "forty-eight letters, of which the last is no mo"};
    enum { NAMES = 5, ROUNDS = COMM_RECORDS * NAMES };
    static comm_record read[COMM_RECORDS];
    comm_control_block *b = NULL;
    assert_int_equal(comm_control_block_create(1, 9, 0, &b), ST_OK);
    for (int i = 0; i < ROUNDS; i++) {
        (void)begin(b, 0, (uint64_t)i + 1, names[i % NAMES]); // 256 and 5 share no factor
    }
    assert_int_equal(comm_recorder_read(b, 0, read, COMM_RECORDS), COMM_RECORDS);
    for (int i = 0; i < COMM_RECORDS; i++) {
        const int at = (int)(read[i].sequence - 1);
        assert_string_equal(read[i].tensor, names[at % NAMES]);
        assert_true(read[i].posted_ns == read[i].begun_ns && read[i].posted_ns > 0);
        assert_int_equal(read[i].epoch, 3);
        assert_int_equal(read[i].count, 100);
        assert_int_equal(read[i].type, DTYPE_F32);
    }
    comm_control_block_unmap(b);
}

static void the_killed_leave_what_they_had_begun(void **state)
{
    (void)state;
    comm_control_block *b = NULL;
    comm_record read[4];
    assert_int_equal(comm_control_block_create(1, 9, 0, &b), ST_OK);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        flight_record *first = begin(b, 0, 1, "one");
        recorder_end(first, comm_recorder_now_ns(b));
        (void)begin(b, 0, 2, "two");
        (void)raise(SIGKILL);
    }
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how));
    assert_int_equal(comm_recorder_read(b, 0, read, 4), 2);
    assert_true(read[0].done_ns > 0 && read[1].done_ns == 0);
    assert_string_equal(read[1].tensor, "two");
    comm_control_block_unmap(b);
}

static void nonsense_is_no_danger(void **state)
{
    (void)state;
    static comm_record read[COMM_RECORDS];
    comm_control_block *b = NULL;
    char line[120];
    comm_rank_state rank;
    assert_int_equal(comm_control_block_create(1, 9, 0, &b), ST_OK);
    uint64_t seed = 88172645463325252u;
    int taken = 0;
    for (int round = 0; round < 200; round++) {
        rank_record *record = rank_record_of(b, 0);
        for (uint64_t i = 1; i <= COMM_RECORDS; i++) (void)begin(b, 0, i, "gradients");
        unsigned char *bytes = (unsigned char *)record;
        for (int i = 0; i < 2000; i++) {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            const uint64_t records = (uint64_t)offsetof(rank_record, records);
            const uint64_t at = round % 2 == 0 ? seed >> 8 : records + (seed >> 8);
            bytes[at % sizeof(*record)] = (unsigned char)seed;
        }
        (void)comm_recorder_rank(b, 0, &rank);
        const int count = comm_recorder_read(b, 0, read, COMM_RECORDS);
        assert_true(count >= 0 && count <= COMM_RECORDS);
        for (int i = 0; i < count; i++) {
            assert_true(read[i].op < COLLECTIVE_COUNT && read[i].type < DTYPE_COUNT);
            assert_true(read[i].count >= 0);
            assert_true(strlen(read[i].tensor) < COMM_RECORD_NAME);
            assert_true(strlen(comm_record_text(&read[i], line, (int)sizeof(line))) < sizeof(line));
        }
        taken += count;
    }
    assert_true(taken > 0);
    comm_control_block_unmap(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_reads_back),
        cmocka_unit_test(a_name_ends_where_an_older_one_went_on),
        cmocka_unit_test(the_killed_leave_what_they_had_begun),
        cmocka_unit_test(nonsense_is_no_danger),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
