// Parses Slurm's host lists: comma-separated names, each with any number of [ranges].
//
// A typo may ask for 99,999,999 names (n[1-99999999]), so the parser counts the names before it
// allocates memory.
#include "launch/launch.h"

#include <stdio.h>
#include <string.h>

enum { NAME_BYTES_MAX = 256, LIST_BYTES_MAX = 64 << 10, DIGITS_MAX = 9, BRACKETS_MAX = 4 };

typedef struct hosts {
    arena *a;
    const char *list;
    int64_t limit;
    file_names out;
    int64_t capacity;
} hosts;

static status refuse(const hosts *h, const char *why)
{
    return fail(ST_CONFIG, "host list \"%.80s%s\": %s", h->list, strlen(h->list) > 80 ? "..." : "",
                why);
}

static bool is_name_character(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_';
}

static status add(hosts *h, const char *name, int64_t length)
{
    if (length == 0) return refuse(h, "a name is empty");
    if (h->out.count == h->limit) return refuse(h, "it has too many names");
    TRY(arena_grow(h->a, (void **)&h->out.names, &h->capacity, h->out.count + 1,
                   sizeof(*h->out.names)));
    return arena_format(h->a, &h->out.names[h->out.count++], "%.*s", (int)length, name);
}

// Reads a number of at most DIGITS_MAX digits and its width: n[01-03] means n01, n02, n03.
static bool number(const char **at, const char *end, int64_t *value, int *width)
{
    *value = 0;
    *width = 0;
    while (*at < end && **at >= '0' && **at <= '9' && *width < DIGITS_MAX) {
        *value = *value * 10 + (**at - '0');
        (*width)++;
        (*at)++;
    }
    return *width > 0;
}

static status expand(hosts *h, char *name, int64_t length, const char *at, const char *end,
                     int brackets);

// Expands one bracket: each number of its ranges, followed by the expanded rest of the name.
static status expand_ranges(hosts *h, char *name, int64_t length, const char *at, const char *end,
                            int brackets)
{
    const char *close = memchr(at, ']', (size_t)(end - at));
    if (close == NULL) return refuse(h, "a [ has no ]");
    if (close == at) return refuse(h, "a number is expected in [ ]");
    if (brackets == BRACKETS_MAX) return refuse(h, "a name has too many brackets");
    while (at < close) {
        int64_t first, last;
        int width, last_width;
        if (!number(&at, close, &first, &width)) return refuse(h, "a number is expected in [ ]");
        last = first;
        if (at < close && *at == '-') {
            at++;
            if (!number(&at, close, &last, &last_width)) return refuse(h, "a range has no end");
        }
        if (last < first) return refuse(h, "a range goes down");
        if (last - first >= h->limit - h->out.count) return refuse(h, "it has too many names");
        for (int64_t i = first; i <= last; i++) {
            const int n = snprintf(name + length, (size_t)(NAME_BYTES_MAX - length), "%0*lld",
                                   width, (long long)i);
            if (n < 0 || length + n >= NAME_BYTES_MAX) return refuse(h, "a name is too long");
            TRY(expand(h, name, length + n, close + 1, end, brackets + 1));
        }
        if (at < close && *at != ',') return refuse(h, "a comma or ] is expected in [ ]");
        if (at < close && ++at == close) return refuse(h, "a number is expected in [ ]");
    }
    return ST_OK;
}

// Expands the element at `at`; `name` holds the part that is already expanded.
static status expand(hosts *h, char *name, int64_t length, const char *at, const char *end,
                     int brackets)
{
    for (; at < end; at++) {
        if (*at == '[') return expand_ranges(h, name, length, at + 1, end, brackets);
        if (!is_name_character(*at)) return refuse(h, "a character is not allowed in host names");
        if (length + 1 >= NAME_BYTES_MAX) return refuse(h, "a name is too long");
        name[length++] = *at;
    }
    return add(h, name, length);
}

status launch_hosts(arena *a, const char *list, int64_t limit, file_names *out)
{
    hosts h = {.a = a, .list = list, .limit = limit};
    char name[NAME_BYTES_MAX];
    const size_t bytes = strlen(list);
    if (bytes > LIST_BYTES_MAX) return refuse(&h, "it is too long");
    if (bytes == 0) return refuse(&h, "it has no name");
    const char *at = list, *end = list + bytes;
    while (at <= end) {
        const char *stop = at;
        bool is_inside = false;
        while (stop < end && (is_inside || *stop != ',')) {
            is_inside = *stop == '[' || (is_inside && *stop != ']');
            stop++;
        }
        TRY(expand(&h, name, 0, at, stop, 0));
        at = stop + 1;
    }
    *out = h.out;
    return ST_OK;
}
