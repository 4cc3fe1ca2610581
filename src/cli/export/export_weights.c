// Weights of a checkpoint as model*.safetensors, one tensor at a time.
//
// A checkpoint holds logical parts (q, k, v). A Hugging Face tensor is some rows of a weight: one
// part, or several (GPT-2's c_attn), perhaps transposed. The command exports the master weights if
// they exist.
//
// The default type is the stored type if that is narrow; otherwise the type of the imported model
// (torch_dtype of its config.json) if it holds every value exactly; otherwise fp32. So an imported
// model is exported unchanged, and a trained model loses no precision.
#include "base/format/safetensors.h"
#include "checkpoint/checkpoint.h"
#include "cli/export/export_merge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE_BYTES = 1 << 20 };

// ---- parts --------------------------------------------------------------------------------------

static const ckpt_tensor *part_find(const ckpt_reader *c, const weight_part *part)
{
    static const char *const kinds[] = {"master", "weight"};
    for (int64_t i = 0; i < COUNT_OF(kinds); i++) {
        char name[PLAN_NAME_BYTES + 16];
        (void)snprintf(name, sizeof(name), "%s/%s", kinds[i], part->name);
        const ckpt_tensor *t = ckpt_reader_find(c, name);
        if (t != NULL) return t;
    }
    return NULL;
}

// Reads and checks the part's stored values, which stay valid until the next call.
static status part_read(const export_job *v, ckpt_reader *c, const op_weight *w,
                        const weight_part *part, dtype *type, const void **out)
{
    const ckpt_tensor *t = part_find(c, part);
    if (t == NULL) {
        return fail(ST_DAMAGED, "%s: the manifest has no weight %s", v->model.folder, part->name);
    }
    const int64_t count = part->rows * w->columns;
    if (model_dtype_name(t->type) == NULL || t->bytes != count * dtype_bytes(t->type)) {
        return fail(ST_MODEL, "%s: %s is %lld bytes of %s, config.json's model has %lld elements",
                    v->model.folder, t->name, (long long)t->bytes, dtype_name(t->type),
                    (long long)count);
    }
    *type = t->type;
    return ckpt_reader_data(c, t, out);
}

// ---- values -------------------------------------------------------------------------------------

// Rounds to nearest even; copies the bytes if the type does not change.
static void convert(dtype from, const void *in, dtype to, int64_t count, void *out)
{
    if (from == to) {
        memcpy(out, in, (size_t)(count * dtype_bytes(to)));
        return;
    }
    for (int64_t i = 0; i < count; i++) dtype_store(to, out, i, dtype_load(from, in, i));
}

// Compares bits, so that -0 differs from 0 and a NaN equals itself.
static uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static bool is_exact(dtype from, const void *in, dtype type, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const double value = dtype_load(from, in, i);
        uint32_t narrow = 0;
        dtype_store(type, &narrow, 0, value);
        const double back = dtype_load(type, &narrow, 0);
        if (bits_of(back) != bits_of(value)) return false;
    }
    return true;
}

// Transposes (rows, columns) to (columns, rows), in squares that fit the cache. Callers pass a
// constant width, so an element is one move.
static inline void turn_wide(const char *in, int64_t rows, int64_t columns, int64_t width,
                             char *out)
{
    enum { SIDE = 32 };
    for (int64_t r0 = 0; r0 < rows; r0 += SIDE) {
        for (int64_t c0 = 0; c0 < columns; c0 += SIDE) {
            const int64_t r1 = min_i64(rows, r0 + SIDE), c1 = min_i64(columns, c0 + SIDE);
            for (int64_t r = r0; r < r1; r++) {
                for (int64_t c = c0; c < c1; c++) {
                    memcpy(out + (c * rows + r) * width, in + (r * columns + c) * width,
                           (size_t)width);
                }
            }
        }
    }
}

static void transpose(const char *in, int64_t rows, int64_t columns, int64_t width, char *out)
{
    ASSERT(width == 2 || width == 4);
    if (width == 2) {
        turn_wide(in, rows, columns, 2, out);
    } else {
        turn_wide(in, rows, columns, 4, out);
    }
}

