// Qwen 3: Llama with a norm over each head of queries and keys, an explicit head size, windows by
// layer. Source: Yang et al. 2025, arXiv:2505.09388.
#include "model/arch/arch.h"

const model_arch model_arch_qwen3 = {
    .name = "qwen3",
    .causal_class = "Qwen3ForCausalLM",
    .scores_class = "Qwen3ForSequenceClassification",
    .base_class = "Qwen3Model",
    .prefix = "model.",
    .tensors = arch_tensors_llama,
    .buffers = arch_buffers_llama,
    .keys = &arch_keys_llama,
    .norm = MODEL_RMSNORM,
    .mlp = MODEL_MLP_SWIGLU,
    .position = MODEL_POSITION_ROPE,
    .attention_bias = ARCH_BIAS_KEY,
    .mlp_bias = ARCH_BIAS_NEVER,
    .windows = ARCH_WINDOWS_BY_LAYER,
    .qk_norm = true,
    .kv_heads = 32,
    .head_dim = 128,
    .window = 4096,
    .activation = "silu",
    .norm_eps = 1e-6,
    .bos_token = -1,
    .eos_token = -1,
    .pads = true,
    .pad_token = -1,
};
