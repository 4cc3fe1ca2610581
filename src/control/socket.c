// Sockets, and processes as /proc shows them. No other file of control touches the network or
// /proc.
#include "control/socket.h"

#include "base/fault.h"
#include "base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 256, PROC_BYTES = 1024 };

typedef struct address {
    struct sockaddr_storage at;
    socklen_t bytes;
} address;

static status parse_unix(const char *name, const char *whole, address *out)
{
    struct sockaddr_un *u = (struct sockaddr_un *)(void *)&out->at;
    const size_t length = strlen(name);
    if (length < 2 || length >= sizeof(u->sun_path)) {
        return fail(ST_CONFIG, "address \"%s\": expected a path or @name of 2 to %zu characters",
                    whole, sizeof(u->sun_path) - 1);
    }
    u->sun_family = AF_UNIX;
    memcpy(u->sun_path, name, length);
    out->bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + (name[0] != '@'));
    if (name[0] == '@') u->sun_path[0] = '\0'; // abstract: leaves no file behind
    return ST_OK;
}

static status parse_address(const char *whole, bool listens, address *out)
{
    *out = (address){0};
    if (strncmp(whole, "unix:", 5) == 0) return parse_unix(whole + 5, whole, out);
    char name[CONTROL_ADDRESS_BYTES];
    const char *colon = strrchr(whole, ':');
    if (colon == NULL || strlen(whole) >= sizeof(name) || colon[1] == '\0') {
        return fail(ST_CONFIG,
                    "address \"%s\": expected host:port, [v6]:port, unix:/path or unix:@name",
                    whole);
    }
    const bool is_v6 = whole[0] == '[' && colon > whole + 1 && colon[-1] == ']';
    const int64_t length = colon - whole - (is_v6 ? 2 : 0);
    memcpy(name, whole + (is_v6 ? 1 : 0), (size_t)length);
    name[length] = '\0';
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICSERV | (listens ? AI_PASSIVE : 0)};
    struct addrinfo *list = NULL;
    const int error = getaddrinfo(length == 0 ? NULL : name, colon + 1, &hints, &list);
    if (error != 0 || list == NULL) {
        // A name that does not resolve yet may resolve soon: pods and their names come up together.
        return fail(error == EAI_SERVICE ? ST_CONFIG : ST_PEER_LOST, "address \"%s\": %s", whole,
                    gai_strerror(error));
    }
    memcpy(&out->at, list->ai_addr, list->ai_addrlen);
    out->bytes = list->ai_addrlen;
    freeaddrinfo(list);
    return ST_OK;
}

static bool is_wildcard(const address *a)
{
    static const uint8_t zeros[16];
    if (a->at.ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)&a->at;
        return in->sin_addr.s_addr == 0;
    }
    if (a->at.ss_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)(const void *)&a->at;
        return memcmp(&in->sin6_addr, zeros, sizeof(zeros)) == 0;
    }
    return false;
}

