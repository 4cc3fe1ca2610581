// GEMM micro-kernels of bf16 with the AVX-512 unit for it: tiles of 14 rows and 32 columns, as in
// fp32.
//
// A word of a panel, 32 bits, holds two steps of k, the earlier one in the lower half. An
// instruction adds both products to a sum in fp32, first the upper half's, each with one rounding
// (tested with 2,000,000 random words on a Zen 4). So every driver runs as in fp32, over words
// instead of steps, with half as many. fp32 operands (logits and their gradients) are rounded to
// nearest even while they are packed.
//
// The bits: each element of C is a sequential sum over pairs of k, from the first pair to the last.
// They depend neither on m and n nor on blocking and threads, and a GEMM that continues from C
// after an even number of steps gives the bits of one longer GEMM. The bits differ from those of
// the other units (the steps of a pair are swapped, and subnormal numbers count as zero), so strict
// mode uses this unit only if its sums continue after whole pairs, and the result is specific to
// this level.
#include "kernels/cpu/gemm_unit.h"

#include <immintrin.h>
#include <string.h>

#define UNIT      __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx512bf16,avx2,fma,f16c")))
#define UNIT_LEAF static inline UNIT __attribute__((always_inline))

enum { MR = 14, NR = 32, AHEAD = 8 };

// ---- micro-kernel -------------------------------------------------------------------------------
#define EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13)

UNIT_LEAF __m512bh pairs_of(__m512 words)
{
    return (__m512bh)_mm512_castps_si512(words);
}

UNIT static void kernel(const float *a, const float *b, gemm_sums from, gemm_sums to, int64_t kc,
                        const float *ahead, gemm_fetch later)
{
#define DECLARE(i) __m512 l##i = _mm512_setzero_ps(), h##i = _mm512_setzero_ps();
#define LOAD(i)                                        \
    l##i = _mm512_loadu_ps(from.at + i * from.stride); \
    h##i = _mm512_loadu_ps(from.at + i * from.stride + 16);
#define STEP(i)                                            \
    {                                                      \
        const __m512bh x = pairs_of(_mm512_set1_ps(a[i])); \
        l##i = _mm512_dpbf16_ps(l##i, x, low);             \
        h##i = _mm512_dpbf16_ps(h##i, x, high);            \
    }
#define STORE(i)                                   \
    _mm512_storeu_ps(to.at + i * to.stride, l##i); \
    _mm512_storeu_ps(to.at + i * to.stride + 16, h##i);

    EACH_ROW(DECLARE)
    if (from.at != NULL) {
        EACH_ROW(LOAD)
    }
    for (int64_t k = 0; k < kc; k++, a += MR, b += NR) {
        if (k % (16 / AHEAD) == 0) _mm_prefetch((const char *)(ahead + AHEAD * k), _MM_HINT_T1);
        if (k % 4 == 0) {
            _mm_prefetch(later.at, _MM_HINT_T1);
            later.at += later.stride;
        }
        const __m512bh low = pairs_of(_mm512_loadu_ps(b)), high = pairs_of(_mm512_loadu_ps(b + 16));
        EACH_ROW(STEP)
    }
    EACH_ROW(STORE)
#undef DECLARE
#undef LOAD
#undef STEP
#undef STORE
}

// ---- packing ------------------------------------------------------------------------------------
static int64_t words_of(const gemm_lines *l)
{
    return (l->kc + 1) / 2;
}

static const char *element_at(const gemm_lines *l, int64_t line, int64_t k)
{
    const int64_t index = line * l->line_stride + k * l->k_stride;
    return (const char *)l->data + index * (l->type == DTYPE_F32 ? 4 : 2);
}

static uint16_t bits_at(const gemm_lines *l, int64_t line, int64_t k)
{
    const char *at = element_at(l, line, k);
    if (l->type != DTYPE_F32) return *(const uint16_t *)(const void *)at;
    return bf16_from_f32(*(const float *)(const void *)at);
}

// Packs one word, for any strides; zeros follow after the lines and the last step.
static void word_put(float *panel, int64_t width, const gemm_lines *l, int64_t first, int64_t word)
{
    for (int64_t i = 0; i < width; i++) {
        uint32_t bits = 0;
        if (first + i < l->count) {
            bits = bits_at(l, first + i, 2 * word);
            if (2 * word + 1 < l->kc) bits |= (uint32_t)bits_at(l, first + i, 2 * word + 1) << 16;
        }
        memcpy(panel + word * width + i, &bits, sizeof(bits));
    }
}

// Lines that are contiguous along k: words of bf16 have the same layout in memory as in the panel
// and are transposed as words; fp32 words are rounded into a small buffer first.
enum { PIECE = 32 }; // words

UNIT static void round_along_k(float *words, const gemm_lines *l, int64_t first, int64_t count,
                               int64_t word)
{
    for (int64_t i = 0; i < count; i++) {
        const float *line = (const float *)(const void *)element_at(l, first + i, 2 * word);
        for (int64_t w = 0; w < PIECE; w += 16) {
            const __m512 low = _mm512_loadu_ps(line + 2 * w),
                         high = _mm512_loadu_ps(line + 2 * w + 16);
            const __m512bh pairs = _mm512_cvtne2ps_pbh(high, low);
            _mm512_storeu_si512(words + i * PIECE + w, (__m512i)pairs);
        }
    }
}

static void panel_along_k(float *panel, int64_t width, const gemm_lines *l, int64_t first)
{
    enum { TRANSPOSED_WORDS = 8 }; // words at a time
    const int64_t count = min_i64(width, l->count - first), whole = l->kc / 2;
    gemm_lines words = {.type = DTYPE_F32, .k_stride = 1, .count = count};
    int64_t done = 0;
    if (l->type == DTYPE_BF16 && l->line_stride % 2 == 0) {
        words.data = element_at(l, first, 0);
        words.line_stride = l->line_stride / 2;
        words.kc = done = whole - whole % TRANSPOSED_WORDS;
        gemm_avx2_pack(panel, width, &words);
    } else if (l->type == DTYPE_F32) {
        _Alignas(64) float rounded[NR * PIECE];
        words.data = rounded;
        words.line_stride = words.kc = PIECE;
        for (; done + PIECE <= whole; done += PIECE) {
            round_along_k(rounded, l, first, count, done);
            gemm_avx2_pack(panel + done * width, width, &words);
        }
    }
    for (; done < words_of(l); done++) word_put(panel, width, l, first, done);
}

// Loads 16 lines that are contiguous across k, at one step of k, as bf16 in the lower halves of
// words.
UNIT_LEAF __m512i step16(const gemm_lines *l, int64_t first, int64_t k, __mmask16 lines, dtype type)
{
    const char *at = element_at(l, first, k);
    if (type == DTYPE_BF16) return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lines, at));
    const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(lines, at));
    return _mm512_cvtepu16_epi32((__m256i)rounded);
}

