// Reads text files: bytes from plain and packed files, and documents from the bytes.
//
// Two small families in layers. The first bytes choose the codec, and where
// they do not tell, the name's ending. JSON lines hold a JSON object per line whose `text` is a
// document: a file is taken for them if its first line is an object, or if it is named .jsonl,
// .jsonlines, .ndjson or .json. Any other text is one document. Files that are no text are refused
// by what they hold (content.h). A UTF-8 byte order mark is skipped. The reader streams: it holds
// one piece of a text or one line.
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
    status (*begin)(data_reader *r);
    // Sets *done at the end of the data. May return fewer bytes than asked, and 0 only when done.
    status (*read)(data_reader *r, void *buffer, int64_t bytes, int64_t *got);
    void (*end)(data_reader *r);
} data_codec;
extern const data_codec data_codec_gzip, data_codec_zstd, data_codec_bzip2, data_codec_xz;
extern const data_codec data_codec_plain;

enum {
    DATA_READER_ANY = 1, // takes bytes of any kind, such as those of a web archive
    DATA_READER_HASH = 2 // hashes the file's bytes for data_reader_hash
};
// Reads the first bytes and refuses what is no text.
NODISCARD status data_reader_open(const host *h, const char *path, data_reader **out);
NODISCARD status data_reader_open_as(const host *h, const char *path, int flags, data_reader **out);
// *got = 0: the end. Damage is ST_DAMAGED with the offset in the compressed file.
NODISCARD status data_reader_read(data_reader *r, void *buffer, int64_t bytes, int64_t *got);
// Bytes of the file read so far, and the file's size: for progress.
int64_t data_reader_position(const data_reader *r);
int64_t data_reader_file_bytes(const data_reader *r);
// The hash of the whole file as it is stored: reads what was not read yet. Once, and nothing can be
// read after it.
NODISCARD status data_reader_hash(data_reader *r, hash128 *out);
void data_reader_close(data_reader *r); // NULL is legal

// Refuses bytes that are no UTF-8 text by what they hold, as data_reader_open does.
NODISCARD status data_text_check(const char *path, const char *bytes, int64_t count);

// Refuses a file of raw tokens that begins like a known other kind of file.
NODISCARD status data_tokens_check(const char *path, const uint8_t *head, int64_t count);

// ---- documents ----------------------------------------------------------------------------------
typedef struct data_documents data_documents;

typedef struct data_piece {
    const char *bytes; // borrowed until the next call; NULL: no further document
    int64_t count;
    bool ends_document;
    bool continues; // it is not the first piece of its document
} data_piece;
// DATA_ENCODE_CONTINUES and DATA_ENCODE_GOES_ON of a piece.
int data_piece_flags(const data_piece *piece);

enum {
    // Skips lines that are no JSON object with a text; otherwise they are errors. The flags of
    // data_tokenizer_cuts may be added: they say where a document may be cut into pieces.
    DATA_SKIP_BAD_LINES = 4
};
NODISCARD status data_documents_open(const host *h, const char *path, int flags,
                                     data_documents **out);
NODISCARD status data_documents_next(data_documents *d, data_piece *out);
bool data_documents_are_lines(const data_documents *d); // JSON lines
// Instead of data_documents_next: the next line of JSON lines that is not blank, as it stands in
// the file. bytes is borrowed until the next call; NULL: no further line.
typedef struct data_line {
    const char *bytes;
    int64_t count, number;
} data_line;
NODISCARD status data_documents_line(data_documents *d, data_line *out);
// Lines skipped so far, and the error of the first one ("" if there is none).
int64_t data_documents_skipped(const data_documents *d, const char **first);
const data_reader *data_documents_reader(const data_documents *d);
void data_documents_close(data_documents *d); // NULL is legal

#ifdef __cplusplus
}
#endif
#endif
