// Writes a decoder_spec as a Hugging Face config.json that reads back to an equal spec.
//
// Rotary positions have the older spelling (rope_theta, rope_scaling), which transformers 4 and 5
// both read. Keys that only repeat a default are left out.
#include "base/text.h"
#include "model/arch/arch.h"
#include "model/spec.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Formats the shortest text that reads back as the same number, always with a point or an exponent
// for floats, because strict readers refuse an integer there.
static const char *number(double value, bool is_float, char buffer[40])
{
    for (int digits = is_float ? 6 : 15; digits <= 17; digits++) {
        snprintf(buffer, 40, "%.*g", digits, value);
        const double back = strtod(buffer, NULL);
        if (is_float ? (float)back == (float)value : back == value) break;
    }
    if (strpbrk(buffer, ".e") == NULL) {
        const size_t used = strlen(buffer);
        snprintf(buffer + used, 40 - used, ".0");
    }
    return buffer;
}

const char *model_dtype_name(dtype type)
{
    if (type == DTYPE_F32) return "float32";
    if (type == DTYPE_BF16) return "bfloat16";
    return type == DTYPE_F16 ? "float16" : NULL;
}

static status add_int(text *t, const char *key, int64_t value)
{
    return key == NULL ? ST_OK : text_add(t, ",\n  \"%s\": %lld", key, (long long)value);
}

static status add_bool(text *t, const char *key, bool value)
{
    return text_add(t, ",\n  \"%s\": %s", key, value ? "true" : "false");
}

static status add_float(text *t, const char *key, float value)
{
    char buffer[40];
    if (key == NULL) return ST_OK;
    return text_add(t, ",\n  \"%s\": %s", key, number((double)value, true, buffer));
}

static status add_token(text *t, const char *key, int32_t token)
{
    return token < 0 ? text_add(t, ",\n  \"%s\": null", key) : add_int(t, key, token);
}

status model_ends_add(text *t, const model_ends *ends)
{
    if (ends->count < 2) return add_token(t, "eos_token_id", ends->count == 1 ? ends->ids[0] : -1);
    for (int i = 0; i < ends->count; i++) {
        TRY(text_add(t, i == 0 ? ",\n  \"eos_token_id\": [%d" : ", %d", ends->ids[i]));
    }
    return text_add(t, "]");
}

static status sizes_add(const model_arch *arch, const decoder_spec *s, text *t)
{
    const arch_keys *k = arch->keys;
    TRY(add_int(t, "vocab_size", s->vocab));
    TRY(add_int(t, k->layers, s->layers));
    TRY(add_int(t, k->dim, s->dim));
    TRY(add_int(t, k->heads, s->heads));
    TRY(add_int(t, k->kv_heads, s->kv_heads));
    TRY(add_int(t, k->head_dim, s->head_dim));
    TRY(add_int(t, k->ffn_dim, s->ffn_dim));
    TRY(add_int(t, k->context, s->context));
    TRY(add_float(t, k->norm_eps, s->norm_eps));
    TRY(add_float(t, "initializer_range", s->init_std));
    op_activation usual = ACT_NONE; // of several names the architecture's own
    (void)model_activation_parse(arch->activation, &usual);
    return text_add(t, ",\n  \"%s\": \"%s\"", k->activation,
                    usual == s->activation ? arch->activation
                                           : model_activation_name(s->activation));
}

static status groups_add(const model_arch *arch, const model_experts *e, text *t)
{
    const arch_keys *k = arch->keys;
    TRY(add_float(t, k->router_scale, e->scale > 0.0f ? e->scale : 1.0f));
    TRY(add_int(t, k->groups, max_i64(e->groups, 1)));
    TRY(add_int(t, k->top_groups, max_i64(e->top_groups, 1)));
    return text_add(t, ",\n  \"scoring_func\": \"%s\",\n  \"topk_method\": \"%s\"",
                    e->sigmoid ? "sigmoid" : "softmax",
                    arch->sigmoid   ? "noaux_tc"
                    : e->groups > 1 ? "group_limited_greedy"
                                    : "greedy");
}

static status latent_add(const decoder_spec *s, text *t)
{
    const model_latent *l = &s->latent;
    if (l->kv_rank == 0) return ST_OK;
    TRY(add_int(t, "kv_lora_rank", l->kv_rank));
    TRY(l->q_rank > 0 ? add_int(t, "q_lora_rank", l->q_rank)
                      : text_add(t, ",\n  \"q_lora_rank\": null"));
    TRY(add_int(t, "qk_nope_head_dim", l->nope_dim));
    TRY(add_int(t, "qk_rope_head_dim", l->rope_dim));
    TRY(add_int(t, "v_head_dim", l->value_dim));
    return add_bool(t, "rope_interleave", s->rope_interleaved);
}

