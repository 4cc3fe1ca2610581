// All architectures, and the strings that their config.json files share.
#include "base/text.h"
#include "model/arch/arch.h"
#include "model/spec.h"

#include <math.h>
#include <string.h>

static const model_arch *const table[] = {
    &model_arch_deepseek_v2, &model_arch_deepseek_v3, &model_arch_gemma2,
    &model_arch_gemma3_text, &model_arch_glm4_moe,    &model_arch_gpt2,
    &model_arch_gpt_oss,     &model_arch_llama,       &model_arch_mistral,
    &model_arch_mixtral,     &model_arch_olmo2,       &model_arch_olmoe,
    &model_arch_phi3,        &model_arch_qwen2,       &model_arch_qwen2_moe,
    &model_arch_qwen3,       &model_arch_qwen3_moe,
};

const model_arch *model_arch_at(int64_t index)
{
    return index >= 0 && index < COUNT_OF(table) ? table[index] : NULL;
}

const model_arch *model_arch_find(const char *name)
{
    for (int64_t i = 0; i < COUNT_OF(table); i++) {
        if (strcmp(table[i]->name, name) == 0) return table[i];
    }
    return NULL;
}

const model_arch *model_arch_of_class(const char *name)
{
    for (int64_t i = 0; i < COUNT_OF(table); i++) {
        const char *const names[] = {table[i]->causal_class, table[i]->base_class,
                                     table[i]->scores_class};
        for (int k = 0; k < COUNT_OF(names); k++) {
            if (names[k] != NULL && strcmp(names[k], name) == 0) return table[i];
        }
    }
    return NULL;
}

status model_arch_unknown(const char *where, const char *name)
{
    const char *names[COUNT_OF(table)];
    char known[256] = "";
    size_t used = 0;
    for (int64_t i = 0; i < COUNT_OF(table); i++) {
        names[i] = table[i]->name;
        const size_t length = strlen(names[i]);
        ASSERT(used + length + 3 < sizeof(known));
        if (i > 0) {
            memcpy(known + used, ", ", 2);
            used += 2;
        }
        memcpy(known + used, names[i], length + 1);
        used += length;
    }
    const char *near = text_nearest(name, names, COUNT_OF(names));
    if (near != NULL) {
        return fail(ST_MODEL, "%s: unknown model type \"%.64s\"; did you mean \"%s\"? known: %s",
                    where, name, near, known);
    }
    return fail(ST_MODEL, "%s: unknown model type \"%.64s\"; known: %s", where, name, known);
}

decoder_spec model_arch_spec(const model_arch *arch)
{
    decoder_spec s = {.arch = arch->name,
                      .norm = arch->norm,
                      .norm_place = arch->norm_place,
                      .norm_plus_one = arch->norm_plus_one,
                      .norm_eps = 1e-5f,
                      .mlp = arch->mlp,
                      .activation = ACT_SILU,
                      .position = arch->position,
                      .rope = model_rope_default(),
                      .tied = arch->tied,
                      .qkv_bias = arch->attention_bias == ARCH_BIAS_INPUT ||
                                  arch->attention_bias == ARCH_BIAS_ALWAYS,
                      .out_bias = arch->attention_bias == ARCH_BIAS_ALWAYS,
                      .mlp_bias = arch->mlp_bias == ARCH_BIAS_ALWAYS,
                      .norm_bias = arch->norm == MODEL_LAYERNORM,
                      .qk_norm = arch->qk_norm,
                      .qk_norm_whole = arch->qk_norm_whole,
                      .rope_interleaved = arch->latent,
                      .experts = {.sigmoid = arch->sigmoid,
                                  .correction = arch->correction,
                                  .group_pairs = arch->group_pairs,
                                  .bias = arch->expert_bias,
                                  .shared_gate = arch->shared_gate},
                      .sinks = arch->sinks,
                      .gate_slope = (float)arch->gate_slope,
                      .gate_limit = (float)arch->gate_limit,
                      .rope_local_theta = arch->rope_local_theta,
                      .attention_scalar = arch->attention_scalar,
                      .attention_cap = (float)arch->attention_cap,
                      .logit_cap = (float)arch->logit_cap,
                      .init_std = 0.02f,
                      .bos_token = -1,
                      .pad_token = -1};
    (void)model_activation_parse(arch->activation, &s.activation);
    return s;
}

void model_arch_sized(const model_arch *arch, decoder_spec *s)
{
    if (arch->embed_scaled) s->embed_scale = (float)sqrt((double)s->dim);
}

static const struct {
    const char *name;
    op_activation activation;
} activations[] = {
    // The first name of each is the one that is written.
    {"gelu_new", ACT_GELU_TANH},   {"gelu_pytorch_tanh", ACT_GELU_TANH},
    {"gelu_fast", ACT_GELU_TANH},  {"gelu", ACT_GELU_ERF},
    {"gelu_python", ACT_GELU_ERF}, {"silu", ACT_SILU},
    {"swish", ACT_SILU},           {"relu", ACT_RELU},
};
const char model_activation_names[] =
    "gelu_new, gelu_pytorch_tanh, gelu_fast, gelu, gelu_python, silu, swish, relu";

bool model_activation_parse(const char *name, op_activation *out)
{
    for (int64_t i = 0; i < COUNT_OF(activations); i++) {
        if (strcmp(activations[i].name, name) == 0) {
            *out = activations[i].activation;
            return true;
        }
    }
    return false;
}

const char *model_activation_name(op_activation activation)
{
    for (int64_t i = 0; i < COUNT_OF(activations); i++) {
        if (activations[i].activation == activation) return activations[i].name;
    }
    return "none";
}

const char *const model_rope_names[] = {
    "default", "linear", "dynamic", "llama3", "yarn", "longrope", NULL,
};
