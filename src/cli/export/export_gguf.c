// Weights and sizes of a model as GGUF.
//
//   ours, (out, in)              GGUF
//   layers.3.attn.q              blk.3.attn_q.weight    fastest dim first: [in, out]
//   layers.3.attn.qkv (GPT-2)    blk.3.attn_qkv.weight
//   norms, biases                in fp32
//
// For llama and mistral, llama.cpp rotates neighbouring columns of a head, where files of Hugging
// Face have them half a head apart, so the rows of q and k of each head are interleaved.
// A model type or an extension of positions that llama.cpp computes differently is refused.
#include "cli/export/export_gguf.h"

#include "assemble/base.h"
#include "cli/export/work_folder.h"
#include "model/arch/arch.h"
#include "model/rope.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Names of modules in files, and in GGUF.
typedef struct gguf_name {
    const char *theirs, *gguf;
} gguf_name;

static const gguf_name names[] = {
    {"embed_tokens", "token_embd"},
    {"norm", "output_norm"},
    {"lm_head", "output"},
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"post_attention_layernorm", "ffn_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"wte", "token_embd"},
    {"wpe", "position_embd"},
    {"ln_f", "output_norm"},
    {"ln_1", "attn_norm"},
    {"attn.c_attn", "attn_qkv"},
    {"attn.c_proj", "attn_output"},
    {"ln_2", "ffn_norm"},
    {"mlp.c_fc", "ffn_up"},
    {"mlp.c_proj", "ffn_down"},
};

// A type of model: its name in GGUF, and how its positions are rotated.
typedef struct gguf_arch {
    const char *name, *gguf;
    bool interleaved; // rows of q and k
} gguf_arch;

static const gguf_arch archs[] = {
    {"llama", "llama", true},  {"mistral", "llama", true}, {"qwen2", "qwen2", false},
    {"qwen3", "qwen3", false}, {"gpt2", "gpt2", false},
};

typedef struct gguf_entry {
    char name[GGUF_NAME_BYTES];
    int64_t weight, row_begin, rows, columns; // rows 0: a vector of `columns`
    int64_t heads;                            // above 0: rows of each are interleaved
    gguf_type type;
} gguf_entry;

typedef struct gguf_job {
    export_job *v;
    const gguf_arch *arch;
    gguf_type type;
    gguf_entry *entries;
    int64_t count, capacity;
    assemble_base_values values;
    float *whole, *rows; // a weight; rows of one as the file has them
    void *bytes;
} gguf_job;

// ---- what llama.cpp has -------------------------------------------------------------------------

static status arch_find(const decoder_spec *s, const gguf_arch **out)
{
    for (int64_t i = 0; i < COUNT_OF(archs); i++) {
        if (strcmp(archs[i].name, s->arch) != 0) continue;
        *out = &archs[i];
        return ST_OK;
    }
    return fail(ST_UNSUPPORTED,
                "--format gguf: models of type %s are not written yet; llama, mistral, qwen2, "
                "qwen3 and gpt2 are",
                s->arch);
}

static status positions_check(const decoder_spec *s)
{
    const model_rope *r = &s->rope;
    for (int64_t l = 0; l < s->layers && s->windows != NULL; l++) {
        if (s->windows[l] == 0 || s->windows[l] >= s->context) continue;
        return fail(ST_UNSUPPORTED,
                    "--format gguf: layer %lld attends to %d tokens, and llama.cpp has no window "
                    "for models of type %s",
                    (long long)l, s->windows[l], s->arch);
    }
    if (s->position != MODEL_POSITION_ROPE) return ST_OK;
    const bool is_plain_yarn = isnan(r->attention_factor) && isnan(r->mscale) &&
                               isnan(r->mscale_all_dim) && isnan(r->beta_fast) &&
                               isnan(r->beta_slow) && r->truncate;
    if (r->kind == MODEL_ROPE_YARN && !is_plain_yarn) {
        return fail(ST_UNSUPPORTED, "--format gguf: YaRN with factors of its own is not written "
                                    "yet; its factor and original context are");
    }
    if (r->kind != MODEL_ROPE_DYNAMIC && r->kind != MODEL_ROPE_LONGROPE) return ST_OK;
    return fail(ST_UNSUPPORTED, "--format gguf: %s rotary positions are not written yet",
                r->kind == MODEL_ROPE_DYNAMIC ? "dynamic" : "LongRoPE");
}

