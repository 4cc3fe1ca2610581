// Small JSON files, with the limits of hostile input: jansson behind a depth and size check.
//
// Depth at most 64, no duplicate keys, whole input must be one value. Bigger formats (safetensors
// headers, tokenizer.json, JSON lines) use the same reader with a larger size limit.
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include "base/host.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct json_t json; // jansson's value; borrowed accessors below keep jansson out of callers

NODISCARD status json_parse(const char *bytes, int64_t count, const char *what, json **out);
NODISCARD status json_read(const host *h, const char *path, int64_t limit_bytes, json **out);
void json_free(json *value); // NULL is legal

typedef enum json_kind {
    JSON_NONE,
    JSON_NULL_VALUE,
    JSON_BOOL,
    JSON_INT,
    JSON_REAL,
    JSON_TEXT,
    JSON_LIST,
    JSON_MAP
} json_kind;
json_kind json_kind_of(const json *value); // NONE for a NULL pointer
// Members are borrowed; NULL if absent or `map` is no map.
const json *json_get(const json *map, const char *key);
const json *json_at(const json *list, int64_t index);
int64_t json_count(const json *list_or_map);
// Iterates a map in the file's order: 0..count-1.
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
