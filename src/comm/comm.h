// Communication between ranks: groups and collectives, which detect ranks that disagree or hang.
//
//   comm_open    opens this rank's end of a job: a transport, and the control block of this host
//   comm_split   makes groups along mesh axes; a rank may be in many, each orders its own
//                operations
//   comm_run     runs an operation in this thread until no peer needs this rank's buffers any more
//   comm_post    enqueues it on a stream of a device; an event on the stream says when it is done
//
// The contract. Every operation carries job, epoch, group, sequence number, operation, type, count,
// root, tensor and call site. If ranks disagree, all of them fail with ST_DIVERGED and one text
// that names two ranks, both values and both call sites; this needs no extra message. Every wait
// has a deadline, and it ends at once when a peer that it depends on is known to be gone
// (ST_PEER_LOST). A failure ends the group, not the process: every later call of the group returns
// the same error.
//
// The bits. The row of an algorithm states its order of summation: `any` depends on the algorithm,
// `rank` (left to right over ranks) on the number of ranks, `shard` (the fixed binary tree over
// shards) on neither. Strict runs ask for COMM_ORDER_SHARD. Sums of fp32 and narrower types are
// made in fp32 and rounded once at the end. All ranks get the same bits in every order.
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include "device/device.h"
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
    COMM_ORDER_ANY,   // the fastest one
    COMM_ORDER_RANK,  // ((x0 + x1) + x2) + ...
    COMM_ORDER_SHARD, // the fixed tree over shards
    COMM_ORDER_COUNT
} comm_order;

const char *comm_order_name(comm_order o);

// One tensor of an operation. It is in place if in == out (all_gather, scatter: in is this rank's
// piece of out; reduce_scatter, gather: out is its piece of in). Both may be NULL if it has no
// elements.
typedef struct comm_item {
    const void *in;
    void *out;
    int64_t count; // op/collective.h defines it per operation
    // REDUCE_SCATTER, ALL_GATHER: elements of all pieces together, the same on all ranks. The last
    // pieces may be shorter, or empty. 0: n * count.
    int64_t total;
} comm_item;

// With order `shard` each term of the sum is a node of the tree, which covers the shards [begin,
// end): begin = i 2^k, end = min(begin + 2^k, shards).
typedef struct comm_term {
    int32_t begin, end;
} comm_term;

typedef struct comm_args {
    op_collective op;
    op_reduction reduction;
    comm_order order;
    dtype type;
    int32_t root; // rank in the group; SEND, RECEIVE: the peer
    // The tensors of the operation, usually one. They count as one long tensor.
    const comm_item *items;
    int item_count;
    // COMM_ORDER_SHARD: the tree nodes that this rank has, ascending. items then holds item_count *
    // term_count items: the terms of a tensor follow each other, the first one with its `out`.
    // Without terms each rank has one, and its number is the shard.
    const comm_term *terms;
    int term_count;
    int32_t shards;
    // ALL_TO_ALLV: elements to and from each rank of the group.
    const int64_t *send_counts, *receive_counts;
    // Or offsets of rows instead, `stride` of them for each rank and one more: rows from offsets[r
    // stride] to offsets[(r + 1) stride] - 1 go to rank r, and come from it. A row has row_elements
    // elements. They are read when the operation runs, by the host, so earlier work of its stream
    // may write them.
    const int32_t *send_offsets, *receive_offsets;
    int32_t stride;
    int64_t row_elements, receive_most; // receive_most: the most elements that may come
    // How the terms of an ALL_REDUCE or REDUCE_SCATTER of fp32 are encoded (comm/compressed.h);
    // NULL: they are not. The items are in place and together one vector, even if a rank gets only
    // its piece of the sum.
    const struct comm_compressed *compressed;
    // The buffers lie in memory of GPUs on all ranks (comm_group_peer_posts and _rows_posts).
    bool on_device;
    const char
        *algorithm;     // NULL: chosen by size and topology; a named one that cannot run is refused
    const char *tensor; // name of the operand, "gradients, bucket 4"; it is compared between ranks
    const char *site;   // place in the program or plan: "src/x.c:12", "action 88"
    int64_t step;       // training step, for the recorder; -1 outside a step
    int32_t record;     // row of the plan's communications, for transports that price it
} comm_args;

// A transport and whether this machine can use it, for `doctor`.
typedef struct comm_path {
    const char *name; // of the transport
    bool is_there, hosts_apart;
    const char *words; // how or why not; static, as is cost
    const char *cost;  // the cost of a slow fallback, and the remedy; NULL: it is fast
} comm_path;
int comm_paths(comm_path *out, int capacity); // how many

// The shared memory through which the ranks of one host find each other.
typedef struct comm_control_block comm_control_block;

struct control_group; // control/frame.h

