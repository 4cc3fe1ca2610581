// Hashes that detect damage (not forgery): XXH3 64 and 128 bits, from libxxhash; CRC-32C.
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
// Below 0: a comes before b; 0: they are equal.
static inline int hash128_compare(hash128 a, hash128 b)
{
    if (a.high != b.high) return a.high < b.high ? -1 : 1;
    return a.low < b.low ? -1 : a.low > b.low;
}
// Streaming; begin allocates, end frees.
typedef struct hash_stream hash_stream;
hash_stream *hash_begin(void); // NULL: no memory
void hash_add(hash_stream *s, const void *data, int64_t bytes);
hash128 hash_end(hash_stream *s);
const char *hash128_text(hash128 h, char buffer[33]); // 32 hex digits

// CRC-32C of these bytes, continued from `before` (0: start). slow: the same without special
// instructions; plain: the same with instructions that nearly all processors have.
uint32_t crc32c(uint32_t before, const void *data, int64_t bytes);
uint32_t crc32c_slow(uint32_t before, const void *data, int64_t bytes);
uint32_t crc32c_plain(uint32_t before, const void *data, int64_t bytes);

#ifdef __cplusplus
}
#endif
#endif