static status spec_check(const decoder_spec *s)
{
    if (strcmp(s->arch, "gpt2") == 0 && s->activation != ACT_GELU_TANH) {
        return fail(ST_UNSUPPORTED, "--format gguf: llama.cpp's gpt2 has the GELU by tanh, and "
                                    "this model another activation");
    }
    return positions_check(s);
}

// ---- keys ---------------------------------------------------------------------------------------

static status size_key(gguf_job *g, gguf_writer *w, const char *key, int64_t value)
{
    char name[96];
    (void)snprintf(name, sizeof(name), "%s.%s", g->arch->gguf, key);
    return gguf_key_u32(w, name, (uint32_t)value);
}

static status real_key(gguf_job *g, gguf_writer *w, const char *key, double value)
{
    char name[96];
    (void)snprintf(name, sizeof(name), "%s.%s", g->arch->gguf, key);
    return gguf_key_f32(w, name, (float)value);
}

// The factors of llama3's positions are a tensor, not keys.
static status rope_keys(gguf_job *g, gguf_writer *w)
{
    const decoder_spec *s = &g->v->model.spec;
    const model_rope *r = &s->rope;
    char name[96];
    TRY(size_key(g, w, "rope.dimension_count", s->head_dim));
    TRY(real_key(g, w, "rope.freq_base", r->theta));
    if (r->kind != MODEL_ROPE_LINEAR && r->kind != MODEL_ROPE_YARN) return ST_OK;
    const char *kind = r->kind == MODEL_ROPE_LINEAR ? "linear" : "yarn";
    (void)snprintf(name, sizeof(name), "%s.rope.scaling.type", g->arch->gguf);
    TRY(gguf_key_text(w, name, kind, (int64_t)strlen(kind)));
    const int64_t original = r->original_context > 0 ? r->original_context : s->context;
    const double factor = isnan(r->factor) ? (double)s->context / (double)original : r->factor;
    TRY(real_key(g, w, "rope.scaling.factor", factor));
    if (r->kind == MODEL_ROPE_LINEAR) return ST_OK;
    return size_key(g, w, "rope.scaling.original_context_length", original);
}

static status sizes_write(gguf_job *g, gguf_writer *w)
{
    const decoder_spec *s = &g->v->model.spec;
    TRY(size_key(g, w, "vocab_size", s->vocab));
    TRY(size_key(g, w, "context_length", s->context));
    TRY(size_key(g, w, "embedding_length", s->dim));
    TRY(size_key(g, w, "block_count", s->layers));
    TRY(size_key(g, w, "feed_forward_length", s->ffn_dim));
    TRY(size_key(g, w, "attention.head_count", s->heads));
    if (s->norm == MODEL_LAYERNORM) {
        return real_key(g, w, "attention.layer_norm_epsilon", (double)s->norm_eps);
    }
    TRY(size_key(g, w, "attention.head_count_kv", s->kv_heads));
    TRY(size_key(g, w, "attention.key_length", s->head_dim));
    TRY(size_key(g, w, "attention.value_length", s->head_dim));
    TRY(real_key(g, w, "attention.layer_norm_rms_epsilon", (double)s->norm_eps));
    return rope_keys(g, w);
}

static uint32_t file_type_of(gguf_type type)
{
    switch (type) {
    case GGUF_F16:
        return 1;
    case GGUF_Q8_0:
        return 7;
    case GGUF_BF16:
        return 32;
    case GGUF_F32:
    default:
        return 0;
    }
}

