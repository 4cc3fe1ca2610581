// Programs as plain data: tensors with symbolic extents, attributes, nodes and their lists
// (op/op.h).
#ifndef OP_OP_PROGRAM_H
#define OP_OP_PROGRAM_H

#include "base/base.h"
#include "op/extent.h"
#include "op/fp8.h"
#include "op/objective.h"
#include "op/op_codes.h"
#include "op/quantized.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { OP_MAX_IN = 8, OP_MAX_OUT = 4, OP_MAX_DIMS = 4, OP_MAX_RULES = 8, OP_NAME_BYTES = 48 };

typedef enum tensor_role {
    ROLE_ACTIVATION,  // made by a node (gradients of activations too)
    ROLE_INPUT,       // the block's activation input, made by the block below
    ROLE_INPUT_GRAD,  // gradient of the block's output, made by the block above
    ROLE_WEIGHT,      // the working copy that products read
    ROLE_WEIGHT_GRAD, // accumulator of a weight's gradient
    ROLE_BATCH,       // ids, labels, positions, documents of the micro-batch
    ROLE_CONSTANT,    // tables made at start: rope
    ROLE_CACHE,       // keys and values of generation; run-lifetime
    ROLE_STATE,       // optimizer state, master weights
    ROLE_STEP         // the step block
} tensor_role;

// An axis of the mesh of ranks, not a dim of a tensor.
typedef enum mesh_axis { AXIS_PP, AXIS_DP, AXIS_CP, AXIS_TP, AXIS_EP, AXIS_COUNT } mesh_axis;

typedef struct op_tensor {
    char name[OP_NAME_BYTES]; // within the block: "gate_up"
    dtype type;
    int ndim;
    extent dims[OP_MAX_DIMS];
    tensor_role role;
    // No gradient reaches it: a weight that is not trained, an input below which nothing is
    // trained, or the result of an operation on such tensors alone.
    bool frozen;
    tensor_id of; // ROLE_WEIGHT_GRAD: its weight. Of a gradient: the tensor it belongs to
    tensor_id
        view_of; // a range of columns of another 2-dim tensor; TENSOR_NONE if it owns its bytes
    int64_t view_begin; // first column of the view
    int64_t view_row;   // its first row: of views of weights (op_view_rows)
    // ROLE_WEIGHT: the dim along which each axis may cut it (-1: not), and its named parts, which
    // lie one after the other along dim 0. The part is the logical tensor everywhere.
    int8_t cut_dim[AXIS_COUNT];
    int part_count;
    struct {
        const char *name; // lives as long as the program's arena
        int64_t rows;
        int64_t heads; // rows are cut between them; 0: anywhere
    } parts[4];
} op_tensor;

typedef enum op_activation {
    ACT_NONE,
    ACT_GELU_TANH,
    ACT_GELU_ERF,
    ACT_SILU,
    ACT_RELU
} op_activation;

// The part of the whole that an operation computes, as the passes cut it (op/pass/). Zeros: all of
// it.
typedef struct op_piece {
    // Rows of the weight: the whole weight has whole_rows (0: w is not a piece), and w begins at
    // first_row.
    int64_t whole_rows, first_row;
    int32_t first_head; // number in the layer of the first head
    // Shards of a sum in a fixed order: their number (0: no order), the first one of this node, and
    // the number of its shards. PACK, UNPACK, ZIGZAG: shard_count tiles.
    int32_t shards, first_shard, shard_count;
    int32_t row_ways,
        row_at; // DROPOUT, ROUTE_BWD, STEP_ROUTES: rows are piece row_at of row_ways of each
                // sequence's; 0: all
    // Communications along AXIS_TP: among `inside` neighbouring ranks, or among ranks at a distance
    // of `across`. 0: all ranks.
    int32_t inside, across;
    // ATTENTION, ATTENTION_BWD, DROPOUT, OBJECTIVE: the rows of a sequence are those of rank cp_at
    // of cp_ways (op/zigzag.h); keys, documents, and what OBJECTIVE reads, are those of all ranks.
    // 0: all rows. `ring`: keys are those of rank key_at. Communications along AXIS_CP: cp_ways > 0
    // means all of its ranks, also where some of them distribute heads.
    int32_t cp_ways, cp_at, key_at;
    int32_t cp_turns; // of the zigzag, of communications and ZIGZAG too; 0: 1
    bool ring;
    // ATTENTION, ATTENTION_BWD: rows of a sequence, in multiples of its rows in other operations;
    // 0: 1
    int32_t seq_ways;
    // Updates, DROPOUT, norms: columns of the whole weight or row (0: not a piece) and the first
    // one of the piece; for each part its rows in the piece, the row of the whole weight where they
    // begin, and its rows in the whole. ALL_GATHER of a weight: the same.
    int64_t whole_columns, first_column;
    int32_t part_count;
    int64_t part_rows[4], part_first[4], part_whole[4];
    // Updates of experts that tp cuts: each `stripe` rows of the whole weight have stripe_own rows
    // in the piece, from row stripe_first of the stripe on. 0: the rows of a part are contiguous.
    int64_t stripe, stripe_own, stripe_first;
} op_piece;

