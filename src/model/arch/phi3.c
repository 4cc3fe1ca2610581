// Phi-3: Llama whose files fuse the projections of queries, keys and values, and those of gate and
// up; long contexts by LongRoPE. Phi-4-mini is of this type, and its positions turn three quarters
// of each head. Sources: Abdin et al. 2024, arXiv:2404.14219; Microsoft 2025, arXiv:2503.01743.
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
    .dropout_residual = "resid_pdrop",
    .dropout_embedding = "embd_pdrop",
    .rotary = "partial_rotary_factor",
};

static const arch_tensor tensors[] = {
    {"embed.tokens", "embed_tokens.weight", ARCH_PLAIN},
    {"norm.weight", "norm.weight", ARCH_PLAIN},
    {"layers.#.attn_norm.weight", "layers.#.input_layernorm.weight", ARCH_PLAIN},
    {"layers.#.attn.qkv", "layers.#.self_attn.qkv_proj.weight", ARCH_PLAIN},
    {"layers.#.attn.out", "layers.#.self_attn.o_proj.weight", ARCH_PLAIN},
    {"layers.#.mlp_norm.weight", "layers.#.post_attention_layernorm.weight", ARCH_PLAIN},
    {"layers.#.mlp.gate_up", "layers.#.mlp.gate_up_proj.weight", ARCH_PLAIN},
    {"layers.#.mlp.down", "layers.#.mlp.down_proj.weight", ARCH_PLAIN},
    {NULL, NULL, ARCH_PLAIN},
};

const model_arch model_arch_phi3 = {
    .name = "phi3",
    .causal_class = "Phi3ForCausalLM",
    .scores_class = "Phi3ForSequenceClassification",
    .base_class = "Phi3Model",
    .prefix = "model.",
    .tensors = tensors,
    .buffers = arch_buffers_llama,
    .keys = &keys,
    .norm = MODEL_RMSNORM,
    .mlp = MODEL_MLP_SWIGLU,
    .position = MODEL_POSITION_ROPE,
    .attention_bias = ARCH_BIAS_NEVER,
    .mlp_bias = ARCH_BIAS_NEVER,
    .windows = ARCH_WINDOWS_ALL,
    .rope_at_root = true,
    .original_context = 4096,
    .activation = "silu",
    .norm_eps = 1e-5,
    .bos_token = 1,
    .eos_token = 32000,
    .pads = true,
    .pad_token = 32000,
};
