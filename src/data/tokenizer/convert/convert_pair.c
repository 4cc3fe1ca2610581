// vocab.json and merges.txt, rewritten as the tokenizer.json that the class of
// tokenizer_config.json stands for: the two files do not say how texts are split, but some classes
// always split in the same way, as Hugging Face's conversion writes it.
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/convert/convert.h"

#include <string.h>

#define BYTES(regex) "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":" regex "}"
#define SPLIT(expression, behaviour, invert)                                                   \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" expression "\"},\"behavior\":\"" behaviour \
    "\",\"invert\":" invert "}"
#define SEQUENCE(steps) "{\"type\":\"Sequence\",\"pretokenizers\":[" steps "]}"

static const struct {
    const char *name; // of the class, without `Tokenizer` or `TokenizerFast`
    const char *normalizer, *splitter;
    const char *options; // of the model
} classes[] = {
    {"Qwen2", "{\"type\":\"NFC\"}",
     SEQUENCE(SPLIT(
         "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}"
         "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+",
         "Isolated", "false") "," BYTES("false")),
     ""},
    {"CLIP",
     "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Replace\",\"pattern\":"
     "{\"Regex\":\"\\\\s+\"},\"content\":\" \"},{\"type\":\"Lowercase\"}]}",
     SEQUENCE(SPLIT("'s|'t|'re|'ve|'m|'ll|'d|[\\\\p{L}]+|[\\\\p{N}]|[^\\\\s\\\\p{L}\\\\p{N}]+",
                    "Removed", "true") "," BYTES("true")),
     ",\"end_of_word_suffix\":\"</w>\""},
};

bool convert_pair_knows(const json *config, int64_t *row)
{
    const char *class = json_text(json_get(config, "tokenizer_class"), "");
    for (*row = 0; *row < COUNT_OF(classes); (*row)++) {
        const size_t n = strlen(classes[*row].name);
        const char *rest = class + n;
        if (strncmp(class, classes[*row].name, n) == 0 &&
            (strcmp(rest, "Tokenizer") == 0 || strcmp(rest, "TokenizerFast") == 0)) {
            return true;
        }
    }
    return false;
}

// A merge a line: two tokens with a blank between them.
static status put_merges(data_bytes *out, const char *path, const char *merges, int64_t bytes)
{
    bool is_first = true;
    merge_lines m = {.text = merges, .bytes = bytes};
    const char *begin = NULL;
    int64_t count = 0;
    while (merge_lines_next(&m, &begin, &count)) {
        if (utf8_valid_prefix(begin, count) != count || memchr(begin, ' ', (size_t)count) == NULL) {
            return fail(ST_DAMAGED, "%s:%lld: two tokens with a blank between them expected", path,
                        (long long)m.line);
        }
        if (!is_first) TRY(convert_put(out, ","));
        is_first = false;
        TRY(convert_put_text(out, begin, count));
    }
    return ST_OK;
}

status convert_pair(const convert_files *f, const json *config, int64_t row, data_bytes *out)
{
    const data_ids none = {0};
    TRY(convert_put(out, "{\"added_tokens\":["));
    TRY(convert_put_decoder(out, f->vocab_path, json_get(config, "added_tokens_decoder"), &none,
                            true));
    TRY(convert_put(out, "],\"normalizer\":"));
    TRY(convert_put(out, classes[row].normalizer));
    TRY(convert_put(out, ",\"pre_tokenizer\":"));
    TRY(convert_put(out, classes[row].splitter));
    TRY(convert_put(out, ",\"decoder\":" BYTES("true") ",\"model\":{\"type\":\"BPE\""));
    TRY(convert_put(out, classes[row].options));
    TRY(convert_put(out, ",\"vocab\":"));
    TRY(data_bytes_add(out, f->vocab, f->vocab_bytes));
    TRY(convert_put(out, ",\"merges\":["));
    TRY(put_merges(out, f->merges_path, f->merges, f->merges_bytes));
    return convert_put(out, "]}}");
}
