// `export`: converts a checkpoint to a Hugging Face folder.
//
//   DIR/  config.json  generation_config.json  model.safetensors (or shards and their index)
//         tokenizer.json  tokenizer_config.json ...
//
// The command makes DIR.export and renames it after it has read every byte back, so DIR is complete
// or does not exist. The host holds one tensor at a time, never the whole model.
#include "cli/commands.h"
#include "cli/export/export_gguf.h"
#include "cli/export/work_folder.h"
#include "cli/gate/card.h"

#include <string.h>

typedef struct export_flags {
    int64_t shard_bytes;
    int32_t type, format;
    const char *tokenizer, *peft, *record;
    bool adapter, merge, unmerge, force, gated, card;
} export_flags;

enum { TYPE_Q8_0 = 4 }; // of gguf alone
static const dtype types[] = {DTYPE_COUNT, DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_COUNT};
enum { FORMAT_FOLDER, FORMAT_GGUF };

#define AT(field) (int64_t) offsetof(export_flags, field)
static const option rows[] = {
    {.key = "shard-bytes",
     .kind = OPTION_BYTES,
     .offset = AT(shard_bytes),
     .default_text = "5GiB",
     .min = 1,
     .max = OPTION_NO_MAX,
     .help = "size limit of a weights file; more weights go into further files with an index, and "
             "no tensor is split",
     .also = "max-shard-size"},
    {.key = "dtype",
     .kind = OPTION_CHOICE,
     .offset = AT(type),
     .default_text = "auto",
     .choices = "auto, fp32, bf16, fp16, q8_0",
     .help = "type of the exported weights; auto loses no precision: it is the narrowest of the "
             "stored type, the type of the imported model if it holds all values exactly, and "
             "fp32; q8_0 (gguf only): blocks of 32 bytes with a scale each",
     .also = "precision"},
    {.key = "format",
     .kind = OPTION_CHOICE,
     .offset = AT(format),
     .default_text = "hf",
     .choices = "hf, gguf",
     .help = "hf: a Hugging Face folder; gguf: one file for llama.cpp, with weights and tokenizer",
     .also = "outtype"},
    {.key = "tokenizer",
     .kind = OPTION_TEXT,
     .offset = AT(tokenizer),
     .help = "tokenizer of the folder: bytes, a tokenizer.json, a folder with one, or none; the "
             "default is the run's"},
    {.key = "adapter",
     .kind = OPTION_BOOL,
     .offset = AT(adapter),
     .default_text = "false",
     .help = "writes the adapter of a run alone, as a folder of PEFT"},
    {.key = "merge",
     .kind = OPTION_BOOL,
     .offset = AT(merge),
     .default_text = "false",
     .help = "writes the whole model with the adapter added to its weights"},
    {.key = "unmerge",
     .kind = OPTION_BOOL,
     .offset = AT(unmerge),
     .default_text = "false",
     .help = "subtracts the adapter from weights that it was added to"},
    {.key = "peft",
     .kind = OPTION_PATH,
     .offset = AT(peft),
     .help = "folder of the adapter to write, merge or unmerge; without it, the run's own",
     .also = "adapter-dir, lora"},
    {.key = "gated",
     .kind = OPTION_BOOL,
     .offset = AT(gated),
     .default_text = "false",
     .help = "exports only a model that `gate` let pass, by its record, and writes a model card"},
    {.key = "record",
     .kind = OPTION_TEXT,
     .offset = AT(record),
     .help = "the record for --gated; without it that of the usual place"},
    {.key = "card",
     .kind = OPTION_BOOL,
     .offset = AT(card),
     .default_text = "false",
     .help = "writes a model card, README.md, from what is known"},
    {.key = "force",
     .kind = OPTION_BOOL,
     .offset = AT(force),
     .default_text = "false",
     .help = "replaces a DIR that already holds a model",
     .also = "overwrite"},
};
static const option_table flags = {.title = "Flags", .rows = rows, .count = COUNT_OF(rows)};

// ---- target folder ------------------------------------------------------------------------------

