// Token files: files that are read in place, and the shards that are prepared from text.
//
// A family: native shards, nanoGPT's headerless .bin, llm.c's .bin, Megatron's .idx + .bin. Each of
// them is a run of `count` tokens of one width at one offset of one file, perhaps with a list of
// the beginnings of documents.
//
// No file is mapped: a file that is cut or replaced during the run is an error with file and
// offset, and not SIGBUS. Even native shards may come from elsewhere. One pread per sequence costs
// little.
#ifndef DATA_TOKENS_H
#define DATA_TOKENS_H

#include "data/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct data_tokens data_tokens;

// True if a path is a token file by its name and first bytes; otherwise it is a text.
NODISCARD status data_tokens_probe(const host *h, const char *path, bool *out);

// vocab: ids must be below it, which reads check. 0: unknown, which headerless files refuse (a
// native shard knows its own). In `a` except for the open file, which close closes.
NODISCARD status data_tokens_open(const host *h, arena *a, const char *path, int64_t vocab,
                                  data_tokens **out);
void data_tokens_close(data_tokens *t); // NULL is legal

const char *data_tokens_format(const data_tokens *t); // "trireme", "nanogpt", "llm.c", "megatron"
const char *data_tokens_path(const data_tokens *t);
int64_t data_tokens_count(const data_tokens *t);
int64_t data_tokens_vocab(const data_tokens *t); // 0: unknown
// The number of documents; 0: the file does not list them.
int64_t data_tokens_documents(const data_tokens *t);
// Native shards: the id of the tokenizer that made it; zero for other files.
hash128 data_tokens_tokenizer(const data_tokens *t);
// Checksum of all tokens, if the file has one; otherwise zero.
hash128 data_tokens_checksum(const data_tokens *t);

// The first byte of a native shard's text that is no UTF-8; -1: none is known.
int64_t data_tokens_malformed(const data_tokens *t);

// Reads tokens [first, first + count) into ids. No allocation; any threads at once. Native shards
// have a hash for each block, which is checked at every read: ST_DAMAGED names file and bytes.
NODISCARD status data_tokens_read(const data_tokens *t, int64_t first, int64_t count, int32_t *ids);
// Calls mark(context, token) for each document that begins in (first, first + count]; ascending.
// Only for files with a list (data_tokens_documents > 0).
NODISCARD status data_tokens_boundaries(const data_tokens *t, int64_t first, int64_t count,
                                        void (*mark)(void *context, int64_t token), void *context);
// The document that holds a token, and its first token: only for files with a list.
NODISCARD status data_tokens_document(const data_tokens *t, int64_t token, int64_t *document,
                                      int64_t *begin);
// The first token of a document, or the count of tokens for documents beyond the last.
NODISCARD status data_tokens_document_begin(const data_tokens *t, int64_t document, int64_t *begin);
// Checks a native shard whole: the hash of each block and that of all tokens; ST_OK for files that
// have none.
NODISCARD status data_tokens_verify(const data_tokens *t);

// ---- writing shards -----------------------------------------------------------------------------
typedef struct data_shard_writer data_shard_writer;
// Writes to a temporary name next to `path`; finish renames it over path when the disk has all
// bytes.
NODISCARD status data_shard_create(const host *h, const char *path, const data_tokenizer *t,
                                   data_shard_writer **out);
NODISCARD status data_shard_add(data_shard_writer *w, const int32_t *ids, int64_t count);
// Ends the document with the tokenizer's end-of-text token. An empty document adds no token.
NODISCARD status data_shard_end_document(data_shard_writer *w);
// Records that this byte of the text is no UTF-8; only the first call counts.
void data_shard_malformed(data_shard_writer *w, int64_t at);
NODISCARD status data_shard_finish(data_shard_writer *w); // frees w, also on failure
void data_shard_abandon(data_shard_writer *w);            // NULL is legal

// ---- text to shards -----------------------------------------------------------------------------
typedef struct data_progress {
    // Called from time to time; a status other than ST_OK ends the work with that status.
    status (*report)(void *context, const char *path, int64_t done_bytes, int64_t all_bytes);
    // Called once for a file of which lines were skipped: their number and the error of the first.
    // NULL: not told.
    status (*skipped)(void *context, const char *path, int64_t lines, const char *first);
    // Called for a text that is not UTF-8, whenever its shard is opened: the first such byte,
    // counted over the documents' text. NULL: not told.
    status (*malformed)(void *context, const char *path, int64_t at);
    void *context;
} data_progress;

// Returns the shard of one text file (see reader.h) and makes it in cache_folder if it does not
// exist yet. Its name is a hash of the tokenizer's id and of the file's name, size and time, so a
// changed file gets a new shard and an unchanged one never does. progress may be NULL. *shard_path
// is in `a`.
typedef struct data_prepare_options {
    const char *cache_folder;
    bool skips_bad_lines; // of JSON lines; otherwise they are errors
    const data_progress *progress;
} data_prepare_options;
NODISCARD status data_prepare(const host *h, arena *a, data_tokenizer *t, const char *text_path,
                              const data_prepare_options *options, char **shard_path);

#ifdef __cplusplus
}
#endif
#endif
