// BPE over the words of a pipeline: of bytes (the vocabulary spells bytes), or of characters, where
// a character without a token becomes the tokens of its bytes or the unknown token.
#include "data/tokenizer/pipeline/pipeline.h"

// The tokens of a character's bytes; false if one is missing.
static bool fall_back(const pipeline *p, const char *bytes, int length, int32_t ids[4])
{
    for (int i = 0; i < length; i++) {
        ids[i] = p->byte_tokens[(uint8_t)bytes[i]];
        if (ids[i] < 0) return false;
    }
    return p->byte_fallback;
}

// The reference holds the unknown token back until the next known character or the end, also over
// the tokens of bytes.
static status symbols_of(pipeline *p, const char *word, int64_t count)
{
    bool pending = false;
    p->symbols.count = 0;
    for (int64_t at = 0; at < count;) {
        uint32_t point = 0;
        bool torn = false;
        const int length = utf8_next((const uint8_t *)word + at, count - at, &point, &torn);
        ASSERT(length > 0);
        const int32_t id = bpe_find(p->vocab, word + at, length);
        int32_t ids[4];
        if (id >= 0) {
            if (pending) TRY(data_ids_add(&p->symbols, &p->unknown, 1));
            pending = false;
            TRY(data_ids_add(&p->symbols, &id, 1));
        } else if (fall_back(p, word + at, length, ids)) {
            TRY(data_ids_add(&p->symbols, ids, length));
        } else if (p->unknown >= 0) {
            if (pending && !p->fuse_unknown) TRY(data_ids_add(&p->symbols, &p->unknown, 1));
            pending = true;
        }
        at += length;
    }
    return pending ? data_ids_add(&p->symbols, &p->unknown, 1) : ST_OK;
}

status pipeline_word(pipeline *p, const char *word, int64_t count, data_ids *out)
{
    if (p->model == MODEL_WORDPIECE) return pipeline_wordpiece(p, word, count, out);
    if (p->model == MODEL_UNIGRAM) return pipeline_unigram(p, word, count, out);
    if (p->is_byte_level) return bpe_word(p->vocab, (const uint8_t *)word, count, out);
    const int32_t whole = p->vocab->ignore_merges ? bpe_find(p->vocab, word, count) : -1;
    if (whole >= 0) return data_ids_add(out, &whole, 1);
    TRY(symbols_of(p, word, count));
    return bpe_merge_ids(p->vocab, p->symbols.items, p->symbols.count, out);
}
