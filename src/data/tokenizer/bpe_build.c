// Builds a vocabulary from either file form and checks all input from the file: ids in range and
// unique, all 256 bytes present, merges of known tokens into known tokens.
#include "data/tokenizer/bpe.h"

#include <stdlib.h>
#include <string.h>

enum { BYTES_SEED = 7 };

// Writes the bytes that a token's spelling stands for and returns their number; bytes has space for
// `count`. A spelling that is not byte-level stands for itself.
static int64_t unspell(const bpe_builder *b, const char *text, int64_t count, char *bytes,
                       bool *is_byte_level)
{
    const int64_t n = b->is_text || count == 0 ? -1 : bpe_unspell(text, count, bytes);
    *is_byte_level = b->is_text ? count > 0 : n >= 0;
    if (n >= 0) return n;
    memcpy(bytes, text, (size_t)count);
    return count;
}

static int64_t table_size(int64_t count)
{
    int64_t size = 64;
    while (size < 2 * count) size *= 2;
    return size;
}

int32_t bpe_find(const bpe *b, const char *bytes, int64_t count)
{
    for (uint64_t at = hash64(bytes, count, BYTES_SEED);; at++) {
        const int32_t slot = b->by_bytes[at & (uint64_t)b->by_bytes_mask];
        if (slot == 0) return -1;
        const bpe_token *t = &b->tokens[slot - 1];
        if (t->count == count && memcmp(t->bytes, bytes, (size_t)count) == 0) return slot - 1;
    }
}

static uint64_t pair_hash(uint64_t pair)
{
    const uint64_t mixed = pair * 0x9e3779b97f4a7c15u;
    return mixed ^ mixed >> 29;
}

const bpe_merge *bpe_merge_find(const bpe *b, int32_t left, int32_t right)
{
    const uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    for (uint64_t at = pair_hash(pair);; at++) {
        const bpe_merge *m = &b->merges[at & (uint64_t)b->merges_mask];
        if (m->rank < 0) return NULL;
        if (m->pair == pair) return m;
    }
}

status bpe_build_begin(bpe_builder *b, arena *a, const char *path)
{
    *b = (bpe_builder){.a = a, .path = path};
    TRY(arena_new(a, 1, &b->vocab));
    TRY(arena_new(a, SPLIT_CLASS_POINTS, &b->vocab->classes));
    split_classes_fill(b->vocab->classes);
    TRY(arena_new(a, 2 * TOKENIZER_TOKEN_MAX, &b->whole));
    b->hash = hash_begin();
    if (b->hash == NULL) return fail(ST_NO_MEMORY, "%s: no memory to read it", path);
    return ST_OK;
}

void bpe_build_abandon(bpe_builder *b)
{
    if (b->hash != NULL) (void)hash_end(b->hash);
    b->hash = NULL;
}

static status check_id(const bpe_builder *b, const char *text, int64_t id)
{
    if (id >= 0 && id < TOKENIZER_IDS_MAX) return ST_OK;
    return fail(ST_DAMAGED, "%s: token \"%.80s\" has id %lld, expected 0 to %d", b->path, text,
                (long long)id, TOKENIZER_IDS_MAX - 1);
}

static status place_token(bpe_builder *b, int64_t id, const char *text, int64_t bytes, int flags)
{
    bpe_token *t = &b->vocab->tokens[id];
    if (bytes > TOKENIZER_TOKEN_MAX) {
        return fail(ST_DAMAGED, "%s: token %lld has %lld bytes, at most %d expected", b->path,
                    (long long)id, (long long)bytes, TOKENIZER_TOKEN_MAX);
    }
    char *raw = NULL;
    TRY(arena_new(b->a, bytes + 1, &raw));
    bool is_byte_level = false;
    const int64_t count = unspell(b, text, bytes, raw, &is_byte_level);
    if ((t->flags & BPE_PRESENT) != 0) {
        // An added token usually repeats one of the vocabulary.
        if ((flags & BPE_ADDED) != 0 && t->count == count &&
            memcmp(t->bytes, raw, (size_t)count) == 0) {
            t->flags |= flags;
            return ST_OK;
        }
        return fail(ST_DAMAGED, "%s: tokens \"%.80s\" and \"%.*s\" have the same id %lld", b->path,
                    text, (int)min_i64(t->count, 80), t->bytes, (long long)id);
    }
    *t = (bpe_token){.bytes = raw,
                     .count = (int32_t)count,
                     .flags = BPE_PRESENT | flags | (is_byte_level ? BPE_BYTE_LEVEL : 0)};
    return ST_OK;
}

