// SHA-256, HMAC and HKDF, with which a process proves that it belongs to the job.
//
// Sources: FIPS 180-4, RFC 2104, RFC 5869. The code is small and part of Trireme, so that `control`
// needs no library. No branch and no table index depends on a secret. These functions detect
// forgery; base/hash.h is faster where only damage must be detected.
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

// A borrowed range of bytes.
typedef struct control_span {
    const void *data;
    int64_t bytes;
} control_span;

// HKDF extract and expand. 0 <= out_bytes <= CONTROL_HKDF_BYTES_MAX. An empty salt means 32 zeros.
void control_hkdf(control_span salt, control_span secret, control_span info, void *out,
                  int64_t out_bytes);

// The running time depends on `bytes` alone.
bool control_equal(const void *a, const void *b, int64_t bytes);
void control_wipe(void *data, int64_t bytes); // the compiler cannot remove this

#ifdef __cplusplus
}
#endif
#endif
