// Makes the process independent of unusual surroundings: closed descriptors and small limits.
#include "cli/process.h"

#include "base/base.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

enum { STACK_LEAST_BYTES = 1 << 20, THREAD_STACK_BYTES = 2 << 20 };

// Without this, the first file that the program opens would become the standard output, and lines
// for the console would be written into it.
static void descriptors_open(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) >= 0) continue;
        // open() returns the lowest free number, which is fd. A folder keeps the number in use
        // where there is no /dev/null; writes to it fail.
        if (open("/dev/null", O_RDWR | O_NOCTTY) < 0) (void)open("/", O_RDONLY | O_DIRECTORY);
    }
}

// The kernel reads the limit whenever the main thread's stack grows, so the soft limit can be
// raised here. New threads get the limit as their stack's size, unless it is set.
static status stacks_prepare(void)
{
    struct rlimit limit;
    pthread_attr_t attr;
    size_t bytes = 0;
    if (getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur < STACK_LEAST_BYTES) {
        limit.rlim_cur = limit.rlim_max < STACK_LEAST_BYTES ? limit.rlim_max : STACK_LEAST_BYTES;
        if (limit.rlim_cur < STACK_LEAST_BYTES || setrlimit(RLIMIT_STACK, &limit) != 0) {
            return fail(ST_NO_MEMORY,
                        "the stack of this process is limited to %lld KiB, which is too small: set "
                        "`ulimit -s 8192` before this command",
                        (long long)(limit.rlim_cur >> 10));
        }
    }
    if (pthread_attr_init(&attr) != 0) return ST_OK; // the system's size remains
    if (pthread_getattr_default_np(&attr) == 0 && pthread_attr_getstacksize(&attr, &bytes) == 0 &&
        bytes < THREAD_STACK_BYTES && pthread_attr_setstacksize(&attr, THREAD_STACK_BYTES) == 0) {
        (void)pthread_setattr_default_np(&attr);
    }
    (void)pthread_attr_destroy(&attr);
    return ST_OK;
}

status cli_process_prepare(void)
{
    descriptors_open();
    (void)signal(SIGXFSZ, SIG_IGN);
    return stacks_prepare();
}
