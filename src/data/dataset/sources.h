// Sources: the files of an entry of data.train, as one stream of tokens. Private to this folder.
#ifndef DATA_DATASET_SOURCES_H
#define DATA_DATASET_SOURCES_H

#include "data/corpus.h"
#include "data/dataset.h"

// One file's part of the stream.
typedef struct source_file {
    data_tokens *tokens;
    int64_t begin; // the stream's number of its first token
} source_file;

struct pack; // data/dataset/pack.h

typedef struct source_block {
    int64_t begin, count; // sequences
} source_block;

typedef struct source {
    const char *name; // the path as given, for errors
    double weight;
    bool has_weight;
    source_file *files;
    int64_t file_count, file_capacity;
    int64_t tokens, sequences;
    source_block held_out[DATA_VALID_BLOCKS_MAX]; // ascending
    int64_t held_out_blocks, held_out_sequences;
    bool has_epochs;   // the weight is a number of epochs
    struct pack *pack; // rows of whole documents; NULL: rows are stretches of the stream
} source;

// An entry of data.train, or one source of a corpus that an entry names.
typedef struct source_entry {
    const char *name;
    option_list paths;
    double weight; // or a number of epochs
    bool has_weight, has_epochs;
} source_entry;
typedef struct source_entries {
    source_entry *items;
    int64_t count, capacity;
} source_entries;
// Adds the sources of "path", "path=weight" or "path=epochsx". A weight must be positive and
// finite; that of a corpus multiplies the weights of its sources.
NODISCARD status source_entries_add(const host *h, arena *a, const char *entry,
                                    source_entries *out);
// Refuses entries with weights next to entries with numbers of epochs.
NODISCARD status source_entries_check(const source_entries *entries);
// Adds the files of a path or glob: prepares texts and opens all files.
NODISCARD status source_add(const host *h, arena *a, const data_dataset_spec *spec,
                            const char *path, source *s);
void source_close(source *s);
// Chooses the held-out sequences: `share` of them, at least 1, in evenly spaced blocks. seq must be
// set.
NODISCARD status source_hold_out(source *s, double share);

// The stream's sequence that is number `ordinal` of a split, and whether a sequence is held out.
int64_t source_sequence(const source *s, data_split split, int64_t ordinal);
bool source_is_held_out(const source *s, int64_t sequence);

// Reads tokens of the stream across files.
NODISCARD status source_read(const source *s, int64_t first, int64_t count, int32_t *ids);
// The file that holds a token of the stream.
int64_t source_file_of(const source *s, int64_t token);

#endif
