// Signals that ask a run to stop.
#ifndef CLI_TRAIN_SIGNALS_H
#define CLI_TRAIN_SIGNALS_H

#include <stdbool.h>

// From here on INT, TERM, USR1, USR2, XCPU, HUP and QUIT are only noted; HUP stays ignored under
// nohup. A second INT ends the process, so the shell sees 130. Writes to a closed pipe fail instead
// of killing the process.
void cli_signals_begin(void);
// The same without a message on a terminal.
void cli_signals_begin_quiet(void);
// A second INT writes `words` to the file `path` before it ends the process. Both are copied.
void cli_signals_on_quit(const char *path, const char *words);
void cli_signals_end(void);
bool cli_signals_asked(void);
const char *cli_signals_name(void); // "SIGTERM"; "" before any came
// For a command without a state to continue: ends the process as the signal would have, so the
// shell sees 128 + its number. Does nothing if no signal came.
void cli_signals_raise(void);

#endif
