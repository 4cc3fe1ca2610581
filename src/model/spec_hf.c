// Makes a decoder_spec from a Hugging Face config.json, in the spelling of transformers 5
// (rope_parameters, layer_types) and in the older one that most published checkpoints have
// (rope_theta, rope_scaling with rope_type or type, max_window_layers). Absent keys get the
// defaults of transformers.
//
// The file is untrusted input: a wrong type, a missing key, an excessive size, or an option that
// changes the mathematics in an unsupported way is refused with file and key.
#include "base/text.h"
#include "model/arch/arch.h"
#include "model/spec_read.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// ---- the model's type ---------------------------------------------------------------------------

static status arch_read(model_reader *r)
{
    const json *type = json_get(r->root, "model_type");
    const json *classes = json_get(r->root, "architectures");
    if (model_read_given(classes) && json_kind_of(classes) != JSON_LIST) {
        return model_read_wrong(r, "architectures", classes, "a list of strings");
    }
    const json *class = json_at(classes, 0);
    const model_arch *of_class = model_arch_of_class(json_text(class, ""));
    if (!model_read_given(type)) {
        if (of_class == NULL)
            return model_read_wrong(r, "model_type", type, "a string such as \"llama\"");
        r->arch = of_class;
        return ST_OK;
    }
    if (json_kind_of(type) != JSON_TEXT) {
        return model_read_wrong(r, "model_type", type, "a string such as \"llama\"");
    }
    r->arch = model_arch_find(json_text(type, ""));
    char buffer[MODEL_SHOWN_BYTES];
    if (r->arch == NULL)
        return model_arch_unknown(r->file, model_read_shown(json_text(type, ""), buffer));
    if (class != NULL && of_class != r->arch) {
        char expected[128];
        snprintf(expected, sizeof(expected), "\"%s\" for model type %s", r->arch->causal_class,
                 r->arch->name);
        return model_read_wrong(r, "architectures", class, expected);
    }
    return ST_OK;
}

// A model for one number, as transformers has reward models: two classes unless the file says else.
static status scores_read(const model_reader *r, decoder_spec *s)
{
    const char *class = json_text(json_at(json_get(r->root, "architectures"), 0), "");
    const json *labels = json_get(r->root, "num_labels"), *names = json_get(r->root, "id2label");
    int64_t count = 2;
    if (r->arch->scores_class == NULL || strcmp(class, r->arch->scores_class) != 0) return ST_OK;
    if (json_kind_of(labels) == JSON_INT) {
        count = json_int(labels, 0);
    } else if (json_kind_of(names) == JSON_MAP) {
        count = json_count(names);
    }
    s->scores = MODEL_SCORES;
    if (count == 1) return ST_OK;
    return fail(
        ST_MODEL,
        "%s: \"architectures\": %s with %lld labels; a reward model has one (\"num_labels\": "
        "1), and classifiers are not supported",
        r->file, class, (long long)count);
}

static bool is_same(const char *key, const char *name)
{
    return key != NULL && strcmp(key, name) == 0;
}

// Returns whether the architecture reads this option.
static bool is_key(const model_arch *arch, const char *name)
{
    // Quantized weights of such models are dequantized, or refused by their types.
    if (arch->quantized && strcmp(name, "quantization_config") == 0) return true;
    const arch_keys *k = arch->keys;
    const char *const read[] = {k->attention_cap, k->logit_cap, k->idle_cap, k->clip, k->rotary};
    for (int64_t i = 0; i < COUNT_OF(read); i++) {
        if (is_same(read[i], name)) return true;
    }
    return false;
}

