// Reads examples and scores their endings as rows. The endings of an example follow one another, in
// one batch or across batches.
#include "infer/hellaswag.h"

#include "base/format/json.h"
#include "data/dataset.h"
#include "data/reader.h"

#include <math.h>
#include <string.h>

enum { LINE_BYTES_MAX = 1 << 20, CLASSIC_LINES = 6 };

typedef struct reading {
    arena *a;
    data_tokenizer *t;
    const char *path;
    int64_t limit, line; // line: number of the last line read
    hellaswag_list *list;
    data_reader *r;
    data_bytes buffer; // bytes that are read and not yet used
    int64_t at;
    bool at_end;
    data_ids ids;
    data_bytes text;
} reading;

// ---- lines --------------------------------------------------------------------------------------

static status more(reading *v)
{
    enum { BLOCK_BYTES = 1 << 14 };
    char block[BLOCK_BYTES];
    int64_t got = 0;
    if (v->at > 0) {
        v->buffer.count -= v->at;
        memmove(v->buffer.items, v->buffer.items + v->at, (size_t)v->buffer.count);
        v->at = 0;
    }
    if (v->buffer.count > LINE_BYTES_MAX) {
        return fail(ST_DATA, "%s: line %lld has more than %d bytes", v->path,
                    (long long)(v->line + 1), (int)LINE_BYTES_MAX);
    }
    TRY(data_reader_read(v->r, block, BLOCK_BYTES, &got));
    v->at_end = got == 0;
    return data_bytes_add(&v->buffer, block, got);
}

// The next non-empty line, in the arena; NULL: the end.
static status line_next(reading *v, char **out)
{
    *out = NULL;
    for (;;) {
        const int64_t left = v->buffer.count - v->at;
        const char *from = left > 0 ? v->buffer.items + v->at : ""; // before the first read: NULL
        const char *end = left > 0 ? memchr(from, '\n', (size_t)left) : NULL;
        if (end == NULL && !v->at_end) {
            TRY(more(v));
            continue;
        }
        if (left == 0) return ST_OK;
        int64_t length = end != NULL ? end - from : left;
        v->at += length + (end != NULL ? 1 : 0);
        v->line++;
        if (length > 0 && from[length - 1] == '\r') length--;
        if (length == 0) continue;
        return arena_format(v->a, out, "%.*s", (int)length, from);
    }
}

// ---- examples -----------------------------------------------------------------------------------

static status refused(const reading *v, const char *what)
{
    return fail(ST_DATA, "%s: line %lld: %s", v->path, (long long)v->line, what);
}

// Encodes context and ending as one text, as the model would read it; the ending's tokens are those
// after the context's.
static status ending_take(reading *v, const char *context, const char *ending,
                          hellaswag_ending *out)
{
    v->ids.count = v->text.count = 0;
    const int64_t context_bytes = (int64_t)strlen(context);
    TRY(data_tokenizer_encode(v->t, context, context_bytes, data_tokenizer_flags(v->t), &v->ids));
    const int64_t context_count = v->ids.count;
    v->ids.count = 0;
    TRY(data_bytes_add(&v->text, context, context_bytes));
    TRY(data_bytes_add(&v->text, " ", 1));
    TRY(data_bytes_add(&v->text, ending, (int64_t)strlen(ending)));
    TRY(data_tokenizer_encode(v->t, v->text.items, v->text.count, data_tokenizer_flags(v->t),
                              &v->ids));
    if (context_count < 1 || v->ids.count <= context_count) {
        return refused(v, "a context or an ending has no token");
    }
    *out = (hellaswag_ending){
        .count = v->ids.count, .context = context_count, .bytes = (int64_t)strlen(ending)};
    TRY(arena_new(v->a, out->count, &out->ids));
    memcpy(out->ids, v->ids.items, (size_t)out->count * sizeof(int32_t));
    v->list->longest = max_i64(v->list->longest, out->count);
    return ST_OK;
}

