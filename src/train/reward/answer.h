// Private to train/reward/: the answer of a service over HTTP, of which any byte may be hostile.
#ifndef TRAIN_REWARD_ANSWER_H
#define TRAIN_REWARD_ANSWER_H

#include "base/base.h"

enum { REWARD_ANSWER_BYTES = 64 << 10 }; // head and body together

typedef struct reward_answer {
    bool is_whole; // no further bytes are needed
    int code;      // 200
    double reward; // of a whole answer with code 200
} reward_answer;

// Reads what has come so far; closed: nothing more will. The head is HTTP/1.0 or 1.1; the body, of
// Content-Length, in chunks or up to the end, is a number or {"reward": number}. ST_DATA: it is
// neither, or has ended too early, or has more than REWARD_ANSWER_BYTES.
NODISCARD status reward_answer_read(const char *bytes, int64_t count, bool closed,
                                    reward_answer *out);

#endif
