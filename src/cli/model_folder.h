// A model to work with: from a run, a checkpoint or a Hugging Face folder.
#ifndef CLI_MODEL_FOLDER_H
#define CLI_MODEL_FOLDER_H

#include "cli/run_folder.h"
#include "data/tokenizer.h"
#include "model/model.h"

typedef struct cli_model {
    const char *folder; // a checkpoint or a Hugging Face folder: what infer_open() takes
    operand_kind kind;  // of what was given
    decoder_spec spec;
    dtype compute;         // of the run; fp32 of a Hugging Face folder
    const char *tokenizer; // a path, or "bytes"; NULL: not known
    // Of a run and its checkpoints; else false, 0, false.
    bool strict;        // determinism
    int64_t seq;        // train.seq
    bool crosses_texts; // data.packing is plain: a sequence goes on from one document to the next
    bool is_fresh;      // a run that began with initial weights, not with a folder's
} cli_model;

NODISCARD status cli_model_find(cli_context *cli, const char *path, cli_model *out);
// `wanted` (NULL: the model's own) as data.tokenizer writes it. Ids must fit the vocabulary.
NODISCARD status cli_tokenizer_open(cli_context *cli, const cli_model *model, const char *wanted,
                                    data_tokenizer **out);

#endif
