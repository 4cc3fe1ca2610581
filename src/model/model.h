// Models: one decoder spec, blocks that emit forward operations, whole models as lists of blocks,
// Hugging Face folders in and out. Nothing here knows devices, gradients or parallelism.
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "base/format/json.h"
#include "base/format/safetensors.h"
#include "base/text.h"
#include "config/run_config.h"
#include "op/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum model_norm { MODEL_RMSNORM, MODEL_LAYERNORM } model_norm;
typedef enum model_mlp { MODEL_MLP_GELU, MODEL_MLP_SWIGLU } model_mlp;
typedef enum model_position { MODEL_POSITION_LEARNED, MODEL_POSITION_ROPE } model_position;
typedef enum model_rope_kind {
    MODEL_ROPE_DEFAULT,
    MODEL_ROPE_LINEAR,
    MODEL_ROPE_DYNAMIC,
    MODEL_ROPE_LLAMA3,
    MODEL_ROPE_YARN,
    MODEL_ROPE_LONGROPE
} model_rope_kind;

// Names and meanings as in Hugging Face's rope_parameters; absent numbers are NaN.
typedef struct model_rope {
    model_rope_kind kind;
    double theta, factor, low_freq_factor, high_freq_factor, beta_fast, beta_slow;
    double attention_factor, mscale, mscale_all_dim;
    int64_t original_context;                 // 0: the spec's context
    bool truncate;                            // YaRN; default true
    const double *short_factor, *long_factor; // LongRoPE: head_dim / 2 each
} model_rope;

// Tokens that end a text; the first is the tokenizer's end of text, chat models have more.
enum { MODEL_ENDS = 8 };
typedef struct model_ends {
    int32_t ids[MODEL_ENDS];
    int count;
} model_ends;

// Experts in place of the feed-forward part: a token takes top_k of `count`, and all `shared` ones.
typedef struct model_experts {
    int64_t count;                  // 0: none, the model is dense
    int64_t top_k, shared, ffn_dim; // ffn_dim: of one expert
    int64_t dense_layers;           // the first so many layers are dense
    int64_t every;                  // of the others each `every`-th has experts (1: all)
} model_experts;
// Multi-head latent attention: keys and values from a narrow latent row (DeepSeek-V2,
// arXiv:2405.04434).
typedef struct model_latent {
    int64_t q_rank, kv_rank; // kv_rank 0: none; q_rank 0: queries straight from the width
    int64_t nope_dim, rope_dim, value_dim; // of a head: parts of queries and keys, and values
} model_latent;

// One spec for every decoder here. Plain data; model_spec_check states what must hold.
typedef struct decoder_spec {
    const char *arch; // row of the arch family: "gpt2", "llama", "mistral", "qwen2", "qwen3"
    int64_t layers, dim, heads, kv_heads, head_dim, ffn_dim, vocab, context;
    model_norm norm;
    float norm_eps;
    model_mlp mlp;
    op_activation activation; // of MODEL_MLP_GELU
    model_position position;
    model_rope rope;
    bool rope_interleaved;
    bool tied;
    bool qkv_bias, out_bias, mlp_bias, norm_bias, qk_norm;
    const int32_t *windows; // [layers] attention window of each layer, 0: none. NULL: none anywhere
    float dropout_embedding, dropout_attention, dropout_residual;
    float init_std;
    int32_t bos_token; // -1: none
    model_ends ends;
    dtype saved; // what its files say their weights are: fp32, bf16 or fp16
    // What can be counted, planned and simulated but not trained yet: model_build refuses it by
    // name where the model is to run.
    model_experts experts;
    model_latent latent;
} decoder_spec;

// Has decoder layer `index` experts in place of its feed-forward part?
static inline bool model_has_experts(const decoder_spec *s, int64_t index)
{
    const int64_t at = index - s->experts.dense_layers, every = max_i64(s->experts.every, 1);
    return s->experts.count > 0 && at >= 0 && at % every == every - 1;
}

