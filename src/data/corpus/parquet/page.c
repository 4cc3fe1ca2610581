// The pages of a column: headers, levels, dictionaries, values.
#include "data/corpus/parquet/parquet.h"
#include "data/corpus/parquet/thrift.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE_DATA = 0, PAGE_INDEX = 1, PAGE_DICTIONARY = 2, PAGE_DATA_V2 = 3 };
enum { PLAIN = 0, PLAIN_DICTIONARY = 2, DELTA_LENGTH = 6, RLE_DICTIONARY = 8 };
enum { HEADER_MAX = 1 << 16, VALUES_MAX = 1 << 28 };

typedef struct page_header {
    int64_t type, bytes, packed_bytes;
    int64_t values, encoding;
    int64_t definition_bytes, repetition_bytes; // of version 2
    bool is_packed;
} page_header;

static status grow(const parquet_file *p, uint8_t **bytes, int64_t *capacity, int64_t wanted)
{
    if (*capacity >= wanted) return ST_OK;
    uint8_t *moved = realloc(*bytes, (size_t)wanted);
    if (moved == NULL)
        return fail(ST_NO_MEMORY, "%s: no memory for a page of %lld bytes", p->path,
                    (long long)wanted);
    *bytes = moved;
    *capacity = wanted;
    return ST_OK;
}

// The struct of a data or dictionary page.
static void read_part(thrift_reader *r, bool is_v2, page_header *h)
{
    int id = 0;
    thrift_type type;
    while (thrift_field(r, &id, &type)) {
        if (is_v2 && id == 7 && (type == THRIFT_TRUE || type == THRIFT_FALSE)) {
            h->is_packed = type == THRIFT_TRUE;
        } else if (type != THRIFT_I32) {
            thrift_skip(r, type);
        } else {
            const int64_t value = thrift_int(r);
            if (id == 1) h->values = value;
            if (id == (is_v2 ? 4 : 2)) h->encoding = value;
            if (is_v2 && id == 5) h->definition_bytes = value;
            if (is_v2 && id == 6) h->repetition_bytes = value;
        }
    }
}

// Reads the header at v->at and moves behind it.
static status read_header(parquet_values *v, page_header *h)
{
    uint8_t bytes[1024];
    int id = 0;
    thrift_type type;
    const int64_t count = min_i64((int64_t)sizeof(bytes), v->end - v->at);
    TRY(v->p->h->api->file_read(v->p->f, v->at, bytes, count));
    thrift_reader r = {.at = bytes, .end = bytes + count};
    *h = (page_header){.type = -1, .bytes = -1, .packed_bytes = -1, .is_packed = true};
    while (thrift_field(&r, &id, &type)) {
        if (type == THRIFT_I32 && id <= 3) {
            const int64_t value = thrift_int(&r);
            if (id == 1) h->type = value;
            if (id == 2) h->bytes = value;
            if (id == 3) h->packed_bytes = value;
        } else if (type == THRIFT_STRUCT && (id == 5 || id == 7 || id == 8)) {
            read_part(&r, id == 8, h);
        } else {
            thrift_skip(&r, type); // statistics may be long, but not longer than the buffer
        }
    }
    if (r.failed || h->bytes < 0 || h->bytes > PARQUET_PAGE_MAX || h->packed_bytes < 0 ||
        h->values < 0 || h->values > VALUES_MAX || h->definition_bytes < 0 ||
        h->repetition_bytes < 0) {
        return parquet_damaged(v->p, v->at, "the header of a page");
    }
    v->at += r.at - bytes;
    if (h->packed_bytes > v->end - v->at) return parquet_damaged(v->p, v->at, "a page is cut");
    return ST_OK;
}

// Reads and unpacks the page into `to`, which it grows.
static status read_page(parquet_values *v, const page_header *h, uint8_t **to, int64_t *capacity)
{
    const parquet_file *p = v->p;
    const int64_t levels = h->type == PAGE_DATA_V2 ? h->definition_bytes + h->repetition_bytes : 0;
    if (levels > h->packed_bytes || levels > h->bytes)
        return parquet_damaged(p, v->at, "the levels of a page");
    // A few bytes that unpack to a gigabyte are an attack on the memory.
    if (h->bytes > (64 << 20) && h->bytes / 4096 > h->packed_bytes) {
        return parquet_damaged(p, v->at, "a page unpacks to more than 4096 times its bytes");
    }
    TRY(grow(p, &v->packed, &v->packed_capacity, h->packed_bytes + 1));
    TRY(grow(p, to, capacity, h->bytes + 1));
    TRY(p->h->api->file_read(p->f, v->at, v->packed, h->packed_bytes));
    v->at += h->packed_bytes;
    if (levels > 0) memcpy(*to, v->packed, (size_t)levels);
    const int32_t codec = h->is_packed ? v->column->chunks[v->group].codec : 0;
    return parquet_unpack(p, codec, v->packed + levels, h->packed_bytes - levels, *to + levels,
                          h->bytes - levels);
}

