// Writes the parts of a tokenizer.json.
#include "base/text.h"
#include "data/tokenizer/convert/convert.h"

#include <stdio.h>
#include <string.h>

status convert_put(data_bytes *out, const char *plain)
{
    return data_bytes_add(out, plain, (int64_t)strlen(plain));
}

status convert_put_number(data_bytes *out, int64_t value)
{
    char digits[24];
    (void)snprintf(digits, sizeof(digits), "%lld", (long long)value);
    return convert_put(out, digits);
}

status convert_put_text(data_bytes *out, const char *utf8, int64_t count)
{
    TRY(convert_put(out, "\""));
    for (int64_t i = 0; i < count; i++) {
        const uint8_t c = (uint8_t)utf8[i];
        char escaped[8];
        if (c == '"' || c == '\\') TRY(convert_put(out, "\\"));
        if (c < ' ') {
            (void)snprintf(escaped, sizeof(escaped), "\\u%04x", c);
            TRY(convert_put(out, escaped));
        } else {
            TRY(data_bytes_add(out, utf8 + i, 1));
        }
    }
    return convert_put(out, "\"");
}

status convert_put_bytes(data_bytes *out, const char *bytes, int64_t count)
{
    TRY(convert_put(out, "\""));
    for (int64_t i = 0; i < count; i++) {
        char spelled[2];
        const int length = bpe_spell_byte((uint8_t)bytes[i], spelled);
        if (spelled[0] == '"' || spelled[0] == '\\') TRY(convert_put(out, "\\"));
        TRY(data_bytes_add(out, spelled, length));
    }
    return convert_put(out, "\"");
}

status convert_put_base64(data_bytes *out, const char *bytes, int64_t count)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    TRY(convert_put(out, "\""));
    for (int64_t i = 0; i < count; i += 3) {
        uint32_t bits = 0;
        char four[4];
        for (int k = 0; k < 3; k++) {
            bits = bits << 8 | (i + k < count ? (uint8_t)bytes[i + k] : 0);
        }
        for (int k = 0; k < 4; k++) four[k] = digits[bits >> (18 - 6 * k) & 63];
        for (int64_t k = count - i + 1; k < 4; k++) four[k] = '=';
        TRY(data_bytes_add(out, four, 4));
    }
    return convert_put(out, "\"");
}

static status put_flag(data_bytes *out, const char *name, bool value)
{
    TRY(convert_put(out, ",\""));
    TRY(convert_put(out, name));
    return convert_put(out, value ? "\":true" : "\":false");
}

status convert_put_added(data_bytes *out, const convert_added *a, bool is_first)
{
    TRY(convert_put(out, is_first ? "{\"id\":" : ",{\"id\":"));
    TRY(convert_put_number(out, a->id));
    TRY(convert_put(out, ",\"content\":"));
    TRY(convert_put_text(out, a->text, a->bytes));
    TRY(put_flag(out, "single_word", a->single_word));
    TRY(put_flag(out, "lstrip", a->left));
    TRY(put_flag(out, "rstrip", a->right));
    TRY(put_flag(out, "normalized", a->normalized));
    TRY(put_flag(out, "special", a->special));
    return convert_put(out, "}");
}

static bool holds(const data_ids *list, int64_t id)
{
    for (int64_t i = 0; i < list->count; i++) {
        if (list->items[i] == id) return true;
    }
    return false;
}

status convert_put_decoder(data_bytes *out, const char *path, const json *decoder,
                           const data_ids *has, bool is_first)
{
    for (int64_t i = 0; i < json_count(decoder); i++) {
        const json *value = NULL;
        const char *key = json_key_at(decoder, i, &value);
        const json *content = json_get(value, "content");
        convert_added a = {.text = json_text(content, ""),
                           .bytes = json_text_bytes(content),
                           .special = json_bool(json_get(value, "special"), false),
                           .left = json_bool(json_get(value, "lstrip"), false),
                           .right = json_bool(json_get(value, "rstrip"), false),
                           .single_word = json_bool(json_get(value, "single_word"), false),
                           .normalized = json_bool(json_get(value, "normalized"), false)};
        if (!text_parse_i64(key, &a.id) || a.bytes == 0) {
            return fail(ST_DAMAGED,
                        "%s: `added_tokens_decoder` of tokenizer_config.json has \"%.40s\"; "
                        "expected an id and its content",
                        path, key);
        }
        if (holds(has, a.id)) continue;
        TRY(convert_put_added(out, &a, is_first));
        is_first = false;
    }
    return ST_OK;
}
