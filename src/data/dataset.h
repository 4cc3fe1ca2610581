// A dataset: files in, sequences of tokens out, in an order that is a function of (data, seed).
//
// The files of a source form one stream of tokens, cut into sequences of seq tokens: sequence k is
// tokens [k seq, k seq + seq), and its labels are one token further. Training takes the sequences
// in a pseudo-random order, each once per epoch, in another order each epoch, without end. From the
// second epoch on the dataset shifts the cuts by less than a sequence, differently in each epoch: a
// model that reads a small text thirty times memorizes it later if tokens change their positions
// (data_place.shift). Sequence n has the same tokens on any rank, in any batch, after any restart.
#ifndef DATA_DATASET_H
#define DATA_DATASET_H

#include "data/tokens.h"

#ifdef __cplusplus
extern "C" {
#endif

// As data.packing spells them, in this order: "masked, plain, best-fit".
typedef enum data_packing {
    // Documents do not attend to each other, and no label crosses a document boundary.
    DATA_PACKING_MASKED,
    DATA_PACKING_PLAIN, // a sequence is one text, whatever document boundaries it contains
    // As masked, and whole documents fill each sequence, with hardly any padding; only documents
    // longer than a sequence are cut.
    DATA_PACKING_BEST_FIT
} data_packing;
// As data.positions spells them, in this order.
typedef enum data_positions {
    DATA_POSITIONS_AUTO,     // document, but sequence for plain packing
    DATA_POSITIONS_DOCUMENT, // positions restart at 0 in each document
    DATA_POSITIONS_SEQUENCE
} data_positions;
typedef enum data_split { DATA_TRAIN, DATA_VALID, DATA_SPLIT_COUNT } data_split;

enum {
    DATA_LABEL_IGNORED = -1,
    DATA_SOURCES_MAX = 1024,
    // Weighted sources meet their shares to one sequence; a share is rounded to a multiple of one
    // in this many, if no shorter round gives it exactly.
    DATA_MIX_ROUND_MAX = 65536,
    DATA_PHASES_MAX = 64,
    DATA_VALID_BLOCKS_MAX = 16 // largest number of places of a source that hold held-out sequences
};

struct data_chat_spec; // data/chat.h

// Other weights of the sources from a sequence on.
typedef struct data_phase {
    int64_t first;         // sequence, ascending
    const double *weights; // [source], 0 or more
    int64_t weight_count;
} data_phase;

typedef struct data_dataset_spec {
    // Paths or globs of text or token files, each perhaps with "=weight". If none has a weight, all
    // are one source, and each token comes once per epoch. Otherwise each entry is its own source
    // with its own epochs, and the weights (1 by default) are their shares of the sequences. With
    // "=2x" an entry comes twice while one without comes once.
    const char *const *train;
    int64_t train_count;
    // Held-out data: NULL or "" for none; a share of train such as "0.05", taken as up to 16 evenly
    // spaced blocks of whole sequences, which training never sees; or a path or glob.
    const char *valid;
    int64_t seq;
    data_packing packing;
    data_positions positions;
    double temperature;       // of the weights, or of the sources' sizes; 0: none
    const data_phase *phases; // curriculum; entries' weights hold before the first
    int64_t phase_count;
    uint64_t seed;
    data_tokenizer *tokenizer; // borrowed; NULL: the dataset can read only token files
    int64_t vocab; // the model's vocabulary, which all ids must be below; 0: the tokenizer's
    const char *cache_folder;      // folder of the shards of text files
    bool skips_bad_lines;          // of JSON lines; otherwise they are errors
    const data_progress *progress; // progress of preparing texts; NULL for none
    // Lines of JSON lines are samples (data/chat.h), each a document of its own, packed into
    // sequences and padded; only trained tokens have labels. NULL: texts.
    const struct data_chat_spec *chat;
} data_dataset_spec;

typedef struct data_dataset data_dataset;

// Refuses, by name, file types that the reader would otherwise take for plain text.
NODISCARD status data_path_check(const char *path);

// Prepares text files, opens all files and checks that each split has at least one sequence. The
// dataset is in `a` except for open files, which close closes. Keeps the tokenizer's properties,
// not the tokenizer.
NODISCARD status data_dataset_open(const host *h, arena *a, const data_dataset_spec *spec,
                                   data_dataset **out);
void data_dataset_close(data_dataset *d); // NULL is legal

// Tokens of the split, and its sequences: those of one epoch or, for weighted sources, those of all
// sources once. DATA_VALID: 0 if no data is held out.
int64_t data_dataset_tokens(const data_dataset *d, data_split split);
int64_t data_dataset_sequences(const data_dataset *d, data_split split);
// Documents of the training data, if its files list them; otherwise 0.
int64_t data_dataset_documents(const data_dataset *d);
int64_t data_dataset_sources(const data_dataset *d);
int64_t data_dataset_seq(const data_dataset *d);
// Facts of the samples of a split; NULL if the data is texts.
typedef struct data_sample_facts {
    int64_t samples, tokens, trained; // trained: tokens that are labels
    int64_t turns, ended;             // trained parts; those that end in a special token
    int64_t cut, longest;             // longer than a sequence; tokens before they were cut
    int64_t without_trained, empty_prompts;
} data_sample_facts;
const data_sample_facts *data_dataset_samples(const data_dataset *d, data_split split);
// The samples of sequence n, in order, of data whose samples are two documents: at most one per two
// tokens. first, second: rows of the sequence where the documents begin.
typedef struct data_pair {
    int64_t sample, first, second;
    bool wanted; // KTO's label
} data_pair;
int64_t data_dataset_pairs(const data_dataset *d, data_split split, int64_t n, data_pair *out);
// The numbers of rollouts (data/chat.h) at the rows of sequence n, [seq] each, of each row's label;
// rows without one keep what they have.
typedef struct data_numbers {
    double *old, *reference, *advantage;
} data_numbers;
void data_dataset_rollouts(const data_dataset *d, data_split split, int64_t n,
                           const data_numbers *to);
int64_t data_dataset_sample_count(const data_dataset *d, data_split split); // 0: texts
// Where a sample of the training data comes from. Its texts belong to the dataset.
typedef struct data_conversation {
    int64_t sample;
    const char *path;
    int64_t line;
    const char *id; // "id" of the line, id_bytes long; NULL: none
    int64_t id_bytes;
    int64_t completion; // of the line, where each completion is a sample
    int64_t lender;     // the sample that lends its answer to compare with (KTO); -1: none
    int64_t tokens;     // that its row has
    bool is_hidden;
} data_conversation;
void data_dataset_conversation(const data_dataset *d, int64_t sample, data_conversation *out);
// Calls `take` for each sample of sequence n of the training data, in order.
NODISCARD status data_dataset_conversations(const data_dataset *d, int64_t n,
                                            status (*take)(void *context,
                                                           const data_conversation *c),
                                            void *context);
// Sets flags[sample] to 1 for each training sample of this name, FILE:LINE or its "id", else to 0.
NODISCARD status data_dataset_conversations_named(const data_dataset *d, const char *name,
                                                  char *flags, int64_t *found);
// A hash of all that determines the order and content of sequences: sizes, formats, tokenizer,
// seed, packing, and the tokens' checksum where a file has one. A resumed run compares it.
hash128 data_dataset_id(const data_dataset *d);

// The origin of sequence n of a split.
typedef struct data_place {
    int64_t source;   // index into spec.train, or 0 if all entries are one source
    int64_t epoch;    // epoch of that source; 0 for DATA_VALID
    int64_t sequence; // sequence of that source's stream
    // The row begins this many tokens later, [0, seq). 0 in the first epoch, for DATA_VALID, and
    // for the last sequence before the stream's end or a held-out block.
    int64_t shift;
} data_place;
data_place data_dataset_place(const data_dataset *d, data_split split, int64_t n);

// Hides documents of the training data, which data_batch_fill then neither shows nor predicts: an
// entry is the name of a document in its input or the hash of its text, as the ledgers of data
// build have them; of a sample, FILE:LINE or the line's "id". Takes the place of earlier
// exclusions; no other sequence changes. *found: documents or samples. ST_NOT_FOUND: no entry
// names one.
NODISCARD status data_dataset_exclude(data_dataset *d, const char *const *entries, int64_t count,
                                      int64_t *found);
// Whether the document that holds this token of the training data is hidden.
bool data_dataset_hides(const data_dataset *d, const data_tokens *t, int64_t token);
// The entries of a list: a name or hash on each line, or JSON lines with "hash", "name" or "id",
// such as data trace prints. In `a`.
NODISCARD status data_exclusions_read(const host *h, arena *a, const char *path,
                                      const char *const **entries, int64_t *count);
// Calls `part` for each token file that holds tokens of sequence n of the training data: tokens
// [first, first + count) of the file.
NODISCARD status data_dataset_parts(const data_dataset *d, int64_t n,
                                    status (*part)(void *context, const data_tokens *t,
                                                   int64_t first, int64_t count),
                                    void *context);
// The token files of the training data, in the order of their sources.
int64_t data_dataset_files(const data_dataset *d);
const data_tokens *data_dataset_file(const data_dataset *d, int64_t i);

// Rows of a batch, each (count, seq), row-major. positions and documents may be NULL.
//   masked: documents are numbered from 0 within the sequence, positions restart at 0 in each, and
//           the last token of a document has label -1.
//   plain:  positions 0..seq-1, documents all 0, labels cross document boundaries.
//   best-fit: as masked; a rest is padding, a document without labels.
// data_positions may change the positions.
// A label that would show a token of the other split is -1 too.
typedef struct data_rows {
    int32_t *ids, *labels, *positions, *documents;
} data_rows;

// Fills sequences [first, first + count) of the split. Those of DATA_VALID have a fixed order that
// does not depend on the seed, and start over at the end. No allocation but for best-fit, which
// lays windows out; any threads at once. A
// token outside the vocabulary or a file that was cut is an error with file and offset.
NODISCARD status data_batch_fill(const data_dataset *d, data_split split, int64_t first,
                                 int64_t count, const data_rows *rows);

#ifdef __cplusplus
}
#endif
#endif
