// trireme: trains large language models. Everything is in cli.c, where tests reach it.
#include "cli/cli.h"

#include <stdlib.h>

int main(int argc, char **argv)
{
    cli_context cli;
    const status st = cli_context_init(&cli, stdout, stderr);
    if (st != ST_OK) return status_exit_code(st);
    const int code = cli_main(&cli, argc, argv);
    cli_context_deinit(&cli);
    return code;
}
