// Checks the published vectors: FIPS 180-4 and NIST CAVP (SHA-256), RFC 4231 (HMAC), RFC 5869
// (HKDF). Further tests cover what the vectors do not: any split of the input gives the same hash;
// comparison; wiping.
#include "control/crypto.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TEXT_MAX = 256 };

typedef struct blob {
    uint8_t bytes[TEXT_MAX];
    int64_t count;
} blob;

static blob from_hex(const char *hex)
{
    blob b = {.count = (int64_t)strlen(hex) / 2};
    assert_true(b.count <= TEXT_MAX);
    for (int64_t i = 0; i < b.count; i++) {
        const char digits[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        b.bytes[i] = (uint8_t)strtoul(digits, NULL, 16);
    }
    return b;
}

static void check_hex(const void *bytes, const char *hex)
{
    const blob wanted = from_hex(hex);
    assert_memory_equal(bytes, wanted.bytes, (size_t)wanted.count);
}

static void test_sha256_vectors(void **state)
{
    (void)state;
    static const struct {
        const char *text; // hex
        const char *hash;
    } rows[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"616263", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"6162636462636465636465666465666765666768666768696768696a68696a6b696a6b6c6a6b6c6d6b6c6d6e"
         "6c6d6e6f6d6e6f706e6f7071",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"d3", "28969cdfa74a12c82f3bad960b0b000aca2ac329deea5c2328ebc6f2ba9802c1"},
        {"11af", "5ca7133fa735326081558ac312c620eeca9970d1e70a4b95533d956f072d1f98"},
        {"b4190e", "dff2e73091f6c05e528896c4c831b9448653dc2ff043528f6769437bc7b975c2"},
        {"74ba2521", "b16aa56be3880d18cd41e68384cf1ec8c17680c45a02b1575dc1518923ae8b0e"},
    };
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        const blob b = from_hex(rows[i].text);
        uint8_t out[CONTROL_HASH_BYTES];
        control_sha256_of(b.bytes, b.count, out);
        check_hex(out, rows[i].hash);
    }
}

static void test_sha256_million(void **state)
{
    (void)state;
    control_sha256 s;
    uint8_t out[CONTROL_HASH_BYTES], piece[1000];
    memset(piece, 'a', sizeof(piece));
    control_sha256_begin(&s);
    for (int i = 0; i < 1000; i++) control_sha256_add(&s, piece, sizeof(piece));
    control_sha256_end(&s, out);
    check_hex(out, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void test_sha256_any_cut(void **state)
{
    (void)state;
    uint8_t text[200], whole[CONTROL_HASH_BYTES], cut[CONTROL_HASH_BYTES];
    for (int i = 0; i < 200; i++) text[i] = (uint8_t)(i * 7);
    for (int64_t length = 0; length <= 200; length++) {
        control_sha256_of(text, length, whole);
        for (int64_t at = 0; at <= length; at += 13) {
            control_sha256 s;
            control_sha256_begin(&s);
            control_sha256_add(&s, text, at);
            control_sha256_add(&s, text + at, length - at);
            control_sha256_end(&s, cut);
            assert_memory_equal(whole, cut, sizeof(whole));
        }
    }
}

static void test_hmac_vectors(void **state)
{
    (void)state;
    char key_aa[2 * 131 + 1];
    for (int i = 0; i < 262; i++) key_aa[i] = 'a';
    key_aa[262] = '\0';
    char data_dd[101], data_cd[101];
    for (int i = 0; i < 50; i++) {
        memcpy(data_dd + 2 * i, "dd", 3);
        memcpy(data_cd + 2 * i, "cd", 3);
    }
    const struct {
        const char *key, *text, *mac;
    } rows[] = {
        // RFC 4231, test cases 1 to 4, 6 and 7
        {"0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b", "4869205468657265",
         "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
        {"4a656665", "7768617420646f2079612077616e7420666f72206e6f7468696e673f",
         "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
        {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", data_dd,
         "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
        {"0102030405060708090a0b0c0d0e0f10111213141516171819", data_cd,
         "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"},
        {key_aa,
         "54657374205573696e67204c6172676572205468616e20426c6f636b2d53697a65204b6579202d2048617368"
         "204b6579204669727374",
         "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
        {key_aa,
         "5468697320697320612074657374207573696e672061206c6172676572207468616e20626c6f636b2d73697a"
         "65206b657920616e642061206c6172676572207468616e20626c6f636b2d73697a6520646174612e20546865"
         "206b6579206e6565647320746f20626520686173686564206265666f7265206265696e672075736564206279"
         "2074686520484d414320616c676f726974686d2e",
         "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"},
    };
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        const blob key = from_hex(rows[i].key), text = from_hex(rows[i].text);
        uint8_t out[CONTROL_HASH_BYTES];
        control_hmac h;
        control_hmac_begin(&h, key.bytes, key.count);
        control_hmac_add(&h, text.bytes, text.count / 2);
        control_hmac_add(&h, text.bytes + text.count / 2, text.count - text.count / 2);
        control_hmac_end(&h, out);
        check_hex(out, rows[i].mac);
    }
}

static void test_hkdf_vectors(void **state)
{
    (void)state;
    static const struct {
        const char *secret, *salt, *info, *out;
    } rows[] = {
        // RFC 5869, A.1 to A.3
        {"0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b", "000102030405060708090a0b0c",
         "f0f1f2f3f4f5f6f7f8f9",
         "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"},
        {"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c"
         "2d2e2f303132333435363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f",
         "606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f808182838485868788898a8b8c"
         "8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeaf",
         "b0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdc"
         "dddedfe0e1e2e3e4e5e6e7e8e9eaebecedeeeff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",
         "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e"
         "590e09da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87"},
        {"0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b", "", "",
         "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"},
    };
    for (int64_t i = 0; i < COUNT_OF(rows); i++) {
        const blob secret = from_hex(rows[i].secret), salt = from_hex(rows[i].salt);
        const blob info = from_hex(rows[i].info), wanted = from_hex(rows[i].out);
        uint8_t out[TEXT_MAX];
        control_hkdf((control_span){salt.bytes, salt.count},
                     (control_span){secret.bytes, secret.count},
                     (control_span){info.bytes, info.count}, out, wanted.count);
        assert_memory_equal(out, wanted.bytes, (size_t)wanted.count);
    }
}

static void test_equal_and_wipe(void **state)
{
    (void)state;
    uint8_t a[32], b[32], zero[32] = {0};
    for (int i = 0; i < 32; i++) a[i] = b[i] = (uint8_t)(i + 1);
    assert_true(control_equal(a, b, 32));
    for (int bit = 0; bit < 256; bit++) {
        b[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_false(control_equal(a, b, 32));
        b[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    assert_true(control_equal(a, b, 0));
    control_wipe(a, sizeof(a));
    assert_memory_equal(a, zero, sizeof(a));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sha256_vectors), cmocka_unit_test(test_sha256_million),
        cmocka_unit_test(test_sha256_any_cut), cmocka_unit_test(test_hmac_vectors),
        cmocka_unit_test(test_hkdf_vectors),   cmocka_unit_test(test_equal_and_wipe),
    };
    return cmocka_run_group_tests_name("control/crypto", tests, NULL, NULL);
}
