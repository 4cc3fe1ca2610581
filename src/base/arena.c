// Host arenas: a list of blocks, each twice as large as the last, filled from the front.
//
//   block: [header | object | redzone | object | redzone | ... unused]
//
// Invariants: blocks before `current` are full or skipped, and blocks after it are empty. The arena
// never handed out the bytes of a block above `dirty`, so they are still zero, as calloc gave them.
// The arena clears an object below `dirty` when it hands those bytes out again. Redzones exist only
// under AddressSanitizer and count neither as used nor against the limit, so numbers are equal in
// all builds. Large blocks are mapped pages, huge pages where the system has them: layout searches
// fill gigabytes, and huge pages halve the time of their page faults.
#include "base/arena.h"
#include "base/fault.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#    define ARENA_ASAN 1
#elif defined(__has_feature)
#    if __has_feature(address_sanitizer)
#        define ARENA_ASAN 1
#    endif
#endif
#ifdef ARENA_ASAN
#    include <sanitizer/asan_interface.h>
#    define POISON(address, bytes)   __asan_poison_memory_region((address), (size_t)(bytes))
#    define UNPOISON(address, bytes) __asan_unpoison_memory_region((address), (size_t)(bytes))
enum { REDZONE_BYTES = 32 };
#else
#    define POISON(address, bytes)   ((void)(address), (void)(bytes))
#    define UNPOISON(address, bytes) ((void)(address), (void)(bytes))
enum { REDZONE_BYTES = 0 };
#endif

enum {
    ALIGNMENT = 16,
    FIRST_BLOCK_BYTES = 16 << 10,
    LARGEST_BLOCK_BYTES = 16 << 20,
    MAPPED_BLOCK_BYTES = 4 << 20 // blocks of at least this size are mapped
};

typedef struct arena_block {
    struct arena_block *next;
    int64_t bytes; // capacity after the header
    int64_t used, dirty;
} arena_block;

_Static_assert(sizeof(arena_block) % ALIGNMENT == 0, "objects start aligned");

struct arena {
    char *name;
    int64_t limit_bytes, used_bytes;
    int64_t next_block_bytes;
    arena_block *first, *current;
    pthread_mutex_t lock; // held while the arena is shared
    bool shared;
};

static char *block_data(arena_block *b)
{
    return (char *)(b + 1);
}

// Returns a zeroed block, or NULL without memory.
static arena_block *block_make(int64_t bytes)
{
    const size_t all = sizeof(arena_block) + (size_t)bytes;
    if (bytes < MAPPED_BLOCK_BYTES) {
        arena_block *b = calloc(1, all);
        if (b != NULL) b->bytes = bytes;
        return b;
    }
    void *at = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return NULL;
    (void)madvise(at, all, MADV_HUGEPAGE); // a hint: a failure costs only speed
    arena_block *b = at;
    b->bytes = bytes;
    return b;
}

static void block_free(arena_block *b)
{
    UNPOISON(block_data(b), b->bytes);
    if (b->bytes < MAPPED_BLOCK_BYTES) {
        free(b);
    } else {
        (void)munmap(b, sizeof(*b) + (size_t)b->bytes);
    }
}

status arena_create(const char *name, int64_t limit_bytes, arena **out)
{
    arena *a = calloc(1, sizeof(*a));
    char *copy = strdup(name);
    if (a == NULL || copy == NULL) {
        free(a);
        free(copy);
        return fail(ST_NO_MEMORY, "arena %s: no memory for the arena itself", name);
    }
    a->name = copy;
    (void)pthread_mutex_init(&a->lock, NULL);
    a->limit_bytes = limit_bytes;
    a->next_block_bytes = FIRST_BLOCK_BYTES;
    *out = a;
    return ST_OK;
}

void arena_destroy(arena *a)
{
    if (a == NULL) return;
    for (arena_block *b = a->first, *next; b != NULL; b = next) {
        next = b->next;
        block_free(b);
    }
    (void)pthread_mutex_destroy(&a->lock);
    free(a->name);
    free(a);
}

void arena_share(arena *a, bool shared)
{
    a->shared = shared;
}

void arena_reset(arena *a)
{
    for (arena_block *b = a->first; b != NULL; b = b->next) {
        b->used = 0;
        POISON(block_data(b), b->bytes);
    }
    a->current = a->first;
    a->used_bytes = 0;
}

int64_t arena_used_bytes(const arena *a)
{
    return a->used_bytes;
}

