// The flight recorder keeps the last operations of each rank in the control block, so they survive
// kill -9.
//
// It is always on. A record is two cache lines, written with plain stores before peers see the
// operation; the times of its begin and end follow. The newest BLOCK_RECORDS of a rank are kept. A
// reader (a supervisor, a report after a crash) maps the control block and trusts none of it: it
// checks numbers, cuts texts and leaves out records that are incomplete.
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
    int32_t pid, rank;           // pid 0: the rank never came
    uint32_t epoch;
    uint64_t records; // begun
} comm_rank_state;

// Returns false if the control block has no such rank, or if the rank's record makes no sense.
bool comm_recorder_rank(const comm_control_block *b, int local_rank, comm_rank_state *out);
// Reads the newest `capacity` records of a rank, oldest first. Returns their number.
int comm_recorder_read(const comm_control_block *b, int local_rank, comm_record *out, int capacity);
int64_t comm_recorder_now_ns(const comm_control_block *b); // the clock of the times above
// Writes a text such as "all_reduce #12 sum of gradients (1048576 x fp32), step 3: done in 1.2 ms".
// Returns buffer.
const char *comm_record_text(const comm_record *r, char *buffer, int bytes);

#ifdef __cplusplus
}
#endif
#endif
