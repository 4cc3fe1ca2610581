// What a text has come to: tokens become characters, and characters are held back while they may yet
// turn out to be the beginning of a stop text.
#ifndef INFER_CONTINUATION_H
#define INFER_CONTINUATION_H

#include "data/tokenizer.h"

enum { INFER_STOP_BYTES_MAX = 4096 };

// Zero-initialise but for the stops, which are borrowed.
typedef struct infer_continuation {
    const char *const *stops; // none of them empty, each at most INFER_STOP_BYTES_MAX
    int64_t stop_count;
    data_decoder decoder;
    data_bytes text; // whole characters; cut where a stop text began
    int64_t certain; // bytes of it that nothing can take back
    bool stopped;    // a stop text came; nothing may be added
} infer_continuation;

// Takes one token's text. A stop text may lie across any number of tokens; of several the one that
// begins first counts.
NODISCARD status infer_continuation_add(infer_continuation *c, const data_tokenizer *t, int32_t id);
// No more tokens: what was held back is certain.
NODISCARD status infer_continuation_end(infer_continuation *c);
void infer_continuation_deinit(infer_continuation *c);

#endif
