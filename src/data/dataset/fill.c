// Filling rows: tokens, labels, and the numbers of positions and documents.
#include "base/fault.h"
#include "data/dataset/dataset_internal.h"

#include <string.h>

// One row: its first token in the stream, and the place where it marks its document boundaries.
typedef struct row {
    int64_t begin, seq;
    int32_t *ids, *labels;
    int32_t *flags; // 1 where a document begins; becomes positions or documents
} row;

// ---- boundaries ---------------------------------------------------------------------------------

// A document begins at `token` of the stream, begin < token <= begin + seq.
static void mark_boundary(row *r, int64_t token)
{
    const int64_t at = token - r->begin;
    DEBUG_ASSERT(at > 0 && at <= r->seq);
    r->labels[at - 1] = DATA_LABEL_IGNORED;
    if (at < r->seq && r->flags != NULL) r->flags[at] = 1;
}

typedef struct boundary_context {
    row *r;
    int64_t file_begin;
} boundary_context;

static void mark_file_boundary(void *context, int64_t token)
{
    const boundary_context *c = context;
    mark_boundary(c->r, c->file_begin + token);
}

// The boundaries inside one file: from its list of documents, or after each end-of-text token.
static status mark_file(const data_dataset *d, const source_file *f, row *r)
{
    const int64_t last = min_i64(r->begin + r->seq, f->begin + data_tokens_count(f->tokens) - 1);
    const int64_t first = max_i64(r->begin, f->begin);
    if (f->begin > r->begin) mark_boundary(r, f->begin);
    if (data_tokens_documents(f->tokens) > 0) {
        boundary_context c = {r, f->begin};
        return data_tokens_boundaries(f->tokens, first - f->begin, last - first, mark_file_boundary,
                                      &c);
    }
    for (int64_t token = first; d->eot >= 0 && token < last; token++) {
        if (r->ids[token - r->begin] == d->eot) mark_boundary(r, token + 1);
    }
    return ST_OK;
}

static status mark_boundaries(const data_dataset *d, const source *s, row *r)
{
    for (int64_t i = source_file_of(s, r->begin); i < s->file_count; i++) {
        const source_file *f = &s->files[i];
        if (f->begin > r->begin + r->seq) break;
        if (data_tokens_count(f->tokens) > 0) TRY(mark_file(d, f, r));
    }
    return ST_OK;
}

static void number_row(const data_dataset *d, const int32_t *flags, int32_t *positions,
                       int32_t *documents)
{
    const bool separate = d->packing != DATA_PACKING_PLAIN;
    const bool restarts = d->positions == DATA_POSITIONS_DOCUMENT ||
                          (d->positions == DATA_POSITIONS_AUTO && separate);
    int32_t position = -1, document = 0;
    for (int64_t t = 0; t < d->seq; t++) {
        const bool begins = flags != NULL && flags[t] != 0; // read before it is overwritten
        position = begins && restarts ? 0 : position + 1;
        document += begins && separate ? 1 : 0;
        if (positions != NULL) positions[t] = position;
        if (documents != NULL) documents[t] = document;
    }
}

// ---- excluded documents -------------------------------------------------------------------------

