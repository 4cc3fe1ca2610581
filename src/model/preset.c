// Reads a preset: one YAML file of sizes with the names of a run's model.* keys. A name that is a
// path is read from that file, so a user's own models need no rebuild.
#include "model/preset.h"
#include "base/format/config.h"
#include "base/text.h"
#include "model/arch/arch.h"
#include "model/spec.h"

#include <math.h>
#include <string.h>

typedef struct preset {
    const char *about;
    int64_t parameters;
    const char *arch;
    int64_t layers, dim, heads, kv_heads, head_dim, ffn_dim, vocab, context, window;
    int64_t window_every;
    double norm_eps;
    bool tied, attention_bias, mlp_bias;
    int64_t bos_token, eos_token;
    double published;
    option_list sources, reported, assumed, differs;
    model_experts experts;
    double router_scale;
    model_latent latent;
    struct {
        double theta;
        int32_t type; // model_rope_kind
        double factor, low_freq_factor, high_freq_factor, beta_fast, beta_slow;
        int64_t original_context;
        bool truncate;
    } rope;
} preset;

#define AT(field) (int64_t) offsetof(preset, field)
#define INT(k, field, def, lo, hi, text)                                                         \
    {                                                                                            \
        .key = (k), .kind = OPTION_INT, .offset = AT(field), .default_text = (def), .min = (lo), \
        .max = (hi), .unit = "", .help = (text)                                                  \
    }
#define REAL(k, field, def, lo, hi, text)                                                         \
    {                                                                                             \
        .key = (k), .kind = OPTION_REAL, .offset = AT(field), .default_text = (def), .min = (lo), \
        .max = (hi), .unit = "", .help = (text)                                                   \
    }
#define OTHER(k, what, field, def, text, ...)                                                      \
    {                                                                                              \
        .key = (k), .kind = OPTION_##what, .offset = AT(field), .default_text = (def), .unit = "", \
        .help = (text), __VA_ARGS__                                                                \
    }

// Kinds of rotary positions in the order of model_rope_kind. (LongRoPE comes from model folders
// only.)
static const option rows[] = {
    OTHER("about", TEXT, about, NULL, "one line", .choices = NULL),
    INT("parameters", parameters, "0", 0, 9e15, "as published; a test counts them"),
    REAL("published", published, "0", 0, 1e6, "parameters in 1e9, if the exact number is unknown"),
    OTHER("sources", LIST, sources, NULL, "sources of the sizes", .choices = NULL),
    OTHER("reported", LIST, reported, NULL, "keys whose values come from third parties",
          .choices = NULL),
    OTHER("assumed", LIST, assumed, NULL, "keys whose values are assumed", .choices = NULL),
    OTHER("differs", LIST, differs, NULL, "differences of the real model", .choices = NULL),
    OTHER("arch", TEXT, arch, NULL, "a model type, such as llama or qwen3_moe", .choices = NULL),
    INT("layers", layers, NULL, 1, 1e4, "blocks"),
    INT("dim", dim, NULL, 1, 1 << 20, "width"),
    INT("heads", heads, NULL, 1, 1 << 16, "attention heads"),
    INT("kv_heads", kv_heads, "0", 0, 1 << 16, "heads of keys and values; 0 is heads"),
    INT("head_dim", head_dim, "0", 0, 256, "width of a head; 0 is dim / heads"),
    INT("ffn_dim", ffn_dim, NULL, 1, 1 << 22, "width of the MLP"),
    INT("vocab", vocab, NULL, 1, 1 << 24, "tokens"),
    INT("context", context, NULL, 1, 1 << 24, "longest sequence"),
    INT("window", window, "0", 0, 1 << 24, "attention window of every layer; 0 is none"),
    INT("window_every", window_every, "0", 0, 1e4,
        "every n-th layer has no window; 0: all have the window"),
    REAL("norm_eps", norm_eps, "1e-5", 0, 1, "epsilon of the norms"),
    OTHER("tied", BOOL, tied, "false", "one matrix for embedding and head", .choices = NULL),
    OTHER("attention_bias", BOOL, attention_bias, "false", "biases of the attention, of llama",
          .choices = NULL),
    OTHER("mlp_bias", BOOL, mlp_bias, "false", "biases of the MLP, of llama", .choices = NULL),
    INT("bos_token", bos_token, "-1", -1, INT32_MAX, "-1 is none"),
    INT("eos_token", eos_token, "-1", -1, INT32_MAX, "-1 is none"),
    INT("experts.count", experts.count, "0", 0, 1 << 16, "0 is a dense model"),
    INT("experts.top_k", experts.top_k, "1", 1, 1 << 16, "experts that a token uses"),
    INT("experts.shared", experts.shared, "0", 0, 1 << 16, "experts that every token uses"),
    INT("experts.ffn_dim", experts.ffn_dim, "0", 0, 1 << 22, "width of one expert; 0 is ffn_dim"),
    INT("experts.dense_layers", experts.dense_layers, "0", 0, 1e4,
        "number of layers without experts at the bottom"),
    INT("experts.every", experts.every, "1", 1, 1e4, "every n-th of the other layers has experts"),
    INT("experts.groups", experts.groups, "0", 0, 1 << 16, "groups of experts; 0 is none"),
    INT("experts.top_groups", experts.top_groups, "0", 0, 1 << 16, "groups that a token uses"),
    REAL("experts.scale", router_scale, "0", 0, 1e6, "factor of a token's weights; 0 is 1"),
    INT("latent.q_rank", latent.q_rank, "0", 0, 1 << 20, "width of latent queries; 0 is none"),
    INT("latent.kv_rank", latent.kv_rank, "0", 0, 1 << 20,
        "width of latent keys and values; 0 is none"),
    INT("latent.nope_dim", latent.nope_dim, "0", 0, 1 << 16,
        "width of a head's part without positions"),
    INT("latent.rope_dim", latent.rope_dim, "0", 0, 1 << 16,
        "width of a head's part with rotary positions"),
    INT("latent.value_dim", latent.value_dim, "0", 0, 1 << 16, "width of a head's values"),
    REAL("rope.theta", rope.theta, "10000", 1, 1e15, "base of the rotary frequencies"),
    OTHER("rope.type", CHOICE, rope.type, "default", "kind of context extension",
          .choices = "default, linear, dynamic, llama3, yarn"),
    REAL("rope.factor", rope.factor, "0", 0, 1e9, "factor of the extension; 0 is none"),
    REAL("rope.low_freq_factor", rope.low_freq_factor, "0", 0, 1e9, "llama3 only"),
    REAL("rope.high_freq_factor", rope.high_freq_factor, "0", 0, 1e9, "llama3 only"),
    REAL("rope.beta_fast", rope.beta_fast, "0", 0, 1e9, "YaRN only; 0 is 32"),
    REAL("rope.beta_slow", rope.beta_slow, "0", 0, 1e9, "YaRN only; 0 is 1"),
    INT("rope.original_context", rope.original_context, "0", 0, 1 << 24,
        "context before the extension; 0 is context"),
    OTHER("rope.truncate", BOOL, rope.truncate, "true", "YaRN only: whole pairs bound the ramp",
          .choices = NULL),
};
static const option_table table = {
    .title = "A model's preset", .rows = rows, .count = COUNT_OF(rows)};

