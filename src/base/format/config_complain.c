// Complaints about a configuration: collected, in one format, and reported together.
//
//   run.yaml:14:3  error[C012] unknown key "optimizer.learnig_rate"; did you mean "optimizer.lr"?
//      14 |   learnig_rate: 3e-4
//         |   ^^^^^^^^^^^^
//   2 errors, nothing was started
//
// They share the error record's text, so the last ones of very many are only counted.
#include "base/format/config_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    MESSAGE_BYTES = 768,
    LINE_CHARS_MAX = 90,                    // a longer source line is not shown
    BODY_BYTES_MAX = ERROR_TEXT_BYTES - 96, // the rest is kept for the count at the end
};

void config_complaints_init(config_complaints *l, arena *a, const config_source *source)
{
    *l = (config_complaints){.a = a, .body = {.a = a}, .source = *source};
}

bool config_complaints_has_space(const config_complaints *l)
{
    return l->shown == l->count;
}

status config_mark_text(arena *a, const config_source *source, config_mark mark, char **out)
{
    if (mark.line == 0) return arena_strdup(a, "command line", out);
    return arena_format(a, out, "%s:%lld:%lld", source->name, (long long)mark.line,
                        (long long)mark.column);
}

// Finds line `line` of the source, without its line end; false if there is no such line.
static bool find_line(const config_source *s, int64_t line, const char **begin, int64_t *bytes)
{
    const char *at = s->bytes, *end = s->bytes + s->count;
    for (int64_t i = 1; i < line; i++) {
        at = at == end ? NULL : memchr(at, '\n', (size_t)(end - at));
        if (at == NULL) return false;
        at++;
    }
    if (at == NULL || at == end) return false;
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    *begin = at;
    *bytes = (stop == NULL ? end : stop) - at;
    if (*bytes > 0 && at[*bytes - 1] == '\r') --*bytes;
    return true;
}

static bool continues_character(char byte)
{
    return ((unsigned char)byte & 0xC0) == 0x80;
}

// Adds the source line with a mark below it, unless the line is too long or empty.
static status add_source_line(const config_source *s, config_mark mark, text *out)
{
    const char *line;
    int64_t bytes, chars = 0;
    if (mark.line == 0 || !find_line(s, mark.line, &line, &bytes)) return ST_OK;
    if (!text_is_utf8(line, bytes)) return ST_OK;
    for (int64_t i = 0; i < bytes; i++) chars += !continues_character(line[i]);
    if (chars > LINE_CHARS_MAX || mark.column > chars + 1) return ST_OK;
    TRY(text_add(out, "\n%5lld | ", (long long)mark.line));
    for (int64_t i = 0; i < bytes; i++) {
        const unsigned char byte = (unsigned char)line[i];
        const bool is_control = byte < 0x20 || byte == 0x7F;
        TRY(text_add_bytes(out, is_control ? " " : line + i, 1));
    }
    TRY(text_add(out, "\n      | %*s", (int)mark.column - 1, ""));
    const int64_t space = max_i64(chars - mark.column + 1, 1);
    const int64_t width = min_i64(max_i64(mark.width, 1), space);
    for (int64_t i = 0; i < width; i++) TRY(text_add(out, "^"));
    return ST_OK;
}

static status word_complaint(config_complaints *l, const char *place, config_mark mark, status code,
                             const char *message)
{
    text one = {.a = l->a};
    TRY(text_add(&one, "%s%s  error[%s] %s", l->count == 0 ? "" : "\n", place, status_code(code),
                 message));
    TRY(add_source_line(&l->source, mark, &one));
    if (l->body.length + one.length > BODY_BYTES_MAX) return ST_OK;
    l->shown++;
    return text_add_bytes(&l->body, one.bytes, one.length);
}

// Keeps one complaint. config_complaints_end() reports errors that happen here.
static void keep(config_complaints *l, const char *place, config_mark mark, status code,
                 const char *message)
{
    // After the first omitted complaint all later ones are omitted too: a list with gaps would
    // mislead.
    if (config_complaints_has_space(l)) {
        const status st = word_complaint(l, place, mark, code, message);
        if (l->broken == ST_OK) l->broken = st;
    }
    if (l->count == 0) l->first = code;
    l->count++;
}

void config_complain_at(config_complaints *l, config_mark mark, status code, const char *format,
                        ...)
{
    char message[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(message, sizeof(message), format, args); // truncation is fine
    va_end(args);
    char *place = NULL;
    const status st = config_mark_text(l->a, &l->source, mark, &place);
    if (l->broken == ST_OK) l->broken = st;
    keep(l, place == NULL ? "" : place, mark, code, message);
}

void config_complain(config_complaints *l, const char *key, status code, const char *format, ...)
{
    char message[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(message, sizeof(message), format, args); // truncation is fine
    va_end(args);
    const config_mark *mark = config_mark_of(l->c, key);
    keep(l, config_place(l->c, key), mark == NULL ? (config_mark){0} : *mark, code, message);
}

status config_complaints_end(config_complaints *l)
{
    if (l->broken != ST_OK) return l->broken;
    if (l->count == 0) return ST_OK;
    const char *body = l->body.bytes == NULL ? "" : l->body.bytes;
    if (l->count == 1) return fail(l->first, "%s", body);
    const int64_t more = l->count - l->shown;
    if (more > 0) {
        return fail(l->first, "%s\n... and %lld more\n%lld errors, nothing was started", body,
                    (long long)more, (long long)l->count);
    }
    return fail(l->first, "%s\n%lld errors, nothing was started", body, (long long)l->count);
}
