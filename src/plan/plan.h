// The plan: one training step (or evaluation, or token) as data.
//
// From a model's programs, a batch and a layout, pure functions make the list of actions of a rank
// in one step and the table of tensors with their bytes and offsets. Executor, verifier, simulator,
// memory table and pictures all read this record; there is no other description of a step.
//
//   plan_table   tensors that live through the run, shared by all plans of a process (weights,
//                states, batch ...)
//   plan         actions, bindings, and tensors that live from action to action (activations ...)
//
//   arena:  | run tensors | transient tensors of whichever plan runs            |
//           0             run_bytes                          run_bytes + max over plans
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include "base/text.h"
#include "op/collective.h"
#include "op/model.h"
#include "op/step.h"
#include "plan/lower/scratch.h"
#include "plan/mesh.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PLAN_NAME_BYTES = 96, PLAN_MAX_SHARDS = 64, PLAN_MAX_CP_SHARDS = 64 };
#define PLAN_FEEDBACK "feedback." // prefix of the run tensors of compression

// Kinds of bytes in the memory table and in `simulate`.
typedef enum plan_kind_of_bytes {
    PLAN_BYTES_WEIGHTS,
    PLAN_BYTES_GRADIENTS,
    PLAN_BYTES_MASTER,
    PLAN_BYTES_MOMENTS,
    PLAN_BYTES_ACTIVATIONS,
    PLAN_BYTES_BUFFERS, // batch, constants, workspaces, scratch, caches, the step block
    PLAN_BYTES_COUNT
} plan_kind_of_bytes;
const char *plan_bytes_name(plan_kind_of_bytes kind);

// The rows of a weight that one rank updates and whose optimizer state it holds (ZeRO); in stage 2
// also the rows of its gradient, in stage 3 those of the weight itself. The ranks of a group that
// cuts have `piece` rows each, up to the weight's end: one rank may have fewer, later ranks none.
typedef struct plan_rows {
    int64_t first, count, piece;
    // Pieces are equal on all ranks and the last one is padded, so a whole tensor has `padded` rows
    // and a piece of it `kept`. With `ends` there is no padding, and operations get the ends of
    // pieces: if whole ranks had none, the padding could be as large as the weight.
    int64_t kept, padded;
    bool ends;
    bool cut; // false: every rank updates all of it
} plan_rows;
// Finds the rows of this rank. `whole`: the optimizer needs the matrix in one piece.
plan_rows plan_rows_of(const plan_mesh *mesh, int32_t zero, const op_weight *w, bool whole);
// Whether it is a weight of experts that are distributed over ranks.
static inline bool plan_is_shared_out(const plan_mesh *m, const op_weight *w)
{
    return w->is_expert && plan_experts_apart(m);
}
// The number of ranks that cut the weight, and the number of this rank among them. A weight of
// experts is cut over the ranks with the same experts.
static inline int32_t plan_weight_size(const plan_mesh *m, const op_weight *w)
{
    return plan_is_shared_out(m, w) ? plan_expert_size(m) : plan_zero_size(m);
}
static inline int32_t plan_weight_place(const plan_mesh *m, const op_weight *w)
{
    return plan_is_shared_out(m, w) ? plan_expert_place(m) : plan_zero_place(m);
}

typedef struct plan_tensor {
    char name[PLAN_NAME_BYTES]; // "layers.3.attn.qkv", "m.layers.3.attn.qkv", "layers.3/gate_up"
    dtype type;
    int ndim;
    int64_t dims[OP_MAX_DIMS];
    plan_kind_of_bytes kind;
    tensor_role role;
    bool is_run;    // live through the run; else from action to action
    int32_t weight; // row of the model's weights it belongs to; -1
    int64_t bytes;  // multiple of 64
    int64_t offset; // in the arena; of a transient tensor: behind run_bytes
    // Cut over dp and cp: it holds rows [r p, r p + dims[0]) of a larger one, of which the rank
    // with number r (plan_zero_place) holds piece r of p rows. 0: it is whole.
    int64_t piece_rows;
    // For a tensor that is no piece of a weight, the number of such tensors: one for each rank of
    // these stages of the pipeline, ascending; -1: there is no second. Ranks of other stages have
    // no bytes of it.
    int32_t pieces, stages[PLAN_MAX_HOLDERS];
    // Transient rows only: a gathered weight (ZeRO-3) or an unsharded gradient (ZeRO-2, ZeRO-3), of
    // which the rank keeps only its rows. It has bytes only around its layer.
    bool is_unsharded;
    // Transient rows only: a weight in the order in which GEMMs read it (lower/bind_packed.c).
    bool is_packed;
    bool is_part;  // transient rows only: bytes of another tensor, `offset` from its beginning
    int32_t whole; // a reference, as in bindings
} plan_tensor;

