// `import`: converts a Hugging Face folder to a native checkpoint that holds only weights.
//
//   FOLDER/config.json  model*.safetensors  tokenizer.json ...
//   OUT/    config.json  state-*.safetensors  tokenizer.json ...  config.resolved.yaml
//           manifest.json
//
// --vocab adds rows for new tokens to the embedding and the head: each is the mean of the rows that
// the folder has, so that a new token begins as an average one.
//
// The table of a run's tensors decides which tensors are written, so a run can load the checkpoint.
// The command reads, writes and frees one weight at a time. Types stay: all bf16 stays bf16, all
// fp16 stays fp16, and mixed types become fp32, which holds both. One rename makes OUT appear when
// the disk has all of it.
#include "checkpoint/checkpoint.h"
#include "cli/commands.h"
#include "cli/export/export.h"
#include "cli/export/work_folder.h"
#include "cli/run_folder.h"
#include "data/tokenizer.h"
#include "model/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { EXTRAS_MAX = 64, EXTRA_LIMIT_BYTES = 256 << 20 };

typedef struct import_flags {
    int64_t vocab;
    const char *tokenizer;
} import_flags;

#define AT(field) (int64_t) offsetof(import_flags, field)
static const option rows[] = {
    {.key = "vocab",
     .kind = OPTION_INT,
     .offset = AT(vocab),
     .default_text = "0",
     .min = 0,
     .max = 1 << 24,
     .help = "size of the vocabulary, for new tokens: the added rows of the embedding and the head "
             "are the mean of the others; 0 keeps the folder's",
     .also = "vocab-size, resize-token-embeddings"},
    {.key = "tokenizer",
     .kind = OPTION_PATH,
     .offset = AT(tokenizer),
     .help = "folder of the tokenizer to keep with the weights, in place of the one in FOLDER"},
};
static const option_table flags = {.title = "Flags", .rows = rows, .count = COUNT_OF(rows)};

typedef struct importing {
    cli_context *cli;
    const char *from, *tokenizer; // folders of the weights and of the tokenizer
    char *to, *work;              // work: temporary folder next to `to`
    decoder_spec spec;            // of the checkpoint
    decoder_spec source;          // of the folder; spec has more tokens with --vocab
    op_model *source_model;
    safetensors *files;
    dtype type; // stored type of the weights
    op_model *model;
    plan_table run;
    exec_workspace_context workspace;
    step_block *step;
    float *values; // values of the weight in `row` of the table
    int64_t row;   // -1: none yet
    ckpt_extra extras[EXTRAS_MAX];
    int64_t extra_count;
    char *checkpoint;
} importing;

// ---- source folder ------------------------------------------------------------------------------

static status places_find(importing *v, const char *from, const char *to)
{
    operand_kind kind;
    file_info info;
    TRY(cli_operand_kind(v->cli, from, &kind));
    if (kind == OPERAND_CONFIG) {
        return fail(ST_USAGE,
                    "%s is a file; give the folder with config.json and model*.safetensors", from);
    }
    if (kind != OPERAND_HF) {
        return fail(ST_USAGE, "%s is a %s of this program already; generate and model.from take it",
                    from, kind == OPERAND_RUN ? "run" : "checkpoint");
    }
    v->from = from;
    int length = (int)strlen(to);
    while (length > 1 && to[length - 1] == '/') length--;
    TRY(arena_format(v->cli->a, &v->to, "%.*s", length, to));
    TRY(arena_format(v->cli->a, &v->work, "%s.import", v->to));
    TRY(v->cli->h->api->path_info(v->cli->h, v->to, &info));
    if (info.kind == FILE_KIND_NONE) return ST_OK;
    return fail(ST_USAGE, "%s exists already; import makes a new folder", v->to);
}

static void type_choose(importing *v)
{
    const int64_t count = safetensors_count(v->files);
    v->type = DTYPE_COUNT;
    for (int64_t i = 0; i < count; i++) {
        dtype type = safetensors_at(v->files, i)->type;
        if (type == DTYPE_U8) type = DTYPE_BF16; // MXFP4, whose values bf16 holds
        if (v->type == DTYPE_COUNT) v->type = type;
        if (type != v->type) v->type = DTYPE_F32;
    }
    if (v->type != DTYPE_BF16 && v->type != DTYPE_F16) v->type = DTYPE_F32;
}

