// The codecs of pages, and the packed integers in them.
#include "data/corpus/lz4.h"
#include "data/corpus/parquet/parquet.h"

#include <string.h>
#include <zlib.h>
#include <zstd.h>

enum {
    CODEC_NONE,
    CODEC_SNAPPY,
    CODEC_GZIP,
    CODEC_LZO,
    CODEC_BROTLI,
    CODEC_LZ4,
    CODEC_ZSTD,
    CODEC_LZ4_RAW
};

// ---- snappy (raw format) ------------------------------------------------------------------------

static int64_t read_varint(const uint8_t *from, int64_t bytes, uint64_t *out)
{
    *out = 0;
    for (int64_t i = 0; i < bytes && i < 10; i++) {
        *out |= (uint64_t)(from[i] & 0x7f) << (7 * i);
        if ((from[i] & 0x80) == 0) return i + 1;
    }
    return -1;
}

static uint32_t read_little(const uint8_t *from, int64_t bytes)
{
    uint32_t value = 0;
    for (int64_t i = 0; i < bytes; i++) value |= (uint32_t)from[i] << (8 * i);
    return value;
}

// Copies `count` bytes that begin `back` bytes before `done`; they may overlap.
static bool copy_back(uint8_t *to, int64_t to_bytes, int64_t *done, int64_t back, int64_t count)
{
    if (back == 0 || back > *done || count > to_bytes - *done) return false;
    for (int64_t i = 0; i < count; i++) to[*done + i] = to[*done + i - back];
    *done += count;
    return true;
}

// Copies the literal with this tag, whose length may be in the next bytes.
static bool literal(const uint8_t *from, int64_t bytes, int64_t *at, uint8_t tag, uint8_t *to,
                    int64_t to_bytes, int64_t *done)
{
    int64_t count = tag >> 2;
    const int64_t extra = count < 60 ? 0 : count - 59;
    if (extra > bytes - *at) return false;
    if (extra > 0) count = (int64_t)read_little(from + *at, extra);
    *at += extra;
    count++;
    if (count > bytes - *at || count > to_bytes - *done) return false;
    memcpy(to + *done, from + *at, (size_t)count);
    *at += count;
    *done += count;
    return true;
}

static bool snappy(const uint8_t *from, int64_t bytes, uint8_t *to, int64_t to_bytes)
{
    uint64_t wanted = 0;
    int64_t at = read_varint(from, bytes, &wanted), done = 0;
    if (at < 0 || wanted != (uint64_t)to_bytes) return false;
    while (at < bytes) {
        const uint8_t tag = from[at++];
        const int kind = tag & 3;
        if (kind == 0) {
            if (!literal(from, bytes, &at, tag, to, to_bytes, &done)) return false;
            continue;
        }
        const int64_t extra = kind == 1 ? 1 : kind == 2 ? 2 : 4;
        if (extra > bytes - at) return false;
        const uint32_t low = read_little(from + at, extra);
        const int64_t back = kind == 1 ? (int64_t)(tag >> 5) << 8 | low : (int64_t)low;
        const int64_t count = kind == 1 ? 4 + (tag >> 2 & 7) : 1 + (tag >> 2);
        at += extra;
        if (!copy_back(to, to_bytes, &done, back, count)) return false;
    }
    return done == to_bytes;
}

static bool gzip(const uint8_t *from, int64_t bytes, uint8_t *to, int64_t to_bytes)
{
    z_stream z = {.zalloc = NULL};
    if (inflateInit2(&z, 15 + 32) != Z_OK) return false; // 32: gzip or zlib
    z.next_in = (Bytef *)(uintptr_t)from;                // zlib does not write there
    z.avail_in = (uInt)bytes;
    z.next_out = to;
    z.avail_out = (uInt)to_bytes;
    const int result = inflate(&z, Z_FINISH);
    const bool is_whole = result == Z_STREAM_END && z.avail_out == 0;
    (void)inflateEnd(&z);
    return is_whole;
}

status parquet_unpack(const parquet_file *p, int32_t codec, const uint8_t *from, int64_t from_bytes,
                      uint8_t *to, int64_t to_bytes)
{
    static const char *const names[] = {"none",   "snappy", "gzip", "lzo",
                                        "brotli", "lz4",    "zstd", "lz4_raw"};
    bool good = false;
    if (codec == CODEC_NONE) {
        good = from_bytes == to_bytes;
        if (good && to_bytes > 0) memcpy(to, from, (size_t)to_bytes);
    } else if (codec == CODEC_SNAPPY) {
        good = snappy(from, from_bytes, to, to_bytes);
    } else if (codec == CODEC_GZIP) {
        good = gzip(from, from_bytes, to, to_bytes);
    } else if (codec == CODEC_ZSTD) {
        const size_t got = ZSTD_decompress(to, (size_t)to_bytes, from, (size_t)from_bytes);
        good = !ZSTD_isError(got) && (int64_t)got == to_bytes;
    } else if (codec == CODEC_LZ4) {
        good = lz4_hadoop(from, from_bytes, to, to_bytes);
    } else if (codec == CODEC_LZ4_RAW) {
        good = lz4_block(from, from_bytes, to, to_bytes);
    } else {
        const bool is_known = codec >= 0 && codec < COUNT_OF(names);
        return fail(ST_UNSUPPORTED,
                    "%s: pages packed with %s are not supported; write the file with zstd, snappy, "
                    "LZ4, gzip or no compression",
                    p->path, is_known ? names[codec] : "an unknown codec");
    }
    return good ? ST_OK
                : fail(ST_DAMAGED, "%s: a page packed with %s is damaged", p->path, names[codec]);
}

