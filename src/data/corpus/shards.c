// The last pass: cuts the documents that stay into shards, and writes each shard with its ledger.
//
// A shard holds the next documents of its source until their texts reach shard_bytes, so the cuts
// depend on nothing but the texts. Each worker makes whole shards. A shard exists when its .json
// does, which is written last and names everything that the shard's bytes depend on.
#include "base/fault.h"
#include "base/thread_pool.h"
#include "data/corpus/cuts.h"
#include "data/corpus/ledger.h"
#include "data/tokens.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// ---- cuts ---------------------------------------------------------------------------------------

static status begin_shard(build *b, int64_t source, int64_t file_idx, int64_t first)
{
    void *items = b->shards;
    const int64_t n = b->shard_count;
    const bool is_first = n == 0 || b->shards[n - 1].source != source;
    const int64_t index = is_first ? 0 : b->shards[n - 1].index + 1;
    char *name = NULL;
    TRY(arena_grow(b->a, &items, &b->shard_capacity, n + 1, sizeof(build_shard)));
    b->shards = items;
    TRY(arena_format(b->a, &name, "%s-%05lld", b->c->sources[source].name, (long long)index));
    b->shards[b->shard_count++] = (build_shard){.source = source,
                                                .index = index,
                                                .file = file_idx,
                                                .last_file = file_idx,
                                                .first = first,
                                                .last = first,
                                                .name = name};
    return ST_OK;
}

static status cut_frame(build *b, int64_t file_idx, const spill_frame *frame, const uint32_t *sizes)
{
    const int64_t source = b->files[file_idx].source;
    for (int64_t i = 0; i < frame->documents; i++) {
        const int64_t document = frame->first + i;
        if (b->fates[document] != FATE_KEEP) continue;
        build_shard *s = b->shard_count > 0 ? &b->shards[b->shard_count - 1] : NULL;
        if (s == NULL || s->source != source || s->bytes >= b->c->shard_bytes) {
            TRY(begin_shard(b, source, file_idx, document));
            s = &b->shards[b->shard_count - 1];
        }
        s->last = document + 1;
        s->last_file = file_idx;
        s->documents++;
        s->bytes += sizes[i];
    }
    return ST_OK;
}

static status cut_file(build *b, int64_t i, uint32_t *sizes, cut_list *cuts)
{
    const spill_file *f = &b->files[i].spill;
    file *index = NULL;
    if (f->frame_count == 0) return ST_OK;
    TRY(b->h->api->file_open(b->h, f->index_path, FILE_READ_OWN, &index));
    status st = ST_OK;
    for (int64_t k = 0; k < f->frame_count && st == ST_OK; k++) {
        st = spill_column_read(index, b->h, f, k, SPILL_SIZES, 0, sizes);
        if (st == ST_OK) st = cuts_read(b, b->cut_run_count, i, k, cuts);
        for (int64_t c = 0; st == ST_OK && c < cuts->count; c++) {
            sizes[cuts->items[c].document - f->frames[k].first] -= cuts->items[c].count;
        }
        if (st == ST_OK) st = cut_frame(b, i, &f->frames[k], sizes);
    }
    (void)b->h->api->file_close(index); // the file was only read
    return st;
}

static status cut_all(build *b)
{
    uint32_t *sizes = NULL;
    TRY(arena_new(b->a, SPILL_BATCH_DOCUMENTS, &sizes));
    cut_list cuts = {.items = NULL};
    status st = ST_OK;
    for (int64_t i = 0; i < b->file_count && st == ST_OK; i++) st = cut_file(b, i, sizes, &cuts);
    cut_list_deinit(&cuts);
    return st;
}

// ---- one shard ----------------------------------------------------------------------------------

typedef struct shard_pass {
    build *b;
    int64_t next; // shard
    pthread_mutex_t lock;
    bool failed;
} shard_pass;

typedef struct shard_worker {
    shard_pass *p;
    arena *a; // of the tokenizer
    data_tokenizer *tokenizer;
    spill_batch batch;
    data_ids ids;
    arena *scratch; // of one shard
    cut_list cuts;  // of one frame
    int64_t next_cut;
    data_bytes made;
} shard_worker;

