// The rank's side of launch_live: a socket through which a process gets its place in each epoch.
//
//   launcher -> rank   "c"       the epoch is to end after this step
//                      "s\n.."   a spare: the others have places
//                      "p RANK RANKS LOCAL LOCALS BLOCK JOB EPOCH ADDRESS\n.."
//                                a place; descriptors come with it. LOCAL: its number among the
//                                ranks of its machine; BLOCK: 0 if these make their control block
//   rank -> launcher   "s BYTES PLACES"
//                                this spare has reserved memory, and has plans of places
//                      "r ASKED WRONG STEP TEXT"
//                                this rank has left its epoch
#include "launch/local_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ARGUMENTS_BYTES = 1 << 16, ARGUMENTS_MAX = 1024 };

// Takes the descriptors of a message. Returns their number.
static int descriptors_take(struct msghdr *m, int fds[POST_FDS])
{
    int count = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c != NULL; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        const int n = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        for (int i = 0; i < n && count < POST_FDS; i++, count++) {
            memcpy(&fds[count], CMSG_DATA(c) + (size_t)i * sizeof(int), sizeof(int));
        }
    }
    return count;
}

static status place_read(const char *message, const int fds[POST_FDS], int count, launch_place *p,
                         char order[LAUNCH_ORDER_BYTES])
{
    unsigned long long job = 0;
    int at = -1, has_block = 0;
    unsigned epoch = 0;
    const char *end = strchr(message, '\n');
    const int n = sscanf(message, "p %d %d %d %d %d %llx %u %n", &p->rank, &p->ranks,
                         &p->local_rank, &p->local_ranks, &has_block, &job, &epoch, &at);
    const bool is_right = n == 7 && at > 0 && end != NULL && p->ranks >= 1 && p->rank >= 0 &&
                          p->rank < p->ranks && p->ranks <= LAUNCH_LIVE_MAX &&
                          count == (p->rank == 0 ? POST_FDS : POST_FDS - 1) &&
                          end - (message + at) < (ptrdiff_t)sizeof(p->address);
    if (!is_right) return fail(ST_INTERNAL, "a place from the launcher is malformed");
    p->job = job;
    p->epoch = epoch;
    (void)snprintf(p->address, sizeof(p->address), "%.*s", (int)(end - (message + at)),
                   message + at);
    (void)snprintf(order, LAUNCH_ORDER_BYTES, "%s", end + 1);
    p->key_fd = fds[POST_KEY];
    p->control_block_fd = has_block ? fds[POST_BLOCK] : -1;
    if (!has_block) (void)close(fds[POST_BLOCK]);
    p->listen_fd = p->rank == 0 ? fds[POST_LISTEN] : -1;
    p->liveness_fd = fcntl(p->post_fd, F_DUPFD_CLOEXEC, 3);
    if (p->liveness_fd < 0) return fail(ST_NO_MEMORY, "no descriptor for the launcher's socket");
    (void)fflush(NULL);
    const bool is_out = dup2(fds[POST_OUT], 1) == 1 && dup2(fds[POST_OUT], 2) == 2;
    (void)close(fds[POST_OUT]);
    return is_out ? ST_OK : fail(ST_IO, "dup2: %s", strerror(errno));
}

status launch_post_wait(int post_fd, launch_place *place, char order[LAUNCH_ORDER_BYTES],
                        bool *is_over)
{
    char message[LAUNCH_ORDER_BYTES + 512];
    *is_over = false;
    place->post_fd = post_fd;
    for (;;) {
        union {
            struct cmsghdr head;
            char bytes[CMSG_SPACE(sizeof(int) * POST_FDS)];
        } rights;
        int fds[POST_FDS] = {-1, -1, -1, -1};
        struct iovec part = {.iov_base = message, .iov_len = sizeof(message) - 1};
        struct msghdr m = {.msg_iov = &part,
                           .msg_iovlen = 1,
                           .msg_control = rights.bytes,
                           .msg_controllen = sizeof(rights.bytes)};
        const ssize_t n = recvmsg(post_fd, &m, MSG_CMSG_CLOEXEC);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            *is_over = true;
            return ST_OK;
        }
        message[n] = '\0';
        const int count = descriptors_take(&m, fds);
        if ((m.msg_flags & MSG_CTRUNC) != 0) {
            return fail(ST_IO, "cannot take the descriptors of a place: %s%s", strerror(EMFILE),
                        host_limit_remedy(EMFILE));
        }
        if (message[0] == 'p') return place_read(message, fds, count, place, order);
        if (message[0] != 's') continue;
        const char *order_at = strchr(message, '\n');
        place->rank = -1;
        (void)snprintf(order, LAUNCH_ORDER_BYTES, "%s", order_at != NULL ? order_at + 1 : "");
        return ST_OK;
    }
}

bool launch_post_has_news(int post_fd)
{
    struct pollfd p = {.fd = post_fd, .events = POLLIN};
    return poll(&p, 1, 0) > 0;
}

void launch_post_spare(int post_fd, int64_t bytes, int64_t places)
{
    char message[64];
    const int n =
        snprintf(message, sizeof(message), "s %lld %lld", (long long)bytes, (long long)places);
    const ssize_t sent = send(post_fd, message, (size_t)n, MSG_NOSIGNAL);
    (void)sent; // as in launch_post_ready()
}

void launch_post_spare_failed(int post_fd, const char *why)
{
    char message[LAUNCH_TEXT_BYTES];
    const int n = snprintf(message, sizeof(message), "x %s", why);
    const ssize_t sent =
        send(post_fd, message, (size_t)min_i64(n, (int64_t)sizeof(message) - 1), MSG_NOSIGNAL);
    (void)sent; // as in launch_post_ready()
}

void launch_post_ready(int post_fd, bool is_asked, int wrong, int64_t step, const char *said)
{
    char message[LAUNCH_TEXT_BYTES];
    const int n = snprintf(message, sizeof(message), "r %d %d %lld %s", is_asked, wrong,
                           (long long)step, said);
    const size_t bytes = (size_t)min_i64(n, (int64_t)sizeof(message) - 1);
    // If it fails, the launcher is gone, which launch_post_wait() sees.
    const ssize_t sent = send(post_fd, message, bytes, MSG_NOSIGNAL);
    (void)sent;
}

status launch_post_join(const char *address, arena *a, int *post_fd, char ***arguments,
                        char **folder)
{
    char *bytes = NULL;
    struct sockaddr_un to;
    socklen_t length = 0;
    int64_t count = 0;
    TRY(arena_new(a, ARGUMENTS_BYTES + 1, &bytes));
    TRY(arena_new(a, ARGUMENTS_MAX + 1, arguments));
    TRY(launch_join_address(address, &to, &length));
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return fail(ST_IO, "cannot make a socket: %s%s", strerror(errno), host_limit_remedy(errno));
    struct ucred peer = {0};
    socklen_t peer_bytes = sizeof(peer);
    ssize_t n = -1;
    if (connect(fd, (const struct sockaddr *)&to, length) == 0 &&
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_bytes) == 0 && peer.uid == geteuid()) {
        n = recv(fd, bytes, ARGUMENTS_BYTES, 0);
    }
    if (n <= 1 || bytes[n - 1] != '\0') {
        (void)close(fd);
        return fail(ST_PEER_LOST, "no run waits at %s; it has ended, or it takes no more ranks",
                    address);
    }
    *folder = bytes;
    for (char *at = bytes + strlen(bytes) + 1; at < bytes + n && count < ARGUMENTS_MAX;) {
        (*arguments)[count++] = at;
        at += strlen(at) + 1;
    }
    *post_fd = fd;
    return ST_OK;
}
