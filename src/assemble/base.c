// Digest of a base model, and its record in checkpoints.
#include "assemble/base.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char file_name[] = "base.json";

enum { PIECE_BYTES = 1 << 20 };

static void number_add(hash_stream *sum, int64_t value)
{
    hash_add(sum, &value, (int64_t)sizeof(value));
}

static status entry_add(const safetensors *files, const safetensors_entry *e, char *piece,
                        hash_stream *sum)
{
    hash_add(sum, e->name, (int64_t)strlen(e->name) + 1);
    number_add(sum, (int64_t)e->type);
    number_add(sum, e->ndim);
    for (int i = 0; i < e->ndim; i++) number_add(sum, e->dims[i]);
    for (int64_t at = 0; at < e->bytes; at += PIECE_BYTES) {
        const int64_t n = min_i64(PIECE_BYTES, e->bytes - at);
        TRY(safetensors_read(files, e, at, piece, n));
        hash_add(sum, piece, n);
    }
    return ST_OK;
}

// The entries are sorted by name, so the digest does not depend on how files were split.
static status files_digest(const host *h, const char *folder, hash_stream *sum)
{
    safetensors *files = NULL;
    char *piece = malloc(PIECE_BYTES);
    if (piece == NULL) return fail(ST_NO_MEMORY, "no memory to read %s", folder);
    status st = safetensors_open(h, folder, &files);
    for (int64_t i = 0; st == ST_OK && i < safetensors_count(files); i++) {
        st = entry_add(files, safetensors_at(files, i), piece, sum);
    }
    safetensors_close(files);
    free(piece);
    return st;
}

static status checkpoint_digest(const host *h, const char *folder, hash_stream *sum)
{
    ckpt_reader *r = NULL;
    TRY(ckpt_reader_open(h, folder, &r));
    const hash128 digest = ckpt_reader_digest(r);
    hash_add(sum, &digest, (int64_t)sizeof(digest));
    ckpt_reader_close(r);
    return ST_OK;
}

static status weights_digest(const host *h, arena *a, const decoder_spec *spec,
                             const assemble_base *base, hash_stream *sum)
{
    bool is_checkpoint = false;
    if (base->from != NULL) {
        TRY(ckpt_folder_is(h, a, base->from, &is_checkpoint));
        return is_checkpoint ? checkpoint_digest(h, base->from, sum)
                             : files_digest(h, base->from, sum);
    }
    text shape = {.a = a};
    TRY(model_spec_print_json(spec, &shape));
    hash_add(sum, shape.bytes, shape.length);
    number_add(sum, base->seed);
    return ST_OK;
}

status assemble_base_describe(const host *h, arena *a, const decoder_spec *spec, const char *from,
                              int64_t seed, assemble_base *out)
{
    *out = (assemble_base){.from = from, .seed = seed};
    hash_stream *sum = hash_begin();
    if (sum == NULL) return fail(ST_NO_MEMORY, "no memory for a digest");
    const status st = weights_digest(h, a, spec, out, sum);
    (void)hash128_text(hash_end(sum), out->digest);
    return st;
}

status assemble_base_print(const assemble_base *base, text *out)
{
    TRY(text_add(out, "{\n  \"from\": %s", base->from == NULL ? "null" : ""));
    if (base->from != NULL) TRY(text_add_json(out, base->from));
    return text_add(out, ",\n  \"seed\": %lld,\n  \"digest\": \"%s\"\n}\n", (long long)base->seed,
                    base->digest);
}

static status base_parse(arena *a, const json *root, const char *checkpoint, assemble_base *out)
{
    const char *digest = json_text(json_get(root, "digest"), "");
    const char *from = json_text(json_get(root, "from"), NULL);
    char *kept = NULL;
    if (strlen(digest) != sizeof(out->digest) - 1) {
        return fail(ST_DAMAGED, "%s/%s has no digest of 32 digits", checkpoint, file_name);
    }
    *out = (assemble_base){.seed = json_int(json_get(root, "seed"), 0)};
    memcpy(out->digest, digest, sizeof(out->digest));
    if (from != NULL) TRY(arena_strdup(a, from, &kept));
    out->from = kept;
    return ST_OK;
}

status assemble_base_read(const host *h, arena *a, const char *checkpoint, assemble_base *out,
                          bool *is_there)
{
    char *bytes = NULL;
    int64_t count = 0;
    json *root = NULL;
    TRY(ckpt_extra_read(h, a, checkpoint, file_name, &bytes, &count));
    *is_there = bytes != NULL;
    if (bytes == NULL) return ST_OK;
    TRY(json_parse(bytes, count, file_name, &root));
    const status st = base_parse(a, root, checkpoint, out);
    json_free(root);
    return st;
}

status assemble_base_compare(const char *checkpoint, const assemble_base *was,
                             const assemble_base *now)
{
    if (strcmp(was->digest, now->digest) == 0) return ST_OK;
    return fail(ST_CONFIG_FIXED,
                "the adapter in %s was trained with the base model %s of digest %s, and %s has "
                "%s: its weights are others, so the adapter does not fit them; put the base model "
                "back, or begin anew",
                checkpoint, was->from != NULL ? was->from : "of initial values", was->digest,
                now->from != NULL ? now->from : "the initial model", now->digest);
}

