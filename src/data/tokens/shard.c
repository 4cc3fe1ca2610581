// Native token files, prepared once from a text.
//
//   0    "TRIRTOK2"  u32 bytes per token  i32 end-of-text id  i64 vocabulary  u64[2] tokenizer id
//        zeros to 56, u64 hash of those 56
//   64   tokens, uint16 or uint32; zeros to a multiple of 8
//        u64 where each document begins
//   t    u64 for each 4096 bytes of [64, t): their hash, xor the low half of the hash of all tokens
//        u64 tokens  u64 documents  u64 byte of the document list  u64[2] hash of all tokens
//        u64 1 + byte of the text that is no UTF-8, or 0; zeros to 56, u64 hash of those 56
//
// A read checks the hash of every block that it touches, each time: a shard that rots, or that
// another process overwrites during the run, is noticed before its tokens are used. The hash of all
// tokens is part of each block's hash, so blocks of another shard do not fit either. "TRIRTOK1" has
// no hashes of blocks, and is read without them.
//
// The counts are at the end because the writer makes one pass. It writes a temporary name and
// renames it when the disk has all bytes, so an existing shard is complete. The hashes detect later
// damage.
#include "base/fault.h"
#include "data/tokens/format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FRAME_BYTES = 64, FRAMES_BYTES = 128, FRAME_HASHED = 56, WRITE_BYTES = 1 << 20 };
static const char magic[8] = "TRIRTOK2", magic_before[8] = "TRIRTOK1";

typedef struct shard_head {
    char magic[8];
    uint32_t width;
    int32_t eot;
    int64_t vocab;
    hash128 tokenizer;
    uint64_t zero[2];
    uint64_t hash;
} shard_head;
typedef struct shard_tail {
    uint64_t tokens, documents, documents_at;
    hash128 checksum;
    uint64_t malformed; // 1 + byte of the text; 0: the text is UTF-8
    uint64_t zero;
    uint64_t hash;
} shard_tail;
_Static_assert(sizeof(shard_head) == FRAME_BYTES && sizeof(shard_tail) == FRAME_BYTES, "as drawn");

static bool fits(const token_probe *p)
{
    return memcmp(p->head, magic, sizeof(magic)) == 0 ||
           memcmp(p->head, magic_before, sizeof(magic_before)) == 0;
}

static bool has_blocks(const shard_head *head)
{
    return memcmp(head->magic, magic, sizeof(magic)) == 0;
}

static int64_t block_count(int64_t begin, int64_t end)
{
    return (end - begin + TOKEN_BLOCK_BYTES - 1) / TOKEN_BLOCK_BYTES;
}

static status check_frames(data_tokens *t, const shard_head *head, const shard_tail *tail,
                           int64_t bytes)
{
    if (head->hash != hash64(head, FRAME_HASHED, 0)) {
        return fail(ST_DAMAGED, "%s: the checksum of its header at byte %d is wrong", t->path,
                    FRAME_HASHED);
    }
    if (tail->hash != hash64(tail, FRAME_HASHED, 0)) {
        return fail(ST_DAMAGED, "%s: the checksum of its end at byte %lld is wrong", t->path,
                    (long long)(bytes - 8));
    }
    // The hashes do not stop an attacker, so the code checks the numbers as well.
    const uint64_t file_bytes = (uint64_t)bytes;
    bool ok = (head->width == 2 || head->width == 4) && head->vocab > 0 &&
              head->vocab <= INT32_MAX && tail->tokens <= file_bytes &&
              tail->documents <= file_bytes && tail->documents_at % 8 == 0 &&
              tail->documents_at ==
                  (uint64_t)align_up(FRAME_BYTES + (int64_t)(tail->tokens * head->width), 8);
    if (ok) {
        const int64_t end = (int64_t)(tail->documents_at + 8 * tail->documents);
        const int64_t blocks = has_blocks(head) ? block_count(FRAME_BYTES, end) : 0;
        ok = end + 8 * blocks + FRAME_BYTES == bytes;
    }
    if (!ok) {
        return fail(ST_DAMAGED,
                    "%s: %llu tokens of %u bytes and %llu documents do not fit its %lld "
                    "bytes",
                    t->path, (unsigned long long)tail->tokens, head->width,
                    (unsigned long long)tail->documents, (long long)bytes);
    }
    return ST_OK;
}

