// The order of sequences, and filling batches with them.
//
//   n ──(weights)──> source, m-th of it ──(epoch = m / size)──> permuted ordinal
//     ──(held-out blocks skipped)──> sequence of the stream ──> tokens
//
// Each arrow is a function of its left side only and takes a few hundred nanoseconds. No list of
// the order exists, so a petabyte of data needs no more memory than a page.
#include "base/fault.h"
#include "base/rng.h"
#include "base/text.h"
#include "data/chat/samples.h"
#include "data/dataset/sources.h"

#include <string.h>

struct data_dataset {
    int64_t seq;
    data_packing packing;
    uint64_t seed;
    int32_t eot; // -1: none
    source *train;
    int64_t train_count;
    source valid; // the source's own files; without files: blocks of train, or no data
    // Weighted sources: of each round of DATA_MIX_ROUND sequences, source i has quota[i], the
    // round's slots from slot[i] on.
    samples *samples; // instead of the sources
    int64_t *quota, *slot;
    int64_t sequences[DATA_SPLIT_COUNT], tokens[DATA_SPLIT_COUNT];
    hash128 id;
};

// Streams of random words: two per (source, epoch), one per round of the mix, one for validation.
static uint64_t epoch_stream(int64_t source_idx, int64_t epoch)
{
    return (uint64_t)source_idx << 48 | ((uint64_t)epoch & 0xffffffffffff);
}
static uint64_t shift_stream(int64_t source_idx, int64_t epoch)
{
    return UINT64_C(1) << 62 | epoch_stream(source_idx, epoch);
}
static uint64_t round_stream(int64_t round)
{
    return UINT64_C(1) << 63 | (uint64_t)round;
}
enum { VALID_SEED = 1 };

// ---- opening ------------------------------------------------------------------------------------

static status count_sequences(source *s, int64_t seq)
{
    s->sequences = s->tokens > 0 ? (s->tokens - 1) / seq : 0;
    if (s->sequences > 0) return ST_OK;
    return fail(ST_DATA,
                "%s: %lld tokens in %lld file%s, but one sequence of train.seq = %lld needs %lld",
                s->name, (long long)s->tokens, (long long)s->file_count,
                text_plural(s->file_count, "s"), (long long)seq, (long long)seq + 1);
}

static status open_train(const host *h, arena *a, const data_dataset_spec *spec, data_dataset *d)
{
    if (spec->train_count < 1 || spec->train_count > DATA_SOURCES_MAX) {
        return fail(ST_CONFIG, "data.train: %lld entries, 1 to %d expected",
                    (long long)spec->train_count, DATA_SOURCES_MAX);
    }
    source_entries entries = {0};
    bool any_weight = false;
    for (int64_t i = 0; i < spec->train_count; i++) {
        TRY(source_entries_add(h, a, spec->train[i], &entries));
    }
    for (int64_t i = 0; i < entries.count; i++) {
        any_weight = any_weight || entries.items[i].has_weight;
    }
    const int64_t count = any_weight ? entries.count : 1;
    TRY(arena_new(a, count, &d->train));
    d->train_count = count;
    for (int64_t i = 0; i < entries.count; i++) {
        const source_entry *e = &entries.items[i];
        source *s = &d->train[any_weight ? i : 0];
        if (s->name == NULL) s->name = entries.count == 1 || any_weight ? e->name : "data.train";
        s->weight = e->weight;
        for (int64_t k = 0; k < e->paths.count; k++) {
            TRY(source_add(h, a, spec, e->paths.items[k], s));
        }
    }
    for (int64_t i = 0; i < count; i++) TRY(count_sequences(&d->train[i], d->seq));
    return ST_OK;
}

