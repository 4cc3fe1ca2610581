// Opens a token file by its format, and reads tokens from all formats.
#include "base/fault.h"
#include "data/tokens/format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "all these files are little-endian");

// Order of probing: formats with a magic number first, the headerless one last.
static const data_token_format *const formats[] = {
    &data_token_format_shard,
    &data_token_format_megatron,
    &data_token_format_llmc,
    &data_token_format_nanogpt,
};

int64_t token_type_bytes(token_type type)
{
    static const int8_t bytes[] = {
        [TOKEN_U8] = 1,  [TOKEN_I8] = 1,  [TOKEN_I16] = 2, [TOKEN_I32] = 4,
        [TOKEN_I64] = 8, [TOKEN_U16] = 2, [TOKEN_U32] = 4};
    return bytes[type];
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n > m && strcmp(text + n - m, end) == 0;
}

static status look(const host *h, const char *path, token_probe *p)
{
    *p = (token_probe){.path = path};
    TRY(h->api->path_info(h, path, &p->info));
    if (p->info.kind == FILE_KIND_NONE) return fail(ST_NOT_FOUND, "%s: no such file", path);
    file *f = NULL;
    TRY(h->api->file_open(h, path, FILE_READ, &f));
    status st = h->api->file_size(f, &p->info.bytes);
    const int64_t count = min_i64(p->info.bytes, (int64_t)sizeof(p->head));
    if (st == ST_OK && count > 0) st = h->api->file_read(f, 0, p->head, count);
    (void)h->api->file_close(f); // the file was only read
    TRY(st);
    p->has_idx = ends_with(path, ".idx");
    if (ends_with(path, ".bin")) {
        char idx[4096];
        const int stem = (int)min_i64((int64_t)strlen(path) - 4, sizeof(idx));
        if (snprintf(idx, sizeof(idx), "%.*s.idx", stem, path) < (int)sizeof(idx)) {
            file_info info;
            TRY(h->api->path_info(h, idx, &info));
            p->has_idx = info.kind == FILE_KIND_REGULAR;
        }
    }
    return ST_OK;
}

static const data_token_format *format_of(const token_probe *p)
{
    for (int64_t i = 0; i < COUNT_OF(formats); i++) {
        if (formats[i]->fits(p)) return formats[i];
    }
    return NULL;
}

status data_tokens_probe(const host *h, const char *path, bool *out)
{
    token_probe p;
    TRY(look(h, path, &p));
    *out = format_of(&p) != NULL;
    return ST_OK;
}

status token_file_open(data_tokens *t, const char *path)
{
    return t->h->api->file_open(t->h, path, FILE_READ, &t->f);
}

status token_file_check_size(const data_tokens *t, int64_t file_bytes)
{
    int64_t bytes = 0, all = 0;
    if (!size_mul(t->count, token_type_bytes(t->type), &bytes) ||
        !size_add(bytes, t->offset, &all) || all != file_bytes) {
        return fail(
            ST_DAMAGED,
            "%s: has %lld bytes, but %lld tokens of %lld bytes from byte %lld were expected",
            t->path, (long long)file_bytes, (long long)t->count,
            (long long)token_type_bytes(t->type), (long long)t->offset);
    }
    return ST_OK;
}

status data_tokens_open(const host *h, arena *a, const char *path, int64_t vocab, data_tokens **out)
{
    TRY(fault_point("data.tokens.open"));
    ASSERT(vocab >= 0);
    token_probe p;
    TRY(look(h, path, &p));
    const data_token_format *format = format_of(&p);
    if (format == NULL) {
        return fail(ST_DATA,
                    "%s: not a token file; expected a shard of this program, or a .bin file of "
                    "nanoGPT, llm.c or Megatron",
                    path);
    }
    data_tokens *t = NULL;
    TRY(arena_new(a, 1, &t));
    *t = (data_tokens){.h = h, .format = format, .vocab = vocab, .malformed = -1};
    TRY(arena_strdup(a, path, &t->path));
    const status st = format->open(t, a, &p);
    if (st != ST_OK) {
        data_tokens_close(t);
        return st;
    }
    *out = t;
    return ST_OK;
}

void data_tokens_close(data_tokens *t)
{
    if (t == NULL || t->f == NULL) return;
    (void)t->h->api->file_close(t->f); // the file was only read
    t->f = NULL;
}

const char *data_tokens_format(const data_tokens *t)
{
    return t->format->name;
}

const char *data_tokens_path(const data_tokens *t)
{
    return t->path;
}

int64_t data_tokens_count(const data_tokens *t)
{
    return t->count;
}

int64_t data_tokens_vocab(const data_tokens *t)
{
    return t->vocab;
}

int64_t data_tokens_documents(const data_tokens *t)
{
    return t->documents_count;
}

hash128 data_tokens_tokenizer(const data_tokens *t)
{
    return t->tokenizer;
}

hash128 data_tokens_checksum(const data_tokens *t)
{
    return t->has_checksum ? t->checksum : (hash128){0};
}

