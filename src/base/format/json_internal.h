// The parts of the JSON reader that json.c and json_members.c share. Private to this folder.
#ifndef BASE_FORMAT_JSON_INTERNAL_H
#define BASE_FORMAT_JSON_INTERNAL_H

#include "base/format/json.h"

// The text that errors count lines and columns in.
typedef struct json_input {
    const char *begin, *end;
    const char *what;
    int64_t line; // number of its first line
} json_input;

// Fails with ST_DAMAGED: "what:line:column: expected, got ...", for the byte at `at`.
NODISCARD status json_complain(const json_input *in, const char *at, const char *expected);
// Parses [from, to) of the input, which must be one value.
NODISCARD status json_parse_part(const json_input *in, const char *from, const char *to,
                                 json **out);

#endif
