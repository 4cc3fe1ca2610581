// The interface of a format of token files. Private to this folder.
//
// To add one: a file with a row here, and its place in the order of probing in tokens.c.
#ifndef DATA_TOKENS_FORMAT_H
#define DATA_TOKENS_FORMAT_H

#include "data/tokens.h"

enum { TOKEN_BLOCK_BYTES = 4096 }; // a block of a native shard, which has a hash of its own

typedef enum token_type {
    TOKEN_U8,
    TOKEN_I8,
    TOKEN_I16,
    TOKEN_I32,
    TOKEN_I64,
    TOKEN_U16,
    TOKEN_U32
} token_type;
int64_t token_type_bytes(token_type type);

// The facts about a file that select its format.
typedef struct token_probe {
    const char *path;
    file_info info;
    uint8_t head[16]; // its first bytes, zero beyond the end
    bool has_idx;     // a Megatron index of the same name exists, or the file is one
} token_probe;

typedef struct data_token_format {
    const char *name;
    bool (*fits)(const token_probe *p);
    // Sets file, type, offset, count, and documents or tokenizer if the file has them.
    status (*open)(data_tokens *t, arena *a, const token_probe *p);
} data_token_format;

struct data_tokens {
    const host *h;
    const data_token_format *format;
    char *path; // path of the file that holds the tokens
    file *f;    // open file of `path`
    token_type type;
    int64_t offset, count, vocab;
    // The beginnings of documents, ascending (reads check this): in memory, or in the file from
    // byte documents_at if `documents` is NULL.
    const uint64_t *documents;
    int64_t documents_at, documents_count;
    bool has_checksum;           // native shards only
    hash128 tokenizer, checksum; // native shards only
    // Byte of the hashes of blocks, which cover [offset, blocks_at); 0: there are none.
    int64_t blocks_at;
    int64_t malformed; // byte of the shard's text that is no UTF-8; -1: none is known
};

extern const data_token_format data_token_format_shard;
extern const data_token_format data_token_format_llmc;
extern const data_token_format data_token_format_megatron;
extern const data_token_format data_token_format_nanogpt;

// Opens p->path as t->f and checks that it holds exactly offset + count tokens.
NODISCARD status token_file_open(data_tokens *t, const char *path);
NODISCARD status token_file_check_size(const data_tokens *t, int64_t file_bytes);

#endif
