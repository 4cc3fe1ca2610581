// Makes a decoder_spec from a run's model.* keys, over a preset, over a Hugging Face folder, or
// from sizes alone. Absent keys keep the preset's value or follow from other sizes.
#include "base/text.h"
#include "model/arch/arch.h"
#include "model/preset.h"
#include "model/spec.h"

#include <string.h>

// GPT-2's MLP is four times as wide as the model; a gated MLP has three matrices instead of two, so
// it takes 8/3 of the width, rounded up to a multiple that suits GEMMs.
static int64_t usual_ffn(const decoder_spec *s)
{
    if (s->mlp == MODEL_MLP_GELU) return 4 * s->dim;
    return align_up((8 * s->dim + 2) / 3, s->dim >= 1024 ? 256 : 32);
}

static const model_arch *arch_of(int32_t choice)
{
    static const char *const names[] = {"llama", "gpt2", "llama", "mistral", "qwen2", "qwen3"};
    ASSERT(choice >= 0 && choice < COUNT_OF(names));
    return model_arch_find(names[choice]);
}

static void size_set(int64_t *size, int64_t given)
{
    if (given > 0) *size = given;
}

// Derives sizes: the head size from width and heads, the key and value heads from heads, unless the
// preset states them.
static status sizes_apply(const run_config *c, bool is_fresh, decoder_spec *s)
{
    const bool own_head_dim = !is_fresh && s->head_dim * s->heads != s->dim;
    const bool own_kv_heads = !is_fresh && s->kv_heads != s->heads;
    size_set(&s->layers, c->model.layers);
    size_set(&s->dim, c->model.dim);
    size_set(&s->heads, c->model.heads);
    size_set(&s->vocab, c->model.vocab);
    size_set(&s->context, c->model.context);
    if (s->context == 0) s->context = c->train.seq;
    if (s->heads <= 0) return fail(ST_MODEL, "model.heads is not given");
    if (!own_kv_heads) s->kv_heads = s->heads;
    size_set(&s->kv_heads, c->model.kv_heads);
    if (c->model.head_dim > 0) {
        s->head_dim = c->model.head_dim;
    } else if (!own_head_dim) {
        if (s->dim % s->heads != 0) {
            return fail(ST_CONFIG_CONFLICT,
                        "model.dim = %lld is not a multiple of model.heads = %lld; nearest dims "
                        "that are: %lld and %lld; or give model.head_dim",
                        (long long)s->dim, (long long)s->heads,
                        (long long)max_i64(s->dim / s->heads * s->heads, s->heads),
                        (long long)align_up(s->dim, s->heads));
        }
        s->head_dim = s->dim / s->heads;
    }
    size_set(&s->ffn_dim, c->model.ffn_dim);
    if (s->ffn_dim == 0) s->ffn_dim = usual_ffn(s);
    return ST_OK;
}

// Refuses keys of experts for a model that has none.
static status experts_refuse(const run_config *c)
{
    const struct {
        const char *key;
        int64_t given;
    } keys[] = {{"model.router.groups", c->model.router.groups},
                {"model.router.top_groups", c->model.router.top_groups},
                {"model.experts_per_token", c->model.experts_per_token},
                {"model.shared_experts", c->model.shared_experts},
                {"model.expert_ffn_dim", c->model.expert_ffn_dim},
                {"model.dense_layers", c->model.dense_layers}};
    for (int64_t i = 0; i < COUNT_OF(keys); i++) {
        if (keys[i].given == 0) continue;
        return fail(ST_CONFIG_CONFLICT,
                    "%s = %lld has no effect: the model has no experts; give model.experts",
                    keys[i].key, (long long)keys[i].given);
    }
    const char *router = c->model.router.score != RUN_SCORE_AUTO ? "model.router.score"
                         : c->model.router.normalize != RUN_AUTO ? "model.router.normalize"
                         : c->model.router.scale > 0.0           ? "model.router.scale"
                         : c->model.router.bias_rate > 0.0       ? "model.router.bias_rate"
                                                                 : NULL;
    if (router == NULL) return ST_OK;
    return fail(ST_CONFIG_CONFLICT,
                "%s has no effect: the model has no experts; give model.experts", router);
}

