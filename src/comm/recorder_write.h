// Inside comm/: the writing side of the flight recorder.
#ifndef COMM_RECORDER_WRITE_H
#define COMM_RECORDER_WRITE_H

#include "comm/control_block.h"
#include "comm/recorder.h"

#ifdef __cplusplus
extern "C" {
#endif

// A name, and the number of its words up to its zero, which are written.
typedef struct recorder_name {
    const char *text; // `words` times 8 bytes, filled up with zeros
    int words;        // 1 to COMM_RECORD_NAME / 8
} recorder_name;

// From any thread of the rank. posted_ns 0: it was not posted. begun_ns 0: it is written later.
flight_record *recorder_begin(rank_record *record, const comm_contract *k, const comm_args *args,
                              recorder_name tensor, int64_t posted_ns, int64_t begun_ns);
void recorder_end(flight_record *record, int64_t done_ns);

#ifdef __cplusplus
}
#endif
#endif