// Token t of the row, `count` of them, lie from `first` of the stream on: hides those of excluded
// documents. They are neither read nor predicted; their places stay, so no other sequence changes.
static void hide(const data_dataset *d, int64_t source_idx, int64_t first, int64_t count,
                 int64_t at, row *r)
{
    const excluded_ranges *x = &d->exclude[source_idx];
    const int32_t blank = d->eot >= 0 ? d->eot : 0;
    int64_t low = 0, high = x->count;
    while (low < high) { // the first range that ends behind `first`
        const int64_t middle = low + (high - low) / 2;
        if (x->items[middle].end <= first) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    // The label of the last token is the token behind the stretch.
    for (; low < x->count && x->items[low].begin <= first + count; low++) {
        const int64_t begin = x->items[low].begin - first, end = x->items[low].end - first;
        for (int64_t t = max_i64(0, begin - 1); t < min_i64(count, end); t++) {
            r->labels[at + t] = DATA_LABEL_IGNORED;
            if (t >= begin) r->ids[at + t] = blank;
        }
    }
}

// ---- rows of a stream ---------------------------------------------------------------------------

static status fill_stream(const data_dataset *d, const source *s, const data_place *place, row *r)
{
    const int64_t seq = d->seq;
    const bool has_boundaries =
        d->packing != DATA_PACKING_PLAIN || d->positions == DATA_POSITIONS_DOCUMENT;
    r->begin = place->sequence * seq + place->shift;
    TRY(source_read(s, r->begin, seq, r->ids));
    memcpy(r->labels, r->ids + 1, (size_t)(seq - 1) * sizeof(int32_t));
    TRY(source_read(s, r->begin + seq, 1, r->labels + seq - 1));
    if (r->flags != NULL) memset(r->flags, 0, (size_t)seq * sizeof(int32_t));
    if (d->packing != DATA_PACKING_PLAIN) {
        TRY(mark_boundaries(d, s, r));
    } else if (has_boundaries && r->flags != NULL) {
        const int32_t last = r->labels[seq - 1]; // labels cross boundaries here
        TRY(mark_boundaries(d, s, r));
        memcpy(r->labels, r->ids + 1, (size_t)(seq - 1) * sizeof(int32_t));
        r->labels[seq - 1] = last;
    }
    // The last label is a token of the next sequence, which must not come from the other split.
    if (place->sequence + 1 < s->sequences &&
        source_is_held_out(s, place->sequence) != source_is_held_out(s, place->sequence + 1)) {
        r->labels[seq - 1] = DATA_LABEL_IGNORED;
    }
    return ST_OK;
}

// ---- packed rows --------------------------------------------------------------------------------

typedef struct packed_row {
    const data_dataset *d;
    const source *s;
    int64_t source_idx; // -1: nothing is excluded
    row *r;
    int64_t at; // tokens of the row so far
    status st;  // of the first piece that failed
} packed_row;

static status put_piece(packed_row *p, const pack_piece *piece)
{
    row *r = p->r;
    const int64_t at = p->at, n = piece->count;
    TRY(source_read(p->s, piece->first, n, r->ids + at));
    memcpy(r->labels + at, r->ids + at + 1, (size_t)(n - 1) * sizeof(int32_t));
    r->labels[at + n - 1] = DATA_LABEL_IGNORED;
    // The rest of a long document may lie in a row of the other split.
    if (!piece->ends_document && p->s->held_out_blocks == 0) {
        TRY(source_read(p->s, piece->first + n, 1, r->labels + at + n - 1));
    }
    if (r->flags != NULL && at > 0) r->flags[at] = 1;
    if (p->source_idx >= 0) hide(p->d, p->source_idx, piece->first, n, at, r);
    p->at += n;
    return ST_OK;
}

static void take_piece(void *context, const pack_piece *piece)
{
    packed_row *p = context;
    if (p->st == ST_OK) p->st = put_piece(p, piece);
}

static status fill_packed(packed_row *p, int64_t sequence)
{
    row *r = p->r;
    const int64_t seq = p->d->seq;
    if (r->flags != NULL) memset(r->flags, 0, (size_t)seq * sizeof(int32_t));
    TRY(pack_row(p->s->pack, sequence, take_piece, p));
    TRY(p->st);
    if (p->at < seq && r->flags != NULL)
        r->flags[p->at] = 1; // padding is a document without labels
    for (int64_t t = p->at; t < seq; t++) {
        r->ids[t] = p->d->eot >= 0 ? p->d->eot : 0;
        r->labels[t] = DATA_LABEL_IGNORED;
    }
    return ST_OK;
}

// ---- batches ------------------------------------------------------------------------------------

static status fill_row(const data_dataset *d, data_split split, int64_t n, row *r,
                       int32_t *positions, int32_t *documents)
{
    const data_place place = data_dataset_place(d, split, n);
    const source *s = dataset_source(d, split, &place);
    const int64_t excluding = split == DATA_TRAIN && d->exclude != NULL ? place.source : -1;
    if (s->pack != NULL) {
        packed_row p = {.d = d, .s = s, .source_idx = excluding, .r = r, .st = ST_OK};
        TRY(fill_packed(&p, place.sequence));
    } else {
        TRY(fill_stream(d, s, &place, r));
        if (excluding >= 0) hide(d, excluding, r->begin, d->seq, 0, r);
    }
    number_row(d, r->flags, positions, documents);
    return ST_OK;
}

status data_batch_fill(const data_dataset *d, data_split split, int64_t first, int64_t count,
                       const data_rows *rows)
{
    ASSERT(first >= 0 && count >= 0);
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = i * d->seq;
        int32_t *positions = rows->positions != NULL ? rows->positions + at : NULL;
        int32_t *documents = rows->documents != NULL ? rows->documents + at : NULL;
        if (d->sample_set != NULL) {
            const data_rows one = {rows->ids + at, rows->labels + at, positions, documents};
            samples_fill(d->sample_set, split, first + i, &one);
            continue;
        }
        row r = {.seq = d->seq,
                 .ids = rows->ids + at,
                 .labels = rows->labels + at,
                 .flags = positions != NULL ? positions : documents};
        TRY(fill_row(d, split, first + i, &r, positions, documents));
    }
    return ST_OK;
}
