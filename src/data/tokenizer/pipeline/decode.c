// Decodes token by token: each step takes tokens and gives tokens to the next. The last step's
// tokens together are the text.
#include "data/tokenizer/pipeline/pipeline.h"

#include <string.h>

static bool begins_with(const char *text, int64_t count, const char *with, int64_t with_bytes)
{
    return count >= with_bytes && memcmp(text, with, (size_t)with_bytes) == 0;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// The byte of a token such as <0x0A>; -1 for another token. The reference's number parser also
// takes a plus sign.
static int byte_of(const char *token, int64_t count)
{
    if (count != 6 || memcmp(token, "<0x", 3) != 0 || token[5] != '>') return -1;
    const int high = token[3] == '+' ? 0 : hex_digit(token[3]), low = hex_digit(token[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static status step_run(const pipeline *p, data_decoder *d, int step, const char *token,
                       int64_t count, data_bytes *out);

// Bytes that are one text pass as it; otherwise each of them becomes U+FFFD.
static status flush_run(const pipeline *p, data_decoder *d, int step, data_bytes *out)
{
    status st = ST_OK;
    data_bytes run = d->run;
    if (run.count == 0) return ST_OK;
    d->run = (data_bytes){0};
    if (utf8_valid_prefix(run.items, run.count) == run.count) {
        st = step_run(p, d, step + 1, run.items, run.count, out);
    } else {
        for (int64_t i = 0; i < run.count && st == ST_OK; i++) {
            st = step_run(p, d, step + 1, "\xef\xbf\xbd", 3, out);
        }
    }
    data_bytes_deinit(&run);
    return st;
}

static status byte_fallback(const pipeline *p, data_decoder *d, int step, const char *token,
                            int64_t count, data_bytes *out)
{
    const int byte = byte_of(token, count);
    if (byte >= 0) return data_bytes_add(&d->run, &(char){(char)byte}, 1);
    TRY(flush_run(p, d, step, out));
    return step_run(p, d, step + 1, token, count, out);
}

// Replaces the matches of an expression. Decoding may be on several threads, so each call has its
// own space for matches.
static status replace_matches(const pipeline *p, data_decoder *d, int step, const char *token,
                              int64_t count, data_bytes *out)
{
    const decoder_step *s = &p->decoders[step];
    pattern own = s->pattern;
    pieces list = {0};
    data_bytes changed = {0};
    status st = pattern_unshare(&own);
    if (st == ST_OK) st = pattern_pieces(&own, token, count, &list);
    for (int64_t i = 0; i < list.count && st == ST_OK; i++) {
        const piece *one = &list.items[i];
        st = one->is_match ? data_bytes_add(&changed, s->to, s->to_bytes)
                           : data_bytes_add(&changed, token + one->begin, one->end - one->begin);
    }
    if (st == ST_OK) st = step_run(p, d, step + 1, changed.items, changed.count, out);
    data_bytes_deinit(&changed);
    pieces_deinit(&list);
    pattern_close(&own);
    return st;
}

// Replaces within one token; `to` is empty for a mark that goes away.
static status replace(const pipeline *p, data_decoder *d, int step, const char *token,
                      int64_t count, const char *to, int64_t to_bytes, data_bytes *out)
{
    const decoder_step *s = &p->decoders[step];
    data_bytes changed = {0};
    status st = ST_OK;
    int64_t from = 0;
    for (int64_t at = 0; at < count && st == ST_OK;) {
        if (!begins_with(token + at, count - at, s->from, s->from_bytes)) {
            at++;
            continue;
        }
        st = data_bytes_add(&changed, token + from, at - from);
        if (st == ST_OK) st = data_bytes_add(&changed, to, to_bytes);
        from = at += s->from_bytes;
    }
    if (st == ST_OK && from == 0) {
        st = step_run(p, d, step + 1, token, count, out);
    } else {
        if (st == ST_OK) st = data_bytes_add(&changed, token + from, count - from);
        if (st == ST_OK) st = step_run(p, d, step + 1, changed.items, changed.count, out);
    }
    data_bytes_deinit(&changed);
    return st;
}

static status strip(const pipeline *p, data_decoder *d, int step, const char *token, int64_t count,
                    data_bytes *out)
{
    const decoder_step *s = &p->decoders[step];
    int64_t cut = s->after_fuse ? d->cut : 0;
    bool is_done = s->after_fuse && d->cut_is_done;
    while (!is_done && count > 0) {
        is_done = cut == s->cut || !begins_with(token, count, s->from, s->from_bytes);
        if (is_done) break;
        cut++;
        token += s->from_bytes;
        count -= s->from_bytes;
    }
    for (int64_t i = 0; i < s->cut_right && count >= s->from_bytes; i++) {
        if (!begins_with(token + count - s->from_bytes, s->from_bytes, s->from, s->from_bytes)) {
            break;
        }
        count -= s->from_bytes;
    }
    if (s->after_fuse) {
        d->cut = (int32_t)cut;
        d->cut_is_done = is_done;
    }
    return step_run(p, d, step + 1, token, count, out);
}

// WordPiece's `cleanup` replaces these, in this order.
static const char *const cleanups[][2] = {
    {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
    {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
    {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
};

// Replaces in place: no replacement is longer.
static int64_t replace_all(char *text, int64_t count, const char *from, const char *to)
{
    const int64_t from_bytes = (int64_t)strlen(from), to_bytes = (int64_t)strlen(to);
    int64_t n = 0;
    for (int64_t at = 0; at < count;) {
        if (begins_with(text + at, count - at, from, from_bytes)) {
            memcpy(text + n, to, (size_t)to_bytes);
            n += to_bytes;
            at += from_bytes;
        } else {
            text[n++] = text[at++];
        }
    }
    return n;
}

static void clean(data_bytes *text)
{
    for (int64_t i = 0; i < COUNT_OF(cleanups); i++) {
        text->count = replace_all(text->items, text->count, cleanups[i][0], cleanups[i][1]);
    }
}

// The prefix goes away; a token without it begins a word. The first token stays as it is.
static status wordpiece(const pipeline *p, data_decoder *d, int step, const char *token,
                        int64_t count, bool is_first, data_bytes *out)
{
    const decoder_step *s = &p->decoders[step];
    data_bytes changed = {0};
    status st = ST_OK;
    if (!is_first && begins_with(token, count, s->from, s->from_bytes)) {
        token += s->from_bytes;
        count -= s->from_bytes;
    } else if (!is_first) {
        st = data_bytes_add(&changed, " ", 1);
    }
    if (st == ST_OK) st = data_bytes_add(&changed, token, count);
    if (s->cleans) clean(&changed);
    if (st == ST_OK) st = step_run(p, d, step + 1, changed.items, changed.count, out);
    data_bytes_deinit(&changed);
    return st;
}

// Appends a text with `to` in place of `from`, which is not empty.
static status add_replaced(data_bytes *out, const char *text, int64_t count, const char *from,
                           int64_t from_bytes, const char *to, int64_t to_bytes)
{
    int64_t begin = 0;
    if (count == 0) return ST_OK;
    for (int64_t at = 0; at < count;) {
        if (!begins_with(text + at, count - at, from, from_bytes)) {
            at++;
            continue;
        }
        TRY(data_bytes_add(out, text + begin, at - begin));
        TRY(data_bytes_add(out, to, to_bytes));
        begin = at += from_bytes;
    }
    return data_bytes_add(out, text + begin, count - begin);
}

// Equal neighbours are one token; a token that only pads is none.
static status ctc(const pipeline *p, data_decoder *d, int step, const char *token, int64_t count,
                  data_bytes *out)
{
    const decoder_step *s = &p->decoders[step];
    if (d->has_last && d->last.count == count &&
        (count == 0 || memcmp(d->last.items, token, (size_t)count) == 0)) {
        return ST_OK;
    }
    d->has_last = true;
    d->last.count = 0;
    TRY(data_bytes_add(&d->last, token, count));
    data_bytes plain = {0}, changed = {0};
    status st = add_replaced(&plain, token, count, s->from, s->from_bytes, "", 0);
    if (st == ST_OK && s->cleans) {
        clean(&plain);
        st = add_replaced(&changed, plain.items, plain.count, s->to, s->to_bytes, " ", 1);
        data_bytes_deinit(&plain);
        plain = changed;
    }
    if (st == ST_OK && plain.count > 0) {
        st = step_run(p, d, step + 1, plain.items, plain.count, out);
    }
    data_bytes_deinit(&plain);
    return st;
}

// The suffix becomes a blank, except in the last token: each waits for the next.
static status flush_ahead(const pipeline *p, data_decoder *d, int step, bool is_last,
                          data_bytes *out)
{
    const decoder_step *s = &p->decoders[step];
    data_bytes changed = {0};
    if (!d->has_ahead) return ST_OK;
    d->has_ahead = false;
    status st = add_replaced(&changed, d->ahead.items, d->ahead.count, s->from, s->from_bytes, " ",
                             is_last ? 0 : 1);
    if (st == ST_OK) st = step_run(p, d, step + 1, changed.items, changed.count, out);
    data_bytes_deinit(&changed);
    return st;
}

static status bpe_suffix(const pipeline *p, data_decoder *d, int step, const char *token,
                         int64_t count, data_bytes *out)
{
    TRY(flush_ahead(p, d, step, false, out));
    d->has_ahead = true;
    d->ahead.count = 0;
    return data_bytes_add(&d->ahead, token, count);
}

// The bytes that a token spells; a token with another character is itself.
static status byte_level(const pipeline *p, data_decoder *d, int step, const char *token,
                         int64_t count, data_bytes *out)
{
    data_bytes bytes = {0};
    status st = data_bytes_add(&bytes, token, count); // they are no more than the spelling has
    if (st == ST_OK) {
        const int64_t n = bpe_unspell(token, count, bytes.items);
        st = n >= 0 ? step_run(p, d, step + 1, bytes.items, n, out)
                    : step_run(p, d, step + 1, token, count, out);
    }
    data_bytes_deinit(&bytes);
    return st;
}

// The depth of the recursion is the number of steps, at most PIPELINE_STEPS_MAX.
static status step_run(const pipeline *p, data_decoder *d, int step, const char *token,
                       int64_t count, data_bytes *out)
{
    if (token == NULL) token = ""; // an empty list
    if (step == p->decoder_count) return data_bytes_add(out, token, count);
    if (p->hold >= 0 && step == p->hold + 1 && !d->is_ending) {
        d->is_held = true;
        return data_bytes_add(&d->held, token, count);
    }
    const decoder_step *s = &p->decoders[step];
    const bool is_first = (d->begun >> step & 1) == 0;
    d->begun |= 1u << step;
    switch (s->kind) {
    case DECODER_REPLACE:
        if (s->pattern.code != NULL) return replace_matches(p, d, step, token, count, out);
        return replace(p, d, step, token, count, s->to, s->to_bytes, out);
    case DECODER_METASPACE: {
        const bool drops = is_first && !s->keeps_first;
        return replace(p, d, step, token, count, " ", drops ? 0 : 1, out);
    }
    case DECODER_BYTE_FALLBACK:
        return byte_fallback(p, d, step, token, count, out);
    case DECODER_STRIP:
        return strip(p, d, step, token, count, out);
    case DECODER_WORDPIECE:
        return wordpiece(p, d, step, token, count, is_first, out);
    case DECODER_JOIN:
        if (!is_first) TRY(data_bytes_add(out, " ", 1));
        break;
    case DECODER_BPE:
        return bpe_suffix(p, d, step, token, count, out);
    case DECODER_CTC:
        return ctc(p, d, step, token, count, out);
    case DECODER_BYTE_LEVEL:
        if (p->is_byte_level && pipeline_joins_bytes(p)) break; // the tokens are bytes already
        return byte_level(p, d, step, token, count, out);
    case DECODER_FUSE:
        break;
    }
    return step_run(p, d, step + 1, token, count, out);
}

status pipeline_decode(const pipeline *p, data_decoder *d, const char *token, int64_t count,
                       data_bytes *out)
{
    return step_run(p, d, 0, token, count, out);
}

bool pipeline_joins_bytes(const pipeline *p)
{
    return p->decoder_count == 1 && p->decoders[0].kind == DECODER_BYTE_LEVEL;
}

// Passes on the tokens that the steps from `from` to `to` hold back.
static status flush(const pipeline *p, data_decoder *d, int from, int to, data_bytes *out)
{
    for (int step = from; step < to; step++) {
        if (p->decoders[step].kind == DECODER_BYTE_FALLBACK) TRY(flush_run(p, d, step, out));
        if (p->decoders[step].kind == DECODER_BPE) TRY(flush_ahead(p, d, step, true, out));
    }
    return ST_OK;
}

status pipeline_decode_end(const pipeline *p, data_decoder *d, data_bytes *out)
{
    const int hold = p->hold + 1;
    TRY(flush(p, d, 0, hold > 0 ? hold : p->decoder_count, out));
    if (hold == 0 || !d->is_held) return ST_OK;
    d->is_ending = true;
    data_bytes text = {0};
    status st = utf8_repair(d->held.items, d->held.count, &text);
    if (st == ST_OK) st = step_run(p, d, hold, text.items, text.count, out);
    if (st == ST_OK) st = flush(p, d, hold, p->decoder_count, out);
    data_bytes_deinit(&text);
    return st;
}
