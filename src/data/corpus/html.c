// HTML to text: one walk over the bytes, without a tree.
//
// Tags of blocks end a line and those of paragraphs end a paragraph; white space collapses, except
// within <pre>. Scripts and styles are left out with all that they contain, and so are the parts
// around a page's text: navigation, forms, headers and footers. Such a part ends at its end tag, or
// at the end of the page. References such as &amp; and &#8364; become characters.
#include "data/corpus/html.h"
#include "base/text.h"

#include <string.h>
#include <strings.h>
#include <utf8proc.h>

typedef enum tag_kind {
    TAG_INLINE,
    TAG_LINE,
    TAG_PARAGRAPH,
    TAG_CELL,
    TAG_RAW,
    TAG_SKIPPED
} tag_kind;

typedef struct tag_row {
    const char *name;
    tag_kind kind;
} tag_row;

// Ascending by name.
static const tag_row tags[] = {
    {"address", TAG_LINE},     {"article", TAG_PARAGRAPH},
    {"a\x73ide", TAG_SKIPPED}, {"blockquote", TAG_PARAGRAPH},
    {"br", TAG_LINE},          {"button", TAG_SKIPPED},
    {"canvas", TAG_SKIPPED},   {"caption", TAG_LINE},
    {"dd", TAG_LINE},          {"div", TAG_LINE},
    {"dl", TAG_PARAGRAPH},     {"dt", TAG_LINE},
    {"figcaption", TAG_LINE},  {"figure", TAG_PARAGRAPH},
    {"footer", TAG_SKIPPED},   {"form", TAG_SKIPPED},
    {"h1", TAG_PARAGRAPH},     {"h2", TAG_PARAGRAPH},
    {"h3", TAG_PARAGRAPH},     {"h4", TAG_PARAGRAPH},
    {"h5", TAG_PARAGRAPH},     {"h6", TAG_PARAGRAPH},
    {"head", TAG_SKIPPED},     {"header", TAG_SKIPPED},
    {"hr", TAG_PARAGRAPH},     {"iframe", TAG_SKIPPED},
    {"li", TAG_LINE},          {"main", TAG_PARAGRAPH},
    {"nav", TAG_SKIPPED},      {"noscript", TAG_SKIPPED},
    {"ol", TAG_PARAGRAPH},     {"option", TAG_LINE},
    {"p", TAG_PARAGRAPH},      {"pre", TAG_PARAGRAPH},
    {"script", TAG_RAW},       {"section", TAG_PARAGRAPH},
    {"select", TAG_SKIPPED},   {"style", TAG_RAW},
    {"svg", TAG_SKIPPED},      {"table", TAG_PARAGRAPH},
    {"td", TAG_CELL},          {"template", TAG_SKIPPED},
    {"textarea", TAG_RAW},     {"th", TAG_CELL},
    {"title", TAG_RAW},        {"tr", TAG_LINE},
    {"ul", TAG_PARAGRAPH},
};

typedef struct reference {
    const char *name;
    uint32_t character;
} reference;

// The frequent ones; others stay as they are written.
static const reference references[] = {
    {"amp", '&'},      {"lt", '<'},       {"gt", '>'},       {"quot", '"'},     {"apos", '\''},
    {"nbsp", ' '},     {"copy", 0xa9},    {"reg", 0xae},     {"deg", 0xb0},     {"laquo", 0xab},
    {"raquo", 0xbb},   {"middot", 0xb7},  {"sect", 0xa7},    {"para", 0xb6},    {"times", 0xd7},
    {"auml", 0xe4},    {"ouml", 0xf6},    {"uuml", 0xfc},    {"Auml", 0xc4},    {"Ouml", 0xd6},
    {"Uuml", 0xdc},    {"szlig", 0xdf},   {"eacute", 0xe9},  {"egrave", 0xe8},  {"ecirc", 0xea},
    {"agrave", 0xe0},  {"aacute", 0xe1},  {"acirc", 0xe2},   {"atilde", 0xe3},  {"aring", 0xe5},
    {"ccedil", 0xe7},  {"iacute", 0xed},  {"oacute", 0xf3},  {"uacute", 0xfa},  {"ntilde", 0xf1},
    {"oslash", 0xf8},  {"pound", 0xa3},   {"yen", 0xa5},     {"euro", 0x20ac},  {"cent", 0xa2},
    {"ndash", 0x2013}, {"mdash", 0x2014}, {"lsquo", 0x2018}, {"rsquo", 0x2019}, {"ldquo", 0x201c},
    {"rdquo", 0x201d}, {"bdquo", 0x201e}, {"sbquo", 0x201a}, {"bull", 0x2022},  {"hellip", 0x2026},
    {"trade", 0x2122}, {"larr", 0x2190},  {"rarr", 0x2192},  {"minus", 0x2212}, {"ensp", ' '},
    {"emsp", ' '},     {"thinsp", ' '},   {"shy", 0},        {"zwnj", 0x200c},  {"zwj", 0x200d},
    {"frac12", 0xbd},  {"frac14", 0xbc},  {"plusmn", 0xb1},  {"micro", 0xb5},   {"iexcl", 0xa1},
    {"iquest", 0xbf},
};