// Reads rows of one weight with the adapter merged into it.
static status rows_merge(const export_job *v, const export_tensor *t, char *out)
{
    const op_weight *w = &v->weights->weights[t->weight];
    float *values = malloc((size_t)(w->rows * w->columns) * sizeof(float));
    if (values == NULL) return fail(ST_NO_MEMORY, "no memory for %s", t->name);
    const status st = export_merge_weight(v->merge, v->weights, t->weight, values);
    if (st == ST_OK) {
        convert(DTYPE_F32, values + t->as.row_begin * w->columns, v->type, t->as.rows * w->columns,
                out);
    }
    free(values);
    return st;
}

// Reads rows of one weight from the parts that cover them.
static status rows_read(const export_job *v, ckpt_reader *c, const export_tensor *t, char *out)
{
    if (v->merge != NULL) return rows_merge(v, t, out);
    const op_weight *w = &v->weights->weights[t->weight];
    const int64_t end = t->as.row_begin + t->as.rows, width = dtype_bytes(v->type);
    for (int i = 0; i < w->part_count; i++) {
        const weight_part *part = &w->parts[i];
        const int64_t from = max_i64(part->row_begin, t->as.row_begin);
        const int64_t to = min_i64(part->row_begin + part->rows, end);
        if (from >= to) continue;
        dtype type = DTYPE_F32;
        const void *bytes = NULL;
        TRY(part_read(v, c, w, part, &type, &bytes));
        convert(
            type, (const char *)bytes + (from - part->row_begin) * w->columns * dtype_bytes(type),
            v->type, (to - from) * w->columns, out + (from - t->as.row_begin) * w->columns * width);
    }
    return ST_OK;
}

// Puts the rows of a matrix in the order of the file, where those of its halves alternate.
static void pair(const char *in, int64_t rows, int64_t row_bytes, char *out)
{
    for (int64_t r = 0; r < rows; r++) {
        const int64_t to = r < rows / 2 ? 2 * r : 2 * (r - rows / 2) + 1;
        memcpy(out + to * row_bytes, in + r * row_bytes, (size_t)row_bytes);
    }
}

// Puts the rows of a weight into the folder's layout, matrix by matrix; `half` holds one.
static void layout_make(const export_job *v, const export_tensor *t, const char *rows, char *half,
                        char *out)
{
    const int64_t columns = v->weights->weights[t->weight].columns, width = dtype_bytes(v->type);
    const int64_t each = t->as.rows / t->as.slices, bytes = each * columns * width;
    for (int64_t s = 0; s < t->as.slices; s++, rows += bytes, out += bytes) {
        const char *from = rows;
        if (t->as.paired) {
            pair(rows, each, columns * width, t->as.transposed ? half : out);
            from = half;
        }
        if (t->as.transposed) transpose(from, each, columns, width, out);
    }
}

// Makes the bytes of a tensor in the folder's layout; the caller frees *out.
static status tensor_make(const export_job *v, ckpt_reader *c, const export_tensor *t, char **out)
{
    char *rows = malloc((size_t)t->bytes), *made = NULL;
    status st = ST_OK;
    if (rows == NULL) return fail(ST_NO_MEMORY, "no memory for %s", t->name);
    TRY_TO(free_rows, rows_read(v, c, t, rows));
    if (!t->as.transposed && !t->as.paired) {
        *out = rows;
        return ST_OK;
    }
    made = malloc((size_t)(t->bytes + t->bytes / t->as.slices));
    if (made == NULL) {
        st = fail(ST_NO_MEMORY, "no memory for %s", t->name);
        goto free_rows;
    }
    layout_make(v, t, rows, made + t->bytes, made);
    *out = made;
free_rows:
    free(rows);
    return st;
}

// ---- plan ---------------------------------------------------------------------------------------

static status all_exact(const export_job *v, ckpt_reader *c, dtype type, bool *out)
{
    *out = true;
    for (int64_t w = 0; w < v->weights->weight_count && *out; w++) {
        const op_weight *weight = &v->weights->weights[w];
        for (int i = 0; i < weight->part_count && *out; i++) {
            dtype stored = DTYPE_F32;
            const void *bytes = NULL;
            TRY(part_read(v, c, weight, &weight->parts[i], &stored, &bytes));
            *out = is_exact(stored, bytes, type, weight->parts[i].rows * weight->columns);
        }
    }
    return ST_OK;
}

