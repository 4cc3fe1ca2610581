// The JSON of a corpus: the origin of each shard, the finished corpus, and samples of what was
// dropped.
#include "data/corpus/build.h"

#include <string.h>

hash128 build_shard_key(const build *b, const build_shard *s)
{
    const struct {
        int64_t version, first, last;
        hash128 config, inputs;
    } key = {1, s->first, s->last, b->c->digest, b->inputs};
    return hash128_of(&key, sizeof(key));
}

static status add_member(text *t, const char *name, const char *value)
{
    TRY(text_add(t, "\"%s\": ", name));
    if (value == NULL) return text_add(t, "null");
    return build_add_text(t, value, (int64_t)strlen(value));
}

static status add_source(const corpus_source *s, text *t)
{
    TRY(add_member(t, "source", s->name));
    TRY(text_add(t, ", "));
    TRY(add_member(t, "licence", s->licence));
    TRY(text_add(t, ", "));
    return add_member(t, "generator", s->generator);
}

static status add_files(const build *b, int64_t first, int64_t last, int64_t source, text *t)
{
    char digits[33];
    const char *comma = "";
    TRY(text_add(t, "\"files\": ["));
    for (int64_t i = first; i <= last; i++) {
        const build_file *f = &b->files[i];
        if (f->source != source) continue;
        TRY(text_add(t, "%s\n  {", comma));
        TRY(add_member(t, "path", f->path));
        TRY(text_add(t, ", \"bytes\": %lld, \"hash\": \"%s\", \"format\": \"%s\", \"rows\": %lld}",
                     (long long)f->bytes, hash128_text(f->hash, digits), f->format,
                     (long long)f->rows));
        comma = ",";
    }
    return text_add(t, "]");
}

status build_shard_print(const build *b, const build_shard *s, text *t)
{
    char key[33], hash[33], digest[33];
    TRY(text_add(t,
                 "{\"version\": 1, \"shard\": \"%s.tok\", \"ledger\": \"%s.docs.jsonl.zst\", "
                 "\"key\": \"%s\",\n ",
                 s->name, s->name, hash128_text(build_shard_key(b, s), key)));
    TRY(add_source(&b->c->sources[s->source], t));
    TRY(text_add(t,
                 ",\n \"documents\": %lld, \"text_bytes\": %lld, \"tokens\": %lld, "
                 "\"checksum\": \"%s\",\n \"config\": \"%s\", \"parameters\": %s,\n ",
                 (long long)s->documents, (long long)s->bytes, (long long)s->tokens,
                 hash128_text(s->hash, hash), hash128_text(b->c->digest, digest),
                 b->c->parameters));
    TRY(add_files(b, s->file, s->last_file, s->source, t));
    return text_add(t, "}\n");
}

// ---- the corpus ---------------------------------------------------------------------------------

static status add_part(const build *b, int64_t source, text *t)
{
    const corpus_source *s = &b->c->sources[source];
    int64_t documents = 0, bytes = 0, tokens = 0;
    const char *comma = "";
    char hash[33];
    TRY(text_add(t, "{"));
    TRY(add_source(s, t));
    TRY(text_add(t, ", \"weight\": %.17g,\n   \"shards\": [", s->weight));
    for (int64_t i = 0; i < b->shard_count; i++) {
        const build_shard *shard = &b->shards[i];
        if (shard->source != source) continue;
        TRY(text_add(t,
                     "%s\n    {\"name\": \"%s.tok\", \"documents\": %lld, \"text_bytes\": %lld, "
                     "\"tokens\": %lld, \"checksum\": \"%s\"}",
                     comma, shard->name, (long long)shard->documents, (long long)shard->bytes,
                     (long long)shard->tokens, hash128_text(shard->hash, hash)));
        documents += shard->documents;
        bytes += shard->bytes;
        tokens += shard->tokens;
        comma = ",";
    }
    TRY(text_add(t, "],\n   \"documents\": %lld, \"text_bytes\": %lld, \"tokens\": %lld,\n   ",
                 (long long)documents, (long long)bytes, (long long)tokens));
    TRY(add_files(b, 0, b->file_count - 1, source, t));
    return text_add(t, "}");
}

