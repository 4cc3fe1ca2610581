// Near deduplication: documents that share a band, and whose signatures are similar enough, are one
// group, and the first of a group stays.
//
// Groups are the connected components over all bands (a union-find forest whose roots are the
// earliest documents), so the result depends on no order. Threads take bands in turn, each with a
// table of its share of `memory`; the forest takes 8 bytes a document.
#include "base/thread_pool.h"
#include "data/corpus/dedup.h"
#include "data/corpus/minhash.h"

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

// One thread's memory.
typedef struct near_worker {
    near_pass *p;
    dedup_table t;
    uint64_t *hashes; // of a band, for the documents of a frame
    file *other;      // index of the file of an earlier document
    int64_t other_idx;
} near_worker;

typedef struct near_frame {
    const spill_file *f;
    file *index;
    int64_t frame;
} near_frame;

static int64_t find_root(int64_t *parents, int64_t document)
{
    while (parents[document] != document) {
        parents[document] = parents[parents[document]];
        document = parents[document];
    }
    return document;
}

static bool are_united(near_pass *p, int64_t left, int64_t right)
{
    pthread_mutex_lock(&p->lock);
    const bool united = find_root(p->parents, left) == find_root(p->parents, right);
    pthread_mutex_unlock(&p->lock);
    return united;
}

static void unite(near_pass *p, int64_t left, int64_t right)
{
    pthread_mutex_lock(&p->lock);
    const int64_t a = find_root(p->parents, left), b = find_root(p->parents, right);
    p->parents[max_i64(a, b)] = min_i64(a, b);
    pthread_mutex_unlock(&p->lock);
}

// Whether the signatures of two documents are as similar as the configuration asks for.
static status are_near(near_worker *w, const near_frame *own, int64_t number, int64_t other,
                       bool *out)
{
    const build *b = w->p->b;
    uint8_t mine[CORPUS_NEAR_VALUES_MAX], theirs[CORPUS_NEAR_VALUES_MAX];
    *out = true;
    if (b->c->dedup.near.threshold <= 0.0) return ST_OK;
    int64_t i = 0, high = b->file_count - 1, k = 0;
    while (i < high) { // the last file that begins at or before the document
        const int64_t middle = i + (high - i + 1) / 2;
        if (b->files[middle].spill.first <= other) {
            i = middle;
        } else {
            high = middle - 1;
        }
    }
    const spill_file *f = &b->files[i].spill;
    for (high = f->frame_count - 1; k < high;) {
        const int64_t middle = k + (high - k + 1) / 2;
        if (f->frames[middle].first <= other) {
            k = middle;
        } else {
            high = middle - 1;
        }
    }
    if (w->other_idx != i) {
        if (w->other != NULL) (void)b->h->api->file_close(w->other); // the file was only read
        w->other = NULL;
        w->other_idx = -1;
        TRY(b->h->api->file_open(b->h, f->index_path, FILE_READ_OWN, &w->other));
        w->other_idx = i;
    }
    TRY(spill_signature_read(own->index, b->h, own->f, own->frame, number, mine));
    TRY(spill_signature_read(w->other, b->h, f, k, other - f->frames[k].first, theirs));
    *out = minhash_similarity(mine, theirs, f->signature_bytes) >= b->c->dedup.near.threshold;
    return ST_OK;
}

static status frame_band(near_worker *w, int64_t pass, const near_frame *own)
{
    near_pass *p = w->p;
    const spill_frame *frame = &own->f->frames[own->frame];
    for (int64_t i = 0; i < frame->documents; i++) {
        const int64_t document = frame->first + i;
        const hash128 hash = {.high = w->hashes[i] * UINT64_C(0x9e3779b97f4a7c15) >> 32,
                              .low = w->hashes[i]};
        int64_t first = 0;
        bool is_near = false;
        if (p->b->fates[document] != FATE_KEEP || !dedup_table_takes(&w->t, hash, pass)) continue;
        TRY(dedup_table_find(&w->t, hash, document, &first));
        if (first == document || are_united(p, first, document)) continue;
        TRY(are_near(w, own, i, first, &is_near));
        if (is_near) unite(p, first, document);
    }
    return ST_OK;
}

static status file_band(near_worker *w, int64_t pass, int64_t band, const spill_file *f)
{
    const host *h = w->p->b->h;
    near_frame own = {.f = f};
    if (f->frame_count == 0) return ST_OK;
    TRY(h->api->file_open(h, f->index_path, FILE_READ_OWN, &own.index));
    status st = ST_OK;
    for (own.frame = 0; own.frame < f->frame_count && st == ST_OK; own.frame++) {
        st = spill_column_read(own.index, h, f, own.frame, SPILL_BAND, band, w->hashes);
        if (st == ST_OK) st = frame_band(w, pass, &own);
    }
    (void)h->api->file_close(own.index); // the file was only read
    return st;
}

static status one_band(near_worker *w, int64_t band)
{
    near_pass *p = w->p;
    for (int64_t pass = 0; pass < w->t.passes; pass++) {
        dedup_table_clear(&w->t);
        for (int64_t i = 0; i < p->b->file_count; i++) {
            TRY(file_band(w, pass, band, &p->b->files[i].spill));
        }
    }
    pthread_mutex_lock(&p->lock);
    p->b->done++;
    const status st = build_report(p->b, CORPUS_DEDUP);
    pthread_mutex_unlock(&p->lock);
    return st;
}

static status band_loop(near_worker *w)
{
    near_pass *p = w->p;
    for (;;) {
        pthread_mutex_lock(&p->lock);
        const int64_t band = p->failed || p->next == p->b->c->dedup.near.bands ? -1 : p->next++;
        pthread_mutex_unlock(&p->lock);
        if (band < 0) return ST_OK;
        const status st = one_band(w, band);
        if (st == ST_OK) continue;
        pthread_mutex_lock(&p->lock);
        p->failed = true;
        pthread_mutex_unlock(&p->lock);
        return st;
    }
}

static status near_work(void *context, int32_t worker)
{
    near_worker w = {.p = context, .other_idx = -1};
    (void)worker;
    w.hashes = malloc(SPILL_BATCH_DOCUMENTS * sizeof(*w.hashes));
    status st = w.hashes != NULL ? ST_OK : fail(ST_NO_MEMORY, "no memory for a column of hashes");
    if (st == ST_OK) st = dedup_table_init(&w.t, w.p->b->documents, w.p->memory_bytes);
    if (st == ST_OK) st = band_loop(&w);
    if (w.other != NULL) (void)w.p->b->h->api->file_close(w.other); // the file was only read
    dedup_table_deinit(&w.t);
    free(w.hashes);
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
