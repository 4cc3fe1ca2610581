// A finished corpus, read from its folder: the shards of each source, the tokenizer, the counts.
#include "data/corpus/build.h"

#include <string.h>

status corpus_folder_is(const host *h, arena *a, const char *folder, bool *out)
{
    char *path = NULL;
    file_info info;
    TRY(path_join(a, folder, CORPUS_MANIFEST, &path));
    TRY(h->api->path_info(h, path, &info));
    *out = info.kind == FILE_KIND_REGULAR;
    return ST_OK;
}

static status damaged(const char *folder, const char *what)
{
    return fail(ST_DAMAGED, "%s/%s: %s; build the corpus again", folder, CORPUS_MANIFEST, what);
}

// A name from the manifest must not lead out of the folder.
static bool is_plain_name(const char *name)
{
    return name[0] != 0 && name[0] != '.' && strchr(name, '/') == NULL;
}

static status take_part(arena *a, const char *folder, const json *from, corpus_part *out)
{
    const json *shards = json_get(from, "shards");
    const int64_t count = json_count(shards);
    char *name = NULL;
    TRY(arena_strdup(a, json_text(json_get(from, "source"), ""), &name));
    out->source = name;
    out->weight = json_real(json_get(from, "weight"), 0.0);
    if (!(out->weight >= 0.0) || out->weight > 1e12)
        return damaged(folder, "a weight is no number");
    TRY(arena_new(a, count, &out->shards.items));
    for (int64_t i = 0; i < count; i++) {
        const char *shard = json_text(json_get(json_at(shards, i), "name"), "");
        char *path = NULL;
        if (!is_plain_name(shard)) return damaged(folder, "a shard without a name");
        TRY(path_join(a, folder, shard, &path));
        out->shards.items[out->shards.count++] = path;
    }
    return ST_OK;
}

static status take_folder(arena *a, const char *folder, const json *j, corpus_folder *out)
{
    const json *sources = json_get(j, "sources");
    const char *tokenizer = json_text(json_get(j, "tokenizer"), "");
    char *path = NULL;
    if (json_int(json_get(j, "version"), 0) != 1) return damaged(folder, "no version 1");
    if (strcmp(tokenizer, "tokenizer.json") == 0) {
        TRY(path_join(a, folder, tokenizer, &path));
    } else {
        TRY(arena_strdup(a, tokenizer, &path));
    }
    *out = (corpus_folder){.tokenizer = path};
    if (json_count(sources) == 0 || json_count(sources) > CORPUS_SOURCES_MAX) {
        return damaged(folder, "no sources");
    }
    TRY(arena_new(a, json_count(sources), &out->parts));
    for (int64_t i = 0; i < json_count(sources); i++) {
        TRY(take_part(a, folder, json_at(sources, i), &out->parts[out->part_count++]));
    }
    return ST_OK;
}

static status read_manifest(const host *h, arena *a, const char *folder, json **out)
{
    char *path = NULL;
    TRY(path_join(a, folder, CORPUS_MANIFEST, &path));
    return json_read(h, path, BUILD_JSON_MAX, out);
}

status corpus_folder_open(const host *h, arena *a, const char *folder, corpus_folder *out)
{
    json *j = NULL;
    corpus_folder found;
    TRY(read_manifest(h, a, folder, &j));
    const status st = take_folder(a, folder, j, &found);
    json_free(j);
    if (st == ST_OK) *out = found;
    return st;
}

status data_corpus_tokenizer(const host *h, arena *a, const char *entry, const char **out)
{
    bool is_corpus = false;
    corpus_folder corpus;
    char *folder = NULL;
    double weight = 0.0;
    *out = NULL;
    TRY(corpus_folder_is(h, a, entry, &is_corpus));
    const char *equals = strrchr(entry, '=');
    TRY(arena_strdup(a, entry, &folder));
    if (!is_corpus && equals != NULL && text_parse_f64(equals + 1, &weight)) {
        folder[equals - entry] = 0;
        TRY(corpus_folder_is(h, a, folder, &is_corpus));
    }
    if (!is_corpus) return ST_OK;
    TRY(corpus_folder_open(h, a, folder, &corpus));
    *out = corpus.tokenizer;
    return ST_OK;
}

// ---- the result of an earlier build -------------------------------------------------------------

static int64_t member(const json *j, const char *key)
{
    return json_int(json_get(j, key), 0);
}

