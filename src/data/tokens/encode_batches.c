// Encodes documents on several threads. The calling thread reads pieces into batches of about a
// megabyte; threads encode the batches, each with a tokenizer of its own; then the calling thread
// hands the pieces on in order. The first batch is encoded alone, so a small text starts no thread.
#include "data/tokens/encode_batches.h"
#include "base/thread_pool.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { BATCH_BYTES = 1 << 20, THREADS_MAX = 8, BATCHES_PER_THREAD = 2 };

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

typedef struct encoding {
    arena *a; // of the tokenizers
    data_tokenizer *tokenizers[THREADS_MAX];
    int32_t threads;
    int flags;
    batch batches[THREADS_MAX * BATCHES_PER_THREAD];
    int64_t count;
    atomic_llong next;
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

static status fill_batch(encoding *e, data_documents *d, batch *b)
{
    b->text.count = b->ids.count = b->count = 0;
    while (b->text.count < BATCH_BYTES) {
        data_piece piece;
        TRY(data_documents_next(d, &piece));
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

static status work(void *context, int32_t worker)
{
    encoding *e = context;
    for (;;) {
        const int64_t i = atomic_fetch_add(&e->next, 1);
        if (i >= e->count) return ST_OK;
        TRY(encode_batch(e->tokenizers[worker], e->flags, &e->batches[i]));
    }
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

static status hand_on(encoding *e, encoded_piece *take, void *context)
{
    for (int64_t i = 0; i < e->count; i++) {
        const batch *b = &e->batches[i];
        int64_t begin = 0, ids_begin = 0;
        for (int64_t k = 0; k < b->count; k++) {
            const batch_piece *p = &b->pieces[k];
            const data_piece piece = {.bytes = b->text.count > 0 ? b->text.items + begin : "",
                                      .count = p->text_end - begin,
                                      .ends_document = p->ends_document};
            TRY(take(context, &piece, b->ids.count > 0 ? b->ids.items + ids_begin : NULL,
                     p->ids_end - ids_begin));
            begin = p->text_end;
            ids_begin = p->ids_end;
        }
        const data_piece none = {.bytes = NULL};
        TRY(take(context, &none, NULL, 0));
    }
    return ST_OK;
}

static status encode_all(encoding *e, data_tokenizer *t, data_documents *d, encoded_piece *take,
                         void *context)
{
    while (!e->at_end) {
        const int64_t most = e->threads == 1 ? 1 : BATCHES_PER_THREAD * e->threads;
        for (e->count = 0; e->count < most && !e->at_end; e->count++) {
            TRY(fill_batch(e, d, &e->batches[e->count]));
        }
        if (e->threads == 1) {
            TRY(encode_batch(t, e->flags, &e->batches[0]));
            if (!e->at_end) TRY(open_threads(e, t));
        } else {
            atomic_store(&e->next, 0);
            TRY(thread_pool_run(e->threads, work, e));
        }
        TRY(hand_on(e, take, context));
    }
    return ST_OK;
}

status encode_batches(data_tokenizer *t, data_documents *d, encoded_piece *take, void *context)
{
    encoding *e = calloc(1, sizeof(*e));
    if (e == NULL) return fail(ST_NO_MEMORY, "no memory to encode a text");
    e->tokenizers[0] = t;
    e->threads = 1;
    e->flags = data_tokenizer_flags(t);
    status st = arena_create("tokenizers of threads", 0, &e->a);
    if (st == ST_OK) st = encode_all(e, t, d, take, context);
    for (int32_t i = 1; i < e->threads; i++) data_tokenizer_close(e->tokenizers[i]);
    for (int64_t i = 0; i < COUNT_OF(e->batches); i++) {
        data_bytes_deinit(&e->batches[i].text);
        data_ids_deinit(&e->batches[i].ids);
        free(e->batches[i].pieces);
    }
    arena_destroy(e->a);
    free(e);
    return st;
}
