// Sentences broken into lines of a terminal's width.
#ifndef CLI_WORDS_H
#define CLI_WORDS_H

#include "base/text.h"

// Appends the sentences, each line after the first indented; no line end after the last.
NODISCARD status words_add(text *out, const char *sentences, int indent, int columns);

#endif
