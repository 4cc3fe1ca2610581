// Walks the fields of a schema, whose nodes and buffers come in the order of the fields, and reads
// the buffers of one column. Dictionaries have a file of their own.
#include "data/corpus/arrow/arrow.h"
#include "data/corpus/lz4.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

// The members of the union Type, in the order of Schema.fbs.
typedef enum arrow_type {
    TYPE_NULL = 1,
    TYPE_INT,
    TYPE_FLOAT,
    TYPE_BINARY,
    TYPE_UTF8,
    TYPE_BOOL,
    TYPE_DECIMAL,
    TYPE_DATE,
    TYPE_TIME,
    TYPE_TIMESTAMP,
    TYPE_INTERVAL,
    TYPE_LIST,
    TYPE_STRUCT,
    TYPE_UNION,
    TYPE_FIXED_BINARY,
    TYPE_FIXED_LIST,
    TYPE_MAP,
    TYPE_DURATION,
    TYPE_LARGE_BINARY,
    TYPE_LARGE_UTF8,
    TYPE_LARGE_LIST,
    TYPE_RUN_END,
    TYPE_BINARY_VIEW,
    TYPE_UTF8_VIEW,
    TYPE_LIST_VIEW,
    TYPE_LARGE_LIST_VIEW,
    TYPE_COUNT
} arrow_type;

// Buffers of one array of each type; -1: it depends, or has no fixed number.
static const int16_t buffers_of[TYPE_COUNT] = {[TYPE_NULL] = 0,         [TYPE_INT] = 2,
                                               [TYPE_FLOAT] = 2,        [TYPE_BINARY] = 3,
                                               [TYPE_UTF8] = 3,         [TYPE_BOOL] = 2,
                                               [TYPE_DECIMAL] = 2,      [TYPE_DATE] = 2,
                                               [TYPE_TIME] = 2,         [TYPE_TIMESTAMP] = 2,
                                               [TYPE_INTERVAL] = 2,     [TYPE_LIST] = 2,
                                               [TYPE_STRUCT] = 1,       [TYPE_UNION] = -1,
                                               [TYPE_FIXED_BINARY] = 2, [TYPE_FIXED_LIST] = 1,
                                               [TYPE_MAP] = 2,          [TYPE_DURATION] = 2,
                                               [TYPE_LARGE_BINARY] = 3, [TYPE_LARGE_UTF8] = 3,
                                               [TYPE_LARGE_LIST] = 2,   [TYPE_RUN_END] = 0,
                                               [TYPE_BINARY_VIEW] = -1, [TYPE_UTF8_VIEW] = -1,
                                               [TYPE_LIST_VIEW] = 3,    [TYPE_LARGE_LIST_VIEW] = 3};

typedef struct schema_walk {
    const flat *f;
    const char *path;
    int64_t nodes, buffers;
} schema_walk;

static status refuse(const schema_walk *w, int64_t field, const char *what)
{
    int64_t count = 0;
    const char *name = flat_text(w->f, field, 0, &count);
    return fail(ST_UNSUPPORTED, "%s: the column \"%.*s\" %s", w->path, (int)min_i64(count, 80),
                name, what);
}

// Steps over the nodes and buffers of a field and of the fields within it.
static status step_over(schema_walk *w, int64_t field, int depth)
{
    const int64_t type = flat_int(w->f, field, 2, 1, 0) & 0xff;
    const bool is_coded = flat_table(w->f, field, 4) >= 0; // a dictionary: indices stand here
    int64_t children_count = 0;
    const int64_t children = flat_vector(w->f, field, 5, 4, &children_count);
    if (field < 0 || type == 0 || type >= TYPE_COUNT || depth == ARROW_DEPTH_MAX) {
        return fail(ST_DAMAGED, "%s: the schema is damaged", w->path);
    }
    int64_t buffers = buffers_of[type];
    if (is_coded) buffers = 2;
    if (type == TYPE_UNION && !is_coded) {
        const int64_t union_type = flat_table(w->f, field, 3);
        buffers = flat_int(w->f, union_type, 0, 2, 0) == 1 ? 2 : 1; // dense, sparse
    }
    if (buffers < 0) return refuse(w, field, "holds views, which are not supported");
    w->nodes++;
    w->buffers += buffers;
    if (w->buffers > ARROW_BUFFERS_MAX || w->nodes > ARROW_BUFFERS_MAX) {
        return fail(ST_UNSUPPORTED, "%s: more than %d buffers", w->path, ARROW_BUFFERS_MAX);
    }
    for (int64_t i = 0; i < children_count && !is_coded; i++) {
        TRY(step_over(w, flat_element(w->f, children, i), depth + 1));
    }
    return ST_OK;
}

