// The row `pipeline` of the family of tokenizers.
#include "data/tokenizer/pipeline/pipeline.h"

#include <stdlib.h>

static status encode(data_tokenizer *t, const char *text, int64_t count, int flags, data_ids *out)
{
    pipeline *p = t->pipeline;
    TRY(bpe_cache_open(p->vocab));
    if (utf8_valid_prefix(text, count) != count) {
        p->repaired.count = 0;
        TRY(utf8_repair(text, count, &p->repaired));
        text = p->repaired.items;
        count = p->repaired.count;
        if (count > TOKENIZER_TEXT_MAX) {
            return fail(ST_DATA, "a text of %lld bytes that are no UTF-8", (long long)count);
        }
    }
    return pipeline_encode(p, text, count, flags, out);
}

static status decode(const data_tokenizer *t, data_decoder *d, int32_t id, int flags,
                     data_bytes *out)
{
    const bpe *b = t->bpe;
    if (id < 0 || id >= b->tokens_count) return ST_OK;
    const pipeline *p = t->pipeline;
    const bpe_token *token = &b->shown[id];
    if ((token->flags & BPE_PRESENT) == 0) return ST_OK;
    if ((token->flags & BPE_SPECIAL) != 0 && (flags & DATA_DECODE_SKIP_SPECIAL) != 0) return ST_OK;
    if ((flags & DATA_DECODE_CONTINUES) != 0) {
        d->begun = UINT32_MAX;
        d->cut_is_done = true;
    }
    if (!p->is_byte_level || pipeline_joins_bytes(p) || (token->flags & BPE_BYTE_LEVEL) == 0) {
        return pipeline_decode(p, d, token->bytes, token->count, out);
    }
    data_bytes spelled = {0};
    status st = ST_OK;
    for (int32_t i = 0; i < token->count && st == ST_OK; i++) {
        char one[2];
        const int length = bpe_spell_byte((uint8_t)token->bytes[i], one);
        st = data_bytes_add(&spelled, one, length);
    }
    if (st == ST_OK) st = pipeline_decode(p, d, spelled.items, spelled.count, out);
    data_bytes_deinit(&spelled);
    return st;
}

static status decode_end(const data_tokenizer *t, data_decoder *d, data_bytes *out)
{
    return pipeline_decode_end(t->pipeline, d, out);
}

// Added tokens have no say in training, as in the reference.
static status words(data_tokenizer *t, const char *text, int64_t count, data_take_word *take,
                    void *context)
{
    pipeline *p = t->pipeline;
    p->take = take;
    p->take_context = context;
    status st = pipeline_normalize(p, text, count, 0, &text, &count);
    if (st == ST_OK) st = pipeline_split(p, 0, text, count, true, NULL);
    p->take = NULL;
    return st;
}

void pipeline_free(pipeline *p)
{
    for (int i = 0; i < p->normalizer_count; i++) pattern_close(&p->normalizers[i].pattern);
    for (int i = 0; i < p->splitter_count; i++) {
        splitter *s = &p->splitters[i];
        pattern_close(&s->pattern);
        data_bytes_deinit(&s->changed);
        pieces_deinit(&s->pieces);
    }
    for (int i = 0; i < p->decoder_count; i++) pattern_close(&p->decoders[i].pattern);
    p->normalizer_count = p->splitter_count = p->decoder_count = 0;
    if (!p->is_copy) {
        free(p->tree.edges);
        free(p->cases);
    }
    free(p->path);
    p->tree = (token_tree){.edges = NULL};
    p->path = NULL;
    p->cases = NULL;
    p->path_capacity = 0;
    data_bytes_deinit(&p->repaired);
    data_bytes_deinit(&p->piece);
    for (int i = 0; i < 2; i++) data_bytes_deinit(&p->normal[i]);
    data_ids_deinit(&p->points);
    data_ids_deinit(&p->symbols);
    pieces_deinit(&p->matches);
}

static status unshare(data_tokenizer *t, arena *a)
{
    pipeline *p = NULL;
    status st = ST_OK;
    TRY(bpe_clone(t->bpe, a, &t->bpe));
    TRY(arena_new(a, 1, &p));
    *p = *t->pipeline;
    t->pipeline = p;
    p->is_copy = true;
    p->vocab = t->bpe;
    pipeline_use_cache(p);
    p->path = NULL;
    p->path_capacity = 0;
    p->repaired = p->piece = p->normal[0] = p->normal[1] = (data_bytes){0};
    p->points = p->symbols = (data_ids){0};
    p->matches = (pieces){0};
    for (int i = 0; i < p->splitter_count; i++) {
        p->splitters[i].changed = (data_bytes){0};
        p->splitters[i].pieces = (pieces){0};
    }
    // All patterns are the copy's own before one of them can fail.
    for (int i = 0; i < p->normalizer_count; i++) {
        const status one = pattern_unshare(&p->normalizers[i].pattern);
        if (st == ST_OK) st = one;
    }
    for (int i = 0; i < p->splitter_count; i++) {
        const status one = pattern_unshare(&p->splitters[i].pattern);
        if (st == ST_OK) st = one;
    }
    for (int i = 0; i < p->decoder_count; i++) {
        const status one = pattern_unshare(&p->decoders[i].pattern);
        if (st == ST_OK) st = one;
    }
    if (st != ST_OK) pipeline_free(p);
    return st;
}

static void close_pipeline(data_tokenizer *t)
{
    pipeline_free(t->pipeline);
    bpe_free(t->bpe);
}

const data_tokenizer_row data_tokenizer_row_pipeline = {.name = "pipeline",
                                                        .encode = encode,
                                                        .token = bpe_row_token,
                                                        .find = bpe_row_find,
                                                        .close = close_pipeline,
                                                        .unshare = unshare,
                                                        .decode = decode,
                                                        .decode_end = decode_end,
                                                        .words = words};