// Options that change the mathematics, with the only supported value of each.
status model_read_refuse(const model_reader *r, const json *map)
{
    static const struct {
        const char *key;
        enum { HARMLESS_FALSE, HARMLESS_TRUE, HARMLESS_ZERO, HARMLESS_ONE, HARMLESS_NULL } harmless;
    } rows[] = {
        {"scale_attn_weights", HARMLESS_TRUE},
        {"scale_attn_by_inverse_layer_idx", HARMLESS_FALSE},
        {"add_cross_attention", HARMLESS_FALSE},
        {"is_encoder_decoder", HARMLESS_FALSE},
        {"partial_rotary_factor", HARMLESS_ONE},
        {"quantization_config", HARMLESS_NULL},
        {"attn_logit_softcapping", HARMLESS_NULL},
        {"final_logit_softcapping", HARMLESS_NULL},
        {"use_bidirectional_attention", HARMLESS_FALSE},
        {"clip_qkv", HARMLESS_NULL},
        {"output_router_logits", HARMLESS_FALSE}, // true adds a loss that balances the experts
        {"router_jitter_noise", HARMLESS_ZERO},
    };
    static const char *const names[] = {"false", "true", "0", "1", "null"};
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        const json *value = json_get(map, rows[i].key);
        if (!model_read_given(value) || is_key(r->arch, rows[i].key)) continue;
        const bool is_bool = json_kind_of(value) == JSON_BOOL;
        const bool fine =
            (rows[i].harmless == HARMLESS_FALSE && is_bool && !json_bool(value, true)) ||
            (rows[i].harmless == HARMLESS_TRUE && is_bool && json_bool(value, false)) ||
            (rows[i].harmless == HARMLESS_ZERO && json_real(value, 1.0) == 0.0) ||
            (rows[i].harmless == HARMLESS_ONE && json_real(value, 0.0) == 1.0);
        if (fine) continue;
        char expected[64];
        snprintf(expected, sizeof(expected), "%s, the only value that is supported",
                 names[rows[i].harmless]);
        return model_read_wrong(r, rows[i].key, value, expected);
    }
    return ST_OK;
}

// ---- sizes --------------------------------------------------------------------------------------

static status head_dim_read(const model_reader *r, decoder_spec *s)
{
    const char *key = r->arch->keys->head_dim;
    int64_t otherwise = r->arch->head_dim;
    if (otherwise == 0) {
        if (s->dim % s->heads == 0) {
            otherwise = s->dim / s->heads;
        } else if (key == NULL || !model_read_given(json_get(r->root, key))) {
            return fail(ST_MODEL, "%s: \"%s\" = %lld is not a multiple of \"%s\" = %lld%s", r->file,
                        r->arch->keys->dim, (long long)s->dim, r->arch->keys->heads,
                        (long long)s->heads, key == NULL ? "" : ", and there is no \"head_dim\"");
        }
    }
    if (key == NULL) {
        s->head_dim = otherwise;
        return ST_OK;
    }
    return model_read_int(r, key, model_limits_head_dim, otherwise, &s->head_dim);
}

static status sizes_read(const model_reader *r, decoder_spec *s)
{
    const arch_keys *k = r->arch->keys;
    const int64_t needed = -1;
    TRY(model_read_int(r, "vocab_size", model_limits_vocab, needed, &s->vocab));
    TRY(model_read_int(r, k->layers, model_limits_layers, needed, &s->layers));
    TRY(model_read_int(r, k->dim, model_limits_dim, needed, &s->dim));
    TRY(model_read_int(r, k->heads, model_limits_heads, needed, &s->heads));
    s->kv_heads = s->heads;
    if (k->kv_heads != NULL) {
        // An absent key takes the class's default; null means as many as heads.
        const bool is_absent = json_get(r->root, k->kv_heads) == NULL;
        const int64_t otherwise = is_absent && r->arch->kv_heads > 0 ? r->arch->kv_heads : s->heads;
        TRY(model_read_int(r, k->kv_heads, model_limits_heads, otherwise, &s->kv_heads));
    }
    TRY(head_dim_read(r, s));
    // GPT-2's n_inner may be null: four times the width.
    const int64_t ffn = s->mlp == MODEL_MLP_GELU ? 4 * s->dim : needed;
    TRY(model_read_int(r, k->ffn_dim, model_limits_ffn, ffn, &s->ffn_dim));
    return model_read_int(r, k->context, model_limits_context, needed, &s->context);
}

