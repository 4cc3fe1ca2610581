// Reading, packing and filling of samples.
#include "data/chat/samples.h"

#include "base/rng.h"
#include "base/text.h"
#include "data/chat.h"
#include "data/dataset/pack.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Streams of random words: one an epoch.
static uint64_t epoch_stream(int64_t epoch)
{
    return UINT64_C(3) << 61 | (uint64_t)epoch;
}

typedef struct packed_set {
    data_ids ids;       // of all samples, one after the other
    data_bytes trained; // as long
    int64_t *begin;     // [sample_count + 1]
    int64_t *second;    // [sample_count] where the second document begins; of one document its end
    data_bytes wanted;  // [sample_count]
    // Rollouts, in double: of each sample; of each token.
    data_bytes advantage, old, reference;
    int64_t sample_count, sample_capacity;
    // Row r holds the samples order[row_begin[r]] .. order[row_begin[r + 1] - 1].
    int64_t *order, *row_begin;
    int64_t row_count;
    data_sample_facts facts;
} packed_set;

struct samples {
    int64_t seq;
    data_packing packing;
    bool restarts; // positions, in each sample
    uint64_t seed;
    int32_t pad;
    bool is_paired; // samples are two documents
    packed_set sets[DATA_SPLIT_COUNT];
    hash128 id;
};

typedef struct reading {
    const host *h;
    const data_dataset_spec *spec;
    data_chat *chat;
    samples *s;
    double share; // of the samples of data.train that are held out
    int64_t read; // of data.train so far
    data_sample sample;
    int64_t skipped;
    char first_skipped[300];
} reading;

// ---- reading ------------------------------------------------------------------------------------

static status no_memory(void)
{
    return fail(ST_NO_MEMORY, "no memory for the samples of data.train");
}

// The lists are on the heap, because they outgrow any arena block.
static status begin_grow(packed_set *p)
{
    if (p->sample_count + 2 <= p->sample_capacity) return ST_OK;
    const int64_t capacity = max_i64(1024, 2 * p->sample_capacity);
    int64_t *moved = realloc(p->begin, (size_t)capacity * sizeof(*moved));
    if (moved == NULL) return no_memory();
    p->begin = moved;
    p->begin[0] = 0;
    moved = realloc(p->second, (size_t)capacity * sizeof(*moved));
    if (moved == NULL) return no_memory();
    p->second = moved;
    p->sample_capacity = capacity;
    return ST_OK;
}

// Adds tokens [begin, end) of the sample, a document, and returns how many are labels: no token
// comes before the first one, so it is none.
static status document_add(const data_sample *x, int64_t begin, int64_t end, packed_set *p,
                           int64_t *labels)
{
    TRY(data_ids_add(&p->ids, x->ids.items + begin, end - begin));
    TRY(data_bytes_add(&p->trained, x->trained.items + begin, end - begin));
    for (int64_t i = begin + 1; i < end; i++) *labels += x->trained.items[i];
    return ST_OK;
}

// Numbers of the first `count` tokens: 0 where a token is not trained.
static status numbers_add(const data_sample *x, const data_bytes *from, int64_t count,
                          data_bytes *to)
{
    int64_t at = 0;
    for (int64_t i = 0; i < count; i++) {
        double value = 0.0;
        const int64_t begin = at * (int64_t)sizeof(value);
        if (x->trained.items[i] != 0) {
            if (from->count > 0) memcpy(&value, from->items + begin, sizeof(value));
            at++;
        }
        TRY(data_bytes_add(to, &value, (int64_t)sizeof(value)));
    }
    return ST_OK;
}

static status rollout_add(const data_sample *x, int64_t count, packed_set *p)
{
    TRY(data_bytes_add(&p->advantage, &x->advantage, (int64_t)sizeof(x->advantage)));
    TRY(numbers_add(x, &x->old, count, &p->old));
    return numbers_add(x, &x->reference, count, &p->reference);
}

static status sample_add(reading *r, packed_set *p)
{
    const data_sample *x = &r->sample;
    const int64_t seq = r->s->seq, first = x->second > 0 ? x->second : x->ids.count;
    const int64_t rest = x->ids.count - first, half = min_i64(rest, seq / 2);
    const char wanted = x->wanted ? 1 : 0;
    int64_t trained[2] = {0, 0};
    TRY(begin_grow(p));
    // If two documents are too long together, each keeps at least half of the row.
    const int64_t kept = min_i64(first, seq - half), kept_rest = min_i64(rest, seq - kept);
    const int64_t count = kept + kept_rest;
    TRY(document_add(x, 0, kept, p, &trained[0]));
    p->second[p->sample_count] = p->ids.count;
    TRY(document_add(x, first, first + kept_rest, p, &trained[1]));
    TRY(data_bytes_add(&p->wanted, &wanted, 1));
    if (r->spec->chat->format == DATA_FORMAT_ROLLOUTS) TRY(rollout_add(x, count, p));
    p->begin[++p->sample_count] = p->ids.count;
    data_sample_facts *f = &p->facts;
    f->samples++;
    f->tokens += count;
    f->trained += trained[0] + trained[1];
    f->turns += x->turns;
    f->ended += x->ended;
    f->cut += x->ids.count > r->s->seq ? 1 : 0;
    f->longest = max_i64(f->longest, x->ids.count);
    f->without_trained += trained[0] == 0 || (rest > 0 && trained[1] == 0) ? 1 : 0;
    f->empty_prompts += x->empty_prompt ? 1 : 0;
    return ST_OK;
}

