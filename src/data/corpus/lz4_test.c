// LZ4 blocks and frames: random sequences against what they stand for, every cut and damage.
#include "base/rng.h"
#include "data/corpus/lz4.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include <cmocka.h>

enum { RAW_BYTES = 4096, PACKED_BYTES = 8192 };
static uint8_t raw[RAW_BYTES], packed[PACKED_BYTES];
static int64_t raw_count, packed_count;
static bool is_raw; // the last data that were unpacked are those that were packed

static void put(uint8_t byte)
{
    assert_true(packed_count < PACKED_BYTES);
    packed[packed_count++] = byte;
}

static void put_length(int64_t length)
{
    if (length < 15) return;
    for (length -= 15; length >= 255; length -= 255) put(255);
    put((uint8_t)length);
}

// One sequence; copy 0: the last one.
static void put_sequence(uint64_t seed, int64_t literals, int64_t back, int64_t copy)
{
    const int64_t low = copy == 0 ? 0 : copy - 4;
    put((uint8_t)(min_i64(literals, 15) << 4 | min_i64(low, 15)));
    put_length(literals);
    for (int64_t i = 0; i < literals; i++) {
        raw[raw_count] = (uint8_t)rng_word(3, seed, (uint64_t)raw_count);
        put(raw[raw_count++]);
    }
    if (copy == 0) return;
    put((uint8_t)back);
    put((uint8_t)(back >> 8));
    put_length(low);
    for (int64_t i = 0; i < copy; i++, raw_count++) raw[raw_count] = raw[raw_count - back];
}

// A random block, behind what `raw` holds already.
static void put_block(uint64_t seed, int64_t begin)
{
    const int64_t sequences = rng_word(4, seed, 0) % 8;
    for (int64_t k = 0; k < sequences; k++) {
        const uint32_t pick = rng_word(5, seed, (uint64_t)k);
        const int64_t literals = pick % 3 == 0 ? pick / 3 % 400 : pick / 3 % 18;
        const int64_t reach = raw_count + literals - begin;
        if (reach == 0) continue;
        const uint32_t more = rng_word(6, seed, (uint64_t)k);
        put_sequence(seed, literals, 1 + more % reach, 4 + more / 7 % (more % 3 == 0 ? 300 : 20));
    }
    put_sequence(seed, rng_word(7, seed, 0) % 20, 0, 0);
}

// Copies on the heap, where the sanitizer finds a step beyond the end.
static bool unpack(bool (*by)(const uint8_t *, int64_t, uint8_t *, int64_t), int64_t from_bytes,
                   int64_t to_bytes)
{
    uint8_t *from = malloc((size_t)from_bytes + 1), *to = malloc((size_t)to_bytes + 1);
    assert_true(from != NULL && to != NULL);
    memcpy(from, packed, (size_t)from_bytes);
    to[to_bytes] = 0x5a;
    const bool good = by(from, from_bytes, to, to_bytes);
    assert_int_equal(to[to_bytes], 0x5a);
    is_raw = good && to_bytes == raw_count && memcmp(to, raw, (size_t)raw_count) == 0;
    free(from);
    free(to);
    return good;
}

static void test_blocks(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        raw_count = packed_count = 0;
        put_block(seed, 0);
        assert_true(unpack(lz4_block, packed_count, raw_count) && is_raw);
        assert_true(unpack(lz4_hadoop, packed_count, raw_count) && is_raw); // no sizes
        assert_false(unpack(lz4_block, packed_count, raw_count + 1));
        if (raw_count > 0) assert_false(unpack(lz4_block, packed_count, raw_count - 1));
        for (int64_t cut = 0; cut < packed_count; cut++) {
            assert_false(unpack(lz4_block, cut, raw_count));
        }
    }
}

static void put_word(uint32_t word)
{
    for (int i = 0; i < 4; i++) put((uint8_t)(word >> 8 * i));
}

static void put_frame(uint64_t seed)
{
    const int flags = (int)(rng_word(8, seed, 0) & 0x34); // apart, checksums
    const int64_t begin = raw_count;
    put_word(0x184d2204);
    const int64_t header = packed_count;
    put((uint8_t)(0x40 | flags));
    put(0x40);
    put((uint8_t)(XXH32(packed + header, 2, 0) >> 8));
    for (uint64_t k = 0; k < 1 + seed % 3; k++) {
        const int64_t at = packed_count;
        put_word(0);
        if ((seed + k) % 4 == 3) { // not packed
            for (int64_t i = 0; i < 5; i++) put(raw[raw_count++] = (uint8_t)i);
        } else {
            put_block(8 * seed + k, (flags & 0x20) != 0 ? raw_count : begin);
        }
        const int64_t count = packed_count - at - 4;
        for (int i = 0; i < 4; i++) packed[at + i] = (uint8_t)(count >> 8 * i);
        if ((seed + k) % 4 == 3) packed[at + 3] |= 0x80;
        if ((flags & 0x10) != 0) put_word(XXH32(packed + at + 4, (size_t)count, 0));
    }
    put_word(0);
    if ((flags & 4) != 0) put_word(XXH32(raw + begin, (size_t)(raw_count - begin), 0));
}

static void test_frames(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        raw_count = packed_count = 0;
        put_frame(seed);
        const int64_t first = packed_count;
        if (seed % 5 == 0) put_frame(seed + 1);
        assert_true(unpack(lz4_frames, packed_count, raw_count) && is_raw);
        assert_false(unpack(lz4_frames, packed_count, raw_count + 1));
        for (int64_t cut = 0; cut < packed_count; cut++) {
            if (cut != first) (void)unpack(lz4_frames, cut, raw_count);
        }
        assert_false(unpack(lz4_frames, packed_count - 1, raw_count));
        packed[6] ^= 1; // the header's checksum
        assert_false(unpack(lz4_frames, packed_count, raw_count));
        packed[6] ^= 1;
        for (int64_t i = 7; i < packed_count; i++) { // any answer, within its buffers
            packed[i] ^= (uint8_t)(1 + seed % 255);
            (void)unpack(lz4_frames, packed_count, raw_count);
            packed[i] ^= (uint8_t)(1 + seed % 255);
        }
    }
}

static void test_hadoop_blocks(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 100; seed++) {
        raw_count = packed_count = 0;
        for (uint64_t k = 0; k < 1 + seed % 3; k++) {
            const int64_t at = packed_count, begin = raw_count;
            for (int i = 0; i < 8; i++) put(0);
            put_block(4 * seed + k, begin);
            for (int i = 0; i < 4; i++) {
                packed[at + i] = (uint8_t)((raw_count - begin) >> (24 - 8 * i));
                packed[at + 4 + i] = (uint8_t)((packed_count - at - 8) >> (24 - 8 * i));
            }
        }
        assert_true(unpack(lz4_hadoop, packed_count, raw_count) && is_raw);
        assert_false(unpack(lz4_hadoop, packed_count - 1, raw_count));
        assert_false(unpack(lz4_hadoop, packed_count, raw_count + 1));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_frames),
        cmocka_unit_test(test_hadoop_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
