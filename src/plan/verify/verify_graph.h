// The part of the verifier that knows no tensors: the actions on the streams of all ranks, their
// waits, their collectives and the bytes that they touch. It proves everything about timing.
//
// A stream runs its actions in the order of the list. An action begins when the one before it on
// its stream and all actions that it waits for have ended. Collectives are matched in a *port*: a
// group, or one direction between two of its members. The n-th actions of all members of a port are
// one rendezvous, and they end when all of them have begun. The list runs step after step.
//
// A host posts a rank's list to its streams in order, and the queue of a stream has limited space.
// Where a queue is full the host waits and posts nothing that comes later in the list. Bytes may
// not rely on the order that this adds, but it may make a sound plan wait for ever, so the plan is
// simulated a second time with these limits.
//
// "Before" is a relation that holds under every timing: one action ends before another begins. Each
// action has a vector clock: for every stream, the last action that has ended before this one
// begins. First the clocks count only the rank's own streams and waits, which is nearly always
// enough and cheap; where it is not enough, clocks over the streams of all ranks decide.
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
    int32_t port;    // where it is matched with other ranks; -1: nowhere
    uint64_t what;   // hash of the operation, equal on all members of a rendezvous
    int32_t items;   // entries that it takes in the queue of its stream
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
    int32_t queue_items; // capacity of the queue of a stream; 0: no limit
} verify_graph;

typedef enum verify_kind {
    VERIFY_SOUND,
    VERIFY_LATER,     // a waits for b, which is not before it in the list
    VERIFY_DIFFERS,   // a and b are one rendezvous and differ
    VERIFY_MISSING,   // b's rank has no match for a; b: its last in the port, action -1: none
    VERIFY_CYCLE,     // each action waits for the next for ever
    VERIFY_UNORDERED, // a and b, of one rank in one port, are not ordered
    VERIFY_RACE       // a and b touch the same bytes, are not ordered, and one writes
} verify_kind;

typedef struct verify_at {
    int32_t rank, action, step; // step: 0, or 1 for the following one
} verify_at;

typedef struct verify_finding {
    verify_kind kind;
    verify_at a, b;
    int32_t span_a, span_b; // of a race: spans of the rank
    const verify_at *cycle; // of a cycle: each waits for the next, the last for the first
    int32_t cycle_count;
    bool queues; // the cycle includes a full queue
} verify_finding;

typedef struct verify_rendezvous {
    int32_t port;
    const int32_t *members; // actions, numbered over all ranks
    int32_t member_count;
} verify_rendezvous;

typedef struct verify_result {
    verify_finding finding;
    const int32_t *base; // [rank] number of its first action; [rank_count]: of all actions
    const verify_rendezvous *rendezvous;
    int32_t rendezvous_count;
    // An order of the first step that "before" allows: actions by number, rendezvous as -1 - row.
    const int32_t *order;
    int32_t order_count;
    bool far; // the clocks of all ranks were needed
} verify_result;

// Simulates two steps. The first finding is in out->finding. A status other than ST_OK is a failure
// of this machine, such as missing memory.
NODISCARD status verify_graph_run(arena *a, const verify_graph *g, verify_result *out);

// Sorts the edges between pieces and drops duplicates. Returns how many are left.
int32_t verify_edges_sort(int64_t *edges, int32_t count);
// Returns the index of the first edge that is at least `value`.
int32_t verify_edge_find(const int64_t *edges, int32_t count, int64_t value);

#endif
