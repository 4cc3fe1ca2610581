// Reads ledgers, and verifies every hash of a finished corpus: shards, ledgers and input files.
#include "base/format/json.h"
#include "data/corpus/build.h"
#include "data/reader.h"
#include "data/tokens.h"

#include <stdio.h>
#include <string.h>

// ---- ledgers ------------------------------------------------------------------------------------

enum { LEDGER_LINE_MAX = 1 << 20, LEDGER_PIECE = 1 << 16 };

typedef struct ledger_pass {
    const char *path;
    corpus_ledger_fn take;
    void *context;
    int64_t line; // documents so far
    data_bytes held;
} ledger_pass;

static status take_line(ledger_pass *p)
{
    static const char *const keys[] = {"n",     "file",   "id",        "hash",
                                       "bytes", "tokens", "generator", "review"};
    json *v[COUNT_OF(keys)] = {NULL};
    TRY(json_parse_members(p->held.items, p->held.count, p->path, p->line + 1, keys, COUNT_OF(keys),
                           v));
    const corpus_entry e = {.index = p->line,
                            .number = json_int(v[0], -1),
                            .file = json_text(v[1], ""),
                            .id = json_text(v[2], NULL),
                            .hash = json_text(v[3], ""),
                            .bytes = json_int(v[4], -1),
                            .tokens = json_int(v[5], -1),
                            .generator = json_text(v[6], NULL),
                            .review = json_text(v[7], NULL)};
    hash128 hash;
    status st = ST_OK;
    if (e.number < 0 || e.bytes < 0 || e.tokens < 0 || !build_hash_parse(e.hash, &hash)) {
        st = fail(ST_DAMAGED, "%s: line %lld is none of a ledger", p->path, (long long)p->line + 1);
    }
    if (st == ST_OK) st = p->take(p->context, &e);
    for (int64_t i = 0; i < COUNT_OF(keys); i++) json_free(v[i]);
    p->line++;
    p->held.count = 0;
    return st;
}

static status read_lines(ledger_pass *p, data_reader *r)
{
    char piece[LEDGER_PIECE];
    for (int64_t got = 1; got > 0;) {
        TRY(data_reader_read(r, piece, LEDGER_PIECE, &got));
        for (int64_t at = 0; at < got;) {
            const char *newline = memchr(piece + at, '\n', (size_t)(got - at));
            const int64_t end = newline != NULL ? newline - piece : got;
            TRY(data_bytes_add(&p->held, piece + at, end - at));
            at = end + 1;
            if (p->held.count > LEDGER_LINE_MAX) {
                return fail(ST_DAMAGED, "%s: a line of more than %d bytes", p->path,
                            LEDGER_LINE_MAX);
            }
            if (newline != NULL) TRY(take_line(p));
        }
    }
    if (p->held.count == 0) return ST_OK;
    return fail(ST_DAMAGED, "%s: its last line has no end", p->path);
}

status corpus_ledger_read(const host *h, const char *path, corpus_ledger_fn take, void *context)
{
    ledger_pass p = {.path = path, .take = take, .context = context};
    data_reader *r = NULL;
    TRY(data_reader_open(h, path, &r));
    const status st = read_lines(&p, r);
    data_reader_close(r);
    data_bytes_deinit(&p.held);
    return st;
}

status corpus_ledger_path(arena *a, const char *shard, char **out)
{
    const size_t n = strlen(shard);
    const int stem = n > 4 && strcmp(shard + n - 4, ".tok") == 0 ? (int)n - 4 : (int)n;
    return arena_format(a, out, "%.*s.docs.jsonl.zst", stem, shard);
}

// ---- audit --------------------------------------------------------------------------------------

typedef struct audit {
    const host *h;
    arena *a;
    const char *folder;
    corpus_complaint_fn complain;
    void *context;
    corpus_audit_result *r;
} audit;

static status complain(audit *w, const char *path, const char *why)
{
    w->r->complaints++;
    return w->complain(w->context, path, why);
}

// An error of the check of one file is a complaint; lack of memory ends the audit.
static status settle(audit *w, const char *path, status st)
{
    char why[500];
    if (st == ST_OK || st == ST_NO_MEMORY) return st;
    (void)snprintf(why, sizeof(why), "%.499s", error_last()->text);
    error_clear();
    return complain(w, path, why);
}

