// Reads text files: bytes from plain, gzip and zstd files, and documents from the bytes.
//
// Two small families in layers. The last file ending chooses the codec (.gz, .zst). The ending
// before it chooses the document form: .jsonl, .ndjson and .json hold a JSON object per line whose
// `text` is a document; any other file is one document. The reader streams: it holds one piece of a
// text or one line.
#ifndef DATA_READER_H
#define DATA_READER_H

#include "data/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    DATA_PIECE_BYTES = 1 << 20,     // for a text that may be cut
    DATA_LINE_BYTES_MAX = 1 << 28,  // for a JSON line
    DATA_WHOLE_BYTES_MAX = 1 << 30, // for a text that cannot be cut
    DATA_ZSTD_WINDOW_LOG_MAX = 27,  // limit of a .zst file's window: 128 MiB
    DATA_EXPANSION_MAX = 4096,      // most bytes from one compressed byte,
    DATA_EXPANSION_GRACE = 64 << 20 // after this many bytes
};

// ---- bytes --------------------------------------------------------------------------------------
typedef struct data_reader data_reader;

typedef struct data_codec {
    const char *name;
    const char *ending; // file ending; NULL: any
    status (*begin)(data_reader *r);
    // Sets *done at the end of the data. May return fewer bytes than asked, and 0 only when done.
    status (*read)(data_reader *r, void *buffer, int64_t bytes, int64_t *got);
    void (*end)(data_reader *r);
} data_codec;
extern const data_codec data_codec_gzip, data_codec_zstd, data_codec_plain;

NODISCARD status data_reader_open(const host *h, const char *path, data_reader **out);
// *got = 0: the end. Damage is ST_DAMAGED with the offset in the compressed file.
NODISCARD status data_reader_read(data_reader *r, void *buffer, int64_t bytes, int64_t *got);
// Bytes of the file read so far, and the file's size: for progress.
int64_t data_reader_position(const data_reader *r);
int64_t data_reader_file_bytes(const data_reader *r);
void data_reader_close(data_reader *r); // NULL is legal

// ---- documents ----------------------------------------------------------------------------------
typedef struct data_documents data_documents;

typedef struct data_piece {
    const char *bytes; // borrowed until the next call; NULL: no further document
    int64_t count;
    bool ends_document;
} data_piece;

// can_cut: a document may come in several pieces (data_tokenizer_can_cut).
NODISCARD status data_documents_open(const host *h, const char *path, bool can_cut,
                                     data_documents **out);
NODISCARD status data_documents_next(data_documents *d, data_piece *out);
const data_reader *data_documents_reader(const data_documents *d);
void data_documents_close(data_documents *d); // NULL is legal

#ifdef __cplusplus
}
#endif
#endif