static status open_shard(data_tokens *t, arena *a, const token_probe *p)
{
    (void)a;
    TRY(token_file_open(t, p->path));
    int64_t bytes = 0;
    TRY(t->h->api->file_size(t->f, &bytes));
    if (bytes < FRAMES_BYTES) {
        return fail(ST_DAMAGED, "%s: %lld bytes, at least %d expected", t->path, (long long)bytes,
                    FRAMES_BYTES);
    }
    shard_head head;
    shard_tail tail;
    TRY(t->h->api->file_read(t->f, 0, &head, sizeof(head)));
    TRY(t->h->api->file_read(t->f, bytes - FRAME_BYTES, &tail, sizeof(tail)));
    TRY(check_frames(t, &head, &tail, bytes));
    if (t->vocab > 0 && head.vocab > t->vocab) {
        return fail(ST_DATA, "%s: made with a vocabulary of %lld, but the model's is %lld", t->path,
                    (long long)head.vocab, (long long)t->vocab);
    }
    if (t->vocab == 0) t->vocab = head.vocab;
    t->type = head.width == 2 ? TOKEN_U16 : TOKEN_U32;
    t->offset = FRAME_BYTES;
    t->count = (int64_t)tail.tokens;
    t->documents_at = (int64_t)tail.documents_at;
    t->documents_count = (int64_t)tail.documents;
    t->tokenizer = head.tokenizer;
    t->checksum = tail.checksum;
    t->has_checksum = true;
    if (!has_blocks(&head)) return ST_OK;
    t->blocks_at = t->documents_at + 8 * t->documents_count;
    t->malformed = (int64_t)tail.malformed - 1;
    return ST_OK;
}

const data_token_format data_token_format_shard = {
    .name = "trireme", .fits = fits, .open = open_shard};

// ---- writing ------------------------------------------------------------------------------------

struct data_shard_writer {
    const host *h;
    const data_tokenizer *tokenizer;
    char *path, *temporary;
    file *f;
    int64_t width;
    uint8_t *buffer; // WRITE_BYTES
    int64_t buffered;
    uint64_t tokens, document_begin;
    uint64_t *documents;
    int64_t documents_count, documents_capacity;
    uint64_t *blocks; // their hashes
    int64_t blocks_count, blocks_capacity;
    uint8_t block[TOKEN_BLOCK_BYTES]; // of the bytes written last
    int64_t in_block;
    uint64_t malformed;
    hash_stream *hash;
};

static status write_head(data_shard_writer *w)
{
    shard_head head = {.width = (uint32_t)w->width,
                       .eot = data_tokenizer_eot(w->tokenizer),
                       .vocab = data_tokenizer_vocab_size(w->tokenizer),
                       .tokenizer = data_tokenizer_id(w->tokenizer)};
    memcpy(head.magic, magic, sizeof(magic));
    head.hash = hash64(&head, FRAME_HASHED, 0);
    return w->h->api->file_write(w->f, &head, sizeof(head));
}

