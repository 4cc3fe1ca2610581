// The bytes between a rank and the coordinator: 256-byte handshake frames, then sealed control
// frames.
//
//   rank                                   coordinator
//   HELLO      identity, nonce     ->            MAC under the handshake key over the frame
//                             <-   CHALLENGE     its own nonce; MAC over both frames
//   PROOF      the same            ->            MAC over all three
//   from here on each direction has its own key, derived from the job's key and all three frames
//   [ header | payload | MAC ]    <->            sequence numbers count up from 0 without a gap
//
// The handshake key is derived from the job's key, the job and the epoch, so a frame of another job
// or epoch fails its check. Each handshake MAC covers all earlier frames, so no frame can be
// replayed, reflected or moved. Input is untrusted until its MAC was checked, and the parser treats
// it as hostile afterwards too.
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
    CONTROL_HOST_BYTES = 64, // a host's name with its NUL
    CONTROL_RANKS_MAX = 4096,
    CONTROL_HEADER_BYTES = 24,
    CONTROL_TO_COORDINATOR_MAX = 512 << 10, // payload of one frame from a rank
    CONTROL_TO_RANK_MAX = 64 << 20,         // payload of one frame from the coordinator
    CONTROL_SWAP_BYTES_MAX = 64 << 10       // of one rank in control_swap
};

// The ranks that take part in a swap. Several groups may swap at the same time.
typedef struct control_group {
    uint64_t key;     // all members give the same key and no other group does; 0: all ranks
    int place, count; // place of this rank among the members, and their number
} control_group;

typedef enum control_hello_type {
    CONTROL_HELLO = 1,
    CONTROL_CHALLENGE,
    CONTROL_PROOF,
    // From the coordinator instead of a challenge; `code` gives the reason. Not sealed: a hint.
    CONTROL_REJECT
} control_hello_type;

typedef struct control_hello {
    control_hello_type type;
    uint64_t job;
    uint32_t epoch;
    int32_t rank, ranks; // in a challenge: the coordinator's rank, or -1
    uint32_t code;       // status of a REJECT, else 0
    uint8_t digest[CONTROL_FACT_KINDS][CONTROL_DIGEST_BYTES];
    uint8_t nonce[CONTROL_NONCE_BYTES];
    int64_t pid;
    uint64_t started, machine; // start time; kernel and pid namespace
    char host[CONTROL_HOST_BYTES];
} control_hello;

// Writes the frame without its MAC, which control_handshake_seal adds.
void control_hello_print(const control_hello *m, uint8_t out[CONTROL_HELLO_BYTES]);
// Returns false if magic, version, type or a limit is wrong, the name is not printable, or the rest
// is not zero.
bool control_hello_parse(const uint8_t bytes[CONTROL_HELLO_BYTES], control_hello *out);

// The running hash of both sides' frames, and the handshake key of this job and epoch.
typedef struct control_handshake {
    uint8_t key[CONTROL_HASH_BYTES];
    control_sha256 said;
} control_handshake;
void control_handshake_begin(control_handshake *s, const control_key *k, uint64_t job,
                             uint32_t epoch);
void control_handshake_seal(control_handshake *s, uint8_t frame[CONTROL_HELLO_BYTES]);
// Checks the MAC; adds the frame to the hash only if it is correct.
bool control_handshake_check(control_handshake *s, const uint8_t frame[CONTROL_HELLO_BYTES]);

// ---- control frames -----------------------------------------------------------------------------
typedef enum control_type {
    CONTROL_MSG_NONE,
    CONTROL_MSG_BEAT,       // both: I am alive; from a rank with its report
    CONTROL_MSG_ASK_RECORD, // coordinator: asks for the rank's facts
    CONTROL_MSG_RECORD,     // rank: its facts
    CONTROL_MSG_WELCOME,    // coordinator: all ranks have joined; their identities
    CONTROL_MSG_END,        // coordinator: the job cannot go on: code, text
    CONTROL_MSG_SWAP,       // rank: key of the group, place and count of members; bytes
    CONTROL_MSG_SWAPPED,    // coordinator: key and bytes of all members
    CONTROL_MSG_REQUEST,    // rank: asks for an agreement on (kind, argument)
    CONTROL_MSG_ASK_STEP,   // coordinator: asks for the largest promised step
    CONTROL_MSG_PROMISE,    // rank: promises to begin no later step before the decision
    CONTROL_MSG_DECIDED,    // coordinator: the agreed action follows this step
    CONTROL_MSG_LOST,       // rank: a local peer's process is gone
    CONTROL_MSG_FAILED,     // rank: it gives up; code, text
    CONTROL_MSG_VERDICT,    // coordinator: rank, verdict, text
    CONTROL_MSG_LEAVE,      // rank: it is done
    CONTROL_MSG_BYE,        // coordinator: all ranks are done
    CONTROL_MSG_COUNCIL,    // between the members of a council (council.h)
    CONTROL_MSG_COUNT
} control_type;

typedef struct control_frame {
    control_type type;
    const uint8_t *payload; // borrowed from the stream's buffer until its next call
    int64_t bytes;
} control_frame;

// One end of a connection: input, output and, after the handshake, keys. The limits bound its
// memory. Input is kept until a whole frame is there, output until the owner reports it as sent.
typedef struct control_stream {
    uint8_t *in, *out;
    int64_t in_count, in_capacity, in_used; // in_used: parsed bytes, dropped by the next call
    int64_t out_begin, out_end, out_capacity;
    int64_t in_limit, out_limit; // in_limit: largest payload of one frame
    bool has_keys;
    uint32_t epoch;
    uint8_t send_key[CONTROL_HASH_BYTES], receive_key[CONTROL_HASH_BYTES];
    uint64_t send_sequence, receive_sequence;
} control_stream;

void control_stream_init(control_stream *s, int64_t in_limit, int64_t out_limit);
void control_stream_deinit(control_stream *s); // wipes
// Derives the keys of both directions after PROOF.
void control_stream_key(control_stream *s, const control_key *k, const control_handshake *said,
                        uint32_t epoch, bool is_coordinator);

// Returns ST_SECURITY if more bytes came than any frame may hold.
NODISCARD status control_stream_take(control_stream *s, const void *bytes, int64_t count);
// Returns the next handshake frame, or NULL if it is incomplete.
const uint8_t *control_stream_hello(control_stream *s);
// Returns the next control frame; *has is false if it is incomplete. ST_SECURITY: the bytes are no
// frame of this connection, and the stream cannot be used any more.
NODISCARD status control_stream_next(control_stream *s, control_frame *out, bool *has);

NODISCARD status control_stream_put_raw(control_stream *s, const void *bytes, int64_t count);
// Sends a payload of one or two parts. ST_TIMEOUT: the other side has read so little that out_limit
// is reached.
NODISCARD status control_stream_put(control_stream *s, control_type type, control_span a,
                                    control_span b);
// The pending output; control_stream_sent removes `count` bytes of it.
control_span control_stream_output(const control_stream *s);
void control_stream_sent(control_stream *s, int64_t count);

// ---- numbers in frames: little endian -----------------------------------------------------------
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
