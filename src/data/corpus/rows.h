// Documents of an input file, one row after the other. Private to this folder.
//
// A family: plain text, JSON lines, CSV and TSV, WARC and WET, Parquet, Arrow. To add a format,
// write a file with a `corpus_row_format`, its row in the table of rows.c and its word in
// sources.NAME.format.
#ifndef DATA_CORPUS_ROWS_H
#define DATA_CORPUS_ROWS_H

#include "data/corpus.h"
#include "data/reader.h"

typedef enum row_kind {
    ROW_DOCUMENT,
    ROW_END,
    ROW_BAD,   // no text here: `why` says it
    ROW_LARGE, // more than document_bytes
    ROW_NONE   // a record of another kind, which is skipped and not counted
} row_kind;

typedef struct corpus_row {
    row_kind kind;
    const char *text; // borrowed until the next call, like `id`
    int64_t text_bytes;
    const char *id; // NULL: the file names none
    int64_t id_bytes;
    const char *why; // of ROW_BAD
} corpus_row;

typedef struct corpus_rows_options {
    int32_t format, unit;
    const char *text, *id; // key or column
    int64_t document_bytes;
} corpus_rows_options;

typedef struct corpus_rows corpus_rows;

// Damaged files are errors; *out has read the beginning of the file.
NODISCARD status corpus_rows_open(const host *h, const char *path, const corpus_rows_options *o,
                                  corpus_rows **out);
NODISCARD status corpus_rows_next(corpus_rows *r, corpus_row *out); // never ROW_NONE
const char *corpus_rows_format(const corpus_rows *r);
int64_t corpus_rows_position(const corpus_rows *r); // bytes of the file that were read
// After the end: the hash of the file.
NODISCARD status corpus_rows_hash(corpus_rows *r, hash128 *out);
void corpus_rows_close(corpus_rows *r); // NULL is legal

// ---- for the formats ----------------------------------------------------------------------------
typedef struct corpus_row_format {
    const char *name;
    int32_t choice; // as sources.NAME.format
    bool is_binary; // otherwise the beginning of a file must be text
    status (*begin)(corpus_rows *r);
    status (*next)(corpus_rows *r, corpus_row *out);
    void (*end)(corpus_rows *r); // frees r->state, which may be NULL
} corpus_row_format;

struct corpus_rows {
    const host *h;
    const corpus_row_format *format;
    data_reader *reader;
    char *path;
    corpus_rows_options o;
    // window[begin..end) holds bytes that were read and not used yet.
    char *window;
    int64_t begin, end, capacity;
    bool at_end;      // the window holds the rest of the file
    int64_t line;     // number of the last line returned
    int64_t position; // of a format that does not read through the window; 0: it does
    void *state;
    char why[300]; // of ROW_BAD
};

extern const corpus_row_format corpus_row_format_text;
extern const corpus_row_format corpus_row_format_jsonl;
extern const corpus_row_format corpus_row_format_csv;
extern const corpus_row_format corpus_row_format_tsv;
extern const corpus_row_format corpus_row_format_warc;
extern const corpus_row_format corpus_row_format_parquet;
extern const corpus_row_format corpus_row_format_arrow;

// Reads more bytes into the window, whose used part is dropped.
NODISCARD status rows_more(corpus_rows *r);
// Holds so many bytes in the window. *whole is false where the file ends before.
NODISCARD status rows_hold(corpus_rows *r, int64_t bytes, bool *whole);
// Drops so many bytes; the same.
NODISCARD status rows_skip(corpus_rows *r, int64_t bytes, bool *whole);
// The next line without its end. *line NULL: the end of the file. *is_large: the line has more than
// `limit` bytes, of which only some are returned.
NODISCARD status rows_line(corpus_rows *r, int64_t limit, const char **line, int64_t *count,
                           bool *is_large);
// A row of kind ROW_BAD with this reason.
corpus_row rows_bad(corpus_rows *r, const char *format, ...) PRINTF_LIKE(2, 3);

#endif