// Reads the list of layers without experts. The lowest ones, from 0 on, are a number; others are
// taken from every `every`-th layer.
static status dense_layers_read(const model_reader *r, decoder_spec *s)
{
    const char *key = r->arch->keys->dense_layers;
    const json *list = key != NULL ? json_get(r->root, key) : NULL;
    model_experts *e = &s->experts;
    bool *mixed = NULL, are_lowest = e->every == 1;
    if (!model_read_given(list)) return ST_OK;
    if (json_kind_of(list) != JSON_LIST) return model_read_wrong(r, key, list, "a list of layers");
    TRY(arena_new(r->a, s->layers, &mixed));
    for (int64_t i = 0; i < s->layers; i++) mixed[i] = (i + 1) % e->every == 0;
    for (int64_t i = 0; i < json_count(list); i++) {
        const int64_t layer = json_int(json_at(list, i), -1);
        if (layer < 0) return model_read_wrong(r, key, list, "a list of layers");
        if (layer < s->layers) mixed[layer] = false;
        are_lowest = are_lowest && layer == i && layer < s->layers;
    }
    if (are_lowest) e->dense_layers = json_count(list);
    if (json_count(list) > 0 && !are_lowest) e->mixed = mixed;
    return ST_OK;
}

static status shared_read(const model_reader *r, int64_t layers, model_experts *e)
{
    const arch_keys *k = r->arch->keys;
    const model_limits any = {0, model_limits_experts.max};
    if (k->shared != NULL) TRY(model_read_int(r, k->shared, any, 0, &e->shared));
    if (k->dense_first != NULL) {
        TRY(model_read_int(r, k->dense_first, any, r->arch->dense_first, &e->dense_layers));
        e->dense_layers = min_i64(e->dense_layers, layers);
    }
    if (k->shared_ffn_dim == NULL) return ST_OK;
    e->shared = 1;
    return model_read_int(r, k->shared_ffn_dim, model_limits_ffn, -1, &e->shared_ffn_dim);
}

// Refuses a way to choose or weight experts that the model type does not have here.
static status method_check(const model_reader *r, const char *key, const char *known)
{
    const json *value = json_get(r->root, key);
    if (!model_read_given(value) || strcmp(json_text(value, ""), known) == 0) return ST_OK;
    char expected[96];
    snprintf(expected, sizeof(expected), "\"%s\" for model type %s", known, r->arch->name);
    return model_read_wrong(r, key, value, expected);
}

static status groups_read(const model_reader *r, model_experts *e)
{
    const arch_keys *k = r->arch->keys;
    const model_limits limits = {0, model_limits_experts.max};
    double factor = 0.0;
    if (k->groups == NULL) return ST_OK;
    if (k->weights_sum == NULL && json_bool(json_get(r->root, "norm_topk_prob"), false)) {
        return model_read_wrong(r, "norm_topk_prob", json_get(r->root, "norm_topk_prob"),
                                "false, the only value supported for this model type");
    }
    TRY(model_read_real(r, r->root, k->router_scale, (double_limits){1e-6, 1e6},
                        r->arch->router_scale, &factor));
    e->scale = factor == 1.0 ? 0.0f : (float)factor;
    const char *score = k->score != NULL ? json_text(json_get(r->root, k->score), "") : "";
    if (strcmp(score, "softmax") == 0) {
        e->sigmoid = false;
    } else {
        TRY(method_check(r, "scoring_func", r->arch->sigmoid ? "sigmoid" : "softmax"));
    }
    const json *method = json_get(r->root, "topk_method");
    const char *name = json_text(method, r->arch->sigmoid ? "noaux_tc" : "greedy");
    if (r->arch->sigmoid) TRY(method_check(r, "topk_method", "noaux_tc"));
    if (strcmp(name, "greedy") == 0) return ST_OK; // groups have no effect
    if (!r->arch->sigmoid) TRY(method_check(r, "topk_method", "group_limited_greedy"));
    TRY(model_read_int(r, k->groups, limits, r->arch->groups, &e->groups));
    TRY(model_read_int(r, k->top_groups, limits, r->arch->top_groups, &e->top_groups));
    if (e->groups > 1) return ST_OK;
    e->groups = e->top_groups = 0; // one group is none
    return ST_OK;
}

