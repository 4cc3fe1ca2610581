// Rows of samples: their order and their cells.
#include "base/rng.h"
#include "data/chat/samples_internal.h"

#include <string.h>

// Streams of random words: one an epoch of a source.
static uint64_t epoch_stream(int64_t source, int64_t epoch)
{
    return UINT64_C(3) << 61 | (uint64_t)source << 48 | ((uint64_t)epoch & 0xffffffffffff);
}

int64_t samples_rows(const samples *s, data_split split)
{
    return s->sets[split].row_count;
}

int64_t samples_tokens(const samples *s, data_split split)
{
    return s->sets[split].facts.tokens;
}

const data_sample_facts *samples_facts(const samples *s, data_split split)
{
    return &s->sets[split].facts;
}

hash128 samples_id(const samples *s)
{
    return s->id;
}

int64_t samples_row_at(const samples *s, data_split split, int64_t n, int64_t *epoch)
{
    const packed_set *p = &s->sets[split];
    int64_t source = 0, m = n; // the m-th row that the source gives
    *epoch = 0;
    if (split == DATA_VALID) return n % p->row_count;
    if (s->weighted.phase_count > 0) mix_place(&s->weighted, n, &source, &m);
    const int64_t rows = p->first_row[source + 1] - p->first_row[source];
    *epoch = m / rows;
    return p->first_row[source] +
           rng_permute(s->seed, epoch_stream(source, *epoch), rows, m % rows);
}

typedef struct cells {
    int32_t *ids, *labels, *positions, *documents; // the last two may be NULL
    bool masked, restarts;                         // positions restart at 0 in each sample
    bool hides;  // the document is left out: padding takes its place
    bool scores; // as in data_chat_spec
    int32_t pad;
} cells;

static void cell_put(const cells *c, int64_t at, int64_t position, int64_t document)
{
    if (c->positions != NULL) c->positions[at] = (int32_t)(c->restarts ? position : at);
    if (c->documents != NULL) c->documents[at] = (int32_t)(c->masked ? document : 0);
}

int64_t samples_pairs(const samples *s, data_split split, int64_t n, data_pair *out)
{
    const packed_set *p = &s->sets[split];
    int64_t epoch = 0, at = 0, count = 0;
    const int64_t row = samples_row_at(s, split, n, &epoch);
    for (int64_t i = p->row_begin[row]; i < p->row_begin[row + 1]; i++, count++) {
        const int64_t k = p->order[i], begin = p->begin[k];
        out[count] = (data_pair){.sample = k,
                                 .first = at,
                                 .second = at + p->second[k] - begin,
                                 .wanted = p->wanted.items[k] != 0};
        at += p->begin[k + 1] - begin;
    }
    return count;
}

void samples_rollouts(const samples *s, data_split split, int64_t n, const data_numbers *to)
{
    const packed_set *p = &s->sets[split];
    int64_t epoch = 0, at = 0;
    const int64_t row = samples_row_at(s, split, n, &epoch);
    for (int64_t i = p->row_begin[row]; i < p->row_begin[row + 1]; i++) {
        const int64_t k = p->order[i], begin = p->begin[k], end = p->begin[k + 1];
        for (int64_t t = begin; t + 1 < end; t++) { // a row has the numbers of its label
            const int64_t from = (t + 1) * (int64_t)sizeof(double), place = at + t - begin;
            memcpy(&to->old[place], p->old.items + from, sizeof(double));
            memcpy(&to->reference[place], p->reference.items + from, sizeof(double));
            memcpy(&to->advantage[place], p->advantage.items + k * (int64_t)sizeof(double),
                   sizeof(double));
        }
        at += end - begin;
    }
}

int64_t samples_count(const samples *s, data_split split)
{
    return s->sets[split].sample_count;
}

// Tokens [begin, end) become a document from row *at on.
static void document_fill(const packed_set *p, const cells *c, int64_t begin, int64_t end,
                          int64_t document, int64_t *at)
{
    for (int64_t t = begin; t < end; t++, (*at)++) {
        const bool is_last = t + 1 == end, is_hidden = c->hides;
        const bool has_next = !is_last && p->trained.items[t + 1] != 0;
        c->ids[*at] = is_hidden ? c->pad : p->ids.items[t];
        c->labels[*at] = DATA_LABEL_IGNORED;
        if (!c->scores && !is_hidden && has_next) c->labels[*at] = p->ids.items[t + 1];
        if (c->scores && !is_hidden && is_last) c->labels[*at] = p->ids.items[t];
        cell_put(c, *at, t - begin, document);
    }
}

void samples_fill(const samples *s, data_split split, int64_t n, const data_rows *rows)
{
    const packed_set *p = &s->sets[split];
    cells c = {.ids = rows->ids,
               .labels = rows->labels,
               .positions = rows->positions,
               .documents = rows->documents,
               .masked = s->packing != DATA_PACKING_PLAIN,
               .restarts = s->restarts,
               .scores = s->scores,
               .pad = s->pad};
    int64_t epoch = 0, at = 0, document = 0;
    const int64_t row = samples_row_at(s, split, n, &epoch);
    for (int64_t i = p->row_begin[row]; i < p->row_begin[row + 1]; i++, document++) {
        const int64_t k = p->order[i];
        const int hidden = p->hidden.count > 0 ? p->hidden.items[k] : 0;
        c.hides = (hidden & HIDES_SAMPLE) != 0;
        document_fill(p, &c, p->begin[k], p->second[k], document, &at);
        if (p->second[k] < p->begin[k + 1]) document++;
        c.hides = hidden != 0;
        document_fill(p, &c, p->second[k], p->begin[k + 1], document, &at);
    }
    for (int64_t pad = at; at < s->seq; at++) {
        c.ids[at] = s->pad;
        c.labels[at] = DATA_LABEL_IGNORED;
        cell_put(&c, at, at - pad, document);
    }
}