static status experts_add(const model_arch *arch, const decoder_spec *s, text *t)
{
    const arch_keys *k = arch->keys;
    const model_experts *e = &s->experts;
    if (e->count == 0) return ST_OK;
    TRY(add_int(t, k->experts, e->count));
    TRY(add_int(t, k->experts_per_token, e->top_k));
    TRY(add_int(t, k->expert_ffn_dim, e->ffn_dim));
    TRY(add_int(t, k->every, e->every));
    if (k->weights_sum != NULL) TRY(add_bool(t, k->weights_sum, !e->unscaled));
    TRY(add_int(t, k->shared, e->shared));
    TRY(add_int(t, k->shared_ffn_dim, e->shared_ffn_dim));
    TRY(add_int(t, k->dense_first, e->dense_layers));
    TRY(add_float(t, k->gate_slope, s->gate_slope));
    TRY(add_float(t, k->gate_limit, s->gate_limit));
    if (k->groups != NULL) TRY(groups_add(arch, e, t));
    if (k->dense_layers == NULL) return ST_OK;
    TRY(text_add(t, ",\n  \"%s\": [", k->dense_layers));
    const int64_t layers = e->mixed != NULL ? s->layers : e->dense_layers;
    bool is_first = true;
    for (int64_t i = 0; i < layers; i++) {
        if (e->mixed != NULL && (e->mixed[i] || (i + 1) % e->every != 0)) continue;
        TRY(text_add(t, is_first ? "%lld" : ", %lld", (long long)i));
        is_first = false;
    }
    return text_add(t, "]");
}

static status add_cap(text *t, const char *key, float value)
{
    if (key == NULL) return ST_OK;
    return value > 0.0f ? add_float(t, key, value) : text_add(t, ",\n  \"%s\": null", key);
}

static status scales_add(const model_arch *arch, const decoder_spec *s, text *t)
{
    const arch_keys *k = arch->keys;
    char buffer[40];
    TRY(add_cap(t, k->attention_cap, s->attention_cap));
    TRY(add_cap(t, k->logit_cap, s->logit_cap));
    TRY(add_cap(t, k->idle_cap, s->idle_cap));
    TRY(add_cap(t, k->clip, s->qkv_clip));
    if (k->attention_scalar == NULL) return ST_OK;
    // Transformers expects a whole number where it is one.
    if (s->attention_scalar == floor(s->attention_scalar)) {
        return add_int(t, k->attention_scalar, (int64_t)s->attention_scalar);
    }
    return text_add(t, ",\n  \"%s\": %s", k->attention_scalar,
                    number(s->attention_scalar, false, buffer));
}

static status options_add(const model_arch *arch, const decoder_spec *s, text *t)
{
    const arch_keys *k = arch->keys;
    TRY(add_bool(t, "tie_word_embeddings", s->tied));
    if (arch->attention_bias == ARCH_BIAS_KEY) TRY(add_bool(t, "attention_bias", s->qkv_bias));
    if (k->input_bias != NULL) TRY(add_bool(t, k->input_bias, s->qkv_bias));
    if (k->qk_norm != NULL) TRY(add_bool(t, k->qk_norm, s->qk_norm));
    if (k->rotary != NULL && (s->rotary_share > 0.0 || arch->rotary_share > 0.0)) {
        char buffer[40];
        const double share = s->rotary_share > 0.0 ? s->rotary_share : 1.0;
        TRY(text_add(t, ",\n  \"%s\": %s", k->rotary, number(share, false, buffer)));
    }
    if (arch->mlp_bias == ARCH_BIAS_KEY) TRY(add_bool(t, "mlp_bias", s->mlp_bias));
    TRY(add_float(t, k->dropout_attention, s->dropout_attention));
    TRY(add_float(t, k->dropout_residual, s->dropout_residual));
    TRY(add_float(t, k->dropout_embedding, s->dropout_embedding));
    TRY(add_token(t, "bos_token_id", s->bos_token));
    if (s->pad_token >= 0 || (arch->pads && arch->pad_token >= 0)) {
        TRY(add_token(t, "pad_token_id", s->pad_token));
    }
    return model_ends_add(t, &s->ends);
}

static status windows_add(const model_arch *arch, const decoder_spec *s, text *t)
{
    int32_t window = 0;
    int64_t full = 0; // number of layers before the first window
    if (arch->windows == ARCH_WINDOWS_NEVER) return ST_OK;
    for (int64_t i = 0; s->windows != NULL && i < s->layers; i++) {
        if (s->windows[i] > 0) window = s->windows[i];
        if (window == 0) full++;
    }
    TRY(window == 0 ? text_add(t, ",\n  \"sliding_window\": null")
                    : add_int(t, "sliding_window", window));
    if (arch->windows == ARCH_WINDOWS_ALL) return ST_OK;
    if (arch->windows != ARCH_WINDOWS_PATTERN) {
        TRY(add_bool(t, "use_sliding_window", window > 0));
        if (arch->windows == ARCH_WINDOWS_SWITCH) return ST_OK;
        TRY(add_int(t, "max_window_layers", window > 0 ? full : s->layers));
    }
    TRY(text_add(t, ",\n  \"layer_types\": ["));
    for (int64_t i = 0; i < s->layers; i++) {
        const bool slides = s->windows != NULL && s->windows[i] > 0;
        TRY(text_add(t, "%s\"%s\"", i == 0 ? "" : ", ",
                     slides ? "sliding_attention" : "full_attention"));
    }
    return text_add(t, "]");
}