static status next_read(const model_reader *r, decoder_spec *s)
{
    const char *key = r->arch->keys->next_layers;
    int64_t count = 0;
    if (key == NULL) return ST_OK;
    TRY(model_read_int(r, key, (model_limits){0, 16}, 0, &count));
    s->next_layers = min_i64(count, 1);
    if (count < 2) return ST_OK;
    return fail(ST_UNSUPPORTED,
                "%s: \"%s\" = %lld; one layer that predicts the token after the next is supported",
                r->file, key, (long long)count);
}

static status latent_read(const model_reader *r, decoder_spec *s)
{
    const model_limits rank = {1, 1 << 20}, head = model_limits_head_dim;
    model_latent *l = &s->latent;
    if (!r->arch->latent) return ST_OK;
    TRY(model_read_int(r, "kv_lora_rank", rank, -1, &l->kv_rank));
    TRY(model_read_int(r, "q_lora_rank", rank, 0, &l->q_rank)); // null: none
    TRY(model_read_int(r, "qk_nope_head_dim", head, -1, &l->nope_dim));
    TRY(model_read_int(r, "qk_rope_head_dim", head, -1, &l->rope_dim));
    TRY(model_read_int(r, "v_head_dim", head, -1, &l->value_dim));
    s->head_dim = l->nope_dim + l->rope_dim;
    if (s->kv_heads != s->heads) {
        return fail(ST_UNSUPPORTED,
                    "%s: \"num_key_value_heads\" = %lld; with latent attention each of the %lld "
                    "heads has its own",
                    r->file, (long long)s->kv_heads, (long long)s->heads);
    }
    return model_read_bool(r, r->root, "rope_interleave", true, &s->rope_interleaved);
}

static status experts_read(const model_reader *r, decoder_spec *s)
{
    const arch_keys *k = r->arch->keys;
    const int64_t needed = -1;
    model_experts *e = &s->experts;
    bool sums = true;
    if (k->experts == NULL) return ST_OK;
    const char *count = k->experts;
    // Transformers 5 has one name for all model types.
    if (!model_read_given(json_get(r->root, count))) count = "num_local_experts";
    if (!model_read_given(json_get(r->root, count))) count = k->experts;
    TRY(model_read_int(r, count, model_limits_experts, needed, &e->count));
    TRY(model_read_int(r, k->experts_per_token, model_limits_experts, needed, &e->top_k));
    e->ffn_dim = s->ffn_dim;
    if (k->expert_ffn_dim != NULL) {
        TRY(model_read_int(r, k->expert_ffn_dim, model_limits_ffn, needed, &e->ffn_dim));
    }
    e->every = 1;
    if (k->every != NULL) TRY(model_read_int(r, k->every, model_limits_layers, 1, &e->every));
    if (k->weights_sum != NULL) {
        TRY(model_read_bool(r, r->root, k->weights_sum, r->arch->sigmoid, &sums));
    }
    e->unscaled = k->weights_sum != NULL ? !sums : r->arch->unscaled;
    TRY(shared_read(r, s->layers, e));
    TRY(groups_read(r, e));
    return dense_layers_read(r, s);
}

static status token_read(const model_reader *r, const char *key, int32_t otherwise,
                         const decoder_spec *s, int32_t *out)
{
    const json *value = json_get(r->root, key);
    if (value == NULL) {
        *out = otherwise < s->vocab ? otherwise : -1;
        return ST_OK;
    }
    *out = -1;
    if (json_kind_of(value) == JSON_NULL_VALUE) return ST_OK;
    int64_t token = 0;
    TRY(model_read_int_value(r, key, value, (model_limits){-1, INT32_MAX}, &token));
    *out = (int32_t)token;
    return ST_OK;
}