static status open_valid(const host *h, arena *a, const data_dataset_spec *spec, data_dataset *d)
{
    if (spec->valid == NULL || spec->valid[0] == 0) return ST_OK;
    double share = 0.0;
    if (text_parse_f64(spec->valid, &share)) {
        if (!(share >= 0.0 && share < 1.0)) {
            return fail(
                ST_CONFIG_RANGE,
                "data.valid: %s, a share of data.train from 0 to below 1 or a file expected",
                spec->valid);
        }
        for (int64_t i = 0; share > 0.0 && i < d->train_count; i++) {
            TRY(source_hold_out(&d->train[i], share));
        }
        return ST_OK;
    }
    d->valid.name = spec->valid;
    TRY(source_add(h, a, spec, spec->valid, &d->valid));
    return count_sequences(&d->valid, d->seq);
}

// Distributes the slots of a round by the largest remainder, at least one for each source.
static status share_round(arena *a, data_dataset *d)
{
    const int64_t n = d->train_count;
    if (n == 1) return ST_OK;
    double *rest = NULL, sum = 0.0;
    TRY(arena_new(a, n, &d->quota));
    TRY(arena_new(a, n, &d->slot));
    TRY(arena_new(a, n, &rest));
    int64_t left = DATA_MIX_ROUND;
    for (int64_t i = 0; i < n; i++) sum += d->train[i].weight;
    for (int64_t i = 0; i < n; i++) {
        const double ideal = d->train[i].weight / sum * DATA_MIX_ROUND;
        d->quota[i] = max_i64(1, (int64_t)ideal);
        rest[i] = ideal - (double)d->quota[i];
        left -= d->quota[i];
    }
    for (; left != 0; left += left > 0 ? -1 : 1) {
        // Gives to the source with the largest deficit, takes from the one with the largest
        // surplus.
        int64_t best = 0;
        for (int64_t i = 1; i < n; i++) {
            const bool better =
                left > 0 ? rest[i] > rest[best]
                         : d->quota[best] == 1 || (d->quota[i] > 1 && rest[i] < rest[best]);
            if (better) best = i;
        }
        d->quota[best] += left > 0 ? 1 : -1;
        rest[best] += left > 0 ? -1.0 : 1.0;
    }
    for (int64_t i = 1; i < n; i++) d->slot[i] = d->slot[i - 1] + d->quota[i - 1];
    ASSERT(d->slot[n - 1] + d->quota[n - 1] == DATA_MIX_ROUND);
    return ST_OK;
}

static int64_t train_sequences(const source *s)
{
    return s->sequences - s->held_out_sequences;
}

static void add_up(data_dataset *d)
{
    for (int64_t i = 0; i < d->train_count; i++) {
        d->sequences[DATA_TRAIN] += train_sequences(&d->train[i]);
        d->sequences[DATA_VALID] += d->train[i].held_out_sequences;
    }
    d->sequences[DATA_VALID] += d->valid.sequences;
    d->tokens[DATA_TRAIN] = d->sequences[DATA_TRAIN] * d->seq;
    d->tokens[DATA_VALID] = d->sequences[DATA_VALID] * d->seq;
}

static void add_source_id(hash_stream *hash, const source *s)
{
    for (int64_t i = 0; i < s->file_count; i++) {
        const data_tokens *t = s->files[i].tokens;
        const int64_t facts[2] = {data_tokens_count(t), data_tokens_documents(t)};
        const hash128 sums[2] = {data_tokens_tokenizer(t), data_tokens_checksum(t)};
        hash_add(hash, facts, sizeof(facts));
        hash_add(hash, sums, sizeof(sums));
        hash_add(hash, data_tokens_format(t), (int64_t)strlen(data_tokens_format(t)));
    }
    hash_add(hash, s->held_out, sizeof(s->held_out));
}

static status make_id(data_dataset *d)
{
    hash_stream *hash = hash_begin();
    if (hash == NULL) return fail(ST_NO_MEMORY, "no memory for the dataset's id");
    const int64_t facts[] = {2, d->seq, d->packing, (int64_t)d->seed, d->eot, d->train_count};
    hash_add(hash, facts, sizeof(facts));
    for (int64_t i = 0; i < d->train_count; i++) {
        if (d->quota != NULL) hash_add(hash, &d->quota[i], sizeof(d->quota[i]));
        add_source_id(hash, &d->train[i]);
    }
    add_source_id(hash, &d->valid);
    d->id = hash_end(hash);
    return ST_OK;
}

