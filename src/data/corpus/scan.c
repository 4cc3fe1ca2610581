// The scan: reads, filters and hashes the documents of every input file.
//
// A worker takes the first file that no other worker reads at the moment, reads one batch of it,
// and then filters, hashes and packs that batch while another worker reads on. Batches are written
// in their order, so a file's work files do not depend on the number of workers. At most one file
// per worker is open, and a worker holds one batch: the memory is bounded.
#include "data/corpus/scan.h"
#include "base/fault.h"
#include "base/thread_pool.h"
#include "data/corpus/minhash.h"
#include "data/corpus/review.h"
#include "data/corpus/rows.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct scan_file {
    corpus_rows *rows; // NULL: not open
    arena *a;          // of the samples
    scan_tally tally;
    file *docs, *index;
    int64_t docs_at;
    int64_t row; // number of the next row
    int64_t batches_read, batches_written;
    bool is_read_now, at_end, is_done;
} scan_file;

typedef struct scan {
    build *b;
    scan_file *files; // [file]
    int64_t begin;    // files before it are done
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool failed;
} scan;

// One worker's memory.
typedef struct scan_worker {
    scan *s;
    int64_t source; // of the batch
    filter_run *filters;
    spill_batch in, out;
    minhash_work minhash;
    scan_tally tally; // of the batch
    arena *a;         // of the batch's samples
} scan_worker;

// ---- one file -----------------------------------------------------------------------------------

static status open_file(build *b, int64_t i, scan_file *f)
{
    const corpus_source *s = &b->c->sources[b->files[i].source];
    const corpus_rows_options o = {.format = s->format,
                                   .unit = s->unit,
                                   .text = s->text,
                                   .id = s->id,
                                   .document_bytes = b->c->document_bytes};
    char *path = NULL;
    TRY(arena_create("corpus samples", 0, &f->a));
    TRY(scan_tally_init(f->a, b, &f->tally));
    TRY(corpus_rows_open(b->h, b->files[i].path, &o, &f->rows));
    TRY(build_path(b, f->a, i, "docs", &path));
    TRY(b->h->api->file_open(b->h, path, FILE_WRITE, &f->docs));
    TRY(build_path(b, f->a, i, "index", &path));
    return b->h->api->file_open(b->h, path, FILE_WRITE, &f->index);
}

static void close_file(build *b, scan_file *f)
{
    corpus_rows_close(f->rows);
    if (f->docs != NULL) (void)b->h->api->file_close(f->docs);
    if (f->index != NULL) (void)b->h->api->file_close(f->index);
    arena_destroy(f->a);
    f->rows = NULL;
    f->docs = f->index = NULL;
    f->a = NULL;
}

// A file whose size or time changed while it was read is an error.
static status check_unchanged(build *b, const build_file *f)
{
    file_info info;
    TRY(b->h->api->path_info(b->h, f->path, &info));
    if (info.kind == FILE_KIND_REGULAR && info.bytes == f->bytes &&
        info.modified_ns == f->modified_ns) {
        return ST_OK;
    }
    return fail(ST_DATA, "%s was changed while it was read; remove %s and build again", f->path,
                b->work);
}

static status finish_file(build *b, int64_t i, scan_file *f)
{
    TRY(check_unchanged(b, &b->files[i]));
    TRY(corpus_rows_hash(f->rows, &f->tally.hash));
    f->tally.format = corpus_rows_format(f->rows);
    TRY(fault_point("corpus.scan.sync"));
    TRY(b->h->api->file_sync(f->docs));
    TRY(b->h->api->file_sync(f->index));
    TRY(b->h->api->file_size(f->docs, &f->tally.docs_bytes));
    TRY(b->h->api->file_size(f->index, &f->tally.index_bytes));
    TRY(scan_tally_write(b, f->a, i, &f->tally));
    close_file(b, f);
    f->is_done = true;
    return ST_OK;
}

// ---- a batch ------------------------------------------------------------------------------------

