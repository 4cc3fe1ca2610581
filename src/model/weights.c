// Values of weights: initial values, and those of Hugging Face files.
//
// A file may hold one weight as several tensors (q, k, v; those of experts) or transposed (GPT-2),
// with or without the architecture's prefix, in fp32, bf16 or fp16. The tables in arch/ describe
// names and layouts; this file looks them up and converts the values.
#include "base/rng.h"
#include "base/text.h"
#include "model/arch/arch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- initial values -----------------------------------------------------------------------------

// Fills elements [begin, end) of a part from random numbers keyed by its name.
static void normal_fill(const weight_part *part, float std, uint64_t seed, int64_t begin,
                        int64_t end, float *values)
{
    const uint64_t key = rng_name_key(part->name);
    enum { PIECE = 4096 }; // stays in the L1 cache between the two passes
    for (int64_t at = begin; at < end; at += PIECE) {
        const int64_t count = min_i64(PIECE, end - at);
        float *out = values + (at - begin);
        rng_tensor_normals(seed, key, at, count, out);
        for (int64_t i = 0; i < count; i++) out[i] *= std;
    }
}

void model_weight_init_range(const op_model *m, int64_t weight, uint64_t seed, int64_t begin,
                             int64_t count, float *values)
{
    const op_weight *w = &m->weights[weight];
    const int64_t columns = w->columns, end = begin + count;
    ASSERT(begin >= 0 && count >= 0 && end <= w->rows * columns);
    if (w->init != INIT_NORMAL) {
        const float value = w->init == INIT_ONES ? 1.0f : 0.0f;
        for (int64_t i = 0; i < count; i++) values[i] = value;
        return;
    }
    for (int p = 0; p < w->part_count; p++) {
        const int64_t first = w->parts[p].row_begin * columns;
        const int64_t from = max_i64(begin, first);
        const int64_t to = min_i64(end, first + w->parts[p].rows * columns);
        if (from >= to) continue;
        normal_fill(&w->parts[p], w->init_std, seed, from - first, to - first,
                    values + (from - begin));
    }
}

void model_weight_init(const op_model *m, int64_t weight, uint64_t seed, float *values)
{
    model_weight_init_range(m, weight, seed, 0,
                            m->weights[weight].rows * m->weights[weight].columns, values);
}

// ---- names --------------------------------------------------------------------------------------
enum { NAME_BYTES = 128 };

// Splits our name into a pattern, with '#' for the layer number, and that number; -1 if it has
// none.
static void pattern_of(const char *ours, char pattern[NAME_BYTES], int *layer)
{
    int used = 0;
    *layer = -1;
    if (sscanf(ours, "layers.%d.%n", layer, &used) == 1 && used > 0) {
        snprintf(pattern, NAME_BYTES, "layers.#.%s", ours + used);
        return;
    }
    *layer = -1;
    snprintf(pattern, NAME_BYTES, "%s", ours);
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
    char pattern[NAME_BYTES];
    pattern_of(ours, pattern, layer);
    const arch_tensor *found = row_find(arch->tensors, pattern);
    return found != NULL ? found : row_find(arch->experts, pattern);
}

// The head lies outside the inner model, so it has no prefix.
static const arch_tensor head_tensor = {"head", "lm_head.weight", false};
static const char embedding_name[] = "embed.tokens";

// Makes the name that transformers saves: "#" of the table is the layer, "@" the expert. Models
// saved without their head have the name without the prefix, `bare`.
static void name_make(const model_arch *arch, const arch_tensor *t, int layer, int64_t expert,
                      char name[NAME_BYTES])
{
    int used = snprintf(name, NAME_BYTES, "%s", t == &head_tensor ? "" : arch->prefix);
    for (const char *from = t->theirs; *from != '\0';) {
        const int plain = (int)strcspn(from, "#@");
        used += snprintf(name + used, (size_t)(NAME_BYTES - used), "%.*s", plain, from);
        from += plain;
        if (*from == '\0') break;
        used += snprintf(name + used, (size_t)(NAME_BYTES - used), "%lld",
                         *from == '#' ? (long long)layer : (long long)expert);
        from++;
    }
    ASSERT(used < NAME_BYTES);
}

