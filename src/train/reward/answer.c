// HTTP answers, as far as rewards need them: a status line, headers of which two matter, a body.
#include "train/reward/answer.h"

#include "base/format/json.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

typedef struct headers {
    int64_t length; // of the body; -1: not given
    bool in_chunks;
} headers;

// The end of the line that begins at `at`, without the newline; -1: it is not there yet.
static int64_t line_end(const char *s, int64_t count, int64_t at)
{
    const char *end = at < count ? memchr(s + at, '\n', (size_t)(count - at)) : NULL;
    return end == NULL ? -1 : end - s;
}

static status code_read(const char *s, int64_t count, int *code)
{
    const bool is_http =
        count >= 12 && memcmp(s, "HTTP/1.", 7) == 0 && (s[7] == '0' || s[7] == '1') && s[8] == ' ';
    *code = 0;
    for (int64_t i = 9; i < 12 && is_http; i++) {
        if (!isdigit((unsigned char)s[i])) return fail(ST_DATA, "the status line has no code");
        *code = 10 * *code + (s[i] - '0');
    }
    return is_http ? ST_OK : fail(ST_DATA, "the answer is not HTTP/1.0 or 1.1");
}

// Digits of a base up to 16; -1: none, another character, or more than an answer may have.
static int64_t number_read(const char *s, int64_t count, int base)
{
    int64_t value = count > 0 ? 0 : -1;
    for (int64_t i = 0; i < count && value >= 0; i++) {
        const char c = (char)tolower((unsigned char)s[i]);
        const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : 99;
        value = digit < base ? value * base + digit : -1;
        if (value > REWARD_ANSWER_BYTES) value = -1;
    }
    return value;
}

// The value of a header, if the line has that name.
static bool value_of(const char *line, int64_t count, const char *name, const char **value,
                     int64_t *length)
{
    const int64_t n = (int64_t)strlen(name);
    if (count <= n || line[n] != ':' || strncasecmp(line, name, (size_t)n) != 0) return false;
    *value = line + n + 1;
    *length = count - n - 1;
    while (*length > 0 && isspace((unsigned char)**value)) {
        (*value)++;
        (*length)--;
    }
    while (*length > 0 && isspace((unsigned char)(*value)[*length - 1])) (*length)--;
    return true;
}

static status header_read(const char *line, int64_t count, headers *h)
{
    static const char chunked[] = "chunked";
    const char *value = NULL;
    int64_t length = 0;
    if (value_of(line, count, "content-length", &value, &length)) {
        const int64_t given = number_read(value, length, 10);
        if (given < 0 || (h->length >= 0 && h->length != given)) {
            return fail(ST_DATA, "its Content-Length is no number up to %d",
                        (int)REWARD_ANSWER_BYTES);
        }
        h->length = given;
    }
    if (value_of(line, count, "transfer-encoding", &value, &length)) {
        if (length != (int64_t)strlen(chunked) ||
            strncasecmp(value, chunked, strlen(chunked)) != 0) {
            return fail(ST_DATA, "its Transfer-Encoding is not chunked");
        }
        h->in_chunks = true;
    }
    return ST_OK;
}

// *at: where the body begins; -1: the head is not whole yet.
static status head_read(const char *s, int64_t count, int *code, headers *h, int64_t *at)
{
    int64_t begin = 0, end = line_end(s, count, 0);
    *at = -1;
    if (end < 0) return ST_OK;
    TRY(code_read(s, end, code));
    for (;;) {
        begin = end + 1;
        end = line_end(s, count, begin);
        if (end < 0) return ST_OK;
        const int64_t length = end - begin - (end > begin && s[end - 1] == '\r' ? 1 : 0);
        if (length == 0) break;
        TRY(header_read(s + begin, length, h));
    }
    *at = end + 1;
    return ST_OK;
}

// Joins the chunks from byte `at` on. *is_whole: the last one is there.
static status chunks_join(const char *s, int64_t count, int64_t at, char *body, int64_t *bytes,
                          bool *is_whole)
{
    *bytes = 0;
    *is_whole = false;
    for (;;) {
        const int64_t end = line_end(s, count, at);
        if (end < 0) return ST_OK;
        int64_t digits = 0;
        while (at + digits < end && isxdigit((unsigned char)s[at + digits])) digits++;
        const char after = at + digits < end ? s[at + digits] : '\r'; // extensions begin with ';'
        const int64_t size = number_read(s + at, digits, 16);
        if (size < 0 || (after != '\r' && after != ';' && after != ' ')) {
            return fail(ST_DATA, "a chunk of its body has no size");
        }
        at = end + 1;
        *is_whole = size == 0;
        if (size == 0 || at + size > count) return ST_OK;
        memcpy(body + *bytes, s + at, (size_t)size);
        *bytes += size;
        at += size;
        if (at < count && s[at] == '\r') at++;
        if (at >= count) return ST_OK;
        if (s[at++] != '\n') return fail(ST_DATA, "a chunk of its body is longer than it says");
    }
}

static status body_read(const char *body, int64_t bytes, double *out)
{
    json *root = NULL;
    TRY(json_parse(body, bytes, "the body", &root));
    const json *value = json_kind_of(root) == JSON_MAP ? json_get(root, "reward") : root;
    const json_kind kind = json_kind_of(value);
    const double reward = json_real(value, (double)NAN);
    json_free(root);
    if ((kind != JSON_INT && kind != JSON_REAL) || !isfinite(reward)) {
        return fail(ST_DATA, "its body is neither a number nor {\"reward\": number}");
    }
    *out = reward;
    return ST_OK;
}

status reward_answer_read(const char *bytes, int64_t count, bool closed, reward_answer *out)
{
    char joined[REWARD_ANSWER_BYTES];
    headers h = {.length = -1};
    int64_t at = -1, length = 0;
    *out = (reward_answer){.is_whole = false};
    if (count > REWARD_ANSWER_BYTES) {
        return fail(ST_DATA, "it has more than %d bytes", (int)REWARD_ANSWER_BYTES);
    }
    TRY(head_read(bytes, count, &out->code, &h, &at));
    if (at < 0) return closed ? fail(ST_DATA, "it ends in its head") : ST_OK;
    const char *body = bytes + at;
    length = count - at;
    out->is_whole = closed;
    if (h.in_chunks) {
        TRY(chunks_join(bytes, count, at, joined, &length, &out->is_whole));
        body = joined;
    } else if (h.length >= 0) {
        out->is_whole = length >= h.length;
        length = min_i64(length, h.length);
    }
    if (!out->is_whole) return closed ? fail(ST_DATA, "it ends in its body") : ST_OK;
    return out->code == 200 ? body_read(body, length, &out->reward) : ST_OK;
}
