// Algorithms of collectives: a family, with a file and a row of algo_table.c each, and limits as
// data.
//
// A row states its operation, its order of summation and its needs. comm_choose takes the first row
// that fits from the tuning table (op, ranks, bytes -> name), or from the built-in table. A new
// algorithm is a file and a row. The contract test runs it over every transport that meets its
// needs, with all operations and types, 1 to 9 ranks and many sizes, against a naive reference.
#ifndef COMM_ALGO_H
#define COMM_ALGO_H

#include "comm/reduce.h"
#include "comm/transport/transport.h"

#ifdef __cplusplus
extern "C" {
#endif

// The kind of stores of a direct algorithm: its own choice, or that of a measurement.
typedef enum comm_stores_choice {
    COMM_STORES_AUTO,
    COMM_STORES_CACHED,
    COMM_STORES_STREAM
} comm_stores_choice;

// The subgroups of a group on several hosts with the same number of ranks on each, with
// neighbouring numbers.
typedef struct comm_levels {
    comm_port *local;           // the ranks of this host: direct
    comm_port *across;          // those with this rank's number on their host
    struct comm_direct *direct; // of local
} comm_levels;

// An operation in progress, for an algorithm: its arguments are checked and its contract is made.
typedef struct comm_call {
    const comm_args *args;
    const comm_transport *transport;
    comm_port *port;
    int rank, size; // in the group
    comm_vectors vectors;
    comm_contract contract;
    void *scratch; // scratch_bytes of it, aligned to 64
    int64_t scratch_bytes;
    comm_stores_choice stores;
    struct comm_direct *direct; // the group's, for the direct algorithms
    const comm_levels *levels;  // for those that need two levels
} comm_call;

// Returns NULL if there is no scratch, as in operations without elements.
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
    bool bounded;      // of ALL_TO_ALLV: takes rows with offsets, whose most is known
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
