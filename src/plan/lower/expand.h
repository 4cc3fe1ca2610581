// Pass 1 of lowering: turns a schedule's coarse actions into visits of layers and runs of their
// lists.
#ifndef PLAN_LOWER_EXPAND_H
#define PLAN_LOWER_EXPAND_H

#include "plan/lower/lower.h"
#include "plan/lower/shards.h"

// In strict order the nodes that sum gradients of experts of several ranks run apart from others.
typedef enum expand_nodes { NODES_ALL, NODES_DENSE, NODES_EXPERT } expand_nodes;

// Nodes of one list of a layer on some rows of a micro-batch; or a merge of two accumulators of
// each of its weights.
typedef struct layer_run {
    int32_t list;           // op_list
    int32_t nodes;          // expand_nodes
    int32_t rows_of;        // as in plan_action
    int32_t buffer, source; // accumulators; source >= 0: `buffer` += `source`, and no list is run
    int32_t sequence_begin, sequence_count, position_begin, position_count; // as in plan_action
} layer_run;

// One visit of a layer for a micro-batch: forward, or backward, or one half of a backward that is
// split.
typedef struct layer_visit {
    int32_t layer, chunk, microbatch; // microbatch -1: only other ranks have it, no runs
    bool forward, input, weight;
    bool opens, closes;   // the first and the last layer of the chunk's action
    bool makes_gradients; // the visit makes gradients of weights
    bool completes;       // gradients of the layer's weights are complete in this step
    int32_t runs_begin, runs_count;
} layer_visit;

typedef struct expand_chunk {
    int32_t stage; // virtual stage
    int32_t first_layer, end_layer;
} expand_chunk;

typedef struct expanded {
    schedule_list list; // of this rank
    expand_chunk *chunks;
    int32_t chunk_count;
    int32_t *chunk_of; // [layer]; -1: another stage has it
    bool two_ways;     // the pipeline has two directions: every weight is on two stages
    shard_tree trees[2];
    bool has_apart;      // experts are shared with ranks that have other shards:
    shard_tree *experts; // [2] the trees of their weights
    layer_visit *visits; // in the order of the compute stream
    int64_t visit_count, visit_capacity;
    layer_run *runs;
    int64_t run_count, run_capacity;
} expanded;

NODISCARD status plan_expand(const lower_input *in, expanded *out);
// Fills only the list and the chunks.
NODISCARD status plan_expand_chunks(const lower_input *in, expanded *out);

// The schedule's list for rank pp of the pipeline; without an optimizer it has forward actions
// only.
NODISCARD status expand_list(const lower_input *in, int32_t pp, arena *a, schedule_list *out);
bool expand_has_forward(const schedule_action *a);
// The chunk and micro-batch for which the action computes the gradient of the input, or the
// gradients of the weights. False: the action computes none.
bool expand_input_half(const schedule_action *a, int32_t *chunk, int32_t *microbatch);
bool expand_weight_half(const schedule_action *a, int32_t *chunk, int32_t *microbatch);
// The rank, and its chunk, that has the stage after (step 1) or before (-1) a chunk of rank pp;
// false: there is no such stage.
bool expand_neighbour(const lower_input *in, int32_t pp, int32_t chunk, int32_t step, int32_t *rank,
                      int32_t *its_chunk);

// The tree over shards that sums a layer's gradients, of one kind.
static inline const shard_tree *expand_tree(const expanded *x, int32_t layer, lower_kind kind)
{
    const int32_t way = x->two_ways ? x->chunk_of[layer] : 0;
    return kind == KIND_EXPERT && x->has_apart ? &x->experts[way] : &x->trees[way];
}
// The accumulators that a layer has of each weight, at most.
static inline int expand_buffers(const expanded *x, int32_t layer)
{
    const int dense = expand_tree(x, layer, KIND_DENSE)->buffer_count;
    const int expert = expand_tree(x, layer, KIND_EXPERT)->buffer_count;
    return (int)max_i64(1, max_i64(dense, expert));
}

#endif
