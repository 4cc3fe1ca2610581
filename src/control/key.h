// The job's key: 256 bits that every rank of a job holds and nobody else.
//
// It comes from a file of mode 0600 or from an inherited descriptor, never from the command line or the
// environment. It lives in a page of its own that is in no core dump, is not swapped where the system
// allows that, and is wiped when it goes. It is never printed.
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
// 32 bytes, or 64 hexadecimal digits and at most a line's end. A file that others can read or write, of
// another owner, or a link, is ST_SECURITY.
NODISCARD status control_key_read(const char *path, control_key **out);
// A pipe or file at its beginning that holds the 32 bytes and no more; closes the descriptor.
NODISCARD status control_key_take(int fd, control_key **out);
// The reading end of a pipe that holds the key: what a child inherits. Close-on-exec; the caller closes.
NODISCARD status control_key_pipe(const control_key *k, int *fd);
void control_key_destroy(control_key *k); // wipes; NULL is legal

const uint8_t *control_key_bytes(const control_key *k); // borrowed

#ifdef __cplusplus
}
#endif
#endif
