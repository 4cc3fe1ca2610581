// What each operation is, without running it: operands, shapes, placement, cost, gradient.
//
// Everything is plain data. A *program* is what one block of a model (or an optimizer, for one
// weight) writes: a table of tensors and four lists of nodes,
//
//   forward          appended by the block
//   backward input   appended by the gradient rules: what the layer below waits for
//   backward weight  appended by the gradient rules: products that add to weight gradients
//   recompute        forward nodes emitted again before the backward lists (op/pass/recompute.c)
//
// Extents that differ from plan to plan are symbols (tokens of a micro-batch, cached positions);
// they are bound when a plan is made. Kernels meet the same codes in kernels/kernels.h.
//
// To add an operation: a code in OP_TABLE (op/op_codes.h), a row in a file here, then kernels/{ref,cpu}. The
// contract test op_table_test.c and kernels/backend_test.c run over every row by themselves.
#ifndef OP_OP_H
#define OP_OP_H

#include "base/base.h"
#include "op/op_codes.h"

#ifdef __cplusplus
extern "C" {
#endif

// Logits that a head has in memory at once; what has fewer rows makes them once (attrs.kept).
enum { OP_HEAD_CHUNK_BYTES = 128 << 20, OP_HEAD_ROW_STEP = 64 };
// Rows of `vocab` logits in a chunk: at least two.
static inline int64_t op_head_chunk_rows(int64_t vocab)
{
    const int64_t stride = (vocab + 15) / 16 * 16;
    int64_t rows = OP_HEAD_CHUNK_BYTES / (stride * 4);
    // Even: sums over rows go by pairs.
    rows -= rows % (rows > OP_HEAD_ROW_STEP ? OP_HEAD_ROW_STEP : 2);
    return rows > 2 ? rows : 2;
}

enum { OP_MAX_IN = 8, OP_MAX_OUT = 4, OP_MAX_DIMS = 4, OP_MAX_RULES = 8, OP_NAME_BYTES = 48 };

typedef int32_t tensor_id; // a row of the program's tensor table
#define TENSOR_NONE ((tensor_id)-1)

// An extent: scale times what the symbol is bound to.
typedef enum extent_symbol {
    EXTENT_ONE,        // a constant
    EXTENT_TOKENS,     // rows of the micro-batch: sequences * seq
    EXTENT_SEQS,       // sequences of the micro-batch
    EXTENT_CACHE,      // sequences * the longest cached sequence
    EXTENT_TOKENS_CUT, // rows of which each rank of AXIS_TP has its positions of every sequence
    EXTENT_SYMBOL_COUNT
} extent_symbol;
typedef struct extent {
    int64_t scale;
    extent_symbol symbol;
} extent;
static inline extent extent_of(int64_t count)
{
    extent e;
    e.scale = count;
    e.symbol = EXTENT_ONE;
    return e;
}
static inline extent extent_tokens(int64_t per_token)
{
    extent e;
    e.scale = per_token;
    e.symbol = EXTENT_TOKENS;
    return e;
}
typedef struct extent_binding {
    int64_t value[EXTENT_SYMBOL_COUNT]; // [EXTENT_ONE] = 1
} extent_binding;

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

// A mesh axis and a tensor's dim are different things (design.md, words).
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
    // ROLE_WEIGHT: the dim along which each axis may cut it (-1: not), and its named parts, which lie
    // one after the other along dim 0. The part is the logical tensor everywhere.
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

// One flat struct for all operations: plain data is easy to print, hash and compare.
typedef struct op_attrs {
    op_activation activation;
    int32_t heads, kv_heads, head_dim;
    int32_t value_dim;      // ATTENTION, LATENT: columns of a head of values; 0: head_dim
    int32_t experts, top_k; // EXPERTS: that are here; ROUTE: that a token takes
    int32_t window;         // 0: none; W: a query sees itself and the W - 1 positions before it
    int32_t site;         // dropout: which use (layer * 4 + use); filled with the layer by the plan
    int32_t tensor_index; // GRAD_NORM, ADAMW, MUON: row in the model's weight table
    bool interleaved;     // ROPE: pairs (2i, 2i+1) instead of (i, i + D/2)
    bool inverse;         // ROPE: turn back
    bool decay;           // ADAMW, MUON: weight decay applies
    bool nesterov;
    bool stochastic; // ADAMW, MUON: stochastic rounding of what is stored narrower than fp32
    bool match_rms;  // MUON: 0.2 sqrt(max(rows, columns)) instead of sqrt(max(1, rows / columns))
    float eps, scale, plus, dropout, z_loss;
    float beta1, beta2, weight_decay, momentum, lr_scale;
    // Of pieces (op/pass/partition.h). Rows of the weight: w has whole_rows all in all (0: it is no piece), and
    // its own begin at first_row. Heads: the first one's number in the layer. Shards of a sum: how many
    // there are (0: no order), which is the first here, and how many are.
    int64_t whole_rows, first_row;
    int32_t first_head;
    int32_t shards, first_shard, shard_count;
    int32_t row_ways,
        row_at;     // DROPOUT: rows are piece row_at of row_ways of each sequence's; 0: all
    mesh_axis axis; // of communications
    // Of communications along AXIS_TP: among so many ranks side by side; among those that lie so far apart. 0: all.
    int32_t inside, across;
    bool stacked; // ALL_GATHER
    bool
        kept; // HEAD_STATS, HEAD_LOSS: both have one workspace, where the logits of the first may stay
    bool zigzag; // ALL_GATHER, REDUCE_SCATTER: gathered rows and those of a rank (op/zigzag.h)
    // ATTENTION, ATTENTION_BWD, DROPOUT: the rows of a sequence are those of rank cp_at of cp_ways
    // (op/zigzag.h); keys and documents are all there are. 0: all rows. `ring`: keys are those of rank key_at.
    int32_t cp_ways, cp_at, key_at;
    int32_t cp_turns; // of the zigzag, of communications and ZIP too; 0: 1
    bool ring;
    int32_t
        seq_ways; // ATTENTION, ATTENTION_BWD: rows of a sequence, in those that it has elsewhere; 0: 1
    int32_t repeat; // STACK, UNSTACK: tiles of the same columns; 0: 1
    // ADAMW, of a piece with stochastic rounding: columns of the whole weight (0: it is no piece), the first
    // one here, and with the parts below the row of the whole weight that each of them begins with.
    int64_t whole_columns, first_column, part_first[4];
    int32_t part_count; // MUON: parts along dim 0 that are orthogonalised apart
    int64_t part_rows[4];
    int64_t part_whole[4]; // MUON_UPDATE, ALL_GATHER of a weight: rows that they have as a whole
} op_attrs;

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
} op_node;
// A node without operands and with all attributes zero.
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
    dtype compute; // type of activations and working weights
    dtype grad;    // type of weight-gradient accumulators
    op_tensor *tensors;
    int64_t tensor_count, tensor_capacity;
    struct {
        op_node *nodes;
        int64_t count, capacity;
    } lists[OP_LIST_COUNT];
    // What crosses the block's border: activations in and out, and their gradients.
    int input_count, output_count;
    tensor_id inputs[OP_MAX_BOUNDARY], outputs[OP_MAX_BOUNDARY];
    tensor_id d_inputs[OP_MAX_BOUNDARY], d_outputs[OP_MAX_BOUNDARY];
    tensor_id step;     // the step block, made on first use
    tensor_id *grad_of; // [tensor] gradient so far while differentiating; TENSOR_NONE if none
    int64_t grad_of_capacity;
    // Gradients of views, while differentiating: columns of the gradient of their whole.
    struct op_grad_piece {
        tensor_id whole, grad_whole, grad_view;
        int64_t begin, count; // columns
    } * grad_pieces;
    int64_t grad_piece_count, grad_piece_capacity;
} op_program;

