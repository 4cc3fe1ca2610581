// The files of an entry of data.train or data.valid: finds them, prepares texts, opens tokens.
#include "base/fault.h"
#include "base/text.h"
#include "data/dataset/pack.h"

#include <math.h>
#include <string.h>
#include <strings.h>

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

// The number of "3x".
static bool parse_epochs(const char *word, double *out)
{
    char number[32];
    const size_t n = strlen(word);
    if (n < 2 || n >= sizeof(number) || word[n - 1] != 'x') return false;
    memcpy(number, word, n - 1);
    number[n - 1] = 0;
    return text_parse_f64(number, out);
}

// Splits "path=weight" and "path=epochsx".
static status parse_entry(const host *h, arena *a, const char *entry, char **path, source_entry *e)
{
    file_info info;
    e->weight = 1.0;
    e->has_weight = e->has_epochs = false;
    const char *equals = strrchr(entry, '=');
    double value = 0.0;
    const bool has_epochs = equals != NULL && parse_epochs(equals + 1, &value);
    if (equals == NULL || (!has_epochs && !text_parse_f64(equals + 1, &value))) {
        return arena_strdup(a, entry, path);
    }
    TRY(h->api->path_info(h, entry, &info)); // runs/lr=3 may be a path and no weight
    if (info.kind != FILE_KIND_NONE) return arena_strdup(a, entry, path);
    if (!(value > 0.0) || !isfinite(value)) {
        return fail(ST_CONFIG_RANGE, "data.train: %s: the weight is %s, a positive number expected",
                    entry, equals + 1);
    }
    e->weight = value;
    e->has_weight = !has_epochs;
    e->has_epochs = has_epochs;
    return arena_format(a, path, "%.*s", (int)(equals - entry), entry);
}

static status add_entry(arena *a, source_entries *list, const source_entry *e)
{
    void *items = list->items;
    if (list->count == DATA_SOURCES_MAX) {
        return fail(ST_CONFIG, "data.train: more than %d sources", DATA_SOURCES_MAX);
    }
    TRY(arena_grow(a, &items, &list->capacity, list->count + 1, sizeof(source_entry)));
    list->items = items;
    list->items[list->count++] = *e;
    return ST_OK;
}

// Adds the sources of a corpus that hold documents. If one has a weight, one without has 1.
static status add_corpus(const host *h, arena *a, const source_entry *entry, source_entries *list)
{
    corpus_folder corpus;
    bool any_weight = false;
    TRY(corpus_folder_open(h, a, entry->name, &corpus));
    for (int64_t i = 0; i < corpus.part_count; i++) {
        any_weight = any_weight || corpus.parts[i].weight > 0.0;
    }
    for (int64_t i = 0; i < corpus.part_count; i++) {
        const corpus_part *part = &corpus.parts[i];
        char *name = NULL;
        if (part->shards.count == 0) continue;
        TRY(arena_format(a, &name, "%s (%s)", entry->name, part->source));
        const source_entry e = {.name = any_weight || corpus.part_count > 1 ? name : entry->name,
                                .paths = part->shards,
                                .weight = entry->weight * (part->weight > 0.0 ? part->weight : 1.0),
                                .has_weight = entry->has_weight || any_weight,
                                .has_epochs = entry->has_epochs};
        TRY(add_entry(a, list, &e));
    }
    return ST_OK;
}

status source_entries_add(const host *h, arena *a, const char *entry, source_entries *out)
{
    char *path = NULL;
    source_entry e = {0};
    file_info info;
    bool is_corpus = false;
    TRY(parse_entry(h, a, entry, &path, &e));
    e.name = path;
    TRY(h->api->path_info(h, path, &info));
    if (info.kind == FILE_KIND_FOLDER) TRY(corpus_folder_is(h, a, path, &is_corpus));
    if (is_corpus) return add_corpus(h, a, &e, out);
    TRY(arena_new(a, 1, &e.paths.items));
    e.paths.items[e.paths.count++] = path;
    return add_entry(a, out, &e);
}

status source_entries_check(const source_entries *entries)
{
    bool any_weight = false, any_epochs = false;
    for (int64_t i = 0; i < entries->count; i++) {
        any_weight = any_weight || (entries->items[i].has_weight && !entries->items[i].has_epochs);
        any_epochs = any_epochs || entries->items[i].has_epochs;
    }
    if (!any_weight || !any_epochs) return ST_OK;
    return fail(ST_CONFIG_CONFLICT,
                "data.train: some entries have weights (=2) and some numbers of epochs (=2x); give "
                "one or the other");
}