static status type_choose(export_job *v, ckpt_reader *c, dtype wanted)
{
    const op_weight *first = &v->weights->weights[0];
    const ckpt_tensor *e = part_find(c, &first->parts[0]);
    v->type = wanted;
    if (wanted != DTYPE_COUNT) return ST_OK;
    v->type = e == NULL ? DTYPE_F32 : e->type;
    for (int64_t w = 0; w < v->weights->weight_count; w++) {
        const op_weight *weight = &v->weights->weights[w];
        for (int i = 0; i < weight->part_count; i++) {
            e = part_find(c, &weight->parts[i]);
            if (e != NULL && e->type != v->type) v->type = DTYPE_F32; // fp32 holds all types
        }
    }
    const dtype came = v->model.spec.saved;
    if (v->type != DTYPE_F32 || came == DTYPE_F32) return ST_OK;
    bool exact = false;
    TRY(all_exact(v, c, came, &exact));
    if (exact) v->type = came;
    return ST_OK;
}

// A file takes tensors until the next would make it too large; no tensor is split.
static status tensors_list(export_job *v)
{
    arena *a = v->cli->a;
    int64_t capacity = 0, used = 0;
    for (int64_t i = 0; i < v->weights->weight_count; i++) {
        const int64_t columns = v->weights->weights[i].columns;
        model_hf_tensor *parts = NULL;
        int64_t count = 0;
        TRY(model_hf_tensors(a, &v->model.spec, v->weights, i, &parts, &count));
        TRY(arena_grow(a, (void **)&v->tensors, &capacity, v->tensor_count + count,
                       (int64_t)sizeof(*v->tensors)));
        for (int64_t k = 0; k < count; k++) {
            export_tensor t = {.name = parts[k].name,
                               .weight = i,
                               .as = parts[k],
                               .bytes = parts[k].rows * columns * dtype_bytes(v->type)};
            if (v->shard_count == 0 || used + t.bytes > v->shard_bytes) {
                v->shard_count++;
                used = 0;
            }
            used += t.bytes;
            v->total_bytes += t.bytes;
            t.shard = v->shard_count - 1;
            v->tensors[v->tensor_count++] = t;
        }
    }
    return ST_OK;
}

status export_weights_plan(export_job *v, dtype wanted)
{
    enum { SHARDS_MAX = 99999 };
    const model_options options = {
        .purpose = PURPOSE_EVALUATE, .compute = DTYPE_F32, .grad = DTYPE_F32, .seq = 1};
    ckpt_reader *c = NULL;
    TRY(model_build(v->cli->a, &v->model.spec, &options, &v->weights));
    if (v->merge != NULL) { // the type of the base model
        v->type = wanted != DTYPE_COUNT ? wanted : v->model.spec.saved;
    } else {
        TRY(ckpt_reader_open(v->cli->h, v->model.folder, &c));
        const status st = type_choose(v, c, wanted);
        ckpt_reader_close(c);
        TRY(st);
    }
    TRY(tensors_list(v));
    if (v->shard_count <= SHARDS_MAX) return ST_OK;
    return fail(ST_USAGE, "--shard-bytes %lld would make %lld files; at most %d can be named",
                (long long)v->shard_bytes, (long long)v->shard_count, SHARDS_MAX);
}

// ---- files --------------------------------------------------------------------------------------

static status shard_name(const export_job *v, int64_t shard, char **out)
{
    if (v->shard_count == 1) return arena_strdup(v->cli->a, "model.safetensors", out);
    return arena_format(v->cli->a, out, "model-%05lld-of-%05lld.safetensors",
                        (long long)(shard + 1), (long long)v->shard_count);
}

static status shard_fill(export_job *v, ckpt_reader *c, int64_t shard, safetensors_writer *w)
{
    TRY(safetensors_writer_metadata(w, "format", "pt")); // transformers refuses files without it
    for (int64_t i = 0; i < v->tensor_count; i++) {
        const export_tensor *t = &v->tensors[i];
        if (t->shard != shard) continue;
        TRY(safetensors_writer_declare(w, t->name, v->type, t->as.ndim, t->as.dims));
    }
    for (int64_t i = 0; i < v->tensor_count; i++) {
        export_tensor *t = &v->tensors[i];
        char *bytes = NULL;
        if (t->shard != shard) continue;
        TRY(tensor_make(v, c, t, &bytes));
        t->sum = hash128_of(bytes, t->bytes);
        const status st = safetensors_writer_put(w, bytes, t->bytes);
        free(bytes);
        TRY(st);
    }
    return safetensors_writer_finish(w);
}

