// Algorithms of collectives: a family. One file each, a row each in algo_table.c, limits as data.
//
// A row says which operation it does, in which order it sums, and what it needs. comm_choose takes the first
// that fits from the tuning table (op, ranks, bytes -> name), or from the built-in one. To add an algorithm:
// a file, a row; the contract test runs it over every transport that has what it needs, all operations,
// types, 1 to 9 ranks and sizes against a naive reference.
#ifndef COMM_ALGO_H
#define COMM_ALGO_H

#include "comm/reduce.h"
#include "comm/transport/transport.h"

#ifdef __cplusplus
extern "C" {
#endif

// How a direct algorithm writes: as it thinks best, or as a measurement wants it.
typedef enum comm_stores_choice {
    COMM_STORES_AUTO,
    COMM_STORES_CACHED,
    COMM_STORES_STREAM
} comm_stores_choice;

// A group on several hosts, as many ranks on each, those of a host side by side. NULL: it is not so.
typedef struct comm_levels {
    comm_port *local;           // the ranks of this host: direct
    comm_port *across;          // those with this rank's number on their host
    struct comm_direct *direct; // of local
} comm_levels;

// An operation under way, as an algorithm sees it: checked, the contract made.
typedef struct comm_call {
    const comm_args *args;
    const comm_transport *transport;
    comm_port *port;
    int rank, size; // in the group
    kern_level level;
    comm_contract contract;
    void *scratch; // scratch_bytes of it, aligned to 64
    int64_t scratch_bytes;
    comm_stores_choice stores;
    struct comm_direct *direct; // the group's, for the direct algorithms
    const comm_levels *levels;  // for those that need two levels
} comm_call;

// NULL where there is none: operations on nothing need none.
static inline void *comm_scratch_at(const comm_call *c, int64_t offset)
{
    return c->scratch != NULL ? (char *)c->scratch + offset : NULL;
}

typedef struct comm_algorithm {
    const char *name; // "direct", "ring": with the operation it is unique
    op_collective op;
    comm_order order;  // in which it sums; of those that sum nothing: COMM_ORDER_SHARD
    bool terms;        // takes several tree nodes of a rank; all with order `shard` that sum
    bool direct;       // needs arrive/depart, all buffers within reach; else exchange
    bool levels;       // needs a group with two
    bool power_of_two; // of ranks
    bool ends;         // takes pieces that end before the last one (comm_item.total)
    int max_ranks;     // 0: any
    int64_t max_bytes; // of one rank's operand; 0: any
    bool items;        // takes several tensors at once
    status (*run)(comm_call *call);
    int64_t (*scratch)(const comm_args *args, int size); // bytes; NULL: none
} comm_algorithm;

extern const comm_algorithm *const comm_algorithm_table[];
int comm_algorithm_count(void);
const comm_algorithm *comm_algorithm_find(op_collective op, const char *name); // NULL: none

#ifdef __cplusplus
}
#endif
#endif
