// Hashes that detect damage, from libxxhash. XXH3 is fast enough (tens of GB/s) to check every byte
// that a disk reads or writes.
#include "base/hash.h"

#include <stdio.h>
#if TRIREME_HAVE_XXHASH_DISPATCH
#    include <xxh_x86dispatch.h> // the same functions, by the processor's vectors
#else
#    include <xxhash.h>
#endif

struct hash_stream {
    char unused; // libxxhash owns the state; this type keeps its header out of ours
};

static XXH3_state_t *state_of(hash_stream *s)
{
    return (XXH3_state_t *)(void *)s;
}

uint64_t hash64(const void *data, int64_t bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, (size_t)bytes, seed);
}

hash128 hash128_of(const void *data, int64_t bytes)
{
    const XXH128_hash_t h = XXH3_128bits(data, (size_t)bytes);
    return (hash128){.high = h.high64, .low = h.low64};
}

hash_stream *hash_begin(void)
{
    XXH3_state_t *state = XXH3_createState();
    if (state == NULL) return NULL;
    if (XXH3_128bits_reset(state) != XXH_OK) {
        XXH3_freeState(state);
        return NULL;
    }
    return (hash_stream *)(void *)state;
}

void hash_add(hash_stream *s, const void *data, int64_t bytes)
{
    if (bytes > 0) (void)XXH3_128bits_update(state_of(s), data, (size_t)bytes);
}

hash128 hash_end(hash_stream *s)
{
    const XXH128_hash_t h = XXH3_128bits_digest(state_of(s));
    XXH3_freeState(state_of(s));
    return (hash128){.high = h.high64, .low = h.low64};
}

const char *hash128_text(hash128 h, char buffer[33])
{
    snprintf(buffer, 33, "%016llx%016llx", (unsigned long long)h.high, (unsigned long long)h.low);
    return buffer;
}
