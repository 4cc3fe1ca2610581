// The last step of building a vocabulary: added tokens in the order of the search, the end-of-text
// token, the texts that ids decode to, and the tokenizer itself.
#include "data/tokenizer/bpe.h"

#include <stdlib.h>
#include <string.h>

static void add_number(hash_stream *hash, int64_t number)
{
    hash_add(hash, &number, sizeof(number));
}

static int compare_added(const void *x, const void *y)
{
    const bpe_added *a = x, *b = y;
    const int first = (uint8_t)a->bytes[0], second = (uint8_t)b->bytes[0];
    if (first != second) return first < second ? -1 : 1;
    if (a->count != b->count) return a->count > b->count ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static void index_added(bpe *v)
{
    if (v->added_count > 1) {
        qsort(v->added, (size_t)v->added_count, sizeof(bpe_added), compare_added);
    }
    int32_t at = 0;
    for (int byte = 0; byte <= 256; byte++) {
        while (at < v->added_count && (uint8_t)v->added[at].bytes[0] < byte) at++;
        v->added_first[byte] = at;
    }
}

// The end-of-text tokens of published vocabularies, for files that do not name theirs.
static const char *const eot_texts[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"};

static int32_t find_eot(const bpe *v, const char *wanted)
{
    for (int64_t k = 0; k < COUNT_OF(eot_texts) + 1; k++) {
        const char *text = k == 0 ? wanted : eot_texts[k - 1];
        if (text == NULL) continue;
        for (int64_t i = 0; i < v->added_count; i++) {
            const bpe_added *a = &v->added[i];
            if ((int64_t)strlen(text) == a->count &&
                memcmp(a->bytes, text, (size_t)a->count) == 0) {
                return a->id;
            }
        }
    }
    return -1;
}

// Encoding without DATA_ENCODE_SPECIAL never gives the end-of-text token, whatever the file calls
// it: a document that spells the token would otherwise end itself.
static void eot_guard(bpe *v, int32_t eot)
{
    v->has_plain_added = false;
    for (int64_t i = 0; i < v->added_count; i++) {
        bpe_added *a = &v->added[i];
        if (a->id == eot) {
            a->special = true;
        }
        v->has_plain_added = v->has_plain_added || !a->special;
    }
}

// A piece that ends before white space may cut a token that contains some.
static bool has_blank_in_added(const bpe *v)
{
    for (int64_t i = 0; i < v->added_count; i++) {
        for (int32_t k = 0; k < v->added[i].count; k++) {
            const char c = v->added[i].bytes[k];
            if (c == ' ' || (c >= '\t' && c <= '\r')) return true;
        }
    }
    return false;
}

// The texts that ids decode to.
static status show_tokens(bpe_builder *b)
{
    bpe *v = b->vocab;
    bpe_token *shown = NULL;
    v->shown = v->tokens;
    if (b->respelled == NULL) return ST_OK;
    TRY(arena_new(b->a, v->tokens_count, &shown));
    for (int64_t id = 0; id < v->tokens_count; id++) {
        shown[id] = v->tokens[id];
        if (b->respelled[id].flags == 0) continue;
        shown[id].bytes = b->respelled[id].bytes;
        shown[id].count = b->respelled[id].count;
        shown[id].flags &= ~BPE_BYTE_LEVEL;
        shown[id].flags |= b->respelled[id].flags;
    }
    v->shown = shown;
    return ST_OK;
}

static status shorten_tokens(bpe_builder *b)
{
    bpe *v = b->vocab;
    TRY(arena_new(b->a, v->tokens_count, &v->shorts));
    for (int64_t id = 0; id < v->tokens_count; id++) {
        const bpe_token *t = &v->shown[id];
        bpe_short *s = &v->shorts[id];
        const bool is_plain = (t->flags & BPE_PRESENT) != 0 && (t->flags & BPE_SPECIAL) == 0;
        s->count = is_plain && t->count <= (int32_t)sizeof(s->bytes) ? (uint8_t)t->count : 255;
        if (s->count != 255 && s->count > 0) memcpy(s->bytes, t->bytes, s->count);
    }
    return ST_OK;
}

status bpe_build_finish(bpe_builder *b, const char *eot_text, data_tokenizer **out)
{
    bpe *v = b->vocab;
    TRY(show_tokens(b));
    index_added(v);
    data_tokenizer *t = NULL;
    TRY(arena_new(b->a, 1, &t));
    const int32_t eot = find_eot(v, eot_text);
    eot_guard(v, eot);
    TRY(shorten_tokens(b));
    for (int64_t id = 0; id < v->tokens_count; id++) {
        const bpe_token *token = &v->shown[id];
        add_number(b->hash, token->flags);
        add_number(b->hash, token->count);
        if (token->count > 0) hash_add(b->hash, token->bytes, token->count);
    }
    add_number(b->hash, b->merges_count);
    add_number(b->hash, eot);
    add_number(b->hash, v->ignore_merges ? 1 : 0);
    add_number(b->hash, v->add_prefix_space ? 1 : 0);
    const bool can_cut = !v->has_plain_added && !v->add_prefix_space && !has_blank_in_added(v);
    bool has_special = false;
    for (int64_t i = 0; i < v->added_count; i++) has_special = has_special || v->added[i].special;
    *t = (data_tokenizer){.row = &data_tokenizer_row_bpe,
                          .vocab_size = v->tokens_count,
                          .eot = eot,
                          .cuts = can_cut ? DATA_CUT_BLANKS : 0,
                          .has_special = has_special,
                          .flags = has_special ? DATA_ENCODE_SPECIAL : 0,
                          .id = hash_end(b->hash),
                          .bpe = v};
    b->hash = NULL;
    *out = t;
    return ST_OK;
}
