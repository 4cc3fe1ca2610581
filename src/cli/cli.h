// The command line: the only code that reads argv, standard streams and the environment, and that
// exits.
//
// A command is a row: name, texts for its help, flags (an option table) and a function. Parsing,
// --help, the man page and shell completion are made from the rows. To add one: cmd_<name>.c with a
// row, and its line in command_table.c.
//
// A failing command returns a status with a text in the thread's record. cli_main() prints the text
// once, at the end, and converts the status to the exit code.
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "base/format/config.h"

#include <stdio.h>

typedef struct cli_context {
    const host *h; // &outside
    host outside;  // the real host, with the user's home
    arena *a;      // lives as long as the command
    FILE *out, *err;
    int columns;       // width of the terminal, or the value of COLUMNS
    bool live;         // out is a terminal, so a line can be rewritten
    bool live_err;     // the same of err
    bool colour;       // err may be coloured
    int write_error;   // errno of the first write to `out` that failed; 0
    char *const *argv; // command line of this process
} cli_context;

// Reads the environment: NO_COLOR, TERM, COLUMNS.
NODISCARD status cli_context_init(cli_context *cli, FILE *out, FILE *err);
void cli_context_deinit(cli_context *cli);
// A variable of the environment, as a launch_lookup; the context is not used.
const char *cli_environment(void *context, const char *name);

// Printing keeps the first write error, and cli_flush() reports it, so a full disk causes an error.
void cli_print(cli_context *cli, const char *format, ...) PRINTF_LIKE(2, 3);
void cli_print_text(cli_context *cli, const text *t);
void cli_push(cli_context *cli); // flushes to the terminal or file now
NODISCARD status cli_flush(cli_context *cli);
// Prints "error[C012] ..." from the record to err. A configuration error is a complete text
// already.
void cli_warn(cli_context *cli, const char *format, ...) PRINTF_LIKE(2, 3); // "warning  ..." to err
void cli_print_error(cli_context *cli, status st);

// The user's arguments of a command.
typedef struct cli_call {
    const char *const *operands;
    int64_t operand_count;
    const char *const *keys; // "key.path=value"
    int64_t key_count;
    const void *flags; // struct of the command's flags, with defaults filled in
} cli_call;

typedef struct cli_command {
    const char *name, *summary;
    const char *synopsis; // after the name: "CONFIG|RUN [key.path=value ...]"
    const char *about;    // sentences for its help; may be NULL
    const char *examples; // whole lines with line ends; may be NULL
    const option_table *flags;
    int64_t flags_bytes;
    int operand_min, operand_max; // -1: any number
    bool takes_keys;
    const char *shorts; // "o=output": -o is --output; may be NULL
    const char *words;  // first operands for completion: "show, check"; may be NULL
    status (*run)(cli_context *cli, const cli_call *call);
} cli_command;

extern const cli_command *const cli_commands[]; // ends with NULL
const cli_command *cli_command_find(const char *name);
const cli_command *cli_command_nearest(const char *name); // for "did you mean"; may be NULL

// arguments: the words after the command's name. *wants_help: they include --help, and `out` is
// empty.
NODISCARD status cli_parse(arena *a, const cli_command *command, const char *const *arguments,
                           int64_t count, cli_call *out, bool *wants_help);
// The whole program except exit(): parses, runs, prints the error, returns the exit code.
int cli_main(cli_context *cli, int argc, char **argv);

// ---- help (cmd_help.c) --------------------------------------------------------------------------
NODISCARD status cli_help_command(cli_context *cli, const cli_command *command);
NODISCARD status cli_help_overview(cli_context *cli);
NODISCARD status cli_help_version(cli_context *cli);

#endif
