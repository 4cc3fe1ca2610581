// Shared by the files of op/ only: shapes, placement rules and bytes of operation rows.
//
// Shapes are the text of the row's signature (op.h). Placement rules are text too, an operand a
// character, inputs and outputs separated by a colon: r replicate, p partial, 0 and 1 shard along
// that dim: "0rr:0" is a GEMM cut by tokens.
#ifndef OP_OP_INTERNAL_H
#define OP_OP_INTERNAL_H

#include "op/model.h"

// The rows, one constant each, are in the files of their groups.
#define OP_ROW(upper, lower) extern const op_kind op_row_##lower;
OP_TABLE(OP_ROW)
#undef OP_ROW

static inline const op_tensor *op_at(const op_program *p, tensor_id t)
{
    ASSERT(t >= 0 && t < p->tensor_count);
    return &p->tensors[t];
}
// Returns whether the bounds are equal; the counts of bounded rows are not compared.
static inline bool extent_bound_equal(extent a, extent b)
{
    return a.scale == b.scale && a.symbol == b.symbol;
}
static inline bool extent_equal(extent a, extent b)
{
    if (!extent_bound_equal(a, b) || a.bounded != b.bounded) return false;
    return !a.bounded || (a.count == b.count && a.count_at == b.count_at);
}
// Returns the extent of all rows of the bound.
static inline extent extent_exact(extent e)
{
    return extent_make(e.scale, e.symbol);
}

// ---- shapes (op/shape.c) ------------------------------------------------------------------------
// The extents of the letters of a signature in one node.
typedef struct op_shapes {
    extent of[128]; // by letter; scale < 0: not met yet
    int any_ndim;   // of '*'; 0: not met yet
    extent any[OP_MAX_DIMS];
} op_shapes;
// Checks the inputs against the row's signature.
NODISCARD status op_shapes_in(const op_program *p, const op_node *node, op_shapes *shapes);
// The same against other words, for rows with fewer dims.
NODISCARD status op_shapes_in_as(const op_program *p, const op_node *node, const char *words,
                                 op_shapes *shapes);
NODISCARD status op_shapes_out_as(op_program *p, op_node *node, uint32_t wanted, const char *words,
                                  op_shapes *shapes);
void op_shapes_bind(op_shapes *shapes, char letter, extent e);
// Checks the outputs that are given and creates those that are missing and required, or wanted.
NODISCARD status op_shapes_out(op_program *p, op_node *node, uint32_t wanted, op_shapes *shapes);
// The infer() of rows whose signature is complete.
NODISCARD status op_infer_signature(op_program *p, op_node *node, uint32_t wanted);
// The number of operands of a side of a signature, and the begin of the next word.
int op_word_count(const char *words);
const char *op_word_next(const char *word);
// Returns the extent of a letter as a constant; fails if it depends on a symbol.
NODISCARD status op_shapes_constant(const op_node *node, const op_shapes *shapes, char letter,
                                    int64_t *out);
// Returns the first unused name of "tensor", "tensor.2", ...
void op_name_unique(const op_program *p, const char *prefix, const char *name,
                    char out[OP_NAME_BYTES]);

// ---- checks of calls (op/shape.c) ---------------------------------------------------------------
static inline int64_t op_fact(const op_facts *f, char letter)
{
    return f->extent[(unsigned char)letter];
}
static inline bool op_has_in(const op_facts *f, int operand)
{
    return (f->in >> operand & 1u) != 0;
}
static inline bool op_has_out(const op_facts *f, int operand)
{
    return (f->out >> operand & 1u) != 0;
}
// Checks that rows (letter N) are whole sequences, and those of a cache (letter S) whole caches.
void op_check_sequences(const op_facts *f);
// Returns the rows of a cache (operand `t` of the node) that the sequences of a call can have.
double op_cache_rows(const op_program *p, const op_node *node, tensor_id t,
                     const extent_binding *bound);

