// Encodes, seals and checks frames. Layout of a handshake frame (little endian):
//    0 magic 4 | version 2 | type 1 | zero 1 | 8 job 8 | 16 epoch 4 | rank 4 | ranks 4 | code 4 |
//   32 digests 4 x 16 | 96 nonce 32 | 128 pid 8 | started 8 | machine 8 | 152 host 64 |
//  216 zero 8 | 224 MAC 32
// Layout of a control frame:
//    0 magic 4 | length 4 | type 2 | zero 2 | epoch 4 | sequence 8 | payload | MAC 32
#include "control/frame.h"

#include "base/fault.h"

#include <stdlib.h>
#include <string.h>

enum {
    HELLO_MAGIC = 0x30435254, // "TRC0"
    FRAME_MAGIC = 0x31435254, // "TRC1"
    VERSION = 1,
    MAC_AT = CONTROL_HELLO_BYTES - CONTROL_HASH_BYTES,
    BUFFER_FIRST = 1024
};

void control_put16(uint8_t *at, uint16_t x)
{
    for (int i = 0; i < 2; i++) at[i] = (uint8_t)(x >> (8 * i));
}

void control_put32(uint8_t *at, uint32_t x)
{
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(x >> (8 * i));
}

void control_put64(uint8_t *at, uint64_t x)
{
    for (int i = 0; i < 8; i++) at[i] = (uint8_t)(x >> (8 * i));
}