static void router_set(const run_config *c, model_experts *e)
{
    size_set(&e->groups, c->model.router.groups);
    size_set(&e->top_groups, c->model.router.top_groups);
    if (e->groups > 0 && e->top_groups == 0) e->top_groups = max_i64(e->groups / 2, 1);
    if (c->model.router.scale > 0.0) e->scale = (float)c->model.router.scale;
    if (c->model.router.normalize != RUN_AUTO) e->unscaled = c->model.router.normalize == RUN_NO;
    if (c->model.router.score != RUN_SCORE_AUTO) {
        e->sigmoid = c->model.router.score == RUN_SCORE_SIGMOID;
    } else if (c->model.router.bias_rate > 0.0 && !e->correction) {
        e->sigmoid = true; // as the models that are balanced so have it
    }
    if (c->model.router.bias_rate > 0.0) e->correction = true;
    if (c->model.router.groups > 0) e->group_pairs = e->sigmoid; // as DeepSeek-V3 and V2 have it
}

// Experts replace the MLP where the configuration or the preset has any.
static status experts_set(const run_config *c, decoder_spec *s)
{
    model_experts *e = &s->experts;
    size_set(&e->count, c->model.experts);
    size_set(&e->top_k, c->model.experts_per_token);
    size_set(&e->shared, c->model.shared_experts);
    size_set(&e->ffn_dim, c->model.expert_ffn_dim);
    size_set(&e->dense_layers, c->model.dense_layers);
    if (e->count == 0) return experts_refuse(c);
    if (e->top_k == 0) e->top_k = 2;
    if (e->ffn_dim == 0) e->ffn_dim = s->ffn_dim;
    if (e->every == 0) e->every = 1;
    router_set(c, e);
    if (e->dense_layers >= s->layers) return fail(ST_MODEL, "the model has experts in no layer");
    const bool is_dense_used = e->dense_layers > 0 || e->every > 1;
    if (is_dense_used || c->model.ffn_dim == 0 || c->model.ffn_dim == e->ffn_dim) return ST_OK;
    return fail(ST_CONFIG_CONFLICT,
                "model.ffn_dim = %lld has no effect: every layer has experts, and their width is "
                "model.expert_ffn_dim = %lld; give the latter alone",
                (long long)c->model.ffn_dim, (long long)e->ffn_dim);
}

static void bool_set(bool *value, int32_t choice)
{
    if (choice != RUN_AUTO) *value = choice == RUN_YES;
}

// A window turns Llama into Mistral, which is the same model with windows on all layers.
static status window_apply(arena *a, const run_config *c, decoder_spec *s)
{
    if (c->model.window == 0) return ST_OK;
    if (c->model.arch == RUN_ARCH_AUTO && strcmp(s->arch, "llama") == 0) s->arch = "mistral";
    int32_t *windows = NULL;
    TRY(arena_new(a, s->layers, &windows));
    for (int64_t i = 0; i < s->layers; i++) windows[i] = (int32_t)c->model.window;
    s->windows = windows;
    return ST_OK;
}

// Adapts a preset's windows to another number of layers: by layer number, repeating the last.
static status windows_fit(arena *a, int64_t layers_before, decoder_spec *s)
{
    if (s->windows == NULL || s->layers == layers_before) return ST_OK;
    int32_t *windows = NULL;
    TRY(arena_new(a, s->layers, &windows));
    for (int64_t i = 0; i < s->layers; i++) windows[i] = s->windows[min_i64(i, layers_before - 1)];
    s->windows = windows;
    return ST_OK;
}

// Layers that predict further tokens train with the model's own loss alone, so a run with another
// leaves out those of the folder.
static status next_set(const run_config *c, decoder_spec *s)
{
    const bool has_adapter = c->adapter.from != NULL || c->adapter.kind != RUN_ADAPTER_NONE;
    const bool has_other = run_config_objective(c).kind != OBJECTIVE_NONE;
    if (c->model.mtp_layers >= 0) s->next_layers = c->model.mtp_layers;
    if (has_adapter || has_other) s->next_layers = 0;
    if (c->model.mtp_layers > 0 && s->next_layers == 0) {
        return fail(ST_CONFIG_CONFLICT, "model.mtp_layers = %lld cannot be used with %s",
                    (long long)c->model.mtp_layers,
                    has_adapter ? "an adapter" : "this train.objective");
    }
    if (c->train.mtp_loss == 0.0 || s->next_layers > 0) return ST_OK;
    return fail(ST_CONFIG_CONFLICT,
                "train.mtp_loss = %g has no effect: the model has no layer that predicts the token "
                "after the next; give model.mtp_layers=1",
                c->train.mtp_loss);
}

