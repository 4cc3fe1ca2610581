// How ranks reach each other: a family, one file and one row of transport_table.c each.
//
//   self   one rank                shm    ranks of one host, processes or threads of one process
//   ucx    hosts apart (plugin)    mpi    where a site wants its own (plugin)
//
// A transport gives a *port* per group. There are two ways through it; a row may have either or both:
//
//   direct    arrive(): every rank shows its descriptor (what it is about to do, and where its buffers are) and
//             sees all others'; then it reads and writes peers' memory as its own; depart(): all are done.
//             Two waits per operation, no copy. Tickets alternate between two places, so that an
//             operation that carries its data in the descriptor needs no depart(). Buffers that peers cannot
//             reach go through a stage, piece by piece, with two more depart() for each.
//   messages  exchange(): sends to one rank while receiving from another; framed, with the contract in
//             front; ends when both buffers may be used again.
//
// All calls block their thread and return ST_OK, ST_TIMEOUT (naming who did not come), ST_PEER_LOST or
// ST_DIVERGED. They spin while each rank has a core, and sleep otherwise.
//
// post() is how an operation gets onto a stream of a device, and the only way that the executor uses. A
// transport with a row of its own for it (a library that posts to streams, the simulator's virtual transport)
// needs neither direct nor messages: no algorithm runs over it, and comm_run() is refused. The transports
// above have post = comm_post_blocking, which runs an algorithm in a host function on the stream.
#ifndef COMM_TRANSPORT_H
#define COMM_TRANSPORT_H

#include "comm/comm.h"
#include "comm/contract.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct comm_link comm_link; // a rank's end of a transport
typedef struct comm_transport comm_transport;

typedef struct comm_members {
    const int32_t *ranks; // of the job, ascending
    int count, me;        // me: index of this rank
    uint32_t group;       // number that all members share
    const char *name;     // for people
} comm_members;

// A rank's end of one group. First member of every transport's own struct.
typedef struct comm_port {
    const comm_transport *transport;
    comm_link *link;
    comm_members members;     // ranks and name: copies, gone with the port
    struct comm_group *group; // it belongs to; NULL for ports within a port
    uint64_t sequence;        // of the last operation that got a contract
    int inline_bytes;         // that a descriptor carries at most, the same on all members
    bool shares_cores; // there are more ranks than cores: steal() and complete() are worth it
    int64_t *begun;    // in a record: where arrive() of a transport that stamps writes the time
    int64_t
        ended_ns; // when depart() of one that stamps was done, within a microsecond; 0: not known
} comm_port;

enum {
    COMM_INLINE_BYTES = 1024, // where ranks share cores, and a wait less counts for more
    COMM_INLINE_OWN_CORE = 512,
    COMM_BRIEF_BYTES = 16,
    COMM_STAGE_BYTES = 512 << 10,
    COMM_MAX_ENTRIES = COMM_MAX_ITEMS * COMM_MAX_TERMS
};

// Where a buffer is. Region -1: private, peers cannot reach it; COMM_NOWHERE: there is none (NULL).
enum { COMM_PRIVATE = -1, COMM_NOWHERE = -2 };
typedef struct comm_place {
    int64_t offset;
    int32_t region;
    int32_t unused;
} comm_place;

// Further buffers than the descriptor's own: item by item, term by term; ALL_TO_ALLV: a piece per rank.
typedef struct comm_entry {
    int64_t count;
    comm_place in, out;
} comm_entry;

// What a rank shows at arrive().
typedef struct comm_descriptor {
    comm_contract contract;
    int32_t entry_count; // in the list; 0: one item with one term, in and out below
    int32_t term_count;  // 0: none are given; then one per rank
    int32_t payload_bytes;
    int32_t staged; // bits COMM_STAGED_*: some `in`, `out` is private
    comm_place in, out;
    unsigned char payload[COMM_INLINE_BYTES]; // its first 16 bytes are in the second line still
    // Set if no rank's payload in this operation is larger than COMM_BRIEF_BYTES, and all else above is
    // empty: a transport may then show contract and payload in one line. Follows from the contract alone.
    int32_t brief;
    int32_t unused[3]; // whole lines
} comm_descriptor;
// COMM_ALONE: some that peers need not touch is private, so that they cannot do this rank's share.
enum { COMM_STAGED_IN = 1, COMM_STAGED_OUT = 2, COMM_STAGED = 3, COMM_ALONE = 4 };

// The list of a rank: what its descriptor has no room for. Lives in memory that its peers see.
typedef struct comm_list {
    comm_term terms[COMM_MAX_TERMS];
    comm_entry entries[COMM_MAX_ENTRIES];
} comm_list;

