// Hashes that find damage (not forgery): XXH3 64 and 128 bits, from libxxhash.
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include "base/types.h"

#ifdef __cplusplus
extern "C" {
#endif

uint64_t hash64(const void *data, int64_t bytes, uint64_t seed);

typedef struct hash128 {
    uint64_t high, low;
} hash128;
hash128 hash128_of(const void *data, int64_t bytes);
// Streaming; begin allocates, end frees.
typedef struct hash_stream hash_stream;
hash_stream *hash_begin(void); // NULL: no memory
void hash_add(hash_stream *s, const void *data, int64_t bytes);
hash128 hash_end(hash_stream *s);
const char *hash128_text(hash128 h, char buffer[33]); // 32 hex digits

#ifdef __cplusplus
}
#endif
#endif
