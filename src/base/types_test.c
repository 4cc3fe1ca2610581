// Casts: every pattern of the reference file, and properties over every narrow pattern.
#include "base/format/safetensors.h"
#include "base/types.h"
#include "fixtures/base/test_paths.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

typedef uint32_t (*cast)(float x);

static uint32_t to_bf16(float x)
{
    return bf16_from_f32(x);
}
static uint32_t to_bf16_zero(float x)
{
    return bf16_from_f32_toward_zero(x);
}
static uint32_t to_f16(float x)
{
    return f16_from_f32(x);
}
static uint32_t to_f16_zero(float x)
{
    return f16_from_f32_toward_zero(x);
}
static uint32_t to_e4m3_saturating(float x)
{
    return f8e4m3_from_f32(x, ROUND_NEAREST_EVEN, OVERFLOW_SATURATE, 0);
}
static uint32_t to_e4m3_overflowing(float x)
{
    return f8e4m3_from_f32(x, ROUND_NEAREST_EVEN, OVERFLOW_TO_NAN_OR_INF, 0);
}
static uint32_t to_e5m2_saturating(float x)
{
    return f8e5m2_from_f32(x, ROUND_NEAREST_EVEN, OVERFLOW_SATURATE, 0);
}
static uint32_t to_e5m2_overflowing(float x)
{
    return f8e5m2_from_f32(x, ROUND_NEAREST_EVEN, OVERFLOW_TO_NAN_OR_INF, 0);
}

static float from_bits(dtype type, uint32_t bits)
{
    if (type == DTYPE_BF16) return f32_from_bf16((uint16_t)bits);
    if (type == DTYPE_F16) return f32_from_f16((uint16_t)bits);
    if (type == DTYPE_F8E4M3) return f32_from_f8e4m3((uint8_t)bits);
    return f32_from_f8e5m2((uint8_t)bits);
}

typedef struct column {
    const char *name;
    cast cast;
    dtype type;
} column;

static const column columns[] = {
    {"bf16_bits", to_bf16, DTYPE_BF16},
    {"bf16_toward_zero_bits", to_bf16_zero, DTYPE_BF16},
    {"fp16_bits", to_f16, DTYPE_F16},
    {"fp16_toward_zero_bits", to_f16_zero, DTYPE_F16},
    {"e4m3fn_bits", to_e4m3_saturating, DTYPE_F8E4M3}, // as torch casts
    {"e4m3fn_saturating_bits", to_e4m3_saturating, DTYPE_F8E4M3},
    {"e4m3fn_overflowing_bits", to_e4m3_overflowing, DTYPE_F8E4M3},
    {"e5m2_bits", to_e5m2_overflowing, DTYPE_F8E5M2}, // as torch casts
    {"e5m2_saturating_bits", to_e5m2_saturating, DTYPE_F8E5M2},
    {"e5m2_overflowing_bits", to_e5m2_overflowing, DTYPE_F8E5M2},
};

static void check_column(const safetensors *s, const safetensors_entry *from, const column *c)
{
    const safetensors_entry *to = safetensors_find(s, c->name);
    assert_non_null(to);
    assert_int_equal(from->dims[0], to->dims[0]);
    const int64_t width = dtype_bytes(to->type);
    for (int64_t i = 0; i < from->dims[0]; i++) {
        uint32_t in, want = 0;
        memcpy(&in, (const char *)from->data + 4 * i, 4);
        memcpy(&want, (const char *)to->data + width * i, (size_t)width);
        const uint32_t got = c->cast(float_of(in));
        const bool both_nan = isnan(from_bits(c->type, got)) && isnan(from_bits(c->type, want));
        if (got != want && !both_nan) {
            fail_msg("%s: 0x%08x gives 0x%x, 0x%x expected", c->name, in, got, want);
        }
    }
}

static void casts_meet_reference(void **state)
{
    (void)state;
    char path[1024];
    safetensors *s;
    test_shared("golden/ops/casts.safetensors", path);
    if (safetensors_open_mapped(host_real(), path, &s) != ST_OK) {
        printf("skipped, no reference data: %s\n", error_last()->text);
        skip();
    }
    const safetensors_entry *from = safetensors_find(s, "float32_bits");
    assert_non_null(from);
    for (int64_t i = 0; i < COUNT_OF(columns); i++) check_column(s, from, &columns[i]);
    // The test checks every column of bits in the file.
    for (int64_t i = 0; i < safetensors_count(s); i++) {
        const char *name = safetensors_at(s, i)->name;
        bool known = strstr(name, "_bits") == NULL || strcmp(name, "float32_bits") == 0;
        for (int64_t c = 0; c < COUNT_OF(columns); c++) known |= strcmp(name, columns[c].name) == 0;
        if (!known) fail_msg("column %s is not checked", name);
    }
    const char *tables[] = {"e4m3fn_values", "e5m2_values"};
    for (int t = 0; t < 2; t++) {
        const safetensors_entry *values = safetensors_find(s, tables[t]);
        assert_non_null(values);
        for (uint32_t i = 0; i < 256; i++) {
            const float want = (float)dtype_load(DTYPE_F32, values->data, i);
            const float got = from_bits(t == 0 ? DTYPE_F8E4M3 : DTYPE_F8E5M2, i);
            assert_true(bits_of(got) == bits_of(want) || (isnan(got) && isnan(want)));
        }
    }
    safetensors_close(s);
}

