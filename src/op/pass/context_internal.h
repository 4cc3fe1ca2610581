// Shared by the files of context parallelism: context.c (the pass; keys and values gathered),
// context_heads.c (heads distributed instead) and context_ring.c (keys and values that travel).
#ifndef OP_PASS_CONTEXT_INTERNAL_H
#define OP_PASS_CONTEXT_INTERNAL_H

#include "op/op_internal.h"
#include "op/pass/context.h"

typedef struct context_pass {
    arena *a;
    const op_context *how;
    const op_program *whole;
    op_program *p;    // the rank's; tensors have the same ids in both
    int32_t ways, at; // of positions: ranks that have the same heads, and which of them this is
    int32_t heads, head_at; // ranks among which heads are distributed, and this rank's index
    tensor_id
        *lse_of; // [tensor of the whole] the tensor that replaces it where heads are distributed
} context_pass;

// Keys and values of an attention in one tensor, and the first column of each.
typedef struct key_values {
    tensor_id both, k, v;
} key_values;

// Makes a tensor as wide as k and v together, with the rows of `ranks` ranks.
NODISCARD status context_pair(context_pass *c, tensor_id k, tensor_id v, const char *name,
                              int64_t ranks, dtype type, key_values *out);
// Makes a tensor with rows of tokens, with a unique name derived from `name`.
NODISCARD status context_tensor(context_pass *c, const char *name, dtype type, int64_t rows,
                                int64_t columns, tensor_id *out);
NODISCARD status context_sum(context_pass *c, op_list list, tensor_id a, tensor_id b, tensor_id to);
static inline status context_copy(context_pass *c, op_list list, tensor_id from, tensor_id to)
{
    return context_sum(c, list, from, TENSOR_NONE, to);
}

// Append attention and its backward for nodes whose operands are this rank's heads, over all
// positions.
NODISCARD status context_attend(context_pass *c, op_list list, const op_node *node);
NODISCARD status context_attend_bwd(context_pass *c, const op_node *node);
// The same for nodes with all heads, over this rank's positions.
NODISCARD status context_heads_forward(context_pass *c, op_list list, const op_node *node);
NODISCARD status context_heads_backward(context_pass *c, const op_node *node);
NODISCARD status context_ring_forward(context_pass *c, op_list list, const op_node *node);
NODISCARD status context_ring_backward(context_pass *c, const op_node *node);

#endif
