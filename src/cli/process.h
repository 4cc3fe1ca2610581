// Limits and descriptors that this process inherits from the process that started it.
#ifndef CLI_PROCESS_H
#define CLI_PROCESS_H

#include "base/status.h"

// Call this first, before any file is opened and before any thread starts. A daemon or a shell
// (`<&- >&-`) may start this program with closed standard descriptors; they become /dev/null. A
// write beyond `ulimit -f` fails with an error instead of ending the process by SIGXFSZ. A stack
// limit (`ulimit -s`) that is too small gives ST_NO_MEMORY.
NODISCARD status cli_process_prepare(void);

#endif
