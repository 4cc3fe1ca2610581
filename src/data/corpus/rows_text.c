// Plain text: the file is a document, or each paragraph, or each line.
#include "base/text.h"
#include "data/corpus/rows.h"

#include <stdlib.h>

typedef struct text_state {
    data_bytes paragraph;
    bool was_read; // of unit: file
} text_state;

static status begin(corpus_rows *r)
{
    r->state = calloc(1, sizeof(text_state));
    return r->state != NULL ? ST_OK : fail(ST_NO_MEMORY, "%s: no memory to read it", r->path);
}

static bool is_blank(const char *line, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (!text_is_blank(line[i])) return false;
    }
    return true;
}

static status next_file(corpus_rows *r, text_state *s, corpus_row *out)
{
    if (s->was_read) return ST_OK;
    while (!r->at_end && r->end - r->begin <= r->o.document_bytes) TRY(rows_more(r));
    s->was_read = true;
    *out = (corpus_row){.kind = r->at_end ? ROW_DOCUMENT : ROW_LARGE,
                        .text = r->window + r->begin,
                        .text_bytes = r->end - r->begin};
    r->begin = r->end;
    return ST_OK;
}

static status next_line(corpus_rows *r, corpus_row *out)
{
    const char *line = NULL;
    int64_t count = 0;
    bool is_large = false;
    TRY(rows_line(r, r->o.document_bytes, &line, &count, &is_large));
    if (line == NULL) return ST_OK;
    if (count > 0 && line[count - 1] == '\r') count--;
    *out = (corpus_row){
        .kind = is_large ? ROW_LARGE : ROW_DOCUMENT, .text = line, .text_bytes = count};
    if (!is_large && is_blank(line, count)) out->kind = ROW_NONE;
    return ST_OK;
}

// Collects lines up to an empty one. A paragraph that is too large is read to its end and dropped.
static status next_paragraph(corpus_rows *r, text_state *s, corpus_row *out)
{
    bool too_large = false;
    s->paragraph.count = 0;
    for (;;) {
        const char *line = NULL;
        int64_t count = 0;
        bool is_large = false;
        TRY(rows_line(r, r->o.document_bytes, &line, &count, &is_large));
        const bool ends = line == NULL || (!is_large && is_blank(line, count));
        if (ends && (s->paragraph.count > 0 || too_large)) break;
        if (line == NULL) return ST_OK;
        if (ends) continue;
        too_large = too_large || is_large || s->paragraph.count + count > r->o.document_bytes;
        if (too_large) continue;
        if (s->paragraph.count > 0) TRY(data_bytes_add(&s->paragraph, "\n", 1));
        TRY(data_bytes_add(&s->paragraph, line, count));
    }
    *out = (corpus_row){.kind = too_large ? ROW_LARGE : ROW_DOCUMENT,
                        .text = s->paragraph.items,
                        .text_bytes = s->paragraph.count};
    return ST_OK;
}

static status next(corpus_rows *r, corpus_row *out)
{
    text_state *s = r->state;
    if (r->o.unit == CORPUS_UNIT_LINE) return next_line(r, out);
    return r->o.unit == CORPUS_UNIT_PARAGRAPH ? next_paragraph(r, s, out) : next_file(r, s, out);
}

static void end(corpus_rows *r)
{
    text_state *s = r->state;
    if (s == NULL) return;
    data_bytes_deinit(&s->paragraph);
    free(s);
}

const corpus_row_format corpus_row_format_text = {
    .name = "text", .choice = CORPUS_FORMAT_TEXT, .begin = begin, .next = next, .end = end};
