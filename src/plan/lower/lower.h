// Shared by the files of lowering: lower.c (actions), _tensors (tensors and bindings), _shards (accumulators and
// the tree over shards), _pipeline (stages), _copies (tensors of their slots), _comm (sums over ranks), _zero (what
// is cut over them), _inline (communications inside a layer), _overlap (those beside products), _codec, _panels.
#ifndef PLAN_LOWER_LOWER_H
#define PLAN_LOWER_LOWER_H

#include "plan/lower/beside.h"
#include "plan/lower/borders.h"
#include "plan/lower/live.h"
#include "plan/lower/lower_repeat.h"
#include "plan/pipeline.h"
#include "plan/plan_internal.h"

enum {
    TREE_MAX_CP = 8, // shards of a sequence on one rank
    TREE_MAX_LEAVES = PLAN_MAX_SHARDS * TREE_MAX_CP,
    TREE_MAX_BUFFERS = 64,
    TREE_MAX_MERGES = 16, // 2^16 leaves
    TREE_MAX_NODES = 16,  // that a rank may hand over: COMM_MAX_LEAVES
    NOTED_MICROBATCHES = 2
};

typedef struct tree_merge {
    int8_t target, source; // buffers: target += source; source is free then
} tree_merge;

// A node of the tree over shards [begin, end), and the accumulator that ends up with its sum.
typedef struct tree_node {
    int32_t begin, end;
    int8_t buffer;
} tree_node;

// Which accumulator a shard sums into, and what is merged when it is complete. Worked out once. With shards of
// a sequence there is a leaf for each of them in each shard: leaf s * cp_count + j is of shard s and of
// shard cp_first + j of every sequence.
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

// One use of a weight by one layer: its accumulators.
typedef struct grad_use {
    int32_t weight, layer;
    tensor_id local;                  // ROLE_WEIGHT_GRAD of the layer's program
    int32_t buffer[TREE_MAX_BUFFERS]; // transient tensors
    int32_t binding_of_merge[TREE_MAX_BUFFERS][TREE_MAX_BUFFERS]; // 0: not made yet
    bool shared; // fast: another use of the same weight has the same buffer
} grad_use;

// The tensors of a layer for one micro-batch in flight: several slots, where a pipeline has several.
typedef struct layer_slot {
    int32_t *tensor;                   // [tensor of the program], gradients of weights missing
    int32_t binding[TREE_MAX_BUFFERS]; // one per accumulator buffer
    int32_t bound; // row of lowering.border_bindings, the last one made: 1 more; 0: none
} layer_slot;

typedef struct layer_state {
    bool is_here; // else another stage has it, and nothing below is set
    int32_t chunk;
    layer_slot *slots;            // of the chunk
    int64_t use_begin, use_count; // into uses
    int32_t first_forward;        // action: the forward of the first micro-batch
} layer_state;

// A chunk's slot: one micro-batch in flight.
typedef struct chunk_slot {
    int32_t microbatch; // that it holds; -1: none so far
} chunk_slot;

typedef struct chunk_state {
    int32_t stage; // virtual stage
    int32_t first_layer, end_layer;
    int32_t pool;                // chunks whose stages follow each other here share slots: a number
    int32_t group[BORDER_COUNT]; // row of the groups; -1: there is no other rank
    int32_t *slot_of;            // [micro-batch]; -1: not this chunk's
    bool *uses_slot;             // [slot]
    chunk_slot *slots;
    int32_t *received
        [BORDER_COUNT]; // [micro-batch] action: that brings it; -1: not yet, or nothing does
} chunk_state;

typedef struct border_binding border_binding; // lower_pipeline.c
typedef struct shared_comm shared_comm;       // lower_inline.c

// What comes over one link, in the order in which it is sent.
typedef struct link_message {
    int32_t chunk, microbatch;
} link_message;
typedef struct link_state {
    int32_t group;
    border_kind kind;
    link_message *messages;
    int64_t count, capacity, taken;
} link_state;

enum { LOWER_MAX_LINKS = 8 };

// Sums of gradients stand on lanes of their own: whole ones, those of rows for who keeps them, and those of
// rows among who keeps the same.
enum { SUM_WHOLE, SUM_ROWS, SUM_ACROSS, SUM_LANES };

// Weights of experts have other ranks that hold the same than all others have.
typedef enum lower_kind { KIND_DENSE, KIND_EXPERT, KIND_COUNT } lower_kind;
typedef struct lower_group_rows { // rows of the groups
    int32_t data;                 // ranks with other rows of the batch, aside; -1: there is one
    int32_t cut;                  // of dp, those that states are cut over; -1: nothing is
    int32_t across;               // those that hold the same pieces; -1: nobody else does
} lower_group_rows;

