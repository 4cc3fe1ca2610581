// SHA-256, HMAC and HKDF: what proves that a process belongs to the job.
//
// FIPS 180-4, RFC 2104, RFC 5869. Small and of our own, so that `control` needs no library; no branch and
// no table index depends on a secret. These find forgery; for damage alone base/hash.h is faster.
#ifndef CONTROL_CRYPTO_H
#define CONTROL_CRYPTO_H

#include "base/types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CONTROL_HASH_BYTES = 32, CONTROL_HKDF_BYTES_MAX = 255 * 32 };

typedef struct control_sha256 {
    uint32_t state[8];
    uint64_t bytes;
    uint8_t block[64];
} control_sha256;
void control_sha256_begin(control_sha256 *s);
void control_sha256_add(control_sha256 *s, const void *data, int64_t bytes);
void control_sha256_end(control_sha256 *s, uint8_t out[CONTROL_HASH_BYTES]); // wipes s
void control_sha256_of(const void *data, int64_t bytes, uint8_t out[CONTROL_HASH_BYTES]);

typedef struct control_hmac {
    control_sha256 inner, outer;
} control_hmac;
void control_hmac_begin(control_hmac *h, const void *key, int64_t key_bytes);
void control_hmac_add(control_hmac *h, const void *data, int64_t bytes);
void control_hmac_end(control_hmac *h, uint8_t out[CONTROL_HASH_BYTES]); // wipes h

// A run of bytes that is borrowed.
typedef struct control_span {
    const void *data;
    int64_t bytes;
} control_span;

// Extract and expand. 0 <= out_bytes <= CONTROL_HKDF_BYTES_MAX. An empty salt is 32 zeros.
void control_hkdf(control_span salt, control_span secret, control_span info, void *out,
                  int64_t out_bytes);

// Time depends on `bytes` alone.
bool control_equal(const void *a, const void *b, int64_t bytes);
void control_wipe(void *data, int64_t bytes); // no compiler leaves it out

#ifdef __cplusplus
}
#endif
#endif
