// Files of share/text that the build put into the program, compressed (tools/embed_files.c).
#ifndef CLI_EMBEDDED_H
#define CLI_EMBEDDED_H

#include <stddef.h>

typedef struct cli_embedded_file {
    const char *name; // "kjv.txt"
    const unsigned char *packed;
    size_t packed_bytes, bytes;
} cli_embedded_file;
extern const cli_embedded_file cli_embedded_files[]; // sorted by name; ends with an empty row

#endif
