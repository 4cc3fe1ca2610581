// The keys of a build: those of the build itself, of each filter, and of each source that the file
// names. The rows of sources are made when the names are known.
#include "data/corpus.h"

#include <stdio.h>
#include <string.h>

#define AT(field) (int64_t) offsetof(corpus_config, field)
static const option own_rows[] = {
    {.key = "out",
     .kind = OPTION_PATH,
     .offset = AT(out),
     .default_text = "corpus",
     .help = "folder of the shards, the ledger of their documents and the work files",
     .also = "output, dir, out_dir"},
    {.key = "tokenizer",
     .kind = OPTION_PATH,
     .offset = AT(tokenizer),
     .default_text = "bytes",
     .choices = "bytes",
     .help = "tokenizer: bytes, a tokenizer.json, or a folder with one"},
    {.key = "special_tokens",
     .kind = OPTION_CHOICE,
     .offset = AT(special_tokens),
     .default_text = "text",
     .choices = "text, tokens",
     .help = "special tokens that are spelled in texts: text takes each as its letters, tokens as "
             "its token"},
    {.key = "on_error",
     .kind = OPTION_CHOICE,
     .offset = AT(on_error),
     .default_text = "stop",
     .choices = "stop, skip",
     .help = "a line or record without a text: stop is an error, skip counts it among the dropped "
             "documents; a damaged file is always an error"},
    {.key = "threads",
     .kind = OPTION_INT,
     .offset = AT(threads),
     .default_text = "0",
     .max = 16,
     .help = "threads of the build; 0 is one for each processor; the result is the same for any"},
    {.key = "memory",
     .kind = OPTION_BYTES,
     .offset = AT(memory_bytes),
     .default_text = "256MiB",
     .min = 1 << 20,
     .max = OPTION_NO_MAX,
     .help = "memory of the tables of hashes that find repeated documents; more passes over the "
             "hashes replace memory that is missing"},
    {.key = "shard_bytes",
     .kind = OPTION_BYTES,
     .offset = AT(shard_bytes),
     .default_text = "64MiB",
     .min = 1024,
     .max = 1099511627776.0,
     .help = "bytes of text in a shard"},
    {.key = "document_bytes",
     .kind = OPTION_BYTES,
     .offset = AT(document_bytes),
     .default_text = "16MiB",
     .min = 1024,
     .max = 1 << 30,
     .help = "largest document; a larger one is dropped and counted"},
    {.key = "samples",
     .kind = OPTION_INT,
     .offset = AT(samples),
     .default_text = "20",
     .max = 10000,
     .help = "dropped documents that are kept as samples of each rule"},
    {.key = "review.file",
     .kind = OPTION_PATH,
     .offset = AT(review.file),
     .help = "decisions of people about documents, as JSON lines, which data review collects and a "
             "build applies: accept, reject, or edit with another text"},
    {.key = "review.undecided",
     .kind = OPTION_CHOICE,
     .offset = AT(review.undecided),
     .default_text = "keep",
     .choices = "keep, drop",
     .help = "documents of the shares for review about which no one has decided yet"},
    {.key = "filters",
     .kind = OPTION_LIST,
     .offset = AT(filters),
     .help = "filters that apply to each document, in this order"},
    {.key = "dedup.exact",
     .kind = OPTION_BOOL,
     .offset = AT(dedup.exact),
     .default_text = "true",
     .help = "whether a document is dropped whose text is equal to that of an earlier one"},
    {.key = "dedup.near",
     .kind = OPTION_BOOL,
     .offset = AT(dedup.has_near),
     .default_text = "false",
     .help = "whether a document is dropped whose text is nearly that of an earlier one (MinHash)"},
    {.key = "dedup.ngram",
     .kind = OPTION_INT,
     .offset = AT(dedup.near.ngram),
     .default_text = "5",
     .min = 1,
     .max = 64,
     .unit = "words",
     .help = "length of the runs of words that near deduplication compares"},
    {.key = "dedup.bands",
     .kind = OPTION_INT,
     .offset = AT(dedup.near.bands),
     .default_text = "20",
     .min = 1,
     .max = 256,
     .help = "bands of a signature: documents that share one are near; FineWeb has 14"},
    {.key = "dedup.rows",
     .kind = OPTION_INT,
     .offset = AT(dedup.near.rows),
     .default_text = "8",
     .min = 1,
     .max = 64,
     .help = "values in a band; dedup.bands times dedup.rows is at most 1024"},
    {.key = "dedup.threshold",
     .kind = OPTION_REAL,
     .offset = AT(dedup.near.threshold),
     .default_text = "0.7",
     .max = 1,
     .help = "least similarity (Jaccard index, estimated from all values) of documents that share "
             "a band; 0 takes all of them for near"},
    {.key = "dedup.lines",
     .kind = OPTION_BOOL,
     .offset = AT(dedup.lines),
     .default_text = "false",
     .help = "whether a line is cut that an earlier document or line has"},
    {.key = "dedup.line_chars",
     .kind = OPTION_INT,
     .offset = AT(dedup.line_chars),
     .default_text = "30",
     .min = 1,
     .max = OPTION_NO_MAX,
     .unit = "characters",
     .help = "shortest line that dedup.lines cuts"},
    {.key = "dedup.substring",
     .kind = OPTION_INT,
     .offset = AT(dedup.substring),
     .default_text = "0",
     .max = 65536,
     .unit = "bytes",
     .help = "length of a stretch of text that is cut where it comes again; 0 looks for none; 200 "
             "is about 50 tokens"},
};

