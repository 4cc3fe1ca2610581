// Random numbers: Philox against published and generated answers, deviates against golden bits and
// their distribution, permutations for bijection.
#include "base/format/json.h"
#include "base/rng.h"
#include "fixtures/base/test_paths.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

// The known answers of Random123, kat_vectors, philox4x32 10.
static void known_answers(void **state)
{
    (void)state;
    static const uint32_t cases[3][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d,
         0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09,
         0x94fdcceb, 0x5001e420, 0x24126ea1},
    };
    for (int i = 0; i < 3; i++) {
        const philox_words p = philox4x32_10(&cases[i][0], &cases[i][4]);
        assert_memory_equal(p.w, &cases[i][6], sizeof(p.w));
    }
}

static void words_of(const json *list, uint32_t *out)
{
    for (int64_t i = 0; i < json_count(list); i++) {
        out[i] = (uint32_t)strtoul(json_text(json_at(list, i), ""), NULL, 16);
    }
}

static void equals_reference(void **state)
{
    (void)state;
    char path[1024];
    json *root;
    test_shared("golden/ops/philox4x32.json", path);
    if (json_read(host_real(), path, 1 << 20, &root) != ST_OK) {
        printf("skipped, no reference data: %s\n", error_last()->text);
        skip();
    }
    const json *cases = json_get(root, "cases");
    assert_true(json_count(cases) > 3);
    for (int64_t i = 0; i < json_count(cases); i++) {
        uint32_t counter[4], key[2], want[4];
        words_of(json_get(json_at(cases, i), "counter"), counter);
        words_of(json_get(json_at(cases, i), "key"), key);
        words_of(json_get(json_at(cases, i), "out"), want);
        const philox_words got = philox4x32_10(counter, key);
        assert_memory_equal(got.w, want, sizeof(want));
    }
    json_free(root);
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

// Golden bits: every machine, compiler and optimization level must make these.
static void normal_golden_bits(void **state)
{
    (void)state;
    static const struct {
        uint32_t a, b, bits;
    } cases[] = {
        {0x00000000, 0x00000000, 0x40d87047}, {0xffffffff, 0x00000000, 0x37800000},
        {0x00000000, 0x80000000, 0xc0d87047}, {0x00000001, 0x00000001, 0x40d32d4c},
        {0x12345678, 0x9abcdef0, 0xbfe92f38}, {0xdeadbeef, 0x20000000, 0x3ebf31cb},
        {0x80000000, 0x1fffffff, 0x3f55224d}, {0x7fffffff, 0xffffffff, 0x3f96b55f},
        {0x00000003, 0x60000000, 0xc0926401}, {0xb504f333, 0xa0000001, 0xbf16b55f},
        {0xb504f334, 0xc0000000, 0x00000000}, {0x00ff00ff, 0x3fffffff, 0x31a77431},
    };
    for (int64_t i = 0; i < COUNT_OF(cases); i++) {
        assert_int_equal(bits_of(rng_normals(cases[i].a, cases[i].b).cosine), cases[i].bits);
    }
    const uint64_t key = rng_name_key("model.layers.0.mlp.up_proj.weight");
    assert_true(key == UINT64_C(0x8f13670c6bd84fa7));
    static const uint32_t tensor[] = {0x3ebf54d1, 0x4004f6f1, 0x3e9d5ce3,
                                      0x3f6bf4d9, 0x3d32d84c, 0xbf21c6e7};
    for (int64_t i = 0; i < COUNT_OF(tensor); i++) {
        assert_int_equal(bits_of(rng_tensor_normal(1337, key, (i << 30) + i)), tensor[i]);
    }
}

// Against libm: the deviate is exact in the last bit of a float, or off by one.
static void normal_is_box_muller(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 200000; i++) {
        const uint32_t a = rng_word(7, 1, i), b = rng_word(7, 2, i);
        const double u = ((double)a + 0.5) * 0x1p-32, v = (double)b * 0x1p-32;
        const double want = sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * v);
        const double second = sqrt(-2 * log(u)) * sin(2 * 3.14159265358979323846 * v);
        const rng_pair got = rng_normals(a, b);
        assert_true(fabs((double)got.cosine - want) <= 0.5001 * 0x1p-23 * fabs(want) + 1e-14);
        assert_true(fabs((double)got.sine - second) <= 0.5001 * 0x1p-23 * fabs(second) + 1e-14);
    }
}

// Ranges give the same values as single elements, wherever they start and end.
static void ranges_are_elements(void **state)
{
    (void)state;
    static float got[300];
    const int64_t begins[] = {0, 1, 31, 32, (INT64_C(1) << 34) - 40, (INT64_C(1) << 40) + 3};
    for (int64_t b = 0; b < COUNT_OF(begins); b++) {
        for (int64_t count = 0; count <= 300; count += 1 + count / 3) {
            rng_tensor_normals(77, 99, begins[b], count, got);
            for (int64_t i = 0; i < count; i++) {
                assert_int_equal(bits_of(got[i]),
                                 bits_of(rng_tensor_normal(77, 99, begins[b] + i)));
            }
        }
    }
    static float many[1 << 16];
    rng_tensor_normals(5, 6, 0, COUNT_OF(many), many);
    for (int64_t i = 0; i < COUNT_OF(many); i++) {
        assert_int_equal(bits_of(many[i]), bits_of(rng_tensor_normal(5, 6, i)));
    }
}

