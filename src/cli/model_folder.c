// Opens a model for a command. A checkpoint carries the configuration of its run, so it needs no
// run folder.
#include "cli/model_folder.h"

#include "checkpoint/checkpoint.h"
#include "config/run_config.h"

#include <string.h>

// True if a folder has files of a tokenizer that this program reads; GPT-2's may have a prefix.
static status has_tokenizer(cli_context *cli, const char *folder, bool *out)
{
    static const char *const ends[] = {"tokenizer.json", "vocab.json", "encoder.json"};
    file_names names;
    *out = false;
    TRY(cli->h->api->path_list(cli->h, cli->a, folder, &names));
    for (int64_t i = 0; i < names.count; i++) {
        for (int64_t k = 0; k < COUNT_OF(ends); k++) {
            const size_t n = strlen(names.names[i]), m = strlen(ends[k]);
            if (n < m || strcmp(names.names[i] + n - m, ends[k]) != 0) continue;
            if (k > 0 || n == m) *out = true;
        }
    }
    return ST_OK;
}

static status from_folder(cli_context *cli, const char *folder, cli_model *out)
{
    bool has = false;
    TRY(has_tokenizer(cli, folder, &has));
    if (has) out->tokenizer = folder;
    return ST_OK;
}

// Reads the run's settings: precision and tokenizer.
static status from_checkpoint(cli_context *cli, cli_model *out)
{
    char *path = NULL, *yaml = NULL;
    int64_t bytes = 0;
    run_config *r = NULL;
    config *c = NULL;
    ckpt_info info;
    TRY(ckpt_extras_verify(cli->h, out->folder)); // config.json and the tokenizer too
    TRY(ckpt_info_read(cli->h, cli->a, out->folder, &info));
    out->tokenizer_id = info.tokenizer;
    TRY(path_join(cli->a, out->folder, "config.resolved.yaml", &path));
    TRY(ckpt_extra_read(cli->h, cli->a, out->folder, "config.resolved.yaml", &yaml, &bytes));
    if (yaml == NULL) {
        return fail(ST_DAMAGED, "%s: the manifest lists no such file, which every run writes",
                    path);
    }
    TRY(arena_new(cli->a, 1, &r));
    TRY(config_parse(
        cli->a, &run_config_table,
        &(const config_input){.yaml = yaml, .bytes = bytes, .name = path, .folder = out->folder}, r,
        &c));
    out->compute = run_config_types(r).compute;
    out->strict = r->determinism.mode == RUN_STRICT;
    out->tp_shards = r->determinism.tp_shards;
    out->etp_shards = r->determinism.etp_shards;
    out->seq = r->train.seq;
    out->crosses_texts = r->data.packing == RUN_PACKING_PLAIN;
    if (r->train.objective != RUN_OBJECTIVE_PRETRAIN) out->chat_template = r->data.chat_template;
    out->takes_special_as_text = r->data.special_tokens == RUN_SPECIAL_TEXT;
    out->tokenizer = r->data.tokenizer;
    // `import` writes no model keys; a run from initial weights must have some.
    out->is_fresh = r->model.from == NULL && (r->model.preset != NULL || r->model.layers > 0);
    if (strcmp(r->data.tokenizer, out->folder) ==
        0) { // `import` writes it whether the file exists or not
        out->tokenizer = NULL;
        return from_folder(cli, out->folder, out);
    }
    if (strcmp(r->data.tokenizer, "auto") != 0) return ST_OK;
    out->tokenizer = "bytes";
    return r->model.from != NULL ? from_folder(cli, r->model.from, out) : ST_OK;
}

dtype cli_model_type(const cli_model *model, int32_t precision)
{
    // In the order of CLI_MODEL_ROWS.
    static const dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    ASSERT(precision >= 0 && precision <= COUNT_OF(types));
    return precision == 0 ? model->compute : types[precision - 1];
}

status cli_model_find(cli_context *cli, const char *path, cli_model *out)
{
    *out = (cli_model){.compute = DTYPE_F32};
    TRY(cli_operand_kind(cli, path, &out->kind));
    if (out->kind == OPERAND_CONFIG) {
        return fail(ST_USAGE, "%s is a file; give a run, a checkpoint or a model's folder", path);
    }
    if (out->kind == OPERAND_HF) {
        out->folder = path;
        TRY(from_folder(cli, path, out));
    } else {
        char *folder = NULL;
        TRY(cli_checkpoint_of(cli, path, &folder));
        out->folder = folder;
        TRY(from_checkpoint(cli, out));
    }
    return model_spec_from_hf(cli->h, cli->a, out->folder, &out->spec);
}

status cli_tokenizer_check(const cli_model *model, const char *path, const data_tokenizer *t)
{
    char hex[33];
    if (model->tokenizer_id == NULL) return ST_OK;
    if (strcmp(hash128_text(data_tokenizer_id(t), hex), model->tokenizer_id) == 0) return ST_OK;
    return fail(
        ST_DATA,
        "the tokenizer %s has changed since %s was trained with it (%s, then %s), so its ids "
        "mean something else; put the file back, or name a tokenizer with --tokenizer",
        path != NULL ? path : "bytes", model->folder, hex, model->tokenizer_id);
}

void cli_warn_threads(cli_context *cli, int64_t threads)
{
    const int cores = kern_core_count();
    if (threads <= cores) return;
    cli_warn(cli,
             "--threads %lld is more threads than cores, of which this host has %d: they take "
             "turns and slow each other",
             (long long)threads, cores);
}

void cli_warn_unapplied(cli_context *cli, const data_tokenizer *t)
{
    const char *left = data_tokenizer_unapplied(t, 0);
    if (left == NULL) return;
    cli_warn(cli, "the tokenizer's file asks for %s, which is not applied here", left);
}

status cli_tokenizer_open(cli_context *cli, const cli_model *model, const char *wanted,
                          data_tokenizer **out)
{
    const char *path = wanted != NULL ? wanted : model->tokenizer;
    if (path == NULL) {
        return fail(ST_NOT_FOUND,
                    "%s holds no tokenizer (tokenizer.json, or vocab.json and "
                    "merges.txt); give --tokenizer",
                    model->folder);
    }
    if (strcmp(path, "bytes") == 0) path = NULL;
    data_tokenizer *t = NULL;
    TRY(data_tokenizer_open(cli->h, cli->a, path, &t));
    const status st = wanted == NULL ? cli_tokenizer_check(model, path, t) : ST_OK;
    if (st != ST_OK) {
        data_tokenizer_close(t);
        return st;
    }
    const int64_t ids = data_tokenizer_vocab_size(t);
    if (wanted != NULL && ids > model->spec.vocab) {
        cli_warn(cli,
                 "--tokenizer %s has %lld ids, the model %lld: text with the others is refused",
                 wanted, (long long)ids, (long long)model->spec.vocab);
    }
    cli_warn_unapplied(cli, t);
    if (model->takes_special_as_text) data_tokenizer_set_flags(t, 0);
    *out = t;
    return ST_OK;
}
