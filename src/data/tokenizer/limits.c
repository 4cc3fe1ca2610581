// `truncation` and `padding` of a tokenizer.json, for one text at a time. The reference cuts the
// ids of the text, so that those which the post-processor adds stay, and fills up last of all.
//
// Source: Hugging Face tokenizers 0.23, utils/truncation.rs and utils/padding.rs. A batch is one
// text here, so BatchLongest fills up to a multiple only.
#include "data/tokenizer/limits.h"

#include <string.h>

enum { LENGTH_MAX = 1 << 30 };

static bool is_absent(const json *value)
{
    return json_kind_of(value) == JSON_NONE || json_kind_of(value) == JSON_NULL_VALUE;
}

// A length of the file; `otherwise` where it is absent.
static status read_length(const char *path, const json *map, const char *key, int64_t otherwise,
                          int64_t *out)
{
    const json *value = json_get(map, key);
    *out = is_absent(value) ? otherwise : json_int(value, -1);
    if (*out >= 0 && *out <= LENGTH_MAX) return ST_OK;
    return fail(ST_DAMAGED, "%s: `%s` is no number from 0 to %d", path, key, LENGTH_MAX);
}

static status read_side(const char *path, const json *map, bool *is_left)
{
    const char *side = json_text(json_get(map, "direction"), "Right");
    *is_left = strcmp(side, "Left") == 0;
    if (*is_left || strcmp(side, "Right") == 0) return ST_OK;
    return fail(ST_DAMAGED, "%s: `direction` is \"%.40s\"; expected Left or Right", path, side);
}

static status read_truncation(const char *path, const json *map, tokenizer_limits *l)
{
    static const char *const names[] = {"LongestFirst", "OnlyFirst", "OnlySecond"};
    const char *name = json_text(json_get(map, "strategy"), "LongestFirst");
    l->truncates = true;
    TRY(read_length(path, map, "max_length", 512, &l->length_max));
    TRY(read_length(path, map, "stride", 0, &l->stride));
    TRY(read_side(path, map, &l->cuts_left));
    for (int i = 0; i < COUNT_OF(names); i++) {
        if (strcmp(name, names[i]) == 0) {
            l->strategy = i;
            return ST_OK;
        }
    }
    return fail(ST_DAMAGED, "%s: truncation `strategy` \"%.40s\" is not known", path, name);
}

static status read_padding(const char *path, const json *map, tokenizer_limits *l)
{
    const json *strategy = json_get(map, "strategy");
    l->pads = true;
    if (json_kind_of(strategy) == JSON_MAP) {
        TRY(read_length(path, strategy, "Fixed", 0, &l->length_fixed));
    } else if (strcmp(json_text(strategy, "BatchLongest"), "BatchLongest") != 0) {
        return fail(ST_DAMAGED, "%s: padding `strategy` \"%.40s\" is not known", path,
                    json_text(strategy, "?"));
    }
    TRY(read_length(path, map, "pad_to_multiple_of", 0, &l->multiple));
    TRY(read_length(path, map, "pad_id", 0, &l->pad_id));
    return read_side(path, map, &l->pads_left);
}

status limits_read(arena *a, const char *path, const json *root, data_tokenizer *t)
{
    const json *truncation = json_get(root, "truncation"), *padding = json_get(root, "padding");
    tokenizer_limits *l = &t->limits;
    *l = (tokenizer_limits){.truncates = false};
    if (json_kind_of(truncation) == JSON_MAP) TRY(read_truncation(path, truncation, l));
    if (json_kind_of(padding) == JSON_MAP) TRY(read_padding(path, padding, l));
    if (!l->truncates && !l->pads) return ST_OK;
    char *cut = NULL, *fill = NULL, *both = NULL;
    TRY(arena_format(a, &cut, "truncation to %lld tokens", (long long)l->length_max));
    TRY(arena_format(a, &fill, l->length_fixed > 0 ? "padding to %lld tokens" : "padding",
                     (long long)l->length_fixed));
    TRY(arena_format(a, &both, "%s and %s", cut, fill));
    l->about[0] = l->truncates && l->pads ? both : l->truncates ? cut : fill;
    l->about[1] = l->pads ? fill : NULL;
    l->about[2] = l->truncates ? cut : NULL;
    return ST_OK;
}

status limits_cut(const data_tokenizer *t, int64_t first, int64_t added, data_ids *out)
{
    enum { ONLY_SECOND = 2 };
    const tokenizer_limits *l = &t->limits;
    const int64_t count = out->count - first, left = l->length_max - added;
    if (left < 0) {
        return fail(
            ST_DATA,
            "the file's truncation to %lld tokens has no place for the %lld that it adds to "
            "each text",
            (long long)l->length_max, (long long)added);
    }
    if (count <= left) return ST_OK;
    if (left > 0 && l->strategy == ONLY_SECOND) {
        return fail(ST_DATA,
                    "the file's truncation cuts the second of two texts, and there is one");
    }
    if (left > 0 && l->stride >= left) {
        return fail(ST_DATA, "the file's truncation has a stride of %lld, but %lld tokens are left",
                    (long long)l->stride, (long long)left);
    }
    if (l->cuts_left) {
        int32_t *ids = out->items + first;
        memmove(ids, ids + count - left, (size_t)left * sizeof(*ids));
    }
    out->count = first + left;
    return ST_OK;
}

status limits_fill(const data_tokenizer *t, int64_t first, data_ids *out)
{
    const tokenizer_limits *l = &t->limits;
    const int64_t count = out->count - first;
    int64_t wanted = l->length_fixed > 0 ? l->length_fixed : count;
    if (l->multiple > 0) wanted = (wanted + l->multiple - 1) / l->multiple * l->multiple;
    if (wanted > TOKENIZER_TEXT_MAX) {
        return fail(ST_DATA, "padding to %lld tokens is not supported", (long long)wanted);
    }
    const int32_t id = (int32_t)l->pad_id;
    for (int64_t i = count; i < wanted; i++) TRY(data_ids_add(out, &id, 1));
    if (l->pads_left && wanted > count) {
        int32_t *ids = out->items + first;
        memmove(ids + wanted - count, ids, (size_t)count * sizeof(*ids));
        for (int64_t i = 0; i < wanted - count; i++) ids[i] = id;
    }
    return ST_OK;
}

bool data_tokenizer_has(const data_tokenizer *t, int flag)
{
    return flag == DATA_ENCODE_TRUNCATE ? t->limits.truncates : t->limits.pads;
}

const char *data_tokenizer_unapplied(const data_tokenizer *t, int flags)
{
    const bool cuts = (flags & DATA_ENCODE_TRUNCATE) != 0, fills = (flags & DATA_ENCODE_PAD) != 0;
    return cuts && fills ? NULL : t->limits.about[cuts ? 1 : fills ? 2 : 0];
}
