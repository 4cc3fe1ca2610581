#include "cli/infer/answering.h"

#include <string.h>

status cli_chat_open(cli_context *cli, const cli_model *model, const char *wanted, const char *name,
                     data_tokenizer *t, data_chat **out)
{
    const char *tokenizer = wanted != NULL ? wanted : model->tokenizer;
    if (strcmp(name, "auto") == 0 && model->chat_template != NULL) name = model->chat_template;
    data_chat_spec spec = {.source = name, .tokenizer = t};
    TRY(data_chat_folder(cli->h, cli->a, tokenizer, &spec.folder));
    spec.unix_s = cli->h->api->unix_ns(cli->h) / 1000000000;
    return data_chat_open(cli->h, cli->a, &spec, out);
}

status cli_ends_find(cli_context *cli, const cli_model *model, const data_tokenizer *t,
                     const data_chat *chat, cli_ends *out)
{
    return infer_ends_find(cli->h, cli->a, model->folder, model->spec.vocab, t, chat, out);
}

status cli_infer_open(cli_context *cli, const cli_model *model, infer_options *options, infer **out)
{
    return infer_open_fitting(cli->h, cli->a, model->folder, options, out);
}
