// Subcommands of `data` that have a file of their own.
#ifndef CLI_DATA_DATA_COMMANDS_H
#define CLI_DATA_DATA_COMMANDS_H

#include "cli/cli.h"

NODISCARD status data_build(cli_context *cli, const cli_call *call);

#endif
