// For the commands that generate text: a model's chat template and the tokens that end its texts.
#ifndef CLI_INFER_ANSWERING_H
#define CLI_INFER_ANSWERING_H

#include "cli/model_folder.h"
#include "data/chat.h"
#include "infer/task_run.h"

typedef infer_end_ids cli_ends;

// name: "auto", the name of a template or a file. wanted: the --tokenizer that the user gave, or
// NULL. `t` is the tokenizer, borrowed.
NODISCARD status cli_chat_open(cli_context *cli, const cli_model *model, const char *wanted,
                               const char *name, data_tokenizer *t, data_chat **out);
// infer_ends_find() and infer_open_fitting() of the model.
NODISCARD status cli_ends_find(cli_context *cli, const cli_model *model, const data_tokenizer *t,
                               const data_chat *chat, cli_ends *out);
NODISCARD status cli_infer_open(cli_context *cli, const cli_model *model, infer_options *options,
                                infer **out);

#endif
