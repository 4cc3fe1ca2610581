// Makes a decoder_spec from a Hugging Face config.json, in the spelling of transformers 5
// (rope_parameters, layer_types) and in the older one that most published checkpoints have
// (rope_theta, rope_scaling with rope_type or type, max_window_layers). Absent keys get the
// defaults of transformers.
//
// The file is untrusted input: a wrong type, a missing key, an excessive size, or an option that
// changes the mathematics in an unsupported way is refused with file and key.
#include "base/text.h"
#include "model/arch/arch.h"
#include "model/spec.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct reader {
    const char *file; // for error messages
    const json *root;
    arena *a;
    const model_arch *arch;
} reader;

typedef struct double_limits {
    double min, max; // inclusive
} double_limits;

enum { SHOWN_BYTES = 64 };
// Formats a string of the file for error messages: short, and without terminal control characters.
static const char *shown(const char *source, char buffer[SHOWN_BYTES])
{
    snprintf(buffer, SHOWN_BYTES, "%.48s", source);
    for (char *c = buffer; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
    }
    return buffer;
}

// Describes the value found, for error messages.
static const char *found(const json *value, char buffer[SHOWN_BYTES])
{
    char inner[SHOWN_BYTES];
    switch (json_kind_of(value)) {
    case JSON_NONE:
        return "nothing";
    case JSON_NULL_VALUE:
        return "null";
    case JSON_BOOL:
        return json_bool(value, false) ? "true" : "false";
    case JSON_INT:
        snprintf(buffer, SHOWN_BYTES, "%lld", (long long)json_int(value, 0));
        return buffer;
    case JSON_REAL:
        snprintf(buffer, SHOWN_BYTES, "%.17g", json_real(value, 0.0));
        return buffer;
    case JSON_TEXT:
        snprintf(buffer, SHOWN_BYTES, "\"%.56s\"", shown(json_text(value, ""), inner));
        return buffer;
    case JSON_LIST:
        snprintf(buffer, SHOWN_BYTES, "a list of %lld", (long long)json_count(value));
        return buffer;
    case JSON_MAP:
    default:
        return "a map";
    }
}

static status wrong(const reader *r, const char *key, const json *value, const char *expected)
{
    char buffer[SHOWN_BYTES];
    return fail(ST_MODEL, "%s: \"%s\": expected %s, found %s", r->file, key, expected,
                found(value, buffer));
}

static bool is_given(const json *value)
{
    return value != NULL && json_kind_of(value) != JSON_NULL_VALUE;
}

static status int_check(const reader *r, const char *key, const json *value, model_limits limits,
                        int64_t *out)
{
    const double real = json_real(value, MODEL_ABSENT);
    const bool is_number = json_kind_of(value) == JSON_INT || json_kind_of(value) == JSON_REAL;
    if (!is_number || real != floor(real) || real < (double)limits.min ||
        real > (double)limits.max) {
        char expected[96];
        snprintf(expected, sizeof(expected), "a whole number from %lld to %lld",
                 (long long)limits.min, (long long)limits.max);
        return wrong(r, key, value, expected);
    }
    *out = (int64_t)real;
    return ST_OK;
}

// Absent or null: returns `otherwise` if it is not negative, else refuses.
static status int_read(const reader *r, const char *key, model_limits limits, int64_t otherwise,
                       int64_t *out)
{
    const json *value = json_get(r->root, key);
    if (!is_given(value) && otherwise >= 0) {
        *out = otherwise;
        return ST_OK;
    }
    return int_check(r, key, value, limits, out);
}

// A NaN `otherwise` makes the key required.
static status real_read(const reader *r, const json *map, const char *key, double_limits limits,
                        double otherwise, double *out)
{
    const json *value = json_get(map, key);
    if (!is_given(value) && !isnan(otherwise)) {
        *out = otherwise;
        return ST_OK;
    }
    const double real =
        json_real(value, MODEL_ABSENT); // NaN: not a number; it fails both comparisons
    if (!(real >= limits.min && real <= limits.max)) {
        char expected[96];
        snprintf(expected, sizeof(expected), "a number from %g to %g", limits.min, limits.max);
        return wrong(r, key, value, expected);
    }
    *out = real;
    return ST_OK;
}

