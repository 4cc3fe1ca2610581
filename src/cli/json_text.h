// A text of any bytes in JSON.
#ifndef CLI_JSON_TEXT_H
#define CLI_JSON_TEXT_H

#include "base/text.h"

// Adds UTF-8, which may hold NUL, quoted and escaped.
NODISCARD status cli_add_json_text(text *t, const char *bytes, int64_t count);

#endif