typedef struct plan_table {
    arena *a;
    plan_tensor *tensors;
    int64_t count, capacity;
    int32_t *by_name; // [by_name_slots] row + 1, at the hash of its name or behind it; 0: none
    int64_t by_name_slots;
    int64_t run_bytes;  // after plan_table_place
    plan_group *groups; // plan_comm.group is a row of it; each group has this rank
    int64_t group_count, group_capacity;
} plan_table;

typedef enum action_kind {
    ACTION_COMPUTE,
    ACTION_COMMUNICATE,
    ACTION_COPY,      // host to device: the step's host part and its batch
    ACTION_OPTIMIZER, // nodes of an optimizer's program, or of the plan's own step program
    ACTION_READBACK,  // device to host: the step's results
    ACTION_KIND_COUNT
} action_kind;

// Behind these there is one stream for each group of the table, except for those on the compute
// stream.
enum { STREAM_COMPUTE, STREAM_COPY, STREAM_GROUPS };

// An operation among the ranks of a group.
typedef struct plan_comm_item {
    int32_t in, out;               // references, as in bindings; -1: it has none (SEND, RECEIVE)
    int64_t in_offset, out_offset; // bytes from the tensor's beginning
    int64_t count;                 // elements, of a rank's piece if there are pieces
    int64_t total; // elements of all pieces (plan_rows.ends); 0: the pieces are equal
} plan_comm_item;

// A term of a sum: the node over shards [begin, end) of the fixed tree.
typedef struct plan_comm_leaf {
    int32_t begin, end;
} plan_comm_leaf;

typedef struct plan_comm {
    op_collective op;
    op_reduction reduction;
    int32_t group; // row of run->groups
    int32_t peer;  // SEND, RECEIVE, BROADCAST (the root): its place in the group
    dtype type;
    // Into plan.items: tensor after tensor, the leaves of each consecutive, the first with the
    // result.
    int32_t items_begin, items_count;
    int32_t leaves_begin, leaves_count; // into plan.leaves; 0: any order
    int32_t shards;                     // of the tree whose nodes the leaves are
    const char *name;                   // for messages; equal on all ranks
    bool more;                          // it covers some rows of its tensors, and others follow
    // ALL_TO_ALLV: items 1 and 2 are the offsets (i32) of rows that go and that come, `stride` of
    // them for each rank; a row has row_elements. The count and the total of item 0 are the most
    // elements that go and come; `likely` of them go.
    int32_t stride;
    int64_t row_elements, likely;
    // A compressed sum: its row of plan.buckets and its tensors. The items, in place, are a vector
    // of `total` floats; a reduce_scatter gives each rank `piece` of them.
    bool compressed;
    int32_t bucket;
    int64_t total, piece;
    // sent to each other rank, and once more if all ranks get the sum
    int64_t stream_bytes;
    int32_t feedback, work; // references; feedback -1: the codec keeps no residual
} plan_comm;

// A compressed sum of any stage: all ranks have the same list. Each stage has the same number of
// rows; if it has fewer sums, its last rows are empty (no name).
typedef struct plan_bucket {
    char name[PLAN_NAME_BYTES];
    int64_t count; // floats, on the rank with most
} plan_bucket;

