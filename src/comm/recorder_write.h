// Inside comm/: how operations write into the flight recorder.
#ifndef COMM_RECORDER_WRITE_H
#define COMM_RECORDER_WRITE_H

#include "comm/board.h"
#include "comm/recorder.h"

#ifdef __cplusplus
extern "C" {
#endif

// Any thread of the rank. tensor: cut, and filled up with zeros.
board_record *recorder_begin(board_card *card, const comm_contract *k, const comm_args *args,
                             const char tensor[COMM_RECORD_NAME], int64_t posted_ns,
                             int64_t begun_ns);
void recorder_end(board_card *card, board_record *record, int64_t done_ns);

#ifdef __cplusplus
}
#endif
#endif
