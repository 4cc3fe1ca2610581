// Encodes documents on several threads. The calling thread reads pieces into batches of about half
// a megabyte; threads encode the batches, each with a tokenizer of its own; then the calling thread
// hands the pieces on in order:
//
//   calling thread   read 1 | read 2, help 1 | hand on 1, read 3, help 2 | ...
//   other threads           | encode 1       | encode 2                  |
//
// The first batch is encoded alone, so a small text starts no thread.
#include "data/tokens/encode_batches.h"
#include "base/thread_pool.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { BATCH_BYTES = 1 << 19, THREADS_MAX = 8, BATCHES_PER_THREAD = 4 };

// A piece of a batch: its end in the batch's text, and the end of its ids.
typedef struct batch_piece {
    int64_t text_end, ids_end;
    bool ends_document;
    int flags; // DATA_ENCODE_*
} batch_piece;

typedef struct batch {
    data_bytes text;
    data_ids ids;
    batch_piece *pieces;
    int64_t count, capacity;
} batch;

// Batches that are read, encoded and handed on together.
typedef struct batch_set {
    batch batches[THREADS_MAX * BATCHES_PER_THREAD];
    int64_t count;
} batch_set;

typedef struct encoding {
    arena *a; // of the tokenizers
    data_tokenizer *tokenizers[THREADS_MAX];
    int32_t threads;
    int flags;
    batch_set sets[2], *now, *other; // now: is encoded
    atomic_llong next;
    data_documents *documents;
    encoded_piece *take;
    void *context;
    bool at_end;
} encoding;

static status add_piece(batch *b, const data_piece *piece)
{
    if (b->count == b->capacity) {
        const int64_t grown = max_i64(64, 2 * b->capacity);
        batch_piece *moved = realloc(b->pieces, (size_t)grown * sizeof(*moved));
        if (moved == NULL) return fail(ST_NO_MEMORY, "no memory to encode a text");
        b->pieces = moved;
        b->capacity = grown;
    }
    TRY(data_bytes_add(&b->text, piece->bytes, piece->count));
    b->pieces[b->count++] = (batch_piece){.text_end = b->text.count,
                                          .ends_document = piece->ends_document,
                                          .flags = data_piece_flags(piece)};
    return ST_OK;
}

static status fill_batch(encoding *e, batch *b)
{
    b->text.count = b->ids.count = b->count = 0;
    while (b->text.count < BATCH_BYTES) {
        data_piece piece;
        TRY(data_documents_next(e->documents, &piece));
        if (piece.bytes == NULL) {
            e->at_end = true;
            break;
        }
        TRY(add_piece(b, &piece));
    }
    return ST_OK;
}

static status encode_batch(data_tokenizer *t, int flags, batch *b)
{
    int64_t begin = 0;
    for (int64_t i = 0; i < b->count; i++) {
        batch_piece *p = &b->pieces[i];
        TRY(data_tokenizer_encode(t, b->text.items + begin, p->text_end - begin, flags | p->flags,
                                  &b->ids));
        p->ids_end = b->ids.count;
        begin = p->text_end;
    }
    return ST_OK;
}

// The tokenizers of the other threads, made when there is enough text for them.
static status open_threads(encoding *e, data_tokenizer *t)
{
    cpu_set_t set;
    const int cores = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    const int64_t threads = min_i64(cores, THREADS_MAX);
    while (e->threads < threads) {
        TRY(data_tokenizer_clone(t, e->a, &e->tokenizers[e->threads]));
        e->threads++;
    }
    return ST_OK;
}

static status fill(encoding *e, batch_set *s, int64_t most)
{
    for (s->count = 0; s->count < most && !e->at_end; s->count++) {
        TRY(fill_batch(e, &s->batches[s->count]));
    }
    return ST_OK;
}

static status hand_on(const encoding *e, const batch_set *s)
{
    for (int64_t i = 0; i < s->count; i++) {
        const batch *b = &s->batches[i];
        int64_t begin = 0, ids_begin = 0;
        for (int64_t k = 0; k < b->count; k++) {
            const batch_piece *p = &b->pieces[k];
            const data_piece piece = {.bytes = b->text.count > 0 ? b->text.items + begin : "",
                                      .count = p->text_end - begin,
                                      .ends_document = p->ends_document};
            TRY(e->take(e->context, &piece, b->ids.count > 0 ? b->ids.items + ids_begin : NULL,
                        p->ids_end - ids_begin));
            begin = p->text_end;
            ids_begin = p->ids_end;
        }
        const data_piece none = {.bytes = NULL};
        TRY(e->take(e->context, &none, NULL, 0));
    }
    return ST_OK;
}

// Worker 0 is the calling thread, which alone reads and hands on.
static status work(void *context, int32_t worker)
{
    encoding *e = context;
    if (worker == 0) {
        TRY(hand_on(e, e->other));
        TRY(fill(e, e->other, BATCHES_PER_THREAD * e->threads));
    }
    for (;;) {
        const int64_t i = atomic_fetch_add(&e->next, 1);
        if (i >= e->now->count) return ST_OK;
        TRY(encode_batch(e->tokenizers[worker], e->flags, &e->now->batches[i]));
    }
}

static status encode_all(encoding *e, data_tokenizer *t)
{
    e->now = &e->sets[0];
    e->other = &e->sets[1];
    while (e->threads == 1 && !e->at_end) { // the first batch, or all with one core
        TRY(fill(e, e->now, 1));
        TRY(encode_batch(t, e->flags, &e->now->batches[0]));
        TRY(hand_on(e, e->now));
        if (!e->at_end) TRY(open_threads(e, t));
    }
    if (e->at_end) return ST_OK;
    TRY(fill(e, e->now, BATCHES_PER_THREAD * e->threads));
    while (e->now->count > 0) {
        batch_set *encoded = e->now;
        atomic_store(&e->next, 0);
        TRY(thread_pool_run(e->threads, work, e));
        e->now = e->other;
        e->other = encoded;
    }
    return hand_on(e, e->other);
}

status encode_batches(data_tokenizer *t, data_documents *d, encoded_piece *take, void *context)
{
    encoding *e = calloc(1, sizeof(*e));
    if (e == NULL) return fail(ST_NO_MEMORY, "no memory to encode a text");
    e->tokenizers[0] = t;
    e->threads = 1;
    e->flags = data_tokenizer_flags(t);
    e->documents = d;
    e->take = take;
    e->context = context;
    status st = arena_create("tokenizers of threads", 0, &e->a);
    if (st == ST_OK) st = encode_all(e, t);
    for (int32_t i = 1; i < e->threads; i++) data_tokenizer_close(e->tokenizers[i]);
    for (int64_t i = 0; i < 2 * COUNT_OF(e->sets[0].batches); i++) {
        batch *b = &e->sets[i % 2].batches[i / 2];
        data_bytes_deinit(&b->text);
        data_ids_deinit(&b->ids);
        free(b->pieces);
    }
    arena_destroy(e->a);
    free(e);
    return st;
}
