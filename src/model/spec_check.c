// Invariants of a decoder_spec, independent of its source. Every valid spec can be written as a
// config.json of its architecture, so other programs can read every model trained here.
#include "model/arch/arch.h"
#include "model/spec.h"

#include <math.h>
#include <string.h>

model_rope model_rope_default(void)
{
    return (model_rope){.kind = MODEL_ROPE_DEFAULT,
                        .theta = 10000.0,
                        .factor = MODEL_ABSENT,
                        .low_freq_factor = MODEL_ABSENT,
                        .high_freq_factor = MODEL_ABSENT,
                        .beta_fast = MODEL_ABSENT,
                        .beta_slow = MODEL_ABSENT,
                        .attention_factor = MODEL_ABSENT,
                        .mscale = MODEL_ABSENT,
                        .mscale_all_dim = MODEL_ABSENT,
                        .truncate = true};
}

static status size_check(const char *name, int64_t value, model_limits limits)
{
    if (value >= limits.min && value <= limits.max) return ST_OK;
    return fail(ST_MODEL, "the model's %s is %lld, expected %lld to %lld", name, (long long)value,
                (long long)limits.min, (long long)limits.max);
}

// Names the divisors of `of` next to `wanted`, below and above it.
static status divisor_refuse(const decoder_spec *s)
{
    int64_t below = s->kv_heads, above = s->kv_heads;
    while (below > 1 && s->heads % below != 0) below--;
    while (above < s->heads && s->heads % above != 0) above++;
    if (above > s->heads) above = s->heads;
    return fail(ST_MODEL,
                "the model's kv_heads = %lld does not divide heads = %lld; nearest that do: %lld "
                "and %lld",
                (long long)s->kv_heads, (long long)s->heads, (long long)min_i64(below, s->heads),
                (long long)above);
}

static status sizes_check(const decoder_spec *s)
{
    TRY(size_check("layers", s->layers, model_limits_layers));
    TRY(size_check("dim", s->dim, model_limits_dim));
    TRY(size_check("heads", s->heads, model_limits_heads));
    TRY(size_check("kv_heads", s->kv_heads, model_limits_heads));
    TRY(size_check("head_dim", s->head_dim, model_limits_head_dim));
    TRY(size_check("ffn_dim", s->ffn_dim, model_limits_ffn));
    TRY(size_check("vocab", s->vocab, model_limits_vocab));
    TRY(size_check("context", s->context, model_limits_context));
    if (s->heads % s->kv_heads != 0) return divisor_refuse(s);
    return ST_OK;
}

// Returns the form of experts that files of the architecture cannot hold; NULL: they can.
static const char *experts_refused(const model_arch *arch, const decoder_spec *s)
{
    const model_experts *e = &s->experts;
    const arch_keys *k = arch->keys;
    const struct {
        bool wrong;
        const char *what;
    } rules[] = {
        {e->count == 0, "no experts"},
        {e->shared > 0 && k->shared == NULL && k->shared_ffn_dim == NULL,
         "experts that every token uses"},
        {(e->sigmoid != arch->sigmoid && k->score == NULL) || e->correction != arch->correction ||
             e->group_pairs != arch->group_pairs || e->shared_gate != arch->shared_gate,
         "another kind of router"},
        {e->bias != arch->expert_bias, e->bias ? "biases of experts" : "experts without biases"},
        {(e->groups > 0 || e->scale > 0.0f) && k->groups == NULL, "groups of experts"},
        {e->unscaled != arch->unscaled && k->weights_sum == NULL,
         "weights of experts that do not add up to 1"},
        {e->shared > 1 && k->shared == NULL, "several experts that every token uses"},
        {e->every > 1 && k->every == NULL, "layers without experts"},
        {e->dense_layers > 0 && k->dense_layers == NULL && k->dense_first == NULL,
         "layers without experts"},
        {e->dense_layers > 0 && e->every > 1, "layers without experts both below and between"},
        {e->mixed != NULL && k->dense_layers == NULL, "other layers without experts"},
        {e->ffn_dim != s->ffn_dim && k->expert_ffn_dim == NULL, "another width of its experts"},
    };
    for (int64_t i = 0; i < COUNT_OF(rules); i++) {
        if (rules[i].wrong) return rules[i].what;
    }
    return NULL;
}