typedef struct hf_source {
    const arch_tensor *tensor;
    char name[NAME_BYTES];
    int64_t row_begin, rows;
} hf_source;

// The file tensors that make up one weight: one, or one for each part; of a weight that stacks
// experts these repeat for each expert, whose rows follow each other.
typedef struct hf_sources {
    const model_arch *arch;
    const arch_tensor *tensors[4];
    int64_t row_begin[4], rows[4];
    int count; // of one expert
    int layer;
    int64_t experts, rows_of_expert; // experts is 1 where the weight stacks none
} hf_sources;

static int64_t source_count(const hf_sources *all)
{
    return all->count * all->experts;
}

static void source_at(const hf_sources *all, int64_t index, hf_source *out)
{
    const int64_t k = index % all->count, expert = index / all->count;
    out->tensor = all->tensors[k];
    out->row_begin = expert * all->rows_of_expert + all->row_begin[k];
    out->rows = all->rows[k];
    name_make(all->arch, out->tensor, all->layer, expert, out->name);
}

// One row of the table for each matrix of an expert, all equally large.
static void experts_sources(const decoder_spec *spec, const op_weight *w, hf_sources *out)
{
    const arch_tensor *first = out->tensors[0];
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

static status sources_of(const decoder_spec *spec, const op_weight *w, hf_sources *out)
{
    const model_arch *arch = model_arch_find(spec->arch);
    ASSERT(arch != NULL);
    *out = (hf_sources){.arch = arch, .count = 1, .layer = -1, .experts = 1};
    out->tensors[0] = strcmp(w->name, head_tensor.ours) == 0
                          ? &head_tensor
                          : tensor_of(arch, w->name, &out->layer);
    if (out->tensors[0] != NULL) {
        out->rows[0] = w->rows;
        if (w->is_expert) experts_sources(spec, w, out);
        return ST_OK;
    }
    for (int p = 0; p < w->part_count; p++) {
        out->tensors[p] = tensor_of(arch, w->parts[p].name, &out->layer);
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

status model_hf_tensors(arena *a, const decoder_spec *spec, const op_model *m, int64_t weight,
                        model_hf_tensor **out, int64_t *count)
{
    hf_sources sources;
    model_hf_tensor *all = NULL;
    TRY(sources_of(spec, &m->weights[weight], &sources));
    TRY(arena_new(a, source_count(&sources), &all));
    for (int64_t i = 0; i < source_count(&sources); i++) {
        hf_source source;
        char *name = NULL;
        source_at(&sources, i, &source);
        TRY(arena_strdup(a, source.name, &name));
        all[i] = (model_hf_tensor){.name = name,
                                   .row_begin = source.row_begin,
                                   .rows = source.rows,
                                   .transposed = source.tensor->transposed};
    }
    *out = all;
    *count = source_count(&sources);
    return ST_OK;
}

// Finds the entry with or without the prefix. A tied pair may be stored under the head's name.
static const safetensors_entry *entry_find(const safetensors *set, const decoder_spec *spec,
                                           const hf_source *source)
{
    const char *name = source->name, *prefix = model_arch_find(spec->arch)->prefix;
    const safetensors_entry *e = safetensors_find(set, name);
    const size_t length = strlen(prefix);
    if (e == NULL && strncmp(name, prefix, length) == 0) e = safetensors_find(set, name + length);
    const bool is_pair = spec->tied && strcmp(source->tensor->ours, embedding_name) == 0;
    return e == NULL && is_pair ? safetensors_find(set, head_tensor.theirs) : e;
}

// ---- values -------------------------------------------------------------------------------------

static bool type_is_read(dtype type)
{
    return type == DTYPE_F32 || type == DTYPE_BF16 || type == DTYPE_F16;
}

static void shape_print(int ndim, const int64_t *dims, char buffer[64])
{
    if (ndim == 1) {
        snprintf(buffer, 64, "[%lld]", (long long)dims[0]);
    } else if (ndim == 2) {
        snprintf(buffer, 64, "[%lld, %lld]", (long long)dims[0], (long long)dims[1]);
    } else {
        snprintf(buffer, 64, "%d dims", ndim);
    }
}

// Returns whether the entry can be weight w's source; if not, `why` states the reason on one line.
static bool entry_fits(const safetensors_entry *e, const op_weight *w, const hf_source *source,
                       char why[160])
{
    const bool transposed = source->tensor->transposed;
    const int64_t dims[2] = {transposed ? w->columns : source->rows,
                             transposed ? source->rows : w->columns};
    if (e == NULL) {
        snprintf(why, 160, "is missing");
        return false;
    }
    bool same = e->ndim == w->ndim;
    for (int d = 0; d < min_i64(w->ndim, 2) && same; d++) same = e->dims[d] == dims[d];
    if (!same) {
        char has[64], wants[64];
        shape_print(e->ndim, e->dims, has);
        shape_print(w->ndim, dims, wants);
        snprintf(why, 160, "has shape %s, expected %s", has, wants);
        return false;
    }
    if (!type_is_read(e->type)) {
        snprintf(why, 160, "is stored as %s, expected fp32, bf16 or fp16", dtype_name(e->type));
        return false;
    }
    return true;
}

// Values in the file may be unaligned, so they are copied before use.
static void row_read(dtype type, const unsigned char *data, int64_t count, float *out)
{
    if (type == DTYPE_F32) {
        memcpy(out, data, (size_t)count * sizeof(float));
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        uint16_t bits;
        memcpy(&bits, data + 2 * i, sizeof(bits));
        out[i] = type == DTYPE_BF16 ? f32_from_bf16(bits) : f32_from_f16(bits);
    }
}

enum { PIECE_BYTES = 1 << 20 };

// Reads a tensor in stored order, piece by piece.
static status straight_read(const safetensors *set, const safetensors_entry *e, int64_t count,
                            unsigned char *piece, float *out)
{
    const int64_t width = dtype_bytes(e->type), step = PIECE_BYTES / width;
    for (int64_t at = 0; at < count; at += step) {
        const int64_t n = min_i64(step, count - at);
        TRY(safetensors_read(set, e, at * width, piece, n * width));
        row_read(e->type, piece, n, out + at);
    }
    return ST_OK;
}

// Reads a tensor stored as (columns, rows), a few stored rows at a time, so that source and target
// stay in cache.
static status transposed_read(const safetensors *set, const safetensors_entry *e, int64_t rows,
                              int64_t columns, unsigned char *piece, float *out)
{
    enum { WIDTH = 64 };
    float values[WIDTH * WIDTH];
    const int64_t bytes = dtype_bytes(e->type);
    const int64_t held = max_i64(1, min_i64(WIDTH, PIECE_BYTES / (rows * bytes)));
    for (int64_t c0 = 0; c0 < columns; c0 += held) {
        const int64_t count = min_i64(held, columns - c0);
        TRY(safetensors_read(set, e, c0 * rows * bytes, piece, count * rows * bytes));
        for (int64_t r0 = 0; r0 < rows; r0 += WIDTH) {
            const int64_t width = min_i64(WIDTH, rows - r0);
            for (int64_t c = 0; c < count; c++) {
                row_read(e->type, piece + (c * rows + r0) * bytes, width, values + c * WIDTH);
            }
            for (int64_t r = 0; r < width; r++) {
                for (int64_t c = 0; c < count; c++) {
                    out[(r0 + r) * columns + c0 + c] = values[c * WIDTH + r];
                }
            }
        }
    }
    return ST_OK;
}

static status source_read(const safetensors *set, const safetensors_entry *e,
                          const hf_source *source, int64_t columns, float *out)
{
    const bool is_transposed = source->tensor->transposed;
    const int64_t row = is_transposed ? source->rows * dtype_bytes(e->type) : 0; // a stored row
    unsigned char *piece = malloc((size_t)max_i64(PIECE_BYTES, row));
    if (piece == NULL) return fail(ST_NO_MEMORY, "no memory to read tensor %s", source->name);
    const status st = is_transposed ? transposed_read(set, e, source->rows, columns, piece, out)
                                    : straight_read(set, e, source->rows * columns, piece, out);
    free(piece);
    return st;
}

status model_weight_read(const safetensors *set, const decoder_spec *spec, const op_model *m,
                         int64_t weight, float *values)
{
    const op_weight *w = &m->weights[weight];
    hf_sources sources;
    TRY(sources_of(spec, w, &sources));
    for (int64_t i = 0; i < source_count(&sources); i++) {
        char why[160];
        hf_source source;
        source_at(&sources, i, &source);
        const safetensors_entry *e = entry_find(set, spec, &source);
        if (!entry_fits(e, w, &source, why)) {
            return fail(ST_MODEL, "tensor %s %s", source.name, why);
        }
        float *out = values + source.row_begin * w->columns;
        TRY(source_read(set, e, &source, w->columns, out));
    }
    return ST_OK;
}

// ---- the whole file -----------------------------------------------------------------------------

static bool ends_with(const char *name, const char *end)
{
    const size_t length = strlen(name), tail = strlen(end);
    return length >= tail && strcmp(name + length - tail, end) == 0;
}

// Ignores masks and tables that are not weights, and the head of a tied model, which is the
// embedding.
static bool is_ignored(const model_arch *arch, const decoder_spec *spec, const char *name)
{
    for (const char *const *b = arch->buffers; *b != NULL; b++) {
        if (ends_with(name, *b)) return true;
    }
    return spec->tied && strcmp(name, head_tensor.theirs) == 0;
}

// ---- the head of a tied model -------------------------------------------------------------------

// Compares two tensors of `count` elements as fp32, piece by piece.
static status values_compare(const safetensors *set, const safetensors_entry *const pair[2],
                             int64_t count, bool *same)
{
    enum { PIECE_VALUES = PIECE_BYTES / 4 };
    float *values = malloc(2 * PIECE_VALUES * sizeof(float));
    unsigned char *piece = malloc(PIECE_BYTES);
    status st = ST_OK;
    *same = true;
    if (values == NULL || piece == NULL) {
        st = fail(ST_NO_MEMORY, "no memory to compare tensor %s", pair[0]->name);
    }
    for (int64_t at = 0; st == ST_OK && *same && at < count; at += PIECE_VALUES) {
        const int64_t n = min_i64(PIECE_VALUES, count - at);
        for (int i = 0; i < 2 && st == ST_OK; i++) {
            const int64_t width = dtype_bytes(pair[i]->type);
            st = safetensors_read(set, pair[i], at * width, piece, n * width);
            if (st == ST_OK) row_read(pair[i]->type, piece, n, values + i * PIECE_VALUES);
        }
        *same =
            st != ST_OK || memcmp(values, values + PIECE_VALUES, (size_t)n * sizeof(float)) == 0;
    }
    free(values);
    free(piece);
    return st;
}

// A file of a tied model may hold its head too, which must then be the embedding: another head
// would be lost.
static status tied_head_check(const safetensors *set, const decoder_spec *spec, const op_model *m)
{
    const safetensors_entry *pair[2] = {safetensors_find(set, head_tensor.theirs), NULL};
    if (!spec->tied || pair[0] == NULL) return ST_OK;
    for (int64_t i = 0; i < m->weight_count; i++) {
        hf_sources sources;
        hf_source source;
        bool same = true;
        if (strcmp(m->weights[i].name, embedding_name) != 0) continue;
        TRY(sources_of(spec, &m->weights[i], &sources));
        source_at(&sources, 0, &source);
        pair[1] = entry_find(set, spec, &source);
        if (pair[1] == NULL || pair[1] == pair[0]) return ST_OK;
        const int64_t values = m->weights[i].rows * m->weights[i].columns;
        const bool fits = pair[0]->ndim == 2 && type_is_read(pair[0]->type) &&
                          pair[0]->dims[0] == m->weights[i].rows &&
                          pair[0]->dims[1] == m->weights[i].columns;
        if (fits) TRY(values_compare(set, pair, values, &same));
        if (fits && same) return ST_OK;
        return fail(
            ST_MODEL,
            "config.json says \"tie_word_embeddings\": true, but %s differs from %s; set it "
            "to false to keep both, or remove %s",
            head_tensor.theirs, pair[1]->name, head_tensor.theirs);
    }
    return ST_OK;
}

// ---- complaints ---------------------------------------------------------------------------------

// Prefixes that wrappers of models put before every name.
static const char *const wrapper_hints[][2] = {
    {"module.", "DistributedDataParallel adds it; save model.module.state_dict()"},
    {"_orig_mod.", "torch.compile adds it; save model._orig_mod.state_dict()"},
    {"_fsdp_wrapped_module.", "FSDP adds it; save a full state dict"},
    {"base_model.model.", "PEFT adds it; merge the adapter: merge_and_unload()"},
    {"language_model.", "models of text and pictures have it; save the text model alone"},
    {"model.language_model.", "models of text and pictures have it; save the text model alone"},
};

static const char *const *wrapper_of(const char *name)
{
    for (int64_t i = 0; i < COUNT_OF(wrapper_hints); i++) {
        if (strncmp(name, wrapper_hints[i][0], strlen(wrapper_hints[i][0])) == 0) {
            return wrapper_hints[i];
        }
    }
    return NULL;
}

enum { COMPLAINTS_SHOWN = 12 };
typedef struct complaints {
    text lines;
    int64_t count;
} complaints;

static status complain(complaints *c, const char *name, const char *why)
{
    if (c->count++ >= COMPLAINTS_SHOWN) return ST_OK;
    return text_add(&c->lines, "\n  %.200s %s", name, why);
}

static int64_t entry_index(const safetensors *set, const safetensors_entry *e)
{
    return e - safetensors_at(set, 0); // entries are one array, sorted by name
}

static status weights_check(complaints *c, const safetensors *set, const decoder_spec *spec,
                            const op_model *m, bool *used)
{
    for (int64_t i = 0; i < m->weight_count; i++) {
        hf_sources sources;
        TRY(sources_of(spec, &m->weights[i], &sources));
        for (int64_t s = 0; s < source_count(&sources); s++) {
            char why[160];
            hf_source source;
            source_at(&sources, s, &source);
            const safetensors_entry *e = entry_find(set, spec, &source);
            if (e != NULL) used[entry_index(set, e)] = true;
            if (!entry_fits(e, &m->weights[i], &source, why)) TRY(complain(c, source.name, why));
        }
    }
    return ST_OK;
}

status model_hf_check(arena *a, const safetensors *set, const decoder_spec *spec, const op_model *m)
{
    const model_arch *arch = model_arch_find(spec->arch);
    complaints c = {.lines = {.a = a}};
    const char *const *wrapper = NULL;
    bool *used = NULL;
    TRY(arena_new(a, safetensors_count(set), &used));
    TRY(weights_check(&c, set, spec, m, used));
    for (int64_t i = 0; i < safetensors_count(set); i++) {
        const char *name = safetensors_at(set, i)->name;
        if (used[i] || is_ignored(arch, spec, name)) continue;
        TRY(complain(&c, name, "is not part of this model"));
        if (wrapper == NULL) wrapper = wrapper_of(name);
    }
    if (c.count == 0) return tied_head_check(set, spec, m);
    if (c.count > COMPLAINTS_SHOWN) {
        TRY(text_add(&c.lines, "\n  and %lld more", (long long)(c.count - COMPLAINTS_SHOWN)));
    }
    if (wrapper != NULL) {
        TRY(text_add(&c.lines, "\n  the names begin with \"%s\": %s", wrapper[0], wrapper[1]));
    }
    return fail(ST_MODEL, "the weights do not fit the model that config.json describes:%s",
                c.lines.bytes);
}
