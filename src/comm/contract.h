// What all ranks of a group must agree on before a byte of an operation is touched.
//
// 64 bytes that travel with every operation: in a descriptor (shared memory), or in front of each message.
// Two that differ are a bug in the plan or in the program, on one of the two ranks; the text says which
// field, both values and both call sites. Numbers only: names are found by their hashes in the control block's
// (or the sender's) table of names, when there is something to say.
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
    uint16_t algorithm; // row that will run: it must be the same everywhere
    uint16_t items;     // tensors
    int64_t count;      // sum over items; ALL_TO_ALLV: 0
    uint32_t tensor;    // hash of its name, and of the counts of several items
    uint32_t shards;    // of order `shard` with terms, else 0
    uint32_t site;      // hash of the call site: shown, not compared
    uint32_t checksum;  // CRC32C of what is before it, where it leaves the host; else 0
} comm_contract;

enum { COMM_MAGIC = 0x434d3031 }; // "10MC"

// What the two sides are called in the text. Empty or NULL texts are left out.
typedef struct comm_party {
    int rank; // of the job
    const char *host, *tensor, *site;
} comm_party;

// What two lines differ by in word i.
static inline uint64_t comm_word_xor(const void *a, const void *b, int i)
{
    uint64_t x, y;
    memcpy(&x, (const char *)a + 8 * i, sizeof(x));
    memcpy(&y, (const char *)b + 8 * i, sizeof(y));
    return x ^ y;
}
// True if they agree in all but site and checksum. Word by word: copies of both cost 3 ns.
static inline bool comm_contract_equal(const comm_contract *a, const comm_contract *b)
{
    uint64_t differ = comm_word_xor(a, b, 0) | comm_word_xor(a, b, 1) | comm_word_xor(a, b, 2);
    differ |= comm_word_xor(a, b, 3) | comm_word_xor(a, b, 4) | comm_word_xor(a, b, 5);
    return (differ | comm_word_xor(a, b, 6)) == 0;
}
// ST_DIVERGED with a text ("collectives differ at #88213 of group dp: rank 2 (n1) ..."). The same text on
// every rank that names the same two sides in the same order.
status comm_contract_refuse(const char *group, const comm_contract *a, const comm_party *who_a,
                            const comm_contract *b, const comm_party *who_b);
// "all_reduce #12 of gradients (16 x fp32)" for people. Returns buffer.
const char *comm_contract_text(const comm_contract *k, const char *tensor, char *buffer, int bytes);
// Of a name in contract, tables of names and recorder; 0 for NULL and "".
uint32_t comm_name_hash(const char *name);

#ifdef __cplusplus
}
#endif
#endif
