// MinHash signatures: words, runs of words, the least value of each hash function, bands.
//
// Hash function k is x -> a[k] x + b[k] mod 2^32 on a well-mixed 32-bit hash x of a run, so that
// eight functions fit one vector. A run of K functions over n runs of words takes K n / 8 vector
// steps, which is most of the time of near deduplication.
#include "data/corpus/minhash.h"
#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#    include <immintrin.h>
#    define HAS_AVX2 1
#else
#    define HAS_AVX2 0
#endif

enum { WIDTH = 8, UNROLL = 4, BLOCK = WIDTH * UNROLL };

void minhash_work_deinit(minhash_work *w)
{
    free(w->words);
    free(w->grams);
    *w = (minhash_work){0};
}

static status reserve(minhash_work *w, int64_t words)
{
    if (w->capacity >= words) return ST_OK;
    const int64_t grown = max_i64(4096, max_i64(words, 2 * w->capacity));
    uint64_t *moved = realloc(w->words, (size_t)grown * sizeof(*moved));
    if (moved != NULL) w->words = moved;
    uint32_t *grams = realloc(w->grams, (size_t)grown * sizeof(*grams));
    if (grams != NULL) w->grams = grams;
    if (moved == NULL || grams == NULL) {
        return fail(ST_NO_MEMORY, "no memory for %lld words", (long long)grown);
    }
    w->capacity = grown;
    return ST_OK;
}

static uint64_t mix(uint64_t x)
{
    x ^= x >> 32; // Stafford's variant 13 of the finaliser of MurmurHash3
    x *= UINT64_C(0xd6e8feb86659fd93);
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    return x ^ x >> 32;
}

// 0: white space; 1: punctuation, which is left out; otherwise the byte in lower case.
static uint8_t kind_of(uint8_t c)
{
    if (c >= 0x80 || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) return c;
    if (c >= 'A' && c <= 'Z') return (uint8_t)(c + 32);
    return c == ' ' || (c >= '\t' && c <= '\r') ? 0 : 1;
}

// Bytes of a character that is a word of its own: those of scripts without blanks (from U+2E80 on).
static int64_t own_word_bytes(const uint8_t *at, int64_t left)
{
    if (*at < 0xe2) return 0;
    const int64_t n = *at >= 0xf0 ? 4 : 3;
    if (left < n) return 0;
    if (*at == 0xe2) return at[1] >= 0xba ? n : 0;
    return *at == 0xef && at[1] >= 0xbf ? 0 : n;
}

static status find_words(minhash_work *w, const char *bytes, int64_t count, int64_t *words)
{
    const uint8_t *text_bytes = (const uint8_t *)bytes;
    uint64_t hash = 0;
    int64_t n = 0, length = 0;
    for (int64_t i = 0; i <= count; i++) {
        const int64_t own = i < count ? own_word_bytes(text_bytes + i, count - i) : 0;
        const uint8_t kind = i < count && own == 0 ? kind_of(text_bytes[i]) : 0;
        if (kind > 1) {
            hash = (hash + kind) * UINT64_C(0x9e3779b97f4a7c15);
            hash ^= hash >> 29;
            length++;
        }
        if (kind != 0) continue;
        TRY(reserve(w, n + 2));
        if (length > 0) w->words[n++] = hash;
        if (own > 0) {
            w->words[n++] = hash64(bytes + i, own, 1);
            i += own - 1;
        }
        hash = 0;
        length = 0;
    }
    *words = n;
    return ST_OK;
}

// The hashes of all runs of `ngram` words; of a shorter text, that of all its words.
static int64_t find_grams(minhash_work *w, int64_t words, int64_t ngram)
{
    const int64_t length = min_i64(words, ngram), count = words - length + 1;
    for (int64_t i = 0; i < count && words > 0; i++) {
        uint64_t hash = 0;
        for (int64_t k = 0; k < length; k++) {
            hash = hash * UINT64_C(0xff51afd7ed558ccd) + w->words[i + k];
        }
        w->grams[i] = (uint32_t)(mix(hash) >> 32);
    }
    return words > 0 ? count : 0;
}

