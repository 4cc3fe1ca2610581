// Whole models, a family: maps a Hugging Face model type to decoder_spec, to the keys of its
// config.json, and to the names and layouts of its weights.
//
// To add one, write a file here with a row, and add the row to arch_table.c. If the model needs
// blocks that build.c does not have, add them to block/ first.
#ifndef MODEL_ARCH_ARCH_H
#define MODEL_ARCH_ARCH_H

#include "model/model.h"

typedef enum arch_bias {
    ARCH_BIAS_NEVER,
    ARCH_BIAS_KEY,   // config.json's attention_bias or mlp_bias decides: all projections or none
    ARCH_BIAS_INPUT, // always on q, k, v; never on the output
    // keys.input_bias decides on q, k, v; never on the output
    ARCH_BIAS_INPUT_KEY,
    ARCH_BIAS_ALWAYS
} arch_bias;

typedef enum arch_windows {
    ARCH_WINDOWS_NEVER,
    ARCH_WINDOWS_ALL,      // sliding_window holds for every layer
    ARCH_WINDOWS_SWITCH,   // the same if use_sliding_window is true
    ARCH_WINDOWS_BY_LAYER, // layer_types, or max_window_layers and use_sliding_window
    ARCH_WINDOWS_PATTERN   // layer_types, or all but every window_every-th layer
} arch_windows;

// Keys of config.json; NULL if the architecture has none.
typedef struct arch_keys {
    const char *layers, *dim, *heads, *kv_heads, *head_dim, *ffn_dim, *context, *norm_eps;
    const char *activation, *dropout_attention, *dropout_residual, *dropout_embedding;
    // Models with experts. Without expert_ffn_dim, ffn_dim is the width of one expert.
    const char *experts, *experts_per_token, *expert_ffn_dim;
    const char *every;        // NULL: every layer has experts
    const char *dense_layers; // list of the layers without experts; NULL: as `every` says
    const char *weights_sum;  // whether the weights of a token add up to 1; NULL: they do
    const char *dense_first;  // number of layers without experts at the bottom
    const char *shared, *shared_ffn_dim; // number of shared experts, or their width together
    const char *groups, *top_groups, *router_scale;
    const char *gate_slope, *gate_limit; // of a clamped gate
    const char *score;                   // kind of the router's scores; NULL: that of the row
    const char *qk_norm;                 // whether heads are normalized; NULL: as the row says
    const char *rotary;                  // share of a head that positions turn; NULL: all
    const char *attention_scalar, *attention_cap, *logit_cap, *rope_local_theta;
    const char *idle_cap;    // of attention's scores, which transformers reads and does not apply
    const char *clip;        // bound of queries, keys and values
    const char *input_bias;  // of ARCH_BIAS_INPUT_KEY
    const char *next_layers; // number of layers that predict the token after the next
} arch_keys;
extern const arch_keys arch_keys_llama; // shared by all architectures like Llama

// One tensor of a file. `ours` is a weight or a part of one; "layers.#." stands for every layer.
// `theirs` is the name after the prefix. Weights that stack experts have one row for each matrix of
// an expert, in the order of its rows; "@" in `theirs` stands for the number of the expert.
typedef enum arch_layout {
    ARCH_PLAIN = 0,
    ARCH_TRANSPOSED = 1, // stored (columns, rows)
    ARCH_STACKED = 2,    // one tensor for all experts
    ARCH_PAIRED = 4,     // of an expert's gate and up, rows alternate
    ARCH_STACKED_TRANSPOSED = ARCH_STACKED | ARCH_TRANSPOSED,
    ARCH_STACKED_PAIRED = ARCH_STACKED | ARCH_PAIRED,
    ARCH_STACKED_PAIRED_TRANSPOSED = ARCH_STACKED | ARCH_PAIRED | ARCH_TRANSPOSED
} arch_layout;
typedef struct arch_tensor {
    const char *ours, *theirs;
    arch_layout layout;
} arch_tensor;

