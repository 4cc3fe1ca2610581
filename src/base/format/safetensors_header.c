// The header of one safetensors file, checked completely before the reader uses it.
//
// The order of the checks matters: lengths before reading, limits before allocating,
// multiplications with overflow checks, and at the end the sorted ranges must be contiguous from
// the first byte of the data to the last. So no two tensors share bytes, and no byte of the data
// belongs to no tensor.
#include "base/format/json.h"
#include "base/format/safetensors_internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct header_reader {
    arena *a;
    const char *what;
    const unsigned char *bytes;
    bool whole; // bytes holds the data too
    int64_t data_begin, data_bytes;
} header_reader;

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const safetensors_entry *)a)->name, ((const safetensors_entry *)b)->name);
}

static int compare_ranges(const void *a, const void *b)
{
    const safetensors_entry *x = *(const safetensors_entry *const *)a;
    const safetensors_entry *y = *(const safetensors_entry *const *)b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

const safetensors_entry *safetensors_search(const safetensors_entry *entries, int64_t count,
                                            const char *name)
{
    if (count == 0) return NULL;
    const safetensors_entry key = {.name = name};
    return bsearch(&key, entries, (size_t)count, sizeof(key), compare_names);
}

static status read_length(const header_reader *r, int64_t count, int64_t *out)
{
    if (count < 8) {
        return fail(ST_DAMAGED, "%s: %lld bytes, a safetensors file has at least 8", r->what,
                    (long long)count);
    }
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--) length = length << 8 | r->bytes[i];
    if (length > SAFETENSORS_MAX_HEADER_BYTES) {
        return fail(ST_DAMAGED,
                    "%s: claims a header of %llu bytes, at most %d are allowed; is it "
                    "a safetensors file?",
                    r->what, (unsigned long long)length, SAFETENSORS_MAX_HEADER_BYTES);
    }
    if ((int64_t)length > count - 8) {
        return fail(ST_DAMAGED, "%s: claims a header of %llu bytes, but %lld follow: cut short?",
                    r->what, (unsigned long long)length, (long long)(count - 8));
    }
    if (length < 2 || r->bytes[8] != '{') {
        return fail(ST_DAMAGED, "%s: the header at byte 8 does not start with '{'", r->what);
    }
    *out = (int64_t)length;
    return ST_OK;
}

static status read_shape(const header_reader *r, const json *shape, safetensors_entry *e)
{
    const int64_t ndim = json_count(shape);
    if (json_kind_of(shape) != JSON_LIST) {
        return fail(ST_DAMAGED, "%s: tensor %s: \"shape\" is not a list", r->what, e->name);
    }
    if (ndim > SAFETENSORS_MAX_DIMS) {
        return fail(ST_DAMAGED, "%s: tensor %s: %lld dims, at most %d are allowed", r->what,
                    e->name, (long long)ndim, SAFETENSORS_MAX_DIMS);
    }
    int64_t bytes = dtype_bytes(e->type);
    for (int64_t i = 0; i < ndim; i++) {
        const json *dim = json_at(shape, i);
        if (json_kind_of(dim) != JSON_INT || json_int(dim, -1) < 0) {
            return fail(ST_DAMAGED,
                        "%s: tensor %s: dim %lld is not a whole number from 0 to 2^63-1", r->what,
                        e->name, (long long)i);
        }
        e->dims[i] = json_int(dim, 0);
    }
    e->ndim = (int)ndim;
    bool empty = false; // 2^62 x 2^62 x 0 is refused too: the product of some dims overflows
    for (int i = 0; i < e->ndim; i++) {
        empty = empty || e->dims[i] == 0;
        if (!size_mul(bytes, max_i64(e->dims[i], 1), &bytes)) {
            return fail(ST_DAMAGED, "%s: tensor %s: the shape's size overflows", r->what, e->name);
        }
    }
    e->bytes = empty ? 0 : bytes;
    return ST_OK;
}

static status read_range(const header_reader *r, const json *offsets, safetensors_entry *e)
{
    const json *first = json_at(offsets, 0), *second = json_at(offsets, 1);
    const bool whole = json_kind_of(offsets) == JSON_LIST && json_count(offsets) == 2 &&
                       json_kind_of(first) == JSON_INT && json_kind_of(second) == JSON_INT;
    if (!whole) {
        return fail(ST_DAMAGED,
                    "%s: tensor %s: \"data_offsets\" is not a list of two whole numbers", r->what,
                    e->name);
    }
    const int64_t begin = json_int(first, -1), end = json_int(second, -1);
    if (begin < 0 || end < begin || end > r->data_bytes) {
        return fail(ST_DAMAGED,
                    "%s: tensor %s: bytes %lld to %lld do not lie in the %lld bytes of "
                    "data",
                    r->what, e->name, (long long)begin, (long long)end, (long long)r->data_bytes);
    }
    if (end - begin != e->bytes) {
        return fail(ST_DAMAGED,
                    "%s: tensor %s: its shape and type take %lld bytes, its offsets "
                    "hold %lld",
                    r->what, e->name, (long long)e->bytes, (long long)(end - begin));
    }
    e->begin = r->data_begin + begin;
    e->data = r->whole ? r->bytes + e->begin : NULL;
    return ST_OK;
}

