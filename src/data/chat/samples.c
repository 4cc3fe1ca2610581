// Reading, packing and filling of samples.
#include "data/chat/samples_internal.h"

#include "base/text.h"
#include "data/chat.h"
#include "data/dataset/pack.h"
#include "data/dataset/sources.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reading {
    const host *h;
    arena *a;
    const data_dataset_spec *spec;
    data_chat *chat;
    samples *s;
    double share; // of the samples of data.train that are held out
    int64_t read; // of data.train so far
    data_sample sample;
    sample_origin origin; // of the line
    int64_t previous;     // sample of training that the line before gave; -1: none
    mix_source *sources;
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
    r->origin.completion = x->completion;
    TRY(data_bytes_add(&p->origins, &r->origin, (int64_t)sizeof(r->origin)));
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
    packed_set *to = NULL, *trained = &r->s->sets[DATA_TRAIN];
    data_sample *x = &r->sample;
    const bool lends = r->spec->chat->format == DATA_FORMAT_LABELLED;
    x->completion = 0;
    do {
        TRY(data_chat_encode(r->chat, line->bytes, line->count, path, line->number, x));
        if (x->ids.count == 0) continue;
        if (to == NULL) to = &r->s->sets[split_of(r, split)];
        r->origin.lender = to == trained && lends ? r->previous : -1;
        r->previous = to == trained ? trained->sample_count : -1;
        TRY(sample_add(r, to));
    } while (++x->completion < x->completions);
    return ST_OK;
}

static status line_add(reading *r, const data_line *line, const char *path, data_split split)
{
    status st = sample_origin_read(r->s, line, &r->origin);
    if (st == ST_OK) st = line_samples(r, line, path, split);
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

static status path_add(reading *r, const char *path)
{
    samples *s = r->s;
    void *items = s->paths;
    TRY(arena_grow(r->a, &items, &s->path_capacity, s->path_count + 1, sizeof(*s->paths)));
    s->paths = items;
    return arena_strdup(r->a, path, &s->paths[s->path_count++]);
}

static status file_add(reading *r, const char *path, data_split split)
{
    const data_progress *p = r->spec->progress;
    data_documents *d = NULL;
    r->skipped = 0;
    TRY(data_path_check(path));
    TRY(path_add(r, path));
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
        return fail(ST_NOT_FOUND, "%s: no such file", entry);
    }
    TRY(r->h->api->path_glob(r->h, a, entry, &names));
    if (names.count == 0) return fail(ST_NOT_FOUND, "%s: no file fits this glob", entry);
    for (int64_t i = 0; i < names.count; i++) TRY(file_add(r, names.names[i], split));
    return ST_OK;
}

