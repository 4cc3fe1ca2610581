// The text of a continuation: tokens become characters, and the function holds back characters that
// may be the beginning of a stop text.
#ifndef INFER_CONTINUATION_H
#define INFER_CONTINUATION_H

#include "data/tokenizer.h"

enum { INFER_STOP_BYTES_MAX = 4096 };

// Zero-initialise all but the stops, which are borrowed.
typedef struct infer_continuation {
    const char *const *stops; // each has 1 to INFER_STOP_BYTES_MAX bytes
    int64_t stop_count;
    data_decoder decoder;
    data_bytes text; // whole characters; cut where a stop text began
    int64_t certain; // bytes that no later token can remove
    bool stopped;    // a stop text occurred; the caller must add no more tokens
} infer_continuation;

// Adds one token's text. A stop text may span any number of tokens. If several occur, the one that
// begins first counts.
NODISCARD status infer_continuation_add(infer_continuation *c, const data_tokenizer *t, int32_t id);
// No more tokens: the held-back characters become certain.
NODISCARD status infer_continuation_end(infer_continuation *c);
void infer_continuation_deinit(infer_continuation *c);

#endif
