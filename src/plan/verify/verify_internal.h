// Shared by the files of the verifier: verify.c (the whole, and its words), verify_touch.c (which
// bytes actions touch), verify_life.c (what was written before it is read), verify_meet.c (who
// meets whom), verify_terms.c (what sums hold) and verify_sums.c (what actions do to sums).
#ifndef PLAN_VERIFY_VERIFY_INTERNAL_H
#define PLAN_VERIFY_VERIFY_INTERNAL_H

#include "plan/verify/verify.h"
#include "plan/verify/verify_graph.h"

enum { VERIFY_NAME_BYTES = 320, VERIFY_COLUMNS = 64 };

// A tensor of a rank is a row of all its tables: run tensors first, then the plan's own; parts of
// tensors are their wholes.
typedef struct verify_touch {
    int32_t tensor, span;
    uint64_t columns; // bits, of the ranges that views cut its columns into
    bool writes;
} verify_touch;

// Actions that do the same to the same bytes share one.
typedef struct verify_pattern {
    int32_t touches_begin,
        touches_count; // in the order of nodes, what a node reads before it writes
    int32_t uses_begin, uses_count;
} verify_pattern;

typedef struct verify_facts {
    const plan *p;
    plan_mesh at;
    int32_t rank, run_count, tensor_count;
    verify_span *where; // [tensor] in the arena
    int64_t **cuts;     // [tensor] where views begin and end, in columns, ascending
    int32_t *cut_count, *cut_capacity;
    // The first tensor_count of them are whole tensors.
    verify_span *spans;
    int32_t *span_tensor; // [span]
    int64_t span_count, span_capacity, span_tensor_capacity;
    verify_touch *touches;
    int64_t touch_count, touch_capacity;
    verify_use *uses;
    int64_t use_count, use_capacity;
    verify_pattern *patterns;
    int64_t pattern_count, pattern_capacity;
    int32_t *pattern_of; // [action]
    verify_action *actions;
} verify_facts;

// One direction between two members of a group, or the group.
typedef struct verify_place {
    plan_group group;
    int32_t from, to; // ranks; -1: all together
    int32_t *members, member_count;
} verify_place;

typedef struct verifier {
    arena *a;
    const plan_mesh *mesh;
    const plan *const *plans;
    int32_t rank_count;
    verify_facts *facts; // [rank]
    verify_place *places;
    int64_t place_count, place_capacity;
    verify_graph graph;
    verify_result result;
    plan_verified *out;
} verifier;

// "rank 1, action 42 (backward_weight of layers.3, micro-batch 2)"
const char *verify_name(const verifier *v, int32_t rank, int32_t action,
                        char out[VERIFY_NAME_BYTES]);
const plan_tensor *verify_tensor(const verify_facts *f, int32_t tensor);
static inline const plan_comm *verify_comm(const verify_facts *f, int32_t action)
{
    return &f->p->comms[f->p->actions[action].comm];
}
static inline int32_t verify_leaves(const plan_comm *c)
{
    return c->leaves_count > 0 ? c->leaves_count : 1;
}

// Where an item's bytes are, as a tensor of the rank; bytes 0: it has none on this rank.
typedef struct verify_bytes {
    int32_t tensor;
    int64_t begin, bytes; // in the arena
} verify_bytes;
verify_bytes verify_item_in(const verify_facts *f, const plan_comm *c, int32_t item);
// Bytes from one rank's piece to the next.
int64_t verify_piece_bytes(const verify_facts *f, const plan_comm *c, int32_t item);
verify_bytes verify_item_out(const verify_facts *f, const plan_comm *c, int32_t item);
// The tensor and first byte that a reference stands for.
void verify_resolve(const verify_facts *f, int32_t ref, int32_t *tensor, int64_t *begin,
                    int64_t *bytes);

// verify_touch.c: what a rank's actions touch, as patterns and spans.
NODISCARD status verify_touches(verifier *v, verify_facts *f);
// verify_meet.c: whether a communication's group is one; then fills places and the ports of the
// actions, and explains what does not meet.
NODISCARD status verify_group(const verifier *v, const verify_facts *f, int32_t action);
NODISCARD status verify_places(verifier *v);
status verify_differs(const verifier *v, const verify_finding *found);
status verify_misses(const verifier *v, const verify_finding *found);
// verify_life.c
NODISCARD status verify_lives(verifier *v);
// verify_sums.c
NODISCARD status verify_sums(verifier *v);

#endif
