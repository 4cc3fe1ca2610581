// BPE over the words of a pipeline: of bytes (the vocabulary spells bytes), or of characters, where
// a character without a token becomes the tokens of its bytes or the unknown token.
#include "data/tokenizer/pipeline/pipeline.h"

#include <string.h>

enum { CHARACTER_BYTES_MAX = 4 + 2 * BPE_AFFIX_MAX };

// The tokens of the bytes of a character and its affixes; false if one is missing.
static bool fall_back(const pipeline *p, const char *bytes, int length,
                      int32_t ids[CHARACTER_BYTES_MAX])
{
    if (!p->byte_fallback) return false;
    for (int i = 0; i < length; i++) {
        ids[i] = p->byte_tokens[(uint8_t)bytes[i]];
        if (ids[i] < 0) return false;
    }
    return true;
}

// No token holds these two bytes, so no merge crosses the place between them.
static bool is_apart(const pipeline *p, char left, char right)
{
    return (p->joins[(uint8_t)left][(uint8_t)right >> 3] >> ((uint8_t)right & 7) & 1) == 0;
}

// A character as the vocabulary has it: all but the first of a word have a prefix, the last one has
// a suffix.
static int affix(const bpe *v, const char *bytes, int length, bool is_first, bool is_last,
                 char whole[CHARACTER_BYTES_MAX])
{
    int n = 0;
    if (!is_first && v->prefix_bytes > 0) {
        memcpy(whole, v->prefix, (size_t)v->prefix_bytes);
        n += v->prefix_bytes;
    }
    memcpy(whole + n, bytes, (size_t)length);
    n += length;
    if (is_last && v->suffix_bytes > 0) {
        memcpy(whole + n, v->suffix, (size_t)v->suffix_bytes);
        n += v->suffix_bytes;
    }
    return n;
}

static status merge_symbols(pipeline *p, data_ids *out)
{
    TRY(bpe_merge_ids(p->vocab, p->symbols.items, p->symbols.count, out));
    p->symbols.count = 0;
    return ST_OK;
}

// Merges part by part, where two known characters are apart: most parts are short, though a file
// without a pre-tokenizer makes one word of a whole text. The reference holds the unknown token
// back until the next known character or the end, also over the tokens of bytes.
static status encode_characters(pipeline *p, const char *word, int64_t count, data_ids *out)
{
    bool pending = false, was_known = false;
    const bool has_affix = p->vocab->prefix_bytes > 0 || p->vocab->suffix_bytes > 0;
    char affixed[CHARACTER_BYTES_MAX];
    p->symbols.count = 0;
    for (int64_t at = 0; at < count;) {
        uint32_t point = 0;
        bool torn = false;
        const int length = utf8_next((const uint8_t *)word + at, count - at, &point, &torn);
        ASSERT(length > 0);
        const char *whole = word + at;
        int whole_bytes = length;
        if (has_affix) {
            whole_bytes =
                affix(p->vocab, word + at, length, at == 0, at + length == count, affixed);
            whole = affixed;
        }
        const int32_t id = bpe_find(p->vocab, whole, whole_bytes);
        int32_t ids[CHARACTER_BYTES_MAX];
        if (id >= 0) {
            if (pending) TRY(data_ids_add(&p->symbols, &p->unknown, 1));
            pending = false;
            if (was_known && is_apart(p, word[at - 1], word[at])) TRY(merge_symbols(p, out));
            TRY(data_ids_add(&p->symbols, &id, 1));
        } else if (fall_back(p, whole, whole_bytes, ids)) {
            TRY(data_ids_add(&p->symbols, ids, whole_bytes));
        } else if (p->unknown >= 0) {
            if (pending && !p->fuse_unknown) TRY(data_ids_add(&p->symbols, &p->unknown, 1));
            pending = true;
        }
        was_known = id >= 0;
        at += length;
    }
    if (pending) TRY(data_ids_add(&p->symbols, &p->unknown, 1));
    return merge_symbols(p, out);
}

