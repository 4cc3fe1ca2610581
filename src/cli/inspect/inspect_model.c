// Weights and their configuration: safetensors, one file or several with an index; Hugging Face
// folders.
//
// Opening a safetensors file checks the format's rules (header, names, shapes against byte ranges,
// no hole, no overlap). --verify also reads every value and checks that the weights belong to the
// model of config.json.
#include "base/format/safetensors.h"
#include "cli/inspect/inspect.h"
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// ---- tensors ------------------------------------------------------------------------------------

static status tensors_take(inspect_report *r, const safetensors *s, const char *const *files)
{
    for (int64_t i = 0; i < safetensors_count(s); i++) {
        const safetensors_entry *e = safetensors_at(s, i);
        inspect_tensor t = {
            .type = e->type, .ndim = e->ndim, .offset = e->begin, .bytes = e->bytes};
        char *name = NULL;
        TRY(arena_strdup(r->cli->a, e->name, &name)); // the name must outlive the set
        t.name = name;
        t.file = files == NULL ? NULL : files[e->file_idx];
        memcpy(t.dims, e->dims, sizeof(t.dims));
        TRY(inspect_add_tensor(r, &t));
    }
    return ST_OK;
}

static int64_t elements_of(const inspect_tensor *t)
{
    int64_t count = 1;
    for (int i = 0; i < t->ndim; i++) count *= t->dims[i];
    return count;
}

static status tensors_tell(inspect_report *r)
{
    int64_t counts[DTYPE_COUNT] = {0}, elements = 0, bytes = 0;
    char types[256] = "", human[32];
    size_t used = 0;
    for (int64_t i = 0; i < r->tensor_count; i++) {
        counts[r->tensors[i].type]++;
        elements += elements_of(&r->tensors[i]);
        bytes += r->tensors[i].bytes;
    }
    for (int i = 0; i < DTYPE_COUNT && used < sizeof(types) - 32; i++) {
        if (counts[i] == 0) continue;
        used += (size_t)snprintf(types + used, sizeof(types) - used, "%s%lld %s",
                                 used == 0 ? "" : ", ", (long long)counts[i], dtype_name((dtype)i));
    }
    TRY(inspect_add_int(r, "tensors", r->tensor_count));
    TRY(inspect_add(r, "types", "%s", types));
    TRY(inspect_add_int(r, "elements", elements));
    TRY(inspect_add_int(r, "bytes", bytes));
    return inspect_add(r, "size", "%s", text_bytes_human(bytes, human));
}

static bool is_real(dtype type)
{
    return type == DTYPE_F32 || type == DTYPE_BF16 || type == DTYPE_F16 || type == DTYPE_F64;
}

// Counts values that are NaN or infinite. Attention masks contain such values, so they are a fact
// and no damage.
static status not_finite(const safetensors *s, const safetensors_entry *e, int64_t *found)
{
    enum { PIECE = 4096 };
    double piece[PIECE]; // aligned for any type
    const int64_t width = dtype_bytes(e->type), count = e->bytes / width;
    *found = 0;
    for (int64_t at = 0; at < count; at += PIECE) {
        const int64_t n = min_i64(PIECE, count - at);
        TRY(safetensors_read(s, e, at * width, piece, n * width));
        if (!is_real(e->type)) continue; // only reads the bytes, to test the disk
        for (int64_t i = 0; i < n; i++) *found += isfinite(dtype_load(e->type, piece, i)) == 0;
    }
    return ST_OK;
}

static status values_read(inspect_report *r, const safetensors *s)
{
    int64_t strange = 0;
    const char *first = NULL;
    for (int64_t i = 0; i < safetensors_count(s); i++) {
        const safetensors_entry *e = safetensors_at(s, i);
        int64_t found = 0;
        TRY(inspect_take(r, not_finite(s, e, &found)));
        if (found > 0 && first == NULL) first = e->name;
        strange += found;
    }
    TRY(inspect_add_int(r, "not finite", strange));
    return first == NULL ? ST_OK : inspect_add(r, "first in", "%s", first);
}

static status set_look(inspect_report *r, const char *path, safetensors **out)
{
    int last = 0;
    TRY(safetensors_open(r->cli->h, path, out));
    TRY(tensors_take(r, *out, NULL));
    for (int64_t i = 0; i < safetensors_count(*out); i++) {
        if (safetensors_at(*out, i)->file_idx > last) last = safetensors_at(*out, i)->file_idx;
    }
    TRY(inspect_add_int(r, "files", last + 1));
    TRY(tensors_tell(r));
    const char *format = safetensors_metadata(*out, "format");
    if (format != NULL) TRY(inspect_add(r, "format", "%s", format));
    return r->verifies ? values_read(r, *out) : ST_OK;
}

status inspect_safetensors(inspect_report *r, const inspect_probe *p)
{
    safetensors *s = NULL;
    const status st = set_look(r, p->path, &s);
    safetensors_close(s);
    TRY(st);
    return inspect_checked(r, "header, shapes and byte ranges of %lld tensors; every value is read",
                           (long long)r->tensor_count);
}

// ---- a model ------------------------------------------------------------------------------------