static double or_nan(double value)
{
    return value == 0.0 ? MODEL_ABSENT : value;
}

static status windows_set(arena *a, int64_t window, int64_t every, decoder_spec *s)
{
    int32_t *windows = NULL;
    if (window == 0) return ST_OK;
    TRY(arena_new(a, s->layers, &windows));
    for (int64_t i = 0; i < s->layers; i++) {
        windows[i] = every > 0 && (i + 1) % every == 0 ? 0 : (int32_t)window;
    }
    s->windows = windows;
    return ST_OK;
}

static status spec_make(arena *a, const preset *p, const model_arch *arch, decoder_spec *out)
{
    decoder_spec s = model_arch_spec(arch);
    s.layers = p->layers;
    s.dim = p->dim;
    s.heads = p->heads;
    s.kv_heads = p->kv_heads > 0 ? p->kv_heads : p->heads;
    s.head_dim = p->head_dim > 0 ? p->head_dim : p->dim / max_i64(p->heads, 1);
    s.ffn_dim = p->ffn_dim;
    s.vocab = p->vocab;
    s.context = p->context;
    s.norm_eps = (float)p->norm_eps;
    model_arch_sized(arch, &s);
    s.tied = p->tied;
    if (arch->attention_bias == ARCH_BIAS_KEY) s.qkv_bias = s.out_bias = p->attention_bias;
    if (arch->mlp_bias == ARCH_BIAS_KEY) s.mlp_bias = p->mlp_bias;
    s.bos_token = (int32_t)p->bos_token;
    if (p->eos_token >= 0) s.ends = (model_ends){{(int32_t)p->eos_token}, 1};
    s.rope.kind = (model_rope_kind)p->rope.type;
    s.rope.theta = p->rope.theta;
    s.rope.factor = or_nan(p->rope.factor);
    s.rope.low_freq_factor = or_nan(p->rope.low_freq_factor);
    s.rope.high_freq_factor = or_nan(p->rope.high_freq_factor);
    s.rope.beta_fast = or_nan(p->rope.beta_fast);
    s.rope.beta_slow = or_nan(p->rope.beta_slow);
    s.rope.original_context = p->rope.original_context;
    s.rope.truncate = p->rope.truncate;
    TRY(windows_set(a, p->window, p->window_every, &s));
    if (p->experts.count > 0) {
        const model_experts kind = s.experts; // what follows from the architecture
        s.experts = p->experts;
        s.experts.scale = (float)p->router_scale;
        s.experts.sigmoid = kind.sigmoid;
        s.experts.correction = kind.correction;
        s.experts.group_pairs = kind.group_pairs;
        s.experts.shared_gate = kind.shared_gate;
        s.experts.bias = kind.bias;
        s.experts.unscaled = arch->unscaled;
        if (s.experts.ffn_dim == 0) s.experts.ffn_dim = s.ffn_dim;
        if (arch->keys->shared_ffn_dim != NULL) {
            s.experts.shared_ffn_dim = s.experts.shared * s.experts.ffn_dim;
            s.experts.shared = min_i64(s.experts.shared, 1);
        }
    }
    if (p->latent.kv_rank > 0) {
        s.latent = p->latent;
        if (p->head_dim == 0) s.head_dim = s.latent.nope_dim + s.latent.rope_dim;
    }
    *out = s;
    return ST_OK;
}