// ---- packed integers ----------------------------------------------------------------------------

static uint32_t bits_at(const uint8_t *from, int64_t bytes, int64_t bit, int width)
{
    uint64_t value = 0;
    for (int64_t i = 0; i < 5 && bit / 8 + i < bytes; i++)
        value |= (uint64_t)from[bit / 8 + i] << (8 * i);
    return (uint32_t)(value >> (bit % 8) & ((UINT64_C(1) << width) - 1));
}

int64_t parquet_hybrid(const uint8_t *from, int64_t bytes, int width, int64_t count, uint32_t *out)
{
    int64_t at = 0, done = 0;
    if (width < 0 || width > 32) return -1;
    while (done < count) {
        uint64_t head = 0;
        const int64_t used = read_varint(from + at, bytes - at, &head);
        if (used < 0) return -1;
        at += used;
        if ((head >> 1) == 0 || (head >> 1) > (uint64_t)PARQUET_PAGE_MAX) return -1;
        if ((head & 1) == 0) { // one value, repeated
            const int64_t size = (width + 7) / 8, n = min_i64((int64_t)(head >> 1), count - done);
            if (size > bytes - at) return -1;
            const uint32_t value = read_little(from + at, size);
            for (int64_t i = 0; i < n; i++) out[done + i] = value;
            at += size;
            done += n;
            continue;
        }
        const int64_t all = (int64_t)(head >> 1) * 8, size = (int64_t)(head >> 1) * width;
        const int64_t n = min_i64(all, count - done), have = min_i64(size, bytes - at);
        if ((n * width + 7) / 8 > have) return -1;
        for (int64_t i = 0; i < n; i++) out[done + i] = bits_at(from + at, have, i * width, width);
        at += have;
        done += n;
    }
    return at;
}

// A mini-block of deltas of one width.
static int64_t mini_block(const uint8_t *from, int64_t bytes, int width, int64_t n, int64_t least,
                          int64_t *last, uint32_t *out)
{
    if ((n * width + 7) / 8 > bytes) return -1;
    for (int64_t i = 0; i < n; i++) {
        *last += least + (int64_t)bits_at(from, bytes, i * width, width);
        if (*last < 0 || *last > UINT32_MAX) return -1;
        out[i] = (uint32_t)*last;
    }
    return n;
}

static int64_t unzigzag(uint64_t value)
{
    return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
}

int64_t parquet_deltas(const uint8_t *from, int64_t bytes, int64_t count, uint32_t *out)
{
    uint64_t head[4]; // values of a block, mini-blocks of a block, all values, the first value
    int64_t at = 0, done = 0;
    for (int i = 0; i < 4; i++) {
        const int64_t used = read_varint(from + at, bytes - at, &head[i]);
        if (used < 0) return -1;
        at += used;
    }
    if (head[0] == 0 || head[0] > 65536 || head[1] == 0 || head[1] > 512 ||
        head[0] % head[1] != 0 || head[2] != (uint64_t)count) {
        return -1;
    }
    const int64_t minis = (int64_t)head[1], size = (int64_t)(head[0] / head[1]);
    int64_t last = unzigzag(head[3]);
    if (size % 8 != 0 || (count > 0 && (last < 0 || last > UINT32_MAX))) return -1;
    if (count > 0) out[done++] = (uint32_t)last;
    while (done < count) {
        uint64_t least = 0;
        const int64_t used = read_varint(from + at, bytes - at, &least);
        if (used < 0 || minis > bytes - at - used) return -1;
        const uint8_t *widths = from + at + used;
        at += used + minis;
        if (unzigzag(least) > UINT32_MAX || unzigzag(least) < -(int64_t)UINT32_MAX) return -1;
        for (int64_t m = 0; m < minis && done < count; m++) {
            const int64_t n = min_i64(size, count - done);
            if (widths[m] > 32 || mini_block(from + at, bytes - at, widths[m], n, unzigzag(least),
                                             &last, out + done) < 0) {
                return -1;
            }
            at += min_i64(bytes - at, size * widths[m] / 8);
            done += n;
        }
    }
    return at;
}