// An action of one rank in one step. Plain data, which other modules print, verify, price, simulate
// and execute.
typedef struct plan_action {
    action_kind kind;
    int32_t stream;
    int32_t microbatch;           // -1 where it has none
    int32_t layer;                // row in the model's layers; -1: none
    int32_t binding;              // into the plan's bindings: its program and tensors
    int32_t list;                 // op_list
    int32_t ops_begin, ops_count; // into that list of the binding's program
    // Rows of the micro-batch that the action covers; 0 except for weight gradients in strict
    // order.
    int32_t sequence_begin, sequence_count;
    // This rank's rows of that sequence from position_begin on (then it is one sequence); count 0:
    // all of them.
    int32_t position_begin, position_count;
    // Operations that find their rows themselves (op_kind.finds_rows): those of the tokens of one
    // rank, 1 + its number among those that share experts; 0: of all.
    int32_t rows_of;
    bool accumulate; // accumulators continue; false: they start from +0
    // it packs the weights of its nodes (plan_binding.packed); else earlier actions of the step
    // have
    bool fills;
    // Into plan.waits: actions on other streams that must be done; w >= 0: action w of this step,
    // w < 0: action -1 - w of the step before.
    int32_t waits_begin, waits_count;
    int32_t comm; // ACTION_COMMUNICATE: its record in plan.comms
} plan_action;

// Maps the tensors of a program to those of the plan. Ids >= 0 are rows of plan.tensors, ids < -1
// are run tensors (plan_run_ref). Batch tensors are offset by the micro-batch when used.
typedef struct plan_binding {
    const op_program *program;
    int32_t layer;                           // -1 for optimizer and step programs
    const int32_t *tensor;                   // [tensor of the program]
    const int32_t *workspace[OP_LIST_COUNT]; // [node] plan tensor, or -1
    const int32_t *packed[OP_LIST_COUNT];    // the same; NULL: no node has any
    // [node] It and the next one are one launch in an action with both (lower/fuse.c). NULL: none.
    const bool *fused[OP_LIST_COUNT];
    int64_t first_row; // index of row 0 in the whole weight, if the binding is of a piece
} plan_binding;
static inline int32_t plan_run_ref(int64_t row)
{
    return (int32_t)(-2 - row);
}
static inline bool plan_ref_is_run(int32_t ref)
{
    return ref < -1;
}
static inline int64_t plan_ref_row(int32_t ref)
{
    return ref < -1 ? (int64_t)(-2 - ref) : (int64_t)ref;
}

// Returns the bytes of workspace that a backend needs for a node. Pure.
typedef int64_t (*plan_workspace_fn)(void *context, const op_program *program, const op_node *node,
                                     const extent_binding *bound, int64_t seq, int64_t cache_seq);

// The same for the packed weight of a node, which later calls on the weight reuse.
typedef int64_t (*plan_packed_bytes_fn)(void *context, const op_program *program,
                                        const op_node *node, const extent_binding *bound);

// The codec of compressed gradients, without its code. Its functions return bytes for a sum of
// `count` floats over `ranks`, of which each gets `piece` (0: all of it): of the residual, of the
// workspace, and of the stream that a rank sends to each other rank.
typedef int64_t (*plan_codec_bytes_fn)(void *context, int64_t count, int32_t ranks, int64_t piece);
typedef struct plan_codec {
    const char *name;
    int32_t reals; // measurements of a rank per sum
    plan_codec_bytes_fn feedback_bytes, work_bytes, stream_bytes;
    void *context;
} plan_codec;
// How ranks of tp hold a weight: each has a piece, each has all of it, or each has pieces of some
// parts and copies of others. Each compressed sort has a separate sum; SORT_PLAIN is not
// compressed.
typedef enum plan_sort { SORT_CUT, SORT_WHOLE, SORT_PLAIN, SORT_COUNT } plan_sort;
plan_sort plan_sort_of(const op_weight *w);

// Whether the backend runs two consecutive nodes as one launch, element by element of the first's
// result. Pure.
struct plan;
typedef bool (*plan_fuses_fn)(void *context, const struct plan *p, const op_program *program,
                              const op_node *first, const op_node *second,
                              const extent_binding *bound);

