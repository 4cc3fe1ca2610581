// The flight recorder: what each rank of a host did last, in the control block, so that it outlives kill -9.
//
// Always on. A record is two cache lines, written with plain stores before peers hear of the operation; the
// time at which it was begun follows while they do, and at last the time at which it was done. The newest
// BLOCK_RECORDS of a rank are kept. Who reads it (a supervisor, a report after death) holds the control block's
// descriptor and trusts nothing: numbers are checked, texts are cut, a record that was half written is left
// out.
#ifndef COMM_RECORDER_H
#define COMM_RECORDER_H

#include "comm/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { COMM_RECORDS = 256, COMM_RECORD_NAME = 48 };

typedef struct comm_record {
    uint64_t number;   // of this rank, from 1
    uint64_t sequence; // of the group's operations
    uint32_t epoch, group;
    op_collective op;
    op_reduction reduction;
    comm_order order;
    dtype type;
    int32_t peer; // root, or the other side of send and receive
    int32_t algorithm;
    int64_t count, step;
    int64_t posted_ns, begun_ns, done_ns; // monotonic clock; 0: not yet
    char tensor[COMM_RECORD_NAME];        // cut
} comm_record;

typedef struct comm_rank_state { // of a local rank
    int32_t pid, rank;           // pid 0: it has never come
    uint32_t epoch;
    uint64_t records; // begun
} comm_rank_state;

// False: the control block has no such rank, or its record makes no sense.
bool comm_recorder_rank(const comm_control_block *b, int local_rank, comm_rank_state *out);
// The newest `capacity` of a rank, oldest first. Returns how many.
int comm_recorder_read(const comm_control_block *b, int local_rank, comm_record *out, int capacity);
int64_t comm_recorder_now_ns(const comm_control_block *b); // the clock of the times above
// "all_reduce #12 sum of gradients (1048576 x fp32), step 3: done in 1.2 ms". Returns buffer.
const char *comm_record_text(const comm_record *r, char *buffer, int bytes);

#ifdef __cplusplus
}
#endif
#endif
