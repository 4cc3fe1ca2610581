// Encodes a text: finds added tokens before and after the normalizers, and splits the rest.
#include "data/tokenizer/pipeline/pipeline.h"

#include <stdlib.h>
#include <string.h>

static int compare_added(const void *x, const void *y)
{
    const added_token *a = x, *b = y;
    const int first = (uint8_t)a->bytes[0], second = (uint8_t)b->bytes[0];
    if (first != second) return first < second ? -1 : 1;
    if (a->count != b->count) return a->count > b->count ? -1 : 1;
    if (a->special != b->special) return a->special ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

void pipeline_order_added(added_list *list)
{
    if (list->count > 1) {
        qsort(list->items, (size_t)list->count, sizeof(added_token), compare_added);
    }
    int64_t at = 0;
    for (int byte = 0; byte <= 256; byte++) {
        while (at < list->count && (uint8_t)list->items[at].bytes[0] < byte) at++;
        list->first[byte] = at;
    }
    const int byte = list->count > 0 ? (uint8_t)list->items[0].bytes[0] : 0;
    list->only = list->count == list->first[byte + 1] - list->first[byte] ? byte : -1;
}

// The next place from `at` on where a token may begin; `count`: there is none.
static int64_t added_next(const added_list *list, const char *text, int64_t count, int64_t at)
{
    if (list->only >= 0) {
        const char *found = memchr(text + at, list->only, (size_t)(count - at));
        return found != NULL ? found - text : count;
    }
    while (at < count && list->first[(uint8_t)text[at]] == list->first[(uint8_t)text[at] + 1]) at++;
    return at;
}

// The longest token at this place, or NULL.
static const added_token *added_at(const added_list *list, const char *text, int64_t count)
{
    const uint8_t first = (uint8_t)text[0];
    for (int64_t i = list->first[first]; i < list->first[first + 1]; i++) {
        const added_token *a = &list->items[i];
        if (a->count <= count && memcmp(a->bytes, text, (size_t)a->count) == 0) return a;
    }
    return NULL;
}

static bool is_space(const pipeline *p, uint32_t point)
{
    return point < SPLIT_CLASS_POINTS && p->classes[point] == SPLIT_SPACE;
}

// Where the white space that ends at `end` begins, and where that which begins at `at` ends.
static int64_t space_begin(const pipeline *p, const char *text, int64_t end)
{
    for (int64_t at = end; at > 0;) {
        uint32_t point = 0;
        bool torn = false;
        at--;
        while (at > 0 && ((uint8_t)text[at] & 0xc0) == 0x80) at--;
        (void)utf8_next((const uint8_t *)text + at, end - at, &point, &torn);
        if (!is_space(p, point)) break;
        end = at;
    }
    return end;
}

static int64_t space_end(const pipeline *p, const char *text, int64_t count, int64_t at)
{
    while (at < count) {
        uint32_t point = 0;
        bool torn = false;
        const int length = utf8_next((const uint8_t *)text + at, count - at, &point, &torn);
        if (length < 0 || !is_space(p, point)) break;
        at += length;
    }
    return at;
}

// Whether [from, to) of the text is not a part of a longer word.
static bool stands_alone(const char *text, int64_t count, int64_t from, int64_t to)
{
    uint32_t point = 0;
    bool torn = false;
    if (to < count && utf8_next((const uint8_t *)text + to, count - to, &point, &torn) > 0 &&
        unicode_is(UNICODE_WORD, point)) {
        return false;
    }
    if (from == 0) return true;
    int64_t last = from - 1;
    while (last > 0 && ((uint8_t)text[last] & 0xc0) == 0x80) last--;
    (void)utf8_next((const uint8_t *)text + last, from - last, &point, &torn);
    return !unicode_is(UNICODE_WORD, point);
}

// flags: DATA_ENCODE_*; CONTINUES and GOES_ON are those of this stretch.
static status walk(pipeline *p, int list, const char *text, int64_t count, int flags, bool is_start,
                   data_ids *out);

// A part without added tokens of lists 0 to `list`.
static status plain(pipeline *p, int list, const char *text, int64_t count, int flags,
                    bool is_start, data_ids *out)
{
    if (list == 1) return pipeline_split(p, 0, text, count, is_start, out);
    const char *normal = NULL;
    TRY(pipeline_normalize(p, text, count, flags, &normal, &count));
    return walk(p, 1, normal, count, flags, is_start, out);
}

// The flags of a part: only the first of a piece continues another, only the last goes on.
static int part(int flags, int64_t begin, bool is_last)
{
    if (begin > 0) flags &= ~DATA_ENCODE_CONTINUES;
    return is_last ? flags : flags & ~DATA_ENCODE_GOES_ON;
}

// A special token that is not asked for still covers its characters: no other token is found within
// them, as in the reference.
static status walk(pipeline *p, int list, const char *text, int64_t count, int flags, bool is_start,
                   data_ids *out)
{
    const added_list *added = &p->added[list];
    const bool special = (flags & DATA_ENCODE_SPECIAL) != 0;
    int64_t begin = 0;
    for (int64_t at = 0; at < count && added->count > 0;) {
        at = added_next(added, text, count, at);
        if (at == count) break;
        const added_token *found = added_at(added, text + at, count - at);
        if (found == NULL) {
            at++;
            continue;
        }
        int64_t from = at, to = at + found->count;
        at = to;
        if (found->special && !special) continue;
        if (found->single_word && !stands_alone(text, count, from, to)) continue;
        if (found->left) from = max_i64(space_begin(p, text, from), begin);
        if (found->right) to = space_end(p, text, count, to);
        if (begin < from) {
            TRY(plain(p, list, text + begin, from - begin, part(flags, begin, false),
                      is_start && begin == 0, out));
        }
        // A token before it that took the white space may have taken all of this one.
        if (from < to) TRY(data_ids_add(out, &found->id, 1));
        begin = to;
    }
    if (begin >= count) return ST_OK;
    return plain(p, list, text + begin, count - begin, part(flags, begin, true),
                 is_start && begin == 0, out);
}

status pipeline_encode(pipeline *p, const char *text, int64_t count, int flags, data_ids *out)
{
    return walk(p, 0, text, count, flags, (flags & DATA_ENCODE_CONTINUES) == 0, out);
}
