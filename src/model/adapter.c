// Which matrices an adapter covers, and the values of its weights.
//
// A target is a name or a shell pattern. It may be written as this program writes names ("attn.q",
// "layers.[0-3].mlp.*") or as files do ("q_proj", "self_attn.q_proj"): PEFT takes a module whose
// name is the target or ends with "." and the target.
#include "model/block/block.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

static bool is_end_of(const char *end, const char *name)
{
    const size_t length = strlen(name), tail = strlen(end);
    if (length < tail || strcmp(name + length - tail, end) != 0) return false;
    return length == tail || name[length - tail - 1] == '.';
}

// ours: "layers.3.attn.q", of which `name` is "attn.q"; module: the name in files, or "".
static bool target_matches(const model_adapter *a, const char *target, const char *ours,
                           const char *name, const char *module)
{
    if (a->are_modules) return strcmp(target, module) == 0;
    if (strcmp(target, "all-linear") == 0) return true;
    return fnmatch(target, ours, 0) == 0 || fnmatch(target, name, 0) == 0 ||
           (module[0] != '\0' && (is_end_of(target, module) || fnmatch(target, module, 0) == 0));
}

bool model_adapter_covers(const decoder_spec *spec, const char *prefix, const char *name)
{
    const model_adapter *a = &spec->adapter;
    char ours[MODEL_NAME_BYTES], module[MODEL_NAME_BYTES];
    if (a->rank == 0) return false;
    if (a->targets.count == 0) return true;
    (void)snprintf(ours, sizeof(ours), "%s%s", prefix, name);
    if (!model_hf_module(spec, ours, module)) module[0] = '\0';
    for (int64_t i = 0; i < a->targets.count; i++) {
        if (target_matches(a, a->targets.items[i], ours, name, module)) return true;
    }
    return false;
}

// Returns the name of the matrix that a weight of an adapter, or a part of one, belongs to.
static void adapted_name(const char *ours, char out[MODEL_NAME_BYTES])
{
    const char *end = strstr(ours, ".lora_");
    ASSERT(end != NULL && end - ours < MODEL_NAME_BYTES);
    (void)snprintf(out, MODEL_NAME_BYTES, "%.*s", (int)(end - ours), ours);
}

// Returns the name after "layers.3.".
static const char *within_layer(const char *ours)
{
    int used = 0, layer = -1;
    return sscanf(ours, "layers.%d.%n", &layer, &used) == 1 && used > 0 ? ours + used : ours;
}

static bool target_is_used(const op_model *m, const decoder_spec *spec, const char *target)
{
    for (int64_t w = 0; w < m->weight_count; w++) {
        const op_weight *weight = &m->weights[w];
        for (int i = 0; weight->is_adapter && i < weight->part_count; i++) {
            char ours[MODEL_NAME_BYTES], module[MODEL_NAME_BYTES];
            if (strstr(weight->parts[i].name, ".lora_") == NULL) continue; // it is trained whole
            adapted_name(weight->parts[i].name, ours);
            if (!model_hf_module(spec, ours, module)) module[0] = '\0';
            if (target_matches(&spec->adapter, target, ours, within_layer(ours), module)) {
                return true;
            }
        }
    }
    return false;
}

// A target without a match is a mistake: the user believes that it gets an adapter.
status model_adapter_check(const op_model *m, const decoder_spec *spec)
{
    const model_adapter *a = &spec->adapter;
    for (int64_t i = 0; i < a->targets.count; i++) {
        if (target_is_used(m, spec, a->targets.items[i])) continue;
        return fail(ST_CONFIG_RANGE,
                    "adapter.targets: no matrix that an adapter can have is called \"%s\"; names "
                    "are such as attn.q, mlp.down, layers.0.attn.out or those of files (q_proj); "
                    "embeddings, the head, norms, routers and stacked experts have no adapters",
                    a->targets.items[i]);
    }
    return ST_OK;
}

// ---- values -------------------------------------------------------------------------------------

status model_adapter_open(const host *h, arena *a, const decoder_spec *spec, const op_model *m,
                          uint64_t seed, model_adapter_source *out)
{
    char *path = NULL;
    *out = (model_adapter_source){.spec = spec, .m = m, .seed = seed};
    if (spec->adapter.rank == 0 || spec->adapter.folder == NULL) return ST_OK;
    TRY(path_join(a, spec->adapter.folder, "adapter_model.safetensors", &path));
    TRY(safetensors_open(h, path, &out->file));
    const status st = model_hf_adapter_check(a, out->file, spec, m);
    if (st != ST_OK) model_adapter_close(out);
    return st;
}

void model_adapter_close(model_adapter_source *s)
{
    safetensors_close(s->file);
    s->file = NULL;
}

// In PEFT's file, of a reward model's head, which an adapter of a language model lacks.
static const char score_name[] = "base_model.model.score.weight";

status model_adapter_weight(const model_adapter_source *s, int64_t weight, float *values)
{
    ASSERT(s->m->weights[weight].is_adapter);
    const bool may_lack = model_score_is_new(s->spec, s->m, weight);
    const bool has =
        s->file != NULL && (!may_lack || safetensors_find(s->file, score_name) != NULL);
    if (has) return model_weight_read(s->file, s->spec, s->m, weight, values);
    model_weight_init(s->m, weight, s->seed, values);
    return ST_OK;
}
