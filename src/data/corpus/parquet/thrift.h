// Reads Thrift's compact protocol, in which Parquet writes its metadata. Private to this folder.
//
// A reader stands in a struct: thrift_field gives the next field's id and type, and the caller
// reads or skips its value. An error is kept, and every later call then does nothing, so a caller
// looks at `failed` once at the end.
#ifndef DATA_CORPUS_PARQUET_THRIFT_H
#define DATA_CORPUS_PARQUET_THRIFT_H

#include "base/base.h"

typedef enum thrift_type {
    THRIFT_STOP = 0,
    THRIFT_TRUE = 1,
    THRIFT_FALSE = 2,
    THRIFT_I8 = 3,
    THRIFT_I16 = 4,
    THRIFT_I32 = 5,
    THRIFT_I64 = 6,
    THRIFT_DOUBLE = 7,
    THRIFT_BINARY = 8,
    THRIFT_LIST = 9,
    THRIFT_SET = 10,
    THRIFT_MAP = 11,
    THRIFT_STRUCT = 12
} thrift_type;

typedef struct thrift_reader {
    const uint8_t *at, *end;
    bool failed;
    int depth; // structs and lists within each other, of what is skipped
} thrift_reader;

// The next field of a struct whose last field was *id (0 at its beginning). False at its end.
bool thrift_field(thrift_reader *r, int *id, thrift_type *type);
int64_t thrift_int(thrift_reader *r); // of I16, I32 or I64
// The bytes of a BINARY value, borrowed from the input.
const char *thrift_binary(thrift_reader *r, int64_t *count);
// The number of items of a list, each of which takes at least a byte.
int64_t thrift_list(thrift_reader *r, thrift_type *type);
void thrift_skip(thrift_reader *r, thrift_type type);

#endif
