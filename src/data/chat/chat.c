// Samples: a line, its text, its ids and the mask of those that are trained.
//
// The text of a conversation is encoded as a whole, as the references do it. A token is trained if
// it has a byte in a trained part. Byte-level tokenizers give each token's bytes; for others the
// text is cut at the ends of the trained parts, and the pieces are encoded alone.
#include "data/chat/chat_internal.h"

#include <stdlib.h>
#include <string.h>

enum { SCRATCH_BYTES_MAX = 1 << 30 };

void data_sample_deinit(data_sample *s)
{
    data_ids_deinit(&s->ids);
    data_bytes_deinit(&s->trained);
    data_bytes_deinit(&s->old);
    data_bytes_deinit(&s->reference);
}

status data_chat_open(const host *h, arena *a, const data_chat_spec *spec, data_chat **out)
{
    data_chat *c = NULL;
    TRY(arena_new(a, 1, &c));
    *c = (data_chat){.h = h, .spec = *spec, .found = spec->format};
    TRY(template_open(a, c));
    TRY(arena_create("chat", SCRATCH_BYTES_MAX, &c->scratch));
    *out = c;
    return ST_OK;
}

void data_chat_close(data_chat *c)
{
    if (c == NULL) return;
    arena_destroy(c->scratch);
    json_free(c->previous);
}

const char *data_chat_template(const data_chat *c)
{
    return c->name;
}

bool data_chat_has_template(const data_chat *c)
{
    return c->jinja != NULL;
}

static status mark(data_sample *s, int64_t count, bool trained)
{
    const char byte = trained ? 1 : 0;
    for (int64_t i = 0; i < count; i++) TRY(data_bytes_add(&s->trained, &byte, 1));
    return ST_OK;
}

// Whether [begin, end) meets a trained part. *at: the first part that ends behind `begin`.
static bool meets(const chat_text *t, int64_t begin, int64_t end, int64_t *at)
{
    while (*at < t->span_count && t->spans[*at].end <= begin) (*at)++;
    return *at < t->span_count && t->spans[*at].begin < end && begin < end;
}

// Marks by the bytes of each token; *exact is false where they are not those of the text.
static status mark_by_bytes(const data_chat *c, const chat_text *t, data_sample *s, bool *exact)
{
    data_bytes piece = {0};
    int64_t at = 0, span = 0;
    status st = ST_OK;
    *exact = true;
    s->trained.count = 0;
    for (int64_t i = 0; i < s->ids.count && st == ST_OK && *exact; i++) {
        piece.count = 0;
        st = data_tokenizer_decode(c->spec.tokenizer, &s->ids.items[i], 1,
                                   i > 0 ? DATA_DECODE_CONTINUES : 0, &piece);
        const int64_t end = at + piece.count;
        *exact = end <= t->all.length && (piece.count == 0 || memcmp(t->all.bytes + at, piece.items,
                                                                     (size_t)piece.count) == 0);
        if (st == ST_OK && *exact) st = mark(s, 1, meets(t, at, end, &span));
        at = end;
    }
    *exact = *exact && at == t->all.length;
    data_bytes_deinit(&piece);
    return st;
}

static status mark_by_pieces(const data_chat *c, const chat_text *t, data_sample *s)
{
    int64_t at = 0;
    s->ids.count = s->trained.count = 0;
    for (int64_t i = 0; i <= t->span_count; i++) {
        const jinja_span span =
            i < t->span_count ? t->spans[i] : (jinja_span){t->all.length, t->all.length};
        const int64_t ends[] = {span.begin, span.end};
        for (int k = 0; k < 2; k++) {
            const int64_t before = s->ids.count;
            TRY(data_tokenizer_encode(c->spec.tokenizer, t->all.bytes + at, ends[k] - at,
                                      DATA_ENCODE_SPECIAL, &s->ids));
            TRY(mark(s, s->ids.count - before, k == 1));
            at = ends[k];
        }
    }
    return ST_OK;
}

// A special token decodes to no bytes where those are left out.
static status is_special(const data_chat *c, int32_t id, bool *out)
{
    data_bytes with = {0}, without = {0};
    status st = data_tokenizer_decode(c->spec.tokenizer, &id, 1, 0, &with);
    if (st == ST_OK) {
        st = data_tokenizer_decode(c->spec.tokenizer, &id, 1, DATA_DECODE_SKIP_SPECIAL, &without);
    }
    *out = id == data_tokenizer_eot(c->spec.tokenizer) || (with.count > 0 && without.count == 0);
    data_bytes_deinit(&with);
    data_bytes_deinit(&without);
    return st;
}

// Counts trained parts and those that end in a special token.
static status count_turns(const data_chat *c, data_sample *s)
{
    int64_t first = -1;
    s->turns = s->ended = 0;
    for (int64_t i = 0; i < s->ids.count; i++) {
        const bool ends = i + 1 == s->ids.count || s->trained.items[i + 1] == 0;
        if (s->trained.items[i] == 0) continue;
        if (first < 0) first = i;
        if (!ends) continue;
        bool special = false;
        TRY(is_special(c, s->ids.items[i], &special));
        s->turns++;
        s->ended += special ? 1 : 0;
    }
    s->empty_prompt = first == 0;
    return ST_OK;
}

// The texts of a prompt and an answer end with the end-of-text token, if the tokenizer has one.
static status add_end(const data_chat *c, data_sample *s)
{
    const int32_t eot = data_tokenizer_eot(c->spec.tokenizer);
    if (eot < 0) return ST_OK;
    TRY(data_ids_add(&s->ids, &eot, 1));
    return mark(s, 1, true);
}

status record_encode(data_chat *c, const chat_record *r, data_sample *out)
{
    chat_text t;
    bool exact = false;
    const bool is_chat = r->messages != NULL;
    TRY(is_chat ? conversation_render(c, r, &t) : texts_render(c, r, &t));
    out->ids.count = out->trained.count = 0;
    const int flags = is_chat ? DATA_ENCODE_SPECIAL : data_tokenizer_flags(c->spec.tokenizer);
    TRY(data_tokenizer_encode(c->spec.tokenizer, t.all.bytes, t.all.length, flags, &out->ids));
    TRY(mark_by_bytes(c, &t, out, &exact));
    if (!exact) TRY(mark_by_pieces(c, &t, out));
    if (!is_chat) TRY(add_end(c, out));
    return count_turns(c, out);
}

status data_chat_encode(data_chat *c, const char *bytes, int64_t count, const char *what,
                        int64_t line, data_sample *out)
{
    chat_record r = {.what = what, .line = line};
    const bool two = c->found >= DATA_FORMAT_PAIRS; // or a group of completions
    arena_reset(c->scratch);
    out->second = 0;
    out->completions = 1;
    status st = two ? pair_encode(c, bytes, count, &r, out) : record_read(c, bytes, count, &r);
    if (st == ST_OK && !two) st = record_encode(c, &r, out);
    record_free(&r);
    return st;
}
