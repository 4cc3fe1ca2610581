// Writes a tokenizer.json as Hugging Face tokenizers does.
#include "data/tokenizer/convert/convert.h"
#include "data/tokenizer/train/train_pieces.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// The expressions of published tokenizers, as in their files.
static const char gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"
                           "|\\s+(?!\\S)|\\s+"; // ByteLevel has it built in
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

void train_byte_order(uint8_t order[256])
{
    int n = 0;
    for (int round = 0; round < 2; round++) { // those that stand for themselves are first
        for (int byte = 0; byte < 256; byte++) {
            char spelled[2];
            const int length = bpe_spell_byte((uint8_t)byte, spelled);
            const bool is_itself = length == 1 || (spelled[0] & 0x1c) == 0;
            if (is_itself == (round == 0)) order[n++] = (uint8_t)byte;
        }
    }
    ASSERT(n == 256);
}

// first: the id of the first special token.
static status put_added(const data_train_options *o, int64_t first, data_bytes *out)
{
    TRY(convert_put(out, "\"added_tokens\":["));
    for (int64_t i = 0; i < o->special_count; i++) {
        const convert_added one = {.text = o->special[i],
                                   .bytes = (int64_t)strlen(o->special[i]),
                                   .id = first + i,
                                   .special = true};
        TRY(convert_put_added(out, &one, i == 0));
    }
    return convert_put(out, "],");
}

static status put_splitter(const data_train_options *o, data_bytes *out)
{
    const char *pattern = o->pattern != NULL ? o->pattern : patterns[o->split];
    const char *last = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,"
                       "\"use_regex\":";
    TRY(convert_put(out, "\"normalizer\":null,\"pre_tokenizer\":"));
    if (pattern == NULL) {
        TRY(convert_put(out, last));
        return convert_put(out, "true},");
    }
    TRY(convert_put(out,
                    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":"
                    "{\"Regex\":"));
    TRY(convert_put_text(out, pattern, (int64_t)strlen(pattern)));
    TRY(convert_put(out, "},\"behavior\":\"Isolated\",\"invert\":false},"));
    TRY(convert_put(out, last));
    return convert_put(out, "false}]},");
}

static status put_bytes_only(const data_train_options *o, data_bytes *out)
{
    uint8_t order[256];
    train_byte_order(order);
    for (int i = 0; i < 256; i++) {
        const char byte = (char)order[i];
        if (i > 0) TRY(convert_put(out, ","));
        TRY(convert_put_bytes(out, &byte, 1));
        TRY(convert_put(out, ":"));
        TRY(convert_put_number(out, o->special_count + i));
    }
    return convert_put(out, "},\"merges\":[");
}

static status put_model(const data_train_options *o, const train_model *m, data_bytes *out)
{
    for (int64_t i = 0; i < m->token_count; i++) {
        const train_token *t = &m->tokens[i];
        if (i > 0) TRY(convert_put(out, ","));
        TRY(i < o->special_count ? convert_put_text(out, t->bytes, t->count)
                                 : convert_put_bytes(out, t->bytes, t->count));
        TRY(convert_put(out, ":"));
        TRY(convert_put_number(out, i));
    }
    TRY(convert_put(out, "},\"merges\":["));
    for (int64_t i = 0; i < m->merge_count; i++) {
        const train_token *left = &m->tokens[m->merges[i].left];
        const train_token *right = &m->tokens[m->merges[i].right];
        TRY(convert_put(out, i == 0 ? "[" : ",["));
        TRY(convert_put_bytes(out, left->bytes, left->count));
        TRY(convert_put(out, ","));
        TRY(convert_put_bytes(out, right->bytes, right->count));
        TRY(convert_put(out, "]"));
    }
    return ST_OK;
}

status train_file(const data_train_options *o, const train_model *m, data_bytes *out)
{
    TRY(convert_put(out, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,"));
    TRY(put_added(o, 0, out));
    TRY(put_splitter(o, out));
    TRY(convert_put(out, "\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\","
                         "\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true},"));
    TRY(convert_put(
        out, "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
             "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
             "\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":false,\"vocab\":{"));
    if (m == NULL) {
        for (int64_t i = 0; i < o->special_count; i++) {
            TRY(convert_put_text(out, o->special[i], (int64_t)strlen(o->special[i])));
            TRY(convert_put(out, ":"));
            TRY(convert_put_number(out, i));
            TRY(convert_put(out, ","));
        }
        TRY(put_bytes_only(o, out));
    } else {
        TRY(put_model(o, m, out));
    }
    return convert_put(out, "]}}\n");
}

// ---- Unigram ------------------------------------------------------------------------------------

// The words of the split, with a mark in place of each blank.
static status put_steps(const data_train_options *o, data_bytes *out)
{
    const char *pattern = o->pattern != NULL ? o->pattern : patterns[o->split];
    if (pattern == NULL) pattern = gpt2;
    TRY(convert_put(out, "\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Sequence\","
                         "\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"));
    TRY(convert_put_text(out, pattern, (int64_t)strlen(pattern)));
    TRY(convert_put(out,
                    "},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"Metaspace\","
                    "\"replacement\":\"\u2581\",\"prepend_scheme\":\"never\",\"split\":false}]},"));
    return convert_put(
        out, "\"post_processor\":null,\"decoder\":{\"type\":\"Sequence\",\"decoders\":["
             "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\u2581\"},\"content\":\" \"},"
             "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]},");
}

static status put_entry(const char *text, int64_t bytes, double score, bool is_first,
                        data_bytes *out)
{
    char number[40];
    (void)snprintf(number, sizeof(number), ",%.17g]", score);
    TRY(convert_put(out, is_first ? "[" : ",["));
    TRY(convert_put_text(out, text, bytes));
    return convert_put(out, number);
}

// Ids: the unknown token, the 256 bytes, the pieces with the best first, the special tokens. A text
// that spells the token of a byte stays a text: the score of such a token is below that of the six
// characters that spell it.
status train_unigram_file(const data_train_options *o, const train_units *u, const train_pieces *p,
                          data_bytes *out)
{
    const int64_t pieces = p != NULL ? p->count : 0;
    double lowest = 0.0;
    for (int64_t i = 0; i < pieces; i++) lowest = fmin(lowest, p->items[i].score);
    const double token_score = 6.0 * lowest - 10.0;
    TRY(convert_put(out, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,"));
    TRY(put_added(o, 1 + 256 + pieces, out));
    TRY(put_steps(o, out));
    TRY(convert_put(out, "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":["));
    TRY(put_entry("<unk>", 5, token_score, true, out));
    for (int byte = 0; byte < 256; byte++) {
        char text[8];
        const int length = snprintf(text, sizeof(text), "<0x%02X>", (unsigned)byte);
        TRY(put_entry(text, length, token_score, false, out));
    }
    for (int64_t i = 0; i < pieces; i++) {
        const train_piece *one = &p->items[i];
        TRY(put_entry(u->text.items + one->at, one->bytes, one->score, false, out));
    }
    return convert_put(out, "],\"byte_fallback\":true}}\n");
}
