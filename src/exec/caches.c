#include "exec/caches.h"

status exec_caches_find(arena *a, const plan_table *run, int64_t slots, int64_t context,
                        exec_caches *out)
{
    int64_t most = 0;
    TRY(arena_new(a, run->count, &out->all));
    out->count = 0;
    for (int64_t i = 0; i < run->count; i++) {
        const plan_tensor *t = &run->tensors[i];
        if (t->role != ROLE_CACHE) continue;
        const int64_t token = t->dims[1] * dtype_bytes(t->type);
        ASSERT(t->dims[0] == slots * context);
        out->all[out->count++] = (exec_cache){i, token * context, token};
        most = max_i64(most, token * context);
    }
    return arena_alloc(a, most, &out->copied);
}

status exec_caches_copy(exec *e, const exec_caches *c, int64_t from, int64_t to, int64_t tokens)
{
    for (int64_t i = 0; i < c->count && tokens > 0; i++) {
        const exec_cache *one = &c->all[i];
        const int64_t bytes = tokens * one->token_bytes;
        TRY(exec_read(e, one->row, from * one->slot_bytes, c->copied, bytes));
        TRY(exec_write(e, one->row, to * one->slot_bytes, c->copied, bytes));
    }
    return ST_OK;
}
