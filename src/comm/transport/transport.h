// Transports, by which ranks reach each other: a family, with one file and one row of
// transport_table.c each.
//
//   self   one rank alone
//   shm    ranks of one host: processes, or threads of one process
//   ucx    ranks of several hosts (the library is loaded at run time)
//   mpi    ranks of several hosts where a site wants its own MPI (loaded at run time)
//
// A transport gives a *port* per group. Algorithms use a port in two ways; a row may have either or
// both:
//
//   direct    arrive(): every rank shows its descriptor (its operation, and where its buffers are)
//             and sees those of all others. It then reads and writes peers' memory like its own.
//             depart(): all are done. This takes two waits per operation and no copy. Descriptors
//             alternate between two places, so an operation that carries its data in the descriptor
//             needs no depart(). Buffers that peers cannot reach go through a stage, piece by
//             piece, with two more depart() for each.
//   messages  exchange(): sends to one rank while receiving from another. A frame with the contract
//             precedes the bytes. The call ends when both buffers may be used again.
//
// All these calls block their thread and return ST_OK, ST_TIMEOUT (naming the ranks that did not
// come), ST_PEER_LOST or ST_DIVERGED. They spin while each rank has a core, and sleep otherwise.
//
// post() enqueues an operation on a stream of a device. The executor uses nothing else. A row with
// its own post() (a library that posts to streams, the simulator's virtual transport) needs neither
// direct nor messages: no algorithm runs over it, and comm_run() refuses it. The rows above have
// post = comm_post_blocking, which runs an algorithm in a host function on the stream.
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
    int count, me;        // number of members; index of this rank
    uint32_t group;       // number of the group, the same on all members
    const char *name;     // for texts
} comm_members;

// A rank's end of one group. It is the first member of every transport's own struct.
typedef struct comm_port {
    const comm_transport *transport;
    comm_link *link;
    comm_members members;     // ranks and name are copies that the port owns
    struct comm_group *group; // its owner; NULL for ports within a port
    uint64_t sequence;        // number of the last operation that got a contract
    int inline_bytes;         // largest payload of a descriptor, the same on all members
    bool shares_cores;        // there are more ranks than cores, so steal() and complete() pay off
    struct comm_peer *peer;   // of the operation in progress: its buffers are a GPU's; else NULL
    // Where arrive() of a transport that stamps writes the time, and when its depart() was done,
    // within a microsecond; 0: not known.
    int64_t *begun;
    int64_t ended_ns;
} comm_port;

enum {
    COMM_INLINE_BYTES = 1024, // if ranks share cores, where each wait costs more
    COMM_INLINE_OWN_CORE = 512,
    COMM_BRIEF_BYTES = 16,
    COMM_STAGE_BYTES = 512 << 10,
    COMM_MAX_ENTRIES = COMM_MAX_ITEMS * COMM_MAX_TERMS
};

// The place of a buffer. COMM_PRIVATE: peers cannot reach it. COMM_NOWHERE: it is NULL.
enum { COMM_PRIVATE = -1, COMM_NOWHERE = -2 };
typedef struct comm_place {
    int64_t offset;
    int32_t region;
    int32_t unused;
} comm_place;

// Buffers that the descriptor has no space for: the terms of each item, or the pieces of an
// ALL_TO_ALLV.
typedef struct comm_entry {
    int64_t count;
    comm_place in, out;
} comm_entry;

// The description of its operation that a rank shows at arrive().
typedef struct comm_descriptor {
    comm_contract contract;
    int32_t entry_count; // of the list; 0: one item with one term, whose in and out are below
    int32_t term_count;  // 0: no terms are given, so each rank has one
    int32_t payload_bytes;
    int32_t staged; // bits COMM_STAGED_*: some `in` or `out` is private
    comm_place in, out;
    unsigned char payload[COMM_INLINE_BYTES]; // its first 16 bytes are in the second cache line
    // Set if no rank's payload in this operation is larger than COMM_BRIEF_BYTES and all else above
    // is empty. A transport may then show contract and payload in one cache line. It follows from
    // the contract alone.
    int32_t brief;
    int32_t unused[3]; // fills the last cache line
} comm_descriptor;
// COMM_ALONE: a buffer that peers need not touch is private, so they cannot do this rank's share.
enum { COMM_STAGED_IN = 1, COMM_STAGED_OUT = 2, COMM_STAGED = 3, COMM_ALONE = 4 };

// The rest of a rank's descriptor, in memory that its peers see.
typedef struct comm_list {
    comm_term terms[COMM_MAX_TERMS];
    comm_entry entries[COMM_MAX_ENTRIES];
} comm_list;

// Memory of a region that outlives its link.
typedef struct comm_pages {
    void *at;
    int64_t bytes;
    int fd;
} comm_pages;

typedef struct comm_message {
    int peer;         // rank in the group; -1: none
    const void *send; // or
    void *receive;
    int64_t bytes;
} comm_message;

struct comm_peer; // comm/peer.h