typedef struct codec_cut { // floats of a sum that travels compressed, and of those a rank's piece
    int64_t count, piece;  // piece 0: it gets all; count: SUM_ACROSS: on the ranks that have most
} codec_cut;
// Such a sum, of this stage or another.
typedef struct lower_bucket {
    char name[PLAN_NAME_BYTES];
    int32_t stage, row, ranks; // row of plan.buckets
    int32_t feedback;          // run tensor; -1: none
    codec_cut *cuts;           // [rank of tp]
} lower_bucket;

// What a layer does at a time: forward, or backward, of which a half may come apart.
typedef struct layer_visit {
    int32_t layer;
    bool forward, input, weight;
} layer_visit;

// A whole gradient on its way into the rows that its ranks keep.
typedef struct passing_sum {
    int32_t tensor, action;
    int64_t visit; // that made it
} passing_sum;

typedef struct wait_pair {
    int32_t action, on; // as in plan_action
} wait_pair;

struct lowering {
    plan *p;
    const plan_request *r;
    const op_model *m;
    arena *a;
    life_table lives;
    extent_binding bound;
    shard_tree trees[2]; // by the direction of a chunk; of one direction but where there are two
    int32_t leaves_begin[2]; // into plan.leaves
    bool has_leaves;         // they are there
    bool two_ways;           // the pipeline has two directions: every weight is on two stages
    layer_state *layers;
    grad_use *uses;
    int64_t use_count, use_capacity;
    int32_t step_ref;
    int32_t **workspace; // [program * OP_LIST_COUNT + list][node]
    plan_pipeline pipe;
    schedule_list list; // what this rank does
    lower_repeat repeat;
    chunk_state *chunks;
    int32_t chunk_count, slot_count;
    link_state links[LOWER_MAX_LINKS]; // to this rank
    int32_t link_count;
    bool *is_border; // [transient tensor] it lives all through the step: a link's
    int64_t is_border_capacity;
    plan_borders borders;
    border_buffer *buffers;
    border_binding *border_bindings;
    int64_t border_binding_count, border_binding_capacity;
    int32_t microbatch, slot; // that actions are pushed for
    int64_t *begins;          // [action + 1] nodes of the compute lane before it
    int32_t *next_waits;      // of the compute action that is pushed next
    int64_t next_wait_count, next_wait_capacity;
    bool *holds;      // [weight] this rank has it
    bool *touched;    // [transient tensor] an accumulator that has been written in this step
    wait_pair *pairs; // become plan.waits
    int64_t pair_count, pair_capacity;
    int32_t last_compute; // action: the one pushed last on that lane
    int32_t last_sum[KIND_COUNT]
                    [SUM_LANES]; // action: the last sum of gradients on the lane; -1: none
    int32_t *gather_of;          // [weight] action: its all_gather after the update; -1: none
    lower_group_rows groups[KIND_COUNT];
    bool cuts_gradients;  // whole gradients of weights that are cut only pass
    bool cuts_weights;    // and so do these weights
    int32_t *whole_of;    // [weight] transient tensor: it, as it passes; -1
    int32_t *gathered_by; // [weight] action that brings it and is still to be waited for; -1
    int64_t *needed_at;   // [weight] visit that it was last brought for
    int32_t *rows_of;     // [weight] transient tensor: this rank's rows of its gradient; -1
    int32_t *summed_by;   // [weight] action: the last sum into them; -1
    layer_visit *visits;  // of the step, in order
    int64_t visit_count, visit_capacity, visit; // visit: that begins next, or is on the way
    int64_t visits_after; // of which the last: of micro-batches that only other ranks have
    passing_sum *passing;
    int64_t passing_count, passing_capacity, passing_done;
    lower_bucket *buckets; // of all stages
    int64_t bucket_count, bucket_capacity;
    shared_comm *shared; // records that several actions have; NULL: none
    int64_t shared_count;
    const char ***names; // [layer][tensor] of communications between its nodes; NULL: not one yet
    struct {
        int32_t group, tensor; // transient tensor that its compressed sums work in
    } works[KIND_COUNT * SUM_LANES];
    int work_count;
    int32_t *ticks; // [action] of those that communicate: moments on the compute lane's clock
    int64_t tick_capacity;
    int32_t *kept;
    int64_t kept_count, kept_capacity;
};

static inline lower_kind lower_kind_of(const lowering *l, int32_t weight)
{
    return plan_is_shared_out(&l->r->mesh, &l->m->weights[weight]) ? KIND_EXPERT : KIND_DENSE;
}
static inline const lower_group_rows *lower_groups(const lowering *l, int32_t weight)
{
    return &l->groups[lower_kind_of(l, weight)];
}