// ---- placement (op/place.c) ---------------------------------------------------------------------
// Sets rule 0, all replicate, and then the rules of `texts`.
void op_rules(const char *const *texts, int text_count, op_rule *rules, int *count);
#define OP_RULES(rules, count, ...)                                \
    do {                                                           \
        static const char *const texts_[] = {__VA_ARGS__};         \
        op_rules(texts_, (int)COUNT_OF(texts_), (rules), (count)); \
    } while (0)
// For rows whose only rule is the first.
void op_place_replicate(const op_program *p, const op_node *node, op_rule *rules, int *count);
// Sets which rows of a weight (operand `t`) the piece has, cut by rows.
void op_cut_rows(const op_program *p, tensor_id t, int ways, int at, op_piece *piece);
// Returns the begin of piece k of n of a dim of d elements; for k = n, the end of the last piece.
static inline int64_t op_piece_begin(int64_t d, int64_t n, int64_t k)
{
    return d * k / n;
}

// ---- the step block (op/optimizer.c) ------------------------------------------------------------
// Makes output 0 the program's step block; another output that is given is refused.
NODISCARD status op_step_output(op_program *p, op_node *node);

// ---- optimizers (op/optimizer.c) ----------------------------------------------------------------
// Makes outputs 0 .. count-1 the inputs 1 .. count, in place, unless others are given.
void op_states_in_place(op_node *node, int count);
// Rules of updates that work element by element: by rows and by columns, but only by rows with
// stochastic rounding.
void op_place_update(const op_program *p, const op_node *node, op_rule *rules, int *count);

// ---- gates (op/elementwise.c): a gate and a value, side by side ---------------------------------
NODISCARD status op_infer_gate(op_program *p, op_node *node, uint32_t wanted);
NODISCARD status op_infer_gate_bwd(op_program *p, op_node *node, uint32_t wanted);
// The gradient of a gate: an operation of h and da with the gate's attributes.
NODISCARD status op_gate_gradient(op_program *p, const op_node *node, op_code bwd);
void op_check_gate(const op_facts *facts);
// Rules of operations that work element by element: by rows and by columns.
void op_place_pointwise(const op_program *p, const op_node *node, op_rule *rules, int *count);

// ---- cost (op/place.c) --------------------------------------------------------------------------
// Cost: every input is read once, every output written once; accumulators are read as well.
op_cost op_cost_bytes(const op_program *p, const op_node *node, const extent_binding *bound);
// The same, plus `per_element` FLOPs for each element of tensor t.
op_cost op_cost_pointwise(const op_program *p, const op_node *node, const extent_binding *bound,
                          tensor_id t, double per_element);
static inline double op_elements(const op_program *p, tensor_id t, const extent_binding *bound)
{
    return op_tensor_likely(op_at(p, t), bound);
}
static inline double op_dim(const op_program *p, tensor_id t, int dim, const extent_binding *bound)
{
    return (double)extent_likely(op_at(p, t)->dims[dim], bound);
}

// ---- gradients (op/pass/differentiate.c) --------------------------------------------------------
// Appends to the backward-input list a node of `code` with these inputs, whose output 0 becomes a
// new gradient of t and is added to it. Does nothing if t wants none.
NODISCARD status op_grad_append(op_program *p, op_node *node, tensor_id t);

// ---- passes over whole models (op/pass/rewrite.c) -----------------------------------------------
// Copies the tensors with their ids and the boundary of `from`; the copy has no nodes yet.
NODISCARD status op_program_copy(arena *a, const op_program *from, op_program **out);
// Makes the layers of `whole` for programs that have additional tensors at the end, which map to no
// weight.
NODISCARD status op_layers_widen(arena *a, const op_model *whole, op_program *const *programs,
                                 op_layer **out);
// Checks rank `at` of `ways` along an axis ("tp", "cp"); in strict order a sum has `shards` terms,
// at most `most` on a rank.
NODISCARD status op_ways_check(const char *axis, int32_t ways, int32_t at, bool ordered,
                               int32_t shards, int32_t most);

#endif
