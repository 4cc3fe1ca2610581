// What hub.c (who is let in) and hub_job.c (what is done in the job) share.
#ifndef CONTROL_HUB_INTERNAL_H
#define CONTROL_HUB_INTERNAL_H

#include "control/message.h"

typedef enum line_state {
    LINE_FREE,
    LINE_STRANGER,
    LINE_CLAIMED,
    LINE_JOINED,
    LINE_CLOSING
} line_state;

typedef struct hub_line {
    line_state state;
    int rank;      // claimed or joined
    int64_t until; // of a stranger, a claim
    control_hello hello;
    control_handshake handshake;
    control_stream stream;
} hub_line;

typedef struct hub_member {
    bool has_joined, has_left, is_leaving, is_fenced;
    int line; // -1: none
    control_peer peer;
    uint8_t digest[CONTROL_FACT_KINDS][CONTROL_DIGEST_BYTES];
    bool is_asked; // for its facts
    uint8_t *sheet;
    int64_t sheet_bytes;
    control_verdict told; // the verdict that all were told
    bool has_promised;
    int64_t promised;
} hub_member;

typedef enum hub_phase { HUB_JOINING, HUB_COMPARING, HUB_RUNNING, HUB_OVER } hub_phase;

enum { QUESTIONS_MAX = 16 };
typedef struct hub_question {
    uint32_t kind;
    uint64_t argument;
} hub_question;

struct control_hub {
    control_hub_config config;
    hub_phase phase;
    hub_line *lines;
    int line_count;
    hub_member *members;
    control_seen *seen;
    int joined;
    int64_t join_until, compare_until, tick_at, ticked_at, stranger_told_at;
    int odd, usual; // COMPARING: one rank of each side
    int usual_count;
    struct {
        uint64_t number; // of the one that is gathered
        int64_t bytes;
        int count, first; // ranks that gave theirs, one of them
        uint8_t *all, *has;
        int64_t capacity;
    } swap;
    hub_question questions[QUESTIONS_MAX]; // [0] is being asked if is_asking
    int question_count;
    bool is_asking;
    uint32_t question;
    control_history history;
    notice_queue notices;
};

// hub.c
void control_hub_refuse(control_hub *b, int rank, status code, const char *format, ...)
    PRINTF_LIKE(4, 5);
void control_hub_send(control_hub *b, int rank, control_type type, control_span head,
                      control_span rest);
void control_hub_send_all(control_hub *b, control_type type, control_span head, control_span rest);
void control_hub_drop(control_hub *b, int connection);
void control_hub_end(control_hub *b, status code, const char *said);
// hub_job.c
void control_hub_compare(control_hub *b, int64_t now); // all ranks have joined
bool control_hub_message(control_hub *b, int rank, const control_frame *f, int64_t now);
void control_hub_advance(control_hub *b, int64_t now); // deadlines, verdicts, beats

#endif
