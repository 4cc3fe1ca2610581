// Payloads of control frames and the queue of notices, shared by coordinator and member.
#ifndef CONTROL_MESSAGE_H
#define CONTROL_MESSAGE_H

#include "control/machine.h"

enum {
    REPORT_FIXED_BYTES = 52,
    EDGE_BYTES = 16,
    REPORT_BYTES_MAX = REPORT_FIXED_BYTES + CONTROL_EDGES_MAX * EDGE_BYTES + CONTROL_DOING_BYTES,
    PEER_BYTES = 24 + CONTROL_HOST_BYTES,
    NOTICES_MAX = 64
};

int64_t control_report_print(const control_report *r, uint8_t out[REPORT_BYTES_MAX]);
bool control_report_parse(const uint8_t *bytes, int64_t count, int ranks, control_report *out);

void control_peer_print(const control_peer *p, uint8_t out[PEER_BYTES]);
bool control_peer_parse(const uint8_t bytes[PEER_BYTES], control_peer *out);

// Reads the text at the end of a payload: replaces unprintable characters, cuts it to fit, adds a
// NUL.
void control_text_parse(const uint8_t *bytes, int64_t count, char out[CONTROL_TEXT_BYTES]);

// A bounded queue. When it is full, new notices are dropped and the oldest stay.
typedef struct notice_queue {
    control_notice items[NOTICES_MAX];
    int first, count;
} notice_queue;
void control_notice_push(notice_queue *q, const control_notice *n);
bool control_notice_pop(notice_queue *q, control_notice *out);

#endif
