// Models: one decoder spec, blocks that emit forward operations, whole models as lists of blocks,
// reading and writing of Hugging Face folders. This module knows no devices, gradients or
// parallelism.
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "base/format/json.h"
#include "base/format/safetensors.h"
#include "base/text.h"
#include "config/run_config.h"
#include "op/model.h"

#include <math.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum model_norm { MODEL_RMSNORM, MODEL_LAYERNORM } model_norm;
// GELU: plain. SWIGLU: gated, with SiLU or, by `activation`, GELU.
typedef enum model_mlp { MODEL_MLP_GELU, MODEL_MLP_SWIGLU } model_mlp;
// Where a layer normalizes: before attention and MLP; their results; or both.
typedef enum model_norm_place {
    MODEL_NORM_BEFORE,
    MODEL_NORM_AFTER,
    MODEL_NORM_AROUND
} model_norm_place;
typedef enum model_position { MODEL_POSITION_LEARNED, MODEL_POSITION_ROPE } model_position;
typedef enum model_rope_kind {
    MODEL_ROPE_DEFAULT,
    MODEL_ROPE_LINEAR,
    MODEL_ROPE_DYNAMIC,
    MODEL_ROPE_LLAMA3,
    MODEL_ROPE_YARN,
    MODEL_ROPE_LONGROPE
} model_rope_kind;

// Names and meanings are those of Hugging Face's rope_parameters; absent numbers are NaN.
typedef struct model_rope {
    model_rope_kind kind;
    double theta, factor, low_freq_factor, high_freq_factor, beta_fast, beta_slow;
    double attention_factor, mscale, mscale_all_dim;
    int64_t original_context;                 // 0: the spec's context
    bool truncate;                            // YaRN; default true
    const double *short_factor, *long_factor; // LongRoPE: head_dim / 2 each
} model_rope;

// Tokens that end a text: the first is the tokenizer's end-of-text token; chat models have more.
enum { MODEL_ENDS = 8 };
typedef struct model_ends {
    int32_t ids[MODEL_ENDS];
    int count;
} model_ends;

// Experts that replace the MLP: a token uses top_k of `count` experts and all `shared` ones.
typedef struct model_experts {
    int64_t count;                  // 0: none, the model is dense
    int64_t top_k, shared, ffn_dim; // ffn_dim: width of one expert
    int64_t dense_layers;           // number of dense layers at the bottom
    int64_t every;                  // every `every`-th layer of the rest has experts (1: all)
    const bool *mixed; // [layers] which layers have experts, instead of both; NULL: as they say
    // A token's weights are its scores; false: divided by their sum, so they add up to 1.
    bool unscaled;
    bool sigmoid;    // scores are sigmoids of the router's logits; false: a softmax
    bool correction; // a bias is added to scores for the choice of experts, not for their weights
    // The experts are `groups` groups of neighbours, and a token chooses among those of its
    // top_groups best groups; 0: no groups. A group counts as its best expert, or as its best two.
    int64_t groups, top_groups;
    bool group_pairs;
    float scale;            // factor of the weights; 0: 1
    int64_t shared_ffn_dim; // width of all shared experts; 0: shared * ffn_dim
    bool bias;              // router and experts have biases
    bool shared_gate; // the shared experts' result is scaled by a sigmoid of a projection of x
} model_experts;
// Multi-head latent attention: keys and values are made from a narrow latent row (DeepSeek-V2,
// arXiv:2405.04434).
typedef struct model_latent {
    int64_t q_rank, kv_rank; // kv_rank 0: none; q_rank 0: queries are made from x itself
    int64_t nope_dim, rope_dim, value_dim; // per head: two parts of queries and keys; values
} model_latent;

// Low-rank terms of matrices, which are frozen then: y = x W^T + scale * (x A^T) B^T, A (rank, in),
// B (out, rank). Sources: Hu et al. 2021, arXiv:2106.09685; rslora: Kalajdzievski 2023,
// arXiv:2312.03732; dora: Liu et al. 2024, arXiv:2402.09353.
typedef struct model_adapter {
    int64_t rank; // 0: there is no adapter, and all weights are trained
    double alpha; // scale is alpha / rank, or with rslora alpha / sqrt(rank)
    bool rslora, dora;
    op_quant quant;      // of the base model's projections, in training
    float dropout;       // of x before A
    option_list targets; // names or patterns of matrices; empty: all of attention and MLP
    bool are_modules;    // targets are whole names of modules, as a file of PEFT has them
    const char *folder;  // PEFT's folder with the values; NULL: initial values
    dtype saved;         // type of the values in that folder
} model_adapter;
static inline double model_adapter_scale(const model_adapter *a)
{
    return a->alpha / (a->rslora ? sqrt((double)a->rank) : (double)a->rank);
}