static void normal_distribution(void **state)
{
    (void)state;
    const int64_t count = 1000000;
    const uint64_t key = rng_name_key("w");
    double sum = 0, sum2 = 0, sum3 = 0, sum4 = 0, next = 0, last = 0;
    int64_t beyond[5] = {0};
    for (int64_t i = 0; i < count; i++) {
        const double x = (double)rng_tensor_normal(3, key, i);
        sum += x;
        sum2 += x * x;
        sum3 += x * x * x;
        sum4 += x * x * x * x;
        next += x * last;
        last = x;
        for (int s = 1; s < 5; s++) beyond[s] += fabs(x) > s;
    }
    const double n = (double)count;
    assert_true(fabs(sum / n) < 0.005);
    assert_true(fabs(sum2 / n - 1) < 0.007);
    assert_true(fabs(sum3 / n) < 0.02);
    assert_true(fabs(sum4 / n - 3) < 0.05);
    assert_true(fabs(next / n) < 0.005); // neighbours are independent
    for (int s = 1; s < 5; s++) {
        const double want = n * erfc(s / sqrt(2.0));
        assert_true(fabs((double)beyond[s] - want) < 5 * sqrt(want) + 1);
    }
    // The ends of the range of both words.
    assert_true(fabs((double)rng_normals(0, 0).cosine - 6.7637) < 1e-3);
    assert_true((double)rng_normals(0xffffffff, 0).cosine > 0 &&
                (double)rng_normals(0xffffffff, 0).cosine < 1e-4);
    assert_true(fabs((double)rng_normals(0, 0x80000000).cosine + 6.7637) < 1e-3);
    assert_true((double)rng_normals(0, 0x40000000).cosine == 0);
    assert_true(rng_uniform(0) == 0.0f && rng_uniform(0xffffffff) < 1.0f);
}

static void names_and_streams_differ(void **state)
{
    (void)state;
    // XXH64 of the empty text, from its specification.
    assert_true(rng_name_key("") == UINT64_C(0xEF46DB3751D8E999));
    assert_true(rng_name_key("a") != rng_name_key("b"));
    const uint32_t w = rng_word(1, 2, 3);
    assert_true(w != rng_word(2, 2, 3) && w != rng_word(1, 3, 3) && w != rng_word(1, 2, 4));
    assert_true(w == rng_word(1, 2, 3));
}

static void permutations_are_bijective(void **state)
{
    (void)state;
    static char seen[70000];
    for (int64_t count = 1; count <= 300; count++) {
        memset(seen, 0, sizeof(seen));
        for (int64_t i = 0; i < count; i++) {
            const int64_t at = rng_permute(5, 9, count, i);
            assert_true(at >= 0 && at < count && seen[at] == 0);
            seen[at] = 1;
        }
    }
    const int64_t large[] = {1023, 1024, 1025, 65537};
    for (int64_t c = 0; c < COUNT_OF(large); c++) {
        memset(seen, 0, sizeof(seen));
        int64_t fixed = 0;
        for (int64_t i = 0; i < large[c]; i++) {
            const int64_t at = rng_permute(5, (uint64_t)c, large[c], i);
            assert_true(at >= 0 && at < large[c] && seen[at] == 0);
            seen[at] = 1;
            fixed += at == i;
        }
        assert_true(fixed < 10); // one is expected
    }
    // Too large to mark all: the images of a stretch are in range and distinct.
    const int64_t huge[] = {(INT64_C(1) << 40) + 7, INT64_MAX};
    for (int64_t c = 0; c < COUNT_OF(huge); c++) {
        int64_t images[200];
        for (int64_t i = 0; i < 200; i++) {
            images[i] = rng_permute(1, 1, huge[c], i);
            assert_true(images[i] >= 0 && images[i] < huge[c]);
            for (int64_t j = 0; j < i; j++) assert_true(images[i] != images[j]);
        }
    }
}

// Over many seeds each item takes each place about equally often.
static void permutations_are_even(void **state)
{
    (void)state;
    enum { COUNT = 6, SEEDS = 6000 };
    int64_t hits[COUNT][COUNT] = {{0}};
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        for (int64_t i = 0; i < COUNT; i++) hits[i][rng_permute(seed, 3, COUNT, i)]++;
    }
    const double mean = (double)SEEDS / COUNT;
    for (int i = 0; i < COUNT; i++) {
        for (int j = 0; j < COUNT; j++) {
            assert_true(fabs((double)hits[i][j] - mean) < 6 * sqrt(mean));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),
        cmocka_unit_test(equals_reference),
        cmocka_unit_test(normal_golden_bits),
        cmocka_unit_test(normal_is_box_muller),
        cmocka_unit_test(ranges_are_elements),
        cmocka_unit_test(normal_distribution),
        cmocka_unit_test(names_and_streams_differ),
        cmocka_unit_test(permutations_are_bijective),
        cmocka_unit_test(permutations_are_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
