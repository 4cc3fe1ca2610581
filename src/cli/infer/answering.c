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

static void add(cli_ends *ends, const decoder_spec *spec, int64_t id)
{
    if (id >= 0 && id < spec->vocab && ends->count < CLI_ENDS_MAX) {
        ends->ids[ends->count++] = (int32_t)id;
    }
}

static void add_json(cli_ends *ends, const decoder_spec *spec, const json *value)
{
    const bool is_list = json_kind_of(value) == JSON_LIST;
    const int64_t count = is_list ? json_count(value) : 1;
    for (int64_t i = 0; i < count; i++) {
        add(ends, spec, json_int(is_list ? json_at(value, i) : value, -1));
    }
}

status cli_ends_find(cli_context *cli, const cli_model *model, const data_tokenizer *t,
                     const data_chat *chat, cli_ends *out)
{
    static const char *const names[] = {"config.json", "generation_config.json"};
    enum { CONFIG_LIMIT_BYTES = 1 << 24 };
    *out = (cli_ends){.count = 0};
    for (int64_t i = 0; i < COUNT_OF(names); i++) {
        bool has = false;
        char *path = NULL;
        json *root = NULL;
        TRY(cli_has_file(cli, model->folder, names[i], &has));
        if (!has) continue;
        TRY(path_join(cli->a, model->folder, names[i], &path));
        TRY(json_read(cli->h, path, CONFIG_LIMIT_BYTES, &root));
        add_json(out, &model->spec, json_get(root, "eos_token_id"));
        json_free(root);
    }
    int32_t ends[DATA_CHAT_ENDS_MAX];
    const int64_t count = chat != NULL ? data_chat_ends(chat, ends) : 0;
    for (int64_t i = 0; i < count; i++) add(out, &model->spec, ends[i]);
    add(out, &model->spec, data_tokenizer_eot(t));
    return ST_OK;
}

status cli_infer_open(cli_context *cli, const cli_model *model, infer_options *options, infer **out)
{
    for (;;) {
        const status st = infer_open(cli->h, cli->a, model->folder, options, out);
        if (st != ST_DOES_NOT_FIT || options->slots <= 1) return st;
        options->slots /= 2;
        error_clear();
    }
}