static status spec_tell(inspect_report *r, const decoder_spec *s)
{
    TRY(inspect_add(r, "model", "%s", s->arch));
    TRY(inspect_add_int(r, "layers", s->layers));
    TRY(inspect_add_int(r, "dim", s->dim));
    TRY(inspect_add(r, "heads", "%lld of queries, %lld of keys, size %lld", (long long)s->heads,
                    (long long)s->kv_heads, (long long)s->head_dim));
    TRY(inspect_add_int(r, "ffn dim", s->ffn_dim));
    TRY(inspect_add_int(r, "vocabulary", s->vocab));
    TRY(inspect_add_int(r, "context", s->context));
    return inspect_add(r, "head", "%s", s->tied ? "tied to the embedding" : "of its own");
}

// An unknown model is reported as such, together with its tensors.
static status spec_read(inspect_report *r, const char *folder, decoder_spec *out, bool *known)
{
    const status st = model_spec_from_hf(r->cli->h, r->cli->a, folder, out);
    *known = st == ST_OK;
    if (st == ST_OK) return spec_tell(r, out);
    if (st != ST_OK) TRY(inspect_add(r, "usable", "no: %s", error_last()->text));
    return inspect_take(r, st);
}

static status weights_fit(inspect_report *r, const safetensors *s, const decoder_spec *spec)
{
    const model_options options = {
        .purpose = PURPOSE_EVALUATE, .compute = DTYPE_F32, .grad = DTYPE_F32, .seq = 1};
    op_model *m = NULL;
    TRY(model_build(r->cli->a, spec, &options, &m));
    TRY(inspect_add_int(r, "parameters", m->parameters));
    return r->verifies ? inspect_take(r, model_hf_check(r->cli->a, s, spec, m)) : ST_OK;
}

static status tokenizer_tell(inspect_report *r, const char *folder, const decoder_spec *spec)
{
    data_tokenizer *t = NULL;
    status st = data_tokenizer_open(r->cli->h, r->cli->a, folder, &t);
    if (st == ST_NOT_FOUND) {
        error_clear();
        return inspect_add(r, "tokenizer", "none");
    }
    if (st != ST_OK) {
        TRY(inspect_add(r, "tokenizer", "cannot be used: %s", error_last()->text));
        error_clear();
        return ST_OK;
    }
    const int64_t ids = data_tokenizer_vocab_size(t);
    st = inspect_add(r, "tokenizer", "%s, %lld ids", data_tokenizer_name(t), (long long)ids);
    if (st == ST_OK && spec != NULL && ids > spec->vocab) {
        st = inspect_damage(r, "%s: the tokenizer has %lld ids, the model %lld", folder,
                            (long long)ids, (long long)spec->vocab);
    }
    data_tokenizer_close(t);
    return st;
}

static status folder_look(inspect_report *r, const inspect_probe *p, safetensors **s)
{
    decoder_spec spec;
    bool known = false;
    if (inspect_has(p, "config.json")) TRY(spec_read(r, p->path, &spec, &known));
    if (inspect_has(p, "model.safetensors") || inspect_has(p, "model.safetensors.index.json")) {
        TRY(set_look(r, p->path, s));
        if (known) TRY(weights_fit(r, *s, &spec));
    } else {
        TRY(inspect_add(r, "weights", "none that are safetensors"));
    }
    TRY(tokenizer_tell(r, p->path, known ? &spec : NULL));
    return inspect_checked(r,
                           known ? "%lld tensors are those of config.json; every value is read"
                                 : "%lld tensors; every value is read",
                           (long long)r->tensor_count);
}

status inspect_hf_folder(inspect_report *r, const inspect_probe *p)
{
    safetensors *s = NULL;
    const status st = folder_look(r, p, &s);
    safetensors_close(s);
    return st;
}

status inspect_hf_config(inspect_report *r, const inspect_probe *p)
{
    decoder_spec spec;
    json *root = NULL;
    r->kind = "Hugging Face configuration";
    TRY(json_read(r->cli->h, p->path, 1 << 24, &root));
    const status st = model_spec_from_json(r->cli->a, root, p->path, &spec);
    json_free(root);
    if (st == ST_OK) {
        TRY(inspect_checked(r, "every key that the model needs"));
        return spec_tell(r, &spec);
    }
    TRY(inspect_add(r, "usable", "no: %s", error_last()->text));
    return inspect_take(r, st);
}

// ---- a tokenizer --------------------------------------------------------------------------------

status inspect_tokenizer(inspect_report *r, const inspect_probe *p)
{
    data_tokenizer *t = NULL;
    char hex[33];
    const status st = data_tokenizer_open(r->cli->h, r->cli->a, p->path, &t);
    if (st == ST_UNSUPPORTED) {
        TRY(inspect_add(r, "usable", "no: %s", error_last()->text));
        error_clear();
        return ST_OK;
    }
    TRY(st);
    status told = inspect_add(r, "method", "%s", data_tokenizer_name(t));
    if (told == ST_OK) told = inspect_add_int(r, "vocabulary", data_tokenizer_vocab_size(t));
    if (told == ST_OK) told = inspect_add_int(r, "end of text", data_tokenizer_eot(t));
    if (told == ST_OK) told = inspect_add(r, "id", "%s", hash128_text(data_tokenizer_id(t), hex));
    data_tokenizer_close(t);
    TRY(told);
    return inspect_checked(r, "every token and merge");
}
