// How ranks reach each other: a family, one file and one row of transport_table.c each.
//
//   self   one rank                shm    ranks of one host, processes or threads of one process
//   ucx    hosts apart (plugin)    mpi    where a site wants its own (plugin)
//
// A transport gives a *port* per group. There are two ways through it; a row may have either or both:
//
//   direct    meet(): every rank shows its ticket (what it is about to do, and where its buffers are) and
//             sees all others'; then it reads and writes peers' memory as its own; part(): all are done.
//             Two waits per operation, no copy. Tickets alternate between two places, so that an
//             operation that carries its data in the ticket needs no part().
//   messages  exchange(): sends to one rank while receiving from another; framed, with the contract in
//             front; ends when both buffers may be used again.
//
// All calls block their thread and return ST_OK, ST_TIMEOUT (naming who did not come), ST_PEER_LOST or
// ST_DIVERGED. They spin while each rank has a core, and sleep otherwise. nccl will post whole operations
// on its own stream (run), and so does the simulator's virtual transport: they skip the algorithms.
#ifndef COMM_TRANSPORT_H
#define COMM_TRANSPORT_H

#include "comm/comm.h"
#include "comm/contract.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct comm_link comm_link; // a rank's end of a transport
typedef struct comm_port comm_port; // of one group

enum { COMM_TICKET_BYTES = 1024, COMM_INLINE_BYTES = 256 };

// Where a buffer is: region -1: private (peers cannot reach it).
typedef struct comm_place {
    int32_t region;
    int64_t offset;
} comm_place;

// What a rank shows at meet().
typedef struct comm_ticket {
    comm_contract contract;
    comm_leaf leaves[COMM_MAX_LEAVES];
    int32_t leaf_count, item_count;
    // The first item's buffers; further ones are in the port's list area. With leaves: in[leaf].
    comm_place in[COMM_MAX_LEAVES], out;
    int32_t payload_bytes;
    _Alignas(64) unsigned char payload[COMM_INLINE_BYTES];
} comm_ticket;

typedef struct comm_message {
    int peer;         // rank in the group; -1: none
    const void *send; // or
    void *receive;
    int64_t bytes;
} comm_message;

typedef struct comm_members {
    const int32_t *ranks; // of the job, ascending
    int count, me;        // me: index of this rank
    uint32_t group;       // number that all members share
} comm_members;

typedef struct comm_transport {
    const char *name;
    bool direct, messages;
    bool hosts_apart; // can leave the host
    // True if it can serve these ranks here; else the reason in *why (static text).
    bool (*available)(const comm_config *config, const char **why);
    status (*open)(const comm_config *config, comm_link **out);
    void (*close)(comm_link *link);
    status (*join)(comm_link *link, const comm_members *members, comm_port **out);
    void (*leave)(comm_port *port);
    // direct
    status (*meet)(comm_port *port, const comm_ticket *mine); // copies it; the contract is checked
    const comm_ticket *(*ticket)(const comm_port *port,
                                 int rank); // valid until this rank's next-but-one meet
    void *(*address)(const comm_port *port, int rank,
                     comm_place place); // here; NULL: cannot be reached
    status (*part)(comm_port *port);
    // Memory: regions are numbered per rank; locate() finds the place of a pointer of this rank.
    status (*region_create)(comm_link *link, int64_t bytes, int32_t *region, void **at);
    void (*region_destroy)(comm_link *link, int32_t region);
    comm_place (*locate)(const comm_link *link, const void *at, int64_t bytes);
    // messages
    status (*exchange)(comm_port *port, const comm_contract *contract, comm_message send,
                       comm_message receive);
    void (*abort)(comm_link *link, status code, const char *text); // from any thread
} comm_transport;

extern const comm_transport *const comm_transport_table[];
int comm_transport_count(void);
const comm_transport *comm_transport_find(const char *name); // NULL: none

#ifdef __cplusplus
}
#endif
#endif