// Widens `count` tokens; returns the number of tokens before the first that is not in 0..limit-1.
static int64_t widen(token_type type, const void *from, int64_t count, int64_t limit, int32_t *ids)
{
#define WIDEN(element)                                          \
    for (int64_t i = 0; i < count; i++) {                       \
        const int64_t id = (int64_t)((const element *)from)[i]; \
        if (id < 0 || id >= limit) return i;                    \
        ids[i] = (int32_t)id;                                   \
    }                                                           \
    return count
    switch (type) {
    case TOKEN_U8:
        WIDEN(uint8_t);
    case TOKEN_I8:
        WIDEN(int8_t);
    case TOKEN_I16:
        WIDEN(int16_t);
    case TOKEN_I32:
        WIDEN(int32_t);
    case TOKEN_I64:
        WIDEN(int64_t);
    case TOKEN_U16:
        WIDEN(uint16_t);
    case TOKEN_U32:
        WIDEN(uint32_t);
    }
#undef WIDEN
    return 0;
}

static status bad_token(const data_tokens *t, token_type type, const void *at, int64_t index)
{
    int64_t id = 0;
    switch (type) {
    case TOKEN_U8:
        id = *(const uint8_t *)at;
        break;
    case TOKEN_I8:
        id = INT64_C(0) + *(const int8_t *)at;
        break;
    case TOKEN_I16:
        id = *(const int16_t *)at;
        break;
    case TOKEN_I32:
        id = *(const int32_t *)at;
        break;
    case TOKEN_I64:
        id = *(const int64_t *)at;
        break;
    case TOKEN_U16:
        id = *(const uint16_t *)at;
        break;
    case TOKEN_U32:
        id = *(const uint32_t *)at;
        break;
    }
    return fail(ST_DATA, "%s: token %lld at byte %lld is %lld, below %lld expected%s", t->path,
                (long long)index, (long long)(t->offset + index * token_type_bytes(type)),
                (long long)id, (long long)(t->vocab > 0 ? t->vocab : INT32_MAX),
                t->format == &data_token_format_nanogpt
                    ? "; the file must hold uint16 tokens of this tokenizer"
                    : "");
}

static status read_at(const data_tokens *t, int64_t offset, void *out, int64_t bytes)
{
    const status st = t->h->api->file_read(t->f, offset, out, bytes);
    if (st == ST_DAMAGED) note("while reading tokens: the file was cut during the run");
    return st;
}

// Reads a block of a shard and checks its hash.
static status block_read(const data_tokens *t, int64_t block, uint8_t bytes[TOKEN_BLOCK_BYTES],
                         int64_t *count)
{
    const int64_t at = t->offset + block * TOKEN_BLOCK_BYTES;
    uint64_t entry = 0;
    *count = min_i64(TOKEN_BLOCK_BYTES, t->blocks_at - at);
    TRY(read_at(t, at, bytes, *count));
    TRY(read_at(t, t->blocks_at + 8 * block, &entry, sizeof(entry)));
    if ((hash64(bytes, *count, (uint64_t)block) ^ t->checksum.low) == entry) return ST_OK;
    return fail(ST_DAMAGED,
                "%s: the checksum of bytes %lld to %lld is wrong: the file is damaged, or it was "
                "changed during the run; remove it: if it lies in a run's cache folder, the next "
                "start makes it again from the text, and if in a corpus, `data build` does",
                t->path, (long long)at, (long long)(at + *count - 1));
}

// Reads bytes that blocks cover, if the file has blocks; no unchecked byte is handed out.
static status read_checked(const data_tokens *t, int64_t offset, void *out, int64_t bytes)
{
    uint8_t block_bytes[TOKEN_BLOCK_BYTES], *to = out;
    if (t->blocks_at == 0) return read_at(t, offset, out, bytes);
    for (int64_t done = 0; done < bytes;) {
        const int64_t at = offset + done - t->offset;
        const int64_t begin = at % TOKEN_BLOCK_BYTES;
        int64_t have = 0;
        TRY(block_read(t, at / TOKEN_BLOCK_BYTES, block_bytes, &have));
        const int64_t n = min_i64(bytes - done, have - begin);
        memcpy(to + done, block_bytes + begin, (size_t)n);
        done += n;
    }
    return ST_OK;
}

status data_tokens_read(const data_tokens *t, int64_t first, int64_t count, int32_t *ids)
{
    ASSERT(first >= 0 && count >= 0 && first <= t->count - count);
    const int64_t width = token_type_bytes(t->type);
    const int64_t limit = t->vocab > 0 ? t->vocab : INT32_MAX;
    int64_t buffer[2048];
    const int64_t capacity = (int64_t)sizeof(buffer) / width;
    for (int64_t done = 0; done < count;) {
        const int64_t n = min_i64(capacity, count - done);
        const int64_t offset = t->offset + (first + done) * width;
        TRY(read_checked(t, offset, buffer, n * width));
        const int64_t good = widen(t->type, buffer, n, limit, ids + done);
        if (good < n) {
            const char *at = (const char *)buffer + good * width;
            return bad_token(t, t->type, at, first + done + good);
        }
        done += n;
    }
    return ST_OK;
}

