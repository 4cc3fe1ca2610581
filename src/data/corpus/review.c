// Review files: reads decisions, writes them, and lists the documents that wait for one.
//
//   {"hash": "32 hex digits", "decision": null, "rule": "gopher.few-words", "source": "web",
//    "generator": null, "file": "web/a.jsonl", "n": 12, "id": null, "text": "..."}
//   {"hash": "32 hex digits", "decision": "edit", "edited": "...", "by": "a person"}
//
// A line without a decision puts a document into the queue; others may fill its decision in, or
// append a line. Only `hash` and `decision` (and `edited`) have a meaning for a build.
#include "data/corpus/review.h"
#include "base/fault.h"

#include <stdlib.h>
#include <string.h>

const char *const corpus_review_names[REVIEW_DECISIONS] = {"none", "accept", "reject", "edit"};

struct corpus_review {
    review_entry *entries; // by hash, one for each
    int64_t count;
};

// ---- lines --------------------------------------------------------------------------------------

enum { KEY_HASH, KEY_DECISION, KEY_EDITED, KEY_TEXT, KEY_RULE, KEY_SOURCE, KEY_FILE, KEY_ID };

typedef struct review_pass {
    const host *h;
    const char *path;
    arena *a;
    review_entry *entries;
    int64_t count, capacity;
    const corpus_review *decided; // of corpus_review_each
    status (*take)(void *context, const review_item *item);
    void *context;
} review_pass;

static status bad(const review_pass *p, int64_t line, const char *what)
{
    return fail(
        ST_DATA,
        "%s:%lld: %s; a line has \"hash\" and \"decision\": null, \"accept\", \"reject\" or "
        "\"edit\" with \"edited\"",
        p->path, (long long)line, what);
}

static status parse_entry(const review_pass *p, json *const v[], int64_t line, review_entry *out)
{
    *out = (review_entry){.line = line};
    if (!build_hash_parse(json_text(v[KEY_HASH], ""), &out->hash)) {
        return bad(p, line, "no \"hash\" of 32 hex digits");
    }
    if (v[KEY_DECISION] == NULL || json_kind_of(v[KEY_DECISION]) == JSON_NULL_VALUE) return ST_OK;
    const char *word = json_text(v[KEY_DECISION], "");
    for (int i = REVIEW_ACCEPT; i < REVIEW_DECISIONS; i++) {
        if (strcmp(word, corpus_review_names[i]) == 0) out->decision = (review_decision)i;
    }
    if (out->decision == REVIEW_NONE) return bad(p, line, "another decision");
    if (out->decision != REVIEW_EDIT) return ST_OK;
    if (json_kind_of(v[KEY_EDITED]) != JSON_TEXT || json_text_bytes(v[KEY_EDITED]) == 0) {
        return bad(p, line, "no text under \"edited\"");
    }
    out->edited = json_text(v[KEY_EDITED], "");
    out->edited_bytes = json_text_bytes(v[KEY_EDITED]);
    return ST_OK;
}

static status keep_entry(review_pass *p, const review_entry *e)
{
    if (p->count == p->capacity) {
        const int64_t grown = max_i64(256, 2 * p->capacity);
        review_entry *moved = realloc(p->entries, (size_t)grown * sizeof(*moved));
        if (moved == NULL) return fail(ST_NO_MEMORY, "%s: no memory for its decisions", p->path);
        p->entries = moved;
        p->capacity = grown;
    }
    review_entry *kept = &p->entries[p->count];
    *kept = *e;
    if (e->edited != NULL) {
        text copy = {.a = p->a};
        TRY(text_add_bytes(&copy, e->edited, e->edited_bytes));
        kept->edited = copy.bytes;
    }
    p->count++;
    return ST_OK;
}