// Finds the entries of a dictionary page.
static status read_dictionary(parquet_values *v, const page_header *h)
{
    int64_t capacity = 0, at = 0;
    free(v->dictionary);
    free(v->entries);
    v->dictionary = NULL;
    v->entries = NULL;
    v->entry_count = 0;
    if (h->encoding != PLAIN && h->encoding != PLAIN_DICTIONARY) {
        return parquet_damaged(v->p, v->at, "a dictionary that is not plain");
    }
    if (h->values > h->bytes / 4)
        return parquet_damaged(v->p, v->at, "a dictionary without its entries");
    TRY(read_page(v, h, &v->dictionary, &capacity));
    v->dictionary_bytes = h->bytes;
    v->entries = malloc((size_t)(h->values + 1) * sizeof(*v->entries));
    if (v->entries == NULL) return fail(ST_NO_MEMORY, "%s: no memory for a dictionary", v->p->path);
    for (int64_t i = 0; i < h->values; i++) {
        uint32_t length = 0;
        if (h->bytes - at < 4)
            return parquet_damaged(v->p, v->at, "a dictionary without its entries");
        memcpy(&length, v->dictionary + at, sizeof(length));
        if (length > h->bytes - at - 4)
            return parquet_damaged(v->p, v->at, "a dictionary without its entries");
        v->entries[i] = at;
        at += 4 + length;
    }
    v->entry_count = h->values;
    return ST_OK;
}

// Reads which values of the page are there, and returns their number; data_at moves behind them.
static status read_levels(parquet_values *v, const page_header *h, int64_t *present)
{
    v->level_at = 0;
    v->data_at = h->type == PAGE_DATA_V2 ? h->definition_bytes + h->repetition_bytes : 0;
    *present = h->values;
    TRY(grow(v->p, &v->levels, &v->levels_capacity, h->values + 1));
    memset(v->levels, 1, (size_t)h->values);
    if (!v->column->optional) return ST_OK;
    const uint8_t *from = v->page;
    int64_t bytes = h->definition_bytes;
    if (h->type == PAGE_DATA_V2) {
        from += h->repetition_bytes;
    } else {
        uint32_t length = 0;
        if (h->bytes < 4) return parquet_damaged(v->p, v->at, "a page without levels");
        memcpy(&length, v->page, sizeof(length));
        if (length > h->bytes - 4) return parquet_damaged(v->p, v->at, "a page without levels");
        from += 4;
        bytes = length;
        v->data_at = 4 + bytes;
    }
    if (v->indices_capacity < h->values) {
        uint32_t *moved = realloc(v->indices, (size_t)(h->values + 1) * sizeof(*moved));
        if (moved == NULL) return fail(ST_NO_MEMORY, "%s: no memory for a page", v->p->path);
        v->indices = moved;
        v->indices_capacity = h->values;
    }
    if (parquet_hybrid(from, bytes, 1, h->values, v->indices) < 0) {
        return parquet_damaged(v->p, v->at, "the levels of a page");
    }
    *present = 0;
    for (int64_t i = 0; i < h->values; i++) {
        v->levels[i] = v->indices[i] == 1;
        *present += v->levels[i];
    }
    return ST_OK;
}

static status reserve_indices(parquet_values *v, int64_t count)
{
    if (v->indices_capacity >= count) return ST_OK;
    uint32_t *moved = realloc(v->indices, (size_t)(count + 1) * sizeof(*moved));
    if (moved == NULL) return fail(ST_NO_MEMORY, "%s: no memory for a page", v->p->path);
    v->indices = moved;
    v->indices_capacity = count;
    return ST_OK;
}

