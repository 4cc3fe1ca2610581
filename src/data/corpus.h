// Corpora: files of texts in, training shards with their origin out (`trireme data build`).
//
// A build has three passes. The scan reads each input file, filters its documents and writes those
// that stay to a work file, with hashes. The second pass decides, from the hashes alone, which
// documents repeat others. The last writes the shards. Each pass works on parts that do not depend
// on each other, and a part's bytes are a function of the inputs and the configuration: they are
// the same for any number of threads and after a restart at any moment.
#ifndef DATA_CORPUS_H
#define DATA_CORPUS_H

#include "base/format/config.h"
#include "data/filter.h"
#include "data/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CORPUS_SOURCES_MAX = 256,
    CORPUS_FILES_MAX = 1 << 20,
    CORPUS_NEAR_VALUES_MAX = 1024, // bands times rows
    CORPUS_NAME_BYTES_MAX = 64     // of a source's name, which begins the names of its shards
};

// As sources.NAME.format and sources.NAME.unit spell them, in this order.
typedef enum corpus_format_choice {
    CORPUS_FORMAT_AUTO, // by the file's first bytes, otherwise by its name
    CORPUS_FORMAT_TEXT,
    CORPUS_FORMAT_JSONL,
    CORPUS_FORMAT_CSV,
    CORPUS_FORMAT_TSV,
    CORPUS_FORMAT_WARC,
    CORPUS_FORMAT_PARQUET,
    CORPUS_FORMAT_ARROW
} corpus_format_choice;
typedef enum corpus_unit { CORPUS_UNIT_FILE, CORPUS_UNIT_PARAGRAPH, CORPUS_UNIT_LINE } corpus_unit;

typedef struct corpus_source {
    const char *name;
    option_list paths;
    const char *licence, *text, *id, *generator, *split;
    int32_t format, unit;
    double weight; // 0: not given
    double review; // share of its documents that a person decides about
} corpus_source;

// Decisions of people about documents, by the hash of a document's text as it was read.
typedef struct corpus_review corpus_review;

// Near deduplication: runs of `ngram` words, `bands` bands of `rows` values.
typedef struct corpus_near {
    int64_t ngram, bands, rows;
    double threshold; // least share of equal values, corrected for chance
} corpus_near;

typedef struct corpus_config {
    const char *out, *tokenizer;
    int32_t special_tokens, on_error; // 0: text, stop
    struct {
        const char *file;  // NULL: none
        int32_t undecided; // of the documents under review: 0 keeps them, 1 drops them
        const corpus_review *decisions;
    } review;
    int64_t threads, memory_bytes, shard_bytes, document_bytes, samples;
    option_list filters;
    filter_config filter;
    struct {
        bool exact, has_near, lines;
        corpus_near near;
        int64_t line_chars, substring; // least characters of a line; bytes of a stretch, 0: none
    } dedup;
    int64_t source_count;
    corpus_source sources[CORPUS_SOURCES_MAX];
    hash128 digest;         // of every key that the content of shards depends on
    const char *parameters; // these keys but those of sources, as a JSON map
} corpus_config;

// Reads a build's configuration. The result is in `a`.
NODISCARD status corpus_config_load(const host *h, arena *a, const char *yaml_path,
                                    const char *const *keys, int64_t key_count,
                                    corpus_config **out);
// The keys of a build with one source of the name NAME: for the reference.
NODISCARD status corpus_config_table(arena *a, option_table *out);

// ---- building -----------------------------------------------------------------------------------
typedef enum corpus_pass { CORPUS_SCAN, CORPUS_DEDUP, CORPUS_SHARDS } corpus_pass;

typedef struct corpus_progress {
    // Called from time to time, by one thread at a time. done and all: bytes of input files in the
    // scan, bytes of text in the last pass. A status other than ST_OK ends the build with it; it
    // can be continued.
    status (*report)(void *context, corpus_pass pass, int64_t done, int64_t all, int64_t tokens);
    void *context;
} corpus_progress;

// Counts of one rule: documents that it dropped, or changed.
typedef struct corpus_drop {
    const char *rule;
    int64_t documents, bytes;
} corpus_drop;

typedef struct corpus_result {
    int64_t files, input_bytes; // read
    int64_t documents, text_bytes;
    int64_t changed_documents;        // by a filter
    int64_t cut_documents, cut_bytes; // that stay without their repeated lines and stretches
    int64_t kept_documents, kept_bytes, tokens, shards;
    corpus_drop *drops; // in `a`, in the order of the rules
    int64_t drop_count;
    bool was_complete; // an earlier call had finished the same build
    // The file of the tokenizer asks for it, a corpus leaves it out (data_tokenizer_unapplied).
    const char *unapplied;
} corpus_result;

