// Encodes the words of a text, as a scanner cuts it.
//
// Nearly all words are short and were seen before, so a table holds the ids of words of up to 15
// bytes that are up to three tokens. A slot is half a cache line: the word's bytes and length as
// two numbers, and its ids. A word has one line, of which it takes the first slot; the word before
// it moves to the second. Other words take the way of bpe_word.
#include "data/tokenizer/blocks.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/scanner.h"

#include <stdlib.h>
#include <string.h>

enum { LINES_LOG = 16, WORD_BYTES = 15, WORD_IDS = 3, LENGTH_SHIFT = 56 };

typedef struct word_slot {
    uint64_t low, high; // the bytes; the highest one is the length, 0 in an empty slot
    int32_t ids[WORD_IDS];
    int32_t count;
} word_slot;

typedef struct word_line {
    word_slot slots[2];
} word_line;

struct bpe_quick {
    word_line lines[1 << LINES_LOG];
};

// The bytes of a key that a word of this length has.
static const uint64_t kept[WORD_BYTES + 1][2] = {
#define LOW(n)                          \
    {                                   \
        (UINT64_C(1) << 8 * (n)) - 1, 0 \
    }
#define HIGH(n)                                        \
    {                                                  \
        ~UINT64_C(0), (UINT64_C(1) << 8 * ((n)-8)) - 1 \
    }
    LOW(0),  LOW(1),  LOW(2),   LOW(3),   LOW(4),   LOW(5),   LOW(6),   LOW(7),
    HIGH(8), HIGH(9), HIGH(10), HIGH(11), HIGH(12), HIGH(13), HIGH(14), HIGH(15)};

static inline uint64_t hash_word(uint64_t low, uint64_t high)
{
    const uint64_t mixed =
        (low ^ high * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xd6e8feb86659fd93);
    return mixed >> (64 - LINES_LOG);
}

// Takes the long way and keeps the result, if it fits.
static status encode_new(bpe *b, word_line *line, uint64_t low, uint64_t high, const uint8_t *word,
                         int64_t bytes, data_ids *out)
{
    const int64_t before = out->count;
    TRY(bpe_word(b, word, bytes, out));
    const int64_t count = out->count - before;
    if (count > WORD_IDS) return ST_OK;
    line->slots[1] = line->slots[0];
    line->slots[0] = (word_slot){.low = low, .high = high, .count = (int32_t)count};
    if (count > 0) memcpy(line->slots[0].ids, out->items + before, (size_t)count * sizeof(int32_t));
    return ST_OK;
}

// A word whose line is on its way into the cache of the processor.
typedef struct next_word {
    const uint8_t *at;
    int64_t bytes;
    uint64_t low, high; // high 0: a long word
    word_line *line;
} next_word;

enum { AHEAD = 2 * BLOCK_BYTES, READS = 16 };

// A text, and what is found in it.
typedef struct word_walk {
    bpe_quick *quick;
    const scanner *s;
    blocks_fn blocks; // NULL: none
    const uint8_t *text;
    int64_t count, at;
    next_word words[AHEAD];
} word_walk;

// READS bytes from `at` on can be read.
static inline void add_word(bpe_quick *quick, next_word *w, const uint8_t *at, int64_t bytes)
{
    uint64_t two[2];
    memcpy(two, at, sizeof(two));
    const bool is_short = bytes <= WORD_BYTES;
    const uint64_t *mask = kept[is_short ? bytes : 0];
    const uint64_t low = two[0] & mask[0];
    const uint64_t high = is_short ? (two[1] & mask[1]) | (uint64_t)bytes << LENGTH_SHIFT : 0;
    *w = (next_word){.at = at,
                     .bytes = bytes,
                     .low = low,
                     .high = high,
                     .line = &quick->lines[hash_word(low, high)]};
    __builtin_prefetch(w->line);
}

// The same near the end of the text, and for all words that no block finds.
static void add_next(word_walk *k, next_word *w)
{
    const uint8_t *at = k->text + k->at;
    const int64_t left = k->count - k->at, end = k->s->next(k->s, k->text, k->count, k->at);
    uint8_t last[READS] = {0};
    DEBUG_ASSERT(end > k->at);
    if (left < READS) memcpy(last, at, (size_t)left);
    add_word(k->quick, w, left < READS ? last : at, end - k->at);
    w->at = at;
    k->at = end;
}

// Finds words from k->at on, a block's at once if possible; returns their number.
static int find_words(word_walk *k)
{
    int n = 0;
    while (n <= AHEAD - BLOCK_BYTES && k->at < k->count) {
        uint64_t starts = 0;
        if (k->blocks != NULL && k->at + BLOCK_BYTES + READS <= k->count && k->text[k->at] < 0x80) {
            starts = k->blocks(k->s, k->text + k->at);
        }
        if (starts == 0) {
            add_next(k, &k->words[n++]);
            continue;
        }
        const int64_t begin = k->at;
        for (; starts != 0; starts &= starts - 1) {
            const int64_t end = begin + __builtin_ctzll(starts);
            add_word(k->quick, &k->words[n++], k->text + k->at, end - k->at);
            k->at = end;
        }
    }
    return n;
}

static inline bool is_word(const word_slot *slot, const next_word *w)
{
    return ((slot->low ^ w->low) | (slot->high ^ w->high)) == 0;
}

// Makes space for the ids of n words that are in the table.
static status make_space(data_ids *out, int64_t n)
{
    static const int32_t none[AHEAD * WORD_IDS];
    if (out->capacity - out->count >= n * WORD_IDS) return ST_OK;
    TRY(data_ids_add(out, none, n * WORD_IDS));
    out->count -= n * WORD_IDS;
    return ST_OK;
}

// The table is larger than the nearest caches, so words are found some ahead of those whose ids are
// taken.
status bpe_encode_words(bpe *b, const scanner *s, const uint8_t *text, int64_t count, data_ids *out)
{
    word_walk k = {
        .quick = b->quick, .s = s, .blocks = blocks_for(s), .text = text, .count = count};
    while (k.at < count) {
        const int n = find_words(&k);
        TRY(make_space(out, n));
        int32_t *to = out->items + out->count;
        for (int i = 0; i < n; i++) {
            const next_word *w = &k.words[i];
            const word_slot *slot = &w->line->slots[is_word(&w->line->slots[0], w) ? 0 : 1];
            if (is_word(slot, w) && w->high != 0) {
                memcpy(to, slot->ids, sizeof(slot->ids));
                to += slot->count;
                continue;
            }
            out->count = to - out->items;
            if (w->high == 0) {
                TRY(bpe_word(b, w->at, w->bytes, out));
            } else {
                TRY(encode_new(b, w->line, w->low, w->high, w->at, w->bytes, out));
            }
            TRY(make_space(out, n - i));
            to = out->items + out->count;
        }
        out->count = to - out->items;
    }
    return ST_OK;
}

status bpe_quick_open(bpe *b)
{
    if (b->quick != NULL) return ST_OK;
    b->quick = aligned_alloc(sizeof(word_line), sizeof(*b->quick));
    if (b->quick == NULL) return fail(ST_NO_MEMORY, "no memory for the cache of words");
    memset(b->quick, 0, sizeof(*b->quick));
    return ST_OK;
}
