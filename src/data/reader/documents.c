// Documents from bytes. A plain text is one document, returned in pieces; each line of a JSON-lines
// file is one document.
//
// Where the tokenizer allows it, a long text is cut before white space that follows another
// character. No word of a byte-level tokenizer spans that place or looks past it, so the pieces'
// tokens equal those of the whole. A text without such a place (letters only, for megabytes) is
// held whole, up to a limit.
#include "base/fault.h"
#include "base/format/json.h"
#include "base/text.h"
#include "data/reader/content.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct data_documents {
    data_reader *reader;
    char *path;
    int flags; // DATA_CUT_*, DATA_SKIP_BAD_LINES
    bool is_lines, is_named_lines, at_end;
    int64_t line; // number of the last line returned
    // window[begin..end) holds bytes that were read and not returned yet. Those before `searched`
    // hold no newline.
    char *window;
    int64_t begin, end, capacity, searched;
    json *parsed;     // the text of the last line
    const char *rest; // the part of it that was not returned yet
    int64_t rest_count;
    int64_t skipped;         // bad lines
    char first_skipped[300]; // the error of the first one
    bool has_begun;          // a text's document has begun, so its end must be reported
};

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

// JSON lines by name, or by the first line.
static status find_form(data_documents *d)
{
    d->is_named_lines = content_is_lines_name(d->path);
    d->is_lines = d->is_named_lines;
    while (!d->is_lines && !d->at_end && d->end < DATA_PIECE_BYTES &&
           memchr(d->window, '\n', (size_t)d->end) == NULL) {
        TRY(read_more(d));
    }
    if (!d->is_lines) d->is_lines = content_is_lines(d->window, d->end, d->at_end);
    return ST_OK;
}

