// Writes a tokenizer.json as Hugging Face tokenizers does.
#include "data/tokenizer/train/train_internal.h"

#include <stdio.h>
#include <string.h>

// The expressions of published tokenizers, as in their files.
static const char *const patterns[] = {
    [DATA_TRAIN_LLAMA3] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"
                          "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    [DATA_TRAIN_QWEN2] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
                         "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    [DATA_TRAIN_O200K] =
        "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+"
        "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}"
        "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
};

// GPT-2's table: printable bytes stand for themselves, the others from U+0100 on.
static int spelling_of(uint8_t byte)
{
    if ((byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174) return byte;
    if (byte < 33) return 256 + byte;
    return byte == 173 ? 256 + 33 + 34 : 256 + 33 + byte - 127;
}

int train_spell(uint8_t byte, char out[2])
{
    const int point = spelling_of(byte);
    if (point < 0x80) {
        out[0] = (char)point;
        return 1;
    }
    out[0] = (char)(0xc0 | point >> 6);
    out[1] = (char)(0x80 | (point & 0x3f));
    return 2;
}

void train_byte_order(uint8_t order[256])
{
    int n = 0;
    for (int point = 0; point < 512; point++) {
        for (int byte = 0; byte < 256; byte++) {
            if (spelling_of((uint8_t)byte) == point) order[n++] = (uint8_t)byte;
        }
    }
    ASSERT(n == 256);
}

static status put(data_bytes *out, const char *text)
{
    return data_bytes_add(out, text, (int64_t)strlen(text));
}

static status put_number(data_bytes *out, int64_t value)
{
    char text[24];
    (void)snprintf(text, sizeof(text), "%lld", (long long)value);
    return put(out, text);
}

// A UTF-8 text in JSON.
static status put_text(data_bytes *out, const char *text, int64_t count)
{
    TRY(put(out, "\""));
    for (int64_t i = 0; i < count; i++) {
        const uint8_t c = (uint8_t)text[i];
        char escaped[8];
        if (c == '"' || c == '\\') TRY(put(out, "\\"));
        if (c < ' ') {
            (void)snprintf(escaped, sizeof(escaped), "\\u%04x", c);
            TRY(put(out, escaped));
        } else {
            TRY(data_bytes_add(out, text + i, 1));
        }
    }
    return put(out, "\"");
}

static status put_bytes(data_bytes *out, const char *bytes, int64_t count)
{
    TRY(put(out, "\""));
    for (int64_t i = 0; i < count; i++) {
        char spelled[2];
        const int length = train_spell((uint8_t)bytes[i], spelled);
        if (spelled[0] == '"' || spelled[0] == '\\') TRY(put(out, "\\"));
        TRY(data_bytes_add(out, spelled, length));
    }
    return put(out, "\"");
}

static status put_added(const data_train_options *o, data_bytes *out)
{
    TRY(put(out, "\"added_tokens\":["));
    for (int64_t i = 0; i < o->special_count; i++) {
        TRY(put(out, i == 0 ? "{\"id\":" : ",{\"id\":"));
        TRY(put_number(out, i));
        TRY(put(out, ",\"content\":"));
        TRY(put_text(out, o->special[i], (int64_t)strlen(o->special[i])));
        TRY(put(out, ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
                     "\"normalized\":false,\"special\":true}"));
    }
    return put(out, "],");
}

static status put_splitter(const data_train_options *o, data_bytes *out)
{
    const char *pattern = o->pattern != NULL ? o->pattern : patterns[o->split];
    const char *last = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,"
                       "\"use_regex\":";
    TRY(put(out, "\"normalizer\":null,\"pre_tokenizer\":"));
    if (pattern == NULL) {
        TRY(put(out, last));
        return put(out, "true},");
    }
    TRY(put(out, "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":"
                 "{\"Regex\":"));
    TRY(put_text(out, pattern, (int64_t)strlen(pattern)));
    TRY(put(out, "},\"behavior\":\"Isolated\",\"invert\":false},"));
    TRY(put(out, last));
    return put(out, "false}]},");
}

static status put_bytes_only(const data_train_options *o, data_bytes *out)
{
    uint8_t order[256];
    train_byte_order(order);
    for (int i = 0; i < 256; i++) {
        const char byte = (char)order[i];
        if (i > 0) TRY(put(out, ","));
        TRY(put_bytes(out, &byte, 1));
        TRY(put(out, ":"));
        TRY(put_number(out, o->special_count + i));
    }
    return put(out, "},\"merges\":[");
}

static status put_model(const data_train_options *o, const train_model *m, data_bytes *out)
{
    for (int64_t i = 0; i < m->token_count; i++) {
        const train_token *t = &m->tokens[i];
        if (i > 0) TRY(put(out, ","));
        TRY(i < o->special_count ? put_text(out, t->bytes, t->count)
                                 : put_bytes(out, t->bytes, t->count));
        TRY(put(out, ":"));
        TRY(put_number(out, i));
    }
    TRY(put(out, "},\"merges\":["));
    for (int64_t i = 0; i < m->merge_count; i++) {
        const train_token *left = &m->tokens[m->merges[i].left];
        const train_token *right = &m->tokens[m->merges[i].right];
        TRY(put(out, i == 0 ? "[" : ",["));
        TRY(put_bytes(out, left->bytes, left->count));
        TRY(put(out, ","));
        TRY(put_bytes(out, right->bytes, right->count));
        TRY(put(out, "]"));
    }
    return ST_OK;
}

status train_file(const data_train_options *o, const train_model *m, data_bytes *out)
{
    TRY(put(out, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,"));
    TRY(put_added(o, out));
    TRY(put_splitter(o, out));
    TRY(put(out, "\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\","
                 "\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true},"));
    TRY(put(out, "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
                 "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
                 "\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":false,\"vocab\":{"));
    if (m == NULL) {
        for (int64_t i = 0; i < o->special_count; i++) {
            TRY(put_text(out, o->special[i], (int64_t)strlen(o->special[i])));
            TRY(put(out, ":"));
            TRY(put_number(out, i));
            TRY(put(out, ","));
        }
        TRY(put_bytes_only(o, out));
    } else {
        TRY(put_model(o, m, out));
    }
    return put(out, "]}}\n");
}