// A file of weights for llama.cpp is replaced only by its like.
static status file_check(export_job *v, const char *to, bool force, bool *replaces)
{
    file_info info;
    TRY(cli_path_trim(v->cli->a, to, &v->to));
    TRY(arena_format(v->cli->a, &v->work, "%s.export", v->to));
    TRY(v->cli->h->api->path_info(v->cli->h, v->to, &info));
    *replaces = info.kind != FILE_KIND_NONE;
    if (info.kind == FILE_KIND_NONE) return ST_OK;
    if (info.kind != FILE_KIND_REGULAR) {
        return fail(ST_USAGE, "%s is no file; --format gguf writes a file, such as model.gguf",
                    v->to);
    }
    return force ? ST_OK : fail(ST_USAGE, "%s exists; --force replaces it", v->to);
}

static status target_check(export_job *v, const char *to, bool force, bool *replaces)
{
    const host_api *api = v->cli->h->api;
    file_info info;
    file_names names;
    bool is_model = false;
    *replaces = false;
    TRY(cli_path_trim(v->cli->a, to, &v->to));
    TRY(arena_format(v->cli->a, &v->work, "%s.export", v->to));
    TRY(api->path_info(v->cli->h, v->to, &info));
    if (info.kind == FILE_KIND_NONE) return ST_OK;
    if (info.kind != FILE_KIND_FOLDER)
        return fail(ST_USAGE, "%s exists and is not a folder", v->to);
    TRY(api->path_list(v->cli->h, v->cli->a, v->to, &names));
    if (names.count == 0) return ST_OK;
    TRY(cli_has_file(v->cli, v->to, "config.json", &is_model));
    if (!is_model) TRY(cli_has_file(v->cli, v->to, "adapter_config.json", &is_model));
    if (!force || !is_model) {
        return fail(ST_USAGE, "%s has files in it (%s)%s", v->to, names.names[0],
                    is_model ? "; --force replaces it" : "; give another folder");
    }
    // Replaces only a folder that looks like an exported model.
    for (int64_t i = 0; i < names.count; i++) {
        char *path = NULL;
        TRY(path_join(v->cli->a, v->to, names.names[i], &path));
        TRY(api->path_info(v->cli->h, path, &info));
        if (info.kind == FILE_KIND_REGULAR && strcmp(names.names[i], "manifest.json") != 0)
            continue;
        return fail(ST_USAGE, "%s holds %s, which no exported model has, so it is not replaced",
                    v->to, names.names[i]);
    }
    *replaces = true;
    return ST_OK;
}

// Flags that exclude each other, and flags without effect.
static status flags_check(const export_flags *f)
{
    if (f->adapter + f->merge + f->unmerge > 1) {
        return fail(ST_USAGE, "--adapter, --merge and --unmerge exclude each other");
    }
    if (f->peft != NULL && !f->merge && !f->unmerge && !f->adapter) {
        return fail(ST_USAGE, "--peft has no effect without --adapter, --merge or --unmerge");
    }
    if (f->format == FORMAT_GGUF && (f->adapter || f->unmerge)) {
        return fail(ST_USAGE, "--format gguf writes whole models; merge the adapter with --merge");
    }
    if (f->format != FORMAT_GGUF && f->type == TYPE_Q8_0) {
        return fail(ST_USAGE, "--dtype q8_0 is a type of --format gguf; other folders have fp32, "
                              "bf16 or fp16");
    }
    if (f->format == FORMAT_GGUF && f->card) {
        return fail(ST_USAGE, "--card writes into a folder, and --format gguf makes one file");
    }
    if (f->record != NULL && !f->gated)
        return fail(ST_USAGE, "--record has no effect without --gated");
    if (f->gated && f->peft != NULL) {
        return fail(ST_USAGE, "--gated exports what the gate saw, and --peft adds another adapter");
    }
    if (f->adapter && f->tokenizer != NULL) {
        return fail(ST_USAGE,
                    "--tokenizer has no effect with --adapter, which writes no tokenizer");
    }
    return ST_OK;
}

