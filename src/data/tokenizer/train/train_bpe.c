// Learns the merges of a byte-level BPE: again and again the most frequent pair of neighbours in
// the words becomes a token; of equally frequent pairs the one with the lowest ids. Sennrich et
// al. 2016, arXiv:1508.07909; the order is that of the trainer of Hugging Face.
//
// A table counts each pair. The queue holds, for each pair, the words in which it may occur, so a
// merge visits only those. Counts in the queue may be too high, as merges of other pairs break a
// pair up: an entry that comes out with a count that is no longer true goes back with the true one.
// A token may be made by several merges; a pair that it forms later then has several entries, each
// with its own words, as in the reference.
//
// Memory: 4 bytes for each symbol of a different word, and as much for each place that a merge
// visits, all in one arena.
#include "data/tokenizer/train/train_internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct pair_row {
    uint64_t pair; // left id << 32 | right id
    int64_t count;
    int64_t mark;    // the step and word that added the last place
    int64_t pending; // places of this step
    int32_t *fill;   // where the next place goes
} pair_row;

typedef struct queue_entry {
    int64_t count;
    uint64_t pair;
    int64_t row;
    const int32_t *words;
    int64_t word_count;
} queue_entry;

typedef struct place {
    int32_t row, word;
} place;

typedef struct training {
    arena *a;
    // Words: symbols[begin[w]] to begin[w] + length[w].
    int32_t *symbols, *length;
    int64_t *begin, *counts;
    int64_t word_count;
    pair_row *rows;
    int32_t *slots; // open addressing: row + 1
    int64_t row_count, row_capacity, slot_mask;
    queue_entry *queue;
    int64_t queue_count, queue_capacity;
    place *places; // of this step
    int64_t place_count, place_capacity;
    int64_t step;
    train_model *model;
    int64_t merge_capacity;
    int32_t *by_bytes; // open addressing: id + 1
    int64_t by_bytes_mask;
} training;

static status grow(void **items, int64_t *capacity, int64_t wanted, int64_t item_bytes)
{
    if (wanted <= *capacity) return ST_OK;
    const int64_t grown = max_i64(wanted, max_i64(2 * *capacity, 1024));
    int64_t bytes = 0;
    void *moved = size_mul(grown, item_bytes, &bytes) ? realloc(*items, (size_t)bytes) : NULL;
    if (moved == NULL) {
        return fail(ST_NO_MEMORY, "no memory to train a tokenizer; give it fewer texts");
    }
    *items = moved;
    *capacity = grown;
    return ST_OK;
}

// ---- pairs --------------------------------------------------------------------------------------

static uint64_t mix(uint64_t pair)
{
    const uint64_t mixed = pair * 0x9e3779b97f4a7c15u;
    return mixed ^ mixed >> 29;
}

static status slots_grow(training *t)
{
    const int64_t size = t->slots == NULL ? 1 << 16 : 2 * (t->slot_mask + 1);
    int32_t *slots = calloc((size_t)size, sizeof(*slots));
    if (slots == NULL) return fail(ST_NO_MEMORY, "no memory to train a tokenizer");
    free(t->slots);
    t->slots = slots;
    t->slot_mask = size - 1;
    for (int64_t i = 0; i < t->row_count; i++) {
        uint64_t at = mix(t->rows[i].pair) & (uint64_t)t->slot_mask;
        while (slots[at] != 0) at = (at + 1) & (uint64_t)t->slot_mask;
        slots[at] = (int32_t)i + 1;
    }
    return ST_OK;
}

// The row of a pair, which is made if there is none.
static status row_of(training *t, int32_t left, int32_t right, int32_t *row)
{
    const uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    if (t->slots == NULL || 2 * t->row_count > t->slot_mask) TRY(slots_grow(t));
    uint64_t at = mix(pair) & (uint64_t)t->slot_mask;
    for (; t->slots[at] != 0; at = (at + 1) & (uint64_t)t->slot_mask) {
        *row = t->slots[at] - 1;
        if (t->rows[*row].pair == pair) return ST_OK;
    }
    if (t->row_count == INT32_MAX - 1) return fail(ST_UNSUPPORTED, "too many pairs of tokens");
    void *rows = t->rows;
    TRY(grow(&rows, &t->row_capacity, t->row_count + 1, sizeof(pair_row)));
    t->rows = rows;
    *row = (int32_t)t->row_count++;
    t->rows[*row] = (pair_row){.pair = pair, .mark = -1};
    t->slots[at] = *row + 1;
    return ST_OK;
}