// How one tensor lies along one mesh axis. PARTIAL: every rank holds a term of the sum.
typedef enum place_kind { PLACE_REPLICATE, PLACE_SHARD, PLACE_PARTIAL, PLACE_ANY } place_kind;
typedef struct placement {
    place_kind kind;
    int8_t dim; // of PLACE_SHARD
} placement;
// One way in which an operation can be cut along an axis: these inputs give these outputs. The first
// rule of every row is all-replicate.
typedef struct op_rule {
    placement in[OP_MAX_IN], out[OP_MAX_OUT];
} op_rule;

typedef struct op_cost {
    double flops, bytes_read, bytes_written;
} op_cost;

// One row per operation. Everything that anyone needs to know of it without running it.
typedef struct op_kind {
    op_code code;
    const char *name;
    int in_min, in_max, out_min, out_max;
    uint32_t optional_in, optional_out; // bit i: operand i may be missing
    uint32_t accumulates;               // bit o: output o is "+="
    bool is_product; // kept by recompute `selective` (matrix products, attention)
    bool random;     // reads the seed
    // Output o may take the bytes of input inplace[o] where that input dies here; -1: never.
    int8_t inplace[OP_MAX_OUT];
    // Checks the inputs and the outputs given, and creates the outputs that are TENSOR_NONE and either
    // required or wanted (bit o of `wanted`: only optional outputs need it).
    status (*infer)(op_program *p, op_node *node, uint32_t wanted);
    // Its rules, as data; *count <= OP_MAX_RULES. Ops without rows of tokens have the first only.
    // Shard 0 of tokens is by whole sequences where an operation looks at more than one row. Shard 1
    // of a tensor with parts (q, k and v; gate and up) cuts every part by itself. What a rule says of
    // a missing operand means nothing.
    void (*place)(const op_program *p, const op_node *node, op_rule *rules, int *count);
    // The attributes of piece `at` of `ways` when cut by rule `rule`; p has the whole's shapes.
    void (*cut)(const op_program *p, const op_node *node, int rule, int ways, int at,
                op_attrs *attrs);
    op_cost (*cost)(const op_program *p, const op_node *node, const extent_binding *bound);
    // Appends the operations of its gradients, using op_grad_* below. NULL: not differentiable.
    status (*gradient)(op_program *p, const op_node *node);
} op_kind;

