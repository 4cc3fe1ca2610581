// The part of the verifier that knows nothing of tensors: actions on streams of ranks, what they
// wait for, where they meet, and which bytes they touch. All that can be said of timing is said
// here.
//
// A stream runs its actions in the order of the list. An action begins when the one before it on
// its stream and all that it waits for have ended. Actions of several ranks that meet in a *port*
// (a group, or one direction between two of its members) end when all of them have begun: the n-th
// of each rank in a port is one meeting. The list runs step after step.
//
// A host posts a rank's list to its streams in order, and each stream takes only so many pieces of
// work: where one is full the host waits, and what comes later in the list is not posted. That
// orders nothing that bytes may rely on, but what is sound without may wait for ever with it: so it
// is played a second time.
//
// "Before" is what holds under every timing: the end of one action comes before the beginning of
// another. It is kept as a clock for each action: of every stream, the last action that has ended
// before this one begins. First only what a rank's own streams and waits order is looked at, which
// is nearly always enough and costs little; where it is not, the clocks of all ranks together
// decide.
#ifndef PLAN_VERIFY_VERIFY_GRAPH_H
#define PLAN_VERIFY_VERIFY_GRAPH_H

#include "base/base.h"

typedef struct verify_span {
    int64_t begin, end; // bytes of the rank's arena
} verify_span;

typedef struct verify_use {
    int32_t span;
    bool writes;
} verify_use;

typedef struct verify_action {
    int32_t stream;
    int32_t waits_begin,
        waits_count; // as plan.waits: w >= 0 of this step, else -1 - w of the one before
    int32_t port;    // -1: it meets nobody
    uint64_t what;   // must be equal among those that meet
    int32_t items;   // pieces of work that it is on its stream
    int32_t uses_begin, uses_count;
} verify_action;

typedef struct verify_rank {
    const verify_action *actions;
    int32_t action_count;
    const int32_t *waits;
    const verify_span *spans;
    int32_t span_count;
    const verify_use *uses;
    int32_t stream_count;
} verify_rank;

typedef struct verify_port {
    const int32_t *members; // ranks
    int32_t member_count;
} verify_port;

typedef struct verify_graph {
    const verify_rank *ranks;
    int32_t rank_count;
    const verify_port *ports;
    int32_t port_count;
    int32_t queue_items; // that a stream takes; 0: any number
} verify_graph;

typedef enum verify_kind {
    VERIFY_SOUND,
    VERIFY_LATER,     // a waits for b, which is not before it in the list
    VERIFY_DIFFERS,   // a and b should meet and are not the same
    VERIFY_MISSING,   // a meets nobody of b's rank; b: the last there in the port, action -1: none
    VERIFY_CYCLE,     // each waits for the next for ever
    VERIFY_UNORDERED, // a and b, of one rank in one port, may come in any order
    VERIFY_RACE       // a and b touch the same bytes, in any order, and one writes
} verify_kind;

typedef struct verify_at {
    int32_t rank, action, step; // step: 0, or 1 for the following one
} verify_at;

typedef struct verify_finding {
    verify_kind kind;
    verify_at a, b;
    int32_t span_a, span_b; // of a race, of their rank
    const verify_at *cycle; // of a cycle; each waits for the next, the last for the first
    int32_t cycle_count;
    bool queues; // a cycle by way of a stream that is full
} verify_finding;

typedef struct verify_meeting {
    int32_t port;
    const int32_t *members; // actions, numbered over all ranks
    int32_t member_count;
} verify_meeting;

typedef struct verify_result {
    verify_finding finding;
    const int32_t *base; // [rank] number of its first action; [rank_count]: of all actions
    const verify_meeting *meetings;
    int32_t meeting_count;
    // What happened in the first step, an order that "before" allows: actions by number, meetings
    // as
    // -1 - row.
    const int32_t *order;
    int32_t order_count;
    bool far; // the clocks of all ranks were needed
} verify_result;

// Plays two steps. Whatever it finds is in out->finding; a status that is not ST_OK is of this
// machine.
NODISCARD status verify_graph_run(arena *a, const verify_graph *g, verify_result *out);

// Borders between pieces: sorted, each once; how many are left.
int32_t verify_edges_sort(int64_t *edges, int32_t count);
// The number of the first that is at least `value`.
int32_t verify_edge_find(const int64_t *edges, int32_t count, int64_t value);

#endif
