// Probabilities of tokens, in the two forms that OpenAI's API has for them.
#include "serve/job.h"

static const infer_likely *token_at(const sequence *q, int64_t i)
{
    return q->likely + i * (1 + q->owner->r.likely);
}

static status add_token(const data_tokenizer *t, int32_t id, data_bytes *bytes, text *out)
{
    bytes->count = 0;
    TRY(data_tokenizer_decode(t, &id, 1, 0, bytes));
    return text_add_json_bytes(out, bytes->items, bytes->count);
}

// ---- completions: a list of each thing ----------------------------------------------------------

// A part of a character has a name that no other token has: "bytes:\xe2\x80".
static status add_name(const data_tokenizer *t, int32_t id, data_bytes *bytes, text *out)
{
    bytes->count = 0;
    TRY(data_tokenizer_decode(t, &id, 1, 0, bytes));
    if (text_is_utf8(bytes->items, bytes->count)) {
        return text_add_json_bytes(out, bytes->items, bytes->count);
    }
    TRY(text_add(out, "\"bytes:"));
    for (int64_t i = 0; i < bytes->count; i++) {
        TRY(text_add(out, "\\\\x%02x", (unsigned)(unsigned char)bytes->items[i]));
    }
    return text_add(out, "\"");
}

static status add_tops(const data_tokenizer *t, const sequence *q, int64_t i, data_bytes *bytes,
                       text *out)
{
    const infer_likely *tops = token_at(q, i) + 1;
    TRY(text_add(out, "{"));
    for (int64_t k = 0; k < q->owner->r.likely; k++) {
        TRY(text_add(out, "%s", k > 0 ? ", " : ""));
        TRY(add_name(t, tops[k].id, bytes, out));
        TRY(text_add(out, ": %.9g", tops[k].log_p));
    }
    return text_add(out, "}");
}

static status add_lists(const data_tokenizer *t, sequence *q, data_bytes *bytes, text *out)
{
    const int64_t first = q->tokens_told;
    TRY(text_add(out, "{\"tokens\": ["));
    for (int64_t i = first; i < q->tokens; i++) {
        TRY(text_add(out, "%s", i > first ? ", " : ""));
        TRY(add_name(t, token_at(q, i)->id, bytes, out));
    }
    TRY(text_add(out, "], \"token_logprobs\": ["));
    for (int64_t i = first; i < q->tokens; i++) {
        TRY(text_add(out, "%s%.9g", i > first ? ", " : "", token_at(q, i)->log_p));
    }
    TRY(text_add(out, "], \"top_logprobs\": ["));
    for (int64_t i = first; i < q->tokens; i++) {
        TRY(text_add(out, "%s", i > first ? ", " : ""));
        TRY(add_tops(t, q, i, bytes, out));
    }
    TRY(text_add(out, "], \"text_offset\": ["));
    for (int64_t i = first; i < q->tokens; i++) {
        TRY(text_add(out, "%s%lld", i > first ? ", " : "", (long long)q->chars_told));
        bytes->count = 0;
        TRY(data_tokenizer_decode(t, &token_at(q, i)->id, 1, 0, bytes));
        for (int64_t b = 0; b < bytes->count; b++) {
            q->chars_told += (bytes->items[b] & 0xC0) != 0x80 ? 1 : 0;
        }
    }
    return text_add(out, "]}");
}

// ---- chat: an object for each token -------------------------------------------------------------

static status add_object(const data_tokenizer *t, const infer_likely *token, data_bytes *bytes,
                         text *out)
{
    TRY(text_add(out, "{\"token\": "));
    TRY(add_token(t, token->id, bytes, out));
    TRY(text_add(out, ", \"logprob\": %.9g, \"bytes\": [", token->log_p));
    for (int64_t i = 0; i < bytes->count; i++) {
        TRY(text_add(out, "%s%d", i > 0 ? ", " : "", (int)(unsigned char)bytes->items[i]));
    }
    return text_add(out, "]");
}

static status add_objects(const data_tokenizer *t, const sequence *q, data_bytes *bytes, text *out)
{
    const int64_t first = q->tokens_told;
    TRY(text_add(out, "{\"content\": ["));
    for (int64_t i = first; i < q->tokens; i++) {
        const infer_likely *token = token_at(q, i);
        TRY(text_add(out, "%s", i > first ? ", " : ""));
        TRY(add_object(t, token, bytes, out));
        TRY(text_add(out, ", \"top_logprobs\": ["));
        for (int64_t k = 0; k < q->owner->r.likely; k++) {
            TRY(text_add(out, "%s", k > 0 ? ", " : ""));
            TRY(add_object(t, &token[1 + k], bytes, out));
            TRY(text_add(out, "}"));
        }
        TRY(text_add(out, "]}"));
    }
    return text_add(out, "]}");
}

status serve_likely_text(const data_tokenizer *t, sequence *q, text *out)
{
    data_bytes bytes = {0};
    if (q->likely == NULL) return text_add(out, "null");
    const status st =
        q->owner->r.chat ? add_objects(t, q, &bytes, out) : add_lists(t, q, &bytes, out);
    q->tokens_told = q->tokens;
    data_bytes_deinit(&bytes);
    return st;
}