static uint32_t random_word(uint64_t *x)
{
    *x = *x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*x >> 32);
}

static uint32_t cast_by(dtype type, float x, rounding round, uint32_t r)
{
    switch (round) {
    case ROUND_NEAREST_EVEN:
        if (type == DTYPE_BF16) return bf16_from_f32(x);
        if (type == DTYPE_F16) return f16_from_f32(x);
        break;
    case ROUND_TOWARD_ZERO:
        if (type == DTYPE_BF16) return bf16_from_f32_toward_zero(x);
        if (type == DTYPE_F16) return f16_from_f32_toward_zero(x);
        break;
    case ROUND_STOCHASTIC:
        if (type == DTYPE_BF16) return bf16_from_f32_stochastic(x, r);
        if (type == DTYPE_F16) return f16_from_f32_stochastic(x, r);
        break;
    }
    return type == DTYPE_F8E4M3 ? f8e4m3_from_f32(x, round, OVERFLOW_TO_NAN_OR_INF, r)
                                : f8e5m2_from_f32(x, round, OVERFLOW_TO_NAN_OR_INF, r);
}

static const dtype narrow_types[] = {DTYPE_BF16, DTYPE_F16, DTYPE_F8E4M3, DTYPE_F8E5M2};

// A value that the type holds comes back unchanged under every rounding, whatever the random bits.
static void every_pattern_round_trips(void **state)
{
    (void)state;
    uint64_t seed = 1;
    for (int64_t t = 0; t < COUNT_OF(narrow_types); t++) {
        const dtype type = narrow_types[t];
        for (uint32_t bits = 0; bits < 1U << (8 * dtype_bytes(type)); bits++) {
            const float x = from_bits(type, bits);
            for (int round = 0; round < 3; round++) {
                const uint32_t got = cast_by(type, x, (rounding)round, random_word(&seed));
                if (isnan(x)) {
                    assert_true(isnan(from_bits(type, got)));
                } else {
                    assert_int_equal(got, bits);
                }
            }
            uint16_t stored = 0; // e5m2 keeps infinity, e4m3 has none
            dtype_store(type, &stored, 0, (double)x);
            assert_true(isnan(x) || stored == bits);
            const double loaded = dtype_load(type, &stored, 0);
            assert_true(isnan(x) ? isnan(loaded) : loaded == (double)x);
        }
    }
}

// The neighbours of x in the type: every rounding must give one of them.
static void nearest_is_nearest(void **state)
{
    (void)state;
    uint64_t seed = 2;
    for (int64_t t = 0; t < COUNT_OF(narrow_types); t++) {
        const dtype type = narrow_types[t];
        const uint32_t sign = 1U << (8 * dtype_bytes(type) - 1);
        for (int i = 0; i < 200000; i++) {
            const float x = float_of(random_word(&seed));
            if (isnan(x)) continue;
            const uint32_t cut = cast_by(type, x, ROUND_TOWARD_ZERO, 0);
            const uint32_t near = cast_by(type, x, ROUND_NEAREST_EVEN, 0);
            const uint32_t some = cast_by(type, x, ROUND_STOCHASTIC, random_word(&seed));
            // Codes of one sign are consecutive integers: the neighbours are cut and cut + 1.
            if (isinf(x)) continue;
            const bool large =
                fabsf(x) > fabsf(from_bits(type, cut)) && !isfinite(from_bits(type, cut + 1));
            assert_true((near & sign) == (cut & sign));
            if (large) continue;
            assert_true(near == cut || near == cut + 1);
            assert_true(some == cut || some == cut + 1);
            const double below = fabs((double)x - (double)from_bits(type, cut));
            const double above = fabs((double)from_bits(type, cut + 1) - (double)x);
            const uint32_t want = below < above ? cut : below > above ? cut + 1 : cut + (cut & 1);
            assert_int_equal(near, want);
        }
    }
}