static status take_result(build *b, const json *j, corpus_result *r)
{
    char digest[33];
    if (strcmp(json_text(json_get(j, "config"), ""), hash128_text(b->c->digest, digest)) != 0) {
        return fail(ST_CONFIG_CONFLICT,
                    "%s holds a corpus of another configuration; name another folder in out, or "
                    "remove this one",
                    b->c->out);
    }
    *r = (corpus_result){.was_complete = true,
                         .files = member(j, "input_files"),
                         .input_bytes = member(j, "input_bytes"),
                         .documents = member(j, "documents"),
                         .text_bytes = member(j, "text_bytes"),
                         .changed_documents = member(j, "changed_documents"),
                         .kept_documents = member(j, "kept_documents"),
                         .kept_bytes = member(j, "kept_bytes"),
                         .tokens = member(j, "tokens"),
                         .cut_documents = member(j, "cut_documents"),
                         .cut_bytes = member(j, "cut_bytes")};
    const json *drops = json_get(j, "dropped"), *sources = json_get(j, "sources");
    TRY(arena_new(b->a, json_count(drops), &r->drops));
    for (int64_t i = 0; i < json_count(drops); i++) {
        const json *d = json_at(drops, i);
        char *rule = NULL;
        TRY(arena_strdup(b->a, json_text(json_get(d, "rule"), ""), &rule));
        r->drops[r->drop_count++] = (corpus_drop){
            .rule = rule, .documents = member(d, "documents"), .bytes = member(d, "bytes")};
    }
    for (int64_t i = 0; i < json_count(sources); i++) {
        r->shards += json_count(json_get(json_at(sources, i), "shards"));
    }
    return ST_OK;
}

// The first file of a shard that is not there; NULL: none is missing.
static status missing_find(const build *b, const json *shard, char **missing)
{
    char *path[3] = {NULL};
    const char *name = json_text(json_get(shard, "name"), "");
    const char *ending = strrchr(name, '.');
    const int stem = (int)(ending != NULL ? ending - name : (int64_t)strlen(name));
    TRY(path_join(b->a, b->c->out, name, &path[0]));
    TRY(corpus_ledger_path(b->a, path[0], &path[1]));
    TRY(arena_format(b->a, &path[2], "%s/%.*s.json", b->c->out, stem, name));
    for (int i = 0; i < COUNT_OF(path) && *missing == NULL; i++) {
        file_info info;
        TRY(b->h->api->path_info(b->h, path[i], &info));
        if (info.kind != FILE_KIND_REGULAR) *missing = path[i];
    }
    return ST_OK;
}

status build_result_read(build *b, corpus_result *out, char **missing)
{
    json *j = NULL;
    *missing = NULL;
    TRY(read_manifest(b->h, b->a, b->c->out, &j));
    status st = take_result(b, j, out);
    const json *sources = json_get(j, "sources");
    for (int64_t i = 0; i < json_count(sources) && st == ST_OK; i++) {
        const json *shards = json_get(json_at(sources, i), "shards");
        for (int64_t k = 0; k < json_count(shards) && st == ST_OK && *missing == NULL; k++) {
            st = missing_find(b, json_at(shards, k), missing);
        }
    }
    json_free(j);
    return st;
}

// ---- the tokenizer ------------------------------------------------------------------------------

static status copy_file(const build *b, const char *from, const char *name)
{
    char *bytes = NULL, *to = NULL;
    int64_t count = 0;
    TRY(host_read_all(b->h, b->a, from, BUILD_JSON_MAX, &bytes, &count));
    TRY(path_join(b->a, b->c->out, name, &to));
    return host_write_all(b->h, to, bytes, count);
}

static status copy_if_there(const build *b, const char *folder, const char *name, bool *found)
{
    char *path = NULL;
    file_info info;
    TRY(path_join(b->a, folder, name, &path));
    TRY(b->h->api->path_info(b->h, path, &info));
    *found = info.kind == FILE_KIND_REGULAR;
    return *found ? copy_file(b, path, name) : ST_OK;
}

// A corpus holds a copy of its tokenizer.json, so that training needs no other path. Tokenizers of
// several files stay where they are.
static status copy_tokenizer(build *b)
{
    const char *path = b->c->tokenizer;
    char *folder = NULL;
    file_info info;
    bool found = false;
    TRY(b->h->api->path_info(b->h, path, &info));
    b->tokenizer = path;
    if (info.kind == FILE_KIND_FOLDER) {
        TRY(copy_if_there(b, path, "tokenizer.json", &found));
        if (!found) return ST_OK;
        TRY(arena_strdup(b->a, path, &folder));
    } else {
        const int64_t count = path_base_name(path) - path;
        TRY(copy_file(b, path, "tokenizer.json"));
        TRY(arena_format(b->a, &folder, "%.*s", (int)count, path));
        if (count == 0) TRY(arena_strdup(b->a, ".", &folder));
    }
    b->tokenizer = "tokenizer.json";
    return copy_if_there(b, folder, "tokenizer_config.json", &found);
}

status build_tokenizer(build *b)
{
    data_tokenizer *t = NULL;
    TRY(data_tokenizer_open(b->h, b->a, b->c->tokenizer, &t));
    b->tokenizer_id = data_tokenizer_id(t);
    b->unapplied = data_tokenizer_unapplied(t, 0); // in b->a
    data_tokenizer_close(t);
    b->tokenizer = "bytes";
    return strcmp(b->c->tokenizer, "bytes") == 0 ? ST_OK : copy_tokenizer(b);
}