static status example_add(reading *v, const char *context, const char *const *endings,
                          int64_t count, int64_t label)
{
    hellaswag_list *list = v->list;
    if (label < 0 || label >= count) return refused(v, "the label is not the number of an ending");
    TRY(arena_grow(v->a, (void **)&list->items, &list->capacity, list->count + 1,
                   (int64_t)sizeof(hellaswag_example)));
    hellaswag_example e = {.ending_count = count, .label = label};
    TRY(arena_new(v->a, count, &e.endings));
    for (int64_t i = 0; i < count; i++) TRY(ending_take(v, context, endings[i], &e.endings[i]));
    list->items[list->count++] = e;
    return ST_OK;
}

// The label is a number, or a text that is one.
static int64_t label_of(const json *value)
{
    int64_t label = json_int(value, -1);
    if (json_kind_of(value) == JSON_TEXT && !text_parse_i64(json_text(value, ""), &label)) {
        return -1;
    }
    return label;
}

static status example_of_json(reading *v, json *const *members)
{
    const char *endings[HELLASWAG_ENDINGS_MAX];
    const char *context = json_text(members[0], NULL);
    const json *list = members[1];
    const int64_t count = json_kind_of(list) == JSON_LIST ? json_count(list) : 0;
    if (context == NULL || count < 2 || count > HELLASWAG_ENDINGS_MAX) {
        return refused(v, "expected {\"ctx\": string, \"endings\": [strings], \"label\": number}");
    }
    for (int64_t i = 0; i < count; i++) {
        endings[i] = json_text(json_at(list, i), NULL);
        if (endings[i] == NULL) return refused(v, "an ending is not a string");
    }
    return example_add(v, context, endings, count, label_of(members[2]));
}

static status json_example(reading *v, const char *line)
{
    static const char *const keys[] = {"ctx", "endings", "label"};
    json *members[COUNT_OF(keys)];
    TRY(json_parse_members(line, (int64_t)strlen(line), v->path, v->line, keys, COUNT_OF(keys),
                           members));
    const status st = example_of_json(v, members);
    for (int64_t i = 0; i < COUNT_OF(keys); i++) json_free(members[i]);
    return st;
}

static status classic_example(reading *v, const char *context)
{
    char *lines[CLASSIC_LINES - 1];
    int64_t label = -1;
    for (int i = 0; i < CLASSIC_LINES - 1; i++) {
        TRY(line_next(v, &lines[i]));
        if (lines[i] == NULL) {
            return refused(v, "the file ends inside an example of six lines");
        }
        if (i == 0 && !text_parse_i64(lines[0], &label)) {
            return refused(v, "expected the number of the right ending");
        }
    }
    const char *const endings[] = {lines[1], lines[2], lines[3], lines[4]};
    return example_add(v, context, endings, COUNT_OF(endings), label);
}

static status examples_read(reading *v)
{
    while (v->limit == 0 || v->list->count < v->limit) {
        char *line = NULL;
        TRY(line_next(v, &line));
        if (line == NULL) return ST_OK;
        TRY(line[0] == '{' ? json_example(v, line) : classic_example(v, line));
    }
    return ST_OK;
}

status hellaswag_read(const host *h, arena *a, data_tokenizer *t, const char *path, int64_t limit,
                      hellaswag_list *list)
{
    reading v = {.a = a, .t = t, .path = path, .limit = limit, .list = list};
    TRY(data_path_check(path));
    TRY(data_reader_open(h, path, &v.r));
    const status st = examples_read(&v);
    data_reader_close(v.r);
    data_bytes_deinit(&v.buffer);
    data_bytes_deinit(&v.text);
    data_ids_deinit(&v.ids);
    return st;
}

// ---- scoring ------------------------------------------------------------------------------------

