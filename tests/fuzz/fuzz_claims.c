// Fuzz entry: a file of claims from any bytes. Every one gets a verdict and texts in UTF-8, or the file is
// refused as the user's fault (exit 3); no formula opens a file, runs away or comes to no number.
#include "cli/explain/claims.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    arena *a = NULL;
    claim_list l = {0};
    if (arena_create("fuzz", INT64_C(1) << 28, &a) != ST_OK) return 0;
    const status st = claims_answer(host_real(), a, (const char *)data, (int64_t)size, "fuzz", &l);
    if (st != ST_OK) {
        const char *message = error_last()->text;
        ASSERT(status_exit_code(st) == 3 || st == ST_NO_MEMORY);
        ASSERT(message[0] != '\0' && text_is_utf8(message, (int64_t)strlen(message)));
    }
    for (int64_t i = 0; i < l.count && st == ST_OK; i++) {
        const claim_answer *c = &l.items[i];
        ASSERT(c->verdict >= 0 && c->verdict < CLAIM_VERDICT_COUNT);
        ASSERT(text_is_utf8(c->computed, (int64_t)strlen(c->computed)));
        ASSERT(text_is_utf8(c->why, (int64_t)strlen(c->why)));
    }
    arena_destroy(a);
    return 0;
}
