// A whole model as data: what `model` writes and `plan` reads.
//
// A model is a stack of layers (embedding, blocks, head). Layers of equal shape share one program;
// each says which of the model's weights stand for the program's. The activation of each layer's
// output 0 is the next layer's input 0. Nothing here knows how many devices there are.
#ifndef OP_MODEL_H
#define OP_MODEL_H

#include "op/op.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weight_init { INIT_NORMAL, INIT_ONES, INIT_ZEROS } weight_init;

// The logical tensor: it has initial values, an optimizer, a place in checkpoints and the digest.
typedef struct weight_part {
    const char *name;          // "layers.3.attn.q"
    int64_t row_begin, rows;   // in the physical tensor
    int64_t first, whole_rows; // of a rank's piece: which of the logical tensor's rows these are
    int64_t heads;             // rows are cut between them; 0: anywhere
    int32_t copies; // of a piece: so many ranks along AXIS_TP, side by side, have the same; 0: one
} weight_part;

// Where a part has fewer heads than there are ranks, several share one: each of so many has a copy
// of it.
static inline int32_t op_part_copies(int64_t heads, int32_t ways)
{
    return heads > 0 && heads < ways && ways % heads == 0 ? (int32_t)(ways / heads) : 1;
}

// A physical tensor (rows, columns), or (rows) when ndim is 1. Fused ones have several parts.
// op_model_partition makes a rank's pieces of them: along dim 0 every part is cut by itself, and
// piece k of n of a dim of d elements is [d k / n, d (k + 1) / n), so that any d can be cut; of a
// part with c copies it is piece k / c of n / c.
typedef struct op_weight {
    const char *name; // "layers.3.attn.qkv"
    int ndim;
    int64_t rows, columns; // columns = 1 when ndim is 1
    int part_count;        // at least 1; the parts cover the rows
    weight_part parts[4];
    weight_init init;
    float init_std;
    bool decay;      // weight decay applies (two-dim tensors)
    bool is_product; // takes part in matrix products: counted in FLOPs (input embedding not)
    bool is_matrix;  // Muon takes it: two-dim, neither embedding nor head
    bool frozen;     // not trained: it has no gradient and no optimizer state
    bool is_expert;  // its rows are those of experts, which ranks along AXIS_EP share
    int8_t cut_dim[AXIS_COUNT];
    // Of a piece: number `at` of `ways` along AXIS_TP; ways is 0 or 1 where every rank has all of
    // it.
    int32_t ways, at;
    int64_t first_column, whole_columns;
    // Its gradient is a term on each rank of AXIS_TP; the sum is everybody's (replicated weights
    // whose users are cut); or of so many ranks side by side each has the same term.
    bool partial_grad;
    int32_t partial_copies;
} op_weight;

// Where a part lies in its logical tensor: all of it where the weight is no piece.
typedef struct weight_piece {
    int64_t row, rows, whole_rows;
    int64_t column, columns, whole_columns;
} weight_piece;
static inline weight_piece op_weight_piece(const op_weight *w, int part)
{
    const weight_part *p = &w->parts[part];
    const bool cut = w->ways > 1;
    weight_piece out;
    out.row = cut ? p->first : 0;
    out.rows = p->rows;
    out.whole_rows = cut ? p->whole_rows : p->rows;
    out.column = cut ? w->first_column : 0;
    out.columns = w->columns;
    out.whole_columns = cut ? w->whole_columns : w->columns;
    return out;
}

// Of a piece that several ranks have: the rows of it, from its first on, that rank `at` answers for
// (in the norm, say), so that each is counted once. All of it where there is one copy.
static inline int64_t op_part_share(const op_weight *w, int part, int32_t at, int64_t *rows)
{
    const weight_part *p = &w->parts[part];
    *rows = p->rows;
    if (w->ways < 2 || p->copies < 2) return 0;
    const int64_t first = p->whole_rows * (at / p->copies) / (w->ways / p->copies);
    const int64_t begin = p->whole_rows * at / w->ways;
    *rows = p->whole_rows * (at + 1) / w->ways - begin;
    return begin - first;
}

// A decoder layer is one row, or two where a pipeline's stages meet in its middle: between them
// stands the residual stream alone, as between layers.
typedef enum op_layer_part { LAYER_WHOLE, LAYER_ATTENTION, LAYER_MLP } op_layer_part;
// What its row's name ends with.
static inline const char *op_layer_part_end(op_layer_part part)
{
    return part == LAYER_WHOLE ? "" : part == LAYER_ATTENTION ? ".attn" : ".mlp";
}

typedef struct op_layer {
    const char *name; // "embed", "layers.3" (or "layers.3.attn" and "layers.3.mlp"), "head"
    int32_t program;
    op_layer_part part;
    int32_t index;            // of a decoder layer; -1 for embedding and head
    const int32_t *weight_of; // [tensor of the program] row in weights; -1 if it is none
} op_layer;

// A table that is made once at start, in fp32.
typedef struct op_constant {
    const char *name; // the ROLE_CONSTANT tensor's name in programs: "rope"
    int64_t rows, columns;
    const float *data; // borrowed: lives as long as the model
} op_constant;

typedef struct op_model {
    op_purpose purpose;
    op_program *const *programs;
    int32_t program_count;
    const op_layer *layers;
    int32_t layer_count;
    const op_weight *weights; // the same rows for every purpose
    int64_t weight_count;
    const op_constant *constants;
    int32_t constant_count;
    // For reports: FLOPs of a token = 6 * product_parameters + 6 * seq * attention_width.
    int64_t parameters, product_parameters;
    int64_t attention_width; // sum over layers of heads * head_dim
    // Of frozen models: weights in products times the gradients (of the weight, of its input) that
    // are not computed, and the attention width of layers that run forward only.
    int64_t skipped_parameters, skipped_width;
} op_model;

// By the convention of the project (design.md, README): 6 x the weights that take part in products,
// plus 6 L T (heads x head size) for causal attention; recomputation never counts. A frozen
// weight's gradient is not computed and not counted; nor is the backward pass below the first
// trained weight.
static inline double op_model_flops_per_token(const op_model *m, int64_t seq)
{
    const double attention = 6.0 * (double)m->attention_width - 4.0 * (double)m->skipped_width;
    return 6.0 * (double)m->product_parameters - 2.0 * (double)m->skipped_parameters +
           (double)seq * attention;
}

#ifdef __cplusplus
}
#endif
#endif
