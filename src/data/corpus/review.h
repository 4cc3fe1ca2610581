// Review of documents by people. Private to this folder.
#ifndef DATA_CORPUS_REVIEW_H
#define DATA_CORPUS_REVIEW_H

#include "data/corpus/build.h"
#include "data/reader.h"

// Opens a review file at its end, behind a whole line.
NODISCARD status review_file_open(const host *h, const char *path, file **out);

// The answer of a review about a document of a source, as it was read.
typedef enum review_say {
    REVIEW_SAYS_NOTHING,
    REVIEW_KEEPS, // no rule may drop it; *body may be an edited text
    REVIEW_REJECTS,
    REVIEW_WAITS // a person has to decide about it, and has not
} review_say;
typedef struct review_verdict {
    review_say say;
    int mark;         // SPILL_MARK_*
    const char *text; // of an edit; NULL: the document's own
    int64_t text_bytes;
} review_verdict;
review_verdict review_verdict_of(const corpus_config *c, int64_t source, const char *bytes,
                                 int64_t count);
// Whether the source's share for review holds the document.
bool review_is_chosen(const corpus_config *c, int64_t source, hash128 hash);

#endif
