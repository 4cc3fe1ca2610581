// trireme: trains large language models. cli.c holds all code of the program, so that tests can
// call it.
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
