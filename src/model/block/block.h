// Blocks, a family: each emits forward operations for one part of a decoder and knows neither
// gradients nor parallelism. A block states along which dim each of its weights may be cut; the op
// rows have the gradient rules, and the plan does the rest.
//
// To add one, write a file here with a row, and use it in model/build.c (or in an arch's own list).
#ifndef MODEL_BLOCK_BLOCK_H
#define MODEL_BLOCK_BLOCK_H

#include "model/model.h"

// A weight as a block declares it; build.c creates one for each layer that uses the block.
typedef struct block_weight {
    const char *name; // within the layer: "attn.qkv"
    int ndim;
    int64_t rows, columns;
    int part_count; // 0: one part, the weight itself
    struct {
        const char *name; // within the layer: "attn.q"
        int64_t rows, heads;
    } parts[4];
    weight_init init;
    float init_std;
    bool in_gemm, is_matrix;
    bool fixed;    // no gradient trains it
    bool balanced; // fixed, but moved by the load of experts
    bool history;  // of factors in 8 bits
    bool adapter;  // of an adapter; with one, all other weights are frozen
    op_quant quant;
    int8_t cut_dim[AXIS_COUNT];
    int64_t matrix_rows; // of experts: rows of one of their matrices
    int64_t stripe;      // of experts: rows of one part of one of them, if tp cuts along dim 0
    bool of_model;       // its name has no prefix of a layer
    const char *shared;  // the model's weight that it aliases (tied embedding); else NULL
} block_weight;

enum { BLOCK_MAX_WEIGHTS = 64, BLOCK_MAX_PARTS = 4, BLOCK_MAX_MATRICES = 16 };
// The uses of dropout after an MLP or its experts, and before the first matrix of an adapter, which
// has one for each projection: see attrs.site in op/op_program.h.
enum { BLOCK_SITE_MLP = 2, BLOCK_SITE_ADAPTER = 4 };

// A projection y = act(x w^T + b). Every GEMM of a block with a weight is one of these, so an
// adapter needs no new block. w is (rows, columns), stored (out, in) as in Hugging Face files.
typedef struct linear_spec {
    const char *name;      // name within the layer: "attn.qkv"; the bias is "attn.qkv.bias"
    int64_t rows, columns; // output and input features
    int cut_dim;           // dim that tp cuts: 0 gives columns of y, 1 a term of y; -1: uncut
    bool bias;
    bool to_residual; // the result is added to the residual stream, so GPT-2 initialises it smaller
    op_activation activation;
    // Named parts of a fused projection, in order along the rows; part_count 0: the weight itself.
    int part_count;
    struct {
        const char *name;
        int64_t rows;
        int64_t heads; // cuts fall between whole heads; 0: anywhere
    } parts[BLOCK_MAX_PARTS];
} linear_spec;

// The target of blocks: one program, and the weights that it declared so far.
typedef struct block_context {
    op_program *p;
    const decoder_spec *spec;
    const model_options *options;
    int layer;          // a layer of this shape, e.g. for spec->windows[layer]
    const char *prefix; // prefix of its weights' names in the model: "layers.3."
    block_weight weights[BLOCK_MAX_WEIGHTS];
    tensor_id weight_ids[BLOCK_MAX_WEIGHTS];
    int weight_count;
    // With an adapter: the matrices, or parts of them, that projections have met, and whether the
    // adapter covers them.
    struct {
        const char *name;
        bool covered;
    } matrices[BLOCK_MAX_MATRICES];
    int matrix_count;
    int adapted_count; // projections with an adapter
    // The head in training: x is normed, because the layer below read it so, and these are that
    // layer's rows, normed too. TENSOR_NONE: there is no such layer.
    tensor_id next;
} block_context;

typedef struct model_block {
    const char *name;
    // x: (tokens, dim), the normed residual stream; *y: the term to add to it. The first and the
    // last block of a model differ: see their files.
    status (*emit)(block_context *c, tensor_id x, tensor_id *y);
} model_block;

extern const model_block model_block_embedding;
extern const model_block model_block_attention;
extern const model_block model_block_mlp_gelu;
extern const model_block model_block_mlp_swiglu;
extern const model_block model_block_head;
extern const model_block model_block_experts;
extern const model_block model_block_latent;
extern const model_block model_block_next;        // x: the rows that the head reads
const model_block *model_block_at(int64_t index); // row of the table; NULL past its end

// ---- for blocks ---------------------------------------------------------------------------------
// Declares a weight (rows, columns), or a vector if columns is 0. `init` selects its initial
// values: normal with spec->init_std (matrices), ones (norms) or zeros (biases). tp may cut it
// along cut_dim (-1: uncut).
NODISCARD status block_matrix(block_context *c, const char *name, int64_t rows, int64_t columns,
                              int cut_dim, tensor_id *out);
