// xz through liblzma: consecutive streams and padding. The memory that a file may ask for is
// limited.
#include "data/reader/codec.h"

#include <lzma.h>
#include <stdlib.h>
#include <string.h>

enum { MEMORY_MAX = 256 << 20 }; // the dictionary of xz -9 takes 65 MiB

typedef struct xz_state {
    lzma_stream z;
    bool at_end; // the last stream has ended
} xz_state;

static status begin(data_reader *r)
{
    static const lzma_stream fresh = LZMA_STREAM_INIT;
    xz_state *s = calloc(1, sizeof(*s));
    if (s == NULL) return fail(ST_NO_MEMORY, "%s: no memory to unpack it", r->path);
    memcpy(&s->z, &fresh, sizeof(fresh));
    r->stream = s;
    if (lzma_stream_decoder(&s->z, MEMORY_MAX, LZMA_CONCATENATED) == LZMA_OK) return ST_OK;
    return fail(ST_NO_MEMORY, "%s: no memory to unpack it", r->path);
}

static status damaged(const data_reader *r, lzma_ret result)
{
    const char *why = result == LZMA_MEMLIMIT_ERROR  ? "it asks for more than 256 MiB"
                      : result == LZMA_FORMAT_ERROR  ? "not xz"
                      : result == LZMA_OPTIONS_ERROR ? "options that the library does not know"
                      : result == LZMA_BUF_ERROR     ? "it ends too early"
                                                     : "wrong data";
    return fail(ST_DAMAGED, "%s: xz data is damaged at byte %lld: %s", r->path,
                (long long)data_reader_position(r), why);
}

static status read_xz(data_reader *r, void *buffer, int64_t bytes, int64_t *got)
{
    xz_state *s = r->stream;
    s->z.next_out = buffer;
    s->z.avail_out = (size_t)bytes;
    while (!s->at_end && s->z.avail_out == (size_t)bytes) {
        TRY(reader_fill(r));
        const int64_t available = r->input_count - r->input_at;
        s->z.next_in = r->input + r->input_at;
        s->z.avail_in = (size_t)available;
        const lzma_ret result = lzma_code(&s->z, available == 0 ? LZMA_FINISH : LZMA_RUN);
        r->input_at = r->input_count - (int64_t)s->z.avail_in;
        if (result == LZMA_STREAM_END) {
            s->at_end = true;
        } else if (result == LZMA_MEM_ERROR) {
            return fail(ST_NO_MEMORY, "%s: no memory to unpack it", r->path);
        } else if (result != LZMA_OK) {
            return damaged(r, result);
        } else if (available == 0 && s->z.avail_out == (size_t)bytes) {
            return damaged(r, LZMA_BUF_ERROR);
        }
    }
    *got = bytes - (int64_t)s->z.avail_out;
    return ST_OK;
}

static void end(data_reader *r)
{
    xz_state *s = r->stream;
    if (s == NULL) return;
    lzma_end(&s->z);
    free(s);
}

const data_codec data_codec_xz = {.name = "xz", .begin = begin, .read = read_xz, .end = end};