// Even places of the files, whatever the seed.
static data_split split_of(reading *r, data_split given)
{
    if (given == DATA_VALID) return DATA_VALID;
    const int64_t i = r->read++;
    const bool is_held = floor((double)(i + 1) * r->share) > floor((double)i * r->share);
    return is_held ? DATA_VALID : DATA_TRAIN;
}

// The samples of a line: each of its completions, or one.
static status line_samples(reading *r, const data_line *line, const char *path, data_split split)
{
    packed_set *to = NULL;
    data_sample *x = &r->sample;
    x->completion = 0;
    do {
        TRY(data_chat_encode(r->chat, line->bytes, line->count, path, line->number, x));
        if (x->ids.count == 0) continue;
        if (to == NULL) to = &r->s->sets[split_of(r, split)];
        TRY(sample_add(r, to));
    } while (++x->completion < x->completions);
    return ST_OK;
}

static status line_add(reading *r, const data_line *line, const char *path, data_split split)
{
    const status st = line_samples(r, line, path, split);
    if (st == ST_OK) return ST_OK;
    if (!r->spec->skips_bad_lines || st != ST_DATA) return st;
    if (r->skipped++ == 0) {
        (void)snprintf(r->first_skipped, sizeof(r->first_skipped), "%.299s", error_last()->text);
    }
    error_clear();
    return ST_OK;
}

static status file_lines(reading *r, data_documents *d, const char *path, data_split split)
{
    const data_progress *p = r->spec->progress;
    data_line line;
    if (!data_documents_are_lines(d)) {
        return fail(ST_DATA, "%s: no JSON lines; a sample is a JSON object on a line", path);
    }
    for (;;) {
        TRY(data_documents_line(d, &line));
        if (line.bytes == NULL) return ST_OK;
        TRY(line_add(r, &line, path, split));
        const data_reader *reader = data_documents_reader(d);
        if (p == NULL || p->report == NULL || line.number % 1024 != 0) continue;
        TRY(p->report(p->context, path, data_reader_position(reader),
                      data_reader_file_bytes(reader)));
    }
}

static status file_add(reading *r, const char *path, data_split split)
{
    const data_progress *p = r->spec->progress;
    data_documents *d = NULL;
    r->skipped = 0;
    TRY(data_path_check(path));
    TRY(data_documents_open(r->h, path, 0, &d));
    const status st = file_lines(r, d, path, split);
    data_documents_close(d);
    TRY(st);
    if (r->skipped == 0 || p == NULL || p->skipped == NULL) return ST_OK;
    return p->skipped(p->context, path, r->skipped, r->first_skipped);
}

static status entry_add(reading *r, arena *a, const char *entry, data_split split)
{
    file_names names;
    file_info info;
    TRY(r->h->api->path_info(r->h, entry, &info));
    if (info.kind == FILE_KIND_REGULAR) return file_add(r, entry, split);
    if (info.kind == FILE_KIND_FOLDER) {
        return fail(ST_DATA, "%s: a folder; for its files write a glob such as %s/*.jsonl", entry,
                    entry);
    }
    if (strpbrk(entry, "*?[") == NULL) {
        const char *equals = strrchr(entry, '=');
        double weight = 0.0;
        if (equals != NULL && text_parse_f64(equals + 1, &weight)) {
            return fail(ST_UNSUPPORTED,
                        "data.train: %s: samples of conversations have no weights yet; name a file "
                        "once for each time that its samples come",
                        entry);
        }
        return fail(ST_NOT_FOUND, "%s: no such file", entry);
    }
    TRY(r->h->api->path_glob(r->h, a, entry, &names));
    if (names.count == 0) return fail(ST_NOT_FOUND, "%s: no file fits this glob", entry);
    for (int64_t i = 0; i < names.count; i++) TRY(file_add(r, names.names[i], split));
    return ST_OK;
}

