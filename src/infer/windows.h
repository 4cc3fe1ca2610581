// Text files and token files as windows to score: the stream of the trainer (document, end-of-text
// token, document, ...), read incrementally.
//
//   seq 4, stride 4    |0 1 2 3|4 5 6 7|8 . . .        every token is predicted once, the first
//                      never
//   seq 4, stride 2    |0 1 2 3|                       a window's first seq - stride positions are
//                          |2 3 4 5|                   context only, except in the first window
#ifndef INFER_WINDOWS_H
#define INFER_WINDOWS_H

#include "data/tokens.h"
#include "infer/evaluate.h"

typedef struct infer_windows infer_windows;

typedef struct infer_windows_spec {
    const char *const *paths; // one stream, in this order
    int64_t path_count;
    data_tokenizer *tokenizer; // NULL: only token files, and bytes are not counted
    int64_t vocab;             // the model's vocabulary
    int64_t seq, stride;       // 1 <= stride <= seq
    int64_t limit;             // tokens to predict; 0: all
    // A window is one text, whatever document boundaries it contains (data.packing: plain).
    bool crosses_texts;
    bool skips_bad_lines; // of JSON lines; otherwise they are errors
} infer_windows_spec;

typedef struct infer_windows_count {
    int64_t tokens;    // predicted tokens
    int64_t bytes;     // bytes of the text of these tokens; special tokens have none
    int64_t documents; // documents that contain them
    int64_t skipped;   // lines that were left out
} infer_windows_count;

NODISCARD status infer_windows_open(const host *h, arena *a, const infer_windows_spec *spec,
                                    infer_windows **out);
// Fills up to rows->rows windows; *filled 0: the stream has ended.
NODISCARD status infer_windows_next(infer_windows *w, const infer_rows *rows, int64_t *filled);
infer_windows_count infer_windows_counted(const infer_windows *w);
// Estimated share of the work that is done: 0 to 1.
double infer_windows_share(const infer_windows *w);
void infer_windows_close(infer_windows *w); // NULL is legal

#endif
