// Tensor parallelism, a pure pass: a whole model's programs -> those of one rank along AXIS_TP.
//
// Weights are cut along the dim that their block allows (cut_dim); from there placements follow
// node by node through the rows' rules (op_kind.place): products of cut weights are cut, and so is
// what is made of their columns, until a product sums over cut columns. Its result is a term on
// each rank, and is summed at once; so in a block of a transformer
//
//   x = all -> qkv, cut by heads -> attention -> out: terms -> ALL_REDUCE -> + bias, dropout,
//   residual
//                                    backward, before the norm: terms -> ALL_REDUCE
//
// and the same around the MLP. Residual stream and norms are on all ranks; with `rows` (sequence
// parallelism) each rank has its positions of them, sums go by REDUCE_SCATTER and an ALL_GATHER
// stands before each product. What it gathers lives for that product only: the gradient of the
// weight gathers again (V. Korthikanti et al., arXiv:2205.05198, section 4.2.2). Vocabulary and
// head: rows of the table on each rank, HEAD_STATS in between.
//
// Order. With `ordered` (strict) a sum inside a matrix is cut into `shards` terms whatever `ways`
// is: each a sequential sum of its own (over the parts of a fused weight one after the other),
// added by the fixed tree over shards. So one rank that has all shards, and any number that has
// some, get the same bits.
#ifndef OP_PASS_PARTITION_H
#define OP_PASS_PARTITION_H

#include "op/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct op_cut {
    int32_t ways, at; // ranks along AXIS_TP, and which one this is
    int32_t shards;   // ordered: of a sum; a multiple of ways
    bool ordered;
    // sequence parallelism: what is neither cut by heads nor by columns is cut by positions
    bool rows;
    bool
        whole_experts; // with rows: each rank's rows go to whole experts, some of which are its own
} op_cut;

// The terms of a sum that one rank may have (OP_MAX_IN).
enum { OP_CUT_MAX_TERMS = 8 };

// Of models for training and evaluation, after differentiation; tensors keep their numbers in the
// programs, weights their rows in the model (with rows, columns and parts of this rank's). Nothing
// to cut: *local is the model itself. What cannot be cut so is refused by the name of its key.
NODISCARD status op_model_partition(arena *a, op_model *whole, const op_cut *how, op_model **local);

#ifdef __cplusplus
}
#endif
#endif
