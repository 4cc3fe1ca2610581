// The scanners of Llama 3, Qwen 2, cl100k and o200k.
#include "data/tokenizer/scanner.h"
#include "data/tokenizer/pipeline/unicode_category.h"

#include <string.h>
#ifdef __SSE2__
#    include <emmintrin.h>
#endif

static uint32_t point_at(const uint8_t *c, int64_t *length)
{
    if (c[0] < 0x80) {
        *length = 1;
        return c[0];
    }
    if (c[0] < 0xe0) {
        *length = 2;
        return (uint32_t)(c[0] & 0x1f) << 6 | (c[1] & 0x3fu);
    }
    if (c[0] < 0xf0) {
        *length = 3;
        return (uint32_t)(c[0] & 0x0f) << 12 | (c[1] & 0x3fu) << 6 | (c[2] & 0x3fu);
    }
    *length = 4;
    return (uint32_t)(c[0] & 0x07) << 18 | (c[1] & 0x3fu) << 12 | (c[2] & 0x3fu) << 6 |
           (c[3] & 0x3fu);
}

// The class of the character at `at`, and its length. Beyond the table only some marks have one.
static int class_at(const scanner *s, const uint8_t *text, int64_t at, int64_t *length)
{
    const uint32_t point = point_at(text + at, length);
    if (point < SPLIT_CLASS_POINTS) return s->classes[point];
    return s->has_cases && point >= 0xe0100 && point <= 0xe01ef ? SPLIT_OTHER | SCANNER_EITHER
                                                                : SPLIT_OTHER;
}

// The number of ASCII letters at the front of 16 bytes; with set_bits 0 only of small ones.
static inline int ascii_letters(const uint8_t *text, char set_bits)
{
#ifdef __SSE2__
    const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)text);
    const __m128i lower = _mm_or_si128(bytes, _mm_set1_epi8(set_bits));
    // Signed: 'a' to 'z' become -128 to -103.
    const __m128i shifted = _mm_add_epi8(lower, _mm_set1_epi8((char)(0x80 - 'a')));
    const int others = _mm_movemask_epi8(_mm_cmpgt_epi8(shifted, _mm_set1_epi8(-128 + 25)));
    return others == 0 ? 16 : __builtin_ctz((unsigned)others);
#else
    int n = 0;
    while (n < 16 && (uint8_t)((text[n] | set_bits) - 'a') < 26) n++;
    return n;
#endif
}

static int64_t letters_end(const scanner *s, const uint8_t *text, int64_t count, int64_t at)
{
    int64_t length = 0;
    for (;;) {
        while (at + 16 <= count) {
            const int n = ascii_letters(text + at, 0x20);
            at += n;
            if (n < 16) break;
        }
        if (at >= count) return count;
        if (text[at] < 0x80 && at + 16 <= count) return at;
        do {
            if ((class_at(s, text, at, &length) & SCANNER_CLASS) != SPLIT_LETTER) return at;
            at += length;
        } while (at < count && text[at] >= 0x80);
    }
}

static int64_t class_end(const scanner *s, const uint8_t *text, int64_t count, int64_t at,
                         int wanted)
{
    int64_t length = 0;
    while (at < count && (class_at(s, text, at, &length) & SCANNER_CLASS) == wanted) at += length;
    return at;
}

static int64_t digits_end(const scanner *s, const uint8_t *text, int64_t count, int64_t at)
{
    int64_t length = 0;
    for (int n = 0; n < s->digits && at < count; n++) {
        if ((class_at(s, text, at, &length) & SCANNER_CLASS) != SPLIT_NUMBER) break;
        at += length;
    }
    return at;
}

