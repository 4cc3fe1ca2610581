// OLMo 2: Llama with norms of the results of attention and MLP instead of their inputs, and a norm
// over all queries and all keys of a token. Source: OLMo team 2025, arXiv:2501.00656.
#include "model/arch/arch.h"

static const arch_tensor tensors[] = {
    {"embed.tokens", "embed_tokens.weight", ARCH_PLAIN},
    {"norm.weight", "norm.weight", ARCH_PLAIN},
    {"layers.#.attn.q", "layers.#.self_attn.q_proj.weight", ARCH_PLAIN},
    {"layers.#.attn.k", "layers.#.self_attn.k_proj.weight", ARCH_PLAIN},
    {"layers.#.attn.v", "layers.#.self_attn.v_proj.weight", ARCH_PLAIN},
    {"layers.#.attn.q.bias", "layers.#.self_attn.q_proj.bias", ARCH_PLAIN},
    {"layers.#.attn.k.bias", "layers.#.self_attn.k_proj.bias", ARCH_PLAIN},
    {"layers.#.attn.v.bias", "layers.#.self_attn.v_proj.bias", ARCH_PLAIN},
    {"layers.#.attn.q_norm", "layers.#.self_attn.q_norm.weight", ARCH_PLAIN},
    {"layers.#.attn.k_norm", "layers.#.self_attn.k_norm.weight", ARCH_PLAIN},
    {"layers.#.attn.out", "layers.#.self_attn.o_proj.weight", ARCH_PLAIN},
    {"layers.#.attn.out.bias", "layers.#.self_attn.o_proj.bias", ARCH_PLAIN},
    {"layers.#.attn_post_norm.weight", "layers.#.post_attention_layernorm.weight", ARCH_PLAIN},
    {"layers.#.mlp.gate", "layers.#.mlp.gate_proj.weight", ARCH_PLAIN},
    {"layers.#.mlp.up", "layers.#.mlp.up_proj.weight", ARCH_PLAIN},
    {"layers.#.mlp.down", "layers.#.mlp.down_proj.weight", ARCH_PLAIN},
    {"layers.#.mlp_post_norm.weight", "layers.#.post_feedforward_layernorm.weight", ARCH_PLAIN},
    {NULL, NULL, ARCH_PLAIN},
};

const model_arch model_arch_olmo2 = {
    .name = "olmo2",
    .causal_class = "Olmo2ForCausalLM",
    .scores_class = "Olmo2ForSequenceClassification",
    .base_class = "Olmo2Model",
    .prefix = "model.",
    .tensors = tensors,
    .buffers = arch_buffers_llama,
    .keys = &arch_keys_llama,
    .norm = MODEL_RMSNORM,
    .norm_place = MODEL_NORM_AFTER,
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
