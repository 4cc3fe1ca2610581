// adapter_config.json of PEFT: what an adapter is. Keys that this program does not have are refused
// unless they are off, because a key that is ignored would change the model.
#include "model/arch/arch.h"
#include "model/spec_read.h"

#include <string.h>

static const char config_name[] = "adapter_config.json";

status model_adapter_is_there(const host *h, arena *a, const char *folder, bool *out)
{
    char *path = NULL;
    file_info info;
    TRY(path_join(a, folder, config_name, &path));
    TRY(h->api->path_info(h, path, &info));
    *out = info.kind != FILE_KIND_NONE;
    return ST_OK;
}

// ---- reading ------------------------------------------------------------------------------------

// Keys that are read here, or that say nothing about the result of a forward pass.
static const char *const known[] = {
    "arrow_config",
    "auto_mapping",
    "base_model_name_or_path",
    "bias",
    "corda_config",
    "ensure_weight_tying",
    "eva_config",
    "exclude_modules",
    "fan_in_fan_out",
    "inference_mode",
    "init_lora_weights",
    "kasa_config",
    "layers_pattern",
    "layers_to_transform",
    "loftq_config",
    "lora_alpha",
    "lora_dropout",
    "lora_ga_config",
    "megatron_config",
    "megatron_core",
    "modules_to_save",
    "monteclora_config",
    "peft_type",
    "peft_version",
    "qalora_group_size",
    "r",
    "revision",
    "runtime_config",
    "target_modules",
    "task_type",
    "use_dora",
    "use_rslora",
    "velora_config",
};

static bool is_known(const char *key)
{
    for (int64_t i = 0; i < COUNT_OF(known); i++) {
        if (strcmp(known[i], key) == 0) return true;
    }
    return false;
}

static bool is_off(const json *value)
{
    switch (json_kind_of(value)) {
    case JSON_BOOL:
        return !json_bool(value, true);
    case JSON_LIST:
    case JSON_MAP:
        return json_count(value) == 0;
    case JSON_NONE:
    case JSON_NULL_VALUE:
        return true;
    case JSON_INT:
    case JSON_REAL:
    case JSON_TEXT:
    default:
        return false;
    }
}

static status others_refuse(const model_reader *r)
{
    for (int64_t i = 0; i < json_count(r->root); i++) {
        const json *value = NULL;
        const char *key = json_key_at(r->root, i, &value);
        char found[MODEL_SHOWN_BYTES], shown[MODEL_SHOWN_BYTES];
        if (is_known(key) || is_off(value)) continue;
        return fail(ST_UNSUPPORTED,
                    "%s: %s is %s, which is not supported; adapters here are LoRA with one rank "
                    "and alpha, with or without rslora and dora",
                    r->file, model_read_shown(key, shown), model_read_found(value, found));
    }
    return ST_OK;
}

static status text_expect(const model_reader *r, const char *key, const char *expected)
{
    const json *value = json_get(r->root, key);
    const char *word = json_text(value, NULL);
    if (word != NULL && strcmp(word, expected) == 0) return ST_OK;
    return model_read_wrong(r, key, value, expected);
}

static status targets_read(const model_reader *r, model_adapter *out)
{
    const json *list = json_get(r->root, "target_modules");
    const char *one = json_text(list, NULL);
    int64_t count = json_count(list);
    if (one != NULL) count = 1;
    if (one == NULL && json_kind_of(list) != JSON_LIST) {
        return model_read_wrong(r, "target_modules", list, "a list of names");
    }
    TRY(arena_new(r->a, max_i64(count, 1), &out->targets.items));
    for (int64_t i = 0; i < count; i++) {
        const json *item = one != NULL ? list : json_at(list, i);
        const char *word = json_text(item, NULL);
        char *copy = NULL;
        if (word == NULL || word[0] == '\0') {
            return model_read_wrong(r, "target_modules", item, "a name");
        }
        TRY(arena_strdup(r->a, word, &copy));
        out->targets.items[i] = copy;
    }
    out->targets.count = count;
    return ST_OK;
}

// Modules that are trained whole: the head of a reward model, by the names that PEFT gives for it.
static status whole_modules_check(const model_reader *r)
{
    static const char key[] = "modules_to_save";
    const json *list = json_get(r->root, key);
    if (is_off(list)) return ST_OK;
    if (json_kind_of(list) != JSON_LIST) return model_read_wrong(r, key, list, "a list of names");
    for (int64_t i = 0; i < json_count(list); i++) {
        const char *name = json_text(json_at(list, i), "");
        if (strcmp(name, "score") == 0 || strcmp(name, "classifier") == 0) continue;
        return model_read_wrong(r, key, json_at(list, i),
                                "\"score\", the head of a reward model; other modules cannot be "
                                "trained whole with an adapter");
    }
    return ST_OK;
}