struct comm_transport {
    const char *name;
    bool direct, messages;
    bool hosts_apart; // it connects ranks of several hosts
    bool stamps;      // arrive() writes to port->begun, unless it is NULL
    // Returns whether it can serve these ranks here; if not, with the reason in *why (static text).
    bool (*available)(const comm_config *config, const char **why);
    // Returns whether this machine can use the transport, with texts that say how or why not, and
    // the cost of a slow fallback (both static; *cost is unchanged if it is fast). NULL: `doctor`
    // does not report it.
    bool (*probe)(const char **words, const char **cost);
    status (*open)(const comm_config *config, comm_link **out);
    void (*close)(comm_link *link);
    status (*join)(comm_link *link, const comm_members *members, comm_port **out);
    void (*leave)(comm_port *port);
    // Gives two ports within the port: of the members on this host, and of the members that have
    // this rank's number on their hosts. *local is NULL unless all hosts have as many members.
    // NULL: it never has them.
    status (*levels)(comm_port *port, comm_port **local, comm_port **across);
    // ---- direct
    // Copies the descriptor, waits until all members have shown theirs, and checks the contracts.
    status (*arrive)(comm_port *port, const comm_descriptor *mine);
    // Valid until this rank's next-but-one arrive(). A brief descriptor has only its payload.
    const comm_descriptor *(*descriptor)(const comm_port *port, int rank);
    const void *(*payload)(const comm_port *port, int rank);
    status (*depart)(comm_port *port);
    // These replace depart() where ranks share cores. steal() returns a rank whose share of this
    // operation no rank has begun, and gives it to the caller; -1: there is none. complete() says
    // that a share is done, wait_all() waits for all shares. NULL: each rank does its own share.
    int (*steal)(comm_port *port);
    void (*complete)(comm_port *port, int rank);
    status (*wait_all)(comm_port *port);
    // list_begin() returns this rank's list with space for `count` entries, to be filled before
    // arrive(). list() returns that of any rank after it.
    status (*list_begin)(comm_port *port, int64_t entries, comm_list **mine);
    const comm_list *(*list)(const comm_port *port, int rank);
    // Gives the address at which this rank sees bytes of another.
    status (*address)(comm_port *port, int rank, comm_place place, int64_t bytes, void **out);
    // The stage of a rank is COMM_STAGE_BYTES that all members see. The first call for its own
    // makes it.
    status (*stage)(comm_port *port, int rank, void **out);
    // ---- memory
    // Regions are numbered per rank. locate() finds the place of a pointer of this rank.
    status (*region_create)(comm_link *link, int64_t bytes, int32_t *region, void **at);
    void (*region_destroy)(comm_link *link, int32_t region);
    // leave: ends the region and hands its memory over. join: a region of such memory. NULL: there
    // are none.
    void (*region_leave)(comm_link *link, int32_t region, comm_pages *out);
    status (*region_join)(comm_link *link, const comm_pages *pages, int32_t *region);
    comm_place (*locate)(const comm_link *link, const void *at, int64_t bytes);
    // Makes memory of a GPU a region: peers reach it in operations with args.on_device alone. It
    // must not be freed before region_destroy, which waits until no peer has it open.
    // peer_check() says whether `d` reaches the regions that another rank shares now. NULL: the
    // transport has no such regions.
    status (*region_share)(comm_link *link, device *d, void *memory, int64_t bytes,
                           int32_t *region);
    status (*peer_check)(comm_port *port, int rank, device *d);
    // ---- messages
    status (*exchange)(comm_port *port, const comm_contract *contract, comm_message send,
                       comm_message receive);
    // ---- on a stream
    // Enqueues an operation and returns at once; *posted is false if the queue is full. The
    // operation is done when an event that is recorded on the stream afterwards is. args and
    // contract are copied; the arrays in args and the buffers must stay until then. The operations
    // of a group have consecutive numbers.
    status (*post)(comm_port *port, const device_api *api, device_stream *stream,
                   const comm_args *args, const comm_contract *contract, bool *posted);
    // ---- texts, and the end of a group
    // Called before arrive() and exchange(): the operation that begins, and the names that the
    // contract hashes.
    void (*note)(comm_port *port, const comm_contract *contract, const char *tensor,
                 const char *site);
    // Ends the group with this thread's error, or an earlier one, and returns that error.
    status (*kill)(comm_port *port);
    // Ends all waits of this rank. From any thread.
    void (*stop)(comm_link *link, status code, const char *text);
    // Gives the ranks that this one has waited for longer than a moment. From any thread. NULL: not
    // known.
    int (*waits_for)(comm_link *link, comm_awaited *out, int capacity);
};

// For join(): the members of a group exchange bytes by comm_config.swap. `all` holds count * bytes
// by place. Every member must take part; one that failed says so in its bytes.
NODISCARD status comm_members_swap(const comm_config *config, const comm_members *m,
                                   const void *mine, int64_t bytes, void *all);
// The post() of transports whose calls block. The operation runs in a host function on the stream;
// a device without host functions (device_api.call) is refused.
status comm_post_blocking(comm_port *port, const device_api *api, device_stream *stream,
                          const comm_args *args, const comm_contract *contract, bool *posted);
// Returns whether algorithms run over a transport.
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