// What a program is emitted for, beyond the spec.
typedef struct model_options {
    op_purpose purpose;
    dtype compute, grad; // activations and working weights; gradient accumulators
    op_recompute recompute;
    int64_t recompute_layers; // of decoder layers so many, spread evenly, recompute; 0: all of them
    int64_t seq; // longest sequence: size of the rope table (and its length, for dynamic, LongRoPE)
    float z_loss;
    // Patterns (fnmatch) of the names of weights that are not trained: "layers.0.*". Training only.
    option_list freeze;
    bool documents; // packed: attention stays within a document
    bool logits;    // EVALUATE: also logits of all rows (fp32) as boundary output 0 of the head
    bool losses;    // EVALUATE: the loss of every row (fp32) as the head's next boundary output
    // Decoder layers that are two rows, attention and feed-forward part, ascending: where stages
    // meet in them.
    const int32_t *halved;
    int32_t halved_count;
    // nothing will run: constants have no data, and what has no kernels yet may be built
    bool sizes_only;
} model_options;

// model.preset, or model.from (a Hugging Face folder), and model.* keys over it.
NODISCARD status model_spec_from_config(const host *h, arena *a, const run_config *config,
                                        decoder_spec *out);
NODISCARD status model_spec_from_hf(const host *h, arena *a, const char *folder, decoder_spec *out);
// The same from a parsed config.json; `file` stands in errors.
NODISCARD status model_spec_from_json(arena *a, const json *root, const char *file,
                                      decoder_spec *out);
NODISCARD status model_spec_preset(const host *h, arena *a, const char *name, decoder_spec *out);
NODISCARD status model_spec_check(const decoder_spec *spec);
// Of the sizes alone, without emitting anything; as model_build counts where it can build.
typedef struct model_counts {
    int64_t total;
    int64_t active; // that one token meets: all but the experts that it does not take
    // of active, those in matrix products: FLOPs of a token are 6 x these, and attention's
    int64_t product;
} model_counts;
void model_count(const decoder_spec *spec, model_counts *out);
NODISCARD status model_spec_print_json(const decoder_spec *spec, text *out);
// `, "eos_token_id": ...`, for config.json and generation_config.json: null, a number or a list.
NODISCARD status model_ends_add(text *t, const model_ends *ends); // Hugging Face config.json
const char *
model_dtype_name(dtype type); // "bfloat16": as config.json has it; NULL: no weights' type

// Emits the whole model for one purpose. Weights are the same rows for every purpose. In PREFILL
// and DECODE the head's boundary output 0 is the sampled ids (B), output 1 the logits (B,V).
NODISCARD status model_build(arena *a, const decoder_spec *spec, const model_options *options,
                             op_model **out);

// cos and sin of positions 0..rows-1: row = head_dim/2 cosines, head_dim/2 sines.
NODISCARD status model_rope_table(arena *a, const decoder_spec *spec, int64_t rows, int64_t seq,
                                  float **out);
// Whether sequences of these two lengths have different tables: dynamic beyond the context,
// LongRoPE at its limit. A cache of keys rotated by the one is of no use to the other.
bool model_rope_changes(const decoder_spec *spec, int64_t seq_before, int64_t seq_after);

// Initial values of weight w (fp32, rows * columns), a function of (name of the part, element,
// seed).
void model_weight_init(const op_model *m, int64_t weight, uint64_t seed, float *values);
// Elements begin to begin + count - 1 of it, row by row: threads may share a weight.
void model_weight_init_range(const op_model *m, int64_t weight, uint64_t seed, int64_t begin,
                             int64_t count, float *values);

// Reads weight w of a Hugging Face checkpoint into fp32 (rows * columns), whatever its stored type,
// names, layout (GPT-2's [in, out]) and fusion.
NODISCARD status model_weight_read(const safetensors *file, const decoder_spec *spec,
                                   const op_model *m, int64_t weight, float *values);
// The Hugging Face tensors of weight w: how many, their names, and element-wise mapping:
// hf tensor k is rows [row_begin, row_begin + rows) of the weight, transposed or not.
typedef struct model_hf_tensor {
    const char *name;
    int64_t row_begin, rows;
    bool transposed; // stored (columns, rows)
} model_hf_tensor;
NODISCARD status model_hf_tensors(arena *a, const decoder_spec *spec, const op_model *m,
                                  int64_t weight, model_hf_tensor **out, int64_t *count);
// Every tensor of the file is used, and every weight is there with its shape: all complaints at
// once.
NODISCARD status model_hf_check(arena *a, const safetensors *file, const decoder_spec *spec,
                                const op_model *m);

#ifdef __cplusplus
}
#endif
#endif
