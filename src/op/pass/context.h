// Context parallelism, a pure pass: it turns the programs of a model into those of one rank along
// AXIS_CP.
//
// A rank has some positions of every sequence of a micro-batch (op/zigzag.h), so EXTENT_TOKENS is
// bound to its share; operations that work row by row do not change. Attention reads other rows:
// keys and values of all ranks are gathered before it, and again before its backward, so they need
// not be kept. The queries are the rank's own; their terms of the gradients of keys and values go
// to the ranks that have those.
//
//   k, v -> SUM (as columns of one tensor) -> ALL_GATHER -> attention(q, all k, all v)
//   attention_bwd(dy, q, all k, all v) -> terms of all dk, dv -> REDUCE_SCATTER -> dk, dv
//
// With `ring` keys and values travel instead, and no rank has all of them at once
// (op/pass/context_ring.c). With `heads` = H, groups of H neighbouring ranks first exchange
// positions for heads (op/pass/context_heads.c): then each has the rows that one of ways / H ranks
// has, with 1 / H of the heads, and the steps above apply to ways / H ranks.
//
// The losses of answers (OBJECTIVE) are sums over the tokens of an answer, which several ranks
// have. The token losses of all ranks are gathered before it, 4 bytes for each token, and every
// rank adds them in the order of the positions.
//
// Every rank has all documents. Order: with `ordered` (strict) dk and dv are sums over `shards`
// terms, one for the queries of each shard, added by the fixed tree; so one rank that has all
// shards gets the same bits.
#ifndef OP_PASS_CONTEXT_H
#define OP_PASS_CONTEXT_H

#include "op/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct op_context {
    int32_t ways, at; // ranks along AXIS_CP, and which one this is
    int32_t heads;    // neighbouring ranks that distribute heads; 0: 1
    int32_t shards;   // ordered: a multiple of ways
    bool ordered;
    bool ring;     // not with ordered
    int32_t turns; // of the zigzag; 0: 1, as with ordered
} op_context;

// Largest number of shards of one rank (OP_MAX_IN).
enum { OP_CONTEXT_MAX_TERMS = 8 };

// For models for training and evaluation, after differentiation and op_model_partition; tensors
// keep their ids in the programs. If nothing changes, *local is the model itself.
NODISCARD status op_model_context(arena *a, op_model *whole, const op_context *how,
                                  op_model **local);

#ifdef __cplusplus
}
#endif
#endif
