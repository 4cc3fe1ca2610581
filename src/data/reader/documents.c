// Documents from bytes. A plain text is one document, returned in pieces; each line of a JSON-lines
// file is one document.
//
// A text may be cut before white space that follows another character. No word of a byte-level
// tokenizer spans that place or looks past it, so the pieces' tokens equal those of the whole. A
// text without such a place (letters only, for megabytes) is held whole, up to a limit.
#include "base/fault.h"
#include "base/format/json.h"
#include "data/reader.h"

#include <stdlib.h>
#include <string.h>

struct data_documents {
    data_reader *reader;
    char *path;
    bool is_lines, can_cut, at_end;
    int64_t line; // number of the last line returned
    // window[begin..end) holds bytes that were read and not returned yet. Those before `searched`
    // hold no newline.
    char *window;
    int64_t begin, end, capacity, searched;
    json *parsed;   // the line of the last piece
    bool has_begun; // a text's document has begun, so its end must be reported
};

static bool is_lines_name(const char *path)
{
    static const char *const forms[] = {".jsonl", ".ndjson", ".json"};
    static const char *const codecs[] = {"", ".gz", ".zst"};
    const size_t n = strlen(path);
    for (int64_t i = 0; i < COUNT_OF(forms); i++) {
        for (int64_t k = 0; k < COUNT_OF(codecs); k++) {
            const size_t m = strlen(forms[i]), c = strlen(codecs[k]);
            if (n > m + c && strcmp(path + n - c, codecs[k]) == 0 &&
                memcmp(path + n - c - m, forms[i], m) == 0) {
                return true;
            }
        }
    }
    return false;
}

status data_documents_open(const host *h, const char *path, bool can_cut, data_documents **out)
{
    data_documents *d = calloc(1, sizeof(*d));
    if (d == NULL) return fail(ST_NO_MEMORY, "%s: no memory to read it", path);
    status st = ST_OK;
    d->can_cut = can_cut;
    d->is_lines = is_lines_name(path);
    d->path = strdup(path);
    d->window = malloc(DATA_PIECE_BYTES);
    d->capacity = DATA_PIECE_BYTES;
    if (d->path == NULL || d->window == NULL) {
        st = fail(ST_NO_MEMORY, "%s: no memory to read it", path);
        goto close_documents;
    }
    TRY_TO(close_documents, data_reader_open(h, path, &d->reader));
    *out = d;
    return ST_OK;
close_documents:
    data_documents_close(d);
    return st;
}

void data_documents_close(data_documents *d)
{
    if (d == NULL) return;
    json_free(d->parsed);
    data_reader_close(d->reader);
    free(d->window);
    free(d->path);
    free(d);
}

const data_reader *data_documents_reader(const data_documents *d)
{
    return d->reader;
}

