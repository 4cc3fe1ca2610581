// Members that agree on one value after the other, by majority, with a leader whose role moves when
// it is lost. The state machine of one member: it has no clock, no socket and no memory of its own,
// so a test can try every order of its events.
//
//   timeout   no leader was heard for a while: asks whether it would be elected (PROBE), and if a
//             majority says yes, asks for votes in the next term (ASK)
//   beat      the leader sends its newest entry to all (ENTRY), as often as the owner wants
//   retire    the owner of a leader has not heard a majority for a while: it leads no longer
//   handle    a message
//
// The rules are those of Raft (Ongaro and Ousterhout 2014), for a log of which only the newest
// entry is kept: a value replaces the one before it. A term has one leader at most, because a
// member gives one vote in a term. A member votes only for one whose entry is not older than its
// own, so a new leader has every value that a majority has taken. A leader stamps its entry with
// its own term before it counts who has it. So for each index at most one value is ever agreed, and
// every member that hears of an index hears of the same value, also one that was stopped or cut off
// meanwhile.
//
// A member has no storage, so one that crashed has forgotten its votes and its entry. When it is
// back it only listens (`is_back`): it has no vote, and what it takes does not count. The owner
// admits it again (control_quorum_admit) when a value is agreed that was proposed after its return
// and names it. That is safe. A majority Q without the member has taken that entry, in a term t. A
// candidate that may still count a vote of the member's earlier incarnation asked before the entry
// was proposed; so each member of Q has either voted for it before it took the entry, and then its
// term is t at most, or refuses it, because its entry is older. For the same reason the member's
// vote in t or before, which it has forgotten, cannot be given twice: its entry is of term t.
#ifndef CONTROL_QUORUM_H
#define CONTROL_QUORUM_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CONTROL_QUORUM_MAX = 64, CONTROL_QUORUM_OUT = 4 * CONTROL_QUORUM_MAX };

typedef enum control_quorum_role {
    CONTROL_FOLLOWS,
    CONTROL_PROBES, // asks whether it would be elected
    CONTROL_ASKS,   // for votes
    CONTROL_LEADS
} control_quorum_role;

typedef enum control_quorum_kind {
    CONTROL_QUORUM_PROBE,
    CONTROL_QUORUM_PROBED, // `is_yes`
    CONTROL_QUORUM_ASK,
    CONTROL_QUORUM_VOTED, // `is_yes`
    CONTROL_QUORUM_ENTRY, // of the leader; is_yes: it is agreed
    CONTROL_QUORUM_TAKEN, // is_yes: the receiver's entry is this one
    CONTROL_QUORUM_KINDS
} control_quorum_kind;

typedef struct control_quorum_entry {
    uint64_t term, index; // index 0: the member has none yet
    uint64_t value;       // names the bytes, which the owner keeps
} control_quorum_entry;

typedef struct control_quorum_message {
    control_quorum_kind kind;
    int from, to;
    uint64_t term; // PROBE, PROBED: the term that would be asked for
    control_quorum_entry entry;
    bool is_yes;
} control_quorum_message;

typedef struct control_quorum {
    int self, count;
    control_quorum_role role;
    uint64_t term;
    int voted;  // for whom in this term; -1: for none
    int leader; // of this term, as far as this member knows; -1: unknown
    control_quorum_entry entry;
    control_quorum_entry agreed; // the newest entry that is known to be agreed
    bool is_back;                // it has forgotten its votes and is not admitted yet
    uint64_t yes;                // bit m: member m said yes to the question of this role
    // Messages to send, which the owner takes and empties: `out` has CONTROL_QUORUM_OUT places.
    control_quorum_message *out;
    int out_count;
} control_quorum;

void control_quorum_init(control_quorum *q, int self, int count, control_quorum_message *out);
// The member is back after a crash, and is admitted again.
void control_quorum_return(control_quorum *q, int self, int count, control_quorum_message *out);
void control_quorum_admit(control_quorum *q);
void control_quorum_timeout(control_quorum *q);
void control_quorum_beat(control_quorum *q);
void control_quorum_retire(control_quorum *q);
// False, with no effect: the message is of an earlier term, or its leader lies behind.
bool control_quorum_handle(control_quorum *q, const control_quorum_message *m);
// Whether this member leads and no entry is on its way.
bool control_quorum_may_propose(const control_quorum *q);
// The leader proposes the next value. False: it may not.
bool control_quorum_propose(control_quorum *q, uint64_t value);

int control_quorum_majority(int count);
void control_quorum_check(const control_quorum *q); // asserts what must hold at any time

#ifdef __cplusplus
}
#endif
#endif
