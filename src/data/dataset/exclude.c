// Exclusion lists: which documents of the training data are hidden.
#include "base/fault.h"
#include "base/format/json.h"
#include "data/dataset/dataset_internal.h"
#include "data/reader.h"

#include <stdlib.h>
#include <string.h>

// ---- lists --------------------------------------------------------------------------------------

typedef struct entry_list {
    arena *a;
    const char **items;
    int64_t count, capacity;
} entry_list;

static status add_entry(entry_list *l, const char *bytes, int64_t count)
{
    char *copy = NULL;
    void *items = l->items;
    TRY(arena_format(l->a, &copy, "%.*s", (int)min_i64(count, INT32_MAX), bytes));
    TRY(arena_grow(l->a, &items, &l->capacity, l->count + 1, sizeof(*l->items)));
    l->items = items;
    l->items[l->count++] = copy;
    return ST_OK;
}

static status add_line(entry_list *l, const char *path, const data_line *line)
{
    static const char *const keys[] = {"hash", "name", "id"};
    const char *body = line->bytes;
    int64_t count = line->count;
    json *v[3] = {NULL, NULL, NULL};
    while (count > 0 && (*body == ' ' || *body == '\t')) {
        body++;
        count--;
    }
    if (count == 0 || *body == '#') return ST_OK;
    if (*body != '{') return add_entry(l, body, count);
    TRY(json_parse_members(body, count, path, line->number, keys, 3, v));
    const char *word = json_text(v[0], json_text(v[1], json_text(v[2], NULL)));
    const status st =
        word != NULL ? add_entry(l, word, (int64_t)strlen(word))
                     : fail(ST_DATA, "%s:%lld: no \"hash\", \"name\" or \"id\" names a document",
                            path, (long long)line->number);
    for (int i = 0; i < COUNT_OF(v); i++) json_free(v[i]);
    return st;
}

status data_exclusions_read(const host *h, arena *a, const char *path, const char *const **entries,
                            int64_t *count)
{
    data_documents *d = NULL;
    entry_list l = {.a = a};
    file_info info;
    TRY(fault_point("data.exclude.read"));
    *entries = NULL;
    *count = 0;
    TRY(h->api->path_info(h, path, &info));
    if (info.kind == FILE_KIND_REGULAR && info.bytes == 0) return ST_OK;
    TRY(data_documents_open(h, path, 0, &d));
    status st = ST_OK;
    for (data_line line = {.bytes = ""}; st == ST_OK;) {
        st = data_documents_line(d, &line);
        if (st != ST_OK || line.bytes == NULL) break;
        st = add_line(&l, path, &line);
    }
    data_documents_close(d);
    TRY(st);
    *entries = (const char *const *)l.items;
    *count = l.count;
    return ST_OK;
}

// ---- documents ----------------------------------------------------------------------------------

static int compare_texts(const void *left, const void *right)
{
    const char *const *a = left, *const *b = right;
    return strcmp(*a, *b);
}

typedef struct exclusion {
    data_dataset *d;
    const char **sorted; // entries
    int64_t count, found, ledgers;
    const source_file *file; // whose ledger is read
    excluded_ranges *ranges; // of its source
} exclusion;

static bool is_named(const exclusion *x, const char *word)
{
    return word != NULL &&
           bsearch(&word, x->sorted, (size_t)x->count, sizeof(*x->sorted), compare_texts) != NULL;
}

static status take_document(void *context, const corpus_entry *e)
{
    exclusion *x = context;
    excluded_ranges *r = x->ranges;
    void *items = r->items;
    int64_t begin = 0, end = 0;
    if (!is_named(x, e->hash) && !is_named(x, e->id)) return ST_OK;
    TRY(data_tokens_document_begin(x->file->tokens, e->index, &begin));
    TRY(data_tokens_document_begin(x->file->tokens, e->index + 1, &end));
    TRY(arena_grow(x->d->a, &items, &r->capacity, r->count + 1, sizeof(*r->items)));
    r->items = items;
    r->items[r->count++] = (excluded_range){x->file->begin + begin, x->file->begin + end};
    x->found++;
    return ST_OK;
}

static status read_ledgers(exclusion *x, excluded_ranges *all)
{
    data_dataset *d = x->d;
    for (int64_t i = 0; i < d->train_count; i++) {
        x->ranges = &all[i];
        for (int64_t k = 0; k < d->train[i].file_count; k++) {
            char *ledger = NULL;
            file_info info;
            x->file = &d->train[i].files[k];
            TRY(corpus_ledger_path(d->a, data_tokens_path(x->file->tokens), &ledger));
            TRY(d->h->api->path_info(d->h, ledger, &info));
            if (info.kind != FILE_KIND_REGULAR) continue;
            x->ledgers++;
            TRY(corpus_ledger_read(d->h, ledger, take_document, x));
        }
    }
    return ST_OK;
}

status data_dataset_exclude(data_dataset *d, const char *const *entries, int64_t count,
                            int64_t *found)
{
    exclusion x = {.d = d, .count = count};
    excluded_ranges *all = NULL;
    *found = 0;
    d->exclude = NULL;
    if (d->sample_set != NULL) return samples_exclude(d->sample_set, entries, count, found);
    if (count == 0) return ST_OK;
    TRY(arena_new(d->a, d->train_count, &all));
    TRY(arena_new(d->a, count, &x.sorted));
    for (int64_t i = 0; i < count; i++) x.sorted[i] = entries[i];
    qsort(x.sorted, (size_t)count, sizeof(*x.sorted), compare_texts);
    TRY(read_ledgers(&x, all));
    if (x.found == 0) {
        return fail(ST_NOT_FOUND,
                    "data.exclude: none of its %lld entries names a document of the training data "
                    "(%lld ledgers, which data build writes)",
                    (long long)count, (long long)x.ledgers);
    }
    d->exclude = all;
    *found = x.found;
    return ST_OK;
}

static bool range_hides(const excluded_ranges *r, int64_t token)
{
    int64_t low = 0, high = r->count;
    while (low < high) { // the first range that ends behind the token
        const int64_t middle = low + (high - low) / 2;
        if (r->items[middle].end <= token) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < r->count && r->items[low].begin <= token;
}

bool data_dataset_hides(const data_dataset *d, const data_tokens *t, int64_t token)
{
    for (int64_t i = 0; d->exclude != NULL && i < d->train_count; i++) {
        for (int64_t k = 0; k < d->train[i].file_count; k++) {
            const source_file *f = &d->train[i].files[k];
            if (f->tokens == t && range_hides(&d->exclude[i], f->begin + token)) return true;
        }
    }
    return false;
}
