// Checked access to FlatBuffers.
#include "data/corpus/arrow/flat.h"

#include <string.h>

int64_t flat_read(const flat *f, int64_t at, int width)
{
    int64_t value = 0;
    if (at < 0 || at > f->count - width) return 0;
    uint64_t bits = 0;
    for (int i = width; i-- > 0;) bits = bits << 8 | f->bytes[at + i];
    if (width == 8) {
        memcpy(&value, &bits, sizeof(value));
        return value;
    }
    const uint64_t sign = UINT64_C(1) << (8 * width - 1);
    return (bits & sign) != 0 ? (int64_t)bits - (int64_t)(sign << 1) : (int64_t)bits;
}

// The place that an unsigned offset at `at` refers to; -1: outside.
static int64_t follow(const flat *f, int64_t at)
{
    const int64_t offset = flat_read(f, at, 4) & 0xffffffff;
    return at < 0 || offset == 0 || at + offset > f->count - 4 ? -1 : at + offset;
}

int64_t flat_root(const flat *f)
{
    return follow(f, 0);
}

// Where a field lies; -1: absent.
static int64_t place_of(const flat *f, int64_t table, int field)
{
    if (table < 0 || table > f->count - 4) return -1;
    const int64_t fields = table - flat_read(f, table, 4);
    if (fields < 0 || fields > f->count - 4) return -1;
    const int64_t size = flat_read(f, fields, 2) & 0xffff, entry = 4 + 2 * (int64_t)field;
    if (entry + 2 > size) return -1;
    const int64_t offset = flat_read(f, fields + entry, 2) & 0xffff;
    return offset == 0 || table + offset >= f->count ? -1 : table + offset;
}

int64_t flat_int(const flat *f, int64_t table, int field, int width, int64_t otherwise)
{
    const int64_t at = place_of(f, table, field);
    return at < 0 || at > f->count - width ? otherwise : flat_read(f, at, width);
}

int64_t flat_table(const flat *f, int64_t table, int field)
{
    return follow(f, place_of(f, table, field));
}

int64_t flat_vector(const flat *f, int64_t table, int field, int64_t element_bytes, int64_t *count)
{
    const int64_t at = flat_table(f, table, field);
    *count = 0;
    if (at < 0) return -1;
    const int64_t n = flat_read(f, at, 4) & 0xffffffff;
    if (n > (f->count - at - 4) / element_bytes) return -1;
    *count = n;
    return at + 4;
}

int64_t flat_element(const flat *f, int64_t elements, int64_t i)
{
    return elements < 0 ? -1 : follow(f, elements + 4 * i);
}

const char *flat_text(const flat *f, int64_t table, int field, int64_t *count)
{
    const int64_t at = flat_vector(f, table, field, 1, count);
    return at < 0 ? "" : (const char *)f->bytes + at;
}
