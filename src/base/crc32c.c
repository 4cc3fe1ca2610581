// CRC-32C, Castagnoli's polynomial: what files and messages of others use too (RFC 3720, B.4).
//
// With the instruction of SSE 4.2 a byte costs next to nothing, but each waits for the last: so three
// stretches are hashed side by side, and joined by multiplying with x to the power of what follows. Source:
// Gopal and others 2011, "Fast CRC computation for iSCSI polynomial using CRC32 instruction".
// Elsewhere four bits at a time from a table of sixteen.
#include "base/hash.h"

#include <string.h>

static uint32_t by_table(uint32_t crc, const uint8_t *p, int64_t bytes)
{
    static const uint32_t nibbles[16] = {
        0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
        0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
        0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
    };
    for (int64_t i = 0; i < bytes; i++) {
        crc ^= p[i];
        crc = crc >> 4 ^ nibbles[crc & 15];
        crc = crc >> 4 ^ nibbles[crc & 15];
    }
    return crc;
}

#ifdef __x86_64__
#    include <immintrin.h>

enum { STRETCH = 1024 };

static inline uint64_t word(const uint8_t *p)
{
    uint64_t w;
    memcpy(&w, p, sizeof(w));
    return w;
}

__attribute__((target("sse4.2,pclmul"))) static uint64_t moved(uint64_t crc, int64_t power)
{
    const __m128i product =
        _mm_clmulepi64_si128(_mm_cvtsi64_si128((int64_t)crc), _mm_cvtsi64_si128(power), 0);
    return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

__attribute__((target("sse4.2,pclmul"))) static uint32_t by_words(uint32_t before, const uint8_t *p,
                                                                  int64_t bytes)
{
    // x to the powers 8 n - 33 modulo the polynomial, for n bytes that follow: one stretch, two.
    static const int64_t over_one = 0x170076fa, over_two = 0xa51b6135;
    uint64_t a = before;
    for (; bytes >= 3 * STRETCH; bytes -= 3 * STRETCH, p += 3 * STRETCH) {
        uint64_t b = 0, c = 0;
        for (int64_t i = 0; i < STRETCH; i += 8) {
            a = _mm_crc32_u64(a, word(p + i));
            b = _mm_crc32_u64(b, word(p + STRETCH + i));
            c = _mm_crc32_u64(c, word(p + 2 * STRETCH + i));
        }
        a = moved(a, over_two) ^ moved(b, over_one) ^ c;
    }
    for (; bytes >= 8; bytes -= 8, p += 8) a = _mm_crc32_u64(a, word(p));
    for (; bytes > 0; bytes--, p++) a = _mm_crc32_u8((uint32_t)a, *p);
    return (uint32_t)a;
}

static bool has_instructions(void)
{
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
}
#else
static uint32_t by_words(uint32_t before, const uint8_t *p, int64_t bytes)
{
    return by_table(before, p, bytes);
}

static bool has_instructions(void)
{
    return false;
}
#endif

uint32_t crc32c(uint32_t before, const void *data, int64_t bytes)
{
    return ~(has_instructions() ? by_words(~before, data, bytes) : by_table(~before, data, bytes));
}

uint32_t crc32c_slow(uint32_t before, const void *data, int64_t bytes)
{
    return ~by_table(~before, data, bytes);
}