status model_preset_parse(arena *a, const char *yaml, int64_t bytes, const char *name,
                          decoder_spec *out, model_preset_facts *facts)
{
    preset p;
    config *c = NULL;
    memset(&p, 0, sizeof(p));
    TRY(config_parse(
        a, &table, &(const config_input){.yaml = yaml, .bytes = bytes, .name = name, .folder = "."},
        &p, &c));
    if (p.arch == NULL) return fail(ST_MODEL, "%s: \"arch\" is not given", name);
    const model_arch *arch = model_arch_find(p.arch);
    if (arch == NULL) return model_arch_unknown(name, p.arch);
    decoder_spec s;
    TRY(spec_make(a, &p, arch, &s));
    decoder_spec as = s; // an architecture that has such experts, if there is one
    model_experts_arch(&as);
    s.counted_only = !model_has_files(&as);
    const status st = model_spec_check(&s);
    if (st != ST_OK) {
        note("while reading %s", name);
        return st;
    }
    *out = s;
    *facts = (model_preset_facts){.about = p.about,
                                  .parameters = p.parameters,
                                  .published = p.published,
                                  .sources = p.sources,
                                  .reported = p.reported,
                                  .assumed = p.assumed,
                                  .differs = p.differs};
    return ST_OK;
}

static bool is_path(const char *name)
{
    const size_t length = strlen(name);
    return strchr(name, '/') != NULL || (length > 5 && strcmp(name + length - 5, ".yaml") == 0);
}

// Common names of models whose presets have longer names. A name of a run of the catalogue is none.
static const char *const aliases[][2] = {
    {"gpt2", "gpt2-124m"},
    {"gpt2-small", "gpt2-124m"},
    {"gpt2-117m", "gpt2-124m"},
    {"gpt2-355m", "gpt2-medium"},
    {"gpt2-774m", "gpt2-large"},
    {"gpt2-xl", "gpt2-1.5b"},
    {"bloom", "bloom-176b"},
    {"opt", "opt-175b"},
    {"palm", "palm-540b"},
    {"mt-nlg", "mt-nlg-530b"},
    {"mistral", "mistral-7b"},
    {"mixtral", "mixtral-8x7b"},
    {"llama2", "llama2-7b"},
    {"llama3", "llama3-8b"},
    {"llama3.1", "llama3.1-8b"},
    {"gpt-oss", "gpt-oss-120b"},
    {"meta-llama-3-8b", "llama3-8b"},
    {"meta-llama-3-70b", "llama3-70b"},
};

const model_preset_file *model_preset_named(const char *name)
{
    const model_preset_file *found = NULL;
    int64_t count = 0;
    for (const model_preset_file *f = model_preset_files; f->name != NULL; f++) {
        if (strcmp(f->name, name) == 0) return f;
        if (text_find_name(name, &f->name, 1) < 0) continue;
        found = f;
        count++;
    }
    if (count == 1) return found;
    for (int64_t i = 0; i < COUNT_OF(aliases); i++) {
        if (text_find_name(name, aliases[i], 1) == 0) return model_preset_named(aliases[i][1]);
    }
    return NULL;
}

static status unknown_refuse(arena *a, const char *name)
{
    int64_t count = 0;
    while (model_preset_files[count].name != NULL) count++;
    const char **names = NULL;
    text near = {.a = a};
    TRY(arena_new(a, count, &names));
    for (int64_t i = 0; i < count; i++) names[i] = model_preset_files[i].name;
    TRY(text_add_nearest(&near, name, names, count));
    return fail(
        ST_MODEL,
        "there is no preset \"%.64s\"%s `trireme catalog models` lists all %lld; a path to a "
        "YAML file or, as model.from, a Hugging Face folder do too",
        name, near.bytes, (long long)count);
}

status model_preset_find(const host *h, arena *a, const char *name, decoder_spec *out)
{
    model_preset_facts facts;
    if (is_path(name)) {
        char *yaml = NULL;
        int64_t bytes = 0;
        TRY(host_read_text(h, a, name, MODEL_CONFIG_BYTES, &yaml, &bytes));
        return model_preset_parse(a, yaml, bytes, name, out, &facts);
    }
    const model_preset_file *f = model_preset_named(name);
    if (f == NULL) return unknown_refuse(a, name);
    return model_preset_parse(a, f->yaml, (int64_t)strlen(f->yaml), f->name, out, &facts);
}

status model_spec_preset(const host *h, arena *a, const char *name, decoder_spec *out)
{
    TRY(model_preset_find(h, a, name, out));
    model_experts_arch(out);
    return ST_OK;
}
