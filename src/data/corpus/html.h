// The text of a page in HTML. Private to this folder.
#ifndef DATA_CORPUS_HTML_H
#define DATA_CORPUS_HTML_H

#include "data/tokenizer.h"

// Adds the visible text of a page to `out`, as UTF-8. latin: bytes that are no ASCII are of Windows
// 1252, otherwise of UTF-8. Any bytes are a page; time is linear in them.
NODISCARD status html_text(const char *bytes, int64_t count, bool latin, data_bytes *out);
// Whether the beginning of a page, or the content type that the server sent, names a Latin charset.
bool html_is_latin(const char *content_type, const char *bytes, int64_t count);

#endif
