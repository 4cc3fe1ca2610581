// Caches of generation: each has a slot of `context` rows for every sequence. The tokens at the
// beginning of one slot can be those of another.
#ifndef EXEC_CACHES_H
#define EXEC_CACHES_H

#include "exec/exec.h"

typedef struct exec_cache {
    int64_t row; // run tensor
    int64_t slot_bytes, token_bytes;
} exec_cache;

typedef struct exec_caches {
    exec_cache *all;
    int64_t count;
    void *copied; // of one slot
} exec_caches;

NODISCARD status exec_caches_find(arena *a, const plan_table *run, int64_t slots, int64_t context,
                                  exec_caches *out);
// Copies the first `tokens` tokens of a slot to another one.
NODISCARD status exec_caches_copy(exec *e, const exec_caches *c, int64_t from, int64_t to,
                                  int64_t tokens);

#endif