// lower.c
NODISCARD status lower_action_push(lowering *l, const plan_action *action, int32_t *index);
NODISCARD status lower_wait(lowering *l, int32_t action, int32_t on);
void lower_tick(lowering *l); // the communication pushed last takes a moment
// target += source, for one use, as a program of one node; *binding: 0, or what it was the last time.
NODISCARD status lower_tree_add(lowering *l, int32_t target, int32_t source, int32_t *binding);
// The compute action that is pushed next waits for this one, too.
NODISCARD status lower_wait_next(lowering *l, int32_t on);
NODISCARD status lower_forward(lowering *l, int32_t layer_row);
// Both halves, or one: of a layer whose loss makes its gradients, all of it is the input half.
NODISCARD status lower_backward(lowering *l, int32_t layer_row, bool input, bool weight);
// lower_inline.c: a range of nodes as actions, communications between them; *action as it is without any.
NODISCARD status lower_compute_push(lowering *l, const plan_action *action);
NODISCARD status lower_shared_begin(lowering *l); // before any communication
// One compute action, without a communication in it.
NODISCARD status lower_compute_run(lowering *l, const plan_action *action);
// The communication that the action's range begins with, on its group's own lane, after the compute action
// pushed last; `more`: other rows of it follow.
NODISCARD status lower_inline_beside(lowering *l, const plan_action *action, bool more,
                                     int32_t *out);
// The same of a shift: what it sends and what it receives.
NODISCARD status lower_shift_beside(lowering *l, const plan_action *action, int32_t *out);
// lower_overlap.c: the part of a list that the action's range begins with.
beside_part lower_beside_next(const lowering *l, const plan_action *action);
// Such a part, which is a sum, a gather or a ring.
NODISCARD status lower_beside_push(lowering *l, const plan_action *action, const beside_part *part);
// Sequences that a layer's weight list is run on at once: of a head whose logits are kept, a chunk.
int64_t lower_head_piece(const lowering *l, int32_t layer_row);
// The norm of one gradient, in blocks that do not depend on how the weight is cut: pieces of it.
enum { NORM_MAX_PIECES = 64 };
typedef struct norm_piece {
    int64_t row, rows;    // of the rows that this rank updates; of a vector: one
    int64_t begin, count; // columns; elements of a vector
} norm_piece;
int32_t lower_norm_pieces(const lowering *l, int32_t weight, norm_piece out[NORM_MAX_PIECES]);
// Counted in the norm by this rank, among those along tp that have the same.
bool lower_norm_is_mine(const lowering *l, int32_t weight);
// Sums over the ranks of tp of gradients that are a term on each, when a layer's are complete.
NODISCARD status lower_terms_reduce(lowering *l, int32_t layer_row);
// The same of those of which a rank keeps rows, when all are.
NODISCARD status lower_terms_end(lowering *l);
// lower_pipeline.c
NODISCARD status lower_chunks(lowering *l);  // before tensors: chunks, slots, links
NODISCARD status lower_borders(lowering *l); // after them: what links read and write lives always
// The layer shares tensor t of its program with a link: it is no slot's.
bool lower_is_border(const lowering *l, int32_t layer_row, tensor_id t);
NODISCARD status lower_visits(lowering *l); // l->visits
NODISCARD status lower_microbatches(lowering *l);
// lower_copies.c
NODISCARD status lower_copies_find(lowering *l); // before memory assignment: tensors that are alike
NODISCARD status lower_copies_move(lowering *l); // after it: each action gets those of its time
// lower_comm.c
// A name for people, of a communication.
NODISCARD status lower_comm_name(const lowering *l, plan_comm *c, const char *format, ...)
    PRINTF_LIKE(3, 4);
// A communication after `after`; -1 waits for nothing.
NODISCARD status lower_comm_push(lowering *l, const plan_comm *c, int32_t after, int32_t *action);
// Another action of that communication.
NODISCARD status lower_comm_again(lowering *l, int32_t comm, int32_t after, int32_t *action);
plan_rows lower_rows(const lowering *l, int32_t weight);
// Where pieces end, for an item of a communication.
int64_t lower_pieces_end(const plan_rows *rows, int64_t columns);
// Bytes of a weight or its gradient: of whole pieces where it is cut.
int64_t lower_padded_bytes(const lowering *l, int32_t weight, const plan_tensor *t);
// These rows of a tensor; the tensor itself if they are all.
NODISCARD status lower_part(lowering *l, int32_t whole, plan_rows rows, int32_t *out);
NODISCARD status lower_gradients_reduce(lowering *l, int32_t layer_row);
NODISCARD status lower_sums_wait(lowering *l,
                                 int32_t action); // it waits for all sums of gradients so far