static status experts_check(const model_arch *arch, const decoder_spec *s)
{
    const char *what = arch->experts != NULL ? experts_refused(arch, s) : NULL;
    if (s->next_layers > 0 && arch->keys->next_layers == NULL) {
        what = "layers that predict the token after the next";
    }
    if (what == NULL) return ST_OK;
    return fail(ST_MODEL, "the model is of type %s, which cannot have %s", arch->name, what);
}

// Returns the numbers that the architecture's config.json has no key for; NULL: none.
static const char *number_refused(const arch_keys *k, const decoder_spec *s)
{
    const struct {
        bool is_set;
        const char *key, *what;
    } rows[] = {
        {s->attention_scalar > 0.0, k->attention_scalar, "another scale of its scores"},
        {s->attention_cap > 0.0f, k->attention_cap, "capped scores"},
        {s->logit_cap > 0.0f, k->logit_cap, "capped logits"},
        {s->idle_cap > 0.0f, k->idle_cap, "capped scores"},
        {s->qkv_clip > 0.0f, k->clip, "bounds of queries, keys and values"},
        {s->rotary_share > 0.0, k->rotary, "positions that rotate a part of each head"},
        {s->rope_local_theta > 0.0, k->rope_local_theta, "two rotary bases"},
    };
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        if (rows[i].is_set && rows[i].key == NULL) return rows[i].what;
    }
    return NULL;
}

// Refuses features that the architecture's config.json cannot express.
static status arch_check(const decoder_spec *s)
{
    if (s->arch == NULL) return fail(ST_MODEL, "the model has no architecture");
    const model_arch *arch = model_arch_find(s->arch);
    if (arch == NULL) return model_arch_unknown("the model", s->arch);
    const bool is_gpt2 = arch->keys->kv_heads == NULL;
    const struct {
        bool wrong;
        const char *what;
    } rules[] = {
        {s->norm != arch->norm, "a different norm"},
        {s->norm_bias != (arch->norm == MODEL_LAYERNORM), "a different choice of norm bias"},
        {s->mlp != arch->mlp, "a different kind of MLP"},
        {s->position != arch->position, "a different kind of positions"},
        {s->qk_norm != arch->qk_norm && arch->keys->qk_norm == NULL,
         arch->qk_norm ? "no QK norm" : "a QK norm"},
        {s->norm_place != arch->norm_place || s->norm_plus_one != arch->norm_plus_one ||
             s->qk_norm_whole != arch->qk_norm_whole,
         "other norms"},
        {(s->embed_scale > 0.0f) != arch->embed_scaled, "another scale of its embedding"},
        {arch->attention_bias == ARCH_BIAS_NEVER && (s->qkv_bias || s->out_bias),
         "biases in its attention"},
        {arch->attention_bias == ARCH_BIAS_KEY && s->qkv_bias != s->out_bias,
         "biases on some attention projections only"},
        {arch->attention_bias == ARCH_BIAS_INPUT && (!s->qkv_bias || s->out_bias),
         "biases other than those on q, k and v"},
        {arch->attention_bias == ARCH_BIAS_INPUT_KEY && s->out_bias,
         "a bias on the output of its attention"},
        {arch->attention_bias == ARCH_BIAS_ALWAYS && (!s->qkv_bias || !s->out_bias),
         "attention without biases"},
        {arch->mlp_bias == ARCH_BIAS_NEVER && s->mlp_bias, "biases in its MLP"},
        {arch->mlp_bias == ARCH_BIAS_ALWAYS && !s->mlp_bias, "no biases in its MLP"},
        {is_gpt2 && s->kv_heads != s->heads, "grouped heads"},
        {is_gpt2 && s->heads * s->head_dim != s->dim, "an attention width other than the model's"},
        {s->sinks != arch->sinks, s->sinks ? "sinks of attention" : "no sinks of attention"},
        {(s->gate_limit > 0.0f || s->gate_slope > 0.0f) != (arch->gate_limit > 0.0),
         "another gate of its experts"},
        {s->rope_interleaved && !arch->latent, "interleaved pairs of rotary positions"},
        {(s->latent.kv_rank > 0) != arch->latent && (arch->experts != NULL || arch->latent),
         arch->latent ? "other attention than a latent one" : "latent attention"},
    };
    for (int64_t i = 0; i < COUNT_OF(rules); i++) {
        if (rules[i].wrong) {
            return fail(ST_MODEL, "the model is of type %s, which cannot have %s", arch->name,
                        rules[i].what);
        }
    }
    const char *number = number_refused(arch->keys, s);
    if (number == NULL) return experts_check(arch, s);
    return fail(ST_MODEL, "the model is of type %s, which cannot have %s", arch->name, number);
}