static status pad_read(const model_reader *r, decoder_spec *s)
{
    TRY(token_read(r, "pad_token_id", r->arch->pad_token, s, &s->pad_token));
    if (s->pad_token < s->vocab) return ST_OK;
    return fail(ST_MODEL, "%s: \"pad_token_id\" = %d is not in a vocabulary of %lld", r->file,
                s->pad_token, (long long)s->vocab);
}

// Reads one id or, since Llama 3.1, a list.
static status ends_read(const model_reader *r, const decoder_spec *s, model_ends *out)
{
    const char *key = "eos_token_id";
    const json *value = json_get(r->root, key);
    if (json_kind_of(value) != JSON_LIST) {
        int32_t only = -1;
        TRY(token_read(r, key, r->arch->eos_token, s, &only));
        if (only >= 0) *out = (model_ends){{only}, 1};
        return ST_OK;
    }
    const int64_t count = json_count(value);
    if (count < 1 || count > MODEL_ENDS)
        return model_read_wrong(r, key, value, "one token, or a list of 1 to 8");
    for (int64_t i = 0; i < count; i++) {
        int64_t token = 0;
        TRY(model_read_int_value(r, key, json_at(value, i), (model_limits){0, INT32_MAX}, &token));
        out->ids[out->count++] = (int32_t)token;
    }
    return ST_OK;
}

// ---- options ------------------------------------------------------------------------------------

static status activation_read(const model_reader *r, decoder_spec *s)
{
    const char *key = r->arch->keys->activation;
    const json *value = json_get(r->root, key);
    if (model_read_given(value) && json_kind_of(value) != JSON_TEXT)
        return model_read_wrong(r, key, value, "a string");
    const char *name = json_text(value, r->arch->activation);
    if (!model_activation_parse(name, &s->activation)) {
        char buffer[MODEL_SHOWN_BYTES];
        return fail(ST_MODEL, "%s: \"%s\": no such activation \"%s\"; known: %s", r->file, key,
                    model_read_shown(name, buffer), model_activation_names);
    }
    if (s->mlp == MODEL_MLP_SWIGLU && s->activation == ACT_RELU) {
        return model_read_wrong(r, key, value,
                                "\"silu\" or a GELU, the gated activations that are supported");
    }
    return ST_OK;
}

// Reads a soft cap: an absent key takes the class's default, and null means none.
static status cap_read(const model_reader *r, const char *key, double otherwise, float *out)
{
    const json *value = key != NULL ? json_get(r->root, key) : NULL;
    double cap = value == NULL ? otherwise : 0.0;
    if (model_read_given(value)) {
        TRY(model_read_real(r, r->root, key, (double_limits){0.0, 1e9}, MODEL_ABSENT, &cap));
        if (!(cap > 0.0)) return model_read_wrong(r, key, value, "a number above 0, or null");
    }
    *out = (float)cap;
    return ST_OK;
}

static status gate_read(const model_reader *r, decoder_spec *s)
{
    const arch_keys *k = r->arch->keys;
    const double_limits limits = {1e-3, 1e6};
    double slope = 0.0, limit = 0.0;
    if (k->gate_limit == NULL) return ST_OK;
    TRY(model_read_real(r, r->root, k->gate_slope, limits, r->arch->gate_slope, &slope));
    TRY(model_read_real(r, r->root, k->gate_limit, limits, r->arch->gate_limit, &limit));
    s->gate_slope = (float)slope;
    s->gate_limit = (float)limit;
    return ST_OK;
}

static status scales_read(const model_reader *r, decoder_spec *s)
{
    const arch_keys *k = r->arch->keys;
    TRY(gate_read(r, s));
    TRY(cap_read(r, k->attention_cap, r->arch->attention_cap, &s->attention_cap));
    TRY(cap_read(r, k->logit_cap, r->arch->logit_cap, &s->logit_cap));
    TRY(cap_read(r, k->idle_cap, 0.0, &s->idle_cap));
    TRY(cap_read(r, k->clip, 0.0, &s->qkv_clip));
    if (k->attention_scalar == NULL) return ST_OK;
    const double_limits limits = {1e-6, 1e9};
    return model_read_real(r, r->root, k->attention_scalar, limits, r->arch->attention_scalar,
                           &s->attention_scalar);
}