bool control_own_address(int fd, char out[CONTROL_ADDRESS_BYTES])
{
    address real = {.bytes = sizeof(real.at)};
    char name[CONTROL_ADDRESS_BYTES / 2], port[16];
    if (getsockname(fd, (struct sockaddr *)&real.at, &real.bytes) != 0) return false;
    if (real.at.ss_family == AF_UNIX) return false;
    if (getnameinfo((struct sockaddr *)&real.at, real.bytes, name, sizeof(name), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
        return false;
    }
    const bool is_v6 = real.at.ss_family == AF_INET6;
    (void)snprintf(out, CONTROL_ADDRESS_BYTES, is_v6 ? "[%s]:%s" : "%s:%s", name, port);
    return true;
}

status control_listen(const char *where, bool allow_wildcard, int *fd,
                      char bound[CONTROL_ADDRESS_BYTES])
{
    address a;
    const int on = 1;
    TRY(parse_address(where, true, &a));
    if (is_wildcard(&a) && !allow_wildcard) {
        return fail(ST_SECURITY,
                    "address \"%s\" listens on every network of this machine; give one address, or "
                    "allow it with --insecure-bind",
                    where);
    }
    TRY(fault_point("control.listen"));
    const int s = socket(a.at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s < 0) {
        return fail(ST_IO, "cannot create a socket for \"%s\": %s%s", where, strerror(errno),
                    host_limit_remedy(errno));
    }
    // The mask lets only the owner connect to a bound path.
    const mode_t mask = umask(0177);
    const bool is_ok = (a.at.ss_family == AF_UNIX ||
                        setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0) &&
                       bind(s, (struct sockaddr *)&a.at, a.bytes) == 0 && listen(s, BACKLOG) == 0;
    const int error = errno;
    (void)umask(mask);
    if (!is_ok) {
        (void)close(s);
        return fail(error == EADDRINUSE ? ST_LOCKED : ST_IO, "cannot listen on \"%s\": %s", where,
                    strerror(error));
    }
    if (!control_own_address(s, bound)) (void)snprintf(bound, CONTROL_ADDRESS_BYTES, "%s", where);
    *fd = s;
    return ST_OK;
}

static void tune(int fd, int family)
{
    const int on = 1;
    if (family == AF_UNIX) return;
    // Control messages are small and must not be delayed to be merged.
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

status control_connect(const char *where, int timeout_ms, int *fd)
{
    address a;
    TRY(parse_address(where, false, &a));
    TRY(fault_point("control.connect"));
    const int s = socket(a.at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s < 0) {
        return fail(ST_IO, "cannot create a socket for \"%s\": %s%s", where, strerror(errno),
                    host_limit_remedy(errno));
    }
    int error = connect(s, (struct sockaddr *)&a.at, a.bytes) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
        struct pollfd p = {.fd = s, .events = POLLOUT};
        socklen_t bytes = sizeof(error);
        const int ready = poll(&p, 1, timeout_ms);
        if (ready <= 0) {
            error = ETIMEDOUT;
        } else if (getsockopt(s, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) {
            error = errno;
        }
    }
    if (error != 0) {
        (void)close(s);
        return fail(ST_PEER_LOST, "cannot connect to \"%s\": %s", where, strerror(error));
    }
    tune(s, a.at.ss_family);
    *fd = s;
    return ST_OK;
}

int control_accept(int listen_fd)
{
    for (;;) {
        const int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
        if (fd < 0) return -1;
        struct ucred peer = {.uid = geteuid()};
        int family = AF_UNIX;
        socklen_t bytes = sizeof(family);
        (void)getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &bytes);
        bytes = sizeof(peer);
        if (family == AF_UNIX && (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0 ||
                                  (peer.uid != geteuid() && peer.uid != 0))) {
            (void)close(fd);
            continue;
        }
        tune(fd, family);
        return fd;
    }
}

int64_t control_read(int fd, void *buffer, int64_t bytes)
{
    for (;;) {
        const ssize_t n = recv(fd, buffer, (size_t)bytes, MSG_DONTWAIT);
        if (n > 0) return n;
        if (n < 0 && errno == EINTR) continue;
        return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? 0 : -1;
    }
}

int64_t control_write(int fd, const void *bytes, int64_t count)
{
    for (;;) {
        const ssize_t n = send(fd, bytes, (size_t)count, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n >= 0) return n;
        if (errno == EINTR) continue;
        return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
    }
}

// ---- processes ----------------------------------------------------------------------------------
static int64_t read_proc(const char *path, char out[PROC_BYTES])
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    const ssize_t n = read(fd, out, PROC_BYTES - 1);
    (void)close(fd);
    if (n < 0) return -1;
    out[n] = '\0';
    return n;
}

// The state letter and field 22 (start time in ticks since boot) of /proc/PID/stat. Zeros: there is
// no such process.
typedef struct proc_stat {
    char state;
    uint64_t started;
} proc_stat;

static proc_stat stat_of(int64_t pid)
{
    proc_stat s = {0};
    char path[64], line[PROC_BYTES];
    (void)snprintf(path, sizeof(path), "/proc/%lld/stat", (long long)pid);
    if (read_proc(path, line) <= 0) return s;
    const char *at = strrchr(line, ')'); // the name before it may hold any characters
    if (at != NULL && at[1] == ' ') s.state = at[2];
    for (int field = 2; at != NULL && field < 22; field++) at = strchr(at + 1, ' ');
    if (at != NULL) s.started = strtoull(at + 1, NULL, 10);
    return s;
}

status control_self(const host *h, control_peer *out)
{
    char name[HOST_NAME_BYTES], boot[PROC_BYTES];
    control_peer p = {.pid = h->api->process_id(h)};
    TRY(h->api->machine_name(h, name));
    for (int i = 0; name[i] != '\0' && i < CONTROL_HOST_BYTES - 1; i++) {
        p.host[i] = name[i] <= ' ' || name[i] >= 0x7f ? '?' : name[i];
    }
    p.started = stat_of(p.pid).started;
    struct stat info;
    const int64_t bytes = read_proc("/proc/sys/kernel/random/boot_id", boot);
    if (bytes > 0 && p.started != 0 && stat("/proc/self/ns/pid", &info) == 0) {
        p.machine = hash64(boot, bytes, (uint64_t)info.st_ino) | 1;
    }
    *out = p;
    return ST_OK;
}

bool control_watch(const control_peer *peer, int *fd)
{
    *fd = (int)syscall(SYS_pidfd_open, (pid_t)peer->pid, 0U);
    if (*fd < 0) return errno != ESRCH;
    // Another process may have this pid by now; its start time then differs. 0: it cannot be read,
    // for example because this process has no descriptor left.
    const uint64_t started = stat_of(peer->pid).started;
    if (peer->started == 0 || started == 0 || started == peer->started) return true;
    (void)close(*fd);
    *fd = -1;
    return false;
}

bool control_is_running(const control_peer *peer)
{
    const proc_stat s = stat_of(peer->pid);
    return s.started == peer->started && s.state != '\0' && strchr("TtZX", s.state) == NULL;
}