// A window of the list of documents; the file's part is read, and checked, when it is needed.
typedef struct boundary_window {
    const data_tokens *t;
    int64_t first, count;
    uint64_t begins[256];
} boundary_window;

static status boundary_at(boundary_window *w, int64_t i, int64_t *out)
{
    const data_tokens *t = w->t;
    if (t->documents == NULL && (i < w->first || i >= w->first + w->count)) {
        w->first = i;
        w->count = 0; // until the read succeeds
        const int64_t n = min_i64(COUNT_OF(w->begins), t->documents_count - i);
        TRY(read_checked(t, t->documents_at + 8 * i, w->begins, 8 * n));
        w->count = n;
    }
    const uint64_t begin = t->documents != NULL ? t->documents[i] : w->begins[i - w->first];
    if (begin > (uint64_t)t->count) {
        return fail(ST_DAMAGED, "%s: document %lld begins at token %llu of %lld", t->path,
                    (long long)i, (unsigned long long)begin, (long long)t->count);
    }
    *out = (int64_t)begin;
    return ST_OK;
}

// The first document that begins after `first`, by bisection. It reads single entries unchecked;
// the caller checks what it found.
static status boundary_find(const data_tokens *t, int64_t first, int64_t *out)
{
    int64_t low = 0, high = t->documents_count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        uint64_t begin = 0;
        if (t->documents != NULL) {
            begin = t->documents[middle];
        } else {
            TRY(read_at(t, t->documents_at + 8 * middle, &begin, sizeof(begin)));
        }
        if (begin <= (uint64_t)first) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    *out = low;
    return ST_OK;
}

status data_tokens_boundaries(const data_tokens *t, int64_t first, int64_t count,
                              void (*mark)(void *context, int64_t token), void *context)
{
    boundary_window w = {.t = t};
    int64_t next = 0, begin = 0;
    TRY(boundary_find(t, first, &next));
    int64_t before = 0;
    if (next > 0) TRY(boundary_at(&w, next - 1, &before));
    if (next > 0 && before > first) {
        return fail(ST_DAMAGED, "%s: document %lld begins at token %lld, at most %lld expected",
                    t->path, (long long)next - 1, (long long)before, (long long)first);
    }
    for (before = first; next < t->documents_count; next++, before = begin) {
        TRY(boundary_at(&w, next, &begin));
        if (begin > first + count) break;
        if (begin < before) {
            return fail(ST_DAMAGED, "%s: document %lld begins at token %lld, before the one before",
                        t->path, (long long)next, (long long)begin);
        }
        if (begin > before) mark(context, begin);
    }
    return ST_OK;
}

status data_tokens_document_begin(const data_tokens *t, int64_t document, int64_t *begin)
{
    boundary_window w = {.t = t};
    *begin = t->count;
    return document < t->documents_count ? boundary_at(&w, document, begin) : ST_OK;
}

status data_tokens_document(const data_tokens *t, int64_t token, int64_t *document, int64_t *begin)
{
    int64_t next = 0;
    ASSERT(t->documents_count > 0 && token >= 0 && token < t->count);
    TRY(boundary_find(t, token, &next));
    if (next == 0) return fail(ST_DAMAGED, "%s: no document begins at token 0", t->path);
    *document = next - 1;
    return data_tokens_document_begin(t, *document, begin);
}

int64_t data_tokens_malformed(const data_tokens *t)
{
    return t->malformed;
}

// Checks every block, which covers the list of documents too.
static status blocks_verify(const data_tokens *t)
{
    uint8_t bytes[TOKEN_BLOCK_BYTES];
    int64_t count = 0;
    for (int64_t i = 0; t->offset + i * TOKEN_BLOCK_BYTES < t->blocks_at; i++) {
        TRY(block_read(t, i, bytes, &count));
    }
    return ST_OK;
}

status data_tokens_verify(const data_tokens *t)
{
    enum { PIECE = 1 << 20 };
    if (t->blocks_at > 0) TRY(blocks_verify(t));
    if (!t->has_checksum || t->count == 0) return ST_OK;
    hash_stream *hash = hash_begin();
    void *piece = malloc(PIECE);
    status st = ST_OK;
    if (hash == NULL || piece == NULL) st = fail(ST_NO_MEMORY, "%s: no memory to read it", t->path);
    const int64_t bytes = t->count * token_type_bytes(t->type);
    for (int64_t at = 0; st == ST_OK && at < bytes; at += PIECE) {
        const int64_t n = min_i64(PIECE, bytes - at);
        st = read_at(t, t->offset + at, piece, n);
        if (st == ST_OK) hash_add(hash, piece, n);
    }
    free(piece);
    if (hash == NULL) return st;
    const hash128 found = hash_end(hash);
    TRY(st);
    if (found.high == t->checksum.high && found.low == t->checksum.low) return ST_OK;
    char expected_text[33], found_text[33];
    return fail(ST_DAMAGED, "%s: the checksum of its tokens is %s, %s expected", t->path,
                hash128_text(found, found_text), hash128_text(t->checksum, expected_text));
}