status data_shard_create(const host *h, const char *path, const data_tokenizer *t,
                         data_shard_writer **out)
{
    TRY(fault_point("data.shard.create"));
    uint64_t random = 0;
    TRY(h->api->random_fill(h, &random, sizeof(random)));
    data_shard_writer *w = calloc(1, sizeof(*w));
    if (w == NULL) return fail(ST_NO_MEMORY, "%s: no memory to write it", path);
    status st = ST_OK;
    w->h = h;
    w->tokenizer = t;
    w->width = data_tokenizer_vocab_size(t) <= 65536 ? 2 : 4;
    w->path = strdup(path);
    w->buffer = malloc(WRITE_BYTES);
    w->hash = hash_begin();
    const size_t name_bytes = strlen(path) + 32;
    w->temporary = malloc(name_bytes);
    if (w->path == NULL || w->buffer == NULL || w->hash == NULL || w->temporary == NULL) {
        st = fail(ST_NO_MEMORY, "%s: no memory to write it", path);
        goto abandon_writer;
    }
    snprintf(w->temporary, name_bytes, "%s.%016llx.tmp", path, (unsigned long long)random);
    TRY_TO(abandon_writer, h->api->file_open(h, w->temporary, FILE_CREATE, &w->f));
    TRY_TO(abandon_writer, write_head(w));
    *out = w;
    return ST_OK;
abandon_writer:
    data_shard_abandon(w);
    return st;
}

static status block_end(data_shard_writer *w)
{
    if (w->in_block == 0) return ST_OK;
    if (w->blocks_count == w->blocks_capacity) {
        const int64_t grown = max_i64(1024, 2 * w->blocks_capacity);
        uint64_t *moved = realloc(w->blocks, (size_t)grown * sizeof(*moved));
        if (moved == NULL) {
            return fail(ST_NO_MEMORY, "%s: no memory for the hashes of %lld blocks", w->path,
                        (long long)grown);
        }
        w->blocks = moved;
        w->blocks_capacity = grown;
    }
    w->blocks[w->blocks_count] = hash64(w->block, w->in_block, (uint64_t)w->blocks_count);
    w->blocks_count++;
    w->in_block = 0;
    return ST_OK;
}

// Writes bytes of the part that blocks cover.
static status body_write(data_shard_writer *w, const void *bytes, int64_t count)
{
    const uint8_t *from = bytes;
    for (int64_t at = 0; at < count;) {
        const int64_t n = min_i64(count - at, TOKEN_BLOCK_BYTES - w->in_block);
        memcpy(w->block + w->in_block, from + at, (size_t)n);
        w->in_block += n;
        at += n;
        if (w->in_block == TOKEN_BLOCK_BYTES) TRY(block_end(w));
    }
    return w->h->api->file_write(w->f, bytes, count);
}

static status flush(data_shard_writer *w)
{
    if (w->buffered == 0) return ST_OK;
    TRY(fault_point("data.shard.write"));
    hash_add(w->hash, w->buffer, w->buffered);
    TRY(body_write(w, w->buffer, w->buffered));
    w->buffered = 0;
    return ST_OK;
}

// Little-endian: the low bytes come first.
static void ids_write(uint8_t *to, const int32_t *ids, int64_t count, int64_t width)
{
    if (width == 4) memcpy(to, ids, (size_t)count * sizeof(*ids));
    for (int64_t i = 0; i < count && width == 2; i++) {
        const uint16_t id = (uint16_t)ids[i];
        memcpy(to + 2 * i, &id, sizeof(id));
    }
}

status data_shard_add(data_shard_writer *w, const int32_t *ids, int64_t count)
{
    for (int64_t i = 0; i < count;) {
        if (w->buffered == WRITE_BYTES) TRY(flush(w));
        const int64_t n = min_i64(count - i, (WRITE_BYTES - w->buffered) / w->width);
        ids_write(w->buffer + w->buffered, ids + i, n, w->width);
        w->buffered += n * w->width;
        i += n;
    }
    w->tokens += (uint64_t)count;
    return ST_OK;
}

