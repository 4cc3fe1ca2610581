// Scores of tasks: choices as rows, documents as windows.
#include "base/text.h"
#include "infer/task.h"

#include "data/dataset.h"
#include "data/reader.h"

#include <math.h>
#include <string.h>

// ---- multiple choice ----------------------------------------------------------------------------

// Every token but the last predicts the next one; only predictions of the choice count.
static void row_fill(infer_scorer *s, int64_t row, const task_choice *c, int32_t *labels)
{
    const int64_t seq = infer_scorer_rows(s)->seq;
    const int64_t skip = max_i64(0, c->count - 1 - seq), count = c->count - 1 - skip;
    for (int64_t t = 0; t < count; t++) {
        labels[t] = t + skip + 1 >= c->context ? c->ids[t + skip + 1] : DATA_LABEL_IGNORED;
    }
    infer_scorer_row(s, row, c->ids + skip, labels, count);
}

static status batch_score(infer_scorer *s, task_choice **choices, int64_t count, int32_t *labels,
                          float *losses)
{
    infer_score all = {.tokens = 0};
    const int64_t seq = infer_scorer_rows(s)->seq;
    exact_zero(&all.nats);
    for (int64_t i = 0; i < count; i++) row_fill(s, i, choices[i], labels);
    TRY(infer_scorer_run(s, count, &all, losses));
    for (int64_t i = 0; i < count; i++) {
        double sum = 0.0;
        for (int64_t t = 0; t < seq; t++) sum += (double)losses[i * seq + t];
        if (!isfinite(sum)) return fail(ST_NUMERICS, "a choice's log-probability is not finite");
        choices[i]->score = -sum;
    }
    return ST_OK;
}

int64_t task_best(const task_item *item, int by)
{
    int64_t best = 0;
    double highest = -HUGE_VAL;
    for (int64_t i = 0; i < item->choice_count; i++) {
        const task_choice *c = &item->choices[i];
        const int64_t length = by == 0 ? 1 : by == 1 ? c->characters : c->bytes;
        const double score = c->score / (double)length;
        if (score <= highest) continue; // ties go to the first
        highest = score;
        best = i;
    }
    return best;
}

static task_share share_of(const task_items *items, int by)
{
    int64_t right = 0;
    for (int64_t i = 0; i < items->count; i++) {
        right += task_best(&items->items[i], by) == items->items[i].gold ? 1 : 0;
    }
    const double p = (double)right / (double)max_i64(1, items->count);
    const double n = (double)(items->count - 1);
    return (task_share){p, n > 0.0 ? sqrt(p * (1.0 - p) / n) : 0.0};
}

status task_score(infer_scorer *s, arena *a, const task_items *items, const task_watcher *watcher,
                  task_result *out)
{
    const infer_rows *rows = infer_scorer_rows(s);
    task_choice **choices = NULL;
    int32_t *labels = NULL;
    float *losses = NULL;
    int64_t all = 0;
    for (int64_t i = 0; i < items->count; i++) all += items->items[i].choice_count;
    TRY(arena_new(a, all, &choices));
    TRY(arena_new(a, rows->seq, &labels));
    TRY(arena_new(a, rows->rows * rows->seq, &losses));
    for (int64_t i = 0, n = 0; i < items->count; i++) {
        const task_item *item = &items->items[i];
        for (int64_t k = 0; k < item->choice_count; k++) choices[n++] = &item->choices[k];
    }
    for (int64_t done = 0; done < all;) {
        const int64_t count = min_i64(rows->rows, all - done);
        TRY(batch_score(s, choices + done, count, labels, losses));
        done += count;
        if (watcher != NULL && watcher->scored(watcher->context, "choices", done, all)) {
            return fail(ST_STOPPED, "after %lld of %lld choices", (long long)done, (long long)all);
        }
    }
    *out = (task_result){.items = items->count,
                         .acc = share_of(items, 0),
                         .acc_norm = share_of(items, 1),
                         .acc_bytes = share_of(items, 2)};
    return ST_OK;
}

// ---- perplexity ---------------------------------------------------------------------------------

