// Token files: what is read in place, and the shards that are prepared from text.
//
// A family: our own shards, nanoGPT's headerless .bin, llm.c's .bin, Megatron's .idx + .bin. Each is
// in the end a run of `count` tokens of one width at one offset of one file, perhaps with a list of
// where documents begin.
//
// Nothing is mapped: a file that is cut or replaced under the run is an error with file and offset, no
// SIGBUS. Even our own shards may come from elsewhere; one pread a sequence costs nothing beside it.
#ifndef DATA_TOKENS_H
#define DATA_TOKENS_H

#include "data/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct data_tokens data_tokens;

// Whether a path is a token file by its name and first bytes; a text otherwise.
NODISCARD status data_tokens_probe(const host *h, const char *path, bool *out);

// vocab: ids must be below it, checked as they are read. 0: unknown, which headerless files refuse
// (an own shard knows its own). Lies in `a` but for the open file, which close closes.
NODISCARD status data_tokens_open(const host *h, arena *a, const char *path, int64_t vocab,
                                  data_tokens **out);
void data_tokens_close(data_tokens *t); // NULL is legal

const char *data_tokens_format(const data_tokens *t); // "trireme", "nanogpt", "llm.c", "megatron"
const char *data_tokens_path(const data_tokens *t);
int64_t data_tokens_count(const data_tokens *t);
int64_t data_tokens_vocab(const data_tokens *t); // 0: unknown
// Where documents begin; 0: the file does not say.
int64_t data_tokens_documents(const data_tokens *t);
// Of our own shards: the id of the tokenizer that made it; zero otherwise.
hash128 data_tokens_tokenizer(const data_tokens *t);
hash128 data_tokens_checksum(const data_tokens *t); // of all its tokens, as it says; else zero

// Tokens [first, first + count) into ids. No allocation; any threads at once.
NODISCARD status data_tokens_read(const data_tokens *t, int64_t first, int64_t count, int32_t *ids);
// Calls mark(context, token) for each document that begins in (first, first + count]; ascending.
// Only where the file has a list (data_tokens_documents > 0).
NODISCARD status data_tokens_borders(const data_tokens *t, int64_t first, int64_t count,
                                     void (*mark)(void *context, int64_t token), void *context);
// Compares an own shard's checksum of all its tokens; ST_OK for files that have none.
NODISCARD status data_tokens_verify(const data_tokens *t);

// ---- writing our shards -------------------------------------------------------------------------
typedef struct data_shard_writer data_shard_writer;
// Writes beside `path` under a name of its own; finish renames it over path when all is on the disk.
NODISCARD status data_shard_create(const host *h, const char *path, const data_tokenizer *t,
                                   data_shard_writer **out);
NODISCARD status data_shard_add(data_shard_writer *w, const int32_t *ids, int64_t count);
// Ends the document with the tokenizer's end-of-text token. An empty document leaves nothing.
NODISCARD status data_shard_end_document(data_shard_writer *w);
NODISCARD status data_shard_finish(data_shard_writer *w); // frees w, also on failure
void data_shard_abandon(data_shard_writer *w);            // NULL is legal

// ---- text to shards -----------------------------------------------------------------------------
typedef struct data_progress {
    // Called now and then; another status than ST_OK ends the work with it.
    status (*report)(void *context, const char *path, int64_t done_bytes, int64_t all_bytes);
    void *context;
} data_progress;

// The shard of one text file (see reader.h), made in cache_folder if it is not there yet. Its name
// is a hash of the tokenizer's id and of the file's name, size and time, so a changed file is made
// anew and an unchanged one never. progress may be NULL. *shard_path lies in `a`.
NODISCARD status data_prepare(const host *h, arena *a, data_tokenizer *t, const char *text_path,
                              const char *cache_folder, const data_progress *progress,
                              char **shard_path);

#ifdef __cplusplus
}
#endif
#endif