#define SOURCE_AT(field) (int64_t) offsetof(corpus_source, field)
static const option source_rows[] = {
    {.key = "paths",
     .kind = OPTION_PATHS,
     .offset = SOURCE_AT(paths),
     .help = "files, folders and globs of the source; a folder stands for all files in it, and one "
             "of a Hugging Face dataset for the tables of a split",
     .also = "path, files, file"},
    {.key = "format",
     .kind = OPTION_CHOICE,
     .offset = SOURCE_AT(format),
     .default_text = "auto",
     .choices = "auto, text, jsonl, csv, tsv, warc, parquet, arrow",
     .help = "format of the files; auto looks at each file's first bytes and its name"},
    {.key = "unit",
     .kind = OPTION_CHOICE,
     .offset = SOURCE_AT(unit),
     .default_text = "file",
     .choices = "file, paragraph, line",
     .help = "the document of a plain text: the file, what stands between empty lines, or a line"},
    {.key = "text",
     .kind = OPTION_TEXT,
     .offset = SOURCE_AT(text),
     .default_text = "text",
     .help = "key or column that holds the text",
     .also = "text_key, column, text_column"},
    {.key = "id",
     .kind = OPTION_TEXT,
     .offset = SOURCE_AT(id),
     .default_text = "id",
     .help = "key or column that names the document, if there is one",
     .also = "id_key, url"},
    {.key = "split",
     .kind = OPTION_TEXT,
     .offset = SOURCE_AT(split),
     .default_text = "train",
     .help = "split that is read of a folder of Hugging Face datasets; all for every split"},
    {.key = "licence",
     .kind = OPTION_TEXT,
     .offset = SOURCE_AT(licence),
     .default_text = "unknown",
     .help = "licence of the source, which the ledger of each shard repeats",
     .also = "license"},
    {.key = "generator",
     .kind = OPTION_TEXT,
     .offset = SOURCE_AT(generator),
     .help = "model that wrote the texts, for synthetic data; the ledger repeats it"},
    {.key = "review",
     .kind = OPTION_REAL,
     .offset = SOURCE_AT(review),
     .default_text = "0",
     .max = 1,
     .help = "share of the source's documents that data review asks about; 1 for all, such as "
             "those of a generator"},
    {.key = "weight",
     .kind = OPTION_REAL,
     .offset = SOURCE_AT(weight),
     .default_text = "0",
     .max = 1e12,
     .help = "share of the source among the sequences of training; 0 everywhere: each token comes "
             "once an epoch"},
};

static int64_t row_count(int64_t sources)
{
    int64_t count = COUNT_OF(own_rows) + sources * COUNT_OF(source_rows);
    for (int64_t i = 0; data_filters[i] != NULL; i++) count += data_filters[i]->row_count;
    return count;
}

// Keys that change no byte of the result. A build that goes on may have other values of them.
static bool is_free(const char *key)
{
    static const char *const free_keys[] = {"out", "threads", "memory", "samples"};
    for (int64_t i = 0; i < COUNT_OF(free_keys); i++) {
        if (strcmp(key, free_keys[i]) == 0) return true;
    }
    return false;
}

static status make_rows(arena *a, const option_list *names, option_table *out)
{
    option *rows = NULL;
    int64_t n = 0;
    TRY(arena_new(a, row_count(names->count), &rows));
    for (int64_t i = 0; i < COUNT_OF(own_rows); i++) rows[n++] = own_rows[i];
    for (int64_t i = 0; data_filters[i] != NULL; i++) {
        for (int64_t k = 0; k < data_filters[i]->row_count; k++) {
            rows[n] = data_filters[i]->rows[k];
            rows[n++].offset += AT(filter);
        }
    }
    for (int64_t i = 0; i < names->count; i++) {
        for (int64_t k = 0; k < COUNT_OF(source_rows); k++) {
            char *key = NULL;
            TRY(arena_format(a, &key, "sources.%s.%s", names->items[i], source_rows[k].key));
            rows[n] = source_rows[k];
            rows[n].key = key;
            rows[n++].offset += AT(sources) + i * (int64_t)sizeof(corpus_source);
        }
    }
    for (int64_t i = 0; i < n; i++) {
        if (rows[i].unit == NULL) rows[i].unit = "";
        rows[i].on_resume = is_free(rows[i].key) ? OPTION_FREE : OPTION_FIXED;
    }
    *out = (option_table){.title = "Keys of a corpus", .rows = rows, .count = n};
    return ST_OK;
}

status corpus_config_table(arena *a, option_table *out)
{
    static const char *items[] = {"NAME"};
    const option_list names = {.items = items, .count = 1};
    return make_rows(a, &names, out);
}

