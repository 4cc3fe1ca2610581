// OLMoE: Llama with experts in every layer and a norm over all queries and all keys of a token.
// Source: Muennighoff et al. 2024, arXiv:2409.02060.
#include "model/arch/arch.h"

static const arch_keys keys = {
    .layers = "num_hidden_layers",
    .dim = "hidden_size",
    .heads = "num_attention_heads",
    .kv_heads = "num_key_value_heads",
    .ffn_dim = "intermediate_size",
    .context = "max_position_embeddings",
    .norm_eps = "rms_norm_eps",
    .activation = "hidden_act",
    .dropout_attention = "attention_dropout",
    .experts = "num_experts",
    .experts_per_token = "num_experts_per_tok",
    .weights_sum = "norm_topk_prob",
    .clip = "clip_qkv",
};

static const arch_tensor experts[] = {
    {"layers.#.mlp.router", "layers.#.mlp.gate.weight", ARCH_PLAIN},
    {"layers.#.mlp.experts.gate_up", "layers.#.mlp.experts.@.gate_proj.weight", ARCH_PLAIN},
    {"layers.#.mlp.experts.gate_up", "layers.#.mlp.experts.@.up_proj.weight", ARCH_PLAIN},
    {"layers.#.mlp.experts.down", "layers.#.mlp.experts.@.down_proj.weight", ARCH_PLAIN},
    {NULL, NULL, ARCH_PLAIN},
};

const model_arch model_arch_olmoe = {
    .name = "olmoe",
    .causal_class = "OlmoeForCausalLM",
    .base_class = "OlmoeModel",
    .prefix = "model.",
    .tensors = arch_tensors_llama,
    .experts = experts,
    .buffers = arch_buffers_llama,
    .keys = &keys,
    .norm = MODEL_RMSNORM,
    .mlp = MODEL_MLP_SWIGLU,
    .position = MODEL_POSITION_ROPE,
    .attention_bias = ARCH_BIAS_KEY,
    .mlp_bias = ARCH_BIAS_NEVER,
    .qk_norm = true,
    .qk_norm_whole = true,
    .activation = "silu",
    .norm_eps = 1e-5,
    .bos_token = -1,
    .eos_token = 50279,
    .pads = true,
    .pad_token = 1,
};
