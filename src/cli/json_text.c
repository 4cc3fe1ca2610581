// Quotes a text for JSON: a quotation mark, a backslash and control characters are escaped.
#include "cli/json_text.h"

status cli_add_json_text(text *t, const char *bytes, int64_t count)
{
    int64_t from = 0;
    TRY(text_add(t, "\""));
    for (int64_t i = 0; i < count; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        if (c != '"' && c != '\\' && c >= ' ') continue;
        TRY(text_add_bytes(t, bytes + from, i - from));
        from = i + 1;
        TRY(c < ' ' ? text_add(t, "\\u%04x", c) : text_add(t, "\\%c", c));
    }
    TRY(text_add_bytes(t, bytes + from, count - from));
    return text_add(t, "\"");
}
