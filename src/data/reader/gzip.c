// gzip through zlib: consecutive members, as `cat a.gz b.gz` and parallel compressors make.
#include "data/reader/codec.h"

#include <stdlib.h>
#include <zlib.h>

typedef struct gzip_state {
    z_stream z;
    bool in_member; // the file may end between members
} gzip_state;

static status begin(data_reader *r)
{
    gzip_state *s = calloc(1, sizeof(*s));
    if (s == NULL) return fail(ST_NO_MEMORY, "%s: no memory to unpack it", r->path);
    if (inflateInit2(&s->z, 15 + 16) != Z_OK) { // 16: gzip only, not bare zlib
        free(s);
        return fail(ST_NO_MEMORY, "%s: no memory to unpack it", r->path);
    }
    r->stream = s;
    return ST_OK;
}

static status damaged(const data_reader *r, const char *reason)
{
    return fail(ST_DAMAGED, "%s: gzip data is damaged at byte %lld: %s", r->path,
                (long long)data_reader_position(r), reason);
}

static status read_gzip(data_reader *r, void *buffer, int64_t bytes, int64_t *got)
{
    gzip_state *s = r->stream;
    const uInt wanted = (uInt)min_i64(bytes, 1 << 30);
    s->z.next_out = buffer;
    s->z.avail_out = wanted;
    while (s->z.avail_out == wanted) {
        TRY(reader_fill(r));
        const int64_t available = r->input_count - r->input_at;
        if (available == 0) {
            if (s->in_member || r->file_bytes == 0) return damaged(r, "it ends too early");
            break;
        }
        if (!s->in_member) {
            if (inflateReset(&s->z) != Z_OK) return damaged(r, "invalid state");
            s->in_member = true;
        }
        s->z.next_in = r->input + r->input_at;
        s->z.avail_in = (uInt)available;
        const int result = inflate(&s->z, Z_NO_FLUSH);
        r->input_at = r->input_count - s->z.avail_in;
        if (result == Z_STREAM_END) {
            s->in_member = false;
        } else if (result != Z_OK && result != Z_BUF_ERROR) {
            return damaged(r, s->z.msg != NULL ? s->z.msg : "not gzip");
        }
    }
    *got = wanted - s->z.avail_out;
    return ST_OK;
}

static void end(data_reader *r)
{
    gzip_state *s = r->stream;
    if (s == NULL) return;
    (void)inflateEnd(&s->z);
    free(s);
}

const data_codec data_codec_gzip = {.name = "gzip", .begin = begin, .read = read_gzip, .end = end};