static status keys_apply(arena *a, const run_config *c, bool is_fresh, decoder_spec *s)
{
    const int64_t layers = s->layers;
    TRY(sizes_apply(c, is_fresh, s));
    model_arch_sized(model_arch_find(s->arch), s);
    TRY(experts_set(c, s));
    TRY(windows_fit(a, layers, s));
    TRY(window_apply(a, c, s));
    if (c->model.rope_theta > 0.0) s->rope.theta = c->model.rope_theta;
    if (c->model.norm_eps > 0.0) s->norm_eps = (float)c->model.norm_eps;
    bool_set(&s->tied, c->model.tied);
    bool_set(&s->qkv_bias, c->model.attention_bias);
    if (!model_bias_is_of_input(s)) bool_set(&s->out_bias, c->model.attention_bias);
    bool_set(&s->mlp_bias, c->model.mlp_bias);
    bool_set(&s->qk_norm, c->model.qk_norm);
    TRY(next_set(c, s));
    model_experts_arch(s);
    return ST_OK;
}

// A folder's model keeps its form, so only one with a bias has one that can move.
static status bias_check(const run_config *c, const decoder_spec *s)
{
    if (c->model.router.bias_rate == 0.0 || s->experts.correction) return ST_OK;
    return fail(ST_CONFIG_CONFLICT,
                "model.router.bias_rate = %g has no effect: the routers of %s have no bias for the "
                "choice of experts; use moe.aux_loss",
                c->model.router.bias_rate, c->model.from);
}

// train.objective = reward gives the model the head of a reward model, which others cannot train.
static status scores_apply(const run_config *c, decoder_spec *s)
{
    const bool wanted = run_objective_at(c->train.objective)->kind == OBJECTIVE_REWARD;
    if (wanted && s->scores == MODEL_WRITES) s->scores = MODEL_SCORES_NEW;
    if (wanted && model_arch_find(s->arch)->scores_class == NULL) {
        return fail(ST_UNSUPPORTED,
                    "train.objective = reward: a %s model cannot be a reward model, because "
                    "transformers has no class for it",
                    s->arch);
    }
    if (wanted || s->scores == MODEL_WRITES) return ST_OK;
    return fail(ST_CONFIG_CONFLICT,
                "model.from = %s is a reward model, which writes no text; train it with "
                "train.objective = reward",
                c->model.from);
}

// The dropout of an adapter is that of the run, never that of its folder.
static status adapter_apply(const host *h, arena *a, const run_config *c, decoder_spec *s)
{
    bool is_there = false;
    if (c->model.from != NULL) TRY(model_adapter_is_there(h, a, c->model.from, &is_there));
    if (is_there) {
        const char *quoted = NULL;
        TRY(text_quote(a, c->model.from, &quoted));
        return fail(ST_CONFIG_CONFLICT,
                    "model.from = %s is a model with an adapter: train on from its base model and "
                    "its adapter (`trireme export %s --adapter DIR`, then adapter.from = DIR), or "
                    "from one with the adapter in its weights (`trireme export %s DIR --merge`)",
                    c->model.from, quoted, quoted);
    }
    if (c->adapter.from != NULL) {
        TRY(model_adapter_read(h, a, c->adapter.from, true, &s->adapter));
    } else if (c->adapter.kind != RUN_ADAPTER_NONE) {
        s->adapter = (model_adapter){.rank = c->adapter.rank,
                                     .alpha = c->adapter.alpha,
                                     .rslora = c->adapter.kind == RUN_ADAPTER_RSLORA,
                                     .dora = c->adapter.kind == RUN_ADAPTER_DORA,
                                     .targets = c->adapter.targets,
                                     .saved = DTYPE_F32};
    }
    s->adapter.dropout = (float)c->adapter.dropout;
    s->adapter.quant = (op_quant)c->adapter.quantize;
    return ST_OK;
}

status model_spec_from_config(const host *h, arena *a, const run_config *c, decoder_spec *out)
{
    decoder_spec s;
    if (c->model.from != NULL) {
        TRY(model_spec_from_hf(h, a, c->model.from, &s));
        TRY(bias_check(c, &s));
        TRY(next_set(c, &s));
    } else {
        const bool is_fresh = c->model.preset == NULL;
        if (is_fresh) {
            s = model_arch_spec(arch_of(c->model.arch));
        } else {
            TRY(model_preset_find(h, a, c->model.preset, &s));
        }
        TRY(keys_apply(a, c, is_fresh, &s));
    }
    // Dropout is that of the run's configuration (default 0), never that of the model's folder.
    s.dropout_embedding = s.dropout_attention = s.dropout_residual = (float)c->model.dropout;
    TRY(adapter_apply(h, a, c, &s));
    TRY(scores_apply(c, &s));
    decoder_spec checked = s;
    if (checked.vocab == 0) checked.vocab = 1; // the tokenizer sets it later
    TRY(model_spec_check(&checked));
    *out = s;
    return ST_OK;
}
