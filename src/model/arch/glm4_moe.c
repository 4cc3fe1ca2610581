// GLM-4.5: attention like Llama's or Qwen 3's with the experts and routers of DeepSeek-V3:
// sigmoids, a bias for the choice alone, groups, shared experts and dense layers at the bottom.
// Source: GLM-4.5 Team 2025, arXiv:2508.06471.
//
// Models that are given by sizes and have a part of this, such as a bias that balances experts, are
// of this type. Softmax scores, which the type lacks elsewhere, have a key of their own here.
// Positions turn half of each head, unless config.json says otherwise.
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
    .experts = "n_routed_experts",
    .experts_per_token = "num_experts_per_tok",
    .expert_ffn_dim = "moe_intermediate_size",
    .dense_first = "first_k_dense_replace",
    .shared = "n_shared_experts",
    .groups = "n_group",
    .top_groups = "topk_group",
    .router_scale = "routed_scaling_factor",
    .weights_sum = "norm_topk_prob",
    .score = "scoring_func",
    .qk_norm = "use_qk_norm",
    .rotary = "partial_rotary_factor",
    .input_bias = "attention_bias",
    .next_layers = "num_nextn_predict_layers",
};

static const arch_tensor experts[] = {
    {"layers.#.mlp.router", "layers.#.mlp.gate.weight", ARCH_PLAIN},
    {"layers.#.mlp.experts.gate_up", "layers.#.mlp.experts.@.gate_proj.weight", ARCH_PLAIN},
    {"layers.#.mlp.experts.gate_up", "layers.#.mlp.experts.@.up_proj.weight", ARCH_PLAIN},
    {"layers.#.mlp.experts.down", "layers.#.mlp.experts.@.down_proj.weight", ARCH_PLAIN},
    {"layers.#.mlp.shared.gate", "layers.#.mlp.shared_experts.gate_proj.weight", ARCH_PLAIN},
    {"layers.#.mlp.shared.up", "layers.#.mlp.shared_experts.up_proj.weight", ARCH_PLAIN},
    {"layers.#.mlp.shared.down", "layers.#.mlp.shared_experts.down_proj.weight", ARCH_PLAIN},
    {"layers.#.mlp.router.correction", "layers.#.mlp.gate.e_score_correction_bias", ARCH_PLAIN},
    // The layer that predicts the token after the next has these.
    {"layers.#.enorm.weight", "layers.#.enorm.weight", ARCH_PLAIN},
    {"layers.#.hnorm.weight", "layers.#.hnorm.weight", ARCH_PLAIN},
    {"layers.#.eh_proj", "layers.#.eh_proj.weight", ARCH_PLAIN},
    {"layers.#.shared_head.norm.weight", "layers.#.shared_head.norm.weight", ARCH_PLAIN},
    {NULL, NULL, ARCH_PLAIN},
};

const model_arch model_arch_glm4_moe = {
    .name = "glm4_moe",
    .causal_class = "Glm4MoeForCausalLM",
    .base_class = "Glm4MoeModel",
    .prefix = "model.",
    .tensors = arch_tensors_llama,
    .experts = experts,
    .buffers = arch_buffers_llama,
    .keys = &keys,
    .norm = MODEL_RMSNORM,
    .mlp = MODEL_MLP_SWIGLU,
    .position = MODEL_POSITION_ROPE,
    .attention_bias = ARCH_BIAS_INPUT_KEY,
    .mlp_bias = ARCH_BIAS_NEVER,
    .sigmoid = true,
    .correction = true,
    .group_pairs = true,
    .groups = 1,
    .top_groups = 1,
    .dense_first = 1,
    .router_scale = 1.0,
    .rotary_share = 0.5,
    .kv_heads = 8,
    .head_dim = 128,
    .activation = "silu",
    .norm_eps = 1e-5,
    .bos_token = -1,
    .eos_token = -1,
    .pads = true,
    .pad_token = -1,
};
