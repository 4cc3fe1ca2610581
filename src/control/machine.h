// Two state machines: the coordinator, one per job, and the member, one per rank.
//
// Both handle events with a time, and produce bytes to send and notices for their owner. They hold
// no socket, clock or thread, so a simulator can run any number of them in one thread, deliver
// their bytes late, in pieces or never, and repeat every run from its seed. control.h wraps them in
// sockets, threads and the real clock.
//
//        events                       answers
//   OPENED   connection          bytes to send per connection (control_*_output, control_*_sent)
//   BYTES    received bytes      connections to close       (control_coordinator_drops)
//   CLOSED   by the other side   notices: verdicts, refusals (control_*_notice)
//   EXITED   a local rank's process
//   TICK     at control_*_wake
//
// States of a member: it says hello, proves that it holds the key, waits for all other ranks
// (WAITING), is welcomed with the list of ranks (RUNNING), swaps, sends heartbeats and agrees on
// steps. It leaves when all ranks leave (LEFT), or it fails.
#ifndef CONTROL_MACHINE_H
#define CONTROL_MACHINE_H

#include "control/failure_detector.h"
#include "control/frame.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CONTROL_PENDING_MAX = 64, // connections that have not authenticated yet
    CONTROL_HANDSHAKE_MS = 2000,
    // As a rank: the coordinator runs in no rank's process but in the launcher's.
    CONTROL_COORDINATOR = -1
};

typedef enum control_event_kind {
    CONTROL_OPENED, // member: connected
    CONTROL_BYTES,
    CONTROL_CLOSED,
    CONTROL_EXITED, // rank: its process on this machine ended
    CONTROL_TICK
} control_event_kind;

typedef struct control_event {
    control_event_kind kind;
    int connection; // number at the coordinator
    int rank;       // EXITED
    const void *bytes;
    int64_t count;
} control_event;

typedef enum control_notice_kind {
    CONTROL_NOTE_JOINED,  // coordinator: the rank proved that it belongs to the job
    CONTROL_NOTE_REFUSED, // coordinator: a connection was refused; code and text say which and why
    CONTROL_NOTE_VERDICT, // rank, verdict, text. For a member's own rank: it has been fenced
    CONTROL_NOTE_FAILED   // the rank (or the coordinator) gave up; code and text say why
} control_notice_kind;

typedef struct control_notice {
    control_notice_kind kind;
    int rank;
    control_verdict verdict;
    status code;
    char text[CONTROL_TEXT_BYTES];
} control_notice;

// A rank's identity, for its peers.
typedef struct control_peer {
    char host[CONTROL_HOST_BYTES];
    uint64_t machine; // equal within one kernel and pid namespace; 0: unknown
    int64_t pid;
    uint64_t started; // distinguishes a process from a later one with the same pid
} control_peer;

// Actions that all ranks agree to take after the same step (control_step).
typedef enum control_agreement {
    CONTROL_AGREE_STOP, // checkpoint and exit
    CONTROL_AGREE_SAVE,
    CONTROL_AGREE_SWITCH, // to the plan that `argument` names
    CONTROL_AGREEMENTS
} control_agreement;

typedef struct control_decision {
    bool is_due;
    uint64_t argument;
} control_decision;

// ---- coordinator --------------------------------------------------------------------------------
typedef struct control_coordinator control_coordinator;
// Asks the kernel whether a process of this machine is neither stopped nor gone. NULL: do not ask.
typedef bool control_runs(const control_peer *peer);

typedef struct control_coordinator_config {
    const host *h;          // source of nonces
    const control_key *key; // borrowed
    uint64_t job;
    uint32_t epoch;
    int ranks;
    int rank; // the rank whose process runs this, or CONTROL_COORDINATOR
    control_peer self;
    int64_t join_ns; // deadline for all ranks to join [60 s]
    control_limits limits;
    control_runs *runs;
} control_coordinator_config;

