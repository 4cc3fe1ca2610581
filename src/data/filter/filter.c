// The table of filters, and the run of a list of them over one document after the other.
#include "data/filter/family.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

const data_filter *const data_filters[] = {
    &data_filter_length,
    &data_filter_repair,
    &data_filter_language,
    &data_filter_gopher,
    &data_filter_repetition,
    &data_filter_c4,
    &data_filter_fineweb,
    &data_filter_regex,
    &data_filter_code,
    &data_filter_pii,
    &data_filter_decontaminate,
    &data_filter_quality,
    NULL,
};

const data_filter *data_filter_find(const char *name)
{
    for (int64_t i = 0; data_filters[i] != NULL; i++) {
        if (strcmp(data_filters[i]->name, name) == 0) return data_filters[i];
    }
    return NULL;
}

static status unknown(const char *name)
{
    const char *names[64];
    int64_t count = 0;
    while (data_filters[count] != NULL && count < COUNT_OF(names)) {
        names[count] = data_filters[count]->name;
        count++;
    }
    const char *near = text_nearest(name, names, count);
    return fail(ST_CONFIG_RANGE, "filters: there is no filter \"%.40s\"%s%s%s", name,
                near != NULL ? "; did you mean \"" : "", near != NULL ? near : "",
                near != NULL ? "\"?" : "");
}

status filter_run_open(const host *h, const filter_config *c, const option_list *names,
                       filter_run **out)
{
    status st = ST_OK;
    filter_run *r = calloc(1, sizeof(*r));
    if (r == NULL) return fail(ST_NO_MEMORY, "no memory for the filters");
    r->c = c;
    r->filters = calloc((size_t)names->count + 1, sizeof(*r->filters));
    r->states = calloc((size_t)names->count + 1, sizeof(*r->states));
    if (r->filters == NULL || r->states == NULL) {
        st = fail(ST_NO_MEMORY, "no memory for the filters");
        goto close_run;
    }
    for (int64_t i = 0; i < names->count; i++) {
        const data_filter *f = data_filter_find(names->items[i]);
        if (f == NULL) {
            st = unknown(names->items[i]);
            goto close_run;
        }
        for (int64_t k = 0; k < i; k++) {
            if (r->filters[k] != f) continue;
            st = fail(ST_CONFIG_CONFLICT, "filters: \"%s\" is given twice", f->name);
            goto close_run;
        }
        r->filters[r->filter_count++] = f;
        if (f->open != NULL) TRY_TO(close_run, f->open(h, c, &r->states[i]));
    }
    *out = r;
    return ST_OK;
close_run:
    filter_run_close(r);
    return st;
}

void filter_run_close(filter_run *r)
{
    if (r == NULL) return;
    for (int64_t i = 0; i < r->filter_count; i++) {
        if (r->filters[i]->close != NULL) r->filters[i]->close(r->states[i]);
    }
    data_bytes_deinit(&r->buffers[0]);
    data_bytes_deinit(&r->buffers[1]);
    free(r->words.items);
    free(r->lines.items);
    free(r->hashes);
    free(r->filters);
    free(r->states);
    free(r);
}

status filter_run_apply(filter_run *r, bool keeps, const char **bytes, int64_t *count,
                        filter_verdict *out)
{
    ASSERT(*count >= 0 && *count <= INT32_MAX);
    *out = (filter_verdict){.rule = -1};
    r->text = *bytes;
    r->count = *count;
    r->changed = r->has_words = r->has_lines = false;
    for (int64_t i = 0; i < r->filter_count && out->filter == NULL; i++) {
        r->state = r->states[i];
        TRY(r->filters[i]->apply(r, &out->rule));
        if (keeps) out->rule = -1;
        if (out->rule >= 0) out->filter = r->filters[i];
    }
    out->changed = r->changed;
    *bytes = r->text;
    *count = r->count;
    return ST_OK;
}

// ---- parts of a text ----------------------------------------------------------------------------

static status add_span(filter_spans *s, int64_t begin, int64_t end)
{
    if (s->count == s->capacity) {
        const int64_t grown = max_i64(1024, 2 * s->capacity);
        filter_span *moved = realloc(s->items, (size_t)grown * sizeof(*moved));
        if (moved == NULL) return fail(ST_NO_MEMORY, "no memory for %lld words", (long long)grown);
        s->items = moved;
        s->capacity = grown;
    }
    s->items[s->count++] = (filter_span){(int32_t)begin, (int32_t)(end - begin)};
    return ST_OK;
}