// Drops the returned bytes from the window and reads more into it.
static status read_more(data_documents *d)
{
    if (d->begin > 0) {
        memmove(d->window, d->window + d->begin, (size_t)(d->end - d->begin));
        d->end -= d->begin;
        d->begin = 0;
    }
    if (d->end == d->capacity) {
        const int64_t grown = 2 * d->capacity;
        if (grown > DATA_WHOLE_BYTES_MAX) {
            return fail(ST_DATA,
                        "%s: %lld bytes before byte %lld (of the file as it is stored) without a "
                        "white space to cut at; at most %d can be held at once. Put line breaks "
                        "in, or one document a line (.jsonl)",
                        d->path, (long long)d->capacity, (long long)data_reader_position(d->reader),
                        DATA_WHOLE_BYTES_MAX);
        }
        char *moved = realloc(d->window, (size_t)grown);
        if (moved == NULL) {
            return fail(ST_NO_MEMORY, "%s: no memory for a piece of %lld bytes", d->path,
                        (long long)grown);
        }
        d->window = moved;
        d->capacity = grown;
    }
    int64_t got = 0;
    TRY(data_reader_read(d->reader, d->window + d->end, d->capacity - d->end, &got));
    d->end += got;
    d->at_end = got == 0;
    return ST_OK;
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

// True if the character that ends before `at` is certainly not white space. Beyond ASCII, all white
// space ends in 85, a0, 80..8a, a8, a9, af or 9f (U+0085, U+00A0, U+1680, U+2000..200A, U+2028 ...
// U+3000).
static bool is_word_end(const char *text, int64_t at)
{
    const uint8_t c = (uint8_t)text[at - 1];
    if (c < 0x80) return !is_blank((char)c);
    if (!(c <= 0x8a || c == 0x9f || c == 0xa0 || c == 0xa8 || c == 0xa9 || c == 0xaf)) return true;
    if (at < 3) return false;
    const uint8_t a = (uint8_t)text[at - 3], b = (uint8_t)text[at - 2];
    if (b == 0xc2) return false;                     // U+0085, U+00A0
    if (a == 0xe1) return !(b == 0x9a && c == 0x80); // U+1680
    if (a == 0xe2) return b != 0x80 && b != 0x81;    // U+2000 to U+205F
    return !(a == 0xe3 && b == 0x80 && c == 0x80);   // U+3000
}

// The last place in the window for a cut; 0 if there is none.
static int64_t find_cut(const char *text, int64_t count)
{
    for (int64_t at = count - 1; at > 0; at--) {
        if (is_blank(text[at]) && is_word_end(text, at)) return at;
    }
    return 0;
}

static status next_text_piece(data_documents *d, data_piece *out)
{
    for (;;) {
        const char *text = d->window + d->begin;
        const int64_t held = d->end - d->begin;
        if (d->at_end) {
            const bool owed = held > 0 || d->has_begun;
            *out = (data_piece){owed ? text : NULL, held, owed};
            d->begin = d->end;
            d->has_begun = false;
            return ST_OK;
        }
        if (d->can_cut && d->end == d->capacity) {
            const int64_t cut = find_cut(text, held);
            if (cut > 0) {
                *out = (data_piece){text, cut, false};
                d->begin += cut;
                d->has_begun = true;
                return ST_OK;
            }
        }
        TRY(read_more(d));
    }
}

// The next line, without its newline; *line NULL at the end.
static status next_line(data_documents *d, const char **line, int64_t *count)
{
    d->searched = d->begin;
    for (;;) {
        const char *from = d->window + d->searched;
        const char *newline =
            d->end > d->searched ? memchr(from, '\n', (size_t)(d->end - d->searched)) : NULL;
        if (newline != NULL || (d->at_end && d->end > d->begin)) {
            *line = d->window + d->begin;
            *count = newline != NULL ? newline - *line : d->end - d->begin;
            d->begin = newline != NULL ? newline + 1 - d->window : d->end;
            d->line++;
            return ST_OK;
        }
        *line = NULL;
        if (d->at_end) return ST_OK;
        const int64_t held = d->end - d->begin;
        if (held >= DATA_LINE_BYTES_MAX) {
            return fail(ST_DATA, "%s:%lld: a line of more than %d bytes", d->path,
                        (long long)d->line + 1, DATA_LINE_BYTES_MAX);
        }
        TRY(read_more(d));
        d->searched = d->begin + held;
    }
}

static status next_line_piece(data_documents *d, data_piece *out)
{
    const char *line = NULL;
    int64_t count = 0;
    do {
        TRY(next_line(d, &line, &count));
        while (line != NULL && count > 0 && is_blank(line[count - 1])) count--;
    } while (line != NULL && count == 0);
    *out = (data_piece){0};
    if (line == NULL) return ST_OK;

    json_free(d->parsed);
    d->parsed = NULL;
    const status st = json_parse(line, count, d->path, &d->parsed);
    if (st != ST_OK) {
        note("while reading %s:%lld", d->path, (long long)d->line);
        return st;
    }
    const json *found = json_get(d->parsed, "text");
    if (json_kind_of(found) != JSON_TEXT) {
        return fail(ST_DATA,
                    "%s:%lld: %s; a JSON object with the key \"text\" on each line expected",
                    d->path, (long long)d->line,
                    json_kind_of(d->parsed) != JSON_MAP ? "no object"
                    : found == NULL                     ? "no key \"text\""
                                                        : "\"text\" is no text");
    }
    *out = (data_piece){json_text(found, ""), json_text_bytes(found), true};
    return ST_OK;
}

status data_documents_next(data_documents *d, data_piece *out)
{
    TRY(fault_point("data.documents.next"));
    return d->is_lines ? next_line_piece(d, out) : next_text_piece(d, out);
}