// A vocabulary is a map from tokens to ids, or a list of [token, score], whose place is the id.
static const char *vocab_at(const json *vocab, int64_t i, int64_t *bytes, int64_t *id)
{
    const json *value = NULL;
    if (json_kind_of(vocab) == JSON_LIST) {
        const json *text = json_at(json_at(vocab, i), 0);
        *bytes = json_text_bytes(text);
        *id = json_kind_of(text) == JSON_TEXT ? i : -1;
        return json_text(text, "");
    }
    const char *text = json_key_at(vocab, i, &value);
    *bytes = (int64_t)strlen(text);
    *id = json_int(value, -1);
    return text;
}

int32_t bpe_build_added_id(const bpe_builder *b, const json *item, int64_t i)
{
    return b->added_ids != NULL ? b->added_ids[i] : (int32_t)json_int(json_get(item, "id"), -1);
}

// The reference gives an added token that the vocabulary lacks the id behind the largest one so
// far, whatever the file says.
static status number_added(bpe_builder *b, const json *vocab, const json *added)
{
    const int64_t count = json_count(vocab);
    int64_t last = -1, largest = -1;
    if (!b->renumbers) return ST_OK;
    TRY(arena_new(b->a, json_count(added) + 1, &b->added_ids));
    for (int64_t i = 0; i < count; i++) {
        int64_t bytes = 0, id = -1;
        (void)vocab_at(vocab, i, &bytes, &id);
        last = max_i64(last, id);
    }
    for (int64_t i = 0; i < json_count(added); i++) {
        int64_t id = json_int(json_get(json_at(added, i), "id"), -1);
        if (id > last) id = largest >= count ? largest + 1 : count;
        largest = max_i64(largest, id);
        b->added_ids[i] = (int32_t)max_i64(-1, min_i64(id, INT32_MAX));
    }
    return ST_OK;
}

static status measure(const bpe_builder *b, const json *vocab, const json *added, int64_t *out)
{
    int64_t largest = -1;
    const int64_t count = json_count(vocab);
    for (int64_t i = 0; i < count; i++) {
        int64_t bytes = 0, id = -1;
        const char *text = vocab_at(vocab, i, &bytes, &id);
        TRY(check_id(b, text, id));
        largest = max_i64(largest, id);
    }
    for (int64_t i = 0; i < json_count(added); i++) {
        const json *item = json_at(added, i);
        const char *text = json_text(json_get(item, "content"), NULL);
        if (text == NULL || text[0] == 0) {
            return fail(ST_DAMAGED, "%s: added token %lld has no `content`", b->path, (long long)i);
        }
        const int64_t id = json_int(json_get(item, "id"), -1);
        TRY(check_id(b, text, id));
        largest = max_i64(largest, bpe_build_added_id(b, item, i));
    }
    // A few ids spread over millions would let a small file request much memory.
    if (largest + 1 > 16 * (count + json_count(added)) + 65536) {
        return fail(ST_DAMAGED, "%s: largest id %lld, but only %lld tokens", b->path,
                    (long long)largest, (long long)count);
    }
    *out = largest + 1;
    return ST_OK;
}

static status index_tokens(bpe_builder *b)
{
    bpe *v = b->vocab;
    const int64_t size = table_size(v->tokens_count);
    TRY(arena_new(b->a, size, &v->by_bytes));
    v->by_bytes_mask = size - 1;
    for (int64_t id = 0; id < v->tokens_count; id++) {
        const bpe_token *t = &v->tokens[id];
        if ((t->flags & BPE_BYTE_LEVEL) == 0) continue;
        uint64_t at = hash64(t->bytes, t->count, BYTES_SEED);
        while (v->by_bytes[at & (uint64_t)v->by_bytes_mask] != 0) at++;
        v->by_bytes[at & (uint64_t)v->by_bytes_mask] = (int32_t)id + 1;
    }
    if (b->is_text) return ST_OK;
    // A vocabulary of letters lacks most bytes; the encoder then refuses a text that holds one of
    // them.
    bool has_any = false;
    v->has_all_bytes = true;
    for (int byte = 0; byte < 256; byte++) {
        const char c = (char)byte;
        v->byte_ids[byte] = bpe_find(v, &c, 1);
        if (v->byte_ids[byte] < 0) v->has_all_bytes = false;
        if (v->byte_ids[byte] >= 0) has_any = true;
    }
    if (has_any) return ST_OK;
    return fail(ST_UNSUPPORTED,
                "%s: no token stands for a single byte; a byte-level vocabulary is expected",
                b->path);
}

