// Names of samples, exclusion lists, and the samples of a row.
//
// A labelled line lends its answer to the line after it as that one's second document. Where the
// lender is left out, so is that document: KTO's reference point then has one answer less, and the
// line itself is trained on.
#include "base/format/json.h"
#include "data/chat/name_list.h"
#include "data/chat/samples_internal.h"

#include <stdio.h>
#include <string.h>

sample_origin sample_origin_at(const packed_set *p, int64_t k)
{
    sample_origin o;
    memcpy(&o, p->origins.items + k * (int64_t)sizeof(o), sizeof(o));
    return o;
}

status sample_origin_read(samples *s, const data_line *line, sample_origin *out)
{
    static const char *const key = "id";
    char number[32];
    json *id = NULL;
    *out = (sample_origin){.file = s->path_count - 1,
                           .line = line->number,
                           .id_begin = s->id_texts.count,
                           .lender = -1};
    TRY(json_parse_members(line->bytes, line->count, s->paths[out->file], line->number, &key, 1,
                           &id));
    status st = ST_OK;
    if (json_kind_of(id) == JSON_TEXT) {
        out->id_bytes = json_text_bytes(id);
        st = data_bytes_add(&s->id_texts, json_text(id, ""), out->id_bytes);
    } else if (json_kind_of(id) == JSON_INT) {
        out->id_bytes = snprintf(number, sizeof(number), "%lld", (long long)json_int(id, 0));
        st = data_bytes_add(&s->id_texts, number, out->id_bytes);
    }
    json_free(id);
    return st;
}

// ---- exclusions ---------------------------------------------------------------------------------

static status list_make(const samples *s, const char *const *names, int64_t count, name_list *out)
{
    int64_t longest = 0;
    for (int64_t i = 0; i < s->path_count; i++) {
        longest = max_i64(longest, (int64_t)strlen(s->paths[i]));
    }
    return name_list_make(names, count, longest, out);
}

static bool is_named(const samples *s, const sample_origin *o, const name_list *l)
{
    const char *id = o->id_bytes > 0 ? s->id_texts.items + o->id_begin : NULL;
    return name_list_has(l, s->paths[o->file], o->line, id, o->id_bytes);
}

static status hide(const samples *s, packed_set *p, const name_list *l, int64_t *found)
{
    p->hidden.count = 0;
    for (int64_t k = 0; k < p->sample_count; k++) {
        const sample_origin o = sample_origin_at(p, k);
        const bool is_hidden = is_named(s, &o, l);
        const bool lacks = o.lender >= 0 && (p->hidden.items[o.lender] & HIDES_SAMPLE) != 0;
        const char bits = (char)((is_hidden ? HIDES_SAMPLE : 0) | (lacks ? HIDES_SECOND : 0));
        *found += is_hidden ? 1 : 0;
        TRY(data_bytes_add(&p->hidden, &bits, 1));
    }
    return ST_OK;
}

status samples_exclude(samples *s, const char *const *entries, int64_t count, int64_t *found)
{
    name_list l;
    *found = 0;
    s->sets[DATA_TRAIN].hidden.count = 0;
    if (count == 0) return ST_OK;
    TRY(list_make(s, entries, count, &l));
    const status st = hide(s, &s->sets[DATA_TRAIN], &l, found);
    name_list_free(&l);
    TRY(st);
    if (*found > 0) return ST_OK;
    return fail(ST_NOT_FOUND,
                "data.exclude: none of its %lld entries names a sample of the training data; an "
                "entry is FILE:LINE or the line's \"id\"",
                (long long)count);
}

// ---- samples of a row ---------------------------------------------------------------------------

void samples_describe(const samples *s, int64_t k, data_conversation *out)
{
    const packed_set *p = &s->sets[DATA_TRAIN];
    const sample_origin o = sample_origin_at(p, k);
    *out = (data_conversation){.sample = k,
                               .path = s->paths[o.file],
                               .line = o.line,
                               .id = o.id_bytes > 0 ? s->id_texts.items + o.id_begin : NULL,
                               .id_bytes = o.id_bytes,
                               .completion = o.completion,
                               .lender = o.lender,
                               .tokens = p->begin[k + 1] - p->begin[k],
                               .is_hidden =
                                   p->hidden.count > 0 && (p->hidden.items[k] & HIDES_SAMPLE) != 0};
}

status samples_of_row(const samples *s, int64_t n,
                      status (*take)(void *context, const data_conversation *c), void *context)
{
    const packed_set *p = &s->sets[DATA_TRAIN];
    data_conversation c;
    int64_t epoch = 0;
    const int64_t row = samples_row_at(s, DATA_TRAIN, n, &epoch);
    for (int64_t i = p->row_begin[row]; i < p->row_begin[row + 1]; i++) {
        samples_describe(s, p->order[i], &c);
        TRY(take(context, &c));
    }
    return ST_OK;
}

status samples_named(const samples *s, const char *name, char *flags, int64_t *found)
{
    const packed_set *p = &s->sets[DATA_TRAIN];
    name_list l;
    *found = 0;
    TRY(list_make(s, &name, 1, &l));
    for (int64_t k = 0; k < p->sample_count; k++) {
        const sample_origin o = sample_origin_at(p, k);
        flags[k] = is_named(s, &o, &l) ? 1 : 0;
        *found += flags[k];
    }
    name_list_free(&l);
    return ST_OK;
}