static status keys_write(gguf_job *g, gguf_writer *w)
{
    const char *name = path_base_name(g->v->to);
    TRY(gguf_key_text(w, "general.architecture", g->arch->gguf, (int64_t)strlen(g->arch->gguf)));
    TRY(gguf_key_text(w, "general.type", "model", 5));
    TRY(gguf_key_text(w, "general.name", name, (int64_t)strlen(name)));
    TRY(gguf_key_u32(w, "general.file_type", file_type_of(g->type)));
    TRY(gguf_key_u32(w, "general.quantization_version", 2));
    TRY(sizes_write(g, w));
    return export_gguf_tokenizer(g->v, w);
}

// ---- tensors ------------------------------------------------------------------------------------

// Returns the name of a file's tensor in GGUF: "model.layers.3.mlp.up_proj.weight" is
// "blk.3.ffn_up.weight".
static status name_make(const gguf_job *g, const char *theirs, char out[GGUF_NAME_BYTES])
{
    const char *prefix = model_arch_find(g->v->model.spec.arch)->prefix, *at = theirs;
    const char *end = strrchr(theirs, '.');
    int layer = -1, used = 0;
    if (strncmp(at, prefix, strlen(prefix)) == 0) at += strlen(prefix);
    if ((sscanf(at, "layers.%d.%n", &layer, &used) == 1 ||
         sscanf(at, "h.%d.%n", &layer, &used) == 1) &&
        used > 0) {
        at += used;
    }
    for (int64_t i = 0; i < COUNT_OF(names) && end != NULL && end > at; i++) {
        const size_t length = strlen(names[i].theirs);
        if (length != (size_t)(end - at) || strncmp(at, names[i].theirs, length) != 0) continue;
        const int n =
            layer < 0 ? snprintf(out, GGUF_NAME_BYTES, "%s%s", names[i].gguf, end)
                      : snprintf(out, GGUF_NAME_BYTES, "blk.%d.%s%s", layer, names[i].gguf, end);
        ASSERT(n < GGUF_NAME_BYTES);
        return ST_OK;
    }
    return fail(ST_UNSUPPORTED, "--format gguf: llama.cpp's %s has no tensor like %s",
                g->arch->gguf, theirs);
}

static int64_t heads_of(const gguf_job *g, const char *name)
{
    const decoder_spec *s = &g->v->model.spec;
    if (!g->arch->interleaved) return 0;
    if (strstr(name, ".attn_q.") != NULL) return s->heads;
    return strstr(name, ".attn_k.") != NULL ? s->kv_heads : 0;
}

static status entry_add(gguf_job *g, int64_t weight, const model_hf_tensor *t)
{
    const op_weight *w = &g->v->weights->weights[weight];
    const bool is_vector = w->ndim == 1;
    TRY(arena_grow(g->v->cli->a, (void **)&g->entries, &g->capacity, g->count + 1,
                   (int64_t)sizeof(*g->entries)));
    gguf_entry *e = &g->entries[g->count++];
    *e = (gguf_entry){.weight = weight,
                      .row_begin = t->row_begin,
                      .rows = is_vector ? 0 : t->rows,
                      .columns = is_vector ? t->rows : w->columns,
                      .type = g->type};
    TRY(name_make(g, t->name, e->name));
    e->heads = heads_of(g, e->name);
    // Blocks do not cross rows.
    if (e->type == GGUF_Q8_0 && e->columns % GGUF_BLOCK != 0) e->type = GGUF_F16;
    if (is_vector || strcmp(e->name, "position_embd.weight") == 0) e->type = GGUF_F32;
    return ST_OK;
}

static status entries_list(gguf_job *g)
{
    for (int64_t w = 0; w < g->v->weights->weight_count; w++) {
        model_hf_tensor *tensors = NULL;
        int64_t count = 0;
        TRY(model_hf_tensors(g->v->cli->a, &g->v->model.spec, g->v->weights, w, &tensors, &count));
        for (int64_t i = 0; i < count; i++) TRY(entry_add(g, w, &tensors[i]));
    }
    return ST_OK;
}