typedef struct plan_request {
    const op_model *model;
    int64_t sequences;   // in the step: the global batch
    int64_t micro_batch; // divides this rank's sequences
    // seq: on all ranks along AXIS_CP, which divide it unless the model generates.
    int64_t seq, cache_seq;
    plan_mesh mesh;
    plan_pipeline_request pipeline;
    int32_t zero; // ZeRO stage: cuts the optimizer's state; from 2 on gradients; 3: weights
    // Micro-batches of the dp ranks with the fewest and the most; 0: all have as many as this one.
    int64_t fewest_microbatches, most_microbatches;
    bool sums_once; // gradients stay unsharded until the last micro-batch, with zero = 3 too
    bool strict;
    int32_t shards;     // determinism.shards
    int32_t cp_shards;  // determinism.cp_shards; 0 is read as 1
    int32_t tp_shards;  // determinism.tp_shards: terms of sums inside a matrix; 0 is read as 1
    int32_t etp_shards; // determinism.etp_shards: the same of experts
    bool in_pairs; // strict: sums go by pairs in spite of a cache that grows by any number of rows
    bool poison;   // debug: fill dead bytes with NaN patterns
    // For training: one program of the optimizer per weight. NULL otherwise.
    op_program *const *optimizer; // on this rank's rows (plan_rows_of)
    const bool *whole_units;      // [weight] its optimizer needs the matrix in one piece
    // ROLE_STATE tensors of these programs are named "m", "v", "master": run tensor "m.<weight>".
    const plan_codec *codec; // compresses gradients between ranks; NULL: none
    bool keep_gradients;     // finished gradients stay readable after the step (check)
    // Gathers and scatters of layout.sp are between GEMMs on the compute stream, as in other
    // software.
    bool rows_inline;
    plan_last last; // the last pass that the caller needs
    int64_t
        enough_bytes; // the search for a smaller arena stops at this size; 0: it never stops early
    int64_t scratch_bytes; // for the threads; a row of the table
    plan_workspace_fn workspace;
    plan_packed_bytes_fn
        packed_bytes;    // training: weights are packed once a step; NULL: once a GEMM
    plan_fuses_fn fuses; // NULL: each node is a launch of its own
    void *workspace_context;
    plan_scratch *scratch; // NULL: its own
} plan_request;

// Bits for the gathered weights (ZeRO-3) and unsharded gradients (ZeRO-2, ZeRO-3) of layers.
enum { PLAN_UNSHARDED_WEIGHTS = 1, PLAN_UNSHARDED_GRADIENTS = 2, PLAN_UNSHARDED_COUNT = 4 };

typedef struct plan {
    op_purpose purpose;
    const op_model *model;
    plan_table *run;
    arena *a;             // holds its lists while they grow; then the arena of `run`
    plan_tensor *tensors; // transient
    int64_t tensor_count, tensor_capacity;
    plan_action *actions;
    int64_t action_count, action_capacity;
    plan_binding *bindings;
    int64_t binding_count, binding_capacity;
    int32_t *waits;
    int64_t wait_count;
    plan_comm *comms;
    int64_t comm_count, comm_capacity;
    plan_comm_item *items;
    int64_t item_count, item_capacity;
    plan_comm_leaf *leaves;
    int64_t leaf_count, leaf_capacity;
    // Outputs of the model's last layer for the first micro-batch, rows of tensors; -1: on another
    // rank. With one micro-batch they stay valid until the next step.
    int32_t outputs[OP_MAX_BOUNDARY];
    const char *codec; // compresses gradients between ranks; NULL: none
    plan_bucket *buckets;
    int32_t bucket_count;
    int32_t losses; // run tensor with their measurements, `codec_reals` each; -1: none
    int32_t codec_reals;
    int32_t shards;
    int32_t cp_shards;                     // strict: shards of a sequence
    int64_t sequences;                     // in the step, on all ranks
    int64_t first_sequence, own_sequences; // this rank's
    int64_t micro_batch, seq, cache_seq;   // seq: rows of a sequence on this rank
    int64_t whole_seq;                     // rows on all ranks along AXIS_CP
    int64_t seq_cut;                       // positions of a sequence on a rank if AXIS_TP cuts them
    int64_t cut_pieces;  // pieces of a sequence that are each cut (op/zigzag.h: cut_position)
    double loss_divisor; // sequences * seq
    int32_t step_ref;    // the step block
    bool strict, poison, in_pairs;
    int64_t transient_bytes,
        // of the arena; micro-batches left out by loop compression (predict/repeat.h)
        repeated;
    int64_t live_bytes;                     // the largest sum of live transient bytes at any node
    int64_t live_by_kind[PLAN_BYTES_COUNT]; // at that node
    int64_t unsharded_by_kind[PLAN_BYTES_COUNT]; // of those: plan_tensor.is_unsharded
    int64_t live_without[PLAN_UNSHARDED_COUNT];  // live_bytes without these
} plan;

