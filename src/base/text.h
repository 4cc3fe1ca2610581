// Text: a growing buffer, numbers for people, the nearest valid word.
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

// A growing string in an arena. Zero-initialise with its arena; `bytes` is NUL-terminated.
typedef struct text {
    arena *a;
    char *bytes;
    int64_t length, capacity;
} text;
NODISCARD status text_add(text *t, const char *format, ...) PRINTF_LIKE(2, 3);
NODISCARD status text_add_bytes(text *t, const void *bytes, int64_t count);
NODISCARD status text_add_json(text *t, const char *utf8); // quoted and escaped
NODISCARD status text_add_json_bytes(text *t, const char *utf8, int64_t count); // may hold NUL

// Writes the word for a shell: itself, or in single quotes where it holds a blank or another
// character that a shell does not take literally. In `a`.
NODISCARD status text_quote(arena *a, const char *word, const char **out);

// "1.25 GiB", "37 B". Returns buffer.
const char *text_bytes_human(int64_t bytes, char buffer[32]);
// "41.2k", "3.1M", "950".
const char *text_count_human(double value, char buffer[32]);
// "2,048", "-12,345,678".
const char *text_grouped(int64_t value, char buffer[32]);
// The ending of a noun that follows a number: "" after 1, else the given one.
const char *text_plural(int64_t count, const char *ending);
// "3h31m", "12.4s".
const char *text_duration_human(double seconds, char buffer[32]);

// The candidate with the least Damerau-Levenshtein distance, for "did you mean". If none is within
// a third of the word, the shortest candidate that begins with the word, or NULL.
const char *text_nearest(const char *word, const char *const *candidates, int64_t count);

// Index of the name that the word means: an equal one, else the only one that is equal without
// letter case, '-' and '_'; -1 for none.
int64_t text_find_name(const char *word, const char *const *names, int64_t count);

// Appends "; did you mean a, b or c?" with the candidates nearest to the word: those that contain
// it, then those of the least distance. Nothing if there is no candidate.
enum { TEXT_NEAREST = 3 };
NODISCARD status text_add_nearest(text *t, const char *word, const char *const *candidates,
                                  int64_t count);

// Strict number parsing of a whole NUL-terminated string; false if it is not one or overflows.
// Integers may be written 4194304, 4_194_304, 4e6 (if whole) or with a suffix k, M, B or G (1e9),
// T, KiB, MiB, GiB, TiB.
bool text_parse_i64(const char *s, int64_t *out);
bool text_parse_f64(const char *s, double *out); // 3e-4, .5, 1, inf and nan are refused
// The value of a hexadecimal digit; -1: it is none.
static inline int text_hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}
// White space of ASCII.
static inline bool text_is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}
// Moves *bytes behind the blanks before the text, and returns the count without those around it.
static inline int64_t text_trim(const char **bytes, int64_t count)
{
    for (; count > 0 && text_is_blank(**bytes); count--) ++*bytes;
    while (count > 0 && text_is_blank((*bytes)[count - 1])) count--;
    return count;
}
bool text_is_utf8(const char *bytes, int64_t count);
// Bytes of the UTF-8 byte order mark at the beginning, which Windows editors write: 3 or 0.
int64_t text_mark_bytes(const char *bytes, int64_t count);
bool text_is_utf16(const char *bytes, int64_t count); // by its own byte order mark
// The first variable of the environment that a path names, such as $HOME or ${USER}: a shell that
// did not expand it would have a folder of that name made. NULL: none.
const char *text_find_variable(const char *path);

#ifdef __cplusplus
}
#endif
#endif
