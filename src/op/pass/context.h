// Context parallelism, a pure pass: a model's programs -> those of one rank along AXIS_CP.
//
// A rank has some positions of every sequence of a micro-batch (op/zigzag.h), so EXTENT_TOKENS is
// bound to its share; all that works row by row stays as it is. Attention looks at other rows: keys
// and values of all ranks are gathered before it, and again before its backward, so they need not
// be kept; the queries are the rank's own, and what they add to the gradients of keys and values
// goes to those that have them.
//
//   k, v -> SUM (side by side) -> ALL_GATHER -> attention(q, all k, all v)
//   attention_bwd(dy, q, all k, all v) -> terms of all dk, dv -> REDUCE_SCATTER -> dk, dv
//
// With `ring` keys and values travel instead, and no rank has all of them at once
// (op/pass/context_ring.c). With `heads` = H ranks side by side first exchange their positions for
// heads (op/pass/context_heads.c): then each has the rows of one rank of ways / H, of 1 / H of the
// heads, and what is said above is done by those.
//
// Documents are whole on every rank. Order. With `ordered` (strict) dk and dv are sums over
// `shards` terms, a shard's queries each, added by the fixed tree; so one rank that has all shards
// has the same bits.
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

// Shards that one rank may have (OP_MAX_IN).
enum { OP_CONTEXT_MAX_TERMS = 8 };

// Of models for training and evaluation, after differentiation, and after op_model_partition;
// tensors keep their numbers in the programs. Nothing to do: *local is the model itself.
NODISCARD status op_model_context(arena *a, op_model *whole, const op_context *how,
                                  op_model **local);

#ifdef __cplusplus
}
#endif
#endif