static status float_read(const reader *r, const char *key, double most, double otherwise,
                         float *out)
{
    double value = 0.0;
    TRY(real_read(r, r->root, key, (double_limits){0.0, most}, otherwise, &value));
    *out = (float)value;
    return ST_OK;
}

static status bool_read(const reader *r, const json *map, const char *key, bool otherwise,
                        bool *out)
{
    const json *value = json_get(map, key);
    if (is_given(value) && json_kind_of(value) != JSON_BOOL) {
        return wrong(r, key, value, "true or false");
    }
    *out = json_bool(value, otherwise);
    return ST_OK;
}

// ---- the model's type ---------------------------------------------------------------------------

static status arch_read(reader *r)
{
    const json *type = json_get(r->root, "model_type");
    const json *classes = json_get(r->root, "architectures");
    if (is_given(classes) && json_kind_of(classes) != JSON_LIST) {
        return wrong(r, "architectures", classes, "a list of strings");
    }
    const json *class = json_at(classes, 0);
    const model_arch *of_class = model_arch_of_class(json_text(class, ""));
    if (!is_given(type)) {
        if (of_class == NULL) return wrong(r, "model_type", type, "a string such as \"llama\"");
        r->arch = of_class;
        return ST_OK;
    }
    if (json_kind_of(type) != JSON_TEXT) {
        return wrong(r, "model_type", type, "a string such as \"llama\"");
    }
    r->arch = model_arch_find(json_text(type, ""));
    char buffer[SHOWN_BYTES];
    if (r->arch == NULL) return model_arch_unknown(r->file, shown(json_text(type, ""), buffer));
    if (class != NULL && of_class != r->arch) {
        char expected[128];
        snprintf(expected, sizeof(expected), "\"%s\" for model type %s", r->arch->causal_class,
                 r->arch->name);
        return wrong(r, "architectures", class, expected);
    }
    return ST_OK;
}

// Options that change the mathematics, with the only supported value of each.
static status unsupported_refuse(const reader *r, const json *map)
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
        {"clip_qkv", HARMLESS_NULL},
        {"output_router_logits", HARMLESS_FALSE}, // true adds a loss that balances the experts
        {"router_jitter_noise", HARMLESS_ZERO},
    };
    static const char *const names[] = {"false", "true", "0", "1", "null"};
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        const json *value = json_get(map, rows[i].key);
        if (!is_given(value)) continue;
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
        return wrong(r, rows[i].key, value, expected);
    }
    return ST_OK;
}

// ---- sizes --------------------------------------------------------------------------------------

static status head_dim_read(const reader *r, decoder_spec *s)
{
    const char *key = r->arch->keys->head_dim;
    int64_t otherwise = r->arch->head_dim;
    if (otherwise == 0) {
        if (s->dim % s->heads == 0) {
            otherwise = s->dim / s->heads;
        } else if (key == NULL || !is_given(json_get(r->root, key))) {
            return fail(ST_MODEL, "%s: \"%s\" = %lld is not a multiple of \"%s\" = %lld%s", r->file,
                        r->arch->keys->dim, (long long)s->dim, r->arch->keys->heads,
                        (long long)s->heads, key == NULL ? "" : ", and there is no \"head_dim\"");
        }
    }
    if (key == NULL) {
        s->head_dim = otherwise;
        return ST_OK;
    }
    return int_read(r, key, model_limits_head_dim, otherwise, &s->head_dim);
}