status bpe_build_tokens(bpe_builder *b, const json *vocab, const json *added_tokens)
{
    const bool is_list = b->is_text && json_kind_of(vocab) == JSON_LIST;
    if ((json_kind_of(vocab) != JSON_MAP && !is_list) || json_count(vocab) == 0) {
        return fail(ST_DAMAGED, "%s: no vocabulary: a map from tokens to ids expected", b->path);
    }
    TRY(number_added(b, vocab, added_tokens));
    TRY(measure(b, vocab, added_tokens, &b->vocab->tokens_count));
    TRY(arena_new(b->a, b->vocab->tokens_count, &b->vocab->tokens));
    for (int64_t i = 0; i < json_count(vocab); i++) {
        int64_t bytes = 0, id = -1;
        const char *text = vocab_at(vocab, i, &bytes, &id);
        TRY(place_token(b, id, text, bytes, 0));
    }
    return index_tokens(b);
}

status bpe_build_prefix(bpe_builder *b, const json *prefix)
{
    char *copy = NULL;
    const int64_t bytes = json_text_bytes(prefix);
    if (bytes == 0) return ST_OK;
    if (bytes > BPE_AFFIX_MAX) {
        return fail(ST_UNSUPPORTED, "%s: a `continuing_subword_prefix` of %lld bytes; at most %d",
                    b->path, (long long)bytes, (int)BPE_AFFIX_MAX);
    }
    TRY(arena_new(b->a, bytes + 1, &copy));
    memcpy(copy, json_text(prefix, ""), (size_t)bytes);
    b->vocab->prefix = copy;
    b->vocab->prefix_bytes = (int32_t)bytes;
    hash_add(b->hash, copy, bytes);
    return ST_OK;
}

status bpe_build_suffix(bpe_builder *b, const char *suffix, int64_t bytes)
{
    char *copy = NULL, whole[BPE_AFFIX_MAX + 1];
    bpe *v = b->vocab;
    if (bytes > BPE_AFFIX_MAX) {
        return fail(ST_UNSUPPORTED, "%s: an `end_of_word_suffix` of %lld bytes; at most %d",
                    b->path, (long long)bytes, (int)BPE_AFFIX_MAX);
    }
    TRY(arena_new(b->a, bytes + 1, &copy));
    memcpy(copy, suffix, (size_t)bytes);
    memcpy(whole + 1, suffix, (size_t)bytes);
    v->suffix = copy;
    v->suffix_bytes = (int32_t)bytes;
    hash_add(b->hash, copy, bytes);
    for (int byte = 0; byte < 256 && !b->is_text; byte++) {
        whole[0] = (char)byte;
        v->suffix_ids[byte] = bpe_find(v, whole, bytes + 1);
        if (v->suffix_ids[byte] >= 0) continue;
        return fail(ST_UNSUPPORTED,
                    "%s: `end_of_word_suffix` \"%.40s\" is not supported where a byte (0x%02x) "
                    "with it has no token",
                    b->path, copy, (unsigned)byte);
    }
    return ST_OK;
}

status bpe_build_merges_begin(bpe_builder *b, int64_t count)
{
    const int64_t size = table_size(count);
    TRY(arena_new(b->a, size, &b->vocab->merges));
    for (int64_t i = 0; i < size; i++) b->vocab->merges[i].rank = -1;
    b->vocab->merges_mask = size - 1;
    return ST_OK;
}

int32_t bpe_build_find(const bpe_builder *b, const char *text, int64_t count)
{
    bool is_byte_level = false;
    const int64_t bytes = unspell(b, text, count, b->whole, &is_byte_level);
    return is_byte_level ? bpe_find(b->vocab, b->whole, bytes) : -1;
}

static status merge_side(const bpe_builder *b, const char *text, int64_t count, char *bytes,
                         int64_t *bytes_count, int32_t *id)
{
    bool is_byte_level = false;
    *bytes_count = unspell(b, text, count, bytes, &is_byte_level);
    *id = is_byte_level ? bpe_find(b->vocab, bytes, *bytes_count) : -1;
    if (*id >= 0) return ST_OK;
    return fail(ST_DAMAGED, "%s: merge %lld names \"%.*s\", which is not in the vocabulary",
                b->path, (long long)b->merges_count + 1, (int)min_i64(count, 80), text);
}

// A pair that is given twice has its later rank, as in the reference.
static void place_merge(bpe_builder *b, int32_t left, int32_t right, int32_t id, int32_t rank)
{
    const uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint64_t at = pair_hash(pair);
    bpe_merge *m = &b->vocab->merges[at & (uint64_t)b->vocab->merges_mask];
    while (m->rank >= 0 && m->pair != pair)
        m = &b->vocab->merges[++at & (uint64_t)b->vocab->merges_mask];
    *m = (bpe_merge){.pair = pair, .rank = rank, .id = id};
    b->merges_count++;
    hash_add(b->hash, &pair, sizeof(pair));
    if (b->ranks != NULL) hash_add(b->hash, &rank, sizeof(rank));
}

