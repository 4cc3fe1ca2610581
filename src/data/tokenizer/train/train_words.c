// Counts the different words of texts. Threads take pieces of about a megabyte, which one thread
// reads, and count into tables of their own; the sum of the tables does not depend on which thread
// counted which piece.
#include "base/thread_pool.h"
#include "data/reader.h"
#include "data/tokenizer/train/train_internal.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

// ---- a table of words ---------------------------------------------------------------------------

static uint32_t hash_of(const char *word, int64_t bytes)
{
    const uint64_t hash = hash64(word, bytes, 0);
    const uint32_t low = (uint32_t)(hash ^ hash >> 32);
    return low != 0 ? low : 1;
}

static status words_grow(train_words *w)
{
    const int64_t size = w->slots == NULL ? 1 << 14 : 2 * (w->mask + 1);
    train_word *slots = calloc((size_t)size, sizeof(*slots));
    if (slots == NULL) {
        return fail(ST_NO_MEMORY,
                    "no memory for %lld different words; train on fewer texts, or with a split "
                    "that makes shorter words",
                    (long long)w->count);
    }
    for (int64_t i = 0; w->slots != NULL && i <= w->mask; i++) {
        if (w->slots[i].hash == 0) continue;
        int64_t at = w->slots[i].hash & (size - 1);
        while (slots[at].hash != 0) at = (at + 1) & (size - 1);
        slots[at] = w->slots[i];
    }
    free(w->slots);
    w->slots = slots;
    w->mask = size - 1;
    return ST_OK;
}

status train_words_add(train_words *w, const char *word, int64_t bytes, int64_t count)
{
    if (w->slots == NULL || 2 * w->count > w->mask) TRY(words_grow(w));
    const uint32_t hash = hash_of(word, bytes);
    int64_t at = hash & w->mask;
    for (; w->slots[at].hash != 0; at = (at + 1) & w->mask) {
        train_word *one = &w->slots[at];
        if (one->hash == hash && one->bytes == bytes &&
            memcmp(w->bytes.items + one->at, word, (size_t)bytes) == 0) {
            one->count += count;
            return ST_OK;
        }
    }
    w->slots[at] =
        (train_word){.at = w->bytes.count, .count = count, .hash = hash, .bytes = (int32_t)bytes};
    w->count++;
    return data_bytes_add(&w->bytes, word, bytes);
}

status train_words_add_all(train_words *w, const train_words *other)
{
    for (int64_t i = 0; other->slots != NULL && i <= other->mask; i++) {
        const train_word *one = &other->slots[i];
        if (one->hash == 0) continue;
        TRY(train_words_add(w, other->bytes.items + one->at, one->bytes, one->count));
    }
    return ST_OK;
}

// The lowest count that stays, so that at most `most` words do.
static status lowest_kept(const train_words *w, int64_t most, int64_t *lowest)
{
    enum { TALLIES = 1 << 16 };
    int64_t *tally = calloc(TALLIES, sizeof(*tally)); // words by count; the last: that and more
    if (tally == NULL) return fail(ST_NO_MEMORY, "no memory to train a tokenizer");
    for (int64_t i = 0; i <= w->mask; i++) {
        if (w->slots[i].hash != 0) tally[min_i64(w->slots[i].count, TALLIES - 1)]++;
    }
    int64_t left = w->count, count = 0;
    while (count < TALLIES && left > most) left -= tally[count++];
    free(tally);
    *lowest = count;
    return ST_OK;
}

status train_words_drop(train_words *w, int64_t most)
{
    int64_t lowest = 0;
    if (w->count <= most) return ST_OK;
    TRY(lowest_kept(w, most, &lowest));
    train_words kept = {.dropped = w->dropped};
    for (int64_t i = 0; i <= w->mask; i++) {
        const train_word *one = &w->slots[i];
        if (one->hash == 0) continue;
        if (one->count < lowest) {
            kept.dropped++;
            continue;
        }
        const status st = train_words_add(&kept, w->bytes.items + one->at, one->bytes, one->count);
        if (st == ST_OK) continue;
        train_words_deinit(&kept);
        return st;
    }
    train_words_deinit(w);
    *w = kept;
    return ST_OK;
}

void train_words_deinit(train_words *w)
{
    free(w->slots);
    data_bytes_deinit(&w->bytes);
    *w = (train_words){0};
}

// ---- threads ------------------------------------------------------------------------------------

// Size of a round, whatever the number of threads: after a round words may be forgotten.
enum { PIECES_PER_ROUND = 64, BYTES_PER_ROUND = 64 << 20 };

typedef struct worker {
    arena *a;
    data_tokenizer *tokenizer;
    train_words words;
    data_bytes repaired;
} worker;

typedef struct counting {
    const data_train_options *o;
    worker workers[DATA_TRAIN_THREADS_MAX];
    data_bytes pieces[PIECES_PER_ROUND];
    int64_t piece_count, piece_bytes;
    atomic_llong next;
} counting;

static status add_word(void *context, const char *word, int64_t bytes)
{
    return train_words_add(context, word, bytes, 1);
}

