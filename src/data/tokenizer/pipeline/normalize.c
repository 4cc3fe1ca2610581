// Runs the normalizers over a stretch, from one scratch buffer to the other.
#include "data/tokenizer/pipeline/pipeline.h"

#include <utf8proc.h>

static bool is_space(const pipeline *p, const char *text, int64_t count, int *length)
{
    uint32_t point = 0;
    bool torn = false;
    *length = utf8_next((const uint8_t *)text, count, &point, &torn);
    return *length > 0 && point < SPLIT_CLASS_POINTS && p->classes[point] == SPLIT_SPACE;
}

static status strip(const pipeline *p, const normalizer *n, const char *text, int64_t count,
                    int flags, data_bytes *out)
{
    int64_t begin = 0, end = count;
    int length = 0;
    const bool left = n->left && (flags & DATA_ENCODE_CONTINUES) == 0;
    const bool right = n->right && (flags & DATA_ENCODE_GOES_ON) == 0;
    while (left && begin < count && is_space(p, text + begin, count - begin, &length)) {
        begin += length;
    }
    while (right && end > begin) {
        int64_t last = end - 1;
        while (last > begin && ((uint8_t)text[last] & 0xc0) == 0x80) last--;
        if (!is_space(p, text + last, end - last, &length)) break;
        end = last;
    }
    return data_bytes_add(out, text + begin, end - begin);
}

status pipeline_check_growth(int64_t count)
{
    if (count <= TOKENIZER_TEXT_MAX) return ST_OK;
    return fail(ST_DATA,
                "the tokenizer's normalizers make %lld bytes of a text; at most %lld can be "
                "encoded at once; give the text in parts",
                (long long)count, (long long)TOKENIZER_TEXT_MAX);
}

static status replace(pipeline *p, const normalizer *n, const char *text, int64_t count,
                      data_bytes *out)
{
    TRY(pattern_pieces(&n->pattern, text, count, &p->matches));
    for (int64_t i = 0; i < p->matches.count; i++) {
        const piece *found = &p->matches.items[i];
        if (found->is_match) {
            TRY(data_bytes_add(out, n->text, n->text_bytes));
            TRY(pipeline_check_growth(out->count));
        } else {
            TRY(data_bytes_add(out, text + found->begin, found->end - found->begin));
        }
    }
    return ST_OK;
}

// Nmt drops these and makes blanks of those, as the reference library answers.
static const unicode_range nmt_drops[] = {{0x1, 0x8},   {0xb, 0xb},   {0xe, 0x1f},
                                          {0x7f, 0x7f}, {0x8f, 0x8f}, {0x9f, 0x9f}};
static const unicode_range nmt_blanks[] = {{0x9, 0xa},       {0xc, 0xd},       {0x1680, 0x1680},
                                           {0x200b, 0x200f}, {0x2028, 0x2029}, {0x2581, 0x2581},
                                           {0xfeff, 0xfeff}, {0xfffd, 0xfffd}};

// Appends what becomes of one character.
static status map_point(const pipeline *p, normalizer_kind kind, uint32_t point, const char *bytes,
                        int length, data_bytes *out)
{
    const bool is_space_point = point < SPLIT_CLASS_POINTS && p->classes[point] == SPLIT_SPACE;
    if (kind == NORMALIZER_CLEAN) {
        if (unicode_is(UNICODE_CONTROL, point)) return ST_OK;
        if (is_space_point) return data_bytes_add(out, " ", 1);
    } else if (kind == NORMALIZER_CHINESE && unicode_is(UNICODE_CHINESE, point)) {
        TRY(data_bytes_add(out, " ", 1));
        TRY(data_bytes_add(out, bytes, length));
        return data_bytes_add(out, " ", 1);
    } else if ((kind == NORMALIZER_BERT_ACCENTS && unicode_is(UNICODE_ACCENT, point)) ||
               (kind == NORMALIZER_STRIP_ACCENTS && unicode_is(UNICODE_MARK, point))) {
        return ST_OK;
    } else if (kind == NORMALIZER_NMT) {
        if (unicode_in(nmt_drops, COUNT_OF(nmt_drops), point)) return ST_OK;
        if (unicode_in(nmt_blanks, COUNT_OF(nmt_blanks), point)) return data_bytes_add(out, " ", 1);
    } else if (kind == NORMALIZER_LOWERCASE) {
        uint8_t small[4];
        if (point == 0x130) return data_bytes_add(out, "i\xcc\x87", 3);
        const int32_t lower = (int32_t)unicode_lower(point);
        return data_bytes_add(out, small, utf8proc_encode_char(lower, small));
    }
    return data_bytes_add(out, bytes, length);
}

static status map_points(const pipeline *p, normalizer_kind kind, const char *text, int64_t count,
                         data_bytes *out)
{
    for (int64_t at = 0; at < count;) {
        uint32_t point = 0;
        bool torn = false;
        const int length = utf8_next((const uint8_t *)text + at, count - at, &point, &torn);
        ASSERT(length > 0);
        TRY(map_point(p, kind, point, text + at, length, out));
        at += length;
    }
    return ST_OK;
}

static status spell(const char *text, int64_t count, data_bytes *out)
{
    for (int64_t i = 0; i < count; i++) {
        char one[2];
        const int length = bpe_spell_byte((uint8_t)text[i], one);
        TRY(data_bytes_add(out, one, length));
    }
    return ST_OK;
}

static status run(pipeline *p, const normalizer *n, const char *text, int64_t count, int flags,
                  data_bytes *out)
{
    switch (n->kind) {
    case NORMALIZER_NFC:
    case NORMALIZER_NFD:
    case NORMALIZER_NFKC:
    case NORMALIZER_NFKD:
        return unicode_normalize(n->kind, text, count, &p->points, out);
    case NORMALIZER_REPLACE:
        return replace(p, n, text, count, out);
    case NORMALIZER_STRIP:
        return strip(p, n, text, count, flags, out);
    case NORMALIZER_PRECOMPILED:
        return precompiled_normalize(&n->table, text, count, out);
    case NORMALIZER_LOWERCASE:
    case NORMALIZER_STRIP_ACCENTS:
    case NORMALIZER_NMT:
    case NORMALIZER_CLEAN:
    case NORMALIZER_CHINESE:
    case NORMALIZER_BERT_ACCENTS:
        return map_points(p, n->kind, text, count, out);
    case NORMALIZER_BYTE_LEVEL:
        return spell(text, count, out);
    case NORMALIZER_PREPEND:
        if (count > 0 && (flags & DATA_ENCODE_CONTINUES) == 0) {
            TRY(data_bytes_add(out, n->text, n->text_bytes));
        }
        break;
    }
    return data_bytes_add(out, text, count);
}

status pipeline_normalize(pipeline *p, const char *text, int64_t count, int flags,
                          const char **result, int64_t *result_count)
{
    for (int i = 0; i < p->normalizer_count; i++) {
        data_bytes *out = &p->normal[i % 2];
        out->count = 0;
        TRY(run(p, &p->normalizers[i], text, count, flags, out));
        text = out->items;
        count = out->count;
        TRY(pipeline_check_growth(count));
    }
    *result = text;
    *result_count = count;
    return ST_OK;
}