const op_kind *op_kind_of(op_code code); // never NULL for a valid code

// ---- writing programs ---------------------------------------------------------------------------
NODISCARD status op_program_create(arena *a, op_purpose purpose, dtype compute, dtype grad,
                                   op_program **out);
NODISCARD status op_tensor_add(op_program *p, const op_tensor *tensor, tensor_id *out);
// A named tensor with up to two extents (ndim 1 or 2).
NODISCARD status op_tensor_make(op_program *p, const char *name, tensor_role role, dtype type,
                                int ndim, extent rows, extent columns, tensor_id *out);
NODISCARD status op_view(op_program *p, tensor_id of, const char *name, int64_t column_begin,
                         int64_t column_count, tensor_id *out);
// Some rows of a weight, or of its gradient.
NODISCARD status op_view_rows(op_program *p, tensor_id of, const char *name, int64_t row_begin,
                              int64_t row_count, tensor_id *out);
NODISCARD status op_input(op_program *p, const char *name, extent rows, extent columns,
                          tensor_id *out);              // boundary activation, compute type
NODISCARD status op_output(op_program *p, tensor_id t); // declares it a boundary output
// Appends to a list: `node->out` may name tensors (in-place on state) or be TENSOR_NONE to be made.
NODISCARD status op_append(op_program *p, op_list list, op_node *node, uint32_t wanted);

// Forward operations in the words of a block. Optional operands: TENSOR_NONE.
NODISCARD status op_embedding(op_program *p, tensor_id ids, tensor_id table, tensor_id positions,
                              tensor_id position_table, tensor_id *x);
NODISCARD status op_matmul(op_program *p, tensor_id x, tensor_id w, tensor_id bias,
                           op_activation activation, tensor_id *y);
NODISCARD status op_add(op_program *p, tensor_id a, tensor_id b, tensor_id *y);
// delta TENSOR_NONE: *h (may be NULL then) is x itself.
NODISCARD status op_rmsnorm(op_program *p, tensor_id x, tensor_id w, tensor_id delta, float eps,
                            float plus, tensor_id *y, tensor_id *h);
NODISCARD status op_layernorm(op_program *p, tensor_id x, tensor_id w, tensor_id b, tensor_id delta,
                              float eps, tensor_id *y, tensor_id *h);
NODISCARD status op_rope(op_program *p, tensor_id x, tensor_id positions, tensor_id table,
                         int32_t heads, int32_t head_dim, bool interleaved, tensor_id *y);
NODISCARD status op_attention(op_program *p, tensor_id q, tensor_id k, tensor_id v,
                              tensor_id documents, tensor_id lengths, const op_attrs *attrs,
                              tensor_id *y);
NODISCARD status op_cache_append(op_program *p, tensor_id x, tensor_id lengths, tensor_id cache);
// q and k turned, and put together with v: see LATENT in op_codes.h.
NODISCARD status op_latent(op_program *p, const tensor_id in[5], int32_t heads, int32_t head_dim,
                           int32_t value_dim, tensor_id out[3]);
