// `init`: makes a folder with a configuration and a text, ready to train.
#include "cli/commands.h"
#include "cli/embedded.h"

#include <string.h>

typedef struct init_flags {
    int32_t preset;
} init_flags;

static const option rows[] = {
    {.key = "preset",
     .kind = OPTION_CHOICE,
     .offset = (int64_t)offsetof(init_flags, preset),
     .default_text = "tiny",
     .choices = "tiny, 124m",
     .help = "size of the model: tiny learns letters in a minute or two on two cores; 124m is "
             "GPT-2's size"},
};
static const option_table flags = {.title = "Flags", .rows = rows, .count = COUNT_OF(rows)};

static const char *const configs[] = {"tiny.yaml", "124m.yaml"};

// Writes a file that the program carries to `path`.
static status file_put(cli_context *cli, const char *name, const char *path)
{
    char *data = NULL;
    int64_t bytes = 0;
    TRY(cli_embedded_read(cli->a, name, &data, &bytes));
    return host_write_all(cli->h, path, data, bytes);
}

static status run(cli_context *cli, const cli_call *call)
{
    const init_flags *f = call->flags;
    const char *folder = call->operands[0];
    char *config_path = NULL, *text_path = NULL, *about_path = NULL;
    file_info info;
    TRY(path_join(cli->a, folder, "config.yaml", &config_path));
    TRY(path_join(cli->a, folder, "text.txt", &text_path));
    TRY(path_join(cli->a, folder, "text.md", &about_path));
    TRY(cli->h->api->path_info(cli->h, config_path, &info));
    if (info.kind != FILE_KIND_NONE) {
        return fail(ST_USAGE, "%s exists already; train with it, or give another folder",
                    config_path);
    }
    TRY(cli->h->api->path_mkdir(cli->h, folder));
    TRY(cli->h->api->path_info(cli->h, text_path, &info));
    if (info.kind == FILE_KIND_NONE) { // an existing text belongs to the user
        TRY(file_put(cli, ".txt", text_path));
        TRY(file_put(cli, ".md", about_path));
    }
    TRY(file_put(cli, configs[f->preset], config_path));
    cli_print(cli, "made   %s\n       %s   (public domain; %s says from where)\n", config_path,
              text_path, path_base_name(about_path));
    const char *quoted = NULL, *run_path = NULL;
    char *run = NULL;
    TRY(text_quote(cli->a, config_path, &quoted));
    TRY(path_join(cli->a, folder, "run", &run));
    TRY(text_quote(cli->a, run, &run_path));
    cli_print(cli, "next   trireme train %s\n       trireme generate %s --prompt 'The '\n", quoted,
              run_path);
    return ST_OK;
}

const cli_command cli_command_init = {
    .name = "init",
    .summary = "make a folder with a configuration and a text, ready to train",
    .synopsis = "DIR [--preset tiny|124m]",
    .about = "Writes DIR/config.yaml, which has every common key with a comment, and DIR/text.txt, "
             "a public-domain text. Put your own text there, or name your files in data.train.",
    .examples = "  trireme init demo\n"
                "  trireme train demo/config.yaml\n",
    .flags = &flags,
    .flags_bytes = sizeof(init_flags),
    .operand_min = 1,
    .operand_max = 1,
    .run = run,
};
