// Files of share/ that the build embeds into the program, compressed (tools/embed_files.c).
#ifndef CLI_EMBEDDED_H
#define CLI_EMBEDDED_H

#include "base/arena.h"

typedef struct cli_embedded_file {
    const char *name; // "kjv.txt"
    const unsigned char *packed;
    size_t packed_bytes, bytes;
} cli_embedded_file;
extern const cli_embedded_file cli_embedded_files[]; // in order of name; ends with an empty row

// Reads the first file whose name ends with `ending`. A NUL follows the last byte and is not
// counted.
NODISCARD status cli_embedded_read(arena *a, const char *ending, char **out, int64_t *bytes);

#endif
