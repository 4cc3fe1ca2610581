// GPT-2: learned positions, LayerNorm with bias, a plain GELU MLP, biases everywhere, a tied head.
// Source: Radford et al. 2019. Its matrices are stored (in, out), with q, k and v in one.
#include "model/arch/arch.h"

static const arch_keys keys = {
    .layers = "n_layer",
    .dim = "n_embd",
    .heads = "n_head",
    .ffn_dim = "n_inner", // null: 4 n_embd
    .context = "n_positions",
    .norm_eps = "layer_norm_epsilon",
    .activation = "activation_function",
    .dropout_attention = "attn_pdrop",
    .dropout_residual = "resid_pdrop",
    .dropout_embedding = "embd_pdrop",
};

static const arch_tensor tensors[] = {
    {"embed.tokens", "wte.weight", ARCH_PLAIN},
    {"embed.positions", "wpe.weight", ARCH_PLAIN},
    {"norm.weight", "ln_f.weight", ARCH_PLAIN},
    {"norm.bias", "ln_f.bias", ARCH_PLAIN},
    {"layers.#.attn_norm.weight", "h.#.ln_1.weight", ARCH_PLAIN},
    {"layers.#.attn_norm.bias", "h.#.ln_1.bias", ARCH_PLAIN},
    {"layers.#.attn.qkv", "h.#.attn.c_attn.weight", ARCH_TRANSPOSED},
    {"layers.#.attn.qkv.bias", "h.#.attn.c_attn.bias", ARCH_PLAIN},
    {"layers.#.attn.out", "h.#.attn.c_proj.weight", ARCH_TRANSPOSED},
    {"layers.#.attn.out.bias", "h.#.attn.c_proj.bias", ARCH_PLAIN},
    {"layers.#.mlp_norm.weight", "h.#.ln_2.weight", ARCH_PLAIN},
    {"layers.#.mlp_norm.bias", "h.#.ln_2.bias", ARCH_PLAIN},
    {"layers.#.mlp.up", "h.#.mlp.c_fc.weight", ARCH_TRANSPOSED},
    {"layers.#.mlp.up.bias", "h.#.mlp.c_fc.bias", ARCH_PLAIN},
    {"layers.#.mlp.down", "h.#.mlp.c_proj.weight", ARCH_TRANSPOSED},
    {"layers.#.mlp.down.bias", "h.#.mlp.c_proj.bias", ARCH_PLAIN},
    {NULL, NULL, ARCH_PLAIN},
};

static const char *const buffers[] = {".attn.bias", ".attn.masked_bias", NULL};

const model_arch model_arch_gpt2 = {
    .name = "gpt2",
    .causal_class = "GPT2LMHeadModel",
    .scores_class = "GPT2ForSequenceClassification",
    .base_class = "GPT2Model",
    .prefix = "transformer.",
    .tensors = tensors,
    .buffers = buffers,
    .keys = &keys,
    .norm = MODEL_LAYERNORM,
    .mlp = MODEL_MLP_GELU,
    .position = MODEL_POSITION_LEARNED,
    .attention_bias = ARCH_BIAS_ALWAYS,
    .mlp_bias = ARCH_BIAS_ALWAYS,
    .tied = true,
    .activation = "gelu_new",
    .norm_eps = 1e-5,
    .dropout = 0.1,
    .bos_token = 50256,
    .eos_token = 50256,
};
