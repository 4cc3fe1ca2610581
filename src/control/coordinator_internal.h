// State and functions that coordinator.c (admission of ranks) and coordinator_job.c (the running
// job) share.
#ifndef CONTROL_COORDINATOR_INTERNAL_H
#define CONTROL_COORDINATOR_INTERNAL_H

#include "control/message.h"

typedef enum line_state {
    LINE_FREE,
    LINE_STRANGER,
    LINE_CLAIMED,
    LINE_JOINED,
    LINE_CLOSING
} line_state;

typedef struct coordinator_line {
    line_state state;
    int rank;      // rank that the connection claims or has joined as
    int64_t until; // deadline of a stranger or a claim
    control_hello hello;
    control_handshake handshake;
    control_stream stream;
} coordinator_line;

typedef struct coordinator_member {
    bool has_joined, has_left, is_leaving, is_fenced;
    int line; // -1: none
    control_peer peer;
    uint8_t digest[CONTROL_FACT_KINDS][CONTROL_DIGEST_BYTES];
    bool is_swapping; // a swap of its group waits for other members
    bool is_asked;    // its facts were requested
    uint8_t *record;
    int64_t record_bytes;
    control_verdict told; // last verdict that was sent to all ranks
    int64_t refused_at;   // while joining: a claim of this rank failed the handshake; 0: none
    control_peer claimed; // by that claim, which proved nothing
    bool has_promised;
    int64_t promised;
} coordinator_member;

typedef enum coordinator_phase {
    COORDINATOR_JOINING,
    COORDINATOR_COMPARING,
    COORDINATOR_RUNNING,
    COORDINATOR_OVER
} coordinator_phase;

enum { QUESTIONS_MAX = 16 };
typedef struct coordinator_question {
    uint32_t kind;
    uint64_t argument;
} coordinator_question;

// A swap of a group, and its arrays in the same allocation.
typedef struct coordinator_swap {
    struct coordinator_swap *next;
    uint64_t key;
    int64_t bytes;
    int count, here; // members; those that sent their bytes
    int first;       // rank of the first of them
    int32_t *ranks;  // [count] by place; -1: it has not sent its bytes
    uint8_t *all;    // [count] * bytes
} coordinator_swap;

struct control_coordinator {
    control_coordinator_config config;
    coordinator_phase phase;
    coordinator_line *lines;
    int line_count;
    coordinator_member *members;
    control_seen *seen;
    int joined;
    bool has_told_missing; // which ranks have not joined yet
    int64_t join_until, compare_until, tick_at, ticked_at, stranger_told_at;
    int odd, usual; // COMPARING: one rank of each side
    int usual_count;
    coordinator_swap *swaps;                       // these wait for some of their members
    coordinator_question questions[QUESTIONS_MAX]; // [0] is being asked if is_asking
    int question_count;
    bool is_asking;
    uint32_t question;
    control_history history;
    notice_queue notices;
};

// coordinator.c
void control_coordinator_refuse(control_coordinator *b, int rank, status code, const char *format,
                                ...) PRINTF_LIKE(4, 5);
void control_coordinator_send(control_coordinator *b, int rank, control_type type,
                              control_span head, control_span rest);
void control_coordinator_send_all(control_coordinator *b, control_type type, control_span head,
                                  control_span rest);
void control_coordinator_drop(control_coordinator *b, int connection);
void control_coordinator_end(control_coordinator *b, status code, const char *said);
// coordinator_job.c
void control_coordinator_compare(control_coordinator *b, int64_t now); // all ranks have joined
bool control_coordinator_message(control_coordinator *b, int rank, const control_frame *f,
                                 int64_t now);
void control_coordinator_advance(control_coordinator *b, int64_t now); // deadlines, verdicts, beats

#endif
