// Breaks lines at blanks. A word that is longer than a line stays whole.
#include "cli/wrap.h"

#include <string.h>

status wrap_sentences(text *out, const char *sentences, int indent, int columns)
{
    enum { COLUMNS_MIN = 40, COLUMNS_MAX = 100 }; // wider lines are hard to read
    const int64_t width = min_i64(max_i64(columns, COLUMNS_MIN), COLUMNS_MAX);
    int64_t begin = out->length; // start of the current line, which may hold a label
    while (begin > 0 && out->bytes[begin - 1] != '\n') begin--;
    int64_t at = out->length - begin;
    bool first = true;
    for (const char *s = sentences; *s != '\0'; first = false) {
        const int64_t word = (int64_t)strcspn(s, " ");
        if (!first && at + 1 + word > width) {
            TRY(text_add(out, "\n%*s", indent, ""));
            at = indent;
        } else if (!first) {
            TRY(text_add(out, " "));
            at++;
        }
        TRY(text_add_bytes(out, s, word));
        at += word;
        s += word;
        while (*s == ' ') s++;
    }
    return ST_OK;
}