static status check_vocab(const data_dataset_spec *spec)
{
    if (spec->tokenizer == NULL || spec->vocab == 0) return ST_OK;
    const int64_t tokens = data_tokenizer_vocab_size(spec->tokenizer);
    if (tokens <= spec->vocab) return ST_OK;
    return fail(ST_CONFIG_CONFLICT,
                "model.vocab is %lld, but data.tokenizer has %lld tokens; model.vocab must be at "
                "least that",
                (long long)spec->vocab, (long long)tokens);
}

// The dataset of samples: rows instead of places in streams.
static status open_samples(const host *h, arena *a, const data_dataset_spec *spec, data_dataset *d)
{
    TRY(samples_open(h, a, spec, &d->samples));
    for (int i = 0; i < DATA_SPLIT_COUNT; i++) {
        d->sequences[i] = samples_rows(d->samples, (data_split)i);
        d->tokens[i] = samples_tokens(d->samples, (data_split)i);
    }
    d->train_count = 1; // data_place.source is 0
    TRY(arena_new(a, 1, &d->train));
    d->id = samples_id(d->samples);
    return ST_OK;
}

status data_dataset_open(const host *h, arena *a, const data_dataset_spec *spec, data_dataset **out)
{
    TRY(fault_point("data.dataset.open"));
    if (spec->seq < 1 || spec->seq > INT32_MAX) {
        return fail(ST_CONFIG_RANGE, "train.seq: %lld, 1 to %d expected", (long long)spec->seq,
                    INT32_MAX);
    }
    TRY(check_vocab(spec));
    data_dataset *d = NULL;
    TRY(arena_new(a, 1, &d));
    d->seq = spec->seq;
    d->packing = spec->packing;
    d->seed = spec->seed;
    d->eot = spec->tokenizer != NULL ? data_tokenizer_eot(spec->tokenizer) : -1;
    status st = ST_OK;
    if (spec->chat != NULL) {
        TRY_TO(close_dataset, open_samples(h, a, spec, d));
        *out = d;
        return ST_OK;
    }
    TRY_TO(close_dataset, open_train(h, a, spec, d));
    TRY_TO(close_dataset, open_valid(h, a, spec, d));
    TRY_TO(close_dataset, share_round(a, d));
    TRY_TO(close_dataset, make_id(d));
    add_up(d);
    *out = d;
    return ST_OK;
close_dataset:
    data_dataset_close(d);
    return st;
}

void data_dataset_close(data_dataset *d)
{
    if (d == NULL) return;
    for (int64_t i = 0; i < d->train_count; i++) source_close(&d->train[i]);
    source_close(&d->valid);
    samples_close(d->samples);
}

int64_t data_dataset_tokens(const data_dataset *d, data_split split)
{
    return d->tokens[split];
}

int64_t data_dataset_sequences(const data_dataset *d, data_split split)
{
    return d->sequences[split];
}

int64_t data_dataset_documents(const data_dataset *d)
{
    int64_t documents = 0;
    for (int64_t i = 0; i < d->train_count; i++) {
        for (int64_t k = 0; k < d->train[i].file_count; k++) {
            documents += data_tokens_documents(d->train[i].files[k].tokens);
        }
    }
    return documents;
}

int64_t data_dataset_sources(const data_dataset *d)
{
    return d->train_count;
}

const data_sample_facts *data_dataset_samples(const data_dataset *d, data_split split)
{
    return d->samples != NULL ? samples_facts(d->samples, split) : NULL;
}

int64_t data_dataset_seq(const data_dataset *d)
{
    return d->seq;
}

hash128 data_dataset_id(const data_dataset *d)
{
    return d->id;
}

// ---- order --------------------------------------------------------------------------------------

