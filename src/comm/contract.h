// The contract of an operation: all ranks of a group must agree on it before any byte is touched.
//
// It is 64 bytes that travel with every operation: in a descriptor (shared memory), or in front of
// each message. If two contracts differ, the plan or the program has a bug on one of the two ranks;
// the text names the field, both values and both call sites. A contract has only numbers. Names are
// looked up by their hashes, in a table of the control block or of the sender, when a text is
// written.
#ifndef COMM_CONTRACT_H
#define COMM_CONTRACT_H

#include "comm/comm.h"

#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct comm_contract { // one cache line
    uint32_t magic;            // COMM_MAGIC
    uint32_t epoch;            //
    uint64_t job;              //
    uint64_t sequence; // operation of this group, from 1; SEND, RECEIVE: of this pair of ranks
    uint32_t group;    // number of the group
    uint8_t op, reduction, order, type;
    int32_t root;
    uint16_t algorithm; // row that will run, the same on all ranks
    uint16_t items;     // tensors
    int64_t count;      // sum over items; ALL_TO_ALLV: 0
    uint32_t tensor;    // hash of its name, and of the counts if there are several items
    uint32_t shards;    // of order `shard` with terms, else 0
    uint32_t site;      // hash of the call site: shown, not compared
    uint32_t checksum;  // CRC32C of the bytes before it between hosts; else 0
} comm_contract;

enum { COMM_MAGIC = 0x434d3031 }; // "10MC"

// Names of a side in the text. Empty or NULL ones are left out.
typedef struct comm_caller {
    int rank; // of the job
    const char *host, *tensor, *site;
} comm_caller;

// Returns the bits in which word i of two lines differs.
static inline uint64_t comm_word_xor(const void *a, const void *b, int i)
{
    uint64_t x, y;
    memcpy(&x, (const char *)a + 8 * i, sizeof(x));
    memcpy(&y, (const char *)b + 8 * i, sizeof(y));
    return x ^ y;
}
// Returns whether they agree in all but site and checksum. It compares words, since copies cost 3
// ns.
static inline bool comm_contract_equal(const comm_contract *a, const comm_contract *b)
{
    uint64_t differ = comm_word_xor(a, b, 0) | comm_word_xor(a, b, 1) | comm_word_xor(a, b, 2);
    differ |= comm_word_xor(a, b, 3) | comm_word_xor(a, b, 4) | comm_word_xor(a, b, 5);
    return (differ | comm_word_xor(a, b, 6)) == 0;
}
// Fails with ST_DIVERGED and a text that names both sides. Ranks that name the same two sides in
// the same order give the same text.
status comm_contract_refuse(const char *group, const comm_contract *a, const comm_caller *caller_a,
                            const comm_contract *b, const comm_caller *caller_b);
// Writes a text such as "all_reduce #12 of gradients (16 x fp32)". Returns buffer.
const char *comm_contract_text(const comm_contract *k, const char *tensor, char *buffer, int bytes);
// Hash of a name, as contracts, tables of names and the recorder have it; 0 for NULL and "".
uint32_t comm_name_hash(const char *name);

#ifdef __cplusplus
}
#endif
#endif
