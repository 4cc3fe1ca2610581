// The family of tokenizers: the functions of each member, and helpers of all. Private to this
// folder.
//
// To add one: a file with a `data_tokenizer_row`, and the paths that select it in tokenizer.c.
#ifndef DATA_TOKENIZER_FAMILY_H
#define DATA_TOKENIZER_FAMILY_H

#include "data/tokenizer.h"

enum {
    TOKENIZER_IDS_MAX = 1 << 22,           // ids of a vocabulary
    TOKENIZER_FILE_MAX = 256 << 20,        // bytes of one file
    TOKENIZER_TOKEN_MAX = 1 << 16,         // bytes of one token
    TOKENIZER_TEXT_MAX = INT32_MAX - 65536 // bytes of one call
};

typedef status data_take_word(void *context, const char *word, int64_t bytes);

typedef struct data_tokenizer_row {
    const char *name;
    status (*encode)(data_tokenizer *t, const char *text, int64_t bytes, int flags, data_ids *out);
    // The bytes of one id; *special is true for a special token. count 0 for an id without text.
    void (*token)(const data_tokenizer *t, int32_t id, const char **bytes, int64_t *count,
                  bool *special);
    int32_t (*find)(const data_tokenizer *t, const char *text);
    void (*close)(data_tokenizer *t);
    // Gives a copy its own scratch, in place of that which it shares with the original.
    status (*unshare)(data_tokenizer *t, arena *a);
    // Appends what one more id, and the end, add to the decoded bytes. NULL: the ids' own bytes.
    status (*decode)(const data_tokenizer *t, data_decoder *d, int32_t id, int flags,
                     data_bytes *out);
    status (*decode_end)(const data_tokenizer *t, data_decoder *d, data_bytes *out);
    // Calls take(context, word) for each word of a text that is UTF-8, in order: the parts that the
    // model would get. NULL: the tokenizer has no words.
    status (*words)(data_tokenizer *t, const char *text, int64_t bytes, data_take_word *take,
                    void *context);
} data_tokenizer_row;

// The answer of the file's post-processor (post_process.h): ids, and -1 for the text.
typedef struct post_process {
    const int32_t *items; // NULL: the text alone
    int64_t count;
    int64_t added; // tokens that truncation allows for, as the reference counts them
} post_process;

// `truncation` and `padding` of the file (limits.h).
typedef struct tokenizer_limits {
    bool truncates, cuts_left, pads, pads_left;
    int strategy; // LongestFirst, OnlyFirst, OnlySecond
    int64_t length_max, stride;
    int64_t length_fixed, multiple, pad_id; // length_fixed 0: the text's own
    const char *about[3]; // both; without truncation; without padding. NULL: neither is left
} tokenizer_limits;

struct data_tokenizer {
    const data_tokenizer_row *row;
    int64_t vocab_size;
    int32_t eot;
    int cuts;         // DATA_CUT_*
    bool joins;       // the bytes of ids together are the text, whatever `decode` of the row is
    bool has_special; // DATA_ENCODE_SPECIAL changes something
    int flags;        // DATA_ENCODE_*, see data_tokenizer_flags
    hash128 id;
    post_process around[2]; // without and with the tokens of DATA_ENCODE_ADD
    tokenizer_limits limits;
    struct bpe *bpe; // of the rows `bpe` and `pipeline`
    struct pipeline *pipeline;
};

extern const data_tokenizer_row data_tokenizer_row_bytes;
extern const data_tokenizer_row data_tokenizer_row_bpe;
extern const data_tokenizer_row data_tokenizer_row_pipeline;

NODISCARD status data_tokenizer_open_bytes(arena *a, data_tokenizer **out);
// From a tokenizer.json, and from the two files. `folder` may hold tokenizer_config.json.
NODISCARD status data_tokenizer_open_json(const host *h, arena *a, const char *path,
                                          data_tokenizer **out);
// The same from the text of a tokenizer.json.
NODISCARD status data_tokenizer_open_text(arena *a, const char *name, const char *text,
                                          int64_t bytes, data_tokenizer **out);
// The same from a text that convert/ made of the file at `path`; eot_text: NULL for none.
NODISCARD status data_tokenizer_open_made(arena *a, const char *path, const data_bytes *made,
                                          const char *eot_text, data_tokenizer **out);
NODISCARD status data_tokenizer_open_gpt2(const host *h, arena *a, const char *vocab_path,
                                          const char *merges_path, data_tokenizer **out);

// The words of a text, see the row.
NODISCARD status data_tokenizer_words(data_tokenizer *t, const char *text, int64_t bytes,
                                      data_take_word *take, void *context);

// UTF-8. The number of bytes of the character at `bytes` (count > 0): 1..4, with its code point.
// For malformed bytes: minus the length of the longest part that could begin a character (at least
// 1), as Unicode 3.9 and the reference replace it; *torn is true if only the end of the input is
// missing.
int utf8_next(const uint8_t *bytes, int64_t count, uint32_t *point, bool *torn);
// The number of leading bytes that are whole characters.
int64_t utf8_valid_prefix(const char *bytes, int64_t count);
// Appends what base64 stands for; *valid is false, with part of it appended, where it is none.
NODISCARD status tokenizer_base64(const char *text, int64_t count, data_bytes *out, bool *valid);
// Appends the text with U+FFFD for each part that is not UTF-8.
NODISCARD status utf8_repair(const char *bytes, int64_t count, data_bytes *out);

#endif
