// Whole models, a family: what a Hugging Face model type means in terms of decoder_spec, how its
// config.json spells it, and how its files name and lay out the weights.
//
// To add one: a file here with a row, and the row in arch_table.c. A model that needs other blocks
// than build.c has gets them in block/ first.
#ifndef MODEL_ARCH_ARCH_H
#define MODEL_ARCH_ARCH_H

#include "model/model.h"

typedef enum arch_bias {
    ARCH_BIAS_NEVER,
    ARCH_BIAS_KEY,   // as config.json's attention_bias or mlp_bias says: all projections or none
    ARCH_BIAS_INPUT, // always on q, k, v; never on the output
    ARCH_BIAS_ALWAYS
} arch_bias;

typedef enum arch_windows {
    ARCH_WINDOWS_NEVER,
    ARCH_WINDOWS_ALL,     // sliding_window holds for every layer
    ARCH_WINDOWS_BY_LAYER // layer_types, or max_window_layers and use_sliding_window
} arch_windows;

// Keys of config.json; NULL where the architecture has none.
typedef struct arch_keys {
    const char *layers, *dim, *heads, *kv_heads, *head_dim, *ffn_dim, *context, *norm_eps;
    const char *activation, *dropout_attention, *dropout_residual, *dropout_embedding;
} arch_keys;
extern const arch_keys arch_keys_llama; // shared by all that follow Llama

// One tensor of a file. `ours` is a weight or a part of one; "layers.#." stands for every layer.
// `theirs` comes after the prefix.
typedef struct arch_tensor {
    const char *ours, *theirs;
    bool transposed; // stored (columns, rows)
} arch_tensor;

typedef struct model_arch {
    const char *name;           // spec.arch, and model_type in config.json
    const char *causal_class;   // in "architectures": the model with its head
    const char *base_class;     // without it; its files lack the prefix
    const char *prefix;         // of tensors' names: "model."
    const arch_tensor *tensors; // ends with an empty row
    const char *const *buffers; // ends of names of tensors that hold no weights; NULL at the end
    const arch_keys *keys;
    model_norm norm;
    model_mlp mlp;
    model_position position;
    arch_bias attention_bias, mlp_bias;
    arch_windows windows;
    bool qk_norm;
    // What transformers takes where config.json is silent.
    bool tied;
    int64_t kv_heads; // 0: heads
    int64_t head_dim; // 0: dim / heads
    int64_t window;   // 0: none
    const char *activation;
    double norm_eps, dropout;
    int32_t bos_token, eos_token;
} model_arch;

extern const model_arch model_arch_gpt2;
extern const model_arch model_arch_llama;
extern const model_arch model_arch_mistral;
extern const model_arch model_arch_qwen2;
extern const model_arch model_arch_qwen3;

extern const arch_tensor arch_tensors_llama[]; // shared by all that follow Llama
extern const char *const arch_buffers_llama[];

const model_arch *model_arch_at(int64_t index);          // NULL past the end
const model_arch *model_arch_find(const char *name);     // by model type; NULL: unknown
const model_arch *model_arch_of_class(const char *name); // "LlamaForCausalLM"; NULL: unknown
// Fails with the nearest known model type; `where` stands before it.
status model_arch_unknown(const char *where, const char *name);

// What follows from the architecture alone; sizes are 0, tokens none.
decoder_spec model_arch_spec(const model_arch *arch);

// Activation words of config.json. False: not one that we have.
bool model_activation_parse(const char *name, op_activation *out);
const char *model_activation_name(op_activation activation);
// The names that model_activation_parse knows, for errors.
extern const char model_activation_names[];

extern const char *const model_rope_names[]; // rope_type of each model_rope_kind; NULL at the end

#endif
