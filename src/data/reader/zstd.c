// zstd: consecutive frames, including skippable ones. The code limits the window, which is the
// memory that a file may request, before it allocates.
#include "data/reader/codec.h"

#include <stdlib.h>
#include <zstd.h>

typedef struct zstd_state {
    ZSTD_DStream *stream;
    // Result of the last call: 0 where a frame has ended and all its bytes were returned.
    size_t missing;
} zstd_state;

static status begin(data_reader *r)
{
    zstd_state *s = calloc(1, sizeof(*s));
    if (s == NULL) return fail(ST_NO_MEMORY, "%s: no memory to unpack it", r->path);
    r->stream = s;
    s->stream = ZSTD_createDStream();
    if (s->stream == NULL) return fail(ST_NO_MEMORY, "%s: no memory to unpack it", r->path);
    const size_t result =
        ZSTD_DCtx_setParameter(s->stream, ZSTD_d_windowLogMax, DATA_ZSTD_WINDOW_LOG_MAX);
    if (ZSTD_isError(result)) {
        return fail(ST_INTERNAL, "%s: zstd refused its limit: %s", r->path,
                    ZSTD_getErrorName(result));
    }
    return ST_OK;
}

static status damaged(const data_reader *r, const char *reason)
{
    return fail(ST_DAMAGED, "%s: zstd data is damaged at byte %lld: %s", r->path,
                (long long)data_reader_position(r), reason);
}

static status read_zstd(data_reader *r, void *buffer, int64_t bytes, int64_t *got)
{
    zstd_state *s = r->stream;
    ZSTD_outBuffer out = {.dst = buffer, .size = (size_t)bytes, .pos = 0};
    if (r->file_bytes == 0) return damaged(r, "it is empty");
    while (out.pos == 0) {
        TRY(reader_fill(r));
        const int64_t available = r->input_count - r->input_at;
        if (available == 0 && s->missing == 0) break;
        // Without input the decoder returns the bytes that it still holds.
        ZSTD_inBuffer in = {.src = r->input + r->input_at, .size = (size_t)available, .pos = 0};
        s->missing = ZSTD_decompressStream(s->stream, &out, &in);
        if (ZSTD_isError(s->missing)) return damaged(r, ZSTD_getErrorName(s->missing));
        r->input_at += (int64_t)in.pos;
        if (available == 0 && out.pos == 0 && s->missing != 0) {
            return damaged(r, "it ends too early");
        }
    }
    *got = (int64_t)out.pos;
    return ST_OK;
}

static void end(data_reader *r)
{
    zstd_state *s = r->stream;
    if (s == NULL) return;
    (void)ZSTD_freeDStream(s->stream); // NULL is legal
    free(s);
}

const data_codec data_codec_zstd = {.name = "zstd", .begin = begin, .read = read_zstd, .end = end};