// Adds to a pair's count; a pair that forms in a word is noted for the queue, once for each word.
static status pair_change(training *t, int32_t left, int32_t right, int32_t word, int64_t change)
{
    int32_t row = 0;
    TRY(row_of(t, left, right, &row));
    pair_row *r = &t->rows[row];
    const int64_t mark = t->step * t->word_count + word;
    r->count += change;
    if (change < 0 || r->mark == mark) return ST_OK;
    r->mark = mark;
    r->pending++;
    void *places = t->places;
    TRY(grow(&places, &t->place_capacity, t->place_count + 1, sizeof(place)));
    t->places = places;
    t->places[t->place_count++] = (place){.row = row, .word = word};
    return ST_OK;
}

// ---- the queue: a heap with the best entry first ------------------------------------------------

static bool is_better(const queue_entry *x, const queue_entry *y)
{
    return x->count != y->count ? x->count > y->count : x->pair < y->pair;
}

static status queue_push(training *t, queue_entry item)
{
    void *queue = t->queue;
    TRY(grow(&queue, &t->queue_capacity, t->queue_count + 1, sizeof(queue_entry)));
    t->queue = queue;
    int64_t at = t->queue_count++;
    while (at > 0 && is_better(&item, &t->queue[(at - 1) / 2])) {
        t->queue[at] = t->queue[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    t->queue[at] = item;
    return ST_OK;
}

static queue_entry queue_pop(training *t)
{
    queue_entry *q = t->queue;
    const queue_entry top = q[0], item = q[--t->queue_count];
    const int64_t count = t->queue_count;
    int64_t at = 0;
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= count) break;
        if (child + 1 < count && is_better(&q[child + 1], &q[child])) child++;
        if (!is_better(&q[child], &item)) break;
        q[at] = q[child];
        at = child;
    }
    q[at] = item;
    return top;
}

// Puts the pairs that formed in this step into the queue, each with its words.
static status queue_step(training *t)
{
    for (int64_t i = 0; i < t->place_count; i++) {
        pair_row *r = &t->rows[t->places[i].row];
        if (r->pending > 0) { // the first place of this row
            int32_t *words = NULL;
            TRY(arena_new(t->a, r->pending, &words));
            if (r->count > 0) {
                TRY(queue_push(t, (queue_entry){.count = r->count,
                                                .pair = r->pair,
                                                .row = t->places[i].row,
                                                .words = words,
                                                .word_count = r->pending}));
            }
            r->fill = words;
            r->pending = 0;
        }
        *r->fill++ = t->places[i].word;
    }
    t->place_count = 0;
    t->step++;
    return ST_OK;
}

// ---- tokens -------------------------------------------------------------------------------------

static int32_t *token_slot(const training *t, const char *bytes, int64_t count)
{
    uint64_t at = hash64(bytes, count, 0) & (uint64_t)t->by_bytes_mask;
    for (; t->by_bytes[at] != 0; at = (at + 1) & (uint64_t)t->by_bytes_mask) {
        const train_token *one = &t->model->tokens[t->by_bytes[at] - 1];
        if (one->count == count && memcmp(one->bytes, bytes, (size_t)count) == 0) break;
    }
    return &t->by_bytes[at];
}

// The id of the token with these bytes, which is made if there is none. known: among the tokens
// that a merge may find.
static status token_add(training *t, const char *bytes, int64_t count, bool known, int32_t *id)
{
    train_model *m = t->model;
    int32_t *slot = token_slot(t, bytes, count);
    if (known && *slot != 0) {
        *id = *slot - 1;
        return ST_OK;
    }
    char *copy = NULL;
    TRY(arena_new(t->a, count + 1, &copy));
    memcpy(copy, bytes, (size_t)count);
    *id = (int32_t)m->token_count++;
    m->tokens[*id] = (train_token){.bytes = copy, .count = (int32_t)count};
    if (known) *slot = *id + 1;
    return ST_OK;
}

// A special token is found by a merge if its characters are spelled as themselves.
static bool has_equal_spelling(const char *text)
{
    for (; *text != 0; text++) {
        if (*text <= ' ' || *text >= 0x7f) return false;
    }
    return true;
}

static status tokens_begin(training *t, const data_train_options *o, int32_t byte_ids[256])
{
    const int64_t most = max_i64(o->vocab_size, o->special_count + 256) + 1;
    int64_t size = 1024;
    uint8_t order[256];
    while (size < 2 * most) size *= 2;
    TRY(arena_new(t->a, most, &t->model->tokens));
    TRY(arena_new(t->a, size, &t->by_bytes));
    t->by_bytes_mask = size - 1;
    for (int64_t i = 0; i < o->special_count; i++) {
        int32_t id = 0;
        const char *text = o->special[i];
        TRY(token_add(t, text, (int64_t)strlen(text), has_equal_spelling(text), &id));
    }
    train_byte_order(order);
    for (int i = 0; i < 256; i++) {
        const char byte = (char)order[i];
        TRY(token_add(t, &byte, 1, true, &byte_ids[order[i]]));
    }
    return ST_OK;
}

