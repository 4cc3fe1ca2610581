// Arrow: streams of messages, which are also the content of a file between its marks (Feather 2,
// and the files of Hugging Face datasets).
//
//   ["ARROW1" 0 0]  {0xffffffff, i32 bytes, message, body} ...  0xffffffff 0  [footer "ARROW1"]
//
// Batches are read one after the other, so the footer, which finds them in any order, is not used.
#include "data/corpus/arrow/arrow.h"
#include "data/corpus/rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE_MAX = 256 << 20, BODY_MAX = 1 << 30 };

typedef struct arrow_state {
    arrow_column columns[2]; // text, id
    arrow_values values[2];
    arrow_dictionary dictionaries[2];
    data_bytes message;
    bool has_schema, at_end;
    int64_t body_bytes; // of the batch whose rows are read; it lies in the window
    int64_t row, rows, all_rows;
    char number[32]; // an id that is a number
} arrow_state;

static status damaged(const corpus_rows *r, const char *why)
{
    return fail(ST_DAMAGED, "%s: %s", r->path, why);
}

// Holds so many bytes in the window.
static status hold(corpus_rows *r, int64_t bytes)
{
    bool whole = false;
    TRY(rows_hold(r, bytes, &whole));
    return whole ? ST_OK : damaged(r, "the Arrow data ends too early");
}

static status skip(corpus_rows *r, int64_t bytes)
{
    bool whole = false;
    TRY(rows_skip(r, bytes, &whole));
    return whole ? ST_OK : damaged(r, "the Arrow data ends too early");
}

static int64_t number_at(const corpus_rows *r, int64_t at)
{
    const flat f = {(const uint8_t *)r->window + r->begin, r->end - r->begin};
    return flat_read(&f, at, 4);
}

// Copies the next message; *kind 0: the end of the stream.
static status next_message(corpus_rows *r, flat *f, int *kind, int64_t *body_bytes)
{
    arrow_state *s = r->state;
    *kind = 0;
    while (!r->at_end && r->end - r->begin < 8) TRY(rows_more(r));
    if (r->end == r->begin) return ST_OK; // a stream may end without its mark
    TRY(hold(r, 4));
    int64_t bytes = number_at(r, 0);
    r->begin += 4;
    if (bytes == -1) {
        TRY(hold(r, 4));
        bytes = number_at(r, 0);
        r->begin += 4;
    }
    if (bytes == 0) return ST_OK;
    if (bytes < 0 || bytes > MESSAGE_MAX) return damaged(r, "no message of an Arrow stream");
    TRY(hold(r, bytes));
    s->message.count = 0;
    TRY(data_bytes_add(&s->message, r->window + r->begin, bytes));
    r->begin += bytes;
    *f = (flat){(const uint8_t *)s->message.items, bytes};
    const int64_t root = flat_root(f);
    *kind = (int)(flat_int(f, root, 1, 1, 0) & 0xff);
    *body_bytes = flat_int(f, root, 3, 8, 0);
    if (root < 0 || *kind == 0 || *body_bytes < 0) return damaged(r, "an Arrow message is damaged");
    return ST_OK;
}

static status begin(corpus_rows *r)
{
    arrow_state *s = calloc(1, sizeof(*s));
    if (s == NULL) return fail(ST_NO_MEMORY, "%s: no memory to read it", r->path);
    r->state = s;
    s->columns[0].name = r->o.text;
    s->columns[1].name = r->o.id;
    while (!r->at_end && r->end - r->begin < 8) TRY(rows_more(r));
    if (r->end - r->begin >= 8 && memcmp(r->window + r->begin, "ARROW1\0\0", 8) == 0) r->begin += 8;
    return ST_OK;
}

// Holds the body of a message.
static status hold_body(corpus_rows *r, int64_t body_bytes, flat *body)
{
    const arrow_state *s = r->state;
    if (!s->has_schema) return damaged(r, "a record batch before the schema");
    if (body_bytes > BODY_MAX) {
        return fail(ST_UNSUPPORTED,
                    "%s: a record batch of %lld bytes, at most %d expected; write "
                    "smaller batches",
                    r->path, (long long)body_bytes, BODY_MAX);
    }
    TRY(hold(r, body_bytes));
    *body = (flat){(const uint8_t *)r->window + r->begin, body_bytes};
    return ST_OK;
}

static status read_dictionary(corpus_rows *r, const flat *f, int64_t body_bytes)
{
    arrow_state *s = r->state;
    flat body;
    TRY(hold_body(r, body_bytes, &body));
    for (int i = 0; i < 2; i++) {
        TRY(arrow_dictionary_read(f, flat_root(f), r->path, &body, &s->columns[i], BODY_MAX,
                                  &s->dictionaries[i]));
    }
    return skip(r, body_bytes);
}

