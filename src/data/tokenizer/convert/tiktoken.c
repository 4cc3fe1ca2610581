// tiktoken's rank files: a line for each token, its bytes in base64 and its rank, which is its id.
// Source: github.com/openai/tiktoken, tiktoken/load.py.
//
// A file has neither the split expression nor special tokens. NAME.json next to NAME.tiktoken gives
// them, or the name of a published file does. Any two neighbours whose bytes together are a token
// merge, the lowest rank first, and a word that is a token is never taken apart.
#include "base/text.h"
#include "data/tokenizer/convert/convert.h"

#include <stdlib.h>
#include <string.h>

#define R50K \
    "'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s++$|\\s+(?!\\S)|\\s"
#define CL100K                                                                                  \
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}+| ?[^\\s\\p{L}\\p{N}]++" \
    "[\\r\\n]*+|\\s++$|\\s*[\\r\\n]|\\s+(?!\\S)|\\s"
#define O200K                                                                                   \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+" \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+" \
    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}"                   \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

typedef struct special_row {
    const char *text;
    int32_t id;
} special_row;

// The published files, by name without `.tiktoken`.
static const struct {
    const char *name, *pattern;
    int64_t ranks; // tokens of the file
    special_row special[6];
} published[] = {
    {"r50k_base", R50K, 50256, {{"<|endoftext|>", 50256}}},
    {"p50k_base", R50K, 50280, {{"<|endoftext|>", 50256}}},
    {"cl100k_base",
     CL100K,
     100256,
     {{"<|endoftext|>", 100257},
      {"<|fim_prefix|>", 100258},
      {"<|fim_middle|>", 100259},
      {"<|fim_suffix|>", 100260},
      {"<|endofprompt|>", 100276}}},
    {"o200k_base", O200K, 199998, {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}},
};

typedef struct rank_file {
    const char *path;
    data_bytes *out;
    data_ids *ranks;
    data_bytes token; // of one line
    int64_t line, count;
} rank_file;

static status damaged(const rank_file *r, const char *what)
{
    return fail(ST_DAMAGED, "%s:%lld: %s; a token in base64 and its rank expected", r->path,
                (long long)r->line, what);
}

static status put_token(rank_file *r, const char *begin, int64_t count)
{
    const char *blank = memchr(begin, ' ', (size_t)count);
    char digits[24] = "";
    int64_t rank = -1;
    const int64_t base64 = blank != NULL ? blank - begin : 0;
    if (base64 == 0 || count - base64 - 1 >= (int64_t)sizeof(digits)) {
        return damaged(r, "no token");
    }
    memcpy(digits, blank + 1, (size_t)(count - base64 - 1));
    if (!text_parse_i64(digits, &rank) || rank < 0 || rank >= TOKENIZER_IDS_MAX) {
        return damaged(r, "no rank");
    }
    r->token.count = 0;
    bool is_valid = false;
    TRY(tokenizer_base64(begin, base64, &r->token, &is_valid));
    if (!is_valid || r->token.count == 0) return damaged(r, "no base64");
    if (rank > 16 * r->count + 65536) return damaged(r, "a rank far beyond the number of tokens");
    static const int32_t none = -1;
    while (r->ranks->count <= rank) TRY(data_ids_add(r->ranks, &none, 1));
    if (r->ranks->items[rank] >= 0) return damaged(r, "a rank that another token has");
    r->ranks->items[rank] = (int32_t)rank;
    if (r->count++ > 0) TRY(convert_put(r->out, ","));
    TRY(convert_put_bytes(r->out, r->token.items, r->token.count));
    TRY(convert_put(r->out, ":"));
    return convert_put_number(r->out, rank);
}

static status put_vocabulary(rank_file *r, const char *bytes, int64_t count)
{
    for (int64_t at = 0; at < count;) {
        const char *newline = memchr(bytes + at, '\n', (size_t)(count - at));
        const int64_t end = newline != NULL ? newline - bytes : count;
        int64_t length = end - at;
        r->line++;
        if (length > 0 && bytes[at + length - 1] == '\r') length--;
        if (length > 0) TRY(put_token(r, bytes + at, length));
        at = end + 1;
    }
    return r->count > 0 ? ST_OK : fail(ST_DAMAGED, "%s: no ranks", r->path);
}

