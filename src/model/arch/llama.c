// Llama 1, 2, 3 and 3.1, and models with the same architecture: RMSNorm, rotary positions, gated
// SiLU, grouped queries. Sources: Touvron et al. 2023, arXiv:2302.13971 and 2307.09288; Dubey et
// al. 2024, arXiv:2407.21783. Mistral and Qwen have the same keys and tensors.
#include "model/arch/arch.h"

const arch_keys arch_keys_llama = {
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
};

const arch_tensor arch_tensors_llama[] = {
    {"embed.tokens", "embed_tokens.weight", ARCH_PLAIN},
    {"norm.weight", "norm.weight", ARCH_PLAIN},
    {"layers.#.attn_norm.weight", "layers.#.input_layernorm.weight", ARCH_PLAIN},
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
    {"layers.#.mlp_norm.weight", "layers.#.post_attention_layernorm.weight", ARCH_PLAIN},
    {"layers.#.mlp.gate", "layers.#.mlp.gate_proj.weight", ARCH_PLAIN},
    {"layers.#.mlp.up", "layers.#.mlp.up_proj.weight", ARCH_PLAIN},
    {"layers.#.mlp.gate.bias", "layers.#.mlp.gate_proj.bias", ARCH_PLAIN},
    {"layers.#.mlp.up.bias", "layers.#.mlp.up_proj.bias", ARCH_PLAIN},
    {"layers.#.mlp.down", "layers.#.mlp.down_proj.weight", ARCH_PLAIN},
    {"layers.#.mlp.down.bias", "layers.#.mlp.down_proj.bias", ARCH_PLAIN},
    {NULL, NULL, ARCH_PLAIN},
};

const char *const arch_buffers_llama[] = {"rotary_emb.inv_freq", NULL};

const model_arch model_arch_llama = {
    .name = "llama",
    .causal_class = "LlamaForCausalLM",
    .scores_class = "LlamaForSequenceClassification",
    .base_class = "LlamaModel",
    .prefix = "model.",
    .tensors = arch_tensors_llama,
    .buffers = arch_buffers_llama,
    .keys = &arch_keys_llama,
    .norm = MODEL_RMSNORM,
    .mlp = MODEL_MLP_SWIGLU,
    .position = MODEL_POSITION_ROPE,
    .attention_bias = ARCH_BIAS_KEY,
    .mlp_bias = ARCH_BIAS_KEY,
    .activation = "silu",
    .norm_eps = 1e-6,
    .bos_token = 1,
    .eos_token = 2,
    .pads = true,
    .pad_token = -1,
};