static status read_data(parquet_values *v, const page_header *h)
{
    int64_t present = 0;
    TRY(read_page(v, h, &v->page, &v->page_capacity));
    v->page_bytes = h->bytes;
    TRY(read_levels(v, h, &present));
    v->encoding = (int32_t)h->encoding;
    v->index_at = v->index_count = 0;
    if (v->encoding == PLAIN_DICTIONARY) v->encoding = RLE_DICTIONARY;
    if (v->encoding == RLE_DICTIONARY || v->encoding == DELTA_LENGTH) {
        const uint8_t *from = v->page + v->data_at;
        const int64_t bytes = h->bytes - v->data_at;
        int64_t used = 0;
        TRY(reserve_indices(v, present));
        if (v->encoding == DELTA_LENGTH) {
            used = parquet_deltas(from, bytes, present, v->indices);
        } else if (present > 0) {
            used =
                bytes > 0 ? parquet_hybrid(from + 1, bytes - 1, from[0], present, v->indices) : -1;
        }
        if (used < 0) return parquet_damaged(v->p, v->at, "the numbers of a page");
        v->data_at += used;
        v->index_count = present;
    } else if (v->encoding != PLAIN) {
        return fail(
            ST_UNSUPPORTED,
            "%s: the encoding %lld of column \"%s\" is not supported; plain, dictionary and "
            "delta-length are",
            v->p->path, (long long)h->encoding, v->column->name);
    }
    v->page_left = h->values;
    v->chunk_left -= h->values;
    return ST_OK;
}

void parquet_values_begin(const parquet_file *p, int column, parquet_values *out)
{
    *out = (parquet_values){.p = p, .column = &p->columns[column], .group = -1};
}

// Reads pages until one holds values. *more false: the last group is read.
static status next_page(parquet_values *v, bool *more)
{
    for (*more = true; v->page_left == 0;) {
        page_header h;
        if (v->chunk_left <= 0) {
            if (v->group + 1 >= v->p->group_count) {
                *more = false;
                return ST_OK;
            }
            const parquet_chunk *c = &v->column->chunks[++v->group];
            v->at = c->at;
            v->end = c->at + c->bytes;
            v->chunk_left = c->values;
            v->entry_count = 0;
            continue;
        }
        if (v->at >= v->end) return parquet_damaged(v->p, v->at, "a column without its last pages");
        TRY(read_header(v, &h));
        if (h.type == PAGE_DICTIONARY) {
            TRY(read_dictionary(v, &h));
        } else if (h.type == PAGE_DATA || h.type == PAGE_DATA_V2) {
            TRY(read_data(v, &h));
        } else {
            v->at += h.packed_bytes; // an index page
        }
    }
    return ST_OK;
}

static status take_plain(parquet_values *v, const uint8_t *from, int64_t bytes, int64_t *at,
                         const char **value, int64_t *count)
{
    uint32_t length = 0;
    if (bytes - *at < 4) return parquet_damaged(v->p, v->at, "a page without its values");
    memcpy(&length, from + *at, sizeof(length));
    if (length > bytes - *at - 4) return parquet_damaged(v->p, v->at, "a page without its values");
    *value = (const char *)from + *at + 4;
    *count = length;
    *at += 4 + (int64_t)length;
    return ST_OK;
}

status parquet_values_next(parquet_values *v, const char **bytes, int64_t *count, bool *more)
{
    *bytes = NULL;
    *count = 0;
    TRY(next_page(v, more));
    if (!*more) return ST_OK;
    v->page_left--;
    if (v->levels[v->level_at++] == 0) return ST_OK;
    if (v->encoding == PLAIN) {
        return take_plain(v, v->page, v->page_bytes, &v->data_at, bytes, count);
    }
    if (v->index_at >= v->index_count)
        return parquet_damaged(v->p, v->at, "a page without its values");
    const int64_t number = v->indices[v->index_at++];
    if (v->encoding == RLE_DICTIONARY) {
        if (number >= v->entry_count)
            return parquet_damaged(v->p, v->at, "an entry beyond the dictionary");
        int64_t at = v->entries[number];
        return take_plain(v, v->dictionary, v->dictionary_bytes, &at, bytes, count);
    }
    if (number > v->page_bytes - v->data_at)
        return parquet_damaged(v->p, v->at, "a page without its values");
    *bytes = (const char *)v->page + v->data_at;
    *count = number;
    v->data_at += number;
    return ST_OK;
}

void parquet_values_deinit(parquet_values *v)
{
    free(v->packed);
    free(v->page);
    free(v->levels);
    free(v->dictionary);
    free(v->entries);
    free(v->indices);
    *v = (parquet_values){.group = -1};
}
