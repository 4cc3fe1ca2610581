// Finds the words of 64 bytes of ASCII at once.
//
// A mask has a bit for each byte. Vector instructions make the masks of letters, digits, white
// space and so on; then the alternatives of an expression are a few operations on 64-bit numbers:
//
//   text       Let's  say (x)\n\n   y = 10;
//   letters    111010011100100000 0010000000
//   a word begins at the first byte of a run, but not where the run takes the byte before it, ...
//
// A block begins where a word begins, so nothing has to be known of the text before it. Words that
// depend on bytes behind the block are left to the next one. The idea of masks is that of simdjson
// (Langdale and Lemire 2019, arXiv:1902.08318). AVX2 and AVX-512 differ in how masks are made.
#include "data/tokenizer/blocks.h"

#ifdef __x86_64__
#    include <immintrin.h>

// Bytes at the end of a block whose words depend on what follows.
enum { BLOCK_AHEAD = 4 };

typedef struct block_masks {
    uint64_t letters, upper, digits, spaces;    // spaces: all white space
    uint64_t blanks, breaks, apostrophes, wide; // ' '; '\n' and '\r'; wide: beyond ASCII
    uint64_t slashes;
} block_masks;

// Bytes of a contraction behind the apostrophe at `text`, in small letters or, if `any_case`, any;
// 0: none.
static inline int contraction_at(const uint8_t *text, bool any_case)
{
    const int bit = any_case ? 0x20 : 0, a = text[1] | bit, b = text[2] | bit;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    return ((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

static inline uint64_t bit_at(int i)
{
    return i < 64 ? UINT64_C(1) << i : 0;
}

// ' ?\p{N}+' and the like of GPT-2: a run takes the blank before it.
static inline uint64_t starts_gpt2(const uint8_t *text, const block_masks *m, uint64_t marks)
{
    const uint64_t runs = (m->letters & ~(m->letters << 1)) | (m->digits & ~(m->digits << 1)) |
                          (marks & ~(marks << 1));
    const uint64_t alone = runs & ~(m->blanks << 1);
    uint64_t starts = alone | (m->spaces & ~(m->spaces << 1)) | (m->spaces & ~(m->spaces >> 1));
    for (uint64_t c = alone & m->apostrophes & (m->letters >> 1); c != 0; c &= c - 1) {
        const int at = __builtin_ctzll(c), bytes = contraction_at(text + at, false);
        if (bytes > 0) starts = (starts & ~bit_at(at + 1)) | bit_at(at + bytes);
    }
    return starts;
}

// Groups of up to three digits, or of one.
static inline uint64_t starts_of_digits(uint64_t digits, int most)
{
    if (most == 1) return digits;
    const uint64_t three = digits & (digits << 1) & (digits << 2);
    uint64_t starts = 0;
    for (uint64_t at = digits & ~(digits << 1); at != 0; at = (at << 3) & three) starts |= at;
    return starts;
}

// White space: line breaks behind marks belong to them; then all up to the last line break is a
// word, and all but the last character of what is left.
static inline uint64_t starts_of_spaces(const block_masks *m, uint64_t marks)
{
    const uint64_t behind = (marks << 1) & m->breaks; // an addition carries on to the run's end
    const uint64_t taken = m->breaks & ~(m->breaks + behind);
    const uint64_t spaces = m->spaces & ~taken, others = spaces & ~m->breaks;
    uint64_t starts = (spaces & ~(spaces << 1)) | (others & ~(m->spaces >> 1));
    for (uint64_t c = others & ((spaces & m->breaks) << 1); c != 0; c &= c - 1) {
        const int at = __builtin_ctzll(c), end = at + __builtin_ctzll(~(others >> at));
        if ((m->breaks & bit_at(end)) == 0) starts |= bit_at(at);
    }
    return starts;
}

// Llama 3, Qwen 2, cl100k: a run of letters takes the one character before it that is neither a
// letter nor a digit nor a line break.
static inline uint64_t starts_llama3(const scanner *s, const uint8_t *text, const block_masks *m,
                                     uint64_t marks)
{
    const uint64_t letters = m->letters, begins = marks & ~(marks << 1) & ~(m->blanks << 1);
    const uint64_t single = begins & ~(marks >> 1) & (letters >> 1);
    const uint64_t before = single | (m->spaces & ~m->breaks);
    uint64_t starts = (letters & ~(letters << 1) & ~(before << 1)) | begins |
                      starts_of_digits(m->digits, s->digits) | starts_of_spaces(m, marks);
    if (!s->has_cases) {
        for (uint64_t c = single & m->apostrophes; c != 0; c &= c - 1) {
            const int at = __builtin_ctzll(c), bytes = contraction_at(text + at, true);
            if (bytes > 0) starts |= bit_at(at + bytes);
        }
        return starts;
    }
    // o200k: a word has no small letter before a large one, and a contraction at its end.
    starts |= m->upper & ((letters & ~m->upper) << 1);
    int done = -1;
    for (uint64_t c = m->apostrophes & (letters << 1) & (letters >> 1); c != 0; c &= c - 1) {
        const int at = __builtin_ctzll(c), bytes = contraction_at(text + at, true);
        if (bytes == 0 || at == done) continue; // a word has one
        done = at + bytes;
        starts = (starts & ~((bit_at(done) - 1) & ~(bit_at(at) - 1))) | bit_at(done);
    }
    return starts;
}

static inline uint64_t starts_of(const scanner *s, const uint8_t *text, const block_masks *m)
{
    const int count = m->wide != 0 ? __builtin_ctzll(m->wide) : BLOCK_BYTES;
    if (count <= BLOCK_AHEAD) return 0;
    const uint64_t known = ~UINT64_C(0) >> (BLOCK_BYTES - count);
    const uint64_t marks = ~(m->letters | m->digits | m->spaces) & known;
    const uint64_t others = ~m->spaces & known;
    if (others == 0 || (s->takes_slashes && (m->slashes & (m->breaks << 1)) != 0)) return 0;
    // White space at the end may go on behind the block.
    const int dark = BLOCK_BYTES - __builtin_clzll(others);
    const int last = dark < count - BLOCK_AHEAD ? dark : count - BLOCK_AHEAD;
    const uint64_t starts =
        s->kind == SCANNER_GPT2 ? starts_gpt2(text, m, marks) : starts_llama3(s, text, m, marks);
    return starts & (((UINT64_C(1) << last) << 1) - 1) & ~UINT64_C(1);
}

// ---- masks --------------------------------------------------------------------------------------

#    define AVX2   __attribute__((target("avx2,bmi,bmi2,lzcnt")))
#    define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx2,bmi,bmi2,lzcnt")))

AVX2 static inline uint64_t mask_avx2(__m256i low, __m256i high)
{
    return (uint32_t)_mm256_movemask_epi8(low) | (uint64_t)(uint32_t)_mm256_movemask_epi8(high)
                                                     << 32;
}

AVX2 static inline uint64_t equal_avx2(const __m256i v[2], char c)
{
    const __m256i wanted = _mm256_set1_epi8(c);
    return mask_avx2(_mm256_cmpeq_epi8(v[0], wanted), _mm256_cmpeq_epi8(v[1], wanted));
}

// Bytes [first, first + count): signed, they become the lowest ones.
AVX2 static inline uint64_t range_avx2(const __m256i v[2], int first, int count)
{
    const __m256i shift = _mm256_set1_epi8((char)(0x80 - first));
    const __m256i limit = _mm256_set1_epi8((char)(count - 128));
    return mask_avx2(_mm256_cmpgt_epi8(limit, _mm256_add_epi8(v[0], shift)),
                     _mm256_cmpgt_epi8(limit, _mm256_add_epi8(v[1], shift)));
}

AVX2 static uint64_t starts_avx2(const scanner *s, const uint8_t *text)
{
    const __m256i small_bit = _mm256_set1_epi8(0x20);
    const __m256i v[2] = {_mm256_loadu_si256((const __m256i *)(const void *)text),
                          _mm256_loadu_si256((const __m256i *)(const void *)(text + 32))};
    const __m256i small[2] = {_mm256_or_si256(v[0], small_bit), _mm256_or_si256(v[1], small_bit)};
    const uint64_t blanks = equal_avx2(v, ' ');
    const block_masks m = {.letters = range_avx2(small, 'a', 26),
                           .upper = s->has_cases ? range_avx2(v, 'A', 26) : 0,
                           .digits = range_avx2(v, '0', 10),
                           .spaces = range_avx2(v, '\t', 5) | blanks,
                           .blanks = blanks,
                           .breaks = equal_avx2(v, '\n') | equal_avx2(v, '\r'),
                           .apostrophes = equal_avx2(v, '\''),
                           .slashes = s->takes_slashes ? equal_avx2(v, '/') : 0,
                           .wide = mask_avx2(v[0], v[1])};
    return starts_of(s, text, &m);
}

AVX512 static inline uint64_t range_avx512(__m512i v, int first, int count)
{
    const __m512i shifted = _mm512_sub_epi8(v, _mm512_set1_epi8((char)first));
    return _mm512_cmplt_epu8_mask(shifted, _mm512_set1_epi8((char)count));
}

AVX512 static inline uint64_t equal_avx512(__m512i v, char c)
{
    return _mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8(c));
}

AVX512 static uint64_t starts_avx512(const scanner *s, const uint8_t *text)
{
    const __m512i v = _mm512_loadu_si512(text);
    const __m512i small = _mm512_or_si512(v, _mm512_set1_epi8(0x20));
    const uint64_t blanks = equal_avx512(v, ' ');
    const block_masks m = {.letters = range_avx512(small, 'a', 26),
                           .upper = s->has_cases ? range_avx512(v, 'A', 26) : 0,
                           .digits = range_avx512(v, '0', 10),
                           .spaces = range_avx512(v, '\t', 5) | blanks,
                           .blanks = blanks,
                           .breaks = equal_avx512(v, '\n') | equal_avx512(v, '\r'),
                           .apostrophes = equal_avx512(v, '\''),
                           .slashes = s->takes_slashes ? equal_avx512(v, '/') : 0,
                           .wide = _mm512_movepi8_mask(v)};
    return starts_of(s, text, &m);
}

blocks_fn blocks_for(const scanner *s)
{
    if (s->kind == SCANNER_OTHER || !__builtin_cpu_supports("bmi2")) return NULL;
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
        return starts_avx512;
    }
    return __builtin_cpu_supports("avx2") ? starts_avx2 : NULL;
}

#else

blocks_fn blocks_for(const scanner *s)
{
    (void)s;
    return NULL;
}

#endif