static status heads_read(const model_reader *r, decoder_spec *s)
{
    const arch_keys *k = r->arch->keys;
    const double otherwise = r->arch->rotary_share > 0.0 ? r->arch->rotary_share : 1.0;
    double share = 1.0;
    if (k->qk_norm != NULL) {
        TRY(model_read_bool(r, r->root, k->qk_norm, r->arch->qk_norm, &s->qk_norm));
    }
    if (k->rotary == NULL) return ST_OK;
    const json *rope = json_get(r->root, model_rope_key(r)); // of newer files, and counts
    const bool is_there = json_kind_of(rope) == JSON_MAP && json_get(rope, k->rotary) != NULL;
    TRY(model_read_real(r, is_there ? rope : r->root, k->rotary, (double_limits){0.0, 1.0},
                        otherwise, &share));
    s->rotary_share = share < 1.0 ? share : 0.0;
    if (share > 0.0 && model_rope_dim(s) > 0 && model_rope_dim(s) % 2 == 0) return ST_OK;
    return fail(ST_MODEL,
                "%s: \"%s\" = %g: positions turn %lld of %lld columns of a head, expected a "
                "number above 0 that can be divided by 2",
                r->file, k->rotary, share, (long long)((double)s->head_dim * share),
                (long long)s->head_dim);
}

static status biases_read(const model_reader *r, decoder_spec *s)
{
    const arch_bias attention = r->arch->attention_bias, mlp = r->arch->mlp_bias;
    s->qkv_bias = attention == ARCH_BIAS_INPUT || attention == ARCH_BIAS_ALWAYS;
    s->out_bias = attention == ARCH_BIAS_ALWAYS;
    s->mlp_bias = mlp == ARCH_BIAS_ALWAYS;
    if (attention == ARCH_BIAS_KEY) {
        TRY(model_read_bool(r, r->root, "attention_bias", r->arch->attention_biased, &s->qkv_bias));
        s->out_bias = s->qkv_bias;
    }
    if (attention == ARCH_BIAS_INPUT_KEY) {
        TRY(model_read_bool(r, r->root, r->arch->keys->input_bias, r->arch->attention_biased,
                            &s->qkv_bias));
    }
    if (mlp == ARCH_BIAS_KEY) TRY(model_read_bool(r, r->root, "mlp_bias", false, &s->mlp_bias));
    return ST_OK;
}

static status dropouts_read(const model_reader *r, decoder_spec *s)
{
    const arch_keys *k = r->arch->keys;
    const struct {
        const char *key;
        float *out;
    } rows[] = {{k->dropout_attention, &s->dropout_attention},
                {k->dropout_residual, &s->dropout_residual},
                {k->dropout_embedding, &s->dropout_embedding}};
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        if (rows[i].key == NULL) continue;
        TRY(model_read_float(r, rows[i].key, 0.999, r->arch->dropout, rows[i].out));
    }
    return ST_OK;
}

// ---- windows ------------------------------------------------------------------------------------

// Reads the window size of layers with a window; 0: none.
static status window_read(const model_reader *r, int64_t *out)
{
    *out = 0;
    const bool has_switch =
        r->arch->windows == ARCH_WINDOWS_BY_LAYER || r->arch->windows == ARCH_WINDOWS_SWITCH;
    bool used = r->arch->windows == ARCH_WINDOWS_ALL || r->arch->windows == ARCH_WINDOWS_PATTERN;
    if (has_switch) TRY(model_read_bool(r, r->root, "use_sliding_window", false, &used));
    if (!used) return ST_OK;
    const json *value = json_get(r->root, "sliding_window");
    if (value == NULL) {
        *out = r->arch->window;
        return ST_OK;
    }
    if (json_kind_of(value) == JSON_NULL_VALUE) return ST_OK;
    return model_read_int_value(r, "sliding_window", value, model_limits_context, out);
}