status data_path_check(const char *path)
{
    static const char *const rows[][2] = {
        {".pkl", "a pickle is a Python program and is never read; give data.tokenizer or "
                 "model.vocab instead"},
        {".parquet", "data build reads Parquet; train on the folder that it makes"},
        {".arrow", "data build reads Arrow; train on the folder that it makes"},
        {".npy", "NumPy files are not supported; write raw uint16 tokens to a .bin file"},
        {".zip", "archives are not supported; unpack it"},
        {".tar", "archives are not supported; unpack it"},
        {".tar.gz", "archives are not supported; unpack it"},
        {".tgz", "archives are not supported; unpack it"},
        {".tar.zst", "archives are not supported; unpack it"},
        {".safetensors", "a file of tensors, not of text or tokens"},
    };
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        const size_t n = strlen(path), m = strlen(rows[i][0]);
        if (n >= m && strcasecmp(path + n - m, rows[i][0]) == 0) {
            return fail(ST_UNSUPPORTED, "%s: %s", path, rows[i][1]);
        }
    }
    return ST_OK;
}

static status check_tokenizer(const data_dataset_spec *spec, const data_tokens *t)
{
    const hash128 made_with = data_tokens_tokenizer(t);
    if (spec->tokenizer == NULL || (made_with.high == 0 && made_with.low == 0)) return ST_OK;
    const hash128 given = data_tokenizer_id(spec->tokenizer);
    if (given.high == made_with.high && given.low == made_with.low) return ST_OK;
    char made_text[33], given_text[33];
    return fail(ST_DATA, "%s: made with another tokenizer (%s) than data.tokenizer (%s)",
                data_tokens_path(t), hash128_text(made_with, made_text),
                hash128_text(given, given_text));
}

static status malformed_tell(const data_dataset_spec *spec, const char *path, const data_tokens *t)
{
    const data_progress *p = spec->progress;
    const int64_t at = data_tokens_malformed(t);
    return at >= 0 && p != NULL && p->malformed != NULL ? p->malformed(p->context, path, at)
                                                        : ST_OK;
}

static status add_file(const host *h, arena *a, const data_dataset_spec *spec, const char *path,
                       source *s)
{
    TRY(data_path_check(path));
    bool is_tokens = false;
    TRY(data_tokens_probe(h, path, &is_tokens));
    const char *tokens_path = path;
    if (!is_tokens) {
        if (spec->tokenizer == NULL || spec->cache_folder == NULL) {
            return fail(ST_CONFIG, "%s: a text needs data.tokenizer", path);
        }
        char *shard = NULL;
        const data_prepare_options options = {.cache_folder = spec->cache_folder,
                                              .skips_bad_lines = spec->skips_bad_lines,
                                              .progress = spec->progress};
        TRY(data_prepare(h, a, spec->tokenizer, path, &options, &shard));
        tokens_path = shard;
    }
    int64_t vocab = spec->vocab;
    if (vocab == 0 && spec->tokenizer != NULL) vocab = data_tokenizer_vocab_size(spec->tokenizer);
    data_tokens *t = NULL;
    TRY(data_tokens_open(h, a, tokens_path, vocab, &t));
    status st = check_tokenizer(spec, t);
    if (st == ST_OK && !is_tokens) st = malformed_tell(spec, path, t);
    void *items = s->files;
    if (st == ST_OK) {
        st = arena_grow(a, &items, &s->file_capacity, s->file_count + 1, sizeof(source_file));
    }
    if (st != ST_OK) {
        data_tokens_close(t);
        return st;
    }
    s->files = items;
    s->files[s->file_count++] = (source_file){.tokens = t, .begin = s->tokens};
    s->tokens += data_tokens_count(t);
    return ST_OK;
}

// A glob finds both files of a Megatron pair; the index then stands for the pair.
static bool is_second_of_pair(const file_names *names, int64_t i)
{
    if (!ends_with(names->names[i], ".idx")) return false;
    const size_t stem = strlen(names->names[i]) - 3;
    for (int64_t k = 0; k < names->count; k++) {
        const char *name = names->names[k];
        if (strncmp(name, names->names[i], stem) == 0 && strcmp(name + stem, "bin") == 0) {
            return true;
        }
    }
    return false;
}

