// bzip2 through libbz2: consecutive streams, as parallel compressors make.
#include "data/reader/codec.h"

#include <bzlib.h>
#include <stdlib.h>

typedef struct bzip2_state {
    bz_stream z;
    bool in_stream; // the file may end between streams
} bzip2_state;

static status begin(data_reader *r)
{
    r->stream = calloc(1, sizeof(bzip2_state));
    return r->stream != NULL ? ST_OK : fail(ST_NO_MEMORY, "%s: no memory to unpack it", r->path);
}

static status damaged(const data_reader *r, const char *reason)
{
    return fail(ST_DAMAGED, "%s: bzip2 data is damaged at byte %lld: %s", r->path,
                (long long)data_reader_position(r), reason);
}

static status begin_stream(const data_reader *r, bzip2_state *s)
{
    if (s->in_stream) return ST_OK;
    s->z.bzalloc = NULL;
    s->z.bzfree = NULL;
    s->z.opaque = NULL;
    if (BZ2_bzDecompressInit(&s->z, 0, 0) != BZ_OK) {
        return fail(ST_NO_MEMORY, "%s: no memory to unpack it", r->path);
    }
    s->in_stream = true;
    return ST_OK;
}

static status read_bzip2(data_reader *r, void *buffer, int64_t bytes, int64_t *got)
{
    bzip2_state *s = r->stream;
    const unsigned wanted = (unsigned)min_i64(bytes, 1 << 30);
    unsigned left = wanted;
    while (left == wanted) {
        TRY(reader_fill(r));
        const int64_t available = r->input_count - r->input_at;
        if (available == 0) {
            if (s->in_stream || r->file_bytes == 0) return damaged(r, "it ends too early");
            break;
        }
        TRY(begin_stream(r, s));
        s->z.next_in = (char *)r->input + r->input_at;
        s->z.avail_in = (unsigned)available;
        s->z.next_out = buffer;
        s->z.avail_out = wanted;
        const int result = BZ2_bzDecompress(&s->z);
        r->input_at = r->input_count - s->z.avail_in;
        left = s->z.avail_out;
        if (result == BZ_STREAM_END) {
            (void)BZ2_bzDecompressEnd(&s->z);
            s->in_stream = false;
        } else if (result == BZ_MEM_ERROR) {
            return fail(ST_NO_MEMORY, "%s: no memory to unpack it", r->path);
        } else if (result != BZ_OK) {
            return damaged(r, result == BZ_DATA_ERROR_MAGIC ? "not bzip2" : "wrong data");
        }
    }
    *got = wanted - left;
    return ST_OK;
}

static void end(data_reader *r)
{
    bzip2_state *s = r->stream;
    if (s == NULL) return;
    if (s->in_stream) (void)BZ2_bzDecompressEnd(&s->z);
    free(s);
}

const data_codec data_codec_bzip2 = {
    .name = "bzip2", .begin = begin, .read = read_bzip2, .end = end};