static status count_text(worker *w, const char *text, int64_t bytes)
{
    if (bytes == 0) return ST_OK;
    return data_tokenizer_words(w->tokenizer, text, bytes, add_word, &w->words);
}

static status count_piece(const counting *c, worker *w, const data_bytes *piece)
{
    const char *text = piece->items;
    int64_t bytes = piece->count;
    if (utf8_valid_prefix(text, bytes) != bytes) {
        w->repaired.count = 0;
        TRY(utf8_repair(text, bytes, &w->repaired));
        text = w->repaired.items;
        bytes = w->repaired.count;
    }
    if (!c->o->by_line) return count_text(w, text, bytes);
    for (int64_t at = 0; at < bytes;) {
        const char *newline = memchr(text + at, '\n', (size_t)(bytes - at));
        const int64_t end = newline != NULL ? newline + 1 - text : bytes;
        TRY(count_text(w, text + at, end - at));
        at = end;
    }
    return ST_OK;
}

static status work(void *context, int32_t index)
{
    counting *c = context;
    for (;;) {
        const int64_t i = atomic_fetch_add(&c->next, 1);
        if (i >= c->piece_count) return ST_OK;
        TRY(count_piece(c, &c->workers[index], &c->pieces[i]));
    }
}

// Moves the words of all threads to the first one.
static status gather(counting *c)
{
    for (int32_t i = 1; i < c->o->threads; i++) {
        TRY(train_words_add_all(&c->workers[0].words, &c->workers[i].words));
        train_words_deinit(&c->workers[i].words);
    }
    return ST_OK;
}

// Threads may hold the same words, so only the gathered ones say whether there are too many; so
// the same words are forgotten after the same round, whatever the number of threads.
static status run_round(counting *c)
{
    int64_t count = 0;
    const int64_t most = c->o->words_max > 0 ? c->o->words_max : DATA_TRAIN_WORDS_MAX;
    if (c->piece_count == 0) return ST_OK;
    atomic_store(&c->next, 0);
    TRY(thread_pool_run(c->o->threads, work, c));
    c->piece_count = c->piece_bytes = 0;
    for (int32_t i = 0; i < c->o->threads; i++) count += c->workers[i].words.count;
    if (count <= most) return ST_OK;
    TRY(gather(c));
    train_words *all = &c->workers[0].words;
    return all->count > most ? train_words_drop(all, most / 2) : ST_OK;
}

// A line may span pieces that were cut at a blank, where a word begins in any case.
static status count_file(counting *c, const host *h, const char *path)
{
    data_documents *d = NULL;
    status st = ST_OK;
    const int cuts = data_tokenizer_cuts(c->workers[0].tokenizer);
    TRY(data_documents_open(h, path, cuts, &d));
    for (;;) {
        data_piece piece;
        TRY_TO(close_documents, data_documents_next(d, &piece));
        if (piece.bytes == NULL) break;
        data_bytes *copy = &c->pieces[c->piece_count++];
        copy->count = 0;
        TRY_TO(close_documents, data_bytes_add(copy, piece.bytes, piece.count));
        c->piece_bytes += piece.count;
        if (c->piece_count < PIECES_PER_ROUND && c->piece_bytes < BYTES_PER_ROUND) continue;
        TRY_TO(close_documents, run_round(c));
        if (c->o->report == NULL) continue;
        const data_reader *r = data_documents_reader(d);
        TRY_TO(close_documents, c->o->report(c->o->context, path, data_reader_position(r),
                                             data_reader_file_bytes(r)));
    }
close_documents:
    data_documents_close(d);
    return st;
}

static status open_workers(counting *c, const char *json, int64_t bytes)
{
    for (int32_t i = 0; i < c->o->threads; i++) {
        worker *w = &c->workers[i];
        TRY(arena_create("tokenizer training", 0, &w->a));
        TRY(data_tokenizer_open_text(w->a, "the new tokenizer", json, bytes, &w->tokenizer));
    }
    return ST_OK;
}

static void free_workers(counting *c)
{
    for (int32_t i = 0; i < c->o->threads; i++) {
        worker *w = &c->workers[i];
        data_tokenizer_close(w->tokenizer);
        arena_destroy(w->a);
        train_words_deinit(&w->words);
        data_bytes_deinit(&w->repaired);
    }
    for (int64_t i = 0; i < COUNT_OF(c->pieces); i++) data_bytes_deinit(&c->pieces[i]);
    free(c);
}

status train_count(const host *h, const char *const *paths, int64_t path_count,
                   const data_train_options *o, const char *json, int64_t json_bytes,
                   train_words *out)
{
    counting *c = calloc(1, sizeof(*c));
    if (c == NULL) return fail(ST_NO_MEMORY, "no memory to train a tokenizer");
    c->o = o;
    status st = open_workers(c, json, json_bytes);
    for (int64_t i = 0; i < path_count && st == ST_OK; i++) st = count_file(c, h, paths[i]);
    if (st == ST_OK) st = run_round(c);
    if (st == ST_OK) st = gather(c);
    if (st == ST_OK) {
        *out = c->workers[0].words;
        c->workers[0].words = (train_words){.count = 0};
    }
    free_workers(c);
    return st;
}
