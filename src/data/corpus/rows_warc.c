// WARC and WET files (ISO 28500): records of a header, a length and a block of bytes.
//
//   WARC/1.0 CRLF  name: value CRLF ...  CRLF  block  CRLF CRLF
//
// Documents are the blocks of `conversion` records, which WET files hold, and the bodies of
// `response` and `resource` records whose type is plain text or HTML, of which the visible text is
// taken (html.h). Records of other types are skipped. The document's name is the record's
// WARC-Target-URI.
#include "data/corpus/html.h"
#include "data/corpus/rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { HEADER_LINE_MAX = 65536, HEADER_LINES_MAX = 1024, URI_MAX = 8192, TYPE_MAX = 128 };

typedef struct warc_header {
    int64_t bytes; // of the block; -1: not given
    char type[TYPE_MAX], content[TYPE_MAX];
    char uri[URI_MAX];
} warc_header;

typedef struct warc_state {
    warc_header h;
    int64_t record;  // records so far
    data_bytes text; // of a page
} warc_state;

static status begin(corpus_rows *r)
{
    r->state = calloc(1, sizeof(warc_state));
    return r->state != NULL ? ST_OK : fail(ST_NO_MEMORY, "%s: no memory to read it", r->path);
}

static status damaged(const corpus_rows *r, const char *why)
{
    const warc_state *s = r->state;
    return fail(ST_DAMAGED, "%s: record %lld of the WARC file is damaged: %s", r->path,
                (long long)s->record, why);
}

// Copies the value of a header line if it has this name.
static bool take(const char *line, int64_t count, const char *name, char *out, size_t out_bytes)
{
    const int64_t n = (int64_t)strlen(name);
    if (count <= n || line[n] != ':' || strncasecmp(line, name, (size_t)n) != 0) return false;
    int64_t at = n + 1;
    while (at < count && (line[at] == ' ' || line[at] == '\t')) at++;
    while (count > at && (line[count - 1] == ' ' || line[count - 1] == '\t')) count--;
    (void)snprintf(out, out_bytes, "%.*s", (int)min_i64(count - at, (int64_t)out_bytes), line + at);
    return true;
}

static status header_line(corpus_rows *r, const char **line, int64_t *count)
{
    bool is_large = false;
    TRY(rows_line(r, HEADER_LINE_MAX, line, count, &is_large));
    if (is_large) return damaged(r, "a header line of more than 65536 bytes");
    if (*line != NULL && *count > 0 && (*line)[*count - 1] == '\r') --*count;
    return ST_OK;
}

static status read_length(corpus_rows *r, const char *digits, int64_t *out)
{
    int64_t value = 0;
    if (*digits == 0) return damaged(r, "an empty Content-Length");
    for (; *digits != 0; digits++) {
        if (*digits < '0' || *digits > '9' || value > (INT64_C(1) << 50)) {
            return damaged(r, "a Content-Length that is no number");
        }
        value = 10 * value + (*digits - '0');
    }
    *out = value;
    return ST_OK;
}

// Reads the header of the next record; *found false: the end of the file.
static status read_header(corpus_rows *r, warc_header *h, bool *found)
{
    warc_state *s = r->state;
    const char *line = NULL;
    char digits[32] = "";
    int64_t count = 0;
    *h = (warc_header){.bytes = -1};
    *found = false;
    do {
        TRY(header_line(r, &line, &count));
    } while (line != NULL && count == 0);
    if (line == NULL) return ST_OK;
    s->record++;
    if (count < 5 || memcmp(line, "WARC/", 5) != 0)
        return damaged(r, "it does not begin with WARC/");
    for (int64_t i = 0;; i++) {
        TRY(header_line(r, &line, &count));
        if (line == NULL) return damaged(r, "the file ends in its header");
        if (count == 0) break;
        if (i == HEADER_LINES_MAX) return damaged(r, "more than 1024 header lines");
        if (take(line, count, "Content-Length", digits, sizeof(digits))) {
            TRY(read_length(r, digits, &h->bytes));
        }
        (void)take(line, count, "WARC-Type", h->type, sizeof(h->type));
        (void)take(line, count, "Content-Type", h->content, sizeof(h->content));
        (void)take(line, count, "WARC-Target-URI", h->uri, sizeof(h->uri));
    }
    if (h->bytes < 0) return damaged(r, "it has no Content-Length");
    *found = true;
    return ST_OK;
}

