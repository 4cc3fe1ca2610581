// `data look`, and the printing that it shares with `data show`.
#ifndef CLI_DATA_DATA_LOOK_H
#define CLI_DATA_DATA_LOOK_H

#include "cli/cli.h"
#include "data/tokenizer.h"

// Prints a text without control characters, which must not reach a terminal.
void data_print_visible(cli_context *cli, const data_bytes *t);
// Prints the first `sequences` sequences of a configuration with marks around what is trained, and
// warns of samples that train less than they seem to.
NODISCARD status data_look(cli_context *cli, const cli_call *call, int64_t sequences);

#endif