// Builds the corpus, or continues a build that was interrupted. progress may be NULL.
NODISCARD status data_corpus_build(const host *h, arena *a, const corpus_config *c,
                                   const corpus_progress *progress, corpus_result *out);

// ---- a finished corpus --------------------------------------------------------------------------
#define CORPUS_MANIFEST "corpus.json"

typedef struct corpus_part {
    const char *source;
    double weight;      // 0: none given
    option_list shards; // paths
} corpus_part;

typedef struct corpus_folder {
    const char *tokenizer; // "bytes" or a path
    corpus_part *parts;
    int64_t part_count;
} corpus_folder;

// True if the folder holds a finished corpus.
NODISCARD status corpus_folder_is(const host *h, arena *a, const char *folder, bool *out);
NODISCARD status corpus_folder_open(const host *h, arena *a, const char *folder,
                                    corpus_folder *out);
// The tokenizer of an entry of data.train ("path" or "path=weight") that is a finished corpus;
// NULL for another entry.
NODISCARD status data_corpus_tokenizer(const host *h, arena *a, const char *entry,
                                       const char **out);

// ---- ledgers ------------------------------------------------------------------------------------
// One document of a shard; the texts are borrowed during the call.
typedef struct corpus_entry {
    int64_t index;                // in the shard
    int64_t number;               // of the row in its input file, from 0
    const char *file, *id, *hash; // id NULL: the file names none; hash: 32 hex digits of its text
    int64_t bytes, tokens;        // tokens without the end of text
    const char *generator;        // of synthetic text; NULL: none
    const char *review;           // "accept" or "edit": a person decided so; NULL: no decision
} corpus_entry;
typedef status (*corpus_ledger_fn)(void *context, const corpus_entry *e);
// The path of a shard's ledger.
NODISCARD status corpus_ledger_path(arena *a, const char *shard, char **out);
// Calls `take` for each document in order, until it returns another status than ST_OK.
NODISCARD status corpus_ledger_read(const host *h, const char *path, corpus_ledger_fn take,
                                    void *context);

typedef struct corpus_audit_result {
    int64_t shards, documents, tokens, inputs, inputs_missing, complaints;
} corpus_audit_result;
typedef status (*corpus_complaint_fn)(void *context, const char *path, const char *why);
// Verifies shards, ledgers and those input files that are still there. Each file that is not what
// the manifest says is a complaint.
NODISCARD status data_corpus_audit(const host *h, arena *a, const char *folder,
                                   corpus_complaint_fn complain, void *context,
                                   corpus_audit_result *out);

// ---- review -------------------------------------------------------------------------------------
// A review file is a log of JSON lines: documents that wait for a decision, and decisions. The last
// decision about a hash holds, and the same file gives the same corpus.
typedef enum review_decision {
    REVIEW_NONE,
    REVIEW_ACCEPT, // no rule drops the document
    REVIEW_REJECT,
    REVIEW_EDIT, // another text takes its place, and no rule drops it
    REVIEW_DECISIONS
} review_decision;
extern const char *const corpus_review_names[REVIEW_DECISIONS];

typedef struct review_entry {
    hash128 hash; // of the text as it was read
    int64_t line; // of the decision in the file
    review_decision decision;
    const char *edited; // of REVIEW_EDIT
    int64_t edited_bytes;
} review_entry;

// Reads the decisions of a file; one that does not exist holds none. In `a`.
NODISCARD status corpus_review_open(const host *h, arena *a, const char *path,
                                    const corpus_review **out);
// NULL: no line of the file has the hash. An entry without a decision waits for one.
const review_entry *corpus_review_find(const corpus_review *r, hash128 hash);
int64_t corpus_review_count(const corpus_review *r, review_decision decision); // documents
hash128 corpus_review_id(const corpus_review *r);                              // of all decisions

// A document that waits for a decision; texts are borrowed during the call.
typedef struct review_item {
    hash128 hash;
    const char *rule; // that dropped it; NULL: it stays
    const char *source, *generator, *file, *id;
    int64_t number;
    const char *text;
    int64_t text_bytes;
} review_item;
// Calls `take` for each document of the file that waits, until it returns another status.
NODISCARD status corpus_review_each(const host *h, const char *path, const corpus_review *r,
                                    status (*take)(void *context, const review_item *item),
                                    void *context);
// Appends a decision to the file; edited NULL: none.
NODISCARD status corpus_review_decide(const host *h, const char *path, hash128 hash,
                                      review_decision decision, const char *edited);
// Appends documents to the file that it does not name yet: c->samples of those that each rule of a
// filter drops, and of each source the share that its key `review` says. *added: their number.
NODISCARD status corpus_review_queue(const host *h, arena *a, const corpus_config *c,
                                     const corpus_progress *progress, int64_t *added);

#ifdef __cplusplus
}
#endif
#endif
