// Inside comm/: this rank's end of a job and its groups.
#ifndef COMM_COMM_INTERNAL_H
#define COMM_COMM_INTERNAL_H

#include "comm/algo/direct.h"
#include "comm/control_block.h"
#include "comm/nccl/nccl.h"
#include "comm/peer.h"

#include <pthread.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { COMM_MAX_SHARED = 8, COMM_MAX_POSTED = 64, COMM_MAX_CHOICES = 512, COMM_GROUP_NAME = 32 };

typedef struct comm_rule { // of the tuning table
    op_collective op;
    int ranks;         // of the group
    int64_t max_bytes; // of one rank's operand
    int algorithm;     // row
} comm_rule;

struct comm {
    comm_config config;
    const comm_transport *transport;
    comm_link *link;
    comm_link *self; // for groups of one rank
    comm_group *world;
    comm_group *groups; // all but the world
    pthread_mutex_t lock;
    bool failed;          // some group is dead
    error_record aborted; // by comm_abort, under the lock; ST_OK: it was not
    int splits;           // so far
    // Number of posted operations in progress, and the time with any in progress.
    int under_way;
    int64_t busy_since, busy_ns;
    comm_nccl_watch *watch; // of all groups with NCCL; NULL: there was none
    struct {                // pieces of GPUs that groups share
        void *memory;
        comm_link *link;
        const comm_transport *transport;
        int32_t region;
        int users;
    } shared[COMM_MAX_SHARED];
    int rule_count;
    comm_rule rules[COMM_MAX_CHOICES];
    comm_vectors vectors;
};

typedef struct comm_posted { // an operation that waits on a device's stream, or runs there
    struct comm_group *group;
    comm_args args;
    comm_contract contract;
    int64_t posted_ns;
    uint32_t busy;
} comm_posted;

typedef struct comm_label { // the last name and its hash, since most operations repeat
    uint32_t hash;          // 0: there is none yet, or the name is too long
    int32_t words;          // words of the text up to its zero
    char text[56];          // cut, and filled up with zeros
} comm_label;

// Cache of a thread for the operations of a group: names, and the last algorithm of each operation
// (its key, 0 for none, and row). A search for an algorithm costs 50 ns.
typedef struct comm_memo {
    comm_label tensor, site;
    uint64_t chosen_key[COLLECTIVE_COUNT];
    int chosen[COLLECTIVE_COUNT];
} comm_memo;

struct comm_group {
    comm *owner;
    comm_group *next;
    comm_port *port;
    const comm_transport *transport;
    rank_record *record; // with the recorder; NULL: there is no control block
    int rank, size;
    char name[COMM_GROUP_NAME];
    comm_direct *direct;
    bool has_levels;
    comm_levels levels;
    comm_nccl *nccl;      // NULL: the transport posts
    comm_nccl_rows *rows; // NULL: those of experts go through the host
    comm_peer *peer;      // NULL: GPUs do not reach each other's memory
    void *peer_memory;
    void *scratch;
    int64_t scratch_bytes;
    int64_t *counts;           // of operations with offsets; NULL before the first
    uint64_t *sent, *received; // messages to and from each rank; NULL before the first
    // Caches of the calling thread, and of the thread of the stream, which runs posted operations.
    comm_memo caller, stream;
    bool dead;          // set once, under the owner's lock, after `error`
    error_record error; // why
    comm_posted posted[COMM_MAX_POSTED];
    int posted_next;
    int64_t worked_ns; // of posted operations
};

// Chooses an algorithm by name, by the tuning table or by topology: its index in
// comm_algorithm_table.
NODISCARD status comm_algorithm_choose(comm_group *g, comm_memo *memo, const comm_args *args,
                                       int *out);
NODISCARD status comm_rules_read(comm *c, const char *tuning);
NODISCARD status comm_group_open(comm *c, const int32_t *members, int count, uint32_t number,
                                 const char *name, comm_group **out);
// Runs an operation in this thread. A failure ends the group. A dead group returns its error.
NODISCARD status comm_operation_run(comm_group *g, comm_memo *memo, const comm_args *args,
                                    const comm_contract *contract, int64_t posted_ns);
// Makes the contract, with this number, of an operation whose arguments are checked, and chooses
// its algorithm.
NODISCARD status comm_contract_make(comm_group *g, comm_memo *memo, const comm_args *args,
                                    uint64_t sequence, comm_contract *out);
// Runs the algorithm that the contract names and records it. comm_compressed_run does so for each
// exchange of a compressed sum; their numbers begin at `sequence`.
NODISCARD status comm_algorithm_run(comm_group *g, comm_memo *memo, const comm_args *args,
                                    const comm_contract *contract, int64_t posted_ns);
NODISCARD status comm_compressed_run(comm_group *g, comm_memo *memo, const comm_args *args,
                                     uint64_t sequence, int64_t posted_ns);
// comm_group_library_agree of a group that has NCCL. A failure leaves the group as it is.
NODISCARD status comm_plans_compare(comm_group *g, const device_api *api,
                                    const comm_args *const *plans, int64_t count);
// The error of comm_abort, for waits that its transport does not end.
NODISCARD status comm_abort_check(comm *c);
// Called before and after a posted operation.
void comm_busy_begin(comm_group *g);
void comm_busy_end(comm_group *g);
void comm_group_close(comm_group *g); // which is not in the owner's list any more

#ifdef __cplusplus
}
#endif
#endif