// ---- weights ------------------------------------------------------------------------------------

// Adds the weights that only training uses, so that they have a row too.
static status unused_add(importing *v)
{
    for (int64_t w = 0; w < v->model->weight_count; w++) {
        const op_weight *weight = &v->model->weights[w];
        plan_tensor t = {
            .type = weight->type,
            .ndim = weight->ndim,
            .dims = {weight->rows, weight->columns},
            .bytes =
                align_up(weight->rows * weight->columns * dtype_bytes(weight->type), ALIGN_TENSOR),
            .weight = (int32_t)w,
            .is_run = true};
        if (plan_table_find(&v->run, weight->name) >= 0) continue;
        (void)snprintf(t.name, sizeof(t.name), "%s", weight->name);
        TRY(plan_table_push(&v->run, &t));
    }
    return ST_OK;
}

// Makes the table of the tensors that a run of this model would keep, without allocating them.
static status table_make(importing *v)
{
    const kern_hint hint = {.threads = 1};
    kern_context *kernels = NULL;
    plan *p = NULL;
    TRY(kern_context_create(v->cli->a, "cpu", &hint, &kernels));
    v->workspace = (exec_workspace_context){.kernels = kernels};
    const plan_request request = {.model = v->model,
                                  .sequences = 1,
                                  .micro_batch = 1,
                                  .seq = 1,
                                  .shards = 1,
                                  .scratch_bytes = kern_scratch_bytes(kernels),
                                  .workspace = exec_workspace,
                                  .workspace_context = &v->workspace};
    v->run.a = v->cli->a;
    TRY(plan_create(v->cli->a, &request, &v->run, &p));
    TRY(unused_add(v));
    plan_table_place(&v->run);
    return arena_new(v->cli->a, 1, &v->step);
}

static int64_t weight_of_row(const importing *v, int64_t row)
{
    for (int64_t w = 0; w < v->model->weight_count; w++) {
        if (strcmp(v->model->weights[w].name, v->run.tensors[row].name) == 0) return w;
    }
    return -1;
}

// Sets the rows from `first` on to the mean of those before it.
static void rows_grow(float *values, int64_t first, int64_t count, int64_t columns)
{
    for (int64_t j = 0; j < columns; j++) {
        double sum = 0.0;
        for (int64_t i = 0; i < first; i++) sum += (double)values[i * columns + j];
        const float mean = (float)(sum / (double)first);
        for (int64_t i = first; i < count; i++) values[i * columns + j] = mean;
    }
}

// Both models have the same weights, of which the embedding and the head have fewer rows in the
// folder.
static status weight_read(importing *v, int64_t weight)
{
    const op_weight *w = &v->model->weights[weight];
    const int64_t had = v->source_model->weights[weight].rows;
    TRY(model_weight_read(v->files, &v->source, v->source_model, weight, v->values));
    if (had < w->rows) rows_grow(v->values, had, w->rows, w->columns);
    return ST_OK;
}

// The checkpoint writer asks for a row piece by piece. The function reads the row's weight once and
// holds it, so the host holds only the largest weight.
static status row_read(void *context, int64_t row, int64_t offset, void *to, int64_t bytes)
{
    importing *v = context;
    if (row == plan_table_find(&v->run, "step")) {
        step_device_init(&v->step->device, 1.0);
        memcpy(to, (const char *)v->step + offset, (size_t)bytes);
        return ST_OK;
    }
    if (row != v->row) {
        const int64_t w = weight_of_row(v, row);
        ASSERT(w >= 0); // a run that only evaluates keeps weights and the step
        v->row = -1;
        TRY(weight_read(v, w));
        v->row = row;
    }
    const dtype type = v->run.tensors[row].type;
    const int64_t width = dtype_bytes(type), first = offset / width;
    if (type == DTYPE_F32) {
        memcpy(to, v->values + first, (size_t)bytes);
        return ST_OK;
    }
    for (int64_t i = 0; i < bytes / width; i++) {
        dtype_store(type, to, i, (double)v->values[first + i]);
    }
    return ST_OK;
}

