// The order of sequences: a pure function of the sequence's number.
//
//   n ──(mix)──> source, m-th of it ──(epoch = m / size)──> permuted ordinal
//     ──(held-out blocks skipped)──> sequence of the stream ──> tokens
//
// Each arrow takes a few hundred nanoseconds. No list of the order exists, so a petabyte of data
// needs no more memory than a page.
#include "base/rng.h"
#include "data/dataset/dataset_internal.h"

// Streams of random words: two per (source, epoch), one for validation.
static uint64_t epoch_stream(int64_t source_idx, int64_t epoch)
{
    return (uint64_t)source_idx << 48 | ((uint64_t)epoch & 0xffffffffffff);
}
static uint64_t shift_stream(int64_t source_idx, int64_t epoch)
{
    return UINT64_C(1) << 62 | epoch_stream(source_idx, epoch);
}
enum { VALID_SEED = 1 };

static data_place train_place(const data_dataset *d, int64_t n)
{
    int64_t i = 0, m = n; // the m-th sequence that source i gives
    if (d->weighted.phase_count > 0) mix_place(&d->weighted, n, &i, &m);
    const source *s = &d->train[i];
    const int64_t count = s->sequences - s->held_out_sequences;
    const int64_t epoch = m / count;
    const int64_t ordinal = rng_permute(d->seed, epoch_stream(i, epoch), count, m % count);
    data_place place = {
        .source = i, .epoch = epoch, .sequence = source_sequence(s, DATA_TRAIN, ordinal)};
    const int64_t next = place.sequence + 1; // the end of a shifted row
    if (s->pack == NULL && epoch > 0 && next < s->sequences && !source_is_held_out(s, next)) {
        place.shift = rng_permute(d->seed, shift_stream(i, epoch), d->seq, 0);
    }
    return place;
}

static data_place valid_place(const data_dataset *d, int64_t n)
{
    const int64_t count = d->sequences[DATA_VALID];
    int64_t ordinal = rng_permute(VALID_SEED, 0, count, n % count);
    if (d->valid.file_count > 0) return (data_place){.sequence = ordinal};
    int64_t i = 0;
    while (ordinal >= d->train[i].held_out_sequences) ordinal -= d->train[i++].held_out_sequences;
    return (data_place){.source = i,
                        .sequence = source_sequence(&d->train[i], DATA_VALID, ordinal)};
}

data_place data_dataset_place(const data_dataset *d, data_split split, int64_t n)
{
    ASSERT(n >= 0);
    ASSERT(d->sequences[split] > 0);
    if (d->sample_set != NULL) {
        data_place place = {.source = 0};
        place.sequence = samples_row_at(d->sample_set, split, n, &place.epoch);
        return place;
    }
    return split == DATA_TRAIN ? train_place(d, n) : valid_place(d, n);
}

// ---- files of a sequence ------------------------------------------------------------------------

typedef status (*part_fn)(void *context, const data_tokens *t, int64_t first, int64_t count);

static status stretch_parts(const source *s, int64_t begin, int64_t end, part_fn part,
                            void *context)
{
    for (int64_t i = source_file_of(s, begin); i < s->file_count; i++) {
        const source_file *f = &s->files[i];
        const int64_t first = max_i64(begin, f->begin);
        const int64_t last = min_i64(end, f->begin + data_tokens_count(f->tokens));
        if (f->begin >= end) break;
        if (last > first) TRY(part(context, f->tokens, first - f->begin, last - first));
    }
    return ST_OK;
}

typedef struct piece_parts {
    const source *s;
    part_fn part;
    void *context;
    status st; // of the first piece that failed
} piece_parts;

static void give_piece(void *context, const pack_piece *piece)
{
    piece_parts *p = context;
    if (p->st != ST_OK) return;
    p->st = stretch_parts(p->s, piece->first, piece->first + piece->count, p->part, p->context);
}

status data_dataset_parts(const data_dataset *d, int64_t n, part_fn part, void *context)
{
    const data_place place = data_dataset_place(d, DATA_TRAIN, n);
    const source *s = &d->train[place.source];
    if (s->pack != NULL) {
        piece_parts p = {.s = s, .part = part, .context = context, .st = ST_OK};
        TRY(pack_row(s->pack, place.sequence, give_piece, &p));
        return p.st;
    }
    const int64_t begin = place.sequence * d->seq + place.shift;
    return stretch_parts(s, begin, begin + d->seq, part, context);
}

int64_t data_dataset_files(const data_dataset *d)
{
    int64_t files = 0;
    for (int64_t i = 0; i < d->train_count; i++) files += d->train[i].file_count;
    return files;
}

const data_tokens *data_dataset_file(const data_dataset *d, int64_t i)
{
    int64_t k = 0;
    while (i >= d->train[k].file_count) i -= d->train[k++].file_count;
    return d->train[k].files[i].tokens;
}
