// Qwen 3 with experts: Qwen 3 with experts in place of the MLP, in every layer or in some. Source:
// Yang et al. 2025, arXiv:2505.09388.
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
    .experts = "num_experts",
    .experts_per_token = "num_experts_per_tok",
    .expert_ffn_dim = "moe_intermediate_size",
    .every = "decoder_sparse_step",
    .dense_layers = "mlp_only_layers",
    .weights_sum = "norm_topk_prob",
};

static const arch_tensor experts[] = {
    {"layers.#.mlp.router", "layers.#.mlp.gate.weight", ARCH_PLAIN},
    {"layers.#.mlp.experts.gate_up", "layers.#.mlp.experts.@.gate_proj.weight", ARCH_PLAIN},
    {"layers.#.mlp.experts.gate_up", "layers.#.mlp.experts.@.up_proj.weight", ARCH_PLAIN},
    {"layers.#.mlp.experts.down", "layers.#.mlp.experts.@.down_proj.weight", ARCH_PLAIN},
    {NULL, NULL, ARCH_PLAIN},
};

const model_arch model_arch_qwen3_moe = {
    .name = "qwen3_moe",
    .causal_class = "Qwen3MoeForCausalLM",
    .scores_class = "Qwen3MoeForSequenceClassification",
    .base_class = "Qwen3MoeModel",
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
    .windows = ARCH_WINDOWS_SWITCH,
    .qk_norm = true,
    .kv_heads = 4,
    .window = 4096,
    .activation = "silu",
    .norm_eps = 1e-6,
    .bos_token = -1,
    .eos_token = -1,
    .pads = true,
    .pad_token = -1,
};
