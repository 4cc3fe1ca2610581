// Many ranks that talk: groups, collectives, and the promise that none of them differs or hangs unseen.
//
//   comm_open    this rank's end of a job: a transport, the control block (shared with the ranks of this host)
//   comm_split   groups along mesh axes; a rank may be in many, each with its own order of operations
//   comm_run     one operation, in this thread, until no peer needs this rank's buffers any more
//   comm_post    the same on a device's stream: computation goes on meanwhile; an event ends it
//
// The contract. With every operation travel job, epoch, group, sequence number, operation, type, count,
// root, tensor and call site. Ranks that do not agree all fail with ST_DIVERGED and one text that names
// two ranks, what each wanted and where; no extra message is needed for that. Nothing waits without a
// deadline, and a wait ends at once when a peer it depends on is known to be gone (ST_PEER_LOST).
// After a failure the group is dead: every later call returns the same error. The process is not.
//
// The bits. An algorithm's row states the order in which it sums: `any` (depends on the algorithm),
// `rank` (left to right over ranks: depends on their number), `shard` (the fixed binary tree over
// shards: depends on neither). Strict runs ask for COMM_ORDER_SHARD. fp32 and narrower sums are made in
// fp32 and rounded once at the end; all ranks get the same bits in every order.
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include "kernels/kernels.h"
#include "op/collective.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    COMM_MAX_RANKS = 1 << 20,
    COMM_MAX_LOCAL = 256,  // ranks of one host
    COMM_MAX_GROUPS = 256, // of one rank
    COMM_MAX_TERMS = 16,   // tree nodes of one rank in an operation
    COMM_MAX_ITEMS = 1024  // tensors in one operation
};

typedef struct comm comm;
typedef struct comm_group comm_group;

typedef enum comm_order {
    COMM_ORDER_ANY,   // whatever is fastest
    COMM_ORDER_RANK,  // ((x0 + x1) + x2) + ...
    COMM_ORDER_SHARD, // the fixed tree over shards
    COMM_ORDER_COUNT
} comm_order;

const char *comm_order_name(comm_order o);

// One tensor of an operation. in == out is in place (all_gather, scatter: in is out's own piece;
// reduce_scatter, gather: out is in's). Empty: both may be NULL.
typedef struct comm_item {
    const void *in;
    void *out;
    int64_t count; // see collective
    // REDUCE_SCATTER, ALL_GATHER: elements of all pieces together, the same on all ranks. Pieces end there: the
    // last ones are shorter, or have nothing. 0: n * count.
    int64_t total;
} comm_item;

// With order `shard`: a term of the sum is the tree node over shards [begin, end) of `shards`, a range
// that one node of the tree covers: begin = i 2^k, end = min(begin + 2^k, shards).
typedef struct comm_term {
    int32_t begin, end;
} comm_term;

typedef struct comm_args {
    op_collective op;
    op_reduction reduction;
    comm_order order;
    dtype type;
    int32_t root; // rank in the group; SEND, RECEIVE: the peer
    // Tensors, one after the other, as if they were one. Usually one.
    const comm_item *items;
    int item_count;
    // COMM_ORDER_SHARD: this rank's tree nodes, ascending; items holds item_count * term_count items, the
    // terms of an item side by side, `out` that of its first. No terms: one per rank, shard = rank.
    const comm_term *terms;
    int term_count;
    int32_t shards;
    // ALL_TO_ALLV: elements to and from each rank of the group.
    const int64_t *send_counts, *receive_counts;
    // ALL_REDUCE, REDUCE_SCATTER of fp32 whose terms travel encoded: how (comm/compressed.h). The items are in
    // place and together one vector, also where a rank gets only its piece of the sum. NULL: as they are.
    const struct comm_compressed *compressed;
    const char *algorithm; // NULL: chosen by size and topology; else by name, refused if it cannot
    const char *tensor;    // what it is, for people: "gradients, bucket 4"; compared between ranks
    const char *site;      // where in the program or plan: "src/x.c:12", "action 88"
    int64_t step;          // of training, for the recorder; -1 outside one
    int32_t record; // row of the plan, for transports that price it; of no meaning outside one
} comm_args;

// A way between ranks, for `doctor`: whether it could be used on this machine, and how or why not.
typedef struct comm_path {
    const char *name; // of the transport
    bool is_there, hosts_apart;
    const char *words; // static, as cost
    const char *cost;  // of a slow fall-back, and the remedy; NULL: it is none
} comm_path;
int comm_paths(comm_path *out, int capacity); // how many

// How this rank's processes or threads meet the others of its host: comm_control_block_create, once per host.
typedef struct comm_control_block comm_control_block;

struct control_group; // control/frame.h

