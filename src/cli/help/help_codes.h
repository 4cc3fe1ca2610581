// The long texts of error codes, for `trireme help CODE`.
#ifndef CLI_HELP_HELP_CODES_H
#define CLI_HELP_HELP_CODES_H

#include "base/status.h"

// STATUS_COUNT if no code is written so ("D002", any case).
status cli_code_parse(const char *code);
// What it means and what to do: sentences, without a line end.
const char *cli_code_text(status code);

#endif
