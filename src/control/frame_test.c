// Tests frames, keys and facts: output equals input, and any other input is refused.
#include "control/frame.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static control_key *key;

static int setup(void **state)
{
    (void)state;
    return control_key_create(host_real(), &key) == ST_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    control_key_destroy(key);
    return 0;
}

static control_hello example(void)
{
    control_hello m = {
        .type = CONTROL_HELLO, .job = 0x1234567890, .epoch = 9, .rank = 3, .ranks = 8};
    m.pid = 4711;
    m.started = 99;
    m.machine = 77;
    memcpy(m.host, "node-3", 7);
    memset(m.nonce, 5, sizeof(m.nonce));
    memset(m.digest, 6, sizeof(m.digest));
    return m;
}

static void test_hello_round_trip(void **state)
{
    (void)state;
    uint8_t frame[CONTROL_HELLO_BYTES];
    control_hello m = example(), back;
    control_hello_print(&m, frame);
    assert_true(control_hello_parse(frame, &back));
    assert_int_equal(back.job, m.job);
    assert_int_equal(back.rank, 3);
    assert_int_equal(back.ranks, 8);
    assert_int_equal(back.pid, 4711);
    assert_string_equal(back.host, "node-3");
    assert_memory_equal(back.nonce, m.nonce, sizeof(m.nonce));
    assert_memory_equal(back.digest, m.digest, sizeof(m.digest));
}

static void test_hello_refused(void **state)
{
    (void)state;
    static const struct {
        int at;
        uint8_t byte;
    } changes[] = {
        {0, 0},                           // magic
        {4, 2},                           // version
        {6, 0},                           // type
        {6, 5},     {7, 1},   {23, 0x80}, // rank -2^31...
        {20, 8},                          // rank beyond ranks
        {24, 0},                          // no ranks
        {26, 1},                          // too many
        {28, 200},                        // an unknown status
        {133, 1},                         // an impossible process number
        {152, 0},                         // no name, then letters
        {153, 10},                        // a newline in a name
        {215, 'x'}, {216, 1},
    };
    uint8_t frame[CONTROL_HELLO_BYTES];
    for (int64_t i = 0; i < COUNT_OF(changes); i++) {
        control_hello m = example(), back;
        control_hello_print(&m, frame);
        frame[changes[i].at] = changes[i].byte;
        assert_false(control_hello_parse(frame, &back));
    }
}

