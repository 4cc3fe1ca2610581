// The two machines: the coordinator, which a job has once, and the member, which every rank has.
//
// Both are fed with events and the time, and answer with bytes to be sent and notices for their owner. They
// hold no socket, no clock and no thread, so a simulator can run any number of them in one thread, deliver
// their bytes late, cut, or never, and repeat every run from its seed. control.h is the thin part around
// them: sockets, threads, the real clock.
//
//        events                       answers
//   OPENED   connection          bytes to send per connection (control_*_output, control_*_sent)
//   BYTES    what came           connections to close       (control_coordinator_drops)
//   CLOSED   by the other side   notices: verdicts, refusals (control_*_notice)
//   EXITED   a local rank's process
//   TICK     at control_*_wake
//
// Life of a member: it says hello, proves that it holds the key, waits for all others (WAITING), is
// welcomed with the list of ranks (RUNNING), swaps, beats, agrees; leaves when all leave (LEFT), or fails.
#ifndef CONTROL_MACHINE_H
#define CONTROL_MACHINE_H

#include "control/failure_detector.h"
#include "control/frame.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CONTROL_PENDING_MAX = 64, // connections that have not proved anything yet
    CONTROL_HANDSHAKE_MS = 2000,
    CONTROL_COORDINATOR =
        -1 // as a rank: a coordinator that is in no rank's process (the launcher's)
};

typedef enum control_event_kind {
    CONTROL_OPENED, // member: connected
    CONTROL_BYTES,
    CONTROL_CLOSED,
    CONTROL_EXITED, // rank: its process, on this machine, ended
    CONTROL_TICK
} control_event_kind;

typedef struct control_event {
    control_event_kind kind;
    int connection; // of the coordinator
    int rank;       // EXITED
    const void *bytes;
    int64_t count;
} control_event;

typedef enum control_notice_kind {
    CONTROL_NOTE_JOINED,  // coordinator: rank proved that it belongs to the job
    CONTROL_NOTE_REFUSED, // coordinator: somebody was not let in; code and text say who and why
    CONTROL_NOTE_VERDICT, // rank, verdict, text. A member's own rank: it has been fenced
    CONTROL_NOTE_FAILED   // rank gave up by itself, and says why: code, text
} control_notice_kind;

typedef struct control_notice {
    control_notice_kind kind;
    int rank;
    control_verdict verdict;
    status code;
    char text[CONTROL_TEXT_BYTES];
} control_notice;

// Who a rank is, for its peers.
typedef struct control_peer {
    char host[CONTROL_HOST_BYTES];
    uint64_t machine; // equal on one kernel and pid namespace; 0: not known
    int64_t pid;
    uint64_t started; // with pid: tells a process from a later one of the same number
} control_peer;

// What all ranks agree to do after the same step: see control_step.
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

// ---- coordinator -----------------------------------------------------------------------------------------
typedef struct control_coordinator control_coordinator;
// Whether a process of this machine is neither stopped nor gone, by the kernel's word. NULL: not asked.
typedef bool control_runs(const control_peer *peer);

typedef struct control_coordinator_config {
    const host *h;          // nonces
    const control_key *key; // borrowed
    uint64_t job;
    uint32_t epoch;
    int ranks;
    int rank; // whose process this is, or CONTROL_COORDINATOR
    control_peer self;
    int64_t join_ns; // all ranks must be there by then [60 s]
    control_limits limits;
    control_runs *runs;
} control_coordinator_config;

NODISCARD status control_coordinator_create(const control_coordinator_config *config, int64_t now,
                                            control_coordinator **out);
void control_coordinator_destroy(control_coordinator *b);          // NULL is legal
int control_coordinator_connections(const control_coordinator *b); // their numbers are below this
// A number for a new connection; -1: there is no room, close it.
int control_coordinator_accept(control_coordinator *b, int64_t now);
void control_coordinator_handle(control_coordinator *b, const control_event *e, int64_t now);
int64_t control_coordinator_wake(const control_coordinator *b);
control_span control_coordinator_output(const control_coordinator *b, int connection);
void control_coordinator_sent(control_coordinator *b, int connection, int64_t count);
bool control_coordinator_is_open(const control_coordinator *b, int connection);
bool control_coordinator_drops(const control_coordinator *b,
                               int connection); // close it when its output is sent
bool control_coordinator_notice(control_coordinator *b, control_notice *out);
bool control_coordinator_is_done(const control_coordinator *b); // all have left or failed
int control_coordinator_pending(
    const control_coordinator *b); // connections that proved nothing yet

// ---- member --------------------------------------------------------------------------------------
typedef enum control_state {
    CONTROL_JOINING,
    CONTROL_WAITING, // proved; not all others are here yet
    CONTROL_RUNNING,
    CONTROL_LEAVING,
    CONTROL_LEFT,
    CONTROL_OVER // failed, refused or cut off: control_member_error
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
// Of OVER: its code, and a text that is borrowed.
status control_member_error(const control_member *m, const char **said);
const control_peer *control_member_peer(const control_member *m, int rank); // from RUNNING on
int control_member_coordinator_rank(const control_member *m);
// Worth connecting again: nothing was said yet that condemns this member.
bool control_member_may_retry(const control_member *m);
void control_member_reset(control_member *m, int64_t now); // for another connection

// The report of the next beats.
void control_member_report(control_member *m, const control_report *report);
// Everybody's bytes, in rank order, once all gave theirs. `mine` is copied. One at a time.
NODISCARD status control_member_swap(control_member *m, const void *mine, int64_t bytes);
// True when it ended: *st is its result, *all (ranks * bytes) is borrowed until the next swap.
bool control_member_swapped(control_member *m, status *st, const uint8_t **all);
void control_member_request(control_member *m, control_agreement kind, uint64_t argument);
// Before step `step` is begun: false: a decision is being made and this step lies beyond what was
// promised; ask again after the next event. True: `due` (CONTROL_AGREEMENTS of them) says what is to be
// done before the step, once.
bool control_member_step(control_member *m, int64_t step, control_decision *due);
void control_member_fail(control_member *m, status code, const char *said); // told to all others
void control_member_leave(control_member *m); // then handle events until LEFT

#ifdef __cplusplus
}
#endif
#endif