// The number that says which dictionary the field has, and the integers that refer to it.
static status take_dictionary(const schema_walk *w, int64_t field, arrow_column *c)
{
    const int64_t encoding = flat_table(w->f, field, 4);
    if (encoding < 0) return ST_OK;
    const int64_t index = flat_table(w->f, encoding, 1); // absent: signed, of 32 bits
    const int64_t bits = index < 0 ? 32 : flat_int(w->f, index, 0, 4, 0);
    c->is_coded = true;
    c->dictionary = flat_int(w->f, encoding, 0, 8, 0);
    c->index_width = (int)bits / 8;
    c->index_is_signed = index < 0 || flat_int(w->f, index, 1, 1, 0) != 0;
    if (bits == 8 || bits == 16 || bits == 32 || bits == 64) return ST_OK;
    return fail(ST_DAMAGED, "%s: places in a dictionary of %lld bits", w->path, (long long)bits);
}

static status take_column(const schema_walk *w, int64_t field, arrow_column *c)
{
    const int64_t type = flat_int(w->f, field, 2, 1, 0) & 0xff, node = w->nodes;
    const int64_t buffer = w->buffers;
    *c = (arrow_column){.name = c->name, .is_found = true, .node = node, .buffer = buffer};
    TRY(take_dictionary(w, field, c));
    switch (type) {
    case TYPE_UTF8:
    case TYPE_BINARY:
    case TYPE_LARGE_UTF8:
    case TYPE_LARGE_BINARY:
        c->type = ARROW_TYPE_BYTES;
        c->width = type == TYPE_UTF8 || type == TYPE_BINARY ? 4 : 8;
        return ST_OK;
    case TYPE_INT: {
        const int64_t int_type = flat_table(w->f, field, 3);
        const int64_t bits = flat_int(w->f, int_type, 0, 4, 0);
        c->type = ARROW_TYPE_INT;
        c->width = (int)bits / 8;
        c->is_signed = flat_int(w->f, int_type, 1, 1, 0) != 0;
        if (bits == 8 || bits == 16 || bits == 32 || bits == 64) return ST_OK;
        return fail(ST_DAMAGED, "%s: integers of %lld bits", w->path, (long long)bits);
    }
    default:
        return refuse(w, field, "holds neither texts nor integers");
    }
}

status arrow_schema_read(const flat *f, int64_t message, const char *path, arrow_column *columns,
                         int64_t column_count)
{
    schema_walk w = {.f = f, .path = path};
    const int64_t schema = flat_table(f, message, 2);
    int64_t count = 0;
    const int64_t fields = flat_vector(f, schema, 1, 4, &count);
    if (schema < 0 || count == 0) return fail(ST_DAMAGED, "%s: a schema without columns", path);
    if (flat_int(f, schema, 0, 2, 0) != 0) {
        return fail(ST_UNSUPPORTED, "%s: its numbers are big-endian", path);
    }
    for (int64_t i = 0; i < count; i++) {
        const int64_t field = flat_element(f, fields, i);
        int64_t bytes = 0;
        const char *name = flat_text(f, field, 0, &bytes);
        for (int64_t k = 0; k < column_count; k++) {
            const bool is_wanted = (int64_t)strlen(columns[k].name) == bytes &&
                                   memcmp(columns[k].name, name, (size_t)bytes) == 0;
            if (is_wanted && !columns[k].is_found) TRY(take_column(&w, field, &columns[k]));
        }
        TRY(step_over(&w, field, 0));
    }
    return ST_OK;
}

// ---- batches ------------------------------------------------------------------------------------

enum { CODEC_LZ4_FRAME, CODEC_ZSTD, CODEC_COUNT };

void arrow_values_deinit(arrow_values *v)
{
    for (int i = 0; i < 3; i++) data_bytes_deinit(&v->unpacked[i]);
}

static status damaged(const char *path, const char *why)
{
    return fail(ST_DAMAGED, "%s: a record batch is damaged: %s", path, why);
}

// Unpacks a buffer: 8 bytes of its unpacked size (-1: not packed), then the data of a codec.
static status unpack(const char *path, int64_t codec, int64_t limit_bytes, data_bytes *into,
                     const uint8_t **bytes, int64_t *count)
{
    const flat head = {*bytes, *count};
    if (*count == 0) return ST_OK;
    if (*count < 8) return damaged(path, "a packed buffer without its size");
    const int64_t size = flat_read(&head, 0, 8);
    *bytes += 8;
    *count -= 8;
    if (size == -1) return ST_OK;
    // No codec makes more than this from so few bytes; a size that is too large takes no memory.
    if (size < 0 || size > limit_bytes || size / 65536 > *count) {
        return damaged(path, "the size of a packed buffer");
    }
    char *moved = realloc(into->items, (size_t)size + 1);
    if (moved == NULL) return fail(ST_NO_MEMORY, "%s: no memory for a column", path);
    into->items = moved;
    into->capacity = size + 1;
    if (codec == CODEC_ZSTD) {
        const size_t got = ZSTD_decompress(moved, (size_t)size, *bytes, (size_t)*count);
        if (ZSTD_isError(got) || (int64_t)got != size) return damaged(path, "its zstd data");
    } else if (!lz4_frames(*bytes, *count, (uint8_t *)moved, size)) {
        return damaged(path, "its LZ4 data");
    }
    *bytes = (const uint8_t *)moved;
    *count = size;
    return ST_OK;
}

