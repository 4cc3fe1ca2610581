// The part of a reader that codecs see. Private to this folder.
#ifndef DATA_READER_CODEC_H
#define DATA_READER_CODEC_H

#include "data/reader.h"

enum { READER_INPUT_BYTES = 1 << 18 };

struct data_reader {
    const host *h;
    const data_codec *codec;
    file *f;
    char *path;
    int64_t file_bytes, offset; // offset: the next byte to read from the file
    int64_t given;              // bytes returned to the caller
    // Compressed bytes that were read and not used yet: input[input_at .. input_count).
    uint8_t *input;
    int64_t input_at, input_count;
    void *stream; // the codec's state
    bool done;
    // The first decoded bytes, which data_reader_open checks: head[head_at .. head_count).
    uint8_t *head;
    int64_t head_at, head_count;
    hash_stream *hash; // of the bytes before `offset`; NULL: not wanted
};

// Reads more input if the buffer is empty; input_count stays 0 at the end of the file.
NODISCARD status reader_fill(data_reader *r);

#endif