static status open_batch(corpus_rows *r, const flat *f, int64_t body_bytes)
{
    arrow_state *s = r->state;
    flat body;
    TRY(hold_body(r, body_bytes, &body));
    for (int i = 0; i < 2; i++) {
        if (!s->columns[i].is_found) continue;
        TRY(arrow_batch_open(f, arrow_message_batch(f, flat_root(f)), r->path, &body,
                             &s->columns[i], BODY_MAX, &s->values[i], &s->rows));
    }
    s->body_bytes = body_bytes;
    s->row = 0;
    return ST_OK;
}

static status read_schema(corpus_rows *r, const flat *f)
{
    arrow_state *s = r->state;
    const bool has_id = r->o.id[0] != 0 && strcmp(r->o.id, r->o.text) != 0;
    if (s->has_schema) return damaged(r, "a second schema");
    TRY(arrow_schema_read(f, flat_root(f), r->path, s->columns, has_id ? 2 : 1));
    s->has_schema = true;
    if (s->columns[0].is_found && s->columns[0].type == ARROW_TYPE_BYTES) return ST_OK;
    return fail(ST_DATA, "%s: no column \"%s\" of texts", r->path, r->o.text);
}

// Goes to the next batch with a row.
static status find_batch(corpus_rows *r)
{
    arrow_state *s = r->state;
    while (s->row == s->rows && !s->at_end) {
        flat f;
        int kind = 0;
        int64_t body_bytes = 0;
        r->begin += s->body_bytes; // of the batch before
        s->body_bytes = s->row = s->rows = 0;
        TRY(next_message(r, &f, &kind, &body_bytes));
        s->at_end = kind == 0;
        if (kind == ARROW_SCHEMA) TRY(read_schema(r, &f));
        if (kind == ARROW_RECORDS) {
            TRY(open_batch(r, &f, body_bytes));
        } else if (kind == ARROW_DICTIONARY) {
            TRY(read_dictionary(r, &f, body_bytes));
        } else {
            TRY(skip(r, body_bytes)); // tensors
        }
    }
    if (!s->at_end || s->has_schema) return ST_OK;
    return damaged(r, "an Arrow file without a schema");
}

// The value of the row in a column.
static status value(corpus_rows *r, int i, const char **bytes, int64_t *count)
{
    arrow_state *s = r->state;
    const arrow_column *c = &s->columns[i];
    if (!c->is_coded) return arrow_value(&s->values[i], c, r->path, s->row, bytes, count);
    return arrow_dictionary_value(&s->dictionaries[i], &s->values[i], c, r->path, s->row, bytes,
                                  count);
}

static status set_id(corpus_rows *r, corpus_row *out)
{
    arrow_state *s = r->state;
    const arrow_column *c = &s->columns[1];
    if (!c->is_found) return ST_OK;
    TRY(value(r, 1, &out->id, &out->id_bytes));
    if (out->id == NULL || c->type != ARROW_TYPE_INT) return ST_OK;
    const flat f = {(const uint8_t *)out->id, c->width};
    int64_t number = flat_read(&f, 0, c->width);
    if (!c->is_signed && c->width < 8) number &= ((int64_t)1 << 8 * c->width) - 1;
    out->id_bytes = snprintf(s->number, sizeof(s->number),
                             c->is_signed || c->width < 8 ? "%lld" : "%llu", (long long)number);
    out->id = s->number;
    return ST_OK;
}

static status next(corpus_rows *r, corpus_row *out)
{
    arrow_state *s = r->state;
    TRY(find_batch(r));
    if (s->at_end) return ST_OK;
    TRY(value(r, 0, &out->text, &out->text_bytes));
    TRY(set_id(r, out));
    out->kind = ROW_DOCUMENT;
    if (out->text == NULL) {
        *out = rows_bad(r, "%s: row %lld has no text", r->path, (long long)s->all_rows);
    }
    s->row++;
    s->all_rows++;
    return ST_OK;
}

static void end(corpus_rows *r)
{
    arrow_state *s = r->state;
    if (s == NULL) return;
    for (int i = 0; i < 2; i++) {
        arrow_values_deinit(&s->values[i]);
        arrow_dictionary_deinit(&s->dictionaries[i]);
    }
    data_bytes_deinit(&s->message);
    free(s);
}

const corpus_row_format corpus_row_format_arrow = {.name = "arrow",
                                                   .choice = CORPUS_FORMAT_ARROW,
                                                   .is_binary = true,
                                                   .begin = begin,
                                                   .next = next,
                                                   .end = end};