// Reads rows until the batch is full. Rows without a text are counted here.
static status read_batch(scan_worker *w, scan_file *f)
{
    const build *b = w->s->b;
    spill_batch_clear(&w->in);
    arena_reset(w->a);
    TRY(scan_tally_init(w->a, b, &w->tally));
    while (w->in.count < SPILL_BATCH_DOCUMENTS && w->in.bytes.count < SPILL_BATCH_BYTES) {
        corpus_row row;
        TRY(corpus_rows_next(f->rows, &row));
        if (row.kind == ROW_END) {
            f->at_end = true;
            return ST_OK;
        }
        const int64_t number = f->row++;
        w->tally.rows++;
        if (row.kind == ROW_DOCUMENT) {
            w->tally.text_bytes += row.text_bytes;
            TRY(spill_batch_add(&w->in, number, row.text, row.text_bytes, row.id, row.id_bytes));
            continue;
        }
        if (row.kind == ROW_BAD && b->c->on_error == 0) return fail(ST_DATA, "%s", row.why);
        const char *why = row.kind == ROW_BAD ? row.why : "";
        TRY(scan_tally_drop(&w->tally, row.kind == ROW_BAD ? RULE_BAD : RULE_LARGE,
                            &(scan_dropped){.number = number,
                                            .text = why,
                                            .text_bytes = (int64_t)strlen(why),
                                            .id = row.id,
                                            .id_bytes = row.id_bytes}));
    }
    return ST_OK;
}

static status filter_document(scan_worker *w, const spill_document *d)
{
    const build *b = w->s->b;
    const char *from = w->in.bytes.items, *body = d->text_bytes > 0 ? from + d->text_at : "";
    int64_t bytes = d->text_bytes;
    filter_verdict verdict;
    const review_verdict review = review_verdict_of(b->c, w->source, body, bytes);
    if (review.text != NULL) {
        body = review.text;
        bytes = review.text_bytes;
    }
    TRY(filter_run_apply(w->filters, review.say == REVIEW_KEEPS, &body, &bytes, &verdict));
    if (verdict.changed || review.text != NULL) w->tally.changed++;
    int64_t rule = bytes == 0 ? RULE_EMPTY : -1;
    for (int64_t i = 0; verdict.filter != NULL && i < b->c->filters.count; i++) {
        if (strcmp(b->c->filters.items[i], verdict.filter->name) == 0) {
            rule = b->filter_rules[i] + verdict.rule;
        }
    }
    if (review.say == REVIEW_WAITS && rule < 0) rule = RULE_UNDECIDED;
    if (review.say == REVIEW_REJECTS) rule = RULE_REJECTED;
    const char *id = d->id_bytes > 0 ? from + d->id_at : NULL;
    if (rule >= 0) {
        return scan_tally_drop(&w->tally, rule,
                               &(scan_dropped){.number = d->number,
                                               .text = body,
                                               .text_bytes = bytes,
                                               .bytes = d->text_bytes,
                                               .id = id,
                                               .id_bytes = d->id_bytes});
    }
    TRY(spill_batch_add(&w->out, d->number, body, bytes, id, d->id_bytes));
    w->out.documents[w->out.count - 1].hash = hash128_of(body, bytes);
    w->out.documents[w->out.count - 1].mark = review.mark;
    if (!b->c->dedup.has_near) return ST_OK;
    w->out.band_count = b->c->dedup.near.bands;
    TRY(spill_batch_reserve_bands(&w->out));
    w->out.signature_bytes = b->c->dedup.near.bands * b->c->dedup.near.rows;
    TRY(spill_batch_reserve_signatures(&w->out));
    return minhash_bands(&w->minhash, &b->c->dedup.near, body, bytes,
                         w->out.bands + (w->out.count - 1) * w->out.band_count,
                         w->out.signatures + (w->out.count - 1) * w->out.signature_bytes);
}

static status process_batch(scan_worker *w)
{
    spill_batch_clear(&w->out);
    for (int64_t i = 0; i < w->in.count; i++) TRY(filter_document(w, &w->in.documents[i]));
    if (w->out.count == 0) return ST_OK;
    return spill_batch_pack(&w->out);
}

static status write_batch(scan_worker *w, scan_file *f)
{
    const build *b = w->s->b;
    TRY(fault_point("corpus.scan.write"));
    TRY(scan_tally_add(&f->tally, &w->tally));
    if (w->out.count == 0) return ST_OK;
    spill_batch_set_place(&w->out, f->docs_at);
    TRY(b->h->api->file_write(f->docs, w->out.packed.items, w->out.packed.count));
    TRY(b->h->api->file_write(f->index, w->out.index.items, w->out.index.count));
    f->docs_at += w->out.packed.count;
    f->tally.documents += w->out.count;
    return ST_OK;
}