static status check_names(const char *yaml_path, const option_list *names)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    if (names->count == 0) {
        return fail(ST_CONFIG_KEY,
                    "%s: no sources; write sources: {NAME: {paths: FILES, licence: LICENCE}}",
                    yaml_path);
    }
    if (names->count > CORPUS_SOURCES_MAX) {
        return fail(ST_CONFIG_RANGE, "%s: %lld sources, at most %d expected", yaml_path,
                    (long long)names->count, CORPUS_SOURCES_MAX);
    }
    for (int64_t i = 0; i < names->count; i++) {
        const char *name = names->items[i];
        const size_t n = strlen(name);
        if (n > 0 && n <= CORPUS_NAME_BYTES_MAX && strspn(name, allowed) == n) continue;
        return fail(ST_CONFIG_RANGE,
                    "%s: the source's name \"%.80s\" begins the names of files: 1 to %d letters, "
                    "digits, '-' or '_' expected",
                    yaml_path, name, CORPUS_NAME_BYTES_MAX);
    }
    return ST_OK;
}

static status check_values(const host *h, const config *c, const corpus_config *r)
{
    char key[CORPUS_NAME_BYTES_MAX + 32];
    for (int64_t i = 0; i < r->source_count; i++) {
        if (r->sources[i].paths.count > 0) continue;
        (void)snprintf(key, sizeof(key), "sources.%s.paths", r->sources[i].name);
        return fail(ST_CONFIG_KEY, "%s: %s must be given: the files of the source",
                    config_place(c, key), key);
    }
    for (int64_t i = 0; i < r->source_count; i++) {
        if (r->sources[i].review == 0.0 || r->review.file != NULL) continue;
        (void)snprintf(key, sizeof(key), "sources.%s.review", r->sources[i].name);
        return fail(ST_CONFIG_KEY, "%s: %s needs review.file, the file of the decisions",
                    config_place(c, key), key);
    }
    if (r->dedup.substring > 0 && r->dedup.substring < 32) {
        return fail(ST_CONFIG_RANGE, "%s: dedup.substring is %lld, 0 or 32 to 65536 expected",
                    config_place(c, "dedup.substring"), (long long)r->dedup.substring);
    }
    if (r->dedup.near.bands * r->dedup.near.rows > CORPUS_NEAR_VALUES_MAX) {
        return fail(ST_CONFIG_RANGE,
                    "%s: dedup.bands times dedup.rows is %lld, at most %d expected",
                    config_place(c, "dedup.bands"),
                    (long long)(r->dedup.near.bands * r->dedup.near.rows), CORPUS_NEAR_VALUES_MAX);
    }
    filter_run *run = NULL;
    const status st = filter_run_open(h, &r->filter, &r->filters, &run);
    filter_run_close(run);
    return st;
}

// The digest of all keys but those that change no byte of the result.
static status make_digest(arena *a, const option_table *t, corpus_config *c)
{
    text all = {.a = a}, parameters = {.a = a};
    for (int64_t i = 0; i < t->count; i++) {
        if (t->rows[i].on_resume == OPTION_FREE) continue;
        text value = {.a = a};
        TRY(text_add(&value, "%s", ""));
        TRY(option_print(&t->rows[i], c, &value));
        TRY(text_add(&all, "%s=%s\n", t->rows[i].key, value.bytes));
        if (strncmp(t->rows[i].key, "sources.", 8) == 0) continue;
        TRY(text_add(&parameters, "%s\"%s\": ", parameters.length > 0 ? ", " : "{",
                     t->rows[i].key));
        TRY(text_add_json(&parameters, value.bytes));
    }
    TRY(text_add(&parameters, "}"));
    c->parameters = parameters.bytes;
    for (int64_t i = 0; i < c->filters.count; i++) {
        const data_filter *f = data_filter_find(c->filters.items[i]);
        TRY(text_add(&all, "%s %lld\n", f->name, (long long)f->version));
    }
    char decisions[33];
    TRY(text_add(&all, "decisions %s\n",
                 hash128_text(corpus_review_id(c->review.decisions), decisions)));
    c->digest = hash128_of(all.bytes, all.length);
    return ST_OK;
}

status corpus_config_load(const host *h, arena *a, const char *yaml_path, const char *const *keys,
                          int64_t key_count, corpus_config **out)
{
    option_list names = {0};
    option_table table;
    config *c = NULL;
    corpus_config *r = NULL;
    TRY(config_names(h, a, yaml_path, "sources", keys, key_count, &names));
    if (names.count > 0) TRY(check_names(yaml_path, &names));
    TRY(make_rows(a, &names, &table));
    TRY(arena_new(a, 1, &r));
    TRY(config_load(h, a, &table, yaml_path, keys, key_count, r, &c));
    TRY(check_names(yaml_path, &names));
    r->source_count = names.count;
    for (int64_t i = 0; i < names.count; i++) r->sources[i].name = names.items[i];
    TRY(check_values(h, c, r));
    if (r->review.file != NULL) {
        TRY(corpus_review_open(h, a, r->review.file, &r->review.decisions));
    }
    TRY(make_digest(a, &table, r));
    *out = r;
    return ST_OK;
}
