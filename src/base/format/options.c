// The option table: finds rows, suggests the nearest row, sets defaults.
//
// option_value.c reads values, option_print.c prints them, option_docs.c makes the documents.
#include "base/format/options.h"

#include "base/format/options_internal.h"

#include <stdio.h>
#include <string.h>

// Bytes of the character at s, 0 if it is not UTF-8.
static int64_t character_bytes(const char *s)
{
    int64_t n = 1;
    while (n < 4 && ((unsigned char)s[n] & 0xC0) == 0x80) n++;
    return text_is_utf8(s, n) ? n : 0;
}

const char *option_shown(const char *value, char buffer[OPTION_SHOWN_BYTES])
{
    const int64_t limit = OPTION_SHOWN_BYTES - 10; // quotes, dots, the rest of a character, NUL
    int64_t n = 0;
    buffer[n++] = '"';
    const char *s = value;
    while (*s != '\0' && n < limit) {
        const unsigned char byte = (unsigned char)*s;
        const int64_t bytes = character_bytes(s);
        if (bytes == 0 || byte < 0x20 || byte == 0x7F) {
            buffer[n++] = '?';
            s++;
        } else {
            memcpy(buffer + n, s, (size_t)bytes);
            n += bytes;
            s += bytes;
        }
    }
    const int rest =
        snprintf(buffer + n, (size_t)(OPTION_SHOWN_BYTES - n), "%s\"", *s == '\0' ? "" : "...");
    ASSERT(n + rest < OPTION_SHOWN_BYTES);
    return buffer;
}

const option *option_find(const option_table *t, const char *key)
{
    for (int64_t i = 0; i < t->count; i++) {
        if (strcmp(t->rows[i].key, key) == 0) return &t->rows[i];
    }
    return NULL;
}

bool option_is_heading(const option_table *t, const char *key)
{
    const size_t length = strlen(key);
    for (int64_t i = 0; i < t->count; i++) {
        if (strncmp(t->rows[i].key, key, length) == 0 && t->rows[i].key[length] == '.') return true;
    }
    return false;
}

bool option_next_word(const char **list, char word[OPTION_WORD_BYTES])
{
    const char *s = *list;
    if (s == NULL) return false;
    while (*s == ' ' || *s == ',') s++;
    int64_t n = 0;
    while (*s != '\0' && *s != ',' && n < OPTION_WORD_BYTES - 1) word[n++] = *s++;
    word[n] = '\0';
    *list = s;
    return n > 0;
}

// ---- did you mean ------------------------------------------------------------------------------

static const char *last_part(const char *key)
{
    const char *dot = strrchr(key, '.');
    return dot == NULL ? key : dot + 1;
}

// The names of row i: its key, and its heading with each of its other names.
typedef struct name_list {
    const char **names;
    int64_t *rows;
    int64_t count;
} name_list;

static status name_add(arena *a, name_list *l, int64_t row, const char *heading,
                       int64_t heading_bytes, const char *name)
{
    char *full;
    TRY(arena_format(a, &full, "%.*s%s", (int)heading_bytes, heading, name));
    l->names[l->count] = full;
    l->rows[l->count++] = row;
    return ST_OK;
}

// whole: names with their headings; otherwise only their last parts.
static status names_of(const option_table *t, arena *a, bool whole, name_list *out)
{
    int64_t capacity = t->count;
    char word[OPTION_WORD_BYTES];
    for (int64_t i = 0; i < t->count; i++) {
        const char *also = t->rows[i].also;
        while (option_next_word(&also, word)) capacity++;
    }
    name_list l = {0};
    TRY(arena_new(a, capacity, &l.names));
    TRY(arena_new(a, capacity, &l.rows));
    for (int64_t i = 0; i < t->count; i++) {
        const char *key = t->rows[i].key, *last = last_part(key);
        const int64_t heading_bytes = whole ? last - key : 0;
        TRY(name_add(a, &l, i, key, heading_bytes, last));
        const char *also = t->rows[i].also;
        while (option_next_word(&also, word)) TRY(name_add(a, &l, i, key, heading_bytes, word));
    }
    *out = l;
    return ST_OK;
}

