// Opens an input file in its format, and reads it through a window of bytes.
#include "data/corpus/rows.h"
#include "base/fault.h"
#include "data/reader/content.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { WINDOW_BYTES = 1 << 18 };

static const corpus_row_format *const formats[] = {
    &corpus_row_format_text,  &corpus_row_format_jsonl, &corpus_row_format_csv,
    &corpus_row_format_tsv,   &corpus_row_format_warc,  &corpus_row_format_parquet,
    &corpus_row_format_arrow,
};

status rows_more(corpus_rows *r)
{
    if (r->begin > 0) {
        memmove(r->window, r->window + r->begin, (size_t)(r->end - r->begin));
        r->end -= r->begin;
        r->begin = 0;
    }
    if (r->end == r->capacity) {
        char *moved = realloc(r->window, (size_t)(2 * r->capacity));
        if (moved == NULL) {
            return fail(ST_NO_MEMORY, "%s: no memory for a piece of %lld bytes", r->path,
                        (long long)(2 * r->capacity));
        }
        r->window = moved;
        r->capacity *= 2;
    }
    int64_t got = 0;
    TRY(data_reader_read(r->reader, r->window + r->end, r->capacity - r->end, &got));
    r->end += got;
    r->at_end = got == 0;
    return ST_OK;
}

status rows_hold(corpus_rows *r, int64_t bytes, bool *whole)
{
    while (r->end - r->begin < bytes && !r->at_end) TRY(rows_more(r));
    *whole = r->end - r->begin >= bytes;
    return ST_OK;
}

status rows_skip(corpus_rows *r, int64_t bytes, bool *whole)
{
    for (;;) {
        const int64_t n = min_i64(bytes, r->end - r->begin);
        r->begin += n;
        bytes -= n;
        *whole = bytes == 0;
        if (*whole || r->at_end) return ST_OK;
        TRY(rows_more(r));
    }
}

// Drops the rest of a line that is too long.
static status skip_line(corpus_rows *r)
{
    for (;;) {
        const char *from = r->window + r->begin;
        const char *newline =
            r->end > r->begin ? memchr(from, '\n', (size_t)(r->end - r->begin)) : NULL;
        r->begin = newline != NULL ? newline + 1 - r->window : r->end;
        if (newline != NULL || r->at_end) return ST_OK;
        TRY(rows_more(r));
    }
}

status rows_line(corpus_rows *r, int64_t limit, const char **line, int64_t *count, bool *is_large)
{
    int64_t searched = r->begin;
    *is_large = false;
    for (;;) {
        const char *newline = r->end > searched
                                  ? memchr(r->window + searched, '\n', (size_t)(r->end - searched))
                                  : NULL;
        if (newline != NULL || (r->at_end && r->end > r->begin)) {
            *line = r->window + r->begin;
            *count = newline != NULL ? newline - *line : r->end - r->begin;
            r->begin += *count + (newline != NULL ? 1 : 0);
            r->line++;
            *is_large = *count > limit;
            return ST_OK;
        }
        *line = NULL;
        if (r->at_end) return ST_OK;
        const int64_t held = r->end - r->begin;
        if (held > limit) {
            TRY(skip_line(r));
            r->line++;
            *line = "";
            *count = 0;
            *is_large = true;
            return ST_OK;
        }
        TRY(rows_more(r));
        searched = r->begin + held;
    }
}

corpus_row rows_bad(corpus_rows *r, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(r->why, sizeof(r->why), format, args);
    va_end(args);
    return (corpus_row){.kind = ROW_BAD, .why = r->why};
}

// ---- formats ------------------------------------------------------------------------------------

// True if the name, without a codec's ending, ends so.
static bool is_named(const char *path, const char *ending)
{
    static const char *const packed[] = {"", ".gz", ".gzip", ".zst", ".zstd", ".bz2", ".xz"};
    const size_t n = strlen(path), m = strlen(ending);
    for (int64_t i = 0; i < COUNT_OF(packed); i++) {
        const size_t c = strlen(packed[i]);
        if (n > m + c && strcasecmp(path + n - c, packed[i]) == 0 &&
            strncasecmp(path + n - c - m, ending, m) == 0) {
            return true;
        }
    }
    return false;
}

