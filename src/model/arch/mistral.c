// Mistral: Llama with a sliding window on every layer. Source: Jiang et al. 2023, arXiv:2310.06825.
#include "model/arch/arch.h"

const model_arch model_arch_mistral = {
    .name = "mistral",
    .causal_class = "MistralForCausalLM",
    .scores_class = "MistralForSequenceClassification",
    .base_class = "MistralModel",
    .prefix = "model.",
    .tensors = arch_tensors_llama,
    .buffers = arch_buffers_llama,
    .keys = &arch_keys_llama,
    .norm = MODEL_RMSNORM,
    .mlp = MODEL_MLP_SWIGLU,
    .position = MODEL_POSITION_ROPE,
    .attention_bias = ARCH_BIAS_NEVER,
    .mlp_bias = ARCH_BIAS_NEVER,
    .windows = ARCH_WINDOWS_ALL,
    .kv_heads = 8,
    .window = 4096,
    .activation = "silu",
    .norm_eps = 1e-6,
    .bos_token = 1,
    .eos_token = 2,
    .pads = true,
    .pad_token = -1,
};
