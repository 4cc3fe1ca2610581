// Opens the sources of a dataset, mixes them, and tells their sizes.
#include "base/fault.h"
#include "base/text.h"
#include "data/dataset/dataset_internal.h"

#include <string.h>

// ---- opening ------------------------------------------------------------------------------------

static status count_sequences(const data_dataset *d, source *s)
{
    const int64_t seq = d->seq;
    if (d->packing == DATA_PACKING_BEST_FIT) {
        TRY(pack_open(s, seq, &s->pack));
        s->sequences = pack_rows(s->pack);
        if (s->sequences > 0) return ST_OK;
        return fail(ST_DATA, "%s: no document with a token", s->name);
    }
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
    bool any_weight = spec->temperature > 0.0 || spec->phase_count > 0;
    for (int64_t i = 0; i < spec->train_count; i++) {
        TRY(source_entries_add(h, a, spec->train[i], &entries));
    }
    for (int64_t i = 0; i < entries.count; i++) {
        any_weight = any_weight || entries.items[i].has_weight || entries.items[i].has_epochs;
    }
    TRY(source_entries_check(&entries));
    const int64_t count = any_weight ? entries.count : 1;
    TRY(arena_new(a, count, &d->train));
    d->train_count = count;
    for (int64_t i = 0; i < entries.count; i++) {
        const source_entry *e = &entries.items[i];
        source *s = &d->train[any_weight ? i : 0];
        if (s->name == NULL) s->name = entries.count == 1 || any_weight ? e->name : "data.train";
        s->weight = e->weight;
        s->has_weight = e->has_weight;
        s->has_epochs = e->has_epochs;
        for (int64_t k = 0; k < e->paths.count; k++) {
            TRY(source_add(h, a, spec, e->paths.items[k], s));
        }
    }
    for (int64_t i = 0; i < count; i++) TRY(count_sequences(d, &d->train[i]));
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
    return count_sequences(d, &d->valid);
}

static int64_t train_sequences(const source *s)
{
    return s->sequences - s->held_out_sequences;
}

static status open_mix(arena *a, const data_dataset_spec *spec, data_dataset *d)
{
    mix_source *sources = NULL;
    TRY(arena_new(a, d->train_count, &sources));
    for (int64_t i = 0; i < d->train_count; i++) {
        const source *s = &d->train[i];
        sources[i] = (mix_source){.weight = s->weight,
                                  .has_weight = s->has_weight,
                                  .has_epochs = s->has_epochs,
                                  .sequences = train_sequences(s),
                                  .tokens = s->tokens};
    }
    return mix_open(a, spec, sources, d->train_count, &d->weighted);
}

static void add_up(data_dataset *d)
{
    for (int64_t i = 0; i < d->train_count; i++) {
        d->sequences[DATA_TRAIN] += train_sequences(&d->train[i]);
        d->sequences[DATA_VALID] += d->train[i].held_out_sequences;
    }
    d->sequences[DATA_VALID] += d->valid.sequences;
    for (int i = 0; i < DATA_SPLIT_COUNT; i++) d->tokens[i] = d->sequences[i] * d->seq;
    if (d->packing != DATA_PACKING_BEST_FIT) return;
    // The padding of a split's rows is not known before they are laid out: each has the mean share.
    int64_t tokens = 0, rows = 0;
    for (int64_t i = 0; i < d->train_count; i++) {
        tokens += pack_tokens(d->train[i].pack);
        rows += d->train[i].sequences;
    }
    const double share = (double)tokens / (double)(rows * d->seq);
    d->tokens[DATA_TRAIN] = (int64_t)((double)d->tokens[DATA_TRAIN] * share + 0.5);
    if (d->valid.pack == NULL) {
        d->tokens[DATA_VALID] = (int64_t)((double)d->tokens[DATA_VALID] * share + 0.5);
    } else {
        d->tokens[DATA_VALID] = pack_tokens(d->valid.pack);
    }
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
    const int64_t facts[] = {3,      d->seq,        d->packing, d->positions, (int64_t)d->seed,
                             d->eot, d->train_count};
    hash_add(hash, facts, sizeof(facts));
    mix_hash(&d->weighted, hash);
    for (int64_t i = 0; i < d->train_count; i++) add_source_id(hash, &d->train[i]);
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
    TRY(samples_open(h, a, spec, &d->sample_set));
    for (int i = 0; i < DATA_SPLIT_COUNT; i++) {
        d->sequences[i] = samples_rows(d->sample_set, (data_split)i);
        d->tokens[i] = samples_tokens(d->sample_set, (data_split)i);
    }
    d->train_count = 1; // data_place.source is 0
    TRY(arena_new(a, 1, &d->train));
    d->id = samples_id(d->sample_set);
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
    d->h = h;
    d->a = a;
    d->seq = spec->seq;
    d->positions = spec->positions;
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
    TRY_TO(close_dataset, open_mix(a, spec, d));
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
    samples_close(d->sample_set);
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
    return d->sample_set != NULL ? samples_facts(d->sample_set, split) : NULL;
}

int64_t data_dataset_pairs(const data_dataset *d, data_split split, int64_t n, data_pair *out)
{
    return d->sample_set != NULL ? samples_pairs(d->sample_set, split, n, out) : 0;
}

void data_dataset_rollouts(const data_dataset *d, data_split split, int64_t n,
                           const data_numbers *to)
{
    samples_rollouts(d->sample_set, split, n, to);
}

int64_t data_dataset_sample_count(const data_dataset *d, data_split split)
{
    return d->sample_set != NULL ? samples_count(d->sample_set, split) : 0;
}

void data_dataset_conversation(const data_dataset *d, int64_t sample, data_conversation *out)
{
    samples_describe(d->sample_set, sample, out);
}

status data_dataset_conversations(const data_dataset *d, int64_t n,
                                  status (*take)(void *context, const data_conversation *c),
                                  void *context)
{
    return samples_of_row(d->sample_set, n, take, context);
}

status data_dataset_conversations_named(const data_dataset *d, const char *name, char *flags,
                                        int64_t *found)
{
    return samples_named(d->sample_set, name, flags, found);
}

int64_t data_dataset_seq(const data_dataset *d)
{
    return d->seq;
}

hash128 data_dataset_id(const data_dataset *d)
{
    return d->id;
}
