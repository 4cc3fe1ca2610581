// The bytes between a rank and the coordinator: 256-byte handshake frames, then sealed control frames.
//
//   rank                                   coordinator
//   HELLO      who I am, nonce     ->            MAC under the handshake key over the frame
//                             <-   CHALLENGE     its own nonce; MAC over both frames
//   PROOF      the same            ->            MAC over all three
//   from here on each direction has a key of its own, made from the job's key and all that was said
//   [ header | payload | MAC ]    <->            the sequence number counts from 0, no gap, no repeat
//
// The handshake key is made from the job's key, the job and the epoch, so a frame of another job or epoch
// is a stranger's; each frame's MAC covers all before it, so none can be replayed, reflected or moved.
// Whatever comes in is hostile until its MAC was checked, and is parsed as hostile afterwards.
#ifndef CONTROL_FRAME_H
#define CONTROL_FRAME_H

#include "control/crypto.h"
#include "control/facts.h"
#include "control/key.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CONTROL_HELLO_BYTES = 256,
    CONTROL_NONCE_BYTES = 32,
    CONTROL_HOST_BYTES = 64, // of a host's name, with the NUL
    CONTROL_RANKS_MAX = 4096,
    CONTROL_HEADER_BYTES = 24,
    CONTROL_TO_COORDINATOR_MAX = 512 << 10, // payload of one frame from a rank
    CONTROL_TO_RANK_MAX = 64 << 20,         // and from the coordinator
    CONTROL_SWAP_BYTES_MAX = 64 << 10       // of one rank in control_swap
};

typedef enum control_hello_type {
    CONTROL_HELLO = 1,
    CONTROL_CHALLENGE,
    CONTROL_PROOF,
    CONTROL_REJECT // from the coordinator, instead of a challenge: "code" says why. Not sealed: only a hint
} control_hello_type;

typedef struct control_hello {
    control_hello_type type;
    uint64_t job;
    uint32_t epoch;
    int32_t rank, ranks; // of a challenge: the coordinator's rank, or -1
    uint32_t code;       // status of a REJECT, else 0
    uint8_t digest[CONTROL_FACT_KINDS][CONTROL_DIGEST_BYTES];
    uint8_t nonce[CONTROL_NONCE_BYTES];
    int64_t pid;
    uint64_t started, machine; // when the process began; which kernel and pid namespace it runs in
    char host[CONTROL_HOST_BYTES];
} control_hello;

// The frame without its MAC, which control_handshake_seal writes.
void control_hello_print(const control_hello *m, uint8_t out[CONTROL_HELLO_BYTES]);
// False if it is not one: magic, version, type, limits, a name that is not printable, rest not zero.
bool control_hello_parse(const uint8_t bytes[CONTROL_HELLO_BYTES], control_hello *out);

// Both sides' running hash of the frames, and the key of this job and epoch.
typedef struct control_handshake {
    uint8_t key[CONTROL_HASH_BYTES];
    control_sha256 said;
} control_handshake;
void control_handshake_begin(control_handshake *s, const control_key *k, uint64_t job,
                             uint32_t epoch);
void control_handshake_seal(control_handshake *s, uint8_t frame[CONTROL_HELLO_BYTES]);
// Checks the MAC; takes the frame into the hash only if it is right.
bool control_handshake_check(control_handshake *s, const uint8_t frame[CONTROL_HELLO_BYTES]);

// ---- control frames ------------------------------------------------------------------------------
typedef enum control_type {
    CONTROL_MSG_NONE,
    CONTROL_MSG_BEAT,       // both ways: alive; from a rank, with its report
    CONTROL_MSG_ASK_RECORD, // coordinator: send your facts
    CONTROL_MSG_RECORD,     // rank: they are
    CONTROL_MSG_WELCOME,    // coordinator: all are here; who they are
    CONTROL_MSG_END,        // coordinator: the job cannot go on: code, text
    CONTROL_MSG_SWAP,       // rank: number, bytes
    CONTROL_MSG_SWAPPED,    // coordinator: number, everybody's bytes
    CONTROL_MSG_REQUEST,    // rank: let us agree on (kind, argument)
    CONTROL_MSG_ASK_STEP,   // coordinator: which step have you promised at most
    CONTROL_MSG_PROMISE,    // rank: none beyond this one before the decision
    CONTROL_MSG_DECIDED,    // coordinator: after this step
    CONTROL_MSG_LOST,       // rank: that peer's process is gone
    CONTROL_MSG_FAILED,     // rank: I give up: code, text
    CONTROL_MSG_VERDICT,    // coordinator: rank, verdict, text
    CONTROL_MSG_LEAVE,      // rank: done
    CONTROL_MSG_BYE,        // coordinator: all are done
    CONTROL_MSG_COUNT
} control_type;

typedef struct control_frame {
    control_type type;
    const uint8_t *payload; // in the stream's buffer, until its next call
    int64_t bytes;
} control_frame;

// One end of a connection: bytes in, bytes out, and the keys once there are some. Memory is bounded by
// the limits; what comes is kept until it is a whole frame, what goes until the owner says it was sent.
typedef struct control_stream {
    uint8_t *in, *out;
    int64_t in_count, in_capacity, in_used; // in_used: parsed, to be dropped at the next call
    int64_t out_begin, out_end, out_capacity;
    int64_t in_limit, out_limit; // in_limit: payload of one frame
    bool has_keys;
    uint32_t epoch;
    uint8_t send_key[CONTROL_HASH_BYTES], receive_key[CONTROL_HASH_BYTES];
    uint64_t send_sequence, receive_sequence;
} control_stream;

void control_stream_init(control_stream *s, int64_t in_limit, int64_t out_limit);
void control_stream_deinit(control_stream *s); // wipes
// After PROOF: the keys of both directions.
void control_stream_key(control_stream *s, const control_key *k, const control_handshake *said,
                        uint32_t epoch, bool is_coordinator);

// ST_SECURITY if more came than any frame may hold.
NODISCARD status control_stream_take(control_stream *s, const void *bytes, int64_t count);
// The next handshake frame, or NULL: not all of it is there.
const uint8_t *control_stream_hello(control_stream *s);
// The next control frame. *has is false if not all of it is there. ST_SECURITY: not a frame of this
// connection; the stream is of no more use.
NODISCARD status control_stream_next(control_stream *s, control_frame *out, bool *has);

NODISCARD status control_stream_put_raw(control_stream *s, const void *bytes, int64_t count);
// Payload in one or two parts. ST_TIMEOUT if the other side has not read for so long that out_limit is full.
NODISCARD status control_stream_put(control_stream *s, control_type type, control_span a,
                                    control_span b);
// What is to be sent, and that `count` of it was.
control_span control_stream_output(const control_stream *s);
void control_stream_sent(control_stream *s, int64_t count);

// ---- numbers in frames: little endian ------------------------------------------------------------
void control_put16(uint8_t *at, uint16_t x);
void control_put32(uint8_t *at, uint32_t x);
void control_put64(uint8_t *at, uint64_t x);
uint16_t control_get16(const uint8_t *at);
uint32_t control_get32(const uint8_t *at);
uint64_t control_get64(const uint8_t *at);

#ifdef __cplusplus
}
#endif
#endif
