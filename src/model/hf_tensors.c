// Names and layouts of the tensors of Hugging Face files, by the tables in arch/: which tensors
// hold a weight, and where each of its elements is in them.
//
//   ours     (rows, columns); experts are stacked along the rows
//   theirs   a tensor for each part (q, k, v; each expert's gate and up), perhaps (columns,
//            rows), or one for all experts, (experts, columns, rows); gpt-oss: rows of gate and up
//            alternate
#include "model/hf_tensors.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>

// Splits our name into a pattern, with '#' for the layer number, and that number; -1 if it has
// none.
static void pattern_of(const char *ours, char pattern[HF_NAME_BYTES], int *layer)
{
    int used = 0;
    *layer = -1;
    if (sscanf(ours, "layers.%d.%n", layer, &used) == 1 && used > 0) {
        snprintf(pattern, HF_NAME_BYTES, "layers.#.%s", ours + used);
        return;
    }
    *layer = -1;
    snprintf(pattern, HF_NAME_BYTES, "%s", ours);
}

// Finds the first row of a table for this weight or part; NULL if none has that name.
static const arch_tensor *row_find(const arch_tensor *rows, const char *pattern)
{
    for (const arch_tensor *t = rows; t != NULL && t->ours != NULL; t++) {
        if (strcmp(t->ours, pattern) == 0) return t;
    }
    return NULL;
}

static const arch_tensor *tensor_of(const model_arch *arch, const char *ours, int *layer)
{
    char pattern[HF_NAME_BYTES];
    pattern_of(ours, pattern, layer);
    const arch_tensor *found = row_find(arch->tensors, pattern);
    return found != NULL ? found : row_find(arch->experts, pattern);
}

const arch_tensor hf_head_tensor = {"head", "lm_head.weight", ARCH_PLAIN};
const arch_tensor hf_score_tensor = {"score", "score.weight", ARCH_PLAIN};
const char hf_embedding_name[] = "embed.tokens";

// Makes the name that transformers saves: "#" of the table is the layer, "@" the expert. Models
// saved without their head have the name without the prefix, `bare`.
static void name_make(const model_arch *arch, const arch_tensor *t, int layer, int64_t expert,
                      char name[HF_NAME_BYTES])
{
    const bool is_outside = t == &hf_head_tensor || t == &hf_score_tensor;
    int used = snprintf(name, HF_NAME_BYTES, "%s", is_outside ? "" : arch->prefix);
    for (const char *from = t->theirs; *from != '\0';) {
        const int plain = (int)strcspn(from, "#@");
        used += snprintf(name + used, (size_t)(HF_NAME_BYTES - used), "%.*s", plain, from);
        from += plain;
        if (*from == '\0') break;
        used += snprintf(name + used, (size_t)(HF_NAME_BYTES - used), "%lld",
                         *from == '#' ? (long long)layer : (long long)expert);
        from++;
    }
    ASSERT(used < HF_NAME_BYTES);
}

bool model_hf_module(const decoder_spec *spec, const char *ours, char out[MODEL_NAME_BYTES])
{
    static const char end[] = ".weight";
    int layer = -1;
    const model_arch *arch = model_arch_find(spec->arch);
    const arch_tensor *t = tensor_of(arch, ours, &layer);
    if (t == NULL || strchr(t->theirs, '@') != NULL) return false;
    name_make(arch, t, layer, -1, out);
    const size_t length = strlen(out), tail = sizeof(end) - 1;
    if (length < tail || strcmp(out + length - tail, end) != 0) return false;
    out[length - tail] = '\0';
    return true;
}

// Turns the name of a matrix into that of a weight of its adapter, as PEFT has it.
static void adapter_name(const char *kind, char name[HF_NAME_BYTES])
{
    char module[HF_NAME_BYTES];
    const size_t length = strlen(name), tail = strlen(".weight");
    ASSERT(length > tail && strcmp(name + length - tail, ".weight") == 0);
    const bool is_vector = strcmp(kind, "lora_magnitude_vector") == 0;
    (void)snprintf(module, sizeof(module), "%.*s", (int)(length - tail), name);
    const int used = snprintf(name, HF_NAME_BYTES, "base_model.model.%s.%s%s", module, kind,
                              is_vector ? "" : ".weight");
    ASSERT(used < HF_NAME_BYTES);
}

