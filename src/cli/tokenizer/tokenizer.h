// The parts of the command `tokenizer`. Private to this folder.
#ifndef CLI_TOKENIZER_TOKENIZER_H
#define CLI_TOKENIZER_TOKENIZER_H

#include "cli/cli.h"

typedef struct tokenizer_flags {
    const char *tokenizer;
    bool jsonl, special, add_special, skip_special, truncate, pad;
    // These belong to train.
    const char *out, *pattern;
    int64_t vocab, min_frequency, threads, max_words;
    int32_t split, model;
    bool lines;
    option_list special_tokens;
} tokenizer_flags;

// Trains on the files operands[1..] and writes the file of --out.
NODISCARD status tokenizer_train(cli_context *cli, const cli_call *call, const tokenizer_flags *f);

#endif
