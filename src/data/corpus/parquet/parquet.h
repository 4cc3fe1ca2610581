// Reads text columns of Parquet files (format 2.10). Private to this folder and to rows_parquet.c.
//
// The reader covers what tables of texts use: top-level columns of type BYTE_ARRAY, required or
// optional, plain, dictionary and delta-length encodings, pages of both versions, and the codecs
// none, snappy, gzip, zstd and LZ4 (both forms). Everything else is refused by its name.
#ifndef DATA_CORPUS_PARQUET_PARQUET_H
#define DATA_CORPUS_PARQUET_PARQUET_H

#include "base/host.h"
#include "data/tokenizer.h"

enum {
    PARQUET_FOOTER_MAX = 256 << 20,
    PARQUET_PAGE_MAX = 1 << 30, // bytes of a page, packed or not
    PARQUET_COLUMNS_MAX = 65536,
    PARQUET_GROUPS_MAX = 1 << 20
};

// One column of one row group.
typedef struct parquet_chunk {
    int64_t at, bytes; // of its pages in the file
    int64_t values;
    int32_t codec;
} parquet_chunk;

// A column that was asked for.
typedef struct parquet_column {
    char *name;
    int64_t index; // among the columns; -1: the file has none of the name
    int32_t type;
    bool optional;
    parquet_chunk *chunks; // [group]
} parquet_column;

typedef struct parquet_file {
    const host *h;
    const char *path; // borrowed
    file *f;
    int64_t bytes, rows, group_count;
    arena *a;
    parquet_column columns[2]; // text, id
} parquet_file;

// Reads the footer. ST_DATA: no column `text`; a missing column `id` is none.
NODISCARD status parquet_open(const host *h, const char *path, const char *text_name,
                              const char *id_name, parquet_file **out);
void parquet_close(parquet_file *p); // NULL is legal

// The values of one column, one after the other.
typedef struct parquet_values {
    const parquet_file *p;
    const parquet_column *column;
    int64_t group;          // the group whose chunk is read
    int64_t at, end;        // bytes of the chunk that were not read yet
    int64_t chunk_left;     // values of the chunk in pages that were not read yet
    int64_t page_left;      // values of the page that were not returned yet, with nulls
    uint8_t *packed, *page; // the page as it is stored, and unpacked
    int64_t packed_capacity, page_capacity, page_bytes;
    int64_t data_at; // the next value's bytes in the page (plain, delta-length)
    int32_t encoding;
    uint8_t *levels; // [value of the page]: 1 if it is not null
    int64_t level_at, levels_capacity;
    uint8_t *dictionary; // plain values
    int64_t dictionary_bytes;
    int64_t *entries; // [entry]: its length's place in `dictionary`
    int64_t entry_count;
    uint32_t *indices; // dictionary entries or lengths of the page's values
    int64_t index_count, index_at, indices_capacity;
} parquet_values;
void parquet_values_begin(const parquet_file *p, int column, parquet_values *out);
// *bytes NULL: a null, or *more false: the end.
NODISCARD status parquet_values_next(parquet_values *v, const char **bytes, int64_t *count,
                                     bool *more);
void parquet_values_deinit(parquet_values *v);

// ---- for page.c ---------------------------------------------------------------------------------
NODISCARD status parquet_damaged(const parquet_file *p, int64_t at, const char *why);
// Unpacks `from` into exactly `to_bytes` bytes.
NODISCARD status parquet_unpack(const parquet_file *p, int32_t codec, const uint8_t *from,
                                int64_t from_bytes, uint8_t *to, int64_t to_bytes);
// Reads `count` values of `width` bits from a run-length and bit-packed hybrid; the bytes used, or
// -1 if it is damaged.
int64_t parquet_hybrid(const uint8_t *from, int64_t bytes, int width, int64_t count, uint32_t *out);
// Reads values of DELTA_BINARY_PACKED, all of which must fit 32 bits; the bytes used, or -1.
int64_t parquet_deltas(const uint8_t *from, int64_t bytes, int64_t count, uint32_t *out);

#endif