// A weight that is trained whole, with an adapter, has its own name in PEFT's file.
static void trained_name(char name[HF_NAME_BYTES])
{
    char module[HF_NAME_BYTES];
    memcpy(module, name, sizeof(module));
    const int used = snprintf(name, HF_NAME_BYTES, "base_model.model.%s", module);
    ASSERT(used < HF_NAME_BYTES);
}

int64_t hf_source_count(const hf_sources *all)
{
    return all->count * all->experts;
}

// Sets the dims of the tensor as the file stores it.
static void dims_set(const op_weight *w, model_hf_tensor *t)
{
    const int64_t rows = t->rows / t->slices;
    t->ndim = 0;
    if (t->slices > 1) t->dims[t->ndim++] = t->slices;
    if (t->transposed && w->columns > 1) t->dims[t->ndim++] = w->columns;
    t->dims[t->ndim++] = rows;
    if (!t->transposed && w->ndim == 2 && (w->columns > 1 || t->slices == 1)) {
        t->dims[t->ndim++] = w->columns;
    }
}

void hf_source_at(const hf_sources *all, int64_t index, hf_source *out)
{
    const int64_t k = index % all->count, expert = index / all->count;
    const arch_tensor *t = all->tensors[k];
    out->tensor = t;
    name_make(all->arch, t, all->layer, expert, out->name);
    if (all->adapter != NULL) {
        adapter_name(all->adapter, out->name);
    } else if (all->weight->is_adapter) {
        trained_name(out->name);
    }
    const arch_layout layout = all->adapter == NULL ? t->layout : ARCH_PLAIN;
    out->as = (model_hf_tensor){.name = out->name,
                                .row_begin = expert * all->rows_of_expert + all->row_begin[k],
                                .rows = all->rows[k],
                                .slices = all->slices,
                                .transposed = (layout & ARCH_TRANSPOSED) != 0,
                                .paired = (layout & ARCH_PAIRED) != 0};
    dims_set(all->weight, &out->as);
}

int64_t model_hf_at(const model_hf_tensor *t, int64_t columns, int64_t row, int64_t column)
{
    const int64_t rows = t->rows / t->slices, slice = row / rows, half = rows / 2;
    int64_t r = row % rows;
    if (t->paired) r = r < half ? 2 * r : 2 * (r - half) + 1;
    return slice * rows * columns + (t->transposed ? column * rows + r : r * columns + column);
}

// One row of the table for each matrix of an expert, all equally large.
static void experts_sources(const decoder_spec *spec, const op_weight *w, hf_sources *out)
{
    const arch_tensor *first = out->tensors[0];
    if ((first->layout & ARCH_STACKED) != 0) {
        out->slices = spec->experts.count;
        return;
    }
    out->experts = spec->experts.count;
    out->rows_of_expert = w->rows / out->experts;
    out->count = 0;
    for (const arch_tensor *t = first; t->ours != NULL && strcmp(t->ours, first->ours) == 0; t++) {
        ASSERT(out->count < COUNT_OF(out->tensors));
        out->tensors[out->count++] = t;
    }
    for (int k = 0; k < out->count; k++) {
        out->rows[k] = out->rows_of_expert / out->count;
        out->row_begin[k] = k * out->rows[k];
    }
}

// Finds the row of the matrix that a weight of an adapter, or a part of one, belongs to.
static const arch_tensor *adapted_tensor(const model_arch *arch, const char *ours, int *layer,
                                         const char **kind)
{
    char name[HF_NAME_BYTES];
    const char *end = strstr(ours, ".lora_");
    ASSERT(end != NULL && end - ours < HF_NAME_BYTES);
    (void)snprintf(name, sizeof(name), "%.*s", (int)(end - ours), ours);
    *kind = end + 1;
    return tensor_of(arch, name, layer);
}

