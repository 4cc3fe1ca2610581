// Helpers shared by options.c, option_print.c, option_docs.c and config.c.
#ifndef BASE_FORMAT_OPTIONS_INTERNAL_H
#define BASE_FORMAT_OPTIONS_INTERNAL_H

#include "base/format/options.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { OPTION_SHOWN_BYTES = 80, OPTION_WORD_BYTES = 48 };
// Did-you-mean ignores longer words: the search takes time in the square of the length.
enum { OPTION_KEY_BYTES_MAX = 80 };
enum { OPTION_BYTE_UNITS = 14, OPTION_TIME_UNITS = 7 };

typedef struct option_unit {
    const char *name;
    int64_t factor;
} option_unit;
extern const option_unit option_byte_units[OPTION_BYTE_UNITS];
extern const option_unit option_time_units[OPTION_TIME_UNITS]; // ascending
// The largest unit of which the value is a multiple. The first unit is 1; the value is not 0.
const option_unit *option_unit_of(int64_t value, const option_unit *units, int64_t count);

// A share of all (unit "share"), of which yes and no mean all and none.
bool option_is_share(const option *o);
// Makes a value fit for an error: quoted, cut to a line's length, control characters as '?'.
const char *option_shown(const char *value, char buffer[OPTION_SHOWN_BYTES]);
// Takes the next word of "a, b, c" (NULL: none); false at the end.
bool option_next_word(const char **list, char word[OPTION_WORD_BYTES]);
// Sets one row's default, or zero if it has none.
NODISCARD status option_set_default(const option *o, arena *a, void *target, const char *folder);
bool option_may_be_absent(const option *o); // false: a config must give it

// Walks headings: rows are printed nested, though the table is flat. Returns the part of `key`
// behind `prefix` up to the next dot; *is_heading is true if more follows. NULL if key is not below
// the prefix.
const char *option_part(const char *key, const char *prefix, int64_t *part_bytes, bool *is_heading);
// True if an earlier row has the same part below this prefix, so that the group was printed
// already.
bool option_part_seen(const option_table *t, int64_t row, const char *prefix);

#ifdef __cplusplus
}
#endif
#endif
