// Inside comm/transport/: structures and functions of the shared memory transport.
#ifndef COMM_TRANSPORT_SHM_H
#define COMM_TRANSPORT_SHM_H

#include "base/spin.h"
#include "comm/control_block.h"
#include "comm/transport/transport.h"

#include <pthread.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SHM_SLOT_GROUP = 1, SHM_SLOT_CHANNEL = 2, SHM_LINE = 64 };

// ---- in the control block ----------------------------------------------------------------------
typedef struct shm_slot { // of a group; then `count` members, then as many staging
    uint32_t bell, sleepers;
    char unused[SHM_LINE - 8];
    block_failure failure;
} shm_slot;

// A brief descriptor is one cache line, so a peer waits for one line: the payload, and the contract
// without the fields that all brief ones share (no shards, high halves of numbers zero, one
// tensor).
typedef struct shm_brief {
    uint32_t magic, epoch; // SHM_BRIEF_MAGIC
    uint64_t job;
    uint32_t sequence, group;
    uint8_t op, reduction, order, type;
    int32_t root;
    uint16_t algorithm, count;
    uint32_t tensor;
    unsigned char payload[COMM_BRIEF_BYTES];
    uint32_t site, number; // where the contract of a full one has them
} shm_brief;
enum { SHM_BRIEF_MAGIC = 0x434d4231 }; // "1BMC"

typedef union shm_descriptor {
    comm_descriptor full;
    shm_brief brief;
} shm_descriptor;

typedef struct shm_member {
    // The number of a descriptor (contract.checksum of a full one) counts arrivals from 1 and is
    // written last.
    shm_descriptor descriptors[2];
    uint64_t departed; // count of departures
    uint64_t stolen;   // count of the departure that its share was last begun for << 16 | that rank
    uint32_t cpu;      // 1 + where it last waited; ranks that share cores
    char unused[SHM_LINE - 20];
} shm_member;

typedef struct shm_staging { // pages are reserved when they are first wanted
    comm_list list;
    char unused[SHM_LINE];
    char stage[COMM_STAGE_BYTES];
} shm_staging;

// A channel from one rank to another. The sender's two parcels alternate; the receiver counts those
// that it took.
enum { SHM_PARCEL_BYTES = 128 << 10 };
typedef struct shm_parcel {
    comm_contract contract; // checksum: number of the parcel, from 1
    int64_t total, offset, bytes;
    comm_place
        place; // of the whole message; COMM_PRIVATE: the parcel's bytes are in payload or stage
    int64_t unused[3];
    unsigned char payload[COMM_INLINE_BYTES];
} shm_parcel;

typedef struct shm_channel {
    shm_parcel parcels[2];
    uint32_t taken;
    char unused[SHM_LINE - 4];
    char stage[2][SHM_PARCEL_BYTES];
} shm_channel;

// ---- of this process ----------------------------------------------------------------------------
typedef struct shm_map {
    uint32_t generation; // of the region; 0: not mapped. Written last
    void *at;
    int64_t bytes;
    device *on; // this rank's, which has opened memory of the peer's; NULL: host memory
    device_share share;
} shm_map;

typedef struct shm_region {
    char *at;
    int64_t bytes; // 0: free
    int fd;        // -1: memory of a GPU
    device *d;     // which owns it; NULL: host memory
} shm_region;

typedef struct shm_port shm_port;

struct comm_link {
    comm_config config;
    comm_control_block *control_block;
    rank_record *record;
    int *local_of; // rank of the job -> local rank
    int64_t spins; // of a wait before it sleeps
    bool crowded;  // more ranks than cores
    // Protects ports and regions. The control thread takes it at each heartbeat, so no thread holds
    // it for long.
    pthread_mutex_t lock;
    pthread_mutex_t mapping;           // of `maps`: to map a peer's gigabytes takes seconds
    shm_region regions[BLOCK_REGIONS]; // own
    int region_count;                  // highest that was used
    device *peering;                   // opens the memory of peers' GPUs; NULL: none is shared
    shm_map *maps;                     // of local rank l and region g: maps[l * BLOCK_REGIONS + g]
    shm_port *ports;
};

