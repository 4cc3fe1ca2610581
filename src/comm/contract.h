// What all ranks of a group must agree on before a byte of an operation is touched.
//
// 64 bytes that travel with every operation: in a ticket (shared memory), or in front of each message.
// Two that differ are a bug in the plan or in the program, on one of the two ranks; the text says which
// field, both values and both call sites. Numbers only: names are found by their hashes in the board's
// (or the sender's) table of names, when there is something to say.
#ifndef COMM_CONTRACT_H
#define COMM_CONTRACT_H

#include "comm/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct comm_contract {
    uint32_t magic;    // COMM_MAGIC
    uint32_t epoch;    //
    uint64_t job;      //
    uint64_t sequence; // operation of this group, from 1
    uint32_t group;    // number of the group
    uint8_t op, reduction, order, type;
    int32_t root;
    uint32_t algorithm; // row that will run: it must be the same everywhere
    int64_t count;      // sum over items; ALL_TO_ALLV: 0
    uint64_t tensor;    // hash of its name
    uint32_t site;      // hash of the call site: shown, not compared
    uint32_t checksum;  // CRC32C of what is before it, where it leaves the host; else 0
} comm_contract;
_Static_assert(sizeof(comm_contract) == 64, "one cache line");

enum { COMM_MAGIC = 0x434d3031 }; // "10MC"

// What the two sides are called in the text.
typedef struct comm_party {
    int rank; // of the job
    const char *host, *tensor, *site;
} comm_party;

// True if they agree; a text otherwise ("collectives differ at #88213: rank 2 (n1) ...").
bool comm_contract_equal(const comm_contract *a, const comm_contract *b);
status comm_contract_refuse(const comm_contract *mine, const comm_party *me,
                            const comm_contract *theirs, const comm_party *them);

#ifdef __cplusplus
}
#endif
#endif