static status sizes_read(const reader *r, decoder_spec *s)
{
    const arch_keys *k = r->arch->keys;
    const int64_t needed = -1;
    TRY(int_read(r, "vocab_size", model_limits_vocab, needed, &s->vocab));
    TRY(int_read(r, k->layers, model_limits_layers, needed, &s->layers));
    TRY(int_read(r, k->dim, model_limits_dim, needed, &s->dim));
    TRY(int_read(r, k->heads, model_limits_heads, needed, &s->heads));
    s->kv_heads = s->heads;
    if (k->kv_heads != NULL) {
        // An absent key takes the class's default; null means as many as heads.
        const bool is_absent = json_get(r->root, k->kv_heads) == NULL;
        const int64_t otherwise = is_absent && r->arch->kv_heads > 0 ? r->arch->kv_heads : s->heads;
        TRY(int_read(r, k->kv_heads, model_limits_heads, otherwise, &s->kv_heads));
    }
    TRY(head_dim_read(r, s));
    // GPT-2's n_inner may be null: four times the width.
    const int64_t ffn = s->mlp == MODEL_MLP_GELU ? 4 * s->dim : needed;
    TRY(int_read(r, k->ffn_dim, model_limits_ffn, ffn, &s->ffn_dim));
    return int_read(r, k->context, model_limits_context, needed, &s->context);
}

// Reads the list of layers without experts: the lowest ones, from 0 on.
static status dense_layers_read(const reader *r, decoder_spec *s)
{
    const char *key = r->arch->keys->dense_layers;
    const json *list = key != NULL ? json_get(r->root, key) : NULL;
    if (!is_given(list)) return ST_OK;
    if (json_kind_of(list) != JSON_LIST) return wrong(r, key, list, "a list of layers");
    s->experts.dense_layers = json_count(list);
    const bool is_mixed = s->experts.dense_layers > 0 && s->experts.every > 1;
    for (int64_t i = 0; i < json_count(list); i++) {
        if (!is_mixed && json_int(json_at(list, i), -1) == i) continue;
        return fail(ST_UNSUPPORTED,
                    "%s: \"%s\": supported are the lowest layers in ascending order, where \"%s\" "
                    "is 1, and an empty list",
                    r->file, key, r->arch->keys->every);
    }
    return ST_OK;
}

static status experts_read(const reader *r, decoder_spec *s)
{
    const arch_keys *k = r->arch->keys;
    const int64_t needed = -1;
    model_experts *e = &s->experts;
    bool sums = true;
    if (k->experts == NULL) return ST_OK;
    TRY(int_read(r, k->experts, model_limits_experts, needed, &e->count));
    TRY(int_read(r, k->experts_per_token, model_limits_experts, needed, &e->top_k));
    e->ffn_dim = s->ffn_dim;
    if (k->expert_ffn_dim != NULL) {
        TRY(int_read(r, k->expert_ffn_dim, model_limits_ffn, needed, &e->ffn_dim));
    }
    e->every = 1;
    if (k->every != NULL) TRY(int_read(r, k->every, model_limits_layers, 1, &e->every));
    if (k->weights_sum != NULL) TRY(bool_read(r, r->root, k->weights_sum, false, &sums));
    e->unscaled = !sums;
    return dense_layers_read(r, s);
}

static status token_read(const reader *r, const char *key, int32_t otherwise, const decoder_spec *s,
                         int32_t *out)
{
    const json *value = json_get(r->root, key);
    if (value == NULL) {
        *out = otherwise < s->vocab ? otherwise : -1;
        return ST_OK;
    }
    *out = -1;
    if (json_kind_of(value) == JSON_NULL_VALUE) return ST_OK;
    int64_t token = 0;
    TRY(int_check(r, key, value, (model_limits){-1, INT32_MAX}, &token));
    *out = (int32_t)token;
    return ST_OK;
}

// Reads one id or, since Llama 3.1, a list.
static status ends_read(const reader *r, const decoder_spec *s, model_ends *out)
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
        return wrong(r, key, value, "one token, or a list of 1 to 8");
    for (int64_t i = 0; i < count; i++) {
        int64_t token = 0;
        TRY(int_check(r, key, json_at(value, i), (model_limits){0, INT32_MAX}, &token));
        out->ids[out->count++] = (int32_t)token;
    }
    return ST_OK;
}

// ---- options ------------------------------------------------------------------------------------