// The row of a weight or of a part of one; NULL: the files have no name for it.
static const arch_tensor *source_of(const hf_sources *sources, const char *ours, int *layer,
                                    const char **adapter)
{
    return sources->weight->is_adapter ? adapted_tensor(sources->arch, ours, layer, adapter)
                                       : tensor_of(sources->arch, ours, layer);
}

status hf_sources_of(const decoder_spec *spec, const op_weight *w, hf_sources *out)
{
    const model_arch *arch = model_arch_find(spec->arch);
    ASSERT(arch != NULL);
    *out =
        (hf_sources){.arch = arch, .weight = w, .count = 1, .layer = -1, .experts = 1, .slices = 1};
    out->tensors[0] = strcmp(w->name, hf_head_tensor.ours) == 0 ? &hf_head_tensor
                      : strcmp(w->name, hf_score_tensor.ours) == 0
                          ? &hf_score_tensor
                          : source_of(out, w->name, &out->layer, &out->adapter);
    if (out->tensors[0] != NULL) {
        out->rows[0] = w->rows;
        if (w->is_expert) experts_sources(spec, w, out);
        return ST_OK;
    }
    for (int p = 0; p < w->part_count; p++) {
        out->tensors[p] = source_of(out, w->parts[p].name, &out->layer, &out->adapter);
        if (out->tensors[p] == NULL) {
            return fail(ST_INTERNAL, "%s has no name for %s in Hugging Face files", arch->name,
                        w->parts[p].name);
        }
        out->row_begin[p] = w->parts[p].row_begin;
        out->rows[p] = w->parts[p].rows;
    }
    out->count = w->part_count;
    return ST_OK;
}

// Names a copy of the embedding or of the head, which published files have in the layer that
// predicts the token after the next. False: the weight has none.
bool hf_copy_name(const decoder_spec *spec, const char *ours, char name[HF_NAME_BYTES])
{
    const model_arch *arch = model_arch_find(spec->arch);
    const bool is_head = strcmp(ours, hf_head_tensor.ours) == 0;
    if (spec->next_layers == 0 || (!is_head && strcmp(ours, hf_embedding_name) != 0)) return false;
    (void)snprintf(name, HF_NAME_BYTES, "%slayers.%lld.%s.weight", arch->prefix,
                   (long long)spec->layers, is_head ? "shared_head.head" : "embed_tokens");
    return true;
}

status model_hf_tensors(arena *a, const decoder_spec *spec, const op_model *m, int64_t weight,
                        model_hf_tensor **out, int64_t *count)
{
    hf_sources sources;
    model_hf_tensor *all = NULL;
    TRY(hf_sources_of(spec, &m->weights[weight], &sources));
    char copy[HF_NAME_BYTES];
    const bool has_copy = hf_copy_name(spec, m->weights[weight].name, copy);
    *count = hf_source_count(&sources);
    TRY(arena_new(a, *count + 1, &all));
    for (int64_t i = 0; i < hf_source_count(&sources); i++) {
        hf_source source;
        char *name = NULL;
        hf_source_at(&sources, i, &source);
        TRY(arena_strdup(a, source.name, &name));
        all[i] = source.as;
        all[i].name = name;
    }
    if (has_copy) {
        char *name = NULL;
        TRY(arena_strdup(a, copy, &name));
        all[*count] = all[0];
        all[(*count)++].name = name;
    }
    *out = all;
    return ST_OK;
}

const safetensors_entry *hf_entry_find(const safetensors *set, const decoder_spec *spec,
                                       const hf_source *source)
{
    const char *name = source->name, *prefix = model_arch_find(spec->arch)->prefix;
    const safetensors_entry *e = safetensors_find(set, name);
    const size_t length = strlen(prefix);
    if (e == NULL && strncmp(name, prefix, length) == 0) e = safetensors_find(set, name + length);
    const bool is_pair = spec->tied && strcmp(source->tensor->ours, hf_embedding_name) == 0;
    return e == NULL && is_pair ? safetensors_find(set, hf_head_tensor.theirs) : e;
}
