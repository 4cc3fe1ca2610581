// Reads FlatBuffers: the tables that describe an Arrow message. Private to this folder.
//
// A table is an offset into the message. Its fields lie at offsets that its table of fields (which
// lies elsewhere in the message) tells, 0 for an absent one. Every access is checked against the
// message; what lies outside reads as absent.
#ifndef DATA_CORPUS_ARROW_FLAT_H
#define DATA_CORPUS_ARROW_FLAT_H

#include "base/base.h"

typedef struct flat {
    const uint8_t *bytes;
    int64_t count;
} flat;

int64_t flat_root(const flat *f); // the table of the message; -1: none
// A field of a table: numbers; `otherwise` where it is absent.
int64_t flat_int(const flat *f, int64_t table, int field, int width, int64_t otherwise);
int64_t flat_table(const flat *f, int64_t table, int field); // -1: absent
// A vector: where its elements begin, and their number. 0 elements: absent, or not within the
// message.
int64_t flat_vector(const flat *f, int64_t table, int field, int64_t element_bytes, int64_t *count);
// The table that element i of a vector of tables refers to; -1: none.
int64_t flat_element(const flat *f, int64_t elements, int64_t i);
// A text, borrowed; "" and 0 bytes if it is absent.
const char *flat_text(const flat *f, int64_t table, int field, int64_t *count);
int64_t flat_read(const flat *f, int64_t at, int width); // 0 beyond the end

#endif