// Row 2 i + j of a head is row i + j half of it.
static void heads_interleave(const gguf_entry *e, const float *from, float *out)
{
    const int64_t rows = e->rows > 0 ? e->rows : e->columns;
    const int64_t columns = e->rows > 0 ? e->columns : 1, head = rows / e->heads, half = head / 2;
    for (int64_t h = 0; h < e->heads; h++) {
        for (int64_t i = 0; i < half; i++) {
            for (int64_t j = 0; j < 2; j++) {
                memcpy(out + (h * head + 2 * i + j) * columns,
                       from + (h * head + i + j * half) * columns, (size_t)columns * sizeof(float));
            }
        }
    }
}

static status entry_put(gguf_job *g, gguf_writer *w, const gguf_entry *e)
{
    const op_weight *weight = &g->v->weights->weights[e->weight];
    const int64_t count = e->columns * max_i64(e->rows, 1);
    const float *values = g->whole + e->row_begin * weight->columns;
    if (e->heads > 0) {
        heads_interleave(e, values, g->rows);
        values = g->rows;
    }
    gguf_encode(e->type, values, count, g->bytes);
    return gguf_put(w, g->bytes, gguf_bytes(e->type, count));
}

// The divisor of each frequency in llama3's positions.
static status factors_put(gguf_job *g, gguf_writer *w)
{
    const decoder_spec *s = &g->v->model.spec;
    decoder_spec plain = *s;
    double *scaled = NULL, *unscaled = NULL, factor = 1.0;
    float *divisors = NULL;
    plain.rope.kind = MODEL_ROPE_DEFAULT;
    TRY(arena_new(g->v->cli->a, s->head_dim, &scaled));
    TRY(arena_new(g->v->cli->a, s->head_dim, &unscaled));
    TRY(arena_new(g->v->cli->a, s->head_dim, &divisors));
    model_rope_frequencies(s, s->context, scaled, &factor);
    model_rope_frequencies(&plain, s->context, unscaled, &factor);
    for (int64_t i = 0; i < s->head_dim / 2; i++) divisors[i] = (float)(unscaled[i] / scaled[i]);
    return gguf_put(w, divisors, s->head_dim / 2 * 4);
}

static status values_read(gguf_job *g, int64_t weight)
{
    export_job *v = g->v;
    return v->merge != NULL ? export_merge_weight(v->merge, v->weights, weight, g->whole)
                            : assemble_base_weight(&g->values, v->weights, weight, g->whole);
}

static status data_write(gguf_job *g, gguf_writer *w)
{
    const decoder_spec *s = &g->v->model.spec;
    const bool has_factors =
        s->position == MODEL_POSITION_ROPE && s->rope.kind == MODEL_ROPE_LLAMA3;
    int64_t read = -1;
    for (int64_t i = 0; i < g->count; i++) {
        TRY(gguf_tensor(w, g->entries[i].name, g->entries[i].type, g->entries[i].rows,
                        g->entries[i].columns));
    }
    if (has_factors) TRY(gguf_tensor(w, "rope_freqs.weight", GGUF_F32, 0, s->head_dim / 2));
    for (int64_t i = 0; i < g->count; i++) {
        if (g->entries[i].weight != read) TRY(values_read(g, g->entries[i].weight));
        read = g->entries[i].weight;
        TRY(entry_put(g, w, &g->entries[i]));
    }
    g->v->tensor_count = g->count + (has_factors ? 1 : 0);
    return has_factors ? factors_put(g, w) : ST_OK;
}

// ---- the file -----------------------------------------------------------------------------------

static status sum_check(export_job *v, const char *path, int64_t bytes, hash128 wrote)
{
    enum { PIECE = 1 << 20 };
    const host_api *api = v->cli->h->api;
    file *f = NULL;
    char *piece = NULL;
    TRY(arena_new(v->cli->a, PIECE, &piece));
    TRY(api->file_open(v->cli->h, path, FILE_READ_OWN, &f));
    hash_stream *sum = hash_begin();
    status st = sum == NULL ? fail(ST_NO_MEMORY, "no memory for a checksum") : ST_OK;
    for (int64_t at = 0; at < bytes && st == ST_OK; at += PIECE) {
        const int64_t n = min_i64(PIECE, bytes - at);
        st = api->file_read(f, at, piece, n);
        if (st == ST_OK) hash_add(sum, piece, n);
    }
    (void)api->file_close(f); // the file was only read
    if (sum == NULL) return st;
    const hash128 has = hash_end(sum);
    TRY(st);
    if (has.high == wrote.high && has.low == wrote.low) return ST_OK;
    return fail(ST_DAMAGED, "%s reads back with other bytes than were written", path);
}

