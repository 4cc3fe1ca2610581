// Unpacks LZ4. A block is a list of sequences: a token whose halves are two lengths, literals, and
// a copy of earlier bytes.
//
//   token (4 bits literals, 4 bits copy - 4)  [255 255 .. n]  literals  u16 back  [255 255 .. n]
//
// The last sequence ends behind its literals. Every length is checked against both buffers before
// a byte moves. Blocks of a frame may copy from the blocks before, so `to` is one window for all.
#include "data/corpus/lz4.h"

#include <string.h>
#include <xxhash.h>

typedef struct unpacker {
    const uint8_t *from;
    int64_t at, bytes;
    uint8_t *to;
    int64_t begin, done, to_bytes; // begin: the first byte that a copy may take
} unpacker;

// Adds the bytes that continue a length of 15.
static bool read_length(unpacker *u, int64_t *length)
{
    uint8_t more = 255;
    if (*length < 15) return true;
    while (more == 255) {
        if (u->at == u->bytes) return false;
        more = u->from[u->at++];
        *length += more; // below 255 times the block's bytes
    }
    return true;
}

static bool copy_back(unpacker *u, int64_t back, int64_t count)
{
    if (back == 0 || back > u->done - u->begin || count > u->to_bytes - u->done) return false;
    uint8_t *to = u->to + u->done;
    if (back >= count) {
        memcpy(to, to - back, (size_t)count);
    } else {
        for (int64_t i = 0; i < count; i++) to[i] = to[i - back];
    }
    u->done += count;
    return true;
}

// Unpacks the `bytes` bytes at `at`; *done moves by what they give.
static bool unpack_block(unpacker *u)
{
    while (u->at < u->bytes) {
        const uint8_t token = u->from[u->at++];
        int64_t literals = token >> 4, copy = token & 15;
        if (!read_length(u, &literals)) return false;
        if (literals > u->bytes - u->at || literals > u->to_bytes - u->done) return false;
        if (literals > 0) memcpy(u->to + u->done, u->from + u->at, (size_t)literals);
        u->at += literals;
        u->done += literals;
        if (u->at == u->bytes) return true;
        if (u->bytes - u->at < 2) return false;
        const int64_t back = u->from[u->at] | u->from[u->at + 1] << 8;
        u->at += 2;
        if (!read_length(u, &copy) || !copy_back(u, back, copy + 4)) return false;
    }
    return false; // a block ends with literals
}

bool lz4_block(const uint8_t *from, int64_t bytes, uint8_t *to, int64_t to_bytes)
{
    unpacker u = {.from = from, .bytes = bytes, .to = to, .to_bytes = to_bytes};
    return unpack_block(&u) && u.done == to_bytes;
}

static uint32_t little(const uint8_t *from)
{
    return (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 |
           (uint32_t)from[3] << 24;
}

static int64_t big(const uint8_t *from)
{
    return (int64_t)from[0] << 24 | (int64_t)from[1] << 16 | (int64_t)from[2] << 8 | from[3];
}

// The flags of a frame's header.
enum { HAS_DICTIONARY = 1, HAS_CHECKSUM = 4, HAS_SIZE = 8, HAS_BLOCK_CHECKSUM = 16, IS_APART = 32 };

static bool skip_header(unpacker *u, int *flags)
{
    const int64_t left = u->bytes - u->at;
    if (left < 7 || little(u->from + u->at) != 0x184d2204) return false;
    const uint8_t *header = u->from + u->at + 4;
    *flags = header[0];
    const int64_t count = (*flags & HAS_SIZE) != 0 ? 10 : 2;
    if (*flags >> 6 != 1 || (*flags & HAS_DICTIONARY) != 0 || left < 4 + count + 1) return false;
    if ((XXH32(header, (size_t)count, 0) >> 8 & 0xff) != header[count]) return false;
    u->at += 4 + count + 1;
    return true;
}

// One block of a frame; *is_end: the mark behind the last one.
static bool frame_block(unpacker *u, int flags, bool *is_end)
{
    if (u->bytes - u->at < 4) return false;
    const uint32_t word = little(u->from + u->at);
    const int64_t count = word & 0x7fffffff, check = (flags & HAS_BLOCK_CHECKSUM) != 0 ? 4 : 0;
    const uint8_t *block = u->from + u->at + 4;
    u->at += 4;
    *is_end = word == 0;
    if (*is_end) return true;
    if (count > u->bytes - u->at - check) return false;
    if (check > 0 && XXH32(block, (size_t)count, 0) != little(block + count)) return false;
    u->at += count + check;
    if (word >> 31 == 0) {
        unpacker inner = *u;
        inner.from = block;
        inner.at = 0;
        inner.bytes = count;
        if ((flags & IS_APART) != 0) inner.begin = u->done;
        if (!unpack_block(&inner)) return false;
        u->done = inner.done;
        return true;
    }
    if (count > u->to_bytes - u->done) return false; // it is not packed
    if (count > 0) memcpy(u->to + u->done, block, (size_t)count);
    u->done += count;
    return true;
}

bool lz4_frames(const uint8_t *from, int64_t bytes, uint8_t *to, int64_t to_bytes)
{
    unpacker u = {.from = from, .bytes = bytes, .to = to, .to_bytes = to_bytes};
    while (u.at < bytes) {
        int flags = 0;
        bool is_end = false;
        u.begin = u.done;
        if (!skip_header(&u, &flags)) return false;
        while (!is_end) {
            if (!frame_block(&u, flags, &is_end)) return false;
        }
        if ((flags & HAS_CHECKSUM) == 0) continue;
        if (bytes - u.at < 4) return false;
        if (XXH32(to + u.begin, (size_t)(u.done - u.begin), 0) != little(from + u.at)) return false;
        u.at += 4;
    }
    return u.done == to_bytes;
}

static bool sized_blocks(const uint8_t *from, int64_t bytes, uint8_t *to, int64_t to_bytes)
{
    int64_t at = 0, done = 0;
    while (bytes - at >= 8) {
        const int64_t raw = big(from + at), packed = big(from + at + 4);
        at += 8;
        if (packed > bytes - at || raw > to_bytes - done) return false;
        if (!lz4_block(from + at, packed, to + done, raw)) return false;
        at += packed;
        done += raw;
    }
    return at == bytes && done == to_bytes;
}

bool lz4_hadoop(const uint8_t *from, int64_t bytes, uint8_t *to, int64_t to_bytes)
{
    return sized_blocks(from, bytes, to, to_bytes) || lz4_block(from, bytes, to, to_bytes);
}
