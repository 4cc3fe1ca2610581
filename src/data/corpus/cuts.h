// Parts of documents that repeat earlier text, which the last pass leaves out. Private to this
// folder.
//
// A run holds the cuts that one search found, in the order of the documents, as a work file of
// text_cut. Its places of frames are in memory, 8 bytes for each.
#ifndef DATA_CORPUS_CUTS_H
#define DATA_CORPUS_CUTS_H

#include "data/corpus/build.h"

typedef struct text_cut {
    int64_t document; // of the build
    uint32_t begin, count;
} text_cut;

typedef struct cut_list {
    text_cut *items;
    int64_t count, capacity;
} cut_list;
NODISCARD status cut_list_add(cut_list *l, const text_cut *c);
void cut_list_deinit(cut_list *l);

typedef struct cut_run {
    char *path;
    int64_t *frame_at; // [frame + 1]: cuts before the frame
    file *f;           // while it is written
    cut_list waiting;
    int64_t count, frame, file_idx, frame_idx; // of the last cut
} cut_run;

NODISCARD status cuts_begin(build *b, cut_run **out);
NODISCARD status cuts_add(build *b, cut_run *r, const text_cut *c); // documents ascend
NODISCARD status cuts_end(build *b, cut_run *r);                    // now it is one of the build's

// The cuts of a frame, of the first `runs` runs, ascending and apart.
NODISCARD status cuts_read(const build *b, int64_t runs, int64_t file_idx, int64_t frame,
                           cut_list *out);
// The text without the cuts items[*next ...] of this document; *next goes behind them. Borrowed
// from `made` or the text itself.
NODISCARD status cuts_apply(const cut_list *l, int64_t *next, int64_t document, const char **bytes,
                            int64_t *count, data_bytes *made);

// Calls `take` for each frame of the build whose documents do not all fall out.
typedef status (*frame_fn)(void *context, int64_t file_idx, int64_t frame, const spill_batch *docs);
NODISCARD status cuts_each_frame(build *b, frame_fn take, void *context);

// Finds repeated lines, and repeated stretches of any text.
NODISCARD status dedup_lines(build *b);
NODISCARD status dedup_substrings(build *b);
// Makes one run of all, whose cuts hold whole characters, counts them, and drops documents of which
// no text stays.
NODISCARD status cuts_finish(build *b);

#endif
