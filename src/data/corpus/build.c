// The passes of a build in their order, and the sums of its result.
#include "data/corpus/build.h"
#include "base/fault.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

status build_path(const build *b, arena *a, int64_t file_idx, const char *ending, char **out)
{
    char *name = NULL;
    TRY(arena_format(a, &name, "%07lld.%s", (long long)file_idx, ending));
    return path_join(a, b->work, name, out);
}

status build_report(build *b, corpus_pass pass)
{
    if (b->progress == NULL) return ST_OK;
    const int64_t now = b->h->api->monotonic_ns(b->h);
    if (now - b->report_ns < BUILD_REPORT_NS && b->done < b->all) return ST_OK;
    b->report_ns = now;
    return b->progress->report(b->progress->context, pass, b->done, b->all, b->tokens);
}

static status add_rule(build *b, const char *name)
{
    if (b->rule_count == BUILD_RULES_MAX)
        return fail(ST_INTERNAL, "more than %d rules", BUILD_RULES_MAX);
    b->rules[b->rule_count++] = name;
    return ST_OK;
}

status build_rules(build *b)
{
    TRY(add_rule(b, "read.bad"));
    TRY(add_rule(b, "read.too-large"));
    TRY(add_rule(b, "empty"));
    TRY(add_rule(b, "review.rejected"));
    TRY(add_rule(b, "review.undecided"));
    for (int64_t i = 0; i < b->c->filters.count; i++) {
        const data_filter *f = data_filter_find(b->c->filters.items[i]);
        ASSERT(f != NULL && i < COUNT_OF(b->filter_rules));
        b->filter_rules[i] = b->rule_count;
        for (int64_t k = 0; f->rules[k] != NULL; k++) {
            char *name = NULL;
            TRY(arena_format(b->a, &name, "%s.%s", f->name, f->rules[k]));
            TRY(add_rule(b, name));
        }
    }
    b->rule_exact = b->rule_count;
    TRY(add_rule(b, "dedup.exact"));
    b->rule_near = b->rule_count;
    TRY(add_rule(b, "dedup.near"));
    b->rule_parts = b->rule_count;
    return add_rule(b, "dedup.parts");
}

// One process builds in a folder at a time.
static status take_lock(build *b)
{
    char *path = NULL;
    bool taken = false;
    TRY(path_join(b->a, b->work, "lock", &path));
    TRY(b->h->api->file_open(b->h, path, FILE_APPEND, &b->lock));
    TRY(b->h->api->file_lock(b->lock, &taken));
    return taken ? ST_OK : fail(ST_LOCKED, "%s: another process builds this corpus now", b->c->out);
}

static void hash_inputs(build *b)
{
    hash_stream *s = hash_begin();
    if (s == NULL) return;
    for (int64_t i = 0; i < b->file_count; i++) {
        hash_add(s, &b->files[i].source, sizeof(int64_t));
        hash_add(s, &b->files[i].hash, sizeof(hash128));
    }
    b->inputs = hash_end(s);
}

// Counts the documents and bytes that the second pass dropped.
static status count_fates(build *b, corpus_drop *drops)
{
    uint32_t *sizes = NULL;
    TRY(arena_new(b->a, SPILL_BATCH_DOCUMENTS, &sizes));
    for (int64_t i = 0; i < b->file_count; i++) {
        const spill_file *f = &b->files[i].spill;
        file *index = NULL;
        status st = ST_OK;
        if (f->frame_count == 0) continue;
        TRY(b->h->api->file_open(b->h, f->index_path, FILE_READ_OWN, &index));
        for (int64_t k = 0; k < f->frame_count && st == ST_OK; k++) {
            st = spill_column_read(index, b->h, f, k, SPILL_SIZES, 0, sizes);
            for (int64_t d = 0; st == ST_OK && d < f->frames[k].documents; d++) {
                const uint8_t fate = b->fates[f->frames[k].first + d];
                if (fate == FATE_KEEP) continue;
                corpus_drop *drop = &drops[fate == FATE_EXACT  ? b->rule_exact
                                           : fate == FATE_NEAR ? b->rule_near
                                                               : b->rule_parts];
                drop->documents++;
                drop->bytes += sizes[d];
            }
        }
        (void)b->h->api->file_close(index); // the file was only read
        TRY(st);
    }
    return ST_OK;
}

