// Merges a word: the pair of neighbours with the lowest rank, the leftmost of equals, becomes one
// token, until no pair merges. Source: Sennrich et al. 2016, arXiv:1508.07909. The order is that of
// the reference, which matters where ranks do not grow with length.
//
// Nearly all words have few bytes: for them an array holds the ranks and a scan finds the lowest. A
// long word (a line of dashes, a megabyte of one letter) would take n^2 steps that way, so it uses
// a linked list and a heap: n log n.
#include "data/tokenizer/bpe.h"

#include <stdlib.h>
#include <string.h>

enum { SHORT_WORD_MAX = 96 };

static int32_t rank_of(const bpe *b, int32_t left, int32_t right)
{
    const bpe_merge *m = bpe_merge_find(b, left, right);
    return m != NULL ? m->rank : INT32_MAX;
}

// Changes `ids`, which has n items.
static status merge_short(const bpe *b, int32_t *ids, int64_t n, data_ids *out)
{
    int32_t ranks[SHORT_WORD_MAX];
    for (int64_t i = 0; i + 1 < n; i++) ranks[i] = rank_of(b, ids[i], ids[i + 1]);
    for (;;) {
        int64_t best = -1;
        int32_t best_rank = INT32_MAX;
        for (int64_t i = 0; i + 1 < n; i++) {
            if (ranks[i] < best_rank) {
                best_rank = ranks[i];
                best = i;
            }
        }
        if (best < 0) break;
        ids[best] = bpe_merge_find(b, ids[best], ids[best + 1])->id;
        n--;
        memmove(ids + best + 1, ids + best + 2, (size_t)(n - best - 1) * sizeof(ids[0]));
        memmove(ranks + best, ranks + best + 1, (size_t)(n - best - 1) * sizeof(ranks[0]));
        if (best > 0) ranks[best - 1] = rank_of(b, ids[best - 1], ids[best]);
        if (best + 1 < n) ranks[best] = rank_of(b, ids[best], ids[best + 1]);
    }
    return data_ids_add(out, ids, n);
}

static bool is_before(const bpe_candidate *x, const bpe_candidate *y)
{
    return x->rank != y->rank ? x->rank < y->rank : x->at < y->at;
}

static void heap_push(bpe_candidate *heap, int64_t *count, bpe_candidate item)
{
    int64_t at = (*count)++;
    while (at > 0 && is_before(&item, &heap[(at - 1) / 2])) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = item;
}

static bpe_candidate heap_pop(bpe_candidate *heap, int64_t *count)
{
    const bpe_candidate top = heap[0], item = heap[--(*count)];
    int64_t at = 0;
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= *count) break;
        if (child + 1 < *count && is_before(&heap[child + 1], &heap[child])) child++;
        if (!is_before(&heap[child], &item)) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = item;
    return top;
}

static void push_pair(bpe *b, int64_t *count, int32_t at)
{
    const bpe_symbol *s = &b->symbols[at];
    if (s->next < 0) return;
    const int32_t right = b->symbols[s->next].id;
    const int32_t rank = rank_of(b, s->id, right);
    if (rank == INT32_MAX) return;
    heap_push(b->heap, count, (bpe_candidate){rank, at, s->id, right});
}

static status reserve(bpe *b, int64_t bytes)
{
    if (bytes > b->symbols_capacity) {
        bpe_symbol *moved = realloc(b->symbols, (size_t)bytes * sizeof(*moved));
        if (moved == NULL)
            return fail(ST_NO_MEMORY, "no memory for a word of %lld bytes", (long long)bytes);
        b->symbols = moved;
        b->symbols_capacity = bytes;
    }
    // Each position pushes once at the start, and each merge (at most bytes - 1) twice.
    if (3 * bytes > b->heap_capacity) {
        bpe_candidate *moved = realloc(b->heap, (size_t)bytes * 3 * sizeof(*moved));
        if (moved == NULL)
            return fail(ST_NO_MEMORY, "no memory for a word of %lld bytes", (long long)bytes);
        b->heap = moved;
        b->heap_capacity = 3 * bytes;
    }
    return ST_OK;
}

// Merges the symbols, of which the caller filled in the ids.
static status merge_long(bpe *b, int64_t count, data_ids *out)
{
    bpe_symbol *s = b->symbols;
    int64_t heap_count = 0;
    for (int64_t i = 0; i < count; i++) {
        s[i].prev = (int32_t)i - 1;
        s[i].next = i + 1 < count ? (int32_t)i + 1 : -1;
    }
    for (int64_t i = 0; i + 1 < count; i++) push_pair(b, &heap_count, (int32_t)i);
    while (heap_count > 0) {
        const bpe_candidate c = heap_pop(b->heap, &heap_count);
        const int32_t next = s[c.at].next;
        // Stale if either side has been merged since. A merged-away symbol has id -1.
        if (s[c.at].id != c.left || next < 0 || s[next].id != c.right) continue;
        s[c.at].id = bpe_merge_find(b, c.left, c.right)->id;
        s[c.at].next = s[next].next;
        s[next].id = -1;
        if (s[c.at].next >= 0) s[s[c.at].next].prev = c.at;
        if (s[c.at].prev >= 0) push_pair(b, &heap_count, s[c.at].prev);
        push_pair(b, &heap_count, c.at);
    }
    for (int32_t i = 0; i >= 0; i = s[i].next) TRY(data_ids_add(out, &s[i].id, 1));
    return ST_OK;
}

static status bytes_known(const bpe *b, const uint8_t *word, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i++) {
        if (b->byte_ids[word[i]] >= 0) continue;
        const bool prints = word[i] > ' ' && word[i] < 0x7f;
        return fail(ST_DATA,
                    "the text has byte 0x%02x%s%.*s%s, for which the tokenizer has no token; take "
                    "it out of the text or use another tokenizer",
                    (unsigned)word[i], prints ? " (" : "", prints ? 1 : 0, (const char *)&word[i],
                    prints ? ")" : "");
    }
    return ST_OK;
}

status bpe_encode_word(bpe *b, const uint8_t *word, int64_t bytes, data_ids *out)
{
    DEBUG_ASSERT(bytes > 0 && bytes <= TOKENIZER_TEXT_MAX);
    if (!b->has_all_bytes) TRY(bytes_known(b, word, bytes));
    if (bytes <= SHORT_WORD_MAX) {
        int32_t ids[SHORT_WORD_MAX];
        for (int64_t i = 0; i < bytes; i++) ids[i] = b->byte_ids[word[i]];
        if (b->suffix_bytes > 0) ids[bytes - 1] = b->suffix_ids[word[bytes - 1]];
        return merge_short(b, ids, bytes, out);
    }
    TRY(reserve(b, bytes));
    for (int64_t i = 0; i < bytes; i++) b->symbols[i].id = b->byte_ids[word[i]];
    if (b->suffix_bytes > 0) b->symbols[bytes - 1].id = b->suffix_ids[word[bytes - 1]];
    return merge_long(b, bytes, out);
}

status bpe_merge_ids(bpe *b, const int32_t *ids, int64_t count, data_ids *out)
{
    if (count == 0) return ST_OK;
    if (count <= SHORT_WORD_MAX) {
        int32_t copy[SHORT_WORD_MAX];
        memcpy(copy, ids, (size_t)count * sizeof(copy[0]));
        return merge_short(b, copy, count, out);
    }
    TRY(reserve(b, count));
    for (int64_t i = 0; i < count; i++) b->symbols[i].id = ids[i];
    return merge_long(b, count, out);
}