// Returns this rank's sequences of a step. In strict order they are whole shards.
void plan_own_sequences(const plan_mesh *mesh, bool strict, int32_t shards, int64_t sequences,
                        int64_t *first, int64_t *count);
// Returns the words of a step's loads of experts behind its step block, and the bytes of the block
// that the host reads: the device part and those loads.
int64_t plan_load_words(const plan *p);
int64_t plan_readback_bytes(const plan *p);
// Returns the values of extents for `sequences` sequences of a plan; positions > 0: for that number
// of rows instead of all.
extent_binding plan_bound(const plan *p, int64_t sequences, int64_t positions);
// Makes a plan; adds the run tensors that it needs to `run` (shared by several plans).
NODISCARD status plan_create(arena *a, const plan_request *request, plan_table *run, plan **out);
// Makes a plan from the actions of micro-batch `b` of a plan without a backward pass; both share
// bindings and tensors.
NODISCARD status plan_microbatch(arena *a, const plan *all, int64_t b, plan **out);
// Gives the run tensors their offsets; after the last plan_create on this table.
void plan_table_place(plan_table *run);
// Finds or adds a group.
NODISCARD status plan_table_group(plan_table *run, const plan_group *group, int32_t *row);
// Adds a run tensor of a new name, at row run->count.
NODISCARD status plan_table_push(plan_table *run, const plan_tensor *tensor);
// Row of a run tensor by name; -1: none.
int64_t plan_table_find(const plan_table *run, const char *name);
// Return the tensor of a reference of a binding, and its offset in the arena.
const plan_tensor *plan_tensor_at(const plan *p, int32_t ref);
int64_t plan_tensor_offset(const plan *p, int32_t ref);
// Returns the bytes of its elements, without the padding to a multiple of 64.
int64_t plan_tensor_held_bytes(const plan_tensor *t);
// Returns the size of the arena that all these plans need.
int64_t plan_arena_bytes(const plan_table *run, const plan *const *plans, int64_t count);

// Returns bytes by kind at the fullest moment of a plan; the sum is run_bytes + live_bytes.
void plan_memory_by_kind(const plan *p, int64_t bytes[PLAN_BYTES_COUNT]);
// Limits of other software on unsharded tensors, in elements; 0: as many as the plan has. It holds
// gathered weights up to the limit, or the largest one; and one gradient in addition to a bucket
// of that size (unsharded_limit.c).
typedef struct plan_unsharded_limits {
    int64_t weights, gradients;
} plan_unsharded_limits;
// Returns in `spared`, by kind, a lower bound on the unsharded bytes at the fullest moment of the
// plan that such software does not hold. Pure.
void plan_memory_spared(const plan *p, const plan_unsharded_limits *limits,
                        int64_t spared[PLAN_BYTES_COUNT]);
// The same without a plan, for weights (0) and gradients (1). The first returns the bytes held at
// most, given the bytes of the largest tensor. The second returns which of the unsharded bytes at
// the fullest moment are not held. without: as in plan.live_without.
int64_t plan_unsharded_most(const plan_unsharded_limits *limits, int which, int64_t largest,
                            dtype type);
void plan_unsharded_spare(const int64_t without[PLAN_UNSHARDED_COUNT], const int64_t unsharded[2],
                          const int64_t most[2], int64_t spared[2]);
// Prints the memory by kind, and the largest tensors. snapshot_bytes, copies_bytes: of the state,
// while it is saved, and in the memory of ranks; 0: none. outside_bytes: predicted for a GPU's
// context, code and libraries, which lie outside the plan; 0: none.
NODISCARD status plan_print_memory(const plan *p, int64_t arena_bytes, int64_t snapshot_bytes,
                                   int64_t copies_bytes, int64_t outside_bytes, text *out);
// Prints plan.json: tensors with offsets, actions of the first micro-batches, totals.
NODISCARD status plan_print_json(const plan *p, text *out);

#ifdef __cplusplus
}
#endif
#endif
