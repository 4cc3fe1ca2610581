// Encodes with a byte-level BPE: it cuts out added tokens and splits the rest into words. A word's
// ids come from a cache or from merging.
//
//   text ──valid UTF-8──> stretches between added tokens ──split──> words ──cache/merge──> ids
//
// The cache holds recent words of up to 64 bytes (natural text repeats itself: 99% hits). A full
// cache is emptied: that is simpler than any eviction, and as fast.
#include "data/tokenizer/bpe.h"

#include <stdlib.h>
#include <string.h>

enum {
    CACHE_SLOTS = 1 << 17,
    CACHE_WORDS_MAX = CACHE_SLOTS / 2,
    CACHE_WORD_BYTES = 64,
    CACHE_KEY_BYTES = 1 << 20,
    CACHE_IDS = 1 << 19
};

typedef struct cache_slot {
    uint64_t hash;
    uint32_t key_at, ids_at;
    uint16_t key_bytes, ids_count; // key_bytes 0: empty
} cache_slot;

struct bpe_cache {
    cache_slot slots[CACHE_SLOTS];
    int64_t words, key_bytes, ids_count;
    uint8_t keys[CACHE_KEY_BYTES];
    int32_t ids[CACHE_IDS];
};

static void cache_clear(bpe_cache *c)
{
    memset(c->slots, 0, sizeof(c->slots));
    c->words = c->key_bytes = c->ids_count = 0;
}

static status encode_new(bpe *b, const uint8_t *word, int64_t bytes, data_ids *out)
{
    if (b->encode_unseen != NULL) return b->encode_unseen(b->unseen_context, word, bytes, out);
    const int32_t whole = b->ignore_merges ? bpe_find(b, (const char *)word, bytes) : -1;
    return whole >= 0 ? data_ids_add(out, &whole, 1) : bpe_encode_word(b, word, bytes, out);
}

static status encode_cached(bpe *b, const uint8_t *word, int64_t bytes, data_ids *out)
{
    bpe_cache *c = b->cache;
    const uint64_t hash = hash64(word, bytes, 0);
    uint64_t at = hash & (CACHE_SLOTS - 1);
    for (; c->slots[at].key_bytes != 0; at = (at + 1) & (CACHE_SLOTS - 1)) {
        const cache_slot *s = &c->slots[at];
        if (s->hash == hash && s->key_bytes == bytes &&
            memcmp(c->keys + s->key_at, word, (size_t)bytes) == 0) {
            return data_ids_add(out, c->ids + s->ids_at, s->ids_count);
        }
    }
    const int64_t before = out->count;
    TRY(encode_new(b, word, bytes, out));
    const int64_t count = out->count - before; // at most `bytes`, so at most 64
    if (c->words == CACHE_WORDS_MAX || c->key_bytes + bytes > CACHE_KEY_BYTES ||
        c->ids_count + count > CACHE_IDS) {
        cache_clear(c);
        at = hash & (CACHE_SLOTS - 1);
    }
    c->slots[at] = (cache_slot){.hash = hash,
                                .key_at = (uint32_t)c->key_bytes,
                                .ids_at = (uint32_t)c->ids_count,
                                .key_bytes = (uint16_t)bytes,
                                .ids_count = (uint16_t)count};
    memcpy(c->keys + c->key_bytes, word, (size_t)bytes);
    if (count > 0) {
        memcpy(c->ids + c->ids_count, out->items + before, (size_t)count * sizeof(int32_t));
    }
    c->words++;
    c->key_bytes += bytes;
    c->ids_count += count;
    return ST_OK;
}

status bpe_word(bpe *b, const uint8_t *word, int64_t bytes, data_ids *out)
{
    if (bytes <= CACHE_WORD_BYTES) return encode_cached(b, word, bytes, out);
    return encode_new(b, word, bytes, out);
}

status bpe_cache_open(bpe *b)
{
    if (b->cache != NULL) return ST_OK;
    TRY(bpe_quick_open(b));
    b->cache = malloc(sizeof(*b->cache));
    if (b->cache == NULL) return fail(ST_NO_MEMORY, "no memory for the cache of words");
    cache_clear(b->cache);
    return ST_OK;
}

static status encode_words(bpe *b, const uint8_t *text, int64_t count, data_ids *out)
{
    const scanner gpt2 = scanner_gpt2(b->classes);
    return bpe_encode_words(b, &gpt2, text, count, out);
}

// A stretch without added tokens.
static status encode_stretch(bpe *b, const char *text, int64_t count, data_ids *out)
{
    if (count == 0) return ST_OK;
    if (b->add_prefix_space && text[0] != ' ') {
        b->prefixed.count = 0;
        TRY(data_bytes_add(&b->prefixed, " ", 1));
        TRY(data_bytes_add(&b->prefixed, text, count));
        return encode_words(b, (const uint8_t *)b->prefixed.items, b->prefixed.count, out);
    }
    return encode_words(b, (const uint8_t *)text, count, out);
}

// The longest added token at this place, or NULL.
static const bpe_added *added_at(const bpe *b, const char *text, int64_t count, bool special)
{
    const uint8_t first = (uint8_t)text[0];
    for (int32_t i = b->added_first[first]; i < b->added_first[first + 1]; i++) {
        const bpe_added *a = &b->added[i];
        if ((special || !a->special) && a->count <= count &&
            memcmp(a->bytes, text, (size_t)a->count) == 0) {
            return a;
        }
    }
    return NULL;
}

