// CRC-32C with Castagnoli's polynomial, which other programs' files and protocols use too (RFC
// 3720, B.4).
//
// The SSE 4.2 instruction hashes a byte at almost no cost, but each instruction waits for the last.
// So the code hashes three stretches side by side and joins them by multiplying with x to the power
// of the bits that follow. Source: Gopal and others 2011, "Fast CRC computation for iSCSI
// polynomial using CRC32 instruction". With 512-bit carry-less multiplication (AVX-512 and
// VPCLMULQDQ) the code folds 256 bytes into the next 256 at once, without a table or a shift.
// Source: as above, and Gopal and others 2009, "Fast CRC computation for generic polynomials using
// PCLMULQDQ instruction". It reads sequentially, so the hardware prefetches. Other machines take
// four bits at a time from a table of sixteen entries.
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
    // x to the powers 8 n - 33 modulo the polynomial, for the n bytes that follow: one stretch, two
    // stretches.
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

#    define FOLDS __attribute__((target("avx512f,vpclmulqdq,sse4.2,pclmul")))
enum { FOLDED = 256 }; // bytes per iteration

// Folds x over the distance between it and y and adds y. far: the powers of x for its low and high
// half.
FOLDS static inline __m512i fold(__m512i x, __m512i y, __m512i far)
{
    const __m512i low = _mm512_clmulepi64_epi128(x, far, 0x00);
    const __m512i high = _mm512_clmulepi64_epi128(x, far, 0x11);
    return _mm512_xor_si512(_mm512_xor_si512(low, high), y);
}

FOLDS static inline __m128i fold_quarter(__m128i x, __m128i y)
{
    const __m128i far = _mm_set_epi64x(0x493c7d27, 0xf20c0dfe); // 16 bytes
    const __m128i low = _mm_clmulepi64_si128(x, far, 0x00);
    return _mm_xor_si128(_mm_xor_si128(low, _mm_clmulepi64_si128(x, far, 0x11)), y);
}

FOLDS static inline __m512i line_at(const uint8_t *p)
{
    return _mm512_loadu_si512((const void *)p);
}

// Bit-reversed like all constants here: x to the powers 8 n + 31 and 8 n - 33 modulo the
// polynomial, for n bytes.
FOLDS static uint32_t by_folding(uint32_t before, const uint8_t *p, int64_t bytes)
{
    const __m512i over_all = _mm512_broadcast_i32x4(_mm_set_epi64x(0xb9e02b86, 0xdcb17aa4)); // 256
    const __m512i over_one = _mm512_broadcast_i32x4(_mm_set_epi64x(0x9e4addf8, 0x740eef02)); // 64
    const __m512i first = _mm512_zextsi128_si512(_mm_cvtsi32_si128((int32_t)before));
    __m512i a = _mm512_xor_si512(line_at(p), first), b = line_at(p + 64);
    __m512i c = line_at(p + 128), d = line_at(p + 192);
    for (p += FOLDED, bytes -= FOLDED; bytes >= FOLDED; bytes -= FOLDED, p += FOLDED) {
        a = fold(a, line_at(p), over_all);
        b = fold(b, line_at(p + 64), over_all);
        c = fold(c, line_at(p + 128), over_all);
        d = fold(d, line_at(p + 192), over_all);
    }
    d = fold(fold(fold(a, b, over_one), c, over_one), d, over_one);
    __m128i x = fold_quarter(_mm512_castsi512_si128(d), _mm512_extracti32x4_epi32(d, 1));
    x = fold_quarter(x, _mm512_extracti32x4_epi32(d, 2));
    x = fold_quarter(x, _mm512_extracti32x4_epi32(d, 3));
    uint64_t crc = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(x));
    crc = _mm_crc32_u64(crc, (uint64_t)_mm_extract_epi64(x, 1));
    return by_words((uint32_t)crc, p, bytes);
}

static uint32_t by_best(uint32_t before, const uint8_t *p, int64_t bytes)
{
    const bool folds = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
    return folds && bytes >= 2 * FOLDED ? by_folding(before, p, bytes) : by_words(before, p, bytes);
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

static uint32_t by_best(uint32_t before, const uint8_t *p, int64_t bytes)
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
    return ~(has_instructions() ? by_best(~before, data, bytes) : by_table(~before, data, bytes));
}

uint32_t crc32c_slow(uint32_t before, const void *data, int64_t bytes)
{
    return ~by_table(~before, data, bytes);
}

uint32_t crc32c_plain(uint32_t before, const void *data, int64_t bytes)
{
    return ~(has_instructions() ? by_words(~before, data, bytes) : by_table(~before, data, bytes));
}
