// Reads the fields of a protocol buffer message.
#include "data/tokenizer/convert/protobuf.h"

#include <string.h>

static bool read_varint(protobuf *p, uint64_t *out)
{
    *out = 0;
    for (int shift = 0; shift < 64 && p->at < p->count; shift += 7) {
        const uint8_t byte = (uint8_t)p->bytes[p->at++];
        *out |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return true;
    }
    return false;
}

static bool read_fixed(protobuf *p, int bytes, uint64_t *out)
{
    *out = 0;
    if (p->count - p->at < bytes) return false;
    for (int i = 0; i < bytes; i++) *out |= (uint64_t)(uint8_t)p->bytes[p->at + i] << 8 * i;
    p->at += bytes;
    return true;
}

bool protobuf_next(protobuf *p, protobuf_field *out)
{
    uint64_t key = 0;
    *out = (protobuf_field){.number = -1, .count = -1};
    if (p->at >= p->count) return true;
    if (!read_varint(p, &key) || key >> 3 == 0 || key >> 3 > INT32_MAX) return false;
    out->number = (int64_t)(key >> 3);
    switch (key & 7) {
    case 0:
        return read_varint(p, &out->value);
    case 1:
        return read_fixed(p, 8, &out->value);
    case 5:
        return read_fixed(p, 4, &out->value);
    case 2:
        if (!read_varint(p, &out->value) || out->value > (uint64_t)(p->count - p->at)) return false;
        out->bytes = p->bytes + p->at;
        out->count = (int64_t)out->value;
        p->at += out->count;
        return true;
    default:
        return false;
    }
}
