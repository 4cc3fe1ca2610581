// Declarations shared by the files of the verifier: verify.c (the entry and the messages),
// verify_touch.c (bytes that actions touch), verify_match.c (matching collectives),
// verify_written.c (every read byte was written before), verify_terms.c (sets of terms) and
// verify_sums.c (terms of sums).
#ifndef PLAN_VERIFY_VERIFY_INTERNAL_H
#define PLAN_VERIFY_VERIFY_INTERNAL_H

#include "plan/access.h"
#include "plan/verify/verify.h"
#include "plan/verify/verify_graph.h"

enum { VERIFY_NAME_BYTES = 320, VERIFY_COLUMNS = 64 };

// An access to a tensor. Tensors of a rank are numbered: run tensors first, then the plan's own. A
// part of a tensor has the number of the whole.
typedef struct verify_touch {
    int32_t tensor, span;
    uint64_t columns; // a bit for each range into which views cut the columns
    bool writes;
} verify_touch;

// The accesses of an action. Actions with the same accesses share a pattern.
typedef struct verify_pattern {
    int32_t touches_begin,
        touches_count; // in the order of nodes, the reads of a node before its writes
    int32_t uses_begin, uses_count;
} verify_pattern;

typedef struct verify_facts {
    const plan *p;
    plan_mesh at;
    int32_t rank, run_count, tensor_count;
    verify_span *where; // [tensor] its bytes in the arena
    int64_t **cuts;     // [tensor] edges of views, in columns, ascending
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

// A port: one direction between two members of a group, or the whole group.
typedef struct verify_place {
    plan_group group;
    int32_t from, to; // ranks; -1: the whole group
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

// The bytes of an item and the tensor of the rank that holds them; bytes 0: it has none on this
// rank.
typedef struct verify_bytes {
    int32_t tensor;
    int64_t begin, bytes; // in the arena
} verify_bytes;
// Where the bytes of an access are; bytes 0: it touches none.
verify_bytes verify_access_bytes(const verify_facts *f, const plan_access *a);
verify_bytes verify_item_in(const verify_facts *f, const plan_comm *c, int32_t item);
// Returns the distance in bytes from one rank's piece to the next.
int64_t verify_piece_bytes(const verify_facts *f, const plan_comm *c, int32_t item);
verify_bytes verify_item_out(const verify_facts *f, const plan_comm *c, int32_t item);
// Returns the tensor and the bytes of a reference.
void verify_resolve(const verify_facts *f, int32_t ref, int32_t *tensor, int64_t *begin,
                    int64_t *bytes);

// verify_touch.c: finds the accesses of a rank's actions, as patterns and spans.
NODISCARD status verify_touches(verifier *v, verify_facts *f);
// verify_match.c: checks the group of a communication; fills places and the ports of the actions;
// reports collectives that do not match.
NODISCARD status verify_group(const verifier *v, const verify_facts *f, int32_t action);
NODISCARD status verify_places(verifier *v);
status verify_differs(const verifier *v, const verify_finding *found);
status verify_misses(const verifier *v, const verify_finding *found);
// verify_written.c
NODISCARD status verify_written(verifier *v);
// verify_sums.c
NODISCARD status verify_sums(verifier *v);
// verify_exchange.c: exchanges of rows by counts in device memory, of all ranks or of one program.
NODISCARD status verify_exchanges(const verifier *v);
NODISCARD status verify_exchange_program(const op_program *p, const extent_binding *bound);
// verify_fused.c
NODISCARD status verify_fused(const verifier *v);

#endif
