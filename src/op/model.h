// A whole model as data: `model` writes it and `plan` reads it.
//
// A model is a stack of layers (embedding, blocks, head). Layers of equal shape share one program;
// each maps the weights of the program to its weights of the model. The activation of each layer's
// output 0 is the next layer's input 0. Nothing here depends on the number of devices.
#ifndef OP_MODEL_H
#define OP_MODEL_H

#include "op/op.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weight_init { INIT_NORMAL, INIT_ONES, INIT_ZEROS } weight_init;

// The logical tensor, which has initial values, an optimizer, and a place in checkpoints and the
// digest.
typedef struct weight_part {
    const char *name;          // "layers.3.attn.q"
    int64_t row_begin, rows;   // in the physical tensor
    int64_t first, whole_rows; // of a rank's piece: which of the logical tensor's rows these are
    int64_t heads;             // rows are cut between them; 0: anywhere
    int32_t copies;            // neighbouring ranks along AXIS_TP that have the same piece; 0: one
} weight_part;

// Returns the number of ranks that have a copy of the same head: above 1 if a part has fewer heads
// than there are ranks.
static inline int32_t op_part_copies(int64_t heads, int32_t ways)
{
    return heads > 0 && heads < ways && ways % heads == 0 ? (int32_t)(ways / heads) : 1;
}

// A physical tensor (rows, columns), or (rows) if ndim is 1. Fused tensors have several parts.
// op_model_partition makes a rank's pieces: along dim 0 every part is cut separately, and piece k
// of n of a dim of d elements is [d k / n, d (k + 1) / n), so that any d can be cut; of a part with
// c copies it is piece k / c of n / c.
typedef struct op_weight {
    const char *name; // "layers.3.attn.qkv"
    int ndim;
    int64_t rows, columns; // columns = 1 when ndim is 1
    int part_count;        // at least 1; the parts cover the rows
    weight_part parts[4];
    weight_init init;
    float init_std;
    bool decay;          // weight decay applies (two-dim tensors)
    bool in_gemm;        // an operand of a GEMM: counted in FLOPs (the input embedding is not)
    bool is_matrix;      // Muon takes it: two-dim, neither embedding nor head
    bool frozen;         // not trained: it has no gradient and no optimizer state
    bool balanced;       // frozen, but moved by the load of experts at the end of a step
    bool is_history;     // of factors in 8 bits: its gradient is counts, which no norm has
    bool is_expert;      // its rows are those of experts, which ranks along AXIS_EP share
    op_quant quant;      // frozen, and its rows are held as op/quantized.h says; columns: numbers
    dtype type;          // of the working copy, where no layer of this purpose uses it
    bool is_adapter;     // an adapter's, not the base model's
    int32_t expert_ways; // above 1: it has the experts of one of so many ranks
    // Where tp cuts experts along dim 0: rows of a part (gate, up) of an expert in the whole
    // weight. Each such stripe is cut apart; 0: none.
    int64_t stripe;
    int64_t matrix_rows; // of experts: rows of one matrix, the optimizer's unit; 0: of a part
    int8_t cut_dim[AXIS_COUNT];
    // Piece `at` of `ways` along AXIS_TP; ways is 0 or 1 if every rank has the whole weight.
    int32_t ways, at;
    int64_t first_column, whole_columns;
    // Its gradient is a term on each rank of AXIS_TP, and all ranks need the sum (replicated
    // weights whose users are cut); with copies, that many neighbouring ranks have the same term.
    bool partial_grad;
    int32_t partial_copies;
} op_weight;

static inline bool op_weight_is_piece(const op_weight *w)
{
    return w->ways > 1 || w->expert_ways > 1;
}

static inline bool op_weight_is_striped(const op_weight *w)
{
    return w->stripe > 0 && w->ways > 1 && w->cut_dim[AXIS_TP] == 0;
}

// The place of a part in its logical tensor: all of it if the weight is not a piece.
typedef struct weight_piece {
    int64_t row, rows, whole_rows;
    int64_t column, columns, whole_columns;
} weight_piece;
static inline weight_piece op_weight_piece(const op_weight *w, int part)
{
    const weight_part *p = &w->parts[part];
    const bool cut = op_weight_is_piece(w);
    weight_piece out;
    out.row = cut ? p->first : 0;
    out.rows = p->rows;
    out.whole_rows = cut ? p->whole_rows : p->rows;
    out.column = cut ? w->first_column : 0;
    out.columns = w->columns;
    out.whole_columns = cut ? w->whole_columns : w->columns;
    return out;
}

// Returns the rows, from *row on, of a piece on several ranks that rank `at` is responsible for (in
// the norm, for example), so that each row is counted once. With one copy these are all rows.
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

// A decoder layer is one row, or two if a stage boundary is in its middle; only the residual stream
// crosses it there, as between layers.
typedef enum op_layer_part { LAYER_WHOLE, LAYER_ATTENTION, LAYER_MLP } op_layer_part;
// Returns the suffix of the row's name.
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

// A constant table, computed once at start, in fp32.
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
    int32_t next_rows; // layers right below the head, which are on its pipeline stage
    int32_t layer_count;
    const op_weight *weights; // the same rows for every purpose
    int64_t weight_count;
    const op_constant *constants;
    int32_t constant_count;
    // For reports: FLOPs of a token = 6 * gemm_parameters + 6 * seq * attention_width.
    int64_t parameters, gemm_parameters;
    int64_t attention_width; // sum over layers of heads * head_dim
    // For frozen models: weights in GEMMs times the gradients (of the weight, of its input) that
    // are not computed, and the attention width of layers that run forward only.
    int64_t skipped_parameters, skipped_width;
    // TRAIN: decoder layers and experts of the loads in the step block (op/step.h); 0: none.
    int32_t load_layers, load_experts;
} op_model;

// Returns the decoder layer (op_layer.index) that uses a weight; -1: embedding or head.
int32_t op_model_layer_of(const op_model *m, int64_t weight);

// FLOPs of a token by the convention of the README: 6 x the weights in GEMMs, plus 6 L T (heads x
// head size) for causal attention; recomputation never counts. The gradient of a frozen weight is
// not computed and not counted; nor is the backward pass below the first trained weight.
static inline double op_model_flops_per_token(const op_model *m, int64_t seq)
{
    const double attention = 6.0 * (double)m->attention_width - 4.0 * (double)m->skipped_width;
    return 6.0 * (double)m->gemm_parameters - 2.0 * (double)m->skipped_parameters +
           (double)seq * attention;
}

#ifdef __cplusplus
}
#endif
#endif
