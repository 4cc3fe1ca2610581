// CSV and TSV (RFC 4180): the first record names the columns; a field in quotes may hold the
// separator, line ends and doubled quotes. One column is the text and one may name the document.
#include "data/corpus/rows.h"

#include <stdlib.h>
#include <string.h>

enum { COLUMNS_MAX = 65536 };

typedef struct csv_state {
    char separator;
    int64_t columns, text_at, id_at; // id_at -1: none
    bool in_header;                  // the record that is read names the columns
    data_bytes text, id;             // of the record that is read
    int64_t record_line;             // the line on which it begins
} csv_state;

// A record as it is read: where the parser stands in it.
typedef struct csv_record {
    int64_t column;
    bool in_quotes, was_quoted; // was_quoted: the field began with a quote
    bool field_begins, has_bytes;
    bool is_large, bad_quote;
} csv_record;

// The bytes of the field under way go here; NULL: to no one.
static data_bytes *field_of(csv_state *s, int64_t column)
{
    if (column == s->text_at || s->in_header) return &s->text;
    return column == s->id_at ? &s->id : NULL;
}

static status add(corpus_rows *r, csv_state *s, csv_record *c, const char *bytes, int64_t count)
{
    data_bytes *field = field_of(s, c->column);
    if (field == NULL || c->is_large) return ST_OK;
    if (field->count + count > r->o.document_bytes) {
        c->is_large = true;
        return ST_OK;
    }
    return data_bytes_add(field, bytes, count);
}

// Makes sure that the window holds a byte; false at the end of the file.
static status has_byte(corpus_rows *r, bool *out)
{
    while (r->begin == r->end && !r->at_end) TRY(rows_more(r));
    *out = r->begin < r->end;
    return ST_OK;
}

// Bytes from the window's beginning that are no separator, quote or line end.
static int64_t plain_run(const corpus_rows *r, const csv_state *s, bool in_quotes)
{
    int64_t at = r->begin;
    for (; at < r->end; at++) {
        const char c = r->window[at];
        if (c == '"' || (!in_quotes && (c == s->separator || c == '\n' || c == '\r'))) break;
    }
    return at - r->begin;
}

// A quote: it opens or closes a quoted field, or is a doubled one.
static status take_quote(corpus_rows *r, csv_state *s, csv_record *c)
{
    bool more = false;
    r->begin++;
    if (!c->in_quotes && c->field_begins) {
        c->in_quotes = c->was_quoted = true;
        c->field_begins = false;
        return ST_OK;
    }
    if (!c->in_quotes) { // a quote inside a plain field stands for itself
        if (c->was_quoted) c->bad_quote = true;
        return add(r, s, c, "\"", 1);
    }
    TRY(has_byte(r, &more));
    if (!more || r->window[r->begin] != '"') {
        c->in_quotes = false;
        return ST_OK;
    }
    r->begin++;
    return add(r, s, c, "\"", 1);
}

// The end of a field: in the header, of a column's name.
static void field_ends(const corpus_rows *r, csv_state *s, csv_record *c)
{
    if (!s->in_header) return;
    const int64_t n = s->text.count, body = (int64_t)strlen(r->o.text),
                  id = (int64_t)strlen(r->o.id);
    const bool has_name = n > 0;
    if (has_name && s->text_at < 0 && n == body &&
        memcmp(s->text.items, r->o.text, (size_t)n) == 0) {
        s->text_at = c->column;
    } else if (has_name && s->id_at < 0 && n == id &&
               memcmp(s->text.items, r->o.id, (size_t)n) == 0) {
        s->id_at = c->column;
    }
    s->text.count = 0;
}