// ---- values -------------------------------------------------------------------------------------

status assemble_base_open(const host *h, arena *a, const decoder_spec *spec, const char *from,
                          uint64_t seed, assemble_base_values *out)
{
    bool is_checkpoint = false;
    *out = (assemble_base_values){.spec = spec, .seed = seed};
    if (from == NULL) return ST_OK;
    TRY(ckpt_folder_is(h, a, from, &is_checkpoint));
    return is_checkpoint ? ckpt_reader_open(h, from, &out->checkpoint)
                         : safetensors_open(h, from, &out->files);
}

void assemble_base_close(assemble_base_values *v)
{
    ckpt_reader_close(v->checkpoint);
    safetensors_close(v->files);
    v->checkpoint = NULL;
    v->files = NULL;
}

status assemble_part_read(ckpt_reader *r, const op_weight *w, int part, float *values)
{
    static const char *const kinds[] = {"master", "weight"};
    const int64_t count = w->parts[part].rows * w->columns;
    const ckpt_tensor *t = NULL;
    for (int64_t i = 0; i < COUNT_OF(kinds) && t == NULL; i++) {
        char name[PLAN_NAME_BYTES + 16];
        (void)snprintf(name, sizeof(name), "%s/%s", kinds[i], w->parts[part].name);
        t = ckpt_reader_find(r, name);
    }
    const void *bytes = NULL;
    if (t == NULL) return fail(ST_DAMAGED, "the manifest has no weight %s", w->parts[part].name);
    if (model_dtype_name(t->type) == NULL || t->bytes != count * dtype_bytes(t->type)) {
        return fail(ST_MODEL, "%s is %lld bytes of %s, this model's has %lld elements", t->name,
                    (long long)t->bytes, dtype_name(t->type), (long long)count);
    }
    TRY(ckpt_reader_data(r, t, &bytes));
    for (int64_t i = 0; i < count; i++) values[i] = (float)dtype_load(t->type, bytes, i);
    return ST_OK;
}

status assemble_base_weight(const assemble_base_values *v, const op_model *m, int64_t weight,
                            float *values)
{
    const op_weight *w = &m->weights[weight];
    if (v->files != NULL) {
        op_weight own = *w; // as the base model has it, also if an adapter has it too
        op_model one = *m;
        own.is_adapter = false;
        one.weights = &own;
        one.weight_count = 1;
        return model_weight_read(v->files, v->spec, &one, 0, values);
    }
    if (v->checkpoint == NULL) {
        model_weight_init(m, weight, v->seed, values);
        return ST_OK;
    }
    for (int i = 0; i < w->part_count; i++) {
        TRY(assemble_part_read(v->checkpoint, w, i, values + w->parts[i].row_begin * w->columns));
    }
    return ST_OK;
}

// Finds the weight of the base model that is called `name`, or has a part of that name, whose rows
// begin at *row.
static status matrix_find(const op_model *m, const char *name, int64_t *weight, int64_t *row)
{
    for (int64_t w = 0; w < m->weight_count; w++) {
        const op_weight *found = &m->weights[w];
        if (found->is_adapter) continue;
        *weight = w;
        *row = 0;
        if (strcmp(found->name, name) == 0) return ST_OK;
        for (int i = 0; i < found->part_count; i++) {
            *row = found->parts[i].row_begin;
            if (strcmp(found->parts[i].name, name) == 0) return ST_OK;
        }
    }
    return fail(ST_INTERNAL, "the base model has no matrix %s", name);
}

static void lengths_of(const float *rows, int64_t count, int64_t columns, float *lengths)
{
    for (int64_t i = 0; i < count; i++) {
        double sum = 0.0;
        for (int64_t k = 0; k < columns; k++) {
            const double x = (double)rows[i * columns + k];
            sum += x * x;
        }
        lengths[i] = (float)sqrt(sum);
    }
}

status assemble_base_lengths(const assemble_base_values *v, const op_model *m, int64_t weight,
                             float *values)
{
    const op_weight *w = &m->weights[weight];
    const char *end = strstr(w->name, ".lora_");
    char name[PLAN_NAME_BYTES];
    int64_t base = 0, row = 0;
    ASSERT(end != NULL && end - w->name < PLAN_NAME_BYTES);
    (void)snprintf(name, sizeof(name), "%.*s", (int)(end - w->name), w->name);
    TRY(matrix_find(m, name, &base, &row));
    const int64_t columns = m->weights[base].columns;
    float *whole = malloc((size_t)(m->weights[base].rows * columns) * sizeof(float));
    if (whole == NULL) return fail(ST_NO_MEMORY, "no memory for %s", name);
    const status st = assemble_base_weight(v, m, base, whole);
    if (st == ST_OK) lengths_of(whole + row * columns, w->rows, columns, values);
    free(whole);
    return st;
}
