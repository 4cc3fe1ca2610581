// Operations and programs: operands, shapes, placement, cost and gradient of each operation,
// everything except its kernels.
//
// Everything is plain data. A block of a model (or an optimizer, for one weight) writes a
// *program*: a table of tensors and four lists of nodes,
//
//   forward          appended by the block
//   backward input   appended by the gradient rules: what the layer below waits for
//   backward weight  appended by the gradient rules: products that add to weight gradients
//   recompute        forward nodes emitted again before the backward lists (op/pass/recompute.c)
//
// Extents that differ from plan to plan are symbols (tokens of a micro-batch, cached positions); a
// plan binds them. Kernels use the same codes (kernels/kernels.h).
//
// To add an operation, write a line in OP_TABLE (op/op_codes.h), a row in a file here, and an entry
// in the table of each backend that has a kernel. The contract tests op_table_test.c and
// kernels/backend_test.c then run over its row.
#ifndef OP_OP_H
#define OP_OP_H

#include "base/base.h"
#include "op/op_kind.h"
#include "op/op_program.h"

#ifdef __cplusplus
extern "C" {
#endif

// Bytes of logits that a head has in memory at once. A head with fewer rows computes them once
// (attrs.kept).
enum { OP_HEAD_CHUNK_BYTES = 128 << 20, OP_HEAD_ROW_STEP = 64 };
// Returns the rows of `vocab` logits in a chunk: at least two.
static inline int64_t op_head_chunk_rows(int64_t vocab)
{
    const int64_t stride = (vocab + 15) / 16 * 16;
    int64_t rows = OP_HEAD_CHUNK_BYTES / (stride * 4);
    // Even, because sums over rows go by pairs.
    rows -= rows % (rows > OP_HEAD_ROW_STEP ? OP_HEAD_ROW_STEP : 2);
    return rows > 2 ? rows : 2;
}

// ---- writing programs ---------------------------------------------------------------------------
NODISCARD status op_program_create(arena *a, op_purpose purpose, dtype compute, dtype grad,
                                   op_program **out);
NODISCARD status op_tensor_add(op_program *p, const op_tensor *tensor, tensor_id *out);
// Adds a named tensor with up to two extents (ndim 1 or 2).
NODISCARD status op_tensor_make(op_program *p, const char *name, tensor_role role, dtype type,
                                int ndim, extent rows, extent columns, tensor_id *out);
NODISCARD status op_view(op_program *p, tensor_id of, const char *name, int64_t column_begin,
                         int64_t column_count, tensor_id *out);
// Adds a view of some rows of a weight, or of its gradient.
NODISCARD status op_view_rows(op_program *p, tensor_id of, const char *name, int64_t row_begin,
                              int64_t row_count, tensor_id *out);
NODISCARD status op_input(op_program *p, const char *name, extent rows, extent columns,
                          tensor_id *out);              // boundary activation, compute type
NODISCARD status op_output(op_program *p, tensor_id t); // declares it a boundary output
// Appends to a list: `node->out` may name tensors (in-place on state) or be TENSOR_NONE to be made.
NODISCARD status op_append(op_program *p, op_list list, op_node *node, uint32_t wanted);

// Forward operations, called by blocks. Optional operands: TENSOR_NONE.
NODISCARD status op_embedding(op_program *p, tensor_id ids, tensor_id table, tensor_id positions,
                              tensor_id position_table, tensor_id *x);
// The same; the row of id `skipped` (-1: none) gets no gradient. in: ids, table, positions, their
// table.
NODISCARD status op_embedding_skip(op_program *p, const tensor_id in[4], int32_t skipped,
                                   tensor_id *x);
NODISCARD status op_matmul(op_program *p, tensor_id x, tensor_id w, tensor_id bias,
                           op_activation activation, tensor_id *y);
// in: x, w, bias, the history of their factors in 8 bits.
NODISCARD status op_matmul_scaled(op_program *p, const tensor_id in[4], op_activation activation,
                                  tensor_id *y);
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
// The same with sinks and pages. in: q, k, v, documents, lengths, sinks, pages.
NODISCARD status op_attention_sinks(op_program *p, const tensor_id in[7], const op_attrs *attrs,
                                    tensor_id *y);
// pages: TENSOR_NONE, or tables of pages with `page` rows each.
NODISCARD status op_cache_append(op_program *p, tensor_id x, tensor_id lengths, tensor_id pages,
                                 int32_t page, tensor_id cache);
// Rotates q and k and joins them with v: LATENT in op_codes.h.
NODISCARD status op_latent(op_program *p, const tensor_id in[5], const op_attrs *attrs,
                           tensor_id out[3]);
NODISCARD status op_latent_cached(op_program *p, const tensor_id in[8], const op_attrs *attrs,
                                  tensor_id *y);
NODISCARD status op_route(op_program *p, tensor_id logits, int32_t top_k, bool normalize,
                          tensor_id *ids, tensor_id *weights);
// The same with the scores, groups and factor of `attrs`, and a bias (TENSOR_NONE: none) for the
// choice.
NODISCARD status op_route_scored(op_program *p, tensor_id logits, tensor_id bias,
                                 const op_attrs *attrs, tensor_id *ids, tensor_id *weights);
NODISCARD status op_gate_rows(op_program *p, tensor_id x, tensor_id gate, tensor_id *y);
typedef struct op_permuted {
    tensor_id rows, row_of, offsets;
    tensor_id scale; // TENSOR_NONE without weights
} op_permuted;
// Replaces ids of experts by -1 beyond `rows` tokens of each expert in a sequence of `seq`.
// Counts the tokens of experts in the step block. attrs: experts, load_layers, and with `logits`
// those of ROUTE. kept, logits: TENSOR_NONE where there is no limit, and no loss.
NODISCARD status op_step_routes(op_program *p, tensor_id ids, tensor_id kept, tensor_id logits,
                                const op_attrs *attrs);
NODISCARD status op_limit_rows(op_program *p, tensor_id ids, int32_t experts, int64_t seq,
                               int64_t rows, tensor_id *kept);
NODISCARD status op_permute(op_program *p, tensor_id x, tensor_id ids, tensor_id weights,
                            int32_t experts, op_permuted *out);
NODISCARD status op_unpermute(op_program *p, tensor_id rows, tensor_id row_of, tensor_id weights,
                              tensor_id *y);
NODISCARD status op_grouped_matmul(op_program *p, tensor_id x, tensor_id w, tensor_id offsets,
                                   int32_t experts, tensor_id *y);
// in: x, w, offsets, the history of the factors of each expert's operands in 8 bits.
NODISCARD status op_grouped_matmul_scaled(op_program *p, const tensor_id in[4], int32_t experts,
                                          tensor_id *y);
NODISCARD status op_scale_rows(op_program *p, tensor_id x, tensor_id scale, tensor_id *y);
NODISCARD status op_scale(op_program *p, tensor_id x, float factor, tensor_id *y);
// The squared lengths of the rows of w + scale b a, and columns of x times m over the lengths. in:
// w, a, b. *y: TENSOR_NONE, or the tensor to write.
NODISCARD status op_row_squares(op_program *p, const tensor_id in[3], float scale,
                                tensor_id *squares);
NODISCARD status op_magnitude(op_program *p, tensor_id x, tensor_id m, tensor_id squares,
                              tensor_id *y);
// A weight of bytes as numbers, in a tensor of the compute type; again: for a backward pass, if w
// is such a tensor, else w.
NODISCARD status op_dequantize(op_program *p, tensor_id q, op_quant kind, int64_t columns,
                               tensor_id *w);
NODISCARD status op_dequantize_again(op_program *p, tensor_id w, tensor_id *out);
NODISCARD status op_add_bias(op_program *p, tensor_id x, tensor_id bias, tensor_id *y);
NODISCARD status op_clamp(op_program *p, tensor_id x, float bound, tensor_id *y);
NODISCARD status op_soft_cap(op_program *p, tensor_id x, float cap, tensor_id *y);
NODISCARD status op_swiglu(op_program *p, tensor_id h, tensor_id *a);
// Like op_swiglu, with GELU by tanh or by erf instead of SiLU.
NODISCARD status op_geglu(op_program *p, tensor_id h, op_activation gelu, tensor_id *a);
// (1 + up) gate sigmoid(slope gate), of halves of h that are clamped to the limit.
NODISCARD status op_clamped_gate(op_program *p, tensor_id h, float slope, float limit,
                                 tensor_id *a);
// Biases of experts: of rows (E*M,1), and of tokens (E,D), which chose them.
typedef struct op_chosen {
    tensor_id ids, weights;
} op_chosen;
NODISCARD status op_bias_rows(op_program *p, tensor_id x, tensor_id bias, tensor_id offsets,
                              int32_t experts, tensor_id *y);
NODISCARD status op_bias_tokens(op_program *p, tensor_id x, const op_chosen *chosen, tensor_id bias,
                                tensor_id *y);
NODISCARD status op_activate(op_program *p, tensor_id x, op_activation activation, tensor_id *y);
NODISCARD status op_dropout(op_program *p, tensor_id x, float probability, int32_t site,
                            tensor_id *y);
// Train: loss and both gradients in one node of the backward-weight list, which a program with this
// operation runs before its backward-input list. Evaluate: token losses only, in the forward list.
// op_step_loss adds the losses to the step block.
typedef struct op_head_options {
    float z_loss;
    float cap;    // logits become cap * tanh(logit / cap); 0: none
    float weight; // of the gradients; 0: 1
    bool scores;  // SCORE in place of HEAD_LOSS: w is one row, and none of the others counts
} op_head_options;
NODISCARD status op_head_loss(op_program *p, tensor_id x, tensor_id w, tensor_id labels,
                              const op_head_options *options, tensor_id *token_loss);
// The same for a loss of pairs or groups of documents (op/objective.h). Train: a first pass of the
// head gives the token losses, OBJECTIVE turns them into losses and their slopes, and a second pass
// computes the gradients. in: x, w, labels, documents, given. op_step_loss takes losses and units.
typedef struct op_objective_rows {
    tensor_id token_losses, losses, units;
} op_objective_rows;
NODISCARD status op_head_objective(op_program *p, const tensor_id in[5],
                                   const op_head_options *options,
                                   const op_objective_attrs *objective, op_objective_rows *out);
// Adds token losses to the step block; in the list where op_head_loss puts its node.
NODISCARD status op_step_loss(op_program *p, tensor_id token_loss, tensor_id labels);
NODISCARD status op_gather(op_program *p, tensor_id x, tensor_id rows, tensor_id *y);
NODISCARD status op_sample_ids(op_program *p, tensor_id logits, tensor_id params, tensor_id draws,
                               tensor_id *ids);
// Makes a tensor of that type with the values of x (nearest even).
NODISCARD status op_cast(op_program *p, tensor_id x, dtype type, tensor_id *y);

// Operand k of a node: its inputs first, then its outputs.
static inline tensor_id op_operand(const op_node *node, int k)
{
    return k < OP_MAX_IN ? node->in[k] : node->out[k - OP_MAX_IN];
}

// ---- views --------------------------------------------------------------------------------------
// Returns the tensor that owns a tensor's bytes: itself, or the one that it is a view of, and the
// column and row where the view begins. TENSOR_NONE: TENSOR_NONE.
typedef struct op_owned {
    tensor_id id;
    int64_t column, row;
} op_owned;
static inline op_owned op_owner(const op_program *p, tensor_id t)
{
    op_owned owned = {t, 0, 0};
    while (owned.id != TENSOR_NONE && p->tensors[owned.id].view_of != TENSOR_NONE) {
        owned.column += p->tensors[owned.id].view_begin;
        owned.row += p->tensors[owned.id].view_row;
        owned.id = p->tensors[owned.id].view_of;
    }
    return owned;
}

// ---- gradients ----------------------------------------------------------------------------------
// Walks the forward list backwards and appends to both backward lists. Boundary outputs get
// ROLE_INPUT_GRAD tensors in d_outputs, boundary inputs their gradients in d_inputs.
NODISCARD status op_program_differentiate(op_program *p);
// For gradient rules: returns the gradient of an output so far; TENSOR_NONE if nothing depends on
// it.
tensor_id op_grad_get(const op_program *p, tensor_id t);
// Removes and returns the gradient so far, so that the rule can add it to the gradient that it
// makes (norms).
tensor_id op_grad_take(op_program *p, tensor_id t);
// Makes a tensor for a gradient of t. For a view: the same columns of the gradient of the whole
// tensor.
NODISCARD status op_grad_new(op_program *p, tensor_id t, tensor_id *d);
// Adds d to the gradient of t: d becomes the gradient, or an ADD is appended. Does nothing for
// batch and constants.
NODISCARD status op_grad_add(op_program *p, tensor_id t, tensor_id d);
// Makes the accumulator of a weight's gradient (one per use).
NODISCARD status op_grad_weight(op_program *p, tensor_id weight, tensor_id *accumulator);
// Returns whether t is an activation or an input that depends on a trained weight.
bool op_wants_grad(const op_program *p, tensor_id t);
// Returns whether t is a trained weight. A rule appends no gradient of a frozen one.
bool op_trains(const op_program *p, tensor_id t);

// ---- recomputation ------------------------------------------------------------------------------
typedef enum op_recompute { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL } op_recompute;
// After differentiation: fills the recompute list with the forward nodes that must run again before
// the backward lists: FULL keeps only the block's inputs, SELECTIVE also the results of GEMMs.
NODISCARD status op_program_recompute(op_program *p, op_recompute policy);
// Returns whether the list writes tensor t, which owns its bytes, or a view of it.
bool op_list_makes(const op_program *p, op_list list, tensor_id t);
// Adds to a layer's recompute list the nodes that no gradient needs, because other software runs
// them again too. Their outputs are tensors that no node reads. For simulations of a rank's
// program, after it was cut.
NODISCARD status op_program_recompute_rest(op_program *p);

// ---- sizes --------------------------------------------------------------------------------------
int64_t op_tensor_elements(const op_tensor *t, const extent_binding *bound);
// Returns the likely number of elements, which costs use; of exact extents, all.
double op_tensor_likely(const op_tensor *t, const extent_binding *bound);
int64_t op_tensor_bytes(const op_tensor *t, const extent_binding *bound); // 0 for a view
// FLOPs that a node really computes. Reports use another convention: 6 x weights in GEMMs per
// token, plus 6 L T (heads x head size) for causal attention (op_model_flops_per_token).
op_cost op_node_cost(const op_program *p, const op_node *node, const extent_binding *bound);

#ifdef __cplusplus
}
#endif
#endif
