// The columns of texts in Arrow's record batches. Private to this folder and to rows_arrow.c.
//
// Source: Arrow columnar format 1.4, "Serialization and Interprocess Communication". The reader
// covers top-level columns of the types utf8, large_utf8, binary and large_binary, with buffers as
// they are or packed with zstd or LZ4, and dictionaries of them; for the name of a document also
// integers. Columns of other types are stepped over. What it does not know is refused by its name.
#ifndef DATA_CORPUS_ARROW_ARROW_H
#define DATA_CORPUS_ARROW_ARROW_H

#include "data/corpus/arrow/flat.h"
#include "data/tokenizer.h"

enum { ARROW_SCHEMA = 1, ARROW_DICTIONARY = 2, ARROW_RECORDS = 3 }; // of a message
enum { ARROW_BUFFERS_MAX = 1 << 16, ARROW_DEPTH_MAX = 64 };

// A column that is wanted: its place among the nodes and buffers of each batch.
typedef struct arrow_column {
    const char *name;
    bool is_found;
    int type;       // ARROW_TYPE_*
    int width;      // bytes of an offset, or of an integer
    bool is_signed; // of an integer
    int64_t node, buffer;
    bool is_coded; // its values are places in a dictionary, whose values have `type` and `width`
    int64_t dictionary; // the dictionary's number
    int index_width;
    bool index_is_signed;
} arrow_column;
enum { ARROW_TYPE_BYTES = 1, ARROW_TYPE_INT = 2 };

// Reads a schema. `path` is for errors.
NODISCARD status arrow_schema_read(const flat *f, int64_t message, const char *path,
                                   arrow_column *columns, int64_t column_count);

// A column of one batch; borrowed from the message's body, or unpacked.
typedef struct arrow_values {
    const uint8_t *valid, *offsets, *bytes; // valid NULL: all
    int64_t offsets_bytes, bytes_count, valid_bytes;
    data_bytes unpacked[3];
} arrow_values;
void arrow_values_deinit(arrow_values *v);

// The record batch of a message of the kind ARROW_RECORDS.
int64_t arrow_message_batch(const flat *f, int64_t message);
// The rows of a batch, and the columns' values. limit_bytes: of a buffer, unpacked.
NODISCARD status arrow_batch_open(const flat *f, int64_t batch, const char *path, const flat *body,
                                  const arrow_column *column, int64_t limit_bytes,
                                  arrow_values *out, int64_t *rows);
// Row i; *bytes NULL: a null.
NODISCARD status arrow_value(const arrow_values *v, const arrow_column *column, const char *path,
                             int64_t i, const char **bytes, int64_t *count);

// The values that the rows of a coded column refer to.
typedef struct arrow_dictionary {
    bool is_known;
    data_bytes values;
    struct arrow_place {
        int64_t at, count; // count -1: a null
    } * places;
    int64_t count, capacity;
} arrow_dictionary;
void arrow_dictionary_deinit(arrow_dictionary *d);
// Takes the values of a message of the kind ARROW_DICTIONARY if it is the column's. limit_bytes: of
// all values.
NODISCARD status arrow_dictionary_read(const flat *f, int64_t message, const char *path,
                                       const flat *body, const arrow_column *column,
                                       int64_t limit_bytes, arrow_dictionary *d);
// The value of row i of a coded column; *bytes NULL: a null.
NODISCARD status arrow_dictionary_value(const arrow_dictionary *d, const arrow_values *v,
                                        const arrow_column *column, const char *path, int64_t i,
                                        const char **bytes, int64_t *count);

#endif
