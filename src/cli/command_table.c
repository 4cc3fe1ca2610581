// The commands, in the order of the help.
#include "cli/cli.h"
#include "cli/commands.h"

#include <string.h>

// One line per command, so that additions by several people merge.
// clang-format off
const cli_command *const cli_commands[] = {
    &cli_command_init,
    &cli_command_train,
    &cli_command_generate,
    &cli_command_eval,
    &cli_command_serve,
    &cli_command_chaos,
    &cli_command_check,
    &cli_command_bisect,
    &cli_command_replay,
    &cli_command_digest,
    &cli_command_gate,
    &cli_command_stages,
    &cli_command_import,
    &cli_command_export,
    &cli_command_explain,
    &cli_command_catalog,
    &cli_command_inspect,
    &cli_command_data,
    &cli_command_tokenizer,
    &cli_command_bench,
    &cli_command_doctor,
    &cli_command_hang_report,
    &cli_command_simulate,
    &cli_command_plan,
    &cli_command_verify,
    &cli_command_config,
    &cli_command_help,
    NULL,
};
// clang-format on

const cli_command *cli_command_find(const char *name)
{
    for (int64_t i = 0; cli_commands[i] != NULL; i++) {
        if (strcmp(cli_commands[i]->name, name) == 0) return cli_commands[i];
    }
    return NULL;
}

const cli_command *cli_command_nearest(const char *name)
{
    const char *names[COUNT_OF(cli_commands)];
    int64_t count = 0;
    for (; cli_commands[count] != NULL; count++) names[count] = cli_commands[count]->name;
    const char *near = text_nearest(name, names, count);
    return near == NULL ? NULL : cli_command_find(near);
}
