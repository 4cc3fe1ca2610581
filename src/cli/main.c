// trireme: trains large language models. cli.c holds all code of the program, so that tests can
// call it.
#include "cli/cli.h"
#include "cli/process.h"

#include <stdlib.h>

int main(int argc, char **argv)
{
    cli_context cli;
    const status prepared = cli_process_prepare();
    const status st = cli_context_init(&cli, stdout, stderr);
    if (st != ST_OK) return status_exit_code(st);
    if (prepared != ST_OK) cli_print_error(&cli, prepared);
    const int code = prepared != ST_OK ? status_exit_code(prepared) : cli_main(&cli, argc, argv);
    cli_context_deinit(&cli);
    return code;
}