static status read_all(reading *r, arena *a)
{
    const data_dataset_spec *spec = r->spec;
    const bool has_valid = spec->valid != NULL && spec->valid[0] != 0;
    if (has_valid && text_parse_f64(spec->valid, &r->share)) {
        if (!(r->share >= 0.0 && r->share < 1.0)) {
            return fail(ST_CONFIG_RANGE, "data.valid: %s, a share from 0 to below 1 expected",
                        spec->valid);
        }
    } else if (has_valid) {
        TRY(entry_add(r, a, spec->valid, DATA_VALID));
    }
    for (int64_t i = 0; i < spec->train_count; i++) {
        TRY(entry_add(r, a, spec->train[i], DATA_TRAIN));
    }
    return ST_OK;
}

// ---- packing ------------------------------------------------------------------------------------

// A tree of the largest free part below each node, with a leaf for each row: finds the first row
// with enough of it in log2(rows) steps.
typedef struct fit_tree {
    int64_t *free; // [2 * leaves]
    int64_t leaves;
} fit_tree;

static int64_t fit_take(fit_tree *t, int64_t wanted)
{
    int64_t at = 1;
    while (at < t->leaves) at = t->free[2 * at] >= wanted ? 2 * at : 2 * at + 1;
    t->free[at] -= wanted;
    for (int64_t up = at / 2; up > 0; up /= 2) {
        t->free[up] = max_i64(t->free[2 * up], t->free[2 * up + 1]);
    }
    return at - t->leaves;
}

// Writes the row of each sample; rows are used from the first on without gaps.
static status rows_best_fit(const packed_set *p, int64_t seq, int64_t *row)
{
    int64_t rows = 0, *lengths = malloc((size_t)p->sample_count * sizeof(*lengths));
    if (lengths == NULL) return no_memory();
    for (int64_t i = 0; i < p->sample_count; i++) lengths[i] = p->begin[i + 1] - p->begin[i];
    const status st = pack_best_fit(lengths, p->sample_count, seq, row, &rows);
    free(lengths);
    return st;
}

static status rows_first_fit(const packed_set *p, int64_t seq, int64_t *row)
{
    fit_tree t = {.leaves = 1};
    while (t.leaves < p->sample_count) t.leaves *= 2;
    t.free = malloc((size_t)(2 * t.leaves) * sizeof(*t.free));
    if (t.free == NULL) return no_memory();
    for (int64_t i = 0; i < 2 * t.leaves; i++) t.free[i] = seq;
    for (int64_t i = 0; i < p->sample_count; i++) {
        row[i] = fit_take(&t, p->begin[i + 1] - p->begin[i]);
    }
    free(t.free);
    return ST_OK;
}

static status pack_set(packed_set *p, const samples *s)
{
    const int64_t seq = s->seq;
    if (p->sample_count == 0) return ST_OK;
    int64_t *row = malloc((size_t)p->sample_count * sizeof(*row));
    p->order = malloc((size_t)p->sample_count * sizeof(*p->order));
    p->row_begin = calloc((size_t)p->sample_count + 2, sizeof(*p->row_begin));
    status st = row == NULL || p->order == NULL || p->row_begin == NULL ? no_memory() : ST_OK;
    if (st == ST_OK && s->packing == DATA_PACKING_BEST_FIT) {
        st = rows_best_fit(p, seq, row);
    } else if (st == ST_OK) {
        st = rows_first_fit(p, seq, row);
    }
    for (int64_t i = 0; i < p->sample_count && st == ST_OK; i++) {
        p->row_count = max_i64(p->row_count, row[i] + 1);
        p->row_begin[row[i] + 2]++;
    }
    for (int64_t r = 0; r < p->row_count && st == ST_OK; r++) {
        p->row_begin[r + 2] += p->row_begin[r + 1];
    }
    for (int64_t i = 0; i < p->sample_count && st == ST_OK; i++) {
        p->order[p->row_begin[row[i] + 1]++] = i;
    }
    free(row);
    return st;
}

static status make_id(samples *s)
{
    hash_stream *hash = hash_begin();
    if (hash == NULL) return no_memory();
    const int64_t facts[] = {2, s->seq, s->packing, s->restarts, (int64_t)s->seed, s->pad};
    hash_add(hash, facts, sizeof(facts));
    for (int i = 0; i < DATA_SPLIT_COUNT; i++) {
        const packed_set *p = &s->sets[i];
        hash_add(hash, &p->sample_count, sizeof(p->sample_count));
        if (p->sample_count == 0) continue;
        hash_add(hash, p->ids.items, p->ids.count * (int64_t)sizeof(int32_t));
        hash_add(hash, p->trained.items, p->trained.count);
        hash_add(hash, p->begin, (p->sample_count + 1) * (int64_t)sizeof(int64_t));
        hash_add(hash, p->advantage.items, p->advantage.count);
        hash_add(hash, p->old.items, p->old.count);
        hash_add(hash, p->reference.items, p->reference.count);
        if (!s->is_paired) continue;
        hash_add(hash, p->second, p->sample_count * (int64_t)sizeof(int64_t));
        hash_add(hash, p->wanted.items, p->wanted.count);
    }
    s->id = hash_end(hash);
    return ST_OK;
}