typedef struct ledger_sum {
    int64_t documents, tokens;
} ledger_sum;

static status add_up(void *context, const corpus_entry *e)
{
    ledger_sum *s = context;
    s->documents++;
    s->tokens += e->tokens;
    return ST_OK;
}

static status check_shard(audit *w, const char *path, const json *shard)
{
    data_tokens *t = NULL;
    hash128 wanted;
    TRY(data_tokens_open(w->h, w->a, path, 0, &t));
    status st = data_tokens_verify(t);
    const hash128 found = data_tokens_checksum(t);
    const int64_t tokens = data_tokens_count(t), documents = data_tokens_documents(t);
    data_tokens_close(t);
    TRY(st);
    if (!build_hash_parse(json_text(json_get(shard, "checksum"), ""), &wanted) ||
        wanted.high != found.high || wanted.low != found.low ||
        tokens != json_int(json_get(shard, "tokens"), -1)) {
        return fail(ST_DAMAGED, "%s: its tokens are not those that " CORPUS_MANIFEST " names",
                    path);
    }
    char *ledger = NULL;
    ledger_sum sum = {0};
    TRY(corpus_ledger_path(w->a, path, &ledger));
    TRY(corpus_ledger_read(w->h, ledger, add_up, &sum));
    w->r->documents += sum.documents;
    w->r->tokens += tokens;
    if (sum.documents == json_int(json_get(shard, "documents"), -1) && sum.tokens <= tokens &&
        documents == sum.documents) {
        return ST_OK;
    }
    return fail(ST_DAMAGED, "%s: %lld documents with %lld tokens, but the shard has %lld with %lld",
                ledger, (long long)sum.documents, (long long)sum.tokens, (long long)documents,
                (long long)tokens);
}

static status check_input(audit *w, const char *path, const json *input)
{
    file_info info;
    hash128 wanted, found;
    data_reader *r = NULL;
    TRY(w->h->api->path_info(w->h, path, &info));
    if (info.kind != FILE_KIND_REGULAR) {
        w->r->inputs_missing++;
        return ST_OK;
    }
    TRY(data_reader_open_as(w->h, path, DATA_READER_ANY | DATA_READER_HASH, &r));
    const status st = data_reader_hash(r, &found);
    data_reader_close(r);
    TRY(st);
    w->r->inputs++;
    if (build_hash_parse(json_text(json_get(input, "hash"), ""), &wanted) &&
        wanted.high == found.high && wanted.low == found.low) {
        return ST_OK;
    }
    return fail(ST_DAMAGED, "%s: its bytes are not those that the corpus was made of", path);
}

static status check_source(audit *w, const json *source)
{
    const json *shards = json_get(source, "shards"), *files = json_get(source, "files");
    for (int64_t i = 0; i < json_count(shards); i++) {
        const json *shard = json_at(shards, i);
        char *path = NULL;
        TRY(path_join(w->a, w->folder, json_text(json_get(shard, "name"), ""), &path));
        w->r->shards++;
        TRY(settle(w, path, check_shard(w, path, shard)));
    }
    for (int64_t i = 0; i < json_count(files); i++) {
        const json *input = json_at(files, i);
        const char *path = json_text(json_get(input, "path"), "");
        TRY(settle(w, path, check_input(w, path, input)));
    }
    return ST_OK;
}

status data_corpus_audit(const host *h, arena *a, const char *folder, corpus_complaint_fn fn,
                         void *context, corpus_audit_result *out)
{
    audit w = {.h = h, .a = a, .folder = folder, .complain = fn, .context = context, .r = out};
    corpus_folder checked; // names of shards that lead out of the folder are refused
    json *j = NULL;
    char *path = NULL;
    *out = (corpus_audit_result){0};
    TRY(corpus_folder_open(h, a, folder, &checked));
    TRY(path_join(a, folder, CORPUS_MANIFEST, &path));
    TRY(json_read(h, path, BUILD_JSON_MAX, &j));
    const json *sources = json_get(j, "sources");
    status st = ST_OK;
    for (int64_t i = 0; i < json_count(sources) && st == ST_OK; i++) {
        st = check_source(&w, json_at(sources, i));
    }
    json_free(j);
    return st;
}
