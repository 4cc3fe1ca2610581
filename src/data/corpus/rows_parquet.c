// Parquet: the rows of a table, of which one column is the text and one may name the document.
#include "data/corpus/parquet/parquet.h"
#include "data/corpus/rows.h"

#include <stdlib.h>

typedef struct parquet_state {
    parquet_file *p;
    parquet_values texts, ids;
    int64_t row;
} parquet_state;

static status begin(corpus_rows *r)
{
    parquet_state *s = calloc(1, sizeof(*s));
    if (s == NULL) return fail(ST_NO_MEMORY, "%s: no memory to read it", r->path);
    r->state = s;
    TRY(parquet_open(r->h, r->path, r->o.text, r->o.id, &s->p));
    parquet_values_begin(s->p, 0, &s->texts);
    parquet_values_begin(s->p, 1, &s->ids);
    return ST_OK;
}

static status next(corpus_rows *r, corpus_row *out)
{
    parquet_state *s = r->state;
    bool more = false, more_ids = false;
    TRY(parquet_values_next(&s->texts, &out->text, &out->text_bytes, &more));
    if (!more) {
        if (s->row == s->p->rows) return ST_OK;
        return fail(ST_DAMAGED, "%s: %lld texts, but the table has %lld rows", r->path,
                    (long long)s->row, (long long)s->p->rows);
    }
    s->row++;
    if (s->p->columns[1].index >= 0) {
        TRY(parquet_values_next(&s->ids, &out->id, &out->id_bytes, &more_ids));
    }
    out->kind = ROW_DOCUMENT;
    r->position = s->texts.at;
    if (out->text == NULL)
        *out = rows_bad(r, "%s: row %lld has no text", r->path, (long long)s->row - 1);
    return ST_OK;
}

static void end(corpus_rows *r)
{
    parquet_state *s = r->state;
    if (s == NULL) return;
    parquet_values_deinit(&s->texts);
    parquet_values_deinit(&s->ids);
    parquet_close(s->p);
    free(s);
}

const corpus_row_format corpus_row_format_parquet = {.name = "parquet",
                                                     .choice = CORPUS_FORMAT_PARQUET,
                                                     .is_binary = true,
                                                     .begin = begin,
                                                     .next = next,
                                                     .end = end};
