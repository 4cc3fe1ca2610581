// SentencePiece's precompiled normalizer: a double-array tree from texts to places in a list of
// replacements. It applies to each user-perceived character (grapheme) of less than six bytes as a
// whole, else to its code points; of all entries that begin the text the shortest counts, as in the
// reference.
#include "data/tokenizer/pipeline/pipeline.h"

#include <string.h>
#include <utf8proc.h>

static status damaged(const char *path, const char *what)
{
    return fail(ST_DAMAGED, "%s: `precompiled_charsmap` %s", path, what);
}

status precompiled_read(arena *a, const char *path, const char *text, int64_t count,
                        precompiled *out)
{
    uint8_t *bytes = NULL;
    uint32_t tree_bytes = 0;
    data_bytes decoded = {0};
    bool valid = false;
    *out = (precompiled){.units = NULL};
    status st = tokenizer_base64(text, count, &decoded, &valid);
    const int64_t length = decoded.count;
    if (st == ST_OK && !valid) st = damaged(path, "is not base64");
    if (st == ST_OK) st = arena_new(a, length + 1, &bytes);
    if (st == ST_OK && length > 0) memcpy(bytes, decoded.items, (size_t)length);
    data_bytes_deinit(&decoded);
    TRY(st);
    if (length < 4) return damaged(path, "has no size");
    memcpy(&tree_bytes, bytes, 4);
    if (tree_bytes % 4 != 0 || tree_bytes > length - 4 || tree_bytes == 0) {
        return damaged(path, "has a size beyond its end");
    }
    TRY(arena_new(a, tree_bytes / 4, &out->units));
    memcpy(out->units, bytes + 4, tree_bytes);
    out->unit_count = tree_bytes / 4;
    out->texts = (const char *)bytes + 4 + tree_bytes;
    out->text_bytes = length - 4 - tree_bytes;
    if (utf8_valid_prefix(out->texts, out->text_bytes) == out->text_bytes) return ST_OK;
    return damaged(path, "has a replacement that is no UTF-8");
}

static uint32_t offset_of(uint32_t unit)
{
    return unit >> 10 << ((unit & 1u << 9) >> 6);
}

// The replacement of the shortest entry that begins the text; false: none.
static bool find(const precompiled *c, const char *text, int64_t count, const char **with,
                 int64_t *bytes)
{
    uint32_t at = offset_of(c->units[0]);
    for (int64_t i = 0; i < count && text[i] != 0; i++) {
        at ^= (uint8_t)text[i];
        if (at >= c->unit_count) return false;
        const uint32_t unit = c->units[at];
        if ((unit & (1u << 31 | 0xff)) != (uint8_t)text[i]) return false;
        at ^= offset_of(unit);
        if ((unit >> 8 & 1) == 0) continue;
        if (at >= c->unit_count) return false;
        const int64_t from = c->units[at] & ((1u << 31) - 1);
        if (from >= c->text_bytes || ((uint8_t)c->texts[from] & 0xc0) == 0x80) return false;
        const char *end = memchr(c->texts + from, 0, (size_t)(c->text_bytes - from));
        *with = c->texts + from;
        *bytes = end != NULL ? end - *with : c->text_bytes - from;
        return true;
    }
    return false;
}

bool precompiled_keeps_ascii(const precompiled *c)
{
    for (int point = '!'; point <= '~'; point++) {
        const char text = (char)point, *with = NULL;
        int64_t bytes = 0;
        if (!find(c, &text, 1, &with, &bytes)) continue;
        if (bytes == 0 || with[bytes - 1] <= ' ' || with[bytes - 1] > '~') return false;
        if (with[0] <= ' ' || with[0] > '~') return false;
    }
    return true;
}

// Marks of Unicode 14.0 to 17.0, which the library may not know: first and last code point.
static const uint32_t new_marks[][2] = {
    {0x897, 0x89f},     {0x8ca, 0x8d2},     {0xc3c, 0xc3c},     {0xcf3, 0xcf3},
    {0xece, 0xece},     {0x1715, 0x1715},   {0x180f, 0x180f},   {0x1ac1, 0x1ace},
    {0x1acf, 0x1add},   {0x1ae0, 0x1aeb},   {0x1dfa, 0x1dfa},   {0x10d69, 0x10d6d},
    {0x10efa, 0x10eff}, {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x11073, 0x11074},
    {0x110c2, 0x110c2}, {0x11241, 0x11241}, {0x113b8, 0x113c0}, {0x113c2, 0x113c2},
    {0x113c5, 0x113c5}, {0x113c7, 0x113ca}, {0x113cc, 0x113d0}, {0x113d2, 0x113d2},
    {0x113e1, 0x113e2}, {0x11b60, 0x11b67}, {0x11f00, 0x11f01}, {0x11f03, 0x11f03},
    {0x11f34, 0x11f3a}, {0x11f3e, 0x11f42}, {0x11f5a, 0x11f5a}, {0x13440, 0x13440},
    {0x13447, 0x13455}, {0x1611e, 0x1612f}, {0x1cf00, 0x1cf2d}, {0x1cf30, 0x1cf46},
    {0x1e08f, 0x1e08f}, {0x1e2ae, 0x1e2ae}, {0x1e4ec, 0x1e4ef}, {0x1e5ee, 0x1e5ef},
    {0x1e6e3, 0x1e6e3}, {0x1e6e6, 0x1e6e6}, {0x1e6ee, 0x1e6ef}, {0x1e6f5, 0x1e6f5}};

// A new mark extends a character as U+0301 does. Two others differ from the library's tables: one
// joins what follows as U+0600 does, one does not.
static int32_t known_point(uint32_t point)
{
    if (point == 0x113d1) return 0x600;
    if (point == 0x11a3a) return 'a';
    for (int64_t i = 0; i < COUNT_OF(new_marks) && point >= new_marks[i][0]; i++) {
        if (point <= new_marks[i][1]) return 0x301;
    }
    return (int32_t)point;
}

static int64_t grapheme_end(const char *text, int64_t count, int64_t begin)
{
    int32_t state = 0;
    uint32_t point = 0, next = 0;
    bool torn = false;
    int64_t at = begin + utf8_next((const uint8_t *)text + begin, count - begin, &point, &torn);
    while (at < count) {
        const int length = utf8_next((const uint8_t *)text + at, count - at, &next, &torn);
        if (utf8proc_grapheme_break_stateful(known_point(point), known_point(next), &state)) break;
        point = next;
        at += length;
    }
    return at;
}

status precompiled_normalize(const precompiled *c, const char *text, int64_t count, data_bytes *out)
{
    for (int64_t at = 0, end = 0; at < count; at = end) {
        const char *with = NULL;
        int64_t bytes = 0;
        TRY(pipeline_check_growth(out->count));
        end = grapheme_end(text, count, at);
        if (end - at < 6 && find(c, text + at, end - at, &with, &bytes)) {
            TRY(data_bytes_add(out, with, bytes));
            continue;
        }
        for (int64_t i = at; i < end;) {
            uint32_t point = 0;
            bool torn = false;
            const int length = utf8_next((const uint8_t *)text + i, end - i, &point, &torn);
            const bool found = find(c, text + i, length, &with, &bytes);
            TRY(data_bytes_add(out, found ? with : text + i, found ? bytes : length));
            i += length;
        }
    }
    return ST_OK;
}
