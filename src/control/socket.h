// Sockets for control: loopback or Unix by default, TCP elsewhere when an address is given.
//
// Addresses: "unix:@name" (no file: it goes with the process), "unix:/path", "host:port", "[v6]:port".
#ifndef CONTROL_SOCKET_H
#define CONTROL_SOCKET_H

#include "control/machine.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CONTROL_ADDRESS_BYTES = 160 };

// Non-blocking, close-on-exec. A wildcard (0.0.0.0, ::, an empty host) is ST_SECURITY unless it is
// allowed. bound: the address that others may connect to; a port of 0 is filled in.
NODISCARD status control_listen(const char *address, bool allow_wildcard, int *fd,
                                char bound[CONTROL_ADDRESS_BYTES]);
// Connected within the time, non-blocking; ST_PEER_LOST: nobody listens there yet.
NODISCARD status control_connect(const char *address, int timeout_ms, int *fd);
// -1: nobody waits. A Unix socket of another user is closed and skipped.
int control_accept(int listen_fd);
// Bytes moved; 0: would block; -1: the other end is gone.
int64_t control_read(int fd, void *buffer, int64_t bytes);
int64_t control_write(int fd, const void *bytes, int64_t count);

// This process, for its peers.
NODISCARD status control_self(const host *h, control_peer *out);
// False: it has ended. Else *fd becomes readable when it ends, or is -1: this process may open no more.
bool control_watch(const control_peer *peer, int *fd);
bool control_is_running(const control_peer *peer); // see control_runs

#ifdef __cplusplus
}
#endif
#endif
