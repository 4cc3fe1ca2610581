// Arenas: memory by lifetime. All objects of one lifetime come from one arena and are freed
// together, so no object is freed alone and none can leak.
//
// A host arena grows by blocks and returns zeroed memory. Out of memory is a status, not an abort.
// Under ASan a redzone separates any two objects. The arena carries its own limit.
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include "base/status.h"
#include "base/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct arena arena;

// limit_bytes: 0 for none.
NODISCARD status arena_create(const char *name, int64_t limit_bytes, arena **out);
void arena_destroy(arena *a); // NULL is legal
void arena_reset(arena *a);   // forgets all objects, keeps the blocks
int64_t arena_used_bytes(const arena *a);
// Lets several threads allocate until `shared` is false again. Only allocation is thread-safe.
void arena_share(arena *a, bool shared);

// Zeroed, aligned to 16. bytes >= 0; 0 gives a valid address.
NODISCARD status arena_alloc(arena *a, int64_t bytes, void **out);
NODISCARD status arena_strdup(arena *a, const char *text, char **out);
NODISCARD status arena_format(arena *a, char **out, const char *format, ...) PRINTF_LIKE(3, 4);

// arena_new(a, count, &pointer): an array of `count` zeroed elements. A count that overflows is
// refused like one that is too large.
#define arena_new(a, count, out) \
    arena_alloc_array((a), (int64_t)(count), (int64_t)sizeof(**(out)), (void **)(out))
NODISCARD status arena_alloc_array(arena *a, int64_t count, int64_t item_bytes, void **out);

// A growing array in an arena: if `wanted` items do not fit, the function at least doubles the
// storage, copies the items and zeroes the rest. The old storage stays until the arena is
// destroyed. Usage, with
//   struct { item *items; int64_t count, capacity; } list;
//   TRY(arena_grow(a, (void **)&list.items, &list.capacity, list.count + 1, sizeof(item)));
//   list.items[list.count++] = it;
NODISCARD status arena_grow(arena *a, void **items, int64_t *capacity, int64_t wanted,
                            int64_t item_bytes);

#ifdef __cplusplus
}
#endif
#endif
