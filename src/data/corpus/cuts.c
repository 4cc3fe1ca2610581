// Writes, reads, merges and applies cuts.
#include "data/corpus/cuts.h"
#include "base/fault.h"

#include <stdlib.h>
#include <string.h>

enum { WAITING_CUTS = 4096 };

status cut_list_add(cut_list *l, const text_cut *c)
{
    if (l->count == l->capacity) {
        const int64_t grown = max_i64(256, 2 * l->capacity);
        text_cut *moved = realloc(l->items, (size_t)grown * sizeof(*moved));
        if (moved == NULL) return fail(ST_NO_MEMORY, "no memory for %lld cuts", (long long)grown);
        l->items = moved;
        l->capacity = grown;
    }
    l->items[l->count++] = *c;
    return ST_OK;
}

void cut_list_deinit(cut_list *l)
{
    free(l->items);
    *l = (cut_list){.items = NULL};
}

// ---- runs ---------------------------------------------------------------------------------------

status cuts_begin(build *b, cut_run **out)
{
    char *name = NULL;
    cut_run *r = NULL;
    TRY(fault_point("corpus.cuts.begin"));
    TRY(arena_new(b->a, 1, &r));
    TRY(arena_new(b->a, b->frame_count + 1, &r->frame_at));
    TRY(arena_format(b->a, &name, "cuts-%05lld", (long long)b->cut_run_count));
    TRY(path_join(b->a, b->work, name, &r->path));
    TRY(b->h->api->file_open(b->h, r->path, FILE_WRITE, &r->f));
    *out = r;
    return ST_OK;
}

static status write_waiting(build *b, cut_run *r)
{
    const int64_t bytes = r->waiting.count * (int64_t)sizeof(text_cut);
    r->waiting.count = 0;
    return bytes > 0 ? b->h->api->file_write(r->f, r->waiting.items, bytes) : ST_OK;
}

// Goes on to the frame that holds the document.
static void find_frame(const build *b, cut_run *r, int64_t document)
{
    for (;;) {
        const spill_file *f = &b->files[r->file_idx].spill;
        if (r->frame_idx == f->frame_count) {
            r->file_idx++;
            r->frame_idx = 0;
            continue;
        }
        const spill_frame *frame = &f->frames[r->frame_idx];
        if (document < frame->first + frame->documents) return;
        r->frame_idx++;
        r->frame_at[++r->frame] = r->count;
    }
}

status cuts_add(build *b, cut_run *r, const text_cut *c)
{
    find_frame(b, r, c->document);
    TRY(cut_list_add(&r->waiting, c));
    r->count++;
    return r->waiting.count < WAITING_CUTS ? ST_OK : write_waiting(b, r);
}

status cuts_end(build *b, cut_run *r)
{
    status st = write_waiting(b, r);
    while (r->frame < b->frame_count) r->frame_at[++r->frame] = r->count;
    cut_list_deinit(&r->waiting);
    const status closed = b->h->api->file_close(r->f);
    r->f = NULL;
    if (st == ST_OK) st = closed;
    void *items = b->cut_runs;
    if (st == ST_OK) {
        st =
            arena_grow(b->a, &items, &b->cut_run_capacity, b->cut_run_count + 1, sizeof(cut_run *));
    }
    b->cut_runs = items;
    if (st == ST_OK) b->cut_runs[b->cut_run_count++] = r;
    return st;
}

// ---- reading ------------------------------------------------------------------------------------

static status read_run(const build *b, const cut_run *r, int64_t frame, cut_list *out)
{
    const int64_t first = r->frame_at[frame], n = r->frame_at[frame + 1] - first;
    file *f = NULL;
    if (n == 0) return ST_OK;
    const int64_t at = out->count;
    for (int64_t i = 0; i < n; i++) TRY(cut_list_add(out, &(const text_cut){.count = 0}));
    TRY(b->h->api->file_open(b->h, r->path, FILE_READ_OWN, &f));
    const status st = b->h->api->file_read(f, first * (int64_t)sizeof(text_cut), out->items + at,
                                           n * (int64_t)sizeof(text_cut));
    (void)b->h->api->file_close(f); // the file was only read
    return st;
}

static int compare_cuts(const void *left, const void *right)
{
    const text_cut *a = left, *b = right;
    if (a->document != b->document) return a->document < b->document ? -1 : 1;
    return a->begin < b->begin ? -1 : a->begin > b->begin ? 1 : 0;
}

status cuts_read(const build *b, int64_t runs, int64_t file_idx, int64_t frame, cut_list *out)
{
    int64_t kept = 0;
    out->count = 0;
    for (int64_t i = 0; i < runs; i++) {
        TRY(read_run(b, b->cut_runs[i], b->files[file_idx].first_frame + frame, out));
    }
    if (out->count > 1) qsort(out->items, (size_t)out->count, sizeof(*out->items), compare_cuts);
    for (int64_t i = 0; i < out->count; i++) {
        text_cut *last = kept > 0 ? &out->items[kept - 1] : NULL;
        const text_cut *c = &out->items[i];
        if (last != NULL && last->document == c->document &&
            c->begin <= last->begin + last->count) {
            const uint32_t end = c->begin + c->count;
            if (end > last->begin + last->count) last->count = end - last->begin;
        } else {
            out->items[kept++] = *c;
        }
    }
    out->count = kept;
    return ST_OK;
}

