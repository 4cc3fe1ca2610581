// A line on standard error while a command computes: what it does and for how long. A command that
// ends within a second prints none. On a terminal the line is rewritten and erased at the end; in a
// file a line is added after 1, 3, 7, 15 s and so on, at most one a minute.
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include "cli/cli.h"

typedef struct cli_progress cli_progress;
// `activity`: "searching layouts"; kept until the end. Failing to start is no error: *out is NULL,
// which the other functions accept, and no line appears.
void cli_progress_begin(cli_context *cli, const char *activity, cli_progress **out);
// Sets the detail that stands behind the activity; may be called at any rate.
void cli_progress_say(cli_progress *p, const char *format, ...) PRINTF_LIKE(2, 3);
// Erases the line. Nothing else may print between begin and end.
void cli_progress_end(cli_progress *p);

#endif
