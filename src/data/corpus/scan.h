// Counts and samples of the scan of one file or of one batch of it. Private to this folder.
#ifndef DATA_CORPUS_SCAN_H
#define DATA_CORPUS_SCAN_H

#include "data/corpus/build.h"

// A dropped document: its excerpt becomes a sample if the rule has too few.
typedef struct scan_dropped {
    int64_t number;
    const char *text;
    int64_t text_bytes;
    int64_t bytes; // of the document as it was read
    const char *id;
    int64_t id_bytes;
} scan_dropped;

typedef struct scan_sample {
    struct scan_sample *next;
    int64_t rule, number;
    const char *line; // JSON members "id" and "text"
} scan_sample;

typedef struct scan_tally {
    arena *a;
    const build *b;
    int64_t rows, text_bytes, changed, documents;
    build_count *drops;     // [rule]
    int64_t *sample_counts; // [rule]
    scan_sample *samples, *last;
    // Only a whole file has these:
    const char *format;
    hash128 hash;
    int64_t docs_bytes, index_bytes;
} scan_tally;

NODISCARD status scan_tally_init(arena *a, const build *b, scan_tally *t);
NODISCARD status scan_tally_drop(scan_tally *t, int64_t rule, const scan_dropped *d);
// Adds a batch's counts and samples to those of its file.
NODISCARD status scan_tally_add(scan_tally *whole, const scan_tally *batch);
// Writes work/NNNNNNN.json, which says that the file's scan is complete.
NODISCARD status scan_tally_write(build *b, arena *a, int64_t file_idx, const scan_tally *t);

#endif