// Gradients of weights that two stages hold: the sum of both, on the rows that this rank updates.
NODISCARD status lower_holders_reduce(lowering *l, const int32_t *final);
// Norms are of some of the weights only, on this rank.
bool lower_norm_is_summed(const lowering *l);
NODISCARD status lower_step_reduce(lowering *l); // the compute action that comes next waits for it
NODISCARD status lower_weight_gather(lowering *l, int32_t weight, int32_t ref, int32_t after);
NODISCARD status lower_forward_waits(lowering *l);
NODISCARD status lower_item_push(lowering *l, plan_comm *c, const plan_comm_item *item);
// Row of the group that whole gradients are summed in; -1: there is one rank.
NODISCARD status lower_sum_group(lowering *l, lower_kind kind, int32_t *group);
// Does each rank get its rows of the weight's sum only?
bool lower_is_scattered(const lowering *l, int32_t weight);
// lower_zero.c
NODISCARD status lower_zero_begin(lowering *l); // before tensors
// The whole tensor of a weight that is cut, given the rank's own.
NODISCARD status lower_whole_weight(lowering *l, int32_t weight, plan_tensor *own, int32_t *whole);
// Of a use whose whole gradient passes: `buffer` is it; this rank's rows are made with the first use.
NODISCARD status lower_passing_add(lowering *l, plan_tensor *whole, int32_t *buffer);
static inline bool lower_passes(const lowering *l, int32_t weight)
{
    return l->rows_of[weight] >= 0;
}
// Around what a layer does in a micro-batch.
NODISCARD status lower_visit_begin(lowering *l);
NODISCARD status lower_visit_end(lowering *l);
// After the micro-batches: takes part in what ranks with more of them still do.
NODISCARD status lower_visits_end(lowering *l);
// Before a layer makes its gradients, and when it has made them: they go where they stay.
NODISCARD status lower_passing_begin(lowering *l, int32_t layer_row);
NODISCARD status lower_passing_sum(lowering *l, int32_t layer_row);
// Those of the step are whole on the ranks that cut; now across, where there are copies.
NODISCARD status lower_across_sum(lowering *l, int32_t weight, int32_t ref, int32_t after);
NODISCARD status lower_passing_end(lowering *l);
// lower_codec.c: which sums travel compressed, if any do.
NODISCARD status lower_codec_begin(lowering *l);
bool lower_is_compressed(const lowering *l, int32_t weight);
// Makes a sum one of them if it is: `weight` is one that it is of; layer: of SUM_WHOLE, its name.
NODISCARD status lower_codec_sum(lowering *l, plan_comm *c, int lane, const char *layer,
                                 int32_t weight);
// What all ranks measured, on all of them: the compute action that comes next waits for it.
NODISCARD status lower_codec_losses(lowering *l);
// lower_shards.c: of shards [first, last).
NODISCARD status shard_tree_make(shard_tree *t, const plan_request *r, int64_t own_begin,
                                 int64_t own_end);
NODISCARD status lower_trees(lowering *l); // the tree over shards; of two directions one of each
const shard_tree *lower_tree(const lowering *l,
                             int32_t layer_row); // that its gradients are summed by
NODISCARD status lower_use_add(lowering *l, int32_t layer_row, tensor_id t);
// lower_tensors.c: fills l->layers[].tensor, l->uses and the layers' bindings.
NODISCARD status lower_tensors(lowering *l);
// Scratch of each node of a program: one tensor each, live at that node only.
NODISCARD status lower_workspaces(lowering *l, const op_program *program, const char *name,
                                  const int32_t *out[OP_LIST_COUNT]);
// lower_panels.c: what a layer's nodes keep of weights, and which actions make it.
NODISCARD status lower_panels(lowering *l, int32_t layer_row, const int32_t *out[OP_LIST_COUNT]);
NODISCARD status lower_panels_end(lowering *l);
NODISCARD status lower_binding(lowering *l, const plan_binding *binding, int32_t *out);
// Finds or adds a run tensor; a batch tensor grows to the largest plan's size.
NODISCARD status lower_run_tensor(plan_table *run, const plan_tensor *want, int32_t *ref);
NODISCARD status lower_room_take(lowering *l);      // for its lists: what the plan before had
NODISCARD status lower_keep(plan *p, plan_use use); // its lists leave the arena that they grew in
plan_tensor lower_tensor_like(const op_tensor *t, const extent_binding *bound);
void lower_name(plan_tensor *t, const char *a, const char *separator, const char *b);

#endif
