// Inside model/: limits of sizes, and what the readers of a spec share.
#ifndef MODEL_SPEC_H
#define MODEL_SPEC_H

#include "model/model.h"

#include <math.h>

#define MODEL_ABSENT ((double)NAN) // an option of rotary positions that is not given

// A config.json beyond this is none.
enum { MODEL_CONFIG_BYTES = 1 << 24 };

typedef struct model_limits {
    int64_t min, max; // inclusive
} model_limits;
// As in the option table of a run; head_dim is what attention kernels take.
static const model_limits model_limits_layers = {1, 10000};
static const model_limits model_limits_dim = {1, 1 << 20};
static const model_limits model_limits_heads = {1, 1 << 16};
static const model_limits model_limits_head_dim = {1, 256};
static const model_limits model_limits_ffn = {1, 1 << 22};
static const model_limits model_limits_vocab = {1, 1 << 24};
static const model_limits model_limits_context = {1, 1 << 24};

// Files of models with experts (spec_hf_experts.c): is this one, by its model_type; and what it
// says.
bool model_hf_has_experts(const json *root);
NODISCARD status model_spec_from_hf_experts(arena *a, const json *root, const char *name,
                                            decoder_spec *out);

// Theta 10000, nothing else: numbers absent, truncate true.
model_rope model_rope_default(void);

#endif