static status skip(corpus_rows *r, int64_t bytes)
{
    bool whole = false;
    TRY(rows_skip(r, bytes, &whole));
    return whole ? ST_OK : damaged(r, "the file ends in its block");
}

// Holds the whole block in the window.
static status hold(corpus_rows *r, int64_t bytes)
{
    bool whole = false;
    TRY(rows_hold(r, bytes, &whole));
    return whole ? ST_OK : damaged(r, "the file ends in its block");
}

// The body of an HTTP response, and its content type.
static bool http_body(const char **block, int64_t *bytes, char *content, size_t content_bytes)
{
    const char *at = *block, *end = at + *bytes;
    bool is_first = true;
    content[0] = 0;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        if (newline == NULL) return false;
        int64_t count = newline - at;
        if (count > 0 && at[count - 1] == '\r') count--;
        if (is_first && (count < 5 || memcmp(at, "HTTP/", 5) != 0)) return false;
        is_first = false;
        (void)take(at, count, "Content-Type", content, content_bytes);
        at = newline + 1;
        if (count > 0) continue;
        *block = at;
        *bytes = end - at;
        return true;
    }
    return false;
}

static bool is_type(const char *content, const char *type)
{
    return strncasecmp(content, type, strlen(type)) == 0;
}

static status take_block(corpus_rows *r, const warc_header *h, corpus_row *out)
{
    warc_state *s = r->state;
    const bool is_response = strcmp(h->type, "response") == 0;
    TRY(hold(r, h->bytes));
    const char *body = r->window + r->begin;
    int64_t bytes = h->bytes;
    char content[TYPE_MAX];
    (void)snprintf(content, sizeof(content), "%s", h->content);
    r->begin += h->bytes;
    *out = (corpus_row){.kind = ROW_NONE};
    if (is_response && !http_body(&body, &bytes, content, sizeof(content))) return ST_OK;
    if (is_response || strcmp(h->type, "resource") == 0) {
        if (is_type(content, "text/html") || is_type(content, "application/xhtml")) {
            s->text.count = 0;
            TRY(html_text(body, bytes, html_is_latin(content, body, bytes), &s->text));
            body = s->text.count > 0 ? s->text.items : "";
            bytes = s->text.count;
        } else if (!is_type(content, "text/plain")) {
            return ST_OK;
        }
    }
    *out = (corpus_row){.kind = ROW_DOCUMENT,
                        .text = body,
                        .text_bytes = bytes,
                        .id = h->uri[0] != 0 ? h->uri : NULL,
                        .id_bytes = (int64_t)strlen(h->uri)};
    return ST_OK;
}

static status next(corpus_rows *r, corpus_row *out)
{
    warc_state *s = r->state;
    warc_header *h = &s->h;
    bool found = false;
    TRY(read_header(r, h, &found));
    if (!found) return ST_OK;
    const bool is_wanted = strcmp(h->type, "conversion") == 0 || strcmp(h->type, "response") == 0 ||
                           strcmp(h->type, "resource") == 0;
    if (!is_wanted) {
        out->kind = ROW_NONE;
        return skip(r, h->bytes);
    }
    if (h->bytes > r->o.document_bytes + HEADER_LINE_MAX) {
        const char *id = h->uri[0] != 0 ? h->uri : NULL;
        *out = (corpus_row){.kind = ROW_LARGE, .id = id, .id_bytes = (int64_t)strlen(h->uri)};
        return skip(r, h->bytes);
    }
    return take_block(r, h, out);
}

static void end(corpus_rows *r)
{
    warc_state *s = r->state;
    if (s == NULL) return;
    data_bytes_deinit(&s->text);
    free(s);
}

const corpus_row_format corpus_row_format_warc = {.name = "warc",
                                                  .choice = CORPUS_FORMAT_WARC,
                                                  .is_binary = true,
                                                  .begin = begin,
                                                  .next = next,
                                                  .end = end};
