// Line breaking for a terminal: wraps sentences at its width.
#ifndef CLI_WRAP_H
#define CLI_WRAP_H

#include "base/text.h"

// Appends the sentences and indents each line after the first. Adds no line end after the last.
NODISCARD status wrap_sentences(text *out, const char *sentences, int indent, int columns);

#endif