// A reward model's head: one row of weights, whose product with a text's last row is its score.
// NEW: the model's files have the head of a language model, and the row begins with initial values.
typedef enum model_scores { MODEL_WRITES, MODEL_SCORES, MODEL_SCORES_NEW } model_scores;

// One spec for every decoder. It is plain data; model_spec_check states its invariants.
typedef struct decoder_spec {
    const char *arch; // row of the arch family: "gpt2", "llama", "mixtral"
    int64_t layers, dim, heads, kv_heads, head_dim, ffn_dim, vocab, context;
    model_norm norm;
    model_norm_place norm_place;
    bool norm_plus_one; // RMSNorm multiplies by 1 + weight
    float norm_eps;
    model_mlp mlp;
    op_activation activation; // of a gated MLP: SiLU or a GELU
    // gpt-oss: gate and up are clamped to a limit, and (1 + up) gate sigmoid(slope gate) is the
    // gated MLP's; 0: a gate by `activation`
    float gate_limit, gate_slope;
    model_position position;
    model_rope rope;
    double rope_local_theta; // of layers with a window, which extend no context; 0: as all layers
    double rotary_share; // of the columns of each head, from the first on, positions turn; 0: all
    bool rope_interleaved;
    bool tied;
    bool qkv_bias, out_bias, mlp_bias, norm_bias, qk_norm;
    bool sinks;              // each head has a score without a key
    bool qk_norm_whole;      // the QK norm is over all heads together, not over each
    double attention_scalar; // scores are divided by its root; 0: head_dim
    // x becomes cap * tanh(x / cap), of attention's scores and of logits; 0: none
    float attention_cap, logit_cap;
    float idle_cap;    // a cap of scores in the files of models whose reference does not apply it
    float qkv_clip;    // queries, keys and values are held within -qkv_clip .. qkv_clip; 0: none
    float embed_scale; // factor of the embedding; 0: none
    const int32_t *windows; // [layers] attention window of each layer, 0: none. NULL: none anywhere
    float dropout_embedding, dropout_attention, dropout_residual;
    float init_std;
    int32_t bos_token; // -1: none
    int32_t pad_token; // its row of the embedding is not trained; -1: none
    model_ends ends;
    dtype saved; // type of the weights in its files: fp32, bf16 or fp16
    model_experts experts;
    model_latent latent;
    // Layers above the last norm, each of which predicts one token further in training: 0 or 1.
    int64_t next_layers;
    bool counted_only; // it stands for a model whose experts or routers are of another kind
    model_adapter adapter;
    model_scores scores;
} decoder_spec;
// Returns the columns of a head that rotary positions turn.
static inline int64_t model_rope_dim(const decoder_spec *s)
{
    if (s->latent.kv_rank > 0) return s->latent.rope_dim;
    return s->rotary_share > 0.0 ? (int64_t)((double)s->head_dim * s->rotary_share) : s->head_dim;
}

// Returns the number of decoder layers, with those above the last norm.
static inline int64_t model_all_layers(const decoder_spec *s)
{
    return s->layers + s->next_layers;
}

// Returns the width of the shared experts together.
static inline int64_t model_shared_width(const model_experts *e)
{
    return e->shared_ffn_dim > 0 ? e->shared_ffn_dim : e->shared * e->ffn_dim;
}

// Returns whether the model can be counted, planned and simulated but neither trained nor written
// yet: latent attention, and experts in forms that no row of arch/ has.
bool model_is_planned_only(const decoder_spec *spec);
// Returns whether other software reads the model's experts as they are. Softmax scores in the form
// of GLM-4.5, which the program writes for itself, it does not.
bool model_has_files(const decoder_spec *spec);

// Returns whether decoder layer `index` has experts in place of its MLP. Layers above the last norm
// are like the last one below it.
static inline bool model_has_experts(const decoder_spec *s, int64_t index)
{
    const int64_t layer = min_i64(index, s->layers - 1);
    const int64_t at = layer - s->experts.dense_layers, every = max_i64(s->experts.every, 1);
    if (s->experts.mixed != NULL) return s->experts.count > 0 && s->experts.mixed[layer];
    return s->experts.count > 0 && at >= 0 && at % every == every - 1;
}