typedef struct shm_end { // of a channel
    shm_channel *channel;
    uint32_t count;
    bool staged; // the stage's pages are reserved
} shm_end;

// The object of a sleeping wait, for another thread. It is read word by word; a torn one is wrong
// only once.
enum { SHM_AWAITS_NONE, SHM_AWAITS_ARRIVAL, SHM_AWAITS_DEPARTURE, SHM_AWAITS_MESSAGE };
typedef struct shm_awaited {
    uint32_t kind;
    uint32_t number;              // of the descriptor
    uint32_t from, to;            // 1 + member; 0: none
    uint64_t departed, operation; // operation: its sequence number
} shm_awaited;

struct shm_port {
    comm_port base;
    shm_port *next; // the link's list
    uint64_t key;
    shm_slot *slot;
    shm_member *members;
    shm_staging *staging;
    uint32_t arrived;
    uint64_t departed;
    int64_t list_bytes;
    bool has_stage;
    bool brief;                        // the descriptor of the last arrival
    bool slept_briefly;                // the last sleep was short
    uint32_t noted_tensor, noted_site; // names that the control block has,
    uint64_t noted_changes;            // when it had been written so often
    int cursor;                        // the member that a wait looks at
    shm_awaited awaited;
    shm_end *sends, *receives; // by member; made when first used
};

static inline shm_port *shm_port_of(comm_port *p)
{
    return (shm_port *)p;
}

// Returns the contract in a descriptor, brief or full, with its number in `checksum`.
void shm_contract_get(const shm_descriptor *t, comm_contract *out);

// The object of a wait.
typedef struct shm_wait {
    shm_port *port;
    bool arrives;    // else departs
    uint32_t number; // of the descriptor
    uint64_t departed;
} shm_wait;

// Returns the member that does the share of `member`.
int shm_holder(const shm_wait *w, int member);
// Waits until all members are there. It ends early if the contracts of those that are there differ.
NODISCARD status shm_wait_all(const shm_wait *w);
// Wakes sleepers if this rank is the last one. It follows the write of the rank's own word.
void shm_wake(const shm_wait *w);
int shm_steal(comm_port *port);
void shm_complete(comm_port *port, int rank);
NODISCARD status shm_steals_wait(comm_port *port);
int shm_waits_for(comm_link *link, comm_awaited *out, int capacity);
// Returns the failure that was recorded for this rank, this group or this host.
NODISCARD status shm_health(const shm_port *p);
// Compares the contracts of all members that are there.
NODISCARD status shm_contracts_check(const shm_port *p, bool all_there);

NODISCARD status shm_exchange(comm_port *port, const comm_contract *contract, comm_message send,
                              comm_message receive);
NODISCARD status shm_region_create(comm_link *link, int64_t bytes, int32_t *region, void **at);
void shm_region_leave(comm_link *link, int32_t region, comm_pages *out);
NODISCARD status shm_region_join(comm_link *link, const comm_pages *pages, int32_t *region);
// Memory that is no region yet.
NODISCARD status shm_pages_make(int64_t bytes, comm_pages *out);
void shm_pages_free(const comm_pages *pages);
void shm_region_destroy(comm_link *link, int32_t region);
NODISCARD status shm_region_share(comm_link *link, device *d, void *memory, int64_t bytes,
                                  int32_t *region);
NODISCARD status shm_peer_check(comm_port *port, int rank, device *d);
comm_place shm_locate(const comm_link *link, const void *at, int64_t bytes);
NODISCARD status shm_address(comm_port *port, int rank, comm_place place, int64_t bytes,
                             void **out);
void shm_maps_drop(comm_link *link);

static inline int shm_local(const shm_port *p, int member)
{
    return p->base.link->local_of[p->base.members.ranks[member]];
}
// Gives the core to other ranks if ranks share cores and this wait is short so far. *since is 0 at
// first.
bool shm_yield(const comm_link *link, int64_t *since);
// The first returns how long this wait spins; the second records a sleep from begin_ns until now.
int64_t shm_spins(const shm_port *p);
void shm_slept(shm_port *p, int64_t begin_ns);
void shm_sleep(const uint32_t *bell, uint32_t seen, int64_t ns);
void shm_ring(uint32_t *bell);

#ifdef __cplusplus
}
#endif
#endif