static status take_buffer(const flat *f, int64_t buffers, int64_t i, const char *path,
                          const flat *body, const uint8_t **bytes, int64_t *count)
{
    const int64_t at = flat_read(f, buffers + 16 * i, 8);
    *count = flat_read(f, buffers + 16 * i + 8, 8);
    if (at < 0 || *count < 0 || at > body->count || *count > body->count - at) {
        return damaged(path, "a buffer outside of its body");
    }
    *bytes = body->bytes + at;
    return ST_OK;
}

int64_t arrow_message_batch(const flat *f, int64_t message)
{
    return flat_table(f, message, 2);
}

status arrow_batch_open(const flat *f, int64_t batch, const char *path, const flat *body,
                        const arrow_column *column, int64_t limit_bytes, arrow_values *out,
                        int64_t *rows)
{
    int64_t nodes = 0, buffers = 0;
    const int64_t node_at = flat_vector(f, batch, 1, 16, &nodes);
    const int64_t buffer_at = flat_vector(f, batch, 2, 16, &buffers);
    const int64_t packing = flat_table(f, batch, 3);
    const int64_t codec = packing < 0 ? -1 : flat_int(f, packing, 0, 1, CODEC_LZ4_FRAME);
    const int own = column->type == ARROW_TYPE_BYTES && !column->is_coded ? 3 : 2;
    const int width = column->is_coded ? column->index_width : column->width;
    *rows = flat_int(f, batch, 0, 8, -1);
    if (batch < 0 || *rows < 0) return damaged(path, "it has no length");
    if (column->node >= nodes || column->buffer + own > buffers) {
        return damaged(path, "it has fewer columns than the schema");
    }
    if (codec >= CODEC_COUNT) {
        return fail(ST_UNSUPPORTED, "%s: codec %lld of its buffers is not known", path,
                    (long long)codec);
    }
    const int64_t length = flat_read(f, node_at + 16 * column->node, 8);
    const int64_t nulls = flat_read(f, node_at + 16 * column->node + 8, 8);
    if (length != *rows) return damaged(path, "a column of another length");
    const uint8_t *bytes[3] = {NULL, NULL, NULL};
    int64_t counts[3] = {0, 0, 0};
    for (int i = 0; i < own; i++) {
        TRY(take_buffer(f, buffer_at, column->buffer + i, path, body, &bytes[i], &counts[i]));
        if (codec < 0) continue;
        TRY(unpack(path, codec, limit_bytes, &out->unpacked[i], &bytes[i], &counts[i]));
    }
    out->valid = nulls != 0 && counts[0] > 0 ? bytes[0] : NULL;
    out->valid_bytes = counts[0];
    out->offsets = bytes[1];
    out->offsets_bytes = counts[1];
    out->bytes = bytes[2];
    out->bytes_count = counts[2];
    const int64_t entries = *rows + (own == 3 && *rows > 0 ? 1 : 0);
    if (entries > out->offsets_bytes / width ||
        (out->valid != NULL && *rows > 8 * out->valid_bytes)) {
        return damaged(path, "a buffer is too short for its rows");
    }
    return ST_OK;
}

static bool is_null(const arrow_values *v, int64_t i)
{
    return v->valid != NULL && (v->valid[i / 8] >> (i % 8) & 1) == 0;
}

status arrow_value(const arrow_values *v, const arrow_column *column, const char *path, int64_t i,
                   const char **bytes, int64_t *count)
{
    const flat offsets = {v->offsets, v->offsets_bytes};
    *bytes = NULL;
    *count = 0;
    if (is_null(v, i)) return ST_OK;
    if (column->type == ARROW_TYPE_INT) {
        *bytes = (const char *)v->offsets + i * column->width;
        *count = column->width;
        return ST_OK;
    }
    const int64_t begin = flat_read(&offsets, i * column->width, column->width);
    const int64_t end = flat_read(&offsets, (i + 1) * column->width, column->width);
    if (begin < 0 || end < begin || end > v->bytes_count) {
        return damaged(path, "the place of a text");
    }
    *bytes = v->bytes != NULL ? (const char *)v->bytes + begin : "";
    *count = end - begin;
    return ST_OK;
}