static status tell(shard_worker *w, int64_t bytes, int64_t tokens)
{
    build *b = w->p->b;
    pthread_mutex_lock(&w->p->lock);
    b->done += bytes;
    b->tokens += tokens;
    const status st =
        w->p->failed ? fail(ST_STOPPED, "another thread failed") : build_report(b, CORPUS_SHARDS);
    pthread_mutex_unlock(&w->p->lock);
    return st;
}

static status write_document(shard_worker *w, const build_file *f, int64_t document,
                             spill_document *d, data_shard_writer *shard, ledger *l)
{
    const char *bytes = w->batch.bytes.items;
    const char *body = d->text_bytes > 0 ? bytes + d->text_at : "";
    TRY(cuts_apply(&w->cuts, &w->next_cut, document, &body, &d->text_bytes, &w->made));
    w->ids.count = 0;
    TRY(data_tokenizer_encode(w->tokenizer, body, d->text_bytes, data_tokenizer_flags(w->tokenizer),
                              &w->ids));
    TRY(data_shard_add(shard, w->ids.items, w->ids.count));
    if (w->ids.count == 0) return ST_OK; // the tokenizer drops all of it
    TRY(data_shard_end_document(shard));
    d->hash = hash128_of(body, d->text_bytes);
    const char *generator = w->p->b->c->sources[f->source].generator;
    return ledger_add(l, f->path, generator, d, d->id_bytes > 0 ? bytes + d->id_at : NULL,
                      w->ids.count);
}

static status write_frame(shard_worker *w, const build_file *f, int64_t k, file *docs,
                          const build_shard *s, data_shard_writer *shard, ledger *l)
{
    const build *b = w->p->b;
    const spill_frame *frame = &f->spill.frames[k];
    const int64_t begin = max_i64(s->first, frame->first);
    const int64_t end = min_i64(s->last, frame->first + frame->documents);
    if (begin >= end) return ST_OK;
    TRY(spill_frame_read(docs, b->h, &f->spill, k, &w->batch));
    TRY(cuts_read(b, b->cut_run_count, f - b->files, k, &w->cuts));
    w->next_cut = 0;
    int64_t bytes = 0, tokens = 0;
    for (int64_t i = begin; i < end; i++) {
        if (b->fates[i] != FATE_KEEP) continue;
        spill_document *d = &w->batch.documents[i - frame->first];
        TRY(write_document(w, f, i, d, shard, l));
        bytes += d->text_bytes;
        tokens += w->ids.count;
    }
    return tell(w, bytes, tokens);
}

static status write_files(shard_worker *w, const build_shard *s, data_shard_writer *shard,
                          ledger *l)
{
    const build *b = w->p->b;
    status st = ST_OK;
    for (int64_t i = s->file; i <= s->last_file && st == ST_OK; i++) {
        const build_file *f = &b->files[i];
        file *docs = NULL;
        if (f->spill.frame_count == 0) continue;
        TRY(b->h->api->file_open(b->h, f->spill.docs_path, FILE_READ_OWN, &docs));
        for (int64_t k = 0; k < f->spill.frame_count && st == ST_OK; k++) {
            st = write_frame(w, f, k, docs, s, shard, l);
        }
        (void)b->h->api->file_close(docs); // the file was only read
    }
    return st;
}

static status shard_path(const build *b, arena *a, const build_shard *s, const char *ending,
                         char **out)
{
    char *name = NULL;
    TRY(arena_format(a, &name, "%s.%s", s->name, ending));
    return path_join(a, b->c->out, name, out);
}

// Takes count and checksum from the finished file.
static status measure(const build *b, arena *a, build_shard *s)
{
    char *path = NULL;
    data_tokens *t = NULL;
    TRY(shard_path(b, a, s, "tok", &path));
    TRY(data_tokens_open(b->h, a, path, 0, &t));
    s->tokens = data_tokens_count(t);
    s->documents = data_tokens_documents(t);
    s->hash = data_tokens_checksum(t);
    data_tokens_close(t);
    return ST_OK;
}

