// Shared by the parts of the safetensors reader: one file's header, and an entry point without a
// file for tests and fuzzers.
#ifndef BASE_FORMAT_SAFETENSORS_INTERNAL_H
#define BASE_FORMAT_SAFETENSORS_INTERNAL_H

#include "base/format/safetensors.h"

enum {
    SAFETENSORS_MAX_HEADER_BYTES = 100000000,
    SAFETENSORS_MAX_NAME_BYTES = 1024,
    SAFETENSORS_MAX_FILES = 4096
};

typedef struct safetensors_pair {
    const char *key, *value;
} safetensors_pair;

// The contents of one file; the arena holds all of it except the tensors' bytes.
typedef struct safetensors_file {
    safetensors_entry *entries; // sorted by name
    int64_t count;
    safetensors_pair *metadata;
    int64_t metadata_count;
} safetensors_file;

// Checks all rules over a whole file in memory. `what` names it in errors.
NODISCARD status safetensors_parse(arena *a, const void *bytes, int64_t count, const char *what,
                                   safetensors_file *out);
// The same from the header alone: `bytes` holds the first `have` of the file's `count` bytes, at
// least 8 + the header's length. The entries' `data` is NULL.
NODISCARD status safetensors_parse_head(arena *a, const void *bytes, int64_t have, int64_t count,
                                        const char *what, safetensors_file *out);
// The entry of a name, or NULL.
const safetensors_entry *safetensors_search(const safetensors_entry *entries, int64_t count,
                                            const char *name);

#endif