// Reads the entries of data.train; without weights they are one source.
static status read_sources(reading *r, arena *a)
{
    samples *s = r->s;
    const data_dataset_spec *spec = r->spec;
    source_entries entries = {0};
    bool any_weight = spec->temperature > 0.0 || spec->phase_count > 0;
    for (int64_t i = 0; i < spec->train_count; i++) {
        TRY(source_entries_add(r->h, a, spec->train[i], &entries));
    }
    TRY(source_entries_check(&entries));
    for (int64_t i = 0; i < entries.count; i++) {
        const source_entry *e = &entries.items[i];
        any_weight = any_weight || e->has_weight || e->has_epochs;
        for (int64_t k = 0; k < e->paths.count; k++) {
            TRY(entry_add(r, a, e->paths.items[k], DATA_TRAIN));
        }
        for (int k = 0; k < DATA_SPLIT_COUNT; k++) {
            s->sets[k].begin_of[i + 1] = s->sets[k].sample_count;
        }
    }
    s->source_count = any_weight ? entries.count : 1;
    for (int k = 0; k < DATA_SPLIT_COUNT && !any_weight; k++) {
        s->sets[k].begin_of[1] = s->sets[k].sample_count;
    }
    TRY(arena_new(a, s->source_count, &r->sources));
    for (int64_t i = 0; i < s->source_count && any_weight; i++) {
        const source_entry *e = &entries.items[i];
        r->sources[i] = (mix_source){
            .weight = e->weight, .has_weight = e->has_weight, .has_epochs = e->has_epochs};
    }
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
    return read_sources(r, a);
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
static status rows_best_fit(const int64_t *begin, int64_t count, int64_t seq, int64_t *row)
{
    int64_t rows = 0, *lengths = malloc((size_t)count * sizeof(*lengths));
    if (lengths == NULL) return no_memory();
    for (int64_t i = 0; i < count; i++) lengths[i] = begin[i + 1] - begin[i];
    const status st = pack_best_fit(lengths, count, seq, row, &rows);
    free(lengths);
    return st;
}

static status rows_first_fit(const int64_t *begin, int64_t count, int64_t seq, int64_t *row)
{
    fit_tree t = {.leaves = 1};
    while (t.leaves < count) t.leaves *= 2;
    t.free = malloc((size_t)(2 * t.leaves) * sizeof(*t.free));
    if (t.free == NULL) return no_memory();
    for (int64_t i = 0; i < 2 * t.leaves; i++) t.free[i] = seq;
    for (int64_t i = 0; i < count; i++) row[i] = fit_take(&t, begin[i + 1] - begin[i]);
    free(t.free);
    return ST_OK;
}

// Writes the row of each sample; a row has samples of one source.
static status pack_sources(packed_set *p, const samples *s, int64_t *row)
{
    for (int64_t k = 0; k < s->source_count; k++) {
        const int64_t first = p->begin_of[k], count = p->begin_of[k + 1] - first;
        const int64_t *begin = p->begin + first;
        int64_t rows = p->first_row[k];
        if (count > 0 && s->packing == DATA_PACKING_BEST_FIT) {
            TRY(rows_best_fit(begin, count, s->seq, row + first));
        } else if (count > 0) {
            TRY(rows_first_fit(begin, count, s->seq, row + first));
        }
        for (int64_t i = first; i < first + count; i++) {
            row[i] += p->first_row[k];
            rows = max_i64(rows, row[i] + 1);
        }
        p->first_row[k + 1] = rows;
    }
    return ST_OK;
}

static status pack_set(packed_set *p, const samples *s)
{
    if (p->sample_count == 0) return ST_OK;
    int64_t *row = malloc((size_t)p->sample_count * sizeof(*row));
    p->order = malloc((size_t)p->sample_count * sizeof(*p->order));
    p->row_begin = calloc((size_t)p->sample_count + 2, sizeof(*p->row_begin));
    status st = row == NULL || p->order == NULL || p->row_begin == NULL ? no_memory() : ST_OK;
    if (st == ST_OK) st = pack_sources(p, s, row);
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
    mix_hash(&s->weighted, hash); // nothing without weights
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

static status mix_sources(reading *r, arena *a)
{
    samples *s = r->s;
    const packed_set *p = &s->sets[DATA_TRAIN];
    for (int64_t i = 0; i < s->source_count && s->source_count > 1; i++) {
        const int64_t first = p->begin_of[i], last = p->begin_of[i + 1];
        if (first == last) {
            return fail(ST_DATA, "data.train: entry %lld holds no sample to train on",
                        (long long)i + 1);
        }
        r->sources[i].sequences = p->first_row[i + 1] - p->first_row[i];
        r->sources[i].tokens = p->begin[last] - p->begin[first];
    }
    return mix_open(a, r->spec, r->sources, s->source_count, &s->weighted);
}

static status fill_all(const host *h, arena *a, const data_dataset_spec *spec, samples *s)
{
    reading r = {.h = h, .a = a, .spec = spec, .s = s, .previous = -1};
    TRY(data_chat_open(h, a, spec->chat, &r.chat));
    status st = read_all(&r, a);
    data_sample_deinit(&r.sample);
    data_chat_close(r.chat);
    for (int i = 0; i < DATA_SPLIT_COUNT && st == ST_OK; i++) st = pack_set(&s->sets[i], s);
    if (st == ST_OK) st = check(s);
    if (st == ST_OK) st = mix_sources(&r, a);
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
    s->scores = spec->chat->scores;
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
    data_bytes_deinit(&s->id_texts);
    for (int i = 0; i < DATA_SPLIT_COUNT; i++) {
        packed_set *p = &s->sets[i];
        data_ids_deinit(&p->ids);
        data_bytes_deinit(&p->trained);
        data_bytes_deinit(&p->wanted);
        data_bytes_deinit(&p->origins);
        data_bytes_deinit(&p->hidden);
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