uint16_t control_get16(const uint8_t *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

uint32_t control_get32(const uint8_t *at)
{
    return (uint32_t)control_get16(at) | (uint32_t)control_get16(at + 2) << 16;
}

uint64_t control_get64(const uint8_t *at)
{
    return (uint64_t)control_get32(at) | (uint64_t)control_get32(at + 4) << 32;
}

// ---- handshake frames ---------------------------------------------------------------------------
void control_hello_print(const control_hello *m, uint8_t out[CONTROL_HELLO_BYTES])
{
    memset(out, 0, CONTROL_HELLO_BYTES);
    control_put32(out, HELLO_MAGIC);
    control_put16(out + 4, VERSION);
    out[6] = (uint8_t)m->type;
    control_put64(out + 8, m->job);
    control_put32(out + 16, m->epoch);
    control_put32(out + 20, (uint32_t)m->rank);
    control_put32(out + 24, (uint32_t)m->ranks);
    control_put32(out + 28, m->code);
    memcpy(out + 32, m->digest, sizeof(m->digest));
    memcpy(out + 96, m->nonce, CONTROL_NONCE_BYTES);
    control_put64(out + 128, (uint64_t)m->pid);
    control_put64(out + 136, m->started);
    control_put64(out + 144, m->machine);
    memcpy(out + 152, m->host, strnlen(m->host, CONTROL_HOST_BYTES - 1));
}

// Copies a name that is shown to people: printable ASCII, then zeros to the end.
static bool parse_host(const uint8_t *at, char out[CONTROL_HOST_BYTES])
{
    int64_t n = 0;
    while (n < CONTROL_HOST_BYTES && at[n] > 0x20 && at[n] < 0x7f) n++;
    for (int64_t i = n; i < CONTROL_HOST_BYTES; i++) {
        if (at[i] != 0) return false;
    }
    if (n == CONTROL_HOST_BYTES) return false;
    memcpy(out, at, CONTROL_HOST_BYTES);
    return true;
}

bool control_hello_parse(const uint8_t bytes[CONTROL_HELLO_BYTES], control_hello *out)
{
    const uint8_t *b = bytes;
    static const uint8_t zeros[8];
    if (control_get32(b) != HELLO_MAGIC || control_get16(b + 4) != VERSION) return false;
    if (b[6] < CONTROL_HELLO || b[6] > CONTROL_REJECT || b[7] != 0) return false;
    if (memcmp(b + 216, zeros, sizeof(zeros)) != 0) return false;
    control_hello m = {
        .type = (control_hello_type)b[6],
        .job = control_get64(b + 8),
        .epoch = control_get32(b + 16),
        .rank = (int32_t)control_get32(b + 20),
        .ranks = (int32_t)control_get32(b + 24),
        .code = control_get32(b + 28),
        .pid = (int64_t)control_get64(b + 128),
        .started = control_get64(b + 136),
        .machine = control_get64(b + 144),
    };
    const int32_t lowest = m.type == CONTROL_CHALLENGE || m.type == CONTROL_REJECT ? -1 : 0;
    if (m.ranks < 1 || m.ranks > CONTROL_RANKS_MAX) return false;
    if (m.rank < lowest || m.rank >= m.ranks) return false;
    if (m.pid < 0 || m.pid > INT32_MAX || m.code >= STATUS_COUNT) return false;
    if (!parse_host(b + 152, m.host)) return false;
    memcpy(m.digest, b + 32, sizeof(m.digest));
    memcpy(m.nonce, b + 96, CONTROL_NONCE_BYTES);
    *out = m;
    return true;
}

void control_handshake_begin(control_handshake *s, const control_key *k, uint64_t job,
                             uint32_t epoch)
{
    static const char salt[] = "trireme control 1", name[] = "handshake";
    uint8_t info[sizeof(name) + 12];
    memcpy(info, name, sizeof(name));
    control_put64(info + sizeof(name), job);
    control_put32(info + sizeof(name) + 8, epoch);
    control_hkdf((control_span){salt, sizeof(salt)},
                 (control_span){control_key_bytes(k), CONTROL_KEY_BYTES},
                 (control_span){info, sizeof(info)}, s->key, sizeof(s->key));
    control_sha256_begin(&s->said);
}

static void handshake_mac(const control_handshake *s, const uint8_t *frame,
                          uint8_t out[CONTROL_HASH_BYTES])
{
    uint8_t before[CONTROL_HASH_BYTES];
    control_sha256 copy = s->said;
    control_sha256_end(&copy, before);
    control_hmac h;
    control_hmac_begin(&h, s->key, sizeof(s->key));
    control_hmac_add(&h, before, sizeof(before));
    control_hmac_add(&h, frame, MAC_AT);
    control_hmac_end(&h, out);
}

void control_handshake_seal(control_handshake *s, uint8_t frame[CONTROL_HELLO_BYTES])
{
    handshake_mac(s, frame, frame + MAC_AT);
    control_sha256_add(&s->said, frame, CONTROL_HELLO_BYTES);
}

bool control_handshake_check(control_handshake *s, const uint8_t frame[CONTROL_HELLO_BYTES])
{
    uint8_t wanted[CONTROL_HASH_BYTES];
    handshake_mac(s, frame, wanted);
    if (!control_equal(wanted, frame + MAC_AT, sizeof(wanted))) return false;
    control_sha256_add(&s->said, frame, CONTROL_HELLO_BYTES);
    return true;
}

// ---- streams ------------------------------------------------------------------------------------
void control_stream_init(control_stream *s, int64_t in_limit, int64_t out_limit)
{
    *s = (control_stream){.in_limit = in_limit, .out_limit = out_limit};
}

void control_stream_deinit(control_stream *s)
{
    free(s->in);
    free(s->out);
    control_wipe(s, sizeof(*s));
}

void control_stream_key(control_stream *s, const control_key *k, const control_handshake *said,
                        uint32_t epoch, bool is_coordinator)
{
    // The labels are part of the wire format: both ends derive their keys from these bytes.
    static const char to_coordinator[] = "rank to hub", to_rank[] = "hub to rank";
    uint8_t salt[CONTROL_HASH_BYTES];
    control_sha256 copy = said->said;
    control_sha256_end(&copy, salt);
    const control_span secret = {control_key_bytes(k), CONTROL_KEY_BYTES};
    uint8_t *up = is_coordinator ? s->receive_key : s->send_key;
    uint8_t *down = is_coordinator ? s->send_key : s->receive_key;
    control_hkdf((control_span){salt, sizeof(salt)}, secret,
                 (control_span){to_coordinator, sizeof(to_coordinator)}, up, CONTROL_HASH_BYTES);
    control_hkdf((control_span){salt, sizeof(salt)}, secret,
                 (control_span){to_rank, sizeof(to_rank)}, down, CONTROL_HASH_BYTES);
    s->has_keys = true;
    s->epoch = epoch;
}

// Grows a buffer to at least `wanted` bytes.
static status grow(uint8_t **bytes, int64_t *capacity, int64_t wanted)
{
    if (wanted <= *capacity) return ST_OK;
    int64_t size = max_i64(*capacity, BUFFER_FIRST);
    while (size < wanted) size *= 2;
    TRY(fault_point("control.stream.grow"));
    uint8_t *grown = realloc(*bytes, (size_t)size);
    if (grown == NULL)
        return fail(ST_NO_MEMORY, "no memory for %lld bytes of control messages",
                    (long long)wanted);
    *bytes = grown;
    *capacity = size;
    return ST_OK;
}

static void drop_used(control_stream *s)
{
    if (s->in_used == 0) return;
    s->in_count -= s->in_used;
    if (s->in_count > 0) memmove(s->in, s->in + s->in_used, (size_t)s->in_count);
    s->in_used = 0;
}

status control_stream_take(control_stream *s, const void *bytes, int64_t count)
{
    drop_used(s);
    // The buffer may hold one whole unparsed frame and the bytes that came after it in one read.
    const int64_t limit = s->in_limit + CONTROL_HEADER_BYTES + CONTROL_HASH_BYTES + (128 << 10);
    if (count > limit - s->in_count) {
        return fail(ST_SECURITY, "more than %lld bytes arrived without a complete frame",
                    (long long)limit);
    }
    if (count == 0) return ST_OK;
    TRY(grow(&s->in, &s->in_capacity, s->in_count + count));
    memcpy(s->in + s->in_count, bytes, (size_t)count);
    s->in_count += count;
    return ST_OK;
}

const uint8_t *control_stream_hello(control_stream *s)
{
    drop_used(s);
    if (s->in_count < CONTROL_HELLO_BYTES) return NULL;
    s->in_used = CONTROL_HELLO_BYTES;
    return s->in;
}

static void frame_mac(const uint8_t key[CONTROL_HASH_BYTES], const uint8_t *frame, int64_t bytes,
                      uint8_t out[CONTROL_HASH_BYTES])
{
    control_hmac h;
    control_hmac_begin(&h, key, CONTROL_HASH_BYTES);
    control_hmac_add(&h, frame, bytes);
    control_hmac_end(&h, out);
}

status control_stream_next(control_stream *s, control_frame *out, bool *has)
{
    ASSERT(s->has_keys);
    drop_used(s);
    *has = false;
    if (s->in_count < CONTROL_HEADER_BYTES) return ST_OK;
    const uint8_t *b = s->in;
    const int64_t bytes = control_get32(b + 4);
    const unsigned type = control_get16(b + 8);
    // These checks come before any allocation: a length is trusted only within its limit, and the
    // MAC comes last.
    if (control_get32(b) != FRAME_MAGIC || bytes > s->in_limit || type == CONTROL_MSG_NONE ||
        type >= CONTROL_MSG_COUNT || control_get16(b + 10) != 0) {
        return fail(ST_SECURITY, "the received bytes are not a control frame");
    }
    if (control_get32(b + 12) != s->epoch || control_get64(b + 16) != s->receive_sequence) {
        return fail(ST_SECURITY,
                    "a control frame of epoch %u with number %llu arrived, expected epoch %u "
                    "and number %llu",
                    control_get32(b + 12), (unsigned long long)control_get64(b + 16), s->epoch,
                    (unsigned long long)s->receive_sequence);
    }
    const int64_t sealed = CONTROL_HEADER_BYTES + bytes;
    if (s->in_count < sealed + CONTROL_HASH_BYTES) return ST_OK;
    uint8_t wanted[CONTROL_HASH_BYTES];
    frame_mac(s->receive_key, b, sealed, wanted);
    if (!control_equal(wanted, b + sealed, sizeof(wanted))) {
        return fail(ST_SECURITY, "a control frame with a wrong MAC arrived");
    }
    s->receive_sequence++;
    s->in_used = sealed + CONTROL_HASH_BYTES;
    *out = (control_frame){(control_type)type, b + CONTROL_HEADER_BYTES, bytes};
    *has = true;
    return ST_OK;
}

// Reserves `count` bytes of output.
static status reserve(control_stream *s, int64_t count, uint8_t **at)
{
    if (s->out_begin > 0) {
        s->out_end -= s->out_begin;
        if (s->out_end > 0) memmove(s->out, s->out + s->out_begin, (size_t)s->out_end);
        s->out_begin = 0;
    }
    if (count > s->out_limit - s->out_end) {
        return fail(ST_TIMEOUT, "the other side has not read %lld bytes of control messages",
                    (long long)s->out_end);
    }
    TRY(grow(&s->out, &s->out_capacity, s->out_end + count));
    *at = s->out + s->out_end;
    s->out_end += count;
    return ST_OK;
}

status control_stream_put_raw(control_stream *s, const void *bytes, int64_t count)
{
    uint8_t *at = NULL;
    TRY(reserve(s, count, &at));
    memcpy(at, bytes, (size_t)count);
    return ST_OK;
}

status control_stream_put(control_stream *s, control_type type, control_span a, control_span b)
{
    ASSERT(s->has_keys && a.bytes >= 0 && b.bytes >= 0);
    const int64_t bytes = a.bytes + b.bytes, sealed = CONTROL_HEADER_BYTES + bytes;
    ASSERT(bytes <= CONTROL_TO_RANK_MAX);
    uint8_t *at = NULL;
    TRY(reserve(s, sealed + CONTROL_HASH_BYTES, &at));
    control_put32(at, FRAME_MAGIC);
    control_put32(at + 4, (uint32_t)bytes);
    control_put16(at + 8, (uint16_t)type);
    control_put16(at + 10, 0);
    control_put32(at + 12, s->epoch);
    control_put64(at + 16, s->send_sequence++);
    if (a.bytes > 0) memcpy(at + CONTROL_HEADER_BYTES, a.data, (size_t)a.bytes);
    if (b.bytes > 0) memcpy(at + CONTROL_HEADER_BYTES + a.bytes, b.data, (size_t)b.bytes);
    frame_mac(s->send_key, at, sealed, at + sealed);
    return ST_OK;
}

control_span control_stream_output(const control_stream *s)
{
    return (control_span){s->out == NULL ? NULL : s->out + s->out_begin, s->out_end - s->out_begin};
}

void control_stream_sent(control_stream *s, int64_t count)
{
    ASSERT(count >= 0 && count <= s->out_end - s->out_begin);
    s->out_begin += count;
}