static status windows_check(const decoder_spec *s)
{
    if (s->windows == NULL) return ST_OK;
    const model_arch *arch = model_arch_find(s->arch);
    int32_t window = 0;
    int64_t sliding = 0;
    for (int64_t i = 0; i < s->layers; i++) {
        if (s->windows[i] < 0) {
            return fail(ST_MODEL, "the window of layer %lld is %d", (long long)i, s->windows[i]);
        }
        if (s->windows[i] == 0) continue;
        if (window != 0 && s->windows[i] != window) {
            return fail(ST_MODEL, "the model has windows of %d and of %d, expected one size",
                        window, s->windows[i]);
        }
        window = s->windows[i];
        sliding++;
    }
    if (sliding == 0) return ST_OK;
    if (s->experts.count > 0 && arch->experts == NULL) return ST_OK; // another model type
    if (arch->windows == ARCH_WINDOWS_NEVER) {
        return fail(ST_MODEL,
                    "the model is of type %s, which has no attention windows; mistral, qwen2 and "
                    "qwen3 have",
                    arch->name);
    }
    const bool is_by_layer =
        arch->windows == ARCH_WINDOWS_BY_LAYER || arch->windows == ARCH_WINDOWS_PATTERN;
    if (!is_by_layer && sliding != s->layers) {
        return fail(ST_MODEL,
                    "%lld of %lld layers have a window; %s has one on all or none, qwen2, qwen3 "
                    "and gemma2 by layer",
                    (long long)sliding, (long long)s->layers, arch->name);
    }
    return ST_OK;
}

// Checks the parts of a spec that can only be planned.
static status planned_check(const decoder_spec *s)
{
    const model_experts *e = &s->experts;
    const model_latent *l = &s->latent;
    if (e->count > 0 && (e->top_k < 1 || e->top_k > e->count)) {
        return fail(ST_MODEL, "experts.top_k is %lld, expected 1 to experts.count, %lld",
                    (long long)e->top_k, (long long)e->count);
    }
    if (e->count > 0 && (e->ffn_dim < 1 || e->every < 1)) {
        return fail(ST_MODEL, "the model's experts have no width, or lie in every 0th layer");
    }
    if (e->groups > 0 &&
        (e->groups > e->count || e->count % e->groups != 0 || e->top_groups < 1 ||
         e->top_groups > e->groups || e->top_groups * (e->count / e->groups) < e->top_k ||
         (e->group_pairs && e->count / e->groups < 2))) {
        return fail(
            ST_MODEL,
            "%lld experts in %lld groups, of which a token uses %lld, for %lld experts of a "
            "token: groups must be equally large and have enough experts",
            (long long)e->count, (long long)e->groups, (long long)e->top_groups,
            (long long)e->top_k);
    }
    if (l->kv_rank > 0 && (l->nope_dim < 1 || l->value_dim < 1)) {
        return fail(ST_MODEL, "latent attention needs latent.nope_dim and latent.value_dim");
    }
    return ST_OK;
}

static bool is_positive(double x) // false for NaN
{
    return x > 0.0 && x <= 1e15;
}

static status rope_check(const decoder_spec *s)
{
    const model_rope *r = &s->rope;
    if (s->position != MODEL_POSITION_ROPE) return ST_OK;
    if (model_rope_dim(s) % 2 != 0 || model_rope_dim(s) < 2) {
        return fail(ST_MODEL,
                    "the model's head_dim is %lld; rotary positions turn pairs, so it must "
                    "be even",
                    (long long)model_rope_dim(s));
    }
    if (!(r->theta > 1.0 && r->theta <= 1e15)) {
        return fail(ST_MODEL, "the model's rope_theta is %g, expected more than 1", r->theta);
    }
    if (r->original_context < 0 || r->original_context > model_limits_context.max) {
        return fail(ST_MODEL, "the model's original context is %lld, expected 0 to %lld",
                    (long long)r->original_context, (long long)model_limits_context.max);
    }
    const bool has_factor = r->kind == MODEL_ROPE_LINEAR || r->kind == MODEL_ROPE_DYNAMIC ||
                            r->kind == MODEL_ROPE_LLAMA3;
    const struct {
        const char *name;
        double value;
        bool needed;
    } numbers[] = {
        {"factor", r->factor, has_factor},
        {"low_freq_factor", r->low_freq_factor, r->kind == MODEL_ROPE_LLAMA3},
        {"high_freq_factor", r->high_freq_factor, r->kind == MODEL_ROPE_LLAMA3},
        {"attention_factor", r->attention_factor, false},
    };
    for (int64_t i = 0; i < COUNT_OF(numbers); i++) {
        if (is_positive(numbers[i].value)) continue;
        if (isnan(numbers[i].value) && !numbers[i].needed) continue;
        return fail(ST_MODEL, "rotary positions of kind %s need %s, a number above 0%s",
                    model_rope_names[r->kind], numbers[i].name,
                    isnan(numbers[i].value) ? ", which is missing" : "");
    }
    if (r->kind == MODEL_ROPE_LLAMA3 && !(r->high_freq_factor > r->low_freq_factor)) {
        return fail(ST_MODEL, "high_freq_factor = %g must be above low_freq_factor = %g",
                    r->high_freq_factor, r->low_freq_factor);
    }
    if (r->kind == MODEL_ROPE_DYNAMIC && model_rope_dim(s) < 4) {
        return fail(ST_MODEL, "dynamic rotary positions need a head_dim of 4 or more, found %lld",
                    (long long)s->head_dim);
    }
    if (r->kind == MODEL_ROPE_LONGROPE && (r->short_factor == NULL || r->long_factor == NULL)) {
        return fail(ST_MODEL,
                    "rotary positions of kind longrope need short_factor and long_factor");
    }
    return ST_OK;
}