// Bytes of the white space at `at`: ASCII, U+0085, U+00A0, U+2000 to 200A, U+2028, U+2029, U+202F,
// U+3000; 0 for another character.
static int64_t blank_bytes(const char *body, int64_t at, int64_t count)
{
    const uint8_t *c = (const uint8_t *)body + at;
    if (*c == ' ' || (*c >= '\t' && *c <= '\r')) return 1;
    if (*c < 0xc2) return 0;
    if (*c == 0xc2) return at + 1 < count && (c[1] == 0x85 || c[1] == 0xa0) ? 2 : 0;
    if ((*c != 0xe2 && *c != 0xe3) || at + 2 >= count) return 0;
    if (*c == 0xe3) return c[1] == 0x80 && c[2] == 0x80 ? 3 : 0;
    const bool is_blank = c[1] == 0x80 && ((c[2] >= 0x80 && c[2] <= 0x8a) || c[2] == 0xa8 ||
                                           c[2] == 0xa9 || c[2] == 0xaf);
    return is_blank ? 3 : 0;
}

status filter_words(filter_run *r, const filter_spans **out)
{
    *out = &r->words;
    if (r->has_words) return ST_OK;
    r->words.count = 0;
    for (int64_t at = 0; at < r->count;) {
        int64_t blank = blank_bytes(r->text, at, r->count);
        if (blank > 0) {
            at += blank;
            continue;
        }
        const int64_t begin = at;
        while (at < r->count && blank_bytes(r->text, at, r->count) == 0) at++;
        TRY(add_span(&r->words, begin, at));
    }
    r->has_words = true;
    return ST_OK;
}

status filter_lines(filter_run *r, const filter_spans **out)
{
    *out = &r->lines;
    if (r->has_lines) return ST_OK;
    r->lines.count = 0;
    for (int64_t at = 0; at < r->count;) {
        const char *newline = memchr(r->text + at, '\n', (size_t)(r->count - at));
        const int64_t end = newline != NULL ? newline - r->text : r->count;
        TRY(add_span(&r->lines, at, end > at && r->text[end - 1] == '\r' ? end - 1 : end));
        at = end + 1;
    }
    r->has_lines = true;
    return ST_OK;
}

data_bytes *filter_output(filter_run *r)
{
    data_bytes *b = &r->buffers[r->into];
    b->count = 0;
    return b;
}

void filter_replace(filter_run *r)
{
    const data_bytes *b = &r->buffers[r->into];
    r->text = b->count > 0 ? b->items : "";
    r->count = b->count;
    r->into = 1 - r->into;
    r->changed = true;
    r->has_words = r->has_lines = false;
}

int64_t filter_chars(const char *body, int64_t count)
{
    int64_t chars = 0;
    for (int64_t i = 0; i < count; i++) chars += ((uint8_t)body[i] & 0xc0) != 0x80;
    return chars;
}

bool filter_holds(const char *bytes, int64_t count, const char *word)
{
    const int64_t n = (int64_t)strlen(word);
    for (int64_t i = 0; i + n <= count; i++) {
        if (strncasecmp(bytes + i, word, (size_t)n) == 0) return true;
    }
    return false;
}

bool filter_ends_with(const char *line, int64_t count, const char *const *marks, int64_t mark_count)
{
    while (count > 0 && (line[count - 1] == ' ' || line[count - 1] == '\t')) count--;
    for (int64_t i = 0; i < mark_count; i++) {
        const int64_t n = (int64_t)strlen(marks[i]);
        if (count >= n && memcmp(line + count - n, marks[i], (size_t)n) == 0) return true;
    }
    return false;
}

// ---- counts of hashes ---------------------------------------------------------------------------

status filter_hashes_clear(filter_run *r, int64_t items)
{
    int64_t n = 64;
    while (n < 2 * items) n *= 2;
    if (r->hash_capacity < 2 * n) {
        free(r->hashes);
        r->hash_capacity = 0;
        r->hashes = malloc((size_t)(2 * n) * sizeof(*r->hashes));
        if (r->hashes == NULL) return fail(ST_NO_MEMORY, "no memory for %lld hashes", (long long)n);
        r->hash_capacity = 2 * n;
    }
    memset(r->hashes, 0, (size_t)(2 * n) * sizeof(*r->hashes));
    r->hash_slots = n;
    return ST_OK;
}

int64_t filter_hashes_count(filter_run *r, uint64_t hash)
{
    const uint64_t mask = (uint64_t)r->hash_slots - 1;
    if (hash == 0) hash = 1;
    for (uint64_t at = hash & mask;; at = (at + 1) & mask) {
        uint64_t *entry = r->hashes + 2 * at;
        if (entry[0] != 0 && entry[0] != hash) continue;
        entry[0] = hash;
        return (int64_t)entry[1]++;
    }
}
