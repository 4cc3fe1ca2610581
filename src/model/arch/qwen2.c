// Qwen 2 and 2.5: Llama with biases on q, k and v, and windows by layer. Source: Yang et al. 2024,
// arXiv:2407.10671.
#include "model/arch/arch.h"

const model_arch model_arch_qwen2 = {
    .name = "qwen2",
    .causal_class = "Qwen2ForCausalLM",
    .scores_class = "Qwen2ForSequenceClassification",
    .base_class = "Qwen2Model",
    .prefix = "model.",
    .tensors = arch_tensors_llama,
    .buffers = arch_buffers_llama,
    .keys = &arch_keys_llama,
    .norm = MODEL_RMSNORM,
    .mlp = MODEL_MLP_SWIGLU,
    .position = MODEL_POSITION_ROPE,
    .attention_bias = ARCH_BIAS_INPUT,
    .mlp_bias = ARCH_BIAS_NEVER,
    .windows = ARCH_WINDOWS_BY_LAYER,
    .kv_heads = 32,
    .window = 4096,
    .activation = "silu",
    .norm_eps = 1e-6,
    .bos_token = -1,
    .eos_token = -1,
    .pads = true,
    .pad_token = -1,
};