NODISCARD status op_route(op_program *p, tensor_id logits, int32_t top_k, tensor_id *gates);
NODISCARD status op_dispatch(op_program *p, tensor_id x, tensor_id gates, tensor_id *rows,
                             tensor_id *gate);
NODISCARD status op_experts(op_program *p, tensor_id x, tensor_id w, int32_t experts, tensor_id *y);
NODISCARD status op_weigh(op_program *p, tensor_id x, tensor_id gate, tensor_id *y);
NODISCARD status op_combine(op_program *p, tensor_id rows, tensor_id gates, tensor_id *y);
NODISCARD status op_swiglu(op_program *p, tensor_id h, tensor_id *a);
NODISCARD status op_activate(op_program *p, tensor_id x, op_activation activation, tensor_id *y);
NODISCARD status op_dropout(op_program *p, tensor_id x, float probability, int32_t site,
                            tensor_id *y);
// Train: loss and both gradients in one node of the backward-weight list, which of a program with
// this operation runs before its backward-input list. Evaluate: token losses only, in the forward
// list. The losses reach the step block through op_step_loss.
NODISCARD status op_head_loss(op_program *p, tensor_id x, tensor_id w, tensor_id labels,
                              float z_loss, tensor_id *token_loss);
// Adds token losses to the step block; in the list where op_head_loss puts its node.
NODISCARD status op_step_loss(op_program *p, tensor_id token_loss, tensor_id labels);
NODISCARD status op_gather(op_program *p, tensor_id x, tensor_id rows, tensor_id *y);
NODISCARD status op_sample_ids(op_program *p, tensor_id logits, tensor_id params, tensor_id draws,
                               tensor_id *ids);
// A tensor of that type with x's values (nearest even).
NODISCARD status op_cast(op_program *p, tensor_id x, dtype type, tensor_id *y);

// ---- gradients ----------------------------------------------------------------------------------
// Walks the forward list backwards and appends to both backward lists. Boundary outputs get
// ROLE_INPUT_GRAD tensors in d_outputs, boundary inputs their gradients in d_inputs.
NODISCARD status op_program_differentiate(op_program *p);
// For gradient rules. The gradient of an output so far: TENSOR_NONE if nothing depends on it.
tensor_id op_grad_get(const op_program *p, tensor_id t);
// Takes the gradient so far away, so that the rule can fold it into what it makes (norms).
tensor_id op_grad_take(op_program *p, tensor_id t);
// A tensor for a gradient like t. For a view: the same columns of the gradient of its whole.
NODISCARD status op_grad_new(op_program *p, tensor_id t, tensor_id *d);
// Adds d to what t has: becomes the gradient, or appends an ADD. Nothing for batch and constants.
NODISCARD status op_grad_add(op_program *p, tensor_id t, tensor_id d);
// The accumulator of a weight's gradient (one per use).
NODISCARD status op_grad_weight(op_program *p, tensor_id weight, tensor_id *accumulator);
// Is t an activation or an input that depends on something trained?
bool op_wants_grad(const op_program *p, tensor_id t);
// Is t a weight that is trained? A rule appends no gradient of a frozen one.
bool op_trains(const op_program *p, tensor_id t);

// ---- recomputation ------------------------------------------------------------------------------
typedef enum op_recompute { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL } op_recompute;
// After differentiation: fills the recompute list with the forward nodes that must run again before
// the backward lists: FULL keeps only the block's inputs, SELECTIVE also what products made.
NODISCARD status op_program_recompute(op_program *p, op_recompute policy);
// Does the list make tensor t, which owns its bytes, or a view of it?
bool op_list_makes(const op_program *p, op_list list, tensor_id t);
// Adds to a layer's recompute list what no gradient needs, as other software runs that again too: into tensors that nobody
// reads. For simulations; of a rank's program, after it was cut.
NODISCARD status op_program_recompute_rest(op_program *p);

// ---- sizes --------------------------------------------------------------------------------------
int64_t extent_value(extent e, const extent_binding *bound);
int64_t op_tensor_elements(const op_tensor *t, const extent_binding *bound);
int64_t op_tensor_bytes(const op_tensor *t, const extent_binding *bound); // 0 for a view
// FLOPs by the convention of reports: 6 x weights in products per token, plus 6 L T (heads x head
// size) for causal attention; see train/ for its use. Costs here count what a node really computes.
op_cost op_node_cost(const op_program *p, const op_node *node, const extent_binding *bound);

#ifdef __cplusplus
}
#endif
#endif
