// Stop texts are few and short, so the code searches the latest text for each of them directly.
#include "infer/continuation.h"

#include <string.h>

static bool lies_at(const data_bytes *t, int64_t at, const char *stop, int64_t length)
{
    return at + length <= t->count && memcmp(t->items + at, stop, (size_t)length) == 0;
}

// The beginning of the first stop text at or after `from`; -1: none.
static int64_t find(const infer_continuation *c, int64_t from)
{
    for (int64_t at = from; at < c->text.count; at++) {
        for (int64_t i = 0; i < c->stop_count; i++) {
            if (lies_at(&c->text, at, c->stops[i], (int64_t)strlen(c->stops[i]))) return at;
        }
    }
    return -1;
}

// The number of bytes at the end that are the beginning of a stop text.
static int64_t held_back(const infer_continuation *c, int64_t longest)
{
    for (int64_t n = min_i64(longest - 1, c->text.count); n > 0; n--) {
        for (int64_t i = 0; i < c->stop_count; i++) {
            const bool is_longer = (int64_t)strlen(c->stops[i]) > n;
            if (is_longer && lies_at(&c->text, c->text.count - n, c->stops[i], n)) return n;
        }
    }
    return 0;
}

static void settle(infer_continuation *c, int64_t before)
{
    int64_t longest = 0;
    for (int64_t i = 0; i < c->stop_count; i++) {
        longest = max_i64(longest, (int64_t)strlen(c->stops[i]));
    }
    const int64_t at = longest > 0 ? find(c, max_i64(0, before - longest + 1)) : -1;
    if (at >= 0) {
        c->stopped = true;
        c->text.count = at;
        c->certain = at;
        return;
    }
    c->certain = c->text.count - held_back(c, longest);
}

status infer_continuation_add(infer_continuation *c, const data_tokenizer *t, int32_t id)
{
    ASSERT(!c->stopped);
    const int64_t before = c->text.count;
    TRY(data_decoder_next(&c->decoder, t, id, DATA_DECODE_CONTINUES, &c->text));
    settle(c, before);
    return ST_OK;
}

status infer_continuation_end(infer_continuation *c)
{
    if (c->stopped) return ST_OK; // an incomplete character can only come after the stop text
    const int64_t before = c->text.count;
    TRY(data_decoder_end(&c->decoder, &c->text));
    settle(c, before);
    c->certain = c->text.count;
    return ST_OK;
}

void infer_continuation_deinit(infer_continuation *c)
{
    data_decoder_deinit(&c->decoder);
    data_bytes_deinit(&c->text);
}
