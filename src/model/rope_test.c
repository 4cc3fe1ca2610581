// Tables of rotary positions against a reference, including large positions.
#include "base/format/json.h"
#include "base/format/safetensors.h"
#include "fixtures/base/test_paths.h"
#include "model/arch/arch.h"
#include "model/rope.h"
#include "model/spec.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 256 };

typedef struct golden {
    arena *a;
    json *root;
    safetensors *tensors;
} golden;

static bool golden_open(golden *g)
{
    char path[1024];
    assert_int_equal(arena_create("test", 0, &g->a), ST_OK);
    if (json_read(host_real(), test_shared("golden/ops/rope_tables.json", path), 1 << 24,
                  &g->root) != ST_OK) {
        printf("skipped, no reference data: %s\n", error_last()->text);
        arena_destroy(g->a);
        return false;
    }
    assert_int_equal(
        safetensors_open_mapped(
            host_real(), test_shared("golden/ops/rope_tables.safetensors", path), &g->tensors),
        ST_OK);
    return true;
}

static void golden_close(golden *g)
{
    safetensors_close(g->tensors);
    json_free(g->root);
    arena_destroy(g->a);
}

// Makes the case's spec from a config.json.
static decoder_spec spec_of(golden *g, const json *one)
{
    decoder_spec s;
    text t = {.a = g->a};
    const long long head_dim = json_int(json_get(one, "head_dim"), 0);
    assert_int_equal(text_add(&t,
                              "{\"model_type\": \"llama\", \"vocab_size\": 9, \"hidden_size\": 64,"
                              "\"num_hidden_layers\": 1, \"num_attention_heads\": 1,"
                              "\"intermediate_size\": 8, \"head_dim\": %lld,"
                              "\"max_position_embeddings\": %lld, \"rope_parameters\": {",
                              head_dim,
                              (long long)json_int(json_get(one, "max_position_embeddings"), 0)),
                     ST_OK);
    const json *map = json_get(one, "rope_parameters"), *value = NULL;
    for (int64_t i = 0; i < json_count(map); i++) {
        const char *key = json_key_at(map, i, &value);
        assert_int_equal(text_add(&t, "%s\"%s\": ", i == 0 ? "" : ", ", key), ST_OK);
        if (json_kind_of(value) == JSON_TEXT) {
            assert_int_equal(text_add_json(&t, json_text(value, "")), ST_OK);
        } else if (json_kind_of(value) == JSON_LIST) {
            for (int64_t k = 0; k < json_count(value); k++) {
                assert_int_equal(
                    text_add(&t, "%s%.17g", k == 0 ? "[" : ", ", json_real(json_at(value, k), 0)),
                    ST_OK);
            }
            assert_int_equal(text_add(&t, "]"), ST_OK);
        } else if (json_kind_of(value) == JSON_BOOL) {
            assert_int_equal(text_add(&t, json_bool(value, true) ? "true" : "false"), ST_OK);
        } else {
            assert_int_equal(text_add(&t, "%.17g", json_real(value, 0)), ST_OK);
        }
    }
    assert_int_equal(text_add(&t, "}}"), ST_OK);
    json *root = NULL;
    assert_int_equal(json_parse(t.bytes, t.length, "case", &root), ST_OK);
    if (model_spec_from_json(g->a, root, "case", &s) != ST_OK) fail_msg("%s", error_last()->text);
    json_free(root);
    return s;
}

static const safetensors_entry *tensor(const golden *g, const char *name, const char *what)
{
    char full[256];
    snprintf(full, sizeof(full), "%s.%s", name, what);
    const safetensors_entry *e = safetensors_find(g->tensors, full);
    assert_non_null(e);
    return e;
}

static void rows_compare(const golden *g, const char *name, const char *prefix, const float *rows,
                         int64_t count, int64_t pairs, double tolerance)
{
    char what[32];
    for (int half = 0; half < 2; half++) {
        snprintf(what, sizeof(what), "%s%s", prefix, half == 0 ? "cos" : "sin");
        const safetensors_entry *want = tensor(g, name, what);
        assert_int_equal(want->dims[0], count);
        assert_int_equal(want->dims[1], pairs);
        for (int64_t i = 0; i < count * pairs; i++) {
            const float *row = rows + i / pairs * 2 * pairs;
            const double got = (double)row[half * pairs + i % pairs];
            if (fabs(got - dtype_load(DTYPE_F32, want->data, i)) > tolerance) {
                fail_msg("%s: %s %lld: %g", name, what, (long long)i, got);
            }
        }
    }
}

static void case_compare(golden *g, const json *one)
{
    const char *name = json_text(json_get(one, "name"), "");
    const decoder_spec s = spec_of(g, one);
    const int64_t pairs = s.head_dim / 2;
    const int64_t seq = json_int(json_get(one, "seq_len"), ROWS);
    double frequencies[128], attention = 0.0;
    float *table = NULL;
    model_rope_frequencies(&s, seq, frequencies, &attention);
    assert_true(fabs(attention - json_real(json_get(one, "attention_factor"), 0)) < 1e-12);
    const safetensors_entry *want = tensor(g, name, "inv_freq");
    for (int64_t i = 0; i < pairs; i++) {
        const double f = dtype_load(DTYPE_F64, want->data, i);
        if (fabs(frequencies[i] - f) > 1e-13 * f) fail_msg("%s: inv_freq %lld", name, (long long)i);
    }
    const double tolerance = json_real(json_get(json_get(one, "tolerance_absolute"), "cos"), 0.0);
    assert_int_equal(model_rope_table(g->a, &s, ROWS, seq, &table), ST_OK);
    rows_compare(g, name, "", table, ROWS, pairs, tolerance);
    // Large positions are as exact as small ones: half a unit in the last place of a float.
    float far[16 * 256] = {0};
    const json *positions = json_get(g->root, "far_positions");
    for (int64_t i = 0; i < json_count(positions); i++) {
        model_rope_row(frequencies, pairs, attention, json_int(json_at(positions, i), 0),
                       far + i * 2 * pairs);
    }
    rows_compare(g, name, "far_", far, json_count(positions), pairs, 2e-7);
}

static void equals_reference(void **state)
{
    (void)state;
    golden g;
    if (!golden_open(&g)) skip();
    const json *cases = json_get(g.root, "cases");
    assert_true(json_count(cases) >= 12);
    for (int64_t i = 0; i < json_count(cases); i++) case_compare(&g, json_at(cases, i));
    golden_close(&g);
}

// With a factor of 1, every kind equals the plain one.
static void kinds_are_equal_at_factor_one(void **state)
{
    (void)state;
    static const double ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    double plain[8], f[8], attention = 0.0;
    decoder_spec s = model_arch_spec(model_arch_find("llama"));
    s.head_dim = 16;
    s.context = 64;
    model_rope_frequencies(&s, 64, plain, &attention);
    s.rope.factor = 1.0;
    s.rope.low_freq_factor = 1.0;
    s.rope.high_freq_factor = 4.0;
    s.rope.short_factor = s.rope.long_factor = ones;
    for (int kind = 0; model_rope_names[kind] != NULL; kind++) {
        s.rope.kind = (model_rope_kind)kind;
        model_rope_frequencies(&s, 64, f, &attention);
        assert_true(attention == 1.0);
        for (int i = 0; i < 8; i++) assert_true(fabs(f[i] - plain[i]) < 1e-14);
    }
    float row[16];
    model_rope_row(plain, 8, 1.0, 0, row);
    for (int i = 0; i < 8; i++) assert_true(row[i] == 1.0f && row[8 + i] == 0.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_reference),
        cmocka_unit_test(kinds_are_equal_at_factor_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