static status config_read(const model_reader *r, model_adapter *out)
{
    const model_limits ranks = {1, 1 << 16};
    const double_limits alphas = {0.0, 1e9}, shares = {0.0, 0.999999};
    double dropout = 0.0;
    *out = (model_adapter){.saved = DTYPE_F32};
    TRY(text_expect(r, "peft_type", "LORA"));
    if (model_read_given(json_get(r->root, "bias"))) TRY(text_expect(r, "bias", "none"));
    TRY(model_read_int(r, "r", ranks, -1, &out->rank));
    TRY(model_read_real(r, r->root, "lora_alpha", alphas, 8.0, &out->alpha));
    TRY(model_read_real(r, r->root, "lora_dropout", shares, 0.0, &dropout));
    TRY(model_read_bool(r, r->root, "use_rslora", false, &out->rslora));
    TRY(model_read_bool(r, r->root, "use_dora", false, &out->dora));
    out->dropout = (float)dropout;
    TRY(targets_read(r, out));
    TRY(whole_modules_check(r));
    return others_refuse(r);
}

// ---- names in the file of weights ---------------------------------------------------------------

static const char before[] = "base_model.model.";

// Takes the modules that have a lora_A as targets, so that it does not matter how PEFT chose them.
static status modules_read(arena *a, const char *path, const safetensors *set, model_adapter *out)
{
    static const char after[] = ".lora_A.weight";
    const int64_t count = safetensors_count(set);
    out->targets.count = 0;
    TRY(arena_new(a, max_i64(count, 1), &out->targets.items));
    for (int64_t i = 0; i < count; i++) {
        const safetensors_entry *e = safetensors_at(set, i);
        const size_t length = strlen(e->name), tail = strlen(after), head = strlen(before);
        char *name = NULL;
        if (length <= head + tail || strncmp(e->name, before, head) != 0 ||
            strcmp(e->name + length - tail, after) != 0) {
            continue;
        }
        if (e->ndim == 2 && e->dims[0] != out->rank) {
            return fail(ST_MODEL, "%s: %.200s has rank %lld, and r of adapter_config.json is %lld",
                        path, e->name, (long long)e->dims[0], (long long)out->rank);
        }
        TRY(arena_format(a, &name, "%.*s", (int)(length - tail - head), e->name + head));
        out->targets.items[out->targets.count++] = name;
        out->saved = e->type;
    }
    out->are_modules = true;
    if (out->targets.count > 0) return ST_OK;
    return fail(ST_MODEL, "%s has no tensor called %s...%s", path, before, after);
}

static status values_look(const host *h, arena *a, const char *folder, model_adapter *out)
{
    char *path = NULL;
    safetensors *set = NULL;
    TRY(path_join(a, folder, "adapter_model.safetensors", &path));
    TRY(safetensors_open(h, path, &set));
    const status st = modules_read(a, path, set, out);
    safetensors_close(set);
    return st;
}

status model_adapter_read(const host *h, arena *a, const char *folder, bool values,
                          model_adapter *out)
{
    char *path = NULL, *kept = NULL;
    json *root = NULL;
    TRY(path_join(a, folder, config_name, &path));
    TRY(json_read(h, path, MODEL_CONFIG_BYTES, &root));
    const model_reader r = {.file = path, .root = root, .a = a};
    status st = config_read(&r, out);
    json_free(root);
    TRY(st);
    if (!values) return ST_OK;
    TRY(values_look(h, a, folder, out));
    TRY(arena_strdup(a, folder, &kept));
    out->folder = kept;
    return ST_OK;
}

// ---- writing ------------------------------------------------------------------------------------