static status put_steps(data_bytes *out, const char *pattern, int64_t bytes)
{
    TRY(convert_put(out, "],\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"
                         "\"Split\",\"behavior\":\"Removed\",\"invert\":true,\"pattern\":"
                         "{\"Regex\":"));
    TRY(convert_put_text(out, pattern, bytes));
    return convert_put(out, "}},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":"
                            "false}]},\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":"
                            "\"BPE\",\"ignore_merges\":true,\"merges\":[],\"vocab\":{");
}

// {"pattern": "...", "special_tokens": {"<|endoftext|>": 2500}}
static status put_settings(const char *path, const json *settings, data_bytes *out)
{
    const json *pattern = json_get(settings, "pattern"),
               *list = json_get(settings, "special_tokens");
    if (pattern == NULL) pattern = json_get(settings, "pat_str");
    if (json_kind_of(pattern) != JSON_TEXT) {
        return fail(ST_DAMAGED, "%s: the JSON file next to it has no text `pattern`", path);
    }
    for (int64_t i = 0; i < json_count(list); i++) {
        const json *id = NULL;
        const char *key = json_key_at(list, i, &id);
        if (key == NULL || key[0] == 0 || json_kind_of(id) != JSON_INT) {
            return fail(ST_DAMAGED,
                        "%s: `special_tokens` of the JSON file next to it is no map from texts "
                        "to ids",
                        path);
        }
        const convert_added one = {
            .text = key, .bytes = (int64_t)strlen(key), .id = json_int(id, -1), .special = true};
        TRY(convert_put_added(out, &one, i == 0));
    }
    return put_steps(out, json_text(pattern, ""), json_text_bytes(pattern));
}

// *count is the number of tokens that the file must have.
static status put_published(const char *path, data_bytes *out, int64_t *count)
{
    const char *base = path_base_name(path), *dot = strrchr(base, '.');
    const int64_t bytes = dot != NULL ? dot - base : (int64_t)strlen(base);
    for (int64_t i = 0; i < COUNT_OF(published); i++) {
        const char *name = published[i].name, *pattern = published[i].pattern;
        if ((int64_t)strlen(name) != bytes || memcmp(name, base, (size_t)bytes) != 0) continue;
        for (int64_t k = 0; k < 6 && published[i].special[k].text != NULL; k++) {
            const special_row *s = &published[i].special[k];
            const convert_added one = {
                .text = s->text, .bytes = (int64_t)strlen(s->text), .id = s->id, .special = true};
            TRY(convert_put_added(out, &one, k == 0));
        }
        *count = published[i].ranks;
        return put_steps(out, pattern, (int64_t)strlen(pattern));
    }
    return fail(ST_UNSUPPORTED,
                "%s: a file of ranks has no split expression and no special tokens; put "
                "%.*s.json next to it: {\"pattern\": \"...\", \"special_tokens\": "
                "{\"<|endoftext|>\": id}}",
                path, (int)bytes, base);
}

bool convert_is_tiktoken(const char *bytes, int64_t count)
{
    int64_t at = 0;
    for (; at < count && at < 4096; at++) {
        const char c = bytes[at];
        const bool is_base64 = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                               (c >= '0' && c <= '9') || c == '+' || c == '/' || c == '=';
        if (!is_base64) break;
    }
    return at >= 4 && at + 1 < count && bytes[at] == ' ' && bytes[at + 1] >= '0' &&
           bytes[at + 1] <= '9';
}

status convert_tiktoken(const char *path, const char *bytes, int64_t count, const json *settings,
                        data_bytes *out, data_ids *ranks)
{
    rank_file r = {.path = path, .out = out, .ranks = ranks};
    int64_t expected = 0;
    TRY(convert_put(out, "{\"added_tokens\":["));
    TRY(settings != NULL ? put_settings(path, settings, out) : put_published(path, out, &expected));
    const status st = put_vocabulary(&r, bytes, count);
    data_bytes_deinit(&r.token);
    TRY(st);
    if (expected > 0 && r.count != expected) {
        return fail(ST_DAMAGED, "%s: %lld tokens, but the published file of this name has %lld",
                    path, (long long)r.count, (long long)expected);
    }
    return convert_put(out, "}}}");
}