static status values_make(importing *v)
{
    int64_t largest = 0;
    for (int64_t w = 0; w < v->model->weight_count; w++) {
        largest = max_i64(largest, v->model->weights[w].rows * v->model->weights[w].columns);
    }
    v->values = malloc((size_t)largest * sizeof(float));
    v->row = -1;
    if (v->values == NULL) return fail(ST_NO_MEMORY, "no memory for the largest weight");
    return ST_OK;
}

// ---- files next to the weights ------------------------------------------------------------------

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

// Names that a manifest allows.
static bool is_plain(const char *name)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    return name[strspn(name, plain)] == '\0';
}

// GPT-2's two files have several names, and may have a prefix.
static bool is_wanted(const char *name)
{
    static const char *const whole[] = {"tokenizer.json",          "tokenizer_config.json",
                                        "special_tokens_map.json", "generation_config.json",
                                        "added_tokens.json",       "chat_template.jinja",
                                        "chat_template.json"};
    static const char *const ends[] = {"encoder.json", "vocab.bpe", "vocab.json", "merges.txt"};
    if (!is_plain(name)) return false;
    for (int64_t i = 0; i < COUNT_OF(whole); i++) {
        if (strcmp(name, whole[i]) == 0) return true;
    }
    for (int64_t i = 0; i < COUNT_OF(ends); i++) {
        if (ends_with(name, ends[i])) return true;
    }
    return false;
}

static status extra_add(importing *v, const char *name, const char *contents)
{
    if (v->extra_count == EXTRAS_MAX) {
        return fail(ST_UNSUPPORTED, "%s: more than %d tokenizer files", v->from, EXTRAS_MAX);
    }
    v->extras[v->extra_count++] = (ckpt_extra){name, contents};
    return ST_OK;
}

// Keeps the text of folder/name under the name `as`.
static status extra_read(importing *v, const char *folder, const char *name, const char *as)
{
    char *path = NULL, *contents = NULL;
    int64_t bytes = 0;
    TRY(path_join(v->cli->a, folder, name, &path));
    TRY(host_read_own(v->cli->h, v->cli->a, path, EXTRA_LIMIT_BYTES, &contents, &bytes));
    if ((int64_t)strlen(contents) != bytes) {
        return fail(ST_DAMAGED, "%s: a byte 0 at %lld, a text was expected", path,
                    (long long)strlen(contents));
    }
    return extra_add(v, as, contents);
}

// Named chat templates lie in a folder of their own. A checkpoint has no folders, so its files bear
// the folder's name.
static status templates_collect(importing *v)
{
    arena *a = v->cli->a;
    char *folder = NULL, *as = NULL;
    file_names names;
    file_info info;
    TRY(path_join(a, v->tokenizer, EXPORT_TEMPLATES, &folder));
    TRY(v->cli->h->api->path_info(v->cli->h, folder, &info));
    if (info.kind != FILE_KIND_FOLDER) return ST_OK;
    TRY(v->cli->h->api->path_list(v->cli->h, a, folder, &names));
    for (int64_t i = 0; i < names.count; i++) {
        if (!ends_with(names.names[i], ".jinja")) continue;
        if (!is_plain(names.names[i])) {
            return fail(ST_UNSUPPORTED,
                        "%s/%s: import keeps chat templates whose names hold only letters, digits, "
                        "'.', '_' and '-'; rename it",
                        folder, names.names[i]);
        }
        TRY(arena_format(a, &as, "%s-%s", EXPORT_TEMPLATES, names.names[i]));
        TRY(extra_read(v, folder, names.names[i], as));
    }
    return ST_OK;
}

static status extras_collect(importing *v)
{
    arena *a = v->cli->a;
    const host *h = v->cli->h;
    text spec = {.a = a}, yaml = {.a = a};
    file_names names;
    TRY(model_spec_print_json(&v->spec, &spec));
    TRY(extra_add(v, "config.json", spec.bytes));
    // The settings that generate and train need: the type, and the tokenizer in the same folder.
    TRY(text_add(&yaml,
                 "# Made by trireme import.\ntrain:\n  precision: %s\ndata:\n"
                 "  tokenizer: .\n",
                 dtype_name(v->type)));
    TRY(extra_add(v, "config.resolved.yaml", yaml.bytes));
    TRY(h->api->path_list(h, a, v->tokenizer, &names));
    for (int64_t i = 0; i < names.count; i++) {
        if (!is_wanted(names.names[i])) continue;
        TRY(extra_read(v, v->tokenizer, names.names[i], names.names[i]));
    }
    return templates_collect(v);
}

