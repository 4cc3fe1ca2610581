// Makes a decoder_spec from the config.json of a model with experts that has no row in arch/:
// DBRX, Llama 4. Such a model can be counted, planned and simulated; model_build refuses to train
// it, and import refuses its weights.
//
// Each type is a row: the keys that hold its sizes, and the dense architecture whose blocks it
// shares. Keys that change no size (scaling of scores, losses that balance experts) are ignored.
#include "model/arch/arch.h"
#include "model/spec.h"

#include <string.h>

typedef struct hf_type {
    const char *type, *arch;     // model_type, and the dense architecture with the same blocks
    const char *sizes;           // the map that holds its sizes; NULL: the root
    const char *attention, *ffn; // inner maps of attention and expert sizes; NULL: none
    const char *layers, *dim, *heads, *kv_heads, *context;
    const char *dense_ffn; // NULL: every layer has experts
    const char *expert_ffn, *count, *top_k;
    const char *shared;      // experts that every token uses; NULL: always_shared
    const char *dense_first; // number of layers without experts at the bottom
    const char *every;       // every n-th of the other layers has experts
    int64_t always_shared;
} hf_type;

static const hf_type types[] = {
    {.type = "dbrx",
     .arch = "llama",
     .attention = "attn_config",
     .ffn = "ffn_config",
     .layers = "n_layers",
     .dim = "d_model",
     .heads = "n_heads",
     .kv_heads = "kv_n_heads",
     .context = "max_seq_len",
     .expert_ffn = "ffn_hidden_size",
     .count = "moe_num_experts",
     .top_k = "moe_top_k"},
    {.type = "llama4",
     .arch = "llama",
     .sizes = "text_config",
     .dense_ffn = "intermediate_size_mlp",
     .expert_ffn = "intermediate_size",
     .count = "num_local_experts",
     .top_k = "num_experts_per_tok",
     .every = "interleave_moe_layer_step",
     .always_shared = 1},
    {.type = "llama4_text",
     .arch = "llama",
     .dense_ffn = "intermediate_size_mlp",
     .expert_ffn = "intermediate_size",
     .count = "num_local_experts",
     .top_k = "num_experts_per_tok",
     .every = "interleave_moe_layer_step",
     .always_shared = 1},
};

typedef struct hf_reader {
    const char *file;
    const hf_type *t;
    const json *sizes, *attention, *ffn;
} hf_reader;

static bool is_given(const json *value)
{
    return value != NULL && json_kind_of(value) != JSON_NULL_VALUE;
}

// Absent or null: returns `otherwise` if it is not negative, else refuses. A NULL key is absent.
static status size_read(const hf_reader *r, const json *map, const char *key, model_limits limits,
                        int64_t otherwise, int64_t *out)
{
    const json *value = key != NULL ? json_get(map, key) : NULL;
    *out = otherwise;
    if (!is_given(value) && otherwise >= 0) return ST_OK;
    const int64_t number = json_int(value, -1);
    if (json_kind_of(value) == JSON_INT && number >= limits.min && number <= limits.max) {
        *out = number;
        return ST_OK;
    }
    return fail(ST_MODEL, "%s: \"%s\": expected a whole number from %lld to %lld", r->file, key,
                (long long)limits.min, (long long)limits.max);
}

static const char *or_usual(const char *key, const char *usual)
{
    return key != NULL ? key : usual;
}

static status shape_read(const hf_reader *r, decoder_spec *s)
{
    const hf_type *t = r->t;
    const json *m = r->sizes;
    TRY(size_read(r, m, "vocab_size", model_limits_vocab, -1, &s->vocab));
    TRY(size_read(r, m, or_usual(t->layers, "num_hidden_layers"), model_limits_layers, -1,
                  &s->layers));
    TRY(size_read(r, m, or_usual(t->dim, "hidden_size"), model_limits_dim, -1, &s->dim));
    TRY(size_read(r, m, or_usual(t->heads, "num_attention_heads"), model_limits_heads, -1,
                  &s->heads));
    TRY(size_read(r, r->attention, or_usual(t->kv_heads, "num_key_value_heads"), model_limits_heads,
                  s->heads, &s->kv_heads));
    TRY(size_read(r, m, "head_dim", model_limits_head_dim, s->dim / s->heads, &s->head_dim));
    TRY(size_read(r, m, or_usual(t->context, "max_position_embeddings"), model_limits_context, -1,
                  &s->context));
    s->tied = json_bool(json_get(m, "tie_word_embeddings"), false);
    if (model_arch_find(t->arch)->attention_bias == ARCH_BIAS_KEY) {
        s->qkv_bias = s->out_bias = json_bool(json_get(m, "attention_bias"), false);
    }
    const double theta = json_real(json_get(r->attention, "rope_theta"), 0.0);
    if (theta >= 1.0) s->rope.theta = theta;
    return ST_OK;
}

