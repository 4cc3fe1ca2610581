// Fuzz entry: any bytes as the answer of a service, all at once and byte by byte: what a prefix gives
// is what the whole gives, until more follows.
#include "train/reward/answer.h"

#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *bytes = (const char *)data;
    reward_answer a;
    for (int closed = 0; closed < 2; closed++) {
        const status st = reward_answer_read(bytes, (int64_t)size, closed != 0, &a);
        if (st == ST_OK && a.is_whole && a.code == 200) ASSERT(isfinite(a.reward));
        if (st == ST_OK && closed != 0) ASSERT(a.is_whole);
        error_clear();
    }
    for (size_t n = 0; n < size && n < 512; n++) {
        if (reward_answer_read(bytes, (int64_t)n, false, &a) != ST_OK) break;
        if (a.is_whole) break;
    }
    error_clear();
    return 0;
}