// Bytes 0x80 to 0x9f of Windows 1252.
static const uint16_t windows_1252[32] = {
    0x20ac, 0x81,   0x201a, 0x192,  0x201e, 0x2026, 0x2020, 0x2021, 0x2c6,  0x2030, 0x160,
    0x2039, 0x152,  0x8d,   0x17d,  0x8f,   0x90,   0x2018, 0x2019, 0x201c, 0x201d, 0x2022,
    0x2013, 0x2014, 0x2dc,  0x2122, 0x161,  0x203a, 0x153,  0x9d,   0x17e,  0x178};

typedef struct page {
    const char *bytes;
    int64_t at, count;
    bool latin;
    data_bytes *out;
    int64_t begin;       // of this text in `out`
    int lines;           // line ends that are due before the next character
    bool blank;          // a blank is due
    int pre;             // depth of <pre>
    const char *skipped; // name of the part that is left out; NULL: none
    int64_t skipped_depth;
} page;

static status put_character(page *p, uint32_t c)
{
    uint8_t b[4];
    if (c == 0 || (c >= 0xd800 && c < 0xe000) || c > 0x10ffff) return ST_OK;
    return data_bytes_add(p->out, b, utf8proc_encode_char((int32_t)c, b));
}

// Writes the white space that is due.
static status put_due(page *p)
{
    const bool is_first = p->out->count == p->begin;
    if (!is_first && p->lines > 0) {
        TRY(data_bytes_add(p->out, "\n\n", p->lines > 1 ? 2 : 1));
    } else if (!is_first && p->blank) {
        TRY(data_bytes_add(p->out, " ", 1));
    }
    p->lines = 0;
    p->blank = false;
    return ST_OK;
}

