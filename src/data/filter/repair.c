// Repairs the encoding of a text: bytes that are no UTF-8, UTF-8 that was read as Windows-1252 and
// encoded again ("caf\u00c3\u00a9"), control characters, line ends of Windows, and forms other than
// NFC.
#include "data/filter/family.h"
#include "data/tokenizer/family.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define AT(field) (int64_t) offsetof(filter_config, repair.field)
static const option rows[] = {
    {.key = "repair.nfc",
     .kind = OPTION_BOOL,
     .offset = AT(nfc),
     .default_text = "true",
     .help = "whether the text is put into Unicode's normalization form C"},
    {.key = "repair.twice_encoded",
     .kind = OPTION_BOOL,
     .offset = AT(twice_encoded),
     .default_text = "true",
     .help = "whether UTF-8 that was read as Windows-1252 and encoded again is repaired"},
    {.key = "repair.max_malformed",
     .kind = OPTION_REAL,
     .offset = AT(max_malformed),
     .default_text = "0.01",
     .max = 1,
     .help = "largest share of bytes that are no UTF-8; a document with more is dropped"},
};
enum { RULE_ENCODING };
static const char *const rules[] = {"not-utf8", NULL};

// The byte that Windows-1252 encodes as this character; -1 for none.
static int byte_of(uint32_t point)
{
    static const uint16_t high[32] = {
        0x20ac, 0x81,   0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021, 0x02c6, 0x2030, 0x0160,
        0x2039, 0x0152, 0x8d,   0x017d, 0x8f,   0x90,   0x2018, 0x2019, 0x201c, 0x201d, 0x2022,
        0x2013, 0x2014, 0x02dc, 0x2122, 0x0161, 0x203a, 0x0153, 0x9d,   0x017e, 0x0178};
    if (point < 0x80 || (point >= 0xa0 && point < 0x100)) return (int)point;
    for (int i = 0; i < 32; i++) {
        if (high[i] == point) return 0x80 + i;
    }
    return -1;
}

// Characters from `at` that are the bytes of one character of UTF-8, encoded again: the number of
// their bytes in the text, and the character; 0 if they are none.
static int64_t twice_at(const char *s, int64_t count, int64_t at, char bytes[4], int *length)
{
    int64_t i = at;
    int n = 0, wanted = 1;
    while (n < wanted && i < count) {
        uint32_t point = 0;
        bool torn = false;
        const int used = utf8_next((const uint8_t *)s + i, count - i, &point, &torn);
        if (used < 2) return 0;
        const int byte = byte_of(point);
        if (byte < 0x80) return 0;
        if (n == 0)
            wanted = byte >= 0xc2 && byte < 0xe0   ? 2
                     : byte >= 0xe0 && byte < 0xf0 ? 3
                     : byte >= 0xf0 && byte < 0xf5 ? 4
                                                   : 0;
        if (wanted == 0) return 0;
        bytes[n++] = (char)byte;
        i += used;
    }
    if (n < wanted || utf8_valid_prefix(bytes, n) != n) return 0;
    *length = n;
    return i - at;
}

static bool is_dropped(uint8_t c)
{
    return c < 0x20 && c != '\n' && c != '\t';
}

// One pass over the text: control characters, line ends, characters that were encoded twice.
static status clean(filter_run *r)
{
    data_bytes *out = NULL;
    int64_t done = 0;
    const bool twice = r->c->repair.twice_encoded;
    for (int64_t i = 0; i < r->count;) {
        const uint8_t c = (uint8_t)r->text[i];
        char bytes[4];
        int length = 0;
        int64_t used = 0;
        if (is_dropped(c) || c == 0x7f) {
            used = 1;
        } else if (twice && (c == 0xc3 || c == 0xc2)) {
            used = twice_at(r->text, r->count, i, bytes, &length);
        }
        if (used == 0) {
            i++;
            continue;
        }
        if (c == '\r' && (i + 1 == r->count || r->text[i + 1] != '\n')) bytes[length++] = '\n';
        if (out == NULL) out = filter_output(r);
        TRY(data_bytes_add(out, r->text + done, i - done));
        if (length > 0) TRY(data_bytes_add(out, bytes, length));
        i += used;
        done = i;
    }
    if (out == NULL) return ST_OK;
    TRY(data_bytes_add(out, r->text + done, r->count - done));
    filter_replace(r);
    return ST_OK;
}

// True if the text may change: only characters from U+0300 on combine or have another form.
static bool needs_nfc(const char *s, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if ((uint8_t)s[i] >= 0xcc) return true;
    }
    return false;
}

static status compose(filter_run *r)
{
    utf8proc_uint8_t *made = NULL;
    const utf8proc_ssize_t n =
        utf8proc_map((const utf8proc_uint8_t *)r->text, r->count, &made,
                     (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    if (n == UTF8PROC_ERROR_NOMEM) return fail(ST_NO_MEMORY, "no memory to normalize a document");
    status st = ST_OK;
    if (n >= 0 && (n != r->count || memcmp(made, r->text, (size_t)n) != 0)) {
        data_bytes *out = filter_output(r);
        st = data_bytes_add(out, made, n);
        if (st == ST_OK) filter_replace(r);
    }
    free(made);
    return st;
}

static status apply(filter_run *r, int *rule)
{
    int64_t bad = 0;
    for (int64_t at = 0; at < r->count;) {
        at += utf8_valid_prefix(r->text + at, r->count - at);
        if (at == r->count) break;
        uint32_t point = 0;
        bool torn = false;
        const int used = utf8_next((const uint8_t *)r->text + at, r->count - at, &point, &torn);
        at += used < 0 ? -used : used;
        bad += used < 0 ? -used : 0;
    }
    if ((double)bad > r->c->repair.max_malformed * (double)r->count) {
        *rule = RULE_ENCODING;
        return ST_OK;
    }
    if (bad > 0) {
        data_bytes *out = filter_output(r);
        TRY(utf8_repair(r->text, r->count, out));
        filter_replace(r);
    }
    TRY(clean(r));
    return r->c->repair.nfc && needs_nfc(r->text, r->count) ? compose(r) : ST_OK;
}

const data_filter data_filter_repair = {
    .name = "repair",
    .about = "repairs the encoding: malformed UTF-8, UTF-8 encoded twice, control characters, line "
             "ends, and forms other than NFC",
    .rows = rows,
    .row_count = COUNT_OF(rows),
    .rules = rules,
    .version = 1,
    .open = NULL,
    .close = NULL,
    .apply = apply};