// Reads from layer_types whether each layer has a sliding window.
static status layer_types_read(const model_reader *r, const json *types, decoder_spec *s,
                               bool *slides)
{
    if (json_kind_of(types) != JSON_LIST || json_count(types) != s->layers) {
        char expected[64];
        snprintf(expected, sizeof(expected), "a list of %lld strings", (long long)s->layers);
        return model_read_wrong(r, "layer_types", types, expected);
    }
    for (int64_t i = 0; i < s->layers; i++) {
        const json *type = json_at(types, i);
        const char *name = json_text(type, "");
        slides[i] = strcmp(name, "sliding_attention") == 0;
        if (!slides[i] && strcmp(name, "full_attention") != 0) {
            return model_read_wrong(r, "layer_types", type, "full_attention or sliding_attention");
        }
    }
    return ST_OK;
}

// Reads the distance of layers without a window among those with one; 0: none lie between them.
static status every_read(const model_reader *r, int64_t *out)
{
    *out = 0;
    if (r->arch->windows != ARCH_WINDOWS_PATTERN) return ST_OK;
    const char *key = "sliding_window_pattern";
    if (!model_read_given(json_get(r->root, key))) key = "_sliding_window_pattern";
    return model_read_int(r, key, model_limits_layers, r->arch->window_every, out);
}

static status windows_read(const model_reader *r, decoder_spec *s)
{
    const bool is_by_layer =
        r->arch->windows == ARCH_WINDOWS_BY_LAYER || r->arch->windows == ARCH_WINDOWS_PATTERN;
    int64_t window = 0, full = 0, every = 0;
    TRY(every_read(r, &every));
    bool *slides = NULL, any = false;
    TRY(window_read(r, &window));
    TRY(arena_new(r->a, s->layers, &slides));
    const json *types = json_get(r->root, "layer_types");
    if (r->arch->windows == ARCH_WINDOWS_BY_LAYER) {
        const model_limits limits = {0, INT32_MAX};
        TRY(model_read_int(r, "max_window_layers", limits, 28, &full));
    }
    for (int64_t i = 0; i < s->layers; i++) {
        slides[i] = window > 0 && i >= full && (every == 0 || (i + 1) % every != 0);
    }
    if (model_read_given(types)) {
        TRY(layer_types_read(r, types, s, slides));
        for (int64_t i = 0; i < s->layers; i++) {
            const bool may = is_by_layer ? !slides[i] || window > 0 : slides[i] == (window > 0);
            if (may) continue;
            return fail(
                ST_MODEL, "%s: \"layer_types\": layer %lld has %s, but %s", r->file, (long long)i,
                slides[i] ? "sliding_attention" : "full_attention",
                is_by_layer
                    ? "\"use_sliding_window\" or \"sliding_window\" says that none has"
                    : "for this model type \"sliding_window\" alone decides, for all layers");
        }
    }
    int32_t *windows = NULL;
    TRY(arena_new(r->a, s->layers, &windows));
    for (int64_t i = 0; i < s->layers; i++) {
        windows[i] = slides[i] ? (int32_t)window : 0;
        any = any || slides[i];
    }
    s->windows = any ? windows : NULL;
    return ST_OK;
}

// ---- all of it ----------------------------------------------------------------------------------

