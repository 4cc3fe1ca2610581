// Qwen 1.5 and 2 with experts: Qwen 2 whose layers have experts and one wide shared expert, which a
// gate scales for each token. Source: Yang et al. 2024, arXiv:2407.10671.
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
    .expert_ffn_dim = "moe_intermediate_size",
    .every = "decoder_sparse_step",
    .dense_layers = "mlp_only_layers",
    .weights_sum = "norm_topk_prob",
    .shared_ffn_dim = "shared_expert_intermediate_size",
    .input_bias = "qkv_bias",
};

static const arch_tensor experts[] = {
    {"layers.#.mlp.router", "layers.#.mlp.gate.weight", ARCH_PLAIN},
    {"layers.#.mlp.experts.gate_up", "layers.#.mlp.experts.@.gate_proj.weight", ARCH_PLAIN},
    {"layers.#.mlp.experts.gate_up", "layers.#.mlp.experts.@.up_proj.weight", ARCH_PLAIN},
    {"layers.#.mlp.experts.down", "layers.#.mlp.experts.@.down_proj.weight", ARCH_PLAIN},
    {"layers.#.mlp.shared.gate", "layers.#.mlp.shared_expert.gate_proj.weight", ARCH_PLAIN},
    {"layers.#.mlp.shared.up", "layers.#.mlp.shared_expert.up_proj.weight", ARCH_PLAIN},
    {"layers.#.mlp.shared.down", "layers.#.mlp.shared_expert.down_proj.weight", ARCH_PLAIN},
    {"layers.#.mlp.shared_gate", "layers.#.mlp.shared_expert_gate.weight", ARCH_PLAIN},
    {NULL, NULL, ARCH_PLAIN},
};

const model_arch model_arch_qwen2_moe = {
    .name = "qwen2_moe",
    .causal_class = "Qwen2MoeForCausalLM",
    .scores_class = "Qwen2MoeForSequenceClassification",
    .base_class = "Qwen2MoeModel",
    .prefix = "model.",
    .tensors = arch_tensors_llama,
    .experts = experts,
    .buffers = arch_buffers_llama,
    .keys = &keys,
    .norm = MODEL_RMSNORM,
    .mlp = MODEL_MLP_SWIGLU,
    .position = MODEL_POSITION_ROPE,
    .attention_bias = ARCH_BIAS_INPUT_KEY,
    .attention_biased = true,
    .mlp_bias = ARCH_BIAS_NEVER,
    .windows = ARCH_WINDOWS_BY_LAYER,
    .shared_gate = true,
    .kv_heads = 16,
    .window = 4096,
    .activation = "silu",
    .norm_eps = 1e-6,
    .bos_token = -1,
    .eos_token = -1,
    .pads = true,
    .pad_token = -1,
};