typedef struct comm_message {
    int peer;         // rank in the group; -1: none
    const void *send; // or
    void *receive;
    int64_t bytes;
} comm_message;

struct comm_transport {
    const char *name;
    bool direct, messages;
    bool hosts_apart; // can leave the host
    bool stamps;      // arrive() writes to port->begun, unless it is NULL
    // True if it can serve these ranks here; else the reason in *why (static text).
    bool (*available)(const comm_config *config, const char **why);
    // Whether it could be used on this machine, how or why not, and what a slow way costs (static texts;
    // *cost stays where there is none). NULL: not worth a word.
    bool (*probe)(const char **words, const char **cost);
    status (*open)(const comm_config *config, comm_link **out);
    void (*close)(comm_link *link);
    status (*join)(comm_link *link, const comm_members *members, comm_port **out);
    void (*leave)(comm_port *port);
    // Ports of a group's ranks on this host, and of those with this rank's number on theirs, which go with
    // the port. *local is NULL where it is not that regular. NULL: never.
    status (*levels)(comm_port *port, comm_port **local, comm_port **across);
    // ---- direct: copies the descriptor, waits until all have shown theirs, checks the contracts
    status (*arrive)(comm_port *port, const comm_descriptor *mine);
    // Valid until this rank's next-but-one arrive(). Of brief ones there is the payload only.
    const comm_descriptor *(*descriptor)(const comm_port *port, int rank);
    const void *(*payload)(const comm_port *port, int rank);
    status (*depart)(comm_port *port);
    // Instead of depart(), where ranks share cores: a rank whose share of this operation nobody has begun, now
    // the caller's to do; -1: there is none. complete(): it is done. wait_all(): all are. NULL: each does its own.
    int (*steal)(comm_port *port);
    void (*complete)(comm_port *port, int rank);
    status (*wait_all)(comm_port *port);
    // The list of this rank, with room for so many entries, to be filled before arrive(); of any rank, after.
    status (*list_begin)(comm_port *port, int64_t entries, comm_list **mine);
    const comm_list *(*list)(const comm_port *port, int rank);
    // Where bytes of a rank lie here.
    status (*address)(comm_port *port, int rank, comm_place place, int64_t bytes, void **out);
    // The stage of a rank: COMM_STAGE_BYTES that all members see. Own: made on the first call.
    status (*stage)(comm_port *port, int rank, void **out);
    // ---- memory: regions are numbered per rank; locate() finds the place of a pointer of this rank
    status (*region_create)(comm_link *link, int64_t bytes, int32_t *region, void **at);
    void (*region_destroy)(comm_link *link, int32_t region);
    comm_place (*locate)(const comm_link *link, const void *at, int64_t bytes);
    // ---- messages
    status (*exchange)(comm_port *port, const comm_contract *contract, comm_message send,
                       comm_message receive);
    // ---- on a stream
    // Enqueues an operation and returns at once; false in *posted: there is no space now. It is complete when an
    // event recorded on the stream afterwards is. args and contract are copied; the arrays in args and the
    // buffers stay until then. The group's operations carry consecutive contracts.
    status (*post)(comm_port *port, const kern_device_api *device, kern_lane *stream,
                   const comm_args *args, const comm_contract *contract, bool *posted);
    // ---- both: what to tell people, and the end
    // Before arrive(), exchange(): what is begun, and the names behind the contract's hashes.
    void (*note)(comm_port *port, const comm_contract *contract, const char *tensor,
                 const char *site);
    status (*kill)(
        comm_port
            *port); // ends the group with this thread's error, or an earlier one; returns that
    void (*stop)(comm_link *link, status code, const char *text); // from any thread
    // Whom waits of this rank that have lasted a while are for: from any thread. NULL: nobody knows.
    int (*waits_for)(comm_link *link, comm_awaited *out, int capacity);
};

// For join(): the members of a group, and nobody else, exchange bytes by comm_config.swap. all: [count] by
// place. Every member must come, also one that failed: it says so in its bytes.
NODISCARD status comm_members_swap(const comm_config *config, const comm_members *m,
                                   const void *mine, int64_t bytes, void *all);
// post() of a transport whose calls block: the operation runs in a host function on the stream, so the
// device must have them (kern_device_api.call).
status comm_post_blocking(comm_port *port, const kern_device_api *device, kern_lane *stream,
                          const comm_args *args, const comm_contract *contract, bool *posted);
// Whether algorithms can run over it.
static inline bool comm_transport_runs(const comm_transport *t)
{
    return t->direct || t->messages;
}

extern const comm_transport *const comm_transport_table[];
int comm_transport_count(void);
const comm_transport *comm_transport_find(const char *name); // NULL: none

#ifdef __cplusplus
}
#endif
#endif
