// Mixtral: Mistral with experts in place of every MLP. Source: Jiang et al. 2024, arXiv:2401.04088.
// The weights of the experts that a token uses add up to 1.
#include "model/arch/arch.h"

static const arch_keys keys = {
    .layers = "num_hidden_layers",
    .dim = "hidden_size",
    .heads = "num_attention_heads",
    .kv_heads = "num_key_value_heads",
    .head_dim = "head_dim",
    .ffn_dim = "intermediate_size",
    .context = "max_position_embeddings",
    .norm_eps = "rms_norm_eps",
    .activation = "hidden_act",
    .dropout_attention = "attention_dropout",
    .experts = "num_local_experts",
    .experts_per_token = "num_experts_per_tok",
};

static const arch_tensor experts[] = {
    {"layers.#.mlp.router", "layers.#.block_sparse_moe.gate.weight", ARCH_PLAIN},
    {"layers.#.mlp.experts.gate_up", "layers.#.block_sparse_moe.experts.@.w1.weight", ARCH_PLAIN},
    {"layers.#.mlp.experts.gate_up", "layers.#.block_sparse_moe.experts.@.w3.weight", ARCH_PLAIN},
    {"layers.#.mlp.experts.down", "layers.#.block_sparse_moe.experts.@.w2.weight", ARCH_PLAIN},
    {NULL, NULL, ARCH_PLAIN},
};

const model_arch model_arch_mixtral = {
    .name = "mixtral",
    .causal_class = "MixtralForCausalLM",
    .scores_class = "MixtralForSequenceClassification",
    .base_class = "MixtralModel",
    .prefix = "model.",
    .tensors = arch_tensors_llama,
    .experts = experts,
    .buffers = arch_buffers_llama,
    .keys = &keys,
    .norm = MODEL_RMSNORM,
    .mlp = MODEL_MLP_SWIGLU,
    .position = MODEL_POSITION_ROPE,
    .attention_bias = ARCH_BIAS_NEVER,
    .mlp_bias = ARCH_BIAS_NEVER,
    .windows = ARCH_WINDOWS_ALL,
    .kv_heads = 8,
    .rope_theta = 1e6,
    .activation = "silu",
    .norm_eps = 1e-5,
    .bos_token = 1,
    .eos_token = 2,
    .pads = true,
    .pad_token = -1,
};
