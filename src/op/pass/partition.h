// Tensor parallelism, a pure pass: it turns the programs of a whole model into those of one rank
// along AXIS_TP.
//
// Weights are cut along the dim that their block allows (cut_dim). From there placements follow
// node by node through the rules of the operation rows (op_kind.place): results of cut weights are
// cut, and so are tensors made of their columns, until a GEMM sums over cut columns. Its result is
// a term on each rank, which is summed at once; so in a block of a transformer
//
//   x = all -> qkv, cut by heads -> attention -> out: terms -> ALL_REDUCE -> + bias, dropout,
//   residual
//                                    backward, before the norm: terms -> ALL_REDUCE
//
// and the same around the MLP. All ranks have the residual stream and the norms; with `rows`
// (sequence parallelism) each rank has its positions of them, sums are REDUCE_SCATTER and an
// ALL_GATHER precedes each GEMM. Gathered rows exist for that GEMM only: the gradient of the weight
// gathers again (V. Korthikanti et al., arXiv:2205.05198, section 4.2.2). Vocabulary and head: each
// rank has rows of the table; HEAD_STATS combines them.
//
// Experts that tp cuts: all ranks send the same rows, so that each of their experts' ranks along
// AXIS_TP has them, in the same order. A result of an expert is a term on each rank, which travels
// back as such: the terms of a token are summed when its experts' rows have been added, so no rows
// are reduced.
//
// Order: with `ordered` (strict) a sum inside a matrix has `shards` terms whatever `ways` is. Each
// term is a sequential sum (over the parts of a fused weight one after the other), and the fixed
// tree over shards adds them. So one rank that has all shards, and any number of ranks that have
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
    // sequence parallelism: tensors that are cut neither by heads nor by columns are cut by
    // positions
    bool rows;
    bool
        whole_experts; // with rows: each rank's rows go to whole experts, some of which are its own
    // Experts that are cut: `shards` of the sums inside them, and whether rows are gathered over
    // the ranks for each GEMM, as in predictions of other software
    int32_t expert_shards;
    bool gathers_experts;
} op_cut;

// Largest number of terms of a sum on one rank (OP_MAX_IN).
enum { OP_CUT_MAX_TERMS = 8 };

// For models for training and evaluation, after differentiation; tensors keep their ids in the
// programs, weights their rows in the model (with rows, columns and parts of this rank). If nothing
// is cut, *local is the model itself. A model that cannot be cut is refused with the name of the
// key.
NODISCARD status op_model_partition(arena *a, op_model *whole, const op_cut *how, op_model **local);

#ifdef __cplusplus
}
#endif
#endif