status data_documents_open(const host *h, const char *path, int flags, data_documents **out)
{
    data_documents *d = calloc(1, sizeof(*d));
    if (d == NULL) return fail(ST_NO_MEMORY, "%s: no memory to read it", path);
    status st = ST_OK;
    d->flags = flags;
    d->path = strdup(path);
    d->window = malloc(DATA_PIECE_BYTES);
    d->capacity = DATA_PIECE_BYTES;
    if (d->path == NULL || d->window == NULL) {
        st = fail(ST_NO_MEMORY, "%s: no memory to read it", path);
        goto close_documents;
    }
    TRY_TO(close_documents, data_reader_open(h, path, &d->reader));
    TRY_TO(close_documents, find_form(d));
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

// True if the character that ends before `at` is certainly not white space. Beyond ASCII, all white
// space ends in 85, a0, 80..8a, a8, a9, af or 9f (U+0085, U+00A0, U+1680, U+2000..200A, U+2028 ...
// U+3000).
static bool is_word_end(const char *bytes, int64_t at)
{
    const uint8_t c = (uint8_t)bytes[at - 1];
    if (c < 0x80) return !text_is_blank((char)c);
    if (!(c <= 0x8a || c == 0x9f || c == 0xa0 || c == 0xa8 || c == 0xa9 || c == 0xaf)) return true;
    if (at < 3) return false;
    const uint8_t a = (uint8_t)bytes[at - 3], b = (uint8_t)bytes[at - 2];
    if (b == 0xc2) return false;                     // U+0085, U+00A0
    if (a == 0xe1) return !(b == 0x9a && c == 0x80); // U+1680
    if (a == 0xe2) return b != 0x80 && b != 0x81;    // U+2000 to U+205F
    return !(a == 0xe3 && b == 0x80 && c == 0x80);   // U+3000
}

// The last place for a cut; 0 if there is none.
static int64_t find_cut(const data_documents *d, const char *bytes, int64_t count)
{
    if ((d->flags & DATA_CUT_ANYWHERE) != 0) return count;
    if ((d->flags & (DATA_CUT_BLANKS | DATA_CUT_SPACES | DATA_CUT_WORDS)) == 0) return 0;
    const bool takes_lines = (d->flags & DATA_CUT_BLANKS) != 0;
    const bool takes_words = (d->flags & (DATA_CUT_BLANKS | DATA_CUT_SPACES)) == 0;
    for (int64_t at = count - 1; at > 0; at--) {
        if (takes_words) {
            if (bytes[at] == ' ' && bytes[at - 1] > ' ' && bytes[at - 1] < 0x7f) return at;
            continue;
        }
        const bool is_place =
            takes_lines ? text_is_blank(bytes[at]) : bytes[at] == ' ' || bytes[at] == '\t';
        if (is_place && is_word_end(bytes, at)) return at;
    }
    return 0;
}

static status next_text_piece(data_documents *d, data_piece *out)
{
    for (;;) {
        const char *bytes = d->window + d->begin;
        const int64_t held = d->end - d->begin;
        if (d->at_end) {
            const bool owed = held > 0 || d->has_begun;
            *out = (data_piece){owed ? bytes : NULL, held, owed, d->has_begun};
            d->begin = d->end;
            d->has_begun = false;
            return ST_OK;
        }
        if ((d->flags & ~DATA_SKIP_BAD_LINES) != 0 && d->end == d->capacity) {
            const int64_t cut = find_cut(d, bytes, held);
            if (cut > 0) {
                *out = (data_piece){bytes, cut, false, d->has_begun};
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
            return fail(ST_DATA, "%s:%lld: a line of more than %d bytes; split the document",
                        d->path, (long long)d->line + 1, DATA_LINE_BYTES_MAX);
        }
        TRY(read_more(d));
        d->searched = d->begin + held;
    }
}

// The text of a line, in d->parsed.
static status parse_line(data_documents *d, const char *line, int64_t count)
{
    static const char *const keys[] = {"text"};
    json_free(d->parsed);
    d->parsed = NULL;
    if (d->line == 1 && count == 1 && (*line == '{' || *line == '[')) {
        return fail(
            ST_DATA,
            "%s:1: JSON over several lines; JSON lines hold an object on each line, as jq -c "
            "writes them: jq -c %s",
            d->path, *line == '{' ? "." : ".[]");
    }
    TRY(json_parse_members(line, count, d->path, d->line, keys, 1, &d->parsed));
    if (json_kind_of(d->parsed) == JSON_TEXT) return ST_OK;
    while (count > 1 && text_is_blank(*line)) {
        line++;
        count--;
    }
    return fail(ST_DATA, "%s:%lld: %s; a JSON object with the key \"text\" on each line expected%s",
                d->path, (long long)d->line,
                *line != '{'        ? "no object"
                : d->parsed == NULL ? "no key \"text\""
                                    : "\"text\" is not a string",
                d->is_named_lines ? "" : ", as the first line is a JSON object");
}

// Keeps the error of the first bad line and counts the others.
static void skip_line(data_documents *d)
{
    if (d->skipped++ == 0) {
        (void)snprintf(d->first_skipped, sizeof(d->first_skipped), "%.299s", error_last()->text);
    }
    error_clear();
}

static status next_text(data_documents *d, bool *found)
{
    const char *line = NULL;
    int64_t count = 0;
    for (*found = false; !*found;) {
        TRY(next_line(d, &line, &count));
        if (line == NULL) return ST_OK;
        while (count > 0 && text_is_blank(line[count - 1])) count--;
        if (count == 0) continue;
        const status st = parse_line(d, line, count);
        *found = st == ST_OK;
        if (*found) continue;
        if ((d->flags & DATA_SKIP_BAD_LINES) == 0) return st;
        skip_line(d);
    }
    return ST_OK;
}

// A long text comes in pieces too, so its tokens need little memory.
static status next_line_piece(data_documents *d, data_piece *out)
{
    bool found = d->rest != NULL;
    const bool continues = found;
    *out = (data_piece){0};
    if (!found) {
        TRY(next_text(d, &found));
        if (!found) return ST_OK;
        d->rest = json_text(d->parsed, "");
        d->rest_count = json_text_bytes(d->parsed);
    }
    const int64_t most = min_i64(d->rest_count, DATA_PIECE_BYTES);
    const int64_t cut = most < d->rest_count ? find_cut(d, d->rest, most) : 0;
    *out = (data_piece){d->rest, cut > 0 ? cut : d->rest_count, cut == 0, continues};
    d->rest = cut > 0 ? d->rest + cut : NULL;
    d->rest_count -= cut;
    return ST_OK;
}

int data_piece_flags(const data_piece *piece)
{
    return (piece->continues ? DATA_ENCODE_CONTINUES : 0) |
           (piece->ends_document ? 0 : DATA_ENCODE_GOES_ON);
}

status data_documents_line(data_documents *d, data_line *out)
{
    do {
        *out = (data_line){.bytes = NULL};
        TRY(next_line(d, &out->bytes, &out->count));
        out->number = d->line;
        while (out->count > 0 && text_is_blank(out->bytes[out->count - 1])) out->count--;
    } while (out->bytes != NULL && out->count == 0);
    return ST_OK;
}

bool data_documents_are_lines(const data_documents *d)
{
    return d->is_lines;
}

int64_t data_documents_skipped(const data_documents *d, const char **first)
{
    *first = d->first_skipped;
    return d->skipped;
}

status data_documents_next(data_documents *d, data_piece *out)
{
    TRY(fault_point("data.documents.next"));
    return d->is_lines ? next_line_piece(d, out) : next_text_piece(d, out);
}
