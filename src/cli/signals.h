// Signals that ask a run to stop.
#ifndef CLI_SIGNALS_H
#define CLI_SIGNALS_H

#include <stdbool.h>

// From here on INT, TERM and USR1 are only noted; a second INT ends the process by itself, so the
// shell sees 130. Writes to a closed pipe fail instead of killing.
void cli_signals_begin(void);
void cli_signals_end(void);
bool cli_signals_asked(void);
const char *cli_signals_name(void); // "SIGTERM"; "" before any came

#endif
