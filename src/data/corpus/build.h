// The state of a build. Private to this folder.
//
//   OUT/work/lock            held by the process that builds
//   OUT/work/inventory.json  digest of the configuration, and every input file with size and time
//   OUT/work/NNNNNNN.*       the scan of one file (spill.h); NNNNNNN.json is written last
//   OUT/SOURCE-NNNNN.tok     a shard, with SOURCE-NNNNN.docs.jsonl.zst, its ledger, and
//                            SOURCE-NNNNN.json, which is written last
//   OUT/corpus.json          the finished corpus; OUT/work is then removed
#ifndef DATA_CORPUS_BUILD_H
#define DATA_CORPUS_BUILD_H

#include "base/format/json.h"
#include "data/corpus/spill.h"

enum {
    BUILD_RULES_MAX = 256,
    BUILD_JSON_MAX = 1 << 28,    // bytes of a file that a build wrote itself
    BUILD_SAMPLE_BYTES = 1000,   // of a dropped text in the samples
    BUILD_REPORT_NS = 100000000, // between two reports of progress
    RULE_BAD = 0,                // rules of reading; those of filters follow
    RULE_LARGE = 1,
    RULE_EMPTY = 2,
    RULE_REJECTED = 3,
    RULE_UNDECIDED = 4
};

typedef struct build_count {
    int64_t documents, bytes;
} build_count;

typedef struct build_file {
    const char *path;
    int64_t source; // index into config.sources
    int64_t bytes, modified_ns;
    // The scan finds these:
    const char *format;
    hash128 hash;
    int64_t rows, text_bytes, changed; // documents read, their bytes, those that a filter changed
    build_count *drops;                // [rule]
    spill_file spill;
    int64_t first_frame; // among those of the build
} build_file;

// The reason why the second pass drops a document.
typedef enum build_fate { FATE_KEEP, FATE_EXACT, FATE_NEAR, FATE_PARTS } build_fate;

typedef struct build_shard {
    int64_t source, index;    // index among the shards of its source
    int64_t file, last_file;  // the files that its documents lie in
    int64_t first, last;      // its documents: [first, last) of the build, with dropped ones
    int64_t documents, bytes; // that it holds
    int64_t tokens;           // known when it is made
    hash128 hash;             // of all its tokens
    const char *name;         // "web-00000"
} build_shard;

typedef struct build {
    const host *h;
    arena *a;
    const corpus_config *c;
    const corpus_progress *progress;
    int32_t threads;
    char *work; // the folder
    file *lock;
    build_file *files;
    int64_t file_count, file_capacity;
    const char *rules[BUILD_RULES_MAX];
    int64_t rule_count, rule_exact, rule_near, rule_parts;
    int64_t filter_rules[64];  // [filter of config.filters]: its first rule
    int64_t documents;         // that the scan kept
    uint8_t *fates;            // [document]: build_fate
    int64_t frame_count;       // of all work files
    struct cut_run **cut_runs; // of repeated lines and stretches (cuts.h)
    int64_t cut_run_count, cut_run_capacity;
    int64_t cut_documents, cut_bytes; // documents that stay without some parts
    hash128 inputs;                   // of the content of all files
    const char *tokenizer;            // as the manifest names it
    hash128 tokenizer_id;
    const char *unapplied; // see corpus_result
    build_shard *shards;
    int64_t shard_count, shard_capacity;
    int64_t report_ns, done, all, tokens; // progress of a pass; one thread at a time
} build;

NODISCARD status build_path(const build *b, arena *a, int64_t file_idx, const char *ending,
                            char **out);
// Reports progress unless the last report was a moment ago. The caller holds the pass's lock.
NODISCARD status build_report(build *b, corpus_pass pass);

// Opens the tokenizer, and copies its file into the corpus.
NODISCARD status build_tokenizer(build *b);
// Finds the input files.
NODISCARD status build_find_files(build *b);
// Finds the input files, and compares them with those of an interrupted build.
NODISCARD status build_inventory(build *b);
// Makes the list of rules.
NODISCARD status build_rules(build *b);
// The scan: reads every file that was not read yet, and the results of all.
NODISCARD status build_scan(build *b);
NODISCARD status build_scan_load(build *b, int64_t file_idx, bool *found);
// Decides which documents stay.
NODISCARD status build_dedup(build *b);
// Writes the shards that do not exist yet.
NODISCARD status build_shards(build *b);
// Writes corpus.json and dropped.jsonl, and removes the work folder.
NODISCARD status build_manifest(build *b, const corpus_result *r);
// The result of a build that is complete, and the first file of it that is not there; NULL: all
// are. ST_CONFIG_CONFLICT: that of another configuration.
NODISCARD status build_result_read(build *b, corpus_result *out, char **missing);
// A hash of everything that the shard's bytes depend on, and the JSON that says where it is from.
hash128 build_shard_key(const build *b, const build_shard *s);
NODISCARD status build_shard_print(const build *b, const build_shard *s, text *t);
NODISCARD status build_work_remove(build *b); // nothing if it is not there
// Reads 32 hex digits.
bool build_hash_parse(const char *digits, hash128 *out);
// Adds bytes that may be no UTF-8 as a JSON text.
NODISCARD status build_add_text(text *t, const char *bytes, int64_t count);

#endif