static status add_glob(const host *h, arena *a, const data_dataset_spec *spec, const char *pattern,
                       source *s)
{
    file_names names;
    TRY(h->api->path_glob(h, a, pattern, &names));
    int64_t added = 0;
    for (int64_t i = 0; i < names.count; i++) {
        file_info info;
        TRY(h->api->path_info(h, names.names[i], &info));
        if (info.kind == FILE_KIND_FOLDER || is_second_of_pair(&names, i)) continue;
        TRY(add_file(h, a, spec, names.names[i], s));
        added++;
    }
    if (added == 0) return fail(ST_NOT_FOUND, "%s: no file fits this glob", pattern);
    return ST_OK;
}

status source_add(const host *h, arena *a, const data_dataset_spec *spec, const char *path,
                  source *s)
{
    TRY(fault_point("data.source.add"));
    file_info info;
    TRY(h->api->path_info(h, path, &info));
    if (info.kind == FILE_KIND_FOLDER) {
        return fail(ST_DATA,
                    "%s: a folder without a finished corpus; for its files write a glob such as "
                    "%s/*.txt",
                    path, path);
    }
    if (info.kind != FILE_KIND_NONE) return add_file(h, a, spec, path, s);
    if (strpbrk(path, "*?[") != NULL) return add_glob(h, a, spec, path, s);
    // Megatron's tools name a pair by the common prefix of both names.
    char *idx = NULL;
    TRY(arena_format(a, &idx, "%s.idx", path));
    TRY(h->api->path_info(h, idx, &info));
    if (info.kind == FILE_KIND_REGULAR) return add_file(h, a, spec, idx, s);
    return fail(ST_NOT_FOUND, "%s: no such file", path);
}

void source_close(source *s)
{
    pack_close(s->pack);
    s->pack = NULL;
    for (int64_t i = 0; i < s->file_count; i++) data_tokens_close(s->files[i].tokens);
    s->file_count = 0;
}

// Even places that do not depend on the seed, so the same sequences are held out whatever else
// changes.
status source_hold_out(source *s, double share)
{
    const int64_t wanted = (int64_t)((double)s->sequences * share + 0.5);
    const int64_t count = max_i64(1, wanted);
    if (count >= s->sequences) {
        return fail(ST_DATA,
                    "%s: data.valid = %g would hold out %lld of %lld sequences, which leaves none "
                    "to train on",
                    s->name, share, (long long)count, (long long)s->sequences);
    }
    const int64_t blocks = min_i64(count, DATA_VALID_BLOCKS_MAX);
    int64_t taken = 0;
    for (int64_t i = 0; i < blocks; i++) {
        // Equal parts of the stream; each holds out its middle.
        const int64_t begin = s->sequences / blocks * i, end = s->sequences / blocks * (i + 1);
        const int64_t part = count / blocks + (i < count % blocks ? 1 : 0);
        const int64_t size = min_i64(part, end - begin);
        s->held_out[i] = (source_block){begin + (end - begin - size) / 2, size};
        taken += size;
    }
    s->held_out_blocks = blocks;
    s->held_out_sequences = taken;
    return ST_OK;
}

int64_t source_sequence(const source *s, data_split split, int64_t ordinal)
{
    int64_t at = ordinal;
    for (int64_t i = 0; i < s->held_out_blocks; i++) {
        const source_block *b = &s->held_out[i];
        if (split == DATA_TRAIN) {
            if (at >= b->begin) at += b->count;
        } else {
            if (at < b->count) return b->begin + at;
            at -= b->count;
        }
    }
    return at;
}

bool source_is_held_out(const source *s, int64_t sequence)
{
    for (int64_t i = 0; i < s->held_out_blocks; i++) {
        const source_block *b = &s->held_out[i];
        if (sequence >= b->begin && sequence < b->begin + b->count) return true;
    }
    return false;
}

int64_t source_file_of(const source *s, int64_t token)
{
    ASSERT(token >= 0 && token < s->tokens);
    int64_t low = 0, high = s->file_count - 1;
    while (low < high) { // the last file that begins at or before the token
        const int64_t middle = low + (high - low + 1) / 2;
        if (s->files[middle].begin <= token) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

status source_read(const source *s, int64_t first, int64_t count, int32_t *ids)
{
    ASSERT(count > 0 && first >= 0 && first <= s->tokens - count);
    for (int64_t i = source_file_of(s, first), done = 0; done < count; i++) {
        const source_file *f = &s->files[i];
        const int64_t at = first + done - f->begin;
        const int64_t n = min_i64(count - done, data_tokens_count(f->tokens) - at);
        if (n > 0) TRY(data_tokens_read(f->tokens, at, n, ids + done));
        done += n;
    }
    return ST_OK;
}
