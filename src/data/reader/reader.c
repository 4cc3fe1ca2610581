// Opens files, checks what they hold, reads through the codec, and limits the expansion of a file.
#include "base/fault.h"
#include "base/text.h"
#include "data/reader/codec.h"
#include "data/reader/content.h"

#include <stdlib.h>
#include <string.h>

status reader_fill(data_reader *r)
{
    if (r->input_at < r->input_count || r->offset == r->file_bytes) return ST_OK;
    const int64_t count = min_i64(READER_INPUT_BYTES, r->file_bytes - r->offset);
    TRY(r->h->api->file_read(r->f, r->offset, r->input, count));
    if (r->hash != NULL) hash_add(r->hash, r->input, count);
    r->offset += count;
    r->input_at = 0;
    r->input_count = count;
    return ST_OK;
}

static status plain_begin(data_reader *r)
{
    (void)r;
    return ST_OK;
}

static status plain_read(data_reader *r, void *buffer, int64_t bytes, int64_t *got)
{
    const int64_t count = min_i64(bytes, r->file_bytes - r->offset);
    if (count > 0) TRY(r->h->api->file_read(r->f, r->offset, buffer, count));
    if (r->hash != NULL) hash_add(r->hash, buffer, count);
    r->offset += count;
    *got = count;
    return ST_OK;
}

static void plain_end(data_reader *r)
{
    (void)r;
}

const data_codec data_codec_plain = {
    .name = "plain", .begin = plain_begin, .read = plain_read, .end = plain_end};

// Chooses the codec by the first bytes as they are stored.
static status choose_codec(data_reader *r)
{
    uint8_t head[16];
    const int64_t count = min_i64((int64_t)sizeof(head), r->file_bytes);
    if (count > 0) TRY(r->h->api->file_read(r->f, 0, head, count));
    r->codec = content_codec(r->path, head, count);
    return r->codec->begin(r);
}

static status read_codec(data_reader *r, void *buffer, int64_t bytes, int64_t *got)
{
    *got = 0;
    if (r->done) return ST_OK;
    TRY(fault_point("data.reader.read"));
    TRY(r->codec->read(r, buffer, bytes, got));
    ASSERT(*got <= bytes);
    r->given += *got;
    if (*got == 0) r->done = true;
    // A few bytes that expand to terabytes are an attack on the disk, not a text.
    const int64_t used = data_reader_position(r);
    if (r->given - DATA_EXPANSION_GRACE > used * DATA_EXPANSION_MAX) {
        return fail(ST_DAMAGED, "%s: %lld bytes give more than %lld; at most %d to one expected",
                    r->path, (long long)used, (long long)r->given, DATA_EXPANSION_MAX);
    }
    return ST_OK;
}

// Decodes the first bytes, checks that they are text and skips a byte order mark.
static status read_head(data_reader *r, int flags)
{
    int64_t got = 1;
    while (got > 0 && r->head_count < CONTENT_HEAD_BYTES) {
        TRY(read_codec(r, r->head + r->head_count, CONTENT_HEAD_BYTES - r->head_count, &got));
        r->head_count += got;
    }
    if ((flags & DATA_READER_ANY) == 0) {
        TRY(content_check_text(r->path, r->head, r->head_count));
    }
    r->head_at = text_mark_bytes((const char *)r->head, r->head_count);
    return ST_OK;
}

status data_reader_open(const host *h, const char *path, data_reader **out)
{
    return data_reader_open_as(h, path, 0, out);
}

status data_reader_open_as(const host *h, const char *path, int flags, data_reader **out)
{
    TRY(fault_point("data.reader.open"));
    status st = ST_OK;
    data_reader *r = calloc(1, sizeof(*r));
    if (r == NULL) return fail(ST_NO_MEMORY, "%s: no memory to read it", path);
    r->h = h;
    r->path = strdup(path);
    r->input = malloc(READER_INPUT_BYTES);
    r->head = malloc(CONTENT_HEAD_BYTES);
    if ((flags & DATA_READER_HASH) != 0) r->hash = hash_begin();
    const bool has_hash = r->hash != NULL || (flags & DATA_READER_HASH) == 0;
    if (r->path == NULL || r->input == NULL || r->head == NULL || !has_hash) {
        st = fail(ST_NO_MEMORY, "%s: no memory to read it", path);
        goto close_reader;
    }
    TRY_TO(close_reader, h->api->file_open(h, path, FILE_READ, &r->f));
    TRY_TO(close_reader, h->api->file_size(r->f, &r->file_bytes));
    TRY_TO(close_reader, choose_codec(r));
    TRY_TO(close_reader, read_head(r, flags));
    *out = r;
    return ST_OK;
close_reader:
    data_reader_close(r);
    return st;
}

status data_reader_read(data_reader *r, void *buffer, int64_t bytes, int64_t *got)
{
    ASSERT(bytes > 0);
    const int64_t held = r->head_count - r->head_at;
    if (held == 0) return read_codec(r, buffer, bytes, got);
    *got = min_i64(bytes, held);
    memcpy(buffer, r->head + r->head_at, (size_t)*got);
    r->head_at += *got;
    return ST_OK;
}

int64_t data_reader_position(const data_reader *r)
{
    return r->offset - (r->input_count - r->input_at);
}

int64_t data_reader_file_bytes(const data_reader *r)
{
    return r->file_bytes;
}

status data_reader_hash(data_reader *r, hash128 *out)
{
    ASSERT(r->hash != NULL);
    while (r->offset < r->file_bytes) {
        r->input_at = r->input_count;
        TRY(reader_fill(r));
    }
    *out = hash_end(r->hash);
    r->hash = NULL;
    return ST_OK;
}

void data_reader_close(data_reader *r)
{
    if (r == NULL) return;
    if (r->hash != NULL) (void)hash_end(r->hash);
    if (r->codec != NULL) r->codec->end(r);
    if (r->f != NULL) (void)r->h->api->file_close(r->f); // the file was only read
    free(r->input);
    free(r->head);
    free(r->path);
    free(r);
}
