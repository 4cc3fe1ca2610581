// Faults of a rank's connections and of its disk, injected from outside: no cable is pulled and no
// disk is filled.
#include "cli/chaos/chaos.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const int64_t full_ns = 2000000000; // for which no file can grow

// Ends the connection at this descriptor of the process, if it is one.
static bool connection_cut(int process_fd, int number)
{
    const int fd = (int)syscall(SYS_pidfd_getfd, process_fd, number, 0U);
    int type = 0, listens = 1;
    socklen_t bytes = sizeof(type);
    if (fd < 0) return false;
    bool is_cut = getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0 && type == SOCK_STREAM;
    bytes = sizeof(listens);
    is_cut = is_cut && getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) == 0 && !listens;
    is_cut = is_cut && shutdown(fd, SHUT_RDWR) == 0;
    (void)close(fd);
    return is_cut;
}

// Cuts all connections of the rank to others: those of control, and of transports over sockets.
bool chaos_inject_cut(const chaos_target *t)
{
    char path[64];
    int cut = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)t->process);
    DIR *folder = opendir(path);
    const int process_fd = (int)syscall(SYS_pidfd_open, t->process, 0U);
    for (struct dirent *e = NULL; folder != NULL && process_fd >= 0;) {
        e = readdir(folder);
        if (e == NULL) break;
        if (e->d_name[0] == '.') continue;
        cut += connection_cut(process_fd, (int)strtol(e->d_name, NULL, 10));
    }
    if (folder != NULL) (void)closedir(folder);
    if (process_fd >= 0) (void)close(process_fd);
    return cut > 0;
}

// The rank's files cannot grow beyond a page for 2 s, as on a full disk. The limit also holds for
// shared memory, which a rank takes before its first step.
bool chaos_inject_diskfull(const chaos_target *t)
{
    struct rlimit before, now;
    if (!chaos_has_stepped(t) || !chaos_has_begun(t)) return false;
    if (prlimit(t->process, RLIMIT_FSIZE, NULL, &before) != 0) return false;
    now = before;
    now.rlim_cur = 4096;
    if (prlimit(t->process, RLIMIT_FSIZE, &now, NULL) != 0) return false;
    const struct timespec wait = {.tv_sec = full_ns / 1000000000, .tv_nsec = full_ns % 1000000000};
    (void)nanosleep(&wait, NULL);
    (void)prlimit(t->process, RLIMIT_FSIZE, &before, NULL); // the process may have ended
    return true;
}