// Columns of one shard of a row of which a tensor has `columns` (piece.first_column,
// piece.whole_columns), counted from the tensor's own first one; without shards all of them.
typedef struct op_columns {
    int64_t begin, end;
} op_columns;
static inline op_columns op_columns_of(const op_piece *piece, int64_t columns)
{
    op_columns c = {0, columns};
    if (piece->shards == 0) return c;
    const int64_t whole = piece->whole_columns, n = piece->shards, shard = piece->first_shard;
    c.begin = whole * shard / n - piece->first_column;
    c.end = whole * (shard + 1) / n - piece->first_column;
    c.begin = c.begin < 0 ? 0 : c.begin < columns ? c.begin : columns;
    c.end = c.end < c.begin ? c.begin : c.end < columns ? c.end : columns;
    return c;
}

// Attributes of an operation. One flat struct for all operations: plain data is easy to print, hash
// and compare.
enum { OP_PAGE = 16 }; // rows of a page of the caches that the program plans
typedef struct op_attrs {
    op_activation activation;
    int32_t heads, kv_heads, head_dim;
    int32_t value_dim;      // ATTENTION, LATENT: columns of a head of values; 0: head_dim
    int32_t experts, top_k; // PERMUTE, GROUPED_MATMUL: that are here; ROUTE: that a token takes
    // COUNT_ROWS, ROW_OFFSETS, GROUPED_MATMUL: ranks that share the experts, of which `pieces`
    // neighbouring ones have pieces of the same sequences (0: 1)
    int32_t ranks, pieces;
    // LIMIT_ROWS: an expert keeps at most `limit` tokens of a sequence of limit_seq
    int64_t limit, limit_seq;
    bool normalize;             // ROUTE: the weights of a token add up to 1
    bool sigmoid;               // ROUTE: scores are sigmoids; false: the softmax
    int32_t groups, top_groups; // ROUTE: a token takes experts of its top_groups best; 0: none
    bool group_pairs;           // ROUTE: a group counts as its best two experts; false: as its best
    int32_t window;             // 0: none; W: a query sees itself and the W - 1 positions before it
    int32_t site;         // dropout: which use (layer * 4 + use); filled with the layer by the plan
    int32_t tensor_index; // GRAD_NORM, ADAMW, MUON: row in the model's weight table
    bool interleaved;     // ROPE: pairs (2i, 2i+1) instead of (i, i + D/2)
    bool inverse;         // ROPE: turn back
    bool decay;           // ADAMW, MUON: weight decay applies
    bool nesterov;
    bool stochastic; // ADAMW, MUON: stochastic rounding of values stored narrower than fp32
    bool match_rms;  // MUON: 0.2 sqrt(max(rows, columns)) instead of sqrt(max(1, rows / columns))
    float eps, scale, plus, dropout, z_loss;
    float aux_loss; // ROUTE_BWD: weight of the loss that balances experts
    bool aux_micro; // over all rows of the call; false: over each sequence
    bool aux_batch; // with the shares of the whole batch of the step before
    // STEP_BEGIN, STEP_ROUTES, ROUTE_BWD, BALANCE: layers that have a row of loads in the step
    // block (op/step.h); 0: there are none. BALANCE: its row, and the most that a bias moves
    int32_t load_layers, load_row;
    float bias_rate;
    int32_t skipped; // EMBEDDING, EMBEDDING_DW: 1 + the id whose row gets no gradient; 0: none
    // ATTENTION, HEAD_LOSS, HEAD_STATS, SOFT_CAP: x becomes cap tanh(x / cap); 0: none. CLAMP: the
    // bound
    float cap;
    float loss_weight; // HEAD_LOSS: factor of its gradients, in call.loss_divisor; 0: 1
    bool sinks;        // ATTENTION_BWD: lse counts a sink
    bool in_tiles;     // ATTENTION: the sums over keys of one query are those of many
    int32_t page;      // CACHE_APPEND, ATTENTION, LATENT_CACHED: rows of a page of the cache
    float beta1, beta2, weight_decay, momentum, lr_scale;
    mesh_axis axis; // of communications
    bool stacked;   // ALL_GATHER
    bool zigzag;    // ALL_GATHER, REDUCE_SCATTER: gathered rows and those of a rank (op/zigzag.h)
    // HEAD_STATS, HEAD_LOSS: both have one workspace, which may keep the logits of the first for
    // the second
    bool kept;
    op_quant quant;               // DEQUANTIZE
    fp8_recipe fp8;               // MATMUL, GROUPED_MATMUL and their gradients: operands in 8 bits
    int32_t fp8_margin;           // with a history: its factors are divided by 2^fp8_margin
    int32_t fp8_steps;            // FP8_HISTORY: a magnitude counts in so many steps
    int32_t repeat;               // PACK, UNPACK: tiles of the same columns; 0: 1
    op_objective_attrs objective; // OBJECTIVE
} op_attrs;
// Returns whether the loss that balances experts is of the shares of whole sequences.
static inline bool op_balances_sequences(const op_attrs *a)
{
    return a->aux_loss > 0.0f && !a->aux_batch;
}

