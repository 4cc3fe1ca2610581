// Makes the shard of a text file in the cache, once.
//
// The shard's name is a hash of everything that determines its content, so no state can become
// stale: an existing shard is used, and a missing one is made. Two processes that make the same
// shard at once write different temporary files and rename equal bytes.
#include "base/fault.h"
#include "data/reader.h"
#include "data/tokenizer/family.h"
#include "data/tokens.h"
#include "data/tokens/encode_batches.h"

#include <stdlib.h>
#include <string.h>

// Increment when the content of shards changes: all are rebuilt. The flags are added to it.
enum { PREPARE_VERSION = 2, PREPARE_SPECIAL = 1 << 16, PREPARE_SKIPS = 1 << 17 };
static const int64_t stale_ns = INT64_C(3600) * 1000000000;

static status shard_name(const host *h, arena *a, const data_tokenizer *t, const char *text_path,
                         const data_prepare_options *options, char **out)
{
    file_info info;
    TRY(h->api->path_info(h, text_path, &info));
    if (info.kind == FILE_KIND_NONE) return fail(ST_NOT_FOUND, "%s: no such file", text_path);
    if (info.kind != FILE_KIND_REGULAR) {
        return fail(ST_DATA,
                    "%s: a file expected; for the files of a folder write a glob such as "
                    "%s/*.txt",
                    text_path, text_path);
    }
    const struct {
        int64_t version, bytes, modified_ns;
        uint64_t inode, path;
        hash128 tokenizer;
    } key = {PREPARE_VERSION +
                 ((data_tokenizer_flags(t) & DATA_ENCODE_SPECIAL) != 0 ? PREPARE_SPECIAL : 0) +
                 (options->skips_bad_lines ? PREPARE_SKIPS : 0),
             info.bytes,
             info.modified_ns,
             info.inode,
             hash64(text_path, (int64_t)strlen(text_path), 0),
             data_tokenizer_id(t)};
    char digits[33];
    char *name = NULL;
    TRY(arena_format(a, &name, "%.100s-%s.tok", path_base_name(text_path),
                     hash128_text(hash128_of(&key, sizeof(key)), digits)));
    return path_join(a, options->cache_folder, name, out);
}

// Removes temporary files of this shard that a killed process left and that have not been written
// for long. A failure here does no harm.
static void remove_stale(const host *h, arena *a, const char *shard_path, const char *cache_folder)
{
    const char *base = path_base_name(shard_path);
    file_names names;
    if (h->api->path_list(h, a, cache_folder, &names) != ST_OK) return;
    for (int64_t i = 0; i < names.count; i++) {
        const char *name = names.names[i];
        const size_t n = strlen(name);
        if (strncmp(name, base, strlen(base)) != 0 || n < 4 || strcmp(name + n - 4, ".tmp") != 0) {
            continue;
        }
        char *path = NULL;
        file_info info;
        if (path_join(a, cache_folder, name, &path) == ST_OK &&
            h->api->path_info(h, path, &info) == ST_OK && info.kind == FILE_KIND_REGULAR &&
            h->api->unix_ns(h) - info.modified_ns > stale_ns) {
            (void)h->api->path_remove(h, path);
        }
    }
}

static status report(const data_progress *progress, const char *path, const data_documents *d)
{
    if (progress == NULL) return ST_OK;
    const data_reader *r = data_documents_reader(d);
    return progress->report(progress->context, path, data_reader_position(r),
                            data_reader_file_bytes(r));
}

static status report_skipped(const data_progress *progress, const char *path,
                             const data_documents *d)
{
    const char *first = NULL;
    const int64_t lines = data_documents_skipped(d, &first);
    if (lines == 0 || progress == NULL || progress->skipped == NULL) return ST_OK;
    return progress->skipped(progress->context, path, lines, first);
}

// Looks for the first byte that is no UTF-8. A piece may end inside a character, whose first bytes
// are kept for the next one.
typedef struct utf8_watch {
    int64_t before; // bytes of text before `kept`
    char kept[4];
    int64_t kept_count;
} utf8_watch;