// ---- workers ------------------------------------------------------------------------------------

// Takes the first file that can be read now; -1: none. The caller holds the lock.
static int64_t take_file(scan *s)
{
    while (s->begin < s->b->file_count && s->files[s->begin].is_done) s->begin++;
    for (int64_t i = s->begin; i < s->b->file_count; i++) {
        scan_file *f = &s->files[i];
        if (f->is_done || f->at_end || f->is_read_now) continue;
        f->is_read_now = true;
        return i;
    }
    return -1;
}

// Reads, processes and writes one batch of file i.
static status work_on(scan_worker *w, int64_t i)
{
    scan *s = w->s;
    build *b = s->b;
    scan_file *f = &s->files[i];
    if (f->rows == NULL) TRY(open_file(b, i, f));
    const int64_t before = corpus_rows_position(f->rows);
    w->source = b->files[i].source;
    TRY(read_batch(w, f));
    const int64_t number = f->batches_read, used = corpus_rows_position(f->rows) - before;
    pthread_mutex_lock(&s->lock);
    f->batches_read++;
    f->is_read_now = false;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);

    const status processed = process_batch(w);

    pthread_mutex_lock(&s->lock);
    while (processed == ST_OK && f->batches_written != number && !s->failed) {
        pthread_cond_wait(&s->changed, &s->lock);
    }
    status st = processed;
    if (st == ST_OK && !s->failed) {
        st = write_batch(w, f);
        f->batches_written++;
        b->done += used;
        if (st == ST_OK && f->at_end && f->batches_written == f->batches_read) {
            st = finish_file(b, i, f);
        }
        if (st == ST_OK) st = build_report(b, CORPUS_SCAN);
    }
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return st;
}

static status worker_loop(scan_worker *w)
{
    scan *s = w->s;
    for (;;) {
        pthread_mutex_lock(&s->lock);
        const int64_t i = s->failed ? -1 : take_file(s);
        pthread_mutex_unlock(&s->lock);
        if (i < 0) return ST_OK;
        const status st = work_on(w, i);
        if (st == ST_OK) continue;
        pthread_mutex_lock(&s->lock);
        s->failed = true;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
        return st;
    }
}

static status scan_work(void *context, int32_t worker)
{
    scan *s = context;
    scan_worker w = {.s = s};
    (void)worker;
    status st = arena_create("corpus batch", 0, &w.a);
    if (st == ST_OK) st = filter_run_open(s->b->h, &s->b->c->filter, &s->b->c->filters, &w.filters);
    if (st == ST_OK) st = worker_loop(&w);
    filter_run_close(w.filters);
    minhash_work_deinit(&w.minhash);
    spill_batch_deinit(&w.in);
    spill_batch_deinit(&w.out);
    arena_destroy(w.a);
    return st;
}

// Opens what the scans wrote, and numbers the documents of all files.
static status load_all(build *b)
{
    for (int64_t i = 0; i < b->file_count; i++) {
        build_file *f = &b->files[i];
        bool found = false;
        TRY(build_scan_load(b, i, &found));
        ASSERT(found);
        TRY(build_path(b, b->a, i, "docs", &f->spill.docs_path));
        TRY(build_path(b, b->a, i, "index", &f->spill.index_path));
        f->spill.first = b->documents;
        TRY(spill_file_open(b->h, b->a, &f->spill));
        f->first_frame = b->frame_count;
        b->frame_count += f->spill.frame_count;
        b->documents += f->spill.documents;
    }
    return ST_OK;
}

status build_scan(build *b)
{
    scan s = {.b = b};
    TRY(arena_new(b->a, b->file_count, &s.files));
    b->done = b->all = 0;
    for (int64_t i = 0; i < b->file_count; i++) {
        TRY(build_scan_load(b, i, &s.files[i].is_done));
        b->all += b->files[i].bytes;
        if (s.files[i].is_done) b->done += b->files[i].bytes;
    }
    pthread_mutex_init(&s.lock, NULL); // cannot fail for default attributes
    pthread_cond_init(&s.changed, NULL);
    const status st = thread_pool_run(b->threads, scan_work, &s);
    for (int64_t i = 0; i < b->file_count; i++) close_file(b, &s.files[i]);
    pthread_cond_destroy(&s.changed);
    pthread_mutex_destroy(&s.lock);
    TRY(st);
    return load_all(b);
}