static status give_item(review_pass *p, const review_entry *e, json *const v[], const data_line *l)
{
    static const char *const more[] = {"generator", "n"};
    const review_entry *decided = corpus_review_find(p->decided, e->hash);
    json *others[2] = {NULL, NULL};
    if (json_kind_of(v[KEY_TEXT]) != JSON_TEXT) return ST_OK; // a decision
    if (decided == NULL || decided->decision != REVIEW_NONE) return ST_OK;
    if (decided->line != e->line) return ST_OK; // a later line asks about it again
    TRY(json_parse_members(l->bytes, l->count, p->path, l->number, more, 2, others));
    const review_item item = {.hash = e->hash,
                              .rule = json_text(v[KEY_RULE], NULL),
                              .source = json_text(v[KEY_SOURCE], ""),
                              .generator = json_text(others[0], NULL),
                              .file = json_text(v[KEY_FILE], ""),
                              .id = json_text(v[KEY_ID], NULL),
                              .number = json_int(others[1], -1),
                              .text = json_text(v[KEY_TEXT], ""),
                              .text_bytes = json_text_bytes(v[KEY_TEXT])};
    const status st = p->take(p->context, &item);
    for (int i = 0; i < 2; i++) json_free(others[i]);
    return st;
}

static status take_line(review_pass *p, const data_line *l)
{
    static const char *const keys[] = {"hash", "decision", "edited", "text",
                                       "rule", "source",   "file",   "id"};
    json *v[COUNT_OF(keys)] = {NULL};
    review_entry e;
    TRY(json_parse_members(l->bytes, l->count, p->path, l->number, keys, COUNT_OF(keys), v));
    status st = parse_entry(p, v, l->number, &e);
    if (st == ST_OK) st = p->take == NULL ? keep_entry(p, &e) : give_item(p, &e, v, l);
    for (int64_t i = 0; i < COUNT_OF(keys); i++) json_free(v[i]);
    return st;
}

static status read_lines(review_pass *p)
{
    data_documents *d = NULL;
    file_info info;
    TRY(p->h->api->path_info(p->h, p->path, &info));
    if (info.kind == FILE_KIND_NONE || (info.kind == FILE_KIND_REGULAR && info.bytes == 0)) {
        return ST_OK;
    }
    TRY(data_documents_open(p->h, p->path, 0, &d));
    status st = ST_OK;
    for (;;) {
        data_line line;
        st = data_documents_line(d, &line);
        if (st != ST_OK || line.bytes == NULL) break;
        st = take_line(p, &line);
        if (st != ST_OK) break;
    }
    data_documents_close(d);
    return st;
}

// ---- decisions ----------------------------------------------------------------------------------

static int compare_entries(const void *left, const void *right)
{
    const review_entry *a = left, *b = right;
    const int order = hash128_compare(a->hash, b->hash);
    if (order != 0) return order;
    return a->line < b->line ? -1 : a->line > b->line ? 1 : 0;
}

// Leaves one entry for each hash: the last decision, or the last line if there is none.
static int64_t keep_last(review_entry *entries, int64_t count)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++) {
        review_entry *last = kept > 0 ? &entries[kept - 1] : NULL;
        if (last == NULL || hash128_compare(last->hash, entries[i].hash) != 0) {
            entries[kept++] = entries[i];
        } else if (entries[i].decision != REVIEW_NONE || last->decision == REVIEW_NONE) {
            *last = entries[i];
        }
    }
    return kept;
}

status corpus_review_open(const host *h, arena *a, const char *path, const corpus_review **out)
{
    corpus_review *r = NULL;
    review_pass p = {.h = h, .path = path, .a = a};
    TRY(fault_point("corpus.review.open"));
    TRY(arena_new(a, 1, &r));
    status st = read_lines(&p);
    if (st == ST_OK && p.count > 0) {
        qsort(p.entries, (size_t)p.count, sizeof(*p.entries), compare_entries);
        r->count = keep_last(p.entries, p.count);
        st = arena_new(a, r->count, &r->entries);
        if (st == ST_OK) memcpy(r->entries, p.entries, (size_t)r->count * sizeof(*p.entries));
    }
    free(p.entries);
    TRY(st);
    *out = r;
    return ST_OK;
}