static data_place train_place(const data_dataset *d, int64_t n)
{
    int64_t i = 0, m = n; // the m-th sequence that source i gives
    if (d->quota != NULL) {
        const int64_t round = n / DATA_MIX_ROUND;
        const int64_t slot =
            rng_permute(d->seed, round_stream(round), DATA_MIX_ROUND, n % DATA_MIX_ROUND);
        while (i + 1 < d->train_count && d->slot[i + 1] <= slot) i++;
        m = round * d->quota[i] + (slot - d->slot[i]);
    }
    const source *s = &d->train[i];
    const int64_t count = train_sequences(s);
    const int64_t epoch = m / count;
    const int64_t ordinal = rng_permute(d->seed, epoch_stream(i, epoch), count, m % count);
    data_place place = {
        .source = i, .epoch = epoch, .sequence = source_sequence(s, DATA_TRAIN, ordinal)};
    const int64_t next = place.sequence + 1; // the end of a shifted row
    if (epoch > 0 && next < s->sequences && !source_is_held_out(s, next)) {
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
    if (d->samples != NULL) {
        data_place place = {.source = 0};
        place.sequence = samples_row_at(d->samples, split, n, &place.epoch);
        return place;
    }
    return split == DATA_TRAIN ? train_place(d, n) : valid_place(d, n);
}

status data_dataset_parts(const data_dataset *d, int64_t n,
                          status (*part)(void *context, const data_tokens *t, int64_t first,
                                         int64_t count),
                          void *context)
{
    const data_place place = data_dataset_place(d, DATA_TRAIN, n);
    const source *s = &d->train[place.source];
    const int64_t begin = place.sequence * d->seq + place.shift, end = begin + d->seq;
    for (int64_t i = source_file_of(s, begin); i < s->file_count; i++) {
        const source_file *f = &s->files[i];
        const int64_t first = max_i64(begin, f->begin);
        const int64_t last = min_i64(end, f->begin + data_tokens_count(f->tokens));
        if (f->begin >= end) break;
        if (last > first) TRY(part(context, f->tokens, first - f->begin, last - first));
    }
    return ST_OK;
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

// ---- filling ------------------------------------------------------------------------------------

// One row: its first token in the stream, and the place where it marks its document boundaries.
typedef struct row {
    int64_t begin, seq;
    int32_t *ids, *labels;
    int32_t *flags; // 1 where a document begins; becomes positions or documents
} row;

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

static void number_row(int64_t seq, const int32_t *flags, int32_t *positions, int32_t *documents)
{
    int32_t position = -1, document = 0;
    for (int64_t t = 0; t < seq; t++) {
        const bool begins = flags != NULL && flags[t] != 0; // read before it is overwritten
        position = begins ? 0 : position + 1;
        document += begins ? 1 : 0;
        if (positions != NULL) positions[t] = position;
        if (documents != NULL) documents[t] = document;
    }
}

static status fill_row(const data_dataset *d, data_split split, int64_t n, row *r,
                       int32_t *positions, int32_t *documents)
{
    const data_place place = data_dataset_place(d, split, n);
    const bool own_files = split == DATA_VALID && d->valid.file_count > 0;
    const source *s = own_files ? &d->valid : &d->train[place.source];
    const int64_t seq = d->seq;
    r->begin = place.sequence * seq + place.shift;
    TRY(source_read(s, r->begin, seq, r->ids));
    memcpy(r->labels, r->ids + 1, (size_t)(seq - 1) * sizeof(int32_t));
    TRY(source_read(s, r->begin + seq, 1, r->labels + seq - 1));
    if (d->packing == DATA_PACKING_MASKED) {
        if (r->flags != NULL) memset(r->flags, 0, (size_t)seq * sizeof(int32_t));
        TRY(mark_boundaries(d, s, r));
    }
    // The last label is a token of the next sequence, which must not come from the other split.
    if (place.sequence + 1 < s->sequences &&
        source_is_held_out(s, place.sequence) != source_is_held_out(s, place.sequence + 1)) {
        r->labels[seq - 1] = DATA_LABEL_IGNORED;
    }
    number_row(seq, d->packing == DATA_PACKING_MASKED ? r->flags : NULL, positions, documents);
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
        if (d->samples != NULL) {
            const data_rows one = {rows->ids + at, rows->labels + at, positions, documents};
            samples_fill(d->samples, split, first + i, &one);
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
