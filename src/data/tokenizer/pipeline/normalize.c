// Runs the normalizers over a stretch, from one scratch buffer to the other.
#include "data/tokenizer/pipeline/pipeline.h"

static bool is_space(const pipeline *p, const char *text, int64_t count, int *length)
{
    uint32_t point = 0;
    bool torn = false;
    *length = utf8_next((const uint8_t *)text, count, &point, &torn);
    return *length > 0 && point < SPLIT_CLASS_POINTS && p->classes[point] == SPLIT_SPACE;
}

static status strip(const pipeline *p, const normalizer *n, const char *text, int64_t count,
                    data_bytes *out)
{
    int64_t begin = 0, end = count;
    int length = 0;
    while (n->left && begin < count && is_space(p, text + begin, count - begin, &length)) {
        begin += length;
    }
    while (n->right && end > begin) {
        int64_t last = end - 1;
        while (last > begin && ((uint8_t)text[last] & 0xc0) == 0x80) last--;
        if (!is_space(p, text + last, end - last, &length)) break;
        end = last;
    }
    return data_bytes_add(out, text + begin, end - begin);
}

static status replace(pipeline *p, const normalizer *n, const char *text, int64_t count,
                      data_bytes *out)
{
    TRY(pattern_pieces(&n->pattern, text, count, &p->matches));
    for (int64_t i = 0; i < p->matches.count; i++) {
        const piece *found = &p->matches.items[i];
        if (found->is_match) {
            TRY(data_bytes_add(out, n->text, n->text_bytes));
        } else {
            TRY(data_bytes_add(out, text + found->begin, found->end - found->begin));
        }
    }
    return ST_OK;
}

static status run(pipeline *p, const normalizer *n, const char *text, int64_t count,
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
        return strip(p, n, text, count, out);
    case NORMALIZER_PREPEND:
        if (count > 0) TRY(data_bytes_add(out, n->text, n->text_bytes));
        break;
    }
    return data_bytes_add(out, text, count);
}

status pipeline_normalize(pipeline *p, const char *text, int64_t count, const char **result,
                          int64_t *result_count)
{
    for (int i = 0; i < p->normalizer_count; i++) {
        data_bytes *out = &p->normal[i % 2];
        out->count = 0;
        TRY(run(p, &p->normalizers[i], text, count, out));
        text = out->items;
        count = out->count;
        if (count > TOKENIZER_TEXT_MAX) {
            return fail(ST_DATA,
                        "the tokenizer's normalizers make %lld bytes of a text; at most "
                        "%lld can be encoded at once",
                        (long long)count, (long long)TOKENIZER_TEXT_MAX);
        }
    }
    *result = text;
    *result_count = count;
    return ST_OK;
}