status cuts_apply(const cut_list *l, int64_t *next, int64_t document, const char **bytes,
                  int64_t *count, data_bytes *made)
{
    int64_t at = 0;
    while (*next < l->count && l->items[*next].document < document) (*next)++;
    if (*next == l->count || l->items[*next].document != document) return ST_OK;
    made->count = 0;
    for (; *next < l->count && l->items[*next].document == document; (*next)++) {
        const text_cut *c = &l->items[*next];
        ASSERT(c->begin >= at && c->begin + (int64_t)c->count <= *count);
        if (c->begin > at) TRY(data_bytes_add(made, *bytes + at, c->begin - at));
        at = (int64_t)c->begin + c->count;
    }
    if (at < *count) TRY(data_bytes_add(made, *bytes + at, *count - at));
    *bytes = made->count > 0 ? made->items : "";
    *count = made->count;
    return ST_OK;
}

// ---- all frames ---------------------------------------------------------------------------------

static bool any_stays(const build *b, const spill_frame *frame)
{
    for (int64_t i = 0; i < frame->documents; i++) {
        if (b->fates[frame->first + i] == FATE_KEEP) return true;
    }
    return false;
}

static status file_frames(build *b, int64_t i, spill_batch *batch, frame_fn take, void *context)
{
    const spill_file *f = &b->files[i].spill;
    file *docs = NULL;
    if (f->frame_count == 0) return ST_OK;
    TRY(b->h->api->file_open(b->h, f->docs_path, FILE_READ_OWN, &docs));
    status st = ST_OK;
    for (int64_t k = 0; k < f->frame_count && st == ST_OK; k++) {
        if (!any_stays(b, &f->frames[k])) continue;
        st = spill_frame_read(docs, b->h, f, k, batch);
        if (st == ST_OK) st = take(context, i, k, batch);
    }
    (void)b->h->api->file_close(docs); // the file was only read
    return st;
}

status cuts_each_frame(build *b, frame_fn take, void *context)
{
    spill_batch batch = {.count = 0};
    status st = ST_OK;
    for (int64_t i = 0; i < b->file_count && st == ST_OK; i++) {
        st = file_frames(b, i, &batch, take, context);
        b->done++;
        if (st == ST_OK) st = build_report(b, CORPUS_DEDUP);
    }
    spill_batch_deinit(&batch);
    return st;
}

// ---- the end ------------------------------------------------------------------------------------

typedef struct finish_pass {
    build *b;
    cut_run *run;
    cut_list cuts;
    data_bytes made;
} finish_pass;

static bool continues(const char *body, int64_t at)
{
    return ((uint8_t)body[at] & 0xc0) == 0x80;
}

// Narrows the cuts of a document to whole characters, and writes them.
static status keep_cuts(finish_pass *p, int64_t first, int64_t document, const char *body,
                        int64_t count)
{
    for (int64_t i = first; i < p->cuts.count && p->cuts.items[i].document == document; i++) {
        text_cut *c = &p->cuts.items[i];
        int64_t begin = c->begin, end = begin + c->count;
        while (begin < end && continues(body, begin)) begin++;
        while (end > begin && end < count && continues(body, end)) end--;
        c->begin = (uint32_t)begin;
        c->count = (uint32_t)(end - begin);
        if (end > begin) TRY(cuts_add(p->b, p->run, c));
    }
    return ST_OK;
}

static bool is_blank(const char *bytes, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (!text_is_blank(bytes[i])) return false;
    }
    return true;
}

static status finish_frame(void *context, int64_t file_idx, int64_t frame, const spill_batch *docs)
{
    finish_pass *p = context;
    build *b = p->b;
    const int64_t first = b->files[file_idx].spill.frames[frame].first;
    int64_t next = 0;
    TRY(cuts_read(b, b->cut_run_count, file_idx, frame, &p->cuts));
    for (int64_t i = 0; i < docs->count && p->cuts.count > 0; i++) {
        const spill_document *d = &docs->documents[i];
        const char *body = d->text_bytes > 0 ? docs->bytes.items + d->text_at : "";
        int64_t count = d->text_bytes;
        if (b->fates[first + i] != FATE_KEEP) continue;
        while (next < p->cuts.count && p->cuts.items[next].document < first + i) next++;
        TRY(keep_cuts(p, next, first + i, body, count));
        TRY(cuts_apply(&p->cuts, &next, first + i, &body, &count, &p->made));
        if (count == d->text_bytes) continue;
        if (is_blank(body, count)) {
            b->fates[first + i] = FATE_PARTS;
        } else {
            b->cut_documents++;
            b->cut_bytes += d->text_bytes - count;
        }
    }
    return ST_OK;
}

status cuts_finish(build *b)
{
    finish_pass p = {.b = b};
    if (b->cut_run_count == 0) return ST_OK;
    TRY(cuts_begin(b, &p.run));
    status st = cuts_each_frame(b, finish_frame, &p);
    const status ended = cuts_end(b, p.run);
    if (st == ST_OK) st = ended;
    if (st == ST_OK) {
        b->cut_runs[0] = p.run;
        b->cut_run_count = 1;
    }
    cut_list_deinit(&p.cuts);
    data_bytes_deinit(&p.made);
    return st;
}