UNIT_LEAF void strip_across(float *panel, int64_t width, const gemm_lines *l, int64_t first,
                            int64_t begin, int64_t end, dtype type)
{
    for (int64_t s = 0; s < width; s += 16) {
        const int64_t lines = max_i64(0, min_i64(16, l->count - first - s));
        const __mmask16 read = (__mmask16)((1u << min_i64(lines, width - s)) - 1);
        const __mmask16 write = (__mmask16)((1u << min_i64(16, width - s)) - 1);
        for (int64_t word = begin; word < end; word++) {
            __m512i words = _mm512_setzero_si512();
            if (read != 0) words = step16(l, first + s, 2 * word, read, type);
            if (read != 0 && 2 * word + 1 < l->kc) {
                const __m512i later = step16(l, first + s, 2 * word + 1, read, type);
                words = _mm512_or_si512(words, _mm512_slli_epi32(later, 16));
            }
            _mm512_mask_storeu_epi32(panel + word * width + s, write, words);
        }
    }
}

// Packs some words of k at a time over all panels, so that each open row of memory is read to its
// end.
enum { ACROSS_WORDS = 8 };

UNIT_LEAF void pack_across(float *panels, int64_t width, const gemm_lines *l, dtype type)
{
    const int64_t words = words_of(l), bytes = type == DTYPE_F32 ? 4 : 2;
    for (int64_t word = 0; word < words; word += ACROSS_WORDS) {
        const int64_t end = min_i64(word + ACROSS_WORDS, words);
        for (int64_t k = 2 * end; k < min_i64(2 * (end + ACROSS_WORDS), l->kc); k++) {
            const char *row = element_at(l, 0, k);
            for (int64_t at = 0; at < l->count * bytes; at += 64)
                _mm_prefetch(row + at, _MM_HINT_T0);
        }
        float *panel = panels;
        for (int64_t first = 0; first < l->count; first += width, panel += width * words) {
            strip_across(panel, width, l, first, word, end, type);
        }
    }
}

UNIT static void pack(float *panels, int64_t width, const gemm_lines *l)
{
    ASSERT(l->type == DTYPE_BF16 || l->type == DTYPE_F32);
    if (l->line_stride == 1 && l->k_stride != 1) {
        if (l->type == DTYPE_F32) {
            pack_across(panels, width, l, DTYPE_F32);
        } else {
            pack_across(panels, width, l, DTYPE_BF16);
        }
        return;
    }
    const int64_t words = words_of(l);
    for (int64_t first = 0; first < l->count; first += width, panels += width * words) {
        if (l->k_stride == 1) {
            panel_along_k(panels, width, l, first);
        } else {
            for (int64_t word = 0; word < words; word++) word_put(panels, width, l, first, word);
        }
    }
}

const gemm_unit gemm_unit_avx512_bf16 = {
    .level = KERN_AVX512_BF16,
    .steps = 2,
    .mr = MR,
    .nr = NR,
    .ahead = AHEAD,
    .kernel = kernel,
    .pack = pack,
    .load = gemm_avx2_load,
    .store = gemm_avx2_store,
    .stream = gemm_avx2_stream,
};