static status encode(data_tokenizer *t, const char *text, int64_t count, int flags, data_ids *out)
{
    bpe *b = t->bpe;
    TRY(bpe_cache_open(b));
    if (utf8_valid_prefix(text, count) != count) {
        b->repaired.count = 0;
        TRY(utf8_repair(text, count, &b->repaired));
        text = b->repaired.items;
        count = b->repaired.count;
        if (count > TOKENIZER_TEXT_MAX) {
            return fail(ST_DATA, "a text of %lld bytes is not UTF-8", (long long)count);
        }
    }
    const bool special = (flags & DATA_ENCODE_SPECIAL) != 0;
    if (!special && !b->has_plain_added) return encode_stretch(b, text, count, out);
    int64_t begin = 0;
    const int32_t *first = b->added_first;
    for (int64_t at = 0; at < count;) {
        const uint8_t c = (uint8_t)text[at];
        if (first[c] == first[c + 1]) {
            at++;
            continue;
        }
        const bpe_added *found = added_at(b, text + at, count - at, special);
        if (found == NULL) {
            at++;
            continue;
        }
        TRY(encode_stretch(b, text + begin, at - begin, out));
        TRY(data_ids_add(out, &found->id, 1));
        at += found->count;
        begin = at;
    }
    return encode_stretch(b, text + begin, count - begin, out);
}

static status decode_one(const bpe *b, int32_t id, int flags, data_bytes *out)
{
    if (id < 0 || id >= b->tokens_count) return ST_OK;
    const bpe_token *t = &b->shown[id];
    const bool skips = (flags & DATA_DECODE_SKIP_SPECIAL) != 0 && (t->flags & BPE_SPECIAL) != 0;
    if ((t->flags & BPE_PRESENT) == 0 || skips) return ST_OK;
    return data_bytes_add(out, t->bytes, t->count);
}

// A short token is copied with the bytes behind it, which the next token overwrites.
status bpe_decode(const bpe *b, const int32_t *ids, int64_t count, int flags, data_bytes *out)
{
    for (int64_t i = 0; i < count; i++) {
        const int32_t id = ids[i];
        const bool is_known = id >= 0 && id < b->tokens_count;
        const bpe_short *s = is_known ? &b->shorts[id] : NULL;
        const bool has_space = out->capacity - out->count >= (int64_t)sizeof(*s);
        if (s == NULL || s->count == 255 || !has_space) {
            TRY(decode_one(b, id, flags, out));
            continue;
        }
        memcpy(out->items + out->count, s, sizeof(*s));
        out->count += s->count;
    }
    return ST_OK;
}

void bpe_row_token(const data_tokenizer *t, int32_t id, const char **bytes, int64_t *count,
                   bool *special)
{
    *bytes = "";
    *count = 0;
    *special = false;
    if (id < 0 || id >= t->bpe->tokens_count) return;
    const bpe_token *found = &t->bpe->shown[id];
    if ((found->flags & BPE_PRESENT) == 0) return;
    *bytes = found->bytes;
    *count = found->count;
    *special = (found->flags & BPE_SPECIAL) != 0;
}

int32_t bpe_row_find(const data_tokenizer *t, const char *text)
{
    const bpe *b = t->bpe;
    const int64_t count = (int64_t)strlen(text);
    for (int64_t i = 0; i < b->added_count; i++) {
        if (b->added[i].count == count && memcmp(b->added[i].bytes, text, (size_t)count) == 0) {
            return b->added[i].id;
        }
    }
    return bpe_find(b, text, count);
}

void bpe_free(bpe *b)
{
    free(b->cache);
    free(b->quick);
    free(b->symbols);
    free(b->heap);
    data_bytes_deinit(&b->repaired);
    data_bytes_deinit(&b->prefixed);
    b->cache = NULL;
    b->quick = NULL;
    b->symbols = NULL;
    b->heap = NULL;
    b->symbols_capacity = b->heap_capacity = 0;
}

static status words(data_tokenizer *t, const char *text, int64_t count, data_take_word *take,
                    void *context)
{
    const scanner gpt2 = scanner_gpt2(t->bpe->classes);
    for (int64_t at = 0; at < count;) {
        const int64_t end = gpt2.next(&gpt2, (const uint8_t *)text, count, at);
        TRY(take(context, text + at, end - at));
        at = end;
    }
    return ST_OK;
}

status bpe_clone(const bpe *b, arena *a, bpe **out)
{
    TRY(arena_new(a, 1, out));
    bpe *copy = *out;
    *copy = *b;
    copy->cache = NULL;
    copy->quick = NULL;
    copy->repaired = copy->prefixed = (data_bytes){0};
    copy->symbols = NULL;
    copy->heap = NULL;
    copy->symbols_capacity = copy->heap_capacity = 0;
    return ST_OK;
}

static status unshare(data_tokenizer *t, arena *a)
{
    return bpe_clone(t->bpe, a, &t->bpe);
}

static void close_bpe(data_tokenizer *t)
{
    bpe_free(t->bpe);
}

const data_tokenizer_row data_tokenizer_row_bpe = {.name = "bpe",
                                                   .encode = encode,
                                                   .token = bpe_row_token,
                                                   .find = bpe_row_find,
                                                   .close = close_bpe,
                                                   .unshare = unshare,
                                                   .words = words};
