// Inside comm/: the layout of the shared control block, and the words in it that several ranks
// touch.
//
//   header      its kind, its size, and the word that ends all waits
//   directory   maps the key of a slot to its offset; a row is taken once and never given back, so
//               a reader needs no lock
//   records     one per rank of this host: process, abort word, names, regions, flight recorder
//   area        slots: one per group (descriptors, lists, stages), one per pair of ranks that
//               exchange
//
// The file is large and sparse. Pages are reserved (fallocate) before they are touched, so a full
// system gives a status and no SIGBUS. The file is sealed against shrinking and growing, so no peer
// can truncate it. The layout follows from the number of ranks alone and is never read from the
// control block: a word that another process wrote there can at worst be a wrong number.
//
// Shared words are plain integers that only the functions below touch (headers are C++ too).
#ifndef COMM_CONTROL_BLOCK_H
#define COMM_CONTROL_BLOCK_H

#include "comm/contract.h"
#include "device/peers.h"

#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    BLOCK_PAGE = 4096,
    BLOCK_TEXT = 1080, // a failure fills whole cache lines
    BLOCK_NAMES = 128, // of a rank, by hash; a newer name replaces an older one
    BLOCK_NAME_BYTES = 120,
    BLOCK_REGIONS = 64, // of a rank
    BLOCK_RECORDS = 256 // of a rank's flight recorder
};

typedef struct block_failure { // written once
    uint32_t state;            // 0: none, 1: being written, 2 + status: complete
    uint32_t unused;
    char text[BLOCK_TEXT];
} block_failure;

typedef struct block_head {
    uint64_t magic, job;
    int32_t local_ranks, cores;
    uint64_t total_bytes;
    uint64_t area_used;
    uint64_t clock_tsc, clock_ns,
        clock_mult; // clock of the recorders: ns = clock_ns + ticks * mult >> 32
    block_failure failure;
} block_head;

typedef struct block_row { // of the directory
    uint32_t state;        // 0: free, 1: being made, 2: ready, 3: could not be made
    uint32_t kind;
    uint64_t key;
    uint64_t offset; // in the file
} block_row;

typedef struct block_name {
    uint32_t hash, unused;
    char text[BLOCK_NAME_BYTES];
} block_name;

typedef struct block_region {
    uint32_t generation; // odd: the region exists; grows with every change
    int32_t fd;          // in the owner's process
    uint64_t bytes, at;  // at: address in the owner
    uint32_t on_device;  // memory of a GPU, which `share` describes; fd is -1
    uint32_t users;      // other ranks that have it open
    device_share share;
} block_region;

typedef struct flight_record { // an operation in the flight recorder
    uint64_t number;           // 1 + place in the sequence of records; 0: being written
    uint64_t sequence, count;
    int64_t step, posted_ns, begun_ns, done_ns; // posted 0: it was not posted
    uint64_t where;                             // group, epoch
    uint64_t what;                              // algorithm, type, order, reduction, op
    uint64_t peer;                              // 32 bits of it
    char name[48];                              // to its zero; the rest is from older names
} flight_record;

typedef struct rank_record {
    uint32_t here; // 1 + epoch, once the rest of this line is written
    int32_t pid, rank;
    uint32_t lock;         // of names
    uint64_t record_count; // operations begun so far
    uint64_t name_changes; // grows after a name was written
    uint64_t unused[4];
    uint32_t bell, sleepers; // for threads of this rank that wait for a message
    uint64_t unused_line[7];
    block_failure failure; // ends the waits of this rank only
    block_region regions[BLOCK_REGIONS];
    block_name names[BLOCK_NAMES];
    flight_record records[BLOCK_RECORDS];
} rank_record;

struct comm_control_block {
    int fd;
    int64_t bytes;
    int local_ranks;
    int64_t rows; // of the directory, a power of two
    block_head *head;
    block_row *directory;
    char *records;
    char *area;
    int64_t area_bytes;
};

rank_record *rank_record_of(const comm_control_block *b, int local_rank);

// Makes or finds the slot of a key, of `bytes` bytes. The first `hot` of them are reserved, and
// zero.
NODISCARD status block_slot(comm_control_block *b, uint64_t key, uint32_t kind, int64_t hot,
                            int64_t bytes, void **out);
// Reserves pages of the area, which makes them safe to touch.
NODISCARD status block_reserve(comm_control_block *b, const void *at, int64_t bytes);

// The first writer wins. block_failure_get returns ST_OK, or records the failure in this thread.
void block_failure_set(block_failure *f, status code, const char *text);
status block_failure_get(const block_failure *f);

void block_name_put(rank_record *record, uint32_t hash, const char *text);
// Copies the text of a hash; "" if a newer name replaced it.
void block_name_get(const rank_record *record, uint32_t hash, char out[BLOCK_NAME_BYTES]);

int64_t block_now_ns(const comm_control_block *b); // monotonic, the same on all ranks of this host

// ---- words that several ranks touch -------------------------------------------------------------
static inline uint64_t word_get(const uint64_t *w)
{
    return __atomic_load_n(w, __ATOMIC_ACQUIRE);
}
static inline void word_put(uint64_t *w, uint64_t value)
{
    __atomic_store_n(w, value, __ATOMIC_RELEASE);
}
static inline uint32_t half_get(const uint32_t *w)
{
    return __atomic_load_n(w, __ATOMIC_ACQUIRE);
}
static inline void half_put(uint32_t *w, uint32_t value)
{
    __atomic_store_n(w, value, __ATOMIC_RELEASE);
}
// These copies may race with a writer and then give garbage, but no undefined behaviour. Both sides
// are aligned to 8 and bytes is a multiple of 8. Writes before words_copy_in are visible before its
// own.
static inline void words_copy_in(void *shared, const void *from, int64_t bytes)
{
    uint64_t *to = (uint64_t *)shared, word;
    for (int64_t i = 0; i < bytes / 8; i++) {
        memcpy(&word, (const char *)from + i * 8, 8);
        __atomic_store_n(&to[i], word, __ATOMIC_RELEASE);
    }
}
static inline void words_copy_out(void *to, const void *shared, int64_t bytes)
{
    const uint64_t *from = (const uint64_t *)shared;
    for (int64_t i = 0; i < bytes / 8; i++) {
        const uint64_t word = __atomic_load_n(&from[i], __ATOMIC_ACQUIRE);
        memcpy((char *)to + i * 8, &word, 8);
    }
}

#ifdef __cplusplus
}
#endif
#endif
