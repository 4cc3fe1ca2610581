// Signals that ask a run to stop.
#ifndef CLI_TRAIN_SIGNALS_H
#define CLI_TRAIN_SIGNALS_H

#include <stdbool.h>

// From here on INT, TERM and USR1 are only noted; a second INT ends the process by itself, so the
// shell sees 130. Writes to a closed pipe fail instead of killing.
void cli_signals_begin(void);
// The same, but nothing is said on a terminal when a signal comes.
void cli_signals_begin_quiet(void);
void cli_signals_end(void);
bool cli_signals_asked(void);
const char *cli_signals_name(void); // "SIGTERM"; "" before any came
// For a command that leaves nothing to continue: ends the process as the signal would have, so the
// shell sees 128 + its number. Nothing if none came.
void cli_signals_raise(void);

#endif
