// A file that grows by whole records; a failed write leaves no part of a record. Internal to
// observe/.
#ifndef OBSERVE_APPEND_H
#define OBSERVE_APPEND_H

#include "base/host.h"

typedef struct obs_append {
    const host *h;
    file *f;
    int64_t bytes; // size of the whole records
    bool is_torn;  // part of a record follows, which could not be cut off yet
} obs_append;

// On failure out->f is NULL.
NODISCARD status obs_append_open(const host *h, const char *path, obs_append *out);
NODISCARD status obs_append_write(obs_append *a, const void *data, int64_t bytes);
status obs_append_close(obs_append *a);

#endif
