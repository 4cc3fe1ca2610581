// NFC, NFD, NFKC and NFKD as the reference does them: with the tables of Unicode 9.0, whatever
// version the library of this machine has. Characters that later versions decompose, compose or
// reorder pass unchanged, and nothing composes across them.
#include "data/tokenizer/pipeline/pipeline.h"
#include "data/tokenizer/pipeline/unicode_steps.h"

#include <stdlib.h>
#include <utf8proc.h>

// First and last code point of what is newer than Unicode 9.0 and has a decomposition or a
// combining class in a later version, or is a part of such a decomposition.
static const unicode_range newer[] = {
    {0x7fd, 0x7fd},     {0x898, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},
    {0xc3c, 0xc3c},     {0xd3b, 0xd3c},     {0xeba, 0xeba},     {0x1715, 0x1715},
    {0x1abf, 0x1ace},   {0x1df6, 0x1dfa},   {0x32ff, 0x32ff},   {0xa7f1, 0xa7f4},
    {0xa82c, 0xa82c},   {0xab69, 0xab69},   {0x105c9, 0x105c9}, {0x105d2, 0x105d2},
    {0x105da, 0x105da}, {0x105e4, 0x105e4}, {0x10780, 0x107ba}, {0x10d24, 0x10d27},
    {0x10d69, 0x10d6d}, {0x10eab, 0x10eac}, {0x10efa, 0x10eff}, {0x10f46, 0x10f50},
    {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x1133b, 0x1133b}, {0x11380, 0x113e2},
    {0x1145e, 0x1145e}, {0x116b6, 0x116b7}, {0x11839, 0x1183a}, {0x11930, 0x11930},
    {0x11935, 0x11935}, {0x11938, 0x11938}, {0x1193d, 0x1193e}, {0x11943, 0x11943},
    {0x119e0, 0x119e0}, {0x11a34, 0x11a34}, {0x11a47, 0x11a47}, {0x11a99, 0x11a99},
    {0x11d42, 0x11d42}, {0x11d44, 0x11d45}, {0x11d97, 0x11d97}, {0x11f41, 0x11f42},
    {0x1611e, 0x1612f}, {0x16d63, 0x16d6a}, {0x16ff0, 0x16ff1}, {0x1ccd6, 0x1ccf9},
    {0x1e030, 0x1e06d}, {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae},
    {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef}, {0x1e5ee, 0x1e5ef}, {0x1f16c, 0x1f16c},
    {0x1fbf0, 0x1fbf9},
};

static bool is_newer(uint32_t point)
{
    return unicode_in(newer, COUNT_OF(newer), point);
}

// A mark with its place, so that sorting keeps the order of equal classes.
typedef struct mark {
    int32_t class, at, point;
} mark;

static int compare_marks(const void *x, const void *y)
{
    const mark *a = x, *b = y;
    if (a->class != b->class) return a->class < b->class ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

// Sorts a run of marks by combining class. Short runs are sorted where they stand.
static status sort_run(int32_t *points, int64_t count)
{
    mark few[64], *marks = few;
    if (count > COUNT_OF(few)) {
        marks = malloc((size_t)count * sizeof(*marks));
        if (marks == NULL) return fail(ST_NO_MEMORY, "no memory for %lld marks", (long long)count);
    }
    for (int64_t i = 0; i < count; i++) {
        marks[i] = (mark){utf8proc_get_property(points[i])->combining_class, (int32_t)i, points[i]};
    }
    qsort(marks, (size_t)count, sizeof(*marks), compare_marks);
    for (int64_t i = 0; i < count; i++) points[i] = marks[i].point;
    if (marks != few) free(marks);
    return ST_OK;
}

static status flush(data_ids *points, bool composes, data_bytes *out)
{
    int32_t *p = points->items;
    for (int64_t i = 0; i < points->count;) {
        int64_t end = i;
        while (end < points->count && utf8proc_get_property(p[end])->combining_class != 0) end++;
        if (end - i > 1) TRY(sort_run(p + i, end - i));
        i = end + 1;
    }
    utf8proc_ssize_t count = points->count;
    if (composes && count > 1) {
        count = utf8proc_normalize_utf32(p, count, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    }
    ASSERT(count >= 0);
    for (int64_t i = 0; i < count; i++) {
        uint8_t bytes[4];
        TRY(data_bytes_add(out, bytes, utf8proc_encode_char(p[i], bytes)));
    }
    points->count = 0;
    return ST_OK;
}

static bool is_plain(const char *text, int64_t count, uint8_t limit)
{
    for (int64_t i = 0; i < count; i++) {
        if ((uint8_t)text[i] >= limit) return false;
    }
    return true;
}

status unicode_normalize(normalizer_kind kind, const char *text, int64_t count, data_ids *points,
                         data_bytes *out)
{
    const bool composes = kind == NORMALIZER_NFC || kind == NORMALIZER_NFKC;
    const bool is_compatible = kind == NORMALIZER_NFKC || kind == NORMALIZER_NFKD;
    const utf8proc_option_t options =
        UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (is_compatible ? UTF8PROC_COMPAT : 0);
    // No character below U+0300 changes in NFC.
    if (is_plain(text, count, kind == NORMALIZER_NFC ? 0xcc : 0x80)) {
        return data_bytes_add(out, text, count);
    }
    points->count = 0;
    for (int64_t at = 0; at < count;) {
        uint32_t point = 0;
        bool torn = false;
        const int length = utf8_next((const uint8_t *)text + at, count - at, &point, &torn);
        ASSERT(length > 0);
        if (point < 0x80 || is_newer(point)) TRY(flush(points, composes, out));
        if (is_newer(point)) {
            TRY(data_bytes_add(out, text + at, length));
        } else {
            enum { LONGEST = 32 };
            int32_t parts[LONGEST];
            int boundary = 0;
            const utf8proc_ssize_t n =
                utf8proc_decompose_char((int32_t)point, parts, LONGEST, options, &boundary);
            ASSERT(n > 0 && n <= LONGEST);
            TRY(data_ids_add(points, parts, n));
        }
        at += length;
    }
    return flush(points, composes, out);
}
