// A dataset: files in, sequences of tokens out, in an order that is a function of (data, seed).
//
// The files of a source lie end to end as one stream of tokens, cut into sequences of seq tokens:
// sequence k is tokens [k seq, k seq + seq), its labels are one token further. Training takes the
// sequences in a pseudo-random order, each once per epoch, another order each epoch, without end.
// From the second epoch on the cuts lie elsewhere in each, by less than a sequence: who reads a small
// text thirty times learns it by heart later if tokens do not stand where they stood (data_place.shift).
// Who asks for sequence n gets the same tokens on any rank, in any batch, after any restart.
#ifndef DATA_DATASET_H
#define DATA_DATASET_H

#include "data/tokens.h"

#ifdef __cplusplus
extern "C" {
#endif

// As data.packing spells them, in this order: "masked, plain".
typedef enum data_packing {
    DATA_PACKING_MASKED, // documents do not see each other, and no label crosses a border
    DATA_PACKING_PLAIN   // a sequence is one text, whatever borders are in it
} data_packing;
typedef enum data_split { DATA_TRAIN, DATA_VALID, DATA_SPLIT_COUNT } data_split;

enum {
    DATA_LABEL_IGNORED = -1,
    DATA_SOURCES_MAX = 1024,
    DATA_MIX_ROUND = 4096,     // sequences in which weighted sources meet their weights exactly
    DATA_VALID_BLOCKS_MAX = 16 // places of a source at which held-out sequences lie
};

typedef struct data_dataset_spec {
    // Paths or globs of text or token files, each perhaps with "=weight". If none has a weight,
    // all are one source, and each token comes once per epoch. Otherwise each entry is a source of
    // its own, the weights (1 where none is given) are their shares of the sequences, and each
    // source has its own epochs.
    const char *const *train;
    int64_t train_count;
    // Held out: NULL or "" for nothing; a share of train such as "0.05", taken as up to 16 blocks
    // of whole sequences at even distances, which training never sees; or a path or glob.
    const char *valid;
    int64_t seq;
    data_packing packing;
    uint64_t seed;
    data_tokenizer *tokenizer;     // borrowed; NULL: only token files can be read
    int64_t vocab;                 // the model's, which ids must be below; 0: the tokenizer's
    const char *cache_folder;      // where shards of text files are kept
    const data_progress *progress; // of preparing texts; NULL for none
} data_dataset_spec;

typedef struct data_dataset data_dataset;

// Refuses, by their names, kinds of files that would otherwise be read as plain text.
NODISCARD status data_path_check(const char *path);

// Prepares text files, opens everything and checks that there is at least one sequence of each
// split. Lies in `a` but for open files, which close closes. Keeps the tokenizer's facts, not it.
NODISCARD status data_dataset_open(const host *h, arena *a, const data_dataset_spec *spec,
                                   data_dataset **out);
void data_dataset_close(data_dataset *d); // NULL is legal

// Tokens that are kept for the split, and its sequences: of one epoch, or, of weighted sources, of
// all of them once. DATA_VALID: 0 if nothing is held out.
int64_t data_dataset_tokens(const data_dataset *d, data_split split);
int64_t data_dataset_sequences(const data_dataset *d, data_split split);
int64_t data_dataset_documents(const data_dataset *d); // of train, as far as files say; else 0
int64_t data_dataset_sources(const data_dataset *d);
int64_t data_dataset_seq(const data_dataset *d);
// What the order and content of sequences follow from: sizes, formats, tokenizer, seed, packing, and
// the tokens where a file says their checksum. A resumed run compares it.
hash128 data_dataset_id(const data_dataset *d);

// Where sequence n of a split comes from.
typedef struct data_place {
    int64_t source;   // index into spec.train, or 0 if they are one source
    int64_t epoch;    // of that source; 0 of DATA_VALID
    int64_t sequence; // of that source's stream
    // The row begins so many tokens later, [0, seq). 0 in the first epoch, of DATA_VALID, and of the last
    // sequence before the stream's end or a held-out block.
    int64_t shift;
} data_place;
data_place data_dataset_place(const data_dataset *d, data_split split, int64_t n);

// Rows of a batch, each (count, seq), row-major. positions and documents may be NULL.
//   masked: documents are numbered from 0 within the sequence, positions restart at 0 in each, the
//           last token of a document has label -1.
//   plain:  positions 0..seq-1, documents all 0, labels cross borders.
// A label that would show a token of the other split is -1 too.
typedef struct data_rows {
    int32_t *ids, *labels, *positions, *documents;
} data_rows;

// Sequences [first, first + count) of the split. Those of DATA_VALID are in a fixed order that no
// seed changes, and begin again when they end. No allocation; any threads at once. A token that is
// not below the vocabulary or a file that was cut is an error with file and offset.
NODISCARD status data_batch_fill(const data_dataset *d, data_split split, int64_t first,
                                 int64_t count, const data_rows *rows);

#ifdef __cplusplus
}
#endif
#endif
