// Hashes: published values, and streaming in any pieces equals hashing at once.
#include "base/hash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void known_values(void **state)
{
    (void)state;
    char buffer[33];
    // XXH3 of the empty input, from xxHash's own tests.
    assert_true(hash64(NULL, 0, 0) == UINT64_C(0x2D06800538D394C2));
    assert_string_equal(hash128_text(hash128_of(NULL, 0), buffer),
                        "99aa06d3014798d86001c324468d497f");
}

static void streams_equal_whole(void **state)
{
    (void)state;
    static unsigned char data[5000];
    for (size_t i = 0; i < sizeof(data); i++) data[i] = (unsigned char)(i * 131 >> 3);
    const hash128 whole = hash128_of(data, sizeof(data));
    for (int64_t piece = 1; piece < 6000; piece = piece * 3 + 1) {
        hash_stream *s = hash_begin();
        assert_non_null(s);
        hash_add(s, NULL, 0);
        for (int64_t at = 0; at < (int64_t)sizeof(data); at += piece) {
            hash_add(s, data + at, min_i64(piece, (int64_t)sizeof(data) - at));
        }
        const hash128 got = hash_end(s);
        assert_true(got.high == whole.high && got.low == whole.low);
    }
}

static void one_bit_changes_all(void **state)
{
    (void)state;
    unsigned char data[64] = {0};
    const uint64_t before = hash64(data, 64, 1);
    for (int bit = 0; bit < 512; bit++) {
        data[bit / 8] ^= (unsigned char)(1 << bit % 8);
        const int changed = __builtin_popcountll(before ^ hash64(data, 64, 1));
        assert_true(changed > 8 && changed < 56);
        data[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    assert_true(before != hash64(data, 64, 2));
    assert_true(before != hash64(data, 63, 1));
}

static void crc32c_of_pieces(void **state)
{
    (void)state;
    static unsigned char data[20011];
    assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283u); // RFC 3720, B.4
    assert_int_equal(crc32c(0, data, 32), 0x8a9136aau);
    for (int64_t i = 0; i < COUNT_OF(data); i++) data[i] = (unsigned char)(i * 73 + i / 251);
    for (int64_t n = 0; n < COUNT_OF(data); n += 1 + n / 7) {
        const uint32_t want = crc32c_slow(0, data, n);
        assert_int_equal(crc32c(0, data, n), want);
        assert_int_equal(crc32c_plain(0, data, n), want);
        assert_int_equal(crc32c(crc32c(0, data, n / 3), data + n / 3, n - n / 3), want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_values),
        cmocka_unit_test(streams_equal_whole),
        cmocka_unit_test(one_bit_changes_all),
        cmocka_unit_test(crc32c_of_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