static status experts_read(const hf_reader *r, decoder_spec *s)
{
    const hf_type *t = r->t;
    const model_limits some = model_limits_experts, any = {0, some.max};
    model_experts *e = &s->experts;
    TRY(size_read(r, r->ffn, t->count, some, -1, &e->count));
    TRY(size_read(r, r->ffn, t->top_k, some, -1, &e->top_k));
    TRY(size_read(r, r->ffn, t->expert_ffn, model_limits_ffn, -1, &e->ffn_dim));
    TRY(size_read(r, r->ffn, t->shared, any, t->always_shared, &e->shared));
    TRY(size_read(r, r->sizes, t->dense_first, any, 0, &e->dense_layers));
    TRY(size_read(r, r->sizes, t->every, some, 1, &e->every));
    TRY(size_read(r, r->sizes, t->dense_ffn, model_limits_ffn, e->ffn_dim, &s->ffn_dim));
    const json *dense = json_get(r->sizes, "mlp_only_layers");
    if (json_count(dense) == 0) return ST_OK;
    return fail(ST_UNSUPPORTED,
                "%s: \"mlp_only_layers\" names %lld layers; supported is an empty list", r->file,
                (long long)json_count(dense));
}

static status latent_read(const hf_reader *r, decoder_spec *s)
{
    model_latent *l = &s->latent;
    const model_limits rank = {1, 1 << 20}, head = model_limits_head_dim;
    TRY(size_read(r, r->sizes, "kv_lora_rank", rank, 0, &l->kv_rank));
    if (l->kv_rank == 0) return ST_OK;
    TRY(size_read(r, r->sizes, "q_lora_rank", rank, 0, &l->q_rank));
    TRY(size_read(r, r->sizes, "qk_nope_head_dim", head, -1, &l->nope_dim));
    TRY(size_read(r, r->sizes, "qk_rope_head_dim", head, -1, &l->rope_dim));
    TRY(size_read(r, r->sizes, "v_head_dim", head, -1, &l->value_dim));
    s->kv_heads = s->heads; // each head has its own keys and values, made from the same row
    return ST_OK;
}

// Reads which layers have a sliding window, by name.
static status sliding_read(const hf_reader *r, arena *a, decoder_spec *s)
{
    const json *names = json_get(r->sizes, "layer_types");
    const int64_t window = json_int(json_get(r->sizes, "sliding_window"), 0);
    int32_t *windows = NULL;
    if (json_count(names) != s->layers || window < 1 || window > INT32_MAX) return ST_OK;
    TRY(arena_new(a, s->layers, &windows));
    for (int64_t i = 0; i < s->layers; i++) {
        const bool slides = strcmp(json_text(json_at(names, i), ""), "sliding_attention") == 0;
        windows[i] = slides ? (int32_t)window : 0;
        if (slides) s->windows = windows;
    }
    return ST_OK;
}

// Returns the inner map, or `of` itself if there is none.
static const json *map_of(const json *of, const char *key)
{
    const json *map = key != NULL ? json_get(of, key) : NULL;
    return json_kind_of(map) == JSON_MAP ? map : of;
}

bool model_hf_has_experts(const json *root)
{
    const char *name = json_text(json_get(root, "model_type"), "");
    for (int64_t i = 0; i < COUNT_OF(types); i++) {
        if (strcmp(types[i].type, name) == 0) return true;
    }
    return false;
}

status model_spec_from_hf_experts(arena *a, const json *root, const char *name, decoder_spec *out)
{
    const char *type = json_text(json_get(root, "model_type"), "");
    hf_reader r = {.file = name};
    for (int64_t i = 0; i < COUNT_OF(types); i++) {
        if (strcmp(types[i].type, type) == 0) r.t = &types[i];
    }
    ASSERT(r.t != NULL);
    r.sizes = map_of(root, r.t->sizes);
    r.attention = map_of(r.sizes, r.t->attention);
    r.ffn = map_of(r.sizes, r.t->ffn);
    *out = model_arch_spec(model_arch_find(r.t->arch));
    out->counted_only = true;
    out->rope = model_rope_default();
    TRY(shape_read(&r, out));
    TRY(experts_read(&r, out));
    TRY(latent_read(&r, out));
    return sliding_read(&r, a, out);
}
