// The processes of a job that agree by majority (quorum.h), over sockets: one member on each host.
//
// Each member is connected to each other one, by the handshake and the sealed frames of control. It
// tells the others ten times a second what it reports, for the leader to decide upon; the leader
// proposes records, and every member has the newest agreed one. A member that is silent for a
// second is lost, at once if its connection ends and does not come back. The leader's role moves
// then; a leader that hears no majority gives it up.
//
// A process that was started again comes back as the same member, with another incarnation: a
// number that each of its frames carries. The leader admits it by a record that names this
// incarnation; until then it has no vote. What comes from an earlier incarnation is dropped then,
// and a process that finds that another one has its place is replaced for good.
#ifndef CONTROL_COUNCIL_H
#define CONTROL_COUNCIL_H

#include "control/control.h"
#include "control/quorum.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CONTROL_RECORD_BYTES = 32 << 10,
    CONTROL_TOLD_BYTES = 4096,
    CONTROL_SEAT_BYTES = 56 // of an address, with its NUL
};

typedef struct control_council control_council;
typedef struct control_council_config {
    const host *h;
    const control_key *key; // borrowed until control_council_stop
    uint64_t job;
    int self, count;
    bool is_back;  // this process was started again, and the others go on
    bool is_moved; // and listens elsewhere than before
    // [count] where each one listens, at most CONTROL_SEAT_BYTES each; copied
    const char (*addresses)[CONTROL_ADDRESS_BYTES];
} control_council_config;

// Takes ownership of the listening socket, also on failure.
NODISCARD status control_council_start(const control_council_config *config, int listen_fd,
                                       control_council **out);
// Sends what is pending, for up to a second. NULL is legal.
void control_council_stop(control_council *c);

typedef struct control_council_view {
    bool leads;
    int leader;           // -1: unknown
    uint64_t index, term; // of the newest agreed record; index 0: none yet
    int64_t cut_ns;       // for how long no majority has been heard; 0: it is heard
    bool is_heard;        // one other member at least was heard
    bool is_admitted;     // it has a vote
    bool is_replaced;     // another process has its place
} control_council_view;
void control_council_look(control_council *c, control_council_view *out);

// The newest agreed record, up to CONTROL_RECORD_BYTES. Returns its bytes, 0: none yet.
int64_t control_council_record(control_council *c, void *out);
// The leader proposes the next record. False: it does not lead, or a record is on its way.
bool control_council_propose(control_council *c, const void *record, int64_t bytes);

// Tells the others, at most CONTROL_TOLD_BYTES.
void control_council_tell(control_council *c, const void *report, int64_t bytes);
// The newest report of a member, up to CONTROL_TOLD_BYTES. Returns its bytes, 0: nothing yet.
// *is_lost: it is not heard now, or has not been heard for a while after the start.
int64_t control_council_told(control_council *c, int member, void *out, bool *is_lost);

// Where a member listens, as far as this one knows.
void control_council_address(control_council *c, int member, char out[CONTROL_SEAT_BYTES]);

#ifdef __cplusplus
}
#endif
#endif
