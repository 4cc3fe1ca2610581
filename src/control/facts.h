// Facts that all ranks of a job must share, in a form that can be compared and named.
//
// Each rank brings a list of (kind, key, value): its build, its resolved configuration line by
// line, its data, and what its numerics depend on. The handshake carries four digests. Only when
// they differ do the ranks send the lists themselves, and the error names the differing key and the
// rank that stands alone.
#ifndef CONTROL_FACTS_H
#define CONTROL_FACTS_H

#include "base/text.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum control_fact_kind {
    CONTROL_BUILD,
    CONTROL_CONFIG,
    CONTROL_DATA,
    CONTROL_NUMERICS,
    CONTROL_FACT_KINDS
} control_fact_kind;

const char *control_fact_kind_name(control_fact_kind kind); // "configuration"

typedef struct control_fact {
    control_fact_kind kind;
    const char *key, *value; // "layout.tp", "4"
} control_fact;

enum {
    CONTROL_DIGEST_BYTES = 16,
    CONTROL_FACTS_MAX = 4096,
    CONTROL_RECORD_BYTES_MAX = 256 << 10 // size of the record on the wire
};

// Computes the digest of each kind: the first 16 bytes of a SHA-256 over its facts in their order.
void control_facts_digest(const control_fact *facts, int64_t count,
                          uint8_t out[CONTROL_FACT_KINDS][CONTROL_DIGEST_BYTES]);

// Writes the list as bytes, the fingerprint record. ST_USAGE: it exceeds a limit.
NODISCARD status control_record_print(const control_fact *facts, int64_t count, text *out);

// The facts of one rank, or of several ranks that agree.
typedef struct control_side {
    int rank;              // one of them
    int count;             // number of ranks that agree
    const char *host;      // of that rank
    const uint8_t *record; // from control_record_print; untrusted; NULL: unknown
    int64_t record_bytes;
} control_side;

// Writes for example "rank 3 (n2) was refused: layout.tp is 2 there and 4 on the other 7 ranks", at
// most `limit_bytes` with the NUL. It names the first two keys that differ. `kinds` has a bit per
// kind whose digests differ.
void control_facts_explain(const control_side *odd, const control_side *rest, unsigned kinds,
                           char *out, int64_t limit_bytes);

#ifdef __cplusplus
}
#endif
#endif
