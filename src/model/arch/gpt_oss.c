// gpt-oss: experts in every layer, with biases and a clamped gate; attention with sinks, a window
// in every second layer and YaRN. Source: OpenAI 2025, arXiv:2508.10925. The softmax of its router
// is over the chosen experts alone, which is a softmax whose chosen weights add up to 1. Its
// published experts are MXFP4 (model/mxfp4.c).
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
    .gate_slope = "swiglu_alpha",
    .gate_limit = "swiglu_limit",
};

static const arch_tensor experts[] = {
    {"layers.#.attn.sinks", "layers.#.self_attn.sinks", ARCH_PLAIN},
    {"layers.#.mlp.router", "layers.#.mlp.router.weight", ARCH_PLAIN},
    {"layers.#.mlp.router.bias", "layers.#.mlp.router.bias", ARCH_PLAIN},
    {"layers.#.mlp.experts.gate_up", "layers.#.mlp.experts.gate_up_proj",
     ARCH_STACKED_PAIRED_TRANSPOSED},
    {"layers.#.mlp.experts.gate_up.bias", "layers.#.mlp.experts.gate_up_proj_bias",
     ARCH_STACKED_PAIRED},
    {"layers.#.mlp.experts.down", "layers.#.mlp.experts.down_proj", ARCH_STACKED_TRANSPOSED},
    {"layers.#.mlp.experts.down.bias", "layers.#.mlp.experts.down_proj_bias", ARCH_PLAIN},
    {NULL, NULL, ARCH_PLAIN},
};

const model_arch model_arch_gpt_oss = {
    .name = "gpt_oss",
    .causal_class = "GptOssForCausalLM",
    .scores_class = "GptOssForSequenceClassification",
    .base_class = "GptOssModel",
    .prefix = "model.",
    .tensors = arch_tensors_llama,
    .experts = experts,
    .buffers = arch_buffers_llama,
    .keys = &keys,
    .norm = MODEL_RMSNORM,
    .mlp = MODEL_MLP_SWIGLU,
    .position = MODEL_POSITION_ROPE,
    .attention_bias = ARCH_BIAS_KEY,
    .attention_biased = true,
    .mlp_bias = ARCH_BIAS_NEVER,
    .windows = ARCH_WINDOWS_PATTERN,
    .window_every = 2,
    .window = 128,
    .quantized = true,
    .sinks = true,
    .expert_bias = true,
    .gate_slope = 1.702,
    .gate_limit = 7.0,
    .kv_heads = 8,
    .head_dim = 64,
    .rope_theta = 150000.0,
    .activation = "silu",
    .norm_eps = 1e-5,
    .bos_token = -1,
    .eos_token = -1,
    .pads = true,
    .pad_token = -1,
};