// With any flipped bit in any of the three frames the MAC fails; it also fails at another position
// or for another job.
static void test_handshake_macs(void **state)
{
    (void)state;
    uint8_t first[CONTROL_HELLO_BYTES], second[CONTROL_HELLO_BYTES];
    control_hello m = example();
    control_handshake a, b;
    control_handshake_begin(&a, key, 1, 2);
    control_hello_print(&m, first);
    control_handshake_seal(&a, first);
    control_hello_print(&m, second);
    control_handshake_seal(&a, second);
    assert_memory_not_equal(first, second, sizeof(first)); // the same content, sent later
    for (int bit = 0; bit < 8 * CONTROL_HELLO_BYTES; bit++) {
        control_handshake_begin(&b, key, 1, 2);
        first[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_false(control_handshake_check(&b, first));
        first[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    control_handshake_begin(&b, key, 1, 2);
    assert_false(control_handshake_check(&b, second)); // not at its position
    assert_true(control_handshake_check(&b, first));
    assert_false(control_handshake_check(&b, first)); // accepted once only
    assert_true(control_handshake_check(&b, second));
    control_handshake_begin(&b, key, 1, 3);
    assert_false(control_handshake_check(&b, first)); // of another epoch
    control_handshake_begin(&b, key, 4, 2);
    assert_false(control_handshake_check(&b, first)); // of another job
}

static void two_ends(control_stream *coordinator, control_stream *rank)
{
    control_handshake said;
    control_handshake_begin(&said, key, 1, 2);
    control_stream_init(coordinator, CONTROL_TO_COORDINATOR_MAX, 1 << 20);
    control_stream_init(rank, CONTROL_TO_RANK_MAX, 1 << 20);
    control_stream_key(coordinator, key, &said, 2, true);
    control_stream_key(rank, key, &said, 2, false);
}

static void test_frames_round_trip(void **state)
{
    (void)state;
    control_stream coordinator, rank;
    two_ends(&coordinator, &rank);
    uint8_t payload[300];
    for (int i = 0; i < 300; i++) payload[i] = (uint8_t)i;
    for (int64_t n = 0; n < 300; n++) {
        assert_int_equal(control_stream_put(&rank, CONTROL_MSG_BEAT, (control_span){payload, n / 2},
                                            (control_span){payload + n / 2, n - n / 2}),
                         ST_OK);
    }
    // Input arrives in pieces of 7 bytes; frames come out whole and in order.
    int64_t seen = 0;
    for (;;) {
        const control_span out = control_stream_output(&rank);
        const int64_t piece = min_i64(out.bytes, 7);
        if (piece == 0) break;
        assert_int_equal(control_stream_take(&coordinator, out.data, piece), ST_OK);
        control_stream_sent(&rank, piece);
        control_frame f;
        bool has = false;
        assert_int_equal(control_stream_next(&coordinator, &f, &has), ST_OK);
        if (!has) continue;
        assert_int_equal(f.type, CONTROL_MSG_BEAT);
        assert_int_equal(f.bytes, seen);
        assert_memory_equal(f.payload, payload, (size_t)seen);
        seen++;
    }
    assert_int_equal(seen, 300);
    control_stream_deinit(&coordinator);
    control_stream_deinit(&rank);
}

// A frame that has a flipped bit, is repeated, comes late or is sent back to its sender is refused.
static void test_frames_refused(void **state)
{
    (void)state;
    control_stream coordinator, rank;
    two_ends(&coordinator, &rank);
    assert_int_equal(
        control_stream_put(&rank, CONTROL_MSG_SWAP, (control_span){"ab", 2}, (control_span){0}),
        ST_OK);
    uint8_t frame[128];
    const control_span out = control_stream_output(&rank);
    memcpy(frame, out.data, (size_t)out.bytes);
    for (int64_t bit = 0; bit <= 8 * out.bytes; bit++) {
        control_stream again, other;
        control_frame f;
        bool has = false;
        two_ends(&again, &other);
        if (bit < 8 * out.bytes) frame[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(control_stream_take(&again, frame, out.bytes), ST_OK);
        const status st = control_stream_next(&again, &f, &has);
        assert_int_equal(has, bit == 8 * out.bytes);
        // A larger length waits for more bytes; any other change is refused at once.
        const bool is_length = bit >= 32 && bit < 64;
        if (bit < 8 * out.bytes && !is_length) assert_int_equal(st, ST_SECURITY);
        if (bit == 8 * out.bytes) {
            assert_int_equal(control_stream_take(&again, frame, out.bytes), ST_OK);
            assert_int_equal(control_stream_next(&again, &f, &has), ST_SECURITY); // a replay
            assert_int_equal(control_stream_take(&other, frame, out.bytes), ST_OK);
            assert_int_equal(control_stream_next(&other, &f, &has), ST_SECURITY); // a reflection
        } else {
            frame[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        control_stream_deinit(&again);
        control_stream_deinit(&other);
    }
    control_stream_deinit(&coordinator);
    control_stream_deinit(&rank);
}

static void test_limits(void **state)
{
    (void)state;
    control_stream coordinator, rank;
    two_ends(&coordinator, &rank);
    static uint8_t much[1 << 20];
    status st = ST_OK;
    for (int i = 0; i < 3 && st == ST_OK; i++)
        st = control_stream_take(&coordinator, much, sizeof(much));
    assert_int_equal(st, ST_SECURITY);
    assert_true(coordinator.in_capacity <= 2 << 20);
    st = ST_OK;
    int64_t put = 0;
    for (; put < 100 && st == ST_OK; put++) {
        st = control_stream_put(&rank, CONTROL_MSG_SWAP, (control_span){much, 1 << 16},
                                (control_span){0});
    }
    assert_int_equal(st, ST_TIMEOUT); // the other side does not read
    assert_in_range(put, 15, 17);
    control_stream_deinit(&coordinator);
    control_stream_deinit(&rank);
}

// ---- keys ---------------------------------------------------------------------------------------
static void write_key(const char *path, const char *bytes, size_t count, mode_t mode)
{
    (void)unlink(path);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, count), count);
    assert_int_equal(fchmod(fd, mode), 0);
    assert_int_equal(close(fd), 0);
}

static void test_key_files(void **state)
{
    (void)state;
    static const char hex[] = "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F\n";
    char folder[] = "/tmp/trireme-key-XXXXXX", path[64], link[64];
    uint8_t raw[CONTROL_KEY_BYTES];
    for (int i = 0; i < CONTROL_KEY_BYTES; i++) raw[i] = (uint8_t)i;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/key", folder);
    (void)snprintf(link, sizeof(link), "%s/link", folder);
    control_key *k = NULL;
    assert_int_equal(control_key_read(path, &k), ST_NOT_FOUND);
    const size_t lengths[] = {64, 65};
    for (int i = 0; i < 2; i++) {
        write_key(path, hex, lengths[i], 0600);
        assert_int_equal(control_key_read(path, &k), ST_OK);
        assert_memory_equal(control_key_bytes(k), raw, sizeof(raw));
        control_key_destroy(k);
    }
    write_key(path, (const char *)raw, sizeof(raw), 0400);
    assert_int_equal(control_key_read(path, &k), ST_OK);
    control_key_destroy(k);
    const mode_t open_modes[] = {0640, 0604, 0620, 0601, 0666};
    for (int i = 0; i < 5; i++) {
        write_key(path, hex, 65, open_modes[i]);
        assert_int_equal(control_key_read(path, &k), ST_SECURITY);
        assert_null(strstr(error_last()->text, "0001")); // the error reveals no secret
    }
    static const size_t wrong[] = {0, 1, 31, 33, 63};
    for (int i = 0; i < 5; i++) {
        write_key(path, hex, wrong[i], 0600);
        assert_int_equal(control_key_read(path, &k), ST_SECURITY);
    }
    write_key(path, hex, 65, 0600);
    assert_int_equal(symlink(path, link), 0);
    assert_int_equal(control_key_read(link, &k), ST_SECURITY);
    (void)unlink(link);
    (void)unlink(path);
    assert_int_equal(control_key_read(folder, &k), ST_SECURITY);
    (void)rmdir(folder);
}

static void test_key_pipe(void **state)
{
    (void)state;
    control_key *back = NULL;
    int fd = -1;
    assert_int_equal(control_key_pipe(key, &fd), ST_OK);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(control_key_take(fd, &back), ST_OK);
    assert_memory_equal(control_key_bytes(back), control_key_bytes(key), CONTROL_KEY_BYTES);
    control_key_destroy(back);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "short", 5), 5);
    (void)close(ends[1]);
    assert_int_equal(control_key_take(ends[0], &back), ST_SECURITY);
}

// The key's page is marked as excluded from dumps ("dd") and as wiped in children ("wf").
static void test_key_page(void **state)
{
    (void)state;
    FILE *f = fopen("/proc/self/smaps", "r");
    char line[512];
    bool is_ours = false, is_kept_out = false;
    if (f == NULL) skip();
    while (fgets(line, sizeof(line), f) != NULL) {
        unsigned long begin, end;
        if (sscanf(line, "%lx-%lx ", &begin, &end) == 2) {
            const unsigned long at = (unsigned long)(uintptr_t)control_key_bytes(key);
            is_ours = at >= begin && at < end;
        }
        if (is_ours && strncmp(line, "VmFlags:", 8) == 0) is_kept_out = strstr(line, " dd") != NULL;
    }
    (void)fclose(f);
    assert_true(is_kept_out);
}

// ---- facts --------------------------------------------------------------------------------------
static void explain(const control_fact *odd, int64_t odd_count, const control_fact *rest,
                    int64_t rest_count, char out[512])
{
    arena *a = NULL;
    assert_int_equal(arena_create("test", 0, &a), ST_OK);
    text x = {.a = a}, y = {.a = a};
    assert_int_equal(control_record_print(odd, odd_count, &x), ST_OK);
    assert_int_equal(control_record_print(rest, rest_count, &y), ST_OK);
    const control_side s = {3, 1, "n2", (const uint8_t *)x.bytes, x.length};
    const control_side t = {0, 7, "n0", (const uint8_t *)y.bytes, y.length};
    control_facts_explain(&s, &t, 2, out, 512);
    arena_destroy(a);
}

static void test_facts(void **state)
{
    (void)state;
    char said[512];
    const control_fact rest[] = {{CONTROL_BUILD, "version", "0.1.0"},
                                 {CONTROL_CONFIG, "layout.tp", "4"},
                                 {CONTROL_CONFIG, "data.path", "web"}};
    control_fact odd[4];
    memcpy(odd, rest, sizeof(rest));
    odd[1].value = "2";
    explain(odd, 3, rest, 3, said);
    assert_string_equal(said,
                        "rank 3 (n2) was refused: layout.tp is 2 there and 4 on the other 7 ranks; "
                        "start all ranks with the same run.yaml");
    odd[1].value = "4";
    odd[3] = (control_fact){CONTROL_NUMERICS, "kernels", "avx\n2"};
    explain(odd, 4, rest, 3, said);
    assert_non_null(strstr(said, "kernels is avx?2 there and not given on the other 7 ranks"));
    explain(odd, 2, rest, 3, said);
    assert_non_null(strstr(said, "data.path is not given there and web on the other 7 ranks"));
    explain(odd, 3, rest, 3, said); // the digests differ, the lists do not: perhaps the order
    assert_non_null(strstr(said, "its configuration differs from that of the other 7 ranks"));

    uint8_t x[CONTROL_FACT_KINDS][CONTROL_DIGEST_BYTES],
        y[CONTROL_FACT_KINDS][CONTROL_DIGEST_BYTES];
    control_facts_digest(rest, 3, x);
    odd[2].value = "webs";
    control_facts_digest(odd, 3, y);
    assert_memory_equal(x[CONTROL_BUILD], y[CONTROL_BUILD], CONTROL_DIGEST_BYTES);
    assert_memory_not_equal(x[CONTROL_CONFIG], y[CONTROL_CONFIG], CONTROL_DIGEST_BYTES);
}

// A truncated or changed record yields fewer facts, and the parser reads nothing beyond its end.
static void test_hostile_records(void **state)
{
    (void)state;
    static const char record[] = "\1layout.tp\0"
                                 "4\0\1train.steps\0"
                                 "10";
    char said[512], small[40];
    for (size_t n = 0; n <= sizeof(record); n++) {
        for (int byte = 0; byte < 256; byte += 15) {
            uint8_t *copy = malloc(n + 1);
            assert_non_null(copy);
            memcpy(copy, record, n);
            if (n > 0) copy[n / 2] = (uint8_t)byte;
            const control_side s = {1, 1, "n1", copy, (int64_t)n};
            const control_side t = {0, 2, "n0", (const uint8_t *)record, sizeof(record)};
            control_facts_explain(&s, &t, 2, said, sizeof(said));
            control_facts_explain(&t, &s, 2, small, sizeof(small));
            free(copy);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hello_round_trip), cmocka_unit_test(test_hello_refused),
        cmocka_unit_test(test_handshake_macs),   cmocka_unit_test(test_frames_round_trip),
        cmocka_unit_test(test_frames_refused),   cmocka_unit_test(test_limits),
        cmocka_unit_test(test_key_files),        cmocka_unit_test(test_key_pipe),
        cmocka_unit_test(test_key_page),         cmocka_unit_test(test_facts),
        cmocka_unit_test(test_hostile_records),
    };
    return cmocka_run_group_tests_name("control/frame", tests, setup, teardown);
}
