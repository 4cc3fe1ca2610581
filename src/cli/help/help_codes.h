// The long texts of error codes, for `trireme help CODE`.
#ifndef CLI_HELP_HELP_CODES_H
#define CLI_HELP_HELP_CODES_H

#include "base/status.h"

// STATUS_COUNT for an unknown code ("D002", any case).
status cli_code_parse(const char *code);
// The meaning and the remedy: sentences, without a line end.
const char *cli_code_text(status code);

#endif
