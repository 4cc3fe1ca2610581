// What all ranks of a job must have in common, as facts that can be compared and named.
//
// Each rank brings a list of (kind, key, value): its build, its resolved configuration line by line, its
// data, what its numerics depend on. Four digests travel in the handshake; only when they differ are the
// lists themselves exchanged, and the text says which key differs and who stands alone.
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
    CONTROL_RECORD_BYTES_MAX = 256 << 10 // the list as it travels
};

// The digest of each kind: the first 16 bytes of a SHA-256 over its facts in their order.
void control_facts_digest(const control_fact *facts, int64_t count,
                          uint8_t out[CONTROL_FACT_KINDS][CONTROL_DIGEST_BYTES]);

// The list as bytes. ST_USAGE where it exceeds a limit.
NODISCARD status control_record_print(const control_fact *facts, int64_t count, text *out);

// What one rank, or several that agree, brought.
typedef struct control_side {
    int rank;              // one of them
    int count;             // how many agree
    const char *host;      // of that rank
    const uint8_t *record; // as control_record_print; hostile; NULL: not known
    int64_t record_bytes;
} control_side;

// "rank 3 (n2) refused: layout.tp is 2 there and 4 on the other 7 ranks". At most `limit_bytes` with the
// NUL; says the first two keys that differ. kinds: a bit per kind whose digests differ.
void control_facts_explain(const control_side *odd, const control_side *rest, unsigned kinds,
                           char *out, int64_t limit_bytes);

#ifdef __cplusplus
}
#endif
#endif
