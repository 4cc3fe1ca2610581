// DeepSeek-V2 and V3: latent attention, dense layers at the bottom, shared experts, experts from
// the best groups. V2 weights experts by a softmax; V3 by sigmoids, with a bias for the choice
// alone.
// Sources: DeepSeek-AI 2024, arXiv:2405.04434 and 2412.19437.
//
// The block for the token after the next, which V3's files may have, is not part of the model here
// or in transformers.
#include "model/arch/arch.h"

static const arch_keys keys2 = {
    .layers = "num_hidden_layers",
    .dim = "hidden_size",
    .heads = "num_attention_heads",
    .kv_heads = "num_key_value_heads",
    .ffn_dim = "intermediate_size",
    .context = "max_position_embeddings",
    .norm_eps = "rms_norm_eps",
    .activation = "hidden_act",
    .dropout_attention = "attention_dropout",
    .experts = "n_routed_experts",
    .experts_per_token = "num_experts_per_tok",
    .expert_ffn_dim = "moe_intermediate_size",
    .every = "moe_layer_freq",
    .dense_first = "first_k_dense_replace",
    .shared = "n_shared_experts",
    .groups = "n_group",
    .top_groups = "topk_group",
    .router_scale = "routed_scaling_factor",
};

static const arch_keys keys3 = {
    .layers = "num_hidden_layers",
    .dim = "hidden_size",
    .heads = "num_attention_heads",
    .kv_heads = "num_key_value_heads",
    .ffn_dim = "intermediate_size",
    .context = "max_position_embeddings",
    .norm_eps = "rms_norm_eps",
    .activation = "hidden_act",
    .dropout_attention = "attention_dropout",
    .experts = "n_routed_experts",
    .experts_per_token = "num_experts_per_tok",
    .expert_ffn_dim = "moe_intermediate_size",
    .every = "moe_layer_freq",
    .dense_first = "first_k_dense_replace",
    .shared = "n_shared_experts",
    .groups = "n_group",
    .top_groups = "topk_group",
    .router_scale = "routed_scaling_factor",
    .weights_sum = "norm_topk_prob",
};

static const arch_tensor tensors[] = {
    {"embed.tokens", "embed_tokens.weight", ARCH_PLAIN},
    {"norm.weight", "norm.weight", ARCH_PLAIN},
    {"layers.#.attn_norm.weight", "layers.#.input_layernorm.weight", ARCH_PLAIN},
    {"layers.#.attn.q_a", "layers.#.self_attn.q_a_proj.weight", ARCH_PLAIN},
    {"layers.#.attn.q_a_norm", "layers.#.self_attn.q_a_layernorm.weight", ARCH_PLAIN},
    {"layers.#.attn.q_b", "layers.#.self_attn.q_b_proj.weight", ARCH_PLAIN},
    {"layers.#.attn.q", "layers.#.self_attn.q_proj.weight", ARCH_PLAIN}, // without a narrow row
    {"layers.#.attn.kv_a", "layers.#.self_attn.kv_a_proj_with_mqa.weight", ARCH_PLAIN},
    {"layers.#.attn.kv_a_norm", "layers.#.self_attn.kv_a_layernorm.weight", ARCH_PLAIN},
    {"layers.#.attn.kv_b", "layers.#.self_attn.kv_b_proj.weight", ARCH_PLAIN},
    {"layers.#.attn.out", "layers.#.self_attn.o_proj.weight", ARCH_PLAIN},
    {"layers.#.mlp_norm.weight", "layers.#.post_attention_layernorm.weight", ARCH_PLAIN},
    {"layers.#.mlp.gate", "layers.#.mlp.gate_proj.weight", ARCH_PLAIN},
    {"layers.#.mlp.up", "layers.#.mlp.up_proj.weight", ARCH_PLAIN},
    {"layers.#.mlp.down", "layers.#.mlp.down_proj.weight", ARCH_PLAIN},
    {NULL, NULL, ARCH_PLAIN},
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
    {NULL, NULL, ARCH_PLAIN},
};

const model_arch model_arch_deepseek_v2 = {
    .name = "deepseek_v2",
    .causal_class = "DeepseekV2ForCausalLM",
    .base_class = "DeepseekV2Model",
    .keys = &keys2,
    .unscaled = true,
    .router_scale = 1.0,
    .prefix = "model.",
    .tensors = tensors,
    .experts = experts,
    .buffers = arch_buffers_llama,
    .norm = MODEL_RMSNORM,
    .mlp = MODEL_MLP_SWIGLU,
    .position = MODEL_POSITION_ROPE,
    .attention_bias = ARCH_BIAS_NEVER,
    .mlp_bias = ARCH_BIAS_NEVER,
    .latent = true,
    .activation = "silu",
    .norm_eps = 1e-6,
    .bos_token = 1,
    .eos_token = 2,
    .pads = true,
    .pad_token = -1,
};

const model_arch model_arch_deepseek_v3 = {
    .name = "deepseek_v3",
    .causal_class = "DeepseekV3ForCausalLM",
    .base_class = "DeepseekV3Model",
    .keys = &keys3,
    .quantized = true,
    .sigmoid = true,
    .correction = true,
    .group_pairs = true,
    .groups = 8,
    .top_groups = 4,
    .dense_first = 3,
    .router_scale = 2.5,
    .prefix = "model.",
    .tensors = tensors,
    .experts = experts,
    .buffers = arch_buffers_llama,
    .norm = MODEL_RMSNORM,
    .mlp = MODEL_MLP_SWIGLU,
    .position = MODEL_POSITION_ROPE,
    .attention_bias = ARCH_BIAS_NEVER,
    .mlp_bias = ARCH_BIAS_NEVER,
    .latent = true,
    .activation = "silu",
    .norm_eps = 1e-6,
    .bos_token = 0,
    .eos_token = 1,
    .pads = true,
    .pad_token = -1,
};
