// Thrift's compact protocol: variable-length integers, fields by the difference of their ids.
#include "data/corpus/parquet/thrift.h"

enum { DEPTH_MAX = 32 };

static uint8_t read_byte(thrift_reader *r)
{
    if (r->failed || r->at == r->end) {
        r->failed = true;
        return 0;
    }
    return *r->at++;
}

static uint64_t read_varint(thrift_reader *r)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        const uint8_t byte = read_byte(r);
        value |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) return value;
    }
    r->failed = true;
    return 0;
}

int64_t thrift_int(thrift_reader *r)
{
    const uint64_t zigzag = read_varint(r);
    return (int64_t)(zigzag >> 1) ^ -(int64_t)(zigzag & 1);
}

bool thrift_field(thrift_reader *r, int *id, thrift_type *type)
{
    const uint8_t head = read_byte(r);
    *type = (thrift_type)(head & 0xf);
    if (r->failed || *type == THRIFT_STOP) return false;
    if (*type > THRIFT_STRUCT) {
        r->failed = true;
        return false;
    }
    const int64_t next = head >> 4 != 0 ? *id + (head >> 4) : thrift_int(r);
    if (r->failed || next < 0 || next > INT16_MAX) {
        r->failed = true;
        return false;
    }
    *id = (int)next;
    return true;
}

const char *thrift_binary(thrift_reader *r, int64_t *count)
{
    const uint64_t n = read_varint(r);
    *count = 0;
    if (r->failed || n > (uint64_t)(r->end - r->at)) {
        r->failed = true;
        return "";
    }
    const char *bytes = (const char *)r->at;
    r->at += n;
    *count = (int64_t)n;
    return bytes;
}

int64_t thrift_list(thrift_reader *r, thrift_type *type)
{
    const uint8_t head = read_byte(r);
    const uint64_t n = head >> 4 < 15 ? (uint64_t)(head >> 4) : read_varint(r);
    *type = (thrift_type)(head & 0xf);
    if (r->failed || n > (uint64_t)(r->end - r->at) || *type > THRIFT_STRUCT) {
        r->failed = true;
        return 0;
    }
    return (int64_t)n;
}

// Skips `n` items, or pairs of a map.
static void skip_items(thrift_reader *r, int64_t n, thrift_type first, thrift_type second)
{
    for (int64_t i = 0; i < n && !r->failed; i++) {
        // A bool in a list takes a byte, and none as a field.
        if (first <= THRIFT_FALSE) (void)read_byte(r);
        if (first > THRIFT_FALSE) thrift_skip(r, first);
        if (second == THRIFT_STOP) continue;
        if (second <= THRIFT_FALSE) (void)read_byte(r);
        if (second > THRIFT_FALSE) thrift_skip(r, second);
    }
}

static void skip_map(thrift_reader *r)
{
    const uint64_t n = read_varint(r);
    if (n == 0) return;
    const uint8_t types = read_byte(r);
    if (r->failed || n > (uint64_t)(r->end - r->at)) {
        r->failed = true;
        return;
    }
    skip_items(r, (int64_t)n, (thrift_type)(types >> 4), (thrift_type)(types & 0xf));
}

// NOLINTNEXTLINE(misc-no-recursion): DEPTH_MAX limits it
void thrift_skip(thrift_reader *r, thrift_type type)
{
    int64_t count = 0;
    int id = 0;
    thrift_type item;
    if (r->depth == DEPTH_MAX) r->failed = true;
    if (r->failed) return;
    r->depth++;
    switch (type) {
    case THRIFT_TRUE:
    case THRIFT_FALSE:
        break;
    case THRIFT_I8:
        (void)read_byte(r);
        break;
    case THRIFT_I16:
    case THRIFT_I32:
    case THRIFT_I64:
        (void)read_varint(r);
        break;
    case THRIFT_DOUBLE:
        for (int i = 0; i < 8; i++) (void)read_byte(r);
        break;
    case THRIFT_BINARY:
        (void)thrift_binary(r, &count);
        break;
    case THRIFT_LIST:
    case THRIFT_SET:
        count = thrift_list(r, &item);
        skip_items(r, count, item, THRIFT_STOP);
        break;
    case THRIFT_MAP:
        skip_map(r);
        break;
    case THRIFT_STRUCT:
        while (thrift_field(r, &id, &item)) thrift_skip(r, item);
        break;
    case THRIFT_STOP:
        r->failed = true;
        break;
    }
    r->depth--;
}