typedef struct document_windows {
    infer_scorer *s;
    int32_t *ids, *labels; // of a row
    int64_t filled;        // rows
    infer_score score;
    int32_t prefix;
} document_windows;

static status flush(document_windows *w)
{
    if (w->filled == 0) return ST_OK;
    const int64_t filled = w->filled;
    w->filled = 0;
    return infer_scorer_run(w->s, filled, &w->score, NULL);
}

// The window that predicts tokens [begin, end) of a document.
static status window_add(document_windows *w, const int32_t *ids, int64_t begin, int64_t end)
{
    const int64_t seq = infer_scorer_rows(w->s)->seq;
    const int64_t first = max_i64(-1, end - seq - 1), count = end - 1 - first;
    for (int64_t t = 0; t < count; t++) {
        const int64_t at = first + t; // -1: before the document
        w->ids[t] = at < 0 ? w->prefix : ids[at];
        w->labels[t] = at + 1 >= begin ? ids[at + 1] : DATA_LABEL_IGNORED;
    }
    infer_scorer_row(w->s, w->filled++, w->ids, w->labels, count);
    return w->filled == infer_scorer_rows(w->s)->rows ? flush(w) : ST_OK;
}

static void words_count(const data_bytes *t, task_result *out)
{
    for (int64_t i = 0; i < t->count; i++) {
        const bool begins = i == 0 || text_is_blank(t->items[i - 1]);
        out->words += begins && !text_is_blank(t->items[i]) ? 1 : 0;
    }
}

static status document_score(document_windows *w, data_tokenizer *t, const data_bytes *bytes,
                             data_ids *ids, task_result *out)
{
    const int64_t seq = infer_scorer_rows(w->s)->seq;
    ids->count = 0;
    TRY(data_tokenizer_encode(t, bytes->items, bytes->count, data_tokenizer_flags(t), ids));
    for (int64_t begin = 0; begin < ids->count; begin += seq) {
        TRY(window_add(w, ids->items, begin, min_i64(ids->count, begin + seq)));
    }
    out->items++;
    out->bytes += bytes->count;
    words_count(bytes, out);
    return ST_OK;
}

typedef struct document_parts {
    data_documents *d;
    data_bytes bytes;
    data_ids ids;
} document_parts;

static status documents_score(document_windows *w, document_parts *p, data_tokenizer *t,
                              int64_t limit, const task_watcher *watcher, task_result *out)
{
    data_piece piece;
    while (limit == 0 || out->items < limit) {
        TRY(data_documents_next(p->d, &piece));
        if (piece.bytes == NULL) break;
        TRY(data_bytes_add(&p->bytes, piece.bytes, piece.count));
        if (!piece.ends_document) continue;
        if (p->bytes.count > 0) TRY(document_score(w, t, &p->bytes, &p->ids, out));
        p->bytes.count = 0;
        if (watcher != NULL && watcher->scored(watcher->context, "documents", out->items, limit)) {
            return fail(ST_STOPPED, "after %lld documents", (long long)out->items);
        }
    }
    return flush(w);
}

status task_perplexity(infer_scorer *s, const host *h, arena *a, data_tokenizer *t,
                       const task_spec *spec, int64_t limit, const task_watcher *watcher,
                       task_result *out)
{
    document_windows w = {.s = s};
    document_parts p = {.d = NULL};
    const int64_t seq = infer_scorer_rows(s)->seq;
    *out = (task_result){.items = 0};
    exact_zero(&w.score.nats);
    TRY(task_prefix(t, spec, &w.prefix));
    TRY(arena_new(a, seq, &w.ids));
    TRY(arena_new(a, seq, &w.labels));
    TRY(data_path_check(spec->data));
    TRY(data_documents_open(h, spec->data, 0, &p.d));
    const status st = documents_score(&w, &p, t, limit, watcher, out);
    data_documents_close(p.d);
    data_bytes_deinit(&p.bytes);
    data_ids_deinit(&p.ids);
    TRY(st);
    out->tokens = w.score.tokens;
    out->nats = exact_value(&w.score.nats);
    if (out->tokens == 0) return fail(ST_DATA, "%s holds no text", spec->data);
    return isfinite(out->nats) ? ST_OK : fail(ST_NUMERICS, "the loss is not finite");
}
