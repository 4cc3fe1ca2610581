// Inside comm/transport/: the structures of the transport over MPI.
#ifndef COMM_TRANSPORT_MPI_H
#define COMM_TRANSPORT_MPI_H

#include "comm/transport/mpi_library.h"
#include "comm/transport/transport.h"

#if TRIREME_HAVE_MPI
#    include <pthread.h>

#    ifdef __cplusplus
extern "C" {
#    endif

enum {
    MPI_NAME = 96, // of a tensor or a call site, in frames
    MPI_TEXT = 1400,
    MPI_FRAME_BYTES = 4096, // with its payload
    MPI_PIECE_BYTES = 1 << 30
};

// Tags: the low bits are the kind of a message, the others belong to the group.
enum { MPI_TAG_FRAME, MPI_TAG_PIECE, MPI_TAG_NOTE, MPI_TAG_KINDS = 4, MPI_TAG_GROUPS = 1 << 28 };

// The frame before each message. A short message travels behind it, a longer one in pieces.
typedef struct mpi_frame {
    comm_contract contract; // its checksum: CRC-32C of the bytes before it
    int64_t total;
    uint32_t sum; // of the message
    uint32_t unused;
    char tensor[MPI_NAME], site[MPI_NAME];
} mpi_frame;
enum { MPI_CARRIED = MPI_FRAME_BYTES - (int)sizeof(mpi_frame) };

typedef struct mpi_parcel {
    mpi_frame frame;
    unsigned char payload[MPI_CARRIED];
} mpi_parcel;

// A note: a control message, sent outside the order of the data messages.
typedef enum mpi_word {
    MPI_WORD_ASK = 1, // the sender has waited for a while in this operation
    MPI_WORD_FAILED   // the group is dead, and why
} mpi_word;
typedef struct mpi_note {
    int32_t word, from;
    uint64_t key; // of the group
    int32_t code, unused;
    comm_contract contract;
    char tensor[MPI_NAME], site[MPI_NAME], text[MPI_TEXT];
} mpi_note;

typedef struct mpi_sent_note { // in flight
    struct mpi_sent_note *next;
    MPI_Request request;
    mpi_note note;
} mpi_sent_note;

typedef struct mpi_failure {
    status code;
    char text[MPI_TEXT];
} mpi_failure;

typedef struct mpi_half {
    int peer; // rank of the job; -1: there is none
    char *at;
    int64_t total, done;
    bool frame_runs, piece_runs, has_frame, ended;
    MPI_Request frame_request, piece_request;
    mpi_parcel parcel;
} mpi_half;

typedef struct mpi_port {
    comm_port base;
    struct mpi_port *next; // the link's list
    uint64_t key;
    int tag;
    bool busy, announced;
    comm_contract now; // this rank's operation
    char tensor[MPI_NAME], site[MPI_NAME];
    mpi_failure failure;
    mpi_half send, receive;
} mpi_port;

struct comm_link {
    comm_config config;
    mpi_library mpi;
    pthread_mutex_t lock; // of all of MPI, and the ports
    comm_link *memory;    // where regions come from
    mpi_port *ports, *closed_ports;
    mpi_sent_note *notes;
    mpi_failure failure; // of this rank
    bool has_failed;     // some group
    bool begun;          // MPI, by this link
};

static inline mpi_port *mpi_port_of(comm_port *p)
{
    return (mpi_port *)p;
}

// The caller of these functions holds the link's lock.
void mpi_note_send(comm_link *link, int rank, const mpi_note *n);
NODISCARD status mpi_notes_take(comm_link *link);
void mpi_port_fail(mpi_port *p, status code, const char *text);
NODISCARD status mpi_health(const mpi_port *p);
NODISCARD status mpi_refuse(mpi_port *p, int from, const comm_contract *theirs, const char *tensor,
                            const char *site);
NODISCARD status mpi_refused(const comm_link *link, const char *what, int code);

// The caller of these functions does not hold it.
NODISCARD status mpi_exchange(comm_port *port, const comm_contract *contract, comm_message send,
                              comm_message receive);
status mpi_kill(comm_port *port);
void mpi_stop(comm_link *link, status code, const char *text);
void mpi_note_contract(comm_port *port, const comm_contract *contract, const char *tensor,
                       const char *site);
static inline int64_t mpi_now(const comm_link *link)
{
    return link->config.h->api->monotonic_ns(link->config.h);
}

#    ifdef __cplusplus
}
#    endif
#endif
#endif