static status factors_add(text *t, const char *key, const double *values, int64_t count)
{
    char buffer[40];
    TRY(text_add(t, ", \"%s\": [", key));
    for (int64_t i = 0; i < count; i++) {
        TRY(text_add(t, "%s%s", i == 0 ? "" : ", ", number(values[i], false, buffer)));
    }
    return text_add(t, "]");
}

static status rope_add(const model_arch *arch, const decoder_spec *s, text *t)
{
    const model_rope *r = &s->rope;
    char buffer[40];
    if (s->position != MODEL_POSITION_ROPE) return ST_OK;
    TRY(text_add(t, ",\n  \"rope_theta\": %s", number(r->theta, false, buffer)));
    if (arch->keys->rope_local_theta != NULL) {
        TRY(text_add(t, ",\n  \"%s\": %s", arch->keys->rope_local_theta,
                     number(s->rope_local_theta, false, buffer)));
    }
    if (arch->rope_at_root && r->original_context > 0) {
        TRY(add_int(t, "original_max_position_embeddings", r->original_context));
    }
    if (r->kind == MODEL_ROPE_DEFAULT) return text_add(t, ",\n  \"rope_scaling\": null");
    TRY(text_add(t, ",\n  \"rope_scaling\": {\"%s\": \"%s\"",
                 arch->rope_at_root ? "type" : "rope_type", model_rope_names[r->kind]));
    const struct {
        const char *key;
        double value;
    } numbers[] = {
        {"factor", r->factor},
        {"low_freq_factor", r->low_freq_factor},
        {"high_freq_factor", r->high_freq_factor},
        {"beta_fast", r->beta_fast},
        {"beta_slow", r->beta_slow},
        {"attention_factor", r->attention_factor},
        {"mscale", r->mscale},
        {"mscale_all_dim", r->mscale_all_dim},
    };
    for (int64_t i = 0; i < COUNT_OF(numbers); i++) {
        if (isnan(numbers[i].value)) continue;
        TRY(text_add(t, ", \"%s\": %s", numbers[i].key, number(numbers[i].value, false, buffer)));
    }
    if (r->original_context > 0 && !arch->rope_at_root) {
        TRY(text_add(t, ", \"original_max_position_embeddings\": %lld",
                     (long long)r->original_context));
    }
    if (!r->truncate) TRY(text_add(t, ", \"truncate\": false"));
    if (r->kind == MODEL_ROPE_LONGROPE) {
        TRY(factors_add(t, "short_factor", r->short_factor, model_rope_dim(s) / 2));
        TRY(factors_add(t, "long_factor", r->long_factor, model_rope_dim(s) / 2));
    }
    return text_add(t, "}");
}

status model_spec_print_json(const decoder_spec *spec, text *out)
{
    TRY(model_spec_check(spec));
    const model_arch *arch = model_arch_find(spec->arch);
    if (model_is_planned_only(spec)) {
        return fail(ST_UNSUPPORTED,
                    "a %s model with %lld experts%s cannot be trained or written yet, only counted "
                    "and simulated",
                    arch->name, (long long)spec->experts.count,
                    spec->latent.kv_rank > 0 ? " and latent attention" : "");
    }
    const bool scores = spec->scores != MODEL_WRITES;
    if (scores && arch->scores_class == NULL) {
        return fail(ST_UNSUPPORTED,
                    "a %s model cannot be a reward model: transformers has no class for it",
                    arch->name);
    }
    TRY(text_add(out, "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\"",
                 scores ? arch->scores_class : arch->causal_class, arch->name));
    if (scores) {
        TRY(text_add(out, ",\n  \"id2label\": {\"0\": \"LABEL_0\"},\n  \"label2id\": "
                          "{\"LABEL_0\": 0}"));
    }
    TRY(text_add(out, ",\n  \"torch_dtype\": \"%s\"", model_dtype_name(spec->saved)));
    TRY(sizes_add(arch, spec, out));
    TRY(experts_add(arch, spec, out));
    TRY(latent_add(spec, out));
    TRY(add_int(out, arch->keys->next_layers, spec->next_layers));
    TRY(scales_add(arch, spec, out));
    TRY(options_add(arch, spec, out));
    TRY(windows_add(arch, spec, out));
    TRY(rope_add(arch, spec, out));
    return text_add(out, "\n}\n");
}