// Row `row`: every token but the last predicts the next one; only predictions of the ending count.
static void row_fill(infer_scorer *s, int64_t row, const hellaswag_ending *e, int32_t *labels)
{
    const int64_t seq = infer_scorer_rows(s)->seq;
    const int64_t skip = max_i64(0, e->count - 1 - seq), count = e->count - 1 - skip;
    for (int64_t t = 0; t < count; t++) {
        labels[t] = t + skip + 1 >= e->context ? e->ids[t + skip + 1] : -1;
    }
    infer_scorer_row(s, row, e->ids + skip, labels, count);
}

static status batch_score(infer_scorer *s, hellaswag_ending **endings, int64_t count,
                          int32_t *labels, float *losses)
{
    infer_score all = {.tokens = 0};
    exact_zero(&all.nats);
    for (int64_t i = 0; i < count; i++) row_fill(s, i, endings[i], labels);
    TRY(infer_scorer_run(s, count, &all, losses));
    const int64_t seq = infer_scorer_rows(s)->seq;
    for (int64_t i = 0; i < count; i++) {
        double sum = 0.0;
        for (int64_t t = 0; t < seq; t++) sum += (double)losses[i * seq + t];
        if (!isfinite(sum)) return fail(ST_NUMERICS, "an ending's log-probability is not finite");
        endings[i]->score = -sum;
    }
    return ST_OK;
}

static int64_t best_of(const hellaswag_example *e, bool by_bytes)
{
    int64_t best = 0;
    double highest = -HUGE_VAL;
    for (int64_t i = 0; i < e->ending_count; i++) {
        const double bytes = (double)e->endings[i].bytes;
        const double score = by_bytes ? e->endings[i].score / bytes : e->endings[i].score;
        if (score <= highest) continue; // ties go to the first
        highest = score;
        best = i;
    }
    return best;
}

static double error_of(double share, int64_t count)
{
    return count > 1 ? sqrt(share * (1.0 - share) / (double)(count - 1)) : 0.0;
}

static void result_make(const hellaswag_list *list, hellaswag_result *out)
{
    int64_t right = 0, right_norm = 0;
    for (int64_t i = 0; i < list->count; i++) {
        const hellaswag_example *e = &list->items[i];
        if (best_of(e, false) == e->label) right++;
        if (best_of(e, true) == e->label) right_norm++;
    }
    out->count = list->count;
    out->accuracy = (double)right / (double)max_i64(1, list->count);
    out->accuracy_norm = (double)right_norm / (double)max_i64(1, list->count);
    out->error = error_of(out->accuracy, list->count);
    out->error_norm = error_of(out->accuracy_norm, list->count);
}

status hellaswag_score(infer_scorer *s, arena *a, const hellaswag_list *list,
                       const hellaswag_watcher *watcher, hellaswag_result *out)
{
    const infer_rows *rows = infer_scorer_rows(s);
    hellaswag_ending **endings = NULL;
    int32_t *labels = NULL;
    float *losses = NULL;
    int64_t all = 0;
    for (int64_t i = 0; i < list->count; i++) all += list->items[i].ending_count;
    TRY(arena_new(a, max_i64(1, all), &endings));
    TRY(arena_new(a, rows->seq, &labels));
    TRY(arena_new(a, rows->rows * rows->seq, &losses));
    for (int64_t i = 0, n = 0; i < list->count; i++) {
        hellaswag_example *e = &list->items[i];
        for (int64_t k = 0; k < e->ending_count; k++) endings[n++] = &e->endings[k];
    }
    for (int64_t done = 0; done < all;) {
        const int64_t count = min_i64(rows->rows, all - done);
        TRY(batch_score(s, endings + done, count, labels, losses));
        done += count;
        if (watcher != NULL && watcher->scored(watcher->context, done, all)) {
            return fail(ST_STOPPED, "after %lld of %lld endings", (long long)done, (long long)all);
        }
    }
    result_make(list, out);
    return ST_OK;
}