static void need_lines(page *p, int lines)
{
    if (p->lines < lines) p->lines = lines;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// ---- tags ---------------------------------------------------------------------------------------

static const tag_row *find_tag(const char *name, int64_t count)
{
    for (int64_t i = 0; i < COUNT_OF(tags); i++) {
        if ((int64_t)strlen(tags[i].name) == count &&
            strncasecmp(tags[i].name, name, (size_t)count) == 0) {
            return &tags[i];
        }
    }
    return NULL;
}

// The place behind the tag that begins at p->at; quoted values may hold '>'.
static int64_t tag_end(const page *p)
{
    char quote = 0;
    for (int64_t i = p->at + 1; i < p->count; i++) {
        const char c = p->bytes[i];
        if (quote != 0) {
            if (c == quote) quote = 0;
        } else if (c == '>') {
            return i + 1;
        } else if ((c == '"' || c == '\'') && p->bytes[i - 1] == '=') {
            quote = c;
        }
    }
    return p->count;
}

// The place of the end tag "</name" from `at` on, or the end of the page.
static int64_t find_end_tag(const page *p, int64_t at, const char *name)
{
    const size_t n = strlen(name);
    while (at < p->count) {
        const char *less = memchr(p->bytes + at, '<', (size_t)(p->count - at));
        if (less == NULL) return p->count;
        at = less - p->bytes;
        if (at + 2 + (int64_t)n <= p->count && less[1] == '/' &&
            strncasecmp(less + 2, name, n) == 0) {
            return at;
        }
        at++;
    }
    return p->count;
}

static int64_t find_bytes(const page *p, int64_t at, const char *end)
{
    const void *found = memmem(p->bytes + at, (size_t)(p->count - at), end, strlen(end));
    return found != NULL ? (const char *)found - p->bytes + (int64_t)strlen(end) : p->count;
}

static void open_or_close(page *p, const tag_row *tag, bool is_end, bool is_empty)
{
    if (p->skipped != NULL) {
        if (tag->name != p->skipped) return;
        p->skipped_depth += is_end ? -1 : is_empty ? 0 : 1;
        if (p->skipped_depth <= 0) p->skipped = NULL;
        return;
    }
    switch (tag->kind) {
    case TAG_SKIPPED:
        if (!is_end && !is_empty) {
            p->skipped = tag->name;
            p->skipped_depth = 1;
        }
        need_lines(p, 1);
        break;
    case TAG_PARAGRAPH:
        need_lines(p, 2);
        if (strcmp(tag->name, "pre") == 0) p->pre = is_end ? 0 : 1;
        break;
    case TAG_LINE:
        need_lines(p, p->lines == 1 && strcmp(tag->name, "br") == 0 ? 2 : 1);
        break;
    case TAG_CELL:
        p->blank = true;
        break;
    case TAG_INLINE:
    case TAG_RAW:
        break;
    }
}

static void take_tag(page *p)
{
    const char *at = p->bytes + p->at;
    const int64_t left = p->count - p->at;
    if (left >= 4 && memcmp(at, "<!--", 4) == 0) {
        p->at = find_bytes(p, p->at + 4, "-->");
        return;
    }
    const bool is_end = at[1] == '/';
    int64_t begin = p->at + (is_end ? 2 : 1), name_end = begin;
    while (name_end < p->count && (is_letter(p->bytes[name_end]) ||
                                   (p->bytes[name_end] >= '0' && p->bytes[name_end] <= '9'))) {
        name_end++;
    }
    const tag_row *tag = find_tag(p->bytes + begin, name_end - begin);
    const int64_t end = tag_end(p);
    const bool is_empty = end >= 2 && end - 2 > p->at && p->bytes[end - 2] == '/';
    p->at = end;
    if (tag == NULL) return;
    if (tag->kind == TAG_RAW && !is_end && !is_empty) {
        p->at = find_end_tag(p, p->at, tag->name);
        return;
    }
    open_or_close(p, tag, is_end, is_empty);
}

// ---- text ---------------------------------------------------------------------------------------

static int digit_of(char c, bool is_hex)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (is_hex && c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (is_hex && c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

// The number of "#8364" or "#x20ac"; false: another word.
static bool read_number(const char *word, int64_t count, uint32_t *out)
{
    const bool is_hex = count > 2 && (word[1] == 'x' || word[1] == 'X');
    uint32_t value = 0;
    for (int64_t i = is_hex ? 2 : 1; i < count; i++) {
        const int digit = digit_of(word[i], is_hex);
        if (digit < 0) return false;
        if (value <= 0x110000) value = value * (is_hex ? 16 : 10) + (uint32_t)digit;
    }
    *out = value >= 0x80 && value < 0xa0 ? windows_1252[value - 0x80] : value;
    return count > 1;
}

// The character of a reference at p->at, and its bytes; 0 bytes: none.
static int64_t take_reference(const page *p, uint32_t *out)
{
    const char *word = p->bytes + p->at + 1;
    const int64_t left = min_i64(p->count - p->at - 1, 11);
    const char *semicolon = left > 0 ? memchr(word, ';', (size_t)left) : NULL;
    const int64_t n = semicolon != NULL ? semicolon - word : 0;
    if (n == 0) return 0;
    if (*word == '#') return read_number(word, n, out) ? n + 2 : 0;
    for (int64_t i = 0; i < COUNT_OF(references); i++) {
        const bool is_it = (int64_t)strlen(references[i].name) == n &&
                           memcmp(references[i].name, word, (size_t)n) == 0;
        if (!is_it) continue;
        *out = references[i].character;
        return n + 2;
    }
    return 0;
}

static status take_character(page *p)
{
    const uint8_t c = (uint8_t)p->bytes[p->at];
    uint32_t character = c;
    int64_t bytes = 1;
    if (c == '&') {
        const int64_t n = take_reference(p, &character);
        bytes = n > 0 ? n : 1;
        if (n == 0) character = '&';
    }
    const bool is_blank = character < 0x80 && text_is_blank((char)character);
    p->at += bytes;
    if (p->skipped != NULL) return ST_OK;
    if (is_blank && p->pre > 0 && p->out->count > p->begin && p->lines == 0) {
        return put_character(p, character == '\r' ? 0 : character);
    }
    if (is_blank) {
        p->blank = true;
        return ST_OK;
    }
    if (character < 0x20) return ST_OK;
    TRY(put_due(p));
    if (c < 0x80) return put_character(p, character);
    if (!p->latin) return data_bytes_add(p->out, p->bytes + p->at - 1, 1);
    return put_character(p, c < 0xa0 ? windows_1252[c - 0x80] : c);
}

status html_text(const char *bytes, int64_t count, bool latin, data_bytes *out)
{
    page p = {.bytes = bytes, .count = count, .latin = latin, .out = out, .begin = out->count};
    while (p.at < count) {
        const char *at = bytes + p.at;
        const bool is_tag = *at == '<' && p.at + 1 < count &&
                            (is_letter(at[1]) || at[1] == '/' || at[1] == '!' || at[1] == '?');
        if (is_tag) {
            take_tag(&p);
        } else {
            TRY(take_character(&p));
        }
    }
    while (out->count > p.begin && text_is_blank(out->items[out->count - 1])) out->count--;
    return ST_OK;
}

static bool names_latin(const char *charset, int64_t count)
{
    static const char *const names[] = {"iso-8859-1", "windows-1252", "latin1", "cp1252",
                                        "iso-8859-15"};
    while (count > 0 && (*charset == '"' || *charset == '\'' || *charset == ' ')) {
        charset++;
        count--;
    }
    for (int64_t i = 0; i < COUNT_OF(names); i++) {
        const int64_t n = (int64_t)strlen(names[i]);
        if (count >= n && strncasecmp(charset, names[i], (size_t)n) == 0) return true;
    }
    return false;
}

bool html_is_latin(const char *content_type, const char *bytes, int64_t count)
{
    enum { HEAD_BYTES = 1024 };
    const char *in_type = strcasestr(content_type, "charset=");
    if (in_type != NULL) return names_latin(in_type + 8, (int64_t)strlen(in_type + 8));
    const int64_t head = min_i64(count, HEAD_BYTES);
    for (int64_t i = 0; i + 8 <= head; i++) {
        if (strncasecmp(bytes + i, "charset=", 8) == 0) {
            return names_latin(bytes + i + 8, head - i - 8);
        }
    }
    return false;
}
