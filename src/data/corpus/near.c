// Near deduplication: documents that share a band are one group, and the first of a group stays.
//
// Groups are the connected components over all bands (a union-find forest whose roots are the
// earliest documents), so the result depends on no order. Threads take bands in turn, each with a
// table of its share of `memory`; the forest takes 8 bytes a document.
#include "base/thread_pool.h"
#include "data/corpus/dedup.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct near_pass {
    build *b;
    int64_t *parents;     // [document]
    int64_t next;         // band
    int64_t memory_bytes; // of one thread's table
    pthread_mutex_t lock; // of all of this
    bool failed;
} near_pass;

static int64_t find_root(int64_t *parents, int64_t document)
{
    while (parents[document] != document) {
        parents[document] = parents[parents[document]];
        document = parents[document];
    }
    return document;
}

static void unite(near_pass *p, int64_t left, int64_t right)
{
    pthread_mutex_lock(&p->lock);
    const int64_t a = find_root(p->parents, left), b = find_root(p->parents, right);
    p->parents[max_i64(a, b)] = min_i64(a, b);
    pthread_mutex_unlock(&p->lock);
}

static status frame_band(near_pass *p, dedup_table *t, int64_t pass, const spill_frame *frame,
                         const uint64_t *hashes)
{
    for (int64_t i = 0; i < frame->documents; i++) {
        const int64_t document = frame->first + i;
        const hash128 hash = {.high = hashes[i] * UINT64_C(0x9e3779b97f4a7c15) >> 32,
                              .low = hashes[i]};
        int64_t first = 0;
        if (p->b->fates[document] != FATE_KEEP || !dedup_table_takes(t, hash, pass)) continue;
        TRY(dedup_table_find(t, hash, document, &first));
        if (first != document) unite(p, first, document);
    }
    return ST_OK;
}

static status file_band(near_pass *p, dedup_table *t, int64_t pass, int64_t band,
                        const spill_file *f, uint64_t *hashes)
{
    const host *h = p->b->h;
    file *index = NULL;
    if (f->frame_count == 0) return ST_OK;
    TRY(h->api->file_open(h, f->index_path, FILE_READ_OWN, &index));
    status st = ST_OK;
    for (int64_t k = 0; k < f->frame_count && st == ST_OK; k++) {
        st = spill_column_read(index, h, f, k, SPILL_BAND, band, hashes);
        if (st == ST_OK) st = frame_band(p, t, pass, &f->frames[k], hashes);
    }
    (void)h->api->file_close(index); // the file was only read
    return st;
}

static status one_band(near_pass *p, dedup_table *t, int64_t band, uint64_t *hashes)
{
    for (int64_t pass = 0; pass < t->passes; pass++) {
        dedup_table_clear(t);
        for (int64_t i = 0; i < p->b->file_count; i++) {
            TRY(file_band(p, t, pass, band, &p->b->files[i].spill, hashes));
        }
    }
    pthread_mutex_lock(&p->lock);
    p->b->done++;
    const status st = build_report(p->b, CORPUS_DEDUP);
    pthread_mutex_unlock(&p->lock);
    return st;
}

static status band_loop(near_pass *p, dedup_table *t, uint64_t *hashes)
{
    for (;;) {
        pthread_mutex_lock(&p->lock);
        const int64_t band = p->failed || p->next == p->b->c->dedup.near.bands ? -1 : p->next++;
        pthread_mutex_unlock(&p->lock);
        if (band < 0) return ST_OK;
        const status st = one_band(p, t, band, hashes);
        if (st == ST_OK) continue;
        pthread_mutex_lock(&p->lock);
        p->failed = true;
        pthread_mutex_unlock(&p->lock);
        return st;
    }
}

static status near_work(void *context, int32_t worker)
{
    near_pass *p = context;
    dedup_table t = {0};
    uint64_t *hashes = malloc(SPILL_BATCH_DOCUMENTS * sizeof(*hashes));
    (void)worker;
    status st = hashes != NULL ? ST_OK : fail(ST_NO_MEMORY, "no memory for a column of hashes");
    if (st == ST_OK) st = dedup_table_init(&t, p->b->documents, p->memory_bytes);
    if (st == ST_OK) st = band_loop(p, &t, hashes);
    dedup_table_deinit(&t);
    free(hashes);
    return st;
}

status dedup_near(build *b)
{
    near_pass p = {.b = b, .memory_bytes = b->c->memory_bytes / b->threads};
    TRY(arena_new(b->a, b->documents, &p.parents));
    for (int64_t i = 0; i < b->documents; i++) p.parents[i] = i;
    b->done = 0;
    b->all = b->c->dedup.near.bands;
    pthread_mutex_init(&p.lock, NULL); // cannot fail for default attributes
    const status st = thread_pool_run(b->threads, near_work, &p);
    pthread_mutex_destroy(&p.lock);
    TRY(st);
    for (int64_t i = 0; i < b->documents; i++) {
        if (b->fates[i] == FATE_KEEP && find_root(p.parents, i) != i) b->fates[i] = FATE_NEAR;
    }
    return ST_OK;
}