static int32_t found_format(const corpus_rows *r)
{
    const char *body = r->window + r->begin;
    const int64_t held = r->end - r->begin;
    if (held >= 4 && memcmp(r->window + r->begin, "PAR1", 4) == 0) return CORPUS_FORMAT_PARQUET;
    if (held >= 5 && memcmp(body, "WARC/", 5) == 0) return CORPUS_FORMAT_WARC;
    if (held >= 8 && memcmp(body, "ARROW1\0\0", 8) == 0) return CORPUS_FORMAT_ARROW;
    if (held >= 8 && memcmp(body, "\xff\xff\xff\xff", 4) == 0) return CORPUS_FORMAT_ARROW;
    if (is_named(r->path, ".csv")) return CORPUS_FORMAT_CSV;
    if (is_named(r->path, ".tsv")) return CORPUS_FORMAT_TSV;
    const bool is_lines = content_is_lines_name(r->path) || is_named(r->path, ".jsonl") ||
                          is_named(r->path, ".ndjson") || content_is_lines(body, held, r->at_end);
    return is_lines ? CORPUS_FORMAT_JSONL : CORPUS_FORMAT_TEXT;
}

// Reads the first line, or as much as decides, and takes the format that was asked for.
static status choose_format(corpus_rows *r)
{
    while (!r->at_end && r->end < WINDOW_BYTES) TRY(rows_more(r));
    int32_t choice = r->o.format;
    if (choice == CORPUS_FORMAT_AUTO) choice = found_format(r);
    for (int64_t i = 0; i < COUNT_OF(formats); i++) {
        if (formats[i]->choice == choice) r->format = formats[i];
    }
    ASSERT(r->format != NULL);
    if (r->format->is_binary) return r->format->begin(r);
    TRY(content_check_text(r->path, (const uint8_t *)r->window + r->begin,
                           min_i64(r->end - r->begin, CONTENT_HEAD_BYTES)));
    return r->format->begin(r);
}

status corpus_rows_open(const host *h, const char *path, const corpus_rows_options *o,
                        corpus_rows **out)
{
    TRY(fault_point("corpus.rows.open"));
    status st = ST_OK;
    corpus_rows *r = calloc(1, sizeof(*r));
    if (r == NULL) return fail(ST_NO_MEMORY, "%s: no memory to read it", path);
    r->h = h;
    r->o = *o;
    r->path = strdup(path);
    r->window = malloc(WINDOW_BYTES);
    r->capacity = WINDOW_BYTES;
    if (r->path == NULL || r->window == NULL) {
        st = fail(ST_NO_MEMORY, "%s: no memory to read it", path);
        goto close_rows;
    }
    TRY_TO(close_rows,
           data_reader_open_as(h, path, DATA_READER_ANY | DATA_READER_HASH, &r->reader));
    TRY_TO(close_rows, choose_format(r));
    *out = r;
    return ST_OK;
close_rows:
    corpus_rows_close(r);
    return st;
}

status corpus_rows_next(corpus_rows *r, corpus_row *out)
{
    TRY(fault_point("corpus.rows.next"));
    do {
        *out = (corpus_row){.kind = ROW_END};
        TRY(r->format->next(r, out));
    } while (out->kind == ROW_NONE);
    if (out->kind == ROW_DOCUMENT && out->text_bytes > r->o.document_bytes) out->kind = ROW_LARGE;
    return ST_OK;
}

const char *corpus_rows_format(const corpus_rows *r)
{
    return r->format->name;
}

int64_t corpus_rows_position(const corpus_rows *r)
{
    return r->position > 0 ? r->position : data_reader_position(r->reader);
}

status corpus_rows_hash(corpus_rows *r, hash128 *out)
{
    return data_reader_hash(r->reader, out);
}

void corpus_rows_close(corpus_rows *r)
{
    if (r == NULL) return;
    if (r->format != NULL) r->format->end(r);
    data_reader_close(r->reader);
    free(r->window);
    free(r->path);
    free(r);
}