// ---- all of it ----------------------------------------------------------------------------------

static status save(importing *v)
{
    const host *h = v->cli->h;
    const ckpt_state state = {
        .h = h, .model = v->model, .run = &v->run, .read = row_read, .context = v};
    const ckpt_info info = {.val_loss = (double)NAN, .best_val_loss = (double)NAN, .numerics = ""};
    TRY(values_make(v));
    cli_work_remove(v->cli, v->work); // of an import that was killed
    TRY(h->api->path_mkdir(h, v->work));
    TRY(ckpt_save(&state, v->cli->a, v->work, 0, &info, v->extras, v->extra_count, &v->checkpoint));
    return cli_work_rename(v->cli, v->checkpoint, v->to, false);
}

// New rows fit a larger vocabulary only: the others belong to tokens.
static status vocab_grow(importing *v, int64_t vocab)
{
    if (vocab == 0) return ST_OK;
    if (vocab < v->source.vocab) {
        return fail(ST_USAGE, "--vocab %lld: %s has %lld tokens, and rows are only added",
                    (long long)vocab, v->from, (long long)v->source.vocab);
    }
    v->spec.vocab = vocab;
    return ST_OK;
}

// Tokens without a row would fail only at their use.
static status tokenizer_check(importing *v)
{
    data_tokenizer *t = NULL;
    if (v->tokenizer == v->from) return ST_OK;
    TRY(data_tokenizer_open(v->cli->h, v->cli->a, v->tokenizer, &t));
    const int64_t ids = data_tokenizer_vocab_size(t);
    data_tokenizer_close(t);
    if (ids <= v->spec.vocab) return ST_OK;
    return fail(ST_USAGE, "--tokenizer %s has %lld ids, the model %lld; give --vocab %lld",
                v->tokenizer, (long long)ids, (long long)v->spec.vocab, (long long)ids);
}

static status import(importing *v, int64_t vocab)
{
    arena *a = v->cli->a;
    TRY(model_spec_from_hf(v->cli->h, a, v->from, &v->source));
    v->spec = v->source;
    TRY(vocab_grow(v, vocab));
    if (v->spec.experts.count > 0 && model_is_planned_only(&v->spec)) {
        return fail(
            ST_UNSUPPORTED,
            "%s: a model with %lld experts cannot be imported, because it cannot be trained yet; "
            "`trireme plan` and `simulate` take its folder",
            v->from, (long long)v->spec.experts.count);
    }
    TRY(safetensors_open(v->cli->h, v->from, &v->files));
    type_choose(v);
    const model_options options = {
        .purpose = PURPOSE_EVALUATE, .compute = v->type, .grad = DTYPE_F32, .seq = 1};
    TRY(model_build(a, &v->spec, &options, &v->model));
    TRY(model_build(a, &v->source, &options, &v->source_model));
    TRY(model_hf_check(a, v->files, &v->source, v->source_model));
    TRY(tokenizer_check(v));
    TRY(extras_collect(v));
    TRY(table_make(v));
    const status st = save(v);
    cli_work_remove(v->cli, v->work);
    return st;
}

// ---- output -------------------------------------------------------------------------------------

static void print_types(importing *v)
{
    int64_t counts[DTYPE_COUNT] = {0};
    const int64_t count = safetensors_count(v->files);
    int last_file = 0;
    for (int64_t i = 0; i < count; i++) {
        const safetensors_entry *t = safetensors_at(v->files, i);
        counts[t->type]++;
        if (t->file_idx > last_file) last_file = t->file_idx;
    }
    cli_print(v->cli, "weights    %lld tensors in %d file%s:", (long long)count, last_file + 1,
              last_file == 0 ? "" : "s");
    for (int i = 0; i < DTYPE_COUNT; i++) {
        if (counts[i] == 0) continue;
        cli_print(v->cli, " %lld %s", (long long)counts[i], dtype_name((dtype)i));
    }
    cli_print(v->cli, "   kept as %s\n", dtype_name(v->type));
}