status bpe_build_merge(bpe_builder *b, const char *left, int64_t left_bytes, const char *right,
                       int64_t right_bytes)
{
    int64_t counts[2] = {0, 0};
    int32_t ids[2] = {-1, -1};
    if (left_bytes > TOKENIZER_TOKEN_MAX || right_bytes > TOKENIZER_TOKEN_MAX) {
        return fail(ST_DAMAGED, "%s: merge %lld has %lld bytes", b->path,
                    (long long)b->merges_count + 1, (long long)(left_bytes + right_bytes));
    }
    // The right side follows the left one: together they are the merged token.
    TRY(merge_side(b, left, left_bytes, b->whole, &counts[0], &ids[0]));
    TRY(merge_side(b, right, right_bytes, b->whole + counts[0], &counts[1], &ids[1]));
    if (b->vocab->prefix_bytes > 0) { // which the right side loses
        const int64_t cut = min_i64(b->vocab->prefix_bytes, counts[1]);
        memmove(b->whole + counts[0], b->whole + counts[0] + cut, (size_t)(counts[1] - cut));
        counts[1] -= cut;
    }
    const int32_t id = bpe_find(b->vocab, b->whole, counts[0] + counts[1]);
    if (id < 0) {
        return fail(ST_DAMAGED, "%s: merge %lld gives \"%.*s%.*s\", which is not in the vocabulary",
                    b->path, (long long)b->merges_count + 1, (int)min_i64(left_bytes, 80), left,
                    (int)min_i64(right_bytes, 80), right);
    }
    place_merge(b, ids[0], ids[1], id, (int32_t)b->merges_count);
    return ST_OK;
}

// Counts the pairs of tokens that make a token, and places them where `places` says so.
static int64_t ranked_pairs(bpe_builder *b, bool places)
{
    const bpe *v = b->vocab;
    int64_t pairs = 0;
    for (int64_t id = 0; id < b->ranks->count && id < v->tokens_count; id++) {
        const bpe_token *t = &v->tokens[id];
        const int32_t rank = b->ranks->items[id];
        for (int32_t k = 1; rank >= 0 && k < t->count; k++) {
            const int32_t left = bpe_find(v, t->bytes, k);
            const int32_t right = left >= 0 ? bpe_find(v, t->bytes + k, t->count - k) : -1;
            if (right < 0 || left >= b->ranks->count || right >= b->ranks->count) continue;
            if (b->ranks->items[left] < 0 || b->ranks->items[right] < 0) continue;
            if (places) place_merge(b, left, right, (int32_t)id, rank);
            pairs++;
        }
    }
    return pairs;
}

status bpe_build_ranked_merges(bpe_builder *b)
{
    enum { TOKEN_MAX = 4096 }; // the work grows with the square of a token's length
    for (int64_t id = 0; id < b->vocab->tokens_count; id++) {
        if (b->vocab->tokens[id].count <= TOKEN_MAX) continue;
        return fail(ST_UNSUPPORTED, "%s: token %lld has %d bytes; at most %d are supported",
                    b->path, (long long)id, b->vocab->tokens[id].count, (int)TOKEN_MAX);
    }
    TRY(bpe_build_merges_begin(b, ranked_pairs(b, false)));
    (void)ranked_pairs(b, true);
    return ST_OK;
}

status bpe_build_added(bpe_builder *b, int32_t id, const char *text, int64_t bytes, bool special)
{
    bpe *v = b->vocab;
    ASSERT(id >= 0 && id < v->tokens_count);
    TRY(place_token(b, id, text, bytes, BPE_ADDED | (special ? BPE_SPECIAL : 0)));
    void *items = v->added;
    TRY(arena_grow(b->a, &items, &b->added_capacity, v->added_count + 1, sizeof(bpe_added)));
    v->added = items;
    char *copy = NULL;
    TRY(arena_new(b->a, bytes + 1, &copy));
    memcpy(copy, text, (size_t)bytes);
    v->added[v->added_count++] =
        (bpe_added){.bytes = copy, .count = (int32_t)bytes, .id = id, .special = special};
    v->has_plain_added = v->has_plain_added || !special;
    return ST_OK;
}

status bpe_build_respell(bpe_builder *b, int32_t id, const char *text, int64_t bytes)
{
    char *raw = NULL;
    bool is_byte_level = false;
    if (b->respelled == NULL) TRY(arena_new(b->a, b->vocab->tokens_count, &b->respelled));
    TRY(arena_new(b->a, bytes + 1, &raw));
    const int64_t count = unspell(b, text, bytes, raw, &is_byte_level);
    b->respelled[id] = (bpe_token){.bytes = raw,
                                   .count = (int32_t)count,
                                   .flags = BPE_PRESENT | (is_byte_level ? BPE_BYTE_LEVEL : 0)};
    return ST_OK;
}
