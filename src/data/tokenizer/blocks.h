// Words of ASCII text, 64 bytes at a time. Private to this folder.
#ifndef DATA_TOKENIZER_BLOCKS_H
#define DATA_TOKENIZER_BLOCKS_H

#include "data/tokenizer/scanner.h"

enum { BLOCK_BYTES = 64, BLOCK_READS = BLOCK_BYTES + 2 };

// Where words begin in the BLOCK_BYTES bytes from `text` on, where one begins: bit i is text[i].
// The words before the last bit are those that s->next finds; of the rest nothing is known. 0: no
// word is known, and s->next finds the next one. BLOCK_READS bytes are read.
typedef uint64_t (*blocks_fn)(const scanner *s, const uint8_t *text);
// NULL: this machine or expression has no such function.
blocks_fn blocks_for(const scanner *s);

#endif
