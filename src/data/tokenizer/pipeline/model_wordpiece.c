// WordPiece: a word is the longest tokens that begin it, one after the other; a word that no tokens
// make up is one unknown token.
#include "data/tokenizer/pipeline/pipeline.h"

static int64_t count_characters(const char *word, int64_t count)
{
    int64_t characters = 0;
    for (int64_t i = 0; i < count; i++) characters += ((uint8_t)word[i] & 0xc0) != 0x80;
    return characters;
}

// The longest token of word[begin..]; *end is its end. -1: none.
static int32_t longest(pipeline *p, const char *word, int64_t begin, int64_t count, int64_t *end)
{
    const char *text = word + begin;
    int64_t before = 0;
    if (begin > 0 && p->prefix_bytes > 0) {
        text = p->piece.items; // the prefix, and then the rest of the word
        before = p->prefix_bytes;
    }
    for (*end = count; *end > begin;) {
        const int32_t id = bpe_find(p->vocab, text, before + *end - begin);
        if (id >= 0) return id;
        do {
            (*end)--;
        } while (*end > begin && ((uint8_t)word[*end] & 0xc0) == 0x80);
    }
    return -1;
}

status pipeline_wordpiece(pipeline *p, const char *word, int64_t count, data_ids *out)
{
    const int64_t before = out->count;
    if (count_characters(word, count) > p->characters_max) {
        return data_ids_add(out, &p->unknown, 1);
    }
    for (int64_t at = 0, end = 0; at < count; at = end) {
        p->piece.count = 0;
        if (at > 0 && p->prefix_bytes > 0) {
            TRY(data_bytes_add(&p->piece, p->prefix, p->prefix_bytes));
            TRY(data_bytes_add(&p->piece, word + at, count - at));
        }
        const int32_t id = longest(p, word, at, count, &end);
        if (id < 0) {
            out->count = before;
            return data_ids_add(out, &p->unknown, 1);
        }
        TRY(data_ids_add(out, &id, 1));
    }
    return ST_OK;
}
