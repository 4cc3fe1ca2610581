// Blocks, a family: each writes forward operations for one part of a decoder and knows neither
// gradients nor parallelism. It says along which dim each of its weights may be cut; the op rows
// carry the gradients and the plan does the rest.
//
// To add one: a file here with a row, and its use in model/build.c (or in an arch's own list).
#ifndef MODEL_BLOCK_BLOCK_H
#define MODEL_BLOCK_BLOCK_H

#include "model/model.h"

// A weight as a block declares it; build.c makes one per layer of it.
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
    bool is_product, is_matrix;
    int8_t cut_dim[AXIS_COUNT];
    const char *shared; // the weight of the model that it really is: the tied embedding; else NULL
} block_weight;

enum { BLOCK_MAX_WEIGHTS = 32, BLOCK_MAX_PARTS = 4 };

// A projection y = act(x w^T + b): every matrix product of a block with a weight is one of these,
// so an adapter needs no new block. w is (rows, columns), stored (out, in) as in Hugging Face
// files.
typedef struct linear_spec {
    const char *name; // of the weight within the layer: "attn.qkv"; the bias is "attn.qkv.bias"
    int64_t rows, columns; // features out and in
    int cut_dim; // along which tp cuts the weight: 0 gives columns of y, 1 a term of y; -1: not
    bool bias;
    bool to_residual; // its result is added to the residual stream and starts smaller
    op_activation activation;
    // Named parts of a fused projection, one after the other along the rows; part_count 0: itself.
    int part_count;
    struct {
        const char *name;
        int64_t rows;
        int64_t heads; // rows are cut between whole heads; 0: anywhere
    } parts[BLOCK_MAX_PARTS];
} linear_spec;

// What blocks write into: one program, and the weights that it declared so far.
typedef struct block_context {
    op_program *p;
    const decoder_spec *spec;
    const model_options *options;
    int layer;          // a layer of this shape; blocks may look at spec->windows[layer]
    const char *prefix; // of its weights' names in the model: "layers.3."
    block_weight weights[BLOCK_MAX_WEIGHTS];
    tensor_id weight_ids[BLOCK_MAX_WEIGHTS];
    int weight_count;
} block_context;

typedef struct model_block {
    const char *name;
    // x: (tokens, dim), the normed residual stream; *y: what is added to it. Blocks at the ends of
    // a model differ: see their files.
    status (*emit)(block_context *c, tensor_id x, tensor_id *y);
} model_block;

extern const model_block model_block_embedding;
extern const model_block model_block_attention;
extern const model_block model_block_mlp_gelu;
extern const model_block model_block_mlp_swiglu;
extern const model_block model_block_head;
// Planned, without kernels.
extern const model_block model_block_experts;
extern const model_block model_block_latent;
const model_block *model_block_at(int64_t index); // of the table; NULL past its end

// ---- for blocks ---------------------------------------------------------------------------------
// A weight (rows, columns), or a vector where columns is 0. Starts normal with spec->init_std
// (matrices), ones (norms) or zeros (biases), as `init` says; may be cut by tp along cut_dim (-1:
// not).
NODISCARD status block_matrix(block_context *c, const char *name, int64_t rows, int64_t columns,
                              int cut_dim, tensor_id *out);
NODISCARD status block_vector(block_context *c, const char *name, int64_t rows, weight_init init,
                              int cut_dim, tensor_id *out);
// The weight declared last has these parts, one after the other along its rows.
NODISCARD status block_parts(block_context *c, int count, const char *const *names,
                             const int64_t *rows);
// The weight declared last is really this one of the model: the tied embedding.
NODISCARD status block_shared(block_context *c, const char *name);
// The weight declared last projects into the residual stream: GPT-2 starts it smaller by
// 1 / sqrt(2 layers).
void block_residual_projection(block_context *c);
// Declares the weight and the bias of a projection and appends its product.
// x: (tokens, columns), *y: (tokens, rows).
NODISCARD status block_linear(block_context *c, const linear_spec *spec, tensor_id x, tensor_id *y);
// The norm of the spec: y = norm(x + delta), h = x + delta; delta TENSOR_NONE: h = x.
NODISCARD status block_norm(block_context *c, const char *name, tensor_id x, tensor_id delta,
                            tensor_id *y, tensor_id *h);
// A batch tensor of int32 per token, made on first use: "ids", "labels", "positions", "documents".
NODISCARD status block_batch(block_context *c, const char *name, extent rows, dtype type,
                             tensor_id *out);
// Does options->freeze match the weight, as far as its names are known? prefix: "layers.3.".
NODISCARD status model_freeze_weight(const model_options *options, const char *prefix,
                                     const block_weight *w, bool *frozen);
// Refuses patterns that match nothing, and a model in which nothing is trained.
NODISCARD status model_freeze_check(const op_model *m, const option_list *patterns);
bool block_is_cached(const block_context *c); // prefill or decode

#endif