static status share_check(const char *name, float value)
{
    if (value >= 0.0f && value < 1.0f) return ST_OK;
    return fail(ST_MODEL, "the model's %s is %g, expected 0 to less than 1", name, (double)value);
}

static bool has_window_gaps(const decoder_spec *s)
{
    int64_t sliding = 0;
    for (int64_t i = 0; s->windows != NULL && i < s->layers; i++) sliding += s->windows[i] > 0;
    return sliding != 0 && sliding != s->layers;
}

bool model_bias_is_of_input(const decoder_spec *s)
{
    const arch_bias bias = model_arch_find(s->arch)->attention_bias;
    return bias == ARCH_BIAS_INPUT || bias == ARCH_BIAS_INPUT_KEY;
}

void model_experts_arch(decoder_spec *s)
{
    const bool is_qwen = strcmp(s->arch, "qwen3") == 0;
    const bool is_llama = strcmp(s->arch, "llama") == 0 || strcmp(s->arch, "mistral") == 0;
    decoder_spec as = *s;
    if (s->experts.count == 0 || s->latent.kv_rank > 0 || (!is_qwen && !is_llama)) return;
    if (s->counted_only || has_window_gaps(s)) return;
    as.arch = is_qwen ? "qwen3_moe" : "mixtral";
    if (is_llama) as.ffn_dim = s->experts.ffn_dim; // no layer has a dense MLP
    if (is_llama && (s->qkv_bias || s->mlp_bias)) return;
    if (s->next_layers > 0 || experts_refused(model_arch_find(as.arch), &as) != NULL) {
        as = *s;
        as.arch = "glm4_moe";
        as.experts.correction = as.experts.group_pairs = true; // a bias of zeros changes nothing
        if (s->windows != NULL || s->qkv_bias) return;
        if (experts_refused(model_arch_find(as.arch), &as) != NULL) return;
    }
    *s = as;
}

bool model_is_planned_only(const decoder_spec *spec)
{
    const model_arch *arch = model_arch_find(spec->arch);
    const bool has_row = spec->experts.count == 0 || arch->experts != NULL;
    return (spec->latent.kv_rank > 0 && !arch->latent) || !has_row;
}

bool model_has_files(const decoder_spec *spec)
{
    const model_arch *arch = model_arch_find(spec->arch);
    if (spec->experts.count == 0) return true;
    return arch->experts != NULL && arch->sigmoid == spec->experts.sigmoid;
}

status model_spec_check(const decoder_spec *spec)
{
    TRY(sizes_check(spec));
    TRY(arch_check(spec));
    TRY(windows_check(spec));
    TRY(rope_check(spec));
    TRY(planned_check(spec));
    TRY(share_check("dropout of the embedding", spec->dropout_embedding));
    TRY(share_check("dropout of the attention", spec->dropout_attention));
    TRY(share_check("residual dropout", spec->dropout_residual));
    TRY(share_check("norm_eps", spec->norm_eps));
    if (!(spec->init_std >= 0.0f && spec->init_std <= 10.0f)) {
        return fail(ST_MODEL, "the model's init_std is %g, expected 0 to 10",
                    (double)spec->init_std);
    }
    return ST_OK;
}