static void make_functions(int64_t first, uint32_t a[BLOCK], uint32_t b[BLOCK])
{
    static const uint32_t key[2] = {0x4d696e48, 0x61736831};
    for (int i = 0; i < BLOCK; i += 2) {
        const uint32_t counter[4] = {(uint32_t)(first + i), 0, 0, 0};
        const philox_words r = philox4x32_10(counter, key);
        a[i] = r.w[0] | 1;
        b[i] = r.w[1];
        a[i + 1] = r.w[2] | 1;
        b[i + 1] = r.w[3];
    }
}

static void least_plain(const uint32_t *grams, int64_t n, const uint32_t *a, const uint32_t *b,
                        uint32_t *least)
{
    for (int k = 0; k < BLOCK; k++) least[k] = UINT32_MAX;
    for (int64_t i = 0; i < n; i++) {
        for (int k = 0; k < BLOCK; k++) {
            const uint32_t value = a[k] * grams[i] + b[k];
            least[k] = value < least[k] ? value : least[k];
        }
    }
}

#if HAS_AVX2
__attribute__((target("avx2"))) static void
least_avx2(const uint32_t *grams, int64_t n, const uint32_t *a, const uint32_t *b, uint32_t *least)
{
    __m256i va[UNROLL], vb[UNROLL], best[UNROLL];
    for (int k = 0; k < UNROLL; k++) {
        va[k] = _mm256_loadu_si256((const __m256i *)(const void *)(a + WIDTH * k));
        vb[k] = _mm256_loadu_si256((const __m256i *)(const void *)(b + WIDTH * k));
        best[k] = _mm256_set1_epi32(-1);
    }
    for (int64_t i = 0; i < n; i++) {
        const __m256i x = _mm256_set1_epi32((int)grams[i]);
        for (int k = 0; k < UNROLL; k++) {
            const __m256i value = _mm256_add_epi32(_mm256_mullo_epi32(va[k], x), vb[k]);
            best[k] = _mm256_min_epu32(best[k], value);
        }
    }
    for (int k = 0; k < UNROLL; k++) {
        _mm256_storeu_si256((__m256i *)(void *)(least + WIDTH * k), best[k]);
    }
}
#endif

static void least_values(const uint32_t *grams, int64_t n, int64_t values, uint32_t *least)
{
    uint32_t a[BLOCK], b[BLOCK];
    for (int64_t first = 0; first < values; first += BLOCK) {
        make_functions(first, a, b);
#if HAS_AVX2
        if (__builtin_cpu_supports("avx2")) {
            least_avx2(grams, n, a, b, least + first);
            continue;
        }
#endif
        least_plain(grams, n, a, b, least + first);
    }
}

status minhash_bands(minhash_work *w, const corpus_near *near, const char *bytes, int64_t count,
                     uint64_t *bands, uint8_t *signature)
{
    uint32_t least[CORPUS_NEAR_VALUES_MAX + BLOCK];
    int64_t words = 0;
    TRY(find_words(w, bytes, count, &words));
    const int64_t grams = find_grams(w, words, near->ngram);
    for (int64_t i = 0; grams == 0 && i < near->bands; i++) {
        bands[i] = hash64(bytes, count, (uint64_t)i + 1000);
    }
    const int64_t values = near->bands * near->rows;
    for (int64_t i = 0; grams == 0 && i < values; i++) {
        signature[i] = (uint8_t)hash64(bytes, count, (uint64_t)i + 2000);
    }
    if (grams == 0) return ST_OK;
    ASSERT(values <= CORPUS_NEAR_VALUES_MAX);
    least_values(w->grams, grams, values, least);
    for (int64_t i = 0; i < values; i++) signature[i] = (uint8_t)least[i];
    for (int64_t i = 0; i < near->bands; i++) {
        bands[i] = hash64(least + i * near->rows, 4 * near->rows, (uint64_t)i);
    }
    return ST_OK;
}

double minhash_similarity(const uint8_t *a, const uint8_t *b, int64_t count)
{
    const double chance = 1.0 / 256.0;
    int64_t equal = 0;
    for (int64_t i = 0; i < count; i++) equal += a[i] == b[i];
    return ((double)equal / (double)count - chance) / (1.0 - chance);
}