static status file_write(gguf_job *g, const char *path)
{
    gguf_writer w;
    hash128 sum = {0};
    TRY(gguf_create(g->v->cli->h, g->v->cli->a, path, &w));
    status st = keys_write(g, &w);
    if (st == ST_OK) st = data_write(g, &w);
    if (st == ST_OK) st = gguf_finish(&w, &sum, &g->v->total_bytes);
    gguf_close(&w);
    return st == ST_OK ? sum_check(g->v, path, g->v->total_bytes, sum) : st;
}

static status job_begin(gguf_job *g)
{
    const model_options options = {
        .purpose = PURPOSE_EVALUATE, .compute = DTYPE_F32, .grad = DTYPE_F32, .seq = 1};
    export_job *v = g->v;
    int64_t most = 1;
    TRY(arch_find(&v->model.spec, &g->arch));
    TRY(spec_check(&v->model.spec));
    TRY(model_build(v->cli->a, &v->model.spec, &options, &v->weights));
    TRY(entries_list(g));
    for (int64_t i = 0; i < v->weights->weight_count; i++) {
        most = max_i64(most, v->weights->weights[i].rows * v->weights->weights[i].columns);
    }
    g->whole = malloc((size_t)most * sizeof(float));
    g->rows = malloc((size_t)most * sizeof(float));
    g->bytes = malloc((size_t)most * sizeof(float));
    if (g->whole == NULL || g->rows == NULL || g->bytes == NULL) {
        return fail(ST_NO_MEMORY, "no memory for the largest weight");
    }
    if (v->merge != NULL) return ST_OK;
    return assemble_base_open(v->cli->h, v->cli->a, &v->model.spec, v->model.folder, 0, &g->values);
}

// The file is made in a work folder, with the files of the tokenizer, and renamed.
static status file_make(gguf_job *g, bool replaces)
{
    export_job *v = g->v;
    const host_api *api = v->cli->h->api;
    char *path = NULL;
    cli_work_remove(v->cli, v->work); // of an export that was killed
    TRY(api->path_mkdir(v->cli->h, v->work));
    TRY(export_files_write(v));
    TRY(path_join(v->cli->a, v->work, "model.gguf", &path));
    TRY(file_write(g, path));
    if (replaces) TRY(api->path_remove(v->cli->h, v->to));
    return api->path_rename(v->cli->h, path, v->to);
}

status export_gguf_make(export_job *v, gguf_type type, bool replaces)
{
    gguf_job g = {.v = v, .type = type};
    status st = job_begin(&g);
    if (st == ST_OK) st = file_make(&g, replaces);
    assemble_base_close(&g.values);
    free(g.whole);
    free(g.rows);
    free(g.bytes);
    cli_work_remove(v->cli, v->work);
    return st;
}

status export_gguf_print(const export_job *v, gguf_type type)
{
    const char *to = NULL, *kind = type == GGUF_Q8_0   ? "q8_0"
                                   : type == GGUF_F16  ? "fp16"
                                   : type == GGUF_BF16 ? "bf16"
                                                       : "fp32";
    char size[32];
    cli_print(v->cli, "from       %s\n", v->model.folder);
    cli_print(v->cli, "weights    %lld tensors, matrices in %s; %s, read back, all bytes right\n",
              (long long)v->tensor_count, kind, text_bytes_human(v->total_bytes, size));
    cli_print(v->cli, "tokenizer  %s\nmade       %s\n",
              v->tokenizer == NULL ? "none" : v->tokenizer, v->to);
    TRY(text_quote(v->cli->a, v->to, &to));
    cli_print(v->cli, "next       llama-cli -m %s -p 'The '\n", to);
    return ST_OK;
}