// An unreadable tokenizer is no reason to refuse the weights, but the user must know it now.
static void print_tokenizer(importing *v, bool *has)
{
    data_tokenizer *t = NULL;
    const status st = data_tokenizer_open(v->cli->h, v->cli->a, v->to, &t);
    *has = st == ST_OK;
    if (st == ST_OK) {
        cli_print(v->cli, "tokenizer  %s, %lld ids\n", data_tokenizer_name(t),
                  (long long)data_tokenizer_vocab_size(t));
    } else if (st == ST_NOT_FOUND) {
        cli_print(v->cli, "tokenizer  none in %s\n", v->tokenizer);
    } else {
        cli_print(v->cli, "tokenizer  cannot be used: %s\n", error_last()->text);
    }
    error_clear();
    data_tokenizer_close(t);
}

static status print_done(importing *v)
{
    const decoder_spec *m = &v->spec;
    char count[32];
    const char *to = NULL;
    hash128 digest;
    char hex[33];
    bool has_tokenizer = false;
    ckpt_reader *c = NULL; // saving has read every byte back
    TRY(ckpt_reader_open(v->cli->h, v->to, &c));
    digest = ckpt_reader_digest(c);
    ckpt_reader_close(c);
    cli_print(v->cli,
              "model      %s  %lld layer%s  d=%lld  heads %lld/%lld  vocab %lld   %s params\n",
              m->arch, (long long)m->layers, text_plural(m->layers, "s"), (long long)m->dim,
              (long long)m->heads, (long long)m->kv_heads, (long long)m->vocab,
              text_count_human((double)v->model->parameters, count));
    if (m->vocab > v->source.vocab) {
        cli_print(v->cli, "vocabulary %lld tokens and %lld new ones, whose rows are the mean\n",
                  (long long)v->source.vocab, (long long)(m->vocab - v->source.vocab));
    }
    print_types(v);
    print_tokenizer(v, &has_tokenizer);
    cli_print(v->cli, "optimizer  none here; a run from it starts with fresh moments\n");
    cli_print(v->cli, "made       %s   digest %s\n", v->to, hash128_text(digest, hex));
    TRY(text_quote(v->cli->a, v->to, &to));
    cli_print(v->cli, "next       trireme generate %s%s --prompt 'The '\n", to,
              has_tokenizer ? "" : " --tokenizer PATH");
    cli_print(v->cli, "           trireme train CONFIG model.from=%s\n", to);
    return ST_OK;
}

static status run(cli_context *cli, const cli_call *call)
{
    const import_flags *f = call->flags;
    importing *v = NULL;
    TRY(arena_new(cli->a, 1, &v));
    v->cli = cli;
    TRY(places_find(v, call->operands[0], call->operands[1]));
    v->tokenizer = f->tokenizer != NULL ? f->tokenizer : v->from;
    status st = import(v, f->vocab);
    free(v->values);
    if (st == ST_OK) st = print_done(v);
    safetensors_close(v->files);
    return st;
}

const cli_command cli_command_import = {
    .name = "import",
    .summary = "convert a Hugging Face folder to a checkpoint",
    .synopsis = "FOLDER OUT [--vocab N] [--tokenizer FOLDER]",
    .about = "FOLDER holds config.json and model.safetensors, or several files with an index, in "
             "fp32, bf16 or fp16. Every tensor must belong to the model and have the right shape. "
             "OUT must not exist; it becomes a checkpoint of the weights, in their own type, with "
             "the tokenizer's files. generate, digest and model.from accept it. --vocab N adds "
             "rows for new tokens, and --tokenizer brings the tokenizer that has them.",
    .examples = "  trireme import ~/models/Llama-3.2-1B llama\n"
                "  trireme generate llama --prompt 'Once upon a time'\n"
                "  trireme train config.yaml model.from=llama\n"
                "  trireme import llama-hf grown --vocab 128512 --tokenizer tokens\n",
    .flags = &flags,
    .flags_bytes = sizeof(import_flags),
    .operand_min = 2,
    .operand_max = 2,
    .run = run,
};