static status adapter_find(export_job *v, const export_flags *f, const char *from)
{
    bool is_there = false;
    if (f->adapter || f->merge || f->unmerge) {
        return export_merge_open(v->cli, &v->model, f->peft, f->unmerge ? -1 : 1, &v->merge);
    }
    TRY(model_adapter_is_there(v->cli->h, v->cli->a, v->model.folder, &is_there));
    if (!is_there) return ST_OK;
    return fail(ST_USAGE,
                "%s trained an adapter: --adapter exports it alone, --merge exports the model with "
                "the adapter in its weights",
                from);
}

static status source_find(export_job *v, const char *from, const char *tokenizer, bool merges)
{
    TRY(cli_model_find(v->cli, from, &v->model));
    if (v->model.kind == OPERAND_HF && !merges) {
        return fail(ST_USAGE, "%s is a Hugging Face folder already; give a run or a checkpoint",
                    from);
    }
    v->tokenizer = tokenizer != NULL ? tokenizer : v->model.tokenizer;
    if (v->tokenizer != NULL && strcmp(v->tokenizer, "none") == 0) v->tokenizer = NULL;
    return ST_OK;
}

// ---- command ------------------------------------------------------------------------------------

static status folder_make(export_job *v, bool replaces)
{
    cli_work_remove(v->cli, v->work); // of an export that was killed
    TRY(v->cli->h->api->path_mkdir(v->cli->h, v->work));
    TRY(export_weights_write(v));
    TRY(export_files_write(v));
    TRY(export_weights_check(v));
    if (v->writes_card) {
        TRY(gate_card_write(v->cli, &v->model, v->weights->parameters, v->passed, v->work));
    }
    return cli_work_rename(v->cli, v->work, v->to, replaces);
}

static status adapter_make(export_job *v, dtype wanted, bool replaces)
{
    cli_work_remove(v->cli, v->work);
    TRY(v->cli->h->api->path_mkdir(v->cli->h, v->work));
    TRY(export_adapter_write(v, v->merge, wanted));
    if (v->writes_card) {
        TRY(gate_card_write(v->cli, &v->model, 0, v->passed, v->work));
    }
    return cli_work_rename(v->cli, v->work, v->to, replaces);
}

// auto: the type of the folder that the model came from.
static gguf_type gguf_of(const export_job *v, int32_t type)
{
    if (type == TYPE_Q8_0) return GGUF_Q8_0;
    const dtype wanted = types[type] != DTYPE_COUNT ? types[type] : v->model.spec.saved;
    return wanted == DTYPE_BF16 ? GGUF_BF16 : wanted == DTYPE_F16 ? GGUF_F16 : GGUF_F32;
}

static status gguf_make(export_job *v, const export_flags *f, bool replaces)
{
    const gguf_type type = gguf_of(v, f->type);
    const status st = export_gguf_make(v, type, replaces);
    export_merge_close(v->merge);
    return st == ST_OK ? export_gguf_print(v, type) : st;
}

static void adapter_print(const export_job *v)
{
    const model_adapter *a = &export_merge_spec(v->merge)->adapter;
    char size[32];
    cli_print(v->cli, "from       %s\n", v->model.folder);
    cli_print(v->cli, "adapter    %s%s  rank %lld  alpha %g  %lld tensors of %s, %s\n",
              a->dora ? "dora" : "lora", a->rslora ? ", rslora" : "", (long long)a->rank, a->alpha,
              (long long)v->tensor_count, dtype_name(v->type),
              text_bytes_human(v->total_bytes, size));
    cli_print(v->cli, "made       %s\n", v->to);
}