// Returns the divisor of a node's gradients; `divisor`: that of the loss.
static inline double op_loss_divisor(const op_attrs *a, double divisor)
{
    return a->loss_weight > 0.0f ? divisor / (double)a->loss_weight : divisor;
}

typedef enum op_list {
    OP_FORWARD,
    OP_RECOMPUTE,
    OP_BACKWARD_INPUT,
    OP_BACKWARD_WEIGHT,
    OP_LIST_COUNT
} op_list;

typedef struct op_node {
    op_code code;
    tensor_id in[OP_MAX_IN], out[OP_MAX_OUT]; // TENSOR_NONE where missing
    op_attrs attrs;
    op_piece piece;
} op_node;
// Returns a node without operands and with all attributes zero.
op_node op_node_of(op_code code);

typedef enum op_purpose {
    PURPOSE_TRAIN,
    PURPOSE_EVALUATE,
    PURPOSE_PREFILL,
    PURPOSE_DECODE
} op_purpose;

enum { OP_MAX_BOUNDARY = 4 };
typedef struct op_program {
    arena *a; // keeps: tensors and nodes live in it
    op_purpose purpose;
    bool as_training; // generation: each value is rounded where training rounds it
    fp8_recipe fp8;   // of the products that op_matmul() and op_grouped_matmul() append
    int32_t fp8_margin;
    dtype compute; // type of activations and working weights
    dtype grad;    // type of weight-gradient accumulators
    op_tensor *tensors;
    int64_t tensor_count, tensor_capacity;
    struct {
        op_node *nodes;
        int64_t count, capacity;
    } lists[OP_LIST_COUNT];
    // The tensors that cross the block's boundary: activations in and out, and their gradients.
    int input_count, output_count;
    tensor_id inputs[OP_MAX_BOUNDARY], outputs[OP_MAX_BOUNDARY];
    tensor_id d_inputs[OP_MAX_BOUNDARY], d_outputs[OP_MAX_BOUNDARY];
    tensor_id step;     // the step block, made on first use
    tensor_id *grad_of; // [tensor] gradient so far while differentiating; TENSOR_NONE if none
    int64_t grad_of_capacity;
    // Gradients of views during differentiation: columns of the gradient of the whole tensor.
    struct op_grad_piece {
        tensor_id whole, grad_whole, grad_view;
        int64_t begin, count; // columns
    } * grad_pieces;
    int64_t grad_piece_count, grad_piece_capacity;
} op_program;
// The tensor that says how many rows t has; TENSOR_NONE: t has all of them, or is none.
static inline tensor_id op_count_of(const op_program *p, tensor_id t)
{
    return t != TENSOR_NONE && p->tensors[t].dims[0].bounded ? p->tensors[t].dims[0].count
                                                             : TENSOR_NONE;
}

#ifdef __cplusplus
}
#endif
#endif
