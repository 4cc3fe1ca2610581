// Limits of sizes and shared helpers of the spec readers. Internal to model/.
#ifndef MODEL_SPEC_H
#define MODEL_SPEC_H

#include "model/model.h"

#include <math.h>

#define MODEL_ABSENT ((double)NAN) // an option of rotary positions that is absent

// A larger config.json is refused.
enum { MODEL_CONFIG_BYTES = 1 << 24 };

typedef struct model_limits {
    int64_t min, max; // inclusive
} model_limits;
// The limits of a run's option table; head_dim is limited by the attention kernels.
static const model_limits model_limits_layers = {1, 10000};
static const model_limits model_limits_dim = {1, 1 << 20};
static const model_limits model_limits_heads = {1, 1 << 16};
static const model_limits model_limits_head_dim = {1, 256};
static const model_limits model_limits_ffn = {1, 1 << 22};
static const model_limits model_limits_experts = {1, 1 << 16};
static const model_limits model_limits_vocab = {1, 1 << 24};
static const model_limits model_limits_context = {1, 1 << 24};

// Models with experts (spec_hf_experts.c): recognizes such a file by its model_type, and reads it.
bool model_hf_has_experts(const json *root);
NODISCARD status model_spec_from_hf_experts(arena *a, const json *root, const char *name,
                                            decoder_spec *out);

// Turns Llama and Mistral with experts into Mixtral, and Qwen 3 with experts into its own type,
// where their files can hold the model.
void model_experts_arch(decoder_spec *s);

// Whether the biases of attention are at most those of q, k and v.
bool model_bias_is_of_input(const decoder_spec *s);

// Theta 10000, truncate true, all other numbers absent.
model_rope model_rope_default(void);

#endif