static status print_done(const export_job *v)
{
    const char *to = NULL;
    const decoder_spec *m = &v->model.spec;
    char count[32], size[32];
    cli_print(v->cli, "from       %s\n", v->model.folder);
    cli_print(v->cli,
              "model      %s  %lld layer%s  d=%lld  heads %lld/%lld  vocab %lld   %s params\n",
              m->arch, (long long)m->layers, text_plural(m->layers, "s"), (long long)m->dim,
              (long long)m->heads, (long long)m->kv_heads, (long long)m->vocab,
              text_count_human((double)v->weights->parameters, count));
    cli_print(
        v->cli, "weights    %lld tensors of %s, %s in %lld file%s; read back, all bytes right\n",
        (long long)v->tensor_count, dtype_name(v->type), text_bytes_human(v->total_bytes, size),
        (long long)v->shard_count, text_plural(v->shard_count, "s"));
    cli_print(v->cli, "tokenizer  %s", v->tokenizer == NULL ? "none" : v->tokenizer);
    if (v->tokenizer_files > 0) cli_print(v->cli, ", %lld files", (long long)v->tokenizer_files);
    cli_print(v->cli, "\nmade       %s\n", v->to);
    TRY(text_quote(v->cli->a, v->to, &to));
    cli_print(v->cli, "next       trireme generate %s --prompt 'The '\n", to);
    return ST_OK;
}

static status run(cli_context *cli, const cli_call *call)
{
    const export_flags *f = call->flags;
    export_job *v = NULL;
    bool replaces = false;
    gate_passed passed;
    TRY(arena_new(cli->a, 1, &v));
    v->cli = cli;
    v->shard_bytes = f->shard_bytes;
    TRY(flags_check(f));
    const bool is_gguf = f->format == FORMAT_GGUF;
    TRY(source_find(v, call->operands[0], f->tokenizer, f->peft != NULL || is_gguf));
    TRY(is_gguf ? file_check(v, call->operands[1], f->force, &replaces)
                : target_check(v, call->operands[1], f->force, &replaces));
    if (f->gated) {
        TRY(gate_record_require(cli, call->operands[0], &v->model, f->record, &passed));
    }
    v->writes_card = f->gated || f->card;
    v->passed = f->gated ? &passed : NULL;
    TRY(adapter_find(v, f, call->operands[0]));
    if (is_gguf) return gguf_make(v, f, replaces);
    status st = ST_OK;
    if (f->adapter) {
        st = adapter_make(v, types[f->type], replaces);
    } else {
        TRY_TO(close_adapter, export_weights_plan(v, types[f->type]));
        st = folder_make(v, replaces);
    }
    if (st != ST_OK) {
        cli_work_remove(cli, v->work);
    } else if (f->adapter) {
        adapter_print(v);
    } else {
        st = print_done(v);
    }
close_adapter:
    export_merge_close(v->merge);
    return st;
}

const cli_command cli_command_export = {
    .name = "export",
    .summary = "convert a checkpoint to a Hugging Face folder",
    .synopsis =
        "RUN|CHECKPOINT DIR|FILE [--adapter | --merge | --unmerge] [--peft DIR] [--format gguf] "
        "[--dtype T] "
        "[--shard-bytes N] [--tokenizer T] [--gated [--record FILE]] [--card] [--force]",
    .about =
        "Exports the newest complete checkpoint of a run; RUN/checkpoints/best is its best "
        "one. DIR gets config.json, generation_config.json, model.safetensors (or several "
        "files with an index) and the tokenizer's files, in the form that transformers loads. "
        "The command reads all files back before DIR appears, and a failed export leaves no "
        "files. A model that `import` read is exported byte for byte. The optimizer's state is "
        "not exported. Of a run with an adapter, --adapter writes a folder of PEFT and --merge the "
        "model with the adapter in its weights; --peft DIR takes the adapter of that folder, also "
        "for a Hugging Face folder in place of RUN. --format gguf writes one file for llama.cpp, "
        "of a run, a checkpoint or a Hugging Face folder; models of types llama, mistral, qwen2, "
        "qwen3 and gpt2. --gated refuses a model without the record of a passed `gate` whose hash "
        "is that of this checkpoint; a folder then gets a model card, as with --card.",
    .examples = "  trireme export demo/run hf\n"
                "  trireme export demo/run/checkpoints/best hf --dtype bf16 --shard-bytes 2GiB\n"
                "  trireme export lora/run lora-peft --adapter\n"
                "  trireme export llama merged --merge --peft lora-peft\n"
                "  trireme export demo/run demo.gguf --format gguf --dtype q8_0\n",
    .flags = &flags,
    .flags_bytes = sizeof(export_flags),
    .operand_min = 2,
    .operand_max = 2,
    .run = run,
};