const review_entry *corpus_review_find(const corpus_review *r, hash128 hash)
{
    int64_t low = 0, high = r != NULL ? r->count : 0;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        const int order = hash128_compare(r->entries[middle].hash, hash);
        if (order == 0) return &r->entries[middle];
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

int64_t corpus_review_count(const corpus_review *r, review_decision decision)
{
    int64_t count = 0;
    for (int64_t i = 0; r != NULL && i < r->count; i++) {
        count += r->entries[i].decision == decision ? 1 : 0;
    }
    return count;
}

hash128 corpus_review_id(const corpus_review *r)
{
    hash128 sum = {0};
    for (int64_t i = 0; r != NULL && i < r->count; i++) {
        const review_entry *e = &r->entries[i];
        if (e->decision == REVIEW_NONE) continue;
        const hash128 edited = hash128_of(e->edited != NULL ? e->edited : "", e->edited_bytes);
        const uint64_t parts[] = {
            sum.high,    sum.low,   e->hash.high, e->hash.low, (uint64_t)e->decision,
            edited.high, edited.low};
        sum = hash128_of(parts, sizeof(parts));
    }
    return sum;
}

status corpus_review_each(const host *h, const char *path, const corpus_review *r,
                          status (*take)(void *context, const review_item *item), void *context)
{
    review_pass p = {.h = h, .path = path, .decided = r, .take = take, .context = context};
    return read_lines(&p);
}

// ---- writing ------------------------------------------------------------------------------------

status review_file_open(const host *h, const char *path, file **out)
{
    int64_t bytes = 0;
    char last = '\n';
    file *f = NULL, *old = NULL;
    file_info info;
    TRY(h->api->path_info(h, path, &info));
    if (info.kind == FILE_KIND_REGULAR && info.bytes > 0) {
        TRY(h->api->file_open(h, path, FILE_READ, &old));
        status st = h->api->file_size(old, &bytes);
        if (st == ST_OK && bytes > 0) st = h->api->file_read(old, bytes - 1, &last, 1);
        (void)h->api->file_close(old); // the file was only read
        TRY(st);
    }
    TRY(h->api->file_open(h, path, FILE_APPEND, &f));
    const status st = last != '\n' ? h->api->file_write(f, "\n", 1) : ST_OK;
    if (st != ST_OK) {
        (void)h->api->file_close(f);
        return st;
    }
    *out = f;
    return ST_OK;
}

static status print_decision(text *t, hash128 hash, review_decision decision, const char *edited)
{
    char digits[33];
    TRY(text_add(t, "{\"hash\": \"%s\", \"decision\": \"%s\"", hash128_text(hash, digits),
                 corpus_review_names[decision]));
    if (edited != NULL) {
        TRY(text_add(t, ", \"edited\": "));
        TRY(build_add_text(t, edited, (int64_t)strlen(edited)));
    }
    return text_add(t, "}\n");
}

status corpus_review_decide(const host *h, const char *path, hash128 hash, review_decision decision,
                            const char *edited)
{
    ASSERT(decision > REVIEW_NONE && decision < REVIEW_DECISIONS);
    ASSERT((edited != NULL) == (decision == REVIEW_EDIT));
    arena *a = NULL;
    file *f = NULL;
    TRY(arena_create("review", 0, &a));
    text line = {.a = a};
    status st = print_decision(&line, hash, decision, edited);
    if (st == ST_OK) st = review_file_open(h, path, &f);
    if (st == ST_OK) st = h->api->file_write(f, line.bytes, line.length);
    if (f != NULL) {
        const status closed = h->api->file_close(f);
        if (st == ST_OK) st = closed;
    }
    arena_destroy(a);
    return st;
}