static status activation_read(const reader *r, decoder_spec *s)
{
    const char *key = r->arch->keys->activation;
    const json *value = json_get(r->root, key);
    if (is_given(value) && json_kind_of(value) != JSON_TEXT)
        return wrong(r, key, value, "a string");
    const char *name = json_text(value, r->arch->activation);
    if (!model_activation_parse(name, &s->activation)) {
        char buffer[SHOWN_BYTES];
        return fail(ST_MODEL, "%s: \"%s\": no such activation \"%s\"; known: %s", r->file, key,
                    shown(name, buffer), model_activation_names);
    }
    if (s->mlp == MODEL_MLP_SWIGLU && s->activation == ACT_RELU) {
        return wrong(r, key, value, "\"silu\" or a GELU, the gated activations that are supported");
    }
    return ST_OK;
}

static status biases_read(const reader *r, decoder_spec *s)
{
    const arch_bias attention = r->arch->attention_bias, mlp = r->arch->mlp_bias;
    s->qkv_bias = attention == ARCH_BIAS_INPUT || attention == ARCH_BIAS_ALWAYS;
    s->out_bias = attention == ARCH_BIAS_ALWAYS;
    s->mlp_bias = mlp == ARCH_BIAS_ALWAYS;
    if (attention == ARCH_BIAS_KEY) {
        TRY(bool_read(r, r->root, "attention_bias", false, &s->qkv_bias));
        s->out_bias = s->qkv_bias;
    }
    if (mlp == ARCH_BIAS_KEY) TRY(bool_read(r, r->root, "mlp_bias", false, &s->mlp_bias));
    return ST_OK;
}

static status dropouts_read(const reader *r, decoder_spec *s)
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
        TRY(float_read(r, rows[i].key, 0.999, r->arch->dropout, rows[i].out));
    }
    return ST_OK;
}

// ---- windows ------------------------------------------------------------------------------------

// Reads the window size of layers with a window; 0: none.
static status window_read(const reader *r, int64_t *out)
{
    *out = 0;
    const bool has_switch =
        r->arch->windows == ARCH_WINDOWS_BY_LAYER || r->arch->windows == ARCH_WINDOWS_SWITCH;
    bool used = r->arch->windows == ARCH_WINDOWS_ALL;
    if (has_switch) TRY(bool_read(r, r->root, "use_sliding_window", false, &used));
    if (!used) return ST_OK;
    const json *value = json_get(r->root, "sliding_window");
    if (value == NULL) {
        *out = r->arch->window;
        return ST_OK;
    }
    if (json_kind_of(value) == JSON_NULL_VALUE) return ST_OK;
    return int_check(r, "sliding_window", value, model_limits_context, out);
}

// Reads from layer_types whether each layer has a sliding window.
static status layer_types_read(const reader *r, const json *types, decoder_spec *s, bool *slides)
{
    if (json_kind_of(types) != JSON_LIST || json_count(types) != s->layers) {
        char expected[64];
        snprintf(expected, sizeof(expected), "a list of %lld strings", (long long)s->layers);
        return wrong(r, "layer_types", types, expected);
    }
    for (int64_t i = 0; i < s->layers; i++) {
        const json *type = json_at(types, i);
        const char *name = json_text(type, "");
        slides[i] = strcmp(name, "sliding_attention") == 0;
        if (!slides[i] && strcmp(name, "full_attention") != 0) {
            return wrong(r, "layer_types", type, "full_attention or sliding_attention");
        }
    }
    return ST_OK;
}

