// Puts documents into a review file, and applies the decisions to the documents of a build.
//
// One pass reads the inputs and runs the filters as a build does. It queues the first documents
// that each rule drops, and those of the sources' shares, which their hashes choose: the queue is a
// function of the inputs and the configuration.
#include "base/fault.h"
#include "data/corpus/review.h"
#include "data/corpus/rows.h"

#include <string.h>

bool review_is_chosen(const corpus_config *c, int64_t source, hash128 hash)
{
    // The high bits of the hash as a number from 0 to below 1.
    const double place = (double)(hash.high >> 11) / (double)(UINT64_C(1) << 53);
    return place < c->sources[source].review;
}

review_verdict review_verdict_of(const corpus_config *c, int64_t source, const char *bytes,
                                 int64_t count)
{
    review_verdict v = {.say = REVIEW_SAYS_NOTHING, .mark = SPILL_MARK_NONE};
    if (c->review.file == NULL) return v;
    const hash128 hash = hash128_of(bytes, count);
    const review_entry *e = corpus_review_find(c->review.decisions, hash);
    const review_decision decision = e != NULL ? e->decision : REVIEW_NONE;
    if (decision == REVIEW_REJECT) v.say = REVIEW_REJECTS;
    if (decision == REVIEW_ACCEPT || decision == REVIEW_EDIT) v.say = REVIEW_KEEPS;
    if (decision == REVIEW_ACCEPT) v.mark = SPILL_MARK_ACCEPT;
    if (decision == REVIEW_EDIT) {
        v.mark = SPILL_MARK_EDIT;
        v.text = e->edited;
        v.text_bytes = e->edited_bytes;
    }
    if (decision == REVIEW_NONE && c->review.undecided != 0 && review_is_chosen(c, source, hash)) {
        v.say = REVIEW_WAITS;
    }
    return v;
}

typedef struct queue {
    build b;
    filter_run *filters;
    file *f;
    arena *a;        // of one line
    int64_t *counts; // [rule]: queued
    int64_t added;
} queue;

static status add_member(text *t, const char *name, const char *bytes, int64_t count)
{
    TRY(text_add(t, ", \"%s\": ", name));
    return bytes != NULL ? build_add_text(t, bytes, count) : text_add(t, "null");
}

static status write_item(queue *q, const build_file *f, int64_t number, const corpus_row *row,
                         const char *rule)
{
    const corpus_source *s = &q->b.c->sources[f->source];
    const hash128 hash = hash128_of(row->text, row->text_bytes);
    char digits[33];
    arena_reset(q->a);
    text t = {.a = q->a};
    TRY(text_add(&t, "{\"hash\": \"%s\", \"decision\": null", hash128_text(hash, digits)));
    TRY(add_member(&t, "rule", rule, rule != NULL ? (int64_t)strlen(rule) : 0));
    TRY(add_member(&t, "source", s->name, (int64_t)strlen(s->name)));
    TRY(add_member(&t, "generator", s->generator,
                   s->generator != NULL ? (int64_t)strlen(s->generator) : 0));
    TRY(add_member(&t, "file", f->path, (int64_t)strlen(f->path)));
    TRY(text_add(&t, ", \"n\": %lld", (long long)number));
    TRY(add_member(&t, "id", row->id, row->id_bytes));
    TRY(add_member(&t, "text", row->text, row->text_bytes));
    TRY(text_add(&t, "}\n"));
    q->added++;
    return q->b.h->api->file_write(q->f, t.bytes, t.length);
}

static status consider(queue *q, const build_file *f, int64_t number, const corpus_row *row)
{
    const corpus_config *c = q->b.c;
    const hash128 hash = hash128_of(row->text, row->text_bytes);
    const char *body = row->text;
    int64_t bytes = row->text_bytes, rule = -1;
    filter_verdict verdict;
    if (bytes == 0 || corpus_review_find(c->review.decisions, hash) != NULL) return ST_OK;
    TRY(filter_run_apply(q->filters, false, &body, &bytes, &verdict));
    for (int64_t i = 0; verdict.filter != NULL && i < c->filters.count; i++) {
        if (strcmp(c->filters.items[i], verdict.filter->name) == 0) {
            rule = q->b.filter_rules[i] + verdict.rule;
        }
    }
    const bool is_sample = rule >= 0 && q->counts[rule] < c->samples;
    if (!is_sample && !review_is_chosen(c, f->source, hash)) return ST_OK;
    if (rule >= 0) q->counts[rule]++;
    return write_item(q, f, number, row, rule >= 0 ? q->b.rules[rule] : NULL);
}

static status read_rows(queue *q, const build_file *f, corpus_rows *rows)
{
    const int64_t before = q->b.done;
    for (int64_t number = 0;; number++) {
        corpus_row row;
        TRY(corpus_rows_next(rows, &row));
        if (row.kind == ROW_END) return ST_OK;
        if (row.kind == ROW_BAD && q->b.c->on_error == 0) return fail(ST_DATA, "%s", row.why);
        if (row.kind == ROW_DOCUMENT) TRY(consider(q, f, number, &row));
        q->b.done = before + corpus_rows_position(rows);
        TRY(build_report(&q->b, CORPUS_SCAN));
    }
}

static status read_file(queue *q, const build_file *f)
{
    const corpus_source *s = &q->b.c->sources[f->source];
    const corpus_rows_options o = {.format = s->format,
                                   .unit = s->unit,
                                   .text = s->text,
                                   .id = s->id,
                                   .document_bytes = q->b.c->document_bytes};
    corpus_rows *rows = NULL;
    TRY(corpus_rows_open(q->b.h, f->path, &o, &rows));
    const int64_t begin = q->b.done;
    const status st = read_rows(q, f, rows);
    corpus_rows_close(rows);
    q->b.done = begin + f->bytes;
    return st;
}

static status read_all(queue *q)
{
    build *b = &q->b;
    TRY(build_find_files(b));
    TRY(build_rules(b));
    TRY(arena_new(b->a, b->rule_count, &q->counts));
    TRY(filter_run_open(b->h, &b->c->filter, &b->c->filters, &q->filters));
    TRY(arena_create("review line", 0, &q->a));
    TRY(review_file_open(b->h, b->c->review.file, &q->f));
    for (int64_t i = 0; i < b->file_count; i++) b->all += b->files[i].bytes;
    for (int64_t i = 0; i < b->file_count; i++) TRY(read_file(q, &b->files[i]));
    TRY(fault_point("corpus.review.sync"));
    return b->h->api->file_sync(q->f);
}

status corpus_review_queue(const host *h, arena *a, const corpus_config *c,
                           const corpus_progress *progress, int64_t *added)
{
    queue q = {.b = {.h = h, .a = a, .c = c, .progress = progress}};
    ASSERT(c->review.file != NULL);
    status st = read_all(&q);
    if (q.f != NULL) {
        const status closed = h->api->file_close(q.f);
        if (st == ST_OK) st = closed;
    }
    filter_run_close(q.filters);
    arena_destroy(q.a);
    if (st == ST_OK) *added = q.added;
    return st;
}