status data_shard_end_document(data_shard_writer *w)
{
    if (w->tokens == w->document_begin) return ST_OK;
    if (w->documents_count == w->documents_capacity) {
        const int64_t grown = max_i64(1024, 2 * w->documents_capacity);
        uint64_t *moved = realloc(w->documents, (size_t)grown * sizeof(*moved));
        if (moved == NULL)
            return fail(ST_NO_MEMORY, "%s: no memory for %lld documents", w->path,
                        (long long)grown);
        w->documents = moved;
        w->documents_capacity = grown;
    }
    w->documents[w->documents_count++] = w->document_begin;
    const int32_t eot = data_tokenizer_eot(w->tokenizer);
    if (eot >= 0) TRY(data_shard_add(w, &eot, 1));
    w->document_begin = w->tokens;
    return ST_OK;
}

static status write_rest(data_shard_writer *w)
{
    static const uint8_t zeros[8];
    TRY(data_shard_end_document(w));
    TRY(flush(w));
    const int64_t end = FRAME_BYTES + (int64_t)w->tokens * w->width;
    shard_tail tail = {.tokens = w->tokens,
                       .documents = (uint64_t)w->documents_count,
                       .documents_at = (uint64_t)align_up(end, 8),
                       .checksum = hash_end(w->hash),
                       .malformed = w->malformed};
    w->hash = NULL;
    tail.hash = hash64(&tail, FRAME_HASHED, 0);
    const host_api *api = w->h->api;
    const int64_t padding = (int64_t)tail.documents_at - end;
    if (padding > 0) TRY(body_write(w, zeros, padding));
    if (w->documents_count > 0) TRY(body_write(w, w->documents, 8 * w->documents_count));
    TRY(block_end(w));
    for (int64_t i = 0; i < w->blocks_count; i++) w->blocks[i] ^= tail.checksum.low;
    if (w->blocks_count > 0) TRY(api->file_write(w->f, w->blocks, 8 * w->blocks_count));
    TRY(api->file_write(w->f, &tail, sizeof(tail)));
    TRY(fault_point("data.shard.sync"));
    return api->file_sync(w->f);
}

void data_shard_malformed(data_shard_writer *w, int64_t at)
{
    if (w->malformed == 0) w->malformed = (uint64_t)at + 1;
}

static status sync_folder(const host *h, const char *path)
{
    const int64_t count = path_base_name(path) - path;
    if (count == 0) return h->api->path_sync(h, ".");
    char *folder = strdup(path);
    if (folder == NULL) return fail(ST_NO_MEMORY, "%s: no memory for its folder's name", path);
    folder[max_i64(count - 1, 1)] = 0; // without the slash, except for the root
    const status st = h->api->path_sync(h, folder);
    free(folder);
    return st;
}

static status publish(data_shard_writer *w)
{
    TRY(write_rest(w));
    file *f = w->f;
    w->f = NULL;
    TRY(w->h->api->file_close(f));
    TRY(fault_point("data.shard.rename"));
    TRY(w->h->api->path_rename(w->h, w->temporary, w->path));
    free(w->temporary);
    w->temporary = NULL; // no file is left to remove
    return sync_folder(w->h, w->path);
}

status data_shard_finish(data_shard_writer *w)
{
    const status st = publish(w);
    data_shard_abandon(w);
    return st;
}

void data_shard_abandon(data_shard_writer *w)
{
    if (w == NULL) return;
    // Keeps the first error: these belong to an abandoned file.
    error_record first;
    error_take(&first);
    if (w->f != NULL) {
        (void)w->h->api->file_close(w->f);
        if (w->temporary != NULL) (void)w->h->api->path_remove(w->h, w->temporary);
    } else if (w->temporary != NULL) {
        file_info info;
        if (w->h->api->path_info(w->h, w->temporary, &info) == ST_OK &&
            info.kind == FILE_KIND_REGULAR) {
            (void)w->h->api->path_remove(w->h, w->temporary);
        }
    }
    if (first.code != ST_OK) (void)error_put(&first);
    if (w->hash != NULL) (void)hash_end(w->hash);
    free(w->temporary);
    free(w->path);
    free(w->buffer);
    free(w->documents);
    free(w->blocks);
    free(w);
}