typedef struct comm_config {
    const host *h;
    uint64_t job; // the same number on all ranks
    uint32_t epoch;
    int rank, ranks;             // of the job
    int local_rank, local_ranks; // of this host
    const char *transport; // "auto", "self", "shm", "ucx", "mpi": a row of comm/transport_table.c
    // A row that is not in the table, used instead of the name, and the argument of its open();
    // borrowed.
    const struct comm_transport *row;
    void *row_context;
    comm_control_block *control_block; // of this host, for shm; borrowed
    // For ranks on several hosts: the number of this host (its ranks share a control block) and its
    // name.
    uint64_t machine;
    const char *host;
    // Sets a transport up: the members of a group exchange bytes before they can communicate. Every
    // member gives its own and gets those of all by place; several groups may do so at the same
    // time. NULL: there is no way to do it.
    status (*swap)(void *context, const struct control_group *g, const void *mine, int64_t bytes,
                   void *all);
    void *swap_context;
    // NCCL posts operations on device memory, in groups that open it (comm_group_library_open);
    // borrowed. NULL: the transport does all.
    const struct nccl_library *nccl;
    // For waits outside the transport, as that for NCCL's start: an error if the rank shall wait no
    // longer, for example after a stop signal, and the name of a rank's host. NULL: nothing ends
    // such a wait before its deadline, and hosts have no names.
    status (*cancelled)(void *context);
    const char *(*host_of)(void *context, int rank);
    void *watch_context;
    bool peer;           // GPUs of this host read each other's memory (comm_group_peer_open)
    int64_t deadline_ns; // of one wait; 0: 600 s
    const char *tuning;  // text of a table that `bench comm --tune` wrote; NULL: built-in choices
    int spin_ns;         // how long a wait spins before it sleeps; 0: measured
} comm_config;

// Collective over all ranks of the job.
NODISCARD status comm_open(const comm_config *config, comm **out);
void comm_close(comm *c);        // NULL is legal. Collective unless the job has failed
comm_group *comm_world(comm *c); // the group of all ranks of the job; comm_close ends it
int comm_rank(const comm *c);
int comm_ranks(const comm *c);
int comm_local_ranks(const comm *c);            // of this host
int comm_local_rank(const comm *c);             // this rank's number among them
const char *comm_transport_name(const comm *c); // the one in use
const char *comm_tuning(const comm *c);         // the config's: a table's text, or NULL

// ---- the control block, which the ranks of one host share ---------------------------------------
// Makes one, as a memfd: processes of the host inherit or receive the file descriptor, threads
// share the pointer. `cores` is the number of cores that all its ranks may use; it decides whether
// a wait spins. 0: the cores of this process.
NODISCARD status comm_control_block_create(int local_ranks, uint64_t job, int cores,
                                           comm_control_block **out);
// Maps the control block of another process. fd is duplicated.
NODISCARD status comm_control_block_map(int fd, comm_control_block **out);
int comm_control_block_fd(const comm_control_block *b);
int comm_control_block_ranks(const comm_control_block *b);
// Makes every wait of every rank of this host fail. Their supervisor calls it.
void comm_control_block_abort(comm_control_block *b, status code, const char *text);
// Ends the mapping and closes this process's file descriptor. NULL is legal.
void comm_control_block_unmap(comm_control_block *b);

// ---- memory that peers reach --------------------------------------------------------------------
// The ranks of this host read and write buffers in shared regions in place. Other buffers are
// copied through a staging buffer. The arena of a device should be a shared region
// (device_config).
typedef struct comm_memory comm_memory;
NODISCARD status comm_memory_create(comm *c, int64_t bytes, comm_memory **out);
void *comm_memory_at(const comm_memory *m);
int64_t comm_memory_bytes(const comm_memory *m);
void comm_memory_destroy(comm_memory *m); // no operation on it may be running on any rank
// Memory may outlive its comm, with its values and its pages, which a new region would have to get
// again. leave: the peers reach it no longer; false: this transport cannot, and nothing changes.
// join: the peers of another comm reach it; ST_UNSUPPORTED: its transport cannot. create_apart:
// memory that no comm has yet.
bool comm_memory_leave(comm_memory *m);
NODISCARD status comm_memory_join(comm *c, comm_memory *m);
NODISCARD status comm_memory_create_apart(int64_t bytes, comm_memory **out);

// ---- groups -------------------------------------------------------------------------------------
// Ranks of the same colour form a group, ordered by rank. A rank with color < 0 is in none (*out is
// NULL). Collective over all ranks of the job, in the same order of calls. `name` ("dp", "tp")
// appears in texts.
NODISCARD status comm_split(comm *c, int color, const char *name, comm_group **out);
// Makes a group of members that the caller knows: ranks of the job, ascending, this one among them.
// Collective over the members only. `number`, 0 to 255, distinguishes groups of the same members.
NODISCARD status comm_group_create(comm *c, const int32_t *members, int count, int number,
                                   const char *name, comm_group **out);