static status windows_read(const reader *r, decoder_spec *s)
{
    int64_t window = 0, full = 0;
    bool *slides = NULL, any = false;
    TRY(window_read(r, &window));
    TRY(arena_new(r->a, s->layers, &slides));
    const json *types = json_get(r->root, "layer_types");
    if (r->arch->windows == ARCH_WINDOWS_BY_LAYER) {
        const model_limits limits = {0, INT32_MAX};
        TRY(int_read(r, "max_window_layers", limits, 28, &full));
    }
    for (int64_t i = 0; i < s->layers; i++) slides[i] = window > 0 && i >= full;
    if (is_given(types)) {
        TRY(layer_types_read(r, types, s, slides));
        for (int64_t i = 0; i < s->layers; i++) {
            const bool may = r->arch->windows == ARCH_WINDOWS_BY_LAYER ? !slides[i] || window > 0
                                                                       : slides[i] == (window > 0);
            if (may) continue;
            return fail(
                ST_MODEL, "%s: \"layer_types\": layer %lld has %s, but %s", r->file, (long long)i,
                slides[i] ? "sliding_attention" : "full_attention",
                r->arch->windows == ARCH_WINDOWS_BY_LAYER
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

// ---- rotary positions ---------------------------------------------------------------------------

static status rope_kind_read(const reader *r, const json *map, model_rope *rope)
{
    const char *key = json_get(map, "rope_type") != NULL ? "rope_type" : "type";
    const json *type = json_get(map, key);
    if (type == NULL) {
        if (json_get(map, "factor") != NULL) {
            return wrong(r, "rope_type", type, "a string, since there is a \"factor\"");
        }
        return ST_OK; // only theta is given: default kind
    }
    if (json_kind_of(type) != JSON_TEXT) return wrong(r, key, type, "a string");
    const char *name = json_text(type, "");
    if (strcmp(name, "su") == 0) name = "longrope"; // its former name
    int64_t known = 0;
    for (; model_rope_names[known] != NULL; known++) {
        if (strcmp(name, model_rope_names[known]) != 0) continue;
        rope->kind = (model_rope_kind)known;
        return ST_OK;
    }
    char buffer[SHOWN_BYTES];
    const char *near = text_nearest(name, model_rope_names, known);
    return fail(ST_MODEL,
                "%s: \"%s\": unknown \"%s\"%s%s; known: default, linear, dynamic, llama3, "
                "yarn, longrope",
                r->file, key, shown(name, buffer), near == NULL ? "" : ", did you mean ",
                near == NULL ? "" : near);
}

static status factors_read(const reader *r, const json *map, const char *key, int64_t count,
                           const double **out)
{
    const json *list = json_get(map, key);
    if (json_kind_of(list) != JSON_LIST || json_count(list) != count) {
        char expected[64];
        snprintf(expected, sizeof(expected), "a list of head_dim / 2 = %lld numbers",
                 (long long)count);
        return wrong(r, key, list, expected);
    }
    double *values = NULL;
    TRY(arena_new(r->a, count, &values));
    for (int64_t i = 0; i < count; i++) {
        values[i] = json_real(json_at(list, i), MODEL_ABSENT);
        if (!(values[i] > 0.0 && values[i] <= 1e9)) {
            return wrong(r, key, json_at(list, i), "numbers above 0 and at most 1e9");
        }
    }
    *out = values;
    return ST_OK;
}

static status rope_options_read(const reader *r, const json *map, const decoder_spec *s,
                                model_rope *rope)
{
    const struct {
        const char *key;
        double *out;
    } optional[] = {
        {"factor", &rope->factor},
        {"low_freq_factor", &rope->low_freq_factor},
        {"high_freq_factor", &rope->high_freq_factor},
        {"beta_fast", &rope->beta_fast},
        {"beta_slow", &rope->beta_slow},
        {"attention_factor", &rope->attention_factor},
        {"mscale", &rope->mscale},
        {"mscale_all_dim", &rope->mscale_all_dim},
    };
    for (int64_t i = 0; i < COUNT_OF(optional); i++) {
        if (!is_given(json_get(map, optional[i].key))) continue;
        TRY(real_read(r, map, optional[i].key, (double_limits){0.0, 1e9}, MODEL_ABSENT,
                      optional[i].out));
    }
    const char *original = "original_max_position_embeddings";
    const json *context = json_get(map, original);
    if (!is_given(context)) context = json_get(r->root, original); // the key of Phi models
    if (is_given(context)) {
        TRY(int_check(r, original, context, model_limits_context, &rope->original_context));
    }
    TRY(bool_read(r, map, "truncate", true, &rope->truncate));
    if (rope->kind != MODEL_ROPE_LONGROPE) return ST_OK;
    TRY(factors_read(r, map, "short_factor", s->head_dim / 2, &rope->short_factor));
    return factors_read(r, map, "long_factor", s->head_dim / 2, &rope->long_factor);
}

static status rope_read(const reader *r, decoder_spec *s)
{
    s->rope = model_rope_default();
    if (s->position != MODEL_POSITION_ROPE) return ST_OK;
    const char *key =
        is_given(json_get(r->root, "rope_scaling")) ? "rope_scaling" : "rope_parameters";
    const json *map = json_get(r->root, key);
    if (is_given(map) && json_kind_of(map) != JSON_MAP) return wrong(r, key, map, "a map or null");
    const json *theta_of = is_given(json_get(map, "rope_theta")) ? map : r->root;
    const double usual = r->arch->rope_theta > 0.0 ? r->arch->rope_theta : s->rope.theta;
    TRY(real_read(r, theta_of, "rope_theta", (double_limits){1.0, 1e15}, usual, &s->rope.theta));
    if (!is_given(map)) return ST_OK;
    for (int64_t i = 0; i < json_count(map); i++) {
        const json *value = NULL;
        const char *name = json_key_at(map, i, &value);
        if (json_kind_of(value) == JSON_MAP) {
            char buffer[SHOWN_BYTES];
            return fail(ST_MODEL, "%s: \"%s\": expected one set of options, found one for \"%s\"",
                        r->file, key, shown(name, buffer));
        }
    }
    TRY(unsupported_refuse(r, map));
    TRY(rope_kind_read(r, map, &s->rope));
    if (s->rope.kind == MODEL_ROPE_DEFAULT) return ST_OK;
    return rope_options_read(r, map, s, &s->rope);
}

// ---- all of it ----------------------------------------------------------------------------------

// Reads the type of the weights, which only informs: an unknown type is no error. Transformers 5
// writes "dtype", earlier versions "torch_dtype".
static dtype saved_read(const reader *r)
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
static status nested_refuse(const reader *r)
{
    const json *text_model = json_get(r->root, "text_config");
    if (json_kind_of(text_model) != JSON_MAP || json_get(r->root, "hidden_size") != NULL) {
        return ST_OK;
    }
    char buffer[SHOWN_BYTES];
    return fail(ST_MODEL,
                "%s: the sizes are in \"text_config\" (model type %s), as in models of text and "
                "pictures, which are not supported; save the text model alone, for example "
                "transformers' model.language_model.save_pretrained(FOLDER)",
                r->file, found(json_get(text_model, "model_type"), buffer));
}

static status read_all(reader *r, decoder_spec *s)
{
    if (json_kind_of(r->root) != JSON_MAP) {
        return fail(ST_MODEL, "%s: expected a map of options, as Hugging Face writes it", r->file);
    }
    TRY(nested_refuse(r));
    TRY(arch_read(r));
    TRY(unsupported_refuse(r, r->root));
    const model_arch *arch = r->arch;
    *s = model_arch_spec(arch);
    s->saved = saved_read(r);
    TRY(sizes_read(r, s));
    TRY(experts_read(r, s));
    TRY(float_read(r, arch->keys->norm_eps, 1.0, arch->norm_eps, &s->norm_eps));
    TRY(float_read(r, "initializer_range", 10.0, 0.02, &s->init_std));
    TRY(activation_read(r, s));
    TRY(bool_read(r, r->root, "tie_word_embeddings", arch->tied, &s->tied));
    TRY(biases_read(r, s));
    TRY(dropouts_read(r, s));
    TRY(windows_read(r, s));
    TRY(rope_read(r, s));
    TRY(token_read(r, "bos_token_id", arch->bos_token, s, &s->bos_token));
    return ends_read(r, s, &s->ends);
}

status model_spec_from_json(arena *a, const json *root, const char *name, decoder_spec *out)
{
    reader r = {.file = name, .root = root, .a = a};
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

status model_spec_from_hf(const host *h, arena *a, const char *folder, decoder_spec *out)
{
    char *path = NULL;
    json *root = NULL;
    TRY(path_join(a, folder, "config.json", &path));
    TRY(json_read(h, path, MODEL_CONFIG_BYTES, &root));
    const status st = model_spec_from_json(a, root, path, out);
    json_free(root);
    return st;
}