static status check(const samples *s)
{
    const packed_set *p = &s->sets[DATA_TRAIN];
    if (p->row_count == 0) return fail(ST_DATA, "data.train holds no sample to train on");
    if (p->facts.trained > 0) return ST_OK;
    return fail(ST_DATA,
                "none of the %lld tokens of data.train is trained: no message is of the role "
                "assistant, all are cut away by train.seq, or all have \"weight\": 0",
                (long long)p->facts.tokens);
}

static status fill_all(const host *h, arena *a, const data_dataset_spec *spec, samples *s)
{
    reading r = {.h = h, .spec = spec, .s = s};
    TRY(data_chat_open(h, a, spec->chat, &r.chat));
    status st = read_all(&r, a);
    data_sample_deinit(&r.sample);
    data_chat_close(r.chat);
    for (int i = 0; i < DATA_SPLIT_COUNT && st == ST_OK; i++) st = pack_set(&s->sets[i], s);
    if (st == ST_OK) st = check(s);
    return st == ST_OK ? make_id(s) : st;
}

status samples_open(const host *h, arena *a, const data_dataset_spec *spec, samples **out)
{
    samples *s = NULL;
    TRY(arena_new(a, 1, &s));
    s->seq = spec->seq;
    s->packing = spec->packing;
    s->restarts = spec->positions == DATA_POSITIONS_AUTO
                      ? spec->packing != DATA_PACKING_PLAIN
                      : spec->positions == DATA_POSITIONS_DOCUMENT;
    s->seed = spec->seed;
    s->is_paired =
        spec->chat->format == DATA_FORMAT_PAIRS || spec->chat->format == DATA_FORMAT_LABELLED;
    s->pad = (int32_t)max_i64(0, data_tokenizer_eot(spec->tokenizer));
    const status st = fill_all(h, a, spec, s);
    if (st != ST_OK) samples_close(s);
    if (st == ST_OK) *out = s;
    return st;
}

void samples_close(samples *s)
{
    if (s == NULL) return;
    for (int i = 0; i < DATA_SPLIT_COUNT; i++) {
        packed_set *p = &s->sets[i];
        data_ids_deinit(&p->ids);
        data_bytes_deinit(&p->trained);
        data_bytes_deinit(&p->wanted);
        data_bytes_deinit(&p->advantage);
        data_bytes_deinit(&p->old);
        data_bytes_deinit(&p->reference);
        free(p->begin);
        free(p->second);
        free(p->order);
        free(p->row_begin);
        *p = (packed_set){.begin = NULL};
    }
}

// ---- rows ---------------------------------------------------------------------------------------

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
    const int64_t rows = s->sets[split].row_count;
    *epoch = split == DATA_TRAIN ? n / rows : 0;
    if (split == DATA_VALID) return n % rows;
    return rng_permute(s->seed, epoch_stream(*epoch), rows, n % rows);
}

typedef struct cells {
    int32_t *ids, *labels, *positions, *documents; // the last two may be NULL
    bool masked, restarts;                         // positions restart at 0 in each sample
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
        const bool has_label = t + 1 < end && p->trained.items[t + 1] != 0;
        c->ids[*at] = p->ids.items[t];
        c->labels[*at] = has_label ? p->ids.items[t + 1] : DATA_LABEL_IGNORED;
        cell_put(c, *at, t - begin, document);
    }
}

void samples_fill(const samples *s, data_split split, int64_t n, const data_rows *rows)
{
    const packed_set *p = &s->sets[split];
    const cells c = {rows->ids,
                     rows->labels,
                     rows->positions,
                     rows->documents,
                     s->packing != DATA_PACKING_PLAIN,
                     s->restarts};
    int64_t epoch = 0, at = 0, document = 0;
    const int64_t row = samples_row_at(s, split, n, &epoch);
    for (int64_t i = p->row_begin[row]; i < p->row_begin[row + 1]; i++, document++) {
        const int64_t k = p->order[i];
        document_fill(p, &c, p->begin[k], p->second[k], document, &at);
        if (p->second[k] < p->begin[k + 1]) document++;
        document_fill(p, &c, p->second[k], p->begin[k + 1], document, &at);
    }
    for (int64_t pad = at; at < s->seq; at++) {
        c.ids[at] = s->pad;
        c.labels[at] = DATA_LABEL_IGNORED;
        cell_put(&c, at, at - pad, document);
    }
}