// The names of the modules of the adapter's first matrices, in the order of the model.
static status modules_list(arena *a, const decoder_spec *spec, const op_model *m, const char ***out,
                           int64_t *count)
{
    int64_t capacity = 0;
    *out = NULL;
    *count = 0;
    for (int64_t w = 0; w < m->weight_count; w++) {
        model_hf_tensor *tensors = NULL;
        int64_t tensor_count = 0;
        if (!m->weights[w].is_adapter) continue;
        TRY(model_hf_tensors(a, spec, m, w, &tensors, &tensor_count));
        for (int64_t i = 0; i < tensor_count; i++) {
            const char *name = tensors[i].name + strlen(before), *end = strstr(name, ".lora_A.");
            char *module = NULL;
            if (end == NULL) continue;
            TRY(arena_format(a, &module, "%.*s", (int)(end - name), name));
            TRY(arena_grow(a, (void **)out, &capacity, *count + 1, (int64_t)sizeof(char *)));
            (*out)[(*count)++] = module;
        }
    }
    return ST_OK;
}

static const char *last_of(const char *module)
{
    const char *dot = strrchr(module, '.');
    return dot == NULL ? module : dot + 1;
}

static bool is_listed(const char *const *names, int64_t count, const char *name)
{
    for (int64_t i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0) return true;
    }
    return false;
}

// Returns whether every module of the base model that ends with one of the names has an adapter.
static status ends_are_exact(arena *a, const decoder_spec *spec, const char *const *ends,
                             int64_t end_count, const char *const *modules, int64_t count,
                             const op_model *m, bool *out)
{
    *out = true;
    for (int64_t w = 0; w < m->weight_count && *out; w++) {
        model_hf_tensor *tensors = NULL;
        int64_t tensor_count = 0;
        if (m->weights[w].is_adapter || m->weights[w].is_history || m->weights[w].ndim != 2) {
            continue;
        }
        TRY(model_hf_tensors(a, spec, m, w, &tensors, &tensor_count));
        for (int64_t i = 0; i < tensor_count && *out; i++) {
            char *module = NULL;
            TRY(arena_strdup(a, tensors[i].name, &module));
            char *end = strrchr(module, '.');
            if (end == NULL) continue;
            *end = '\0';
            const bool named = is_listed(ends, end_count, last_of(module));
            if (named && !is_listed(modules, count, module)) *out = false;
        }
    }
    return ST_OK;
}

// PEFT takes the last parts of names, which are shorter, or whole names where layers differ.
static status targets_print(arena *a, const decoder_spec *spec, const op_model *m, text *out)
{
    const char **modules = NULL, **ends = NULL;
    int64_t count = 0, end_count = 0;
    bool exact = false;
    TRY(modules_list(a, spec, m, &modules, &count));
    TRY(arena_new(a, max_i64(count, 1), &ends));
    for (int64_t i = 0; i < count; i++) {
        const char *end = last_of(modules[i]);
        if (!is_listed(ends, end_count, end)) ends[end_count++] = end;
    }
    TRY(ends_are_exact(a, spec, ends, end_count, modules, count, m, &exact));
    const char *const *names = exact ? ends : modules;
    const int64_t names_count = exact ? end_count : count;
    for (int64_t i = 0; i < names_count; i++) {
        TRY(text_add(out, "%s\n    \"%s\"", i == 0 ? "" : ",", names[i]));
    }
    return ST_OK;
}

status model_adapter_print(arena *a, const decoder_spec *spec, const op_model *m, const char *base,
                           text *out)
{
    const model_adapter *d = &spec->adapter;
    const bool conv1d = strcmp(spec->arch, "gpt2") == 0; // stored (in, out)
    const bool scores = spec->scores != MODEL_WRITES;
    TRY(text_add(out, "{\n  \"base_model_name_or_path\": %s", base == NULL ? "null" : ""));
    if (base != NULL) TRY(text_add_json(out, base));
    TRY(text_add(out, ",\n  \"bias\": \"none\",\n  \"fan_in_fan_out\": %s,\n",
                 conv1d ? "true" : "false"));
    TRY(text_add(out, "  \"inference_mode\": true,\n  \"lora_alpha\": %.15g,\n", d->alpha));
    TRY(text_add(out, "  \"lora_dropout\": %.9g,\n  \"modules_to_save\": %s,\n", (double)d->dropout,
                 scores ? "[\n    \"classifier\",\n    \"score\"\n  ]" : "null"));
    TRY(text_add(out, "  \"peft_type\": \"LORA\",\n  \"r\": %lld,\n  \"target_modules\": [",
                 (long long)d->rank));
    TRY(targets_print(a, spec, m, out));
    return text_add(out,
                    "\n  ],\n  \"task_type\": \"%s\",\n  \"use_dora\": %s,\n"
                    "  \"use_rslora\": %s\n}\n",
                    scores ? "SEQ_CLS" : "CAUSAL_LM", d->dora ? "true" : "false",
                    d->rslora ? "true" : "false");
}