// Makes `current` a block with space for `bytes`.
static status find_block(arena *a, int64_t bytes)
{
    arena_block *last = NULL;
    for (arena_block *b = a->current; b != NULL; last = b, b = b->next) {
        if (b->bytes - b->used >= bytes) {
            a->current = b;
            return ST_OK;
        }
    }
    const int64_t size = max_i64(bytes, a->next_block_bytes);
    arena_block *b = block_make(size);
    if (b == NULL) {
        return fail(ST_NO_MEMORY, "arena %s: the system gave no block of %lld bytes (%lld in use)",
                    a->name, (long long)size, (long long)a->used_bytes);
    }
    POISON(block_data(b), size);
    if (last == NULL) {
        a->first = b;
    } else {
        last->next = b;
    }
    a->current = b;
    a->next_block_bytes = min_i64(a->next_block_bytes * 2, LARGEST_BLOCK_BYTES);
    return ST_OK;
}

// Clears the object from byte `kept` on; the caller writes the bytes before.
static status take(arena *a, int64_t bytes, int64_t kept, void **out)
{
    if (fault_point("arena.alloc") != ST_OK) {
        return fail(ST_NO_MEMORY, "arena %s: fault point arena.alloc", a->name);
    }
    if (bytes < 0 || bytes > INT64_MAX / 4) {
        return fail(ST_NO_MEMORY, "arena %s: an object of %lld bytes is impossible", a->name,
                    (long long)bytes);
    }
    const int64_t rounded = align_up(max_i64(bytes, 1), ALIGNMENT);
    if (a->limit_bytes > 0 && rounded > a->limit_bytes - a->used_bytes) {
        return fail(ST_NO_MEMORY, "arena %s: %lld bytes wanted, %lld of %lld in use", a->name,
                    (long long)bytes, (long long)a->used_bytes, (long long)a->limit_bytes);
    }
    TRY(find_block(a, rounded + REDZONE_BYTES));
    arena_block *b = a->current;
    char *object = block_data(b) + b->used;
    UNPOISON(object, max_i64(bytes, 1));
    const int64_t old = min_i64(bytes, b->dirty - b->used); // bytes that were handed out before
    if (old > kept) memset(object + kept, 0, (size_t)(old - kept));
    b->used += rounded + REDZONE_BYTES;
    b->dirty = max_i64(b->dirty, b->used);
    a->used_bytes += rounded;
    *out = object;
    return ST_OK;
}

static status take_locked(arena *a, int64_t bytes, int64_t kept, void **out)
{
    if (!a->shared) return take(a, bytes, kept, out);
    pthread_mutex_lock(&a->lock);
    const status st = take(a, bytes, kept, out);
    pthread_mutex_unlock(&a->lock);
    return st;
}

status arena_alloc(arena *a, int64_t bytes, void **out)
{
    return take_locked(a, bytes, 0, out);
}

// The caller writes the first `kept` elements.
static status take_array(arena *a, int64_t count, int64_t item_bytes, int64_t kept, void **out)
{
    int64_t bytes;
    if (!size_mul(count, item_bytes, &bytes)) {
        return fail(ST_NO_MEMORY, "arena %s: an array of %lld elements of %lld bytes is impossible",
                    a->name, (long long)count, (long long)item_bytes);
    }
    return take_locked(a, bytes, kept * item_bytes, out);
}

status arena_alloc_array(arena *a, int64_t count, int64_t item_bytes, void **out)
{
    return take_array(a, count, item_bytes, 0, out);
}

status arena_strdup(arena *a, const char *text, char **out)
{
    const size_t bytes = strlen(text) + 1;
    void *copy;
    TRY(arena_alloc(a, (int64_t)bytes, &copy));
    memcpy(copy, text, bytes);
    *out = copy;
    return ST_OK;
}

status arena_format(arena *a, char **out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0) return fail(ST_INTERNAL, "arena %s: a text cannot be formatted", a->name);
    void *text;
    TRY(arena_alloc(a, (int64_t)length + 1, &text));
    va_start(args, format);
    vsnprintf(text, (size_t)length + 1, format, args);
    va_end(args);
    *out = text;
    return ST_OK;
}

status arena_grow(arena *a, void **items, int64_t *capacity, int64_t wanted, int64_t item_bytes)
{
    if (wanted <= *capacity) return ST_OK;
    const int64_t doubled = *capacity > INT64_MAX / 2 ? wanted : *capacity * 2;
    const int64_t count = max_i64(max_i64(doubled, wanted), 8);
    void *grown;
    TRY(take_array(a, count, item_bytes, *capacity, &grown));
    if (*capacity > 0) memcpy(grown, *items, (size_t)(*capacity * item_bytes));
    *items = grown;
    *capacity = count;
    return ST_OK;
}
