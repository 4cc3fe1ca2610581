// The tree over shards by which gradients are summed in strict order. Pure.
#ifndef PLAN_LOWER_SHARDS_H
#define PLAN_LOWER_SHARDS_H

#include "plan/plan.h"

enum {
    TREE_MAX_CP = 8, // shards of a sequence on one rank
    TREE_MAX_LEAVES = PLAN_MAX_SHARDS * TREE_MAX_CP,
    TREE_MAX_BUFFERS = 64,
    TREE_MAX_MERGES = 16, // 2^16 leaves
    TREE_MAX_NODES = 16   // that a rank may hand over: COMM_MAX_LEAVES
};

typedef struct tree_merge {
    int8_t target, source; // buffers: target += source; source is free then
} tree_merge;

// A node of the tree over shards [begin, end), and the accumulator that ends up with its sum.
typedef struct tree_node {
    int32_t begin, end;
    int8_t buffer;
} tree_node;

// Which accumulator a shard sums into, and what is merged when it is complete. Worked out once.
// With shards of a sequence there is a leaf for each of them in each shard: leaf s * cp_count + j
// is of shard s and of shard cp_first + j of every sequence.
typedef struct shard_tree {
    int32_t shard_count;                // of all ranks; those of this one:
    int32_t first, last;                // [first, last)
    int32_t cp_shards;                  // of a sequence, on all ranks; those of this one:
    int32_t cp_first, cp_count;         // from the first on
    int32_t leaf_count;                 // of the whole tree: of all ranks
    int64_t begin[PLAN_MAX_SHARDS + 1]; // sequences
    int8_t leaf[TREE_MAX_LEAVES];       // buffer; -1: the shard is empty
    tree_merge merges[TREE_MAX_LEAVES][TREE_MAX_MERGES];
    int merge_count[TREE_MAX_LEAVES];
    int buffer_count;
    // What is left when this rank's shards are done: one node, the root, if they are all there are.
    tree_node node[TREE_MAX_BUFFERS];
    int node_count;
} shard_tree;

// Of one direction: of a rank's sequences [own_begin, own_end).
NODISCARD status shard_tree_make(shard_tree *t, const plan_request *r, int64_t own_begin,
                                 int64_t own_end);
// Of two: those before `middle`, and those from there on.
NODISCARD status shard_trees_make(shard_tree trees[2], const plan_request *r, int64_t own_begin,
                                  int64_t middle, int64_t own_end);

#endif
