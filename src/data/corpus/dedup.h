// A table from hashes to the first document that has each. Private to this folder.
#ifndef DATA_CORPUS_DEDUP_H
#define DATA_CORPUS_DEDUP_H

#include "data/corpus/build.h"

typedef struct dedup_entry {
    hash128 hash;
    int64_t document; // + 1; 0: free
} dedup_entry;

typedef struct dedup_table {
    dedup_entry *entries;
    int64_t capacity, count, passes;
} dedup_table;

// A table for `documents` hashes in at most memory_bytes; `passes` says how often they are read.
NODISCARD status dedup_table_init(dedup_table *t, int64_t documents, int64_t memory_bytes);
void dedup_table_deinit(dedup_table *t);
void dedup_table_clear(dedup_table *t);
// True if this pass looks at the hash.
bool dedup_table_takes(const dedup_table *t, hash128 hash, int64_t pass);
// *first: the document that had the hash first, which is `document` if none had it.
NODISCARD status dedup_table_find(dedup_table *t, hash128 hash, int64_t document, int64_t *first);

// Drops documents that share a band with an earlier one.
NODISCARD status dedup_near(build *b);

#endif