void comm_group_destroy(comm_group *g);
int comm_group_rank(const comm_group *g);
int comm_group_size(const comm_group *g);
const char *comm_group_name(const comm_group *g);

// ---- operations ---------------------------------------------------------------------------------
// Collective over the group. The operations of a group run one after the other, in the order of
// calls.
NODISCARD status comm_run(comm_group *g, const comm_args *args);
// Enqueues an operation on a stream of a device whose memory the transport can reach, and returns
// at once. args is copied. Its arrays and the buffers must stay until an event that is recorded on
// the stream after this call is done. *posted is false if the queue is full; call again later.
NODISCARD status comm_post(comm_group *g, const device_api *api, device_stream *stream,
                           const comm_args *args, bool *posted);
// Lets NCCL post the group's operations on the device, if comm_config has it; else nothing.
// Collective over the group, in the same order of groups on all ranks. An error ends the group.
NODISCARD status comm_group_library_open(comm_group *g, const device_api *api, device *d);
// The same for an ALL_TO_ALLV of rows, whose counts the host must see first; a function of the host
// takes part. Collective as above; comm_group_library_close ends it too.
NODISCARD status comm_group_rows_open(comm_group *g, const device_api *api, device *d);
// Compares what NCCL will post for the group between its ranks, over the group's transport: no rank
// does so when it is posted. `plans` has the operations of all plans in their order, and NULL after
// those of each. Collective; nothing without NCCL. ST_DIVERGED names ranks that differ.
NODISCARD status comm_group_library_agree(comm_group *g, const device_api *api,
                                          const comm_args *const *plans, int64_t count);
void comm_group_library_close(comm_group *g); // no operation is under way
// Whether NCCL posts the operation: then its buffers may be memory that the host cannot touch, and
// the stream needs no function of the host.
bool comm_group_library_posts(const comm_group *g, const device_api *api, const comm_args *args);
// Whether NCCL sends the rows: then args.on_device may be set, and comm_post takes buffers in
// memory of the GPU. The offsets lie in memory of the host all the same.
bool comm_group_rows_posts(const comm_group *g, const comm_args *args);
// Lets the GPUs of the group read and write each other's memory, if comm_config.peer is set and all
// its ranks are of this host; else nothing. `memory` is the device's piece with the buffers of all
// operations. Collective over the group; ST_UNSUPPORTED on all ranks, with the remedy, if some GPU
// does not reach another. Close before the memory is released: it waits until no peer has it.
NODISCARD status comm_group_peer_open(comm_group *g, const device_api *api, device *d, void *memory,
                                      int64_t bytes);
void comm_group_peer_close(comm_group *g);
// Whether the GPUs do the operation so: then args.on_device may be set, and comm_post takes buffers
// in that memory. A function of the host takes part.
bool comm_group_peer_posts(const comm_group *g, const comm_args *args);
// Returns the error that ended the group, if one has.
NODISCARD status comm_group_check(const comm_group *g);
// Returns how long posted operations of the group took in all. From any thread.
int64_t comm_group_worked_ns(const comm_group *g);
// Returns how long any posted operation of this rank was in progress, in whichever groups;
// operations that overlap count once. 0 without a control block. From any thread.
int64_t comm_busy_ns(comm_group *g);
NODISCARD status comm_barrier(comm_group *g, const char *site);
// An all_reduce of one buffer in place.
NODISCARD status comm_all_reduce(comm_group *g, void *buffer, int64_t count, dtype type,
                                 op_reduction reduction, const char *tensor, const char *site);
// A BROADCAST, SEND or RECEIVE of bytes in place.
NODISCARD status comm_pass(comm_group *g, op_collective op, int root, void *data, int64_t bytes,
                           const char *tensor, const char *site);

// Makes every wait of this rank fail, for example when a peer is known to be lost. From any thread.
void comm_abort(comm *c, status code, const char *text);

// A rank that this one waits for. Waits that have just begun are left out. From any thread.
typedef struct comm_awaited {
    int32_t rank; // of the job
    uint32_t group;
    uint64_t operation; // sequence number
} comm_awaited;
int comm_waits_for(comm *c, comm_awaited *out, int capacity); // how many

// ---- the choice of an algorithm -----------------------------------------------------------------
typedef struct comm_choice {
    const char *algorithm;
    comm_order order; // of its summation
    bool staged;      // it copies through staging buffers, because a buffer is not shared
} comm_choice;
NODISCARD status comm_choose(comm_group *g, const comm_args *args, comm_choice *out);

#ifdef __cplusplus
}
#endif
#endif