// All 2^16 low words for bf16, a fine grid for the others: the mean of the results is x.
static void stochastic_is_unbiased(void **state)
{
    (void)state;
    const float values[] = {1.2345678f, -3.1f, 1e-3f, 7.3e-6f, 2e-7f, 1.1e-9f, 100.7f, -0.0021f};
    for (int64_t t = 0; t < COUNT_OF(narrow_types); t++) {
        const dtype type = narrow_types[t];
        for (int64_t v = 0; v < COUNT_OF(values); v++) {
            const float x = values[v];
            const uint32_t cut = cast_by(type, x, ROUND_TOWARD_ZERO, 0);
            const double low = (double)from_bits(type, cut);
            const double step = (double)from_bits(type, cut + 1) - low;
            const uint32_t count = 1 << 16;
            double up = 0;
            for (uint32_t i = 0; i < count; i++) {
                // Every low half once; the high half is a permutation of it.
                const uint32_t r = i | (i * 40503U & 0xffff) << 16;
                up += cast_by(type, x, ROUND_STOCHASTIC, r) != cut;
            }
            const double want = ((double)x - low) / step;
            assert_true(fabs(up / count - want) < 1e-3);
        }
    }
}

// A double goes to the narrow type in one rounding: two roundings through fp32 would make these
// ties.
static void store_rounds_once(void **state)
{
    (void)state;
    uint16_t bits;
    dtype_store(DTYPE_BF16, &bits, 0, 1.0 + 0x1p-8 + 0x1p-40);
    assert_int_equal(bits, 0x3f81);
    dtype_store(DTYPE_BF16, &bits, 0, -(1.0 + 0x1p-7 + 0x1p-8 - 0x1p-40));
    assert_int_equal(bits, 0xbf81);
    dtype_store(DTYPE_F16, &bits, 0, 1.0 + 0x1p-11 + 0x1p-50);
    assert_int_equal(bits, 0x3c01);
    dtype_store(DTYPE_F16, &bits, 0, 0x1p-25 + 0x1p-60);
    assert_int_equal(bits, 1);
    dtype_store(DTYPE_F16, &bits, 0, 1e300);
    assert_int_equal(bits, 0x7c00);
    uint8_t byte;
    dtype_store(DTYPE_F8E4M3, &byte, 0, 1e300);
    assert_int_equal(byte, 0x7e);
}

static void integers_saturate(void **state)
{
    (void)state;
    const struct {
        dtype type;
        double in, out;
    } cases[] = {
        {DTYPE_U8, 300, 255},
        {DTYPE_U8, -3, 0},
        {DTYPE_U8, 2.5, 2},
        {DTYPE_U8, 3.5, 4},
        {DTYPE_I8, -129, -128},
        {DTYPE_I16, 1e9, 32767},
        {DTYPE_U16, 65536, 65535},
        {DTYPE_I32, -3e9, -2147483648.0},
        {DTYPE_U32, 5e9, 4294967295.0},
        {DTYPE_I64, 1e30, 0x1p63},
        {DTYPE_I64, -1e30, -0x1p63},
        {DTYPE_U64, 1e30, 0x1p64},
        {DTYPE_U64, -1, 0},
        {DTYPE_BOOL, -0.5, 1},
        {DTYPE_F32, 0.1, (double)0.1f},
        {DTYPE_F64, 0.1, 0.1},
    };
    for (int64_t i = 0; i < COUNT_OF(cases); i++) {
        char memory[3 * 8 + 1];
        dtype_store(cases[i].type, memory + 1, 2, cases[i].in); // unaligned on purpose
        assert_true(dtype_load(cases[i].type, memory + 1, 2) == cases[i].out);
        dtype_store(cases[i].type, memory, 0, (double)NAN);
    }
}

static void names_and_sizes(void **state)
{
    (void)state;
    for (int i = 0; i < DTYPE_COUNT; i++) {
        dtype found = DTYPE_COUNT;
        assert_true(dtype_parse(dtype_name((dtype)i), &found));
        assert_int_equal(found, i);
        assert_true(dtype_parse(dtype_safetensors_name((dtype)i), &found));
        assert_int_equal(found, i);
        assert_true(dtype_bytes((dtype)i) >= 1 && dtype_bytes((dtype)i) <= 8);
    }
    dtype none;
    assert_false(dtype_parse("float", &none));
    assert_false(dtype_parse("", &none));
}

static void checked_sizes(void **state)
{
    (void)state;
    int64_t out;
    assert_true(size_mul(1 << 20, 1 << 20, &out) && out == INT64_C(1) << 40);
    assert_true(size_mul(0, INT64_MAX, &out) && out == 0);
    assert_false(size_mul(INT64_C(1) << 32, INT64_C(1) << 31, &out));
    assert_false(size_mul(-1, 1, &out));
    assert_true(size_add(INT64_MAX - 1, 1, &out) && out == INT64_MAX);
    assert_false(size_add(INT64_MAX, 1, &out));
    assert_false(size_add(1, -1, &out));
    assert_int_equal(align_up(0, 64), 0);
    assert_int_equal(align_up(65, 64), 128);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(casts_meet_reference), cmocka_unit_test(every_pattern_round_trips),
        cmocka_unit_test(nearest_is_nearest),   cmocka_unit_test(stochastic_is_unbiased),
        cmocka_unit_test(store_rounds_once),    cmocka_unit_test(integers_saturate),
        cmocka_unit_test(names_and_sizes),      cmocka_unit_test(checked_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
