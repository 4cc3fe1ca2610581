// Inside comm/transport/: the structures of the transport between hosts.
#ifndef COMM_TRANSPORT_UCX_H
#define COMM_TRANSPORT_UCX_H

#include "comm/transport/transport.h"
#include "comm/transport/ucx_library.h"

#if TRIREME_HAVE_UCX
#    include <pthread.h>

#    ifdef __cplusplus
extern "C" {
#    endif

enum {
    UCX_HOST = 64,
    UCX_ADDRESS = 4096 - 88, // of a worker
    UCX_NAME = 96,           // of a tensor or a call site, in frames
    UCX_TEXT = 1400,
    UCX_FRAME_BYTES = 4096, // with its payload
    UCX_PIECE_BYTES = 512 << 10,
    UCX_WINDOW = 4, // pieces in progress
    UCX_LINK = 256, // text
    UCX_ASKED = 64  // members that a waiting rank asks in turn
};

// In a tag: the receiver has posted buffers for all pieces.
#    define UCX_READY (UINT64_C(1) << 63)

// The record of a rank, which it gives to the members of its first groups.
typedef struct ucx_record {
    uint64_t machine;
    int32_t address_bytes, failed;
    char host[UCX_HOST];
    int64_t unused;
    unsigned char address[UCX_ADDRESS];
} ucx_record;

// A rank of the job, as this one sees it.
typedef struct ucx_peer {
    comm_link *link;
    int rank;
    ucp_ep_h ep;   // NULL: not connected
    char over[48]; // "tcp/eth0"
    bool heard;    // it sent or took something since the last check
    bool gone;
    bool bye;         // it said that it closes
    bool said_bye;    // this rank said so
    int64_t gone_ns;  // time at which a wait first saw that
    int64_t asked_ns; // time of the first question without an answer; 0: none
    char why[80];     // gone
} ucx_peer;

// ---- on the wire -------------------------------------------------------------------------------
// The frame before each message. A short message travels behind it; a longer one comes in pieces,
// and after several pieces their checksum.
typedef struct ucx_frame {
    comm_contract contract; // its checksum: CRC-32C of the bytes before it
    int64_t total;
    uint32_t sum;   // of the message, if it is inline or one piece
    uint32_t check; // of the bytes from here to the end of the names
    char tensor[UCX_NAME], site[UCX_NAME];
} ucx_frame;
enum { UCX_INLINE = UCX_FRAME_BYTES - (int)sizeof(ucx_frame) };

typedef struct ucx_trailer {
    int64_t total;
    uint32_t sum, unused;
} ucx_trailer;

typedef struct ucx_parcel {
    ucx_frame frame;
    unsigned char payload[UCX_INLINE];
} ucx_parcel;

// A note, which may come at any time between messages.
typedef enum ucx_word {
    UCX_ASK = 1, // the sender has waited for a while in this operation
    UCX_ANSWER,
    UCX_FAILED, // the group is dead, and why
    UCX_BYE     // the sender closes
} ucx_word;
typedef struct ucx_note {
    uint32_t word;
    int32_t from;
    uint64_t key;   // of the group
    uint64_t begun; // operations of the group
    int32_t code, text_bytes;
    comm_contract contract;
    char tensor[UCX_NAME], site[UCX_NAME];
    char text[UCX_TEXT];
} ucx_note;

// ---- of this process ---------------------------------------------------------------------------
typedef struct ucx_slot { // a request in progress
    void *request;
    ucx_peer *peer;
    bool posted, done;
    ucs_status_t result;
    size_t bytes; // that came
} ucx_slot;

typedef struct ucx_half {
    ucx_peer *peer; // NULL: there is none
    char *at;
    int64_t total, posted, done;
    int64_t pieces_posted, pieces_done;
    uint32_t sum;
    bool has_frame, ended;
    ucx_slot frame_slot, trailer_slot, ready_slot, slots[UCX_WINDOW];
    uint64_t ready;
    ucx_parcel parcel;
    ucx_trailer trailer;
} ucx_half;

typedef struct ucx_failure {
    status code;
    char text[UCX_TEXT];
} ucx_failure;

typedef struct ucx_port {
    comm_port base;
    struct ucx_port *next; // the link's list
    uint64_t key;
    comm_port *inner;  // of the members on this host; NULL: this rank is the only one
    int *inner_of;     // member -> its index there; -1: elsewhere
    comm_port *across; // of the members with this rank's number on their hosts; NULL: not opened
    uint64_t *begun;   // of the members, as far as they announced it
    comm_contract now; // this rank's operation
    uint64_t own_begun;
    char tensor[UCX_NAME], site[UCX_NAME];
    bool busy;       // in an exchange
    bool has_waited; // so long that it asked
    bool announced;  // the others know of the failure
    ucx_failure failure;
    ucx_half send, receive;
} ucx_port;

typedef struct ucx_region {
    void *at;
    int64_t bytes;
} ucx_region;
enum { UCX_REGIONS = 64 };

struct comm_link {
    comm_config config;
    ucx_library ucp;
    ucp_context_h context;
    ucp_worker_h worker;
    int efd;
    pthread_mutex_t lock; // of all of UCX, the peers and the ports
    ucx_record *records;  // by rank; address_bytes 0: not known yet
    ucx_peer *peers;
    bool knows_all;                  // it has joined a group of all ranks
    error_record unusable;           // why this rank cannot reach other hosts; code ST_OK: it can
    ucx_port *ports, *closed_ports;  // closed_ports: closed while a request was in progress
    comm_link *inner;                // of this host; NULL: this rank is alone there
    ucx_region regions[UCX_REGIONS]; // without an inner link
    int notes;                       // in flight
    int owed_count;
    struct {
        int rank;
        uint64_t key;
        ucx_word word;
    } owed[UCX_ASKED];
    ucx_failure failure; // of this rank
    bool has_failed;     // some group
    int64_t spins;
    bool pulse_runs, pulse_ends;
    pthread_cond_t pulse_wakes;
    pthread_t pulse;
};

static inline ucx_port *ucx_port_of(comm_port *p)
{
    return (ucx_port *)p;
}

// The caller of these functions holds the link's lock.
bool ucx_pump(comm_link *link); // returns whether there was any progress
NODISCARD status ucx_peer_open(comm_link *link, int rank);
void ucx_peer_close(ucx_peer *peer); // at once
void ucx_note_send(comm_link *link, int rank, const ucx_note *n);
void ucx_note_take(comm_link *link, const void *data, size_t bytes);
void ucx_ask(ucx_port *p); // those that are waited for, and some of the others
void ucx_port_fail(ucx_port *p, status code, const char *text);
NODISCARD status ucx_health(const ucx_port *p);
// Writes a text such as "link node-a - node-b (ucx, tcp/eth0)". Returns out.
const char *ucx_link_text(const ucx_peer *peer, char out[UCX_LINK]);
// Writes the operation of this rank in the group. Returns out.
const char *ucx_doing_text(const ucx_port *p, char *out, int bytes);
// Fails if a peer has not answered for too long. late_ns is the delay of this check.
NODISCARD status ucx_silence(ucx_port *p, ucx_peer *peer, int64_t late_ns);
NODISCARD status ucx_refuse(ucx_port *p, int from, const comm_contract *theirs, const char *tensor,
                            const char *site);
ucp_request_param_t ucx_param(ucx_slot *slot);
void ucx_posted(comm_link *link, ucx_slot *slot, ucs_status_ptr_t result);

// The caller of these functions does not hold it.
NODISCARD status ucx_exchange(comm_port *port, const comm_contract *contract, comm_message send,
                              comm_message receive);
int ucx_waits_for(comm_link *link, comm_awaited *out, int capacity);
void *ucx_pulse_main(void *link);
void ucx_note_contract(comm_port *port, const comm_contract *contract, const char *tensor,
                       const char *site);
status ucx_kill(comm_port *port);
void ucx_stop(comm_link *link, status code, const char *text);
static inline int64_t ucx_now(const comm_link *link)
{
    return link->config.h->api->monotonic_ns(link->config.h);
}

#    ifdef __cplusplus
}
#    endif
#endif
#endif