static status add_counts(const corpus_result *r, text *t)
{
    TRY(text_add(t,
                 "\"input_files\": %lld, \"input_bytes\": %lld, \"documents\": %lld, "
                 "\"text_bytes\": %lld, \"changed_documents\": %lld,\n \"kept_documents\": %lld, "
                 "\"kept_bytes\": %lld, \"tokens\": %lld, \"cut_documents\": %lld, "
                 "\"cut_bytes\": %lld,\n \"dropped\": [",
                 (long long)r->files, (long long)r->input_bytes, (long long)r->documents,
                 (long long)r->text_bytes, (long long)r->changed_documents,
                 (long long)r->kept_documents, (long long)r->kept_bytes, (long long)r->tokens,
                 (long long)r->cut_documents, (long long)r->cut_bytes));
    for (int64_t i = 0; i < r->drop_count; i++) {
        TRY(text_add(t, "%s\n  {\"rule\": \"%s\", \"documents\": %lld, \"bytes\": %lld}",
                     i > 0 ? "," : "", r->drops[i].rule, (long long)r->drops[i].documents,
                     (long long)r->drops[i].bytes));
    }
    return text_add(t, "]");
}

static status print_corpus(const build *b, const corpus_result *r, text *t)
{
    char digest[33], inputs[33];
    TRY(text_add(t, "{\"version\": 1, \"config\": \"%s\", \"inputs\": \"%s\",\n ",
                 hash128_text(b->c->digest, digest), hash128_text(b->inputs, inputs)));
    TRY(add_member(t, "tokenizer", b->tokenizer));
    TRY(text_add(t, ", \"parameters\": %s,\n ", b->c->parameters));
    TRY(add_counts(r, t));
    TRY(text_add(t, ",\n \"sources\": ["));
    for (int64_t i = 0; i < b->c->source_count; i++) {
        TRY(text_add(t, "%s\n  ", i > 0 ? "," : ""));
        TRY(add_part(b, i, t));
    }
    return text_add(t, "]}\n");
}

// ---- samples ------------------------------------------------------------------------------------

static status add_samples(build *b, int64_t file_idx, const json *samples, int64_t *counts, text *t)
{
    for (int64_t i = 0; i < json_count(samples); i++) {
        const json *s = json_at(samples, i);
        const int64_t rule = json_int(json_get(s, "rule"), -1);
        if (rule < 0 || rule >= b->rule_count || counts[rule] >= b->c->samples) continue;
        counts[rule]++;
        TRY(text_add(t, "{\"rule\": \"%s\", ", b->rules[rule]));
        TRY(add_member(t, "source", b->c->sources[b->files[file_idx].source].name));
        TRY(text_add(t, ", "));
        TRY(add_member(t, "file", b->files[file_idx].path));
        TRY(text_add(t, ", \"n\": %lld, ", (long long)json_int(json_get(s, "n"), 0)));
        TRY(add_member(t, "id", json_text(json_get(s, "id"), NULL)));
        TRY(text_add(t, ", \"bytes\": %lld, ", (long long)json_int(json_get(s, "bytes"), 0)));
        TRY(add_member(t, "text", json_text(json_get(s, "text"), "")));
        TRY(text_add(t, "}\n"));
    }
    return ST_OK;
}

static status write_samples(build *b)
{
    text t = {.a = b->a};
    int64_t *counts = NULL;
    char *path = NULL;
    TRY(text_add(&t, "%s", ""));
    TRY(arena_new(b->a, b->rule_count, &counts));
    for (int64_t i = 0; i < b->file_count; i++) {
        json *j = NULL;
        TRY(build_path(b, b->a, i, "json", &path));
        TRY(json_read(b->h, path, BUILD_JSON_MAX, &j));
        const status st = add_samples(b, i, json_get(j, "samples"), counts, &t);
        json_free(j);
        TRY(st);
    }
    TRY(path_join(b->a, b->c->out, "dropped.jsonl", &path));
    return host_write_all(b->h, path, t.bytes, t.length);
}

status build_work_remove(build *b)
{
    file_names names;
    file_info info;
    TRY(b->h->api->path_info(b->h, b->work, &info));
    if (info.kind != FILE_KIND_FOLDER) return ST_OK;
    TRY(b->h->api->path_list(b->h, b->a, b->work, &names));
    for (int64_t i = 0; i < names.count; i++) {
        char *path = NULL;
        TRY(path_join(b->a, b->work, names.names[i], &path));
        TRY(b->h->api->path_remove(b->h, path));
    }
    return b->h->api->path_remove(b->h, b->work);
}

status build_manifest(build *b, const corpus_result *r)
{
    text t = {.a = b->a};
    char *path = NULL;
    TRY(write_samples(b));
    TRY(print_corpus(b, r, &t));
    TRY(path_join(b->a, b->c->out, CORPUS_MANIFEST, &path));
    TRY(host_write_all(b->h, path, t.bytes, t.length));
    return build_work_remove(b);
}
