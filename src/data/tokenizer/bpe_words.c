// Encodes the words of a text, as a scanner cuts it.
//
// Nearly all words are short and were seen before, so a table holds the ids of words of up to 15
// bytes that are up to three tokens. A slot is half a cache line: the word's bytes and length as
// two numbers, and its ids. A word has one slot, and a new word takes the slot of the one before
// it. Other words take the way of bpe_word.
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/scanner.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS_LOG = 16, WORD_BYTES = 15, WORD_IDS = 3, LENGTH_SHIFT = 56 };

typedef struct word_slot {
    uint64_t low, high; // the bytes; the highest one is the length, 0 in an empty slot
    int32_t ids[WORD_IDS];
    int32_t count;
} word_slot;

struct bpe_quick {
    word_slot slots[1 << SLOTS_LOG];
};

// The first `length` bytes, of the `left` bytes that the text still has. length: 1 to 15.
static inline void load_word(const uint8_t *bytes, int64_t length, int64_t left, uint64_t *low,
                             uint64_t *high)
{
    uint64_t two[2] = {0, 0};
    if (left >= 16) {
        memcpy(two, bytes, 16);
        if (length < 8) {
            two[0] &= (UINT64_C(1) << 8 * length) - 1;
            two[1] = 0;
        } else {
            two[1] &= (UINT64_C(1) << 8 * (length - 8)) - 1;
        }
    } else {
        memcpy(two, bytes, (size_t)length);
    }
    *low = two[0];
    *high = two[1] | (uint64_t)length << LENGTH_SHIFT;
}

static inline uint64_t hash_word(uint64_t low, uint64_t high)
{
    const uint64_t mixed =
        (low ^ high * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xd6e8feb86659fd93);
    return mixed >> (64 - SLOTS_LOG);
}

// Takes the long way and keeps the result, if it fits.
static status encode_new(bpe *b, word_slot *slot, uint64_t low, uint64_t high, const uint8_t *word,
                         int64_t bytes, data_ids *out)
{
    const int64_t before = out->count;
    TRY(bpe_word(b, word, bytes, out));
    const int64_t count = out->count - before;
    if (count > WORD_IDS) return ST_OK;
    *slot = (word_slot){.low = low, .high = high, .count = (int32_t)count};
    if (count > 0) memcpy(slot->ids, out->items + before, (size_t)count * sizeof(int32_t));
    return ST_OK;
}

// A word whose slot is on its way into the cache of the processor.
typedef struct next_word {
    const uint8_t *at;
    int64_t bytes;
    uint64_t low, high;
    word_slot *slot; // NULL: a long word
} next_word;

enum { AHEAD = 16 };

// Finds up to AHEAD words from *at on.
static int find_words(bpe *b, const scanner *s, const uint8_t *text, int64_t count, int64_t *at,
                      next_word words[AHEAD])
{
    int n = 0;
    for (; n < AHEAD && *at < count; n++) {
        next_word *w = &words[n];
        const int64_t end = s->next(s, text, count, *at);
        *w = (next_word){.at = text + *at, .bytes = end - *at};
        DEBUG_ASSERT(w->bytes > 0);
        if (w->bytes <= WORD_BYTES) {
            load_word(w->at, w->bytes, count - *at, &w->low, &w->high);
            w->slot = &b->quick->slots[hash_word(w->low, w->high)];
            __builtin_prefetch(w->slot);
        }
        *at = end;
    }
    return n;
}

// The table is larger than the nearest caches, so words are found some ahead of those whose ids are
// taken.
status bpe_encode_words(bpe *b, const scanner *s, const uint8_t *text, int64_t count, data_ids *out)
{
    next_word words[AHEAD];
    for (int64_t at = 0; at < count;) {
        const int n = find_words(b, s, text, count, &at, words);
        if (out->capacity - out->count < AHEAD * WORD_IDS) {
            static const int32_t none[AHEAD * WORD_IDS];
            TRY(data_ids_add(out, none, AHEAD * WORD_IDS)); // makes space
            out->count -= AHEAD * WORD_IDS;
        }
        for (int i = 0; i < n; i++) {
            const next_word *w = &words[i];
            if (w->slot == NULL) {
                TRY(bpe_word(b, w->at, w->bytes, out));
            } else if (w->slot->low != w->low || w->slot->high != w->high) {
                TRY(encode_new(b, w->slot, w->low, w->high, w->at, w->bytes, out));
            } else if (out->capacity - out->count < WORD_IDS) {
                TRY(data_ids_add(out, w->slot->ids, w->slot->count));
            } else {
                memcpy(out->items + out->count, w->slot->ids, sizeof(w->slot->ids));
                out->count += w->slot->count;
            }
        }
    }
    return ST_OK;
}

status bpe_quick_open(bpe *b)
{
    if (b->quick != NULL) return ST_OK;
    b->quick = calloc(1, sizeof(*b->quick));
    return b->quick != NULL ? ST_OK : fail(ST_NO_MEMORY, "no memory for the cache of words");
}