// ---- words --------------------------------------------------------------------------------------

static status words_begin(training *t, const train_words *w, const int32_t byte_ids[256])
{
    int64_t at = 0;
    if (w->count >= INT32_MAX) return fail(ST_UNSUPPORTED, "too many different words");
    TRY(arena_new(t->a, w->bytes.count + 1, &t->symbols));
    TRY(arena_new(t->a, w->count + 1, &t->length));
    TRY(arena_new(t->a, w->count + 1, &t->begin));
    TRY(arena_new(t->a, w->count + 1, &t->counts));
    t->word_count = w->count;
    for (int64_t i = 0, n = 0; w->slots != NULL && i <= w->mask; i++) {
        const train_word *word = &w->slots[i];
        if (word->hash == 0) continue;
        const uint8_t *bytes = (const uint8_t *)w->bytes.items + word->at;
        t->begin[n] = at;
        t->length[n] = word->bytes;
        t->counts[n++] = word->count;
        for (int32_t k = 0; k < word->bytes; k++) t->symbols[at++] = byte_ids[bytes[k]];
    }
    for (int64_t n = 0; n < t->word_count; n++) {
        const int32_t *s = t->symbols + t->begin[n];
        for (int32_t k = 0; k + 1 < t->length[n]; k++) {
            TRY(pair_change(t, s[k], s[k + 1], (int32_t)n, t->counts[n]));
        }
    }
    return queue_step(t);
}

// Merges the pair wherever it occurs in the word.
static status word_merge(training *t, int32_t word, int32_t left, int32_t right, int32_t id)
{
    int32_t *s = t->symbols + t->begin[word];
    const int64_t count = t->counts[word];
    const int32_t length = t->length[word];
    int32_t n = 0; // symbols written so far
    for (int32_t i = 0; i < length;) {
        if (s[i] != left || i + 1 >= length || s[i + 1] != right) {
            s[n++] = s[i++];
            continue;
        }
        if (n > 0) {
            TRY(pair_change(t, s[n - 1], left, word, -count));
            TRY(pair_change(t, s[n - 1], id, word, count));
        }
        i += 2;
        if (i < length) {
            TRY(pair_change(t, right, s[i], word, -count));
            TRY(pair_change(t, id, s[i], word, count));
        }
        s[n++] = id;
    }
    t->length[word] = n;
    return ST_OK;
}

static status merge_best(training *t, const queue_entry *top)
{
    train_model *m = t->model;
    const int32_t left = (int32_t)(top->pair >> 32), right = (int32_t)(top->pair & UINT32_MAX);
    const train_token *a = &m->tokens[left], *b = &m->tokens[right];
    char *whole = NULL;
    int32_t id = 0;
    TRY(arena_new(t->a, (int64_t)a->count + b->count + 1, &whole));
    memcpy(whole, a->bytes, (size_t)a->count);
    memcpy(whole + a->count, b->bytes, (size_t)b->count);
    TRY(token_add(t, whole, (int64_t)a->count + b->count, true, &id));
    void *merges = m->merges;
    TRY(arena_grow(t->a, &merges, &t->merge_capacity, m->merge_count + 1, sizeof(train_merge)));
    m->merges = merges;
    m->merges[m->merge_count++] = (train_merge){.left = left, .right = right};
    for (int64_t i = 0; i < top->word_count; i++) {
        TRY(word_merge(t, top->words[i], left, right, id));
    }
    return queue_step(t);
}

static status learn(training *t, const data_train_options *o)
{
    while (t->model->token_count < o->vocab_size && t->queue_count > 0) {
        queue_entry top = queue_pop(t);
        const int64_t count = t->rows[top.row].count;
        if (top.count != count) { // other merges broke some of them up
            top.count = count;
            TRY(queue_push(t, top));
            continue;
        }
        if (count < 1 || count < o->min_frequency) break;
        TRY(merge_best(t, &top));
    }
    return ST_OK;
}

status train_bpe(arena *a, const train_words *w, const data_train_options *o, train_model *out)
{
    training t = {.a = a, .model = out};
    int32_t byte_ids[256];
    *out = (train_model){.token_count = 0};
    status st = tokens_begin(&t, o, byte_ids);
    if (st == ST_OK) st = words_begin(&t, w, byte_ids);
    if (st == ST_OK) st = learn(&t, o);
    free(t.rows);
    free(t.slots);
    free(t.queue);
    free(t.places);
    return st;
}