// True if an earlier call finished the shard, from the same inputs.
static status exists(const build *b, arena *a, build_shard *s, bool *out)
{
    char *path = NULL;
    char key[33];
    file_info info;
    json *j = NULL;
    *out = false;
    TRY(shard_path(b, a, s, "json", &path));
    TRY(b->h->api->path_info(b->h, path, &info));
    if (info.kind != FILE_KIND_REGULAR) return ST_OK;
    char *docs = NULL;
    TRY(shard_path(b, a, s, "docs.jsonl.zst", &docs));
    TRY(b->h->api->path_info(b->h, docs, &info));
    if (info.kind != FILE_KIND_REGULAR) return ST_OK;
    if (json_read(b->h, path, BUILD_JSON_MAX, &j) == ST_OK &&
        strcmp(json_text(json_get(j, "key"), ""), hash128_text(build_shard_key(b, s), key)) == 0) {
        *out = measure(b, a, s) == ST_OK;
    }
    json_free(j);
    error_clear(); // what cannot be read is made again
    return ST_OK;
}

static status make_shard(shard_worker *w, build_shard *s)
{
    const build *b = w->p->b;
    char *tok = NULL, *docs = NULL, *about = NULL;
    data_shard_writer *shard = NULL;
    ledger *l = NULL;
    TRY(fault_point("corpus.shard"));
    TRY(shard_path(b, w->scratch, s, "tok", &tok));
    TRY(shard_path(b, w->scratch, s, "docs.jsonl.zst", &docs));
    TRY(shard_path(b, w->scratch, s, "json", &about));
    status st = ledger_create(b->h, docs, &l);
    if (st == ST_OK) st = data_shard_create(b->h, tok, w->tokenizer, &shard);
    if (st == ST_OK) st = write_files(w, s, shard, l);
    if (st != ST_OK) {
        ledger_abandon(l);
        data_shard_abandon(shard);
        return st;
    }
    st = ledger_finish(l);
    if (st != ST_OK) {
        data_shard_abandon(shard);
        return st;
    }
    TRY(data_shard_finish(shard));
    TRY(measure(b, w->scratch, s));
    text t = {.a = w->scratch};
    TRY(build_shard_print(b, s, &t));
    return host_write_all(b->h, about, t.bytes, t.length);
}

static status make_next(shard_worker *w, build_shard *s)
{
    bool found = false;
    arena_reset(w->scratch);
    TRY(exists(w->p->b, w->scratch, s, &found));
    return found ? tell(w, s->bytes, s->tokens) : make_shard(w, s);
}

static status worker_loop(shard_worker *w)
{
    shard_pass *p = w->p;
    for (;;) {
        pthread_mutex_lock(&p->lock);
        const int64_t i = p->failed || p->next == p->b->shard_count ? -1 : p->next++;
        pthread_mutex_unlock(&p->lock);
        if (i < 0) return ST_OK;
        const status st = make_next(w, &p->b->shards[i]);
        if (st == ST_OK) continue;
        pthread_mutex_lock(&p->lock);
        const bool is_first = !p->failed;
        p->failed = true;
        pthread_mutex_unlock(&p->lock);
        return is_first ? st : ST_OK; // the first failure is the one that is told
    }
}

static status shard_work(void *context, int32_t worker)
{
    shard_pass *p = context;
    shard_worker w = {.p = p};
    const corpus_config *c = p->b->c;
    (void)worker;
    status st = arena_create("corpus tokenizer", 0, &w.a);
    if (st == ST_OK) st = arena_create("corpus shard", 0, &w.scratch);
    if (st == ST_OK) st = data_tokenizer_open(p->b->h, w.a, c->tokenizer, &w.tokenizer);
    if (st == ST_OK) {
        data_tokenizer_set_flags(w.tokenizer, c->special_tokens != 0 ? DATA_ENCODE_SPECIAL : 0);
        st = worker_loop(&w);
    }
    data_tokenizer_close(w.tokenizer);
    spill_batch_deinit(&w.batch);
    data_ids_deinit(&w.ids);
    cut_list_deinit(&w.cuts);
    data_bytes_deinit(&w.made);
    arena_destroy(w.scratch);
    arena_destroy(w.a);
    return st;
}

status build_shards(build *b)
{
    shard_pass p = {.b = b};
    TRY(cut_all(b));
    b->done = b->all = b->tokens = 0;
    for (int64_t i = 0; i < b->shard_count; i++) b->all += b->shards[i].bytes;
    pthread_mutex_init(&p.lock, NULL); // cannot fail for default attributes
    const int32_t workers = (int32_t)max_i64(1, min_i64(b->threads, b->shard_count));
    const status st = thread_pool_run(workers, shard_work, &p);
    pthread_mutex_destroy(&p.lock);
    return st;
}
