// The job's key: 256 bits that all ranks of a job, and no other processes, hold.
//
// The key comes from a file of mode 0600 or from an inherited descriptor, never from the command
// line or the environment. It has a page of its own, which is excluded from core dumps, is not
// swapped where the system allows that, and is wiped when the key is destroyed. It is never
// printed.
#ifndef CONTROL_KEY_H
#define CONTROL_KEY_H

#include "base/host.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CONTROL_KEY_BYTES = 32 };

typedef struct control_key control_key;

NODISCARD status control_key_create(const host *h, control_key **out); // random
NODISCARD status control_key_copy(const uint8_t bytes[CONTROL_KEY_BYTES], control_key **out);
// The file holds 32 bytes, or 64 hexadecimal digits and at most a line ending. A file that other
// users can read or write or own, or a link, gives ST_SECURITY.
NODISCARD status control_key_read(const char *path, control_key **out);
// Reads a pipe, or a file at its beginning, that holds exactly the 32 bytes; closes the descriptor.
NODISCARD status control_key_take(int fd, control_key **out);
// Returns the reading end of a pipe that holds the key, for a child to inherit. It is
// close-on-exec; the caller closes it.
NODISCARD status control_key_pipe(const control_key *k, int *fd);
void control_key_destroy(control_key *k); // wipes; NULL is legal

const uint8_t *control_key_bytes(const control_key *k); // borrowed

#ifdef __cplusplus
}
#endif
#endif