static status index_write(const export_job *v)
{
    arena *a = v->cli->a;
    text t = {.a = a};
    char *path = NULL, *name = NULL;
    if (v->shard_count == 1) return ST_OK;
    TRY(text_add(&t, "{\n  \"metadata\": {\"total_size\": %lld},\n  \"weight_map\": {\n",
                 (long long)v->total_bytes));
    for (int64_t i = 0; i < v->tensor_count; i++) {
        if (i == 0 || v->tensors[i].shard != v->tensors[i - 1].shard) {
            TRY(shard_name(v, v->tensors[i].shard, &name));
        }
        TRY(text_add(&t, "    \"%s\": \"%s\"%s\n", v->tensors[i].name, name,
                     i + 1 < v->tensor_count ? "," : ""));
    }
    TRY(text_add(&t, "  }\n}\n"));
    TRY(path_join(a, v->work, "model.safetensors.index.json", &path));
    return host_write_all(v->cli->h, path, t.bytes, t.length);
}

status export_weights_write(export_job *v)
{
    ckpt_reader *c = NULL;
    if (v->merge == NULL) TRY(ckpt_reader_open(v->cli->h, v->model.folder, &c));
    status st = ST_OK;
    for (int64_t i = 0; i < v->shard_count && st == ST_OK; i++) {
        char *name = NULL, *path = NULL;
        safetensors_writer *w = NULL;
        TRY_TO(close_reader, shard_name(v, i, &name));
        TRY_TO(close_reader, path_join(v->cli->a, v->work, name, &path));
        TRY_TO(close_reader, safetensors_writer_create(v->cli->h, path, &w));
        st = shard_fill(v, c, i, w);
        safetensors_writer_destroy(w);
    }
close_reader:
    ckpt_reader_close(c);
    return st == ST_OK ? index_write(v) : st;
}

// ---- reading back -------------------------------------------------------------------------------

// Reads in pieces, so that the file is never in memory.
static status sum_read(const safetensors *files, const safetensors_entry *e, void *piece,
                       hash128 *out)
{
    hash_stream *sum = hash_begin();
    if (sum == NULL) return fail(ST_NO_MEMORY, "no memory for a checksum");
    status st = ST_OK;
    for (int64_t at = 0; at < e->bytes && st == ST_OK; at += PIECE_BYTES) {
        const int64_t n = min_i64(PIECE_BYTES, e->bytes - at);
        st = safetensors_read(files, e, at, piece, n);
        if (st == ST_OK) hash_add(sum, piece, n);
    }
    *out = hash_end(sum);
    return st;
}

static status tensors_compare(const export_job *v, const safetensors *files)
{
    void *piece = NULL;
    TRY(arena_alloc(v->cli->a, PIECE_BYTES, &piece));
    for (int64_t i = 0; i < v->tensor_count; i++) {
        const export_tensor *t = &v->tensors[i];
        const safetensors_entry *e = safetensors_find(files, t->name);
        char wrote[33], has[33];
        if (e == NULL || e->bytes != t->bytes || e->type != v->type) {
            return fail(ST_DAMAGED, "%s: tensor %s is missing after it was written", v->work,
                        t->name);
        }
        hash128 sum;
        TRY(sum_read(files, e, piece, &sum));
        if (sum.high == t->sum.high && sum.low == t->sum.low) continue;
        return fail(ST_DAMAGED, "%s: %s reads back as %s, %s was written; the disk changed it",
                    v->work, t->name, hash128_text(sum, has), hash128_text(t->sum, wrote));
    }
    return ST_OK;
}

status export_weights_check(export_job *v)
{
    arena *a = v->cli->a;
    decoder_spec spec;
    op_model *m = NULL;
    safetensors *files = NULL;
    const model_options options = {
        .purpose = PURPOSE_EVALUATE, .compute = v->type, .grad = DTYPE_F32, .seq = 1};
    TRY(model_spec_from_hf(v->cli->h, a, v->work, &spec));
    TRY(model_build(a, &spec, &options, &m));
    TRY(safetensors_open(v->cli->h, v->work, &files));
    status st = model_hf_check(a, files, &spec, m);
    if (st == ST_OK) st = tensors_compare(v, files);
    safetensors_close(files);
    return st;
}
