// For the commands that generate text: a model's chat template and the tokens that end its texts.
#ifndef CLI_INFER_ANSWERING_H
#define CLI_INFER_ANSWERING_H

#include "cli/model_folder.h"
#include "data/chat.h"
#include "infer/infer.h"

enum { CLI_ENDS_MAX = 64 };
typedef struct cli_ends {
    int32_t ids[CLI_ENDS_MAX];
    int64_t count;
} cli_ends;

// name: "auto", the name of a template or a file. wanted: the --tokenizer that the user gave, or
// NULL. `t` is the tokenizer, borrowed.
NODISCARD status cli_chat_open(cli_context *cli, const cli_model *model, const char *wanted,
                               const char *name, data_tokenizer *t, data_chat **out);
// eos_token_id of the model's files, one or several; the ends of the chat template (NULL: none);
// the tokenizer's end of text.
NODISCARD status cli_ends_find(cli_context *cli, const cli_model *model, const data_tokenizer *t,
                               const data_chat *chat, cli_ends *out);

// Opens the model with options->slots sequences at once, or fewer if memory is short: it puts there
// how many.
NODISCARD status cli_infer_open(cli_context *cli, const cli_model *model, infer_options *options,
                                infer **out);

#endif
