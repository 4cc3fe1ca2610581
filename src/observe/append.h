// A file that grows by whole records: of a write that failed nothing stays. Internal to observe/.
#ifndef OBSERVE_APPEND_H
#define OBSERVE_APPEND_H

#include "base/host.h"

typedef struct obs_append {
    const host *h;
    file *f;
    int64_t bytes; // of whole records
    bool is_torn;  // and a part of one, which could not be cut off yet
} obs_append;

// out->f is NULL where it fails.
NODISCARD status obs_append_open(const host *h, const char *path, obs_append *out);
NODISCARD status obs_append_write(obs_append *a, const void *data, int64_t bytes);
status obs_append_close(obs_append *a);

#endif