// Returns the number of decoder layers with experts, with those above the last norm.
static inline int64_t model_mixed_layers(const decoder_spec *s)
{
    int64_t count = 0;
    for (int64_t i = 0; i < model_all_layers(s); i++) count += model_has_experts(s, i) ? 1 : 0;
    return count;
}

// Inputs of model_build in addition to the spec.
typedef struct model_options {
    op_purpose purpose;
    dtype compute, grad; // activations and working weights; gradient accumulators
    fp8_recipe fp8;      // of the linear layers, except router and head
    int32_t fp8_margin;  // of FP8_TENSOR
    bool fp8_exact;      // histories count magnitudes, but no operand is rounded
    op_recompute recompute;
    int64_t recompute_layers; // this many decoder layers, spread evenly, recompute; 0: all of them
    int64_t seq; // longest sequence: size of the rope table; dynamic and LongRoPE depend on it
    float z_loss;
    float next_loss;        // TRAIN: weight of the loss of spec.next_layers; 0: 0.3
    double expert_capacity; // TRAIN: the most rows of an expert, in even shares; 0: no limit
    // Losses of routers: their weights, and whether experts are balanced over a rank's micro-batch
    // instead of over each sequence.
    float moe_aux_loss, moe_z_loss;
    bool moe_aux_micro, moe_aux_batch; // batch: that of the step before, on all ranks
    float router_bias_rate;            // TRAIN: of the bias that balances experts; 0: it is fixed
    // Patterns (fnmatch) of the names of weights to freeze, e.g. "layers.0.*". Training only.
    option_list freeze;
    bool documents; // packed: attention stays within a document
    // PREFILL, DECODE: the cache is a pool of `pages` pages of `page` tokens, and each sequence has
    // a table of some (batch tensor "pages"); page 0: each sequence has rows of its own
    int64_t page, pages;
    bool logits; // EVALUATE: the logits of all rows (fp32) are boundary output 0 of the head
    op_objective_attrs objective; // kind OBJECTIVE_NONE: the mean of the token losses
    bool losses; // EVALUATE: the loss of every row (fp32) is the head's next boundary output
    // PREFILL, DECODE: values have the bits of training, and the loss of the drawn token (fp32, B)
    // is boundary output 1 of the head instead of logits
    bool as_training;
    // every rank of tp has the tables of the vocabulary: for generation, which gathers equal parts
    bool whole_vocabulary;
    // Decoder layers that are two rows, attention and MLP, in ascending order, because a stage
    // boundary lies inside them.
    const int32_t *halved;
    int32_t halved_count;
    // no execution: constants have no data, and operations without kernels are allowed
    bool sizes_only;
} model_options;

// Reads model.preset or model.from (a Hugging Face folder), then applies the other model.* keys.
NODISCARD status model_spec_from_config(const host *h, arena *a, const run_config *config,
                                        decoder_spec *out);
NODISCARD status model_spec_from_hf(const host *h, arena *a, const char *folder, decoder_spec *out);
// The same from a parsed config.json; error messages contain `file`.
NODISCARD status model_spec_from_json(arena *a, const json *root, const char *file,
                                      decoder_spec *out);
NODISCARD status model_spec_preset(const host *h, arena *a, const char *name, decoder_spec *out);
NODISCARD status model_spec_check(const decoder_spec *spec);
// Parameter counts from the sizes alone; they equal those of model_build where it can build.
typedef struct model_counts {
    int64_t total;
    int64_t active; // parameters that one token uses: all but those of experts that it skips
    // those of `active` in GEMMs: FLOPs of a token are 6 x these, plus attention's
    int64_t gemm;
} model_counts;
void model_count(const decoder_spec *spec, model_counts *out);
NODISCARD status model_spec_print_json(const decoder_spec *spec, text *out);
// Appends `, "eos_token_id": ...`, for config.json and generation_config.json: null, a number or a
// list.
NODISCARD status model_ends_add(text *t, const model_ends *ends); // Hugging Face config.json
const char *
model_dtype_name(dtype type); // "bfloat16" etc., as in config.json; NULL: not a weight type

// Emits the whole model for one purpose. All purposes have the same rows of weights. In PREFILL and
// DECODE the head's boundary output 0 is the sampled ids (B) and output 1 the logits (B,V).
NODISCARD status model_build(arena *a, const decoder_spec *spec, const model_options *options,
                             op_model **out);