NODISCARD status block_vector(block_context *c, const char *name, int64_t rows, weight_init init,
                              int cut_dim, tensor_id *out);
// Marks the last declared weight as one that no gradient trains.
void block_fixed(block_context *c);
// Names the last declared weight without the prefix of its layer.
NODISCARD status block_of_model(block_context *c);
// Marks the last declared weight as a bias: it starts at 0 and is in no GEMM.
void block_bias(block_context *c);
// Keeps the last declared weight in fp32, whatever the type of the model.
void block_fp32(block_context *c);
// Declares a matrix (experts * rows, columns): one matrix (rows, columns) for each expert, stacked.
// The rows of an expert are `parts` parts (gate and up), each of which tp may cut along cut_dim.
NODISCARD status block_experts(block_context *c, const char *name, int64_t rows, int64_t columns,
                               int parts, int cut_dim, tensor_id *out);
// y = the rows x times the matrices w of their experts, which the weight `name` holds.
NODISCARD status block_experts_linear(block_context *c, const char *name, tensor_id x, tensor_id w,
                                      tensor_id offsets, tensor_id *y);
// Makes the last declared weight an alias of this one of the model: the tied embedding.
NODISCARD status block_shared(block_context *c, const char *name);
// Marks the last declared weight as a projection into the residual stream: GPT-2 initialises it
// smaller by 1 / sqrt(2 layers).
void block_residual_projection(block_context *c);
// Declares the weight and the bias of a projection and appends its GEMM. x: (tokens, columns), *y:
// (tokens, rows).
NODISCARD status block_linear(block_context *c, const linear_spec *spec, tensor_id x, tensor_id *y);
// Declares the weight of a projection without its GEMM.
NODISCARD status block_linear_weight(block_context *c, const linear_spec *spec, tensor_id *w);
// Adds the terms of an adapter to the result y of a projection with weight w, where the adapter
// covers it or parts of it (block/adapted.c). begin: notes which, and returns whether there are
// any. With DoRA y has no bias yet.
bool block_adapter_begin(block_context *c, const linear_spec *spec);
NODISCARD status block_adapter_add(block_context *c, const linear_spec *spec, tensor_id x,
                                   tensor_id w, tensor_id *y);
// Declares a weight of an adapter.
NODISCARD status block_adapter_weight(block_context *c, const block_weight *w, tensor_id *out);
// Appends the gate of a gated MLP: a = act(h[:, :ffn]) * h[:, ffn:]. h: (tokens, 2 ffn).
NODISCARD status block_gate(block_context *c, tensor_id h, tensor_id *a);
// Declares the weight of an RMSNorm, and returns the number that the norm adds to it.
NODISCARD status block_gain(block_context *c, const char *name, int64_t rows, tensor_id *out);
// The same of a norm over all heads, which is cut between them.
NODISCARD status block_gain_of_heads(block_context *c, const char *name, int64_t rows,
                                     int64_t heads, tensor_id *out);
float block_plus(const block_context *c);
// Appends the spec's norm: y = norm(x + delta), h = x + delta; delta TENSOR_NONE: h = x.
NODISCARD status block_norm(block_context *c, const char *name, tensor_id x, tensor_id delta,
                            tensor_id *y, tensor_id *h);
// Returns an int32 batch tensor, created on first use: "ids", "labels", "positions", "documents".
NODISCARD status block_batch(block_context *c, const char *name, extent rows, dtype type,
                             tensor_id *out);
// Matches the weight against options->freeze by the names known so far. prefix: "layers.3.".
NODISCARD status model_freeze_weight(const block_context *c, const char *prefix,
                                     const block_weight *w, bool *frozen);
bool model_freeze_matches(const option_list *patterns, const char *name);
// Returns whether the run freezes any weight.
static inline bool block_freezes(const block_context *c)
{
    return c->options->freeze.count > 0 || c->spec->adapter.rank > 0;
}
// Refuses patterns that match no weight, and models without a trained weight.
NODISCARD status model_freeze_check(const op_model *m, const option_list *patterns);
// Refuses targets of an adapter that match no matrix.
NODISCARD status model_adapter_check(const op_model *m, const decoder_spec *spec);
bool block_is_cached(const block_context *c); // prefill or decode

// All caches of a layer have these: the lengths of sequences, and their tables of pages or
// TENSOR_NONE.
typedef struct block_cache {
    tensor_id lengths, pages;
    int32_t page; // tokens of a page; 0: a sequence has rows of its own
    extent rows;
} block_cache;
NODISCARD status block_cache_begin(block_context *c, block_cache *out);
// Makes a cache of rows of x, and appends them.
NODISCARD status block_cache_add(block_context *c, const block_cache *rows, const char *name,
                                 int64_t columns, tensor_id x, tensor_id *cache);

#endif
