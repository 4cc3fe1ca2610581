// JSON files, with limits against hostile input.
//
// Depth at most 64, no duplicate keys, whole input must be one value; valid UTF-8 only, no lone
// surrogates, no number beyond a double, no NUL in a key. Safetensors headers, tokenizer.json and
// JSON lines use the same reader with a larger size limit. A value takes at most 4 times its text
// in memory, and the reader computes the size before it allocates.
#ifndef BASE_FORMAT_JSON_H
#define BASE_FORMAT_JSON_H

#include "base/host.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct json json; // a parsed value; immutable, so any thread may read it

// `what` names the input in errors: "what:line:column: ...", ST_DAMAGED. The value copies all
// texts.
NODISCARD status json_parse(const char *bytes, int64_t count, const char *what, json **out);
// For a folder that others made: refuses a link (FILE_READ_OWN). Skips a UTF-8 byte order mark.
NODISCARD status json_read(const host *h, const char *path, int64_t limit_bytes, json **out);
void json_free(json *value); // NULL is legal

// Parses some members of an object that stands on a line of data: values[i] is that of keys[i],
// NULL where the object has no such key or the line holds another value than an object; the caller
// frees each. Other members are only skipped and cost no memory: they may hold what Python writes
// or accepts (NaN, Infinity, a key twice, numbers beyond a double, 1,024 levels, any bytes in
// texts). A wanted key that comes twice is an error; NaN and Infinity count as null.
// `line`: the line's number in `what`, for errors.
enum { JSON_MEMBERS_MAX = 8 };
NODISCARD status json_parse_members(const char *bytes, int64_t count, const char *what,
                                    int64_t line, const char *const *keys, int64_t key_count,
                                    json **values);
// Parses a whole line of data. Members that cannot be read, as above, are left out if their key
// stands nowhere in `used`, a text such as the templates that the line will fill; NULL: all are
// used, so the line is read strictly.
NODISCARD status json_parse_row(const char *bytes, int64_t count, const char *what, int64_t line,
                                const char *used, json **out);

typedef enum json_kind {
    JSON_NONE,
    JSON_NULL_VALUE,
    JSON_BOOL,
    JSON_INT,  // a number written without point and exponent that fits int64_t
    JSON_REAL, // any other number
    JSON_TEXT,
    JSON_LIST,
    JSON_MAP
} json_kind;
json_kind json_kind_of(const json *value); // NONE for a NULL pointer
// Members are borrowed; NULL if absent or if `map` is no map. json_get takes O(log count).
const json *json_get(const json *map, const char *key);
const json *json_at(const json *list, int64_t index);
int64_t json_count(const json *list_or_map);
// Iterates a map in the file's order: 0..count-1, O(1) each. NULL beyond; value may be NULL.
const char *json_key_at(const json *map, int64_t index, const json **value);
const char *json_text(const json *value, const char *otherwise);
int64_t json_text_bytes(const json *value);             // length of a text, which may hold NUL
int64_t json_int(const json *value, int64_t otherwise); // also whole reals
double json_real(const json *value, double otherwise);  // also ints
bool json_bool(const json *value, bool otherwise);

#ifdef __cplusplus
}
#endif
#endif