status option_nearest(const option_table *t, arena *a, const char *key, const char **out)
{
    *out = NULL;
    if (strlen(key) > OPTION_KEY_BYTES_MAX) return ST_OK;
    // First the whole path, then only its last part, for the right name under the wrong heading.
    for (int whole = 1; whole >= 0; whole--) {
        name_list l;
        TRY(names_of(t, a, whole == 1, &l));
        const char *near = text_nearest(whole == 1 ? key : last_part(key), l.names, l.count);
        if (near == NULL) continue;
        for (int64_t i = 0; i < l.count; i++) {
            if (strcmp(l.names[i], near) == 0) {
                *out = t->rows[l.rows[i]].key;
                return ST_OK;
            }
        }
    }
    return ST_OK;
}

// ---- headings ----------------------------------------------------------------------------------

const char *option_part(const char *key, const char *prefix, int64_t *part_bytes, bool *is_heading)
{
    const size_t length = strlen(prefix);
    if (strncmp(key, prefix, length) != 0) return NULL;
    const char *part = key + length;
    if (length > 0) {
        if (*part != '.') return NULL;
        part++;
    }
    const char *dot = strchr(part, '.');
    *is_heading = dot != NULL;
    *part_bytes = dot == NULL ? (int64_t)strlen(part) : dot - part;
    return part;
}

bool option_part_seen(const option_table *t, int64_t row, const char *prefix)
{
    int64_t bytes = 0, earlier_bytes = 0;
    bool is_heading;
    const char *part = option_part(t->rows[row].key, prefix, &bytes, &is_heading);
    for (int64_t i = 0; i < row; i++) {
        const char *earlier = option_part(t->rows[i].key, prefix, &earlier_bytes, &is_heading);
        if (earlier != NULL && earlier_bytes == bytes &&
            strncmp(earlier, part, (size_t)bytes) == 0) {
            return true;
        }
    }
    return false;
}

// ---- defaults ----------------------------------------------------------------------------------

static int64_t field_bytes(option_kind kind)
{
    switch (kind) {
    case OPTION_BOOL:
        return (int64_t)sizeof(bool);
    case OPTION_INT:
    case OPTION_BYTES:
    case OPTION_TIME:
        return (int64_t)sizeof(int64_t);
    case OPTION_REAL:
        return (int64_t)sizeof(double);
    case OPTION_TEXT:
    case OPTION_PATH:
        return (int64_t)sizeof(const char *);
    case OPTION_CHOICE:
        return (int64_t)sizeof(int32_t);
    case OPTION_LIST:
    case OPTION_PATHS:
    case OPTION_SHARE:
    case OPTION_RAMP:
        return (int64_t)sizeof(option_list);
    case OPTION_RANGE:
        return (int64_t)sizeof(option_range);
    }
    return 0;
}

status option_set_default(const option *o, arena *a, void *target, const char *folder)
{
    memset((char *)target + o->offset, 0, (size_t)field_bytes(o->kind));
    if (o->default_text == NULL) return ST_OK;
    return option_set(o, a, target, o->default_text, "default", folder);
}

status option_set_defaults(const option_table *t, arena *a, void *target)
{
    for (int64_t i = 0; i < t->count; i++) {
        TRY(option_set_default(&t->rows[i], a, target, NULL));
    }
    return ST_OK;
}

bool option_may_be_absent(const option *o)
{
    if (o->default_text != NULL) return true;
    switch (o->kind) {
    case OPTION_TEXT:
    case OPTION_PATH:
    case OPTION_LIST:
    case OPTION_PATHS:
    case OPTION_SHARE:
    case OPTION_RAMP:
    case OPTION_RANGE:
        return true;
    case OPTION_BOOL:
    case OPTION_INT:
    case OPTION_REAL:
    case OPTION_CHOICE:
    case OPTION_BYTES:
    case OPTION_TIME:
        return false;
    }
    return false;
}