// Cosines and sines of positions 0..rows-1: a row has head_dim/2 cosines, then head_dim/2 sines.
NODISCARD status model_rope_table(arena *a, const decoder_spec *spec, int64_t rows, int64_t seq,
                                  float **out);
// Returns whether sequences of these two lengths have different tables: dynamic beyond the context,
// LongRoPE when one is within its original context and the other is not. Keys cached under one
// table cannot be used under the other.
bool model_rope_changes(const decoder_spec *spec, int64_t seq_before, int64_t seq_after);

// Initial values of weight w (fp32, rows * columns): a function of the part's name, the element and
// the seed.
void model_weight_init(const op_model *m, int64_t weight, uint64_t seed, float *values);
// Elements begin to begin + count - 1 of weight w, row by row, so that threads can share a weight.
void model_weight_init_range(const op_model *m, int64_t weight, uint64_t seed, int64_t begin,
                             int64_t count, float *values);

// Reads weight w of a Hugging Face checkpoint into fp32 (rows * columns), whatever its stored type,
// names, layout (GPT-2's [in, out]) and fusion.
NODISCARD status model_weight_read(const safetensors *file, const decoder_spec *spec,
                                   const op_model *m, int64_t weight, float *values);
// Returns whether weight w is a reward model's head that the model's files may lack.
bool model_score_is_new(const decoder_spec *spec, const op_model *m, int64_t weight);
// The Hugging Face tensors of weight w: their number, names and element-wise mapping. A tensor is
// rows [row_begin, row_begin + rows) of the weight: `slices` matrices of equally many rows.
typedef struct model_hf_tensor {
    const char *name;
    int64_t row_begin, rows;
    int64_t slices;  // 1: it is one matrix
    bool transposed; // each matrix is stored (columns, rows)
    bool paired;     // row i of the first half of a matrix is stored next to row i of the second
    int ndim;
    int64_t dims[3]; // as stored
} model_hf_tensor;
// Returns where the tensor stores an element of its rows.
int64_t model_hf_at(const model_hf_tensor *t, int64_t columns, int64_t row, int64_t column);
NODISCARD status model_hf_tensors(arena *a, const decoder_spec *spec, const op_model *m,
                                  int64_t weight, model_hf_tensor **out, int64_t *count);
// The name of the module whose matrix a weight or a part of one is:
// "model.layers.3.self_attn.q_proj". False: files have no matrix of its own.
enum { MODEL_NAME_BYTES = 128 };
bool model_hf_module(const decoder_spec *spec, const char *ours, char out[MODEL_NAME_BYTES]);
// Checks that the file has every weight of the base model with its shape and no unknown tensors.
// The error lists all differences. The second does the same for the adapter's file.
NODISCARD status model_hf_check(arena *a, const safetensors *file, const decoder_spec *spec,
                                const op_model *m);
NODISCARD status model_hf_adapter_check(arena *a, const safetensors *file, const decoder_spec *spec,
                                        const op_model *m);

// ---- adapters -----------------------------------------------------------------------------------
// Returns whether the adapter has terms for the matrix, or part of a fused one, called prefix +
// name: "layers.3." and "attn.q".
bool model_adapter_covers(const decoder_spec *spec, const char *prefix, const char *name);
// Returns whether the folder has the adapter_config.json of PEFT.
NODISCARD status model_adapter_is_there(const host *h, arena *a, const char *folder, bool *out);
// Reads that file, and with `values` the names in adapter_model.safetensors, which are the targets.
NODISCARD status model_adapter_read(const host *h, arena *a, const char *folder, bool values,
                                    model_adapter *out);
// Prints it for the targets of a built model. base: the name of the base model; NULL: unknown.
NODISCARD status model_adapter_print(arena *a, const decoder_spec *spec, const op_model *m,
                                     const char *base, text *out);
// Reads values of the adapter's weights: from its folder, or initial ones.
typedef struct model_adapter_source {
    const decoder_spec *spec;
    const op_model *m;
    uint64_t seed;
    safetensors *file; // NULL: initial values
} model_adapter_source;
NODISCARD status model_adapter_open(const host *h, arena *a, const decoder_spec *spec,
                                    const op_model *m, uint64_t seed, model_adapter_source *out);
void model_adapter_close(model_adapter_source *s);
NODISCARD status model_adapter_weight(const model_adapter_source *s, int64_t weight, float *values);

#ifdef __cplusplus
}
#endif
#endif
