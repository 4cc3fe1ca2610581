// Fuzz entry: sends arbitrary bytes, in arbitrary pieces, to a coordinator and to a member.
//
// The first byte picks the state of the connection: a stranger; after a correct hello; joined; or a
// member that waits for the coordinator. Where frames carry MACs, the entry seals the fuzzer's
// payloads with the correct keys, as a faulty or hostile rank that holds the key could. For any
// input the machine must report the cause and continue, and its memory must stay within its limits.
#include "control/machine.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PIECE_MAX = 4096 };
static const int64_t now = INT64_C(1000000000);

static status fill(const host *h, void *buffer, int64_t bytes)
{
    (void)h;
    memset(buffer, 7, (size_t)bytes);
    return ST_OK;
}

typedef struct pair {
    host h;
    host_api api;
    control_key *key;
    control_coordinator *coordinator;
    control_member *m;
    int line, ranks; // the member is the last rank: a job of one rank is complete
} pair;

static control_member_config config_of(const pair *p, int rank)
{
    control_member_config c = {
        .h = &p->h, .key = p->key, .job = 1, .ranks = p->ranks, .rank = rank};
    c.self = (control_peer){.host = "n1", .pid = 5, .machine = 9};
    return c;
}

static void to_coordinator(pair *p, const void *bytes, int64_t count)
{
    const control_event e = {
        .kind = CONTROL_BYTES, .connection = p->line, .bytes = bytes, .count = count};
    control_coordinator_handle(p->coordinator, &e, now);
}

static void to_member(pair *p, const void *bytes, int64_t count)
{
    const control_event e = {.kind = CONTROL_BYTES, .bytes = bytes, .count = count};
    control_member_handle(p->m, &e, now);
}

// Moves pending bytes once in each direction.
static void pump(pair *p)
{
    control_span s = control_member_output(p->m);
    to_coordinator(p, s.data, s.bytes);
    control_member_sent(p->m, s.bytes);
    s = control_coordinator_output(p->coordinator, p->line);
    to_member(p, s.data, s.bytes);
    control_coordinator_sent(p->coordinator, p->line, s.bytes);
}

static bool begin(pair *p)
{
    const uint8_t bytes[CONTROL_KEY_BYTES] = {1, 2, 3};
    p->api = *host_real()->api;
    p->api.random_fill = fill;
    p->h.api = &p->api;
    if (control_key_copy(bytes, &p->key) != ST_OK) return false;
    control_coordinator_config coordinator = {
        .h = &p->h, .key = p->key, .job = 1, .ranks = p->ranks, .rank = 0};
    coordinator.self = (control_peer){.host = "n0", .pid = 4, .machine = 9};
    const control_member_config c = config_of(p, p->ranks - 1);
    const control_event opened = {.kind = CONTROL_OPENED};
    if (control_coordinator_create(&coordinator, now, &p->coordinator) != ST_OK) return false;
    if (control_member_create(&c, now, &p->m) != ST_OK) return false;
    p->line = control_coordinator_accept(p->coordinator, now);
    control_member_handle(p->m, &opened, now);
    return true;
}

// Derives the keys of both ends of this connection. Nonces are constant here, so a third party that
// repeats the handshake gets the same keys.
static void seal_stream(const pair *p, bool is_coordinator, control_stream *out)
{
    control_handshake said;
    uint8_t frame[3][CONTROL_HELLO_BYTES];
    control_hello hello[3] = {
        {.type = CONTROL_HELLO}, {.type = CONTROL_CHALLENGE}, {.type = CONTROL_PROOF}};
    control_handshake_begin(&said, p->key, 1, 0);
    for (int i = 0; i < 3; i++) {
        hello[i].job = 1;
        hello[i].ranks = p->ranks;
        hello[i].rank = i == 1 ? 0 : p->ranks - 1;
        hello[i].machine = 9;
        hello[i].pid = i == 1 ? 4 : 5;
        memcpy(hello[i].host, i == 1 ? "n0" : "n1", 3);
        memset(hello[i].nonce, 7, CONTROL_NONCE_BYTES);
        if (i != 1) control_facts_digest(NULL, 0, hello[i].digest);
        control_hello_print(&hello[i], frame[i]);
        control_handshake_seal(&said, frame[i]);
    }
    control_stream_init(out, CONTROL_TO_COORDINATOR_MAX, 1 << 22);
    control_stream_key(out, p->key, &said, 0, is_coordinator);
    if (is_coordinator && p->ranks == 1) out->send_sequence = 1; // it was welcomed
}

// Sends the input as sealed frames: type, length (2 bytes), payload.
static void send_frames(pair *p, const uint8_t *data, size_t size, bool to_the_coordinator)
{
    control_stream s;
    seal_stream(p, !to_the_coordinator, &s);
    while (size >= 3) {
        const size_t wanted = (size_t)data[1] | (size_t)data[2] << 8;
        const size_t count = wanted < size - 3 ? wanted : size - 3;
        const control_type type = (control_type)(1 + data[0] % (CONTROL_MSG_COUNT - 1));
        if (control_stream_put(&s, type, (control_span){data + 3, (int64_t)count},
                               (control_span){0}) != ST_OK) {
            break;
        }
        data += 3 + count;
        size -= 3 + count;
    }
    const control_span out = control_stream_output(&s);
    for (int64_t at = 0; at < out.bytes; at += PIECE_MAX) {
        const uint8_t *bytes = (const uint8_t *)out.data + at;
        const int64_t count = min_i64(out.bytes - at, PIECE_MAX);
        if (to_the_coordinator) {
            to_coordinator(p, bytes, count);
        } else {
            to_member(p, bytes, count);
        }
    }
    control_stream_deinit(&s);
}

static void send_raw(pair *p, const uint8_t *data, size_t size, bool to_the_coordinator)
{
    for (size_t at = 0; at < size; at += 100) {
        const int64_t count = min_i64((int64_t)(size - at), 100);
        if (to_the_coordinator) {
            to_coordinator(p, data + at, count);
        } else {
            to_member(p, data + at, count);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) return 0;
    const int how = data[0] % 6;
    pair p = {.ranks = 1 + data[0] / 6 % 3};
    if (!begin(&p)) return 0;
    if (how == 2 || how == 3) pump(&p); // the challenge is in transit
    if (how >= 4) {
        pump(&p);
        pump(&p);
        ASSERT(control_member_state(p.m) == (p.ranks == 1 ? CONTROL_RUNNING : CONTROL_WAITING));
    }
    if (how < 4) {
        send_raw(&p, data + 1, size - 1, how % 2 == 0);
    } else {
        send_frames(&p, data + 1, size - 1, how == 4);
    }
    // Both machines must still work: time passes and they report what is due.
    const control_event tick = {.kind = CONTROL_TICK}, closed = {.kind = CONTROL_CLOSED};
    control_notice n;
    control_coordinator_handle(p.coordinator, &tick, now + INT64_C(3000000000));
    control_member_handle(p.m, &tick, now + INT64_C(3000000000));
    control_coordinator_handle(p.coordinator, &closed, now);
    control_member_handle(p.m, &closed, now);
    while (control_coordinator_notice(p.coordinator, &n)) ASSERT(strlen(n.text) < sizeof(n.text));
    while (control_member_notice(p.m, &n)) ASSERT(strlen(n.text) < sizeof(n.text));
    control_member_destroy(p.m);
    control_coordinator_destroy(p.coordinator);
    control_key_destroy(p.key);
    error_clear();
    return 0;
}