typedef struct model_arch {
    const char *name;           // spec.arch, and model_type in config.json
    const char *causal_class;   // class name in "architectures": the model with its head
    const char *base_class;     // class name without the head; such files lack the prefix
    const char *scores_class;   // with the head of a reward model; NULL: transformers has none
    const char *prefix;         // prefix of tensor names: "model."
    const arch_tensor *tensors; // ends with an empty row
    const arch_tensor *experts; // those of layers with experts, likewise; NULL: it has no experts
    const char *const *buffers; // ends of names of tensors that hold no weights; NULL-terminated
    const arch_keys *keys;
    model_norm norm;
    model_mlp mlp;
    model_position position;
    arch_bias attention_bias, mlp_bias;
    arch_windows windows;
    model_norm_place norm_place;
    bool norm_plus_one, qk_norm, qk_norm_whole;
    bool embed_scaled;     // by the root of the width
    bool quantized;        // its published files are quantized, so config.json says how
    bool attention_biased; // where ARCH_BIAS_KEY's key is absent
    bool sinks, expert_bias;
    double gate_slope, gate_limit; // 0: no clamped gate
    bool latent;                   // latent attention, whose sizes are keys of config.json
    // How the router of a mixture scores experts (model_experts).
    bool sigmoid, correction, group_pairs, shared_gate;
    bool unscaled; // where no key says it
    int64_t groups, top_groups, dense_first;
    double router_scale;
    // The context before its extension is a key of the root of config.json, and rope_scaling has
    // the kind and the factors alone.
    bool rope_at_root;
    // Defaults of transformers for keys that config.json lacks.
    bool tied;
    int64_t kv_heads;     // 0: heads
    int64_t head_dim;     // 0: dim / heads
    int64_t window;       // 0: none
    int64_t window_every; // of ARCH_WINDOWS_PATTERN
    double rope_theta;    // 0: 10000
    double rotary_share;  // where keys.rotary is absent; 0: 1
    double rope_local_theta, attention_scalar, attention_cap, logit_cap;
    int64_t original_context; // 0: the context
    const char *activation;
    double norm_eps, dropout;
    int32_t bos_token, eos_token;
    // The embedding does not train the row of the padding, as transformers makes such models.
    bool pads;
    int32_t pad_token; // with `pads`; -1: none
} model_arch;

extern const model_arch model_arch_deepseek_v2;
extern const model_arch model_arch_deepseek_v3;
extern const model_arch model_arch_gemma2;
extern const model_arch model_arch_gemma3_text;
extern const model_arch model_arch_glm4_moe;
extern const model_arch model_arch_gpt2;
extern const model_arch model_arch_gpt_oss;
extern const model_arch model_arch_llama;
extern const model_arch model_arch_mistral;
extern const model_arch model_arch_mixtral;
extern const model_arch model_arch_olmo2;
extern const model_arch model_arch_olmoe;
extern const model_arch model_arch_phi3;
extern const model_arch model_arch_qwen2;
extern const model_arch model_arch_qwen2_moe;
extern const model_arch model_arch_qwen3;
extern const model_arch model_arch_qwen3_moe;

extern const arch_tensor arch_tensors_llama[]; // shared by all architectures like Llama
extern const char *const arch_buffers_llama[];

const model_arch *model_arch_at(int64_t index);          // NULL past the end
const model_arch *model_arch_find(const char *name);     // by model type; NULL: unknown
const model_arch *model_arch_of_class(const char *name); // "LlamaForCausalLM"; NULL: unknown
// Fails and names the nearest known model type; the message begins with `where`.
status model_arch_unknown(const char *where, const char *name);

// Returns the values that follow from the architecture alone; sizes are 0, tokens none.
decoder_spec model_arch_spec(const model_arch *arch);

// Sets the values that follow from the architecture and the sizes.
void model_arch_sized(const model_arch *arch, decoder_spec *s);

// Parses an activation name of config.json. False: unsupported.
bool model_activation_parse(const char *name, op_activation *out);
const char *model_activation_name(op_activation activation);
// The names that model_activation_parse knows, for error messages.
extern const char model_activation_names[];

extern const char *const model_rope_names[]; // rope_type of each model_rope_kind; NULL-terminated

#endif
