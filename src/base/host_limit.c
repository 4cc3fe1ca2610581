// Names the limit of a process that made a system call fail, because the system's own reason
// ("File too large", "Resource temporarily unavailable") does not.
#include "base/host.h"

#include <errno.h>

const char *host_limit_remedy(int error)
{
    switch (error) {
    case EFBIG:
        return " (`ulimit -f` limits the size of files and of shared memory: raise it)";
    case EMFILE:
        return " (`ulimit -n` limits the open files of a process: raise it)";
    case EAGAIN:
        return " (`ulimit -u` and the control group limit the processes and threads, `ulimit -v` "
               "their memory: raise it)";
    default:
        return "";
    }
}