static void utf8_look(utf8_watch *u, const char *bytes, int64_t count, data_shard_writer *w)
{
    while (u->kept_count > 0 && count > 0) { // the character that the last piece ended in
        u->kept[u->kept_count++] = *bytes++;
        count--;
        uint32_t point = 0;
        bool torn = false;
        const int length = utf8_next((const uint8_t *)u->kept, u->kept_count, &point, &torn);
        if (length < 0 && torn) continue;
        if (length < 0) data_shard_malformed(w, u->before);
        u->before += u->kept_count;
        u->kept_count = 0;
    }
    const int64_t valid = utf8_valid_prefix(bytes, count);
    u->before += valid;
    if (valid == count) return;
    uint32_t point = 0;
    bool torn = false;
    (void)utf8_next((const uint8_t *)bytes + valid, count - valid, &point, &torn);
    if (!torn) {
        data_shard_malformed(w, u->before);
        u->before += count - valid;
        return;
    }
    u->kept_count = count - valid;
    memcpy(u->kept, bytes + valid, (size_t)u->kept_count);
}

static void utf8_end(utf8_watch *u, data_shard_writer *w)
{
    if (u->kept_count > 0) data_shard_malformed(w, u->before);
    u->before += u->kept_count;
    u->kept_count = 0;
}

typedef struct copying {
    data_documents *documents;
    data_shard_writer *writer;
    const char *path;
    const data_progress *progress;
    utf8_watch utf8;
    int64_t since_report;
} copying;

static status copy_piece(void *context, const data_piece *piece, const int32_t *ids, int64_t count)
{
    enum { REPORT_BYTES = 1 << 22 };
    copying *c = context;
    if (piece->bytes == NULL) {
        if (c->since_report < REPORT_BYTES) return ST_OK;
        c->since_report = 0;
        return report(c->progress, c->path, c->documents);
    }
    c->since_report += piece->count;
    utf8_look(&c->utf8, piece->bytes, piece->count, c->writer);
    if (piece->ends_document) utf8_end(&c->utf8, c->writer);
    TRY(data_shard_add(c->writer, ids, count));
    return piece->ends_document ? data_shard_end_document(c->writer) : ST_OK;
}

static status copy_documents(data_tokenizer *t, data_documents *d, data_shard_writer *w,
                             const char *path, const data_progress *progress)
{
    copying c = {.documents = d, .writer = w, .path = path, .progress = progress};
    TRY(encode_batches(t, d, copy_piece, &c));
    return report(progress, path, d);
}

static status make_shard(const host *h, data_tokenizer *t, const char *text_path,
                         const char *shard_path, const data_prepare_options *options)
{
    data_documents *d = NULL;
    data_shard_writer *w = NULL;
    status st = ST_OK;
    const int skips = options->skips_bad_lines ? DATA_SKIP_BAD_LINES : 0;
    TRY(data_documents_open(h, text_path, data_tokenizer_cuts(t) | skips, &d));
    TRY_TO(close_documents, data_shard_create(h, shard_path, t, &w));
    TRY_TO(abandon_writer, copy_documents(t, d, w, text_path, options->progress));
    TRY_TO(abandon_writer, report_skipped(options->progress, text_path, d));
    st = data_shard_finish(w);
    w = NULL;
abandon_writer:
    data_shard_abandon(w);
close_documents:
    data_documents_close(d);
    return st;
}

status data_prepare(const host *h, arena *a, data_tokenizer *t, const char *text_path,
                    const data_prepare_options *options, char **shard_path)
{
    char *path = NULL;
    TRY(shard_name(h, a, t, text_path, options, &path));
    file_info info;
    TRY(h->api->path_info(h, path, &info));
    if (info.kind == FILE_KIND_REGULAR) {
        data_tokens *tokens = NULL;
        if (data_tokens_open(h, a, path, 0, &tokens) == ST_OK) {
            data_tokens_close(tokens);
            *shard_path = path;
            return ST_OK;
        }
        error_clear(); // rebuilds a damaged shard of the cache
    }
    TRY(h->api->path_mkdir(h, options->cache_folder));
    remove_stale(h, a, path, options->cache_folder);
    TRY(make_shard(h, t, text_path, path, options));
    *shard_path = path;
    return ST_OK;
}
