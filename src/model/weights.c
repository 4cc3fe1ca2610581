// Values of weights: initial values, and those of Hugging Face files.
//
// A file may hold one weight as several tensors (q, k, v; those of experts) or transposed (GPT-2),
// with or without the architecture's prefix, in fp32, bf16 or fp16. The tables in arch/ describe
// names and layouts; this file looks them up and converts the values.
#include "base/rng.h"
#include "base/text.h"
#include "model/hf_tensors.h"

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
    } else if (ndim == 3) {
        snprintf(buffer, 64, "[%lld, %lld, %lld]", (long long)dims[0], (long long)dims[1],
                 (long long)dims[2]);
    } else {
        snprintf(buffer, 64, "%d dims", ndim);
    }
}

// Returns whether the entry can be weight w's source; if not, `why` states the reason on one line.
static bool entry_fits(const safetensors_entry *e, const hf_source *source, char why[160])
{
    const model_hf_tensor *as = &source->as;
    if (e == NULL) {
        snprintf(why, 160, "is missing");
        return false;
    }
    bool same = e->ndim == as->ndim;
    for (int d = 0; d < as->ndim && same; d++) same = e->dims[d] == as->dims[d];
    if (!same) {
        char has[64], wants[64];
        shape_print(e->ndim, e->dims, has);
        shape_print(as->ndim, as->dims, wants);
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

// A matrix in a file, from element `first` of its tensor on.
typedef struct stored_matrix {
    const safetensors *set;
    const safetensors_entry *e;
    int64_t first, rows, columns;
} stored_matrix;

// Reads a matrix in stored order, piece by piece.
static status straight_read(const stored_matrix *m, unsigned char *piece, float *out)
{
    const int64_t width = dtype_bytes(m->e->type), step = PIECE_BYTES / width;
    const int64_t count = m->rows * m->columns;
    for (int64_t at = 0; at < count; at += step) {
        const int64_t n = min_i64(step, count - at);
        TRY(safetensors_read(m->set, m->e, (m->first + at) * width, piece, n * width));
        row_read(m->e->type, piece, n, out + at);
    }
    return ST_OK;
}

// Reads a matrix stored as (columns, rows), a few stored rows at a time, so that source and target
// stay in cache.
static status transposed_read(const stored_matrix *m, unsigned char *piece, float *out)
{
    enum { WIDTH = 64 };
    float values[WIDTH * WIDTH];
    const int64_t bytes = dtype_bytes(m->e->type), rows = m->rows, columns = m->columns;
    const int64_t held = max_i64(1, min_i64(WIDTH, PIECE_BYTES / (rows * bytes)));
    for (int64_t c0 = 0; c0 < columns; c0 += held) {
        const int64_t count = min_i64(held, columns - c0);
        TRY(safetensors_read(m->set, m->e, (m->first + c0 * rows) * bytes, piece,
                             count * rows * bytes));
        for (int64_t r0 = 0; r0 < rows; r0 += WIDTH) {
            const int64_t width = min_i64(WIDTH, rows - r0);
            for (int64_t c = 0; c < count; c++) {
                row_read(m->e->type, piece + (c * rows + r0) * bytes, width, values + c * WIDTH);
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

static status matrix_read(const stored_matrix *m, bool transposed, float *out)
{
    const int64_t row = transposed ? m->rows * dtype_bytes(m->e->type) : 0; // a stored row
    unsigned char *piece = malloc((size_t)max_i64(PIECE_BYTES, row));
    if (piece == NULL) return fail(ST_NO_MEMORY, "no memory to read tensor %s", m->e->name);
    const status st = transposed ? transposed_read(m, piece, out) : straight_read(m, piece, out);
    free(piece);
    return st;
}

// Reads one matrix of those that a tensor stacks, and puts its rows into our order.
static status slice_read(const stored_matrix *m, const hf_blocks *b, const hf_source *source,
                         int64_t slice, float *out)
{
    const model_hf_tensor *as = &source->as;
    const int64_t columns = m->columns, half = m->rows / 2;
    float *rows = out;
    if (as->paired) rows = malloc((size_t)(m->rows * columns) * sizeof(float));
    if (rows == NULL) return fail(ST_NO_MEMORY, "no memory to read tensor %s", source->name);
    const status st = b->blocks != NULL ? hf_blocks_read(m->set, b, source, slice, columns, rows)
                                        : matrix_read(m, as->transposed, rows);
    for (int64_t r = 0; r < m->rows && st == ST_OK && as->paired; r++) {
        const int64_t from = r < half ? 2 * r : 2 * (r - half) + 1;
        memcpy(out + r * columns, rows + from * columns, (size_t)columns * sizeof(float));
    }
    if (as->paired) free(rows);
    return st;
}

static status source_read(const safetensors *set, const safetensors_entry *e, const hf_blocks *b,
                          const hf_source *source, int64_t columns, float *out)
{
    const int64_t slices = source->as.slices, rows = source->as.rows / slices;
    for (int64_t s = 0; s < slices; s++) {
        const stored_matrix m = {
            .set = set, .e = e, .first = s * rows * columns, .rows = rows, .columns = columns};
        TRY(slice_read(&m, b, source, s, out + m.first));
    }
    return ST_OK;
}

// Finds the entry of a source, or the blocks that take its place; if neither fits, `why` says why.
static bool source_find(const safetensors *set, const decoder_spec *spec, const op_weight *w,
                        const hf_source *source, const safetensors_entry **e, hf_blocks *b,
                        char why[160])
{
    *b = (hf_blocks){NULL, NULL};
    *e = hf_entry_find(set, spec, source);
    if (*e == NULL && source->as.slices > 1) *b = hf_blocks_find(set, spec, source);
    if (b->blocks != NULL) return hf_blocks_fit(b, source, w->columns, why);
    return entry_fits(*e, source, why);
}

status model_weight_read(const safetensors *set, const decoder_spec *spec, const op_model *m,
                         int64_t weight, float *values)
{
    const op_weight *w = &m->weights[weight];
    hf_sources sources;
    TRY(hf_sources_of(spec, w, &sources));
    for (int64_t i = 0; i < hf_source_count(&sources); i++) {
        char why[160];
        hf_source source;
        hf_source_at(&sources, i, &source);
        const safetensors_entry *e = NULL;
        hf_blocks blocks;
        if (!source_find(set, spec, w, &source, &e, &blocks, why)) {
            return fail(ST_MODEL, "tensor %s %s", source.name, why);
        }
        float *out = values + source.as.row_begin * w->columns;
        TRY(source_read(set, e, &blocks, &source, w->columns, out));
    }
    return ST_OK;
}

bool model_score_is_new(const decoder_spec *spec, const op_model *m, int64_t weight)
{
    return spec->scores == MODEL_SCORES_NEW &&
           strcmp(m->weights[weight].name, hf_score_tensor.ours) == 0;
}

// ---- the whole file -----------------------------------------------------------------------------

static bool ends_with(const char *name, const char *end)
{
    const size_t length = strlen(name), tail = strlen(end);
    return length >= tail && strcmp(name + length - tail, end) == 0;
}

// Returns whether a tensor belongs to the layer that predicts the token after the next and is no
// weight of the model: a copy, or that layer is left out.
static bool is_of_next(const model_arch *arch, const decoder_spec *spec, const char *name)
{
    const char *const copies[] = {hf_head_tensor.ours, hf_embedding_name};
    char copy[HF_NAME_BYTES];
    if (arch->keys->next_layers == NULL) return false;
    for (int64_t i = 0; i < COUNT_OF(copies); i++) {
        if (hf_copy_name(spec, copies[i], copy) && strcmp(name, copy) == 0) return true;
    }
    (void)snprintf(copy, sizeof(copy), "%slayers.%lld.", arch->prefix, (long long)spec->layers);
    return spec->next_layers == 0 && strncmp(name, copy, strlen(copy)) == 0;
}

// Ignores masks and tables that are not weights, the head of a tied model, which is the embedding,
// and that of a reward model whose adapter has it.
static bool is_ignored(const model_arch *arch, const decoder_spec *spec, const char *name)
{
    for (const char *const *b = arch->buffers; *b != NULL; b++) {
        if (ends_with(name, *b)) return true;
    }
    const bool is_of_adapter = spec->adapter.rank > 0 && spec->scores != MODEL_WRITES;
    if (is_of_adapter && strcmp(name, hf_score_tensor.theirs) == 0) return true;
    const bool has_head = spec->tied || spec->scores == MODEL_SCORES_NEW;
    return is_of_next(arch, spec, name) || (has_head && strcmp(name, hf_head_tensor.theirs) == 0);
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

// Compares the tensor `copy`, if the file has it, with the weight that it must equal, because it
// would be lost otherwise.
static status copy_check(const safetensors *set, const decoder_spec *spec, const op_weight *w,
                         const char *copy, const char *why)
{
    const safetensors_entry *pair[2] = {safetensors_find(set, copy), NULL};
    hf_sources sources;
    hf_source source;
    bool same = true;
    if (pair[0] == NULL) return ST_OK;
    TRY(hf_sources_of(spec, w, &sources));
    hf_source_at(&sources, 0, &source);
    pair[1] = hf_entry_find(set, spec, &source);
    if (pair[1] == NULL || pair[1] == pair[0]) return ST_OK;
    const bool fits = pair[0]->ndim == 2 && type_is_read(pair[0]->type) &&
                      pair[0]->dims[0] == w->rows && pair[0]->dims[1] == w->columns;
    if (fits) TRY(values_compare(set, pair, w->rows * w->columns, &same));
    if (fits && same) return ST_OK;
    return fail(ST_MODEL, "%s%s differs from %s; %s %s", why, copy, pair[1]->name,
                why[0] != '\0' ? "set it to false to keep both, or remove" : "remove", copy);
}

// The head of a tied model, and copies in the layer that predicts the token after the next.
static status copies_check(const safetensors *set, const decoder_spec *spec, const op_model *m)
{
    for (int64_t i = 0; i < m->weight_count; i++) {
        const op_weight *w = &m->weights[i];
        char copy[HF_NAME_BYTES];
        if (hf_copy_name(spec, w->name, copy)) TRY(copy_check(set, spec, w, copy, ""));
        if (!spec->tied || strcmp(w->name, hf_embedding_name) != 0) continue;
        TRY(copy_check(set, spec, w, hf_head_tensor.theirs,
                       "config.json says \"tie_word_embeddings\": true, but "));
        if (spec->next_layers == 0) continue;
        (void)hf_copy_name(spec, hf_head_tensor.ours, copy);
        TRY(copy_check(set, spec, w, copy, ""));
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

static bool is_new(const decoder_spec *spec, const hf_source *source)
{
    return spec->scores == MODEL_SCORES_NEW && source->tensor == &hf_score_tensor;
}

static status weights_check(complaints *c, const safetensors *set, const decoder_spec *spec,
                            const op_model *m, bool adapter, bool *used)
{
    for (int64_t i = 0; i < m->weight_count; i++) {
        hf_sources sources;
        if (m->weights[i].is_adapter != adapter || m->weights[i].is_history) continue;
        TRY(hf_sources_of(spec, &m->weights[i], &sources));
        for (int64_t s = 0; s < hf_source_count(&sources); s++) {
            char why[160];
            hf_source source;
            hf_source_at(&sources, s, &source);
            const safetensors_entry *e = NULL;
            hf_blocks b;
            const bool fits = source_find(set, spec, &m->weights[i], &source, &e, &b, why);
            if (e != NULL) used[entry_index(set, e)] = true;
            if (b.blocks != NULL) used[entry_index(set, b.blocks)] = true;
            if (b.scales != NULL) used[entry_index(set, b.scales)] = true;
            if (!fits && !is_new(spec, &source)) TRY(complain(c, source.name, why));
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
    TRY(weights_check(&c, set, spec, m, false, used));
    for (int64_t i = 0; i < safetensors_count(set); i++) {
        const char *name = safetensors_at(set, i)->name;
        if (used[i] || is_ignored(arch, spec, name)) continue;
        TRY(complain(&c, name, "is not part of this model"));
        if (wrapper == NULL) wrapper = wrapper_of(name);
    }
    if (c.count == 0) return copies_check(set, spec, m);
    if (c.count > COMPLAINTS_SHOWN) {
        TRY(text_add(&c.lines, "\n  and %lld more", (long long)(c.count - COMPLAINTS_SHOWN)));
    }
    if (wrapper != NULL) {
        TRY(text_add(&c.lines, "\n  the names begin with \"%s\": %s", wrapper[0], wrapper[1]));
    }
    return fail(ST_MODEL, "the weights do not fit the model that config.json describes:%s",
                c.lines.bytes);
}

status model_hf_adapter_check(arena *a, const safetensors *set, const decoder_spec *spec,
                              const op_model *m)
{
    complaints c = {.lines = {.a = a}};
    bool *used = NULL;
    TRY(arena_new(a, safetensors_count(set), &used));
    TRY(weights_check(&c, set, spec, m, true, used));
    for (int64_t i = 0; i < safetensors_count(set); i++) {
        if (used[i]) continue;
        TRY(complain(&c, safetensors_at(set, i)->name, "belongs to no matrix of this model"));
    }
    if (c.count == 0) return ST_OK;
    if (c.count > COMPLAINTS_SHOWN) {
        TRY(text_add(&c.lines, "\n  and %lld more", (long long)(c.count - COMPLAINTS_SHOWN)));
    }
    return fail(ST_MODEL, "the adapter does not fit the model:%s", c.lines.bytes);
}