NODISCARD status control_coordinator_create(const control_coordinator_config *config, int64_t now,
                                            control_coordinator **out);
void control_coordinator_destroy(control_coordinator *b);          // NULL is legal
int control_coordinator_connections(const control_coordinator *b); // numbers are below this
// Returns a number for a new connection, or -1 if no slot is free; the caller then closes it.
int control_coordinator_accept(control_coordinator *b, int64_t now);
void control_coordinator_handle(control_coordinator *b, const control_event *e, int64_t now);
int64_t control_coordinator_wake(const control_coordinator *b);
control_span control_coordinator_output(const control_coordinator *b, int connection);
void control_coordinator_sent(control_coordinator *b, int connection, int64_t count);
bool control_coordinator_is_open(const control_coordinator *b, int connection);
// The caller then closes the connection once its output is sent.
bool control_coordinator_drops(const control_coordinator *b, int connection);
// Ends the job for all ranks if some are still missing; returns false otherwise.
bool control_coordinator_fail(control_coordinator *b, status code, const char *said);
bool control_coordinator_notice(control_coordinator *b, control_notice *out);
bool control_coordinator_is_done(const control_coordinator *b); // all ranks have left or failed
int control_coordinator_pending(const control_coordinator *b);  // connections not authenticated yet

// ---- member -------------------------------------------------------------------------------------
typedef enum control_state {
    CONTROL_JOINING,
    CONTROL_WAITING, // authenticated; some ranks have not joined yet
    CONTROL_RUNNING,
    CONTROL_LEAVING,
    CONTROL_LEFT,
    CONTROL_OVER // failed, refused or cut off; control_member_error says why
} control_state;

typedef struct control_member control_member;
typedef struct control_member_config {
    const host *h;
    const control_key *key; // borrowed
    uint64_t job;
    uint32_t epoch;
    int rank, ranks;
    control_peer self;
    const control_fact *facts; // borrowed
    int64_t fact_count;
    control_limits limits;
    control_runs *runs;
} control_member_config;

NODISCARD status control_member_create(const control_member_config *config, int64_t now,
                                       control_member **out);
void control_member_destroy(control_member *m); // NULL is legal
void control_member_handle(control_member *m, const control_event *e, int64_t now);
int64_t control_member_wake(const control_member *m);
control_span control_member_output(const control_member *m);
void control_member_sent(control_member *m, int64_t count);
bool control_member_notice(control_member *m, control_notice *out);
control_state control_member_state(const control_member *m);
// Returns the code of state OVER, and a borrowed text.
status control_member_error(const control_member *m, const char **said);
const control_peer *control_member_peer(const control_member *m, int rank); // from RUNNING on
int control_member_coordinator_rank(const control_member *m);
// True if another connection may succeed: no reason was given that condemns this member.
bool control_member_may_retry(const control_member *m);
void control_member_reset(control_member *m, int64_t now); // for another connection

// Sets the report for the next heartbeats.
void control_member_report(control_member *m, const control_report *report);
// Begins a swap, which gathers the bytes of all members of a group by place. `g` and `mine` are
// copied. One swap may run at a time.
NODISCARD status control_member_swap(control_member *m, const control_group *g, const void *mine,
                                     int64_t bytes);
// Returns true when the swap ended: *st is its result, *all (g->count * bytes) is borrowed until
// the next swap.
bool control_member_swapped(control_member *m, status *st, const uint8_t **all);
void control_member_request(control_member *m, control_agreement kind, uint64_t argument);
// Call this before step `step` begins. False: a decision is pending and this step lies beyond the
// promised one; ask again after the next event. True: `due` (CONTROL_AGREEMENTS entries) lists the
// actions to take before the step, once each.
bool control_member_step(control_member *m, int64_t step, control_decision *due);
void control_member_fail(control_member *m, status code, const char *said); // tells all other ranks
void control_member_leave(control_member *m); // then handle events until LEFT

#ifdef __cplusplus
}
#endif
#endif
