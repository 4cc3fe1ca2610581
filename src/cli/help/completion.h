// Documents for other programs: shells' completion scripts and the man page.
#ifndef CLI_HELP_COMPLETION_H
#define CLI_HELP_COMPLETION_H

#include "cli/cli.h"

NODISCARD status cli_completion_print(cli_context *cli, const char *shell); // "bash", "zsh"
NODISCARD status cli_man_print(cli_context *cli);

#endif