// Reads the type of the weights, which only informs: an unknown type is no error. Transformers 5
// writes "dtype", earlier versions "torch_dtype".
static dtype saved_read(const model_reader *r)
{
    static const dtype known[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    const char *name = json_text(json_get(r->root, "dtype"), NULL);
    if (name == NULL) name = json_text(json_get(r->root, "torch_dtype"), "");
    for (int64_t i = 0; i < COUNT_OF(known); i++) {
        if (strcmp(name, model_dtype_name(known[i])) == 0) return known[i];
    }
    return DTYPE_F32;
}

// Models of text and pictures keep the text model's sizes one level deeper.
static status nested_refuse(const model_reader *r)
{
    const json *text_model = json_get(r->root, "text_config");
    if (json_kind_of(text_model) != JSON_MAP || json_get(r->root, "hidden_size") != NULL) {
        return ST_OK;
    }
    char buffer[MODEL_SHOWN_BYTES];
    return fail(ST_MODEL,
                "%s: the sizes are in \"text_config\" (model type %s), as in models of text and "
                "pictures, which are not supported; save the text model alone, for example "
                "transformers' model.language_model.save_pretrained(FOLDER)",
                r->file, model_read_found(json_get(text_model, "model_type"), buffer));
}

static status read_all(model_reader *r, decoder_spec *s)
{
    if (json_kind_of(r->root) != JSON_MAP) {
        return fail(ST_MODEL, "%s: expected a map of options, as Hugging Face writes it", r->file);
    }
    TRY(nested_refuse(r));
    TRY(arch_read(r));
    TRY(model_read_refuse(r, r->root));
    const model_arch *arch = r->arch;
    *s = model_arch_spec(arch);
    s->saved = saved_read(r);
    TRY(scores_read(r, s));
    TRY(sizes_read(r, s));
    model_arch_sized(arch, s);
    TRY(experts_read(r, s));
    TRY(latent_read(r, s));
    TRY(next_read(r, s));
    TRY(scales_read(r, s));
    TRY(model_read_float(r, arch->keys->norm_eps, 1.0, arch->norm_eps, &s->norm_eps));
    TRY(model_read_float(r, "initializer_range", 10.0, 0.02, &s->init_std));
    TRY(activation_read(r, s));
    TRY(model_read_bool(r, r->root, "tie_word_embeddings", arch->tied, &s->tied));
    TRY(biases_read(r, s));
    TRY(heads_read(r, s));
    TRY(dropouts_read(r, s));
    TRY(windows_read(r, s));
    TRY(model_rope_read(r, s));
    TRY(token_read(r, "bos_token_id", arch->bos_token, s, &s->bos_token));
    if (arch->pads) TRY(pad_read(r, s));
    return ends_read(r, s, &s->ends);
}

status model_spec_from_json(arena *a, const json *root, const char *name, decoder_spec *out)
{
    model_reader r = {.file = name, .root = root, .a = a};
    decoder_spec s = {.arch = NULL};
    TRY(model_hf_has_experts(root) ? model_spec_from_hf_experts(a, root, name, &s)
                                   : read_all(&r, &s));
    const status st = model_spec_check(&s);
    if (st != ST_OK) {
        note("while reading %s", name);
        return st;
    }
    *out = s;
    return ST_OK;
}

// Other software keeps the key of config.json where it leaves the layer out. Without any weights
// the key counts.
static status next_find(const host *h, arena *a, const char *folder, decoder_spec *s)
{
    const model_arch *arch = model_arch_find(s->arch);
    safetensors *files = NULL;
    char *name = NULL;
    TRY(arena_format(a, &name, "%slayers.%lld.eh_proj.weight", arch->prefix, (long long)s->layers));
    const status st = safetensors_open(h, folder, &files);
    if (st == ST_NOT_FOUND) {
        error_clear();
        return ST_OK;
    }
    TRY(st);
    if (safetensors_find(files, name) == NULL) s->next_layers = 0;
    safetensors_close(files);
    return ST_OK;
}

status model_spec_from_hf(const host *h, arena *a, const char *folder, decoder_spec *out)
{
    char *path = NULL;
    json *root = NULL;
    TRY(path_join(a, folder, "config.json", &path));
    TRY(json_read(h, path, MODEL_CONFIG_BYTES, &root));
    const status st = model_spec_from_json(a, root, path, out);
    json_free(root);
    TRY(st);
    return out->next_layers > 0 ? next_find(h, a, folder, out) : ST_OK;
}
