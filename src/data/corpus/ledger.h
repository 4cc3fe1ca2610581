// The ledger of a shard: a line of JSON for each document, in the order of the shard, as zstd data.
// Private to this folder.
//
//   {"n": 12, "file": "web/a.jsonl", "id": "...", "hash": "32 hex digits", "bytes": 5, "tokens": 2}
//
// Synthetic text has "generator", and a document that a person let in or wrote "review": "accept"
// or "edit". n is the number of the row in the file, from 0; hash is that of the text as it was
// tokenized.
#ifndef DATA_CORPUS_LEDGER_H
#define DATA_CORPUS_LEDGER_H

#include "data/corpus/build.h"

typedef struct ledger ledger;
NODISCARD status ledger_create(const host *h, const char *path, ledger **out);
// generator: of synthetic text; NULL: none.
NODISCARD status ledger_add(ledger *l, const char *origin, const char *generator,
                            const spill_document *d, const char *id, int64_t tokens);
// Renames the ledger to its path when the disk has it; frees l, also on failure.
NODISCARD status ledger_finish(ledger *l);
void ledger_abandon(ledger *l); // NULL is legal

#endif
