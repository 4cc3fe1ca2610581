// Reads the fields of a protocol buffer message. Private to this folder.
//
// https://protobuf.dev/programming-guides/encoding/: a field is a number and a wire type, then a
// varint, 8 bytes, a length and bytes, or 4 bytes.
#ifndef DATA_TOKENIZER_CONVERT_PROTOBUF_H
#define DATA_TOKENIZER_CONVERT_PROTOBUF_H

#include "base/base.h"

typedef struct protobuf {
    const char *bytes;
    int64_t count, at;
} protobuf;

typedef struct protobuf_field {
    int64_t number; // -1: the end
    uint64_t value; // of a varint or of fixed bytes
    const char *bytes;
    int64_t count; // of bytes; -1 for a number
} protobuf_field;

// The next field; number -1 at the end. False where the message is damaged.
bool protobuf_next(protobuf *p, protobuf_field *out);

#endif