typedef struct comm_config {
    const host *h;
    uint64_t job; // the same number on all ranks
    uint32_t epoch;
    int rank, ranks;             // of the job
    int local_rank, local_ranks; // of this host
    const char *transport; // "auto", "self", "shm", "ucx", "mpi": a row of comm/transport_table.c
    // In place of the name: a row that the table does not have, and what its open() needs; borrowed.
    const struct comm_transport *row;
    void *row_context;
    comm_control_block *control_block; // shm: the host's; borrowed
    // Ranks on several hosts: which one this is (ranks with the same number share a control block), and its name for
    // people.
    uint64_t machine;
    const char *host;
    // How the ranks of a group exchange bytes before they can talk, to set a transport up: every member gives
    // its own and gets those of all, by place. Several groups may do so at the same time. NULL: they cannot.
    status (*swap)(void *context, const struct control_group *g, const void *mine, int64_t bytes,
                   void *all);
    void *swap_context;
    int64_t deadline_ns; // of one wait; 0: 600 s
    const char *tuning;  // text of a table that `bench comm --tune` wrote; NULL: built-in choices
    int spin_ns;         // 0: measured; how long a wait spins before it sleeps
} comm_config;

// Collective: all ranks of the job.
NODISCARD status comm_open(const comm_config *config, comm **out);
void comm_close(comm *c);        // NULL is legal. Collective unless the job has failed
comm_group *comm_world(comm *c); // all ranks of the job; goes with c
int comm_rank(const comm *c);
int comm_ranks(const comm *c);
int comm_local_ranks(const comm *c);            // of this host
const char *comm_transport_name(const comm *c); // the one in use
const char *comm_tuning(const comm *c);         // the config's: a table's text, or NULL

// ---- the control block: what the ranks of one host share ------------------------------------------------
// Makes it (memfd); processes of the host inherit or receive the descriptor, threads share the pointer.
// `cores` that its ranks may use together decide whether a wait spins; 0: those of this process.
NODISCARD status comm_control_block_create(int local_ranks, uint64_t job, int cores,
                                           comm_control_block **out);
NODISCARD status
comm_control_block_map(int fd, comm_control_block **out); // another process's; fd is duplicated
int comm_control_block_fd(const comm_control_block *b);
int comm_control_block_ranks(const comm_control_block *b);
// Makes every wait of every rank of this host fail: by who supervises them.
void comm_control_block_abort(comm_control_block *b, status code, const char *text);
void comm_control_block_unmap(
    comm_control_block *b); // the mapping and this process's descriptor; NULL is legal

// ---- memory that peers reach --------------------------------------------------------------------
// Buffers in shared regions are read and written in place by the ranks of this host; all others go through
// a staging piece, a copy more. The first: memory for a device's arena (kern_device_config.memory).
typedef struct comm_memory comm_memory;
NODISCARD status comm_memory_create(comm *c, int64_t bytes, comm_memory **out);
void *comm_memory_at(const comm_memory *m);
void comm_memory_destroy(comm_memory *m); // no operation on it may be running on any rank

// ---- groups --------------------------------------------------------------------------------------
// Ranks of the same colour form a group, ordered by rank; color < 0: in none (*out is NULL).
// Collective: all ranks of the job, in the same order of calls. `name` ("dp", "tp") is for people.
NODISCARD status comm_split(comm *c, int color, const char *name, comm_group **out);
// The same with members that the caller knows: ranks of the job, ascending, this one among them.
// Collective over the members only; `number` tells groups of the same members apart, 0..255.
NODISCARD status comm_group_create(comm *c, const int32_t *members, int count, int number,
                                   const char *name, comm_group **out);
void comm_group_destroy(comm_group *g);
int comm_group_rank(const comm_group *g);
int comm_group_size(const comm_group *g);
const char *comm_group_name(const comm_group *g);

// ---- operations ----------------------------------------------------------------------------------
// Collective over the group. In one group operations run one after the other, in the order of calls.
NODISCARD status comm_run(comm_group *g, const comm_args *args);
// Enqueues it on a stream of a device whose memory the transport can reach, and returns at once. args is
// copied, its arrays are not: they and the buffers stay until an event recorded on the stream after this is
// done. False in *posted: the queue is full; call again later.
NODISCARD status comm_post(comm_group *g, const kern_device_api *device, kern_lane *stream,
                           const comm_args *args, bool *posted);
// What posted operations took, since the group was made; any thread.
int64_t comm_group_worked_ns(const comm_group *g);
// The time in which any posted operation of any of this rank's groups was on its way: what goes on side by
// side on several lanes counts once. 0 without a control block; any thread.
int64_t comm_busy_ns(comm_group *g);
NODISCARD status comm_barrier(comm_group *g, const char *site);
// The usual ones.
NODISCARD status comm_all_reduce(comm_group *g, void *buffer, int64_t count, dtype type,
                                 op_reduction sums, const char *tensor, const char *site);

// Makes every wait of this rank fail: from any thread, on the verdict that a peer is lost.
void comm_abort(comm *c, status code, const char *text);

// Whom this rank waits for at this moment: from any thread. A wait that has only just begun is left out.
typedef struct comm_awaited {
    int32_t rank; // of the job
    uint32_t group;
    uint64_t operation; // sequence number
} comm_awaited;
int comm_waits_for(comm *c, comm_awaited *out, int capacity); // how many

// ---- what is chosen ------------------------------------------------------------------------------
typedef struct comm_choice {
    const char *algorithm;
    comm_order order; // in which it sums
    bool staged;      // a copy more, because a buffer is not shared
} comm_choice;
NODISCARD status comm_choose(comm_group *g, const comm_args *args, comm_choice *out);

#ifdef __cplusplus
}
#endif
#endif
