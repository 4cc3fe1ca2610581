// Copies of memory that is not read again soon.
#ifndef BASE_COPY_H
#define BASE_COPY_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Copies past the caches, so that the target is not read before it is overwritten; afterwards the
// source is in the cache, if it fits. The ranges do not overlap. Any thread sees the bytes after a
// lock or an atomic store that follows.
void copy_past_cache(void *to, const void *from, int64_t bytes);

#ifdef __cplusplus
}
#endif
#endif