// WordLevel: a word is a token, or the unknown token.
static status whole_word(const pipeline *p, const char *word, int64_t count, data_ids *out)
{
    const int32_t id = bpe_find(p->vocab, word, count);
    return data_ids_add(out, id >= 0 ? &id : &p->unknown, 1);
}

// The model's answer for one word, without the cache.
static status unseen_word(void *context, const uint8_t *bytes, int64_t count, data_ids *out)
{
    pipeline *p = context;
    const char *word = (const char *)bytes;
    if (p->model == MODEL_WORDPIECE) return pipeline_wordpiece(p, word, count, out);
    if (p->model == MODEL_UNIGRAM) return pipeline_unigram(p, word, count, out);
    return encode_characters(p, word, count, out);
}

void pipeline_use_cache(pipeline *p)
{
    if (p->is_byte_level) return;
    p->vocab->encode_unseen = unseen_word;
    p->vocab->unseen_context = p;
}

// ---- parts of a word ----------------------------------------------------------------------------

static const char mark[] = "\u2581"; // SentencePiece's blank
enum { MARK_BYTES = sizeof(mark) - 1 };

static bool is_mark(const uint8_t *text, int64_t count, int64_t at)
{
    return at >= 0 && count - at >= MARK_BYTES && memcmp(text + at, mark, MARK_BYTES) == 0;
}

// The end of the part that begins at `at`: before the next mark that follows another character.
static int64_t next_mark(const scanner *s, const uint8_t *text, int64_t count, int64_t at)
{
    (void)s;
    for (int64_t from = at + 1; from < count; from++) {
        const uint8_t *found = memchr(text + from, (uint8_t)mark[0], (size_t)(count - from));
        if (found == NULL) return count;
        from = found - text;
        if (is_mark(text, count, from) && !is_mark(text, count, max_i64(from - MARK_BYTES, at - 1)))
            return from;
    }
    return count;
}

// A file without pre-tokenizers makes one word of a whole text. If no token has a mark after
// another character, no merge crosses the place before a mark, and the parts between are looked up
// in the cache. The mark must be a token, so that an unknown character before it is not held back.
static bool marks_begin_words(const pipeline *p)
{
    const bpe *v = p->vocab;
    if (p->model != MODEL_BPE || p->is_byte_level || v->ignore_merges) return false;
    if (v->prefix_bytes > 0 || v->suffix_bytes > 0) return false;
    if (bpe_find(v, mark, MARK_BYTES) < 0) return false;
    for (int64_t id = 0; id < v->tokens_count; id++) {
        const uint8_t *bytes = (const uint8_t *)v->tokens[id].bytes;
        const int64_t count = v->tokens[id].count;
        for (int64_t at = 1; at < count; at++) {
            if (is_mark(bytes, count, at) && !is_mark(bytes, count, at - MARK_BYTES)) return false;
        }
    }
    return true;
}

// Notes which bytes stand next to each other in a token.
void pipeline_note_joins(pipeline *p)
{
    const bpe *v = p->vocab;
    for (int64_t id = 0; id < v->tokens_count; id++) {
        const uint8_t *bytes = (const uint8_t *)v->tokens[id].bytes;
        for (int32_t i = 0; i + 1 < v->tokens[id].count; i++) {
            p->joins[bytes[i]][bytes[i + 1] >> 3] |= (uint8_t)(1 << (bytes[i + 1] & 7));
        }
    }
    if (marks_begin_words(p)) p->marks.next = next_mark;
}

status pipeline_word(pipeline *p, const char *word, int64_t count, data_ids *out)
{
    const uint8_t *bytes = (const uint8_t *)word;
    if (p->take != NULL) return p->take(p->take_context, word, count);
    if (p->model == MODEL_WORDLEVEL) return whole_word(p, word, count, out);
    if (p->is_byte_level) return bpe_word(p->vocab, bytes, count, out);
    if (p->marks.next != NULL) return bpe_encode_words(p->vocab, &p->marks, bytes, count, out);
    const int32_t whole =
        p->model == MODEL_BPE && p->vocab->ignore_merges ? bpe_find(p->vocab, word, count) : -1;
    if (whole >= 0) return data_ids_add(out, &whole, 1);
    return bpe_word(p->vocab, bytes, count, out);
}