static status sum_up(build *b, corpus_result *r)
{
    *r = (corpus_result){.files = b->file_count, .shards = b->shard_count};
    TRY(arena_new(b->a, b->rule_count, &r->drops));
    r->drop_count = b->rule_count;
    for (int64_t k = 0; k < b->rule_count; k++) r->drops[k].rule = b->rules[k];
    for (int64_t i = 0; i < b->file_count; i++) {
        const build_file *f = &b->files[i];
        r->input_bytes += f->bytes;
        r->documents += f->rows;
        r->text_bytes += f->text_bytes;
        r->changed_documents += f->changed;
        for (int64_t k = 0; k < b->rule_count; k++) {
            r->drops[k].documents += f->drops[k].documents;
            r->drops[k].bytes += f->drops[k].bytes;
        }
    }
    TRY(count_fates(b, r->drops));
    r->cut_documents = b->cut_documents;
    r->cut_bytes = b->cut_bytes;
    for (int64_t i = 0; i < b->shard_count; i++) {
        r->kept_documents += b->shards[i].documents;
        r->kept_bytes += b->shards[i].bytes;
        r->tokens += b->shards[i].tokens;
    }
    return ST_OK;
}

static status run_passes(build *b, corpus_result *out)
{
    TRY(build_rules(b));
    TRY(build_tokenizer(b));
    TRY(build_inventory(b));
    TRY(build_scan(b));
    hash_inputs(b);
    TRY(build_dedup(b));
    TRY(build_shards(b));
    TRY(sum_up(b, out));
    out->unapplied = b->unapplied;
    if (out->kept_documents == 0) {
        return fail(ST_DATA, "%s: no document stays; every one of %lld was dropped", b->c->out,
                    (long long)out->documents);
    }
    return build_manifest(b, out);
}

static status check_review(const host *h, const corpus_config *c)
{
    file_info info;
    if (c->review.file == NULL) return ST_OK;
    TRY(h->api->path_info(h, c->review.file, &info));
    if (info.kind == FILE_KIND_REGULAR) return ST_OK;
    return fail(ST_NOT_FOUND, "review.file: %s: no such file; `data review` makes it",
                c->review.file);
}

// ---- a finished corpus that lacks files ---------------------------------------------------------

typedef struct repair {
    const build *b;
    char input[512]; // the first input that is not as it was
} repair;

// A damaged file of the corpus is removed, so that it is made again; inputs stay as they are.
static status repair_complaint(void *context, const char *path, const char *why)
{
    repair *r = context;
    const size_t length = strlen(r->b->c->out);
    const bool is_own = strncmp(path, r->b->c->out, length) == 0 && path[length] == '/';
    file_info info;
    if (!is_own && r->input[0] == '\0') {
        (void)snprintf(r->input, sizeof(r->input), "%.500s", why);
    }
    if (!is_own) return ST_OK;
    TRY(r->b->h->api->path_info(r->b->h, path, &info));
    return info.kind == FILE_KIND_REGULAR ? r->b->h->api->path_remove(r->b->h, path) : ST_OK;
}

// Checks that the missing file can be made again as it was.
static status repair_begin(const build *b, const char *missing)
{
    repair r = {.b = b};
    corpus_audit_result found;
    TRY(data_corpus_audit(b->h, b->a, b->c->out, repair_complaint, &r, &found));
    if (found.inputs_missing > 0) {
        return fail(ST_NOT_FOUND,
                    "%s is missing and cannot be made again: %lld of the files that the corpus was "
                    "made of %s not there",
                    missing, (long long)found.inputs_missing,
                    found.inputs_missing == 1 ? "is" : "are");
    }
    if (r.input[0] == '\0') return ST_OK;
    return fail(ST_DAMAGED, "%s is missing and cannot be made again: %s", missing, r.input);
}

status data_corpus_build(const host *h, arena *a, const corpus_config *c,
                         const corpus_progress *progress, corpus_result *out)
{
    build b = {.h = h, .a = a, .c = c, .progress = progress};
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    b.threads = (int32_t)(c->threads > 0 ? c->threads : min_i64(16, max_i64(1, cpus)));
    bool is_complete = false;
    TRY(check_review(h, c));
    TRY(corpus_folder_is(h, a, c->out, &is_complete));
    TRY(path_join(a, c->out, "work", &b.work));
    if (is_complete) {
        char *missing = NULL;
        TRY(build_result_read(&b, out, &missing));
        if (missing == NULL) return build_work_remove(&b); // which a kill may have left
        TRY(repair_begin(&b, missing));
        *out = (corpus_result){0};
    }
    TRY(h->api->path_mkdir(h, b.work));
    status st = take_lock(&b);
    if (st == ST_OK) st = run_passes(&b, out);
    if (b.lock != NULL) (void)h->api->file_close(b.lock);
    return st;
}