// Bytes of (?i:'s|'t|'re|'ve|'m|'ll|'d) at `at`; 0 if it does not match. U+017F is a small s.
static int64_t contraction_bytes(const uint8_t *text, int64_t count, int64_t at)
{
    if (count - at < 2 || text[at] != '\'') return 0;
    const int a = text[at + 1] | 0x20;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    if (count - at < 3) return 0;
    const int b = text[at + 2] | 0x20;
    if (text[at + 1] == 0xc5 && text[at + 2] == 0xbf) return 3;
    return ((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

// White space: up to its last line break; else all but the last character if a word follows.
static int64_t spaces_end(const scanner *s, const uint8_t *text, int64_t count, int64_t at)
{
    int64_t last = at, end = at, length = 0, line = -1;
    while (end < count && (class_at(s, text, end, &length) & SCANNER_CLASS) == SPLIT_SPACE) {
        last = end;
        end += length;
        if (text[last] == '\n' || text[last] == '\r') line = end;
    }
    if (end == count && s->takes_tail) return end;
    if (line >= 0) return line;
    return end == count || last == at ? end : last;
}

// Marks, and the line breaks that follow them.
static int64_t marks_end(const scanner *s, const uint8_t *text, int64_t count, int64_t at)
{
    at = class_end(s, text, count, at, SPLIT_OTHER);
    while (at < count &&
           (text[at] == '\n' || text[at] == '\r' || (s->takes_slashes && text[at] == '/'))) {
        at++;
    }
    return at;
}

// Numbers, marks and white space end here, for all scanners of this file.
static int64_t others_end(const scanner *s, const uint8_t *text, int64_t count, int64_t at,
                          int class)
{
    int64_t length = 0;
    if (class == SPLIT_NUMBER) return digits_end(s, text, count, at);
    if (class == SPLIT_OTHER) return marks_end(s, text, count, at);
    if (text[at] == ' ' && at + 1 < count &&
        (class_at(s, text, at + 1, &length) & SCANNER_CLASS) == SPLIT_OTHER) {
        return marks_end(s, text, count, at + 1);
    }
    return spaces_end(s, text, count, at);
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*
// |\s*[\r\n]+|\s+(?!\S)|\s+
static int64_t next_llama3(const scanner *s, const uint8_t *text, int64_t count, int64_t at)
{
    int64_t length = 0, next = 0;
    const int class = class_at(s, text, at, &length) & SCANNER_CLASS;
    if (class == SPLIT_LETTER) return letters_end(s, text, count, at + length);
    if (text[at] == '\'') {
        const int64_t bytes = contraction_bytes(text, count, at);
        if (bytes > 0) return at + bytes;
    }
    const int64_t after = at + length;
    if (class != SPLIT_NUMBER && text[at] != '\n' && text[at] != '\r' && after < count &&
        (class_at(s, text, after, &next) & SCANNER_CLASS) == SPLIT_LETTER) {
        return letters_end(s, text, count, after + next);
    }
    return others_end(s, text, count, at, class);
}

// [upper]*[lower]+, where letters without case are both; the end, or -1. *upper is the end of
// [upper]*.
static int64_t cased_end(const scanner *s, const uint8_t *text, int64_t count, int64_t at,
                         int64_t *upper)
{
    int64_t length = 0, either_end = -1, end = at;
    int class = 0;
    while (end < count) {
        class = class_at(s, text, end, &length);
        if ((class & (SCANNER_UPPER | SCANNER_EITHER)) == 0) break;
        end += length;
        if ((class & SCANNER_EITHER) != 0) either_end = end;
    }
    *upper = end;
    if (end == count || (class & SCANNER_LOWER) == 0) return either_end;
    while (end < count) {
        if (end + 16 <= count && text[end] < 0x80) {
            const int n = ascii_letters(text + end, 0);
            end += n;
            if (n == 16) continue;
            if (text[end] < 0x80) break;
        }
        class = class_at(s, text, end, &length);
        if ((class & (SCANNER_LOWER | SCANNER_EITHER)) == 0) break;
        end += length;
    }
    return end;
}

// The words of letters of o200k: first those that end in a small letter, then those without one;
// each with one character before it, or without.
static int64_t next_o200k(const scanner *s, const uint8_t *text, int64_t count, int64_t at)
{
    int64_t length = 0, upper = 0, upper_after = 0, end = -1;
    const int class = class_at(s, text, at, &length);
    const int kind = class & SCANNER_CLASS;
    const bool is_prefix =
        kind != SPLIT_LETTER && kind != SPLIT_NUMBER && text[at] != '\n' && text[at] != '\r';
    if (is_prefix) end = cased_end(s, text, count, at + length, &upper_after);
    if (end < 0) end = cased_end(s, text, count, at, &upper);
    if (end < 0 && is_prefix && upper_after > at + length) end = upper_after;
    if (end < 0 && upper > at) end = upper;
    if (end >= 0) return end + contraction_bytes(text, count, end);
    return others_end(s, text, count, at, kind);
}

static int64_t next_gpt2(const scanner *s, const uint8_t *text, int64_t count, int64_t at)
{
    int64_t length = 0;
    if (text[at] == ' ' && at + 1 < count) {
        const int class = class_at(s, text, at + 1, &length) & SCANNER_CLASS;
        if (class == SPLIT_LETTER) return letters_end(s, text, count, at + 1 + length);
    }
    if ((class_at(s, text, at, &length) & SCANNER_CLASS) == SPLIT_LETTER) {
        return letters_end(s, text, count, at + length);
    }
    return split_gpt2_next(s->classes, text, count, at);
}

// ---- the known expressions ----------------------------------------------------------------------

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES       "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define MARKS        "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define CASED_UPPER  "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED_LOWER  "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define PREFIX       "[^\\r\\n\\p{L}\\p{N}]?"

static const struct {
    const char *expression;
    scanner scanner;
} known[] = {
    {CONTRACTIONS "|" PREFIX "\\p{L}+|\\p{N}{1,3}" MARKS SPACES,
     {.next = next_llama3, .kind = SCANNER_LLAMA3, .digits = 3}},
    {CONTRACTIONS "|" PREFIX "\\p{L}+|\\p{N}" MARKS SPACES,
     {.next = next_llama3, .kind = SCANNER_LLAMA3, .digits = 1}},
    {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}+| ?[^\\s\\p{L}\\p{N}]++"
     "[\\r\\n]*+|\\s++$|\\s*[\\r\\n]|\\s+(?!\\S)|\\s",
     {.next = next_llama3, .kind = SCANNER_LLAMA3, .digits = 3, .takes_tail = true}},
    {PREFIX CASED_UPPER "*" CASED_LOWER "+" CONTRACTIONS "?|" PREFIX CASED_UPPER "+" CASED_LOWER
                        "*" CONTRACTIONS "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" SPACES,
     {.next = next_o200k,
      .kind = SCANNER_LLAMA3,
      .digits = 3,
      .takes_slashes = true,
      .has_cases = true}},
    {"'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s++$|\\s+(?!\\S)|\\s",
     {.next = next_gpt2, .kind = SCANNER_GPT2}},
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
     {.next = next_gpt2, .kind = SCANNER_GPT2}},
};

bool scanner_find(const char *expression, int64_t bytes, scanner *out)
{
    for (int64_t i = 0; i < COUNT_OF(known); i++) {
        if ((int64_t)strlen(known[i].expression) != bytes) continue;
        if (memcmp(known[i].expression, expression, (size_t)bytes) != 0) continue;
        *out = known[i].scanner;
        return true;
    }
    return false;
}

const char *scanner_expression(int64_t i)
{
    return i < COUNT_OF(known) ? known[i].expression : NULL;
}

scanner scanner_gpt2(const uint8_t *classes)
{
    return (scanner){.next = next_gpt2, .kind = SCANNER_GPT2, .classes = classes};
}

// In the order of UNICODE_CATEGORIES: Lu Ll Lt Lm Lo Mn Mc Me.
static const uint8_t cases[] = {SCANNER_UPPER,  SCANNER_LOWER,  SCANNER_UPPER,  SCANNER_EITHER,
                                SCANNER_EITHER, SCANNER_EITHER, SCANNER_EITHER, SCANNER_EITHER};

void scanner_classes_fill(uint8_t classes[SPLIT_CLASS_POINTS])
{
    int64_t count = 0;
    const uint32_t *runs = unicode_category_runs(&count);
    split_classes_fill(classes);
    for (int64_t i = 0; i < count; i++) {
        const int64_t last = i + 1 < count ? runs[i + 1] >> 5 : SPLIT_CLASS_POINTS;
        const uint32_t category = runs[i] & 31;
        for (int64_t point = runs[i] >> 5; point < min_i64(last, SPLIT_CLASS_POINTS); point++) {
            if (category < COUNT_OF(cases)) classes[point] |= cases[category];
        }
    }
}