// Reads one record. *found false: the end of the file.
static status read_record(corpus_rows *r, csv_state *s, csv_record *c, bool *found)
{
    *c = (csv_record){.field_begins = true};
    s->text.count = s->id.count = 0;
    s->record_line = r->line + 1;
    *found = false;
    for (;;) {
        bool more = false;
        TRY(has_byte(r, &more));
        if (!more) {
            field_ends(r, s, c);
            return ST_OK;
        }
        *found = true;
        const int64_t run = plain_run(r, s, c->in_quotes);
        if (run > 0) {
            for (int64_t i = 0; c->in_quotes && i < run; i++)
                r->line += r->window[r->begin + i] == '\n';
            TRY(add(r, s, c, r->window + r->begin, run));
            c->field_begins = false;
            c->has_bytes = true;
            r->begin += run;
            continue;
        }
        const char byte = r->window[r->begin];
        if (byte == '"') {
            c->has_bytes = true;
            TRY(take_quote(r, s, c));
            continue;
        }
        r->begin++;
        if (byte == '\r') continue;
        field_ends(r, s, c);
        if (byte == '\n') {
            r->line++;
            return ST_OK;
        }
        c->column += c->column < COLUMNS_MAX;
        c->field_begins = true;
        c->was_quoted = false;
        c->has_bytes = true;
    }
}

// Reads the names of the columns.
static status find_columns(corpus_rows *r, csv_state *s)
{
    csv_record c;
    bool found = false;
    s->text_at = s->id_at = -1;
    s->in_header = true;
    TRY(read_record(r, s, &c, &found));
    s->in_header = false;
    s->columns = c.column + 1;
    if (s->text_at >= 0) return ST_OK;
    return fail(ST_DATA,
                "%s:1: no column \"%s\" among the %lld that the first line names; give the text's "
                "column in sources.NAME.text",
                r->path, r->o.text, (long long)s->columns);
}

static status begin_with(corpus_rows *r, char separator)
{
    csv_state *s = calloc(1, sizeof(*s));
    if (s == NULL) return fail(ST_NO_MEMORY, "%s: no memory to read it", r->path);
    r->state = s;
    s->separator = separator;
    return find_columns(r, s);
}

static status begin_csv(corpus_rows *r)
{
    return begin_with(r, ',');
}

static status begin_tsv(corpus_rows *r)
{
    return begin_with(r, '\t');
}

static status next(corpus_rows *r, corpus_row *out)
{
    csv_state *s = r->state;
    csv_record c;
    bool found = false;
    TRY(read_record(r, s, &c, &found));
    if (!found) return ST_OK;
    if (!c.has_bytes) { // an empty line
        out->kind = ROW_NONE;
        return ST_OK;
    }
    const long long line = (long long)s->record_line;
    if (c.in_quotes) {
        *out = rows_bad(r, "%s:%lld: a field in quotes that has no end", r->path, line);
    } else if (c.bad_quote) {
        *out = rows_bad(r, "%s:%lld: a quote after the end of a field in quotes", r->path, line);
    } else if (c.column + 1 != s->columns) {
        *out = rows_bad(r, "%s:%lld: %lld columns, the first line has %lld", r->path, line,
                        (long long)c.column + 1, (long long)s->columns);
    } else {
        *out = (corpus_row){.kind = c.is_large ? ROW_LARGE : ROW_DOCUMENT,
                            .text = s->text.count > 0 ? s->text.items : "",
                            .text_bytes = s->text.count,
                            .id = s->id.count > 0 ? s->id.items : NULL,
                            .id_bytes = s->id.count};
    }
    return ST_OK;
}

static void end(corpus_rows *r)
{
    csv_state *s = r->state;
    if (s == NULL) return;
    data_bytes_deinit(&s->text);
    data_bytes_deinit(&s->id);
    free(s);
}

const corpus_row_format corpus_row_format_csv = {
    .name = "csv", .choice = CORPUS_FORMAT_CSV, .begin = begin_csv, .next = next, .end = end};
const corpus_row_format corpus_row_format_tsv = {
    .name = "tsv", .choice = CORPUS_FORMAT_TSV, .begin = begin_tsv, .next = next, .end = end};