static status read_entry(const header_reader *r, const char *name, const json *value,
                         safetensors_entry *e)
{
    if (strlen(name) > SAFETENSORS_MAX_NAME_BYTES || name[0] == '\0') {
        return fail(ST_DAMAGED, "%s: a tensor's name has %lld bytes, 1 to %d are allowed: %.64s",
                    r->what, (long long)strlen(name), SAFETENSORS_MAX_NAME_BYTES, name);
    }
    if (json_kind_of(value) != JSON_MAP) {
        return fail(ST_DAMAGED, "%s: tensor %s: its description is not a map", r->what, name);
    }
    char *copy;
    TRY(arena_strdup(r->a, name, &copy));
    e->name = copy;
    const char *type = json_text(json_get(value, "dtype"), NULL);
    if (type == NULL) return fail(ST_DAMAGED, "%s: tensor %s: no \"dtype\"", r->what, name);
    bool known = false;
    for (int i = 0; i < DTYPE_COUNT && !known; i++) {
        known = strcmp(dtype_safetensors_name((dtype)i), type) == 0;
        if (known) e->type = (dtype)i;
    }
    if (!known) {
        return fail(ST_DAMAGED,
                    "%s: tensor %s: type \"%.40s\" is unknown; F64, F32, F16, BF16, "
                    "F8_E4M3, F8_E5M2, I64, I32, I16, I8, U64, U32, U16, U8, BOOL can be read",
                    r->what, name, type);
    }
    TRY(read_shape(r, json_get(value, "shape"), e));
    return read_range(r, json_get(value, "data_offsets"), e);
}

static status read_metadata(const header_reader *r, const json *map, safetensors_file *out)
{
    if (json_kind_of(map) != JSON_MAP) {
        return fail(ST_DAMAGED, "%s: \"__metadata__\" is not a map of texts", r->what);
    }
    out->metadata_count = json_count(map);
    TRY(arena_new(r->a, out->metadata_count, &out->metadata));
    for (int64_t i = 0; i < out->metadata_count; i++) {
        const json *value;
        const char *key = json_key_at(map, i, &value);
        if (json_kind_of(value) != JSON_TEXT) {
            return fail(ST_DAMAGED, "%s: \"__metadata__\": the value of \"%.100s\" is not a text",
                        r->what, key);
        }
        char *key_copy, *value_copy;
        TRY(arena_strdup(r->a, key, &key_copy));
        TRY(arena_strdup(r->a, json_text(value, ""), &value_copy));
        out->metadata[i] = (safetensors_pair){.key = key_copy, .value = value_copy};
    }
    return ST_OK;
}

// The ranges must follow each other without hole, overlap or rest.
static status check_cover(const header_reader *r, const safetensors_file *f)
{
    const safetensors_entry **order;
    TRY(arena_new(r->a, f->count, &order));
    for (int64_t i = 0; i < f->count; i++) order[i] = &f->entries[i];
    qsort(order, (size_t)f->count, sizeof(*order), compare_ranges);
    int64_t at = r->data_begin;
    for (int64_t i = 0; i < f->count; i++) {
        if (order[i]->begin != at) {
            return fail(ST_DAMAGED,
                        "%s: tensor %s begins at byte %lld of the data, %lld expected: "
                        "the tensors %s",
                        r->what, order[i]->name, (long long)(order[i]->begin - r->data_begin),
                        (long long)(at - r->data_begin),
                        order[i]->begin < at ? "overlap" : "leave a hole");
        }
        at += order[i]->bytes;
    }
    if (at != r->data_begin + r->data_bytes) {
        return fail(ST_DAMAGED, "%s: the tensors end at byte %lld of the data, which has %lld",
                    r->what, (long long)(at - r->data_begin), (long long)r->data_bytes);
    }
    return ST_OK;
}

static status read_header(const header_reader *r, const json *header, safetensors_file *out)
{
    const int64_t count = json_count(header);
    *out = (safetensors_file){0};
    TRY(arena_new(r->a, count, &out->entries));
    for (int64_t i = 0; i < count; i++) {
        const json *value;
        const char *name = json_key_at(header, i, &value);
        if (strcmp(name, "__metadata__") == 0) {
            TRY(read_metadata(r, value, out));
        } else {
            TRY(read_entry(r, name, value, &out->entries[out->count++]));
        }
    }
    qsort(out->entries, (size_t)out->count, sizeof(*out->entries), compare_names);
    return check_cover(r, out);
}

status safetensors_parse_head(arena *a, const void *bytes, int64_t have, int64_t count,
                              const char *what, safetensors_file *out)
{
    header_reader r = {.a = a, .what = what, .bytes = bytes, .whole = have == count};
    int64_t length;
    TRY(read_length(&r, count, &length));
    ASSERT(8 + length <= have);
    r.data_begin = 8 + length;
    r.data_bytes = count - r.data_begin;
    json *header;
    const status parsed = json_parse((const char *)bytes + 8, length, what, &header);
    if (parsed != ST_OK) {
        note("reading the safetensors header, which starts at byte 8");
        return parsed;
    }
    const status st = read_header(&r, header, out);
    json_free(header);
    return st;
}

status safetensors_parse(arena *a, const void *bytes, int64_t count, const char *what,
                         safetensors_file *out)
{
    return safetensors_parse_head(a, bytes, count, count, what, out);
}
