// Walks over the character classes; split.h has the expression.
#include "data/tokenizer/split.h"

// The class of the character at `at`, and its length. The text is valid UTF-8.
static int class_at(const uint8_t *classes, const uint8_t *text, int64_t at, int64_t *length)
{
    const uint8_t *c = text + at;
    uint32_t point = c[0];
    if (c[0] < 0x80) {
        *length = 1;
    } else if (c[0] < 0xe0) {
        *length = 2;
        point = (uint32_t)(c[0] & 0x1f) << 6 | (c[1] & 0x3fu);
    } else if (c[0] < 0xf0) {
        *length = 3;
        point = (uint32_t)(c[0] & 0x0f) << 12 | (c[1] & 0x3fu) << 6 | (c[2] & 0x3fu);
    } else {
        *length = 4;
        point = (uint32_t)(c[0] & 0x07) << 18 | (c[1] & 0x3fu) << 12 | (c[2] & 0x3fu) << 6 |
                (c[3] & 0x3fu);
    }
    return point < SPLIT_CLASS_POINTS ? classes[point] : SPLIT_OTHER;
}

static int64_t run_end(const uint8_t *classes, const uint8_t *text, int64_t count, int64_t at,
                       int wanted)
{
    int64_t length = 0;
    while (at < count && class_at(classes, text, at, &length) == wanted) at += length;
    return at;
}

// Bytes of 's 't 're 've 'm 'll 'd at `at`, which is an apostrophe; 0 if none follows.
static int64_t contraction_bytes(const uint8_t *text, int64_t count, int64_t at)
{
    if (at + 1 >= count) return 0;
    const uint8_t a = text[at + 1];
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    if (at + 2 >= count) return 0;
    const uint8_t b = text[at + 2];
    return ((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

// White space: all but the last character if a word follows, so that ` ?` may take the last blank.
static int64_t space_end(const uint8_t *classes, const uint8_t *text, int64_t count, int64_t at)
{
    int64_t last = at, end = at, length = 0;
    while (end < count && class_at(classes, text, end, &length) == SPLIT_SPACE) {
        last = end;
        end += length;
    }
    return end == count || last == at ? end : last;
}

int64_t split_gpt2_next(const uint8_t classes[SPLIT_CLASS_POINTS], const uint8_t *text,
                        int64_t count, int64_t at)
{
    DEBUG_ASSERT(at < count);
    if (text[at] == '\'') {
        const int64_t bytes = contraction_bytes(text, count, at);
        if (bytes > 0) return at + bytes;
    }
    int64_t length = 0;
    int class = class_at(classes, text, at, &length);
    if (text[at] == ' ' && at + 1 < count) {
        const int next = class_at(classes, text, at + 1, &length);
        if (next != SPLIT_SPACE) return run_end(classes, text, count, at + 1, next);
    }
    if (class == SPLIT_SPACE) return space_end(classes, text, count, at);
    return run_end(classes, text, count, at, class);
}
