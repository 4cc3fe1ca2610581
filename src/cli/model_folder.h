// The model that a command works with: from a run, a checkpoint or a Hugging Face folder.
#ifndef CLI_MODEL_FOLDER_H
#define CLI_MODEL_FOLDER_H

#include "cli/run_folder.h"
#include "data/tokenizer.h"
#include "kernels/kernels.h"
#include "model/model.h"

typedef struct cli_model {
    const char *folder; // a checkpoint or a Hugging Face folder, for infer_open()
    operand_kind kind;  // kind of the given operand
    decoder_spec spec;
    dtype compute;         // the run's type; fp32 for a Hugging Face folder
    const char *tokenizer; // a path, or "bytes"; NULL: unknown
    // Id of the tokenizer of the run that wrote the checkpoint, as 32 hex digits; NULL: unknown.
    const char *tokenizer_id;
    // Runs and their checkpoints only; otherwise false, 0, false.
    bool strict;                   // determinism
    int64_t tp_shards, etp_shards; // determinism; 0: no run
    int64_t seq;                   // train.seq
    bool takes_special_as_text;    // data.special_tokens is text
    const char *chat_template; // data.template of a run that trained on conversations; else NULL
    bool crosses_texts; // data.packing is plain: a sequence continues from one document to the next
    bool is_fresh;      // the run began with initial weights, not with a folder's
} cli_model;

// Rows of the flags that all commands on a model share; `flags` is the command's struct, with const
// char *tokenizer and *adapter, int32_t precision and int64_t threads. `kinds`: the values with
// that precision.
#define CLI_MODEL_ROWS(flags, kinds)                                                        \
    {.key = "adapter",                                                                      \
     .kind = OPTION_PATH,                                                                   \
     .offset = (int64_t)offsetof(flags, adapter),                                           \
     .help = "folder of PEFT with an adapter for the model; a run that trained one has "    \
             "its own",                                                                     \
     .also = "lora, peft"},                                                                 \
        {.key = "tokenizer",                                                                \
         .kind = OPTION_TEXT,                                                               \
         .offset = (int64_t)offsetof(flags, tokenizer),                                     \
         .help = "tokenizer: bytes, a tokenizer.json or a folder with one; the default is " \
                 "the model's own"},                                                        \
        {.key = "precision",                                                                \
         .kind = OPTION_CHOICE,                                                             \
         .offset = (int64_t)offsetof(flags, precision),                                     \
         .default_text = "auto",                                                            \
         .choices = "auto, fp32, bf16, fp16",                                               \
         .help = "type of " kinds "; auto is the run's, and fp32 for other folders"},       \
    {                                                                                       \
        .key = "threads", .kind = OPTION_INT, .offset = (int64_t)offsetof(flags, threads),  \
        .default_text = "0", .max = KERN_MAX_THREADS,                                       \
        .help = "number of threads; 0 is one per core"                                      \
    }

// The row of int64_t cache. `each`: the tokens of a text that 0 stands for.
#define CLI_CACHE_ROW(flags, each)                                                                 \
    {                                                                                              \
        .key = "cache", .kind = OPTION_INT, .offset = (int64_t)offsetof(flags, cache),             \
        .default_text = "0", .max = INT64_C(1) << 34,                                              \
        .help = "tokens in the cache of keys and values for all texts together, in pages of 16 "   \
                "that texts with the same beginning share; where they run out, the youngest text " \
                "waits and is computed again; 0 is " each " for each of --batch",                  \
        .also = "kv_cache, max_total_tokens"                                                       \
    }

// The type that --precision chose.
dtype cli_model_type(const cli_model *model, int32_t precision);

NODISCARD status cli_model_find(cli_context *cli, const char *path, cli_model *out);
// Opens `wanted` (NULL: the model's own), written as data.tokenizer. Ids must fit the vocabulary.
NODISCARD status cli_tokenizer_open(cli_context *cli, const cli_model *model, const char *wanted,
                                    data_tokenizer **out);

// Warns of what the tokenizer's file asks for and only `tokenizer encode` can apply.
void cli_warn_unapplied(cli_context *cli, const data_tokenizer *t);
// Warns of more threads than this host has cores, by --threads.
void cli_warn_threads(cli_context *cli, int64_t threads);

// Refuses the model's own tokenizer if it is not the one that the model was trained with.
NODISCARD status cli_tokenizer_check(const cli_model *model, const char *path,
                                     const data_tokenizer *t);

#endif
