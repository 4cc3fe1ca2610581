// Sockets for control: loopback or Unix by default, TCP elsewhere when an address is given.
//
// Addresses: "unix:@name" (abstract: it leaves no file), "unix:/path", "host:port", "[v6]:port".
#ifndef CONTROL_SOCKET_H
#define CONTROL_SOCKET_H

#include "control/machine.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CONTROL_ADDRESS_BYTES = 160 };

// The socket is non-blocking and close-on-exec. A wildcard address (0.0.0.0, ::, an empty host)
// gives ST_SECURITY unless it is allowed. `bound` is the address for others to connect to; a port
// of 0 is replaced by the actual one.
NODISCARD status control_listen(const char *address, bool allow_wildcard, int *fd,
                                char bound[CONTROL_ADDRESS_BYTES]);
// Connects within the time; the socket is non-blocking. ST_PEER_LOST: no process listens there yet.
NODISCARD status control_connect(const char *address, int timeout_ms, int *fd);
// The address of this end of a TCP socket, in numbers. False: it is another socket, or unknown.
bool control_own_address(int fd, char out[CONTROL_ADDRESS_BYTES]);
// Returns -1 if no connection is waiting. A Unix socket of another user is closed and skipped.
int control_accept(int listen_fd);
// Return the number of bytes moved; 0: it would block; -1: the other end is gone.
int64_t control_read(int fd, void *buffer, int64_t bytes);
int64_t control_write(int fd, const void *bytes, int64_t count);

// Describes this process to its peers.
NODISCARD status control_self(const host *h, control_peer *out);
// Returns false if the process has ended. Otherwise *fd becomes readable when it ends, or is -1 if
// this process may open no more descriptors.
bool control_watch(const control_peer *peer, int *fd);
bool control_is_running(const control_peer *peer); // implements control_runs

#ifdef __cplusplus
}
#endif
#endif
