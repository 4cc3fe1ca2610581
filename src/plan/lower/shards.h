// The tree over shards that sums gradients in strict order. Pure.
#ifndef PLAN_LOWER_SHARDS_H
#define PLAN_LOWER_SHARDS_H

#include "plan/plan.h"

enum {
    TREE_MAX_CP = 8, // shards of a sequence on one rank
    TREE_MAX_LEAVES = PLAN_MAX_SHARDS * TREE_MAX_CP,
    TREE_MAX_BUFFERS = 64,
    TREE_MAX_MERGES = 16, // 2^16 leaves
    TREE_MAX_NODES = 16   // nodes that a rank may send: COMM_MAX_LEAVES
};

typedef struct tree_merge {
    int16_t target, source; // buffers: target += source; source is free then
} tree_merge;

// A node of the tree over shards [begin, end), and the accumulator that ends up with its sum.
typedef struct tree_node {
    int32_t begin, end;
    int16_t buffer;
} tree_node;

// The accumulator of each shard, and the merges after it is complete; computed once. With shards of
// a sequence, each shard has one leaf for each of them: leaf s * cp_count + j is of shard s and of
// shard cp_first + j of every sequence.
typedef struct shard_tree {
    int32_t shard_count;        // on all ranks; this rank has
    int32_t first, last;        // shards [first, last)
    int32_t cp_shards;          // shards of a sequence, on all ranks; this rank has
    int32_t cp_first, cp_count; // `cp_count` of them from cp_first on
    // It has the shards of so many ranks of dp (0: of one): `each` of each, `stride` apart. They
    // progress together, shard by shard.
    int32_t ranks, each, stride;
    int32_t leaf_count;                 // leaves of the whole tree, on all ranks
    int64_t begin[PLAN_MAX_SHARDS + 1]; // sequences
    int16_t leaf[TREE_MAX_LEAVES];      // buffer; -1: the shard is empty
    tree_merge merges[TREE_MAX_LEAVES][TREE_MAX_MERGES];
    int merge_count[TREE_MAX_LEAVES];
    int buffer_count;
    // The nodes that remain when this rank's shards are done; a single node, the root, if the rank
    // has all shards.
    tree_node node[TREE_MAX_BUFFERS];
    int node_count;
} shard_tree;

// Returns shard k of a rank's.
int32_t shard_of(const shard_tree *t, int32_t k, int32_t rank);
// Makes the tree of a pipeline with one direction, for the rank's sequences [own_begin, own_end).
NODISCARD status shard_tree_make(shard_tree *t, const plan_request *r, int64_t own_begin,
                                 int64_t own_end);
// Makes the tree of the experts of several ranks, from that of this rank's own shards: it has those
// of all ranks that share the experts. Each must have as many shards and sequences.
NODISCARD status shard_tree_experts(shard_tree *t, const shard_tree *own, const plan_request *r);
// Makes the trees of a pipeline with two directions: the first has the sequences before `middle`,
// the second those from `middle` on.
NODISCARD status shard_trees_make(shard_tree trees[2], const plan_request *r, int64_t own_begin,
                                  int64_t middle, int64_t own_end);

#endif
